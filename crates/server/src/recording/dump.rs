//! One recording of a range of time out of a device's files.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, BufReader};
use std::path::Path;

use tidegate_core::time::Nanos;
use tidegate_recording::{
    BLOCK_REQUESTS, Change, Encoder, Gap, GapCause, Header, Inventory, Item, ReadError, Reader,
    Request, VmFacts,
};

use super::directory::{RecordingFile, files_of};
use crate::config::VmConfig;

/// Part of the files of a device that a dump has.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Range {
    /// VM whose requests alone are wanted, with the changes that concern it.
    pub(crate) vm: Option<String>,
    /// First time of arrival, in nanoseconds since 1970.
    pub(crate) from: u64,
    /// Time before which requests arrive.
    pub(crate) to: u64,
    /// Facts that the files do not have.
    pub(crate) unrecorded: Unrecorded,
}

/// Names of VMs with facts that files do not have, as they are now.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct Unrecorded {
    /// VMs that have a schedule.
    pub(crate) scheduled: BTreeSet<String>,
    /// VMs whose disks have limits, their own or shared ones. Files know those whose disks had some
    /// when the recording began.
    pub(crate) disk_limits: BTreeSet<String>,
}

impl Unrecorded {
    /// Returns the facts of these VMs.
    pub(crate) fn new(vms: &[VmConfig]) -> Unrecorded {
        let names = |has: fn(&VmConfig) -> bool| {
            let matching = vms.iter().filter(|vm| has(vm));
            matching.map(|vm| vm.name.clone()).collect()
        };
        Unrecorded {
            scheduled: names(|vm| vm.schedule.is_some()),
            disk_limits: names(|vm| {
                let mut disks = vm.disks.iter();
                disks.any(|disk| !disk.limit.is_none() || disk.limit_group.is_some())
            }),
        }
    }
}

/// Receiver of a dump's bytes.
pub(crate) trait Sink {
    /// Takes the content of the buffer. Returns false if nobody wants the rest.
    fn take(&mut self, bytes: &mut Vec<u8>) -> bool;

    /// Returns false once nobody wants the rest.
    fn is_wanted(&self) -> bool;

    /// Notes that the rest cannot be read, so that the dump is not whole.
    fn fail(&mut self);
}

/// Result of a dump.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Dumped {
    /// The sink has the dump, or did not want the rest of it.
    Sent,
    /// No file is of the range; the sink has nothing.
    NoFile,
    /// The files of the range know no VM of the name; the sink has nothing.
    UnknownVm,
}

/// Longest request that a dump is sure to have: one that takes longer may be missing where it ends
/// behind the range.
const LONGEST_REQUEST: Nanos = Nanos::from_secs(60);
/// Bytes that are gathered before they go to the sink.
const PIECE: usize = 64 << 10;

/// Writes the requests of a range in one recording, in the order of the files.
///
/// # Errors
/// If the files cannot be read.
pub(crate) fn dump(
    directory: &Path,
    device: &str,
    range: &Range,
    sink: &mut impl Sink,
) -> io::Result<Dumped> {
    let files = files_of(directory, device)?;
    let mut dump = Dump {
        range,
        sink,
        bytes: Vec::new(),
        open: None,
        session: None,
        knows_vm: range.vm.is_none(),
        was_sent: false,
        wanted: true,
    };
    for (at, file) in files.iter().enumerate() {
        // A file behind which the clock was set back may have requests of any later time.
        let ends_before =
            (files.get(at + 1)).is_some_and(|next| next.begins <= range.from && !next.is_moved);
        // Requests are in the file in which they end, which may begin after they arrived.
        let latest = range.to.saturating_add(LONGEST_REQUEST.0);
        let begins_behind = file.begins >= latest && !file.is_moved;
        if ends_before || begins_behind {
            continue;
        }
        dump.file(file)?;
        if !dump.wanted {
            return Ok(Dumped::Sent);
        }
    }
    Ok(dump.finish())
}

/// Recording that is being written.
struct Open {
    encoder: Encoder,
    /// Wall clock at its time 0.
    started_unix_ns: u64,
    last: Nanos,
    next_vm: u32,
    next_disk: u32,
    /// Numbers of the VMs that are in it and not removed.
    vms: Vec<u32>,
    unrecorded: Unrecorded,
}

/// Recording whose files are being read: all files with one beginning.
struct Session {
    started_unix_ns: u64,
    /// Number of the request that is expected next.
    expected: u64,
    /// VMs and disks in force where the files are read, by their numbers in the session.
    inventory: Inventory,
    /// Numbers in the dump, by those in the session.
    vms: BTreeMap<u32, u32>,
    disks: BTreeMap<u32, u32>,
}

struct Dump<'a, S> {
    range: &'a Range,
    sink: &'a mut S,
    bytes: Vec<u8>,
    /// The dump, from its first file on.
    open: Option<Open>,
    session: Option<Session>,
    /// The files know the VM that is wanted.
    knows_vm: bool,
    /// The sink has the beginning.
    was_sent: bool,
    wanted: bool,
}

impl<S: Sink> Dump<'_, S> {
    /// Adds the requests of a file.
    fn file(&mut self, file: &RecordingFile) -> io::Result<()> {
        let opened = match File::open(&file.path) {
            Ok(opened) => opened,
            // It was removed to make room; the number of the next request shows what is missing.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error),
        };
        let mut reader = match Reader::new(BufReader::new(opened)) {
            Ok(reader) => reader,
            Err(ReadError::Io(error)) => return Err(error),
            Err(error) => {
                tracing::warn!(path = %file.path.display(), "left out of the dump: {error}");
                return Ok(());
            }
        };
        self.begin(reader.header(), file.begins);
        let mut items = 0;
        loop {
            // The client gets the beginning at once, and may leave while no request is in its
            // range.
            if items % BLOCK_REQUESTS == 0 {
                self.send_beginning();
                self.wanted &= self.sink.is_wanted();
            }
            items += 1;
            let item = match reader.next_item() {
                Ok(Some(item)) => item,
                Ok(None) => break,
                Err(ReadError::Io(error)) => return Err(error),
                Err(_) => unreachable!("the header was read"),
            };
            self.item(item);
            if self.bytes.len() >= PIECE {
                self.send();
            }
            if !self.wanted {
                return Ok(());
            }
        }
        if let Some(session) = &mut self.session {
            session.expected = reader.expected();
        }
        Ok(())
    }

    /// Begins the dump, or goes on with another file, which begins at a time since 1970.
    fn begin(&mut self, header: &Header, begins: u64) {
        let same = (self.session.as_ref())
            .is_some_and(|session| session.started_unix_ns == header.started_unix_ns);
        if same {
            return self.note_missing(header);
        }
        let mut session = Session {
            started_unix_ns: header.started_unix_ns,
            expected: header.first_request,
            inventory: Inventory::new(header),
            vms: BTreeMap::new(),
            disks: BTreeMap::new(),
        };
        let vms = header.vms.iter().filter(|vm| self.wants(vm));
        let vms: Vec<VmFacts> = vms.cloned().collect();
        self.knows_vm |= !vms.is_empty();
        match &mut self.open {
            None => {
                // Requests before the range are left out, and time 0 is at its beginning.
                let started_unix_ns = header.started_unix_ns.max(self.range.from);
                let mut open = Open::new(started_unix_ns, self.range.unrecorded.clone());
                let vms = vms.into_iter().map(|vm| open.number(&mut session, vm));
                let header = Header {
                    vms: vms.collect(),
                    started_unix_ns,
                    first_request: 0,
                    ..header.clone()
                };
                open.encoder = Encoder::new(&header, &mut self.bytes);
                self.open = Some(open);
            }
            Some(open) => {
                // Not before the last request, as where the clock was set back.
                let at = open.time(begins, Nanos::ZERO).max(open.last);
                open.gap(GapCause::Off, Some(at), None, &mut self.bytes);
                for vm in std::mem::take(&mut open.vms) {
                    let removed = Change::VmRemoved { vm };
                    open.encoder.change(at, &removed, &mut self.bytes);
                }
                let policy = header.device.policy.clone();
                let policy = Change::Policy { policy };
                open.encoder.change(at, &policy, &mut self.bytes);
                for vm in vms {
                    let vm = open.number(&mut session, vm);
                    let added = Change::VmAdded { vm };
                    open.encoder.change(at, &added, &mut self.bytes);
                }
            }
        }
        self.session = Some(session);
    }

    /// Notes what is missing between two files of one session.
    fn note_missing(&mut self, header: &Header) {
        let (Some(session), Some(open)) = (&mut self.session, &mut self.open) else {
            return;
        };
        let missing = header.first_request.saturating_sub(session.expected);
        if missing > 0 {
            open.gap(GapCause::Damaged, None, Some(missing), &mut self.bytes);
        }
        // A file that is missing had changes, too.
        let at = open.last;
        for change in session.inventory.changes_until(header) {
            self.change(at, change);
        }
    }

    fn wants(&self, vm: &VmFacts) -> bool {
        (self.range.vm.as_ref()).is_none_or(|name| *name == vm.name)
    }

    fn item(&mut self, item: Item) {
        let (Some(session), Some(open)) = (&mut self.session, &mut self.open) else {
            return;
        };
        let (started, bytes) = (session.started_unix_ns, &mut self.bytes);
        match item {
            Item::Request(request) => {
                let arrived = started.saturating_add(request.arrived.0);
                if !(self.range.from..self.range.to).contains(&arrived) {
                    return;
                }
                let Some(&disk) = session.disks.get(&request.disk) else {
                    return;
                };
                // As a whole: its own times stay apart as they were.
                let arrived = open.time(started, request.arrived);
                let moved = |time: Nanos| Nanos(arrived.0 + time.since(request.arrived).0);
                let own = Request {
                    disk,
                    arrived,
                    admitted: moved(request.admitted),
                    sent: moved(request.sent),
                    done: moved(request.done),
                    ..request
                };
                open.last = open.last.max(own.done);
                open.encoder.push(&own, bytes);
            }
            Item::Gap(gap) => {
                let on_wall = |time: Nanos| started.saturating_add(time.0);
                let ends = gap.until.map_or(u64::MAX, on_wall);
                if on_wall(gap.from) < self.range.to && ends >= self.range.from {
                    let until = gap.until.map(|until| open.time(started, until));
                    let from = open.time(started, gap.from);
                    open.encoder.gap(&Gap { from, until, ..gap }, bytes);
                }
            }
            Item::Change(at, change) => {
                let at = open.time(started, at);
                self.change(at, *change);
            }
        }
    }

    /// Adds a change at a time of the dump, if it concerns the dump.
    fn change(&mut self, at: Nanos, change: Change) {
        if let Some(session) = &mut self.session {
            session.inventory.apply(&change);
        }
        if let Some(change) = self.translated(change)
            && let Some(open) = &mut self.open
        {
            open.encoder.change(at, &change, &mut self.bytes);
        }
    }

    /// Returns a change with the numbers of the dump; `None` if it concerns another VM.
    fn translated(&mut self, change: Change) -> Option<Change> {
        let wanted = self.range.vm.as_deref();
        let is_wanted = |name: &str| wanted.is_none_or(|wanted| wanted == name);
        let session = self.session.as_mut()?;
        let open = self.open.as_mut()?;
        Some(match change {
            Change::VmAdded { vm } => {
                if !is_wanted(&vm.name) {
                    return None;
                }
                self.knows_vm = true;
                let vm = open.number(session, vm);
                Change::VmAdded { vm }
            }
            Change::VmRemoved { vm } => {
                let vm = *session.vms.get(&vm)?;
                open.vms.retain(|&other| other != vm);
                Change::VmRemoved { vm }
            }
            Change::VmRenamed { vm, name } => match session.vms.get(&vm) {
                Some(&vm) => Change::VmRenamed { vm, name },
                // It has the name that is wanted from now on.
                None if is_wanted(&name) => {
                    self.knows_vm = true;
                    let vm = session.inventory.vm(vm)?.clone();
                    let vm = open.number(session, vm);
                    Change::VmAdded { vm }
                }
                None => return None,
            },
            Change::DiskAdded { vm, mut disk } => {
                let vm = *session.vms.get(&vm)?;
                disk.number = open.number_disk(session, disk.number);
                Change::DiskAdded { vm, disk }
            }
            Change::DiskRemoved { disk } => {
                let disk = *session.disks.get(&disk)?;
                Change::DiskRemoved { disk }
            }
            Change::DiskResized { disk, size_bytes } => {
                let disk = *session.disks.get(&disk)?;
                Change::DiskResized { disk, size_bytes }
            }
            Change::Objective { vm, objective } => {
                let vm = *session.vms.get(&vm)?;
                Change::Objective { vm, objective }
            }
            other @ (Change::Policy { .. } | Change::DeviceResized { .. }) => other,
        })
    }

    fn send(&mut self) {
        self.wanted = self.sink.take(&mut self.bytes);
        self.was_sent = true;
        self.bytes.clear();
    }

    /// Sends the beginning of the dump, once it is certain that there will be one.
    fn send_beginning(&mut self) {
        if self.knows_vm && !self.was_sent && !self.bytes.is_empty() {
            self.send();
        }
    }

    /// Ends the dump.
    fn finish(mut self) -> Dumped {
        let Some(open) = self.open.take() else {
            return Dumped::NoFile;
        };
        if !self.knows_vm && !self.was_sent {
            return Dumped::UnknownVm;
        }
        open.encoder.end(open.last, &mut self.bytes);
        self.send();
        Dumped::Sent
    }
}

impl Open {
    fn new(started_unix_ns: u64, unrecorded: Unrecorded) -> Open {
        Open {
            // Replaced once the VMs have their numbers.
            encoder: Encoder::new(&Header::default(), &mut Vec::new()),
            started_unix_ns,
            last: Nanos::ZERO,
            next_vm: 0,
            next_disk: 0,
            vms: Vec::new(),
            unrecorded,
        }
    }

    /// Returns a time of a session that began at `started` on the dump's clock; 0 for one before.
    fn time(&self, started: u64, time: Nanos) -> Nanos {
        let on_wall = started.saturating_add(time.0);
        Nanos(on_wall.saturating_sub(self.started_unix_ns))
    }

    /// Numbers a VM of a session and its disks.
    fn number(&mut self, session: &mut Session, mut vm: VmFacts) -> VmFacts {
        let number = self.next_vm;
        self.next_vm += 1;
        session.vms.insert(vm.number, number);
        vm.number = number;
        vm.scheduled = self.unrecorded.scheduled.contains(&vm.name);
        vm.disk_limits |= self.unrecorded.disk_limits.contains(&vm.name);
        self.vms.push(number);
        for disk in &mut vm.disks {
            disk.number = self.number_disk(session, disk.number);
        }
        vm
    }

    fn number_disk(&mut self, session: &mut Session, disk: u32) -> u32 {
        let number = self.next_disk;
        self.next_disk += 1;
        session.disks.insert(disk, number);
        number
    }

    fn gap(
        &mut self,
        cause: GapCause,
        until: Option<Nanos>,
        requests: Option<u64>,
        bytes: &mut Vec<u8>,
    ) {
        let gap = Gap {
            cause,
            from: self.last,
            until,
            requests,
        };
        self.encoder.gap(&gap, bytes);
    }
}
