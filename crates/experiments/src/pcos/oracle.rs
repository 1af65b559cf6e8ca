//! What would come of a request: the same simulation once more, with it and without.

use super::house::Newcomer;
use super::stage::{Begun, JobKey, Stage, Terms};
use std::collections::BTreeMap;
use tidegate_core::time::Nanos;

/// Why a request had better not be let in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Harm {
    /// Somebody who runs would be late because of it.
    Other {
        /// Its VM.
        vm: usize,
        /// By how much.
        late: Nanos,
    },
    /// It would be late itself, by so much.
    Own(Nanos),
}

/// What came of jobs: how late each one was; those that are not there were not done when it was
/// looked.
type Lateness = BTreeMap<JobKey, Nanos>;

/// Judges requests. What comes of those that run without another newcomer is kept.
#[derive(Default)]
pub(super) struct Oracle {
    /// How many were let in before, and what came of everybody then.
    without: Option<(usize, Lateness)>,
    /// Where what comes of everybody is looked at last.
    pub(super) end: Nanos,
}

impl Oracle {
    /// Of runs up to this time.
    pub(super) fn new(end: Nanos) -> Oracle {
        Oracle { without: None, end }
    }

    /// Whether nobody who runs at `now`, with those let in that had begun, and would be in time
    /// misses because of the newcomer, and it is in time itself.
    pub(super) fn judge(
        &mut self,
        stage: &Stage<'_>,
        begun: &[Begun],
        now: Nanos,
        newcomer: &Newcomer,
        terms: &Terms,
    ) -> Result<(), Harm> {
        let mut with = stage.again(begun, now);
        let Some(vm) = with.free() else {
            return Err(Harm::Own(Nanos::MAX));
        };
        let running = with.running();
        let due = running.iter().map(|of| of.due()).max().unwrap_or(now);
        let own_due = now + newcomer.deadline;
        with.begin(Begun {
            at: now,
            vm,
            newcomer: *newcomer,
            terms: terms.clone(),
        });
        let until = due.max(own_due);
        let with = lateness(&mut with, until);
        if self
            .without
            .as_ref()
            .is_none_or(|(before, _)| *before != begun.len())
        {
            let mut stage = stage.again(begun, now);
            self.without = Some((begun.len(), lateness(&mut stage, self.end.max(until))));
        }
        let none = BTreeMap::new();
        let without = self.without.as_ref().map_or(&none, |(_, all)| all);
        let in_time = |all: &Lateness, key: &JobKey| all.get(key) == Some(&Nanos::ZERO);
        let harmed = running.iter().map(|of| of.key());
        let mut harmed = harmed.filter(|key| in_time(without, key) && !in_time(&with, key));
        if let Some(key) = harmed.next() {
            let late = with.get(&key).copied().unwrap_or(Nanos::MAX);
            return Err(Harm::Other { vm: key.0, late });
        }
        match with.get(&(vm, now)).copied() {
            Some(Nanos::ZERO) => Ok(()),
            late => Err(Harm::Own(late.unwrap_or(Nanos::MAX))),
        }
    }
}

/// How late everybody is who ends by then.
fn lateness(stage: &mut Stage<'_>, until: Nanos) -> Lateness {
    stage.pass(until);
    let all = stage.ended.iter();
    all.map(|of| ((of.vm, of.since), of.took.since(of.deadline)))
        .collect()
}
