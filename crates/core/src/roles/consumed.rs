//! Use of VMs' limits, as one policy hands it to the next.

use tidegate_base::time::Nanos;

/// Use of a VM's limit, in requests and bytes, for the total, reads and writes. A policy hands it
/// to its successor, so that a policy change never buys a burst. `None`: not tracked.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Consumed(pub [[Option<Spent>; 2]; 3]);

/// Use of one limit.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Spent {
    /// Time from now until the limit lets anything go again.
    pub owed: Nanos,
    /// Burst allowance left, as the time in which the limit accrues it. `None`: not tracked, hence
    /// treated as zero.
    pub saved: Option<Nanos>,
    /// Time from now until the burst rate lets anything go again.
    pub burst_owed: Nanos,
}

impl Consumed {
    /// Fills the limits that this policy does not track from `other`.
    pub fn or(self, other: Consumed) -> Consumed {
        let mut all = self.0;
        for (mine, theirs) in all.iter_mut().flatten().zip(other.0.iter().flatten()) {
            *mine = mine.or(*theirs);
        }
        Consumed(all)
    }

    /// Returns what is left of the use after a time in which nothing was let go.
    pub fn after(mut self, elapsed: Nanos) -> Consumed {
        for spent in self.0.iter_mut().flatten().flatten() {
            let accrued = elapsed - spent.owed;
            spent.owed = spent.owed - elapsed;
            spent.saved = spent.saved.map(|saved| saved + accrued);
            spent.burst_owed = spent.burst_owed - elapsed;
        }
        self
    }

    /// Treats rates that are not tracked as unused.
    pub(crate) fn or_unused(self) -> Consumed {
        let unused = Spent {
            saved: Some(Nanos::MAX),
            ..Spent::default()
        };
        self.or(Consumed([[Some(unused); 2]; 3]))
    }

    /// Returns the debts alone, for a predecessor that did not count burst allowances.
    pub(crate) fn debts(mut self) -> Consumed {
        for spent in self.0.iter_mut().flatten().flatten() {
            spent.saved = None;
        }
        self
    }
}
