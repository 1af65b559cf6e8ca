//! The store's file: made whole, opened with care.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::path::Path;
use std::time::Duration;

use redb::backends::{FileBackend, InMemoryBackend};
use redb::{Database, DatabaseError, StorageBackend};
use tempfile::TempPath;

use super::schema::{self, STEPS, SchemaError};
use super::{Opened, StoreError};
use crate::ring::sys;

/// Memory for pages of the file. Everything in it is read once, at start.
const CACHE: usize = 1 << 20;
/// A store is written to once in a while: copies that differ are made again so often, after so
/// long.
const COPIES: u32 = 100;
const COPY_AGAIN: Duration = Duration::from_millis(10);
/// What every file of redb begins with.
const MAGIC: &[u8; 9] = b"redb\x1A\x0A\xA9\x0D\x0A";

/// Makes an empty store beside its place and puts it there whole, so that no crash leaves half of
/// one. Where another process was faster, its store stands.
pub(super) fn make(path: &Path) -> Result<(), StoreError> {
    let failed = |source| StoreError::Io {
        path: path.to_owned(),
        what: "make the store",
        source,
    };
    let directory = directory(path);
    let mut prefix = path.file_name().unwrap_or_default().to_owned();
    prefix.push(".new-");
    // Readable by its owner alone, under a name that nobody else has, should another daemon be
    // making one; removed again on every way that does not put it in its place.
    let beside = tempfile::Builder::new()
        .prefix(&prefix)
        .rand_bytes(16)
        .tempfile_in(directory)
        .map_err(failed)?;
    let (file, beside) = beside.into_parts();
    // The order makes it durable: what it holds is synced by redb, then it gets its name, then
    // the name is synced.
    fill(file)
        .and_then(|()| put(beside, path))
        .and_then(|()| File::open(directory)?.sync_all())
        .map_err(failed)
}

/// Gives a new file its name, unless there is one of that name.
fn put(beside: TempPath, path: &Path) -> io::Result<()> {
    let Err(refused) = beside.persist_noclobber(path) else {
        return Ok(());
    };
    match refused.error.kind() {
        io::ErrorKind::AlreadyExists => Ok(()),
        // What filesystems say that know neither hard links nor a rename that replaces nothing.
        io::ErrorKind::Unsupported | io::ErrorKind::PermissionDenied => {
            refused.path.persist(path).map_err(|refused| refused.error)
        }
        _ => Err(refused.error),
    }
}

fn directory(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// Makes an empty file a database with today's schema.
fn fill(file: File) -> io::Result<()> {
    let other = |error: redb::Error| match error {
        redb::Error::Io(error) => error,
        other => io::Error::other(other.to_string()),
    };
    let backend = FileBackend::new(file).map_err(|e| other(e.into()))?;
    let database = (builder().create_with_backend(backend)).map_err(|e| other(e.into()))?;
    schema::upgrade(&database, STEPS).map_err(|error| match error {
        SchemaError::Database(error) => other(error),
        // Only where somebody wrote to it in between.
        refused => io::Error::other(format!("{refused:?}")),
    })?;
    database.close().map_err(|error| other(error.into()))
}

/// Refuses what is no database, before anything could write to it.
pub(super) fn refuse_others(path: &Path) -> Result<(), StoreError> {
    let io = |source| StoreError::Io {
        path: path.to_owned(),
        what: "read the store",
        source,
    };
    let not = |found: &str| StoreError::NotAStore {
        path: path.to_owned(),
        found: found.to_owned(),
    };
    let meta = std::fs::metadata(path).map_err(io)?;
    if !meta.is_file() {
        return Err(not("not a regular file"));
    }
    if meta.len() == 0 {
        return Err(not("an empty file"));
    }
    let mut start = Vec::new();
    let file = File::open(path).map_err(io)?;
    let length = MAGIC.len() as u64;
    file.take(length).read_to_end(&mut start).map_err(io)?;
    match start == MAGIC {
        true => Ok(()),
        false => Err(not("a file of another kind")),
    }
}

pub(super) fn open(path: &Path) -> Result<Opened, DatabaseError> {
    let file = OpenOptions::new().read(true).write(true).open(path)?;
    // After a failed fsync memory may hold what the disk does not: whatever is kept from here on
    // is to be what a restart of the machine would find.
    file.sync_data()?;
    sys::drop_cached(&file)?;
    let identity = Some(sys::identity(&file.metadata()?));
    let database = builder().create_with_backend(FileBackend::new(file)?)?;
    Ok(Opened { database, identity })
}

/// Every byte of it as it was at one moment, also while somebody writes to it.
pub(super) fn copy(path: &Path) -> io::Result<Vec<u8>> {
    read_twice(|| std::fs::read(path))
}

fn read_twice(mut read: impl FnMut() -> io::Result<Vec<u8>>) -> io::Result<Vec<u8>> {
    let mut before = read()?;
    for _ in 0..COPIES {
        let bytes = read()?;
        // What is the same twice was so in between: as a crash then would have left it.
        if bytes == before {
            return Ok(bytes);
        }
        before = bytes;
        std::thread::sleep(COPY_AGAIN);
    }
    Err(io::Error::new(
        io::ErrorKind::ResourceBusy,
        "it is written to all the time",
    ))
}

/// A database in memory with these bytes.
pub(super) fn in_memory(bytes: &[u8]) -> Result<Opened, DatabaseError> {
    let backend = InMemoryBackend::new();
    backend.set_len(bytes.len() as u64)?;
    backend.write(0, bytes)?;
    let database = builder().create_with_backend(backend)?;
    let identity = None;
    Ok(Opened { database, identity })
}

pub(super) fn builder() -> redb::Builder {
    let mut builder = Database::builder();
    builder.set_cache_size(CACHE);
    // A file that was changed from outside is refused; without this it may be trusted.
    builder.set_check_integrity_on_open(true);
    builder
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_to_is_read_until_it_is_the_same_twice() {
        let mut reads = [1, 2, 3, 3, 4].into_iter();
        let read = || Ok(vec![reads.next().expect("no more than it needs")]);
        assert_eq!(read_twice(read).expect("reads"), [3]);
        assert_eq!(reads.next(), Some(4));
        let mut never = 0_u64;
        let error = read_twice(|| {
            never += 1;
            Ok(never.to_le_bytes().to_vec())
        });
        let error = error.expect_err("never the same");
        assert_eq!(error.kind(), io::ErrorKind::ResourceBusy);
    }
}
