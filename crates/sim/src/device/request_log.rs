//! Log of requests between a VM and the scheduler, for judges outside of the simulator.
//!
//! A judge of promises needs the arrival and the answer of every request at the scheduler, without
//! the guest's round trip. Nothing is recorded, and nothing costs time, until a judge asks for it.

use super::recorder::Recorder;
use tidegate_core::request::Op;
use tidegate_core::time::Nanos;

/// Shortest time without a completion that counts as a stall of the device.
const STALL: Nanos = Nanos::from_millis(100);

/// Step of a request, or of the device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RequestEvent {
    /// A request reaches the scheduler.
    Arrived(Arrival),
    /// The scheduler has answered a request: the one in this slot that arrived last.
    Answered {
        /// Time of the answer, before its way back to the guest.
        at: Nanos,
        /// Slot of the request.
        slot: u32,
        /// Time that it was with the device at the end.
        device: Nanos,
    },
    /// The device ended nothing for at least 100 ms while it had I/Os.
    Stalled {
        /// Last end before, or the time at which the device got its first I/O.
        from: Nanos,
        /// First end after.
        to: Nanos,
    },
}

/// Request that reaches the scheduler.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Arrival {
    /// Time of the arrival.
    pub at: Nanos,
    /// VM as an index into the scenario's VMs.
    pub vm: usize,
    /// Number that no other request has until this one is answered.
    pub slot: u32,
    /// Operation.
    pub op: Op,
    /// First byte on the VM's disk.
    pub offset: u64,
    /// Length in bytes.
    pub len: u32,
}

/// Events of requests that nobody has taken yet.
#[derive(Default)]
pub(crate) struct RequestLog {
    /// Events in the order in which they happened; `None`: they are not kept.
    events: Option<Vec<RequestEvent>>,
    /// Time since which the device works without an end; `None` while it has nothing.
    working_since: Option<Nanos>,
    /// Recording; `None` unless one was asked for.
    recorder: Option<Box<Recorder>>,
}

impl RequestLog {
    /// Records requests from now on.
    pub(crate) fn begin_recording(&mut self, recorder: Recorder) {
        self.recorder = Some(Box::new(recorder));
    }

    /// Returns the recording, if there is one.
    pub(super) fn recorder(&mut self) -> Option<&mut Recorder> {
        self.recorder.as_deref_mut()
    }

    /// Moves the bytes of the recording since the last call to the end of `to`.
    pub(crate) fn take_recording(&mut self, to: &mut Vec<u8>) {
        if let Some(recorder) = &mut self.recorder {
            recorder.take(to);
        }
    }

    /// Ends the recording, with the rest of its bytes to the end of `to`. Requests that are not
    /// answered by now are not in it.
    pub(crate) fn end_recording(&mut self, now: Nanos, to: &mut Vec<u8>) {
        if let Some(recorder) = self.recorder.take() {
            recorder.end(now, to);
        }
    }

    /// Keeps events from now on.
    pub(crate) fn keep(&mut self) {
        self.events.get_or_insert_default();
    }

    /// True if events are kept.
    pub(super) fn is_kept(&self) -> bool {
        self.events.is_some()
    }

    /// Records an event.
    pub(super) fn record(&mut self, event: RequestEvent) {
        if let Some(events) = &mut self.events {
            events.push(event);
        }
    }

    /// Notes that the device has I/Os from now on, if it had none.
    pub(super) fn device_works(&mut self, now: Nanos) {
        self.working_since.get_or_insert(now);
    }

    /// Records a stall that ends with an I/O now. `idle`: nothing is left in flight.
    pub(super) fn device_ended(&mut self, now: Nanos, idle: bool) {
        if let Some(from) = self.working_since
            && now.since(from) >= STALL
        {
            self.record(RequestEvent::Stalled { from, to: now });
        }
        // With I/Os left the next silence counts from this end.
        self.working_since = (!idle).then_some(now);
    }

    /// Moves the events since the last call to the end of `to`.
    pub(crate) fn take(&mut self, to: &mut Vec<RequestEvent>) {
        if let Some(events) = &mut self.events {
            to.append(events);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_without_an_end_counts_only_while_the_device_has_ios() {
        let mut log = RequestLog::default();
        log.keep();
        let ms = Nanos::from_millis;
        log.device_works(ms(10));
        log.device_works(ms(50));
        log.device_ended(ms(109), false);
        log.device_ended(ms(209), true);
        // Idle for a second, and then an I/O of 99 ms.
        log.device_works(ms(1300));
        log.device_ended(ms(1399), true);
        let mut events = Vec::new();
        log.take(&mut events);
        let stall = RequestEvent::Stalled {
            from: ms(109),
            to: ms(209),
        };
        assert_eq!(events, [stall]);
        log.take(&mut events);
        assert_eq!(events.len(), 1, "each event is taken once");
    }
}
