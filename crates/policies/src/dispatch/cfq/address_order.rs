//! Order of addresses within a queue, and the age of waiting units.

use crate::treap::Treaps;
use tidegate_base::request::{Lane, VmId};
use tidegate_base::time::Nanos;
use tidegate_core::roles::Footprint;
use tidegate_core::view::View;

/// Limits on seeks against the elevator's direction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Backwards {
    /// Largest distance back, in bytes.
    pub(super) max: u64,
    /// Factor by which a distance back counts more than one ahead.
    pub(super) penalty: u64,
}

/// Waiting units by address, a set for each lane of each VM.
#[derive(Debug)]
pub(super) struct AddressOrder {
    sorted: Treaps,
    /// Time at which a unit came to the scheduler, by request slot.
    entered: Vec<Nanos>,
}

impl AddressOrder {
    pub(super) fn new(vms: usize, requests: usize) -> AddressOrder {
        AddressOrder {
            sorted: Treaps::with_capacity(vms * Lane::ALL.len(), requests),
            entered: vec![Nanos::ZERO; requests],
        }
    }

    pub(super) fn insert(&mut self, now: Nanos, vm: VmId, lane: Lane, slot: u32, addr: u64) {
        self.entered[slot as usize] = now;
        self.sorted.insert(set_of(vm, lane), addr, slot as usize);
    }

    pub(super) fn remove(&mut self, vm: VmId, lane: Lane, slot: u32) {
        let was = self.sorted.remove(set_of(vm, lane), slot as usize);
        debug_assert!(was, "a unit that waits is in the order of addresses");
    }

    /// Updates a unit whose first byte may have changed; ignores one that still waits for
    /// admission.
    pub(super) fn update_address(&mut self, vm: VmId, lane: Lane, slot: u32, addr: u64) {
        let known = self.sorted.key_of(slot as usize);
        // A back merge leaves the first byte as it was: nothing to move then.
        if known.is_some_and(|known| known != addr) {
            self.remove(vm, lane, slot);
            self.sorted.insert(set_of(vm, lane), addr, slot as usize);
        }
    }

    /// Returns the time at which a unit came to the scheduler.
    pub(super) fn entered(&self, slot: u32) -> Nanos {
        self.entered[slot as usize]
    }

    /// Returns the slot of the unit that a one-way elevator at `position` takes next from those of
    /// these `lanes` whose gates are open: the nearest ahead, or one behind that is nearer even
    /// with the penalty; where neither is within reach, the unit of the lowest address.
    pub(super) fn next_in_elevator(
        &self,
        view: &View,
        lanes: impl Iterator<Item = (VmId, Lane)>,
        position: u64,
        back: Backwards,
    ) -> Option<u32> {
        let mut best: Option<(u64, u64, usize)> = None;
        let mut lowest: Option<(u64, usize)> = None;
        for (vm, lane) in lanes {
            // Units of a shut lane stay in the order and are passed over here, a whole lane at a
            // time.
            if !view.gate_open(vm, lane) || view.lane_head(vm, lane).is_none() {
                continue;
            }
            let set = set_of(vm, lane);
            let [behind, ahead] = self.sorted.around(set, position);
            let ahead = ahead.map(|(addr, id)| (addr - position, 0, id));
            let behind = behind.and_then(|(addr, id)| {
                let distance = position - addr;
                // Distances reach 2^64 and penalties 1000.
                let cost = distance.saturating_mul(back.penalty);
                (distance <= back.max).then_some((cost, 1, id))
            });
            let nearest = [best, ahead, behind].into_iter().flatten();
            // At equal cost ahead (0) wins over back (1), so that the elevator keeps its direction.
            best = nearest.min_by_key(|&(cost, way, _)| (cost, way));
            // The elevator has reached its end and begins again at the lowest address.
            if best.is_none() {
                lowest = [lowest, self.sorted.first(set)].into_iter().flatten().min();
            }
        }
        let chosen = best.map(|(_, _, id)| id).or(lowest.map(|(_, id)| id));
        chosen.map(|id| id as u32)
    }

    pub(super) fn footprint() -> Footprint {
        Footprint {
            vm: Lane::ALL.len() * Treaps::BYTES_PER_SET,
            request: size_of::<Nanos>() + Treaps::BYTES_PER_ID,
            ..Footprint::default()
        }
    }
}

fn set_of(vm: VmId, lane: Lane) -> usize {
    vm.index() * Lane::ALL.len() + lane.index()
}
