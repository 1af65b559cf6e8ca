//! Starts that placers have recorded with their placements, and that this daemon has not confirmed:
//! the placer, the daemon or the connection has ended in between.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tidegate_server::membership::{Membership, StartRefusal};
use tokio::task::{self, JoinHandle};

use crate::store::StoreError;
use crate::store::member::{Checked, MemberStore, Registration, StartRecord};

/// Pause after the first attempt that was refused; it doubles up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_secs(5);
/// Longest pause between attempts at one start: what refuses it may change at any time.
const LONGEST_PAUSE: Duration = Duration::from_secs(300);
/// Starts that are carried out at a time. Each needs two answers of etcd by way of the thread that
/// renews the lease, and placers wait for theirs.
const STARTS_MAX: usize = 8;

/// Recorded starts of the host, with the attempts at them.
#[derive(Default)]
pub(super) struct RecordedStarts {
    /// By name of the VM.
    attempts: BTreeMap<String, StartAttempts>,
    /// VM of the last attempt; the next pass begins behind it, so that starts which hang do not
    /// keep others from their turn.
    last_tried: String,
}

/// Answer to the question whether an attempt is to be made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Turn {
    Due,
    /// Another attempt is under way, or its pause is not over.
    Later,
    /// The largest number of attempts is under way, at whatever starts.
    Busy,
}

/// Attempts at the start of one placement.
struct StartAttempts {
    /// Time of the placement in nanoseconds since 1970.
    begun_ns: u64,
    /// Time from which on another attempt may be made.
    next: Instant,
    /// Pause after that attempt.
    pause: Duration,
    /// Attempt that is under way, or whose result was not looked at yet.
    task: Option<JoinHandle<Result<(), StartRefusal>>>,
    /// Reason of the last refusal.
    reason: Option<String>,
}

impl StartAttempts {
    fn new(begun_ns: u64) -> StartAttempts {
        StartAttempts {
            begun_ns,
            next: Instant::now(),
            pause: FIRST_PAUSE,
            task: None,
            reason: None,
        }
    }

    fn is_under_way(&self) -> bool {
        self.task.as_ref().is_some_and(|task| !task.is_finished())
    }

    /// Returns whether an attempt may be made now.
    fn is_due(&self) -> bool {
        !self.is_under_way() && self.next <= Instant::now()
    }

    /// Records that an attempt is made now.
    fn record_attempt(&mut self, task: Option<JoinHandle<Result<(), StartRefusal>>>) {
        self.task = task;
        self.next = Instant::now() + self.pause;
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
    }

    /// Records a refusal. Returns true if its reason is another one than that of the last.
    fn record_refusal(&mut self, why: &str) -> bool {
        let is_news = self.reason.as_deref() != Some(why);
        if is_news {
            self.reason = Some(why.to_owned());
        }
        is_news
    }
}

impl RecordedStarts {
    /// Makes attempts that wait for their pause due again, because the daemon has just registered:
    /// what refused them may have been that it was not.
    pub(super) fn retry(&mut self) {
        for attempts in self.attempts.values_mut() {
            (attempts.next, attempts.pause) = (Instant::now(), FIRST_PAUSE);
        }
    }

    /// Reads the recorded starts, deletes those whose placements have ended, and has the control
    /// API carry out others that are due, until `until`.
    ///
    /// # Errors
    /// etcd does not answer or refuses.
    pub(super) async fn carry_out_due(
        &mut self,
        store: &MemberStore,
        held: &Registration,
        membership: &Arc<Membership>,
        until: Instant,
    ) -> Result<(), StoreError> {
        let recorded = store.recorded_starts().await?;
        // First, because a start that was carried out is not recorded any more.
        for (vm, attempts) in &mut self.attempts {
            report(attempts, vm).await;
        }
        self.forget_others(&recorded);
        for record in self.in_turn(recorded) {
            match self.turn(&record) {
                Turn::Later => {}
                Turn::Due if until <= Instant::now() => return Ok(()),
                Turn::Busy => return Ok(()),
                Turn::Due => self.attempt(store, held, membership, record).await?,
            }
        }
        Ok(())
    }

    /// Returns the records by name, those behind the last one that was tried first.
    fn in_turn(&self, mut recorded: Vec<StartRecord>) -> Vec<StartRecord> {
        recorded.sort_unstable_by(|one, other| one.vm.cmp(&other.vm));
        let behind = recorded.partition_point(|record| record.vm <= self.last_tried);
        recorded.rotate_left(behind);
        recorded
    }

    /// Returns whether an attempt at a start is to be made now.
    fn turn(&mut self, record: &StartRecord) -> Turn {
        let begun_ns = record.value.as_ref().map_or(0, |value| value.begun_ns);
        let attempts = self.attempts.entry(record.vm.clone());
        let attempts = attempts.or_insert_with(|| StartAttempts::new(begun_ns));
        if !attempts.is_due() {
            Turn::Later
        } else if self.is_busy() {
            Turn::Busy
        } else {
            Turn::Due
        }
    }

    /// Makes an attempt at a start that is due.
    async fn attempt(
        &mut self,
        store: &MemberStore,
        held: &Registration,
        membership: &Arc<Membership>,
        record: StartRecord,
    ) -> Result<(), StoreError> {
        let Some(attempts) = self.attempts.get_mut(&record.vm) else {
            return Ok(());
        };
        self.last_tried.clone_from(&record.vm);
        let checked = match &record.value {
            Ok(value) => store.check(held, &record.vm, &value.claim()).await,
            Err(why) => Ok(Checked::Refused(why.clone())),
        };
        match (checked, &record.value) {
            // The control API knows whether a refused one has begun, and confirms it then: a host
            // is drained also while jobs run on it.
            (Ok(Checked::Stands | Checked::Refused(_)), Ok(value)) => {
                let (membership, vm) = (membership.clone(), record.vm.clone());
                let (bytes, deadline, claim) = (value.bytes(), value.deadline(), value.claim());
                attempts.record_attempt(Some(task::spawn(async move {
                    membership.start_recorded(&vm, bytes, deadline, claim).await
                })));
            }
            // Ended by `etcdctl`, or by a version that does not know the record.
            (Ok(Checked::Ended(_)), _) => store.delete_start(&record).await?,
            (Ok(Checked::NotOurs | Checked::Stands), _) => {}
            (Ok(Checked::Refused(why)), Err(_)) => refuse(attempts, &record.vm, &why),
            (Err(error @ StoreError::Unavailable { .. }), _) => return Err(error),
            (Err(error), _) => refuse(attempts, &record.vm, &error.to_string()),
        }
        Ok(())
    }

    fn is_busy(&self) -> bool {
        let under_way = |attempts: &&StartAttempts| attempts.is_under_way();
        self.attempts.values().filter(under_way).count() >= STARTS_MAX
    }

    /// Forgets the attempts at starts that are not recorded any more.
    fn forget_others(&mut self, recorded: &[StartRecord]) {
        self.attempts.retain(|vm, attempts| {
            recorded.iter().any(|record| {
                let is_it = |begun_ns| begun_ns == attempts.begun_ns;
                record.vm == *vm && record.value.as_ref().map_or(true, |it| is_it(it.begun_ns))
            })
        });
    }
}

/// Records an attempt without result, because the placement cannot be started now.
fn refuse(attempts: &mut StartAttempts, vm: &str, why: &str) {
    attempts.record_attempt(None);
    log_refusal(attempts, vm, why);
}

/// Logs the result of an attempt that has ended.
async fn report(attempts: &mut StartAttempts, vm: &str) {
    let Some(task) = attempts.task.take_if(|task| task.is_finished()) else {
        return;
    };
    match task.await {
        Ok(Ok(())) => tracing::info!(vm, "transfer started that a placer had recorded"),
        Ok(Err(refusal)) => log_refusal(attempts, vm, &refusal.why),
        // A panic is printed.
        Err(_) => {}
    }
}

/// Logs a refusal, unless it is for the same reason as the last.
fn log_refusal(attempts: &mut StartAttempts, vm: &str, why: &str) {
    if attempts.record_refusal(why) {
        tracing::warn!(
            vm,
            "transfer that a placer has recorded is not started: {why}; it is tried again, and \
             `tidegate place end {vm}` ends the placement"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_are_made_with_pauses_that_grow_to_their_bound() {
        let mut attempts = StartAttempts::new(7);
        assert!(attempts.is_due());
        let mut pauses = Vec::new();
        for _ in 0..8 {
            pauses.push(attempts.pause.as_secs());
            attempts.record_attempt(None);
            assert!(!attempts.is_due());
        }
        assert_eq!(pauses, [5, 10, 20, 40, 80, 160, 300, 300]);
        let mut starts = RecordedStarts::default();
        starts.attempts.insert("x".to_owned(), attempts);
        starts.retry();
        let attempts = &starts.attempts["x"];
        assert!(attempts.is_due() && attempts.pause == FIRST_PAUSE);
    }

    #[tokio::test(flavor = "current_thread")]
    async fn attempts_that_are_under_way_are_left_alone_and_bounded() {
        let mut starts = RecordedStarts::default();
        for n in 0..STARTS_MAX {
            assert!(!starts.is_busy());
            let mut attempts = StartAttempts::new(7);
            attempts.record_attempt(Some(task::spawn(std::future::pending())));
            attempts.next = Instant::now();
            assert!(!attempts.is_due());
            starts.attempts.insert(format!("{n}"), attempts);
        }
        assert!(starts.is_busy());
    }

    #[tokio::test(flavor = "current_thread")]
    async fn starts_that_hang_do_not_keep_others_from_their_turn() {
        let names: Vec<_> = (0..2 * STARTS_MAX + 1)
            .map(|n| format!("vm-{n:02}"))
            .collect();
        let mut starts = RecordedStarts::default();
        let mut tried = Vec::new();
        for _ in 0..3 {
            let all = names.iter().map(|vm| StartRecord::for_test(vm, 7));
            for record in starts.in_turn(all.collect()) {
                if starts.turn(&record) != Turn::Due {
                    continue;
                }
                let attempts = starts.attempts.get_mut(&record.vm).expect("has its turn");
                attempts.record_attempt(Some(task::spawn(std::future::pending())));
                starts.last_tried.clone_from(&record.vm);
                tried.push(record.vm);
            }
            // All that hung are given up, and due again at once.
            for attempts in starts.attempts.values_mut() {
                if let Some(task) = attempts.task.take() {
                    task.abort();
                }
                attempts.next = Instant::now();
            }
        }
        assert_eq!(tried[..names.len()], names, "each once before any again");
        assert_eq!(tried.len(), 3 * STARTS_MAX);
    }

    #[test]
    fn a_refusal_is_news_only_for_another_reason() {
        let mut attempts = StartAttempts::new(7);
        assert!(attempts.record_refusal("busy"));
        assert!(!attempts.record_refusal("busy"));
        assert!(attempts.record_refusal("no such VM"));
    }

    #[test]
    fn attempts_end_with_their_placement() {
        let record = |vm: &str, begun_ns| StartRecord::for_test(vm, begun_ns);
        let mut starts = RecordedStarts::default();
        for vm in ["stays", "placed-again", "gone"] {
            starts.attempts.insert(vm.to_owned(), StartAttempts::new(7));
        }
        starts.forget_others(&[record("stays", 7), record("placed-again", 8)]);
        let left: Vec<_> = starts.attempts.keys().collect();
        assert_eq!(left, ["stays"]);
    }
}
