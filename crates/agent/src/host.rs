//! Interface between the agent and a host.

use std::fmt;
use std::io;
use std::path::PathBuf;

use crate::ioprio::IoPriority;

/// Processes that are accounted and prioritised together.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Target {
    /// One process with all its threads, and its descendants.
    Pid(u32),
    /// All processes of a cgroup and of the cgroups below it, by its directory.
    Cgroup(PathBuf),
    /// Domain of libvirt's QEMU driver, by name, with the descendants of its process.
    Libvirt(String),
}

impl Target {
    /// Returns whether descendants of a process belong to the target by descent; not for a cgroup,
    /// whose own file lists its processes.
    pub(crate) fn includes_descendants(&self) -> bool {
        !matches!(self, Target::Cgroup(_))
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Target::Pid(pid) => write!(f, "process {pid}"),
            Target::Cgroup(path) => write!(f, "cgroup {}", path.display()),
            Target::Libvirt(name) => write!(f, "libvirt domain {name}"),
        }
    }
}

/// Target whose processes cannot be found or observed.
#[derive(Debug, thiserror::Error)]
pub enum TargetError {
    /// The target does not exist.
    #[error("{0} not found{hint}", hint = missing_hint(.0))]
    Missing(Target),
    /// The target cannot be inspected.
    #[error("cannot read {path}: {error}")]
    Io {
        /// File that could not be read.
        path: PathBuf,
        /// Error of reading it.
        error: io::Error,
    },
    /// Process whose I/O statistics this user may not read.
    #[error(
        "cannot read the I/O statistics of process {process}, /proc/{process}/io: {error}; run as \
         root"
    )]
    NoAccess {
        /// Process identifier.
        process: u32,
        /// Error of reading them.
        error: io::Error,
    },
}

/// Identity of a process or thread: its number, and its start time because numbers are reused. A
/// process is identified by its main thread.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct TaskId {
    /// PID or TID.
    pub id: u32,
    /// Start time in clock ticks after boot.
    pub start_ticks: u64,
}

/// Running process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Process {
    /// Identity of the process.
    pub task: TaskId,
    /// PID of the parent, which waits for the process: the one that started it, or the reaper that
    /// has adopted it.
    pub parent: u32,
}

/// Operations of a host that the agent needs.
pub trait Host {
    /// Returns the running processes that a target names, without their descendants.
    ///
    /// # Errors
    /// The target does not exist or cannot be inspected.
    fn processes(&mut self, target: &Target) -> Result<Vec<Process>, TargetError>;

    /// Returns the process or thread that has the number `id` at present.
    fn process(&mut self, id: u32) -> Option<Process>;

    /// Returns the running children of a process.
    fn children(&mut self, process: TaskId) -> Vec<Process>;

    /// Returns the bytes that a process has read from and written to disks since its start,
    /// including those of children that it has waited for.
    ///
    /// # Errors
    /// The process has ended, or this user may not read its statistics.
    fn bytes_moved(&mut self, process: TaskId) -> io::Result<u64>;

    /// Returns the threads of a process, including the main thread; empty if it has ended.
    fn threads(&mut self, process: TaskId) -> Vec<TaskId>;

    /// Returns the I/O priority of a thread.
    ///
    /// # Errors
    /// The thread has ended, or this user may not read it.
    fn priority(&mut self, thread: TaskId) -> io::Result<IoPriority>;

    /// Sets the I/O priority of a thread.
    ///
    /// # Errors
    /// The thread has ended, belongs to another user, or this user may not set the real-time class.
    fn set_priority(&mut self, thread: TaskId, priority: IoPriority) -> io::Result<()>;
}

/// Returns the explanation that is appended to the message that a target was not found.
fn missing_hint(target: &Target) -> String {
    match target {
        Target::Pid(_) => String::new(),
        Target::Cgroup(_) => ": the directory has no file cgroup.procs".to_owned(),
        Target::Libvirt(name) => {
            format!(" or not running: libvirt has no PID file {name}.pid under /run/libvirt/qemu")
        }
    }
}

/// Returns a process or thread if it still runs and its number was not reused.
pub(crate) fn running_process(host: &mut impl Host, task: TaskId) -> Option<Process> {
    let process = host.process(task.id);
    process.filter(|process| process.task == task)
}
