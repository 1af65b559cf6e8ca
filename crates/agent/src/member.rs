//! Somebody whose processes are watched: what they moved, and what their threads' priorities were
//! before.

use std::collections::{HashMap, HashSet};
use std::io;

use tidegate_core::jobs::Class;

use crate::host::{Host, Process, Target, TargetError, Thread, runs};
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
    /// Its processes, as they were looked at last.
    pub processes: HashSet<Thread>,
    /// Their threads.
    listed: Vec<Thread>,
    /// Threads that were touched.
    threads: HashMap<Thread, Kept>,
    /// What the first thread had that was touched. Threads that begin later inherit what is in
    /// force then, so theirs says nothing.
    before: Option<IoPriority>,
    /// What was given to its threads so far.
    given: HashSet<IoPriority>,
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
            processes: HashSet::new(),
            listed: Vec::new(),
            threads: HashMap::new(),
            before: None,
            given: HashSet::new(),
            meant: None,
            present: false,
        }
    }

    /// The processes that its target names. A number that is used again is somebody else's, who is
    /// left alone.
    pub(crate) fn named(&mut self, host: &mut impl Host) -> Result<Vec<Process>, TargetError> {
        let mut named = host.processes(&self.target)?;
        if let (Target::Pid(_), Some(process)) = (&self.target, named.first()) {
            let meant = *self.meant.get_or_insert(process.thread);
            named.retain(|process| process.thread == meant);
        }
        Ok(named)
    }

    /// These are its processes now, and this is what all processes moved.
    pub(crate) fn look(&mut self, found: &[Process], moved: &HashMap<Thread, u64>) -> Look {
        let mut look = Look::default();
        let mut there = HashSet::new();
        for Process { thread, .. } in found {
            let Some(bytes) = moved.get(thread) else {
                continue;
            };
            look.moved += bytes;
            there.insert(*thread);
            if !self.processes.contains(thread) {
                look.new.push(*thread);
            }
        }
        self.processes = there;
        look
    }

    pub(crate) fn has_processes(&self) -> bool {
        !self.processes.is_empty()
    }

    /// Lists its threads. Those that were touched and are none of its own any more, since their
    /// process left its cgroup, get back what they had.
    pub(crate) fn gather(&mut self, host: &mut impl Host) {
        let processes = self.processes.iter();
        self.listed = processes
            .flat_map(|&process| host.threads(process))
            .collect();
        let there: HashSet<&Thread> = self.listed.iter().collect();
        self.threads.retain(|thread, kept| {
            let stays = there.contains(thread);
            if !stays && kept.now != kept.before && runs(host, *thread).is_some() {
                // Whoever could change it may change it back, unless it ends just now.
                let _ = host.set_priority(*thread, kept.before);
            }
            stays
        });
    }

    /// Gives all its threads that were gathered, new ones too, the priority of a class; best effort
    /// is what they had before. Returns why the first one that refused did.
    pub(crate) fn apply(
        &mut self,
        host: &mut impl Host,
        class: Class,
    ) -> Option<(Thread, io::Error)> {
        let mut refused = None;
        let mut there = HashMap::new();
        for thread in std::mem::take(&mut self.listed) {
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
        if class != Class::BestEffort {
            self.given.insert(IoPriority::of(class));
        }
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
                let before = match self.before {
                    Some(before) if self.given.contains(&now) => before,
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
