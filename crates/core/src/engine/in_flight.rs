//! I/Os with the device, in a slab of as many slots as may be in flight at once.

use crate::device_monitor::window_meter::Kind;
use tidegate_base::device::DeviceStats;
use tidegate_base::request::{DeviceIo, DiskId, IoId, Op, VmId};
use tidegate_base::slab::{NIL, Slab};
use tidegate_base::time::Nanos;

/// Bits of [`InFlightIo::marks`].
pub(super) mod mark {
    /// More of a VM's unit was to come when the I/O started.
    pub(in crate::engine) const PART: u8 = 1;
    /// The I/O is of a process of the host.
    pub(in crate::engine) const BACKGROUND: u8 = 2;
    /// The I/O does not count against the device's depth: it was started on a disk that hangs.
    pub(in crate::engine) const UNCOUNTED: u8 = 4;
}

/// An I/O in flight.
pub(super) struct InFlightIo {
    /// The one copy of the I/O that is kept: roles are shown this one.
    pub io: DeviceIo,
    /// Slot of the first guest request.
    pub first: u32,
    /// Offset in the first request at which the I/O starts, in bytes.
    pub first_offset: u32,
    /// Number of guest requests in the I/O.
    pub reqs: u32,
    /// Unusual properties of the I/O, as bits of [`mark`]; 0 for most.
    pub marks: u8,
    pub started: Nanos,
    /// Kind of I/O as the device monitor classified it.
    pub kind: Kind,
}

impl InFlightIo {
    /// Returns whether the I/O counts against the device's depth.
    #[inline]
    pub(super) fn is_counted(&self) -> bool {
        self.marks & mark::UNCOUNTED == 0
    }

    const VACANT: InFlightIo = InFlightIo {
        io: DeviceIo {
            id: IoId {
                index: 0,
                generation: 0,
            },
            vm: VmId {
                index: NIL,
                generation: NIL,
            },
            disk: DiskId {
                index: NIL,
                generation: NIL,
            },
            op: Op::Read,
            addr: 0,
            offset: 0,
            len: 0,
            fua: false,
            keep_allocated: false,
            first_ops: 0,
            first_bytes: 0,
            whole_len: 0,
            arrived: Nanos::ZERO,
        },
        first: NIL,
        first_offset: 0,
        reqs: 0,
        marks: 0,
        started: Nanos::ZERO,
        kind: Kind::OTHER,
    };
}

/// Counts an I/O with these marks that starts into what is with the device of parts and of
/// background.
#[cold]
#[inline(never)]
pub(super) fn enter_shares(device: &mut DeviceStats, marks: u8) {
    device.parts.in_flight += u32::from(marks & mark::PART != 0);
    device.background.in_flight += u32::from(marks & mark::BACKGROUND != 0);
}

/// Counts an I/O with these marks out of what is with the device of parts and of background.
#[cold]
#[inline(never)]
pub(super) fn leave_shares(device: &mut DeviceStats, marks: u8) {
    device.parts.in_flight -= u32::from(marks & mark::PART != 0);
    device.background.in_flight -= u32::from(marks & mark::BACKGROUND != 0);
}

/// Counts an I/O with these marks that has ended.
#[cold]
#[inline(never)]
pub(super) fn end_shares(device: &mut DeviceStats, marks: u8) {
    device.parts.ended += u64::from(marks & mark::PART != 0);
    device.background.ended += u64::from(marks & mark::BACKGROUND != 0);
    // An I/O of a disk that hangs was counted out when it was taken out of the depth.
    if marks & mark::UNCOUNTED == 0 {
        leave_shares(device, marks);
    }
}

/// All I/Os in flight. Taking and giving back a slot allocates nothing.
pub(super) struct InFlight {
    slots: Slab<InFlightIo>,
}

impl InFlight {
    /// Creates room for `slots` I/Os at once.
    pub(super) fn new(slots: u32) -> InFlight {
        let mut this = InFlight { slots: Slab::new() };
        this.grow(slots);
        this
    }

    /// Makes room for `slots` I/Os at once; new slots are taken after all that are free now.
    pub(super) fn grow(&mut self, slots: u32) {
        self.slots.grow(slots, || InFlightIo::VACANT);
    }

    /// Takes a free slot for an I/O that starts. Returns its handle, and the record, which holds
    /// what the slot held last.
    ///
    /// # Panics
    /// When as many I/Os are in flight as there is room for.
    #[inline]
    pub(super) fn enter(&mut self) -> (IoId, &mut InFlightIo) {
        let (index, generation, flight) = self
            .slots
            .take()
            .expect("in flight is below the depth, so a slot is free");
        (IoId { index, generation }, flight)
    }

    /// Ends an I/O. Its record stays readable until the slot is taken again.
    ///
    /// # Panics
    /// When the I/O is not in flight.
    #[inline]
    pub(super) fn leave(&mut self, id: IoId) -> &InFlightIo {
        match self.slots.give_back_if_current(id.index, id.generation) {
            Some(flight) => flight,
            None => panic!("{id:?} is not in flight"),
        }
    }

    /// Returns whether an I/O is in flight.
    #[inline]
    pub(super) fn contains(&self, id: IoId) -> bool {
        self.get(id).is_some()
    }

    /// Returns the I/O of a handle; `None`: it has ended, or the handle was never given out.
    #[inline]
    pub(super) fn get(&self, id: IoId) -> Option<&InFlightIo> {
        self.slots.get(id.index, id.generation)
    }

    /// Returns the record in a slot, of an I/O that is in flight or has just ended.
    #[inline]
    pub(super) fn io_at(&self, index: u32) -> &InFlightIo {
        self.slots.value_at(index)
    }

    /// Returns the record of an I/O in flight, to be changed.
    #[inline]
    pub(super) fn at_mut(&mut self, index: u32) -> &mut InFlightIo {
        self.slots.value_at_mut(index)
    }

    /// Iterates over all I/Os in flight, in the order of their slots.
    pub(super) fn iter(&self) -> impl Iterator<Item = &InFlightIo> {
        self.slots.taken().map(|(_, flight)| flight)
    }

    /// Returns the number of slots, taken and free.
    pub(super) fn slots(&self) -> u32 {
        self.slots.len() as u32
    }

    /// Returns whether the I/O in a slot is in flight.
    pub(super) fn is_taken(&self, index: u32) -> bool {
        self.slots.is_taken(index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_io_is_known_from_its_start_to_its_end() {
        let mut flights = InFlight::new(2);
        let mut enter = |len| {
            let (id, flight) = flights.enter();
            flight.io.len = len;
            id
        };
        let (first, second) = (enter(4096), enter(512));
        assert!(first != second && flights.contains(first));
        assert_eq!(flights.iter().map(|f| f.io.len).sum::<u32>(), 4608);
        assert_eq!(flights.leave(first).io.len, 4096);
        assert!(!flights.contains(first) && flights.get(first).is_none());
        let (third, _) = flights.enter();
        assert_eq!(third.index, first.index);
        assert_ne!(third.generation, first.generation);
        assert!(flights.contains(third) && !flights.contains(first));
    }

    #[test]
    #[should_panic(expected = "is not in flight")]
    fn an_io_does_not_end_twice() {
        let mut flights = InFlight::new(1);
        let (id, _) = flights.enter();
        flights.leave(id);
        flights.leave(id);
    }
}
