//! Deadlines of deadline transfers and of a trace's requests.

use tidegate_core::time::Nanos;
use tidegate_core::transfers::deadline::{makespan, with_tolerance};

/// Allowed duration of a transfer, or of a request of a trace, from its begin.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Deadline {
    /// Fixed duration above 0, independent of the size.
    Fixed(Nanos),
    /// Duration that depends on the size.
    BySize(BySize),
}

/// Parameters of equations 4.1 and 4.2 of Jain's thesis: the time that the bytes take at the
/// bandwidth of all VMs of a device together, plus a tolerance.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BySize {
    /// Tolerance (delta) in thousandths of that time.
    pub tolerance: u32,
    /// Bandwidth of the device for one VM alone (MaxBW), in bytes per second.
    pub max_bandwidth: u64,
    /// Bandwidth that is lost while several VMs use the device (BWloss), in bytes per second; below
    /// `max_bandwidth`.
    pub bandwidth_loss: u64,
    /// Number of VMs (N), at least 1; used only with `as_printed`.
    pub vms: u32,
    /// True to divide by N as equation 4.1 is printed; the thesis's text does not.
    pub as_printed: bool,
}

impl Deadline {
    /// Returns the allowed duration for `bytes`, at least 1 ns.
    pub fn for_bytes(&self, bytes: u64) -> Nanos {
        match self {
            Deadline::Fixed(time) => *time,
            Deadline::BySize(by) => {
                let (most, loss) = (by.max_bandwidth, by.bandwidth_loss);
                // At least 1 ns: a deadline of 0 would be missed by definition.
                let makespan = makespan(bytes, most, loss, by.vms, by.as_printed).max(Nanos(1));
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
            (fixed.for_bytes(1), fixed.for_bytes(1 << 40)),
            (Nanos::SECOND, Nanos::SECOND)
        );
        let by = BySize {
            tolerance: 300,
            max_bandwidth: 54_000_000,
            bandwidth_loss: 17_000_000,
            vms: 2,
            as_printed: false,
        };
        let of = |by, bytes| Deadline::BySize(by).for_bytes(bytes);
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
