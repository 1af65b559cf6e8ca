//! NBD connection after its handshake: requests and replies on one socket.
//!
//! ```text
//!   socket --Recv--> buffer --Session--> request            answered slots --> heads + payloads
//!                      |                                                          |
//!                      +--> payload of a write, its rest received in place       +--Send--> socket
//! ```

mod coalescing;
mod hand_over;
mod receive;
mod send;

use std::io;
use std::os::fd::OwnedFd;

use tidegate_core::engine::PayloadMemory;
use tidegate_core::time::Nanos;
use tidegate_nbd::reply;
use tidegate_nbd::{Extent, ReplyStyle, Session};

use crate::backing::extents::EXTENTS_MAX;
use crate::frontend::interface::{
    Answer, Budget, Completed, Frontend, Kind, Next, Polled, Port, Progress, SENT, Word,
};
use crate::frontend::request_table::Requests;
use crate::ring::{Completion, FileId, Pause, Ring};

use coalescing::Coalescing;
use hand_over::CANCELLED;
pub use hand_over::Handed;
pub(crate) use hand_over::Kept;
use receive::Rx;
use send::Tx;

/// Size of a receive buffer in bytes.
const RECEIVE: usize = 16 << 10;
/// Size of the buffer for the reply heads of one send, in bytes.
const HEADS: usize = 8 << 10;
/// Maximum number of replies that may wait for a client to take them.
const UNSENT_MAX: usize = 1024;
/// Maximum bytes of replies that may wait for a client to take them.
const UNSENT_BYTES_MAX: u64 = 16 << 20;
/// Base time for one transfer of a client whose VM borrows payload memory while another VM waits
/// for some; the time of the bytes at [`PACE`] is added.
const PATIENCE: Nanos = Nanos::from_secs(2);
/// Minimum rate of such a transfer in bytes per second; a network of 100 Mbit/s is faster.
const PACE: u64 = 8 << 20;

/// Events of the socket, beside [`SENT`]: a receive has completed.
const RECEIVED: u8 = 1;
/// Event of a poll: the socket of a stalled client has bytes to receive, or was closed.
const READABLE: u8 = 2;

/// NBD connection whose handshake is done, on its way to a loop.
#[derive(Debug)]
pub struct Opening {
    /// Blocking socket.
    pub fd: OwnedFd,
    /// Protocol state in the transmission phase; all output of the handshake was sent.
    pub session: Session,
    /// Negotiated form of replies.
    pub style: ReplyStyle,
    /// Identifier of `base:allocation`, if the client has selected it.
    pub allocation_context: Option<u32>,
    /// Bytes received beyond the handshake, at most 4 KiB; of a connection of another daemon, all
    /// that was not answered there.
    pub leftover: Vec<u8>,
    /// Number of bytes behind `leftover` that are discarded: the rest of a rejected write's payload
    /// whose beginning another daemon has discarded.
    pub skip: u64,
    /// True if the socket leads to a thread for TLS.
    pub is_tunnelled: bool,
}

/// NBD connection inside a loop.
#[derive(Debug)]
pub(crate) struct Connection {
    file: FileId,
    session: Session,
    style: ReplyStyle,
    allocation_context: Option<u32>,
    rx: Rx,
    tx: Tx,
    coalescing: Coalescing,
    /// True once the socket was shut down.
    shut_down: bool,
    is_tunnelled: bool,
    /// True once the connection is to be handed over: nothing more is received.
    handing_over: bool,
}

/// Identifier that the client gave a request, returned in the reply.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Cookie(pub(crate) u64);

impl Word for Cookie {
    #[inline]
    fn to_word(self) -> u64 {
        self.0
    }

    #[inline]
    fn from_word(word: u64) -> Cookie {
        Cookie(word)
    }
}

impl Connection {
    /// Maximum bytes of the loop's plumbing pool that one connection uses.
    pub(crate) const PLUMBING: usize = RECEIVE + HEADS;

    /// Opens a connection in a loop.
    ///
    /// # Errors
    /// Fails if the ring's table of files is full.
    pub(crate) fn open(opening: Opening, port: &mut Port<'_>) -> io::Result<Connection> {
        let file = port.ring.add_file(opening.fd)?;
        let buffer = port.plumbing.get(RECEIVE);
        Ok(Connection {
            file,
            session: opening.session,
            style: opening.style,
            allocation_context: opening.allocation_context,
            rx: Rx::new(buffer, opening.leftover, opening.skip, port.now),
            tx: Tx::new(port.now),
            coalescing: Coalescing::new(port.now),
            shut_down: false,
            is_tunnelled: opening.is_tunnelled,
            handing_over: false,
        })
    }

    /// Encodes a block status reply into the slot's buffer, which has room for the longest one.
    #[cold]
    fn encode_extents(&self, requests: &mut Requests, index: u32) {
        let mut bytes = [0u8; reply::block_status_len(EXTENTS_MAX as usize)];
        let count = requests.extents(index).len();
        assert!(
            (1..=EXTENTS_MAX as usize).contains(&count),
            "a block status of {count} extents"
        );
        let extents = requests.extents(index).iter().map(|extent| Extent {
            len: extent.len,
            hole: extent.hole,
            zero: extent.zero,
        });
        let buffer = requests.buffer(index);
        let context = self.allocation_context;
        let context = context.expect("no block status is let through without a context");
        let buffer = buffer.expect("a reply with extents has a buffer");
        let token = requests.get(index).token;
        let n = reply::block_status(token, context, extents, &mut bytes);
        buffer.write(&bytes[..n]);
        requests.get_mut(index).len = n as u32;
    }

    /// Returns true if a transfer of `bytes` that began at `began` takes longer than allowed.
    fn is_late(now: Nanos, began: Nanos, bytes: u64) -> bool {
        let takes = Nanos(bytes.saturating_mul(1_000_000_000) / PACE);
        now.since(began) > PATIENCE + takes
    }
}

impl Frontend for Connection {
    type Token = Cookie;

    const MEMORY: PayloadMemory = PayloadMemory::Bounded;

    fn poll(&mut self, port: &mut Port<'_>, budget: &mut Budget) -> Polled<Cookie> {
        if self.rx.payload.is_some() {
            return self.fill_payload(port.requests, budget);
        }
        while !self.rx.is_empty() || self.rx.refill() {
            if !budget.may_take_request() {
                return Polled::Later;
            }
            // Checked before parsing: a parsed request must be answerable.
            if !self.room(port) {
                return Polled::Full;
            }
            budget.take_request();
            if let Some(polled) = self.parse() {
                return polled;
            }
        }
        Polled::Empty
    }

    fn await_payload(&mut self, port: &mut Port<'_>, slot: u32) {
        debug_assert!(
            self.rx.payload.is_none(),
            "a write begins within the payload of another one"
        );
        self.rx.payload = Some((slot, 0));
        (self.rx.moved, self.rx.began) = (port.now, port.now);
    }

    fn complete(&mut self, port: &mut Port<'_>, slot: u32) -> Completed {
        let entry = port.requests.get(slot);
        if matches!(entry.kind, Kind::Extents { .. }) && entry.answer == Answer::Ok {
            self.encode_extents(port.requests, slot);
        }
        self.queue(port, slot);
        Completed::Later
    }

    #[inline]
    fn room(&mut self, _: &mut Port<'_>) -> bool {
        self.tx.queue.len() + self.tx.sending.len() < UNSENT_MAX && self.tx.bytes < UNSENT_BYTES_MAX
    }

    fn handle(&mut self, port: &mut Port<'_>, event: u8, completion: Completion) -> Progress {
        match event {
            SENT => self.sent(port, completion.result),
            RECEIVED => self.received(port, completion),
            READABLE => {
                self.rx.polling = false;
                // Only a client that is still stalled leaves these bytes waiting; any other
                // client's bytes are received at once.
                if port.stalled {
                    self.rx.drained = false;
                    self.rx.next_since = Some(port.now);
                }
                Progress::default()
            }
            CANCELLED => {
                self.cancel_operations(port);
                Progress::default()
            }
            other => panic!("event {other} of a socket, which was never submitted"),
        }
    }

    #[inline]
    fn waits_since(&self) -> Option<Nanos> {
        self.rx.since
    }

    fn stall(&mut self, port: &mut Port<'_>) {
        self.rx.since.get_or_insert(port.now);
        if self.rx.drained && !self.rx.polling {
            // Nothing is received while the client is stalled. A poll reports the arrival of bytes,
            // so that their wait counts as latency.
            self.rx.polling = true;
            let token = port.token(READABLE);
            port.ring.await_readable(self.file, token);
        }
    }

    fn flush(&mut self, port: &mut Port<'_>, alone: bool) -> bool {
        self.send_replies(port, alone)
    }

    fn submitted(&mut self, port: &mut Port<'_>) -> Progress {
        Progress {
            sent: self.linked_send_ended(port),
            next: Next::Nothing,
        }
    }

    fn receive(&mut self, port: &mut Port<'_>) {
        self.submit_receive(port);
    }

    fn bound_pause(&mut self, longest: Pause) {
        self.coalescing.set_longest(longest);
    }

    #[inline]
    fn is_receiving(&self) -> bool {
        self.rx.receiving
    }

    #[inline]
    fn is_quiet(&self) -> bool {
        self.tx.queue.is_empty() && !self.tx.is_sending()
    }

    #[inline]
    fn is_at_rest(&self) -> bool {
        !self.rx.receiving && (!self.tx.is_sending() || self.tx.has_stopped)
    }

    fn shut_down(&mut self, port: &mut Port<'_>) {
        self.shut_down = true;
        port.ring.shut_down_socket(self.file);
    }

    fn hang_up(&self, ring: &Ring) {
        ring.shut_down_socket(self.file);
    }

    fn close(self, port: &mut Port<'_>) {
        // The buffers go back to their pool, and the kernel would write into the next user's.
        assert!(
            self.is_at_rest(),
            "a connection is closed while the kernel uses its buffers"
        );
        let payload = self.rx.payload.map(|(slot, _)| slot);
        port.requests
            .end(payload.into_iter().chain(self.tx.queue), None);
        if let Some(heads) = self.tx.heads {
            port.plumbing.put(heads);
        }
        port.plumbing.put(self.rx.buffer);
        drop(port.ring.remove_file(self.file));
    }

    fn stuck(&self, now: Nanos, patience: Nanos) -> Option<&'static str> {
        if self.tx.is_sending() && now.since(self.tx.moved) > patience {
            return Some("takes none of its replies");
        }
        let waits = self.rx.payload.is_some() && self.rx.receiving;
        (waits && now.since(self.rx.moved) > patience).then_some("stopped in the middle of a write")
    }

    fn overdue(&self, now: Nanos, requests: &Requests) -> Option<&'static str> {
        let payload = self.rx.payload.map(|(slot, _)| requests.get(slot).len);
        if payload.is_some_and(|len| Connection::is_late(now, self.rx.began, len.into())) {
            return Some("slow to send a write's payload");
        }
        let sending = self.tx.is_sending();
        (sending && Connection::is_late(now, self.tx.began, self.tx.began_bytes))
            .then_some("slow to take its replies")
    }
}
