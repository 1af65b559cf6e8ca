//! Completions and disconnects: which requests are answered, and which go again.

use super::Engine;
use super::directory::LeftClient;
use super::disk_limits::{self, DiskLimits};
use super::in_flight::{end_shares, mark};
use crate::attainment::Circumstances;
use crate::interference::{Answered, Interference, KnownWait};
use crate::roles::{Event, Interests};
use crate::slots::mark as request_mark;
use crate::stats::{Answer, Ledger};
use crate::view::{Cold, Hot, Life, NIL, Queues, Requests, View, Vm, flag, pass_seconds, state};
use tidegate_base::device::DeviceStats;
use tidegate_base::request::{Account, ClientId, Done, IoError, IoId, Lane, Op, Outcome, ReqId};
use tidegate_base::time::Nanos;
use tidegate_capacity::transfers::TransferOutcome;

/// Consequences of a booked answer that are carried out after it.
struct Booked {
    /// Slot of the VM.
    vm: u32,
    /// The answer completes the VM's deadline transfer.
    transfer_done: bool,
    client: LeftClient,
    /// The VM was removed, and its slot may be freed with its last request.
    leaving: bool,
}

/// Passes new knowledge of the cost estimator on: to the length of parts, and to roles.
#[cold]
fn costs_learnt(engine: &mut Engine) {
    if engine.control.splitting.is_some() {
        engine.control.learn_parts(&engine.view);
    }
    if (engine.control).learn_costs(&mut engine.view, &engine.active.roles) {
        engine.active.emit(&mut engine.view, &Event::CostsLearnt);
    }
}

/// Adds an answer to a VM's statistics. Cancelled requests only count as cancelled: they were not
/// served.
#[inline(always)]
fn write_down(
    ledger: &mut Ledger,
    of_vm: &mut Vm,
    (op, len): (Op, u32),
    account: Account,
    outcome: Outcome,
) {
    if outcome == Err(IoError::Cancelled) {
        ledger.at_once().cancelled += 1;
        return;
    }
    let answer = Answer {
        account,
        len,
        op,
        well: outcome.is_ok(),
    };
    ledger.answered(&mut of_vm.answered, answer);
}

/// Returns the circumstances of a late request of a VM that was just answered.
#[cold]
#[inline(never)]
fn circumstances(
    ledger: &mut Ledger,
    of_vm: &Vm,
    device: &DeviceStats,
    behind_another: bool,
) -> Circumstances {
    let totals = ledger.device_totals(of_vm.answered);
    let requests = totals.requests.max(1);
    let ios = requests.saturating_sub(totals.merged).max(1);
    Circumstances {
        beside_others: behind_another || device.requests > of_vm.requests,
        is_serial: device.seeks,
        // The request's own I/O is counted out already.
        concurrency: device.in_flight + 1,
        answered: of_vm.answered,
        requests_per_1024_ios: requests.saturating_mul(1024) / ios,
        mean_device: Nanos(totals.device.0 / requests),
    }
}

/// Returns the account of an answered request since it arrived for the scheduler. That is complete
/// also where it waited before it was taken, unless limits of its disk held it: it arrived later
/// then.
fn account_of(interference: &Interference, slot: u32, cold: &Cold, now: Nanos) -> Account {
    let mut account = cold.account(now);
    if cold.marks & (request_mark::WAITED_OUTSIDE | request_mark::HELD)
        == request_mark::WAITED_OUTSIDE
    {
        account.admission = interference.admission(slot);
        account.device = account.device.since(account.admission);
    }
    account
}

/// Returns the whole account of an answered request that has marks, and ends its sample.
#[cold]
#[inline(never)]
fn end_marked(
    (interference, limits): (&mut Interference, Option<&mut DiskLimits>),
    (slot, hot, cold): (u32, &Hot, &Cold),
    (now, device): (Nanos, &DeviceStats),
) -> Account {
    let mut account = account_of(interference, slot, cold, now);
    if cold.marks & request_mark::SAMPLED != 0 {
        let answered = Answered {
            request: slot,
            op: hot.op,
            len: hot.len,
            vm: hot.vm,
            account: &account,
            served: cold.served_at(),
            succeeded: cold.error.is_none(),
        };
        let times = [now, device.idle_time(now)];
        interference.end(times, device.seeks, &answered);
    }
    if cold.marks & request_mark::HELD != 0
        && let Some(limits) = limits
    {
        account.regulated += limits.held_until_answer(hot.id(slot));
        if cold.marks & request_mark::WAITED_OUTSIDE != 0 {
            account.admission = interference.admission(slot);
        }
    }
    account
}

/// Tells the roles of the last answer. For them, a request that limits of its disk held arrived
/// when they let it go.
#[cold]
#[inline(never)]
fn emit_answer_of_held(engine: &mut Engine, held: Nanos) {
    let Some(&done) = engine.done.last() else {
        return;
    };
    let mut account = done.account;
    account.regulated = account.regulated.since(held);
    account.admission = Nanos::ZERO;
    let done = Done { account, ..done };
    engine
        .active
        .emit(&mut engine.view, &Event::Answered(&done));
}

/// Enters the I/O in a slot, which has ended, into the trail of ended I/Os.
#[inline(always)]
fn note_io(engine: &mut Engine, slot: u32) {
    let flight = engine.in_flight.io_at(slot);
    let (io, queues) = (&flight.io, &engine.view.queues);
    let took = || (queues.now).since(flight.started.max(queues.device.last_end));
    let what = (io.op, io.addr, io.len);
    if (engine.interference).io_ended(io.vm.index, what, took) {
        engine.interference.catch_up(&engine.view);
    }
}

/// Tells the samples among the requests of an I/O that its disk hung.
#[cold]
fn hung_io_ended(engine: &mut Engine, first: u32, reqs: u32) {
    let mut slot = first;
    for _ in 0..reqs {
        engine.interference.hangs(slot);
        slot = engine.view.queues.reqs.hot[slot as usize].chain_next;
    }
}

/// Ends a disk's flush in flight, behind which those that came meanwhile have waited.
#[cold]
fn flush_ended(engine: &mut Engine, disk: u32) {
    engine.flushes_have_waited(disk, KnownWait::OwnFlush);
    engine.flushes.end(disk);
}

/// Returns whether a request is complete: all of it was started and has ended, and it does not go
/// again.
#[inline(always)]
fn is_over(hot: &Hot, cold: &Cold) -> bool {
    cold.outstanding == 0 && hot.state == state::STARTED && hot.flags & flag::AGAIN == 0
}

/// Ends the requests of an I/O that has several of them, or has failed. After an error each of
/// several requests goes again alone: the device does not tell which one failed.
#[inline(never)]
fn end_requests(engine: &mut Engine, first: u32, reqs: u32, op: Op, outcome: Outcome) {
    // A flush has no address that could be at fault, so all flushes of the I/O fail with it.
    let again = outcome.is_err() && reqs > 1 && op != Op::Flush;
    let mut at = first;
    let mut requeued = NIL;
    for _ in 0..reqs {
        // Ending a request frees its slot, so the next one is looked up first.
        let this = at;
        let Queues { now, reqs, .. } = &mut engine.view.queues;
        let (hot, cold) = (&reqs.hot[this as usize], &mut reqs.cold[this as usize]);
        at = hot.chain_next;
        cold.part_ended(*now);
        if outcome.is_ok() && is_over(hot, cold) {
            engine.finish(this);
        } else if again {
            requeued = engine.go_again_unmerged(this, requeued);
        } else {
            engine.end_part(this, outcome);
        }
    }
}

/// Counts the I/O in a slot out of an observed device. Returns whether the cost estimator has
/// learnt something by it.
#[inline(never)]
fn leave_observed(engine: &mut Engine, slot: u32, outcome: Outcome) -> bool {
    let (now, flight) = (engine.view.queues.now, engine.in_flight.io_at(slot));
    if let Some(monitor) = &mut engine.control.monitor {
        monitor.ended(now, flight.kind, flight.io.len, outcome.is_ok());
    }
    let mut learnt = false;
    if let Some(estimator) = &mut engine.view.estimator {
        let deepest = engine.control.limit.min(engine.active.fan_out.depth);
        learnt = estimator.ended(now, &flight.io, outcome.is_ok(), deepest);
    }
    count_out(engine, now);
    if engine.control.depth_control.is_some() {
        let io = &engine.in_flight.io_at(slot).io;
        (engine.control).count_end(&engine.view, io, outcome.is_ok());
    }
    learnt
}

/// Counts an I/O out of the device; idle time starts here if it was the last.
#[inline(always)]
fn count_out(engine: &mut Engine, now: Nanos) {
    let device = &mut engine.view.queues.device;
    device.in_flight -= 1;
    device.last_end = now;
    engine.attainment.stalls().ended(now);
}

/// Returns whether limits of its disk held a request that was just answered.
#[inline(always)]
fn is_held(reqs: &Requests, request: ReqId) -> bool {
    reqs.cold[request.index()].marks & request_mark::HELD != 0
}

/// Carries out the consequences of an answer: events, the transfer's end, slots to free.
#[inline(always)]
fn answered(engine: &mut Engine, booked: &Booked) {
    if engine.active.hears(Interests::ANSWERED)
        && let Some(done) = engine.done.last()
    {
        let held = match &engine.disk_limits {
            // The slot was vacated, but keeps its marks until the next request.
            Some(limits) if is_held(&engine.view.queues.reqs, done.req) => {
                limits.held_before_answer(done.req)
            }
            _ => None,
        };
        match held {
            None => engine.active.emit(&mut engine.view, &Event::Answered(done)),
            Some(held) => emit_answer_of_held(engine, held),
        }
    }
    if booked.transfer_done {
        transfer_done(engine, booked.vm);
    }
    // The slots of departed clients and VMs are freed with their last request.
    if booked.client.is_last {
        engine.directory.free_client(booked.client.id.index);
    }
    if booked.leaving {
        engine.leave_if_out(booked.vm);
    }
}

/// Ends a deadline transfer that has moved all its bytes.
#[cold]
#[inline(never)]
fn transfer_done(engine: &mut Engine, vm: u32) {
    let end = (engine.active).finish_transfer(&mut engine.view, vm, TransferOutcome::Done);
    if let Some(end) = end {
        engine
            .attainment
            .transfer_ended(end.ended, vm as usize, end.late);
    }
    engine.active.announce_transfers_changed(&mut engine.view);
    engine.promises.changed(engine.view.queues.now);
}

impl Engine {
    /// Tells the samples among a disk's waiting flushes what they have waited for up to now.
    pub(super) fn flushes_have_waited(&mut self, disk: u32, cause: KnownWait) {
        let Queues {
            now, device, reqs, ..
        } = &self.view.queues;
        let times = [*now, device.idle_time(*now)];
        for slot in self.flushes.waiting(reqs, disk) {
            if reqs.cold[slot as usize].marks & request_mark::SAMPLED != 0 {
                self.interference.has_waited(slot, cause, times);
            }
        }
    }

    /// Takes the completion of a device I/O.
    ///
    /// # Panics
    /// If the I/O is not in flight: a driver that reports one twice would otherwise answer
    /// another request.
    pub fn handle_completion(&mut self, now: Nanos, id: IoId, outcome: Outcome) {
        self.view.queues.advance(now);
        let flight = self.in_flight.leave(id);
        let (first, reqs, op) = (flight.first, flight.reqs, flight.io.op);
        let (marks, disk) = (flight.marks, flight.io.disk.index);
        let Queues { device, vms, .. } = &mut self.view.queues;
        debug_assert_eq!(
            vms[flight.io.vm.index()].generation,
            flight.io.vm.generation,
            "the slot of {:?} was freed with an I/O in flight",
            flight.io.vm
        );
        vms[flight.io.vm.index()].in_flight -= 1;
        device.ended += 1;
        if marks != 0 {
            end_shares(device, marks);
        }
        if outcome.is_err() {
            device.errors += 1;
        }
        if let Some(hung) = &mut self.hung {
            hung.record_end(self.view.queues.now, disk, marks & mark::UNCOUNTED == 0);
        }
        if marks & mark::UNCOUNTED == 0 {
            note_io(self, id.index);
            self.leave_device(id.index, outcome);
        } else {
            hung_io_ended(self, first, reqs);
        }
        if self.any_hung {
            // Before its requests end: a request that ends frees its slot, and parked units are
            // found by their slots.
            self.revive(disk);
        }
        if op == Op::Flush {
            flush_ended(self, disk);
        }
        if reqs == 1 && outcome.is_ok() {
            // Fast path: almost every I/O is one request that succeeds.
            match self.book_answer(first, true) {
                Some(booked) => answered(self, &booked),
                None => self.end_part(first, outcome),
            }
        } else {
            end_requests(self, first, reqs, op, outcome);
        }
    }

    /// Counts the I/O in a slot out of the depth, and reports its end to the device's observers and
    /// to the roles.
    #[inline(always)]
    fn leave_device(&mut self, slot: u32, outcome: Outcome) {
        let now = self.view.queues.now;
        let learnt = if self.control.is_observed() {
            leave_observed(self, slot, outcome)
        } else {
            count_out(self, now);
            false
        };
        if self.active.hears(Interests::ENDED) {
            let flight = self.in_flight.io_at(slot);
            let event = Event::Ended {
                io: &flight.io,
                outcome,
                took: now.since(flight.started),
            };
            self.active
                .fan_out
                .tell(&mut self.active.roles, &self.view, &event);
            self.active.follow_up(&mut self.view);
        }
        if learnt {
            costs_learnt(self);
        }
    }

    /// Ends a part of a request that failed, or that is not the last. The first error is kept, and
    /// the parts that still wait are dropped.
    #[inline(never)]
    fn end_part(&mut self, slot: u32, outcome: Outcome) {
        if let Err(error) = outcome {
            self.view.queues.reqs.cold[slot as usize]
                .error
                .get_or_insert(error);
            self.active.drop_rest(&mut self.view, slot);
        }
        if self.view.queues.reqs.cold[slot as usize].outstanding > 0 {
            return;
        }
        let Hot { state, flags, .. } = self.view.queues.reqs.hot[slot as usize];
        match state {
            _ if flags & flag::AGAIN != 0 => {
                self.go_again(slot, NIL);
            }
            state::STARTED => self.finish(slot),
            _ => self.view.queues.begin_wait(slot),
        }
    }

    /// Marks a request to go again alone after an I/O of several failed, so that the error hits
    /// only the request it belongs to. It goes only after its other parts have ended, so that the
    /// device never has the same bytes twice. Parameter and result as of `go_again`.
    #[cold]
    fn go_again_unmerged(&mut self, slot: u32, behind: u32) -> u32 {
        self.view.queues.reqs.hot[slot as usize].flags |= flag::AGAIN;
        match self.view.queues.reqs.cold[slot as usize].outstanding {
            0 => self.go_again(slot, behind),
            _ => behind,
        }
    }

    /// Requeues a request that is to go again and has nothing in flight any more. `behind`: the
    /// request that was requeued before it; returns the one behind which the next is to be
    /// requeued.
    #[cold]
    fn go_again(&mut self, slot: u32, behind: u32) -> u32 {
        if self.view.queues.reqs.cold[slot as usize].error.is_some() {
            // Its own error, of a part that went alone; or it was cancelled.
            self.finish(slot);
            return behind;
        }
        match self.view.queues.reqs.hot[slot as usize].state {
            state::STARTED => self.requeue_alone(slot, behind),
            _ => {
                self.active.restart_request(&mut self.view, slot);
                behind
            }
        }
    }

    /// Requeues a wholly started request as a unit of its own at the front of its lane. The
    /// requests of one I/O keep their order.
    #[cold]
    fn requeue_alone(&mut self, slot: u32, behind: u32) -> u32 {
        let seq = self.view.queues.reqs.hot[slot as usize].seq;
        let hot = &self.view.queues.reqs.hot[slot as usize];
        let (vm, lane) = (hot.vm, hot.op.lane());
        let client = self.view.queues.reqs.cold[slot as usize].client;
        // The client or the VM has gone, or the disk has shrunk: the I/O must not be repeated.
        let gone = !self.directory.client_at(client).connected
            || self.view.queues.vms[vm as usize].life != Life::Live;
        if gone || self.directory.is_beyond_end(&self.view.queues.reqs, slot) {
            let error = if gone {
                IoError::Cancelled
            } else {
                IoError::BeyondEnd
            };
            self.view.queues.reqs.cold[slot as usize].error = Some(error);
            self.finish(slot);
            return behind;
        }
        self.view.queues.reqs.make_unit(slot, state::ADMITTED, seq);
        self.view.queues.begin_wait(slot);
        let hot = &mut self.view.queues.reqs.hot[slot as usize];
        hot.issued = 0;
        hot.flags = (hot.flags & !flag::AGAIN) | flag::ALONE;
        let next = match behind {
            NIL => self.view.queues.vms[vm as usize].lanes[lane.index()].head,
            behind => self.view.queues.reqs.hot[behind as usize].next,
        };
        self.view.queues.vms[vm as usize].waiting += 1;
        self.view.queues.link(slot, next);
        self.active.ask_gate(&mut self.view, vm, lane);
        self.active.insert_into_index(&mut self.view, slot);
        self.active.open_holders_lane(&mut self.view, slot);
        slot
    }

    /// Writes a request's answer and books it; its slot is free from then on. `ends`: one of its
    /// I/Os ends with this call; then nothing is booked, and `None` returned, unless it was the
    /// last.
    #[inline(always)]
    fn book_answer(&mut self, slot: u32, ends: bool) -> Option<Booked> {
        let now = self.view.queues.now;
        let view = &mut self.view;
        let Queues {
            device, reqs, vms, ..
        } = &mut view.queues;
        let free = reqs.free;
        let (this, cold) = (&mut reqs.hot[slot as usize], &mut reqs.cold[slot as usize]);
        if ends {
            cold.part_ended(now);
            if !is_over(this, cold) {
                return None;
            }
        }
        let (vm, op, len) = (this.vm, this.op, this.len);
        let (of_vm, ledger) = (&mut vms[vm as usize], &mut view.ledgers[vm as usize]);
        pass_seconds(now, of_vm, ledger, true);
        let client = self.directory.request_left(cold.client);
        let outcome = cold.error.map_or(Ok(()), Err);
        let account = match cold.marks {
            0 => cold.account(now),
            _ => {
                let parts = (&mut self.interference, self.disk_limits.as_deref_mut());
                end_marked(parts, (slot, this, cold), (now, device))
            }
        };
        // A client's own memory is no budget's: the frontend returns nothing for it.
        let holds = this.flags & flag::HOLDS != 0 && !client.own_memory;
        self.done.push(Done {
            req: this.id(slot),
            tag: cold.tag,
            client: client.id,
            vm: of_vm.id(vm),
            op,
            outcome,
            account,
            payload: if holds { len } else { 0 },
        });
        reqs.free = this.vacate(slot, free);
        write_down(ledger, of_vm, (op, len), account, outcome);
        if of_vm.judged && op != Op::Flush {
            let is_late = (self.attainment).answered(now, [vm, slot], len, outcome, || {
                of_vm.state_at_close(device)
            });
            if is_late {
                // Computed anew: keeping the account from above would spill it to memory for every
                // request.
                let account = account_of(&self.interference, slot, cold, now);
                let of = circumstances(ledger, of_vm, device, cold.is_behind_another());
                self.attainment.blame([vm, slot], &account, of);
            }
        }
        let transfer_done = of_vm.has_transfer
            && outcome.is_ok()
            && op.merges()
            && (view.transfers.as_mut()).is_some_and(|all| all.record_moved(vm as usize, len));
        device.requests -= 1;
        of_vm.requests -= 1;
        self.budgets.answered(now, vm as usize);
        if of_vm.requests == 0 {
            of_vm.quiet_since = now;
        }
        self.control.record_answer(now, vm, of_vm);
        Some(Booked {
            vm,
            transfer_done,
            client,
            leaving: of_vm.life == Life::Leaving,
        })
    }

    /// Answers a request, which leaves the engine here.
    #[inline(never)]
    pub(super) fn finish(&mut self, slot: u32) {
        if let Some(booked) = self.book_answer(slot, false) {
            answered(self, &booked);
        }
    }

    /// Disconnects a client: its waiting requests are answered as cancelled, those in flight when
    /// they end. Without effect when the client was disconnected before.
    pub fn handle_disconnect(&mut self, now: Nanos, client: ClientId) {
        self.view.queues.advance(now);
        let Some(known) = self.directory.client(client) else {
            return;
        };
        let (vm, disk) = (known.vm, known.disk);
        self.cancel_waiting(vm, IoError::Cancelled, |view, slot| {
            view.queues.reqs.cold[slot as usize].client == client.index
        });
        disk_limits::cancel(self, disk, IoError::Cancelled, |reqs, slot| {
            reqs.cold[slot as usize].client == client.index
        });
        self.cancel_flushes(disk, Some(client));
        self.directory.release_client(client.index);
    }

    /// Takes the requests that `meant` selects out of a VM's lanes, and answers them with an error.
    pub(super) fn cancel_waiting(
        &mut self,
        vm: u32,
        error: IoError,
        meant: impl Fn(&View, u32) -> bool,
    ) {
        // Shelved and parked units are out of the lanes: put back, the search below finds them.
        self.active.unshelve(&mut self.view, vm);
        self.budgets
            .ask_for_memory_again(&mut self.view, &mut self.active, vm);
        if self.any_hung {
            let Engine {
                hung, directory, ..
            } = self;
            let of_vm = |disk: u32| directory.disk_at(disk).vm == vm;
            let parked = hung.as_mut().map(|hung| hung.take_parked(of_vm));
            let parked = parked.unwrap_or_default().concat();
            self.active.unpark(&mut self.view, parked);
        }
        for lane in Lane::ALL {
            let mut unit = self.view.queues.vms[vm as usize].lanes[lane.index()].head;
            while unit != NIL {
                let meant = |slot: u32| meant(&self.view, slot);
                let (mine, all) = (
                    self.view
                        .queues
                        .reqs
                        .chain(unit)
                        .filter(|&slot| meant(slot))
                        .count() as u32,
                    self.view.queues.reqs.hot[unit as usize].unit_reqs,
                );
                if mine > 0 && mine < all {
                    // The unit also has requests of others: split it, then check each part by
                    // itself.
                    let prev = self.view.queues.reqs.hot[unit as usize].prev;
                    let first = self.view.queues.vms[vm as usize].lanes[lane.index()].head == unit;
                    self.active.break_up(&mut self.view, unit);
                    unit = if first {
                        self.view.queues.vms[vm as usize].lanes[lane.index()].head
                    } else {
                        self.view.queues.reqs.hot[prev as usize].next
                    };
                    continue;
                }
                let next = self.view.queues.reqs.hot[unit as usize].next;
                if mine > 0 {
                    self.cancel_unit(unit, error);
                }
                unit = next;
            }
            self.active.ask_gate(&mut self.view, vm, lane);
        }
    }

    /// Takes a unit out of its lane and answers all its requests with an error.
    fn cancel_unit(&mut self, unit: u32, error: IoError) {
        self.active.cancel_waiting(&mut self.view, unit);
        let reqs = self.view.queues.reqs.hot[unit as usize].unit_reqs;
        let mut at = self.view.queues.reqs.hot[unit as usize].chain_first;
        for _ in 0..reqs {
            let this = at;
            at = self.view.queues.reqs.hot[this as usize].chain_next;
            self.cancel_request(this, error);
        }
    }

    /// Ends a request that is out of its lane with an error; with parts in flight it is answered
    /// only when they end.
    #[cold]
    pub(super) fn cancel_request(&mut self, slot: u32, error: IoError) {
        let hot = &mut self.view.queues.reqs.hot[slot as usize];
        let (vm, lane) = (hot.vm, hot.op.lane());
        let merged = hot.state == state::MERGED;
        // As if wholly started: with parts in flight, the last of them answers the request.
        hot.state = state::STARTED;
        let (shut, deliberate) = (
            self.view.queues.shut_time(vm, lane),
            self.view.queues.deliberate_time(),
        );
        let now = self.view.queues.now;
        let cold = &mut self.view.queues.reqs.cold[slot as usize];
        cold.error.get_or_insert(error);
        if cold.outstanding == 0 {
            cold.end_wait(now, merged, shut, deliberate);
            self.finish(slot);
        }
    }

    /// Cancels a disk's waiting flushes, of one client or of all.
    pub(super) fn cancel_flushes(&mut self, disk: u32, of: Option<ClientId>) {
        let meant = |reqs: &Requests, slot: u32| {
            of.is_none_or(|client| reqs.cold[slot as usize].client == client.index)
        };
        for slot in self.flushes.remove(&mut self.view.queues.reqs, disk, meant) {
            let vm = self.view.queues.reqs.hot[slot as usize].vm;
            self.view.queues.vms[vm as usize].waiting -= 1;
            self.cancel_request(slot, IoError::Cancelled);
        }
    }

    /// Returns whether no request and no I/O is inside; for tests and checkers.
    pub fn is_idle(&self) -> bool {
        let limited = (self.disk_limits.as_ref()).map_or(0, |limits| limits.all_waiting());
        let device = &self.view.queues.device;
        device.requests == 0 && device.in_flight == 0 && limited == 0
    }
}
