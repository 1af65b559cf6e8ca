//! Work of I/Os: what the control of the depth compares rates by.

use tidegate_base::request::Op;
use tidegate_capacity::profile::{Access, Direction, Profile};

/// Bytes that an I/O counts for at least where there is no profile.
const LEAST_BYTES: u32 = 16 << 10;
/// Work of I/Os, with the last answer by direction, since sizes repeat.
pub(super) struct Work {
    last: [(u32, f64); 2],
    access: Access,
    /// Work that the device does in a nanosecond at saturation; `None`: not known.
    pub(super) saturated: Option<f64>,
}

impl Work {
    pub(super) fn new(profile: Option<&Profile>, seeks: bool) -> Work {
        Work {
            last: [(0, 0.0); 2],
            // What flash takes for scattered writes depends on how much of it is free today, by a
            // factor of ten: reckoned with, a few writes more or less would look like another rate.
            access: if seeks {
                Access::Random
            } else {
                Access::Sequential
            },
            saturated: profile.map(|_| 1000.0),
        }
    }

    /// Returns the work of an I/O: picoseconds by the profile, else bytes.
    pub(super) fn of(&mut self, profile: Option<&Profile>, op: Op, bytes: u32) -> f64 {
        let Some(profile) = profile else {
            return f64::from(bytes.max(LEAST_BYTES));
        };
        let last = &mut self.last[Direction::of(op) as usize];
        if last.0 != bytes {
            let time = profile.time_ps(Direction::of(op), self.access, bytes);
            *last = (bytes, time as f64);
        }
        last.1
    }
}
