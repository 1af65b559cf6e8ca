//! Front-end and driver of a guest, of which every byte can be chosen.

use std::cell::Cell;
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::os::fd::{AsRawFd, FromRawFd, RawFd};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use vmm_sys_util::sock_ctrl_msg::ScmSocket;

/// Longest wait for something that must happen.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);

/// Queues of a guest, each with this many entries.
pub(super) const QUEUES: usize = 4;
pub(super) const ENTRIES: u16 = 16;
/// Bytes of a queue's part of memory, and where its rings, its table and its headers are.
pub(super) const QUEUE_BYTES: u64 = 0x1000;
pub(super) const AVAILABLE: u64 = 0x100;
pub(super) const USED: u64 = 0x200;
pub(super) const TABLE: u64 = 0x400;
const HEADERS: u64 = 0x800;
/// Bytes between headers, and offset of the status byte.
const HEADER: u64 = 64;
const STATUS: u64 = 48;
/// Memory for data, behind the queues, and all of it.
pub(super) const DATA: u64 = QUEUES as u64 * QUEUE_BYTES;
pub(super) const MEMORY: u64 = 0x4_0000;
/// Addresses of memory in the guest and in the front-end.
pub(super) const GUEST: u64 = 0x10_0000;
pub(super) const USER: u64 = 0x7f00_0000_0000;

/// Numbers of messages.
pub(super) const GET_FEATURES: u32 = 1;
pub(super) const SET_FEATURES: u32 = 2;
pub(super) const SET_OWNER: u32 = 3;
pub(super) const RESET_OWNER: u32 = 4;
pub(super) const SET_MEM_TABLE: u32 = 5;
pub(super) const SET_LOG_BASE: u32 = 6;
pub(super) const SET_LOG_FD: u32 = 7;
pub(super) const SET_VRING_NUM: u32 = 8;
pub(super) const SET_VRING_ADDR: u32 = 9;
pub(super) const SET_VRING_BASE: u32 = 10;
pub(super) const GET_VRING_BASE: u32 = 11;
pub(super) const SET_VRING_KICK: u32 = 12;
pub(super) const SET_VRING_CALL: u32 = 13;
pub(super) const SET_VRING_ERR: u32 = 14;
pub(super) const GET_PROTOCOL_FEATURES: u32 = 15;
pub(super) const SET_PROTOCOL_FEATURES: u32 = 16;
pub(super) const GET_QUEUE_NUM: u32 = 17;
pub(super) const SET_VRING_ENABLE: u32 = 18;
pub(super) const SET_BACKEND_REQ_FD: u32 = 21;
pub(super) const GET_CONFIG: u32 = 24;
pub(super) const SET_CONFIG: u32 = 25;
pub(super) const GET_INFLIGHT_FD: u32 = 31;
pub(super) const SET_INFLIGHT_FD: u32 = 32;
pub(super) const RESET_DEVICE: u32 = 34;
pub(super) const GET_MAX_MEM_SLOTS: u32 = 36;
pub(super) const ADD_MEM_REG: u32 = 37;
pub(super) const REM_MEM_REG: u32 = 38;
pub(super) const SET_DEVICE_STATE_FD: u32 = 42;
pub(super) const CHECK_DEVICE_STATE: u32 = 43;

/// Flags of a message: version 1, and that a reply is wanted.
pub(super) const VERSION: u32 = 1;
pub(super) const NEED_REPLY: u32 = 8;

/// Feature bits: a log of dirty pages, and protocol features.
pub(super) const LOG_ALL: u64 = 1 << 26;
pub(super) const PROTOCOL_FEATURES: u64 = 1 << 30;

/// Body of a message.
#[derive(Default)]
pub(super) struct Body(pub(super) Vec<u8>);

impl Body {
    pub(super) fn u16(mut self, value: u16) -> Body {
        self.0.extend(value.to_le_bytes());
        self
    }

    pub(super) fn u32(mut self, value: u32) -> Body {
        self.0.extend(value.to_le_bytes());
        self
    }

    pub(super) fn u64(mut self, value: u64) -> Body {
        self.0.extend(value.to_le_bytes());
        self
    }

    /// Appends the description of a region: guest address, length, front-end address, offset.
    pub(super) fn region(self, [guest, len, user, offset]: [u64; 4]) -> Body {
        self.u64(guest).u64(len).u64(user).u64(offset)
    }
}

/// Returns a message with its header.
pub(super) fn message(code: u32, flags: u32, body: &Body) -> Vec<u8> {
    let header = Body::default().u32(code).u32(flags);
    let mut bytes = header.u32(body.0.len() as u32).0;
    bytes.extend(&body.0);
    bytes
}

/// Front-end's end of a session.
pub(super) struct FrontEnd {
    socket: UnixStream,
    /// True once nothing can be sent any more.
    gone: Cell<bool>,
}

impl FrontEnd {
    /// Makes a front-end's end, and the socket of the session.
    pub(super) fn pair() -> (FrontEnd, UnixStream) {
        let (socket, other) = UnixStream::pair().expect("sockets");
        socket.set_nonblocking(true).expect("an option of sockets");
        let gone = Cell::new(false);
        (FrontEnd { socket, gone }, other)
    }

    /// Sends bytes with files, unless the session takes no more.
    pub(super) fn send(&self, bytes: &[u8], files: &[RawFd]) {
        if !bytes.is_empty() && !self.gone.get() {
            let sent = self.socket.send_with_fds(&[bytes], files);
            // Bytes that are missing would make the next message noise.
            self.gone.set(!sent.is_ok_and(|n| n == bytes.len()));
        }
    }

    /// Reads the replies that are there; returns false at the end of the session.
    pub(super) fn drain(&self) -> bool {
        let mut bytes = [0; 4096];
        loop {
            match (&self.socket).read(&mut bytes) {
                Ok(0) => return false,
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return error.kind() == ErrorKind::WouldBlock,
            }
        }
    }

    /// Waits for a reply with one number.
    pub(super) fn number(&self) -> u64 {
        let mut reply = [0; 20];
        let mut n = 0;
        let until = Instant::now() + PATIENCE;
        while n < reply.len() {
            match (&self.socket).read(&mut reply[n..]) {
                Ok(0) => panic!("the session ended"),
                Ok(more) => n += more,
                Err(_) => self.wait_for(libc::POLLIN, until),
            }
        }
        u64::from_le_bytes(std::array::from_fn(|n| reply[12 + n]))
    }

    fn wait_for(&self, events: i16, until: Instant) {
        wait_for(self.socket.as_raw_fd(), events, until, "the session");
    }

    /// Waits until the session has taken all messages, for a short while at most: it may be busy
    /// or have half a message.
    pub(super) fn settle(&self) {
        for _ in 0..100 {
            let mut unread: libc::c_int = 0;
            // SAFETY: the request stores one int in ours.
            unsafe { libc::ioctl(self.socket.as_raw_fd(), libc::TIOCOUTQ, &mut unread) };
            if unread == 0 || !self.drain() {
                return;
            }
            std::thread::yield_now();
        }
    }

    /// Sends nothing more, and waits until the session has closed its end.
    pub(super) fn finish(self) {
        // Fails only where the session has closed already.
        let _ = self.socket.shutdown(std::net::Shutdown::Write);
        let until = Instant::now() + PATIENCE;
        while self.drain() {
            self.wait_for(libc::POLLIN, until);
        }
    }
}

fn wait_for(fd: RawFd, events: i16, until: Instant, what: &str) {
    let left = until.saturating_duration_since(Instant::now());
    assert!(!left.is_zero(), "{what} hangs");
    let mut poll = libc::pollfd {
        fd,
        events,
        revents: 0,
    };
    // SAFETY: one entry of ours.
    unsafe { libc::poll(&mut poll, 1, left.as_millis() as libc::c_int + 1) };
}

/// Makes an eventfd that does not block.
pub(super) fn eventfd() -> File {
    // SAFETY: takes no memory; the result is checked before it is owned.
    let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
    assert!(fd >= 0, "an eventfd");
    // SAFETY: a descriptor with no other owner.
    unsafe { File::from_raw_fd(fd) }
}

/// Signals an eventfd.
pub(super) fn signal(eventfd: &File) {
    use std::io::Write;
    // One that is full has been signalled.
    let _ = (&*eventfd).write(&1u64.to_ne_bytes());
}

/// Request in memory, by its slot.
pub(super) struct Submission {
    pub(super) queue: usize,
    pub(super) slot: u16,
    pub(super) kind: u32,
    pub(super) sector: u64,
    /// Offset and length of its data in memory.
    pub(super) data: (u64, u32),
    pub(super) through_table: bool,
}

/// Driver with memory and queues.
pub(super) struct Driver {
    pub(super) memory: File,
    pub(super) kicks: Vec<File>,
    pub(super) calls: Vec<File>,
    available: [u16; QUEUES],
}

impl Driver {
    /// Makes a driver with a file as its memory.
    pub(super) fn new(memory: File) -> Driver {
        Driver {
            memory,
            kicks: (0..QUEUES).map(|_| eventfd()).collect(),
            calls: (0..QUEUES).map(|_| eventfd()).collect(),
            available: [0; QUEUES],
        }
    }

    /// Writes to memory, as far as the file goes: a hostile front-end may have cut it.
    pub(super) fn put(&self, at: u64, bytes: &[u8]) {
        let len = self.memory.metadata().expect("a file").len();
        if at + bytes.len() as u64 <= len {
            self.memory.write_all_at(bytes, at).expect("inside");
        }
    }

    /// Writes a descriptor of a queue, or of its table.
    pub(super) fn describe(
        &self,
        table: u64,
        index: u16,
        range: (u64, u32),
        flags: u16,
        next: u16,
    ) {
        let fields = u128::from(range.0)
            | u128::from(range.1) << 64
            | u128::from(flags) << 96
            | u128::from(next) << 112;
        self.put(table + 16 * u64::from(index), &fields.to_le_bytes());
    }

    /// Makes a chain available.
    pub(super) fn offer(&mut self, queue: usize, head: u16) {
        let ring = queue as u64 * QUEUE_BYTES + AVAILABLE;
        let available = &mut self.available[queue];
        let (before, entry) = (*available, u64::from(*available % ENTRIES));
        let index = before.wrapping_add(1);
        *available = index;
        self.put(ring + 4 + 2 * entry, &head.to_le_bytes());
        // With event indices: a notification for the answer to this one.
        self.put(ring + 4 + 2 * u64::from(ENTRIES), &before.to_le_bytes());
        self.put(ring + 2, &index.to_le_bytes());
    }

    /// Submits a request of up to three descriptors, without a kick.
    pub(super) fn submit(&mut self, request: &Submission) {
        const WRITE: u16 = 2;
        let base = request.queue as u64 * QUEUE_BYTES;
        let slot = request.slot % (ENTRIES / 4);
        let header = base + HEADERS + u64::from(slot) * HEADER;
        let bytes = Body::default().u32(request.kind).u32(0).u64(request.sector);
        self.put(header, &bytes.0);
        // The segment of a discard: as many sectors as the data would have.
        let segment = Body::default()
            .u64(request.sector)
            .u32(request.data.1 / 512)
            .u32(0);
        self.put(header + 16, &segment.0);
        self.put(header + STATUS, &[0xee]);
        let is_range = matches!(request.kind, 11 | 13);
        let mut parts = vec![(header, if is_range { 32 } else { 16 }, 0)];
        if !is_range && request.data.1 > 0 {
            let flags = if matches!(request.kind, 0 | 8) {
                WRITE
            } else {
                0
            };
            parts.push((request.data.0, request.data.1, flags));
        }
        parts.push((header + STATUS, 1, WRITE));
        let head = 4 * slot;
        let (table, first) = if request.through_table {
            (base + TABLE + u64::from(slot) * 64, 0)
        } else {
            (base, head)
        };
        for (n, &(at, len, flags)) in parts.iter().enumerate() {
            let index = first + n as u16;
            let next = u16::from(n + 1 < parts.len());
            self.describe(table, index, (GUEST + at, len), flags | next, index + 1);
        }
        if request.through_table {
            let len = 16 * parts.len() as u32;
            self.describe(base, head, (GUEST + table, len), 4, 0);
        }
        self.offer(request.queue, head);
    }

    /// Returns the status of the request in a slot.
    pub(super) fn status(&self, queue: usize, slot: u16) -> u8 {
        let at = queue as u64 * QUEUE_BYTES + HEADERS + u64::from(slot % (ENTRIES / 4)) * HEADER;
        let mut byte = [0];
        self.memory
            .read_exact_at(&mut byte, at + STATUS)
            .expect("inside");
        byte[0]
    }

    /// Waits until a queue's used index is that of its last request.
    pub(super) fn wait(&self, queue: usize) {
        let until = Instant::now() + PATIENCE;
        loop {
            let mut index = [0; 2];
            let at = queue as u64 * QUEUE_BYTES + USED + 2;
            self.memory.read_exact_at(&mut index, at).expect("inside");
            if u16::from_le_bytes(index) == self.available[queue] {
                return;
            }
            let call = &self.calls[queue];
            wait_for(call.as_raw_fd(), libc::POLLIN, until, "a request");
            let mut count = [0; 8];
            // Empty where the answer came without a notification so far.
            let _ = (&*call).read(&mut count);
        }
    }

    /// Sends what starts queues on all memory, and asks for no replies.
    pub(super) fn start(&self, to: &FrontEnd, queues: usize, offered: (u64, u64)) {
        let send =
            |code, body: Body, files: &[RawFd]| to.send(&message(code, VERSION, &body), files);
        let (features, protocol) = offered;
        send(SET_OWNER, Body::default(), &[]);
        send(SET_PROTOCOL_FEATURES, Body::default().u64(protocol), &[]);
        send(SET_FEATURES, Body::default().u64(features), &[]);
        let table = Body::default()
            .u32(1)
            .u32(0)
            .region([GUEST, MEMORY, USER, 0]);
        send(SET_MEM_TABLE, table, &[self.memory.as_raw_fd()]);
        for queue in 0..queues {
            self.start_queue(to, queue, 0);
        }
    }

    /// Sends what starts a queue at an index.
    pub(super) fn start_queue(&self, to: &FrontEnd, queue: usize, base: u16) {
        let send =
            |code, body: Body, files: &[RawFd]| to.send(&message(code, VERSION, &body), files);
        let index = queue as u32;
        let state = |num: u32| Body::default().u32(index).u32(num);
        let user = USER + queue as u64 * QUEUE_BYTES;
        send(SET_VRING_NUM, state(ENTRIES.into()), &[]);
        send(SET_VRING_BASE, state(base.into()), &[]);
        let rings = Body::default().u32(index).u32(0).u64(user).u64(user + USED);
        send(SET_VRING_ADDR, rings.u64(user + AVAILABLE).u64(0), &[]);
        let number = || Body::default().u64(index.into());
        send(SET_VRING_KICK, number(), &[self.kicks[queue].as_raw_fd()]);
        send(SET_VRING_CALL, number(), &[self.calls[queue].as_raw_fd()]);
        send(SET_VRING_ENABLE, state(1), &[]);
    }
}
