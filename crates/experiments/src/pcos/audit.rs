//! Audit of the meta-scheduler's decisions: each is tried in the simulation.

use super::host::{HostModel, MEDIA};
use super::oracle::{Harm, Oracle};
use super::replay::{AdmissionTerms, HostReplay};
use super::run::Outcome;
use std::collections::BTreeSet;
use tidegate_core::time::Nanos;
use tidegate_sim::scenario::Scenario;

/// Outcomes of decisions.
#[derive(Clone, Debug, Default)]
pub(super) struct Audit {
    /// Number of requests that were admitted.
    pub(super) admitted: usize,
    /// Admitted requests that did harm, with the kind of harm.
    pub(super) harms: Vec<Harm>,
    /// Number of requests that the oracle would have admitted at one of the times at which they
    /// were considered.
    pub(super) possible: usize,
    /// Number of those that were admitted.
    pub(super) taken: usize,
}

impl Audit {
    /// Audits the decisions of a run up to `end`.
    pub(super) fn new(
        model: &HostModel,
        scenario: &Scenario,
        outcome: &Outcome,
        end: Nanos,
    ) -> Audit {
        // Nothing of the run itself: each decision is tried from its own beginning.
        let replay = HostReplay::new(model, scenario);
        let mut oracle = Oracle::new(end);
        let mut audit = Audit {
            admitted: outcome.begun.len(),
            ..Audit::default()
        };
        let mut judge = |after: usize, at, newcomer, terms: &AdmissionTerms| {
            oracle.judge(&replay, &outcome.begun[..after], at, newcomer, terms)
        };
        let (mut possible, mut taken) = (BTreeSet::new(), BTreeSet::new());
        for attempt in &outcome.tries {
            let (after, at, newcomer) = (attempt.after, attempt.at, &attempt.newcomer);
            if attempt.admitted {
                let terms = &outcome.begun[after].terms;
                let judged = judge(after, at, newcomer, terms);
                audit.harms.extend(judged.err());
                taken.insert(newcomer.index);
            }
            // Each request counts once, however often it is considered.
            let known = possible.contains(&newcomer.index);
            // Without terms, as the oracle admits: possible is what needs no lowered class.
            if !known && judge(after, at, newcomer, &None).is_ok() {
                possible.insert(newcomer.index);
            }
        }
        audit.possible = possible.len();
        audit.taken = possible.intersection(&taken).count();
        audit
    }

    /// Numbers of decisions after which a media server, another newcomer, or the newcomer itself
    /// was late.
    pub(super) fn harmed(&self) -> [usize; 3] {
        let mut all = [0; 3];
        for harm in &self.harms {
            all[match harm {
                Harm::Other { vm, .. } if *vm < MEDIA => 0,
                Harm::Other { .. } => 1,
                Harm::Own(_) => 2,
            }] += 1;
        }
        all
    }
}
