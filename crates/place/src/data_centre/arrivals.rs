//! Random arrivals of transfers.

use tidegate_core::random::SplitMix64;
use tidegate_core::time::Nanos;
use tidegate_core::transfers::deadline::{makespan, with_tolerance};

use super::Spec;
use crate::Request;

/// Arrival of a transfer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrival {
    pub(super) at: Nanos,
    /// Placement request.
    pub(super) request: Request,
    /// Largest rate that the transfer uses, in bytes per second; [`u64::MAX`]: unlimited.
    pub(super) limit: u64,
}

/// Generator of arrivals.
#[derive(Debug)]
pub(super) struct Arrivals {
    random: SplitMix64,
    /// Separate generator, so that limits do not change the drawn transfers.
    limits: SplitMix64,
    at: Nanos,
}

/// Number XORed with the seed for the second generator, so that the streams differ: "limits" in
/// ASCII.
const LIMITS_SEED_MASK: u64 = 0x6c69_6d69_7473;

impl Arrivals {
    pub(super) fn new(seed: u64) -> Arrivals {
        Arrivals {
            random: SplitMix64::new(seed),
            limits: SplitMix64::new(seed ^ LIMITS_SEED_MASK),
            at: Nanos::ZERO,
        }
    }

    pub(super) fn next(&mut self, spec: &Spec) -> Arrival {
        // Exponential inter-arrival times; `libm` gives equal results on every machine.
        let gap = -libm::log(1.0 - uniform(&mut self.random)) / spec.arrivals_per_s;
        self.at += Nanos::from_secs_f64(gap);
        let bytes = log_uniform(&mut self.random, spec.sizes);
        // In thousandths of the best duration.
        let (from, to) = spec.tolerance;
        let tolerance = u64::from(from) + self.random.below(u64::from(to.saturating_sub(from)) + 1);
        // Deadlines are relative to the duration alone on a host, as in Jain's thesis: one
        // transfer, no further loss of bandwidth, and equation 4.1 as corrected, not as printed.
        let alone = makespan(bytes, spec.bandwidth.total_for(1), 0, 1, false);
        let deadline = with_tolerance(alone, tolerance);
        let request = Request::new(bytes, deadline);
        let request = request.unwrap_or_else(|error| unreachable!("{error}"));
        let limit = self.limit(spec, request.rate());
        let declared = request.limited(limit).ok().filter(|_| spec.limits_declared);
        Arrival {
            at: self.at,
            request: declared.unwrap_or(request),
            limit,
        }
    }

    /// Draws the limit of a transfer that needs `needed_rate`, both in bytes per second.
    fn limit(&mut self, spec: &Spec, needed_rate: u64) -> u64 {
        // `limited` and `headroom` are in thousandths.
        let is_limited = self.limits.below(1_000) < u64::from(spec.limited);
        let (from, to) = spec.headroom;
        let factor = log_uniform(&mut self.limits, (from.into(), to.into()));
        let limit = u128::from(needed_rate) * u128::from(factor) / 1_000;
        match u64::try_from(limit) {
            Ok(limit) if is_limited && limit < spec.bandwidth.max() => limit.max(needed_rate),
            _ => u64::MAX,
        }
    }
}

/// Draws a number from 0 (included) to 1 (excluded).
fn uniform(random: &mut SplitMix64) -> f64 {
    (random.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
}

/// Draws a number from a log-uniform distribution.
fn log_uniform(random: &mut SplitMix64, (from, to): (u64, u64)) -> u64 {
    let (low, high) = (libm::log(from as f64), libm::log(to as f64));
    let drawn = libm::exp(low + uniform(random) * (high - low));
    (drawn as u64).clamp(from.max(1), to.max(from).max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrivals_have_the_rate_sizes_and_deadlines_of_the_spec() {
        let spec = Spec::default();
        let mut arrivals = Arrivals::new(3);
        let drawn: Vec<_> = (0..20_000).map(|_| arrivals.next(&spec)).collect();
        for arrival in &drawn {
            let bytes = arrival.request.bytes();
            assert!((spec.sizes.0..=spec.sizes.1).contains(&bytes));
            let alone = bytes as f64 / spec.bandwidth.max() as f64;
            let tolerance = arrival.request.deadline().as_secs_f64() / alone - 1.0;
            let (from, to) = (spec.tolerance.0 as f64, spec.tolerance.1 as f64);
            assert!(
                (from - 1.0..=to + 1.0).contains(&(tolerance * 1e3)),
                "{tolerance}"
            );
        }
        // 80 per second: 20,000 in 250 s, with a standard deviation of 1.8 s.
        let last = drawn[19_999].at.as_secs_f64();
        assert!((last - 250.0).abs() < 9.0, "{last}");
        // The median of a range is its geometric mean, within 3.3 standard deviations.
        let middle = ((spec.sizes.0 as f64) * (spec.sizes.1 as f64)).sqrt() as u64;
        let below = drawn
            .iter()
            .filter(|arrival| arrival.request.bytes() < middle);
        let below = below.count();
        assert!(below.abs_diff(10_000) < 240, "{below}");
    }
}
