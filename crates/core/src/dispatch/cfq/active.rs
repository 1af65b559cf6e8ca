//! The active queue: what it starts, whether it is waited for, and when its turn is over.

use super::order::Backwards;
use super::queue::{IDLE, Queue, rank_of};
use super::{Cfq, Picked};
use crate::facts::{Facts, Life};
use crate::objective::Priority;
use crate::roles::Pick;
use crate::time::Nanos;

/// A request so near to the head is as good as one that follows.
const CLOSE: u64 = 4 << 20;

/// The queue that has the device.
#[derive(Clone, Copy, Debug)]
pub(super) struct Active {
    pub(super) queue: usize,
    /// When its slice ends, once that is known.
    pub(super) ends: Option<Nanos>,
    /// An I/O has started in this slice.
    pub(super) started: bool,
}

/// What becomes of the active queue.
pub(super) enum Turn {
    /// It stays.
    Stays(Pick),
    /// It is another's turn. What is left of its slice, where that counts.
    Over(Option<i64>),
}

impl Cfq {
    /// What is left of the active queue's slice.
    fn left(&self, facts: &Facts, active: Active) -> i64 {
        match active.ends {
            Some(ends) => ends.0 as i64 - facts.now().0 as i64,
            None => self.slice(active.queue).0 as i64,
        }
    }

    /// Whether a queue that has nothing to start may be waited for.
    fn is_worth_waiting(&self, facts: &Facts, queue: usize) -> bool {
        let (vm, of_queue) = (self.vm_of(facts, queue), &self.queues[queue]);
        let spec = &facts.device().spec;
        let seeks = spec.positioning > Nanos::ZERO || spec.depth == 1;
        let thinks = of_queue.think.mean().unwrap_or(Nanos::ZERO);
        seeks
            && thinks < self.params.slice_idle
            && self.is_sync(queue)
            && of_queue.class != Priority::Idle
            && facts.vms[vm.index()].life == Life::Live
            && facts.may_enter(vm)
            && self.lanes(queue).iter().all(|&l| facts.gate_open(vm, l))
    }

    /// Until when the active queue, which has nothing to start and nothing in flight, is waited
    /// for.
    fn idles_until(&self, facts: &Facts, active: Active) -> Option<Nanos> {
        let of_queue = &self.queues[active.queue];
        if of_queue.last_end == Nanos::MAX || !self.is_worth_waiting(facts, active.queue) {
            return None;
        }
        let thinks = of_queue.think.mean().unwrap_or(Nanos::ZERO);
        let fits = active.ends.is_none_or(|e| facts.now() + thinks <= e);
        let until = of_queue.last_end + self.params.slice_idle;
        fits.then(|| active.ends.map_or(until, |ends| until.min(ends)))
    }

    /// What the active queue does.
    pub(super) fn turn(&mut self, facts: &Facts, active: Active) -> Turn {
        let (queue, now) = (active.queue, facts.now());
        let Queue {
            in_flight, class, ..
        } = self.queues[queue];
        let idle = class == Priority::Idle;
        let first = self.tree.peek().map(|(key, _)| rank_of(key));
        if first.is_some_and(|rank| rank < self.queues[queue].rank()) {
            return Turn::Over((!idle).then(|| self.left(facts, active)));
        }
        if active.ends.is_some_and(|ends| ends <= now) {
            return Turn::Over(None);
        }
        let slice_end = active.ends.unwrap_or(Nanos::MAX);
        if self.has_any(facts, queue) {
            let most = match first {
                _ if idle => 1,
                None => u32::MAX,
                Some(_) => self.params.quantum,
            };
            return Turn::Stays(match in_flight < most {
                true => self.start(facts, active),
                false => Pick::Wait(slice_end),
            });
        }
        if first.is_none() {
            return Turn::Stays(Pick::Idle(Nanos::MAX));
        }
        if in_flight > 0 && (idle || self.is_worth_waiting(facts, queue)) {
            return Turn::Stays(Pick::Wait(slice_end));
        }
        match self.idles_until(facts, active) {
            _ if in_flight > 0 => Turn::Over(None),
            None => Turn::Over(None),
            Some(until) if until <= now => Turn::Over(Some(self.left(facts, active))),
            Some(until) => Turn::Stays(Pick::Wait(until)),
        }
    }

    /// What the active queue starts: the oldest of those that have expired, once a slice, or
    /// what its elevator comes to next.
    pub(super) fn start(&mut self, facts: &Facts, active: Active) -> Pick {
        let (vm, lanes) = (self.vm_of(facts, active.queue), self.lanes(active.queue));
        let expire = self.params.fifo_expire[!self.is_sync(active.queue) as usize];
        let oldest = match lanes {
            [lane] => facts.lane_head(vm, *lane),
            _ => facts.head(vm),
        };
        let oldest = oldest.filter(|_| !active.started).map(|head| head.index);
        let expired = oldest.filter(|&o| self.order.entered(o) + expire <= facts.now());
        let back = Backwards {
            max: self.params.back_seek_max,
            penalty: self.params.back_seek_penalty,
        };
        let position = self.queues[active.queue].position;
        let next = || self.order.next(facts, vm, lanes, position, back);
        let slot = expired.or_else(next).expect("the queue has something");
        let head = facts.req_id(slot);
        let unit = facts.unit(head);
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

    /// A request came to `queue`, which may start: whether the active one gives way at once.
    pub(super) fn preempt(&mut self, facts: &Facts, queue: usize, addr: u64) {
        let Some(active) = self.active.filter(|active| active.queue != queue) else {
            return;
        };
        let (of_active, of_new) = (&self.queues[active.queue], &self.queues[queue]);
        if !self.is_sync(queue) || of_new.rank() > of_active.rank() || of_active.rank() == IDLE {
            return;
        }
        let left = Some(self.left(facts, active));
        if !self.is_sync(active.queue) {
            // It has had an I/O: a turn begins with one.
            self.expire(facts, left);
            self.activate(queue, None);
            return;
        }
        let dry = of_active.in_flight == 0 && !self.has_any(facts, active.queue);
        let close = addr.abs_diff(facts.device().last_addr) <= CLOSE;
        let idles = |until: Nanos| until > facts.now();
        if dry && close && self.idles_until(facts, active).is_some_and(idles) {
            self.expire(facts, left);
            self.activate(queue, active.ends);
        }
    }
}
