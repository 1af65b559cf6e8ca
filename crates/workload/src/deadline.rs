//! By when a job is to be done.

use tidegate_core::jobs::deadline::{makespan, with_tolerance};
use tidegate_core::time::Nanos;

/// How long a job, or a request of a trace, may take from its begin.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Deadline {
    /// So long whatever its size, above 0.
    Fixed(Nanos),
    /// By its size.
    BySize(BySize),
}

/// Equations 4.1 and 4.2 of Jain's thesis: the time that the bytes take with all that several
/// tenants get of a device, and a part of it more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BySize {
    /// Delta, in thousandths.
    pub tolerance: u32,
    /// MaxBW: what the device does for one tenant, in bytes a second.
    pub max_bandwidth: u64,
    /// BWloss: how much less it does for all tenants together, in bytes a second; below
    /// `max_bandwidth`.
    pub bandwidth_loss: u64,
    /// N, which matters only as printed; at least 1.
    pub tenants: u32,
    /// Equation 4.1 as it is printed, which divides by N once more than the text.
    pub as_printed: bool,
}

impl Deadline {
    /// For so many bytes; at least 1 ns.
    pub fn of(&self, bytes: u64) -> Nanos {
        match self {
            Deadline::Fixed(time) => *time,
            Deadline::BySize(by) => {
                let (most, loss) = (by.max_bandwidth, by.bandwidth_loss);
                let makespan = makespan(bytes, most, loss, by.tenants, by.as_printed).max(Nanos(1));
                with_tolerance(makespan, by.tolerance.into())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deadline_is_the_same_for_all_or_by_size() {
        let fixed = Deadline::Fixed(Nanos::SECOND);
        assert_eq!(
            (fixed.of(1), fixed.of(1 << 40)),
            (Nanos::SECOND, Nanos::SECOND)
        );
        let by = BySize {
            tolerance: 300,
            max_bandwidth: 54_000_000,
            bandwidth_loss: 17_000_000,
            tenants: 2,
            as_printed: false,
        };
        let of = |by, bytes| Deadline::BySize(by).of(bytes);
        assert_eq!(of(by, 37_000_000), Nanos::from_millis(1300));
        let printed = BySize {
            as_printed: true,
            ..by
        };
        assert_eq!(of(printed, 37_000_000), Nanos::from_millis(650));
        let (max_bandwidth, tolerance) = (u64::MAX, 0);
        let fast = BySize {
            max_bandwidth,
            tolerance,
            ..by
        };
        assert_eq!(of(fast, 1), Nanos(1));
    }
}
