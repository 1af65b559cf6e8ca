//! Oracle: simulates the future with a request and without it.

use super::host::Newcomer;
use super::replay::{AdmissionTerms, AdmittedRequest, HostReplay, TransferKey};
use std::collections::BTreeMap;
use tidegate_core::time::Nanos;

/// Reason against the admission of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Harm {
    /// Another running transfer would be late because of it.
    Other {
        /// VM of that transfer.
        vm: usize,
        /// Lateness of that transfer.
        late: Nanos,
    },
    /// The request itself would be late by this time.
    Own(Nanos),
}

/// Lateness of each transfer; transfers that were not done by the end of the simulated time are
/// missing.
type Lateness = BTreeMap<TransferKey, Nanos>;

/// Judge of requests. Caches the future without a newcomer.
#[derive(Default)]
pub(super) struct Oracle {
    /// Number of admitted requests, with the lateness of all transfers without another one.
    without: Option<(usize, Lateness)>,
    /// Time up to which the future is simulated.
    pub(super) end: Nanos,
}

impl Oracle {
    /// Creates the oracle of a run up to `end`.
    pub(super) fn new(end: Nanos) -> Oracle {
        Oracle { without: None, end }
    }

    /// Judges the admission of a newcomer at `now`, after the admissions in `begun`. `Ok` if it
    /// meets its deadline and no running transfer misses because of it.
    pub(super) fn judge(
        &mut self,
        replay: &HostReplay<'_>,
        begun: &[AdmittedRequest],
        now: Nanos,
        newcomer: &Newcomer,
        terms: &AdmissionTerms,
    ) -> Result<(), Harm> {
        let mut with = replay.replayed(begun, now);
        let Some(vm) = with.idle_vm() else {
            // Without a free VM the request would never begin.
            return Err(Harm::Own(Nanos::MAX));
        };
        let running = with.running();
        let due = running.iter().map(|of| of.due()).max().unwrap_or(now);
        let own_due = now + newcomer.deadline;
        with.begin(AdmittedRequest {
            at: now,
            vm,
            newcomer: *newcomer,
            terms: terms.clone(),
        });
        // Later than all deadlines nothing can change the verdict.
        let until = due.max(own_due);
        let with = lateness(&mut with, until);
        if self
            .without
            .as_ref()
            .is_none_or(|(before, _)| *before != begun.len())
        {
            // The future without the newcomer depends on the admissions only, so it is kept for the
            // next one.
            let mut replay = replay.replayed(begun, now);
            self.without = Some((begun.len(), lateness(&mut replay, self.end.max(until))));
        }
        let none = BTreeMap::new();
        let without = self.without.as_ref().map_or(&none, |(_, all)| all);
        let in_time = |all: &Lateness, key: &TransferKey| all.get(key) == Some(&Nanos::ZERO);
        let harmed = running.iter().map(|of| of.key());
        // A transfer that is late anyway is not harmed.
        let mut harmed = harmed.filter(|key| in_time(without, key) && !in_time(&with, key));
        if let Some(key) = harmed.next() {
            // Not done by the end of the simulated time: as late as can be said.
            let late = with.get(&key).copied().unwrap_or(Nanos::MAX);
            return Err(Harm::Other { vm: key.0, late });
        }
        match with.get(&(vm, now)).copied() {
            Some(Nanos::ZERO) => Ok(()),
            late => Err(Harm::Own(late.unwrap_or(Nanos::MAX))),
        }
    }
}

/// Lateness of all transfers that end by `until`.
fn lateness(replay: &mut HostReplay<'_>, until: Nanos) -> Lateness {
    replay.advance_to(until);
    let all = replay.ended.iter();
    all.map(|of| ((of.vm, of.since), of.took.since(of.deadline)))
        .collect()
}
