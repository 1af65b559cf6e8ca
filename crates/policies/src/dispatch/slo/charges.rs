//! Charges for an I/O that has started: shares, promises, background, turns.

use super::at_disk::TRANSFER_LATE_POSITIONINGS;
use super::costs::MIN_IO_COST;
use super::{PickReason, Slo};
use tidegate_base::request::{DeviceIo, Op};
use tidegate_base::time::Nanos;
use tidegate_core::view::{View, moved};

impl Slo {
    /// Charges an I/O that goes to the device.
    #[inline(never)]
    pub(super) fn charge(&mut self, view: &View, io: &DeviceIo) {
        let (now, slot) = (view.now(), io.vm.index());
        let mut cost = if view.device().seeks {
            self.cost_at_seeking_disk(view, io)
        } else {
            self.cost.charge_by(view, io, false)
        };
        if self.by_time && view.profile().is_none() {
            cost = self.dither.vary(view, io.vm, cost);
        }
        let goes_on = self.active[slot] && view.has_head(io.vm);
        if !goes_on {
            // Before the charge: an order that the VM leaves anyway need not take its new tag in.
            self.sleep(view, io.vm);
        }
        if self.device_time.is_some() {
            self.charge_device_time(view, io, cost);
        }
        if view.is_background(io.vm) {
            self.charge_background(now, slot, cost);
        } else {
            self.background.vm_started(now, cost);
            self.charge_vm(view, io, cost);
        }
        if goes_on {
            self.place(view, io.vm);
        }
    }

    /// Returns the cost of an I/O at a disk that seeks, and records where the VM's stream has come
    /// to. Out of line, because flash has the most requests to charge.
    #[inline(never)]
    fn cost_at_seeking_disk(&mut self, view: &View, io: &DeviceIo) -> u64 {
        let positions = self.turns.waits_for_rotation(view, io);
        let cost = self.cost.charge_by(view, io, positions);
        if io.op == Op::Flush {
            return cost;
        }
        let bytes = moved(view, io.op, io.len);
        let flows = (self.turns).push(io.vm.index(), io.addr, bytes, positions);
        if flows && !self.by_time {
            self.cost.continued(bytes, MIN_IO_COST)
        } else {
            cost
        }
    }

    #[cold]
    fn charge_background(&mut self, now: Nanos, slot: usize, cost: u64) {
        self.background.started(now, cost);
        self.shares.charge(now, slot, cost, None);
    }

    #[inline(always)]
    fn charge_vm(&mut self, view: &View, io: &DeviceIo, cost: u64) {
        let slot = io.vm.index();
        let by_promise = self.last_pick == PickReason::Promise && io.op != Op::Flush;
        // A latency bound without a rate is kept only within the VM's share, so its service is
        // charged in full.
        // Flushes do not wait for a turn, so their debt is bounded as that of promises.
        let forgives = io.op == Op::Flush || (by_promise && self.promises.has_rate(slot));
        let most = self.max_lead.max(2 * cost);
        (self.shares).charge_now(view.now(), slot, cost, forgives.then_some(most));
        if by_promise {
            let bytes = moved(view, io.op, io.len).into();
            (self.promises).spend(view.now(), slot, bytes, io.first_served());
            if io.first_bytes > u64::from(io.len) {
                self.begin_rest(view, io);
            }
        }
        if !view.device().seeks {
            let is_write_by_share = !by_promise && io.op == Op::Write;
            (self.write_pace).started(view.now(), io.len, is_write_by_share);
            if by_promise && self.write_pace.is_written_lately() {
                self.watch_beside_writes(view, io);
            }
        } else if io.op != Op::Flush {
            self.charge_turn(view, io, cost);
        }
    }

    /// Charges an I/O to the VM's turn at a disk that seeks, and watches one that is promised.
    #[inline(never)]
    fn charge_turn(&mut self, view: &View, io: &DeviceIo, cost: u64) {
        let slot = io.vm.index();
        // A promise also holds for an I/O that went by share, before its deadline made it urgent.
        if self.promises.has(slot) {
            let positioning = view.device().spec.positioning;
            let bytes = moved(view, io.op, io.len).into();
            let first = io.first_served();
            let late_max = view.now() + Nanos(TRANSFER_LATE_POSITIONINGS * positioning.0);
            let vm = (view.now(), slot, view.requests(io.vm));
            let watched_for = (self.promises).watched_for(vm, io.arrived, (bytes, first), late_max);
            if let Some(watched_for) = watched_for {
                (self.at_disk).started(view.now(), io.id, positioning, watched_for);
            }
        }
        self.stay.charge(slot, cost, self.turn_cost());
        self.turns.charge(slot, cost);
    }

    /// Records the request of which an I/O by promise was the first part.
    #[cold]
    #[inline(never)]
    fn begin_rest(&mut self, view: &View, io: &DeviceIo) {
        let Some(unit) = view.head(io.vm) else {
            return;
        };
        let head = view.queued(unit);
        let (.., whole) = head.request();
        if head.unit().len < whole {
            let (deadline, early) = (self.promised_deadline, self.is_early);
            (self.promises).begin_rest(io.vm.index(), unit, deadline, early);
        }
    }

    /// Has the pace of writes watch a promised I/O that goes beside writes by share.
    #[inline(never)]
    fn watch_beside_writes(&mut self, view: &View, io: &DeviceIo) {
        let slot = io.vm.index();
        // A transfer has until its due time.
        if self.promises.has_transfer(slot) {
            return;
        }
        let (span, latency) = self.promises.span_and_latency(slot);
        let by_bound = self.is_early || self.promises.is_by_envelope(slot);
        let after = if by_bound { latency } else { span };
        let floor = self.promises.has_floor(slot).then_some(span);
        let since = self.promised_deadline - after;
        (self.write_pace).watch(view.now(), io.id, since, (floor, latency));
    }
}
