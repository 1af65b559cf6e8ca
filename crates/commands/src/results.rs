//! Results of sweeps, in a file that survives a crash in the middle of a line.
//!
//! ```text
//!   open: lock, cut off a torn last line, read --> append: a line per result --> finish: sort
//! ```

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::atomic_file;
use crate::output;
use crate::problem::{self, Problem};

/// Key of a result: everything that determines it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub(crate) struct Key {
    /// Path of the scenario as given. Must be the first field; see [`BEGINNING`].
    pub(crate) scenario: String,
    /// Hash of everything simulated and of the simulator's version; in shards also of the build and
    /// the seed.
    pub(crate) digest: String,
    /// Policies of the devices, each with the parameters that are not at their defaults.
    pub(crate) policy: String,
    /// vCPU scheduler; `None`: no host CPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) scheduler: Option<String>,
    pub(crate) seed: u64,
}

/// Line of the file.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Line {
    #[serde(flatten)]
    pub(crate) key: Key,
    pub(crate) report: Value,
}

impl Line {
    /// Appends the line to the text of a file.
    pub(crate) fn write_to(&self, bytes: &mut Vec<u8>) -> serde_json::Result<()> {
        serde_json::to_writer(&mut *bytes, self)?;
        bytes.push(b'\n');
        Ok(())
    }
}

/// Option for another file of results, in errors.
pub(crate) const ANOTHER_FILE: &str = "another file: --results FILE";

/// Beginning of every line, by which a torn line is recognised.
const BEGINNING: &[u8] = b"{\"scenario\":";

/// Locked file of results with its content.
pub(crate) struct Results {
    path: PathBuf,
    file: File,
    all: BTreeMap<Key, Value>,
}

impl Results {
    /// Opens or creates the file and reads it; `fresh` discards its content. `elsewhere` names the
    /// option for another file, for errors.
    pub(crate) fn open(path: &Path, fresh: bool, elsewhere: &str) -> Result<Results> {
        let path = &resolve_regular(path)?;
        let mut file = lock(path, elsewhere)?;
        let mut bytes = Vec::new();
        if !fresh {
            (file.read_to_end(&mut bytes))
                .with_context(|| format!("cannot read {}", path.display()))?;
        }
        let (lines, valid_len) = read(&bytes, path, elsewhere)?;
        let mut results = Results {
            path: path.to_owned(),
            file,
            all: lines
                .into_iter()
                .map(|line| (line.key, line.report))
                .collect(),
        };
        // A last line without its end would be joined with the next result.
        let ended = bytes[..valid_len].last().is_none_or(|&byte| byte == b'\n');
        (results.trim(valid_len as u64, ended)).with_context(|| cannot_write(path))?;
        Ok(results)
    }

    /// Cuts the file off after `valid_len` bytes, and ends its last line unless it is `ended`.
    fn trim(&mut self, valid_len: u64, ended: bool) -> io::Result<()> {
        self.file.set_len(valid_len)?;
        if ended {
            return Ok(());
        }
        self.file.write_all(b"\n")
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Gives results of earlier builds, which spelt policies with all of their parameters, the keys
    /// that they have in this build. Everything else of a key is the same: the digest covers the
    /// policy.
    pub(crate) fn respell<'a>(&mut self, keys: impl Iterator<Item = &'a Key>) {
        let without_policy = |key: &Key| Key {
            policy: String::new(),
            ..key.clone()
        };
        let known: BTreeMap<Key, String> = (self.all.keys())
            .map(|key| (without_policy(key), key.policy.clone()))
            .collect();
        for key in keys
            .filter(|key| !self.all.contains_key(key))
            .collect::<Vec<_>>()
        {
            let Some(policy) = known.get(&without_policy(key)) else {
                continue;
            };
            let old = Key {
                policy: policy.clone(),
                ..key.clone()
            };
            if let Some(report) = self.all.remove(&old) {
                self.all.insert(key.clone(), report);
            }
        }
    }

    /// Returns the result for `key`, with the stored key.
    pub(crate) fn get(&self, key: &Key) -> Option<(&Key, &Value)> {
        self.all.get_key_value(key)
    }

    /// Adds a result and appends it to the file.
    pub(crate) fn append(&mut self, key: Key, report: Value) -> Result<()> {
        let line = Line { key, report };
        // One write for each line, so that a killed sweep leaves at most its last line torn.
        let mut bytes = Vec::new();
        line.write_to(&mut bytes)?;
        (self.file.write_all(&bytes)).with_context(|| cannot_write(&self.path))?;
        self.all.insert(line.key, line.report);
        Ok(())
    }

    /// Replaces the file by one sorted by key, so that it does not depend on the order of
    /// completion. Must be the last call: the lock and later lines would belong to the file that
    /// was replaced.
    pub(crate) fn finish(&self) -> Result<()> {
        let mut bytes = Vec::new();
        for (key, report) in &self.all {
            let (key, report) = (key.clone(), report.clone());
            Line { key, report }.write_to(&mut bytes)?;
        }
        atomic_file::write(&self.path, &bytes)
    }

    /// Removes the file, whose results are in another one by now. Must be the last call.
    pub(crate) fn remove(&self) -> Result<()> {
        let removed = match fs::remove_file(&self.path) {
            // Where there are no locks, another process may have finished the same results.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed,
        };
        removed.with_context(|| format!("cannot remove {}", self.path.display()))
    }
}

/// Returns the file that `path` leads to, which must be a regular file because results replace it.
fn resolve_regular(path: &Path) -> Result<PathBuf> {
    match atomic_file::regular(path)? {
        Some(_) => fs::canonicalize(path).with_context(|| cannot_write(path)),
        None => Ok(path.to_owned()),
    }
}

fn cannot_write(path: &Path) -> String {
    format!("cannot write {}", path.display())
}

/// Opens and locks the file at `path`.
fn lock(path: &Path, elsewhere: &str) -> Result<File> {
    loop {
        let mut options = OpenOptions::new();
        let file = options.read(true).append(true).create(true).open(path);
        let file = file.map_err(|error| problem::cannot_write(path, &error))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let problem = Problem::new("another sweep is writing its results to this file");
                let help = format!("wait for its end, or use {elsewhere}");
                return Err(problem.at(path.display().to_string()).help(help).into());
            }
            // Some file systems have no locks.
            Err(TryLockError::Error(error)) => {
                let path = path.display();
                output::tell(format_args!(
                    "note: {path} cannot be locked, so nothing keeps another sweep from writing \
                     it: {error}"
                ));
                return Ok(file);
            }
        }
        // Another sweep may have replaced the file between opening and locking.
        let id = |metadata: fs::Metadata| (metadata.dev(), metadata.ino());
        let there = fs::metadata(path).map(id).ok();
        if there == file.metadata().map(id).ok() {
            return Ok(file);
        }
    }
}

/// Parses the results in `bytes` and returns the number of valid bytes; a torn last line is left
/// out.
fn read(bytes: &[u8], path: &Path, elsewhere: &str) -> Result<(Vec<Line>, usize)> {
    let mut results = Vec::new();
    let mut valid_len = 0;
    for (i, line) in bytes.split_inclusive(|&b| b == b'\n').enumerate() {
        match serde_json::from_slice(line) {
            Ok(line) => results.push(line),
            Err(_) if is_torn(line) => break,
            Err(error) => {
                let problem = Problem::new(format!("not a result of a sweep: {error}"));
                let at = format!("{}, line {}", path.display(), i + 1);
                let help = format!("start again with --fresh, or use {elsewhere}");
                return Err(problem.at(at).help(help).into());
            }
        }
        valid_len += line.len();
    }
    Ok((results, valid_len))
}

/// Returns true if `line` is the beginning of a line of results without its end.
fn is_torn(line: &[u8]) -> bool {
    // The line may be torn within the beginning itself.
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

    fn open(path: &Path) -> Result<Results> {
        Results::open(path, false, "another file")
    }

    fn report() -> Value {
        serde_json::json!({ "title": "Größe", "vms": [1.5, null] })
    }

    #[test]
    fn opening_a_truncated_file_recovers_its_whole_lines() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("results.jsonl");
        let mut results = open(&path).expect("new");
        for seed in 0..3 {
            results.append(key(seed), report()).expect("writable");
        }
        results.finish().expect("writable");
        drop(results);
        let bytes = fs::read(&path).expect("kept");
        for cut in 0..=bytes.len() {
            fs::write(&path, &bytes[..cut]).expect("writable");
            let mut results = open(&path).expect("only torn");
            // A line that lacks no more than its end is whole.
            let after = bytes.get(cut) == Some(&b'\n');
            let lines = bytes[..cut].iter().filter(|&&b| b == b'\n').count() + usize::from(after);
            assert_eq!(results.all.len(), lines, "cut at {cut}");
            for seed in lines as u64..3 {
                results.append(key(seed), report()).expect("writable");
            }
            drop(results);
            assert_eq!(fs::read(&path).expect("kept"), bytes, "cut at {cut}");
        }
    }

    #[test]
    fn results_under_another_spelling_of_their_policy_are_found() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("results.jsonl");
        let mut results = open(&path).expect("new");
        let spelt = |policy: &str, seed| Key {
            policy: policy.to_owned(),
            ..key(seed)
        };
        let old = "fifo{\"slack\": 1}";
        results.append(spelt(old, 1), report()).expect("writable");
        results
            .append(spelt("fifo", 2), report())
            .expect("writable");
        let wanted: Vec<Key> = (1..=3).map(key).collect();
        results.respell(wanted.iter());
        let found: Vec<bool> = wanted
            .iter()
            .map(|key| results.get(key).is_some())
            .collect();
        assert_eq!(found, [true, true, false]);
        assert!(results.get(&spelt(old, 1)).is_none());
        results.finish().expect("writable");
        let lines = fs::read_to_string(&path).expect("kept");
        assert!(
            !lines.contains("slack") && lines.lines().count() == 2,
            "{lines}"
        );
    }

    #[test]
    fn figures_are_read_back_to_the_last_digit() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("results.jsonl");
        // Quotients, as rates and means are.
        let figures: Vec<f64> = (1..3_000).map(|n| 1e9 / f64::from(n) / 7.0).collect();
        let report = Value::from(figures);
        let mut results = open(&path).expect("new");
        results.append(key(1), report.clone()).expect("writable");
        drop(results);
        let results = open(&path).expect("a file");
        assert_eq!(results.get(&key(1)).expect("there").1, &report);
    }

    #[test]
    fn a_file_of_other_content_is_refused_and_unchanged() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("letter.txt");
        fs::write(&path, "Dear diary").expect("writable");
        assert!(open(&path).is_err());
        assert_eq!(fs::read(&path).expect("there"), b"Dear diary");
    }

    #[test]
    fn special_files_are_refused_and_links_followed() {
        let dir = tempfile::tempdir().expect("a directory");
        assert!(open(dir.path()).is_err());
        assert!(open(Path::new("/dev/null")).is_err());
        let (path, link) = (dir.path().join("results"), dir.path().join("link"));
        fs::write(&path, "").expect("writable");
        std::os::unix::fs::symlink(&path, &link).expect("writable");
        let mut results = open(&link).expect("a file");
        results.append(key(1), report()).expect("writable");
        results.finish().expect("writable");
        assert!(link.is_symlink());
        assert!(!fs::read(&path).expect("kept").is_empty());
    }

    #[test]
    fn results_that_another_process_removed_are_removed() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("results.jsonl");
        let results = open(&path).expect("new");
        fs::remove_file(&path).expect("there");
        results.remove().expect("nothing is left to do");
    }

    #[test]
    fn a_locked_file_is_refused() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("results.jsonl");
        let first = open(&path).expect("new");
        let second = open(&path).err().expect("locked");
        assert!(second.to_string().contains("another sweep"), "{second}");
        first.finish().expect("writable");
        drop(first);
        assert!(open(&path).is_ok());
    }
}
