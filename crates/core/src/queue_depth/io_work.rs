//! Work of I/Os, the unit in which the depth control compares rates.

use tidegate_base::request::Op;
use tidegate_capacity::profile::{Access, Direction, Profile};

/// Least work of an I/O in bytes, where there is no profile: below it, a device's time hardly
/// falls.
const LEAST_BYTES: u32 = 16 << 10;
/// Work of I/Os, with the last answer by direction, since sizes repeat.
pub(super) struct IoWork {
    last: [(u32, f64); 2],
    access: Access,
    /// Work that the device does in a nanosecond at saturation; `None`: not known. A profile states
    /// work in picoseconds of a saturated device, hence 1000.
    pub(super) saturated: Option<f64>,
}

impl IoWork {
    /// Creates the measure for a device. `seeks`: seeks dominate its times.
    pub(super) fn new(profile: Option<&Profile>, seeks: bool) -> IoWork {
        IoWork {
            last: [(0, 0.0); 2],
            // The time that flash takes for scattered writes varies by a factor of ten with its
            // free space: in the measure, a few writes more or less would look like another rate.
            access: if seeks {
                Access::Random
            } else {
                Access::Sequential
            },
            saturated: profile.map(|_| 1000.0),
        }
    }

    /// Returns the work of an I/O: picoseconds by the profile, else bytes.
    pub(super) fn for_io(&mut self, profile: Option<&Profile>, op: Op, bytes: u32) -> f64 {
        let Some(profile) = profile else {
            return f64::from(bytes.max(LEAST_BYTES));
        };
        let last = &mut self.last[Direction::for_op(op) as usize];
        if last.0 != bytes {
            let time = profile.time_ps(Direction::for_op(op), self.access, bytes);
            *last = (bytes, time as f64);
        }
        last.1
    }
}
