//! Class search: figure 5.8's loop over the classes of a newcomer and of those that run, with the
//! priority manager of figure 5.10, which acts on a [`WhatIf`] alone.
//!
//! ```text
//!                   newcomer in time             newcomer late
//!   somebody late   1: newcomer a class lower,   2: rejected
//!                      rejected at the lowest
//!   nobody late     3: accepted                  4: one that runs a class lower; where there is
//!                                                   none, the newcomer higher; rejected at the
//!                                                   highest
//! ```
//!
//! Cases 1 and 4 can undo each other for ever where nobody is left to be lowered, so after
//! 3 (N + 1) steps the newcomer is rejected. Somebody counts as late only who would be in time
//! without the newcomer. In time is who is done at its deadline or before; the figure wants the
//! newcomer before it, which no clock can tell from that.

use tidegate_core::jobs::Class;

use crate::what_if::WhatIf;

/// Result of the search for a newcomer that needs some rate.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found {
    pub(crate) verdict: Result<(), Stop>,
    /// Highest rate up to which the result is the same, in bytes per second.
    pub(crate) up_to: u64,
}

/// Reason for which the search ended without classes that keep everybody in time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stop {
    Misses,
    OwnDeadline,
    Steps,
}

/// Runs figure 5.8 for a newcomer that is in time at `need` bytes per second.
pub(crate) fn search(what_if: &mut WhatIf<'_>, need: u64) -> Found {
    what_if.start();
    let mut up_to = u64::MAX;
    for _ in 0..3 * (what_if.len() + 1) {
        let rate = what_if.own_rate();
        let in_time = rate >= need;
        if in_time {
            up_to = rate.min(up_to);
        }
        let verdict = match (what_if.is_violated(), in_time) {
            (true, true) if what_if.own() > Class::Idle => {
                what_if.set_own(what_if.own().lowered(1));
                continue;
            }
            (true, _) => Err(Stop::Misses),
            (false, true) => Ok(()),
            (false, false) => {
                if what_if.lower_one() {
                    continue;
                }
                if what_if.own() < Class::RealTime {
                    what_if.set_own(what_if.own().raised(1));
                    continue;
                }
                Err(Stop::OwnDeadline)
            }
        };
        return Found { verdict, up_to };
    }
    let verdict = Err(Stop::Steps);
    Found { verdict, up_to }
}
