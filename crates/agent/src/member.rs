//! Somebody whose processes are watched: what they moved, and what their threads' priorities were before.

use std::collections::HashMap;
use std::io;

use tidegate_core::jobs::Class;

use crate::host::{Host, Target, TargetError, Thread};
use crate::ioprio::IoPriority;

/// A thread's priority was changed, or is as it was.
#[derive(Clone, Copy, Debug)]
struct Kept {
    before: IoPriority,
    now: IoPriority,
}

/// One of them.
#[derive(Debug)]
pub(crate) struct Member {
    pub name: String,
    pub target: Target,
    /// Its processes, and the bytes that each had moved when it was looked at last.
    processes: HashMap<Thread, u64>,
    /// Threads that were touched.
    threads: HashMap<Thread, Kept>,
    /// What the first thread had that was touched. Threads that begin later inherit what is in force then,
    /// so theirs says nothing.
    before: Option<IoPriority>,
    /// The one process that a number meant when it was first looked at.
    meant: Option<Thread>,
    pub present: bool,
}

/// What a look at somebody's processes found.
#[derive(Debug, Default)]
pub(crate) struct Look {
    /// Bytes since the last one.
    pub moved: u64,
    /// Processes that were not there then.
    pub new: Vec<Thread>,
}

impl Member {
    pub(crate) fn new(name: String, target: Target) -> Member {
        Member {
            name,
            target,
            processes: HashMap::new(),
            threads: HashMap::new(),
            before: None,
            meant: None,
            present: false,
        }
    }

    /// Looks at its processes. What a process moved before it was seen first does not count, but for one that
    /// begins later: all of that is new.
    pub(crate) fn look(&mut self, host: &mut impl Host, first: bool) -> Result<Look, TargetError> {
        let mut look = Look::default();
        let mut seen = HashMap::new();
        for process in self.found(host)? {
            // It may go between two looks.
            let Ok(bytes) = host.moved(process) else {
                continue;
            };
            let before = match self.processes.get(&process) {
                Some(&before) => before,
                None => {
                    look.new.push(process);
                    if first { bytes } else { 0 }
                }
            };
            look.moved += bytes.saturating_sub(before);
            seen.insert(process, bytes);
        }
        self.processes = seen;
        Ok(look)
    }

    /// A number that is used again is somebody else's, who is left alone.
    fn found(&mut self, host: &mut impl Host) -> Result<Vec<Thread>, TargetError> {
        let mut found = host.processes(&self.target)?;
        if let (Target::Pid(_), Some(&process)) = (&self.target, found.first()) {
            let meant = *self.meant.get_or_insert(process);
            found.retain(|&process| process == meant);
        }
        Ok(found)
    }

    /// It is not there any more.
    pub(crate) fn forget(&mut self) -> Look {
        self.processes.clear();
        Look::default()
    }

    pub(crate) fn has_processes(&self) -> bool {
        !self.processes.is_empty()
    }

    /// Gives all its threads, new ones too, the priority of a class; best effort is what they had before.
    /// Returns why the first one that refused did.
    pub(crate) fn apply(
        &mut self,
        host: &mut impl Host,
        class: Class,
    ) -> Option<(Thread, io::Error)> {
        let mut refused = None;
        let mut there = HashMap::new();
        let processes = self.processes.keys();
        let threads: Vec<Thread> = processes
            .flat_map(|&process| host.threads(process))
            .collect();
        for thread in threads {
            match self.turn(host, thread, class) {
                Ok(Some(kept)) => {
                    there.insert(thread, kept);
                }
                Ok(None) => {}
                Err(error) => {
                    if let Some(&kept) = self.threads.get(&thread) {
                        there.insert(thread, kept);
                    }
                    // It may end at any time; that is no refusal.
                    if error.raw_os_error() != Some(libc::ESRCH) {
                        refused.get_or_insert((thread, error));
                    }
                }
            }
        }
        self.threads = there;
        refused
    }

    /// `None`: it is left alone, as it always was.
    fn turn(
        &mut self,
        host: &mut impl Host,
        thread: Thread,
        class: Class,
    ) -> io::Result<Option<Kept>> {
        let kept = match self.threads.get(&thread) {
            Some(&kept) => kept,
            None if class == Class::BestEffort && self.before.is_none() => return Ok(None),
            None => {
                let now = host.priority(thread)?;
                let inherited = Class::ALL.iter().any(|&class| now == IoPriority::of(class));
                let before = match self.before {
                    Some(before) if inherited => before,
                    _ => now,
                };
                Kept { before, now }
            }
        };
        self.before.get_or_insert(kept.before);
        let wanted = match class {
            Class::BestEffort => kept.before,
            class => IoPriority::of(class),
        };
        if kept.now != wanted {
            host.set_priority(thread, wanted)?;
        }
        let now = wanted;
        Ok(Some(Kept { now, ..kept }))
    }
}
