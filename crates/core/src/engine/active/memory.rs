//! Reads that lack payload memory are kept out of the dispatcher's reach.

use super::ActivePolicy;
use crate::roles::{Event, Interests};
use crate::view::{Hot, Queues, View, flag, shut};
use tidegate_base::request::{Lane, Op};

impl ActivePolicy {
    /// Keeps a unit whose reads lack memory from being picked again before there is some. If a read
    /// of its VM that already holds payload memory waits in the lane, the lane must stay open, and
    /// only this unit is shelved; otherwise the lane closes.
    pub(in crate::engine) fn hold_for_memory(&mut self, view: &mut View, unit: u32) {
        let vm = view.queues.reqs.hot[unit as usize].vm;
        if view.queues.holder_waits(vm) {
            self.shelve(view, unit);
        } else {
            self.set_lacks_memory(view, vm, true);
        }
    }

    /// Records whether a VM's reads lack memory, and opens or closes its read lane accordingly.
    pub(in crate::engine) fn set_lacks_memory(&mut self, view: &mut View, vm: u32, lacks: bool) {
        let of_vm = &mut view.queues.vms[vm as usize];
        let id = of_vm.id(vm);
        let closed_by = &mut of_vm.shut[Lane::Read.index()];
        let (was_open, before) = (*closed_by == 0, *closed_by);
        if lacks {
            *closed_by |= shut::LACKS_MEMORY;
        } else {
            *closed_by &= !shut::LACKS_MEMORY;
        }
        // The lane may stay shut for the regulator's reason, or have lacked memory before.
        let (open, changed) = (*closed_by == 0, *closed_by != before);
        if changed && lacks {
            // The VM may wait in vain: checked once the device is idle.
            view.queues.memory.vms_lacking += 1;
            view.queues.memory.recheck_when_idle = true;
        } else if changed {
            view.queues.memory.vms_lacking -= 1;
        }
        if open != was_open {
            let roles = &mut self.roles;
            roles.dispatcher.gate(view, id, Lane::Read, open);
        }
        if self.hears(Interests::MEMORY) && changed {
            view.queues.memory.event_emitted = true;
            self.emit(view, &Event::Memory(id));
        }
    }

    /// Takes a unit that lacks memory out of its lane until [`ActivePolicy::unshelve`].
    pub(in crate::engine) fn shelve(&mut self, view: &mut View, unit: u32) {
        let Hot { vm, op, .. } = view.queues.reqs.hot[unit as usize];
        debug_assert_eq!(op, Op::Read, "only reads wait for memory at dispatch");
        view.queues.vms[vm as usize].shelved = true;
        view.queues.memory.shelf.push(unit);
        self.park(view, unit);
    }

    /// Puts the shelved reads of a VM that has some back into their lane. Out of line, so that
    /// [`ActivePolicy::unshelve`] is one branch.
    #[cold]
    fn unshelve_vm(&mut self, view: &mut View, vm: u32) {
        view.queues.vms[vm as usize].shelved = false;
        let Queues { reqs, memory, .. } = &mut view.queues;
        let hot = &reqs.hot;
        let shelved = memory
            .shelf
            .extract_if(.., |&mut unit| hot[unit as usize].vm == vm);
        let shelved = shelved.collect();
        self.unpark(view, shelved);
    }

    /// Puts a VM's shelved reads, if there are any, back into their lane.
    #[inline]
    pub(in crate::engine) fn unshelve(&mut self, view: &mut View, vm: u32) {
        if view.queues.vms[vm as usize].shelved {
            self.unshelve_vm(view, vm);
        }
    }

    /// Puts all shelved reads back into their lanes.
    pub(in crate::engine) fn unshelve_all(&mut self, view: &mut View) {
        // Each round takes all shelved reads of one VM, so the loop ends.
        while let Some(&unit) = view.queues.memory.shelf.first() {
            self.unshelve_vm(view, view.queues.reqs.hot[unit as usize].vm);
        }
    }

    /// Reopens the read lane if the request that returns to it already holds payload memory:
    /// otherwise that memory would stay bound, a deadlock.
    pub(in crate::engine) fn open_holders_lane(&mut self, view: &mut View, slot: u32) {
        let Hot {
            vm,
            op,
            chain_first,
            ..
        } = view.queues.reqs.hot[slot as usize];
        let holds = view.queues.reqs.hot[chain_first as usize].flags & flag::HOLDS != 0;
        if op == Op::Read && holds {
            self.set_lacks_memory(view, vm, false);
        }
    }
}
