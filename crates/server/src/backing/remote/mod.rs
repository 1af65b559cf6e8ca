//! Backing on another server, in miniature: a remote export for tests.
//!
//! Shows that the interface of [`interface`](super::interface) fits a backing behind a socket, and
//! is an example of one. Requests of a turn are sent together, replies arrive in any pieces, a
//! broken connection is made again, and requests in flight are sent again or fail ([`OnCut`]).
//! [`peer`] is the other side.

pub(crate) mod peer;

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use tidegate_core::request::{DeviceIo, IoError, Op, Outcome};
use tidegate_core::time::Nanos;

use super::error_state::ErrorState;
use super::extents::{EXTENTS_MAX, Extent, ExtentQuery, QueryError};
use super::interface::{Backing, Operation, Port, ResizeWork};
use crate::buffer::{Buffer, Mem, sub_ranges};
use crate::ring::{Completion, FileId, Pause, RANGES_MAX, Ring};
use peer::{Ask, EXTENT, Export, Head, LAST_FLUSH, OnCut, REPLY, REQUEST};

/// Events of a disk's connection: a send, or a receive, has completed.
const SENT: u8 = 0;
const RECEIVED: u8 = 1;
/// Maximum number of requests that are sent together.
const BATCH_MAX: usize = 64;
/// Time until a refused connection is tried again.
const RECONNECT_DELAY: Nanos = Nanos::from_millis(2);
/// Number of an extent query on the wire; I/Os have their index.
const EXTENT_QUERY: u64 = 1 << 32;
/// Attempts to reach a peer that refuses, for the last flush, and the pause between two of them.
const SYNC_ATTEMPTS_MAX: u32 = 500;
const SYNC_PAUSE: Duration = Duration::from_millis(2);

/// Disk on a peer.
#[derive(Debug)]
pub(crate) struct Remote {
    export: Arc<Export>,
    errors: ErrorState,
    wire: Option<Wire>,
    /// I/Os that were not sent yet.
    queue: VecDeque<u32>,
    /// Extent queries; `asked` is true once the first one was sent.
    queries: VecDeque<ExtentQuery>,
    asked: bool,
    /// Number of I/Os that have not ended.
    in_flight: usize,
    /// True while a call of [`Backing::send`] is requested.
    sends: bool,
    /// True while a refused connection waits for the next timeout to be tried again.
    waits: bool,
    /// Descriptor that was in the ring's table, closed on a thread that may block.
    registered: Option<OwnedFd>,
}

/// Connection to the peer.
#[derive(Debug)]
struct Wire {
    entry: FileId,
    /// Buffer of the request heads of the batch that is being sent.
    heads: Option<Buffer>,
    /// Unsent rest of the batch.
    out: Vec<Mem>,
    sending: bool,
    /// Buffer for the head of a reply, and for extents.
    inbox: Buffer,
    /// Memory that is yet to be received of the reply's head or of its data.
    input: Vec<Mem>,
    /// Reply whose data are being received: number, errno, length of the data.
    reply: Option<(u64, i32, usize)>,
    receiving: bool,
    broken: bool,
}

/// I/Os of all remote disks of a device.
#[derive(Debug)]
pub(crate) struct RemoteIos {
    /// I/Os by index.
    slots: Vec<Slot>,
}

#[derive(Debug, Default)]
struct Slot {
    /// I/O in flight with the index of its disk; `None` if the slot is free.
    io: Option<(u32, DeviceIo)>,
    ranges: Vec<Mem>,
}

impl RemoteIos {
    pub(crate) fn new(io_slots: u32) -> RemoteIos {
        RemoteIos {
            slots: (0..io_slots).map(|_| Slot::default()).collect(),
        }
    }
}

impl Remote {
    pub(crate) fn new(export: Arc<Export>) -> Remote {
        Remote {
            errors: ErrorState::new(export.name.clone()),
            export,
            wire: None,
            queue: VecDeque::new(),
            queries: VecDeque::new(),
            asked: false,
            in_flight: 0,
            sends: false,
            waits: false,
            registered: None,
        }
    }

    /// Size of the export in bytes.
    pub(crate) fn size(&self) -> u64 {
        self.export.size
    }

    fn send_soon(&mut self, port: &mut Port<'_>) {
        if !std::mem::replace(&mut self.sends, true) {
            port.send_later();
        }
    }

    /// Connects to the peer unless connected. Returns false if that must wait.
    fn connect(&mut self, port: &mut Port<'_>) -> bool {
        if self.wire.is_some() {
            return true;
        }
        if self.waits {
            return false;
        }
        let Ok(stream) = self.export.connect() else {
            self.waits = true;
            port.wake_at(Nanos(port.now.0 + RECONNECT_DELAY.0));
            return false;
        };
        let inbox = port.plumbing.get(EXTENTS_MAX as usize * EXTENT);
        self.wire = Some(Wire {
            entry: port
                .ring
                .add_file(stream.into())
                .expect("room in the table"),
            heads: None,
            out: Vec::new(),
            sending: false,
            input: vec![inbox.mem().slice(0, REPLY)],
            inbox,
            reply: None,
            receiving: false,
            broken: false,
        });
        true
    }

    /// Fills a batch with waiting requests.
    fn fill(&mut self, ios: &RemoteIos, port: &mut Port<'_>) {
        let wire = self.wire.as_mut().expect("connected");
        let heads = port.plumbing.get(BATCH_MAX * REQUEST);
        let mut n = 0;
        let mut add = |head: Head, data: &[Mem]| {
            let to = heads.mem().slice(n * REQUEST, REQUEST);
            to.write(&head.encode());
            wire.out.push(to);
            wire.out.extend_from_slice(data);
            n += 1;
            n < BATCH_MAX
        };
        let mut room = true;
        if let Some(query) = self.queries.front()
            && !std::mem::replace(&mut self.asked, true)
        {
            let head = Head {
                number: EXTENT_QUERY,
                offset: query.offset,
                len: query.len,
                ask: Ask::Extents,
                // An extent query has no use for FUA, so the flag says that one extent suffices.
                fua: query.most == 1,
            };
            room = add(head, &[]);
        }
        // The batch closes as soon as it is full: `heads` has room for BATCH_MAX requests.
        while room && let Some(index) = self.queue.pop_front() {
            let slot = &ios.slots[index as usize];
            let (_, io) = slot.io.expect("what waits is in flight");
            let (ask, data) = match io.op {
                Op::Read => (Ask::Read, &[][..]),
                Op::Write => (Ask::Write, &slot.ranges[..]),
                Op::Flush => (Ask::Flush, &[][..]),
                Op::Discard => (Ask::Discard, &[][..]),
                Op::WriteZeroes => (Ask::WriteZeroes, &[][..]),
            };
            let head = Head {
                number: index.into(),
                offset: io.offset,
                len: io.len,
                ask,
                fua: io.fua,
            };
            room = add(head, data);
        }
        match n {
            0 => port.plumbing.put(heads),
            _ => wire.heads = Some(heads),
        }
    }

    /// Sends and receives as far as there is something to.
    fn exchange(&mut self, ios: &mut RemoteIos, port: &mut Port<'_>) {
        let is_idle = self.in_flight == 0 && self.queries.is_empty();
        if is_idle || !self.connect(port) {
            return;
        }
        let wire = self.wire.as_ref().expect("connected");
        if wire.broken {
            return;
        }
        if !wire.sending && wire.out.is_empty() {
            self.fill(ios, port);
        }
        let wire = self.wire.as_mut().expect("connected");
        if !wire.sending && !wire.out.is_empty() {
            wire.sending = true;
            // One operation takes at most RANGES_MAX ranges; its completion sends the rest.
            let some = &wire.out[..wire.out.len().min(RANGES_MAX)];
            let token = port.token(SENT);
            port.ring.send(wire.entry, some, false, token, None);
        }
        if !wire.receiving {
            wire.receiving = true;
            let some = &wire.input[..wire.input.len().min(RANGES_MAX)];
            let token = port.token(RECEIVED);
            // The peer may take long to answer, so the ring waits for data before it tries.
            port.ring
                .receive(wire.entry, some, true, Pause::NONE, token);
        }
    }

    /// Takes received bytes, then continues with the data of the reply or with the next reply.
    fn take_received(&mut self, ios: &mut RemoteIos, port: &mut Port<'_>, n: usize) {
        let wire = self.wire.as_mut().expect("it was received on");
        advance(&mut wire.input, n);
        if !wire.input.is_empty() {
            return;
        }
        let reply = match wire.reply.take() {
            Some(reply) => reply,
            None => {
                let mut head = [0; REPLY];
                wire.inbox.mem().read(&mut head);
                let word = |at: usize| u32::from_le_bytes(head[at..at + 4].try_into().unwrap());
                let number = u64::from_le_bytes(head[..8].try_into().unwrap());
                let (errno, len) = (word(8) as i32, word(12) as usize);
                if len > 0 {
                    match number {
                        // Extents have no memory of their own; the inbox has room for EXTENTS_MAX
                        // of them.
                        EXTENT_QUERY => wire.input.push(wire.inbox.mem().slice(0, len)),
                        index => {
                            let ranges = &ios.slots[index as usize].ranges;
                            sub_ranges(ranges, 0, len, &mut wire.input);
                        }
                    }
                    wire.reply = Some((number, errno, len));
                    return;
                }
                (number, errno, len)
            }
        };
        wire.input.push(wire.inbox.mem().slice(0, REPLY));
        match reply {
            (EXTENT_QUERY, errno, len) => self.end_extent_query(port, errno, len),
            (index, errno, _) => self.end(ios, port, index as u32, errno),
        }
    }

    fn end_extent_query(&mut self, port: &mut Port<'_>, errno: i32, len: usize) {
        let wire = self.wire.as_ref().expect("it was received on");
        let mut query = self.queries.pop_front().expect("it was asked");
        self.asked = false;
        let mut bytes = vec![0; len];
        wire.inbox.mem().read(&mut bytes);
        let most = query.most as usize;
        query
            .extents
            .extend(bytes.chunks(EXTENT).take(most).map(|bytes| {
                let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
                let hole = word(4) != 0;
                Extent {
                    len: word(0),
                    hole,
                    zero: hole,
                }
            }));
        let outcome = match errno {
            0 => Ok(()),
            _ => Err(QueryError::Failed),
        };
        port.answer_extents(query.answer(outcome));
    }

    fn end(&mut self, ios: &mut RemoteIos, port: &mut Port<'_>, index: u32, errno: i32) {
        let (_, io) = (ios.slots[index as usize].io.take()).expect("it was asked for");
        self.in_flight -= 1;
        let outcome = self.outcome(&io, errno);
        port.end_io(index, outcome);
    }

    /// Returns the outcome of an I/O for the peer's errno. Data that the peer could not make
    /// durable may be lost, so a later success would prove nothing.
    fn outcome(&mut self, io: &DeviceIo, errno: i32) -> Outcome {
        let durable = io.op == Op::Flush || (io.fua && io.op != Op::Read);
        match errno {
            0 if durable && self.errors.failed.is_some() => Err(IoError::Io),
            0 => Ok(()),
            libc::ENOSPC if io.op != Op::Flush => Err(IoError::NoSpace),
            errno if durable => {
                self.errors.fail(errno, "durable write or flush");
                Err(IoError::Io)
            }
            errno => {
                self.errors.warn(errno, "request");
                Err(IoError::Io)
            }
        }
    }

    /// Reconnects after a broken connection once no operation of it is with the kernel: only then
    /// may memory of I/Os in flight be used again.
    fn reconnect(&mut self, ios: &mut RemoteIos, port: &mut Port<'_>) {
        let wire = self.wire.as_mut().expect("it was cut");
        if !std::mem::replace(&mut wire.broken, true) {
            port.ring.shut_down_socket(wire.entry);
        }
        if wire.sending || wire.receiving {
            return;
        }
        let wire = self.wire.take().expect("it was cut");
        port.plumbing.put(wire.inbox);
        if let Some(heads) = wire.heads {
            port.plumbing.put(heads);
        }
        drop(port.ring.remove_file(wire.entry));
        // The new connection knows of no request: the query and all I/Os count as unsent.
        self.asked = false;
        self.queue.clear();
        let disk = port.disk;
        for index in 0..ios.slots.len() as u32 {
            let slot = &ios.slots[index as usize];
            if slot.io.is_none_or(|(of, _)| of != disk) {
                continue;
            }
            match self.export.on_cut {
                OnCut::Resend => self.queue.push_back(index),
                OnCut::Fail => self.end(ios, port, index, libc::ECONNRESET),
            }
        }
        // Connects only if there is work left, so an idle disk stays disconnected.
        self.exchange(ios, port);
    }
}

impl Backing for Remote {
    type Shared = RemoteIos;

    fn submit(
        &mut self,
        ios: &mut RemoteIos,
        port: &mut Port<'_>,
        io: &DeviceIo,
        ranges: impl Iterator<Item = Mem>,
    ) -> Option<Outcome> {
        // After a lost durable write, a later success would prove nothing, but reads are safe.
        if io.op != Op::Read && self.errors.failed.is_some() {
            return Some(Err(IoError::Io));
        }
        let slot = &mut ios.slots[io.id.index()];
        slot.io = Some((port.disk, *io));
        slot.ranges.clear();
        slot.ranges.extend(ranges);
        self.in_flight += 1;
        self.queue.push_back(io.id.index() as u32);
        self.send_soon(port);
        None
    }

    fn handle(
        &mut self,
        ios: &mut RemoteIos,
        port: &mut Port<'_>,
        operation: Operation,
        completion: Completion,
    ) {
        let Operation::Own { event, .. } = operation else {
            unreachable!("all operations are the connection's");
        };
        let wire = self
            .wire
            .as_mut()
            .expect("it stays until its operations ended");
        match event {
            SENT => wire.sending = false,
            _ => wire.receiving = false,
        }
        match (event, completion.result) {
            // A connection already given up waits only for its last operation to come back.
            _ if wire.broken => return self.reconnect(ios, port),
            (_, Err(_)) | (RECEIVED, Ok(0)) => return self.reconnect(ios, port),
            (RECEIVED, Ok(n)) => self.take_received(ios, port, n as usize),
            (_, Ok(n)) => {
                advance(&mut wire.out, n as usize);
                if wire.out.is_empty() {
                    port.plumbing
                        .put(wire.heads.take().expect("they were sent"));
                }
            }
        }
        self.exchange(ios, port);
    }

    fn query_extents(&mut self, _: &mut RemoteIos, port: &mut Port<'_>, query: ExtentQuery) {
        self.queries.push_back(query);
        self.send_soon(port);
    }

    fn send(&mut self, ios: &mut RemoteIos, port: &mut Port<'_>) {
        self.sends = false;
        self.exchange(ios, port);
    }

    fn handle_timeout(&mut self, ios: &mut RemoteIos, port: &mut Port<'_>) {
        self.waits = false;
        self.exchange(ios, port);
    }

    fn detach(&mut self, ring: &mut Ring) {
        if let Some(wire) = self.wire.take() {
            self.registered = Some(ring.remove_file(wire.entry));
        }
    }

    fn is_at_rest(&self) -> bool {
        let at_rest = |wire: &Wire| !wire.sending && !wire.receiving;
        self.wire.as_ref().is_none_or(at_rest)
    }

    fn sync(&self) -> io::Result<()> {
        // The peer refuses now and then on purpose (`peer`), and the last flush has no loop that
        // would retry it.
        let mut tries = 0;
        let stream = loop {
            match self.export.connect() {
                Err(error)
                    if error.kind() == io::ErrorKind::ConnectionRefused
                        && tries < SYNC_ATTEMPTS_MAX =>
                {
                    tries += 1;
                    std::thread::sleep(SYNC_PAUSE);
                }
                connected => break connected?,
            }
        };
        // An event loop, which is confined, may write to open files but not to sockets.
        let mut stream = File::from(OwnedFd::from(stream));
        let head = Head {
            number: LAST_FLUSH,
            offset: 0,
            len: 0,
            ask: Ask::Flush,
            fua: false,
        };
        stream.write_all(&head.encode())?;
        let mut reply = [0; REPLY];
        stream.read_exact(&mut reply)?;
        match i32::from_le_bytes(reply[8..12].try_into().unwrap()) {
            0 => Ok(()),
            errno => Err(io::Error::from_raw_os_error(errno)),
        }
    }

    fn sync_failed(&mut self, error: &io::Error) {
        let errno = error.raw_os_error().unwrap_or(libc::EIO);
        self.errors.fail(errno, "last flush");
    }

    fn zeroes_fast(&self, _: bool) -> bool {
        true
    }

    fn failure(&self) -> Option<String> {
        self.errors.failed.clone()
    }

    fn resize_work(&self, _: u64) -> Result<ResizeWork, String> {
        Err("the peer decides on its size".to_owned())
    }

    fn resize(&mut self, _: u64) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// Removes `n` bytes from the front of `ranges`.
fn advance(ranges: &mut Vec<Mem>, n: usize) {
    let total: usize = ranges.iter().map(|range| range.len()).sum();
    let mut rest = Vec::new();
    sub_ranges(ranges, n, total - n, &mut rest);
    *ranges = rest;
}
