//! Pages of the documentation: links and anchors resolve, each page begins with what it is for, and
//! pages for tasks are short.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use walkdir::WalkDir;

/// Words of a task page that are read in five minutes.
const TASK_WORDS: usize = 1500;
/// Sentences at the beginning of a page; a colon before an example ends one, too.
const OPENING_SENTENCES: usize = 3;

fn root() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    root.canonicalize().expect("the workspace is there")
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Markdown files at the root, below `docs` and below `experiments`.
fn pages() -> Vec<PathBuf> {
    let root = root();
    let at_root = WalkDir::new(&root).max_depth(1);
    let below = ["docs", "experiments"].map(|folder| WalkDir::new(root.join(folder)));
    let entries = below.into_iter().chain([at_root]).flatten();
    let paths = entries.map(|entry| entry.expect("readable").into_path());
    paths
        .filter(|path| path.extension().is_some_and(|is| is == "md"))
        .collect()
}

/// Text without fenced blocks, whose fences are at the begin of lines.
fn prose(text: &str) -> String {
    let blocks = text.split("\n```").step_by(2);
    blocks.collect::<Vec<_>>().join("\n")
}

/// Name by which a link leads to a heading, as GitHub makes it.
fn anchor(heading: &str) -> String {
    let mut text = heading.trim().replace('`', "");
    // Of a link in the heading the text counts.
    while let (Some(open), Some(middle)) = (text.find('['), text.find("](")) {
        let Some(close) = text[middle..].find(')').map(|at| middle + at) else {
            break;
        };
        text = format!(
            "{}{}{}",
            &text[..open],
            &text[open + 1..middle],
            &text[close + 1..]
        );
    }
    let lower = text.to_lowercase();
    let kept = lower.chars().filter_map(|c| match c {
        ' ' => Some('-'),
        '-' | '_' => Some(c),
        _ => c.is_alphanumeric().then_some(c),
    });
    kept.collect()
}

fn anchors(page: &Path) -> BTreeSet<String> {
    let text = format!("\n{}", prose(&read(page)));
    let headings = text.lines().filter(|line| line.starts_with('#'));
    headings
        .map(|line| anchor(line.trim_start_matches('#')))
        .collect()
}

#[test]
fn links_lead_to_files_and_headings() {
    let mut broken = Vec::new();
    for page in pages() {
        let text = prose(&read(&page));
        let targets = text
            .split("](")
            .skip(1)
            .filter_map(|rest| rest.split([')', ' ', '\n']).next());
        for target in targets.filter(|target| !target.contains("://")) {
            let (file, heading) = target.split_once('#').unwrap_or((target, ""));
            let linked = match file {
                "" => page.clone(),
                _ => page.parent().expect("a page is in a folder").join(file),
            };
            let is_page = linked.extension().is_some_and(|is| is == "md");
            let resolves = linked.exists()
                && (heading.is_empty() || !is_page || anchors(&linked).contains(heading));
            if !resolves {
                broken.push(format!("{}: {target}", page.display()));
            }
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
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

#[test]
fn pages_for_tasks_are_short() {
    let guide = root().join("docs/operating.md");
    let text = read(&guide);
    let mut tasks = 0;
    for target in text.split("](").skip(1) {
        let name = target.split(')').next().expect("a link has an end");
        if name.contains('/') || name == "README.md" {
            continue;
        }
        let words = read(&guide.with_file_name(name)).split_whitespace().count();
        assert!(
            words <= TASK_WORDS,
            "docs/{name} has {words} words: split it"
        );
        tasks += 1;
    }
    assert!(tasks >= 14, "only {tasks} tasks");
}
