//! A run: requests are considered one after the other, for as long as it lasts.
//!
//! ```text
//!   the next request --> considered --let in--> it runs in a VM that was free
//!                          |    ^
//!                          |    +-- again whenever a job begins or ends
//!                          +------> its deadline is over: discarded
//! ```

use super::gate::Gate;
use super::house::{Capacity, House, MEDIA, Newcomer};
use super::learning::INTERVAL;
use super::stage::{Begun, Ended, Stage};
use tidegate_core::time::Nanos;
use tidegate_sim::scenario::Scenario;

/// The media servers run by themselves for so long.
pub(super) const BEFORE: Nanos = INTERVAL;

/// A request that was considered at some time.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Try {
    pub(super) at: Nanos,
    /// So many were let in before.
    pub(super) after: usize,
    pub(super) newcomer: Newcomer,
    pub(super) let_in: bool,
}

/// What came of a run.
#[derive(Clone, Default, Debug)]
pub(super) struct Outcome {
    pub(super) begun: Vec<Begun>,
    /// How long each of those waited.
    pub(super) waited: Vec<Nanos>,
    pub(super) discarded: usize,
    pub(super) ended: Vec<Ended>,
    /// Jobs of each VM that were past their deadlines at the end.
    pub(super) overdue: Vec<usize>,
    /// What each VM moved in each interval, in bytes.
    pub(super) moved: Vec<Vec<u64>>,
    pub(super) tries: Vec<Try>,
}

impl Outcome {
    /// Jobs of VMs that were late, of so many that are over or late.
    pub(super) fn missed(&self, vms: impl Fn(usize) -> bool) -> (usize, usize) {
        let ended = self
            .ended
            .iter()
            .filter(|of| vms(of.vm) && of.since >= BEFORE);
        let overdue = self.overdue.iter().enumerate();
        let overdue: usize = overdue.filter(|(vm, _)| vms(*vm)).map(|(_, n)| n).sum();
        let (late, all) = ended.fold((0, 0), |(late, all), of| {
            (late + usize::from(of.is_late()), all + 1)
        });
        (late + overdue, all + overdue)
    }

    /// In a hundred, of the media servers.
    pub(super) fn media_missed_pct(&self) -> f64 {
        pct(self.missed(|vm| vm < MEDIA))
    }

    /// How long those that were let in waited on average, in seconds; 0 where none was.
    pub(super) fn mean_wait(&self) -> f64 {
        let sum: u64 = self.waited.iter().map(|of| of.0).sum();
        sum as f64 / 1e9 / self.waited.len().max(1) as f64
    }

    /// Of those that were decided, so many in a hundred were discarded.
    pub(super) fn discarded_pct(&self) -> f64 {
        pct((self.discarded, self.discarded + self.begun.len()))
    }
}

fn pct((part, all): (usize, usize)) -> f64 {
    100.0 * part as f64 / all.max(1) as f64
}

/// One that is considered.
struct Considered {
    newcomer: Newcomer,
    since: Nanos,
}

impl Considered {
    fn due(&self) -> Nanos {
        self.since + self.newcomer.deadline
    }
}

/// Lets requests in as `gate` says. They are considered until `end`; what runs then goes on to its
/// end or its deadline.
pub(super) fn run(
    house: &House,
    scenario: &Scenario,
    capacity: &Capacity,
    gate: &mut dyn Gate,
    end: Nanos,
) -> Outcome {
    let mut stage = Stage::new(house, scenario);
    let mut outcome = Outcome::default();
    let mut considered: Option<Considered> = None;
    let mut next = 0;
    let mut mark = INTERVAL;
    let mut before = stage.moved();
    while stage.now() < end {
        let now = stage.now();
        if now >= mark {
            let moved = stage.moved();
            let each = moved.iter().zip(&before).map(|(now, before)| now - before);
            outcome.moved.push(each.collect());
            (before, mark) = (moved, mark + INTERVAL);
        }
        if considered.take_if(|of| of.due() <= now).is_some() {
            outcome.discarded += 1;
        }
        gate.look(&stage);
        while now >= BEFORE
            && let Some(vm) = stage.free()
        {
            let of = considered.get_or_insert_with(|| {
                next += 1;
                let newcomer = house.newcomer(next - 1, capacity);
                let since = now;
                Considered { newcomer, since }
            });
            let newcomer = of.newcomer;
            let terms = gate.lets_in(&stage, &newcomer);
            outcome.tries.push(Try {
                at: now,
                after: stage.begun.len(),
                newcomer,
                let_in: terms.is_some(),
            });
            let Some(terms) = terms else { break };
            outcome.waited.push(now.since(of.since));
            considered = None;
            let at = now;
            stage.begin(Begun {
                at,
                vm,
                newcomer,
                terms,
            });
            gate.look(&stage);
        }
        let due = considered.as_ref().map_or(Nanos::MAX, Considered::due);
        stage.pass_to_change(end.min(mark).min(due));
    }
    finish(stage, outcome, end)
}

/// What runs when requests are no longer considered is waited for.
fn finish(mut stage: Stage<'_>, outcome: Outcome, end: Nanos) -> Outcome {
    let running = stage.running();
    let due = running.iter().map(|of| of.due()).max();
    stage.pass(due.unwrap_or_default());
    let is_over = |of: &super::stage::Running| {
        let mut ended = stage.ended.iter();
        ended.any(|ended| (ended.vm, ended.since) == of.key())
    };
    let mut overdue = vec![0; stage.moved().len()];
    for of in running.iter().filter(|of| !is_over(of)) {
        overdue[of.vm] += 1;
    }
    stage.ended.retain(|of| of.since < end);
    Outcome {
        begun: stage.begun,
        ended: stage.ended,
        overdue,
        ..outcome
    }
}
