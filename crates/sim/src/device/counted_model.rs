//! Device model with counts of its I/Os, its busy time and its distances.

use super::distances::Distances;
use tidegate_core::request::Op;
use tidegate_core::time::Nanos;
use tidegate_device::{Completion, Model, ModelIo};

/// Counts of a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DeviceTally {
    /// I/Os that ended.
    pub ios: u64,
    /// Bytes of the I/Os that engines submitted.
    pub bytes: u64,
    /// Time with at least one I/O in flight.
    pub busy: Nanos,
    /// Time in flight, summed over all I/Os, in nanoseconds.
    pub in_flight_sum: u128,
}

impl DeviceTally {
    /// Adds what was counted from `before` to `now`.
    pub(crate) fn add_since(&mut self, before: &DeviceTally, now: &DeviceTally) {
        self.ios += now.ios - before.ios;
        self.bytes += now.bytes - before.bytes;
        self.busy += now.busy.since(before.busy);
        self.in_flight_sum += now.in_flight_sum - before.in_flight_sum;
    }
}

/// Device model that counts.
pub struct CountedModel {
    model: Box<dyn Model>,
    tally: DeviceTally,
    distances: Distances,
}

impl CountedModel {
    /// Creates a model without counts; `distances` are upper bounds in bytes, in ascending order.
    pub(super) fn new(model: Box<dyn Model>, distances: &[u64]) -> CountedModel {
        CountedModel {
            model,
            tally: DeviceTally::default(),
            distances: Distances::new(distances),
        }
    }

    /// Counts a span of time that passes.
    pub(super) fn elapse(&mut self, span: Nanos) {
        let in_flight = self.model.in_flight();
        if in_flight > 0 {
            self.tally.busy += span;
            self.tally.in_flight_sum += u128::from(span.0) * u128::from(in_flight);
        }
    }

    /// Counts an I/O of `len` bytes that an engine submits to the device.
    pub(super) fn dispatched(&mut self, len: u32) {
        self.tally.bytes += u64::from(len);
    }

    /// True if there is room for one more I/O.
    pub(super) fn has_room(&self) -> bool {
        self.model.has_room()
    }

    /// Number of I/Os in flight.
    pub(super) fn in_flight(&self) -> u32 {
        self.model.in_flight()
    }

    /// Submits an I/O.
    pub(super) fn submit(&mut self, now: Nanos, io: ModelIo) {
        // A flush has no address.
        if io.op != Op::Flush {
            self.distances.started(io.addr, io.len);
        }
        self.model.submit(now, io);
    }

    /// Time at which to look for ends; [`Nanos::MAX`] while nothing is in flight.
    pub(super) fn next_completion(&self) -> Nanos {
        self.model.next_completion().unwrap_or(Nanos::MAX)
    }

    /// Next I/O that had ended by `now`.
    pub(super) fn pop_completed(&mut self, now: Nanos) -> Option<Completion> {
        let ended = self.model.pop_completed(now)?;
        self.tally.ios += 1;
        Some(ended)
    }

    /// Logical block of the device in bytes.
    pub(super) fn logical_block(&self) -> u32 {
        self.model.spec().logical_block
    }

    /// Sets all counts to zero.
    pub(super) fn clear(&mut self) {
        self.tally = DeviceTally::default();
        self.distances.clear();
    }

    /// Counts since the warm-up.
    pub fn tally(&self) -> DeviceTally {
        self.tally
    }

    /// Distances from one I/O to the next since the warm-up.
    pub fn distances(&self) -> &Distances {
        &self.distances
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_device::catalogue;

    #[test]
    fn busy_time_and_ios_are_counted_while_something_is_in_flight() {
        let entry = catalogue::load("hdd-7200-1tb").expect("it is in the catalogue");
        let mut model = CountedModel::new(entry.build(), &[1 << 20]);
        model.elapse(Nanos(100));
        assert_eq!(model.tally(), DeviceTally::default());
        for (id, addr) in [(1, 0), (2, 4096)] {
            model.dispatched(4096);
            model.submit(Nanos(100), ModelIo::read(id, addr, 4096));
        }
        model.elapse(Nanos(50));
        let tally = model.tally();
        assert_eq!((tally.bytes, tally.busy, tally.ios), (8192, Nanos(50), 0));
        assert_eq!(tally.in_flight_sum, 100);
        while model.pop_completed(Nanos::SECOND).is_some() {}
        assert_eq!(
            (model.tally().ios, model.next_completion()),
            (2, Nanos::MAX)
        );
        assert_eq!(model.distances().counts().next(), Some((Some(1 << 20), 1)));
        model.clear();
        assert_eq!(model.tally(), DeviceTally::default());
    }
}
