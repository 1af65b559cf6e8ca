//! The results of sweeps, in a file that outlives being killed in the middle of a line.
//!
//! ```text
//!   open: lock, cut a torn end off, read --> keep: a line each --> finish: all in one order
//! ```

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::kept;
use crate::problem::{self, Problem};

/// What a result is the result of.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub(crate) struct Key {
    /// The scenario's file as it was named. The first field: see [`BEGINNING`].
    pub(crate) scenario: String,
    /// All that is simulated and by which version: what differs in anything has another one.
    pub(crate) digest: String,
    /// The policies of its devices with their parameters.
    pub(crate) policy: String,
    /// The scheduler of its processors; `None`: it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) scheduler: Option<String>,
    pub(crate) seed: u64,
}

/// A line of the file.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Line {
    #[serde(flatten)]
    key: Key,
    report: Value,
}

/// What every line begins with.
const BEGINNING: &[u8] = b"{\"scenario\":";

/// The file and what is in it. Nobody else writes to it as long as this lives.
pub(crate) struct Results {
    path: PathBuf,
    file: File,
    all: BTreeMap<Key, Value>,
}

impl Results {
    /// Opens `path`, or makes it; `fresh`: what it holds is forgotten.
    pub(crate) fn open(path: &Path, fresh: bool) -> Result<Results> {
        let path = &regular(path)?;
        let mut file = lock(path)?;
        let mut bytes = Vec::new();
        if !fresh {
            (file.read_to_end(&mut bytes))
                .with_context(|| format!("cannot read {}", path.display()))?;
        }
        let (lines, whole) = read(&bytes, path)?;
        let mut results = Results {
            path: path.to_owned(),
            file,
            all: lines.into_iter().map(|it| (it.key, it.report)).collect(),
        };
        let ended = bytes[..whole].last().is_none_or(|&byte| byte == b'\n');
        (results.trim(whole as u64, ended)).with_context(|| cannot_write(path))?;
        Ok(results)
    }

    /// Cuts the file off after `whole` bytes, and ends its last line unless it is `ended`.
    fn trim(&mut self, whole: u64, ended: bool) -> io::Result<()> {
        self.file.set_len(whole)?;
        match ended {
            true => Ok(()),
            false => self.file.write_all(b"\n"),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The result of `key`, with the key as it is kept.
    pub(crate) fn get(&self, key: &Key) -> Option<(&Key, &Value)> {
        self.all.get_key_value(key)
    }

    /// Keeps another one, in the file from now on.
    pub(crate) fn keep(&mut self, key: Key, report: Value) -> Result<()> {
        let line = Line { key, report };
        // One write a line: a sweep that is killed leaves at most its last one torn.
        let text = serde_json::to_string(&line)? + "\n";
        (self.file.write_all(text.as_bytes())).with_context(|| cannot_write(&self.path))?;
        self.all.insert(line.key, line.report);
        Ok(())
    }

    /// Puts them into one order, however many cores there were.
    pub(crate) fn finish(&self) -> Result<()> {
        let mut bytes = Vec::new();
        for (key, report) in &self.all {
            let (key, report) = (key.clone(), report.clone());
            serde_json::to_writer(&mut bytes, &Line { key, report })?;
            bytes.push(b'\n');
        }
        kept::write(&self.path, &bytes)
    }
}

/// The file that `path` leads to. Results take the place of what was there, so it has to be a file:
/// nobody means to lose a device.
fn regular(path: &Path) -> Result<PathBuf> {
    match kept::regular(path)? {
        Some(_) => fs::canonicalize(path).with_context(|| cannot_write(path)),
        None => Ok(path.to_owned()),
    }
}

fn cannot_write(path: &Path) -> String {
    format!("cannot write {}", path.display())
}

/// The file at `path`, locked.
fn lock(path: &Path) -> Result<File> {
    loop {
        let mut options = OpenOptions::new();
        let file = options.read(true).append(true).create(true).open(path);
        let file = file.map_err(|error| problem::cannot_write(path, &error))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let problem = Problem::new("another sweep writes its results there");
                let help = "wait for its end, or --results FILE uses another file";
                return Err(problem.at(path.display().to_string()).help(help).into());
            }
            // Not every file system has locks; they only keep two sweeps apart.
            Err(TryLockError::Error(_)) => return Ok(file),
        }
        // The other one may have put another file in its place in the meantime.
        let id = |it: fs::Metadata| (it.dev(), it.ino());
        let there = fs::metadata(path).map(id).ok();
        if there == file.metadata().map(id).ok() {
            return Ok(file);
        }
    }
}

/// The results in `bytes`, and how many of the bytes they are: a last line that was torn when a
/// sweep was killed is left out.
fn read(bytes: &[u8], path: &Path) -> Result<(Vec<Line>, usize)> {
    let mut results = Vec::new();
    let mut whole = 0;
    for (i, line) in bytes.split_inclusive(|&b| b == b'\n').enumerate() {
        match serde_json::from_slice(line) {
            Ok(line) => results.push(line),
            Err(_) if is_torn(line) => break,
            Err(error) => {
                let problem = Problem::new(format!("not a result of a sweep: {error}"));
                let at = format!("{}, line {}", path.display(), i + 1);
                let help = "--fresh starts anew, --results FILE uses another file";
                return Err(problem.at(at).help(help).into());
            }
        }
        whole += line.len();
    }
    Ok((results, whole))
}

/// Whether it is the beginning of a line, and not the end of something else.
fn is_torn(line: &[u8]) -> bool {
    let both = line.len().min(BEGINNING.len());
    !line.ends_with(b"\n") && line[..both] == BEGINNING[..both]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(seed: u64) -> Key {
        Key {
            scenario: "größe.toml".to_owned(),
            digest: "0".to_owned(),
            policy: "fifo".to_owned(),
            scheduler: None,
            seed,
        }
    }

    fn report() -> Value {
        serde_json::json!({ "title": "Größe", "vms": [1.5, null] })
    }

    #[test]
    fn a_file_cut_anywhere_keeps_the_lines_that_are_whole() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("results.jsonl");
        let mut results = Results::open(&path, false).expect("new");
        for seed in 0..3 {
            results.keep(key(seed), report()).expect("writable");
        }
        results.finish().expect("writable");
        drop(results);
        let bytes = fs::read(&path).expect("kept");
        for cut in 0..=bytes.len() {
            fs::write(&path, &bytes[..cut]).expect("writable");
            let mut results = Results::open(&path, false).expect("only torn");
            // A line that lacks no more than its end is whole.
            let after = bytes.get(cut) == Some(&b'\n');
            let lines = bytes[..cut].iter().filter(|&&b| b == b'\n').count() + usize::from(after);
            assert_eq!(results.all.len(), lines, "cut at {cut}");
            for seed in lines as u64..3 {
                results.keep(key(seed), report()).expect("writable");
            }
            drop(results);
            assert_eq!(fs::read(&path).expect("kept"), bytes, "cut at {cut}");
        }
    }

    #[test]
    fn what_is_not_a_torn_line_is_not_cut_off() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("letter.txt");
        fs::write(&path, "Dear diary").expect("writable");
        assert!(Results::open(&path, false).is_err());
        assert_eq!(fs::read(&path).expect("there"), b"Dear diary");
    }

    #[test]
    fn what_is_no_file_is_not_replaced_and_a_link_is_followed() {
        let dir = tempfile::tempdir().expect("a directory");
        assert!(Results::open(dir.path(), false).is_err());
        assert!(Results::open(Path::new("/dev/null"), false).is_err());
        let (path, link) = (dir.path().join("results"), dir.path().join("link"));
        fs::write(&path, "").expect("writable");
        std::os::unix::fs::symlink(&path, &link).expect("writable");
        let mut results = Results::open(&link, false).expect("a file");
        results.keep(key(1), report()).expect("writable");
        results.finish().expect("writable");
        assert!(link.is_symlink());
        assert!(!fs::read(&path).expect("kept").is_empty());
    }

    #[test]
    fn two_sweeps_do_not_share_a_file() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("results.jsonl");
        let first = Results::open(&path, false).expect("new");
        let second = Results::open(&path, false).err().expect("locked");
        assert!(second.to_string().contains("another sweep"), "{second}");
        first.finish().expect("writable");
        drop(first);
        assert!(Results::open(&path, false).is_ok());
    }
}
