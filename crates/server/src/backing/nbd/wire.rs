//! One connection in the ring: requests of a turn are sent together, replies arrive in any pieces.

use std::collections::VecDeque;

use tidegate_nbd::client::recovery::{Answer, Cut, Data, Export, Outgoing};
use tidegate_nbd::client::{ClientError, Decoded, Reply, decode_reply, encode_request};
use tidegate_nbd::{NbdError, REQUEST_LEN};

use super::memory::{BATCH_MAX, Buffers};
use super::{NbdIos, RECEIVED, SENT};
use crate::backing::interface::Port;
use crate::buffer::{Mem, copy_ranges, sub_ranges};
use crate::ring::{FileId, Pause, RANGES_MAX};

/// Bytes after which a batch takes no further request.
const BATCH_BYTES: u64 = 1 << 20;
/// Length of a simple reply without data, in bytes.
const REPLY_LEN: usize = 16;

/// Reason to give a connection up.
#[derive(Debug, thiserror::Error)]
pub(super) enum Broken {
    /// The server closed the connection.
    #[error("the server closed it")]
    Closed,
    /// A send or a receive failed.
    #[error("{}", std::io::Error::from_raw_os_error(*.0))]
    Failed(i32),
    /// The server sent what it must not.
    #[error("{0}")]
    Malformed(#[from] ClientError),
    /// The server answered what it must not.
    #[error("{0}")]
    Wrong(#[from] Cut),
    /// The end of the disk waited for the server for too long.
    #[error("the server did not answer in time")]
    Late,
}

impl Broken {
    /// Returns true if other connections to the server may still work, and answer what they were
    /// sent.
    pub(super) fn leaves_others(&self) -> bool {
        match self {
            Broken::Closed => true,
            // Memory of a request is gone.
            Broken::Failed(errno) => *errno != libc::EFAULT,
            Broken::Malformed(_) | Broken::Wrong(_) | Broken::Late => false,
        }
    }
}

/// Read whose data are being received.
#[derive(Clone, Copy, Debug)]
struct Incoming {
    cookie: u64,
    tag: u32,
    /// Bytes of the I/O before those that are to come.
    at: usize,
    left: usize,
}

/// Connection to a server.
#[derive(Debug)]
pub(super) struct Wire {
    /// Index among the disk's connections.
    pub(super) on: usize,
    pub(super) entry: FileId,
    /// Batch that is being sent: heads and data, of which those before `out_at` were sent.
    out: Vec<Mem>,
    out_at: usize,
    /// Bytes of the batch, those of them that were sent, and the end of each request that was not
    /// sent whole.
    out_bytes: u64,
    out_sent: u64,
    ends: VecDeque<u64>,
    sending: bool,
    /// Bytes of the inbox that were received and not taken.
    inbox: std::ops::Range<usize>,
    data: Option<Incoming>,
    /// Ranges of a receive, or of a copy.
    input: Vec<Mem>,
    receiving: bool,
    /// The socket was shut down.
    pub(super) broken: bool,
}

impl Wire {
    pub(super) fn new(on: usize, entry: FileId) -> Wire {
        Wire {
            on,
            entry,
            out: Vec::new(),
            out_at: 0,
            out_bytes: 0,
            out_sent: 0,
            ends: VecDeque::with_capacity(BATCH_MAX),
            sending: false,
            inbox: 0..0,
            data: None,
            input: Vec::new(),
            receiving: false,
            broken: false,
        }
    }

    /// Returns true if no operation is with the kernel.
    pub(super) fn is_at_rest(&self) -> bool {
        !self.sending && !self.receiving
    }

    /// Returns true if the server has got whole requests only.
    pub(super) fn is_between_requests(&self) -> bool {
        self.is_at_rest() && self.out.is_empty() && !self.broken
    }

    /// Returns true if everything that was put has been sent.
    pub(super) fn is_sent(&self) -> bool {
        !self.sending && self.out.is_empty()
    }

    /// Returns true if the batch takes another request.
    pub(super) fn has_room(&self) -> bool {
        let is_fresh = !self.broken && !self.sending && self.out_sent == 0;
        is_fresh && self.ends.len() < BATCH_MAX && self.out_bytes < BATCH_BYTES
    }

    /// Shuts the socket down. The kernel may still work on memory of the connection.
    pub(super) fn break_off(&mut self, port: &mut Port<'_>) {
        if !std::mem::replace(&mut self.broken, true) {
            port.ring.shut_down_socket(self.entry);
        }
    }

    /// Sends and receives as far as there is something to.
    pub(super) fn start(
        &mut self,
        export: &Export,
        buffers: &Buffers,
        ios: &NbdIos,
        port: &mut Port<'_>,
    ) {
        if self.broken {
            return;
        }
        if !self.sending && !self.out.is_empty() {
            self.sending = true;
            let rest = &self.out[self.out_at..];
            // One operation takes `RANGES_MAX` ranges; its completion sends the rest.
            let some = &rest[..rest.len().min(RANGES_MAX)];
            let token = port.token(self.event(SENT));
            port.ring.send(self.entry, some, false, token, None);
        }
        if !self.receiving && export.awaited(self.on) > 0 {
            self.receive(buffers, ios, port);
        }
    }

    /// Adds a request to the batch, which has room.
    pub(super) fn put(&mut self, outgoing: Outgoing, buffers: &Buffers, ios: &NbdIos) {
        let Outgoing { request, data } = outgoing;
        let head = buffers.head(self.on, self.ends.len());
        head.write(&encode_request(&request));
        self.out.push(head);
        let len = request.len as usize;
        self.out_bytes += REQUEST_LEN as u64;
        match data {
            Data::None => {}
            Data::Ask { tag, from } => {
                sub_ranges(ios.ranges(tag), from as usize, len, &mut self.out);
            }
            Data::Log { at } => self.out.extend(buffers.log(at, len)),
            Data::Zeroes => self.out.push(buffers.zeroes(len)),
        }
        if data != Data::None {
            self.out_bytes += len as u64;
        }
        self.ends.push_back(self.out_bytes);
    }

    /// Returns the number of an event of this connection.
    fn event(&self, event: u8) -> u8 {
        (self.on as u8) << 1 | event
    }

    /// Takes the end of a send.
    pub(super) fn sent(
        &mut self,
        export: &mut Export,
        result: Result<u32, i32>,
    ) -> Result<(), Broken> {
        self.sending = false;
        let mut n = result.map_err(Broken::Failed)? as usize;
        if self.broken {
            return Ok(());
        }
        self.out_sent += n as u64;
        while n > 0 {
            let range = &mut self.out[self.out_at];
            let part = range.len().min(n);
            n -= part;
            *range = range.from(part);
            if range.is_empty() {
                self.out_at += 1;
            }
        }
        let mut whole = 0;
        while self.ends.front().is_some_and(|end| *end <= self.out_sent) {
            self.ends.pop_front();
            whole += 1;
        }
        export.sent(self.on, whole);
        if self.out_at == self.out.len() {
            self.out.clear();
            (self.out_at, self.out_bytes, self.out_sent) = (0, 0, 0);
        }
        Ok(())
    }

    fn receive(&mut self, buffers: &Buffers, ios: &NbdIos, port: &mut Port<'_>) {
        self.receiving = true;
        self.input.clear();
        let mut room = RANGES_MAX;
        if let Some(data) = self.data {
            debug_assert!(self.inbox.is_empty(), "received data lie about");
            sub_ranges(ios.ranges(data.tag), data.at, data.left, &mut self.input);
            room -= self.input.len().min(RANGES_MAX);
            self.input.truncate(RANGES_MAX);
        }
        if room > 0 {
            let inbox = buffers.inbox(self.on);
            self.input.push(inbox.from(self.inbox.end));
        }
        let token = port.token(self.event(RECEIVED));
        // The server may take long to answer, so the ring waits for data before it tries.
        port.ring
            .receive(self.entry, &self.input, true, Pause::NONE, token);
    }

    /// Takes the end of a receive, and the replies that it has brought.
    pub(super) fn received(
        &mut self,
        export: &mut Export,
        buffers: &Buffers,
        ios: &mut NbdIos,
        result: Result<u32, i32>,
    ) -> Result<(), Broken> {
        self.receiving = false;
        let n = result.map_err(Broken::Failed)? as usize;
        if self.broken {
            return Ok(());
        }
        if n == 0 {
            return Err(Broken::Closed);
        }
        // Data go to the I/O first, and only what follows them to the inbox.
        let direct = self.data.map_or(0, |data| data.left.min(n));
        if let Some(data) = &mut self.data {
            data.at += direct;
            data.left -= direct;
        }
        self.inbox.end += n - direct;
        loop {
            if let Some(data) = self.data {
                let left = self.take_data(data, buffers, ios);
                if left > 0 {
                    break;
                }
                export.take_data(data.cookie);
                self.data = None;
            }
            if self.inbox.len() < REPLY_LEN {
                break;
            }
            let mut head = [0; REPLY_LEN];
            let inbox = buffers.inbox(self.on);
            inbox.from(self.inbox.start).read(&mut head);
            self.inbox.start += REPLY_LEN;
            let (cookie, error) = simple(&head)?;
            self.take_answer(export.reply(self.on, cookie, error)?, cookie, buffers, ios);
        }
        self.compact(buffers);
        if export.is_drained() {
            return Err(Cut::ShuttingDown.into());
        }
        Ok(())
    }

    fn take_answer(&mut self, answer: Answer, cookie: u64, buffers: &Buffers, ios: &NbdIos) {
        match answer {
            Answer::Done => {}
            Answer::Data { tag, from, len } => {
                self.data = Some(Incoming {
                    cookie,
                    tag,
                    at: from as usize,
                    left: len as usize,
                });
            }
            Answer::Log { tag, at } => {
                let ranges = ios.ranges(tag);
                let len = ranges.iter().map(Mem::len).sum();
                self.input.clear();
                self.input.extend(buffers.log(at, len));
                copy_ranges(&self.input, ranges);
            }
        }
    }

    /// Copies data from the inbox to their I/O, and returns how many bytes are yet to come.
    fn take_data(&mut self, mut data: Incoming, buffers: &Buffers, ios: &NbdIos) -> usize {
        let n = self.inbox.len().min(data.left);
        if n > 0 {
            self.input.clear();
            sub_ranges(ios.ranges(data.tag), data.at, n, &mut self.input);
            let inbox = buffers.inbox(self.on);
            copy_ranges(&self.input, &[inbox.slice(self.inbox.start, n)]);
            self.inbox.start += n;
            data.at += n;
            data.left -= n;
            self.data = Some(data);
        }
        data.left
    }

    /// Moves what is left in the inbox, less than a reply, to its front.
    fn compact(&mut self, buffers: &Buffers) {
        let (start, len) = (self.inbox.start, self.inbox.len());
        if start > 0 && len > 0 {
            let inbox = buffers.inbox(self.on);
            inbox.copy(inbox.slice(start, len));
        }
        self.inbox = 0..len;
    }
}

/// Decodes a simple reply; others were not negotiated.
fn simple(head: &[u8; REPLY_LEN]) -> Result<(u64, Option<NbdError>), ClientError> {
    match decode_reply(head)? {
        Decoded::Reply(_, Reply::Simple { cookie, error }) => Ok((cookie, error)),
        _ => Err(ClientError::Malformed("a reply that is not a simple one")),
    }
}
