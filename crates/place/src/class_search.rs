//! Class search: loop of figure 5.8 of Jain's thesis over the classes of the newcomer (the transfer
//! that asks for admission) and of the running VMs, with the priority manager of figure 5.10.
//! Operates on a [`WhatIf`] only.
//!
//! ```text
//!                   newcomer in time             newcomer late
//!   a VM late       1: lower the newcomer,       2: reject
//!                      reject at the lowest
//!   no VM late      3: accept                    4: lower a running VM; if there is none,
//!                                                   raise the newcomer; reject at the highest
//! ```
//!
//! Cases 1 and 4 can undo each other endlessly when no VM can be lowered, so the newcomer is
//! rejected after 3 (N + 1) steps: the three classes of each of N VMs and of the newcomer. A VM
//! counts as late only if it would be in time without the newcomer; one that is late anyway counts
//! so if it would lose a rate that it keeps ([`LateRule`](crate::LateRule)). A transfer that ends
//! exactly at its deadline is in time; the figure demands that the newcomer ends before it, a
//! difference that no clock resolves.

use tidegate_core::transfers::Class;

use crate::what_if::WhatIf;

/// Result of the search for a newcomer that needs a given rate.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SearchResult {
    pub(crate) verdict: Result<(), StopReason>,
    /// Highest needed rate with the same result, in bytes per second.
    pub(crate) up_to: u64,
}

/// Reason for rejecting the newcomer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum StopReason {
    Misses,
    OwnDeadline,
    Steps,
}

/// Runs the search of figure 5.8 for a newcomer that needs `need` bytes per second.
pub(crate) fn search(what_if: &mut WhatIf<'_>, need: u64) -> SearchResult {
    what_if.reset();
    let mut up_to = u64::MAX;
    for _ in 0..Class::ALL.len() * (what_if.len() + 1) {
        let rate = what_if.newcomer_rate();
        let in_time = rate >= need;
        if in_time {
            // A larger need would be late at this step, and the search would go another way.
            up_to = rate.min(up_to);
        }
        let verdict = match (what_if.is_violated(), in_time) {
            // Case 1.
            (true, true) if what_if.newcomer_class() > Class::Idle => {
                what_if.set_newcomer_class(what_if.newcomer_class().lowered(1));
                continue;
            }
            // Case 2, or case 1 at the lowest class.
            (true, _) => Err(StopReason::Misses),
            (false, true) => Ok(()),
            // Case 4.
            (false, false) => {
                if what_if.lower_one() {
                    continue;
                }
                if what_if.newcomer_class() < Class::RealTime {
                    what_if.set_newcomer_class(what_if.newcomer_class().raised(1));
                    continue;
                }
                Err(StopReason::OwnDeadline)
            }
        };
        return SearchResult { verdict, up_to };
    }
    let verdict = Err(StopReason::Steps);
    SearchResult { verdict, up_to }
}
