//! `ARCHITECTURE.md`, compared with the repository: names, and the graph of crates.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::{env, fs};

use walkdir::WalkDir;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Files below `folder` whose name ends with `extension`.
fn files(folder: &str, extension: &str) -> Vec<PathBuf> {
    let entries = WalkDir::new(root().join(folder)).sort_by_file_name();
    let paths = entries.into_iter().map(|entry| entry.expect("readable"));
    let paths = paths.map(walkdir::DirEntry::into_path);
    paths
        .filter(|path| path.extension().is_some_and(|is| is == extension))
        .collect()
}

fn is_name_char(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Rust names mentioned in the page: inline code that is a Rust name or a path of such
/// (`Engine::poll_done`, `sim`), and in fenced blocks words with `::` or `_`.
fn rust_names(text: &str) -> BTreeSet<&str> {
    let is_path = |span: &&str| {
        let mut parts = span.split("::");
        parts.all(|part| !part.is_empty() && part.chars().all(is_name_char))
    };
    let mut names = BTreeSet::new();
    for (at, block) in text.split("```").enumerate() {
        if at % 2 == 0 {
            names.extend(block.split('`').skip(1).step_by(2).filter(is_path));
        } else {
            let words = block.split(|c| !is_name_char(c) && c != ':');
            let words = words.map(|word| word.trim_matches(':'));
            names.extend(words.filter(|word| word.contains("::") || word.contains('_')));
        }
    }
    names
}

#[test]
fn names_in_the_architecture_are_names_in_the_sources() {
    let text = read(&root().join("ARCHITECTURE.md"));
    let parts = rust_names(&text)
        .into_iter()
        .flat_map(|path| path.split("::"));
    let mut unknown: BTreeSet<&str> = parts.collect();
    for folder in fs::read_dir(root().join("crates")).expect("readable") {
        let folder = folder.expect("readable").file_name();
        unknown.remove(&*folder.to_string_lossy());
    }
    for path in files("crates", "rs") {
        if path.ends_with(file!()) {
            continue;
        }
        for word in read(&path).split(|c| !is_name_char(c)) {
            unknown.remove(word);
        }
    }
    assert!(unknown.is_empty(), "not in the sources: {unknown:?}");
}

/// Crates of the workspace that each crate names among its dependencies.
fn dependencies() -> BTreeMap<String, BTreeSet<String>> {
    let mut all = BTreeMap::new();
    for entry in fs::read_dir(root().join("crates")).expect("readable") {
        let folder = entry.expect("readable").path();
        let manifest: toml::Table =
            toml::from_str(&read(&folder.join("Cargo.toml"))).expect("a manifest is TOML");
        let named = manifest.get("dependencies").and_then(toml::Value::as_table);
        let named = named.into_iter().flat_map(|table| table.keys());
        let named = named.filter_map(|name| name.strip_prefix("tidegate-"));
        let name = folder
            .file_name()
            .expect("a folder has a name")
            .to_string_lossy();
        all.insert(name.into_owned(), named.map(str::to_owned).collect());
    }
    all
}

/// Arrows of the first diagram: `a --> b & c`.
fn arrows(text: &str) -> BTreeMap<String, BTreeSet<String>> {
    let diagram = text.split("```mermaid").nth(1).expect("there is a diagram");
    let diagram = diagram
        .split("```")
        .next()
        .expect("a split has a first part");
    let lines = diagram.lines().filter_map(|line| line.split_once("-->"));
    let ends = lines.map(|(from, to)| {
        let to = to.split('&').map(|name| name.trim().to_owned());
        (from.trim().to_owned(), to.collect())
    });
    ends.collect()
}

/// Everything that `from` leads to.
fn reach(graph: &BTreeMap<String, BTreeSet<String>>, from: &str) -> BTreeSet<String> {
    let mut reached = BTreeSet::new();
    let mut todo = vec![from.to_owned()];
    while let Some(name) = todo.pop() {
        for next in graph.get(&name).into_iter().flatten() {
            if reached.insert(next.clone()) {
                todo.push(next.clone());
            }
        }
    }
    reached
}

#[test]
fn the_graph_of_crates_is_that_of_the_manifests() {
    let (drawn, real) = (
        arrows(&read(&root().join("ARCHITECTURE.md"))),
        dependencies(),
    );
    for (from, to) in &drawn {
        let used = (real.get(from)).unwrap_or_else(|| panic!("{from} is drawn but is no crate"));
        let missing: Vec<_> = to.difference(used).collect();
        assert!(missing.is_empty(), "{from} does not use {missing:?}");
    }
    // Only tests use them, so they are no layer of the product.
    let not_in_diagram = ["testkit", "tidy"];
    for from in real
        .keys()
        .filter(|name| !not_in_diagram.contains(&name.as_str()))
    {
        assert_eq!(reach(&drawn, from), reach(&real, from), "what {from} uses");
    }
}
