//! The rules of kinds of workload, of seekers, and of how much is in flight.

use super::{Active, Scan, mean, rank};
use crate::common::lab::Lab;
use tidegate_core::objective::Priority;

const ASYNC: usize = 0;
const SEEKERS: usize = 1;
const OTHERS: usize = 2;

impl Scan {
    pub(super) fn tree_of(&self, queue: usize) -> usize {
        if self.queues[queue].kind == 1 {
            ASYNC
        } else if self.queues[queue].window || !self.params.group {
            OTHERS
        } else {
            SEEKERS
        }
    }

    pub(super) fn waiting(&self, of: impl Fn(u8, usize) -> bool) -> u64 {
        let waiting = self.queues.iter().filter(|q| q.due.is_some());
        waiting.filter(|q| of(rank(q.class), q.tree)).count() as u64
    }

    /// Returns the queue whose turn it is when the tree's first is `first`.
    pub(super) fn next_by_tree(&mut self, lab: &Lab, first: usize) -> usize {
        if !self.params.group {
            return first;
        }
        let (class, now) = (rank(self.queues[first].class), lab.driver.now.0);
        let first_of = |scan: &Scan, tree: usize| {
            let of_tree = (0..scan.queues.len()).filter(|&q| {
                let queue = &scan.queues[q];
                queue.due.is_some() && (rank(queue.class), queue.tree) == (class, tree)
            });
            of_tree.min_by_key(|&q| (scan.queues[q].due, scan.place(q)))
        };
        if let Some((of, tree, until)) = self.serving
            && of == class
            && now <= until
            && let Some(next) = first_of(self, tree)
        {
            return next;
        }
        let firsts = (0..3).filter_map(|tree| first_of(self, tree));
        let next = firsts.min_by_key(|&q| (self.queues[q].due, self.queues[q].tree));
        let next = next.expect("the first is one of them");
        self.serve(lab, class, self.queues[next].tree);
        next
    }

    pub(super) fn preempted(&mut self, lab: &Lab, queue: usize) {
        let (class, tree) = (rank(self.queues[queue].class), self.queues[queue].tree);
        let same = self.serving.is_some_and(|s| (s.0, s.1) == (class, tree));
        if self.params.group && !same {
            self.serve(lab, class, tree);
        }
    }

    fn serve(&mut self, lab: &Lab, class: u8, tree: usize) {
        let target = self.params.target;
        let busy = self.waiting(|of, _| of == class).max(1);
        let busy = busy.max(self.busy[class as usize]);
        let share = target * self.waiting(|of, kind| (of, kind) == (class, tree)) / busy;
        let turn = match tree {
            ASYNC => {
                let all =
                    target * self.waiting(|_, kind| kind == ASYNC) / self.waiting(|_, _| true);
                let [sync, asynchronous] = self.params.slice.map(u128::from);
                (share.min(all) as u128 * asynchronous / sync) as u64
            }
            _ => share.max(2 * self.params.idle),
        };
        self.serving = Some((class, tree, lab.driver.now.0 + turn.max(2_000_000)));
    }

    /// Returns the slice that a queue is granted.
    pub(super) fn granted(&mut self, queue: usize) -> u64 {
        let (slice, class) = (self.slice(queue) as u64, rank(self.queues[queue].class));
        if !self.params.low_latency || class == 2 {
            return slice;
        }
        let busy = self.waiting(|of, _| of == class) + 1;
        let known = self.busy[class as usize];
        let average = (3 * busy.max(known) + busy.min(known) + 2) / 4;
        self.busy[class as usize] = average;
        let [base, _] = self.params.slice;
        let needed = base * average;
        if needed <= self.params.target {
            return slice;
        }
        let least = slice.min(2 * self.params.idle * slice / base);
        (slice * self.params.target / needed).max(least)
    }

    pub(super) fn is_seeky(&self, queue: usize) -> bool {
        let last = self.queues[queue].history.iter().rev().take(32);
        last.filter(|&&seek| seek).count() > 4
    }

    /// Takes in a request of a queue.
    pub(super) fn weigh(&mut self, lab: &Lab, queue: usize, addr: u64, len: u64) {
        if !self.params.group {
            return;
        }
        let others = self
            .seen
            .iter()
            .filter(|s| self.queue_of(lab, s.vm, s.lane) == queue);
        let deep = others.count() + 1 >= 4;
        let of_queue = &mut self.queues[queue];
        let distance = of_queue.asked_to.map_or(0, |last| last.abs_diff(addr));
        let seek = if self.params.positioning > 0 {
            distance > 400 << 10
        } else {
            len < 32 << 10
        };
        of_queue.history.push(seek);
        of_queue.asked_to = Some(addr + len);
        of_queue.deep |= deep;
        let (seeky, thinks) = (self.is_seeky(queue), mean(&self.queues[queue].thoughts));
        let of_queue = &mut self.queues[queue];
        if seeky && !of_queue.deep {
            of_queue.window = false;
        } else if let Some(thinks) = thinks {
            of_queue.window = thinks <= self.params.idle;
        }
        let tree = (rank(of_queue.class), of_queue.tree);
        if let Some(ended) = self.tree_ends.get(&tree) {
            let thought = (lab.driver.now.0 - ended).min(2 * self.params.idle);
            self.thoughts.entry(tree).or_default().push(thought);
        }
    }

    pub(super) fn asks_soon(&self, queue: usize) -> bool {
        if !self.params.group {
            return self.thinks(queue) <= self.params.idle;
        }
        let of_queue = &self.queues[queue];
        let tree = (rank(of_queue.class), of_queue.tree);
        let thoughts = self.thoughts.get(&tree).map_or(&[][..], |all| all);
        let soon = mean(thoughts).is_none_or(|mean| mean <= self.params.idle);
        of_queue.window || (soon && self.waiting(|class, kind| (class, kind) == tree) == 0)
    }

    /// Ends idling for a deep seeker that ran dry in the first half of its slice.
    pub(super) fn note_fast_device(&mut self, lab: &Lab, active: Active) {
        let seeky = self.is_seeky(active.queue);
        let of_queue = &mut self.queues[active.queue];
        let now = lab.driver.now.0;
        let early = |ends: u64| ends.saturating_sub(now) > now - active.began;
        if seeky && of_queue.window && active.ends.is_none_or(early) {
            (of_queue.deep, of_queue.window) = (false, false);
        }
    }

    /// Returns `true` if the active queue may start its next request.
    pub(super) fn may_start(&self, lab: &Lab, active: Active) -> bool {
        let queue = active.queue;
        let flying = |kind: usize| {
            let of_kind = self.queues.iter().filter(|q| q.kind == kind);
            of_kind.map(|q| q.in_flight).sum::<u32>()
        };
        let of_queue = &self.queues[queue];
        let apart = match of_queue.kind {
            0 => flying(1) == 0 || !self.waited_for(lab, queue),
            _ => flying(0) == 0,
        };
        let alone = match of_queue.kind {
            0 => self.waiting(|_, tree| tree != ASYNC) == 0,
            _ => self.waiting(|_, _| true) == 0,
        };
        let lasts = lab.driver.now.0 + self.params.idle * u64::from(of_queue.in_flight);
        let soon_over = active.ends.is_none_or(|ends| lasts > ends);
        let most = match of_queue.class {
            Priority::Idle => 1,
            _ if alone => u32::MAX,
            _ if soon_over => (self.params.depth / 2).max(1),
            _ => self.params.depth,
        };
        apart && of_queue.in_flight < most
    }
}
