//! Lock on the directory of recordings: one daemon at a time writes and removes files in it.

use std::fs::{File, TryLockError};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError as MutexError};

/// Name of the lock file. No device has it, because names of devices begin with no dot.
const NAME: &str = ".lock";

/// Lock of one daemon, held from its first recording until it ends.
#[derive(Debug, Default)]
pub(super) struct Lock {
    held: Mutex<Option<File>>,
}

impl Lock {
    /// Locks a directory, unless this lock is held on it already. May block.
    ///
    /// # Errors
    /// If another daemon has locked the directory, or the lock file cannot be opened.
    pub(super) fn take(&self, directory: &Path) -> io::Result<()> {
        let file = File::options()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(directory.join(NAME))?;
        let mut held = self.held();
        // A directory that was removed and created again has a lock file of its own.
        if let Some(own) = &*held
            && identity(own)? == identity(&file)?
        {
            return Ok(());
        }
        file.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => {
                io::Error::other("another daemon records into this directory")
            }
            TryLockError::Error(error) => error,
        })?;
        *held = Some(file);
        Ok(())
    }

    /// Gives the directory to other daemons. Does not wait for a call of [`Lock::take`] that is
    /// blocked by its file system; the lock then ends with the process.
    pub(super) fn release(&self) {
        match self.held.try_lock() {
            Ok(mut held) => *held = None,
            Err(MutexError::Poisoned(held)) => *held.into_inner() = None,
            Err(MutexError::WouldBlock) => {}
        }
    }

    fn held(&self) -> MutexGuard<'_, Option<File>> {
        // The field is replaced as a whole.
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the device and inode numbers of a file.
fn identity(file: &File) -> io::Result<(u64, u64)> {
    let meta = file.metadata()?;
    Ok((meta.dev(), meta.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_has_one_lock_at_a_time() {
        let dir = tempfile::tempdir().expect("a directory");
        let (own, other) = (Lock::default(), Lock::default());
        own.take(dir.path()).expect("free");
        own.take(dir.path()).expect("held by this lock");
        let refused = other.take(dir.path()).expect_err("held").to_string();
        assert!(refused.contains("another daemon"), "{refused}");
        own.release();
        other.take(dir.path()).expect("free again");
        assert!(own.take(dir.path()).is_err());
        drop(other);
        own.take(dir.path()).expect("its daemon has ended");
        // A directory that was created again is locked again.
        std::fs::remove_file(dir.path().join(NAME)).expect("there");
        own.take(dir.path()).expect("free");
        assert!(Lock::default().take(dir.path()).is_err());
    }
}
