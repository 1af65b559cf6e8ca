//! What the agent sees of a host and does to it.

use std::fmt;
use std::io;
use std::path::PathBuf;

use crate::ioprio::IoPriority;

/// Whose processes.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Target {
    /// One process with all its threads, and the processes that come of it.
    Pid(u32),
    /// All processes of a cgroup and of those below it, by its directory.
    Cgroup(PathBuf),
    /// A domain of libvirt's QEMU driver, by its name; what comes of its process, too.
    Libvirt(String),
}

impl Target {
    /// The processes that one of these starts are of the same target. A cgroup says itself who is
    /// in it.
    pub(crate) fn has_offspring(&self) -> bool {
        !matches!(self, Target::Cgroup(_))
    }
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
    /// What a process moves is not for this user to see.
    #[error(
        "cannot read what process {process} moves, /proc/{process}/io: {error}; as root it can"
    )]
    Books {
        /// Which process.
        process: u32,
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

/// A process that runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Process {
    /// Its first thread.
    pub thread: Thread,
    /// The number of the process that waits for it: that which started it, or which took it over.
    pub parent: u32,
}

/// A host, as far as the agent goes.
pub trait Host {
    /// The processes that a target names and that run now, without those that they started.
    ///
    /// # Errors
    /// There is no such target, or it cannot be looked at.
    fn processes(&mut self, target: &Target) -> Result<Vec<Process>, TargetError>;

    /// The process, or the thread, that has a number now.
    fn process(&mut self, id: u32) -> Option<Process>;

    /// The processes that a process started and that run now.
    fn children(&mut self, process: Thread) -> Vec<Process>;

    /// Bytes that a process has read from and written to disks since it began, with those of the
    /// children that it waited for.
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

/// Whether it still runs: its number may be another's by now.
pub(crate) fn runs(host: &mut impl Host, thread: Thread) -> Option<Process> {
    let found = host.process(thread.id);
    found.filter(|process| process.thread == thread)
}
