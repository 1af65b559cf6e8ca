//! NBD connection whose socket is in a socket loop, as the loop of its device sees it.
//!
//! It is a frontend like others: the device's loop polls it for requests, admits them, and gives
//! back those that are answered. Only where the bytes of sockets are concerned, it hands the work
//! over ([`handover`](super::handover)). The slots and memory of requests stay in the table of the
//! device's loop until the socket loop has done with them.

use std::collections::VecDeque;
use std::rc::Rc;

use tidegate_core::engine::PayloadMemory;
use tidegate_core::time::Nanos;

use super::handover::{Delay, DeviceEnd, ToDevice, ToSockets};
use super::interface::{Budget, Completed, Frontend, Incoming, Kind, Polled, Port, Progress, Word};
use super::nbd;
use super::request::Answer;
use super::request_table::Requests;
use crate::ring::{Completion, Pause};

/// Connection in a socket loop.
#[derive(Debug)]
pub(crate) struct Connection {
    link: Rc<DeviceEnd>,
    /// Number of the connection in its socket loop.
    place: u32,
    allocation_context: Option<u32>,
    /// Messages, in order, that wait to be polled.
    incoming: VecDeque<ToDevice>,
    /// Time since which the request that was polled last has waited.
    since: Option<Nanos>,
    /// True while that request waits to be admitted.
    stalled: bool,
    /// Answers whose replies have not ended.
    unsent: u32,
    delay: Delay,
    /// Longest pause before a receive, if the socket loop is to be told of it.
    longest: Option<Pause>,
    /// True once the socket loop has said the last of this connection.
    closed: bool,
}

/// Tag of a request in the table of the socket loop.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Tag(u64);

impl Word for Tag {
    #[inline]
    fn to_word(self) -> u64 {
        self.0
    }

    #[inline]
    fn from_word(word: u64) -> Tag {
        Tag(word)
    }
}

impl Connection {
    /// Creates the device's side of a connection that was handed over.
    pub(crate) fn new(
        link: Rc<DeviceEnd>,
        place: u32,
        allocation_context: Option<u32>,
    ) -> Connection {
        Connection {
            link,
            place,
            allocation_context,
            incoming: VecDeque::new(),
            since: None,
            stalled: false,
            unsent: 0,
            delay: Delay::default(),
            longest: None,
            closed: false,
        }
    }

    /// Takes a message that is to be polled.
    #[inline]
    pub(crate) fn take(&mut self, message: ToDevice) {
        debug_assert!(!self.closed, "a message of a connection that has ended");
        self.incoming.push_back(message);
    }

    /// Notes that a reply was sent or dropped.
    #[inline]
    pub(crate) fn reply_ended(&mut self) {
        self.unsent -= 1;
    }

    /// Notes that the client is late, or no more.
    pub(crate) fn set_delay(&mut self, delay: Delay) {
        self.delay = delay;
    }

    /// Notes that the socket loop has said the last of this connection.
    pub(crate) fn set_closed(&mut self) {
        self.closed = true;
    }

    /// Returns true if the connection is at the other end of this link.
    pub(crate) fn is_of(&self, link: &Rc<DeviceEnd>) -> bool {
        Rc::ptr_eq(&self.link, link)
    }

    /// Asks for the connection back.
    pub(crate) fn ask_back(&self) {
        let place = self.place;
        self.link.send(ToSockets::Return { place });
    }
}

impl Frontend for Connection {
    type Token = Tag;

    const MEMORY: PayloadMemory = PayloadMemory::Bounded;

    fn poll(&mut self, port: &mut Port<'_>, budget: &mut Budget) -> Polled<Tag> {
        if !self.incoming.is_empty() && !budget.may_take_request() {
            return Polled::Later;
        }
        let Some(message) = self.incoming.pop_front() else {
            return Polled::Empty;
        };
        // The socket loop's time may be ahead of this turn's.
        let mut wait = |since: Nanos| self.since = Some(since.min(port.now));
        match message {
            ToDevice::Request { request, since, .. } => {
                budget.take_request();
                wait(since);
                Polled::Request(Incoming {
                    kind: request.kind,
                    offset: request.offset,
                    len: request.len,
                    fua: request.fua,
                    token: Tag(request.token),
                })
            }
            ToDevice::Rejected {
                tag,
                failure,
                message,
                ..
            } => {
                budget.take_request();
                self.since = None;
                Polled::Rejected {
                    token: Tag(tag),
                    failure,
                    message,
                }
            }
            ToDevice::Arrived {
                slot, tag, since, ..
            } => {
                wait(since);
                port.requests.get_mut(slot).token = tag;
                Polled::Arrived(slot)
            }
            ToDevice::Left { .. } => Polled::Left,
            // What came before goes to the device first, as it would have while the socket told
            // nothing yet.
            lost @ ToDevice::Lost { .. } if budget.is_used() => {
                self.incoming.push_front(lost);
                Polled::Later
            }
            ToDevice::Lost { errno, .. } => Polled::Lost(errno),
            ToDevice::Broken { why, .. } => Polled::Broken(why.into()),
            other => unreachable!("{other:?} is not polled"),
        }
    }

    fn await_payload(&mut self, port: &mut Port<'_>, slot: u32) {
        let entry = port.requests.get(slot);
        let memory = port.requests.buffer(slot).expect("a write has a buffer");
        self.link.send(ToSockets::Receive {
            tag: entry.token,
            slot,
            memory: memory.slice(0, entry.len as usize),
        });
    }

    fn complete(&mut self, port: &mut Port<'_>, slot: u32) -> Completed {
        let entry = port.requests.get(slot);
        let Tag(tag) = Tag::from_word(entry.token);
        let (answer, is_extents) = (entry.answer, matches!(entry.kind, Kind::Extents { .. }));
        let mut len = entry.len;
        if is_extents && answer == Answer::Ok {
            // The cookie is in the socket loop, which puts it into the reply.
            len = nbd::encode_extents(port.requests, slot, self.allocation_context, 0);
        }
        let memory = port.requests.reply_memory(slot);
        self.unsent += 1;
        self.link.send(ToSockets::Answer {
            tag,
            slot,
            answer,
            memory: memory.map(|memory| memory.slice(0, len as usize)),
        });
        Completed::Later
    }

    #[inline]
    fn room(&mut self, _: &mut Port<'_>) -> bool {
        // Asked before a request that waited is tried again.
        self.stalled = false;
        // The socket loop reads no request whose reply would have none.
        true
    }

    fn handle(&mut self, _: &mut Port<'_>, event: u8, _: Completion) -> Progress {
        unreachable!("event {event} of a connection without operations")
    }

    fn shut_down(&mut self, _: &mut Port<'_>) {
        let place = self.place;
        self.link.send(ToSockets::ShutDown { place });
    }

    fn close(self, port: &mut Port<'_>) {
        // Writes whose payloads have come are in no other hands.
        let arrived = self
            .incoming
            .into_iter()
            .filter_map(|message| match message {
                ToDevice::Arrived { slot, .. } => Some(slot),
                _ => None,
            });
        port.requests.end(arrived, None);
    }

    #[inline]
    fn waits_since(&self) -> Option<Nanos> {
        self.since
    }

    fn stall(&mut self, _: &mut Port<'_>) {
        self.stalled = true;
    }

    fn flush(&mut self, _: &mut Port<'_>, _alone: bool) -> bool {
        if let Some(longest) = self.longest.take() {
            let place = self.place;
            self.link.send(ToSockets::BoundPause { place, longest });
        }
        false
    }

    fn bound_pause(&mut self, longest: Pause) {
        self.longest = Some(longest);
    }

    #[inline]
    fn is_receiving(&self) -> bool {
        // The socket loop brings requests without being asked for them.
        self.incoming.is_empty() && !self.stalled
    }

    #[inline]
    fn is_quiet(&self) -> bool {
        self.unsent == 0
    }

    #[inline]
    fn is_at_rest(&self) -> bool {
        self.closed
    }

    fn stuck(&self, _: Nanos, _: Nanos) -> Option<&'static str> {
        self.delay.stuck
    }

    fn overdue(&self, _: Nanos, _: &Requests) -> Option<&'static str> {
        self.delay.overdue
    }
}
