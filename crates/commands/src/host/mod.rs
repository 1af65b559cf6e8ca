//! Host as `/sys`, `/proc` and `/run` describe it, for commands that set Tidegate up.

mod block_devices;
mod mounts;

use std::fs;
use std::path::{Path, PathBuf};

pub(crate) use block_devices::{BlockDevice, Medium};

/// Root of the files that describe a host: `/`, or a directory with files of another host.
#[derive(Clone, Debug)]
pub(crate) struct HostRoot(PathBuf);

impl HostRoot {
    /// Takes the host whose root directory is `root`.
    pub(crate) fn new(root: &Path) -> HostRoot {
        HostRoot(root.to_owned())
    }

    /// Returns the path below the root of an absolute path.
    pub(crate) fn path(&self, absolute: impl AsRef<Path>) -> PathBuf {
        let absolute = absolute.as_ref();
        self.0.join(absolute.strip_prefix("/").unwrap_or(absolute))
    }

    /// Reads a short file and returns its text without white space at both ends; `None` if it
    /// cannot be read or is empty.
    pub(crate) fn read(&self, absolute: impl AsRef<Path>) -> Option<String> {
        read(&self.path(absolute))
    }
}

/// Reads a short file as [`HostRoot::read`] does, by its path.
fn read(path: &Path) -> Option<String> {
    let text = fs::read(path).ok()?;
    let text = String::from_utf8_lossy(&text).trim().to_owned();
    (!text.is_empty()).then_some(text)
}

/// Returns the names in a directory in order; none if it cannot be read.
fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let mut names: Vec<String> = names.collect();
    names.sort();
    names
}
