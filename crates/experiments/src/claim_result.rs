//! Evaluated claim, before its outcome in other variants is added.

use crate::{Cell, Claim, order};

/// Claim of the paper with its outcome in a set of runs.
pub(crate) struct ClaimResult {
    claim: String,
    holds: bool,
    /// Outcome in words, without a full stop.
    figure: String,
    /// Further sentences that are not repeated for other variants.
    more: String,
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

    /// Evaluates the goal that the order of alternatives agrees with the paper in 90 % of all
    /// pairs; `None` if nothing is compared.
    pub(crate) fn order_goal(cells: &[Cell]) -> Option<ClaimResult> {
        let (same, all, other) = order(cells);
        if all == 0 {
            return None;
        }
        let share = 100.0 * same as f64 / all as f64;
        let mut said = ClaimResult::new(
            "who is better than whom is as in the paper in 90 % of the comparisons",
            share >= 90.0,
            format!("it is in {same} of {all}, {share:.0} %"),
        );
        if !other.is_empty() {
            said.more = format!(" Not so: {}.", other.join("; "));
        }
        Some(said)
    }

    /// Completes the claim. If it does not hold, adds its outcome in other variants, each given by
    /// the beginning of a sentence and all outcomes there.
    pub(crate) fn with_ablations(self, ablated: &[(String, Vec<ClaimResult>)]) -> Claim {
        let mut detail = format!("{}.{}", self.figure, self.more);
        // A claim that holds needs no explanation.
        for (phrase, said) in ablated.iter().filter(|_| !self.holds) {
            // Claims are matched by their words, which all variants share.
            let same = said.iter().find(|said| said.claim == self.claim);
            // A variant that changes nothing explains nothing.
            if let Some(said) = same.filter(|said| said.figure != self.figure) {
                let holds = if said.holds { "; so it would hold" } else { "" };
                detail += &format!(" {phrase}, {}{holds}.", said.figure);
            }
        }
        Claim::new(self.claim, self.holds, detail)
    }
}
