//! Reads that lack payload memory are kept out of the dispatcher's reach.

use super::ActivePolicy;
use crate::facts::{Facts, Hot, Queues, flag, shut};
use crate::roles::{Event, Interests};
use tidegate_base::request::{Lane, Op};

impl ActivePolicy {
    /// Keeps a unit whose reads lack memory from being picked again before there is some. While a
    /// holder waits in its lane, that must stay open, so the unit is shelved; otherwise the lane
    /// closes.
    pub(in crate::engine) fn starve(&mut self, facts: &mut Facts, unit: u32) {
        let vm = facts.queues.reqs.hot[unit as usize].vm;
        if facts.queues.holder_waits(vm) {
            self.shelve(facts, unit);
        } else {
            self.set_starved(facts, vm, true);
        }
    }

    /// Notes whether a VM's reads lack memory, and opens or closes its read lane accordingly.
    pub(in crate::engine) fn set_starved(&mut self, facts: &mut Facts, vm: u32, starved: bool) {
        let of_vm = &mut facts.queues.vms[vm as usize];
        let id = of_vm.id(vm);
        let reasons = &mut of_vm.shut[Lane::Read.index()];
        let (was_open, before) = (*reasons == 0, *reasons);
        if starved {
            *reasons |= shut::STARVED;
        } else {
            *reasons &= !shut::STARVED;
        }
        let (open, changed) = (*reasons == 0, *reasons != before);
        if changed && starved {
            // The VM may wait in vain: checked once the device is idle.
            facts.queues.memory.starved += 1;
            facts.queues.memory.asks = true;
        } else if changed {
            facts.queues.memory.starved -= 1;
        }
        if open != was_open {
            let roles = &mut self.roles;
            roles.dispatcher.gate(facts, id, Lane::Read, open);
        }
        if self.hears(Interests::MEMORY) && changed {
            facts.queues.memory.told = true;
            self.emit(facts, &Event::Memory(id));
        }
    }

    /// Takes a unit that lacks memory out of its lane until [`ActivePolicy::unshelve`].
    pub(in crate::engine) fn shelve(&mut self, facts: &mut Facts, unit: u32) {
        let vm = facts.queues.reqs.hot[unit as usize].vm;
        facts.queues.vms[vm as usize].shelved = true;
        facts.queues.memory.shelf.push(unit);
        self.take_out(facts, unit);
    }

    #[cold]
    /// Puts the shelved reads of a VM that has some back into their lane.
    pub(in crate::engine) fn put_back(&mut self, facts: &mut Facts, vm: u32) {
        facts.queues.vms[vm as usize].shelved = false;
        let Queues { reqs, memory, .. } = &mut facts.queues;
        let hot = &reqs.hot;
        let shelved = memory
            .shelf
            .extract_if(.., |&mut unit| hot[unit as usize].vm == vm);
        let shelved = shelved.collect();
        self.unpark(facts, shelved);
    }

    /// Puts a VM's shelved reads back into their lane.
    #[inline]
    pub(in crate::engine) fn unshelve(&mut self, facts: &mut Facts, vm: u32) {
        if facts.queues.vms[vm as usize].shelved {
            self.put_back(facts, vm);
        }
    }

    /// Puts all shelved reads back into their lanes.
    pub(in crate::engine) fn unshelve_all(&mut self, facts: &mut Facts) {
        while let Some(&unit) = facts.queues.memory.shelf.first() {
            self.put_back(facts, facts.queues.reqs.hot[unit as usize].vm);
        }
    }

    /// Opens the lane of a read that holds memory and comes back into it: nothing may hold it back.
    pub(in crate::engine) fn let_holder_go(&mut self, facts: &mut Facts, slot: u32) {
        let Hot {
            vm,
            op,
            chain_first,
            ..
        } = facts.queues.reqs.hot[slot as usize];
        let holds = facts.queues.reqs.hot[chain_first as usize].flags & flag::HOLDS != 0;
        if op == Op::Read && holds {
            self.set_starved(facts, vm, false);
        }
    }
}
