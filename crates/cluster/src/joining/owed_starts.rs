//! Starts that placers have recorded with their placements, and that this daemon has not confirmed:
//! the placer, the daemon or the connection has ended in between.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tidegate_server::membership::Membership;
use tokio::task::{self, JoinHandle};

use super::settle;
use crate::store::StoreError;
use crate::store::member::{Checked, MemberStore, OwedStart, Registration};

/// Pause after the first attempt that was refused; it doubles up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_secs(5);
/// Longest pause between attempts at one start: what refuses it may change at any time.
const LONGEST_PAUSE: Duration = Duration::from_secs(300);

/// Starts that the daemon owes, with the attempts so far.
#[derive(Default)]
pub(super) struct OwedStarts {
    /// By name of the VM.
    attempts: BTreeMap<String, Attempts>,
}

/// Attempts at the start of one placement.
struct Attempts {
    /// Time of the placement.
    begun_ns: u64,
    /// Time of the next one, and the pause after it.
    next: Instant,
    pause: Duration,
    /// The one that is under way.
    task: Option<JoinHandle<()>>,
}

impl Attempts {
    fn new(begun_ns: u64) -> Attempts {
        Attempts {
            begun_ns,
            next: Instant::now(),
            pause: FIRST_PAUSE,
            task: None,
        }
    }

    /// Returns true for the first attempt, whose refusal is logged.
    fn is_first(&self) -> bool {
        self.pause == FIRST_PAUSE
    }

    /// Returns whether an attempt may be made now.
    fn is_due(&self) -> bool {
        let is_idle = self.task.as_ref().is_none_or(JoinHandle::is_finished);
        is_idle && self.next <= Instant::now()
    }

    /// Records that an attempt is made now.
    fn made(&mut self, task: Option<JoinHandle<()>>) {
        self.task = task;
        self.next = Instant::now() + self.pause;
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
    }
}

impl OwedStarts {
    /// Reads the starts that are recorded, deletes those whose placements have ended, and has the
    /// control API carry out the others that are due.
    ///
    /// # Errors
    /// etcd does not answer or refuses.
    pub(super) async fn look(
        &mut self,
        store: &MemberStore,
        held: &Registration,
        membership: &Arc<Membership>,
    ) -> Result<(), StoreError> {
        let owed = store.owed_starts().await?;
        self.keep_only(&owed);
        for start in owed {
            let begun_ns = start.value.begun_ns;
            let attempts = self.attempts.entry(start.vm.clone());
            let attempts = attempts.or_insert_with(|| Attempts::new(begun_ns));
            if !attempts.is_due() {
                continue;
            }
            match store.check(held, &start.vm, &start.value.claim()).await? {
                Checked::Stands(_) => {
                    let is_first = attempts.is_first();
                    let started = carry_out(membership.clone(), start, is_first);
                    attempts.made(Some(task::spawn(started)));
                }
                // Of a version that does not know the record, or by `etcdctl`.
                Checked::Ended(_) => settle(store, &start).await,
                // Drained; it is started when that ends.
                Checked::Refused(_) => attempts.made(None),
                Checked::NotOurs => return Ok(()),
            }
        }
        Ok(())
    }

    /// Forgets the attempts at starts that are not recorded any more.
    fn keep_only(&mut self, owed: &[OwedStart]) {
        self.attempts.retain(|vm, attempts| {
            let is_it =
                |start: &OwedStart| start.vm == *vm && start.value.begun_ns == attempts.begun_ns;
            owed.iter().any(is_it)
        });
    }
}

/// Has the control API start a transfer, and logs what came of it.
async fn carry_out(membership: Arc<Membership>, start: OwedStart, is_first: bool) {
    let OwedStart { vm, value, .. } = &start;
    let (bytes, deadline) = (value.bytes(), value.deadline());
    let started = membership.start_recorded(vm, bytes, deadline, value.claim());
    match started.await {
        Ok(()) => tracing::info!(vm, "transfer started that a placer had recorded"),
        Err(refusal) if is_first => tracing::warn!(
            vm,
            "transfer that a placer has recorded is not started: {}; it is tried again; `tidegate \
             place end {vm}` ends the placement",
            refusal.why
        ),
        Err(refusal) => tracing::debug!(vm, "still not started: {}", refusal.why),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_are_made_with_pauses_that_grow_to_their_bound() {
        let mut attempts = Attempts::new(7);
        assert!(attempts.is_due() && attempts.is_first());
        let mut pauses = Vec::new();
        for _ in 0..8 {
            pauses.push(attempts.pause.as_secs());
            attempts.made(None);
            assert!(!attempts.is_due() && !attempts.is_first());
        }
        assert_eq!(pauses, [5, 10, 20, 40, 80, 160, 300, 300]);
        attempts.next = Instant::now();
        assert!(attempts.is_due());
    }

    #[tokio::test(flavor = "current_thread")]
    async fn no_attempt_is_made_while_another_one_is_under_way() {
        let mut attempts = Attempts::new(7);
        attempts.made(Some(task::spawn(std::future::pending())));
        attempts.next = Instant::now();
        assert!(!attempts.is_due());
    }
}
