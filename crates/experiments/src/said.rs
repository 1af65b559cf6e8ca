//! A claim, before it is known what it hangs on.

use crate::{Cell, Claim, order};

/// Something the paper says, with what it comes to in a set of runs.
pub(crate) struct Said {
    claim: String,
    holds: bool,
    /// What it comes to here, without a full stop.
    figure: String,
    /// More about it that is of no use beside another figure.
    more: String,
}

impl Said {
    pub(crate) fn new(claim: impl Into<String>, holds: bool, figure: impl Into<String>) -> Said {
        Said {
            claim: claim.into(),
            holds,
            figure: figure.into(),
            more: String::new(),
        }
    }

    /// The same with more about it, a sentence that is of no use beside another figure.
    pub(crate) fn with_more(self, more: String) -> Said {
        Said { more, ..self }
    }

    /// The same in other words.
    pub(crate) fn named(self, name: impl FnOnce(&str) -> String) -> Said {
        Said {
            claim: name(&self.claim),
            ..self
        }
    }

    /// Who is better than whom, over everything that was run; `None`: there is nobody to compare.
    pub(crate) fn order_goal(cells: &[Cell]) -> Option<Said> {
        let (same, all, other) = order(cells);
        if all == 0 {
            return None;
        }
        let share = 100.0 * same as f64 / all as f64;
        let mut said = Said::new(
            "who is better than whom is as in the paper in 90 % of the comparisons",
            share >= 90.0,
            format!("it is in {same} of {all}, {share:.0} %"),
        );
        if !other.is_empty() {
            said.more = format!(" Not so: {}.", other.join("; "));
        }
        Some(said)
    }

    /// The claim, and if it does not hold, what its figure would be without one thing or another:
    /// each with how the sentence begins and all that is said then.
    pub(crate) fn hangs_on(self, ablated: &[(String, Vec<Said>)]) -> Claim {
        let mut detail = format!("{}.{}", self.figure, self.more);
        for (phrase, said) in ablated.iter().filter(|_| !self.holds) {
            let same = said.iter().find(|said| said.claim == self.claim);
            if let Some(said) = same.filter(|said| said.figure != self.figure) {
                let holds = if said.holds { "; so it would hold" } else { "" };
                detail += &format!(" {phrase}, {}{holds}.", said.figure);
            }
        }
        Claim::new(self.claim, self.holds, detail)
    }
}
