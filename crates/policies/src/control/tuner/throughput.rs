//! PI throttling: the rate of device I/Os that holds an IOPS target (section 5.6), by
//! proportional-integral control in whole numbers.
//!
//! rate = target + P (target - measured) + I sum((target - measured) dt), within half and five
//! quarters of the target: the throttle below keeps to the rate, so more than a little above the
//! target is of no use. At a bound the sum does not grow further beyond it (anti-windup), so that a
//! device that could not keep up for an hour is not overrun for the next one.

use tidegate_base::time::Nanos;

/// Gains of the controller in thousandths; the integral one is per second.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Gains {
    pub proportional: u64,
    pub integral: u64,
}

/// State of PI throttling; rates in thousandths of an I/O per second.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Throughput {
    /// Rate that is to be held.
    pub target: u64,
    /// Integral of the error, in thousandths of an I/O per second times nanoseconds.
    pub sum: i64,
    /// Rate that the throttle allows.
    pub rate: u64,
    /// Time since which the rate is at its upper bound and would have to be higher.
    pub short_since: Option<Nanos>,
}

/// Maximum time for which one window enters the integral: a stall must not outweigh all others.
const MAX_INTEGRATED: Nanos = Nanos::from_secs(2);

impl Throughput {
    /// Starts with the target as the rate.
    pub(super) fn new(target: u64) -> Throughput {
        Throughput {
            target,
            sum: 0,
            rate: target,
            short_since: None,
        }
    }

    /// Takes in a window of the given length in which the VM asked for its target and `ios`
    /// thousandths of an I/O ended. `tolerance` in per cent.
    pub(super) fn step(
        &mut self,
        now: Nanos,
        ios: u64,
        length: Nanos,
        gains: &Gains,
        tolerance: u64,
    ) {
        let target = i128::from(self.target);
        let measured = i128::from(ios) * 1_000_000_000 / i128::from(length.0.max(1));
        let error = target - measured;
        let sum = i128::from(self.sum) + error * i128::from(length.min(MAX_INTEGRATED).0);
        let rate = |sum: i128| {
            let proportional = error * i128::from(gains.proportional) / 1000;
            // Thousandths of the gain, and nanoseconds of the sum.
            target + proportional + sum * i128::from(gains.integral) / 1_000_000_000_000
        };
        let (min, max) = ((target / 2).max(1), target + target / 4);
        // At a bound, the error would move the rate further beyond it.
        let is_winding_up = match rate(sum) {
            rate if rate > max => error > 0,
            rate if rate < min => error < 0,
            _ => false,
        };
        if !is_winding_up && let Ok(sum) = i64::try_from(sum) {
            self.sum = sum;
        }
        self.rate = rate(self.sum.into()).clamp(min, max) as u64;
        let is_short = measured < target - target * i128::from(tolerance) / 100;
        if !is_short {
            self.short_since = None;
        } else if is_winding_up {
            self.short_since.get_or_insert(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GAINS: Gains = Gains {
        proportional: 200,
        integral: 500,
    };

    /// Runs windows of `ms` on a device that does what it is let, times a gain, up to `most`.
    /// Returns the rate in each, in thousandths a second.
    fn run(control: &mut Throughput, windows: u64, ms: u64, gain: f64, most: u64) -> Vec<u64> {
        let length = Nanos::from_millis(ms);
        let step = |window| {
            let did = ((control.rate as f64 * gain) as u64).min(most);
            let now = Nanos(window * length.0);
            control.step(now, did * ms / 1000, length, &GAINS, 5);
            did
        };
        (0..windows).map(step).collect()
    }

    #[test]
    fn an_offset_is_taken_away_at_every_window() {
        for ms in [32, 63, 250, 1024] {
            for gain in [0.85, 0.9, 1.0, 1.2, 1.9] {
                let mut control = Throughput::new(466_000);
                let did = run(&mut control, 60_000 / ms, ms, gain, u64::MAX);
                let last = *did.last().expect("there were windows");
                // A window counts in whole thousandths.
                let off = last.abs_diff(466_000);
                assert!(off <= 466_000 / 500, "{off} at {ms} ms, gain {gain}");
                assert_eq!(control.short_since, None);
            }
        }
    }

    #[test]
    fn a_device_that_could_not_for_an_hour_is_not_overrun_afterwards() {
        let mut control = Throughput::new(500_000);
        run(&mut control, 36_000, 100, 1.0, 200_000);
        // The sum ends one step short of the bound at most.
        assert!((590_000..=625_000).contains(&control.rate), "{control:?}");
        assert!(control.short_since.is_some());
        let did = run(&mut control, 100, 100, 1.0, u64::MAX);
        assert_eq!(control.short_since, None);
        // The sum alone is at most the bound's: gone within some seconds.
        assert!(
            did[60..].iter().all(|did| did.abs_diff(500_000) < 25_000),
            "{did:?}"
        );
    }

    #[test]
    fn the_rate_stays_within_its_bounds() {
        let mut control = Throughput::new(1);
        run(&mut control, 10, 32, 9.0, u64::MAX);
        assert_eq!(control.rate, 1);
        let mut control = Throughput::new(1 << 50);
        for ios in [0, u64::MAX, 0, u64::MAX] {
            control.step(Nanos::ZERO, ios, Nanos(1), &GAINS, 5);
            assert!((1 << 49..=5 << 48).contains(&control.rate), "{control:?}");
        }
    }
}
