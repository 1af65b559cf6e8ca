//! Receiving side of an NBD connection: received bytes become requests and payloads.

use tidegate_core::time::Nanos;
use tidegate_nbd::{Command, Exports, REQUEST_LEN, Request, Step, reply};

use super::{Connection, Cookie, RECEIVE, RECEIVED};
use crate::backing::extents::EXTENTS_MAX;
use crate::buffer::Buffer;
use crate::frontend::interface::{Budget, Incoming, Kind, Next, Polled, Port, Progress};
use crate::frontend::request_table::Requests;
use crate::ring::{Completion, Pause};

/// Receiving side of a connection.
#[derive(Debug)]
pub(super) struct Rx {
    pub(super) buffer: Buffer,
    /// Part of the buffer that was received and not parsed yet.
    start: usize,
    end: usize,
    /// True while a receive is with the kernel.
    pub(super) receiving: bool,
    /// True if the last receive emptied the socket.
    pub(super) drained: bool,
    /// Slot of the write whose payload is arriving, and the number of bytes that have arrived.
    pub(super) payload: Option<(u32, usize)>,
    /// Loop time at which bytes of that payload were last received (`moved`), and at which it began
    /// (`began`).
    pub(super) moved: Nanos,
    pub(super) began: Nanos,
    /// Loop time since which the bytes in the buffer have waited for a slot or memory. Requests
    /// parsed from them have waited as long, which counts as latency.
    pub(super) since: Option<Nanos>,
    /// True while a poll for readability of the socket is with the kernel.
    pub(super) polling: bool,
    /// Loop time at which the first bytes of the next receive arrived, if the client was stalled
    /// then.
    pub(super) next_since: Option<Nanos>,
    /// Bytes that another daemon has received, which come before those of the socket.
    backlog: Option<Box<Backlog>>,
    /// Number of bytes that are discarded before the next ones of the socket are parsed.
    pub(super) skip: u64,
}

/// Bytes that are parsed before any are received.
#[derive(Debug)]
struct Backlog {
    bytes: Vec<u8>,
    /// Number of bytes that were taken.
    taken: usize,
}

impl Rx {
    /// Creates the receiving side around a buffer. `received` are the bytes that have come already;
    /// `skip` bytes behind them are discarded.
    pub(super) fn new(buffer: Buffer, received: Vec<u8>, skip: u64, now: Nanos) -> Rx {
        let backlog = (!received.is_empty()).then(|| {
            Box::new(Backlog {
                bytes: received,
                taken: 0,
            })
        });
        Rx {
            buffer,
            start: 0,
            end: 0,
            backlog,
            skip,
            receiving: false,
            drained: false,
            payload: None,
            moved: now,
            began: now,
            since: None,
            polling: false,
            next_since: None,
        }
    }

    /// Returns true if everything that was received was parsed.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Fills the empty buffer with bytes that have come before the connection did. Returns false if
    /// there are none.
    pub(super) fn refill(&mut self) -> bool {
        let Some(backlog) = &mut self.backlog else {
            return false;
        };
        let rest = &backlog.bytes[backlog.taken..];
        let n = rest.len().min(RECEIVE);
        self.buffer.mem().write(&rest[..n]);
        (self.start, self.end) = (0, n);
        backlog.taken += n;
        if backlog.taken == backlog.bytes.len() {
            self.backlog = None;
        }
        true
    }

    /// Appends what has come and was not parsed, without its first `skip` bytes. Returns the number
    /// of bytes behind it that are to be discarded.
    pub(super) fn rest(&self, out: &mut Vec<u8>, skip: u64) -> u64 {
        let at = out.len();
        out.resize(at + self.end - self.start, 0);
        let unparsed = self.buffer.mem().slice(self.start, self.end - self.start);
        unparsed.read(&mut out[at..]);
        if let Some(backlog) = &self.backlog {
            out.extend(&backlog.bytes[backlog.taken..]);
        }
        let skipped = skip.min((out.len() - at) as u64) as usize;
        out.drain(at..at + skipped);
        let left = skip - skipped as u64;
        // The bytes of another daemon end with whole requests if some of the socket's are to be
        // discarded, so none of a rejected write is among them.
        assert!(
            left == 0 || self.skip == 0,
            "two payloads are discarded at once"
        );
        left + self.skip
    }

    /// Discards the first bytes that were received into the buffer as far as that is due.
    fn discard(&mut self) {
        let discarded = self.skip.min((self.end - self.start) as u64);
        self.skip -= discarded;
        self.start += discarded as usize;
    }

    /// Prepares for a receive into the empty buffer, which the caller submits.
    pub(super) fn begin(&mut self) {
        debug_assert!(
            self.is_empty() && !self.receiving && self.backlog.is_none(),
            "a receive overwrites bytes that were not parsed, or another receive"
        );
        (self.start, self.end, self.receiving) = (0, 0, true);
        if self.drained {
            // The socket was empty, so that bytes received from now on have not waited.
            self.since = None;
        } else if self.next_since.is_some() {
            self.since = self.next_since.take();
        }
    }
}

/// Export list for the transmission phase, which looks none up.
struct NoExports;

impl Exports for NoExports {
    fn lookup(&self, _: &str) -> Option<tidegate_nbd::Export> {
        None
    }
    fn list(&self, _: &mut dyn FnMut(&str, &str)) {}
}

impl Connection {
    /// Handles the completion of a receive.
    pub(super) fn received(&mut self, port: &mut Port<'_>, completion: Completion) -> Progress {
        debug_assert!(self.rx.receiving, "a receive ends that was not submitted");
        self.rx.receiving = false;
        let sent = self.linked_send_ended(port);
        let next = match completion.result {
            Ok(n) if n > 0 => {
                let n = n as usize;
                self.rx.drained = !completion.more;
                self.rx.moved = port.now;
                self.coalescing.received(port.now);
                let mut direct = 0;
                if let Some((slot, filled)) = &mut self.rx.payload {
                    let len = port.requests.get(*slot).len as usize;
                    // The vectored receive fills the payload first, then the buffer.
                    direct = n.min(len - *filled);
                    *filled += direct;
                }
                self.rx.start = 0;
                self.rx.end = n - direct;
                self.rx.discard();
                Next::Poll
            }
            // Cancelled; or closed, which the daemon that goes on finds, too.
            Ok(_) | Err(_) if self.handing_over => Next::Nothing,
            Ok(_) => Next::Closed(None),
            Err(libc::EINTR | libc::EAGAIN) => Next::Exchange,
            Err(errno) => Next::Closed(Some(errno)),
        };
        Progress { sent, next }
    }

    /// Parses the next bytes; `None` if they are no complete request.
    pub(super) fn parse(&mut self) -> Option<Polled<Cookie>> {
        // Copied, because memory that the kernel writes to is never borrowed.
        let rx = &mut self.rx;
        let mut bytes = [0u8; 4 * REQUEST_LEN];
        let n = (rx.end - rx.start).min(bytes.len());
        rx.buffer.mem().slice(rx.start, n).read(&mut bytes[..n]);
        let (used, step) = match self.session.handle(&bytes[..n], &NoExports) {
            Ok(handled) => handled,
            Err(fatal) => return Some(Polled::Broken(fatal.to_string())),
        };
        debug_assert!(used <= n, "the session took bytes that it was not given");
        rx.start += used;
        match step {
            Step::Request(request) => {
                self.coalescing.took_request();
                Some(Polled::Request(incoming(&request)))
            }
            Step::Rejected(rejected) => {
                self.coalescing.took_request();
                Some(Polled::Rejected {
                    token: Cookie(rejected.cookie),
                    failure: rejected.error.into(),
                    message: rejected.reason.message(),
                })
            }
            Step::Disconnect(_) => Some(Polled::Left),
            Step::NeedMore(_) => None,
            Step::Output | Step::StartTls | Step::Opened(_) => {
                unreachable!("the handshake was carried through before")
            }
        }
    }

    /// Copies received bytes to the payload of the write that is arriving.
    pub(super) fn fill_payload(
        &mut self,
        requests: &Requests,
        budget: &mut Budget,
    ) -> Polled<Cookie> {
        let rx = &mut self.rx;
        let Some((slot, filled)) = rx.payload else {
            return Polled::Empty;
        };
        if rx.is_empty() {
            rx.refill();
        }
        let len = requests.get(slot).len as usize;
        let buffer = requests.buffer(slot).expect("a write has a buffer");
        let n = (len - filled).min(rx.end - rx.start);
        buffer.from(filled).copy(rx.buffer.mem().slice(rx.start, n));
        rx.start += n;
        budget.copy(n);
        if filled + n < len {
            rx.payload = Some((slot, filled + n));
            // More has come already, and takes a turn of its own.
            return match rx.backlog {
                Some(_) => Polled::Later,
                None => Polled::Empty,
            };
        }
        rx.payload = None;
        Polled::Arrived(slot)
    }

    /// Returns the pause before the receive that is submitted now.
    pub(super) fn plan_receive(&mut self, now: Nanos) -> Pause {
        let pause = self.coalescing.plan(now);
        // Bytes that wait in the socket, and the rest of a payload, are received at once.
        if !self.rx.drained || self.rx.payload.is_some() {
            return Pause::NONE;
        }
        #[cfg(test)]
        let pause = every_third(pause);
        pause
    }

    /// Submits a receive if everything was parsed. The rest of a write's payload is received in
    /// place.
    pub(super) fn submit_receive(&mut self, port: &mut Port<'_>) {
        if self.rx.receiving || !self.rx.is_empty() {
            return;
        }
        let token = port.token(RECEIVED);
        let pause = self.plan_receive(port.now);
        let rx = &mut self.rx;
        let room = rx.buffer.mem().slice(0, RECEIVE);
        rx.begin();
        match rx.payload {
            Some((slot, filled)) => {
                let len = port.requests.get(slot).len as usize;
                let buffer = port.requests.buffer(slot).expect("a write has a buffer");
                let rest = buffer.slice(filled, len - filled);
                port.ring
                    .receive(self.file, &[rest, room], rx.drained, pause, token);
            }
            None => port
                .ring
                .receive(self.file, &[room], rx.drained, pause, token),
        }
    }
}

/// Replaces every third pause by one of 0 to 25 us, so that tests of whole sessions meet pauses
/// whatever the machine's speed.
#[cfg(test)]
fn every_third(pause: Pause) -> Pause {
    use std::sync::atomic::{AtomicU64, Ordering};

    static RECEIVES: AtomicU64 = AtomicU64::new(0);
    let receive = RECEIVES.fetch_add(1, Ordering::Relaxed);
    if receive.is_multiple_of(3) {
        Pause::at_most(Nanos(receive % 26 * 1000))
    } else {
        pause
    }
}

/// Converts a parsed request to the loop's terms.
#[inline]
fn incoming(request: &Request) -> Incoming<Cookie> {
    let kind = match request.command {
        Command::Read { .. } => Kind::Read,
        Command::Write => Kind::Write,
        Command::Flush => Kind::Flush,
        Command::Trim => Kind::Discard,
        Command::WriteZeroes { no_hole, fast_zero } => Kind::WriteZeroes {
            keep_allocated: no_hole,
            only_if_fast: fast_zero,
        },
        Command::Cache => Kind::Cache,
        Command::BlockStatus { one } => {
            let most = if one { 1 } else { EXTENTS_MAX };
            Kind::Extents {
                most,
                reply_len: reply::block_status_len(most as usize) as u32,
            }
        }
    };
    Incoming {
        kind,
        offset: request.offset,
        len: request.len,
        fua: request.fua,
        token: Cookie(request.cookie),
    }
}
