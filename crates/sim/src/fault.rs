//! Faults of a torture run: a plan that is drawn from the seed.
//!
//! Each kind is on or off in a run as a whole (swarm testing, Groce et al., ISSTA 2012): a fault
//! that is always a little on hides what only its absence, or its frequency, would show.

use crate::torture_rng::TortureRng;
use core::fmt;
use tidegate_core::time::Nanos;

/// Kind of fault.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u8)]
pub enum Kind {
    /// An I/O fails, after some of its sectors were applied.
    Error,
    /// An I/O moves less than it was asked to; the driver goes on with the rest.
    Short,
    /// The report of an I/O's end reaches the engine late.
    Late,
    /// The report of an I/O's end reaches the driver twice.
    Duplicate,
    /// The device is several times slower for a while.
    Slow,
    /// Nothing completes for a while; then the completions come spread over time.
    Stall,
    /// Nothing completes for a while; then everything does at once.
    Stuck,
    /// A client vanishes with requests in flight, and comes back.
    Vanish,
    /// All clients vanish at once, and come back at once.
    Storm,
    /// A client reads no answers for a while, and so submits nothing new.
    Deaf,
    /// A client submits invalid requests: beyond the end, of no bytes, or writes to a read-only
    /// disk.
    Nonsense,
    /// The driver does not run for a while.
    ClockStall,
    /// The driver passes times to the engine that lie before an earlier one.
    ClockBack,
    /// The driver comes late to the engine's timeouts.
    LateTimeout,
    /// The policy is swapped.
    Swap,
    /// A VM's objective changes.
    Objective,
    /// A VM is removed, and another one added.
    VmChurn,
    /// A VM gets another disk.
    DiskChurn,
    /// The power fails: what was not durable may be lost.
    PowerCut,
    /// A disk is removed; its VM stays.
    DiskRemoved,
    /// A disk is resized or moved to another address of the device.
    DiskResized,
    /// Nothing of one disk completes for a while, and others go on.
    DiskHung,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Kind; 22] = [
        Kind::Error,
        Kind::Short,
        Kind::Late,
        Kind::Duplicate,
        Kind::Slow,
        Kind::Stall,
        Kind::Stuck,
        Kind::Vanish,
        Kind::Storm,
        Kind::Deaf,
        Kind::Nonsense,
        Kind::ClockStall,
        Kind::ClockBack,
        Kind::LateTimeout,
        Kind::Swap,
        Kind::Objective,
        Kind::VmChurn,
        Kind::DiskChurn,
        Kind::PowerCut,
        Kind::DiskRemoved,
        Kind::DiskResized,
        Kind::DiskHung,
    ];

    /// Name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Kind::Error => "errors",
            Kind::Short => "short completions",
            Kind::Late => "late completions",
            Kind::Duplicate => "duplicate completions",
            Kind::Slow => "slow periods",
            Kind::Stall => "stalls",
            Kind::Stuck => "stuck, then a burst",
            Kind::Vanish => "vanishing clients",
            Kind::Storm => "reconnect storms",
            Kind::Deaf => "deaf clients",
            Kind::Nonsense => "nonsense requests",
            Kind::ClockStall => "clock stalls",
            Kind::ClockBack => "time backwards",
            Kind::LateTimeout => "late timeouts",
            Kind::Swap => "policy swaps",
            Kind::Objective => "changed objectives",
            Kind::VmChurn => "VMs removed and added",
            Kind::DiskChurn => "disks added",
            Kind::PowerCut => "power cuts",
            Kind::DiskRemoved => "disks removed",
            Kind::DiskResized => "disks resized and moved",
            Kind::DiskHung => "hung disks",
        }
    }

    /// Returns `true` for kinds that were added later. They are drawn from a stream of their own,
    /// so that older seeds keep their other draws.
    const fn is_drawn_apart(self) -> bool {
        matches!(self, Kind::DiskRemoved | Kind::DiskResized | Kind::DiskHung)
    }

    /// Returns `true` for kinds that are drawn for every I/O, call or request; the others come at
    /// intervals.
    pub const fn is_by_chance(self) -> bool {
        matches!(
            self,
            Kind::Error
                | Kind::Short
                | Kind::Late
                | Kind::Duplicate
                | Kind::Nonsense
                | Kind::ClockBack
                | Kind::LateTimeout
        )
    }
}

/// Frequency of a kind of fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rate {
    /// Never.
    Off,
    /// Probability in 1000.
    PerMille(u32),
    /// Mean interval.
    Every(Nanos),
}

/// Faults of one run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Plan {
    rates: [Rate; Kind::ALL.len()],
    /// Longest stall, slow period, absence or lateness.
    pub longest: Nanos,
}

impl Plan {
    /// Returns a plan without faults.
    pub fn none() -> Plan {
        Plan {
            rates: [Rate::Off; Kind::ALL.len()],
            longest: Nanos::ZERO,
        }
    }

    /// Draws a plan. `span` is the approximate length of the run. One run in sixteen has no faults
    /// at all; each other run has each kind with a probability of one in three. `apart` is the
    /// stream of kinds that were added later.
    pub fn draw(rng: &mut TortureRng, apart: &mut TortureRng, span: Nanos) -> Plan {
        let mut plan = Plan::none();
        // One in sixteen, per mille.
        if rng.chance(62) {
            return plan;
        }
        // From 10 us to the length of the run, at most 4 s.
        let longest = rng.octaves(10_000, span.0.clamp(20_000, 4_000_000_000));
        plan.longest = Nanos(longest);
        for kind in Kind::ALL {
            let rng = if kind.is_drawn_apart() {
                &mut *apart
            } else {
                &mut *rng
            };
            // Drawn even if the kind stays off, so that one kind's coin does not shift the others'
            // draws.
            let rate = if kind.is_by_chance() {
                Rate::PerMille(rng.octaves(1, 300) as u32)
            } else {
                // At most 23 times in a run on average, and not more often than every microsecond.
                Rate::Every(Nanos((span.0 / rng.range(1, 24)).max(1000)))
            };
            if rng.chance(333) {
                plan.rates[kind as usize] = rate;
            }
        }
        plan
    }

    /// Frequency of this kind.
    pub fn rate(&self, kind: Kind) -> Rate {
        self.rates[kind as usize]
    }

    /// Draws if a fault that comes by chance strikes now.
    pub fn strikes(&self, kind: Kind, rng: &mut TortureRng) -> bool {
        match self.rate(kind) {
            Rate::PerMille(often) => rng.chance(often),
            Rate::Off | Rate::Every(_) => false,
        }
    }

    /// Draws the time to the next fault of a kind that comes at intervals; `None` if it never
    /// comes.
    pub fn next(&self, kind: Kind, rng: &mut TortureRng) -> Option<Nanos> {
        match self.rate(kind) {
            // Uniform on twice the mean, which has that mean.
            Rate::Every(mean) => Some(Nanos(rng.range(1, 2 * mean.0))),
            Rate::Off | Rate::PerMille(_) => None,
        }
    }

    /// Draws the length of a stall, an absence or a lateness.
    pub fn how_long(&self, rng: &mut TortureRng) -> Nanos {
        Nanos(rng.octaves(1000, self.longest.0.max(1000)))
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut any = false;
        for kind in Kind::ALL {
            let gap = if any { ", " } else { "" };
            match self.rate(kind) {
                Rate::Off => continue,
                Rate::PerMille(often) => write!(f, "{gap}{} ({often} in 1000)", kind.name())?,
                Rate::Every(mean) => write!(f, "{gap}{} (every {mean})", kind.name())?,
            }
            any = true;
        }
        if any {
            write!(f, "; none longer than {}", self.longest)
        } else {
            f.write_str("none")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_is_on_in_some_plans_and_off_in_others() {
        let (mut rng, mut apart) = (TortureRng::new(3, 0), TortureRng::new(3, 1));
        let plans: Vec<Plan> = (0..200)
            .map(|_| Plan::draw(&mut rng, &mut apart, Nanos::SECOND))
            .collect();
        for (place, kind) in Kind::ALL.into_iter().enumerate() {
            assert_eq!(kind as usize, place);
            let on = plans.iter().filter(|p| p.rate(kind) != Rate::Off).count();
            assert!((20..120).contains(&on), "{}: {on} of 200", kind.name());
        }
        assert!(plans.contains(&Plan::none()));
    }
}
