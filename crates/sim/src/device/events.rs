//! Event queue of a device: in the order of time, at the same time in the order of planning.

use core::cmp::Ordering;
use std::collections::BinaryHeap;
use tidegate_core::time::Nanos;

/// Event at a time known beforehand. Numbers are those of VMs, workers, requests and messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Event {
    /// A VM comes.
    Arrive(u32),
    /// A VM is removed.
    Leave(u32),
    /// A worker begins.
    Start(u32),
    /// A worker's time is over.
    Stop(u32),
    /// A worker's pause is over, or its next request comes.
    Issue(u32),
    /// A request reaches the scheduler.
    Submit(u32),
    /// A request's answer reaches its VM.
    Answer(u32),
    /// A change of the scenario takes effect.
    Change(u32),
    /// A host's message arrives at another.
    Message(u32),
    /// An I/O reaches the device's end of the transport.
    Reach(u32),
    /// A completion reaches its host.
    Return(u32),
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct Planned {
    at: Nanos,
    order: u64,
    event: Event,
}

impl Ord for Planned {
    fn cmp(&self, other: &Self) -> Ordering {
        // The heap gives its largest first.
        (other.at, other.order).cmp(&(self.at, self.order))
    }
}

impl PartialOrd for Planned {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Events that are planned.
#[derive(Default)]
pub(super) struct EventQueue {
    heap: BinaryHeap<Planned>,
    planned: u64,
}

impl EventQueue {
    /// Plans an event.
    pub(super) fn plan(&mut self, at: Nanos, event: Event) {
        // A heap alone would return events of one time in any order.
        let order = self.planned;
        self.planned += 1;
        self.heap.push(Planned { at, order, event });
    }

    /// Time of the next event; [`Nanos::MAX`] if none is planned.
    pub(super) fn next(&self) -> Nanos {
        self.heap.peek().map_or(Nanos::MAX, |p| p.at)
    }

    /// Removes and returns the next event that is due by `now`.
    pub(super) fn due(&mut self, now: Nanos) -> Option<Event> {
        if self.next() > now {
            return None;
        }
        self.heap.pop().map(|p| p.event)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_planned_for_one_time_happens_in_the_order_of_planning() {
        let mut events = EventQueue::default();
        for (at, n) in [(5, 0), (3, 1), (5, 2), (3, 3), (9, 4)] {
            events.plan(Nanos(at), Event::Issue(n));
        }
        let mut happened = Vec::new();
        while let Some(Event::Issue(n)) = events.due(Nanos(5)) {
            happened.push(n);
        }
        assert_eq!(happened, [1, 3, 0, 2]);
        assert_eq!(events.next(), Nanos(9));
    }
}
