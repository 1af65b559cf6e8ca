//! Bookkeeping of events in CFQ: starts and ends of I/Os, arrivals, and VMs that come, change and
//! go.

use super::Cfq;
use super::params::AsyncQueues;
use super::queue::{IDLE, Queue};
use tidegate_base::objective::Priority;
use tidegate_base::request::{DeviceIo, Op, ReqId, VmId};
use tidegate_base::time::Nanos;
use tidegate_core::view::View;

/// Think times count for at most this multiple of `slice_idle`, as in Linux, so that one long pause
/// does not dominate the mean.
const THINK_TIME_MAX_IDLES: u64 = 2;

impl Cfq {
    /// Books the start of an I/O; flushes count for no queue.
    pub(super) fn started(&mut self, view: &View, io: &DeviceIo) {
        if io.op == Op::Flush {
            return;
        }
        let lane = io.op.lane();
        let queue = self.queue_of(view, io.vm, lane);
        let (picked, end) = (self.picked.take(), io.addr + io.len as u64);
        self.queues[queue].in_flight += 1;
        self.queues[queue].position = end;
        self.in_flight[!self.is_sync(queue) as usize] += 1;
        if let Some(active) = self.active.as_mut().filter(|a| a.queue == queue) {
            active.started += 1;
        }
        // Served now: the wait that `idle_class_overdue` bounds begins anew.
        if self.idle_waiting.contains(queue) {
            self.idle_waiting.set(queue, view.now());
        }
        let picked = picked.expect("only what was picked starts");
        // A partial start leaves the rest of the unit at a higher address.
        if end < picked.end {
            self.order.update_address(io.vm, lane, picked.slot, end);
        }
    }

    /// Books the end of an I/O. The first end in a turn begins the slice, and an end after the
    /// slice is over ends the turn with its overrun.
    pub(super) fn ended(&mut self, view: &View, io: &DeviceIo) {
        let queue = self.queue_of(view, io.vm, io.op.lane());
        let now = view.now();
        // Flushes count as activity above the idle class, though they belong to no queue.
        if self.queues[queue].class != Priority::Idle {
            self.last_activity = Some(now);
        }
        if io.op == Op::Flush {
            return;
        }
        self.in_flight[!self.is_sync(queue) as usize] -= 1;
        let slice = self.slice(queue);
        let of_queue = &mut self.queues[queue];
        of_queue.in_flight -= 1;
        of_queue.last_end = now;
        let (rank, kind) = (of_queue.rank(), of_queue.kind);
        self.trees.ended((rank, kind), now);
        let Some(active) = self.active.as_mut().filter(|a| a.queue == queue) else {
            return;
        };
        let ends = active.ends;
        if ends.is_none() {
            let granted = self.trees.granted_slice(&self.params, rank, slice);
            (active.began, active.ends) = (now, Some(now + granted));
        }
        match ends {
            // One I/O is a whole turn of the idle class.
            _ if rank == IDLE => self.expire(view, None),
            Some(ends) if ends <= now => {
                self.expire(view, Some(ends.0 as i64 - now.0 as i64));
            }
            _ => {}
        }
    }

    /// Samples the think time and, where seekers are grouped, the distance of a request that
    /// arrived.
    pub(super) fn arrived(&mut self, view: &View, unit: ReqId) {
        let (vm, lane) = view.queued(unit).vm_lane();
        let (queue, now) = (self.queue_of(view, vm, lane), view.now());
        let slice_idle = self.params.slice_idle;
        let long = Nanos(slice_idle.0.saturating_mul(THINK_TIME_MAX_IDLES));
        let of_queue = &mut self.queues[queue];
        if of_queue.last_end != Nanos::MAX {
            of_queue
                .think
                .sample(now.since(of_queue.last_end).min(long));
        }
        if !self.params.group_seekers {
            return;
        }
        let unit = view.queued(unit).unit();
        // Flash has no positioning; there a small request counts as a seek instead of a distant
        // one.
        let seeks = view.device().spec.positioning > Nanos::ZERO;
        of_queue.record_request(unit.addr, unit.len as u64, seeks);
        of_queue.weigh_idling(slice_idle);
        let of_tree = (of_queue.rank(), of_queue.kind);
        self.trees.sample_think_time(of_tree, now, long);
    }

    /// Returns the indices of the queues that are a VM's own: one, or two with asynchronous writes
    /// that are not shared.
    pub(super) fn queues_of(&self, vm: VmId) -> core::ops::Range<usize> {
        let first = self.sync_queue(vm);
        let count = match self.params.async_queues() {
            AsyncQueues::PerVm => 2,
            AsyncQueues::None | AsyncQueues::Shared => 1,
        };
        first..first + count
    }

    /// Sets the priority of a VM's queues. `class_is_controlled`: a controller set it, instead of
    /// the objective.
    pub(super) fn set_class(
        &mut self,
        view: &View,
        vm: VmId,
        class: Priority,
        class_is_controlled: bool,
    ) {
        for queue in self.queues_of(vm) {
            let in_tree = self.queues[queue].in_tree;
            self.take_from_tree(queue);
            let of_queue = &mut self.queues[queue];
            (of_queue.class, of_queue.class_is_controlled) = (class, class_is_controlled);
            if in_tree {
                // The queue keeps its due time in its new class.
                self.put_in_tree(queue);
            }
            self.update_place(view, queue);
        }
    }

    pub(super) fn vm_added(&mut self, view: &View, vm: VmId) {
        let class = self.class_of(view, vm);
        for queue in self.queues_of(vm) {
            self.queues[queue] = Queue::new(class);
        }
    }

    pub(super) fn vm_removed(&mut self, view: &View, vm: VmId) {
        for queue in self.queues_of(vm) {
            if self.active.is_some_and(|a| a.queue == queue) {
                self.active = None;
            }
            if let Some(active) = self.active.as_mut() {
                // The preemption must not pass to another VM that takes this slot later.
                active.gives_way_to.take_if(|to| *to == queue);
            }
            self.update_place(view, queue);
        }
        if self.params.async_queues() == AsyncQueues::Shared {
            self.shared_writers.set(vm.index(), false);
            self.update_place(view, self.shared_queue());
        }
    }
}
