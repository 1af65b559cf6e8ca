//! File of the store: atomic creation, checks before it is opened, consistent copies.

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

/// Page cache of redb in bytes; small, because everything is read once, at start.
const CACHE_BYTES: usize = 1 << 20;
/// Most attempts at a consistent copy. The daemon writes to a store rarely, so few copies differ.
const COPY_ATTEMPTS: u32 = 100;
/// Pause between two attempts at a consistent copy.
const COPY_RETRY_DELAY: Duration = Duration::from_millis(10);
/// First bytes of every redb file.
const MAGIC: &[u8; 9] = b"redb\x1A\x0A\xA9\x0D\x0A";

/// Creates an empty store under a temporary name and links it into place, so that a crash leaves no
/// partial store. If another process was faster, its store stays.
pub(super) fn create(path: &Path) -> Result<(), StoreError> {
    let failed = |source| StoreError::Io {
        path: path.to_owned(),
        what: "create the store",
        source,
    };
    let directory = directory(path);
    let mut prefix = path.file_name().unwrap_or_default().to_owned();
    prefix.push(".new-");
    // Readable by the owner alone, and under a unique name in case another daemon creates one at
    // the same time; removed unless it is renamed.
    let temporary = tempfile::Builder::new()
        .prefix(&prefix)
        .rand_bytes(16)
        .tempfile_in(directory)
        .map_err(failed)?;
    let (file, temporary) = temporary.into_parts();
    // This order makes it durable: redb syncs the content, then the file gets its name, then the
    // directory is synced.
    initialise(file)
        .and_then(|()| link_into_place(temporary, path))
        .and_then(|()| File::open(directory)?.sync_all())
        .map_err(failed)
}

/// Links a new file to its final path, unless a file exists there.
fn link_into_place(temporary: TempPath, path: &Path) -> io::Result<()> {
    let Err(refused) = temporary.persist_noclobber(path) else {
        return Ok(());
    };
    match refused.error.kind() {
        io::ErrorKind::AlreadyExists => Ok(()),
        // Errors of file systems that support neither hard links nor a rename without replacement.
        io::ErrorKind::Unsupported | io::ErrorKind::PermissionDenied => {
            rename_under_lock(refused.path, path)
        }
        _ => Err(refused.error),
    }
}

/// Renames a new file to its final path, unless a file exists there, on a file system that has no
/// single call for both. A lock on the directory, which every daemon takes for these two steps,
/// keeps two that start at once from replacing each other's store.
fn rename_under_lock(temporary: TempPath, path: &Path) -> io::Result<()> {
    // Released when the directory is closed, also if the process is killed.
    let directory = File::open(directory(path))?;
    directory.lock()?;
    // A symbolic link that leads nowhere is a file of somebody, too.
    match path.symlink_metadata() {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            temporary.persist(path).map_err(|refused| refused.error)
        }
        Err(error) => Err(error),
    }
}

fn directory(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// Initialises an empty file as a database with the current schema.
fn initialise(file: File) -> io::Result<()> {
    let to_io = |error: redb::Error| match error {
        redb::Error::Io(error) => error,
        other => io::Error::other(other.to_string()),
    };
    let backend = FileBackend::new(file).map_err(|error| to_io(error.into()))?;
    let database = (builder().create_with_backend(backend)).map_err(|error| to_io(error.into()))?;
    schema::upgrade(&database, STEPS).map_err(|error| match error {
        SchemaError::Database(error) => to_io(error),
        // Only if another process wrote to the file in between.
        refused => io::Error::other(format!("{refused:?}")),
    })?;
    database.close().map_err(|error| to_io(error.into()))
}

/// Rejects a file that is no redb database, before redb could write to it.
pub(super) fn check_is_database(path: &Path) -> Result<(), StoreError> {
    let io = |source| StoreError::Io {
        path: path.to_owned(),
        what: "read the store",
        source,
    };
    let not_a_store = |found: &str| StoreError::NotAStore {
        path: path.to_owned(),
        found: found.to_owned(),
    };
    let meta = std::fs::metadata(path).map_err(io)?;
    if !meta.is_file() {
        return Err(not_a_store("not a regular file"));
    }
    if meta.len() == 0 {
        return Err(not_a_store("an empty file"));
    }
    let mut start = Vec::new();
    let file = File::open(path).map_err(io)?;
    let length = MAGIC.len() as u64;
    file.take(length).read_to_end(&mut start).map_err(io)?;
    if start == MAGIC {
        Ok(())
    } else {
        Err(not_a_store("a file of another kind"))
    }
}

/// Opens a store whose file exists, and reads it from the disk instead of the page cache.
pub(super) fn open(path: &Path) -> Result<Opened, DatabaseError> {
    let file = OpenOptions::new().read(true).write(true).open(path)?;
    // After a failed fsync the page cache may hold what the disk does not. Dropping it ensures that
    // the store continues from what a reboot would find.
    file.sync_data()?;
    sys::drop_cached(&file)?;
    let identity = Some(sys::identity(&file.metadata()?));
    let database = builder().create_with_backend(FileBackend::new(file)?)?;
    Ok(Opened { database, identity })
}

/// Reads the whole file as it was at one moment, even while another process writes to it.
pub(super) fn read_consistent(path: &Path) -> io::Result<Vec<u8>> {
    read_until_stable(|| std::fs::read(path))
}

/// Calls `read` until two calls in a row return the same bytes.
fn read_until_stable(mut read: impl FnMut() -> io::Result<Vec<u8>>) -> io::Result<Vec<u8>> {
    let mut before = read()?;
    for _ in 0..COPY_ATTEMPTS {
        let bytes = read()?;
        // Equal bytes in two reads existed at one moment in between, as a crash would have left
        // them.
        if bytes == before {
            return Ok(bytes);
        }
        before = bytes;
        std::thread::sleep(COPY_RETRY_DELAY);
    }
    Err(io::Error::new(
        io::ErrorKind::ResourceBusy,
        "it keeps changing while it is copied",
    ))
}

/// Opens a database in memory with these bytes.
pub(super) fn in_memory(bytes: &[u8]) -> Result<Opened, DatabaseError> {
    let backend = InMemoryBackend::new();
    backend.set_len(bytes.len() as u64)?;
    backend.write(0, bytes)?;
    let database = builder().create_with_backend(backend)?;
    let identity = None;
    Ok(Opened { database, identity })
}

/// Returns the settings with which every store is opened.
pub(super) fn builder() -> redb::Builder {
    let mut builder = Database::builder();
    builder.set_cache_size(CACHE_BYTES);
    // Without this check redb may trust a file that was changed from outside.
    builder.set_check_integrity_on_open(true);
    builder
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::sync::{Barrier, mpsc};
    use std::thread;

    /// Returns a new file with this text, as the store's creator has it.
    fn temporary(directory: &Path, text: &str) -> TempPath {
        let file = tempfile::NamedTempFile::new_in(directory).expect("a file");
        fs::write(file.path(), text).expect("written");
        file.into_temp_path()
    }

    #[test]
    fn of_stores_created_at_once_without_hard_links_the_first_one_stays() {
        const DAEMONS: usize = 4;
        let dir = tempfile::tempdir().expect("a directory");
        for round in 0..50 {
            let path = dir.path().join(format!("store-{round}"));
            let begin = Barrier::new(DAEMONS);
            let seen = thread::scope(|scope| {
                let daemons = (0..DAEMONS).map(|daemon| {
                    let new = temporary(dir.path(), &daemon.to_string());
                    let (path, begin) = (&path, &begin);
                    scope.spawn(move || {
                        begin.wait();
                        rename_under_lock(new, path).expect("one store is there");
                        // No other daemon may replace the file that this one opens now.
                        fs::read_to_string(path).expect("it is there")
                    })
                });
                let daemons = daemons.collect::<Vec<_>>();
                let seen = daemons
                    .into_iter()
                    .map(|daemon| daemon.join().expect("joins"));
                seen.collect::<Vec<_>>()
            });
            assert!(
                seen.iter().all(|text| *text == seen[0]),
                "{round}: {seen:?}"
            );
        }
        // No temporary file is left.
        assert_eq!(fs::read_dir(&dir).expect("readable").count(), 50);
    }

    #[test]
    fn a_store_that_appears_while_the_lock_is_awaited_is_kept() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("store");
        let held = File::open(dir.path()).expect("opens");
        held.lock().expect("locks");
        let new = temporary(dir.path(), "second");
        let (begun, begins) = mpsc::channel();
        thread::scope(|scope| {
            let path = &path;
            let second = scope.spawn(move || {
                begun.send(()).expect("the test listens");
                rename_under_lock(new, path)
            });
            begins.recv().expect("it begins");
            fs::write(path, "first").expect("written");
            held.unlock().expect("unlocks");
            second
                .join()
                .expect("joins")
                .expect("another's store is fine");
        });
        assert_eq!(fs::read_to_string(&path).expect("it is there"), "first");
    }

    #[test]
    fn a_changing_file_is_read_until_two_reads_are_equal() {
        let mut reads = [1, 2, 3, 3, 4].into_iter();
        let read = || Ok(vec![reads.next().expect("no read after two equal ones")]);
        assert_eq!(read_until_stable(read).expect("reads"), [3]);
        assert_eq!(reads.next(), Some(4));
        let mut count = 0_u64;
        let error = read_until_stable(|| {
            count += 1;
            Ok(count.to_le_bytes().to_vec())
        });
        let error = error.expect_err("no two reads are equal");
        assert_eq!(error.kind(), io::ErrorKind::ResourceBusy);
    }
}
