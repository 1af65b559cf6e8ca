//! Measurement of the I/Os in flight just below the pace of a cap, with no queue in its bucket.

use tidegate_base::time::Nanos;

/// I/Os in flight behind the cap, integrated over time.
#[derive(Clone, Copy, Debug)]
pub(super) struct InFlightBaseline {
    from: Nanos,
    seen: Nanos,
    in_flight: u32,
    held: bool,
    /// I/Os in flight times nanoseconds, and nanoseconds in which something was held back.
    sum: u64,
    held_sum: u64,
}

impl InFlightBaseline {
    /// Begins a measurement with nothing in flight.
    pub(super) fn new(now: Nanos) -> InFlightBaseline {
        InFlightBaseline {
            from: now,
            seen: now,
            in_flight: 0,
            held: false,
            sum: 0,
            held_sum: 0,
        }
    }

    /// Adds the time since the last call and takes the present state. Returns the mean of I/Os in
    /// flight, rounded up, once `long` has passed; begins anew where something was held for less
    /// than half of that, since then the load and not the cap bounded it.
    pub(super) fn update(
        &mut self,
        now: Nanos,
        in_flight: u32,
        held: bool,
        long: Nanos,
    ) -> Option<u32> {
        let span = now.since(self.seen).0;
        self.sum += self.in_flight as u64 * span;
        self.held_sum += if self.held { span } else { 0 };
        (self.seen, self.in_flight, self.held) = (now, in_flight, held);
        let all = now.since(self.from).0;
        if all < long.0 {
            return None;
        }
        if self.held_sum * 2 < all {
            *self = InFlightBaseline {
                in_flight,
                held,
                ..InFlightBaseline::new(now)
            };
            return None;
        }
        Some(self.sum.div_ceil(all) as u32)
    }
}
