//! Pages of the documentation begin with what they are for. Their links and lengths are rules of
//! tidy.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use walkdir::WalkDir;

/// Sentences at the beginning of a page; a colon before an example ends one, too.
const OPENING_SENTENCES: usize = 3;

fn root() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    root.canonicalize().expect("the workspace is there")
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Markdown files below `docs`.
fn pages() -> Vec<PathBuf> {
    let entries = WalkDir::new(root().join("docs")).into_iter();
    let paths = entries.map(|entry| entry.expect("readable").into_path());
    paths
        .filter(|path| path.extension().is_some_and(|is| is == "md"))
        .collect()
}

#[test]
fn pages_begin_with_what_they_are_for() {
    let docs = root().join("docs");
    let mut wrong = Vec::new();
    for page in pages() {
        let folder = page.parent().expect("a page is in a folder");
        let is_checked =
            [docs.clone(), docs.join("dev"), docs.join("policies")].contains(&folder.to_path_buf());
        if !is_checked {
            continue;
        }
        let text = read(&page);
        let opening = text.split("\n\n").nth(1).unwrap_or_default();
        let ends = opening
            .split_whitespace()
            .filter(|word| word.ends_with(['.', ':', ')']))
            .count();
        if !text.starts_with("# ") || ends < OPENING_SENTENCES {
            wrong.push(page.display().to_string());
        }
    }
    assert!(
        wrong.is_empty(),
        "three sentences that say what the page is for are missing: {wrong:#?}"
    );
}

/// Names of the functions with the attribute of a test in all sources.
fn tests() -> BTreeSet<String> {
    let entries = WalkDir::new(root().join("crates")).into_iter();
    let paths = entries.map(|entry| entry.expect("readable").into_path());
    let mut tests = BTreeSet::new();
    for path in paths.filter(|path| path.extension().is_some_and(|is| is == "rs")) {
        let mut is_test = false;
        for line in read(&path).lines().map(str::trim) {
            let function = line.strip_prefix("async ").unwrap_or(line);
            if line.starts_with("#[test]") || line.starts_with("#[tokio::test") {
                is_test = true;
            } else if let Some(name) = function.strip_prefix("fn ") {
                let name = name.split(['(', '<']).next().unwrap_or_default();
                if std::mem::take(&mut is_test) {
                    tests.insert(name.to_owned());
                }
            }
        }
    }
    tests
}

#[test]
fn promises_of_the_security_page_name_tests_that_exist() {
    let page = read(&root().join("SECURITY.md"));
    let (_, section) = page
        .split_once("\n## Promises and their tests\n")
        .expect("the section is there");
    let section = section.split("\n## ").next().unwrap_or_default();
    let rows = section.lines().filter(|line| line.starts_with("| "));
    // Behind the headings.
    let rows: Vec<&str> = rows.skip(1).collect();
    assert!(rows.len() > 20, "{} promises", rows.len());
    let tests = tests();
    let mut wrong = Vec::new();
    for row in rows {
        let cell = row.trim_end_matches(" |").rsplit(" | ").next();
        let names = cell.unwrap_or_default().split('`').skip(1).step_by(2);
        let names: Vec<&str> = names.collect();
        if names.is_empty() {
            wrong.push(format!("no test: {row}"));
        }
        let missing = names.into_iter().filter(|name| !tests.contains(*name));
        wrong.extend(missing.map(|name| format!("there is no test {name}")));
    }
    assert!(wrong.is_empty(), "SECURITY.md: {wrong:#?}");
}
