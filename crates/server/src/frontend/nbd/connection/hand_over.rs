//! Hand-over of a connection to another daemon: what was received and not answered, and what was
//! answered and not sent, as bytes of the protocol.
//!
//! ```text
//!   begin: cancel the receive --> requests withdrawn or answered --> cancel a send that waits
//!                                                                          |
//!   input = withdrawn requests | held request | part of a payload, header | bytes not parsed
//!   unsent = rest of the send | replies that wait           <--------------+
//! ```
//!
//! The other daemon parses the input as if it had received it, so it needs no other form of a
//! request.

use std::os::fd::OwnedFd;

use tidegate_nbd::client::{encode_disconnect, encode_request};
use tidegate_nbd::reply::ERROR_LEN;
use tidegate_nbd::{Command, Limits, Request, Session, TransmissionState};

use super::send::head_of;
use super::{Connection, Cookie, Opening, RECEIVED};
use crate::buffer::Mem;
use crate::frontend::interface::{Incoming, Kind, Port, SENT, Word};
use crate::frontend::request_table::Slot;

/// Event of a cancellation that has found nothing to cancel.
pub(super) const CANCELLED: u8 = 3;

/// Connection at rest with everything that another daemon needs to go on with it.
#[derive(Debug)]
pub struct Handed {
    /// Socket.
    pub fd: OwnedFd,
    /// Results of the negotiation. Bytes still to be skipped are those behind the input.
    pub state: TransmissionState,
    /// Identifier of `base:allocation`, if the client has selected it.
    pub allocation_context: Option<u32>,
    /// Bytes that the client has sent and that were not answered.
    pub input: Vec<u8>,
    /// Bytes of replies that the socket has not taken.
    pub unsent: Vec<u8>,
}

impl Handed {
    /// Returns the connection on its way to a loop.
    ///
    /// # Panics
    /// If replies have yet to be sent: those of the loop would come before them.
    pub fn reopen(self) -> Opening {
        assert!(self.unsent.is_empty(), "replies would come out of order");
        // Skipped once the input was parsed, which is in front of it.
        let at_input = TransmissionState {
            skip: 0,
            ..self.state
        };
        Opening {
            fd: self.fd,
            session: Session::resumed(Limits::default(), &at_input),
            style: self.state.style,
            allocation_context: self.allocation_context,
            leftover: self.input,
            skip: self.state.skip,
            is_tunnelled: false,
        }
    }
}

/// Parts of a connection that its loop has kept for it.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    /// Slots of the requests that were withdrawn from the engine, oldest first.
    pub(crate) withdrawn: Vec<u32>,
    /// Request that waits for a request slot or payload memory.
    pub(crate) held: Option<Incoming<u64>>,
    /// True if the client has disconnected in order and waits for its last replies.
    pub(crate) has_left: bool,
}

/// Returns the command of a request of the loop.
fn command(kind: Kind) -> Command {
    match kind {
        // Every reply to a read is one chunk, as `NBD_CMD_FLAG_DF` demands.
        Kind::Read => Command::Read { df: false },
        Kind::Write => Command::Write,
        Kind::Flush => Command::Flush,
        Kind::Discard => Command::Trim,
        Kind::WriteZeroes {
            keep_allocated,
            only_if_fast,
        } => Command::WriteZeroes {
            no_hole: keep_allocated,
            fast_zero: only_if_fast,
        },
        Kind::Cache => Command::Cache,
        Kind::Extents { most, .. } => Command::BlockStatus { one: most == 1 },
    }
}

fn put_request(out: &mut Vec<u8>, request: &Incoming<u64>) {
    out.extend(encode_request(&Request {
        cookie: request.token,
        command: command(request.kind),
        fua: request.fua,
        offset: request.offset,
        len: request.len,
    }));
}

/// Returns the request of a slot.
fn request_of(slot: &Slot) -> Incoming<u64> {
    Incoming {
        kind: slot.kind,
        offset: slot.offset,
        len: slot.len,
        fua: slot.fua,
        token: slot.token,
    }
}

fn put_memory(out: &mut Vec<u8>, memory: Mem) {
    let at = out.len();
    out.resize(at + memory.len(), 0);
    memory.read(&mut out[at..]);
}

impl Connection {
    /// Returns true if the socket leads to a thread for TLS, whose other end cannot be handed over.
    pub(crate) fn is_tunnelled(&self) -> bool {
        self.is_tunnelled
    }

    /// Ends the receive that is with the kernel; what it brings until then is kept.
    pub(crate) fn begin_hand_over(&mut self, port: &mut Port<'_>) {
        self.handing_over = true;
        self.cancel_operations(port);
    }

    /// Ends the send that is with the kernel; what the socket has not taken is kept.
    pub(crate) fn stop_sending(&mut self, port: &mut Port<'_>) {
        // The end of a linked send is known with the next turn.
        if self.tx.is_sending() && !self.tx.linked && !self.tx.stops {
            self.tx.stops = true;
            let (of, token) = (port.token(SENT), port.token(CANCELLED));
            port.ring.cancel(of, token);
        }
    }

    /// Cancels again what a cancellation has not found: an operation behind a pause is there only
    /// when the pause is over.
    pub(super) fn cancel_operations(&mut self, port: &mut Port<'_>) {
        if !self.handing_over {
            return;
        }
        let token = port.token(CANCELLED);
        if self.rx.receiving {
            port.ring.cancel(port.token(RECEIVED), token);
        }
        if self.tx.stops && !self.tx.has_stopped && self.tx.is_sending() {
            port.ring.cancel(port.token(SENT), token);
        }
    }

    /// Takes the connection apart, which [is at rest](super::Frontend::is_at_rest).
    pub(crate) fn hand_over(self, port: &mut Port<'_>, kept: Kept) -> Handed {
        let state = self.session.transmission_state();
        let mut state = state.expect("a connection that goes on is in the transmission phase");
        let (input, skip) = self.input(port, &kept, state.skip);
        state.skip = skip;
        let unsent = self.unsent(port);
        let payload = self.rx.payload.map(|(slot, _)| slot);
        let slots = kept.withdrawn.into_iter().chain(payload);
        let slots = slots.chain(self.tx.sending).chain(self.tx.queue);
        port.requests.end(slots, None);
        if let Some(heads) = self.tx.heads {
            port.plumbing.put(heads);
        }
        port.plumbing.put(self.rx.buffer);
        Handed {
            fd: port.ring.remove_file(self.file),
            state,
            allocation_context: self.allocation_context,
            input,
            unsent,
        }
    }

    /// Returns what the client has sent and that was not answered, and the number of bytes behind
    /// it that are to be skipped. `skip` is the number that the session has yet to skip.
    fn input(&self, port: &Port<'_>, kept: &Kept, skip: u64) -> (Vec<u8>, u64) {
        let mut input = Vec::new();
        for &slot in &kept.withdrawn {
            put_request(&mut input, &request_of(port.requests.get(slot)));
            if port.requests.get(slot).kind == Kind::Write {
                let buffer = port.requests.buffer(slot).expect("a write has a buffer");
                put_memory(
                    &mut input,
                    buffer.slice(0, port.requests.get(slot).len as usize),
                );
            }
        }
        if let Some(held) = &kept.held {
            put_request(&mut input, held);
        }
        if let Some((slot, filled)) = self.rx.payload {
            put_request(&mut input, &request_of(port.requests.get(slot)));
            let buffer = port.requests.buffer(slot).expect("a write has a buffer");
            put_memory(&mut input, buffer.slice(0, filled));
        }
        if kept.has_left {
            // Nothing is read behind it.
            input.extend(encode_disconnect());
            return (input, 0);
        }
        input.extend(self.session.partial_header());
        let skip = self.rx.rest(&mut input, skip);
        (input, skip)
    }

    /// Returns the replies that the socket has not taken.
    fn unsent(&self, port: &Port<'_>) -> Vec<u8> {
        let mut unsent = Vec::new();
        if self.tx.is_sending() {
            for &range in self.tx.ranges() {
                put_memory(&mut unsent, range);
            }
        }
        for &reply in &self.tx.queue {
            let slot = port.requests.get(reply);
            let mut head = [0u8; ERROR_LEN];
            let Cookie(cookie) = Cookie::from_word(slot.token);
            let n = head_of(slot).encode(self.style, cookie, &mut head);
            unsent.extend(&head[..n]);
            if let Some(memory) = port.requests.reply_memory(reply) {
                put_memory(&mut unsent, memory.slice(0, slot.len as usize));
            }
        }
        unsent
    }
}
