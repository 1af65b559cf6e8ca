//! Support of the host for the daemon, found by the daemon's own calls: for `tidegate doctor`.

use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use crate::backing::{OpenError, is_direct, rotational};
use crate::config::DiskConfig;
use crate::ring::{Ring, sys};
use crate::sandbox;

/// Entries and files of a ring that is made to see if one can be made.
const RING_SIZE: u32 = 64;

/// Layers of the sandbox that the kernel gives.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SandboxSupport {
    /// Version of Landlock's interface, or the reason why there is none.
    pub landlock: Result<u32, String>,
    /// Reason why system calls are not filtered by seccomp.
    pub seccomp: Result<(), String>,
}

/// Confines a thread that ends at once, as an event loop is confined.
///
/// # Errors
/// If no thread can be started.
pub fn sandbox() -> io::Result<SandboxSupport> {
    let thread = std::thread::Builder::new().name("sandbox".to_owned());
    let layers = thread.spawn(sandbox::try_event_loop)?.join();
    let (landlock, seccomp) = layers.map_err(|_| io::Error::other("the thread panicked"))?;
    Ok(SandboxSupport { landlock, seccomp })
}

/// Makes a restricted ring, as an event loop does, and drops it.
///
/// # Errors
/// As for [`Ring::new`].
pub fn ring() -> io::Result<()> {
    Ring::new(RING_SIZE, RING_SIZE).map(drop)
}

/// Returns true if I/O on the file of a disk would be direct; otherwise the reason why not. The
/// file is neither locked nor changed. To be called for a file that [`inspect`] accepts.
///
/// # Errors
/// If the file cannot be opened.
///
/// [`inspect`]: crate::backing::inspect()
pub fn direct_io(path: &Path, disk: &DiskConfig) -> Result<Result<(), &'static str>, OpenError> {
    let failed = |source| OpenError::Io {
        path: path.to_owned(),
        what: "open",
        source,
    };
    let mut options = OpenOptions::new();
    let options = options.read(true).custom_flags(libc::O_NONBLOCK);
    is_direct(path, &options.open(path).map_err(failed)?, disk)
}

/// Returns true if a disk is rotational, by its number (`major:minor`) and the directory of all
/// block devices, `/sys/dev/block`; `None` if the kernel does not tell.
pub fn is_rotational(directory: &Path, number: &str) -> Option<bool> {
    rotational::is_rotational(directory, number)
}

/// Returns true if the kernel's clock is synchronised with another; `None` if it does not tell.
pub fn clock_is_synchronised() -> Option<bool> {
    sys::clock_is_synchronised()
}

#[cfg(test)]
mod tests {
    use tidegate_core::objective::Limit;

    use super::*;
    use crate::config::{Create, DiskFormat};

    #[test]
    fn probes_find_what_the_tests_of_the_daemon_need_and_confine_only_their_thread() {
        ring().expect("the tests of rings need one");
        let layers = sandbox().expect("a thread");
        assert_eq!(layers.seccomp, Ok(()));
        // A confined thread could not open it.
        std::fs::File::open("/proc/self/status").expect("not confined");
    }

    #[test]
    fn a_file_on_tmpfs_is_not_direct_and_a_missing_one_an_error() {
        let disk = DiskConfig {
            export: "disk".to_owned(),
            path: None,
            within: None,
            size: None,
            create: Create::No,
            format: DiskFormat::Raw,
            read_only: true,
            nbd: None,
            incoming: false,
            block_size: 512,
            limit: Limit::NONE,
            limit_group: None,
            faults: Vec::new(),
            place: None,
        };
        if let Ok(file) = tempfile::NamedTempFile::new_in("/dev/shm") {
            let found = direct_io(file.path(), &disk).expect("opened");
            assert_eq!(found, Err("the file system is in memory"));
        }
        assert!(direct_io(Path::new("/nonexistent/disk"), &disk).is_err());
    }
}
