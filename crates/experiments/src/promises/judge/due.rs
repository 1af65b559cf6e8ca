//! Due times of requests: the tags of a floor, and the envelope of a latency bound.

use tidegate_core::expected_workload::Envelope;
use tidegate_core::objective::Rate;
use tidegate_core::time::Nanos;

/// Picoseconds of a second.
const SECOND_PS: u128 = 1_000_000_000_000;

/// Time that a rate allots to a request of `len` bytes, in picoseconds. Of two rates the longer
/// time, because a floor is kept as soon as either rate is served.
fn step_ps(rate: &Rate, len: u32) -> u128 {
    let ops = rate.ops.map(|ops| {
        let unit = u128::from(ops.norm.unwrap_or(1).max(1));
        let units = match ops.norm {
            // A request of up to the norm counts as one of the norm.
            Some(_) => unit.max(len.into()),
            None => 1,
        };
        SECOND_PS * units / (unit * u128::from(ops.per_s))
    });
    let bytes = rate
        .bytes_per_s
        .map(|per_s| SECOND_PS * u128::from(len) / u128::from(per_s));
    ops.unwrap_or(0).max(bytes.unwrap_or(0))
}

/// Number of I/Os as which a request of `len` bytes counts in a rate of I/Os of `norm` bytes; every
/// request counts as one without such a size.
pub(super) fn ops_of_norm(norm: Option<u32>, len: u32) -> f64 {
    // Half a request is still one.
    norm.map_or(1.0, |norm| (f64::from(len) / f64::from(norm)).max(1.0))
}

/// Due times of requests under a rate.
#[derive(Clone, Debug)]
pub(super) struct DueTimes {
    rate: Rate,
    /// End of the previous request's time, in picoseconds.
    next_ps: u128,
    /// Requests beyond the first that may arrive at once.
    at_once: u32,
}

impl DueTimes {
    /// Due times under a rate; `None`: no rate.
    pub(super) fn new(rate: &Rate) -> Option<DueTimes> {
        (!rate.is_none()).then_some(DueTimes {
            rate: *rate,
            next_ps: 0,
            at_once: 0,
        })
    }

    /// Envelope of a latency bound.
    pub(super) fn for_envelope(envelope: &Envelope) -> Option<DueTimes> {
        let due = DueTimes::new(&envelope.rate)?;
        Some(DueTimes {
            at_once: envelope.burst - 1,
            ..due
        })
    }

    /// Due time of a request: its tag + 1 / rate. Calls must be in order of arrival.
    pub(super) fn due(&mut self, arrived: Nanos, len: u32) -> Nanos {
        // Picoseconds: the times of high rates are no whole nanoseconds, and errors would add up.
        let tag = self.next_ps.max(u128::from(arrived.0) * 1000);
        self.next_ps = tag + step_ps(&self.rate, len);
        Nanos((self.next_ps / 1000) as u64)
    }

    /// True if a request that arrives is within the rate and its burst. Requests beyond them do not
    /// use them up.
    pub(super) fn takes(&mut self, arrived: Nanos, len: u32) -> bool {
        let arrived_ps = u128::from(arrived.0) * 1000;
        let step = step_ps(&self.rate, len);
        let within = self.next_ps <= arrived_ps + step * u128::from(self.at_once);
        if within {
            self.next_ps = self.next_ps.max(arrived_ps) + step;
        }
        within
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_a_rate_apart_and_never_before_the_arrival() {
        let mut due = DueTimes::new(&Rate::iops(1000)).expect("there is a rate");
        let ms = Nanos::from_millis;
        assert_eq!(due.due(ms(10), 4096), ms(11));
        assert_eq!(due.due(ms(10), 4096), ms(12));
        assert_eq!(due.due(ms(50), 4096), ms(51));
        let mut bytes = DueTimes::new(&Rate::bytes(1_000_000)).expect("there is a rate");
        assert_eq!(bytes.due(ms(0), 500_000), ms(500));
        assert!(DueTimes::new(&Rate::NONE).is_none());
    }

    #[test]
    fn a_large_request_counts_as_several_of_the_size_in_the_rate() {
        let counted = [4 << 10, 16 << 10, 40 << 10].map(|len| ops_of_norm(Some(16 << 10), len));
        assert_eq!(counted, [1.0, 1.0, 2.5]);
        assert_eq!(ops_of_norm(None, 1 << 20), 1.0);
    }

    #[test]
    fn a_request_that_comes_too_early_is_outside_of_the_envelope_and_costs_nothing() {
        let mut envelope = DueTimes::new(&Rate::iops(100)).expect("there is a rate");
        let ms = Nanos::from_millis;
        assert!(envelope.takes(ms(0), 1));
        assert!(!envelope.takes(ms(9), 1));
        assert!(envelope.takes(ms(10), 1));
    }

    #[test]
    fn as_many_requests_as_the_burst_are_inside_at_once() {
        let given = Envelope {
            rate: Rate::iops(100),
            burst: 3,
        };
        let mut envelope = DueTimes::for_envelope(&given).expect("there is a rate");
        let ms = Nanos::from_millis;
        let taken = (0..5).filter(|_| envelope.takes(ms(500), 1)).count();
        assert_eq!(taken, 3);
        assert!(!envelope.takes(ms(509), 1));
        assert!(envelope.takes(ms(510), 1));
        assert!(!envelope.takes(ms(510), 1));
    }
}
