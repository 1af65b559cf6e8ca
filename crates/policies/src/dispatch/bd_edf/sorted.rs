//! Sorted queue: every unit by its address, with VMs and background processes in separate sets.

use crate::tree::Forest;
use tidegate_base::request::{Lane, ReqId, VmId};
use tidegate_core::view::View;

/// Sorted queue of units. Reads and writes (all operations that change the disk) are separate sets,
/// because a gate shuts one lane: the next unit of a set either may go or ends the search there.
pub(super) struct Sorted {
    /// Address by which each request slot's unit is sorted, or [`NOT_QUEUED`].
    addrs: Vec<u64>,
    order: Forest<u64>,
}

/// Value of an address for a unit that is not in the queue: no unit begins at the last byte of the
/// address space.
const NOT_QUEUED: u64 = u64::MAX;

/// Sets of the order: reads and writes of VMs, then those of background processes.
const SETS: usize = 2 * Lane::ALL.len();

fn set_of(background: bool, lane: Lane) -> usize {
    background as usize * Lane::ALL.len() + lane.index()
}

impl Sorted {
    /// Memory of one request in bytes.
    pub(super) const BYTES_PER_REQUEST: usize = size_of::<u64>() + Forest::<u64>::BYTES_PER_ENTRY;

    /// Creates an empty queue with room for `requests` units.
    pub(super) fn new(requests: u32) -> Sorted {
        Sorted {
            addrs: vec![NOT_QUEUED; requests as usize],
            order: Forest::with_capacity(SETS, requests as usize),
        }
    }

    pub(super) fn insert(&mut self, view: &View, unit: ReqId) {
        let addr = view.queued(unit).unit().addr;
        self.addrs[unit.index()] = addr;
        self.order
            .insert(set_of_unit(view, unit), addr, unit.index());
    }

    pub(super) fn remove(&mut self, view: &View, unit: ReqId) {
        let addr = core::mem::replace(&mut self.addrs[unit.index()], NOT_QUEUED);
        let was = self
            .order
            .remove(set_of_unit(view, unit), addr, unit.index());
        debug_assert!(was, "a unit in the index is in the order of addresses");
    }

    /// Updates a unit whose first byte may have changed. The unit may not be in the queue: units
    /// that wait for admission are merged, too.
    pub(super) fn update_address(&mut self, view: &View, unit: ReqId) {
        let stands = self.addrs[unit.index()];
        if stands != NOT_QUEUED && stands != view.queued(unit).unit().addr {
            self.remove(view, unit);
            self.insert(view, unit);
        }
    }

    /// Returns the unit that best follows a VM's I/O that ended at `end`: a unit of any VM that
    /// begins there, else the VM's own nearest; a read where a read and a write are equally good.
    ///
    /// Nearest by the distance between `end` and a unit's first byte, forwards before backwards,
    /// among those that no other VM's unit of their lane separates from `end`; where units of
    /// others are next on every side, the VM's first to arrive. Disks do not overlap, so that
    /// happens only to a VM of several disks with another VM's disk in between, where a search
    /// would have to pass over any number of units.
    pub(super) fn nearest(&mut self, view: &View, vm: VmId, end: u64) -> Option<ReqId> {
        let ahead = Lane::ALL.map(|lane| self.order.first_from(set_of(false, lane), end));
        for (addr, slot) in ahead.into_iter().flatten() {
            // Reads come first in `Lane::ALL`, so a read wins over an equally good write.
            let (whose, lane) = view.queued(view.req_id(slot as u32)).vm_lane();
            if addr == end && view.gate_open(whose, lane) {
                return Some(view.req_id(slot as u32));
            }
        }
        // Background I/Os are not continued by a VM's nearest unit, only by one that begins at
        // their end.
        if view.is_background(vm) {
            return None;
        }
        let first = view.head(vm)?;
        let behind = Lane::ALL.map(|lane| self.order.last_before(set_of(false, lane), end));
        let mut nearest: Option<(u64, ReqId)> = None;
        for (addr, slot) in ahead.into_iter().chain(behind).flatten() {
            let unit = view.req_id(slot as u32);
            let (whose, lane) = view.queued(unit).vm_lane();
            if whose == vm
                && view.gate_open(vm, lane)
                // Strictly nearer, so that forwards, which come first, win over backwards.
                && nearest.is_none_or(|(least, _)| addr.abs_diff(end) < least)
            {
                nearest = Some((addr.abs_diff(end), unit));
            }
        }
        Some(nearest.map_or(first, |(_, unit)| unit))
    }

    /// Returns the next unit at or behind `end`, where a VM's I/O ended, if it may go and is of
    /// that VM or begins there; a read where a read and a write begin at one address. Units of
    /// background processes are passed over, and so are all units before `end`.
    pub(super) fn next_of(&mut self, view: &View, vm: VmId, end: u64) -> Option<ReqId> {
        let ahead = Lane::ALL.map(|lane| self.order.first_from(set_of(false, lane), end));
        let (addr, slot) = ahead.into_iter().flatten().min_by_key(|&(addr, _)| addr)?;
        let unit = view.req_id(slot as u32);
        let (whose, lane) = view.queued(unit).vm_lane();
        let continues = addr == end || whose == vm && !view.is_background(vm);
        (continues && view.gate_open(whose, lane)).then_some(unit)
    }

    /// Returns the next background unit at or behind an address. If a lane's next unit may not go,
    /// the lane has no candidate.
    pub(super) fn next_background(&mut self, view: &View, from: u64) -> Option<ReqId> {
        let next = Lane::ALL.map(|lane| self.order.first_from(set_of(true, lane), from));
        let open = next.into_iter().flatten().filter(|&(_, slot)| {
            let (vm, lane) = view.queued(view.req_id(slot as u32)).vm_lane();
            view.gate_open(vm, lane)
        });
        let (_, slot) = open.min_by_key(|&(addr, _)| addr)?;
        Some(view.req_id(slot as u32))
    }
}

/// Returns the set that a unit belongs to.
fn set_of_unit(view: &View, unit: ReqId) -> usize {
    let (vm, lane) = view.queued(unit).vm_lane();
    set_of(view.is_background(vm), lane)
}
