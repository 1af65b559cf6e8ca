//! I/Os in flight in a torture run, by the slots that the engine gives them.

use crate::checker::ledger::Part;
use tidegate_core::request::{DeviceIo, Outcome};

/// I/O in flight, or the slot of one.
#[derive(Default)]
pub(super) struct Flight {
    io: Option<DeviceIo>,
    /// Parts of requests that the I/O carries; the list is reused once it has ended.
    pub(super) parts: Vec<Part>,
    /// Bytes that short completions have moved.
    pub(super) moved: u32,
    /// `true` if the I/O's bytes were moved when it started, not when it ends.
    pub(super) early: bool,
    /// Number of sectors that were dirty when a flush started.
    pub(super) mark: usize,
    /// Outcome, once the device is done with the I/O.
    outcome: Option<Outcome>,
}

impl Flight {
    /// I/O in this slot.
    ///
    /// # Panics
    /// When none is in flight in this slot.
    pub(super) fn io(&self) -> DeviceIo {
        self.io.expect("it is in flight")
    }

    /// Bytes that the device has not moved yet.
    pub(super) fn left(&self) -> u32 {
        self.io().len - self.moved
    }

    /// Notes the outcome when the device is done with it.
    pub(super) fn settle(&mut self, outcome: Outcome) {
        self.outcome = Some(outcome);
    }

    /// Removes the I/O and its outcome when the engine is told of its end.
    pub(super) fn end(&mut self) -> (DeviceIo, Outcome) {
        let outcome = self.outcome.take().expect("it has ended");
        (self.io.take().expect("it is in flight"), outcome)
    }
}

/// I/Os in flight, by slot.
pub(super) struct Flights(Vec<Flight>);

impl Flights {
    /// Creates `slots` empty slots.
    pub(super) fn new(slots: u32) -> Flights {
        Flights((0..slots).map(|_| Flight::default()).collect())
    }

    /// True if a slot exists and has no I/O in flight.
    pub(super) fn is_free(&self, slot: usize) -> bool {
        // A slot beyond the table is the engine's mistake, and not free.
        self.0.get(slot).is_some_and(|flight| flight.io.is_none())
    }

    /// List of parts of the slot's last I/O, to be filled with the next one's.
    pub(super) fn spare_parts(&mut self, slot: usize) -> Vec<Part> {
        core::mem::take(&mut self.0[slot].parts)
    }

    /// Starts an I/O in its slot.
    pub(super) fn start(&mut self, io: DeviceIo, parts: Vec<Part>, early: bool, mark: usize) {
        self.0[io.id.index()] = Flight {
            io: Some(io),
            parts,
            moved: 0,
            early,
            mark,
            outcome: None,
        };
    }

    /// I/O of a slot.
    pub(super) fn get(&self, slot: u32) -> &Flight {
        &self.0[slot as usize]
    }

    /// I/O of a slot, to be changed.
    pub(super) fn get_mut(&mut self, slot: u32) -> &mut Flight {
        &mut self.0[slot as usize]
    }

    /// All I/Os in flight.
    pub(super) fn ios(&self) -> impl Iterator<Item = &DeviceIo> {
        self.0.iter().filter_map(|flight| flight.io.as_ref())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_core::request::{DiskId, IoId, Op, VmId};
    use tidegate_core::time::Nanos;

    #[test]
    fn a_slot_is_free_until_an_io_starts_and_once_it_has_ended() {
        let io = DeviceIo {
            id: IoId::from_bits(1),
            vm: VmId::from_bits(0),
            disk: DiskId::from_bits(0),
            op: Op::Write,
            offset: 0,
            addr: 0,
            len: 4096,
            fua: false,
            keep_allocated: false,
            first_ops: 1,
            first_bytes: 4096,
            whole_len: 4096,
            arrived: Nanos::ZERO,
        };
        let mut flights = Flights::new(2);
        assert!(flights.is_free(1) && !flights.is_free(2), "there are two");
        flights.start(io, Vec::new(), false, 0);
        assert!(!flights.is_free(1));
        flights.get_mut(1).moved = 512;
        assert_eq!((flights.get(1).left(), flights.ios().count()), (3584, 1));
        flights.get_mut(1).settle(Ok(()));
        assert_eq!(flights.get_mut(1).end(), (io, Ok(())));
        assert!(flights.is_free(1) && flights.ios().next().is_none());
    }
}
