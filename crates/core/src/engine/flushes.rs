//! Flush lane: flushes do not wait for data. All waiting flushes of a disk go as one I/O, one such
//! I/O at a time.

use crate::view::Requests;
use std::collections::VecDeque;
use tidegate_base::slab::NIL;

/// Waiting flushes of one disk, linked by [`Hot::chain_next`](crate::view::Hot).
#[derive(Clone, Copy)]
struct Queue {
    first: u32,
    last: u32,
    count: u32,
    /// A flush of the disk is in flight.
    in_flight: bool,
}

impl Queue {
    const EMPTY: Queue = Queue {
        first: NIL,
        last: NIL,
        count: 0,
        in_flight: false,
    };
}

/// Flushes that wait for their disk's turn.
pub(super) struct FlushLane {
    /// Queues by disk slot.
    queues: Vec<Queue>,
    /// Disks with waiting flushes and none in flight, in the order of their turn.
    turns: VecDeque<u32>,
    /// The I/O that went last was a flush: data has the next turn.
    went_last: bool,
}

impl FlushLane {
    pub(super) fn new() -> FlushLane {
        FlushLane {
            queues: Vec::new(),
            turns: VecDeque::new(),
            went_last: false,
        }
    }

    /// Makes room for the flushes of `disks` slots of disks.
    pub(super) fn make_room(&mut self, disks: usize) {
        if self.queues.len() < disks {
            self.queues.resize(disks, Queue::EMPTY);
            self.turns.reserve(disks);
        }
    }

    /// Returns whether a disk has its turn and flushes did not have the last one.
    #[inline]
    pub(super) fn may_go(&self) -> bool {
        !self.turns.is_empty() && !self.went_last
    }

    /// Returns whether no disk has a turn.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.turns.is_empty()
    }

    /// Records that data had its turn, or that there was none that may go.
    #[inline]
    pub(super) fn data_had_turn(&mut self) {
        self.went_last = false;
    }

    /// Iterates over the disks in the order of their turns.
    pub(super) fn turns(&self) -> impl Iterator<Item = u32> + '_ {
        self.turns.iter().copied()
    }

    /// Puts a request at the end of its disk's queue.
    pub(super) fn push(&mut self, reqs: &mut Requests, slot: u32, disk: u32) {
        let queue = &mut self.queues[disk as usize];
        debug_assert_ne!(queue.last, slot, "a queue that leads to itself has no end");
        match queue.last {
            NIL => queue.first = slot,
            last => reqs.hot[last as usize].chain_next = slot,
        }
        queue.last = slot;
        queue.count += 1;
        // The first one that waits gets the turn; others go with it, or wait for the flush in
        // flight.
        if queue.count == 1 && !queue.in_flight {
            self.turns.push_back(disk);
        }
    }

    /// Iterates over the requests that wait in a disk's queue.
    pub(super) fn waiting<'a>(
        &self,
        reqs: &'a Requests,
        disk: u32,
    ) -> impl Iterator<Item = u32> + use<'a> {
        let queue = &self.queues[disk as usize];
        let next = |&slot: &u32| Some(reqs.hot[slot as usize].chain_next);
        let waiting = core::iter::successors(Some(queue.first), next);
        waiting.take(queue.count as usize)
    }

    /// Takes the next disk that has its turn and for which `may` holds; the others lose their turns
    /// until [`FlushLane::revive`] or the end of their flush in flight.
    pub(super) fn next_disk(&mut self, may: impl Fn(u32) -> bool) -> Option<u32> {
        while let Some(disk) = self.turns.pop_front() {
            if may(disk) {
                return Some(disk);
            }
        }
        None
    }

    /// Takes all flushes of a disk that now go as one: the first request, and how many there are.
    pub(super) fn start(&mut self, disk: u32) -> (u32, u32) {
        let queue = &mut self.queues[disk as usize];
        let (first, count) = (queue.first, queue.count);
        debug_assert!(
            count > 0 && !queue.in_flight,
            "a flush of disk {disk} starts for no request, or beside one in flight"
        );
        *queue = Queue {
            // Flushes that arrive from now on are not covered by this I/O and wait for its end.
            in_flight: true,
            ..Queue::EMPTY
        };
        self.went_last = true;
        (first, count)
    }

    /// Ends a disk's flush in flight; flushes that came meanwhile get a turn.
    pub(super) fn end(&mut self, disk: u32) {
        let queue = &mut self.queues[disk as usize];
        debug_assert!(
            queue.in_flight,
            "a flush of disk {disk} ends that was not started"
        );
        queue.in_flight = false;
        if queue.count > 0 {
            self.turns.push_back(disk);
        }
    }

    /// Gives a disk that had lost its turn another one, if flushes of it wait.
    pub(super) fn revive(&mut self, disk: u32) {
        let queue = &self.queues[disk as usize];
        // A disk has one turn at most.
        if queue.count > 0 && !queue.in_flight && !self.turns.contains(&disk) {
            self.turns.push_back(disk);
        }
    }

    /// Takes the waiting flushes of a disk for which `are` holds out of its queue. Returns their
    /// slots.
    pub(super) fn remove(
        &mut self,
        reqs: &mut Requests,
        disk: u32,
        are: impl Fn(&Requests, u32) -> bool,
    ) -> Vec<u32> {
        let queue = &mut self.queues[disk as usize];
        let (mut at, waiting) = (queue.first, queue.count);
        // The queue is built anew from those that stay, in the same order.
        (queue.first, queue.last, queue.count) = (NIL, NIL, 0);
        let mut removed = Vec::new();
        for _ in 0..waiting {
            let this = at;
            at = core::mem::replace(&mut reqs.hot[this as usize].chain_next, NIL);
            if are(reqs, this) {
                removed.push(this);
                continue;
            }
            match queue.last {
                NIL => queue.first = this,
                last => reqs.hot[last as usize].chain_next = this,
            }
            queue.last = this;
            queue.count += 1;
        }
        assert_eq!(
            at, NIL,
            "more than the {waiting} flushes counted wait for disk slot {disk}"
        );
        if queue.count == 0 {
            // Without flushes the turn is void; `start` would find an empty queue.
            self.turns.retain(|&waiting| waiting != disk);
        }
        removed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lane_of_two_disks() -> (FlushLane, Requests) {
        let mut lane = FlushLane::new();
        lane.make_room(2);
        let mut reqs = Requests::new(8);
        for (slot, disk) in [(0, 0), (1, 1), (2, 0), (3, 0)] {
            lane.push(&mut reqs, slot, disk);
        }
        (lane, reqs)
    }

    #[test]
    fn a_disks_flushes_go_as_one_and_the_next_wait_for_its_end() {
        let (mut lane, mut reqs) = lane_of_two_disks();
        assert!(lane.may_go());
        assert_eq!(lane.next_disk(|_| true), Some(0));
        assert_eq!(lane.start(0), (0, 3));
        assert!(!lane.may_go(), "data has the next turn");
        lane.data_had_turn();
        lane.push(&mut reqs, 4, 0);
        assert_eq!(lane.turns().collect::<Vec<_>>(), [1]);
        lane.end(0);
        assert_eq!(lane.turns().collect::<Vec<_>>(), [1, 0]);
    }

    #[test]
    fn a_disk_that_may_not_go_gets_its_turn_back_once_it_may() {
        let (mut lane, _) = lane_of_two_disks();
        assert_eq!(lane.next_disk(|disk| disk != 0), Some(1));
        assert!(lane.is_empty());
        lane.revive(0);
        lane.revive(0);
        assert_eq!(lane.turns().collect::<Vec<_>>(), [0]);
    }

    #[test]
    fn flushes_leave_from_anywhere_in_the_queue() {
        let (mut lane, mut reqs) = lane_of_two_disks();
        assert_eq!(lane.remove(&mut reqs, 0, |_, slot| slot != 2), [0, 3]);
        assert_eq!(lane.remove(&mut reqs, 1, |_, _| true), [1]);
        assert_eq!(lane.turns().collect::<Vec<_>>(), [0]);
        lane.push(&mut reqs, 5, 0);
        assert_eq!((lane.next_disk(|_| true), lane.start(0)), (Some(0), (2, 2)));
        assert_eq!(reqs.hot[2].chain_next, 5);
    }
}
