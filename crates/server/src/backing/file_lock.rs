//! Locks of disks' files, and what opening a disk and taking its lock later have in common.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use super::inspect::encrypted;
use super::{OpenError, probe};
use crate::config::{DiskConfig, DiskFormat};
use crate::ownership::Ownership;
use crate::ring::sys;

/// Open file of another daemon's disk. Its lock belongs to the open file, so it is held without
/// interruption while both daemons have it.
#[derive(Debug)]
pub struct LockedFile {
    /// File, open as the other daemon has it.
    pub file: File,
    /// Claim on a block device.
    pub claim: Option<File>,
    /// Ownership of the lock.
    pub ownership: Ownership,
}

/// Time for which a lock of another process is waited for: the kernel releases the locks of a
/// killed daemon only when its last I/O has ended. Until then a request of the killed daemon must
/// not be made again, or its first write may come after a later one to the same blocks.
const LOCK_TIMEOUT: Duration = Duration::from_secs(if cfg!(test) { 1 } else { 5 });
/// Pause between two attempts to lock.
const LOCK_RETRY_INTERVAL: Duration = Duration::from_millis(20);

/// Repeats an attempt that fails with `InUse` for up to [`LOCK_TIMEOUT`].
pub(super) fn retry_while_in_use<T>(
    path: &Path,
    mut attempt: impl FnMut() -> Result<T, OpenError>,
) -> Result<T, OpenError> {
    let until = Instant::now() + LOCK_TIMEOUT;
    let mut waits = false;
    loop {
        match attempt() {
            Err(OpenError::InUse { .. }) if Instant::now() < until => {
                if !std::mem::replace(&mut waits, true) {
                    tracing::warn!(
                        path = %path.display(),
                        "another process has locked the file: waiting up to {} s, because I/O of \
                         a daemon that was killed may still be in flight",
                        LOCK_TIMEOUT.as_secs()
                    );
                }
                std::thread::sleep(LOCK_RETRY_INTERVAL);
            }
            other => return other,
        }
    }
}

/// Locks an open file, for writing if `exclusive`, and waits for up to [`LOCK_TIMEOUT`] for another
/// process to release it. Returns the claim on a block device that is written, which ends when it
/// is dropped.
pub(super) fn lock_file(
    path: &Path,
    file: &File,
    exclusive: bool,
) -> Result<Option<File>, OpenError> {
    let in_use = || OpenError::InUse {
        path: path.to_owned(),
    };
    let failed = |source| OpenError::Io {
        path: path.to_owned(),
        what: "lock",
        source,
    };
    let identity = sys::identity(&file.metadata().map_err(failed)?);
    let (block_device, ..) = identity;
    retry_while_in_use(path, || {
        // On a block device, O_EXCL without O_CREAT fails while the kernel or another process has
        // claimed it.
        let claim = (block_device && exclusive)
            .then(|| open_same(path, identity, false, libc::O_EXCL))
            .transpose()
            .map_err(|error| match error.raw_os_error() {
                Some(libc::EBUSY) => in_use(),
                _ => failed(error),
            })?;
        match sys::lock(file, exclusive) {
            Ok(true) => Ok(claim),
            Ok(false) => Err(in_use()),
            Err(source) => Err(failed(source)),
        }
    })
}

/// Returns options that open a file with these flags.
pub(super) fn options(read_only: bool, flags: i32) -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).write(!read_only).custom_flags(flags);
    options
}

/// Opens a path with these flags. Fails if the path leads to another file than the one with this
/// `identity` by now, so that the file that was inspected is the one that is served.
pub(super) fn open_same(
    path: &Path,
    identity: (bool, u64, u64),
    read_only: bool,
    flags: i32,
) -> io::Result<File> {
    let (block_device, ..) = identity;
    // With O_NONBLOCK the kernel opens a removable block device even if no medium is in it.
    let at_once = if block_device { 0 } else { libc::O_NONBLOCK };
    let file = options(read_only, flags | at_once).open(path)?;
    if sys::identity(&file.metadata()?) != identity {
        return Err(io::Error::other("the path leads to another file by now"));
    }
    if flags & libc::O_NONBLOCK == 0 {
        sys::clear_nonblocking(&file)?;
    }
    Ok(file)
}

/// Marks the file of a writable disk as raw, see [`probe`]. Logs a warning if it is encrypted and
/// was not marked before.
pub(super) fn mark_raw(path: &Path, plain: &File, config: &DiskConfig) {
    if let Some(warning) = encrypted(plain, config) {
        tracing::warn!(path = %path.display(), "{}: {}", warning.what, warning.help);
    }
    if !config.read_only
        && let Err(error) = probe::mark(plain)
        && config.format != DiskFormat::Raw
    {
        tracing::warn!(
            path = %path.display(),
            "cannot mark the file as raw ({error}): if its guest writes the header of another \
             format, the next start refuses it; `format = \"raw\"` avoids that"
        );
    }
}

/// Returns true if the file system can punch holes, tried behind the end of the file, where nothing
/// is.
pub(super) fn can_punch(file: &File, size: u64) -> bool {
    let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    // The answer holds for the whole file, and no byte of the disk is touched.
    sys::allocate(file, mode, size.next_multiple_of(4096), 4096).is_ok()
}
