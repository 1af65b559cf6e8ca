//! I/O accounting of processes, in which every byte counts once.

use std::collections::HashMap;
use std::io;

use crate::host::{Host, Process, TargetError, TaskId, running_process};

/// Statistics of a process at the last scan.
#[derive(Clone, Copy, Debug)]
struct LastScan {
    /// Bytes moved since the start of the process.
    bytes: u64,
    /// PID of the parent.
    parent: u32,
}

/// Bytes of an ended process, which its parent's statistics include once the parent has waited for
/// it.
#[derive(Clone, Copy, Debug)]
struct Inherited {
    /// Nearest ancestor that still runs.
    heir: TaskId,
    /// Bytes that the ended process had moved, of which the last scan knew.
    bytes: u64,
}

/// I/O statistics of every process at the last scan.
#[derive(Debug, Default)]
pub(crate) struct IoAccounting {
    /// Running processes. One that cannot be read at present, or that left its target, keeps the
    /// statistics of the last scan that could read it.
    seen: HashMap<TaskId, LastScan>,
    /// Bytes of processes that ended in the last scan, and that no heir's statistics have shown.
    inherited: Vec<Inherited>,
}

impl IoAccounting {
    /// Takes the current statistics of processes as their starting points.
    ///
    /// # Errors
    /// This user may not read the statistics of a process.
    pub(crate) fn set_baseline<'a>(
        &mut self,
        host: &mut impl Host,
        processes: impl Iterator<Item = &'a Process>,
    ) -> Result<(), TargetError> {
        for &Process { task, parent } in processes {
            match host.bytes_moved(task) {
                Ok(bytes) => {
                    self.seen.insert(task, LastScan { bytes, parent });
                }
                Err(error) if has_exited(&error) => {}
                Err(error) => {
                    let process = task.id;
                    return Err(TargetError::NoAccess { process, error });
                }
            }
        }
        Ok(())
    }

    /// Returns the bytes that each process has moved since the last scan, or since its start if it
    /// is new. Processes whose statistics cannot be read are left out.
    pub(crate) fn scan<'a>(
        &mut self,
        host: &mut impl Host,
        processes: impl Iterator<Item = &'a Process>,
    ) -> HashMap<TaskId, u64> {
        let mut processes: Vec<Process> = processes.copied().collect();
        // Parents first: if a child ends during the scan, its end is noticed no later than the
        // inherited bytes in the parent's statistics.
        processes.sort_by_key(|process| (process.task.start_ticks, process.task.id));
        let (mut moved, mut seen) = (HashMap::new(), HashMap::new());
        for Process { task, parent } in processes {
            // The process may end at any time.
            let Ok(bytes) = host.bytes_moved(task) else {
                continue;
            };
            // A process that started after the last scan counts from its start.
            let before = self.seen.get(&task).map_or(0, |seen| seen.bytes);
            moved.insert(task, bytes.saturating_sub(before));
            seen.insert(task, LastScan { bytes, parent });
        }
        let before = std::mem::replace(&mut self.seen, seen);
        // A process that is missing from the scan may still run: it left the cgroup, or could not
        // be read. No process inherits its bytes, which count from here on if it comes back.
        for (&task, &last) in &before {
            if !self.seen.contains_key(&task) && running_process(host, task).is_some() {
                self.seen.insert(task, last);
            }
        }
        self.subtract_inherited(&before, &mut moved);
        moved
    }

    /// Subtracts the bytes of ended processes from those of their heirs, in the scan that finds
    /// them ended and, where the heir moved less by then, in the next one. This is a heuristic: an
    /// heir that moved as much by itself and never waits for the child loses bytes, and one that
    /// waits later than the next scan counts the child's twice.
    fn subtract_inherited(
        &mut self,
        before: &HashMap<TaskId, LastScan>,
        moved: &mut HashMap<TaskId, u64>,
    ) {
        let mut subtracted_from_heir = |inherited: &Inherited| match moved.get_mut(&inherited.heir)
        {
            Some(bytes) if *bytes >= inherited.bytes => {
                *bytes -= inherited.bytes;
                true
            }
            _ => false,
        };
        for inherited in &std::mem::take(&mut self.inherited) {
            // The last attempt, whose failure means that the heir does not wait for its children.
            let _ = subtracted_from_heir(inherited);
        }
        let ended = before
            .iter()
            .filter(|(task, seen)| seen.bytes > 0 && !self.seen.contains_key(task));
        let inherited = ended.filter_map(|(_, &seen)| {
            let (heir, bytes) = (self.heir(before, seen)?, seen.bytes);
            Some(Inherited { heir, bytes })
        });
        self.inherited = inherited
            .filter(|inherited| !subtracted_from_heir(inherited))
            .collect();
    }

    /// Returns the nearest running ancestor of an ended process, which inherits its bytes.
    fn heir(&self, before: &HashMap<TaskId, LastScan>, ended: LastScan) -> Option<TaskId> {
        let mut parent = ended.parent;
        // A chain of ancestors has at most as many links as there were processes.
        for _ in 0..before.len() {
            let (task, seen) = before.iter().find(|(task, _)| task.id == parent)?;
            if self.seen.contains_key(task) {
                return Some(*task);
            }
            parent = seen.parent;
        }
        None
    }
}

/// Returns true for the errors that reading statistics of an ended process gives.
fn has_exited(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(libc::ESRCH)
}
