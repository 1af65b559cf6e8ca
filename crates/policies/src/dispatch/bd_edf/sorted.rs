//! The sorted queue: every unit by its address, those of VMs and of background tenants apart.

use crate::tree::Forest;
use tidegate_base::request::{Lane, ReqId, VmId};
use tidegate_core::facts::Facts;

/// The sorted queue. Reads and writes (all that changes the disk) are sets of their own, for a
/// gate shuts one lane, so what lies next in an order either may go or ends the search there.
pub(super) struct Sorted {
    /// By request slot: the address under which the unit of that name stands, or [`OUT`].
    addrs: Vec<u64>,
    order: Forest<u64>,
}

/// It is not here: no unit begins at the last byte there is.
const OUT: u64 = u64::MAX;

const SETS: usize = 2 * Lane::ALL.len();

fn set_of(background: bool, lane: Lane) -> usize {
    background as usize * Lane::ALL.len() + lane.index()
}

impl Sorted {
    /// Memory a request takes.
    pub(super) const BYTES_PER_REQUEST: usize = size_of::<u64>() + Forest::<u64>::BYTES_PER_ENTRY;

    /// Room for so many units.
    pub(super) fn new(requests: u32) -> Sorted {
        Sorted {
            addrs: vec![OUT; requests as usize],
            order: Forest::with_capacity(SETS, requests as usize),
        }
    }

    pub(super) fn insert(&mut self, facts: &Facts, unit: ReqId) {
        let addr = facts.queued(unit).unit().addr;
        self.addrs[unit.index()] = addr;
        self.order.insert(home(facts, unit), addr, unit.index());
    }

    pub(super) fn remove(&mut self, facts: &Facts, unit: ReqId) {
        let addr = core::mem::replace(&mut self.addrs[unit.index()], OUT);
        let was = self.order.remove(home(facts, unit), addr, unit.index());
        debug_assert!(was, "a unit in the index is in the order of addresses");
    }

    /// A unit's first byte may be another one than it was. It may not be here: those that wait
    /// for admission grow, too.
    pub(super) fn moved(&mut self, facts: &Facts, unit: ReqId) {
        let stands = self.addrs[unit.index()];
        if stands != OUT && stands != facts.queued(unit).unit().addr {
            self.remove(facts, unit);
            self.insert(facts, unit);
        }
    }

    /// What a VM's I/O that ended at `end` is best followed by: a unit that begins right there,
    /// whosever it is, else the VM's own nearest. Reads before writes where both are as good.
    ///
    /// Nearest by the distance between `end` and a unit's first byte, forwards before backwards,
    /// among those that no other VM's unit of their lane separates from `end`; where others
    /// stand on every side, the VM's first to arrive. Disks do not overlap, so that only happens
    /// to a VM of several disks with another's in between, where a search would have to pass
    /// over any number of them.
    pub(super) fn suitable(&mut self, facts: &Facts, vm: VmId, end: u64) -> Option<ReqId> {
        let ahead = Lane::ALL.map(|lane| self.order.first_from(set_of(false, lane), end));
        for (addr, slot) in ahead.into_iter().flatten() {
            let (whose, lane) = facts.queued(facts.req_id(slot as u32)).vm_lane();
            if addr == end && facts.gate_open(whose, lane) {
                return Some(facts.req_id(slot as u32));
            }
        }
        if facts.is_background(vm) {
            return None;
        }
        let first = facts.head(vm)?;
        let behind = Lane::ALL.map(|lane| self.order.last_before(set_of(false, lane), end));
        let mut nearest: Option<(u64, ReqId)> = None;
        for (addr, slot) in ahead.into_iter().chain(behind).flatten() {
            let unit = facts.req_id(slot as u32);
            let (whose, lane) = facts.queued(unit).vm_lane();
            if whose == vm
                && facts.gate_open(vm, lane)
                && nearest.is_none_or(|(least, _)| addr.abs_diff(end) < least)
            {
                nearest = Some((addr.abs_diff(end), unit));
            }
        }
        Some(nearest.map_or(first, |(_, unit)| unit))
    }

    /// The next background unit at or behind an address; of a lane, only if it may go.
    pub(super) fn next_background(&mut self, facts: &Facts, from: u64) -> Option<ReqId> {
        let next = Lane::ALL.map(|lane| self.order.first_from(set_of(true, lane), from));
        let open = next.into_iter().flatten().filter(|&(_, slot)| {
            let (vm, lane) = facts.queued(facts.req_id(slot as u32)).vm_lane();
            facts.gate_open(vm, lane)
        });
        let (_, slot) = open.min_by_key(|&(addr, _)| addr)?;
        Some(facts.req_id(slot as u32))
    }
}

fn home(facts: &Facts, unit: ReqId) -> usize {
    let (vm, lane) = facts.queued(unit).vm_lane();
    set_of(facts.is_background(vm), lane)
}
