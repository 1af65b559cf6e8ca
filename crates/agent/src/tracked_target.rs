//! Target under observation: its processes, the bytes they moved, and the original priorities of
//! their threads.

use std::collections::{HashMap, HashSet};
use std::io;

use tidegate_core::transfers::Class;

use crate::host::{Host, Process, Target, TargetError, TaskId, running_process};
use crate::ioprio::IoPriority;

/// Original and current priority of a thread.
#[derive(Clone, Copy, Debug)]
struct SavedPriority {
    original: IoPriority,
    current: IoPriority,
}

/// Target under observation.
#[derive(Debug)]
pub(crate) struct TrackedTarget {
    pub name: String,
    pub target: Target,
    /// Processes of the target at the last scan.
    pub processes: HashSet<TaskId>,
    /// Threads of those processes, from [`TrackedTarget::refresh_threads`] to the next
    /// [`TrackedTarget::apply`].
    listed: Vec<TaskId>,
    /// Threads whose priority the agent manages.
    threads: HashMap<TaskId, SavedPriority>,
    /// Original priority of the first managed thread. A thread started later inherits the priority
    /// in force, so its own value does not tell the original.
    first_original: Option<IoPriority>,
    /// Priorities that the agent has set on threads of the target.
    set_by_agent: HashSet<IoPriority>,
    /// Process that had the PID of the target at first; the number may be reused.
    first_with_pid: Option<TaskId>,
    /// The target had a process at the last scan.
    pub present: bool,
}

/// Result of a scan of a target's processes.
#[derive(Debug, Default)]
pub(crate) struct Scan {
    /// Bytes moved since the last scan.
    pub moved: u64,
    /// Processes that were not there at the last scan.
    pub new: Vec<TaskId>,
}

impl TrackedTarget {
    /// Creates a target that was not scanned yet.
    pub(crate) fn new(name: String, target: Target) -> TrackedTarget {
        TrackedTarget {
            name,
            target,
            processes: HashSet::new(),
            listed: Vec::new(),
            threads: HashMap::new(),
            first_original: None,
            set_by_agent: HashSet::new(),
            first_with_pid: None,
            present: false,
        }
    }

    /// Returns the processes that the target names. A process that reuses the PID of an ended one
    /// is not included.
    pub(crate) fn named_processes(
        &mut self,
        host: &mut impl Host,
    ) -> Result<Vec<Process>, TargetError> {
        let mut named = host.processes(&self.target)?;
        if let (Target::Pid(_), Some(process)) = (&self.target, named.first()) {
            let first = *self.first_with_pid.get_or_insert(process.task);
            named.retain(|process| process.task == first);
        }
        Ok(named)
    }

    /// Updates the processes of the target; `moved` has the bytes of all processes since the last
    /// scan.
    pub(crate) fn scan(&mut self, processes: &[Process], moved: &HashMap<TaskId, u64>) -> Scan {
        let mut scan = Scan::default();
        let mut running = HashSet::new();
        for Process { task, .. } in processes {
            let Some(bytes) = moved.get(task) else {
                continue;
            };
            scan.moved += bytes;
            running.insert(*task);
            if !self.processes.contains(task) {
                scan.new.push(*task);
            }
        }
        self.processes = running;
        scan
    }

    /// Returns true if the target had a process at the last scan.
    pub(crate) fn has_processes(&self) -> bool {
        !self.processes.is_empty()
    }

    /// Lists the threads of the target for the next [`TrackedTarget::apply`]. Managed threads that
    /// no longer belong to it, because their process left the cgroup, get their original priority
    /// back.
    pub(crate) fn refresh_threads(&mut self, host: &mut impl Host) {
        let processes = self.processes.iter();
        self.listed = processes
            .flat_map(|&process| host.threads(process))
            .collect();
        let listed: HashSet<&TaskId> = self.listed.iter().collect();
        self.threads.retain(|thread, saved| {
            let stays = listed.contains(thread);
            let is_changed = saved.current != saved.original;
            if !stays && is_changed && running_process(host, *thread).is_some() {
                // A user that could change the priority may restore it, unless the thread is just
                // ending.
                let _ = host.set_priority(*thread, saved.original);
            }
            stays
        });
    }

    /// Restores the original priority of all listed threads. Must follow
    /// [`TrackedTarget::refresh_threads`]. Returns the first failure.
    pub(crate) fn restore_priorities(
        &mut self,
        host: &mut impl Host,
    ) -> Option<(TaskId, io::Error)> {
        // Best effort is the class of targets that the agent does not manage.
        self.apply(host, Class::BestEffort)
    }

    /// Sets the priority of a class on all listed threads, new ones too. Best effort restores their
    /// original priorities. Must follow [`TrackedTarget::refresh_threads`], whose list it consumes:
    /// threads that are not listed are no longer managed. Returns the first failure.
    pub(crate) fn apply(
        &mut self,
        host: &mut impl Host,
        class: Class,
    ) -> Option<(TaskId, io::Error)> {
        let mut first_failure = None;
        let mut managed = HashMap::new();
        for thread in std::mem::take(&mut self.listed) {
            match self.set_class(host, thread, class) {
                Ok(Some(saved)) => {
                    managed.insert(thread, saved);
                }
                Ok(None) => {}
                Err(error) => {
                    if let Some(&saved) = self.threads.get(&thread) {
                        managed.insert(thread, saved);
                    }
                    // A thread that has ended is no failure.
                    if error.raw_os_error() != Some(libc::ESRCH) {
                        first_failure.get_or_insert((thread, error));
                    }
                }
            }
        }
        self.threads = managed;
        if class != Class::BestEffort {
            self.set_by_agent.insert(IoPriority::for_class(class));
        }
        first_failure
    }

    /// Sets the class of one thread; `None`: the thread was never changed and stays so.
    fn set_class(
        &mut self,
        host: &mut impl Host,
        thread: TaskId,
        class: Class,
    ) -> io::Result<Option<SavedPriority>> {
        let saved = match self.threads.get(&thread) {
            Some(&saved) => saved,
            // Nothing was ever changed, so there is nothing to restore.
            None if class == Class::BestEffort && self.first_original.is_none() => return Ok(None),
            None => {
                let current = host.priority(thread)?;
                let original = match self.first_original {
                    // A priority that the agent itself has set was inherited, not the thread's
                    // original.
                    Some(first) if self.set_by_agent.contains(&current) => first,
                    _ => current,
                };
                SavedPriority { original, current }
            }
        };
        self.first_original.get_or_insert(saved.original);
        let wanted = match class {
            Class::BestEffort => saved.original,
            class => IoPriority::for_class(class),
        };
        // Saves a system call per thread and scan.
        if saved.current != wanted {
            host.set_priority(thread, wanted)?;
        }
        Ok(Some(SavedPriority {
            current: wanted,
            ..saved
        }))
    }
}
