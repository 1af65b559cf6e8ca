//! Errors of the store.

use std::io;
use std::path::{Path, PathBuf};

use crate::error_hints::missing_directory;

/// Error of opening, reading or writing the store.
///
/// A change that failed is found whole or not at all after the next opening, usually not at all.
/// Changes that were acknowledged before are not affected.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// A system call failed.
    #[error("{}: cannot {what}: {source}", path.display())]
    Io {
        /// Path of the store.
        path: PathBuf,
        /// Action that failed.
        what: &'static str,
        /// Error of the system call.
        source: io::Error,
    },
    /// Another process has the store open.
    #[error("{}: in use by another process: it holds the lock", path.display())]
    InUse {
        /// Path of the store.
        path: PathBuf,
    },
    /// The file is no store of Tidegate; it was not touched.
    #[error("{}: {found}, not a store of Tidegate's; it is not touched", path.display())]
    NotAStore {
        /// Path of the file.
        path: PathBuf,
        /// Kind of the file.
        found: String,
    },
    /// A newer Tidegate wrote the store; it was not touched.
    #[error(
        "{}: its schema is version {found}, this daemon knows them up to {known}; it is not \
         touched",
        path.display()
    )]
    Newer {
        /// Path of the store.
        path: PathBuf,
        /// Version of the store's schema.
        found: u64,
        /// Newest schema that this build knows.
        known: u64,
    },
    /// The content is not what was written.
    #[error("{}: damaged: {why}", path.display())]
    Damaged {
        /// Path of the store.
        path: PathBuf,
        /// Check that failed.
        why: String,
    },
    /// The file was removed or replaced while the store was open. Nothing was written.
    #[error("{}: removed or replaced while the daemon had it open", path.display())]
    Replaced {
        /// Path of the store.
        path: PathBuf,
    },
}

impl StoreError {
    /// Returns a hint, if there is one.
    pub fn help(&self) -> Option<String> {
        let help = match self {
            StoreError::Io { path, source, .. } => return help_with_io(path, source),
            StoreError::InUse { path } => format!(
                "only one daemon can use a store: end the other one (`fuser {}` shows it), or \
                 choose another path",
                path.display()
            ),
            StoreError::NotAStore { .. } => {
                "choose another path, or remove the file if it is not needed: a new one is made"
                    .into()
            }
            StoreError::Newer { .. } => {
                "run the Tidegate that wrote it, or a newer one, which converts older files as it \
                 opens them; or choose another path"
                    .into()
            }
            StoreError::Damaged { path, .. } => format!(
                "restore a backup, or start with an empty store: mv {0} {0}.damaged",
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
            "the daemon's user must be able to read and write it, and to create files beside it"
        }
        io::ErrorKind::ReadOnlyFilesystem => "choose a path on a writable file system",
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
            "free space and try again: earlier records are intact"
        }
        io::ErrorKind::IsADirectory => "name a file in it",
        _ => return None,
    };
    Some(help.to_owned())
}
