//! Schedule of a torture run: events by time, and the engine's timeout as the driver sees it.

use crate::fault::Kind;
use core::cmp::Reverse;
use std::collections::BinaryHeap;
use tidegate_core::time::Nanos;

/// Event at a time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Event {
    /// A client may submit a request.
    SubmitRequest(u32),
    /// The device is done with the I/O in this slot.
    IoEnded(u32),
    /// An I/O's end is reported to the engine.
    Deliver(u32),
    /// An I/O's end is reported to the engine a second time.
    DuplicateCompletion(u64),
    /// A fault comes.
    Fault(Kind),
    /// A client reconnects.
    Reconnect(u32),
    /// A VM comes in place of a removed one.
    NewVm,
    /// A VM's deadline transfer begins, or is cancelled.
    Transfer,
    /// The reply in this place has reached its client.
    ReplySent(u32),
    /// The driver has the engine look for disks that hang.
    CheckHungDisks,
}

/// Events that are planned, and the engine's timeout.
pub(super) struct Schedule {
    /// Events by time; at one time in the order of planning.
    events: BinaryHeap<Reverse<(Nanos, u64, Event)>>,
    planned: u64,
    /// Engine's timeout that was seen last, and the time at which the driver calls it.
    wake: (Nanos, Nanos),
}

impl Schedule {
    /// Empty schedule.
    pub(super) fn new() -> Schedule {
        Schedule {
            events: BinaryHeap::with_capacity(1024),
            planned: 0,
            wake: (Nanos::MAX, Nanos::MAX),
        }
    }

    /// Plans an event.
    pub(super) fn plan(&mut self, at: Nanos, event: Event) {
        self.planned += 1;
        self.events.push(Reverse((at, self.planned, event)));
    }

    /// Removes and returns the next event that is due by `now`.
    pub(super) fn due(&mut self, now: Nanos) -> Option<Event> {
        let &Reverse((at, _, event)) = self.events.peek()?;
        (at <= now).then(|| {
            self.events.pop();
            event
        })
    }

    /// Time of the next event or of the engine's timeout; [`Nanos::MAX`] if there is neither.
    /// `late` draws the delay with which the driver serves a timeout that is new.
    pub(super) fn next(&mut self, timeout: Option<Nanos>, late: impl FnOnce() -> Nanos) -> Nanos {
        let event = self.events.peek().map_or(Nanos::MAX, |e| e.0.0);
        let due = timeout.unwrap_or(Nanos::MAX);
        // Once for each timeout: drawn at each call, the latest draw would never be reached.
        if due != self.wake.0 {
            self.wake = (due, due + late());
        }
        event.min(self.wake.1)
    }

    /// Has the driver serve timeouts in time from now on.
    pub(super) fn be_in_time(&mut self) {
        self.wake = (Nanos::MAX, Nanos::MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_of_one_time_are_due_in_the_order_of_planning() {
        let mut schedule = Schedule::new();
        for (at, event) in [
            (7, Event::CheckHungDisks),
            (5, Event::NewVm),
            (5, Event::Transfer),
        ] {
            schedule.plan(Nanos(at), event);
        }
        let due: Vec<_> = core::iter::from_fn(|| schedule.due(Nanos(6))).collect();
        assert_eq!(due, [Event::NewVm, Event::Transfer]);
        assert_eq!(schedule.next(None, || Nanos(0)), Nanos(7));
    }

    #[test]
    fn the_driver_comes_late_to_a_timeout_once() {
        let mut schedule = Schedule::new();
        let timeout = Some(Nanos(10));
        assert_eq!(schedule.next(timeout, || Nanos(5)), Nanos(15));
        let not_again = || unreachable!("the timeout is the same");
        assert_eq!(schedule.next(timeout, not_again), Nanos(15));
        schedule.be_in_time();
        assert_eq!(schedule.next(timeout, || Nanos(0)), Nanos(10));
    }
}
