//! The device has room: what goes next, and how much of it.

use super::Engine;
use super::active::LeftBehind;
use super::company::Head;
use crate::facts::{Cold, Facts, Hot, NIL, Queues, Requests, flag, state, unlink};
use crate::roles::{Interests, Pick};
use crate::watch::meter::Kind;
use tidegate_base::pace::FirstServed;
use tidegate_base::request::{DeviceIo, Op, ReqId, VmId};
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
            return self.beyond_limit().map(|slot| self.flights.at(slot).io);
        }
        // Where nothing at all waits, nobody needs to be asked.
        let nothing_waits = self.facts.queues.device.queued == 0
            && self.facts.queues.waiting_since.is_none()
            && self.flushes.is_empty()
            && !self.control.is_steered();
        let started = if nothing_waits {
            // Data could have had this turn, so the next flush need not wait for any.
            self.flushes.data_had_turn();
            None
        } else {
            self.next_dispatch()
        };
        if started.is_none()
            && core::mem::take(&mut self.facts.queues.memory.told)
            && self.active.next_timer(&self.facts) <= self.facts.queues.now
        {
            // Roles heard meanwhile that reads lack memory, and something has become due by that.
            return self.poll_dispatch(now);
        }
        let lacking = (self.facts.queues.memory.starved > 0 && self.facts.queues.memory.asks)
            || !self.facts.queues.memory.shelf.is_empty();
        if started.is_none()
            && lacking
            && self.facts.queues.device.in_flight + self.device().uncounted() == 0
        {
            return self.dispatch_starved().map(|slot| self.flights.at(slot).io);
        }
        started.map(|slot| self.flights.at(slot).io)
    }

    /// The device is idle while reads lack memory: nothing that is in flight will give any back.
    /// Those that wait in vain are asked again. Where what holds memory waits behind them (a policy
    /// swap may have put a read that has begun back behind an admission that they use up), one of
    /// them goes beyond the bounds.
    ///
    /// A look at all VMs: it is repeated only when another one has come to lack memory, or a read
    /// that holds some has come back.
    #[cold]
    fn dispatch_starved(&mut self) -> Option<u32> {
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
        let started = self.next_dispatch();
        self.facts.queues.memory.overdraws = false;
        started
    }

    /// A flush waits for no data, so a depth that is kept for data's sake is not kept for it. What
    /// was promised and is due goes beyond it, too, up to twice as many: where a queue is kept
    /// short for the sake of promises, they do not wait for a place in it.
    #[inline]
    fn beyond_limit(&mut self) -> Option<u32> {
        if self.control.depth_control.is_some() {
            self.control.count_full(&mut self.facts, true);
        }
        let in_flight = self.facts.queues.device.in_flight;
        if in_flight >= self.config.device.depth {
            return None;
        }
        if self.flushes.may_go() {
            return self.start_flush();
        }
        let is_promised = in_flight < self.control.limit.saturating_mul(2)
            && self.facts.queues.device.queued > 0
            && self
                .active
                .roles
                .dispatcher
                .is_due_beyond_depth(&self.facts);
        match is_promised {
            true => self.next_dispatch(),
            false => None,
        }
    }

    /// Starts what goes next, if anything does. Returns its slot among the I/Os in flight.
    fn next_dispatch(&mut self) -> Option<u32> {
        // A flush waits for no data, but never takes two turns in a row from them.
        if self.flushes.may_go()
            && let Some(started) = self.start_flush()
        {
            return Some(started);
        }
        if self.control.watch.is_some() && self.control.hold(&mut self.facts) {
            self.control.keeps_place = false;
            return self.start_nothing();
        }
        if self.control.sharing.is_some() && self.control.keeps_place(&mut self.facts) {
            return self.start_nothing();
        }
        let started = self.pick();
        if started.is_none() {
            return self.start_nothing();
        }
        self.flushes.data_had_turn();
        started
    }

    /// No data goes now: a flush may.
    #[inline(never)]
    fn start_nothing(&mut self) -> Option<u32> {
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

    fn pick(&mut self) -> Option<u32> {
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
                    if self.any_hung
                        && let Some(hung) = &mut self.hung
                        && hung.park(&mut self.facts, &mut self.active, head.index)
                    {
                        continue;
                    }
                    if let Some(started) = self.start_unit(head.index, max, held) {
                        if self.any_hung {
                            self.note_probe(started);
                        }
                        return Some(started);
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
        self.control.release(&self.facts, false);
        None
    }

    /// Starts a unit, or as much of it as may go at once. `None` when it had to be split into
    /// smaller units first: then the dispatcher is asked again.
    fn start_unit(&mut self, unit: u32, max: u32, held: Nanos) -> Option<u32> {
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
        let goes_whole = |this: &Engine| len >= this.facts.queues.reqs.left_of(unit);
        let part = match self.active.is_followed(&self.facts, unit) && goes_whole(self) {
            false => Part {
                unit,
                len,
                head: None,
            },
            true => {
                let head = self.gather(unit, budget);
                let len = self.facts.queues.reqs.left_of(unit);
                Part { unit, len, head }
            }
        };
        Some(self.start_io(part))
    }

    /// Starts a part of a unit, or all of it. Returns the I/O's slot.
    #[inline(always)]
    fn start_io(&mut self, part: Part) -> u32 {
        let advanced = part.head.map(|head| head.slot);
        let held = self.control.release(&self.facts, true);
        let going = Going::take(&mut self.facts, part, held, self.last_vm);
        let (disk, base) = self.directory.place_of(going.disk);
        let part_of = match going.reqs == 1 && going.flags & flag::ALONE == 0 {
            true => going.unit_len,
            false => going.len,
        };
        let (io, flight) = self.flights.enter();
        // Written where it stays: roles are shown this one, and the driver's is a copy of it.
        flight.io = DeviceIo {
            id: io,
            vm: going.vm,
            disk,
            op: going.op,
            addr: going.addr,
            offset: going.addr - base,
            len: going.len,
            fua: going.flags & flag::FUA != 0,
            keep_allocated: going.flags & flag::KEEP_ALLOCATED != 0,
            first_ops: going.first_ops,
            first_bytes: going.first_bytes,
            part_of,
            arrived: going.arrived,
        };
        flight.first = going.first;
        flight.first_offset = going.first_offset;
        flight.reqs = going.reqs;
        self.enter_device(io.index, !going.whole, going.background);
        if going.judged && going.first_ops > 0 {
            let first = FirstServed {
                ops: going.first_ops,
                bytes: going.first_bytes,
            };
            let Queues {
                now, vms, device, ..
            } = &self.facts.queues;
            let (vm, lane) = (going.vm.index, going.op.lane());
            (self.attainment)
                .dispatched(*now, vm, lane, first, || vms[vm as usize].standing(device));
        }
        if self.active.hears(Interests::STARTED) {
            let io = &self.flights.at(io.index).io;
            self.active.emit_started(&mut self.facts, io);
        }
        let left = LeftBehind {
            unit: going.id,
            op: going.op,
            vm: going.vm.index,
            whole: going.whole,
            begins: going.first_offset == 0,
            lane_left: going.lane_left,
            advanced,
        };
        self.active.left_behind(&mut self.facts, &left);
        io.index
    }

    fn start_flush(&mut self) -> Option<u32> {
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
        let arrived = self.facts.queues.reqs.cold[first as usize].arrived;
        let (io, flight) = self.flights.enter();
        flight.io = DeviceIo {
            id: io,
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
            arrived,
        };
        (flight.first, flight.first_offset, flight.reqs) = (first, 0, reqs);
        self.facts.queues.vms[vm as usize].in_flight += 1;
        let background = self.facts.queues.vms[vm as usize].background;
        self.enter_device(io.index, false, background);
        if self.active.hears(Interests::STARTED) {
            let io = &self.flights.at(io.index).io;
            self.active.emit_started(&mut self.facts, io);
        }
        if self.any_hung {
            self.note_probe(io.index);
        }
        Some(io.index)
    }

    /// Counts the I/O in a slot as being with the device. `more`: more of its unit is to come;
    /// `background`: it is of a process of the host.
    #[inline(always)]
    fn enter_device(&mut self, slot: u32, more: bool, background: bool) {
        let now = self.facts.queues.now;
        let flight = self.flights.at_mut(slot);
        if self.facts.estimator.is_some() {
            self.control
                .estimate_start(&mut self.facts, &self.active.roles, &flight.io);
        }
        let part = more && !background;
        flight.part = part;
        flight.counted = true;
        flight.started = now;
        flight.kind = match &mut self.control.watch {
            None => Kind::OTHER,
            Some(watch) => watch.started(now, &flight.io, &self.config.device),
        };
        let device = &mut self.facts.queues.device;
        if device.in_flight == 0 {
            self.attainment.stalls().busy(now);
        }
        if device.in_flight == 0 && now > device.last_end {
            let idle = now.since(device.last_end);
            device.idle += idle;
            if let Some(control) = &mut self.control.depth_control {
                control.was_idle(now);
            }
        }
        device.in_flight += 1;
        device.parts.in_flight += u32::from(part);
        device.background.in_flight += u32::from(background);
        device.started += 1;
        device.last_addr = flight.io.addr + flight.io.len as u64;
        self.last_vm = flight.io.vm.index;
    }
}

/// What goes of a unit, and of the head behind it, as one I/O.
struct Going {
    id: ReqId,
    vm: VmId,
    op: Op,
    /// Bits of [`flag`] of the unit.
    flags: u8,
    /// Bytes of the unit, gone or not.
    unit_len: u32,
    /// Slot of the first request, and bytes of it that had gone before.
    first: u32,
    first_offset: u32,
    /// First byte on the device.
    addr: u64,
    /// Slot of the disk.
    disk: u32,
    /// Requests of which some bytes go.
    reqs: u32,
    /// Bytes that go.
    len: u32,
    /// Requests of which the first bytes go, and all bytes of these.
    first_ops: u32,
    first_bytes: u64,
    arrived: Nanos,
    /// It is of a process of the host.
    background: bool,
    /// Requests of the VM are judged.
    judged: bool,
    /// Nothing of the unit is left.
    whole: bool,
    /// The unit's lane has no admitted unit any more.
    lane_left: bool,
}

/// How much of a unit goes.
struct Part {
    unit: u32,
    /// Bytes, the first that are left.
    len: u32,
    /// Head of what continues it, where it is all of it.
    head: Option<Head>,
}

impl Going {
    /// Takes the first `len` bytes that are left of a unit, and the head of what continues it, out
    /// of what waits. `held`: how long a learnt cap has held it back.
    #[inline(always)]
    fn take(facts: &mut Facts, part: Part, held: Nanos, last_vm: u32) -> Going {
        let Part { unit, len, head } = part;
        let Queues {
            now,
            reqs: Requests { hot, cold, .. },
            vms,
            device,
            ..
        } = &mut facts.queues;
        let this = &mut hot[unit as usize];
        let (vm, op, reqs, last_req) = (this.vm, this.op, this.unit_reqs, this.chain_last);
        let of_vm = &mut vms[vm as usize];
        let mut going = Going {
            id: this.id(unit),
            vm: of_vm.id(vm),
            op,
            flags: this.flags,
            unit_len: this.unit_len,
            first: this.chain_first,
            first_offset: this.issued,
            addr: this.addr,
            disk: NIL,
            reqs,
            len,
            first_ops: 0,
            first_bytes: 0,
            arrived: cold[unit as usize].arrived,
            background: of_vm.background,
            judged: of_vm.judged,
            whole: false,
            lane_left: false,
        };
        let moment = Moment {
            now: *now,
            shut: of_vm.shut_time(op.lane(), *now),
            // It waits on purpose no more: all such time is in the device's sum.
            deliberate: device.deliberate,
            held,
            behind: if last_vm == vm { NIL } else { last_vm },
        };
        if reqs == 1 {
            let account = &mut cold[unit as usize];
            going.disk = account.disk;
            (going.first_ops, going.first_bytes) = moment.hand_out(this, account, len, false);
        } else {
            let begins = &hot[going.first as usize];
            (going.first_offset, going.addr) = (begins.issued, begins.addr);
            going.disk = cold[going.first as usize].disk;
            (going.first_ops, going.first_bytes) = moment.hand_out_all(hot, cold, unit);
        }
        going.addr += u64::from(going.first_offset);
        going.whole = going.first_offset + len == going.unit_len;
        of_vm.in_flight += 1;
        if going.whole {
            of_vm.waiting -= reqs;
            unlink(hot, of_vm, unit);
            going.lane_left = of_vm.lanes[op.lane().index()].admitted_head() == NIL;
            device.queued -= 1;
            device.background.queued -= u32::from(of_vm.background);
        } else {
            facts.ledgers[vm as usize].at_once().split += 1;
            facts.queues.count_holder(unit);
        }
        if let Some(Head { slot, bytes }) = head {
            let (ops, of_request) = moment.take_head(facts, last_req, slot, bytes);
            (going.first_ops, going.reqs) = (going.first_ops + ops, going.reqs + 1);
            (going.first_bytes, going.len) = (going.first_bytes + of_request, going.len + bytes);
        }
        going
    }
}

/// What is the same for all requests of an I/O that starts. Passed by value, so that it stays in
/// registers where one request goes alone.
#[derive(Clone, Copy)]
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
    fn take_head(self, facts: &mut Facts, last: u32, slot: u32, bytes: u32) -> (u32, u64) {
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
    #[inline(always)]
    fn hand_out(self, hot: &mut Hot, cold: &mut Cold, len: u32, passenger: bool) -> (u32, u64) {
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
    #[inline(never)]
    fn hand_out_all(self, hot: &mut [Hot], cold: &mut [Cold], unit: u32) -> (u32, u64) {
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
