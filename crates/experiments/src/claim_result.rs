//! Evaluated claim, before its outcome in other variants is added.

use crate::findings::Ablation;
use crate::verdict::Scope;
use crate::{Cell, Claim, order};

/// Claim of the paper with its outcome in a set of runs.
#[derive(Clone)]
pub(crate) struct ClaimResult {
    claim: String,
    holds: bool,
    /// Outcome in words, without a full stop.
    figure: String,
    /// Further sentences that are not repeated for other variants.
    more: String,
    /// Name of the claim, and table, figure or section of the paper.
    id: String,
    part: String,
}

impl ClaimResult {
    pub(crate) fn new(
        claim: impl Into<String>,
        holds: bool,
        figure: impl Into<String>,
    ) -> ClaimResult {
        ClaimResult {
            claim: claim.into(),
            holds,
            figure: figure.into(),
            more: String::new(),
            id: String::new(),
            part: String::new(),
        }
    }

    /// Names the claim, and the part of the paper that it is about.
    pub(crate) fn identified(self, id: &str, part: &str) -> ClaimResult {
        ClaimResult {
            id: id.to_owned(),
            part: part.to_owned(),
            ..self
        }
    }

    /// Adds a sentence that is not repeated for other variants.
    pub(crate) fn with_more(self, more: String) -> ClaimResult {
        ClaimResult { more, ..self }
    }

    /// Rewords the claim.
    pub(crate) fn named(self, name: impl FnOnce(&str) -> String) -> ClaimResult {
        ClaimResult {
            claim: name(&self.claim),
            ..self
        }
    }

    /// Evaluates the goal that the order of alternatives agrees with the paper in 90 % of the pairs
    /// that can hold; `None` if nothing is compared.
    pub(crate) fn order_goal(cells: &[Cell]) -> Option<ClaimResult> {
        let found = order(cells, Scope::CanHold);
        if found.all == 0 {
            return None;
        }
        let share = 100.0 * found.agree as f64 / found.all as f64;
        let mut goal = ClaimResult::new(
            "who is better than whom is as in the paper in 90 % of the comparisons that can hold",
            share >= 90.0,
            format!(
                "it is in {} of {}, {share:.0} %; within 1 % in {}, the other way in {}",
                found.agree, found.all, found.within, found.opposite
            ),
        );
        if !found.others.is_empty() {
            goal.more = format!(" Not so: {}.", found.others.join("; "));
        }
        Some(goal.identified("order", ""))
    }

    /// Completes the claim. If it does not hold, adds its outcome in other variants, each given by
    /// the beginning of a sentence and all outcomes there.
    pub(crate) fn with_ablations(self, ablated: &[(String, Vec<ClaimResult>)]) -> Claim {
        let outcome = format!("{}.{}", self.figure, self.more);
        let mut detail = outcome.clone();
        let mut ablations = Vec::new();
        // A claim that holds needs no explanation.
        for (phrase, results) in ablated.iter().filter(|_| !self.holds) {
            // Claims are matched by their words, which all variants share.
            let same = results.iter().find(|other| other.claim == self.claim);
            // A variant that changes nothing explains nothing.
            if let Some(other) = same.filter(|other| other.figure != self.figure) {
                let holds = if other.holds {
                    "; so it would hold"
                } else {
                    ""
                };
                detail += &format!(" {phrase}, {}{holds}.", other.figure);
                ablations.push(Ablation {
                    variant: phrase.clone(),
                    outcome: other.figure.clone(),
                    holds: other.holds,
                });
            }
        }
        Claim {
            id: self.id,
            part: self.part,
            outcome,
            ablations,
            ..Claim::new(self.claim, self.holds, detail)
        }
    }
}
