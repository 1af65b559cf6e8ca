//! Admission controller (AdCon): decides by the class search of figure 5.8 of Jain's thesis whether
//! a host accepts a transfer, and with which classes. The cases are those of
//! [`class_search`](crate::class_search).

use tidegate_core::time::Nanos;
use tidegate_core::transfers::Class;

use crate::class_search::{StopReason, search};
use crate::what_if::WhatIf;
use crate::{HostSnapshot, MAX_VMS, Request};

/// Terms on which a transfer is admitted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Assignment {
    /// Class of the transfer.
    pub class: Class,
    /// VMs whose class changes, by index, with their new class. The host restores their classes
    /// when the admitted transfer ends.
    pub lowered: Vec<(usize, Class)>,
}

/// Rejection of a transfer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rejection {
    /// Reason for the rejection.
    pub why: RejectionReason,
    /// Last class that the search tried for the transfer.
    pub class: Class,
    /// Lateness of the transfer itself with that class; 0: in time.
    pub late: Nanos,
}

/// Reason for a rejection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RejectionReason {
    /// A running transfer would miss its deadline (case 2, or case 1 with the newcomer in the
    /// lowest class). The fields name the transfer that would be latest.
    Misses {
        /// Index of its VM.
        who: usize,
        /// Lateness of that VM.
        late: Nanos,
    },
    /// A running transfer that is late even without the newcomer would lose a rate that it keeps
    /// ([`LateRule`](crate::LateRule)), and no other would be late.
    Slows {
        /// Index of its VM.
        who: usize,
        /// Present rate of the transfer in bytes per second.
        from: u64,
        /// Rate of the transfer beside the newcomer in bytes per second.
        to: u64,
    },
    /// The transfer itself would be late, with all VMs idle and itself in the highest class
    /// (case 4), or because PriDyn will raise one that is late anyway.
    OwnDeadline,
    /// The search found no solution in 3 (N + 1) steps, for N running VMs.
    Steps,
    /// The host has reached its limit of VMs.
    Full,
}

impl Rejection {
    pub(crate) fn full() -> Rejection {
        Rejection {
            why: RejectionReason::Full,
            class: Class::default(),
            late: Nanos::ZERO,
        }
    }
}

/// Decides by the class search whether the host accepts a transfer.
///
/// # Errors
/// The host rejects it, with the reason.
pub fn admit(snapshot: &HostSnapshot<'_>, request: &Request) -> Result<Assignment, Rejection> {
    admit_with_rate(snapshot, request).0
}

/// Decides as [`admit`], and returns the rate in bytes per second that the newcomer would have in
/// the last combination of classes that the search tried.
pub(crate) fn admit_with_rate(
    snapshot: &HostSnapshot<'_>,
    request: &Request,
) -> (Result<Assignment, Rejection>, u64) {
    if snapshot.vms.len() >= MAX_VMS {
        return (Err(Rejection::full()), 0);
    }
    let mut what_if = WhatIf::new(snapshot);
    let found = search(&mut what_if, request.rate());
    let rate = what_if.newcomer_rate().min(request.limit());
    let why = match found.verdict {
        Ok(()) => {
            let terms = Assignment {
                class: what_if.newcomer_class(),
                lowered: what_if.changed(),
            };
            return (Ok(terms), rate);
        }
        Err(StopReason::OwnDeadline) => RejectionReason::OwnDeadline,
        Err(StopReason::Steps) => RejectionReason::Steps,
        Err(StopReason::Misses) => {
            let misses = what_if.most_late();
            let misses = misses.map(|(who, late)| RejectionReason::Misses { who, late });
            let slows = || {
                let (who, from, to) = what_if.most_slowed()?;
                Some(RejectionReason::Slows { who, from, to })
            };
            // A VM is late or slowed where the search stops so: the default is never used.
            misses.or_else(slows).unwrap_or(RejectionReason::Steps)
        }
    };
    // The rejection names the lateness, which depends on the newcomer's own limit as well.
    let forecast = request.start_at(snapshot.now).forecast(snapshot.now, rate);
    let rejection = Rejection {
        why,
        class: what_if.newcomer_class(),
        late: forecast.late,
    };
    (Err(rejection), rate)
}
