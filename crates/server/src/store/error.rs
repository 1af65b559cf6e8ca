//! Why the store could not do what it was asked.

use std::io;
use std::path::{Path, PathBuf};

use crate::help::missing_directory;

/// Why the store could not be opened, read or written.
///
/// Where a change failed, it is there whole after the next opening or not at all; as a rule it is
/// not. What was acknowledged before is there in any case.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// A system call failed.
    #[error("{}: cannot {what}: {source}", path.display())]
    Io {
        /// The store's file.
        path: PathBuf,
        /// What was tried.
        what: &'static str,
        /// How it failed.
        source: io::Error,
    },
    /// Another process has it open.
    #[error("{}: in use by another process: it holds the lock", path.display())]
    InUse {
        /// The store's file.
        path: PathBuf,
    },
    /// It holds something else; it was not touched.
    #[error("{}: {found}, not a store of Tidegate's; it is not touched", path.display())]
    NotAStore {
        /// The file.
        path: PathBuf,
        /// What it is instead.
        found: String,
    },
    /// A newer Tidegate wrote it; it was not touched.
    #[error(
        "{}: its schema is version {found}, this daemon knows them up to {known}; it is not \
         touched",
        path.display()
    )]
    Newer {
        /// The store's file.
        path: PathBuf,
        /// Its version.
        found: u64,
        /// The newest that is known here.
        known: u64,
    },
    /// Its bytes are not those that were written.
    #[error("{}: damaged: {why}", path.display())]
    Damaged {
        /// The store's file.
        path: PathBuf,
        /// What does not hold.
        why: String,
    },
    /// Somebody removed or replaced the file while it was open. Nothing was written.
    #[error("{}: removed or replaced while the daemon had it open", path.display())]
    Replaced {
        /// The store's file.
        path: PathBuf,
    },
}

impl StoreError {
    /// What would help, where that is known.
    pub fn help(&self) -> Option<String> {
        let help = match self {
            StoreError::Io { path, source, .. } => return help_with_io(path, source),
            StoreError::InUse { path } => format!(
                "one daemon at a time has a store: end the other one (`fuser {}` says which), or \
                 choose another place",
                path.display()
            ),
            StoreError::NotAStore { .. } => {
                "choose another place, or remove it if nobody needs it: a new one is made".into()
            }
            StoreError::Newer { .. } => {
                "run the Tidegate that wrote it, or a newer one, which converts older files as it \
                 opens them; or choose another place"
                    .into()
            }
            StoreError::Damaged { path, .. } => format!(
                "put a copy back, or start without what it kept: mv {0} {0}.damaged",
                path.display()
            ),
            StoreError::Replaced { .. } => "restart the daemon, which opens what is there".into(),
        };
        Some(help)
    }
}

fn help_with_io(path: &Path, error: &io::Error) -> Option<String> {
    let help = match error.kind() {
        io::ErrorKind::NotFound => return missing_directory(path),
        io::ErrorKind::PermissionDenied => {
            "the daemon's user must be able to read and write it, and to make files beside it"
        }
        io::ErrorKind::ReadOnlyFilesystem => "choose a place that can be written",
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
            "make room and try again: what was kept before is still there"
        }
        io::ErrorKind::IsADirectory => "name a file in it",
        _ => return None,
    };
    Some(help.to_owned())
}
