//! Time as an argument: nanoseconds that the caller has read from a clock.
//!
//! Nothing in this crate reads a clock. The daemon passes its monotonic clock, the simulator its
//! virtual time; the engine only compares and adds.

use core::fmt;
use core::ops::{Add, AddAssign, Sub};

/// Point in time or duration, in nanoseconds.
///
/// A point counts from an epoch that the driver chooses (boot, or the start of a simulation). `u64`
/// nanoseconds last 584 years, so arithmetic on real times does not overflow. All arithmetic
/// saturates, so that [`Nanos::MAX`] can mean "never".
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Nanos(pub u64);

impl Nanos {
    /// The epoch, or an empty duration.
    pub const ZERO: Nanos = Nanos(0);
    /// The time "never".
    pub const MAX: Nanos = Nanos(u64::MAX);
    /// One second.
    pub const SECOND: Nanos = Nanos(1_000_000_000);

    /// Creates a duration of whole microseconds.
    pub const fn from_micros(us: u64) -> Nanos {
        Nanos(us.saturating_mul(1_000))
    }

    /// Creates a duration of whole milliseconds.
    pub const fn from_millis(ms: u64) -> Nanos {
        Nanos(ms.saturating_mul(1_000_000))
    }

    /// Creates a duration of whole seconds.
    pub const fn from_secs(s: u64) -> Nanos {
        Nanos(s.saturating_mul(1_000_000_000))
    }

    /// Creates a duration from seconds. Negative numbers and NaN become zero, too large ones
    /// [`Nanos::MAX`]. For models and output; scheduling decisions use integers.
    pub fn from_secs_f64(s: f64) -> Nanos {
        Nanos((s * 1e9) as u64)
    }

    /// Returns the time in seconds, for output.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// Returns the time in milliseconds, for output.
    pub fn as_millis_f64(self) -> f64 {
        self.0 as f64 / 1e6
    }

    /// Returns the duration from `earlier` to this time; zero if `earlier` is later.
    pub const fn since(self, earlier: Nanos) -> Nanos {
        Nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add for Nanos {
    type Output = Nanos;
    fn add(self, rhs: Nanos) -> Nanos {
        Nanos(self.0.saturating_add(rhs.0))
    }
}

impl AddAssign for Nanos {
    fn add_assign(&mut self, rhs: Nanos) {
        *self = *self + rhs;
    }
}

impl Sub for Nanos {
    type Output = Nanos;
    fn sub(self, rhs: Nanos) -> Nanos {
        self.since(rhs)
    }
}

/// Writes the time as [`Display`](fmt::Display) does, rounded; with `#`, as in `{:#?}`, in
/// nanoseconds, so that two times that differ have different texts.
///
/// Files of earlier builds have the rounded text in names of storage on which something was learnt.
impl fmt::Debug for Nanos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if f.alternate() {
            return write!(f, "{} ns", self.0);
        }
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Nanos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            u64::MAX => f.write_str("never"),
            // From here on three decimals of a millisecond would show 1000.000 ms.
            n if n >= 999_999_500 => write!(f, "{:.3} s", n as f64 / 1e9),
            n if n >= 1_000_000 => write!(f, "{:.3} ms", n as f64 / 1e6),
            n if n >= 1_000 => write!(f, "{:.3} us", n as f64 / 1e3),
            n => write!(f, "{n} ns"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_shown_with_three_decimals_of_the_largest_unit_that_gives_1() {
        for (ns, shown) in [
            (0, "0 ns"),
            (999, "999 ns"),
            (1_000, "1.000 us"),
            (999_999, "999.999 us"),
            (1_000_000, "1.000 ms"),
            (999_999_499, "999.999 ms"),
            (999_999_500, "1.000 s"),
            (90_000_000_000, "90.000 s"),
            (u64::MAX, "never"),
        ] {
            assert_eq!(Nanos(ns).to_string(), shown);
        }
    }

    #[test]
    fn the_alternate_debug_format_of_a_time_is_exact() {
        let time = Nanos(2_500_400_000);
        assert_eq!(format!("{time:?}"), "2.500 s");
        assert_eq!(format!("{time:#?}"), "2500400000 ns");
        assert_eq!(format!("{:#?}", Some(Nanos(1))), "Some(\n    1 ns,\n)");
    }

    #[test]
    fn arithmetic_saturates() {
        assert_eq!(Nanos::MAX + Nanos(1), Nanos::MAX);
        assert_eq!(Nanos(1) - Nanos(2), Nanos::ZERO);
        assert_eq!(Nanos::from_secs(u64::MAX), Nanos::MAX);
        assert_eq!(Nanos::from_secs_f64(f64::NAN), Nanos::ZERO);
        assert_eq!(Nanos::from_secs_f64(-1.0), Nanos::ZERO);
        assert_eq!(Nanos::from_secs_f64(f64::INFINITY), Nanos::MAX);
    }
}
