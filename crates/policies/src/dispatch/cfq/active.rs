//! The active queue: its choice of units, idling for it, and the end of its turn.

use super::address_order::Backwards;
use super::queue::{IDLE, Queue};
use super::{Cfq, Picked};
use tidegate_base::objective::Priority;
use tidegate_base::request::{Lane, ReqId};
use tidegate_base::time::Nanos;
use tidegate_core::roles::Pick;
use tidegate_core::view::View;

/// Distance in bytes from the head within which a request may preempt a queue that is idled for
/// (Linux: `CFQQ_CLOSE_THR`, 8192 sectors).
const CLOSE_DISTANCE_BYTES: u64 = 4 << 20;

/// Queue that has the device, with its slice.
#[derive(Clone, Copy, Debug)]
pub(super) struct Active {
    pub(super) queue: usize,
    /// End of the slice, once known.
    pub(super) ends: Option<Nanos>,
    /// Begin of the slice, once known: the first end of an I/O of the queue.
    pub(super) began: Nanos,
    /// I/Os started in this slice.
    pub(super) started: u32,
    /// Queue to which asynchronous writes give way once they have had an I/O.
    pub(super) gives_way_to: Option<usize>,
}

impl Active {
    /// Makes a queue active. With `ends` it gets the rest of another's slice; without, its own
    /// slice runs from its first I/O's end.
    pub(super) fn new(queue: usize, ends: Option<Nanos>) -> Active {
        Active {
            queue,
            ends,
            began: Nanos::ZERO,
            started: 0,
            gives_way_to: None,
        }
    }
}

/// Decision on the active queue.
pub(super) enum Turn {
    /// The queue stays active, with the pick for now.
    Stays(Pick),
    /// The queue's turn is over, with the rest of its slice in nanoseconds where that counts.
    Over(Option<i64>),
}

impl Cfq {
    /// Returns the rest of the active queue's slice in nanoseconds; below zero, the overrun.
    fn slice_left(&self, view: &View, active: Active) -> i64 {
        match active.ends {
            Some(ends) => ends.0 as i64 - view.now().0 as i64,
            None => self.slice(active.queue).0 as i64,
        }
    }

    /// Returns whether a queue that has nothing to start may be idled for.
    fn is_worth_waiting(&self, view: &View, queue: usize) -> bool {
        if !self.is_sync(queue) {
            return false;
        }
        let (vm, of_queue) = (self.vm_of(view, queue), &self.queues[queue]);
        let spec = &view.device().spec;
        // Idling pays off where a request at the present place is cheaper; on flash it would only
        // leave the device's parallelism unused (Linux: `hw_tag` and non-rotational).
        let seeks = spec.positioning > Nanos::ZERO || spec.depth == 1;
        seeks
            && self.params.slice_idle > Nanos::ZERO
            && of_queue.class != Priority::Idle
            && self.expects_request(of_queue)
            && view.is_live(vm)
            // A VM without credit, or behind a shut gate, could not start the awaited request.
            && view.may_enter(vm)
            && self.lanes(view, queue).iter().all(|&l| view.gate_open(vm, l))
    }

    /// Returns whether a queue's next request is expected within `slice_idle`. Where seekers are
    /// grouped, a seeker counts only if it is the last of its group, and with the think time of the
    /// group.
    fn expects_request(&self, of_queue: &Queue) -> bool {
        let soon = |mean: Option<Nanos>| mean.is_none_or(|mean| mean <= self.params.slice_idle);
        let (rank, kind) = (of_queue.rank(), of_queue.kind);
        // As before Linux 2.6.33: each queue is judged by its own think time.
        if !self.params.group_seekers {
            return soon(of_queue.think.mean());
        }
        of_queue.idle_window
            // Other seekers keep the device busy as long as any waits; only the last is worth
            // idling for.
            || (self.trees.count(rank, kind) == 0 && soon(self.trees.thinks(rank, kind)))
    }

    /// Returns the time until which the device idles for the active queue, which has nothing to
    /// start and nothing in flight; `None` if it does not.
    fn idles_until(&self, view: &View, active: Active) -> Option<Nanos> {
        let of_queue = &self.queues[active.queue];
        if of_queue.last_end == Nanos::MAX || !self.is_worth_waiting(view, active.queue) {
            return None;
        }
        let thinks = of_queue.think.mean().unwrap_or(Nanos::ZERO);
        // A request that comes after the end of the slice gains nothing from idling.
        let fits = active.ends.is_none_or(|e| view.now() + thinks <= e);
        let until = of_queue.last_end + self.params.slice_idle;
        fits.then(|| active.ends.map_or(until, |ends| until.min(ends)))
    }

    /// Decides whether the active queue stays, and its pick if it does.
    pub(super) fn continue_turn(&mut self, view: &View, active: Active) -> Turn {
        let (queue, now) = (active.queue, view.now());
        let Queue {
            in_flight, class, ..
        } = self.queues[queue];
        let idle = class == Priority::Idle;
        let first = self.trees.first_rank();
        let preempts = self.params.preemption || idle;
        if preempts && first.is_some_and(|rank| rank < self.queues[queue].rank()) {
            // Preempted by a higher class: the rest of the slice counts, except for the idle class,
            // which has no slices.
            return Turn::Over((!idle).then(|| self.slice_left(view, active)));
        }
        let most = self.params.async_ios_max(class);
        // While others wait, a slice of asynchronous writes is also bounded in I/Os.
        let written = !self.is_sync(queue) && first.is_some() && active.started >= most;
        if written || active.ends.is_some_and(|ends| ends <= now) {
            // A slice that was used up leaves nothing for the queue's next place.
            return Turn::Over(None);
        }
        if self.has_any(view, queue) {
            return Turn::Stays(self.start_or_wait(view, active));
        }
        // No other queue waits: this one keeps the device at no other's expense.
        if first.is_none() {
            return Turn::Stays(Pick::Idle(Nanos::MAX));
        }
        let idles_until = match in_flight {
            0 => self.idles_until(view, active),
            _ => None,
        };
        if idles_until.is_none() {
            self.detect_fast_device(view, active);
        }
        if in_flight > 0 && (idle || self.is_worth_waiting(view, queue)) {
            return Turn::Stays(Pick::Wait(active.ends.unwrap_or(Nanos::MAX)));
        }
        match idles_until {
            None => Turn::Over(None),
            Some(until) if until <= now => {
                // Idled in vain: the rest counts for the next place, and a deep queue no longer
                // counts as deep.
                self.queues[queue].deep = false;
                Turn::Over(Some(self.slice_left(view, active)))
            }
            Some(until) => Turn::Stays(Pick::Wait(until)),
        }
    }

    /// Stops idling for a queue that seeks and was idled for because it is deep, if it ran dry
    /// before half its slice: the device is faster than the queue can keep it busy.
    fn detect_fast_device(&mut self, view: &View, active: Active) {
        let of_queue = &mut self.queues[active.queue];
        let early = active
            .ends
            .is_none_or(|ends| ends.since(view.now()) > view.now().since(active.began));
        if of_queue.is_seeky() && of_queue.idle_window && early {
            (of_queue.deep, of_queue.idle_window) = (false, false);
        }
    }

    /// Returns the maximum number of I/Os that the active queue may have in flight.
    fn depth_limit(&self, view: &View, active: Active) -> u32 {
        let (queue, quantum) = (active.queue, self.params.quantum);
        let of_queue = &self.queues[queue];
        if of_queue.class == Priority::Idle {
            return 1;
        }
        let alone = if self.is_sync(queue) {
            self.trees.waiting_sync() == 0
        } else {
            self.trees.waiting() == 0
        };
        // Time that the I/Os in flight may take, at one `slice_idle` each: as in Linux, a slice
        // that they outlast gets no more than half the depth.
        let lasts = Nanos(
            self.params
                .slice_idle
                .0
                .saturating_mul(of_queue.in_flight.into()),
        );
        if alone {
            u32::MAX
        } else if active.ends.is_none_or(|ends| view.now() + lasts > ends) {
            // At least 1: with a `quantum` of 1 the half of it would let nothing go.
            (quantum / 2).max(1)
        } else {
            quantum
        }
    }

    /// Picks the active queue's next unit, or waits. Synchronous and asynchronous I/Os are not in
    /// flight together where that would disturb a queue that is idled for.
    pub(super) fn start_or_wait(&mut self, view: &View, active: Active) -> Pick {
        let queue = active.queue;
        let [sync, asynchronous] = self.in_flight;
        let apart = if self.is_sync(queue) {
            // An asynchronous write in flight would move the head away from the place that is idled
            // at.
            asynchronous == 0 || !self.is_worth_waiting(view, queue)
        } else {
            sync == 0
        };
        if apart && self.queues[queue].in_flight < self.depth_limit(view, active) {
            self.start(view, active)
        } else {
            Pick::Wait(active.ends.unwrap_or(Nanos::MAX))
        }
    }

    /// Picks the active queue's next unit: the oldest, once a slice and if it has expired, else the
    /// next in its elevator.
    fn start(&mut self, view: &View, active: Active) -> Pick {
        let expire = self.params.fifo_expire[!self.is_sync(active.queue) as usize];
        // Only the first I/O of a slice may be chosen by its age.
        let oldest = (active.started == 0).then(|| self.oldest(view, active.queue));
        let oldest = oldest.flatten().map(|head| head.index);
        let expired = oldest.filter(|&o| self.order.entered(o) + expire <= view.now());
        let back = Backwards {
            max: self.params.back_seek_max,
            penalty: self.params.back_seek_penalty,
        };
        let position = self.queues[active.queue].position;
        let next = || {
            let order = &self.order;
            if self.is_shared(active.queue) {
                let writers = self.shared_writers.slots();
                let lanes = writers.map(|slot| (view.vm_at(slot), Lane::Write));
                return order.next_in_elevator(view, lanes, position, back);
            }
            let vm = self.vm_of(view, active.queue);
            let lanes = self.lanes(view, active.queue).iter();
            order.next_in_elevator(view, lanes.map(|&lane| (vm, lane)), position, back)
        };
        let slot = expired.or_else(next).expect("the queue has something");
        let head = view.req_id(slot);
        let unit = view.queued(head).unit();
        self.picked = Some(Picked {
            slot,
            end: unit.addr + unit.len as u64,
        });
        Pick::Start {
            head,
            max: u32::MAX,
            held: Nanos::ZERO,
        }
    }

    /// Returns the oldest unit of a queue that may start.
    fn oldest(&self, view: &View, queue: usize) -> Option<ReqId> {
        if self.is_shared(queue) {
            let writers = self.shared_writers.slots();
            let heads = writers.filter_map(|slot| view.lane_head(view.vm_at(slot), Lane::Write));
            return heads.min_by_key(|&head| view.queued(head).seq());
        }
        let vm = self.vm_of(view, queue);
        match self.lanes(view, queue) {
            [lane] => view.lane_head(vm, *lane),
            _ => view.head(vm),
        }
    }

    /// Handles a request that came to `queue` and may start: preempts the active queue if the rules
    /// allow.
    pub(super) fn preempt(&mut self, view: &View, queue: usize, addr: u64) {
        let Some(active) = self.active.filter(|active| active.queue != queue) else {
            return;
        };
        if !self.params.preemption {
            return;
        }
        let (of_active, of_new) = (&self.queues[active.queue], &self.queues[queue]);
        // Asynchronous writes and lower classes preempt nothing; a turn of the idle class ends in
        // `turn`.
        if !self.is_sync(queue) || of_new.rank() > of_active.rank() || of_active.rank() == IDLE {
            return;
        }
        if !self.is_sync(active.queue) {
            let active = self.active.as_mut().expect("just seen");
            // The first to preempt goes first; others find a synchronous queue active.
            active.gives_way_to.get_or_insert(queue);
            return self.give_way(view);
        }
        let dry = of_active.in_flight == 0 && !self.has_any(view, active.queue);
        let close = addr.abs_diff(view.device().last_addr) <= CLOSE_DISTANCE_BYTES;
        // A time that has passed means that `continue_turn` ends the slice at the next pick anyway.
        let idles = |until: Nanos| until > view.now();
        if dry && close && self.idles_until(view, active).is_some_and(idles) {
            self.replace(view, active, queue, active.ends);
        }
    }

    /// Ends the turn of asynchronous writes that were preempted, in favour of the queue that did
    /// it. Each turn has at least one I/O, so that a stream of synchronous requests does not starve
    /// writes.
    pub(super) fn give_way(&mut self, view: &View) {
        let Some(active) = self.active.filter(|active| active.started > 0) else {
            return;
        };
        if let Some(queue) = active.gives_way_to {
            self.replace(view, active, queue, None);
        }
    }

    /// Gives the active queue's place to another queue, if that still has something to start.
    fn replace(&mut self, view: &View, active: Active, queue: usize, ends: Option<Nanos>) {
        let left = self.slice_left(view, active);
        // Ends the old turn first: `expire` acts on whichever queue is active.
        self.expire(view, Some(left));
        let by = &self.queues[queue];
        if by.in_tree {
            let (rank, kind) = (by.rank(), by.kind);
            self.trees.preempted(&self.params, view.now(), rank, kind);
            self.activate(queue, ends);
        }
    }
}
