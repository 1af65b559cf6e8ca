//! Run of the admission: requests are considered one after the other.
//!
//! ```text
//!   the next request --> considered --admitted--> it runs in a VM that was free
//!                          |    ^
//!                          |    +-- again whenever a transfer begins or ends
//!                          +------> its deadline is over: discarded
//! ```

use super::admission::AdmissionPolicy;
use super::host::{Capacity, HostModel, MEDIA, Newcomer};
use super::learning::INTERVAL;
use super::replay::{AdmittedRequest, Ended, HostReplay};
use tidegate_core::time::Nanos;
use tidegate_sim::scenario::Scenario;

/// Time at the begin of a run for which the media servers have no newcomers beside them: the first
/// interval.
pub(super) const MEDIA_ALONE: Nanos = INTERVAL;

/// Request that was considered at some time.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Try {
    pub(super) at: Nanos,
    /// Number of requests admitted before.
    pub(super) after: usize,
    pub(super) newcomer: Newcomer,
    pub(super) admitted: bool,
}

/// Results of a run.
#[derive(Clone, Default, Debug)]
pub(super) struct Outcome {
    pub(super) begun: Vec<AdmittedRequest>,
    /// Waiting time of each admitted request.
    pub(super) waited: Vec<Nanos>,
    pub(super) discarded: usize,
    pub(super) ended: Vec<Ended>,
    /// Number of transfers past their deadlines at the end, by VM.
    pub(super) overdue: Vec<usize>,
    /// Bytes moved by each VM in each interval.
    pub(super) moved: Vec<Vec<u64>>,
    pub(super) tries: Vec<Try>,
}

impl Outcome {
    /// Number of late transfers of these VMs, and number of their transfers that have ended or are
    /// late.
    pub(super) fn missed(&self, vms: impl Fn(usize) -> bool) -> (usize, usize) {
        let ended = self
            .ended
            .iter()
            // Transfers of the first interval had no newcomer beside them.
            .filter(|transfer| vms(transfer.vm) && transfer.since >= MEDIA_ALONE);
        let overdue = self.overdue.iter().enumerate();
        let overdue: usize = overdue.filter(|(vm, _)| vms(*vm)).map(|(_, n)| n).sum();
        let (late, all) = ended.fold((0, 0), |(late, all), transfer| {
            (late + usize::from(transfer.is_late()), all + 1)
        });
        (late + overdue, all + overdue)
    }

    /// Late transfers of the media servers, in percent.
    pub(super) fn media_missed_pct(&self) -> f64 {
        pct(self.missed(|vm| vm < MEDIA))
    }

    /// Mean waiting time of the admitted requests, in seconds; 0 if there are none.
    pub(super) fn mean_wait(&self) -> f64 {
        let sum: u64 = self.waited.iter().map(|wait| wait.0).sum();
        sum as f64 / 1e9 / self.waited.len().max(1) as f64
    }

    /// Discarded requests in percent of all decided ones.
    pub(super) fn discarded_pct(&self) -> f64 {
        pct((self.discarded, self.discarded + self.begun.len()))
    }
}

fn pct((part, all): (usize, usize)) -> f64 {
    // No transfers at all are a share of 0 %.
    100.0 * part as f64 / all.max(1) as f64
}

/// Request that is being considered.
struct Considered {
    newcomer: Newcomer,
    since: Nanos,
}

impl Considered {
    fn due(&self) -> Nanos {
        self.since + self.newcomer.deadline
    }
}

/// Runs the admission by `policy`. Requests are considered until `end`; transfers that run then go
/// on to their end or deadline.
pub(super) fn run(
    model: &HostModel,
    scenario: &Scenario,
    capacity: &Capacity,
    policy: &mut dyn AdmissionPolicy,
    end: Nanos,
) -> Outcome {
    let mut replay = HostReplay::new(model, scenario);
    let mut outcome = Outcome::default();
    let mut considered: Option<Considered> = None;
    let mut next = 0;
    let mut mark = INTERVAL;
    let mut before = replay.moved();
    while replay.now() < end {
        let now = replay.now();
        // Time stops at each mark, so that an interval is exact.
        if now >= mark {
            let moved = replay.moved();
            let each = moved.iter().zip(&before).map(|(now, before)| now - before);
            outcome.moved.push(each.collect());
            (before, mark) = (moved, mark + INTERVAL);
        }
        // A request past its deadline is given up, whatever the policy would say now.
        if considered.take_if(|request| request.due() <= now).is_some() {
            outcome.discarded += 1;
        }
        // Before a decision, so that the policy knows of the transfers that have just ended.
        policy.observe(&replay);
        while now >= MEDIA_ALONE
            // Several requests may be admitted at one time, as long as VMs are free.
            && let Some(vm) = replay.idle_vm()
        {
            let of = considered.get_or_insert_with(|| {
                next += 1;
                let newcomer = model.newcomer(next - 1, capacity);
                let since = now;
                Considered { newcomer, since }
            });
            let newcomer = of.newcomer;
            let terms = policy.admit(&replay, &newcomer);
            outcome.tries.push(Try {
                at: now,
                after: replay.begun.len(),
                newcomer,
                admitted: terms.is_some(),
            });
            // The request stays the next one: they are considered in order.
            let Some(terms) = terms else { break };
            outcome.waited.push(now.since(of.since));
            considered = None;
            let at = now;
            replay.begin(AdmittedRequest {
                at,
                vm,
                newcomer,
                terms,
            });
            policy.observe(&replay);
        }
        let due = considered.as_ref().map_or(Nanos::MAX, Considered::due);
        replay.advance_to_change(end.min(mark).min(due));
    }
    finish(replay, outcome, end)
}

/// Waits for the transfers that run when requests are no longer considered.
fn finish(mut replay: HostReplay<'_>, outcome: Outcome, end: Nanos) -> Outcome {
    let running = replay.running();
    let due = running.iter().map(|of| of.due()).max();
    // To the last deadline: what is not done by then is late.
    replay.advance_to(due.unwrap_or_default());
    let is_over = |of: &super::replay::Running| {
        let mut ended = replay.ended.iter();
        ended.any(|ended| (ended.vm, ended.since) == of.key())
    };
    let mut overdue = vec![0; replay.moved().len()];
    for of in running.iter().filter(|of| !is_over(of)) {
        overdue[of.vm] += 1;
    }
    // Media servers go on with new requests, which are no part of the run.
    replay.ended.retain(|of| of.since < end);
    Outcome {
        begun: replay.begun,
        ended: replay.ended,
        overdue,
        ..outcome
    }
}
