//! What processes move, every byte once.

use std::collections::HashMap;
use std::io;

use crate::host::{Host, Process, TargetError, Thread};

/// A process as it was when looked at last.
#[derive(Clone, Copy, Debug)]
struct Seen {
    bytes: u64,
    parent: u32,
}

/// A process has ended: whoever waited for it has its bytes on top of its own from then on.
#[derive(Clone, Copy, Debug)]
struct Passed {
    heir: Thread,
    bytes: u64,
}

/// What every process had moved when it was looked at last.
#[derive(Debug, Default)]
pub(crate) struct Books {
    seen: HashMap<Thread, Seen>,
    /// Not yet seen with their heirs.
    passed: Vec<Passed>,
}

impl Books {
    /// What processes moved before they are watched does not count.
    ///
    /// # Errors
    /// The books of one are not for this user.
    pub(crate) fn open<'a>(
        &mut self,
        host: &mut impl Host,
        found: impl Iterator<Item = &'a Process>,
    ) -> Result<(), TargetError> {
        for &Process { thread, parent } in found {
            match host.moved(thread) {
                Ok(bytes) => {
                    self.seen.insert(thread, Seen { bytes, parent });
                }
                Err(error) if has_gone(&error) => {}
                Err(error) => {
                    let process = thread.id;
                    return Err(TargetError::Books { process, error });
                }
            }
        }
        Ok(())
    }

    /// The bytes of each process since the last look, and since it began where it is new. Who
    /// cannot be looked at is not among them.
    pub(crate) fn look<'a>(
        &mut self,
        host: &mut impl Host,
        found: impl Iterator<Item = &'a Process>,
    ) -> HashMap<Thread, u64> {
        let mut found: Vec<Process> = found.copied().collect();
        // Parents before their children: one that ends meanwhile is seen to have gone no later than
        // with its heir.
        found.sort_by_key(|process| (process.thread.began, process.thread.id));
        let (mut moved, mut seen) = (HashMap::new(), HashMap::new());
        for Process { thread, parent } in found {
            // It may end between two looks.
            let Ok(bytes) = host.moved(thread) else {
                continue;
            };
            let before = self.seen.get(&thread).map_or(0, |seen| seen.bytes);
            moved.insert(thread, bytes.saturating_sub(before));
            seen.insert(thread, Seen { bytes, parent });
        }
        let before = std::mem::replace(&mut self.seen, seen);
        self.settle(&before, &mut moved);
        moved
    }

    /// Takes what was counted of those that ended from what their heirs seem to have moved. An heir
    /// that moved less did not get it yet: it may in the next look, or does not wait for its
    /// children.
    fn settle(&mut self, before: &HashMap<Thread, Seen>, moved: &mut HashMap<Thread, u64>) {
        let mut has_it = |passed: &Passed| match moved.get_mut(&passed.heir) {
            Some(bytes) if *bytes >= passed.bytes => {
                *bytes -= passed.bytes;
                true
            }
            _ => false,
        };
        let late = std::mem::take(&mut self.passed);
        late.iter().for_each(|passed| {
            has_it(passed);
        });
        let ended = before
            .iter()
            .filter(|(thread, seen)| seen.bytes > 0 && !self.seen.contains_key(thread));
        let passed = ended.filter_map(|(_, &seen)| {
            let (heir, bytes) = (self.heir(before, seen)?, seen.bytes);
            Some(Passed { heir, bytes })
        });
        self.passed = passed.filter(|passed| !has_it(passed)).collect();
    }

    /// Of its forebears, the nearest that runs.
    fn heir(&self, before: &HashMap<Thread, Seen>, of: Seen) -> Option<Thread> {
        let mut parent = of.parent;
        // A line has no more forebears than there were processes.
        for _ in 0..before.len() {
            let (thread, seen) = before.iter().find(|(thread, _)| thread.id == parent)?;
            if self.seen.contains_key(thread) {
                return Some(*thread);
            }
            parent = seen.parent;
        }
        None
    }
}

fn has_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(libc::ESRCH)
}
