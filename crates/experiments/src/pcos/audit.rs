//! The meta-scheduler's decisions, each tried in the simulation.

use super::house::{House, MEDIA};
use super::oracle::{Harm, Oracle};
use super::run::Outcome;
use super::stage::{Stage, Terms};
use std::collections::BTreeSet;
use tidegate_core::time::Nanos;
use tidegate_sim::scenario::Scenario;

/// What came of decisions.
#[derive(Clone, Debug, Default)]
pub(super) struct Audit {
    /// Requests that were let in.
    pub(super) let_in: usize,
    /// Those of them that had better not been, and why.
    pub(super) harms: Vec<Harm>,
    /// Requests that the oracle would have let in at one of the times at which they were
    /// considered.
    pub(super) possible: usize,
    /// Those of them that were let in.
    pub(super) taken: usize,
}

impl Audit {
    /// Of the decisions of a run up to `end`.
    pub(super) fn of(house: &House, scenario: &Scenario, outcome: &Outcome, end: Nanos) -> Audit {
        let stage = Stage::new(house, scenario);
        let mut oracle = Oracle::new(end);
        let mut audit = Audit {
            let_in: outcome.begun.len(),
            ..Audit::default()
        };
        let mut judge = |after: usize, at, newcomer, terms: &Terms| {
            oracle.judge(&stage, &outcome.begun[..after], at, newcomer, terms)
        };
        let (mut possible, mut taken) = (BTreeSet::new(), BTreeSet::new());
        for of in &outcome.tries {
            if of.let_in {
                let terms = &outcome.begun[of.after].terms;
                let judged = judge(of.after, of.at, &of.newcomer, terms);
                audit.harms.extend(judged.err());
                taken.insert(of.newcomer.index);
            }
            let known = possible.contains(&of.newcomer.index);
            if !known && judge(of.after, of.at, &of.newcomer, &None).is_ok() {
                possible.insert(of.newcomer.index);
            }
        }
        audit.possible = possible.len();
        audit.taken = possible.intersection(&taken).count();
        audit
    }

    /// Decisions after which a media server, another newcomer, or the newcomer itself was late.
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
