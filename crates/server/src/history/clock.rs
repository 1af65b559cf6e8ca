//! Times of samples: from the monotonic clock, by which event loops live, to the wall clock.

/// Difference of the clocks from which on the wall clock counts as set.
const SET_MS: u64 = 500;

/// Relation of the two clocks. A clock that is slewed is followed at the ends of windows; one that
/// is set ends the window.
#[derive(Debug)]
pub(super) struct Timeline {
    /// Wall clock minus monotonic clock, in milliseconds.
    offset: i64,
}

impl Timeline {
    /// Begins with the present times of both clocks.
    pub(super) fn new(monotonic_ms: u64, wall_ms: u64) -> Timeline {
        Timeline {
            offset: offset(monotonic_ms, wall_ms),
        }
    }

    /// Returns the wall clock's time at a time of the monotonic clock.
    pub(super) fn wall_ms(&self, monotonic_ms: u64) -> u64 {
        monotonic_ms.saturating_add_signed(self.offset)
    }

    /// Returns true if the wall clock was set since the last [`Timeline::follow`].
    pub(super) fn was_set(&self, monotonic_ms: u64, wall_ms: u64) -> bool {
        self.offset.abs_diff(offset(monotonic_ms, wall_ms)) > SET_MS
    }

    /// Follows the wall clock from now on.
    pub(super) fn follow(&mut self, monotonic_ms: u64, wall_ms: u64) {
        self.offset = offset(monotonic_ms, wall_ms);
    }
}

fn offset(monotonic_ms: u64, wall_ms: u64) -> i64 {
    // Both are far below 2^63 ms.
    wall_ms as i64 - monotonic_ms as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_is_set_is_told_from_one_that_is_slewed() {
        let mut timeline = Timeline::new(5_000, 1_000_000);
        assert_eq!(timeline.wall_ms(5_100), 1_000_100);
        assert!(!timeline.was_set(15_000, 1_010_400));
        assert!(timeline.was_set(15_000, 1_010_501));
        assert!(timeline.was_set(15_000, 900_000));
        timeline.follow(15_000, 900_000);
        assert!(!timeline.was_set(16_000, 901_000));
        assert_eq!(timeline.wall_ms(16_000), 901_000);
        // A sample from before the machine's start does not wrap around.
        assert_eq!(Timeline::new(10, 5).wall_ms(2), 0);
    }
}
