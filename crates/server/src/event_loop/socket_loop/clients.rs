//! Clients of a socket loop: requests are read and handed over, answered ones are sent.
//!
//! ```text
//!   Open -- disconnects, breaks a rule --> Leaving (reads no more, until it is shut down)
//!     |  \                                   |
//!     |   +-- device's loop asks --> Returning -- nothing unanswered --> moved
//!     +-- vanished, shut down --> Gone -- at rest --> closed
//! ```

use super::SocketLoop;
use crate::frontend::handover::{Delay, ToDevice, WINDOW};
use crate::frontend::interface::{
    Answer, Budget, ConnectionRef, DRAIN_PROGRESS_TIMEOUT, Frontend, Incoming, Kind, Next, Polled,
    Port, Progress,
};
use crate::frontend::nbd::{self, MovingWrite};
use crate::ring::{Completion, Pause};

/// NBD connection of a socket loop.
pub(super) struct Client {
    /// Place and generation.
    pub(super) owner: ConnectionRef,
    transport: nbd::Connection,
    pub(super) state: State,
    stall: Option<Stall>,
    /// Requests that the device's loop has yet to answer, without those whose payload is arriving.
    outstanding: u32,
    /// Slots of the request table, from the parse of a request to the end of its reply.
    slots: u32,
    /// Delay as last reported to the device's loop.
    reported: Delay,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum State {
    Open,
    Leaving,
    Returning,
    Gone,
}

/// Reason why nothing is taken from a client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stall {
    /// The write that was read last waits for payload memory.
    Memory,
    /// Too many requests are under way, or replies unsent.
    Replies,
}

impl Client {
    pub(super) fn new(owner: ConnectionRef, transport: nbd::Connection, slots: u32) -> Client {
        Client {
            owner,
            transport,
            state: State::Open,
            stall: None,
            outstanding: 0,
            slots,
            reported: Delay::default(),
        }
    }

    pub(super) fn bound_pause(&mut self, longest: Pause) {
        self.transport.bound_pause(longest);
    }

    pub(super) fn handle(
        &mut self,
        port: &mut Port<'_>,
        event: u8,
        completion: Completion,
    ) -> Progress {
        self.transport.handle(port, event, completion)
    }

    pub(super) fn submitted(&mut self, port: &mut Port<'_>) -> Progress {
        self.transport.submitted(port)
    }
}

impl SocketLoop {
    /// Gives each ready client a turn.
    pub(super) fn serve(&mut self) {
        // Counted before the loop, so that a client that is ready again waits for the next turn.
        for _ in 0..self.turns.waiting() {
            let place = self.turns.next_ready().expect("counted");
            let Some(client) = self.client(place) else {
                continue;
            };
            if client.stall.is_none() && !client.transport.is_receiving() {
                self.take_requests(place);
            }
        }
    }

    /// Takes requests of a client until its budget is used up, it has none left, or one lacks
    /// memory.
    fn take_requests(&mut self, place: u32) {
        let mut budget = Budget::of_a_turn();
        loop {
            let client = self.client(place).expect("it is being served");
            if client.state != State::Open {
                return;
            }
            if client.slots >= WINDOW {
                client.stall = Some(Stall::Replies);
                return;
            }
            let polled = self.with_transport(place, |client, port| {
                client.transport.poll(port, &mut budget)
            });
            let client = self.client(place).expect("polling ends no connection");
            match polled {
                Polled::Request(request) => {
                    if self.hand_over(place, request.with_word()) {
                        return;
                    }
                }
                Polled::Arrived(slot) => self.payload_arrived(place, slot),
                Polled::Rejected {
                    token,
                    failure,
                    message,
                } => self.hand_over_rejected(place, token, failure, message),
                Polled::Empty => return self.turns.touch(place),
                Polled::Later => return self.turns.make_ready(place),
                Polled::Full => {
                    client.stall = Some(Stall::Replies);
                    return;
                }
                Polled::Left => {
                    client.state = State::Leaving;
                    return self.end.send(ToDevice::Left { place });
                }
                Polled::Broken(why) => {
                    client.state = State::Leaving;
                    let why = why.into();
                    return self.end.send(ToDevice::Broken { place, why });
                }
                Polled::Lost(_) => unreachable!("a socket reports its end by an event"),
            }
        }
    }

    /// Hands a request over. Returns true if the client must wait for the memory of its payload.
    fn hand_over(&mut self, place: u32, request: Incoming<u64>) -> bool {
        let now = self.now;
        let client = self.client(place).expect("it is being served");
        let since = client.transport.waits_since().unwrap_or(now);
        client.outstanding += 1;
        let is_write = request.kind == Kind::Write;
        if is_write {
            client.stall = Some(Stall::Memory);
        }
        let owner = client.owner;
        client.slots += 1;
        let slot = self.ledger.insert(owner, &request, since);
        let token = self.ledger.requests.tag(slot);
        self.end.send(ToDevice::Request {
            place,
            request: Incoming { token, ..request },
            since,
        });
        is_write
    }

    fn hand_over_rejected(
        &mut self,
        place: u32,
        cookie: nbd::Cookie,
        failure: crate::frontend::Failure,
        message: &'static str,
    ) {
        use crate::frontend::interface::Word;

        // The kind stands for any request whose reply carries no data.
        let request = Incoming {
            kind: Kind::Flush,
            offset: 0,
            len: 0,
            fua: false,
            token: cookie.to_word(),
        };
        let now = self.now;
        let client = self.client(place).expect("it is being served");
        client.outstanding += 1;
        let owner = client.owner;
        client.slots += 1;
        let slot = self.ledger.insert(owner, &request, now);
        let tag = self.ledger.requests.tag(slot);
        self.end.send(ToDevice::Rejected {
            place,
            tag,
            failure,
            message,
        });
    }

    /// Begins to receive the payload of a write, whose memory has come.
    pub(super) fn receive_payload(&mut self, slot: u32) {
        let place = self.ledger.requests.get(slot).owner.index;
        self.with_transport(place, |client, port| {
            client.transport.await_payload(port, slot);
            client.outstanding -= 1;
            client.stall = None;
        });
        self.turns.make_ready(place);
        self.advance_state(place);
    }

    /// Hands a write whose payload is complete back to the device's loop.
    fn payload_arrived(&mut self, place: u32, slot: u32) {
        let now = self.now;
        let client = self.client(place).expect("it is being served");
        client.outstanding += 1;
        let since = client.transport.waits_since().unwrap_or(now);
        let tag = self.ledger.requests.tag(slot);
        let slot = self.ledger.hand_back(slot);
        self.end.send(ToDevice::Arrived {
            place,
            slot,
            tag,
            since,
        });
    }

    /// Gives an answered request to its client.
    pub(super) fn complete(&mut self, slot: u32, answer: Answer) {
        let entry = self.ledger.requests.get_mut(slot);
        entry.answer = answer;
        let place = entry.owner.index;
        let encoded = matches!(entry.kind, Kind::Extents { .. }) && answer == Answer::Ok;
        if encoded {
            let reply = self.ledger.requests.buffer(slot);
            let len = reply.expect("an encoded reply").len() as u32;
            self.ledger.requests.get_mut(slot).len = len;
        }
        let client = self.client(place).expect("its requests left with it");
        client.outstanding -= 1;
        if client.state == State::Gone {
            // It is shut down, but the kernel still works on memory of it.
            self.ledger.requests.end(std::iter::once(slot), None);
            self.free_ended();
        } else {
            self.with_transport(place, |client, port| {
                if encoded {
                    client.transport.complete_encoded(port, slot);
                } else {
                    client.transport.complete(port, slot);
                }
            });
        }
        self.turns.touch(place);
    }

    /// Calls a client's transport, then frees the slots whose replies ended by that.
    #[inline]
    pub(super) fn with_transport<R>(
        &mut self,
        place: u32,
        call: impl FnOnce(&mut Client, &mut Port<'_>) -> R,
    ) -> R {
        let client = self.clients[place as usize].as_mut().expect("it is there");
        let mut port = Port {
            ring: &mut self.ring,
            requests: &mut self.ledger.requests,
            plumbing: &mut self.plumbing,
            now: self.now,
            connection_ref: client.owner,
            stalled: client.stall == Some(Stall::Memory),
        };
        let result = call(client, &mut port);
        if self.ledger.requests.has_ended() {
            self.free_ended();
        }
        result
    }

    /// Returns the parts of the loop that a connection borrows while it is not in the table.
    pub(super) fn port(&mut self, owner: ConnectionRef) -> Port<'_> {
        Port {
            ring: &mut self.ring,
            requests: &mut self.ledger.requests,
            plumbing: &mut self.plumbing,
            now: self.now,
            connection_ref: owner,
            stalled: false,
        }
    }

    /// Frees the slots whose replies were sent or dropped, and gives the slots of the device's loop
    /// back.
    pub(super) fn free_ended(&mut self) {
        let mut ended = self.ledger.requests.take_ended();
        for (slot, sent) in ended.drain(..) {
            let place = self.ledger.requests.get(slot).owner.index;
            if let Some(client) = self.client(place) {
                client.slots -= 1;
            }
            if let Some(message) = self.ledger.end(slot, sent) {
                self.end.send(message);
            }
        }
        self.ledger.requests.put_ended(ended);
    }

    pub(super) fn take_progress(&mut self, place: u32, Progress { sent, next }: Progress) {
        let client = self.client(place).expect("it is there");
        if sent {
            if client.stall == Some(Stall::Replies) {
                client.stall = None;
                self.turns.make_ready(place);
            }
            self.turns.touch(place);
        }
        let client = self.client(place).expect("it is there");
        let is_open = client.state == State::Open;
        match next {
            Next::Nothing => {}
            Next::Poll | Next::Closed(_) if !is_open => self.advance_state(place),
            Next::Poll => self.turns.make_ready(place),
            Next::Exchange => self.turns.touch(place),
            Next::Closed(errno) => self.lost(place, errno),
            Next::Broken(errno) => self.lost(place, Some(errno)),
        }
    }

    /// Ends a client whose socket broke or was closed.
    fn lost(&mut self, place: u32, errno: Option<i32>) {
        let client = self.client(place).expect("it is there");
        if client.state != State::Gone {
            self.end.send(ToDevice::Lost { place, errno });
        }
        self.shut_down(place);
    }

    /// Shuts a client down; its place is free once no operation uses its memory.
    pub(super) fn shut_down(&mut self, place: u32) {
        let Some(client) = self.client(place) else {
            return;
        };
        if client.state != State::Gone {
            client.state = State::Gone;
            self.with_transport(place, |client, port| client.transport.shut_down(port));
        }
        self.advance_state(place);
    }

    /// Makes the transition that the client's state allows now.
    pub(super) fn advance_state(&mut self, place: u32) {
        let Some(client) = self.client(place) else {
            return;
        };
        let at_rest = client.transport.is_at_rest();
        let nothing_unanswered = client.outstanding == 0 && client.transport.is_quiet();
        match client.state {
            State::Gone if at_rest => self.close(place),
            State::Returning if at_rest && nothing_unanswered => self.give_back(place),
            State::Open | State::Leaving | State::Returning | State::Gone => {}
        }
    }

    /// Serves clients on that could not be given back in time.
    pub(super) fn end_returns(&mut self) {
        if self.returns_end.is_none_or(|end| end > self.now) {
            return;
        }
        self.returns_end = None;
        for (client, place) in self.clients.iter_mut().zip(0..) {
            if let Some(client) = client
                && client.state == State::Returning
            {
                client.state = State::Open;
                self.turns.make_ready(place);
                self.turns.touch(place);
            }
        }
    }

    /// Removes a client, and its requests that the device's loop has in its hands.
    fn close(&mut self, place: u32) {
        let client = self.clients[place as usize].take().expect("it is there");
        let owner = client.owner;
        client.transport.close(&mut self.port(owner));
        self.free_ended();
        self.ledger.forget(owner);
        self.end.send(ToDevice::Closed { place });
    }

    /// Gives a client back to the loop of the device.
    fn give_back(&mut self, place: u32) {
        let client = self.clients[place as usize].take().expect("it is there");
        let owner = client.owner;
        let (mut moving, payload) = client.transport.take_out(&mut self.port(owner));
        moving.write = payload.map(|(slot, filled)| {
            let memory = self.ledger.requests.buffer(slot);
            let request = self.ledger.requests.get(slot).incoming();
            let lent = self.ledger.hand_back(slot);
            self.ledger.end(slot, None);
            MovingWrite {
                slot: lent,
                memory: memory.expect("a write has a buffer"),
                request,
                filled,
            }
        });
        let moving = Box::new(moving);
        self.end.send(ToDevice::Moved { place, moving });
    }

    /// Sends and receives for all clients that have something to send or nothing to poll.
    pub(super) fn exchange(&mut self) {
        let mut touched = self.turns.take_touched();
        touched.retain(|&place| {
            self.turns.begin_exchange(place);
            let stays = self.exchange_one(place);
            if stays {
                self.turns.keep_touched(place);
            }
            stays
        });
        self.turns.put_touched(touched);
    }

    /// Sends and receives for one client. Returns true if it stays in the list for the next turn.
    fn exchange_one(&mut self, place: u32) -> bool {
        let Some(client) = self.client(place) else {
            return false;
        };
        if client.state != State::Gone {
            // With nothing under way, no later reply could be sent together with these.
            let alone = client.outstanding == 0 && self.wants_requests(place);
            let linked = self.with_transport(place, |client, port| {
                client.transport.flush(port, alone).then_some(client.owner)
            });
            if let Some(owner) = linked {
                self.turns.await_submission(owner);
            }
        }
        let client = self.client(place).expect("sending ends no connection");
        if client.state != State::Open || client.transport.is_receiving() {
            self.advance_state(place);
        } else if self.wants_requests(place) {
            self.with_transport(place, |client, port| client.transport.receive(port));
        }
        false
    }

    /// Returns true if everything that the client brought was taken and it may bring more.
    fn wants_requests(&mut self, place: u32) -> bool {
        let is_ready = self.turns.is_ready(place);
        let client = self.client(place).expect("it is there");
        client.state == State::Open && client.stall.is_none() && !is_ready
    }

    /// Reports which clients are late, where that has changed.
    pub(super) fn report_delays(&mut self) {
        for (client, place) in self.clients.iter_mut().zip(0..) {
            let Some(client) = client else { continue };
            let delay = Delay {
                stuck: client.transport.stuck(self.now, DRAIN_PROGRESS_TIMEOUT),
                overdue: client.transport.overdue(self.now, &self.ledger.requests),
            };
            if delay != client.reported {
                client.reported = delay;
                self.end.send(ToDevice::Delayed { place, delay });
            }
        }
    }
}
