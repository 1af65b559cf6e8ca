//! Work of I/Os, the unit in which the depth control compares rates.

use tidegate_base::device::DeviceSpec;
use tidegate_base::request::Op;
use tidegate_capacity::profile::{Access, Direction, Profile};

/// Least work of an I/O in bytes, where there is no profile: below it, a device's time hardly
/// falls.
const LEAST_BYTES: u32 = 16 << 10;

/// Work of I/Os, with the last answer by direction, since sizes repeat.
pub(super) struct IoWork {
    last: [(u32, f64); 2],
    access: Access,
    /// Bytes that the device would move in the time of a positioning; 0 unless seeks dominate.
    positioning_bytes: f64,
    /// Work that the device does in a nanosecond at saturation; `None`: not known. A profile states
    /// work in picoseconds of a saturated device, hence 1000.
    pub(super) saturated: Option<f64>,
}

impl IoWork {
    /// Creates the measure for a device. `seeks`: seeks dominate its times.
    pub(super) fn new(spec: &DeviceSpec, profile: Option<&Profile>, seeks: bool) -> IoWork {
        IoWork {
            // By the bytes that they carry, a few I/Os of 1 MiB would seem to take a hard disk as
            // long as hundreds of 4 KiB, and a latency bound would leave a queue of one.
            positioning_bytes: if seeks {
                spec.positioning_bytes() as f64
            } else {
                0.0
            },
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

    /// Returns the work of an I/O: picoseconds by the profile, else bytes, with those of a seek.
    pub(super) fn for_io(&mut self, profile: Option<&Profile>, op: Op, bytes: u32) -> f64 {
        let Some(profile) = profile else {
            return self.positioning_bytes + f64::from(bytes.max(LEAST_BYTES));
        };
        let last = &mut self.last[Direction::for_op(op) as usize];
        if last.0 != bytes {
            let time = profile.time_ps(Direction::for_op(op), self.access, bytes);
            *last = (bytes, time as f64);
        }
        last.1
    }
}
