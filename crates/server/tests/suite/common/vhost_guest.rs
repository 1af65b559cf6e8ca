//! Guest of a vhost-user disk: shared memory, virtqueues and a front-end's messages, one thread.
//!
//! The driver keeps to the rules of notifications strictly: it kicks only when the device asks for
//! it and looks at answers only after it was notified, so that a lost one fails the test.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use tidegate_server::config::{Config, ListenAddress, ListenConfig, SocketOwner, SocketTemplate};
use vhost::vhost_user::message::{
    VhostUserConfigFlags, VhostUserHeaderFlag, VhostUserInflight, VhostUserProtocolFeatures,
};
use vhost::vhost_user::{Frontend, VhostUserFrontend};
use vhost::{VhostBackend, VhostUserMemoryRegionInfo, VringConfigData};
use vmm_sys_util::eventfd::{EFD_NONBLOCK, EventFd};

/// Feature bits (virtio 1.2, and of vhost: `VHOST_F_LOG_ALL`, `VHOST_USER_F_PROTOCOL_FEATURES`).
pub const FLUSH: u64 = 1 << 9;
pub const CONFIG_WCE: u64 = 1 << 11;
pub const LOG_ALL: u64 = 1 << 26;
pub const INDIRECT_DESC: u64 = 1 << 28;
pub const EVENT_IDX: u64 = 1 << 29;
pub const PROTOCOL_FEATURES: u64 = 1 << 30;
pub const VERSION_1: u64 = 1 << 32;
/// Features of a driver that uses everything.
pub const ALL: u64 = FLUSH | INDIRECT_DESC | EVENT_IDX | PROTOCOL_FEATURES | VERSION_1;

/// Types of requests.
pub const IN: u32 = 0;
pub const OUT: u32 = 1;
pub const FLUSH_REQUEST: u32 = 4;
pub const GET_ID: u32 = 8;
pub const DISCARD: u32 = 11;
pub const WRITE_ZEROES: u32 = 13;

/// Descriptor flags.
pub const NEXT: u16 = 1;
pub const WRITE: u16 = 2;
pub const INDIRECT: u16 = 4;

/// Entries of a queue.
pub const SIZE: u16 = 64;
/// Requests in flight on a queue; each has three descriptors.
pub const SLOTS: u16 = 16;
/// Longest data of a request in bytes.
pub const DATA_MAX: usize = 64 << 10;
/// Guest memory begins here, and in the front-end's address space there.
pub const GUEST: u64 = 0x10_0000;
pub const USER: u64 = 0x7f00_0000_0000;
/// Bytes of a page of guest memory.
pub const PAGE: u64 = 0x1000;
/// Bytes of guest memory for each queue: rings, tables, headers, then data.
pub const QUEUE_BYTES: u64 = 2 << 20;
const DESCRIPTORS: u64 = 0;
pub const AVAILABLE: u64 = 0x1000;
/// The ring's second half, and the event index behind it, are on a page of their own.
pub const USED: u64 = 0x3000 - 4 - 8 * SIZE as u64 / 2;
const TABLES: u64 = 0x4000;
const HEADERS: u64 = 0x8000;
const DATA: u64 = 0x10_0000;
/// Bytes of a table, and of a header with its segment and status.
const TABLE: u64 = 256;
const HEADER: u64 = 64;
/// Offset of the status byte in a header's place.
const STATUS: u64 = 48;

/// Time for which the guest waits before its test fails.
const PATIENCE: Duration = Duration::from_secs(30);

/// Answer to a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Answer {
    pub slot: u16,
    pub status: u8,
    /// Number of bytes written, by the used ring.
    pub written: u32,
}

struct Queue {
    kick: EventFd,
    call: EventFd,
    available: u16,
    used: u16,
    free: Vec<u16>,
}

/// Guest with its hypervisor's connection.
pub struct Guest {
    pub frontend: Frontend,
    pub memory: File,
    /// Record of requests in flight, if the front-end keeps one.
    pub record: Option<(VhostUserInflight, File)>,
    features: u64,
    queues: Vec<Queue>,
    /// Pages of the file that the driver has written.
    pub written: RefCell<BTreeSet<u64>>,
    /// True if queues are started with their used rings logged.
    logged: bool,
}

/// Adds a listener to a configuration whose sockets are `{vm}.vhost` in a directory.
pub fn listen(config: &mut Config, dir: &Path) {
    config.listeners.push(ListenConfig {
        address: ListenAddress::VhostUser {
            path: SocketTemplate::new(&dir.join("{vm}.vhost")).expect("a placeholder"),
            mode: 0o600,
        },
        owner: SocketOwner::default(),
        exports: Vec::new(),
        tls: None,
        place: None,
    });
}

/// Makes guest memory for a number of queues.
pub fn memory(queues: usize) -> File {
    let file = tempfile::tempfile_in("/dev/shm").expect("a tmpfs");
    file.set_len(queues as u64 * QUEUE_BYTES).expect("room");
    file
}

/// Returns the region that covers a file from its start.
pub fn region(memory: &File) -> VhostUserMemoryRegionInfo {
    VhostUserMemoryRegionInfo {
        guest_phys_addr: GUEST,
        memory_size: memory.metadata().expect("a file").len(),
        userspace_addr: USER,
        mmap_offset: 0,
        mmap_handle: memory.as_raw_fd(),
    }
}

/// Connects a front-end, which waits for replies to all its messages.
pub fn connect(socket: &Path, features: u64) -> vhost::Result<Frontend> {
    negotiate(Frontend::connect(socket, 64)?, features)
}

/// Negotiates features with the back-end of a front-end that is connected.
pub fn negotiate(mut frontend: Frontend, features: u64) -> vhost::Result<Frontend> {
    frontend.set_owner()?;
    let offered = frontend.get_features()?;
    assert_eq!(offered & features, features, "features {features:#x}");
    let protocol = frontend.get_protocol_features()?;
    let wanted = VhostUserProtocolFeatures::MQ
        | VhostUserProtocolFeatures::CONFIG
        | VhostUserProtocolFeatures::REPLY_ACK
        | VhostUserProtocolFeatures::BACKEND_REQ
        | VhostUserProtocolFeatures::RESET_DEVICE
        | VhostUserProtocolFeatures::INFLIGHT_SHMFD
        | VhostUserProtocolFeatures::CONFIGURE_MEM_SLOTS
        | VhostUserProtocolFeatures::LOG_SHMFD;
    assert!(protocol.contains(wanted), "{protocol:?}");
    frontend.set_protocol_features(wanted)?;
    frontend.set_features(features)?;
    frontend.set_hdr_flags(VhostUserHeaderFlag::NEED_REPLY);
    Ok(frontend)
}

/// Connects a front-end as soon as it is accepted: one that has just left may still count as
/// connected, and a daemon may be starting.
fn connect_soon(socket: &Path, features: u64) -> Frontend {
    let until = Instant::now() + PATIENCE;
    loop {
        match connect(socket, features) {
            Ok(frontend) => return frontend,
            Err(error) => assert!(Instant::now() < until, "no back-end: {error}"),
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

impl Guest {
    /// Connects a guest whose driver uses these features, and starts its queues.
    pub fn start(socket: &Path, features: u64, queues: usize) -> Guest {
        Guest::resume(socket, features, memory(queues), queues)
    }

    /// Connects a guest whose requests in flight are recorded, so that it survives a daemon that is
    /// killed, and starts its queues.
    pub fn start_recorded(socket: &Path, features: u64, queues: usize) -> Guest {
        let mut guest = Guest::without_queues(connect_soon(socket, features), features, queues);
        let asked = VhostUserInflight::new(0, 0, queues as u16, SIZE);
        let record = guest.frontend.get_inflight_fd(&asked).expect("a record");
        guest.record = Some(record);
        guest.set_record().expect("a record");
        guest.start_queues(queues);
        guest
    }

    /// Connects a guest that has memory already.
    pub fn resume(socket: &Path, features: u64, memory: File, queues: usize) -> Guest {
        let frontend = connect_soon(socket, features);
        Guest::with_frontend(frontend, features, memory, queues)
    }

    /// Connects a guest of one queue that starts anew in memory that it has; `None` if the back-end
    /// ends the session as the queue is started.
    pub fn try_resume(socket: &Path, features: u64, memory: File) -> Option<Guest> {
        let mut guest = Guest::resume(socket, features, memory, 0);
        guest.prepare_queue();
        guest.clear_queue(0);
        guest.try_start_queue(0).then_some(guest)
    }

    /// Connects a guest of one queue that has migrated: the queue goes on at `base`, and `left`
    /// requests are still to be taken.
    pub fn arrive(socket: &Path, features: u64, memory: File, base: u16, left: usize) -> Guest {
        let mut guest = Guest::resume(socket, features, memory, 0);
        guest.prepare_queue();
        let queue = &mut guest.queues[0];
        queue.available = base;
        guest.start_queue(0);
        let queue = &mut guest.queues[0];
        queue.available = base.wrapping_add(left as u16);
        for n in 0..left as u16 {
            let at = AVAILABLE + 4 + 2 * u64::from(base.wrapping_add(n) % SIZE);
            let slot = guest.u16_at(at) / 3;
            guest.queues[0].free.retain(|free| *free != slot);
        }
        guest
    }

    /// Starts a queue again where it stopped.
    pub fn go_on(&mut self, index: usize) {
        assert!(self.try_go_on(index), "the queue runs");
    }

    /// Starts a queue again where it stopped; returns false if the back-end ends the session.
    pub fn try_go_on(&mut self, index: usize) -> bool {
        self.try_start_queue(index)
    }

    /// Starts the queues of a guest whose front-end is connected.
    pub fn with_frontend(frontend: Frontend, features: u64, memory: File, queues: usize) -> Guest {
        let mut guest = Guest::without_queues(frontend, features, queues);
        guest.memory = memory;
        guest.start_queues(queues);
        guest
    }

    fn without_queues(mut frontend: Frontend, features: u64, queues: usize) -> Guest {
        read_config(&mut frontend);
        Guest::idle(frontend, features, queues)
    }

    /// Starts the queues of a guest that does not read the configuration space.
    pub fn untold(frontend: Frontend, features: u64, queues: usize) -> Guest {
        let mut guest = Guest::idle(frontend, features, queues);
        guest.start_queues(queues);
        guest
    }

    fn idle(frontend: Frontend, features: u64, queues: usize) -> Guest {
        Guest {
            frontend,
            memory: memory(queues),
            record: None,
            features,
            queues: Vec::new(),
            written: RefCell::default(),
            logged: false,
        }
    }

    fn start_queues(&mut self, queues: usize) {
        let table = [region(&self.memory)];
        self.frontend.set_mem_table(&table).expect("memory");
        for index in 0..queues {
            self.add_queue(index);
        }
    }

    /// Hands the record of requests in flight to the device, if there is one.
    fn set_record(&mut self) -> vhost::Result<()> {
        let Some((described, file)) = &self.record else {
            return Ok(());
        };
        (self.frontend).set_inflight_fd(described, file.as_raw_fd())
    }

    /// Begins a session as QEMU does when it has lost its back-end: the configuration is not read
    /// again. The session before, if there is one, ends without order.
    ///
    /// # Errors
    /// If the device does not take the record of requests in flight.
    pub fn begin_again(&mut self, socket: &Path) -> vhost::Result<()> {
        let (nobody, _) = UnixStream::pair().expect("sockets");
        self.frontend = Frontend::from_stream(nobody, 1);
        self.frontend = connect_soon(socket, self.features);
        self.set_record()
    }

    /// Begins a session like [`Guest::begin_again`], and starts the queues: of those it knows what
    /// the used rings say.
    pub fn reconnect(&mut self, socket: &Path) {
        self.begin_again(socket).expect("a record");
        let table = [region(&self.memory)];
        self.frontend.set_mem_table(&table).expect("memory");
        for index in 0..self.queues.len() {
            let used = self.u16_at(self.base(index) + USED + 2);
            self.restart_at(index, used);
        }
    }

    fn add_queue(&mut self, index: usize) {
        self.prepare_queue();
        self.start_queue(index);
    }

    /// Makes the next queue, which does not run yet.
    pub fn prepare_queue(&mut self) {
        let index = self.queues.len();
        let eventfd = || EventFd::new(EFD_NONBLOCK).expect("an eventfd");
        let used = self.u16_at(self.base(index) + USED + 2);
        self.queues.push(Queue {
            kick: eventfd(),
            call: eventfd(),
            available: used,
            used,
            free: (0..SLOTS).rev().collect(),
        });
    }

    /// Starts a queue where its rings stand.
    pub fn start_queue(&mut self, index: usize) {
        assert!(self.try_start_queue(index), "the queue runs");
    }

    /// Starts a queue where its rings stand; returns false if the back-end ends the session at its
    /// kick.
    fn try_start_queue(&mut self, index: usize) -> bool {
        let starts = self.try_start_disabled(index);
        if starts {
            let enabled = self.frontend.set_vring_enable(index, true);
            enabled.expect("it runs");
        }
        starts
    }

    /// Starts a queue like [`Guest::start_queue`], without enabling it; returns false if the
    /// back-end ends the session at its kick.
    fn try_start_disabled(&mut self, index: usize) -> bool {
        let addresses = self.addresses(index);
        let (queue, frontend) = (&self.queues[index], &mut self.frontend);
        frontend.set_vring_num(index, SIZE).expect("a size");
        frontend
            .set_vring_base(index, queue.available)
            .expect("an index");
        frontend
            .set_vring_addr(index, &addresses)
            .expect("addresses");
        if frontend.set_vring_kick(index, &queue.kick).is_err() {
            return false;
        }
        frontend
            .set_vring_call(index, &queue.call)
            .expect("an eventfd");
        true
    }

    /// Returns the addresses of a queue's rings.
    pub fn addresses(&self, index: usize) -> VringConfigData {
        let base = USER + self.base(index);
        VringConfigData {
            queue_max_size: SIZE,
            queue_size: SIZE,
            // `VHOST_VRING_F_LOG`
            flags: u32::from(self.logged),
            desc_table_addr: base + DESCRIPTORS,
            used_ring_addr: base + USED,
            avail_ring_addr: base + AVAILABLE,
            log_addr: self.logged.then(|| GUEST + self.base(index) + USED),
        }
    }

    /// Has the device log what it writes, or no longer, while the queues run, as QEMU does.
    pub fn set_logged(&mut self, logged: bool) {
        self.logged = logged;
        let features = self.features | if logged { LOG_ALL } else { 0 };
        self.frontend.set_features(features).expect("accepted");
        for index in 0..self.queues.len() {
            let addresses = self.addresses(index);
            let set = self.frontend.set_vring_addr(index, &addresses);
            set.expect("addresses");
        }
    }

    /// Starts a queue that was stopped at an index.
    pub fn restart_at(&mut self, index: usize, base: u16) {
        let available = std::mem::replace(&mut self.queues[index].available, base);
        self.start_queue(index);
        self.queues[index].available = available;
    }

    /// Starts a queue at an index and disables it, as QEMU does before it stops a queue.
    pub fn restart_disabled_at(&mut self, index: usize, base: u16) {
        let available = std::mem::replace(&mut self.queues[index].available, base);
        assert!(self.try_start_disabled(index), "the queue runs");
        let disabled = self.frontend.set_vring_enable(index, false);
        disabled.expect("it runs");
        self.queues[index].available = available;
    }

    /// Forgets all requests of a stopped queue, as a driver does that starts anew.
    pub fn clear_queue(&mut self, index: usize) {
        let base = self.base(index);
        self.put(base, &vec![0; HEADERS as usize]);
        let queue = &mut self.queues[index];
        (queue.available, queue.used) = (0, 0);
        queue.free = (0..SLOTS).rev().collect();
    }

    /// Replaces the eventfds of a queue.
    pub fn renew_eventfds(&mut self, index: usize) {
        let queue = &mut self.queues[index];
        for eventfd in [&mut queue.kick, &mut queue.call] {
            *eventfd = EventFd::new(EFD_NONBLOCK).expect("an eventfd");
        }
        let (queue, frontend) = (&self.queues[index], &mut self.frontend);
        let given = frontend.set_vring_kick(index, &queue.kick);
        given.expect("an eventfd");
        let given = frontend.set_vring_call(index, &queue.call);
        given.expect("an eventfd");
    }

    /// Returns the offset of a queue's part of memory.
    pub fn base(&self, index: usize) -> u64 {
        index as u64 * QUEUE_BYTES
    }

    pub fn put(&self, at: u64, bytes: &[u8]) {
        self.memory.write_all_at(bytes, at).expect("inside");
        let pages = at / PAGE..(at + bytes.len() as u64).div_ceil(PAGE);
        self.written.borrow_mut().extend(pages);
    }

    pub fn u16_at(&self, at: u64) -> u16 {
        let mut bytes = [0; 2];
        self.memory.read_exact_at(&mut bytes, at).expect("inside");
        u16::from_le_bytes(bytes)
    }

    /// Returns true if a request may be submitted to a queue.
    pub fn has_room(&self, queue: usize) -> bool {
        !self.queues[queue].free.is_empty()
    }

    /// Returns the number of requests in flight on a queue.
    pub fn in_flight(&self, queue: usize) -> usize {
        usize::from(SLOTS) - self.queues[queue].free.len()
    }

    /// Returns the number of requests that the device has not answered.
    pub fn unanswered(&self, queue: usize) -> usize {
        let seen = self.u16_at(self.base(queue) + USED + 2);
        self.in_flight(queue) - usize::from(seen.wrapping_sub(self.queues[queue].used))
    }

    /// Takes a slot for a chain that the test describes itself.
    pub fn expect_slot(&mut self, queue: usize, slot: u16) {
        self.queues[queue].free.retain(|&free| free != slot);
    }

    /// Submits a request; `data` is written to the disk, or makes room for what is read. Returns
    /// the slot.
    pub fn submit(&mut self, queue: usize, kind: u32, sector: u64, data: &[u8]) -> u16 {
        let slot = self.queues[queue].free.pop().expect("there is room");
        let base = self.base(queue);
        let (header, at) = (self.header(queue, slot), self.data(queue, slot));
        let mut bytes = kind.to_le_bytes().to_vec();
        bytes.extend([0; 4]);
        bytes.extend(sector.to_le_bytes());
        self.put(header, &bytes);
        self.put(header + STATUS, &[0xee]);
        self.put(at, data);
        let mut parts = vec![(header, 16, 0)];
        let is_read = matches!(kind, IN | GET_ID);
        if !data.is_empty() {
            parts.push((at, data.len() as u32, if is_read { WRITE } else { 0 }));
        }
        parts.push((header + STATUS, 1, WRITE));
        // Slots with an odd number go through a table, cut into more pieces.
        if slot % 2 == 1 && self.features & INDIRECT_DESC != 0 {
            if data.len() >= 1024 {
                let (at, len, flags) = parts[1];
                let cut = len / 3 / 2 * 2 + 1;
                parts.splice(
                    1..2,
                    [(at, cut, flags), (at + u64::from(cut), len - cut, flags)],
                );
            }
            let table = base + TABLES + u64::from(slot) * TABLE;
            self.describe(table, &parts, 0);
            let len = parts.len() as u32 * 16;
            self.describe(base + DESCRIPTORS, &[(table, len, INDIRECT)], 3 * slot);
        } else {
            self.describe(base + DESCRIPTORS, &parts, 3 * slot);
        }
        self.offer(queue, 3 * slot);
        slot
    }

    /// Writes a chain of descriptors `(offset, length, flags)` into a table from an index on.
    pub fn describe(&self, table: u64, parts: &[(u64, u32, u16)], first: u16) {
        for (n, (at, len, flags)) in parts.iter().enumerate() {
            let index = first + n as u16;
            let next = if n + 1 < parts.len() { NEXT } else { 0 };
            let mut bytes = (GUEST + at).to_le_bytes().to_vec();
            bytes.extend(len.to_le_bytes());
            bytes.extend((flags | next).to_le_bytes());
            bytes.extend((index + 1).to_le_bytes());
            self.put(table + u64::from(index) * 16, &bytes);
        }
    }

    /// Makes a chain available, without a kick.
    pub fn offer(&mut self, index: usize, head: u16) {
        let base = self.base(index);
        let at = base + AVAILABLE + 4 + 2 * u64::from(self.queues[index].available % SIZE);
        self.put(at, &head.to_le_bytes());
        let queue = &mut self.queues[index];
        queue.available = queue.available.wrapping_add(1);
        let available = queue.available;
        self.put(base + AVAILABLE + 2, &available.to_le_bytes());
    }

    /// Kicks a queue to which `new` requests were submitted since the last kick, if the device
    /// wants to be kicked.
    pub fn kick(&mut self, index: usize, new: u16) {
        let base = self.base(index);
        let available = self.queues[index].available;
        let wanted = if self.features & EVENT_IDX != 0 {
            let event = self.u16_at(base + USED + 4 + 8 * u64::from(SIZE));
            available.wrapping_sub(event).wrapping_sub(1) < new
        } else {
            self.u16_at(base + USED) & 1 == 0
        };
        if wanted {
            self.queues[index].kick.write(1).expect("a kick");
        }
    }

    /// Kicks a queue whatever the device wants.
    pub fn kick_anyway(&self, index: usize) {
        self.queues[index].kick.write(1).expect("a kick");
    }

    /// Waits for answers on a queue, at least one.
    pub fn answers(&mut self, index: usize) -> Vec<Answer> {
        let until = Instant::now() + PATIENCE;
        loop {
            let answers = self.take_answers(index);
            if !answers.is_empty() {
                return answers;
            }
            while self.queues[index].call.read().is_err() {
                assert!(Instant::now() < until, "no notification on queue {index}");
                std::thread::sleep(Duration::from_micros(50));
            }
        }
    }

    /// Takes the answers that are there, and asks to be notified of the next one.
    pub fn take_answers(&mut self, index: usize) -> Vec<Answer> {
        let base = self.base(index);
        let mut answers = Vec::new();
        loop {
            let seen = self.u16_at(base + USED + 2);
            while self.queues[index].used != seen {
                answers.push(self.take_answer(index));
            }
            let event = base + AVAILABLE + 4 + 2 * u64::from(SIZE);
            self.put(event, &seen.to_le_bytes());
            // One may have come before the device saw the wish.
            if self.u16_at(base + USED + 2) == seen {
                return answers;
            }
        }
    }

    fn take_answer(&mut self, index: usize) -> Answer {
        let base = self.base(index);
        let at = base + USED + 4 + 8 * u64::from(self.queues[index].used % SIZE);
        let mut entry = [0; 8];
        self.memory.read_exact_at(&mut entry, at).expect("inside");
        let [head, written] = [&entry[..4], &entry[4..]]
            .map(|part| u32::from_le_bytes(part.try_into().expect("four bytes")));
        assert_eq!(head % 3, 0, "the head of no chain");
        let slot = (head / 3) as u16;
        let queue = &mut self.queues[index];
        queue.used = queue.used.wrapping_add(1);
        assert!(!queue.free.contains(&slot), "answered twice");
        queue.free.push(slot);
        let mut status = [0];
        let at = self.header(index, slot) + STATUS;
        self.memory.read_exact_at(&mut status, at).expect("inside");
        assert_ne!(status[0], 0xee, "a status was written");
        Answer {
            slot,
            status: status[0],
            written,
        }
    }

    /// Returns the data of a slot.
    pub fn read_data(&self, queue: usize, slot: u16, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        let at = self.data(queue, slot);
        self.memory.read_exact_at(&mut bytes, at).expect("inside");
        bytes
    }

    /// Returns the offset of a slot's header.
    pub fn header(&self, queue: usize, slot: u16) -> u64 {
        self.base(queue) + HEADERS + u64::from(slot) * HEADER
    }

    /// Returns the offset of a slot's data.
    pub fn data(&self, queue: usize, slot: u16) -> u64 {
        self.base(queue) + DATA + u64::from(slot) * DATA_MAX as u64
    }

    /// Sends one request on the first queue and waits for its answer.
    pub fn ask(&mut self, kind: u32, sector: u64, data: &[u8]) -> (Answer, Vec<u8>) {
        let slot = self.submit(0, kind, sector, data);
        self.kick(0, 1);
        let answers = self.answers(0);
        let [answer] = &answers[..] else {
            panic!("one answer to one request: {answers:?}");
        };
        assert_eq!(answer.slot, slot);
        (answer.clone(), self.read_data(0, slot, data.len()))
    }

    /// Reads from a sector on.
    pub fn read(&mut self, sector: u64, len: usize) -> Vec<u8> {
        let (answer, data) = self.ask(IN, sector, &vec![0; len]);
        assert_eq!((answer.status, answer.written), (0, len as u32 + 1));
        data
    }

    /// Writes from a sector on.
    pub fn write(&mut self, sector: u64, data: &[u8]) {
        let (answer, _) = self.ask(OUT, sector, data);
        assert_eq!((answer.status, answer.written), (0, 1));
    }

    /// Stops a queue; returns where it stands by the device.
    pub fn stop_queue(&mut self, index: usize) -> u16 {
        self.frontend.get_vring_base(index).expect("a base") as u16
    }

    /// Leaves in order.
    pub fn leave(mut self) {
        for index in 0..self.queues.len() {
            self.stop_queue(index);
        }
    }

    /// Returns true if the back-end has closed the connection, which it does soon.
    pub fn is_cut_off(&mut self) -> bool {
        let until = Instant::now() + PATIENCE;
        while Instant::now() < until {
            // Refused only by a connection that is no more.
            if self.frontend.get_queue_num().is_err() {
                return true;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        false
    }
}

/// Reads the configuration space.
pub fn read_config(frontend: &mut Frontend) -> Vec<u8> {
    let flags = VhostUserConfigFlags::empty();
    let (_, space) = frontend
        .get_config(0, 60, flags, &[0; 60])
        .expect("a configuration");
    space
}
