//! The admission controller, AdCon: figure 5.8 with the priority manager of figure 5.10, which acts
//! in theory alone.
//!
//! ```text
//!                      newcomer in time                      newcomer late
//!   somebody late      1: newcomer a class lower,            2: rejected
//!                         rejected at the lowest
//!   nobody late        3: accepted                           4: one that runs a class lower; where there is none,
//!                                                               the newcomer higher; rejected at the highest
//! ```
//!
//! Cases 1 and 4 can undo each other for ever where nobody is left to be lowered, so after
//! 3 (N + 1) steps the newcomer is rejected. Somebody counts as late only who would be in time
//! without the newcomer. In time is who is done at its deadline or before; the figure wants the
//! newcomer before it, which no clock can tell from that.

use tidegate_core::jobs::Class;
use tidegate_core::time::Nanos;

use crate::theory::Theory;
use crate::{MOST, PriorityDatabase, Request, Situation, Tenant};

/// On which terms a job is let in.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Assignment {
    /// Its class.
    pub class: Class,
    /// Those of the host whose classes change, by their places among its tenants, and to what. Each
    /// is lowered for this job, and what it was when that ends.
    pub lowered: Vec<(usize, Class)>,
}

/// Why a job is not let in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rejection {
    /// What stands in the way.
    pub why: Why,
    /// The class that it was last thought to have.
    pub class: Class,
    /// How late it would be itself with that; zero: in time.
    pub late: Nanos,
}

/// What stands in the way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Why {
    /// Somebody who runs would be late: of several who would be latest, and by how much. Case 2; or
    /// case 1, with the newcomer idle.
    Misses {
        /// Who, by its place among the tenants.
        who: usize,
        /// By how much.
        late: Nanos,
    },
    /// It would be late itself, with everybody else idle and the highest class. Case 4.
    OwnDeadline,
    /// Nothing was found in 3 (N + 1) steps.
    Steps,
    /// As many run there as may.
    Full,
}

impl Rejection {
    pub(crate) fn full() -> Rejection {
        Rejection {
            why: Why::Full,
            class: Class::default(),
            late: Nanos::ZERO,
        }
    }
}

/// What comes of a newcomer that needs some rate.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found {
    pub(crate) verdict: Result<(), Stop>,
    /// The same comes of every higher one up to this.
    pub(crate) up_to: u64,
}

/// How it ended without.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stop {
    Misses,
    OwnDeadline,
    Steps,
}

/// Whether a host takes a job, and on which terms: [`Situation::admit`].
///
/// # Errors
/// When it does not: what stands in the way.
pub fn admit(
    now: Nanos,
    database: &PriorityDatabase,
    tenants: &[Tenant],
    request: &Request,
) -> Result<Assignment, Rejection> {
    Situation::new(now, database, tenants).admit(request)
}

pub(crate) fn admit_in(
    situation: &Situation<'_>,
    request: &Request,
) -> Result<Assignment, Rejection> {
    if situation.tenants.len() >= MOST {
        return Err(Rejection::full());
    }
    let mut theory = Theory::new(situation);
    let found = decide(&mut theory, request.rate());
    let why = match found.verdict {
        Ok(()) => {
            return Ok(Assignment {
                class: theory.own(),
                lowered: theory.changed(),
            });
        }
        Err(Stop::OwnDeadline) => Why::OwnDeadline,
        Err(Stop::Steps) => Why::Steps,
        // Where it stopped for somebody, there is somebody.
        Err(Stop::Misses) => {
            (theory.latest()).map_or(Why::Steps, |(who, late)| Why::Misses { who, late })
        }
    };
    let (now, has) = (situation.now, theory.own_rate().min(request.limit()));
    let forecast = request.begun(now).forecast(now, has);
    Err(Rejection {
        why,
        class: theory.own(),
        late: forecast.late,
    })
}

/// The loop of figure 5.8, for a newcomer that is in time at so many bytes a second.
pub(crate) fn decide(theory: &mut Theory<'_>, need: u64) -> Found {
    theory.start();
    let mut up_to = u64::MAX;
    for _ in 0..3 * (theory.len() + 1) {
        let rate = theory.own_rate();
        let in_time = rate >= need;
        if in_time {
            up_to = rate.min(up_to);
        }
        let verdict = match (theory.is_violated(), in_time) {
            (true, true) if theory.own() > Class::Idle => {
                theory.set_own(theory.own().lowered(1));
                continue;
            }
            (true, _) => Err(Stop::Misses),
            (false, true) => Ok(()),
            (false, false) => {
                if theory.lower_one() {
                    continue;
                }
                if theory.own() < Class::RealTime {
                    theory.set_own(theory.own().raised(1));
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
