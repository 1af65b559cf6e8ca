//! Fuzz target `virtqueue`: a driver that does anything to a queue and its memory.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use super::model::{Memory, Model, Piece, Taken, push};
use crate::buffer::{Mem, interference};
use crate::frontend::interface::Kind;
use crate::frontend::vhost_user::dirty_log::DirtyLog;
use crate::frontend::vhost_user::guest_memory::RegionAddress;
use crate::frontend::vhost_user::guest_memory::testing::memfd;
use crate::frontend::vhost_user::inflight::{InflightRegion, Layout, QueueRecord};
use crate::frontend::vhost_user::request::{self, Limits, RANGE_MAX, Request, SECTOR, Task};
use crate::frontend::vhost_user::virtqueue::{
    Chain, Fault, QueueSetup, RingAddresses, Rings, Virtqueue,
};
use crate::fuzz::Choices;

const PAGE: u64 = 4096;
/// Parts of the queue in the first region, where the largest queue has room.
const AVAILABLE: u64 = 0x4000;
const USED: u64 = 0x5000;
/// Indirect tables, then headers and data.
const TABLES: u64 = 0x8000;
const DATA: u64 = 0xa000;
/// Bytes of the first region.
const FIRST: u64 = 0xc000;
/// Address of the first region in the front-end's address space.
const USER: u64 = 0x7000_0000_0000;
/// Place of the used ring in the dirty log, and bytes of the log: one bit for a page.
const LOGGED_AT: u64 = 0x3ff0;
const LOG: u64 = PAGE;
/// Most changes of memory behind reads of one call.
const CHANGES_MAX: u8 = 16;

/// Runs any steps of a driver and a device on one queue.
///
/// # Panics
/// If memory outside of the guest's is handed out, the queue differs from its model while memory
/// stands still, or an answer is not in the used ring.
pub fn virtqueue(data: &[u8]) {
    let mut choices = Choices::new(data);
    let Some(mut scene) = Scene::new(&mut choices) else {
        return;
    };
    while !choices.is_empty() {
        // A device stops for good when its driver breaks a rule.
        if scene.step(&mut choices).is_err() {
            return;
        }
    }
    scene.finish();
}

/// Queue with its model.
struct Scene {
    memory: Memory,
    queue: Virtqueue,
    model: Model,
    chain: Chain,
    limits: Limits,
    /// Dirty log with its file, and whether the used ring has a place in it.
    log: Option<(DirtyLog, File)>,
    is_logged: bool,
    /// Address of the status byte of each request in flight.
    statuses: BTreeMap<u16, u64>,
    /// Index of the next entry that the driver makes available.
    available: u16,
}

/// Returns a table of guest memory.
fn regions(choices: &mut Choices<'_>) -> Vec<RegionAddress> {
    let region = |guest, user, len, offset| RegionAddress {
        guest,
        user,
        len,
        offset,
    };
    let first = region(0x10_0000, USER, FIRST, 0);
    let end = first.guest + FIRST;
    match choices.below(5) {
        0 => vec![first],
        // Regions that meet in one address space or both, in the order of neither.
        1 => vec![region(end, USER + FIRST, PAGE, 0), first],
        2 => vec![
            first,
            region(end, USER - PAGE, PAGE, 512),
            region(end + PAGE, USER + FIRST, 2 * PAGE, PAGE),
        ],
        // With a gap between, and at the last address of a region's.
        3 => vec![first, region(u64::MAX - 2 * PAGE, 0, 2 * PAGE, 0)],
        // Every page by itself.
        _ => {
            let pages = (0..FIRST / PAGE).map(|n| n * PAGE);
            let page = |at| region(first.guest + at, USER + 2 * at, PAGE, 0);
            let mut all: Vec<_> = pages.map(page).collect();
            all.push(region(0x100_0000, 0x100_0000, FIRST, 0));
            all
        }
    }
}

impl Scene {
    /// Returns a queue that runs; `None` if its rings are not in memory.
    fn new(choices: &mut Choices<'_>) -> Option<Scene> {
        let memory = Memory::new(&regions(choices));
        let flags = choices.byte();
        let size = 1 << choices.below(11);
        let base = if flags & 1 != 0 { choices.u16() } else { 0 };
        let (event_index, indirect) = (flags & 2 != 0, flags & 4 != 0);
        let limits = Limits {
            block: if flags & 8 != 0 { 4096 } else { SECTOR },
            payload: 16 << 10,
        };
        let addresses = addresses(choices, &memory, flags & 16 != 0);
        let rings = locate(&memory, size, &addresses)?;
        let setup = QueueSetup {
            rings,
            size,
            base,
            event_index,
            indirect,
            logged_at: (flags & 32 != 0).then_some(LOGGED_AT),
        };
        let log = (flags & 64 != 0).then(|| {
            let file = memfd(LOG);
            (
                DirtyLog::map(&file, 0, LOG, &Arc::default()).expect("a sound log"),
                file,
            )
        });
        let mut model = Model {
            rings: addresses,
            size,
            event_index,
            indirect,
            next: base,
            seen: base,
            used: 0,
            unpublished: 0,
            in_flight: Default::default(),
        };
        model.used = model.used_index(&memory);
        let mut queue = Virtqueue::new(&setup);
        if flags & 128 != 0 {
            // A record that no queue could have left is refused.
            queue.recover(record(choices, size)).ok()?;
            (model.next, model.seen) = (queue.next_available(), queue.next_available());
        }
        let available = model.next;
        Some(Scene {
            queue,
            memory,
            model,
            chain: Chain::default(),
            limits,
            log,
            is_logged: setup.logged_at.is_some(),
            statuses: BTreeMap::new(),
            available,
        })
    }

    fn step(&mut self, choices: &mut Choices<'_>) -> Result<(), Fault> {
        match choices.byte() % 16 {
            0 => self.change(choices)(),
            1 => self.describe(choices, false),
            2 => self.describe(choices, true),
            3 => {
                let head = choices.u16();
                self.offer(head);
            }
            4..=6 => self.submit(choices),
            // Requests that an earlier session left are not in the model.
            7..=9 if self.queue.left() > 0 => {
                self.take_while_memory_changes(&mut Choices::new(&[]))?
            }
            7..=9 => self.take()?,
            10 => self.take_while_memory_changes(choices)?,
            11 | 12 => self.end(choices),
            13 => self.publish(),
            14 => self.want_kicks()?,
            _ => self.move_rings(choices),
        }
        Ok(())
    }

    /// Returns a change of some bytes of memory.
    fn change(&self, choices: &mut Choices<'_>) -> impl FnMut() + use<> {
        let index = usize::from(choices.byte()) % self.memory.regions();
        let (file, address) = self.memory.file(index);
        let at = u64::from(choices.u16()) % address.len;
        let len = 1 + u64::from(choices.byte() % 16);
        let bytes = choices.bytes(len.min(address.len - at) as usize).to_vec();
        move || put(&file, address.offset + at, &bytes)
    }

    /// Writes to the first region, as far as there is room.
    fn put(&self, at: u64, bytes: &[u8]) {
        let (file, address) = self.first();
        if at + bytes.len() as u64 <= address.len {
            put(&file, address.offset + at, bytes);
        }
    }

    /// Returns the region that has room for everything.
    fn first(&self) -> (Arc<File>, RegionAddress) {
        let all = (0..self.memory.regions()).map(|index| self.memory.file(index));
        let largest = all.max_by_key(|(_, address)| address.len);
        largest.expect("there is a region")
    }

    /// Writes a descriptor with any fields.
    fn describe(&self, choices: &mut Choices<'_>, in_table: bool) {
        let index = u64::from(choices.below(64));
        let (file, address) = self
            .memory
            .file(usize::from(choices.byte()) % self.memory.regions());
        drop(file);
        let form = choices.byte();
        let at = if form & 8 != 0 {
            choices.u64()
        } else {
            (address.guest).wrapping_add(u64::from(choices.u16()) % (address.len + 16))
        };
        let len = if form & 16 != 0 {
            choices.u32()
        } else {
            choices.byte().into()
        };
        let next = choices.byte();
        let bytes = descriptor(at, len, u16::from(form & 7), next.into());
        let table = if in_table { TABLES } else { self.descriptors() };
        self.put(table + 16 * index, &bytes);
    }

    /// Returns the offset of the queue's descriptors in the first region, or beyond it.
    fn descriptors(&self) -> u64 {
        let (_, address) = self.first();
        self.model.rings.descriptors.wrapping_sub(address.user) & 0xffff
    }

    fn available_ring(&self) -> u64 {
        let (_, address) = self.first();
        self.model.rings.available.wrapping_sub(address.user) & 0xffff
    }

    /// Makes a chain available.
    fn offer(&mut self, head: u16) {
        let ring = self.available_ring();
        let entry = u64::from(self.available % self.model.size);
        self.put(ring + 4 + 2 * entry, &head.to_le_bytes());
        self.available = self.available.wrapping_add(1);
        self.put(ring + 2, &self.available.to_le_bytes());
    }

    /// Submits a request that keeps the rules, or nearly.
    fn submit(&mut self, choices: &mut Choices<'_>) {
        let [kind, form, sector, pages] = [(); 4].map(|()| choices.byte());
        let kind = [0, 1, 4, 8, 11, 13, 2, 0xffff_ffff][usize::from(kind % 8)];
        let head = choices.below(self.model.size.min(256));
        let (_, first) = self.first();
        let slot = first.guest + DATA + u64::from(head % 16) * 64;
        let mut header = Vec::from(u32::to_le_bytes(kind));
        header.extend([0; 4]);
        header.extend(u64::from(sector).to_le_bytes());
        // The segment of a discard behind it: sector, sectors, flags.
        header.extend(u64::from(sector).to_le_bytes());
        header.extend(u32::from(pages).to_le_bytes());
        header.extend(u32::from(form >> 7).to_le_bytes());
        self.put(slot - first.guest, &header);
        let is_range = matches!(kind, 11 | 13);
        let mut parts = vec![(slot, if is_range { 32 } else { 16 }, 0u16)];
        if !is_range && pages > 0 {
            let write = if form & 1 != 0 { 2 } else { 0 };
            parts.push((
                first.guest + DATA + 0x400,
                512 * u32::from(pages % 12),
                write,
            ));
        }
        parts.push((slot + 48, 1, 2));
        if form & 2 != 0 {
            cut(&mut parts, choices);
        }
        let indirect = form & 4 != 0;
        let table = if indirect { TABLES } else { self.descriptors() };
        let from = if indirect { 0 } else { head };
        for (n, &(at, len, flags)) in parts.iter().enumerate() {
            let index = (from + n as u16) % self.model.size.max(parts.len() as u16);
            let next = u16::from(n + 1 < parts.len());
            let bytes = descriptor(at, len, flags | next, index + 1);
            self.put(table + 16 * u64::from(index), &bytes);
        }
        if indirect {
            let len = 16 * parts.len() as u32;
            let bytes = descriptor(first.guest + TABLES, len, 4, 0);
            self.put(self.descriptors() + 16 * u64::from(head), &bytes);
        }
        self.offer(head);
    }

    fn take(&mut self) -> Result<(), Fault> {
        let expected = self.model.take(&self.memory);
        let taken = self.queue.take(&self.memory.table, &mut self.chain);
        let actual = match taken {
            Ok(Some(head)) => Taken::Chain {
                head,
                readable: self.memory.locate(&self.chain.readable),
                writable: self.memory.locate(&self.chain.writable),
            },
            Ok(None) => Taken::Nothing,
            Err(_) => Taken::Fault,
        };
        assert_eq!(actual, expected, "{taken:?}");
        if let Some(head) = taken? {
            self.begin(head, Some(&expected))?;
        }
        Ok(())
    }

    /// Takes a chain out of memory that changes behind each read.
    fn take_while_memory_changes(&mut self, choices: &mut Choices<'_>) -> Result<(), Fault> {
        let count = choices.byte() % CHANGES_MAX;
        let changes: Vec<_> = (0..count).map(|_| self.change(choices)).collect();
        let mut changes = changes.into_iter();
        let act = move || {
            if let Some(mut change) = changes.next() {
                change();
            }
        };
        // Only what holds whatever was read is checked; the model takes over the outcome.
        let (left, in_flight) = (self.queue.left(), self.model.in_flight.len());
        let head = interference::with(act, || -> Result<Option<u16>, Fault> {
            let taken = self.queue.take(&self.memory.table, &mut self.chain)?;
            if let Some(head) = taken {
                self.begin(head, None)?;
            }
            Ok(taken)
        })?;
        if let Some(head) = head {
            assert!(head < self.model.size && self.model.in_flight.len() == in_flight + 1);
            if left > 0 {
                assert_eq!(self.queue.left(), left - 1);
            } else {
                self.model.next = self.model.next.wrapping_add(1);
            }
        }
        assert_eq!(self.queue.next_available(), self.model.next);
        // The queue may have seen an index that is no longer there; a look sees the present one.
        self.want_kicks()
    }

    /// Reads the request of a chain and takes it in flight.
    fn begin(&mut self, head: u16, expected: Option<&Taken>) -> Result<(), Fault> {
        let request = Request::read(&mut self.chain, &self.limits)?;
        let readable = self.memory.locate(&self.chain.readable);
        let writable = self.memory.locate(&self.chain.writable);
        let status = self.memory.locate(&[request.status]);
        assert_eq!(status[0].len, 1, "a status of one byte");
        self.check(&request.task);
        if let Some(Taken::Chain {
            readable: all_readable,
            writable: all_writable,
            ..
        }) = expected
        {
            let header = header(&self.memory, all_readable).expect("a header was read");
            check_type(&header, &request.task);
            let mut joined = writable.clone();
            push(&mut joined, status[0].guest, 1);
            assert_eq!(&joined, all_writable, "data and status are all of it");
            let left: u64 = readable.iter().map(|piece| piece.len).sum();
            let all: u64 = all_readable.iter().map(|piece| piece.len).sum();
            assert!((16..=32).contains(&(all - left)), "header, segment");
        }
        if request.task == Task::Identify {
            let (status, n) =
                request::identify("a name of more than 20 bytes", &self.chain.writable);
            let room: u64 = writable.iter().map(|piece| piece.len).sum();
            assert_eq!(
                (status == request::OK, n),
                (room >= 20, if room >= 20 { 20 } else { 0 })
            );
        }
        assert!(self.model.in_flight.insert(head), "a head is taken twice");
        self.statuses.insert(head, status[0].guest);
        self.queue.begin(head, request.status);
        Ok(())
    }

    /// Checks that a task is within the limits of the disk.
    fn check(&self, task: &Task) {
        let Task::Disk { kind, offset, len } = *task else {
            return;
        };
        let bytes = |memory: &[Mem]| -> u64 { memory.iter().map(|mem| mem.len() as u64).sum() };
        let block = u64::from(self.limits.block);
        assert!(offset % block == 0 && u64::from(len) % block == 0);
        match kind {
            Kind::Read => assert_eq!(bytes(&self.chain.writable), u64::from(len)),
            Kind::Write => assert_eq!(bytes(&self.chain.readable), u64::from(len)),
            Kind::Flush => assert_eq!(len, 0),
            _ => assert!(len > 0 && len <= RANGE_MAX),
        }
        if matches!(kind, Kind::Read | Kind::Write) {
            assert!(len > 0 && len <= self.limits.payload);
        }
    }

    /// Answers a request in flight.
    fn end(&mut self, choices: &mut Choices<'_>) {
        let choice = choices.byte();
        let status = choices.byte();
        let count = self.model.in_flight.len();
        if count == 0 {
            return;
        }
        let nth = self.model.in_flight.iter().nth(usize::from(choice) % count);
        self.answer(*nth.expect("it is in flight"), status);
    }

    fn answer(&mut self, head: u16, status: u8) {
        let written = u32::from(status) << 24 | u32::from(head);
        let memory = self.queue.end(head, status, written);
        assert_eq!(self.memory.locate(&[memory])[0].guest, self.statuses[&head]);
        self.model.end(&self.memory, head, written);
        let at = self.statuses.remove(&head).expect("it is in flight");
        // Unless the driver put it into a ring, which is written behind it.
        if let Some([byte]) = self.memory.at_guest(at)
            && !self.is_in_used_ring(at)
        {
            assert_eq!(byte, status, "the status byte");
        }
    }

    fn is_in_used_ring(&self, guest: u64) -> bool {
        let len = 6 + 8 * usize::from(self.model.size);
        let ring = self.memory.table.at_user(self.model.rings.used, len);
        let byte = self.memory.table.at_guest(guest, 1);
        let (ring, byte) = (ring.expect("inside"), byte.expect("inside"));
        (ring.addr()..ring.addr() + len).contains(&byte.addr())
    }

    fn publish(&mut self) {
        let had_some = self.model.unpublished > 0;
        let log = self.log.as_ref().map(|(log, _)| log);
        let notifies = self.queue.publish(log);
        assert_eq!(notifies, self.model.publish(&self.memory), "a notification");
        if had_some {
            assert_eq!(self.model.used_index(&self.memory), self.model.used);
            self.check_log();
        }
        assert_eq!(self.queue.is_drained(), self.model.in_flight.is_empty());
    }

    /// Checks that the page of the used index is marked, and none behind the ring.
    fn check_log(&self) {
        let Some((_, file)) = &self.log else {
            return;
        };
        let mut bits = [0; LOG as usize];
        file.read_exact_at(&mut bits, 0).expect("inside");
        let end = LOGGED_AT + 6 + 8 * u64::from(self.model.size);
        let pages = LOGGED_AT / PAGE..end.div_ceil(PAGE);
        let some = (0..LOG).filter(|&at| bits[at as usize] != 0);
        let marked = some.flat_map(|at| (0..8).map(move |bit| (at, bit)));
        let marked = marked.filter(|&(at, bit)| bits[at as usize] >> bit & 1 != 0);
        let marked: Vec<u64> = marked.map(|(at, bit)| 8 * at + bit).collect();
        assert!(marked.iter().all(|page| pages.contains(page)), "{marked:?}");
        assert_eq!(self.is_logged, marked.contains(&pages.start));
    }

    fn want_kicks(&mut self) -> Result<(), Fault> {
        let log = self.log.as_ref().map(|(log, _)| log);
        self.queue.suppress_kicks(log);
        let wanted = self.queue.want_kicks(log);
        if self.queue.left() > 0 {
            assert_eq!(wanted, Ok(true), "requests are left");
        } else {
            assert_eq!(wanted.ok(), self.model.look(&self.memory));
        }
        wanted.map(drop)
    }

    /// Moves the rings, as a new memory table does.
    fn move_rings(&mut self, choices: &mut Choices<'_>) {
        let to = addresses(choices, &self.memory, true);
        if self.queue.is_drained()
            && let Some(rings) = locate(&self.memory, self.model.size, &to)
        {
            self.queue.move_rings(rings);
            self.model.rings = to;
        }
    }

    /// Answers everything, after which nothing may be left.
    fn finish(mut self) {
        while let Some(&head) = self.model.in_flight.first() {
            self.answer(head, request::IO_ERROR);
        }
        self.publish();
        assert!(self.queue.is_drained());
    }
}

/// Returns a record of requests in flight that an earlier session left, or that nobody did.
fn record(choices: &mut Choices<'_>, size: u16) -> QueueRecord {
    let layout = Layout::new(1, size);
    let file = memfd(layout.bytes());
    let [version, used, last_batch] = [(); 3].map(|()| u16::from(choices.byte()));
    let head = [version, size, last_batch, used];
    let bytes: Vec<u8> = head.into_iter().flat_map(u16::to_le_bytes).collect();
    put(&file, 8, &bytes);
    for counter in 0..choices.byte() % 16 {
        let at = 16 + 16 * u64::from(choices.below(size));
        let [mark, next] = [(); 2].map(|()| choices.byte());
        put(&file, at, &[mark & 3]);
        put(&file, at + 6, &[next]);
        put(&file, at + 8, &[counter ^ mark >> 2]);
    }
    let len = u64::from(choices.byte());
    if len > 0 {
        let at = u64::from(choices.u16()) % layout.bytes();
        put(
            &file,
            at,
            choices.bytes(len.min(layout.bytes() - at) as usize),
        );
    }
    let region = InflightRegion::map(layout, &file, 0, layout.bytes(), &Arc::default());
    let region = Arc::new(region.expect("a sound region"));
    QueueRecord::new(&region, 0, size).expect("a queue that it has room for")
}

/// Returns where a queue's rings are: where there is room, or anywhere.
fn addresses(choices: &mut Choices<'_>, memory: &Memory, anywhere: bool) -> RingAddresses {
    let all = (0..memory.regions()).map(|index| memory.file(index).1);
    let largest = all.max_by_key(|address| address.len);
    let first = largest.expect("there is a region").user;
    let mut shift = || {
        if anywhere {
            u64::from(choices.u16())
        } else {
            0
        }
    };
    RingAddresses {
        descriptors: first + shift(),
        available: first + AVAILABLE + shift(),
        used: first + USED + shift(),
    }
}

/// Returns the rings at addresses; `None` if they are refused, which must then be right.
fn locate(memory: &Memory, size: u16, at: &RingAddresses) -> Option<Rings> {
    let entries = u64::from(size);
    let parts = [
        (at.descriptors, 16 * entries, 16),
        (at.available, 6 + 2 * entries, 2),
        (at.used, 6 + 8 * entries, 4),
    ];
    // Offsets in files are multiples of 512 bytes, so that addresses are aligned alike.
    let sound =
        |&(user, len, align): &(u64, u64, u64)| memory.has_user(user, len) && user % align == 0;
    let rings = Rings::locate(&memory.table, size, at);
    assert_eq!(rings.is_ok(), parts.iter().all(sound), "{at:?}");
    rings.ok()
}

/// Returns the header of a request in the memory that a device may read.
fn header(memory: &Memory, readable: &[Piece]) -> Option<[u8; 16]> {
    let mut bytes = readable
        .iter()
        .flat_map(|piece| (0..piece.len).map(|n| piece.guest + n));
    let mut header = [0; 16];
    for byte in &mut header {
        [*byte] = memory.at_guest(bytes.next()?)?;
    }
    Some(header)
}

/// Checks that a task is what a header asks for.
fn check_type(header: &[u8; 16], task: &Task) {
    let kind = u32::from_le_bytes([header[0], header[1], header[2], header[3]]);
    let sector = u64::from_le_bytes(std::array::from_fn(|n| header[8 + n]));
    let is_right = match task {
        Task::Refuse(status) => *status != request::OK,
        Task::Identify => kind == 8,
        Task::Disk {
            kind: Kind::Read,
            offset,
            ..
        } => kind == 0 && *offset == sector * 512,
        Task::Disk {
            kind: Kind::Write,
            offset,
            ..
        } => kind == 1 && *offset == sector * 512,
        Task::Disk {
            kind: Kind::Flush, ..
        } => kind == 4,
        Task::Disk {
            kind: Kind::Discard,
            ..
        } => kind == 11,
        Task::Disk { .. } => kind == 13,
    };
    assert!(is_right, "a request of type {kind} became {task:?}");
}

/// Cuts the first part, or the second, in two.
fn cut(parts: &mut Vec<(u64, u32, u16)>, choices: &mut Choices<'_>) {
    let index = usize::from(choices.byte() & 1);
    let (at, len, flags) = parts[index];
    if len > 1 {
        let front = 1 + choices.u32() % (len - 1);
        let back = (at + u64::from(front), len - front, flags);
        parts.splice(index..=index, [(at, front, flags), back]);
    }
}

fn descriptor(address: u64, len: u32, flags: u16, next: u16) -> [u8; 16] {
    let fields = u128::from(address)
        | u128::from(len) << 64
        | u128::from(flags) << 96
        | u128::from(next) << 112;
    fields.to_le_bytes()
}

fn put(file: &File, at: u64, bytes: &[u8]) {
    file.write_all_at(bytes, at).expect("inside the file");
}
