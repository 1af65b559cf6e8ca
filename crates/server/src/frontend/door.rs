//! The door: what a frontend and its event loop ask of each other.
//!
//! ```text
//!    transport             frontend                            event loop
//!   (socket, ring) --> poll: next request -------------> place, payload memory, engine
//!                  <-- complete: it is answered <-------- outcome, data where they belong
//!                      room: may another one be answered?
//! ```
//!
//! A [`Frontend`] is one connection of a protocol. It works on what its [`Port`] lends it and knows
//! neither engine nor VMs nor disks, so that a connection may be served by any thread that has a
//! ring and a request table: one loop a device today, several loops that share a device's
//! connections later. Payloads lie in buffers of the loop's pool (NBD), or in memory that the
//! connection brings along, as a guest's ([`PayloadMemory`]).
//!
//! Calls are dispatched by an enumeration ([`Transport`](super::Transport)), never by a pointer.

use tidegate_core::engine::PayloadMemory;
use tidegate_core::time::Nanos;

use super::Failure;
pub(crate) use super::request::{Answer, ConnectionRef, Incoming, Kind, Word};
use super::table::Requests;
use crate::buffer::Pool;
use crate::ring::{Completion, Ring};

/// Requests of one connection that are taken before it is the next one's turn.
const REQUESTS_A_TURN: u32 = 64;
/// Payload bytes of one connection that are copied before it is the next one's turn.
const BYTES_A_TURN: usize = 256 << 10;

/// One connection of a protocol that serves guests.
///
/// A protocol whose requests arrive whole implements the items without a default; the others are
/// for transports with system calls of their own, partial payloads or replies that take time.
pub(crate) trait Frontend {
    /// Name under which the connection knows a request; it comes back with the completion.
    type Token: Word;

    /// Origin of the memory in which payloads lie.
    const MEMORY: PayloadMemory;

    /// Returns the next request, or the reason why there is none. Guest memory of a request is put
    /// into [`Requests::offered`]. Called until it returns something else than a request.
    fn poll(&mut self, port: &mut Port<'_>, budget: &mut Budget) -> Polled<Self::Token>;

    /// Takes the answered request in `slot`; its outcome and its data are in the request table.
    fn complete(&mut self, port: &mut Port<'_>, slot: u32) -> Completed;

    /// Returns true if one more request can be answered. If not, the transport tells when there is
    /// room, by [`Progress::sent`].
    fn room(&mut self, port: &mut Port<'_>) -> bool;

    /// Handles the end of an operation that was submitted with [`Port::token`].
    fn handle(&mut self, port: &mut Port<'_>, event: u8, completion: Completion) -> Progress;

    /// Ends the transport: operations in flight end soon, nothing more is sent.
    fn shut_down(&mut self, port: &mut Port<'_>);

    /// Gives back what the connection holds; called once it [is at rest](Frontend::is_at_rest).
    /// Slots that it still has go to [`Requests::end`].
    fn close(self, port: &mut Port<'_>);

    /// Receives the payload of the write in `slot`, which [`Polled::Arrived`] reports. Called for
    /// each write of a connection whose payloads lie in the loop's buffers.
    fn await_payload(&mut self, _port: &mut Port<'_>, _slot: u32) {}

    /// Returns the loop time from which the next request has waited for a place; `None`: now.
    fn waits_since(&self) -> Option<Nanos> {
        None
    }

    /// Notes that the VM has no place for the next request: time from now on is latency.
    fn stall(&mut self, _port: &mut Port<'_>) {}

    /// Sends what has been completed. `alone`: nothing else is under way on this connection.
    /// Returns true to have [`Frontend::submitted`] called.
    fn flush(&mut self, _port: &mut Port<'_>, _alone: bool) -> bool {
        false
    }

    /// Handles that the kernel has taken everything that was submitted, and has told what failed.
    fn submitted(&mut self, _port: &mut Port<'_>) -> Progress {
        Progress::default()
    }

    /// Has the transport tell of further requests; does nothing if it will anyway.
    fn receive(&mut self, _port: &mut Port<'_>) {}

    /// Returns true while an operation that brings further requests is with the kernel.
    fn is_receiving(&self) -> bool {
        false
    }

    /// Returns true if nothing waits to be sent.
    fn is_quiet(&self) -> bool {
        true
    }

    /// Returns true if the kernel works on nothing of this connection any more.
    fn is_at_rest(&self) -> bool {
        true
    }

    /// Returns what the peer fails to do if it has made no progress for longer than `patience`.
    fn stuck(&self, _now: Nanos, _patience: Nanos) -> Option<&'static str> {
        None
    }

    /// Returns what the peer is too slow in if it keeps payload memory that others wait for.
    fn overdue(&self, _now: Nanos, _requests: &Requests) -> Option<&'static str> {
        None
    }
}

/// What a connection may use of the loop that serves it.
pub(crate) struct Port<'a> {
    /// The loop's ring.
    pub(crate) ring: &'a mut Ring,
    /// Requests of the loop, with their payloads.
    pub(crate) requests: &'a mut Requests,
    /// Buffers for headers and receives.
    pub(crate) plumbing: &'a mut Pool,
    /// Loop time.
    pub(crate) now: Nanos,
    /// The connection itself.
    pub(crate) who: ConnectionRef,
    /// True if the VM has no place for the connection's next request.
    pub(crate) stalled: bool,
}

impl Port<'_> {
    /// Returns the word for an operation whose end [`Frontend::handle`] gets as `event`, at most
    /// [`EVENT_MAX`].
    pub(crate) fn token(&self, event: u8) -> u64 {
        Event {
            who: self.who,
            event,
        }
        .encode()
    }
}

/// Largest number of an event.
pub(crate) const EVENT_MAX: u8 = 0x7f;
/// Event that is handled before all others of a turn and before [`Frontend::submitted`]: the end of
/// a send, or of an operation that failed.
pub(crate) const SENT: u8 = 0;

/// End of an operation of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Event {
    /// Connection that submitted the operation.
    pub(crate) who: ConnectionRef,
    /// Number that the connection gave it.
    pub(crate) event: u8,
}

/// Bit that tells events of connections from the loop's own.
const IS_EVENT: u64 = 1 << 63;

impl Event {
    pub(crate) fn encode(self) -> u64 {
        assert!(self.event <= EVENT_MAX, "an event has seven bits");
        let who = u64::from(self.who.generation) << 32 | u64::from(self.who.index);
        IS_EVENT | u64::from(self.event) << 56 | who
    }

    /// Returns the event that a word stands for; `None`: the word is of the loop's own.
    pub(crate) fn decode(bits: u64) -> Option<Event> {
        let who = ConnectionRef {
            index: bits as u32,
            generation: (bits >> 32) as u32 & ConnectionRef::GENERATIONS,
        };
        (bits & IS_EVENT != 0).then_some(Event {
            who,
            event: (bits >> 56) as u8 & EVENT_MAX,
        })
    }
}

/// Work that a connection may do in one turn.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    requests: u32,
    bytes: usize,
}

impl Budget {
    /// Returns the budget of a turn.
    pub(crate) fn of_a_turn() -> Budget {
        Budget {
            requests: REQUESTS_A_TURN,
            bytes: BYTES_A_TURN,
        }
    }

    /// Counts bytes that were copied.
    pub(crate) fn copy(&mut self, bytes: usize) {
        self.bytes = self.bytes.saturating_sub(bytes);
    }

    /// Returns false if the budget is used up: the next request waits for the next turn.
    #[inline]
    pub(crate) fn may_take_request(&self) -> bool {
        self.requests > 0 && self.bytes > 0
    }

    /// Counts a request.
    #[inline]
    pub(crate) fn take_request(&mut self) {
        self.requests -= 1;
    }
}

/// Result of [`Frontend::poll`].
#[derive(Debug)]
pub(crate) enum Polled<T> {
    /// A request. Its payload follows where payloads lie in the loop's buffers.
    Request(Incoming<T>),
    /// The payload of the write in this slot is complete.
    Arrived(u32),
    /// A request that is answered with a failure without being tried.
    Rejected {
        token: T,
        failure: Failure,
        message: &'static str,
    },
    /// Nothing is there: the transport tells when there is.
    Empty,
    /// The budget of the turn is used up.
    Later,
    /// There is no [room](Frontend::room) for one more answer.
    Full,
    /// The peer has taken its leave: what it asked for is answered, nothing more is read.
    Left,
    /// The peer broke a rule of the protocol, for the log.
    Broken(String),
}

/// State of a request after [`Frontend::complete`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Completed {
    /// The peer has its answer.
    Now,
    /// The answer waits to be sent; its slot comes back by [`Requests::end`].
    Later,
}

/// Result of the end of an operation.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Progress {
    /// Answers were sent: there may be room for others.
    pub(crate) sent: bool,
    pub(crate) next: Next,
}

/// What a connection wants next.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) enum Next {
    #[default]
    Nothing,
    /// To be polled.
    Poll,
    /// To send and receive.
    Exchange,
    /// To be answered and closed: no more requests come, for this reason (an errno, if any).
    Closed(Option<i32>),
    /// To be closed: nothing can be sent, for this reason (an errno).
    Broken(i32),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_survives_its_word_and_is_told_from_others() {
        let who = ConnectionRef {
            index: u32::MAX,
            generation: ConnectionRef::GENERATIONS,
        };
        for event in [SENT, 1, EVENT_MAX] {
            let event = Event { who, event };
            assert_eq!(Event::decode(event.encode()), Some(event));
        }
        assert_eq!(Event::decode(3 << 56 | 7), None);
    }

    #[test]
    fn a_budget_ends_with_its_requests_and_with_its_bytes() {
        let mut budget = Budget::of_a_turn();
        for _ in 0..REQUESTS_A_TURN {
            assert!(budget.may_take_request());
            budget.take_request();
        }
        assert!(!budget.may_take_request());
        let mut budget = Budget::of_a_turn();
        budget.copy(BYTES_A_TURN - 1);
        assert!(budget.may_take_request());
        budget.copy(BYTES_A_TURN);
        assert!(!budget.may_take_request());
    }
}
