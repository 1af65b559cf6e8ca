//! Lanes of VMs: queues of waiting units in the order of arrival, and their counters.

use super::{NewRequest, Requests};
use crate::slots::{Hot, Life, Vm, flag, state};
use tidegate_base::device::{DeviceSpec, DeviceStats};
use tidegate_base::request::{Lane, Op, ReqId, VmId};
use tidegate_base::slab::NIL;
use tidegate_base::time::Nanos;

/// State that changes with every request: VMs with their lanes, requests, the device's counters,
/// the time.
pub(crate) struct Queues {
    /// The time of the call that is being handled.
    pub now: Nanos,
    pub device: DeviceStats,
    /// By the VM's slot.
    pub vms: Vec<Vm>,
    pub reqs: Requests,
    pub memory: MemoryWaits,
    /// Bytes up to which adjacent requests are merged; 0: never.
    pub merge_limit: u32,
    /// Time since which the dispatcher deliberately leaves the device idle; `None`: it does not.
    pub waiting_since: Option<Nanos>,
}

/// Reads that lack payload memory.
#[derive(Default)]
pub(crate) struct MemoryWaits {
    /// Reads that lack memory while another one of their lane holds it; see
    /// `engine::request_budgets`.
    pub shelf: Vec<u32>,
    /// Number of VMs whose reads lack memory.
    pub vms_lacking: u32,
    /// A VM counted in `vms_lacking` may wait for memory that no I/O in flight will return: checked
    /// when the device is idle.
    pub recheck_when_idle: bool,
    /// The next read that lacks memory may exceed the bounds, to resolve a deadlock.
    pub overdraws: bool,
    /// Roles were notified that reads lack memory since the last call of `poll_dispatch`.
    pub event_emitted: bool,
}

impl Queues {
    /// Creates queues without VMs, with room for `requests`.
    pub(crate) fn new(device: DeviceSpec, requests: u32, merge_limit: u32) -> Queues {
        Queues {
            now: Nanos::ZERO,
            device: DeviceStats::new(device),
            vms: Vec::new(),
            reqs: Requests::new(requests),
            memory: MemoryWaits::default(),
            merge_limit,
            waiting_since: None,
        }
    }

    /// Sets the time of the call that is being handled. The engine's time never runs backwards,
    /// even if a driver's does.
    #[inline]
    pub(crate) fn advance(&mut self, now: Nanos) {
        // The clock never runs backwards, whatever a driver passes.
        self.now = self.now.max(now);
    }

    /// Puts a unit into its lane before `next` (`NIL`: at the end). Its state says whether it
    /// is admitted; admitted units stand before pending ones.
    pub(crate) fn link(&mut self, slot: u32, next: u32) {
        debug_assert_ne!(slot, next, "a lane that leads to itself has no end");
        let hot = &mut self.reqs.hot;
        debug_assert!(
            hot[slot as usize].waits_in_lane(),
            "slot {slot} enters a lane in state {}",
            hot[slot as usize].state
        );
        debug_assert!(
            next == NIL || same_lane(hot, slot, next),
            "slot {slot} is put before slot {next} of another lane"
        );
        let (vm, lane) = (
            hot[slot as usize].vm as usize,
            hot[slot as usize].op.lane().index(),
        );
        let queue = &mut self.vms[vm].lanes[lane];
        let prev = match next {
            NIL => queue.tail,
            // The first unit's own `prev` is stale: see `unlink`.
            next if next == queue.head => NIL,
            next => hot[next as usize].prev,
        };
        hot[slot as usize].next = next;
        hot[slot as usize].prev = prev;
        match prev {
            NIL => queue.head = slot,
            p => hot[p as usize].next = slot,
        }
        match next {
            NIL => queue.tail = slot,
            n => hot[n as usize].prev = slot,
        }
        let held = hot[slot as usize].state == state::PENDING;
        // A unit linked right before the first pending one becomes the first pending itself; the
        // same where none is pending and it goes to the end (both NIL).
        if held && queue.pending == next {
            queue.pending = slot;
        }
        let device = &mut self.device;
        device.queued += 1;
        device.pending += u32::from(held);
        device.background.queued += u32::from(self.vms[vm].background);
        self.count_holder(slot);
    }

    /// Takes a unit out of its lane; returns the unit that stood behind it.
    pub(crate) fn unlink(&mut self, slot: u32) -> u32 {
        let Queues {
            reqs: Requests { hot, .. },
            vms,
            device,
            ..
        } = self;
        debug_assert!(
            hot[slot as usize].waits_in_lane(),
            "slot {slot} leaves a lane in state {}",
            hot[slot as usize].state
        );
        device.queued -= 1;
        device.pending -= u32::from(hot[slot as usize].state == state::PENDING);
        let of_vm = &mut vms[hot[slot as usize].vm as usize];
        device.background.queued -= u32::from(of_vm.background);
        unlink(hot, of_vm, slot)
    }

    /// Counts a waiting unit as a holder if its reads hold payload memory: while a VM has holders,
    /// its read lane must stay open.
    #[inline]
    pub(crate) fn count_holder(&mut self, slot: u32) {
        let hot = &mut self.reqs.hot;
        let Hot {
            op,
            flags,
            chain_first,
            vm,
            ..
        } = hot[slot as usize];
        let holds = hot[chain_first as usize].flags & flag::HOLDS != 0;
        if op == Op::Read && holds && flags & flag::HOLDER == 0 {
            hot[slot as usize].flags |= flag::HOLDER;
            self.vms[vm as usize].holders += 1;
            self.memory.recheck_when_idle = true;
        }
    }

    /// Total time for which a lane's gate has been shut.
    pub(crate) fn shut_time(&self, vm: u32, lane: Lane) -> Nanos {
        self.vms[vm as usize].shut_time(lane, self.now)
    }

    /// Total time for which the dispatcher has deliberately left the device idle, until now.
    pub(crate) fn deliberate_time(&self) -> Nanos {
        let before = self.device.deliberate;
        match self.waiting_since {
            None => before,
            Some(since) => before + self.now.since(since),
        }
    }

    /// Adds a hold of the dispatcher's to the time for which both lanes of a VM were shut.
    pub(crate) fn charge_held(&mut self, vm: u32, held: Nanos) {
        for sum in &mut self.vms[vm as usize].shut_sum {
            // Sums wrap: a shut gate's has the time of its shutting subtracted
            // (`Vm::set_regulated`).
            *sum = sum.wrapping_add(held.0);
        }
    }

    /// Begins another wait of a request: time for which its lane was shut before does not count.
    #[inline(never)]
    pub(crate) fn begin_wait(&mut self, slot: u32) {
        let hot = &self.reqs.hot[slot as usize];
        let (shut, deliberate) = (
            self.shut_time(hot.vm, hot.op.lane()),
            self.deliberate_time(),
        );
        self.reqs.cold[slot as usize].begin_wait(shut, deliberate);
    }

    /// Returns whether a handle is of a VM that is served: added, and its removal has not begun.
    pub(crate) fn knows(&self, vm: VmId) -> bool {
        let known = self.vms.get(vm.index());
        known.is_some_and(|v| v.generation == vm.generation && v.life == Life::Live)
    }

    /// Iterates over VMs that are live or still leaving, in the order of their slots.
    pub(crate) fn present(&self) -> impl Iterator<Item = VmId> + '_ {
        let slots = 0..self.vms.len();
        slots
            .filter(|&i| self.vms[i].life != Life::Free)
            .map(|i| self.vms[i].id(i as u32))
    }

    /// Bytes of a single request that go now, at most `budget` or one block: parts end on physical
    /// blocks, so that none of them causes a read-modify-write of a block.
    pub(crate) fn part_len(&self, this: &Hot, budget: u32) -> u32 {
        debug_assert!(
            this.issued < this.len && budget > 0,
            "nothing goes of {} bytes, {} of them issued, with a budget of {budget}",
            this.len,
            this.issued
        );
        let left = this.len - this.issued;
        if left <= budget {
            return left;
        }
        let start = this.addr + this.issued as u64;
        let block = self.device.spec.physical_block as u64;
        let end = (start + budget as u64) / block * block;
        // A budget below one block: up to the next boundary, or nothing would ever go.
        let end = if end > start {
            end
        } else {
            (start / block + 1) * block
        };
        left.min((end - start) as u32)
    }

    /// Largest I/O of a unit in bytes; unlimited for operations that transfer no data.
    pub(crate) fn largest_io_of_unit(&self, unit: &Hot) -> u32 {
        let of_vm = self.vms[unit.vm as usize].largest_io;
        match unit.op {
            Op::Read | Op::Write => of_vm,
            Op::WriteZeroes if self.device.spec.zeroes_are_writes => of_vm,
            Op::WriteZeroes | Op::Discard | Op::Flush => u32::MAX,
        }
    }

    /// Sets the size in bytes up to which a VM's requests are merged, and above which they are
    /// split; clamped to what the device allows.
    pub(crate) fn bound_ios(&mut self, slot: usize, bytes: u32) {
        let (max_io, merge_limit) = (self.device.spec.max_io, self.merge_limit);
        let of_vm = &mut self.vms[slot];
        // At least 1: a bound of 0 would let nothing go.
        of_vm.largest_io = bytes.clamp(1, max_io);
        of_vm.merge_limit = merge_limit.min(of_vm.largest_io);
    }

    /// Makes all waiting units of VMs pending again, or all of them admitted, and settles how long
    /// they were held until now. Units of background processes are always admitted.
    pub(crate) fn set_all_waiting(&mut self, pending: bool, vms: &[VmId]) {
        let Queues {
            now,
            reqs: Requests { hot, cold, .. },
            vms: of_vms,
            device,
            ..
        } = self;
        // Counted anew below.
        device.pending = 0;
        for (hot, cold) in hot.iter_mut().zip(cold) {
            if hot.state == state::PENDING || hot.state == state::ADMITTED {
                let shut = of_vms[hot.vm as usize].shut_time(hot.op.lane(), *now);
                // Time held under the former policy must not look like a hold of the new one.
                cold.settle(*now, shut);
                let held = pending && !of_vms[hot.vm as usize].background;
                device.pending += u32::from(held);
                hot.state = if held {
                    state::PENDING
                } else {
                    state::ADMITTED
                };
            }
        }
        assert!(
            device.pending <= device.queued,
            "{} units wait for admission, and {} are in lanes",
            device.pending,
            device.queued
        );
        for vm in vms {
            let of_vm = &mut of_vms[vm.index()];
            for queue in &mut of_vm.lanes {
                let held = pending && !of_vm.background;
                queue.pending = if held { queue.head } else { NIL };
            }
        }
    }

    /// Returns whether a read that holds memory waits in its VM's lane: nothing may stop that one,
    /// as only its completion returns the memory.
    pub(crate) fn holder_waits(&self, vm: u32) -> bool {
        self.vms[vm as usize].holders > 0
    }
}

/// Returns whether two units belong in one lane: of one VM, and both reads or both not.
fn same_lane(hot: &[Hot], one: u32, other: u32) -> bool {
    let [one, other] = [one, other].map(|slot| &hot[slot as usize]);
    one.vm == other.vm && one.op.lane() == other.op.lane()
}

/// Writes a request into the free slot `slot`, as a unit at the end of its lane, where almost every
/// unit belongs: admitted, or `pending`. Returns its handle, and whether it is alone in the lane.
#[inline(always)]
pub(crate) fn enter_lane(
    reqs: &mut Requests,
    device: &mut DeviceStats,
    of_vm: &mut Vm,
    slot: u32,
    with: &NewRequest,
    pending: bool,
) -> (ReqId, bool) {
    debug_assert!(
        with.op != Op::Flush,
        "a flush waits in its disk's queue, not in a lane"
    );
    let queue = &mut of_vm.lanes[with.op.lane().index()];
    let last = core::mem::replace(&mut queue.tail, slot);
    let mut state = state::ADMITTED;
    if pending {
        state = state::PENDING;
        device.pending += 1;
        if queue.pending == NIL {
            queue.pending = slot;
        }
    }
    if last == NIL {
        queue.head = slot;
    } else {
        reqs.hot[last as usize].next = slot;
    }
    device.queued += 1;
    if of_vm.background {
        device.background.queued += 1;
    }
    (reqs.fill(slot, with, state, last), last == NIL)
}

/// Takes a unit out of its lane; returns the unit that stood behind it. A first unit's `prev` is
/// left stale: with many VMs the new first unit's cache line is cold, and a store that waits for it
/// holds up all later ones.
#[inline(always)]
pub(crate) fn unlink(hot: &mut [Hot], of_vm: &mut Vm, slot: u32) -> u32 {
    debug_assert!(
        of_vm.lanes[hot[slot as usize].op.lane().index()].head != NIL,
        "slot {slot} leaves a lane that is empty"
    );
    let Hot {
        next,
        prev,
        op,
        flags,
        ..
    } = hot[slot as usize];
    if flags & flag::HOLDER != 0 {
        hot[slot as usize].flags &= !flag::HOLDER;
        of_vm.holders -= 1;
    }
    let queue = &mut of_vm.lanes[op.lane().index()];
    if queue.pending == slot {
        // Pending units stand behind all admitted ones, so the next in the lane is the next
        // pending.
        queue.pending = next;
    }
    let first = queue.head == slot;
    if first {
        queue.head = next;
    } else {
        hot[prev as usize].next = next;
    }
    if next == NIL {
        queue.tail = if first { NIL } else { prev };
    } else if !first {
        hot[next as usize].prev = prev;
    }
    next
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slots::LaneQueue;
    use tidegate_base::request::Op;

    /// Queues of one VM, without requests.
    fn queues() -> Queues {
        let device = DeviceSpec {
            depth: 4,
            physical_block: 4096,
            max_io: 1 << 20,
            zeroes_are_writes: false,
            positioning: Nanos::ZERO,
            bytes_per_s: 0,
        };
        let mut queues = Queues::new(device, 8, 128 << 10);
        queues.vms.push(Vm {
            life: Life::Live,
            ..Vm::vacant()
        });
        queues
    }

    /// Puts a read of 4 KiB at the end of its lane. Returns whether it stands there alone.
    fn enter(queues: &mut Queues, pending: bool) -> bool {
        let slot = queues.reqs.next_slot();
        let with = NewRequest {
            addr: u64::from(slot) * 8192,
            len: 4096,
            op: Op::Read,
            flags: 0,
            vm: 0,
            client: 0,
            disk: 0,
            tag: 0,
            since: Nanos::ZERO,
            shut: Nanos::ZERO,
            deliberate: Nanos::ZERO,
            own_memory: false,
            judged: false,
        };
        let Queues {
            reqs, device, vms, ..
        } = queues;
        enter_lane(reqs, device, &mut vms[0], slot, &with, pending).1
    }

    fn lane(queues: &Queues) -> Vec<u32> {
        let LaneQueue { head, .. } = queues.vms[0].lanes[Lane::Read.index()];
        let mut slots = Vec::new();
        let mut at = head;
        while at != NIL {
            slots.push(at);
            at = queues.reqs.hot[at as usize].next;
        }
        slots
    }

    #[test]
    fn units_stand_in_their_lane_where_they_were_put() {
        let mut queues = queues();
        assert!(enter(&mut queues, false));
        assert!(!enter(&mut queues, true));
        for next in [1, 0] {
            let slot = queues.reqs.next_slot();
            assert!(!enter(&mut queues, true));
            queues.unlink(slot);
            queues.reqs.hot[slot as usize].state = state::ADMITTED;
            queues.link(slot, next);
        }
        assert_eq!(lane(&queues), [3, 0, 2, 1]);
        assert_eq!((queues.device.queued, queues.device.pending), (4, 1));
        assert_eq!(queues.unlink(0), 2);
        assert_eq!(queues.unlink(3), 2);
        assert_eq!(lane(&queues), [2, 1]);
        assert_eq!(queues.vms[0].lanes[Lane::Read.index()].pending, 1);
        assert_eq!((queues.device.queued, queues.device.pending), (2, 1));
        assert_eq!((queues.unlink(1), queues.unlink(2)), (NIL, NIL));
        assert_eq!((queues.device.queued, queues.device.pending), (0, 0));
    }

    #[test]
    fn a_unit_that_holds_memory_is_counted_while_it_waits() {
        let mut queues = queues();
        assert!(enter(&mut queues, false));
        queues.reqs.hot[0].flags |= flag::HOLDS;
        queues.count_holder(0);
        queues.count_holder(0);
        assert!(queues.holder_waits(0));
        queues.unlink(0);
        assert!(!queues.holder_waits(0));
    }

    #[test]
    fn parts_of_a_request_end_on_physical_blocks() {
        let mut queues = queues();
        assert!(enter(&mut queues, false));
        queues.reqs.hot[0] = Hot {
            addr: 1024,
            len: 64 << 10,
            ..queues.reqs.hot[0]
        };
        let unit = queues.reqs.hot[0];
        assert_eq!(queues.part_len(&unit, 64 << 10), 64 << 10);
        assert_eq!(queues.part_len(&unit, 10_000), 8192 - 1024);
        // A budget below one block goes up to the next boundary.
        assert_eq!(queues.part_len(&unit, 100), 4096 - 1024);
    }

    #[test]
    fn time_does_not_run_backwards() {
        let mut queues = queues();
        queues.advance(Nanos(5));
        queues.advance(Nanos(3));
        assert_eq!(queues.now, Nanos(5));
        queues.waiting_since = Some(Nanos(2));
        assert_eq!(queues.deliberate_time(), Nanos(3));
    }
}
