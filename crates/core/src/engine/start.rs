//! The device has room: what goes next, and how much of it.

use super::company::Head;
use super::{Engine, queue};
use crate::facts::{Cold, Facts, Hot, NIL, flag, moved, state};
use crate::roles::{Event, Interests, Pick, Stage};
use crate::watch::meter::Kind;
use tidegate_base::request::{DeviceIo, IoId, Lane, Op};
use tidegate_base::time::Nanos;

impl Engine {
    /// What the device does next, if anything; to be called until `None` after every batch of
    /// events. The I/O is in flight from here until its
    /// [`handle_completion`](Engine::handle_completion).
    #[inline]
    pub fn poll_dispatch(&mut self, now: Nanos) -> Option<DeviceIo> {
        self.advance(now);
        if self.next_timer() <= self.facts.now {
            self.handle_timeout(now);
        }
        self.pick_at = Nanos::MAX;
        // With a busy device every other call ends here: the driver asks until `None`.
        if self.facts.device.in_flight >= self.limit {
            return self.beyond_limit();
        }
        let io = self.next_dispatch();
        if io.is_none()
            && core::mem::take(&mut self.told_of_memory)
            && self.next_timer() <= self.facts.now
        {
            return self.dispatch_again(now);
        }
        let lacking = (self.starved > 0 && self.asks_starved) || !self.shelf.is_empty();
        if io.is_none() && lacking && self.facts.device.in_flight + self.uncounted() == 0 {
            return self.dispatch_starved();
        }
        io
    }

    /// The device is idle while reads lack memory: nothing that is in flight will give any back. Those that
    /// wait in vain are asked again. Where what holds memory waits behind them (a policy swap may have put
    /// a read that has begun back behind an admission that they use up), one of them goes beyond the bounds.
    ///
    /// A look at all VMs: it is repeated only when another one has come to lack memory, or a read that
    /// holds some has come back.
    #[cold]
    fn dispatch_starved(&mut self) -> Option<DeviceIo> {
        self.asks_starved = false;
        let mut overdraws = !self.shelf.is_empty();
        self.unshelve_all();
        for vm in 0..self.facts.vms.len() as u32 {
            if self.waits_in_vain(vm) {
                overdraws |= self.holder_waits(vm);
                self.ask_for_memory_again(vm);
            }
        }
        self.told_of_memory = false;
        self.overdraws = overdraws;
        let io = self.next_dispatch();
        self.overdraws = false;
        io
    }

    /// Roles heard meanwhile that reads lack memory, and something has become due by that: it is done at once.
    #[cold]
    fn dispatch_again(&mut self, now: Nanos) -> Option<DeviceIo> {
        self.poll_dispatch(now)
    }

    /// A flush waits for no data, so a depth that is kept for data's sake is not kept for it.
    #[inline]
    fn beyond_limit(&mut self) -> Option<DeviceIo> {
        if self.depth_control.is_some() {
            self.count_full(true);
        }
        let full = self.facts.device.in_flight >= self.config.device.depth;
        match full || self.express.is_empty() || self.express_went_last {
            true => None,
            false => self.start_flush(),
        }
    }

    fn next_dispatch(&mut self) -> Option<DeviceIo> {
        // A flush waits for no data, but never takes two turns in a row from them.
        if !self.express.is_empty()
            && !self.express_went_last
            && let Some(io) = self.start_flush()
        {
            return Some(io);
        }
        if self.watch.is_some() && self.hold() {
            self.keeps_place = false;
            return self.start_nothing();
        }
        if self.sharing.is_some() && self.keeps_place() {
            return self.start_nothing();
        }
        let io = self.pick();
        if io.is_none() {
            return self.start_nothing();
        }
        self.express_went_last = false;
        io
    }

    /// No data goes now: a flush may.
    #[inline(never)]
    fn start_nothing(&mut self) -> Option<DeviceIo> {
        if self.depth_control.is_some() {
            // A place that is kept is taken.
            self.count_full(self.keeps_place);
        }
        self.express_went_last = false;
        match self.express.is_empty() {
            true => None,
            false => self.start_flush(),
        }
    }

    /// Time the dispatcher has left room unused on purpose, until now.
    pub(super) fn deliberate_time(&self) -> Nanos {
        let before = self.facts.device.deliberate;
        match self.waiting_since {
            None => before,
            Some(since) => before + self.facts.now.since(since),
        }
    }

    fn pick(&mut self) -> Option<DeviceIo> {
        if self.waiting_since.is_some() {
            self.facts.device.deliberate = self.deliberate_time();
            self.waiting_since = None;
        }
        loop {
            if self.facts.device.queued == 0 {
                break;
            }
            match self.roles.dispatcher.pick(&self.facts) {
                Pick::Start { head, max, held } => {
                    let hot = &self.facts.hot[head.index()];
                    assert!(
                        hot.generation == head.generation && hot.state == state::ADMITTED,
                        "a dispatcher may only start a unit it was given"
                    );
                    debug_assert!(
                        self.facts
                            .gate_open(self.facts.vm_at(hot.vm as usize), hot.op.lane()),
                        "a shut lane's unit was picked"
                    );
                    if self.any_hung && self.park(head.index) {
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
                    self.waiting_since = Some(self.facts.now);
                    self.pick_at = until;
                    break;
                }
                Pick::Idle(until) => {
                    self.pick_at = until;
                    break;
                }
            }
        }
        self.release(false);
        None
    }

    /// Starts a unit, or as much of it as may go at once. `None` when it had to be split into
    /// smaller units first: then the dispatcher is asked again.
    fn start_unit(&mut self, unit: u32, max: u32, held: Nanos) -> Option<DeviceIo> {
        let this = &self.facts.hot[unit as usize];
        let (vm, unit_len, unit_reqs) = (this.vm, this.unit_len, this.unit_reqs);
        let budget = max.min(self.largest_io(this)).max(1);
        let len = match unit_reqs {
            1 => self.part_len(this, budget.min(self.shared_part(vm, this.op, unit_len))),
            _ => unit_len,
        };
        if held > Nanos::ZERO {
            self.charge_held(vm, held);
        }
        if unit_reqs > 1 && unit_len > budget {
            let whole = self.fitting(unit, budget).max(1);
            self.split_unit(unit, whole);
            return None;
        }
        if !self.feed(unit) {
            return None;
        }
        if !self.is_followed(unit) || len < self.left_of(unit) {
            return Some(self.start_io(unit, len, None));
        }
        let head = self.gather(unit, budget);
        Some(self.start_io(unit, self.left_of(unit), head))
    }

    fn largest_io(&self, unit: &Hot) -> u32 {
        let of_vm = self.facts.vms[unit.vm as usize].largest_io;
        match unit.op {
            Op::Read | Op::Write => of_vm,
            Op::WriteZeroes if self.config.device.zeroes_are_writes => of_vm,
            Op::WriteZeroes | Op::Discard | Op::Flush => u32::MAX,
        }
    }

    /// How much of a single request goes now: parts end on physical blocks, so that none of
    /// them makes the device read a block to write a piece of it.
    fn part_len(&self, this: &Hot, budget: u32) -> u32 {
        let left = this.len - this.issued;
        if left <= budget {
            return left;
        }
        let start = this.addr + this.issued as u64;
        let block = self.config.device.physical_block as u64;
        let end = (start + budget as u64) / block * block;
        // A budget below one block: up to the next boundary, or nothing would ever go.
        let end = if end > start {
            end
        } else {
            (start / block + 1) * block
        };
        left.min((end - start) as u32)
    }

    /// Starts the first `len` bytes that are left of a unit, and with them, where it is all of it, the
    /// head of what continues it.
    fn start_io(&mut self, unit: u32, mut len: u32, head: Option<Head>) -> DeviceIo {
        // It waits on purpose no more: all such time is in the device's sum.
        let (now, deliberate) = (self.facts.now, self.facts.device.deliberate);
        let held = self.release(true);
        let Facts {
            hot,
            cold,
            vms,
            device,
            ..
        } = &mut self.facts;
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
            behind: if self.last_vm == vm {
                NIL
            } else {
                self.last_vm
            },
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
            queue::unlink(hot, of_vm, unit);
            lane_left = of_vm.lanes[op.lane().index()].admitted_head() == NIL;
            device.queued -= 1;
            device.background.queued -= u32::from(of_vm.background);
        } else {
            self.facts.ledgers[vm as usize].at_once().split += 1;
            self.count_holder(unit);
        }
        if let Some(Head { slot, bytes }) = head {
            let (ops, of_request) = self.take_head(&moment, last, slot, bytes);
            (first_ops, first_bytes) = (first_ops + ops, first_bytes + of_request);
            (reqs, len) = (reqs + 1, len + bytes);
        }
        let of_disk = &self.disks[disk as usize];
        let io = DeviceIo {
            id: self.next_io(),
            vm: vm_id,
            disk: of_disk.id(disk),
            op,
            addr,
            offset: addr - of_disk.spec.base,
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
        if self.hears(Interests::STARTED) {
            self.emit_started(io.id);
        }
        if whole && (lane_left || !self.ears.by_lane) {
            self.roles.dispatcher.remove(&self.facts, id);
        }
        if (whole || first_offset == 0) && op == Op::Read {
            // Reads that were shelved for it may be asked again. One that begins to go in parts has just got memory
            // for all of them, and with that the budget has forgotten that its VM waits for some.
            self.unshelve(vm);
        }
        if let Some(Head { slot, .. }) = head
            && self.hears(Interests::ADVANCED)
        {
            self.emit(&Event::Advanced(self.facts.req_id(slot)));
        }
        if self.stage == Stage::Dispatch {
            // What was spent may hold back the other lane too: the total is common to both.
            for lane in Lane::ALL {
                self.ask_gate(vm, lane);
            }
        }
        io
    }

    /// The first bytes of a request go behind the request `last`; the rest of it waits on.
    #[inline(never)]
    fn take_head(&mut self, moment: &Moment, last: u32, slot: u32, bytes: u32) -> (u32, u64) {
        let Facts {
            hot, cold, ledgers, ..
        } = &mut self.facts;
        hot[last as usize].chain_next = slot;
        let this = &mut hot[slot as usize];
        let counts = ledgers[this.vm as usize].at_once();
        counts.merged += 1;
        counts.split += 1;
        let first = moment.hand_out(this, &mut cold[slot as usize], bytes, false);
        // A read got memory for all of it, and its rest waits with that.
        self.count_holder(slot);
        first
    }

    /// The dispatcher's own holding back counts as the lanes' being shut.
    fn charge_held(&mut self, vm: u32, held: Nanos) {
        for sum in &mut self.facts.vms[vm as usize].shut_sum {
            *sum = sum.wrapping_add(held.0);
        }
    }

    fn start_flush(&mut self) -> Option<DeviceIo> {
        let disk_slot = if self.any_hung {
            self.next_express()?
        } else {
            self.express.pop_front()?
        };
        let disk = &mut self.disks[disk_slot as usize];
        let (first, reqs) = (disk.flush_first, disk.flushes);
        disk.flush_first = NIL;
        disk.flush_last = NIL;
        disk.flushes = 0;
        disk.flushing = true;
        let (vm, disk_id) = (disk.vm, disk.id(disk_slot));
        let mut slot = first;
        for _ in 0..reqs {
            let hot = &mut self.facts.hot[slot as usize];
            let cold = &mut self.facts.cold[slot as usize];
            hot.state = state::STARTED;
            // Nothing holds a flush back but the device: its lane's gate does not matter.
            cold.open(cold.arrived, Nanos::ZERO, Nanos::ZERO);
            cold.part_started(self.facts.now);
            slot = hot.chain_next;
        }
        self.facts.vms[vm as usize].waiting -= reqs;
        self.express_went_last = true;
        let io = DeviceIo {
            id: self.next_io(),
            vm: self.facts.vm_at(vm as usize),
            disk: disk_id,
            op: Op::Flush,
            addr: self.facts.device.last_addr,
            offset: 0,
            len: 0,
            fua: false,
            keep_allocated: false,
            first_ops: reqs,
            first_bytes: 0,
            part_of: 0,
            arrived: self.facts.cold[first as usize].arrived,
        };
        self.facts.vms[vm as usize].in_flight += 1;
        self.enter_flight(&io, first, 0, reqs, false);
        if self.hears(Interests::STARTED) {
            self.emit_started(io.id);
        }
        if self.any_hung {
            self.note_probe(&io);
        }
        Some(io)
    }

    /// What the next I/O in flight will be called.
    fn next_io(&self) -> IoId {
        let index = self.free_io;
        assert!(
            index != NIL,
            "in flight is below the depth, so a slot is free"
        );
        IoId {
            index,
            generation: self.in_flight[index as usize].generation,
        }
    }

    /// The one copy of an I/O that is kept: roles are shown this one.
    fn enter_flight(&mut self, io: &DeviceIo, first: u32, offset: u32, reqs: u32, more: bool) {
        let kind = match &mut self.watch {
            None => Kind::OTHER,
            Some(watch) => watch.started(self.facts.now, io, &self.config.device),
        };
        if self.facts.estimator.is_some() {
            let bytes = moved(&self.facts, io.op, io.len);
            let deepest = self.limit.min(self.roles.dispatcher.depth());
            if let Some(estimator) = &mut self.facts.estimator {
                estimator.started(self.facts.now, io, bytes, deepest);
            }
        }
        let background = self.facts.vms[io.vm.index()].background;
        let slot = &mut self.in_flight[io.id.index()];
        self.free_io = slot.next_free;
        slot.io = *io;
        slot.live = true;
        slot.first = first;
        slot.first_offset = offset;
        slot.reqs = reqs;
        slot.part = more && !background;
        slot.counted = true;
        slot.started = self.facts.now;
        slot.kind = kind;
        let device = &mut self.facts.device;
        if device.in_flight == 0 && self.facts.now > device.last_end {
            let idle = self.facts.now.since(device.last_end);
            device.idle += idle;
            if let Some(control) = &mut self.depth_control {
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

    #[inline]
    fn emit_started(&mut self, io: IoId) {
        let event = Event::Started(&self.in_flight[io.index()].io);
        self.ears.tell(&mut self.roles, &self.facts, &event);
        self.follow_up();
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
