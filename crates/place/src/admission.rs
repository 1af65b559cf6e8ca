//! Admission controller, AdCon: decides by the class search of figure 5.8 whether a host takes a
//! job, and on which terms.

use tidegate_core::jobs::Class;
use tidegate_core::time::Nanos;

use crate::class_search::{Stop, search};
use crate::what_if::WhatIf;
use crate::{HostSnapshot, MOST, Request};

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

/// Decides about a job by figure 5.8.
///
/// # Errors
/// When the host does not take it: what stands in the way.
pub fn admit(snapshot: &HostSnapshot<'_>, request: &Request) -> Result<Assignment, Rejection> {
    if snapshot.tenants.len() >= MOST {
        return Err(Rejection::full());
    }
    let mut what_if = WhatIf::new(snapshot);
    let found = search(&mut what_if, request.rate());
    let why = match found.verdict {
        Ok(()) => {
            return Ok(Assignment {
                class: what_if.own(),
                lowered: what_if.changed(),
            });
        }
        Err(Stop::OwnDeadline) => Why::OwnDeadline,
        Err(Stop::Steps) => Why::Steps,
        // Where it stopped for somebody, there is somebody.
        Err(Stop::Misses) => {
            (what_if.latest()).map_or(Why::Steps, |(who, late)| Why::Misses { who, late })
        }
    };
    let (now, has) = (snapshot.now, what_if.own_rate().min(request.limit()));
    let forecast = request.begun(now).forecast(now, has);
    Err(Rejection {
        why,
        class: what_if.own(),
        late: forecast.late,
    })
}
