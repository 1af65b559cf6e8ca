//! I/O scheduler of a disk, and its support for priority classes.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// I/O scheduler of a disk.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Scheduler {
    /// Name of the disk under `/sys/block`.
    pub disk: String,
    /// Active scheduler.
    pub active: String,
    /// Schedulers that the kernel offers for the disk, the active one included.
    pub available: Vec<String>,
}

/// Failure to determine the scheduler of a disk.
#[derive(Debug, thiserror::Error)]
pub enum SchedulerError {
    /// File that cannot be read.
    #[error("cannot read {path}: {error}")]
    Io {
        /// Path of the file.
        path: PathBuf,
        /// Error of reading it.
        error: io::Error,
    },
    /// Path that is on no disk of this host (tmpfs, network) or on several disks.
    #[error("{0} is not on exactly one disk of this host")]
    NoDisk(PathBuf),
}

impl Scheduler {
    /// Schedulers that support priority classes: BFQ, and mq-deadline since Linux 5.14.
    pub const ENFORCING_SCHEDULERS: [&'static str; 2] = ["bfq", "mq-deadline"];

    /// Returns whether the active scheduler supports priority classes.
    pub fn enforces_classes(&self) -> bool {
        Scheduler::ENFORCING_SCHEDULERS.contains(&self.active.as_str())
    }

    /// Parses `/sys/block/DISK/queue/scheduler`: all schedulers, the active one in brackets.
    fn parse(disk: String, text: &str) -> Scheduler {
        let name = |word: &str| word.trim_matches(['[', ']']).to_owned();
        let active = text.split_whitespace().find(|word| word.starts_with('['));
        Scheduler {
            disk,
            // Some kernels print a bare "none" for a disk that has no other scheduler.
            active: active.map(name).unwrap_or_else(|| text.trim().to_owned()),
            available: text.split_whitespace().map(name).collect(),
        }
    }
}

/// Determines the I/O scheduler of the disk that holds a file, directory or block device.
///
/// # Errors
/// A file cannot be read, or there is no such disk.
pub fn scheduler_of(path: &Path) -> Result<Scheduler, SchedulerError> {
    let unread = |path: &Path| {
        let path = path.to_owned();
        move |error| SchedulerError::Io { path, error }
    };
    let metadata = fs::metadata(path).map_err(unread(path))?;
    let is_device = metadata.mode() & libc::S_IFMT == libc::S_IFBLK;
    // A block device names itself; a file names the device that holds it.
    let number = if is_device {
        metadata.rdev()
    } else {
        metadata.dev()
    };
    let (major, minor) = (libc::major(number), libc::minor(number));
    let sys = PathBuf::from(format!("/sys/dev/block/{major}:{minor}"));
    let sys = fs::canonicalize(&sys).map_err(|_| SchedulerError::NoDisk(path.to_owned()))?;
    // A partition has no queue of its own but uses its disk's.
    let has_queue = |directory: &&Path| directory.join("queue/scheduler").is_file();
    let disk = [sys.as_path()]
        .into_iter()
        .chain(sys.parent())
        .find(has_queue);
    let disk = disk.ok_or_else(|| SchedulerError::NoDisk(path.to_owned()))?;
    let file = disk.join("queue/scheduler");
    let text = fs::read_to_string(&file).map_err(unread(&file))?;
    let name = disk
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    Ok(Scheduler::parse(name, &text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scheduler_in_brackets_is_active() {
        let scheduler = Scheduler::parse("vda".to_owned(), "none mq-deadline kyber [bfq]\n");
        assert_eq!(
            (scheduler.active.as_str(), scheduler.available.len()),
            ("bfq", 4)
        );
        assert!(scheduler.enforces_classes());
        let scheduler = Scheduler::parse("vda".to_owned(), "[none]\n");
        assert!(!scheduler.enforces_classes());
        assert_eq!(scheduler.available, ["none"]);
    }

    #[test]
    fn paths_on_no_disk_are_refused() {
        let on_proc = scheduler_of(Path::new("/proc/self/stat"));
        assert!(
            matches!(on_proc, Err(SchedulerError::NoDisk(_))),
            "{on_proc:?}"
        );
        assert!(matches!(
            scheduler_of(Path::new("/no/such")),
            Err(SchedulerError::Io { .. })
        ));
    }
}
