//! Dispatch while the device has room: which unit goes next, and how much of it.

use super::Engine;
use super::active::IoStarted;
use super::back_merge::Head;
use super::in_flight::{InFlightIo, enter_shares, mark};
use super::moment::Moment;
use super::timers::debug_assert_to_come;
use crate::device_monitor::window_meter::Kind;
use crate::roles::{Interests, Pick};
use crate::view::{Hot, NIL, Queues, Requests, View, Vm, flag, state, unlink};
use tidegate_base::device::DeviceStats;
use tidegate_base::pace::FirstServed;
use tidegate_base::request::{DeviceIo, Op, ReqId};
use tidegate_base::time::Nanos;

/// Returns whether a learnt cap, or a place reserved for an expected request, keeps the device's
/// room free now.
#[inline(never)]
fn is_held_back(engine: &mut Engine) -> bool {
    if engine.control.monitor.is_some() && engine.control.hold(&mut engine.view) {
        // The cap alone is the reason now, or `is_dispatch_blocked` would name a stale one.
        engine.control.reserves_place = false;
        return true;
    }
    engine.control.splitting.is_some() && engine.control.reserve_place(&mut engine.view)
}

/// Starts a unit that may have to be split, wait for memory, or take adjacent units along.
#[inline(never)]
fn start_with_care(engine: &mut Engine, unit: u32, max: u32, held: Nanos) -> Option<u32> {
    let this = &engine.view.queues.reqs.hot[unit as usize];
    let (vm, unit_len, unit_reqs) = (this.vm, this.unit_len, this.unit_reqs);
    // At least one byte: `part_len` rounds up to a block, so that every pick makes progress.
    let budget = max.min(engine.view.queues.largest_io_of_unit(this)).max(1);
    let len = match unit_reqs {
        1 => {
            let part = engine
                .control
                .shared_part(&engine.view, vm, this.op, unit_len);
            let len = engine.view.queues.part_len(this, budget.min(part));
            if part < u32::MAX {
                engine.control.was_bounded(unit_len.min(budget), len);
            }
            len
        }
        _ => unit_len,
    };
    if held > Nanos::ZERO {
        engine.view.queues.charge_held(vm, held);
    }
    if unit_reqs > 1 && unit_len > budget {
        let whole = engine
            .view
            .queues
            .reqs
            .whole_requests_in(unit, budget)
            .max(1);
        engine.active.split_unit(&mut engine.view, unit, whole);
        return None;
    }
    if !engine
        .budgets
        .feed(&mut engine.view, &mut engine.active, unit)
    {
        return None;
    }
    let goes_whole = |this: &Engine| len >= this.view.queues.reqs.bytes_left(unit);
    let part = if engine.active.is_followed(&engine.view, unit) && goes_whole(engine) {
        let head = engine.gather(unit, budget);
        let len = engine.view.queues.reqs.bytes_left(unit);
        Part { unit, len, head }
    } else {
        Part {
            unit,
            len,
            head: None,
        }
    };
    Some(engine.start_io::<false>(part))
}

/// Reports the start of the I/O in a slot to the cost estimator and the device monitor.
#[inline(never)]
fn observe_start(engine: &mut Engine, slot: u32) {
    let flight = engine.in_flight.at_mut(slot);
    if engine.view.estimator.is_some() {
        engine
            .control
            .estimate_start(&mut engine.view, &engine.active, &flight.io);
    }
    if let Some(monitor) = &mut engine.control.monitor {
        let now = engine.view.queues.now;
        flight.kind = monitor.started(now, &flight.io, &engine.config.device);
    }
}

/// Second attempt of [`Engine::poll_dispatch`] when no I/O was started and reads may lack memory.
#[inline(never)]
fn poll_without_memory(engine: &mut Engine, now: Nanos) -> Option<DeviceIo> {
    if core::mem::take(&mut engine.view.queues.memory.event_emitted)
        && engine.active.next_timer(&engine.view) <= engine.view.queues.now
    {
        // Roles were told meanwhile that reads lack memory, and a timer has become due by that.
        return engine.poll_dispatch(now);
    }
    let lacking = (engine.view.queues.memory.vms_lacking > 0
        && engine.view.queues.memory.recheck_when_idle)
        || !engine.view.queues.memory.shelf.is_empty();
    if lacking && engine.view.queues.device.in_flight + engine.device().uncounted() == 0 {
        return engine
            .dispatch_lacking_memory()
            .map(|slot| engine.in_flight.io_at(slot).io);
    }
    None
}

impl Engine {
    /// Returns the next I/O for the device, if any; to be called until `None` after every batch of
    /// events. The I/O is in flight from here until its
    /// [`handle_completion`](Engine::handle_completion).
    #[inline]
    pub fn poll_dispatch(&mut self, now: Nanos) -> Option<DeviceIo> {
        self.view.queues.advance(now);
        if self.active.next_timer(&self.view) <= self.view.queues.now {
            self.handle_timeout(now);
        }
        self.view.pick_at = Nanos::MAX;
        // With a busy device every second call ends here, as the driver asks until `None`.
        if self.view.queues.device.in_flight >= self.control.limit {
            return self
                .beyond_limit()
                .map(|slot| self.in_flight.io_at(slot).io);
        }
        // With empty queues the dispatcher need not be asked.
        let nothing_waits = self.view.queues.device.queued == 0
            && self.view.queues.waiting_since.is_none()
            && self.flushes.is_empty()
            && !self.control.is_adaptive();
        let started = if nothing_waits {
            // Data could have had this turn, so the next flush need not wait for any.
            self.flushes.data_had_turn();
            None
        } else {
            self.next_dispatch()
        };
        if started.is_none() && self.budgets.bounds_payload() {
            return poll_without_memory(self, now);
        }
        started.map(|slot| self.in_flight.io_at(slot).io)
    }

    /// Resolves reads that lack memory while the device is idle, when no I/O in flight can return
    /// any. Reads that wait in vain are asked again. Where the memory is held by a read behind them
    /// (a policy swap may have put a begun read back behind an admission that they use up), one
    /// read may exceed the bounds.
    ///
    /// Visits all VMs, so it runs again only when another VM has come to lack memory, or a read
    /// that holds some has come back.
    #[cold]
    fn dispatch_lacking_memory(&mut self) -> Option<u32> {
        self.view.queues.memory.recheck_when_idle = false;
        let mut overdraws = !self.view.queues.memory.shelf.is_empty();
        self.active.unshelve_all(&mut self.view);
        for vm in 0..self.view.queues.vms.len() as u32 {
            if self.budgets.waits_in_vain(&self.view, vm) {
                overdraws |= self.view.queues.holder_waits(vm);
                self.budgets
                    .ask_for_memory_again(&mut self.view, &mut self.active, vm);
            }
        }
        self.view.queues.memory.event_emitted = false;
        self.view.queues.memory.overdraws = overdraws;
        let started = self.next_dispatch();
        self.view.queues.memory.overdraws = false;
        started
    }

    /// Starts an I/O although the depth in force is full, if it may exceed that. A flush waits for
    /// no data, so the adapted depth does not hold it back. Requests that a promise makes due may
    /// use up to twice the depth: a queue that is kept short for the sake of promises must not
    /// delay them.
    #[inline]
    fn beyond_limit(&mut self) -> Option<u32> {
        if self.control.depth_control.is_some() {
            self.control.count_full(&mut self.view, true);
        }
        let in_flight = self.view.queues.device.in_flight;
        // The configured depth is the device's own limit; only the adapted one may be exceeded.
        if in_flight >= self.config.device.depth {
            return None;
        }
        if self.flushes.may_go() {
            return self.start_flush();
        }
        let is_promised = in_flight < self.control.limit.saturating_mul(2)
            && self.view.queues.device.queued > 0
            && self.active.roles.dispatcher.is_due_beyond_depth(&self.view);
        if is_promised {
            self.next_dispatch()
        } else {
            None
        }
    }

    /// Starts the next I/O, if any may go. Returns its slot among the I/Os in flight.
    fn next_dispatch(&mut self) -> Option<u32> {
        // A flush waits for no data, but flushes never take two turns in a row from it.
        if self.flushes.may_go()
            && let Some(started) = self.start_flush()
        {
            return Some(started);
        }
        if self.control.is_adaptive() && is_held_back(self) {
            return self.start_nothing();
        }
        let started = self.pick();
        if started.is_none() {
            return self.start_nothing();
        }
        self.flushes.data_had_turn();
        started
    }

    /// Ends a turn in which no data goes; a flush may go instead.
    #[inline(never)]
    fn start_nothing(&mut self) -> Option<u32> {
        if self.control.depth_control.is_some() {
            // A reserved place counts as taken: the depth in force is in full use.
            self.control
                .count_full(&mut self.view, self.control.reserves_place);
        }
        self.flushes.data_had_turn();
        if self.flushes.is_empty() {
            None
        } else {
            self.start_flush()
        }
    }

    /// Asks the dispatcher until it starts a unit, waits, or has none that may go.
    fn pick(&mut self) -> Option<u32> {
        // The dispatcher decides anew, so its deliberate wait ends here; it may begin another one.
        if self.view.queues.waiting_since.is_some() {
            self.view.queues.device.deliberate = self.view.queues.deliberate_time();
            self.view.queues.waiting_since = None;
        }
        loop {
            // Parking and splitting change the queue, so it is looked at before each pick.
            if self.view.queues.device.queued == 0 {
                break;
            }
            match self.active.roles.dispatcher.pick(&self.view) {
                Pick::Start { head, max, held } => {
                    let hot = &self.view.queues.reqs.hot[head.index()];
                    assert!(
                        hot.generation == head.generation && hot.state == state::ADMITTED,
                        "a dispatcher may only start a unit it was given"
                    );
                    debug_assert!(
                        self.view
                            .gate_open(self.view.vm_at(hot.vm as usize), hot.op.lane()),
                        "a shut lane's unit was picked"
                    );
                    if self.any_hung
                        && let Some(hung) = &mut self.hung
                        // Parked units are out of the index, so the loop ends after as many picks
                        // as units.
                        && hung.park(&mut self.view, &mut self.active, head.index)
                    {
                        self.interference.hangs(head.index);
                        continue;
                    }
                    if let Some(started) = self.start_unit(head.index, max, held) {
                        if self.any_hung {
                            self.mark_probe(started);
                        }
                        return Some(started);
                    }
                }
                Pick::Wait(until) => {
                    debug_assert_to_come(&self.view, until, "a dispatcher's turn");
                    // A deliberate wait is booked apart from idle time; it ends at the next pick.
                    // While the device serves others those are what is waited for.
                    let Queues { device, now, .. } = &self.view.queues;
                    let is_idle = device.in_flight == 0;
                    self.view.queues.waiting_since = is_idle.then_some(*now);
                    self.view.pick_at = until;
                    break;
                }
                Pick::Idle(until) => {
                    debug_assert_to_come(&self.view, until, "a dispatcher's turn");
                    self.view.pick_at = until;
                    break;
                }
            }
        }
        // Nothing goes, so a hold of the learnt cap was not what kept the device idle.
        self.control.release(&self.view, false);
        None
    }

    /// Starts a unit, or as much of it as may go at once. Returns `None` when it was split into
    /// smaller units or lacks memory: then the dispatcher is asked again.
    #[inline(always)]
    fn start_unit(&mut self, unit: u32, max: u32, held: Nanos) -> Option<u32> {
        let this = &self.view.queues.reqs.hot[unit as usize];
        let len = this.len - this.issued;
        // Fast path for almost every unit: one request that goes as it is. Nothing continues it, it
        // is not too long, and only the policy bounds it.
        if this.unit_reqs == 1
            && this.flags & flag::FOLLOWED == 0
            && held == Nanos::ZERO
            && !self.control.is_adaptive()
            && !self.budgets.bounds_payload()
            && len <= max
            && len <= self.view.queues.largest_io_of_unit(this)
        {
            let part = Part {
                unit,
                len,
                head: None,
            };
            return Some(self.start_io::<true>(part));
        }
        start_with_care(self, unit, max, held)
    }

    /// Starts a part of a unit, or all of it. Returns the I/O's slot. `REST`: the unit is one
    /// request, and all that is left of it goes.
    #[inline(always)]
    fn start_io<const REST: bool>(&mut self, part: Part) -> u32 {
        let advanced = part.head.map(|head| head.slot);
        let held = if REST {
            // With `REST` no cap is in force, so none has held the I/O back.
            Nanos::ZERO
        } else {
            self.control.release(&self.view, true)
        };
        let (io, flight) = self.in_flight.enter();
        let before = Before {
            held,
            vm: self.last_vm,
            position: self.interference.position(),
        };
        let going = Going::detach::<REST>(&mut self.view, flight, part, before);
        let (disk, base) = self.directory.id_and_base(going.disk);
        // Written in the slab in place: roles see this copy, and the driver gets a copy of it.
        flight.io.id = io;
        flight.io.disk = disk;
        // Drivers address disks; roles and merging address the device.
        flight.io.offset = flight.io.addr - base;
        debug_assert!(
            flight.io.offset + u64::from(flight.io.len)
                <= self.directory.disk_at(going.disk).spec.size,
            "{:?} reaches beyond its disk",
            flight.io
        );
        let (vm, op, whole) = (flight.io.vm.index, flight.io.op, going.whole);
        let first = FirstServed {
            ops: flight.io.first_ops,
            bytes: flight.io.first_bytes,
        };
        let started = IoStarted {
            unit: going.id,
            op,
            vm,
            unit_done: whole,
            first_io: flight.first_offset == 0,
            lane_emptied: going.lane_left,
            trimmed_follower: advanced,
        };
        flight.marks = match (going.background, whole) {
            (true, _) => mark::BACKGROUND,
            (false, true) => 0,
            (false, false) => mark::PART,
        };
        self.last_vm = vm;
        self.enter_device(io.index);
        if going.judged && first.ops > 0 {
            let Queues {
                now, vms, device, ..
            } = &self.view.queues;
            (self.attainment).dispatched(*now, vm, op.lane(), first, || {
                vms[vm as usize].state_at_close(device)
            });
        }
        if self.active.hears(Interests::STARTED) {
            let io = &self.in_flight.io_at(io.index).io;
            self.active.emit_started(&mut self.view, io);
        }
        self.active.after_io_started(&mut self.view, &started);
        io.index
    }

    /// Starts one flush I/O that serves all waiting flushes of a disk, unless its disk hangs.
    fn start_flush(&mut self) -> Option<u32> {
        let hung = self.hung.as_deref();
        let may = |disk| hung.is_none_or(|hung| !hung.keeps_waiting(disk));
        let disk = self.flushes.next_disk(may)?;
        let (first, reqs) = self.flushes.start(disk);
        let vm = self.directory.disk_at(disk).vm;
        let disk_id = self.directory.disk_id(disk);
        let mut slot = first;
        for _ in 0..reqs {
            let hot = &mut self.view.queues.reqs.hot[slot as usize];
            let cold = &mut self.view.queues.reqs.cold[slot as usize];
            hot.state = state::STARTED;
            cold.end_flush_wait();
            cold.served = self.interference.position() << 1;
            cold.part_started(self.view.queues.now);
            slot = hot.chain_next;
        }
        // Flushes count as waiting, though they stand in no lane.
        self.view.queues.vms[vm as usize].waiting -= reqs;
        let arrived = self.view.queues.reqs.cold[first as usize].arrived;
        let (io, flight) = self.in_flight.enter();
        flight.io = DeviceIo {
            id: io,
            vm: self.view.vm_at(vm as usize),
            disk: disk_id,
            op: Op::Flush,
            // A flush has no address: the last one keeps the device's position as it was.
            addr: self.view.queues.device.last_addr,
            offset: 0,
            len: 0,
            fua: false,
            keep_allocated: false,
            first_ops: reqs,
            first_bytes: 0,
            whole_len: 0,
            arrived,
        };
        (flight.first, flight.first_offset, flight.reqs) = (first, 0, reqs);
        self.view.queues.vms[vm as usize].in_flight += 1;
        flight.marks = if self.view.queues.vms[vm as usize].background {
            mark::BACKGROUND
        } else {
            0
        };
        self.last_vm = vm;
        self.enter_device(io.index);
        if self.active.hears(Interests::STARTED) {
            let io = &self.in_flight.io_at(io.index).io;
            self.active.emit_started(&mut self.view, io);
        }
        // A flush to a hung disk is its one probe, like any other I/O.
        if self.any_hung {
            self.mark_probe(io.index);
        }
        Some(io.index)
    }

    /// Counts the I/O in a slot as in flight, and ends the device's idle time if it is the first.
    #[inline(always)]
    fn enter_device(&mut self, slot: u32) {
        let now = self.view.queues.now;
        let flight = self.in_flight.at_mut(slot);
        flight.started = now;
        flight.kind = Kind::OTHER;
        let device = &mut self.view.queues.device;
        if device.in_flight == 0 {
            self.attainment.stalls().busy(now);
            // With equal times the device was never idle as far as the clock shows.
            if now > device.last_end {
                device.idle += now.since(device.last_end);
                if let Some(control) = &mut self.control.depth_control {
                    control.was_idle(now);
                }
            }
        }
        if flight.marks != 0 {
            enter_shares(device, flight.marks);
        }
        device.in_flight += 1;
        device.started += 1;
        device.last_addr = flight.io.addr + flight.io.len as u64;
        if self.control.is_observed() {
            observe_start(self, slot);
        }
    }
}

/// State of the device just before an I/O starts.
#[derive(Clone, Copy)]
struct Before {
    /// Time for which a learnt cap has held the I/O back.
    held: Nanos,
    /// Slot of the VM served last; `NIL`: none was.
    vm: u32,
    /// Position of the trail of ended I/Os.
    position: u32,
}

/// Facts about an I/O that starts which its [`InFlightIo`] does not hold.
struct Going {
    /// Handle of the unit.
    id: ReqId,
    /// Slot of the disk.
    disk: u32,
    /// The I/O belongs to a background process of the host.
    background: bool,
    /// Requests of the VM count for its attainment.
    judged: bool,
    /// All that was left of the unit goes.
    whole: bool,
    /// The unit's lane has no admitted unit any more.
    lane_left: bool,
}

/// Part of a unit that goes as one I/O.
struct Part {
    unit: u32,
    /// Bytes that go: the first of those that are left.
    len: u32,
    /// First bytes of the unit behind it that go along; only where all of this unit goes.
    head: Option<Head>,
}

/// Copies operation and options of the unit `this`, of which `reqs` requests go, to its I/O.
#[inline(always)]
fn describe(io: &mut DeviceIo, this: &Hot, reqs: u32) {
    io.op = this.op;
    io.fua = this.flags & flag::FUA != 0;
    io.keep_allocated = this.flags & flag::KEEP_ALLOCATED != 0;
    io.whole_len = if reqs == 1 && this.flags & flag::ALONE == 0 {
        this.unit_len
    } else {
        io.len
    };
}

/// Takes a unit that goes wholly out of its lane. Returns whether the lane has no admitted unit
/// left.
#[inline(always)]
fn leave_lane(
    hot: &mut [Hot],
    of_vm: &mut Vm,
    device: &mut DeviceStats,
    unit: u32,
    op: Op,
) -> bool {
    unlink(hot, of_vm, unit);
    device.queued -= 1;
    if of_vm.background {
        device.background.queued -= 1;
    }
    of_vm.lanes[op.lane().index()].admitted_head() == NIL
}

impl Going {
    /// Takes the first bytes that are left of a unit, and the head of the unit behind it, out of
    /// the lane, and describes the I/O in its flight. `REST`: see [`Engine::start_io`].
    #[inline(always)]
    fn detach<const REST: bool>(
        view: &mut View,
        flight: &mut InFlightIo,
        part: Part,
        before: Before,
    ) -> Going {
        let Part { unit, len, head } = part;
        let queues = &mut view.queues;
        let (now, vms, device) = (queues.now, &mut queues.vms, &mut queues.device);
        let Requests { hot, cold, .. } = &mut queues.reqs;
        let this = &mut hot[unit as usize];
        let of_unit = &mut cold[unit as usize];
        let (vm, op, last_req) = (this.vm, this.op, this.chain_last);
        let (reqs, begins_at) = if REST {
            (1, unit)
        } else {
            (this.unit_reqs, this.chain_first)
        };
        let of_vm = &mut vms[vm as usize];
        let unit_len = this.unit_len;
        flight.io.vm = of_vm.id(vm);
        flight.io.len = len;
        flight.io.arrived = of_unit.arrived;
        (flight.first, flight.reqs) = (begins_at, reqs);
        describe(&mut flight.io, this, reqs);
        let mut going = Going {
            id: this.id(unit),
            disk: NIL,
            background: of_vm.background,
            judged: of_vm.judged,
            whole: false,
            lane_left: false,
        };
        let moment = Moment {
            now,
            shut: of_vm.shut_time(op.lane(), now),
            // Deliberate waits ended before the pick: all their time is in the device's sum.
            deliberate: device.deliberate,
            held: before.held,
            served: before.position << 1 | u32::from(before.vm != vm && before.vm != NIL),
        };
        let (addr, offset, first);
        if reqs == 1 {
            going.disk = of_unit.disk;
            (addr, offset) = (this.addr, this.issued);
            first = moment.hand_out(this, of_unit, len, false);
        } else {
            going.disk = cold[begins_at as usize].disk;
            let begins = &hot[begins_at as usize];
            (addr, offset) = (begins.addr, begins.issued);
            first = moment.hand_out_all(hot, cold, unit);
        }
        flight.io.addr = addr + u64::from(offset);
        flight.first_offset = offset;
        (flight.io.first_ops, flight.io.first_bytes) = first;
        going.whole = REST || offset + len == unit_len;
        of_vm.in_flight += 1;
        if going.whole {
            of_vm.waiting -= reqs;
            going.lane_left = leave_lane(hot, of_vm, device, unit, op);
        } else {
            view.ledgers[vm as usize].at_once().split += 1;
            view.queues.count_holder(unit);
        }
        if let Some(head) = head {
            moment.take_along(view, flight, last_req, head);
        }
        going
    }
}
