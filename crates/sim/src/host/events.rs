//! What is to happen, in the order of time; at the same time in the order it was planned.

use core::cmp::Ordering;
use std::collections::BinaryHeap;
use tidegate_core::time::Nanos;

/// Something that happens to a guest at a time known beforehand.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Event {
    /// A tenant comes.
    Arrive(u32),
    /// A tenant is removed.
    Leave(u32),
    /// A worker begins.
    Start(u32),
    /// A worker's time is over.
    Stop(u32),
    /// A worker's pause is over, or its next request comes.
    Issue(u32),
    /// A request reaches the scheduler.
    Submit(u32),
    /// A request's answer reaches the guest.
    Answer(u32),
    /// What the scenario says changes.
    Change(u32),
    /// What a host told another arrives.
    Message(u32),
    /// An I/O reaches the device's end of the path.
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

/// The queue of them.
#[derive(Default)]
pub(super) struct Events {
    heap: BinaryHeap<Planned>,
    planned: u64,
}

impl Events {
    pub(super) fn plan(&mut self, at: Nanos, event: Event) {
        let order = self.planned;
        self.planned += 1;
        self.heap.push(Planned { at, order, event });
    }

    /// When the next one happens; [`Nanos::MAX`]: none is planned.
    pub(super) fn next(&self) -> Nanos {
        self.heap.peek().map_or(Nanos::MAX, |p| p.at)
    }

    /// The next one that is due by `now`.
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
        let mut events = Events::default();
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
