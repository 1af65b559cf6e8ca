//! What the agent sees of a host and does to it.

use std::fmt;
use std::io;
use std::path::PathBuf;

use crate::ioprio::IoPriority;

/// Whose processes.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Target {
    /// One process, with all its threads.
    Pid(u32),
    /// All processes of a cgroup and of those below it, by its directory.
    Cgroup(PathBuf),
    /// A domain of libvirt's QEMU driver, by its name.
    Libvirt(String),
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Target::Pid(pid) => write!(f, "process {pid}"),
            Target::Cgroup(path) => write!(f, "cgroup {}", path.display()),
            Target::Libvirt(name) => write!(f, "libvirt's domain {name}"),
        }
    }
}

/// Why nobody was found.
#[derive(Debug, thiserror::Error)]
pub enum TargetError {
    /// There is no such thing.
    #[error("there is no {0}{1}")]
    Missing(Target, &'static str),
    /// It cannot be looked at.
    #[error("cannot read {path}: {error}")]
    Io {
        /// Which file.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
}

/// A process or a thread, and when it began: a number that is used again is another's.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Thread {
    /// Its number.
    pub id: u32,
    /// Clock ticks after the host's start.
    pub began: u64,
}

/// A host, as far as the agent goes.
pub trait Host {
    /// The processes of a target that run now.
    ///
    /// # Errors
    /// There is no such target, or it cannot be looked at.
    fn processes(&mut self, target: &Target) -> Result<Vec<Thread>, TargetError>;

    /// Bytes that a process has read from and written to disks since it began.
    ///
    /// # Errors
    /// It has gone, or its books are not for this user.
    fn moved(&mut self, process: Thread) -> io::Result<u64>;

    /// Its threads, the first one too; none: it has gone.
    fn threads(&mut self, process: Thread) -> Vec<Thread>;

    /// A thread's I/O priority.
    ///
    /// # Errors
    /// It has gone, or is somebody else's.
    fn priority(&mut self, thread: Thread) -> io::Result<IoPriority>;

    /// Gives a thread another one.
    ///
    /// # Errors
    /// It has gone, is somebody else's, or real time is not for this user.
    fn set_priority(&mut self, thread: Thread, priority: IoPriority) -> io::Result<()>;
}
