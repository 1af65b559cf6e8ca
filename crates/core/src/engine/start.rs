//! The device has room: what goes next, and how much of it.

use super::Engine;
use super::active::LeftBehind;
use super::company::Head;
use crate::facts::{Cold, Facts, Hot, NIL, Queues, Requests, flag, moved, state, unlink};
use crate::roles::{Interests, Pick};
use crate::watch::meter::Kind;
use tidegate_base::request::{DeviceIo, Op};
use tidegate_base::time::Nanos;

impl Engine {
    /// What the device does next, if anything; to be called until `None` after every batch of
    /// events. The I/O is in flight from here until its
    /// [`handle_completion`](Engine::handle_completion).
    #[inline]
    pub fn poll_dispatch(&mut self, now: Nanos) -> Option<DeviceIo> {
        self.facts.queues.advance(now);
        if self.active.next_timer(&self.facts) <= self.facts.queues.now {
            self.handle_timeout(now);
        }
        self.facts.pick_at = Nanos::MAX;
        // With a busy device every other call ends here: the driver asks until `None`.
        if self.facts.queues.device.in_flight >= self.control.limit {
            return self.beyond_limit();
        }
        let io = self.next_dispatch();
        if io.is_none()
            && core::mem::take(&mut self.facts.queues.memory.told)
            && self.active.next_timer(&self.facts) <= self.facts.queues.now
        {
            // Roles heard meanwhile that reads lack memory, and something has become due by that.
            return self.poll_dispatch(now);
        }
        let lacking = (self.facts.queues.memory.starved > 0 && self.facts.queues.memory.asks)
            || !self.facts.queues.memory.shelf.is_empty();
        if io.is_none()
            && lacking
            && self.facts.queues.device.in_flight + self.device().uncounted() == 0
        {
            return self.dispatch_starved();
        }
        io
    }

    /// The device is idle while reads lack memory: nothing that is in flight will give any back.
    /// Those that wait in vain are asked again. Where what holds memory waits behind them (a policy
    /// swap may have put a read that has begun back behind an admission that they use up), one of
    /// them goes beyond the bounds.
    ///
    /// A look at all VMs: it is repeated only when another one has come to lack memory, or a read
    /// that holds some has come back.
    #[cold]
    fn dispatch_starved(&mut self) -> Option<DeviceIo> {
        self.facts.queues.memory.asks = false;
        let mut overdraws = !self.facts.queues.memory.shelf.is_empty();
        self.active.unshelve_all(&mut self.facts);
        for vm in 0..self.facts.queues.vms.len() as u32 {
            if self.intake.waits_in_vain(&self.facts, vm) {
                overdraws |= self.facts.queues.holder_waits(vm);
                self.intake
                    .ask_for_memory_again(&mut self.facts, &mut self.active, vm);
            }
        }
        self.facts.queues.memory.told = false;
        self.facts.queues.memory.overdraws = overdraws;
        let io = self.next_dispatch();
        self.facts.queues.memory.overdraws = false;
        io
    }

    /// A flush waits for no data, so a depth that is kept for data's sake is not kept for it.
    #[inline]
    fn beyond_limit(&mut self) -> Option<DeviceIo> {
        if self.control.depth_control.is_some() {
            self.control.count_full(&mut self.facts, true);
        }
        let full = self.facts.queues.device.in_flight >= self.config.device.depth;
        match full || !self.flushes.may_go() {
            true => None,
            false => self.start_flush(),
        }
    }

    fn next_dispatch(&mut self) -> Option<DeviceIo> {
        // A flush waits for no data, but never takes two turns in a row from them.
        if self.flushes.may_go()
            && let Some(io) = self.start_flush()
        {
            return Some(io);
        }
        if self.control.watch.is_some() && self.control.hold(&mut self.facts) {
            self.control.keeps_place = false;
            return self.start_nothing();
        }
        if self.control.sharing.is_some() && self.control.keeps_place(&mut self.facts) {
            return self.start_nothing();
        }
        let io = self.pick();
        if io.is_none() {
            return self.start_nothing();
        }
        self.flushes.data_had_turn();
        io
    }

    /// No data goes now: a flush may.
    #[inline(never)]
    fn start_nothing(&mut self) -> Option<DeviceIo> {
        if self.control.depth_control.is_some() {
            // A place that is kept is taken.
            self.control
                .count_full(&mut self.facts, self.control.keeps_place);
        }
        self.flushes.data_had_turn();
        match self.flushes.is_empty() {
            true => None,
            false => self.start_flush(),
        }
    }

    fn pick(&mut self) -> Option<DeviceIo> {
        if self.facts.queues.waiting_since.is_some() {
            self.facts.queues.device.deliberate = self.facts.queues.deliberate_time();
            self.facts.queues.waiting_since = None;
        }
        loop {
            if self.facts.queues.device.queued == 0 {
                break;
            }
            match self.active.roles.dispatcher.pick(&self.facts) {
                Pick::Start { head, max, held } => {
                    let hot = &self.facts.queues.reqs.hot[head.index()];
                    assert!(
                        hot.generation == head.generation && hot.state == state::ADMITTED,
                        "a dispatcher may only start a unit it was given"
                    );
                    debug_assert!(
                        self.facts
                            .gate_open(self.facts.vm_at(hot.vm as usize), hot.op.lane()),
                        "a shut lane's unit was picked"
                    );
                    if let Some(hung) = &mut self.hung
                        && self.any_hung
                        && hung.park(&mut self.facts, &mut self.active, head.index)
                    {
                        continue;
                    }
                    if let Some(io) = self.start_unit(head.index, max, held) {
                        if self.any_hung {
                            self.note_probe(&io);
                        }
                        return Some(io);
                    }
                }
                Pick::Wait(until) => {
                    self.facts.queues.waiting_since = Some(self.facts.queues.now);
                    self.facts.pick_at = until;
                    break;
                }
                Pick::Idle(until) => {
                    self.facts.pick_at = until;
                    break;
                }
            }
        }
        self.control.release(&mut self.facts, false);
        None
    }

    /// Starts a unit, or as much of it as may go at once. `None` when it had to be split into
    /// smaller units first: then the dispatcher is asked again.
    fn start_unit(&mut self, unit: u32, max: u32, held: Nanos) -> Option<DeviceIo> {
        let this = &self.facts.queues.reqs.hot[unit as usize];
        let (vm, unit_len, unit_reqs) = (this.vm, this.unit_len, this.unit_reqs);
        let budget = max.min(self.facts.queues.largest_io_of_unit(this)).max(1);
        let len = match unit_reqs {
            1 => self.facts.queues.part_len(
                this,
                budget.min(self.control.shared_part(&self.facts, vm, this.op, unit_len)),
            ),
            _ => unit_len,
        };
        if held > Nanos::ZERO {
            self.facts.queues.charge_held(vm, held);
        }
        if unit_reqs > 1 && unit_len > budget {
            let whole = self.facts.queues.reqs.fitting(unit, budget).max(1);
            self.active.split_unit(&mut self.facts, unit, whole);
            return None;
        }
        if !self.intake.feed(&mut self.facts, &mut self.active, unit) {
            return None;
        }
        if !self.active.is_followed(&self.facts, unit) || len < self.facts.queues.reqs.left_of(unit)
        {
            return Some(self.start_io(unit, len, None));
        }
        let head = self.gather(unit, budget);
        Some(self.start_io(unit, self.facts.queues.reqs.left_of(unit), head))
    }

    /// Starts the first `len` bytes that are left of a unit, and with them, where it is all of it,
    /// the head of what continues it.
    fn start_io(&mut self, unit: u32, mut len: u32, head: Option<Head>) -> DeviceIo {
        // It waits on purpose no more: all such time is in the device's sum.
        let (now, deliberate) = (self.facts.queues.now, self.facts.queues.device.deliberate);
        let held = self.control.release(&mut self.facts, true);
        let Queues {
            reqs: Requests { hot, cold, .. },
            vms,
            device,
            ..
        } = &mut self.facts.queues;
        let this = &mut hot[unit as usize];
        let (vm, op, flags, unit_len, mut reqs) =
            (this.vm, this.op, this.flags, this.unit_len, this.unit_reqs);
        let (first, last, id) = (this.chain_first, this.chain_last, this.id(unit));
        let arrived = cold[unit as usize].arrived;
        let of_vm = &mut vms[vm as usize];
        let moment = Moment {
            now,
            shut: of_vm.shut_time(op.lane(), now),
            deliberate,
            held,
            behind: Some(self.last_vm).filter(|&last| last != vm).unwrap_or(NIL),
        };
        let (first_offset, addr, disk, (mut first_ops, mut first_bytes));
        if reqs == 1 {
            let account = &mut cold[unit as usize];
            (first_offset, disk) = (this.issued, account.disk);
            addr = this.addr + first_offset as u64;
            (first_ops, first_bytes) = moment.hand_out(this, account, len, false);
        } else {
            let begins = &hot[first as usize];
            (first_offset, disk) = (begins.issued, cold[first as usize].disk);
            addr = begins.addr + first_offset as u64;
            (first_ops, first_bytes) = moment.hand_out_all(hot, cold, unit);
        }
        let whole = first_offset + len == unit_len;
        of_vm.in_flight += 1;
        let vm_id = of_vm.id(vm);
        let mut lane_left = false;
        if whole {
            of_vm.waiting -= reqs;
            unlink(hot, of_vm, unit);
            lane_left = of_vm.lanes[op.lane().index()].admitted_head() == NIL;
            device.queued -= 1;
            device.background.queued -= u32::from(of_vm.background);
        } else {
            self.facts.ledgers[vm as usize].at_once().split += 1;
            self.facts.queues.count_holder(unit);
        }
        if let Some(Head { slot, bytes }) = head {
            let (ops, of_request) = moment.take_head(&mut self.facts, last, slot, bytes);
            (first_ops, first_bytes) = (first_ops + ops, first_bytes + of_request);
            (reqs, len) = (reqs + 1, len + bytes);
        }
        let base = self.directory.disk_at(disk).spec.base;
        let io = DeviceIo {
            id: self.flights.next_id(),
            vm: vm_id,
            disk: self.directory.disk_id(disk),
            op,
            addr,
            offset: addr - base,
            len,
            fua: flags & flag::FUA != 0,
            keep_allocated: flags & flag::KEEP_ALLOCATED != 0,
            first_ops,
            first_bytes,
            part_of: match reqs == 1 && flags & flag::ALONE == 0 {
                true => unit_len,
                false => len,
            },
            arrived,
        };
        self.enter_flight(&io, first, first_offset, reqs, !whole);
        if self.active.hears(Interests::STARTED) {
            self.active.emit_started(&mut self.facts, &io);
        }
        let left = LeftBehind {
            unit: id,
            op,
            vm,
            whole,
            begins: first_offset == 0,
            lane_left,
            advanced: head.map(|head| head.slot),
        };
        self.active.left_behind(&mut self.facts, &left);
        io
    }

    fn start_flush(&mut self) -> Option<DeviceIo> {
        let hung = self.hung.as_deref();
        let may = |disk| hung.is_none_or(|hung| !hung.keeps_waiting(disk));
        let disk = self.flushes.next_disk(may)?;
        let (first, reqs) = self.flushes.start(disk);
        let vm = self.directory.disk_at(disk).vm;
        let disk_id = self.directory.disk_id(disk);
        let mut slot = first;
        for _ in 0..reqs {
            let hot = &mut self.facts.queues.reqs.hot[slot as usize];
            let cold = &mut self.facts.queues.reqs.cold[slot as usize];
            hot.state = state::STARTED;
            // Nothing holds a flush back but the device: its lane's gate does not matter.
            cold.open(cold.arrived, Nanos::ZERO, Nanos::ZERO);
            cold.part_started(self.facts.queues.now);
            slot = hot.chain_next;
        }
        self.facts.queues.vms[vm as usize].waiting -= reqs;
        let io = DeviceIo {
            id: self.flights.next_id(),
            vm: self.facts.vm_at(vm as usize),
            disk: disk_id,
            op: Op::Flush,
            addr: self.facts.queues.device.last_addr,
            offset: 0,
            len: 0,
            fua: false,
            keep_allocated: false,
            first_ops: reqs,
            first_bytes: 0,
            part_of: 0,
            arrived: self.facts.queues.reqs.cold[first as usize].arrived,
        };
        self.facts.queues.vms[vm as usize].in_flight += 1;
        self.enter_flight(&io, first, 0, reqs, false);
        if self.active.hears(Interests::STARTED) {
            self.active.emit_started(&mut self.facts, &io);
        }
        if self.any_hung {
            self.note_probe(&io);
        }
        Some(io)
    }

    /// The one copy of an I/O that is kept: roles are shown this one.
    fn enter_flight(&mut self, io: &DeviceIo, first: u32, offset: u32, reqs: u32, more: bool) {
        let kind = match &mut self.control.watch {
            None => Kind::OTHER,
            Some(watch) => watch.started(self.facts.queues.now, io, &self.config.device),
        };
        if self.facts.estimator.is_some() {
            let bytes = moved(&self.facts, io.op, io.len);
            let deepest = self.control.limit.min(self.active.roles.dispatcher.depth());
            if let Some(estimator) = &mut self.facts.estimator {
                estimator.started(self.facts.queues.now, io, bytes, deepest);
            }
        }
        let background = self.facts.queues.vms[io.vm.index()].background;
        let slot = self.flights.enter(io.id);
        slot.io = *io;
        slot.first = first;
        slot.first_offset = offset;
        slot.reqs = reqs;
        slot.part = more && !background;
        slot.counted = true;
        slot.started = self.facts.queues.now;
        slot.kind = kind;
        let device = &mut self.facts.queues.device;
        if device.in_flight == 0 && self.facts.queues.now > device.last_end {
            let idle = self.facts.queues.now.since(device.last_end);
            device.idle += idle;
            if let Some(control) = &mut self.control.depth_control {
                control.was_idle(idle);
            }
        }
        device.in_flight += 1;
        device.parts.in_flight += u32::from(more && !background);
        device.background.in_flight += u32::from(background);
        device.started += 1;
        device.last_addr = io.addr + io.len as u64;
        self.last_vm = io.vm.index;
    }
}

/// What is the same for all requests of an I/O that starts.
struct Moment {
    now: Nanos,
    /// What their lane and the device have seen of being held back in all.
    shut: Nanos,
    deliberate: Nanos,
    /// How long a learnt cap has held this I/O back: there it would have waited with the device.
    held: Nanos,
    /// The VM served last; `NIL`: their own.
    behind: u32,
}

impl Moment {
    /// The first bytes of a request go behind the request `last`; the rest of it waits on.
    #[inline(never)]
    fn take_head(&self, facts: &mut Facts, last: u32, slot: u32, bytes: u32) -> (u32, u64) {
        let Facts {
            queues, ledgers, ..
        } = facts;
        let Requests { hot, cold, .. } = &mut queues.reqs;
        hot[last as usize].chain_next = slot;
        let this = &mut hot[slot as usize];
        let counts = ledgers[this.vm as usize].at_once();
        counts.merged += 1;
        counts.split += 1;
        let first = self.hand_out(this, &mut cold[slot as usize], bytes, false);
        // A read got memory for all of it, and its rest waits with that.
        facts.queues.count_holder(slot);
        first
    }

    /// Marks `len` bytes of a request as handed out and settles its waiting. Returns whether
    /// it is served for the first time, as a count, and its bytes if so.
    fn hand_out(&self, hot: &mut Hot, cold: &mut Cold, len: u32, passenger: bool) -> (u32, u64) {
        hot.issued += len;
        if hot.issued == hot.len {
            hot.state = state::STARTED;
        }
        if cold.outstanding == 0 {
            cold.end_wait(self.now, passenger, self.shut, self.deliberate);
            let since = match self.held {
                Nanos::ZERO => self.now,
                held => cold.with_device_since(self.now, held),
            };
            cold.part_started(since);
        } else {
            cold.part_started(self.now);
        }
        if hot.flags & flag::CHARGED != 0 {
            return (0, 0);
        }
        hot.flags |= flag::CHARGED;
        cold.behind = self.behind;
        (1, hot.len as u64)
    }

    /// The same for all of a unit's requests, as far as they have not gone.
    fn hand_out_all(&self, hot: &mut [Hot], cold: &mut [Cold], unit: u32) -> (u32, u64) {
        let (reqs, mut slot) = (hot[unit as usize].unit_reqs, hot[unit as usize].chain_first);
        let (mut first_ops, mut first_bytes) = (0, 0);
        for _ in 0..reqs {
            let (this, account) = (&mut hot[slot as usize], &mut cold[slot as usize]);
            let (left, passenger) = (this.len - this.issued, this.state == state::PASSENGER);
            let (ops, bytes) = self.hand_out(this, account, left, passenger);
            first_ops += ops;
            first_bytes += bytes;
            slot = this.chain_next;
        }
        (first_ops, first_bytes)
    }
}
