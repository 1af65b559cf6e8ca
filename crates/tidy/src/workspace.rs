//! The workspace's files, read once.

use std::{collections::BTreeSet, fs, path::Path, sync::Mutex, thread};

use anyhow::{Context, Result, bail};
use walkdir::{DirEntry, WalkDir};

use crate::{modules::Crate, parse::ParsedFile, source::Source};

/// Folders whose Rust sources the rules are about.
const SOURCES: [&str; 2] = ["crates", "fuzz"];
/// Files and folders beside the sources that name keys, metrics and files.
const TEXTS: [&str; 10] = [
    "README.md",
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "docs",
    "examples",
    "experiments",
    "devices",
    "bench",
];

/// A file that is not Rust: documentation, a configuration, a script.
pub(crate) struct Text {
    pub(crate) path: String,
    pub(crate) text: String,
}

/// All files that rules look at.
pub struct Workspace {
    pub(crate) sources: Vec<Source>,
    pub(crate) texts: Vec<Text>,
    pub(crate) crates: Vec<Crate>,
    /// Paths of all files, those that no rule reads included.
    files: BTreeSet<String>,
}

impl Workspace {
    /// Reads and parses the files below `root`.
    ///
    /// # Errors
    ///
    /// A file that cannot be read, or a Rust file that cannot be parsed.
    pub fn read(root: &Path) -> Result<Self> {
        let mut rust = Vec::new();
        for folder in SOURCES {
            rust.extend(read_folder(root, folder, is_rust)?);
        }
        let mut others = Vec::new();
        for folder in TEXTS {
            others.extend(read_folder(root, folder, is_text)?);
        }
        Self::new(rust, others, all_files(root)?)
    }

    /// Parses sources that are given as pairs of path and text, for tests of rules.
    ///
    /// # Errors
    ///
    /// A Rust file that cannot be parsed.
    pub fn from_texts(files: &[(&str, &str)]) -> Result<Self> {
        let all = files
            .iter()
            .map(|&(path, text)| (path.to_owned(), text.to_owned()));
        let (rust, others) = all.partition(|(path, _)| path.ends_with(".rs"));
        let paths = files.iter().map(|&(path, _)| path.to_owned()).collect();
        Self::new(rust, others, paths)
    }

    /// Returns `true` if there is a file or a folder at a path relative to the root.
    pub(crate) fn exists(&self, path: &str) -> bool {
        // Only files are listed: a folder exists if some file is below it.
        let folder = format!("{path}/");
        let mut below = self.files.range(folder.clone()..);
        path.is_empty()
            || self.files.contains(path)
            || below.next().is_some_and(|file| file.starts_with(&folder))
    }

    fn new(
        rust: Vec<(String, String)>,
        others: Vec<(String, String)>,
        files: BTreeSet<String>,
    ) -> Result<Self> {
        let sources = parse_all(rust)?;
        let crates = Crate::all_in(&sources);
        let texts = others
            .into_iter()
            .map(|(path, text)| Text { path, text })
            .collect();
        Ok(Self {
            sources,
            texts,
            crates,
            files,
        })
    }
}

/// Parses all files on as many threads as the machine has processors. Parsing is nearly all of the
/// time that a run takes.
fn parse_all(files: Vec<(String, String)>) -> Result<Vec<Source>> {
    let todo = Mutex::new(files);
    let done = Mutex::new(Vec::new());
    let work = || {
        loop {
            // A queue, as files differ in size; the lock is held for a moment only.
            let next = todo
                .lock()
                .expect("no thread panics with the lock held")
                .pop();
            let Some((path, text)) = next else { break };
            let parsed = ParsedFile::parse(&text).with_context(|| format!("cannot parse {path}"));
            let source = parsed.map(|parsed| Source { path, text, parsed });
            done.lock()
                .expect("no thread panics with the lock held")
                .push(source);
        }
    };
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(work);
        }
    });
    let parsed = done.into_inner().expect("all threads have ended");
    let mut sources = parsed.into_iter().collect::<Result<Vec<_>>>()?;
    // Threads finish in any order; findings must not.
    sources.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(sources)
}

/// Paths of all files below `root`, without those that are built or of version control.
fn all_files(root: &Path) -> Result<BTreeSet<String>> {
    let mut files = BTreeSet::new();
    let is_kept = |entry: &DirEntry| is_not_built(entry) && entry.file_name() != ".git";
    for entry in WalkDir::new(root).into_iter().filter_entry(is_kept) {
        let entry = entry.with_context(|| format!("cannot list {}", root.display()))?;
        let path = entry.path().strip_prefix(root).ok().and_then(Path::to_str);
        if let Some(path) = path.filter(|_| !entry.file_type().is_dir()) {
            files.insert(path.to_owned());
        }
    }
    Ok(files)
}

/// Paths and texts of the files below `folder` that `wanted` accepts. A folder that does not exist
/// has none.
fn read_folder(
    root: &Path,
    folder: &str,
    wanted: fn(&Path) -> bool,
) -> Result<Vec<(String, String)>> {
    let top = root.join(folder);
    if !top.exists() {
        return Ok(Vec::new());
    }
    let mut files = Vec::new();
    for entry in WalkDir::new(&top)
        .sort_by_file_name()
        .into_iter()
        .filter_entry(is_not_built)
    {
        let entry = entry.with_context(|| format!("cannot list {}", top.display()))?;
        if !entry.file_type().is_file() || !wanted(entry.path()) {
            continue;
        }
        let text = fs::read_to_string(entry.path())
            .with_context(|| format!("cannot read {}", entry.path().display()))?;
        let Some(path) = entry.path().strip_prefix(root).ok().and_then(Path::to_str) else {
            // Debts are text, in which a name must be writable.
            bail!("{}: names of files must be UTF-8", entry.path().display());
        };
        files.push((path.to_owned(), text));
    }
    Ok(files)
}

/// Returns `true` for an entry that is written by hand, unlike build directories and fuzzing
/// corpora.
fn is_not_built(entry: &DirEntry) -> bool {
    !matches!(
        entry.file_name().to_str(),
        Some("target" | "corpus" | "artifacts")
    )
}

fn is_rust(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "rs")
}

fn is_text(path: &Path) -> bool {
    path.extension().is_some_and(|extension| {
        ["md", "toml", "py", "json"]
            .iter()
            .any(|known| extension == *known)
    })
}
