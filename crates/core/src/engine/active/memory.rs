//! Reads that lack payload memory are kept out of the dispatcher's reach.

use super::ActivePolicy;
use crate::roles::{Event, Interests};
use crate::view::{Hot, Queues, View, flag, shut};
use tidegate_base::request::{Lane, Op};

impl ActivePolicy {
    /// Keeps a unit whose reads lack memory from being picked again before there is some. While a
    /// holder waits in its lane, that must stay open, so the unit is shelved; otherwise the lane
    /// closes.
    pub(in crate::engine) fn starve(&mut self, view: &mut View, unit: u32) {
        let vm = view.queues.reqs.hot[unit as usize].vm;
        if view.queues.holder_waits(vm) {
            self.shelve(view, unit);
        } else {
            self.set_starved(view, vm, true);
        }
    }

    /// Records whether a VM's reads lack memory, and opens or closes its read lane accordingly.
    pub(in crate::engine) fn set_starved(&mut self, view: &mut View, vm: u32, starved: bool) {
        let of_vm = &mut view.queues.vms[vm as usize];
        let id = of_vm.id(vm);
        let reasons = &mut of_vm.shut[Lane::Read.index()];
        let (was_open, before) = (*reasons == 0, *reasons);
        if starved {
            *reasons |= shut::STARVED;
        } else {
            *reasons &= !shut::STARVED;
        }
        // The lane may stay shut for the regulator's reason, or have lacked memory before.
        let (open, changed) = (*reasons == 0, *reasons != before);
        if changed && starved {
            // The VM may wait in vain: checked once the device is idle.
            view.queues.memory.starved += 1;
            view.queues.memory.asks = true;
        } else if changed {
            view.queues.memory.starved -= 1;
        }
        if open != was_open {
            let roles = &mut self.roles;
            roles.dispatcher.gate(view, id, Lane::Read, open);
        }
        if self.hears(Interests::MEMORY) && changed {
            view.queues.memory.told = true;
            self.emit(view, &Event::Memory(id));
        }
    }

    /// Takes a unit that lacks memory out of its lane until [`ActivePolicy::unshelve`].
    pub(in crate::engine) fn shelve(&mut self, view: &mut View, unit: u32) {
        let vm = view.queues.reqs.hot[unit as usize].vm;
        view.queues.vms[vm as usize].shelved = true;
        view.queues.memory.shelf.push(unit);
        self.take_out(view, unit);
    }

    /// Puts the shelved reads of a VM that has some back into their lane.
    #[cold]
    pub(in crate::engine) fn put_back(&mut self, view: &mut View, vm: u32) {
        view.queues.vms[vm as usize].shelved = false;
        let Queues { reqs, memory, .. } = &mut view.queues;
        let hot = &reqs.hot;
        let shelved = memory
            .shelf
            .extract_if(.., |&mut unit| hot[unit as usize].vm == vm);
        let shelved = shelved.collect();
        self.unpark(view, shelved);
    }

    /// Puts a VM's shelved reads back into their lane.
    #[inline]
    pub(in crate::engine) fn unshelve(&mut self, view: &mut View, vm: u32) {
        if view.queues.vms[vm as usize].shelved {
            self.put_back(view, vm);
        }
    }

    /// Puts all shelved reads back into their lanes.
    pub(in crate::engine) fn unshelve_all(&mut self, view: &mut View) {
        // Each round takes all shelved reads of one VM, so the loop ends.
        while let Some(&unit) = view.queues.memory.shelf.first() {
            self.put_back(view, view.queues.reqs.hot[unit as usize].vm);
        }
    }

    /// Opens the lane of a read that holds memory and comes back into it: nothing may hold it back.
    pub(in crate::engine) fn open_holders_lane(&mut self, view: &mut View, slot: u32) {
        let Hot {
            vm,
            op,
            chain_first,
            ..
        } = view.queues.reqs.hot[slot as usize];
        let holds = view.queues.reqs.hot[chain_first as usize].flags & flag::HOLDS != 0;
        if op == Op::Read && holds {
            self.set_starved(view, vm, false);
        }
    }
}
