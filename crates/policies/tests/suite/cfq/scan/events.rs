//! Reactions of the model's rules to events.

use super::{Active, Queue, Scan, Seen, rank};
use crate::common::lab::{GUESTS, Lab, Model};
use tidegate_core::objective::Priority;
use tidegate_core::request::{DeviceIo, Lane, ReqId};

impl Model for Scan {
    fn reset(&mut self, lab: &Lab) {
        *self = Scan::new(self.params, self.depth);
        self.add_shared_queue();
        (0..GUESTS).for_each(|guest| self.added(lab, guest));
        for io in &lab.in_flight() {
            if Scan::guest(lab, io.vm).is_none() && self.queues.iter().all(|q| q.vm != Some(io.vm))
            {
                self.add_queues(lab, io.vm);
            }
            let queue = self.queue_of(lab, io.vm, io.op.lane());
            self.queues[queue].in_flight += 1;
        }
        // Everything comes with all gates open; then gates are asked.
        self.open = [[true; 2]; GUESTS];
        let mut order = lab.waiting.clone();
        order.sort_by_key(|w| lab.unit(w.0).seq);
        order.into_iter().for_each(|unit| self.learn(lab, unit));
        self.note_gates(lab);
    }

    fn added(&mut self, lab: &Lab, guest: usize) {
        let member = &lab.guests[guest];
        self.add_queues(lab, member.vm);
        self.open[guest] = Lane::ALL.map(|lane| lab.open(guest, lane));
    }

    fn weight_changed(&mut self, lab: &Lab, guest: usize) {
        let member = &lab.guests[guest];
        for queue in 0..self.queues.len() {
            if self.queues[queue].vm == Some(member.vm) {
                self.queues[queue].class = self.class(lab, member.vm);
                self.rank(lab, queue);
            }
        }
    }

    fn refresh(&mut self, lab: &Lab) {
        let gone = |s: &Seen| lab.waiting.iter().all(|w| w.0 != s.id);
        while let Some(place) = self.seen.iter().position(gone) {
            let gone = self.seen.remove(place);
            let queue = self.queue_of(lab, gone.vm, gone.lane);
            self.rank(lab, queue);
        }
        self.forget_the_gone(lab);
        self.note_gates(lab);
        lab.waiting.iter().for_each(|&unit| self.learn(lab, unit));
    }

    fn next(&mut self, lab: &Lab) -> Option<ReqId> {
        if self.seen.is_empty() {
            return None;
        }
        let now = lab.driver.now.0;
        self.give_way(lab);
        if let Some(active) = self.active {
            let queue = active.queue;
            let first = self.first().map(|q| rank(self.queues[q].class));
            let Queue {
                class, in_flight, ..
            } = self.queues[queue];
            let idle = class == Priority::Idle;
            let level = match class {
                Priority::BestEffort(level) => level,
                _ => 4,
            };
            let most_async = 2 * self.params.async_rq * (8 - u64::from(level));
            let preempted = first.is_some_and(|first| first < rank(class));
            if preempted && (self.params.preemption || idle) {
                let left = (!idle).then(|| self.left(lab, active));
                self.expire(lab, left);
            } else if active.ends.is_some_and(|ends| ends <= now)
                || (self.queues[queue].kind == 1 && first.is_some() && active.started >= most_async)
            {
                self.expire(lab, None);
            } else if !self.ready(lab, queue).is_empty() {
                return self.may_start(lab, active).then(|| self.pick(lab, active));
            } else if first.is_none() {
                return None;
            } else if in_flight > 0 {
                self.note_fast_device(lab, active);
                if idle || self.waited_for(lab, queue) {
                    return None;
                }
                self.expire(lab, None);
            } else {
                match self.idles_until(lab, active) {
                    Some(until) if until > now => return None,
                    Some(_) => {
                        self.queues[queue].deep = false;
                        self.expire(lab, Some(self.left(lab, active)));
                    }
                    None => {
                        self.note_fast_device(lab, active);
                        self.expire(lab, None);
                    }
                }
            }
        }
        let (queue, favoured) = self.choose(lab)?;
        self.favoured = favoured;
        self.activate(queue, None);
        let active = self.active.expect("just so");
        self.may_start(lab, active).then(|| self.pick(lab, active))
    }

    fn started(&mut self, lab: &Lab, _guest: usize, io: &DeviceIo) {
        let queue = self.queue_of(lab, io.vm, io.op.lane());
        self.queues[queue].in_flight += 1;
        self.queues[queue].position = io.addr + io.len as u64;
        if let Some(active) = self.active.as_mut().filter(|a| a.queue == queue) {
            active.started += 1;
        }
        if self.queues[queue].idle_since.is_some() {
            self.queues[queue].idle_since = Some(lab.driver.now.0);
        }
    }

    fn arrived(&mut self, lab: &Lab, guest: usize) {
        let &(id, _) = lab.waiting.last().expect("it waits");
        let lane = lab.unit(id).op.lane();
        let queue = self.queue_of(lab, lab.guests[guest].vm, lane);
        if let Some(last_end) = self.queues[queue].last_end {
            let thought = (lab.driver.now.0 - last_end).min(2 * self.params.idle);
            self.queues[queue].thoughts.push(thought);
        }
        let unit = lab.unit(id);
        self.weigh(lab, queue, unit.addr, unit.len.into());
    }

    fn ending(&mut self, lab: &Lab, io: &DeviceIo) {
        let queue = self.queue_of(lab, io.vm, io.op.lane());
        if self.queues[queue].class != Priority::Idle {
            self.asked = Some(lab.driver.now.0);
        }
        self.queues[queue].in_flight -= 1;
        self.queues[queue].last_end = Some(lab.driver.now.0);
        let tree = (rank(self.queues[queue].class), self.queues[queue].tree);
        self.tree_ends.insert(tree, lab.driver.now.0);
        let Some(active) = self.active.filter(|a| a.queue == queue) else {
            return;
        };
        if active.ends.is_none() {
            let ends = lab.driver.now.0 + self.granted(queue);
            self.active = Some(Active {
                ends: Some(ends),
                began: lab.driver.now.0,
                ..active
            });
        }
        if self.queues[queue].class == Priority::Idle {
            self.expire(lab, None);
        } else if let Some(ends) = active.ends
            && ends <= lab.driver.now.0
        {
            self.expire(lab, Some(ends as i128 - lab.driver.now.0 as i128));
        }
    }
}
