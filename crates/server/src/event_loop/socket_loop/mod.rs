//! Socket loop: a thread that serves sockets of NBD clients beside the loop of their device.
//!
//! ```text
//!   socket --> receive, parse --> Request ---------> loop of the device: engine, backing
//!   socket <-- send <------------ Answer  <---------
//! ```
//!
//! It has a ring, a request table and connections of its own, and knows no VM, no disk and no
//! policy: what is served when is decided by the loop of the device. Payloads are in memory of that
//! loop, which is lent to this one ([`handover`](crate::frontend::handover)).
//!
//! A turn is that of the [device's loop](super): completions and messages, ready connections, sends
//! and receives, then everything is submitted at once.

mod clients;
mod ledger;
#[cfg(test)]
mod ledger_tests;
mod start;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tidegate_core::time::Nanos;

use super::Token;
use super::round_robin::RoundRobin;
use crate::buffer::{Buffer, Pool};
use crate::frontend::handover::{MOVE_TIMEOUT, Opened, Sleeper, SocketEnd, ToDevice, ToSockets};
use crate::frontend::interface::{ConnectionRef, Event, SENT};
use crate::frontend::nbd;
use crate::frontend::request_table::Payload;
use crate::ring::{Completion, FileId, Ring, clock};

use clients::{Client, State};
use ledger::Ledger;
pub(super) use start::start;

/// Time after which a loop looks again whether the other one has made room for its messages.
pub(super) const LOOK_FOR_ROOM: Duration = Duration::from_micros(50);

/// State of a socket loop.
struct SocketLoop {
    ring: Ring,
    /// Requests of the clients, and what is lent for them.
    ledger: Ledger,
    /// Clients by their place.
    clients: Vec<Option<Client>>,
    /// Generation of the next client, at any place.
    generation: u32,
    turns: RoundRobin,
    /// Receive buffers and heads of replies.
    plumbing: Pool,
    end: SocketEnd,
    own: Arc<Sleeper>,
    wake_file: FileId,
    wake_buffer: Buffer,
    now: Nanos,
    completions: Vec<Completion>,
    /// Time at which clients that wait to be given back are served on instead.
    returns_end: Option<Nanos>,
    /// True while the timer of the housekeeping is armed.
    ticking: bool,
    stopped: bool,
}

impl SocketLoop {
    /// Makes one turn after the other until the device's loop ends it.
    fn run(&mut self) -> io::Result<()> {
        self.await_wake();
        while !self.stopped {
            if !self.ticking && (self.ledger.requests.len() > 0 || self.plumbing.warm() > 0) {
                self.ticking = true;
                self.ring.tick(Token::Tick.encode());
            }
            let timeout = self.timeout();
            self.ring.turn(timeout)?;
            self.own.sleep.rise();
            self.now = clock();
            self.take_completions();
            self.take_messages();
            self.end_returns();
            self.serve();
            self.exchange();
            self.end.publish();
        }
        Ok(())
    }

    /// Returns the longest time that the next turn may wait, and notes that the thread sleeps if it
    /// may.
    fn timeout(&mut self) -> Option<Duration> {
        if self.turns.waiting() > 0 {
            return Some(Duration::ZERO);
        }
        self.own.sleep.lie_down();
        if !self.end.is_empty() {
            self.own.sleep.rise();
            return Some(Duration::ZERO);
        }
        let room = self.end.is_overfull().then_some(LOOK_FOR_ROOM);
        let returns_end = self.returns_end;
        let left = returns_end.map(|end| Duration::from_nanos(end.since(clock()).0));
        room.into_iter().chain(left).min()
    }

    fn await_wake(&mut self) {
        let memory = self.wake_buffer.mem();
        (self.ring).await_wake(self.wake_file, memory, Token::Wake.encode());
    }

    fn take_completions(&mut self) {
        let mut completions = std::mem::take(&mut self.completions);
        self.ring.take(&mut completions);
        // The order is that of the device's loop, for its reason: replies must not overtake others.
        let caught_up = self.ring.is_caught_up();
        for completion in &completions {
            if let Token::Connection(event) = Token::decode(completion.token)
                && event.event == SENT
            {
                self.handle_event(event, *completion);
            }
        }
        if caught_up {
            self.submissions_ended();
        }
        for completion in completions.drain(..) {
            match Token::decode(completion.token) {
                Token::Connection(event) if event.event == SENT => {} // Handled above.
                Token::Connection(event) => self.handle_event(event, completion),
                Token::Wake => self.await_wake(),
                Token::Tick => self.upkeep(),
                Token::Backing(operation) => unreachable!("{operation:?} without a disk"),
            }
        }
        self.completions = completions;
    }

    /// Housekeeping, once a second while there is something to do.
    fn upkeep(&mut self) {
        self.ticking = false;
        self.plumbing.trim(usize::MAX);
        self.report_delays();
    }

    /// Takes the messages of the device's loop.
    fn take_messages(&mut self) {
        while let Some(message) = self.end.receive() {
            match message {
                ToSockets::Receive { tag, slot, memory } => {
                    match self.ledger.borrow(tag, slot, Payload::Lent(memory)) {
                        Ok(index) => self.receive_payload(index),
                        Err(ended) => self.end.send(ended),
                    }
                }
                ToSockets::Answer {
                    tag,
                    slot,
                    answer,
                    memory,
                } => {
                    let payload = memory.map_or(Payload::None, Payload::Lent);
                    match self.ledger.borrow(tag, slot, payload) {
                        Ok(index) => self.complete(index, answer),
                        Err(ended) => self.end.send(ended),
                    }
                }
                ToSockets::Open { place, opened } => self.open(place, *opened),
                ToSockets::BoundPause { place, longest } => {
                    if let Some(client) = self.client(place) {
                        client.bound_pause(longest);
                    }
                }
                ToSockets::ShutDown { place } => self.shut_down(place),
                ToSockets::Return { place } => {
                    if let Some(client) = self.client(place)
                        && client.state == State::Open
                    {
                        client.state = State::Returning;
                        self.returns_end = Some(self.now + MOVE_TIMEOUT);
                        self.advance_state(place);
                    }
                }
                ToSockets::Stop => self.stopped = true,
            }
        }
    }

    /// Returns the client at a place; `None` if it has gone, which the device's loop may not know
    /// yet.
    fn client(&mut self, place: u32) -> Option<&mut Client> {
        self.clients[place as usize].as_mut()
    }

    /// Begins to serve a connection.
    fn open(&mut self, place: u32, opened: Opened) {
        assert!(
            self.clients[place as usize].is_none(),
            "place {place} is given to two connections"
        );
        let Opened {
            mut moving,
            longest,
        } = opened;
        self.generation = (self.generation + 1) & ConnectionRef::GENERATIONS;
        let generation = self.generation;
        let owner = ConnectionRef {
            index: place,
            generation,
        };
        let payload = moving.write.take().map(|write| {
            let index = self.ledger.insert(owner, &write.request, self.now);
            let (tag, memory) = (self.ledger.requests.tag(index), Payload::Lent(write.memory));
            let borrowed = self.ledger.borrow(tag, write.slot, memory);
            borrowed.expect("the request was just inserted");
            (index, write.filled)
        });
        let opened = nbd::Connection::resume(moving, payload, &mut self.port(owner));
        match opened {
            Ok(transport) => {
                let slots = u32::from(payload.is_some());
                let mut client = Client::new(owner, transport, slots);
                client.bound_pause(longest);
                self.clients[place as usize] = Some(client);
                self.turns.add(place);
                self.turns.make_ready(place);
            }
            Err(error) => {
                tracing::warn!("client refused: {error}");
                let slot = payload.map(|(slot, _)| slot);
                self.ledger.requests.end(slot.into_iter(), None);
                self.free_ended();
                self.end.send(ToDevice::Closed { place });
            }
        }
    }

    fn handle_event(&mut self, event: Event, completion: Completion) {
        let place = event.connection_ref.index;
        let client = self.client(place);
        if client.is_none_or(|client| client.owner != event.connection_ref) {
            // A client that has gone; its place may be another's by now.
            return;
        }
        let progress = self.with_transport(place, |client, port| {
            client.handle(port, event.event, completion)
        });
        self.take_progress(place, progress);
    }

    /// Tells clients that the kernel has taken the operations that they submitted.
    fn submissions_ended(&mut self) {
        while let Some(owner) = self.turns.next_submitted() {
            let place = owner.index;
            if self
                .client(place)
                .is_some_and(|client| client.owner == owner)
            {
                let progress = self.with_transport(place, Client::submitted);
                self.take_progress(place, progress);
            }
        }
    }
}
