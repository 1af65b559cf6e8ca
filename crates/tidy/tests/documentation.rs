//! Pages of the documentation begin with what they are for. Their links and lengths are rules of
//! tidy.

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
