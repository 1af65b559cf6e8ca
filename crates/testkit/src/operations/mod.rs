//! Body of the fuzz target `engine_operations`: any calls of a driver, in any order, checked by the
//! ledger. `crates/policies/tests/suite/engine_invariants.rs` runs the same.
//!
//! When the operations are over, faults stop and everything must drain.

mod choices;
mod limits;
mod transfers;

use choices::{objective, policy};
use tidegate_core::engine::{DeviceSpec, DiskSpec, EngineConfig, SharedLimitId};
use tidegate_core::learnt_state::Blob;
use tidegate_core::request::{ClientId, DiskId, IoError, Op, Request, VmId};
use tidegate_core::time::Nanos;
use transfers::Transfers;

use crate::driver::Driver;

/// Physical block of the device in every run, in bytes.
const BLOCK: u32 = 4096;
/// Disk size large enough for a discard of [`u32::MAX`] bytes.
const DISK_SIZE: u64 = 8 << 30;

/// Call of a driver. Small numbers select among existing things, modulo their number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "the engine's own words")]
pub enum Operation {
    AddVm {
        objective: u8,
    },
    RemoveVm {
        vm: u8,
    },
    AddDisk {
        vm: u8,
        read_only: bool,
    },
    RemoveDisk {
        disk: u8,
    },
    /// Resizes a disk, in place or with a move.
    ResizeDisk {
        disk: u8,
        size: u8,
        place: u8,
    },
    Connect {
        disk: u8,
    },
    Disconnect {
        client: u8,
    },
    Request {
        client: u8,
        kind: u8,
        size: u8,
        place: u8,
    },
    Complete {
        io: u8,
        error: u8,
    },
    Step {
        size: u8,
    },
    Timeout,
    Dispatch {
        at_most: u8,
    },
    SetObjective {
        vm: u8,
        objective: u8,
    },
    /// Changes the policy.
    SetPolicy {
        policy: u16,
    },
    /// Imports a VM's state that was exported last, of any VM, with some bits of a byte flipped.
    Import {
        vm: u8,
        byte: u8,
        bits: u8,
    },
    /// Begins a transfer, in place of one that the VM has.
    BeginTransfer {
        vm: u8,
        size: u8,
        time: u8,
    },
    EndTransfer {
        vm: u8,
    },
    /// Imports the device's state that was exported last, with some bits of a byte flipped.
    ImportBandwidths {
        byte: u8,
        bits: u8,
    },
    /// Limits a disk by the limit of an objective, which may be none.
    LimitDisk {
        disk: u8,
        objective: u8,
    },
    /// Has a disk share one of two limits, or none; the limit is changed to that of an objective.
    ShareLimit {
        disk: u8,
        objective: u8,
        which: u8,
    },
}

/// Decodes an operation from five bytes. The first one selects the operation, and later bytes
/// select among those of one line:
///
/// | in 32 | operation |
/// |---|---|
/// | 9 | `Request` |
/// | 5 | `Complete` |
/// | 4 each | `Step`, `Dispatch` |
/// | 1 each | `AddVm`, `AddDisk`, `Connect`, `SetObjective`, `SetPolicy` |
/// | 1 | `RemoveVm` (1/4), `Connect` (3/4) |
/// | 1 | `Disconnect` (1/2), `RemoveDisk` (1/8), `ResizeDisk` (15/64), `Request` (9/64) |
/// | 1 | `Import` (1/4), `ResizeDisk` (3/8), `Timeout` (3/8) |
/// | 1 | `BeginTransfer` (5/8), `EndTransfer` (3/16), `ImportBandwidths` (3/16) |
/// | 1 | `Request` (1/2), `LimitDisk` (1/4), `ShareLimit` (1/4) |
impl From<[u8; 5]> for Operation {
    fn from([what, a, b, c, d]: [u8; 5]) -> Operation {
        match what % 32 {
            0 => Operation::AddVm { objective: a },
            1 if b < 64 => Operation::RemoveVm { vm: a },
            2 => Operation::AddDisk {
                vm: a,
                read_only: b < 32,
            },
            1 | 3 => Operation::Connect { disk: a },
            4 if b < 128 => Operation::Disconnect { client: a },
            4 if b < 160 => Operation::RemoveDisk { disk: a },
            5 => Operation::SetObjective {
                vm: a,
                objective: b,
            },
            6 => Operation::SetPolicy {
                policy: u16::from_le_bytes([a, b]),
            },
            7 if d < 64 => Operation::Import {
                vm: a,
                byte: b,
                bits: c,
            },
            // 4 with a higher `d` is a request, below.
            4 | 7 if d < 160 => Operation::ResizeDisk {
                disk: a,
                size: b,
                place: c,
            },
            7 => Operation::Timeout,
            8..=11 => Operation::Step { size: a },
            12..=15 => Operation::Dispatch { at_most: a },
            16..=20 => Operation::Complete { io: a, error: b },
            30 if d < 64 => Operation::LimitDisk {
                disk: a,
                objective: b,
            },
            30 if d < 128 => Operation::ShareLimit {
                disk: a,
                objective: b,
                which: c,
            },
            31 => match d {
                0..=159 => Operation::BeginTransfer {
                    vm: a,
                    size: b,
                    time: c,
                },
                160..=207 => Operation::EndTransfer { vm: a },
                _ => Operation::ImportBandwidths { byte: b, bits: c },
            },
            _ => Operation::Request {
                client: a,
                kind: b,
                size: c,
                place: d,
            },
        }
    }
}

/// Configuration of the engine in one run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Setup {
    /// I/Os in flight, modulo 8.
    pub depth: u8,
    /// Largest I/O in blocks, modulo 16.
    pub blocks: u8,
    /// Merge limit in blocks, modulo 24; 0 disables merging, and many values exceed the largest
    /// I/O.
    pub merge: u8,
    /// Flags for tight bounds on requests, and for zeroes that are written out.
    pub bounds: u8,
    /// Choice of the initial policy and its parameters.
    pub policy: u16,
}

/// Decodes a setup and operations from bytes, and runs them.
pub fn from_bytes(data: &[u8]) {
    let Some((&[depth, blocks, merge, bounds, low, high], rest)) = data.split_first_chunk() else {
        return;
    };
    let policy = u16::from_le_bytes([low, high]);
    let (chunks, _) = rest.as_chunks::<5>();
    let operations: Vec<Operation> = chunks.iter().map(|&c| Operation::from(c)).collect();
    run(
        Setup {
            depth,
            blocks,
            merge,
            bounds,
            policy,
        },
        &operations,
    );
}

/// Runs the operations, then drains. Panics when a promise is broken.
pub fn run(setup: Setup, operations: &[Operation]) {
    let mut operator = Operator::new(setup);
    for &operation in operations {
        operator.act(operation);
        operator.check();
    }
    operator.drain();
}

/// Driver with the handles that operations select by small numbers.
struct Operator {
    driver: Driver,
    vms: Vec<VmId>,
    disks: Vec<DiskId>,
    clients: Vec<ClientId>,
    /// Begin and end of the last request on each disk, by its index in `disks`.
    last: Vec<(u64, u64)>,
    disks_made: u64,
    /// Length of every request in bytes, by its tag.
    lens: Vec<u32>,
    /// State that was exported last.
    learnt: Vec<u8>,
    transfers: Transfers,
    /// Limits that disks share.
    shared: Vec<SharedLimitId>,
}

impl Setup {
    fn config(self) -> EngineConfig {
        // A third of the runs meet the bounds on requests, the others hardly ever.
        let tight = self.bounds.is_multiple_of(3);
        EngineConfig {
            device: DeviceSpec {
                depth: 1 + self.depth as u32 % 8,
                physical_block: BLOCK,
                max_io: BLOCK * (1 + self.blocks as u32 % 16),
                zeroes_are_writes: self.bounds.is_multiple_of(2),
                positioning: Nanos(self.bounds as u64 % 7 * 500_000),
                bytes_per_s: self.bounds as u64 % 5 * 30_000_000,
            },
            max_requests: if tight { 12 } else { 200 },
            max_pending_per_vm: if tight { 5 } else { 100 },
            merge_limit: BLOCK * (self.merge as u32 % 24),
            max_vms: 4,
        }
    }
}

impl Operator {
    fn new(setup: Setup) -> Operator {
        let config = setup.config();
        let mut driver = Driver::new(config, &policy(setup.policy));
        // Clocks do not begin at 0, and a prime number of nanoseconds is on no round border.
        driver.now = Nanos(setup.bounds as u64 * 1_000_003);
        let mut operator = Operator {
            driver,
            vms: Vec::new(),
            learnt: Vec::new(),
            transfers: Transfers::default(),
            shared: Vec::new(),
            disks: Vec::new(),
            clients: Vec::new(),
            last: Vec::new(),
            disks_made: 0,
            lens: Vec::new(),
        };
        // The run begins with two VMs: one has two adjacent disks, and two clients of the first.
        let [objective, _] = setup.policy.to_le_bytes();
        for objective in [objective, setup.depth] {
            operator.add_vm(objective);
        }
        for (disk, vm) in [0, 0, 1].into_iter().enumerate() {
            operator.add_disk(vm, false);
            operator.connect(disk);
        }
        operator.connect(0);
        operator
    }

    /// Removes the VM that `vm` selects, if there ever was one.
    fn remove_vm(&mut self, vm: u8) {
        let Some(&vm) = at(&self.vms, vm) else { return };
        // Before the engine's call, whose cancelled answers the ledger must expect.
        let live = self.driver.ledger.remove_vm(vm);
        self.transfers.cancel(vm);
        let removed = self.driver.engine.vms_mut().remove_vm(self.driver.now, vm);
        assert_eq!(removed.is_ok(), live);
    }

    /// Removes the disk that `disk` selects, if there ever was one.
    fn remove_disk(&mut self, disk: u8) {
        let Some(&disk) = at(&self.disks, disk) else {
            return;
        };
        // Before the engine's call, whose cancelled answers the ledger must expect.
        let there = self.driver.ledger.remove_disk(disk);
        let removed = self
            .driver
            .engine
            .vms_mut()
            .remove_disk(self.driver.now, disk);
        assert_eq!(removed.is_ok(), there);
    }

    fn act(&mut self, operation: Operation) {
        match operation {
            Operation::AddVm { objective } => self.add_vm(objective),
            Operation::RemoveVm { vm } => self.remove_vm(vm),
            Operation::AddDisk { vm, read_only } if !self.vms.is_empty() => {
                self.add_disk(vm as usize % self.vms.len(), read_only);
            }
            Operation::Connect { disk } if !self.disks.is_empty() => {
                self.connect(disk as usize % self.disks.len());
            }
            Operation::AddDisk { .. } | Operation::Connect { .. } => {}
            Operation::RemoveDisk { disk } => self.remove_disk(disk),
            Operation::ResizeDisk { disk, size, place } => self.resize_disk(disk, size, place),
            Operation::Disconnect { client } => {
                let Some(&client) = at(&self.clients, client) else {
                    return;
                };
                self.driver.disconnect(client);
            }
            Operation::Request {
                client,
                kind,
                size,
                place,
            } => {
                self.request(client, kind, size, place);
            }
            Operation::Complete { io, error } => self.complete(io, error),
            Operation::Step { size } => {
                // Steps from nanoseconds to a second, roughly by powers of two.
                let odd = 1 + (size as u64 >> 5);
                self.driver.now += Nanos(odd << (size % 32).min(27));
            }
            Operation::Timeout => self.timeout(),
            Operation::Dispatch { at_most } => {
                let all = at_most >= 64;
                let most = if all {
                    u32::MAX
                } else {
                    at_most as u32 % 4 + 1
                };
                self.dispatch(most);
            }
            Operation::SetObjective { vm, objective: n } => {
                let Some(&vm) = at(&self.vms, vm) else { return };
                let set =
                    self.driver
                        .engine
                        .vms_mut()
                        .set_objective(self.driver.now, vm, &objective(n));
                assert_eq!(set.is_ok(), self.driver.ledger.is_live(vm));
            }
            Operation::SetPolicy { policy: choice } => self.driver.set_policy(&policy(choice)),
            Operation::Import { vm, byte, bits } => self.import(vm, byte, bits),
            Operation::BeginTransfer { vm, size, time } => self.begin_transfer(vm, size, time),
            Operation::EndTransfer { vm } => self.end_transfer(vm),
            Operation::ImportBandwidths { byte, bits } => self.import_bandwidths(byte, bits),
            Operation::LimitDisk { disk, objective } => self.limit_disk(disk, objective),
            Operation::ShareLimit {
                disk,
                objective,
                which,
            } => self.share_limit(disk, objective, which),
        }
    }

    fn import(&mut self, vm: u8, byte: u8, bits: u8) {
        let Some(&vm) = at(&self.vms, vm) else { return };
        let exported = self.driver.engine.vms().export_learnt(vm);
        assert_eq!(exported.is_ok(), self.driver.ledger.is_live(vm));
        let is_own = matches!(exported, Ok(Some(_)));
        if let Ok(Some(blob)) = exported {
            self.learnt = blob.as_bytes().to_vec();
        }
        let mut bytes = self.learnt.clone();
        // Beyond the end nothing is flipped, so that whole states are imported too.
        if let Some(byte) = bytes.get_mut(byte as usize) {
            *byte ^= bits;
        }
        let whole = bytes == self.learnt;
        let blob = Blob::from_bytes(bytes);
        let refused = match byte % 2 {
            0 => self
                .driver
                .engine
                .vms_mut()
                .import_learnt(self.driver.now, [(vm, &blob)]),
            _ => self
                .driver
                .engine
                .vms_mut()
                .import_moved(self.driver.now, [(vm, &blob)]),
        };
        let again = self.driver.engine.vms().export_learnt(vm);
        // A whole state of another VM or policy may be refused, and a damaged one may be accepted
        // by chance.
        if is_own && whole {
            assert!(refused.is_empty(), "the VM's own state is accepted");
        }
        if refused.is_empty() && whole {
            assert!(again.is_ok_and(|learnt| learnt.is_some()), "taken over");
        }
    }

    fn add_vm(&mut self, n: u8) {
        let added = match n {
            192.. => self.driver.try_background(&objective(n)),
            _ => self.driver.try_vm(&objective(n)),
        };
        if let (192.., Some(vm)) = (n, added) {
            self.transfers.add_background(vm);
        }
        self.vms.extend(added);
    }

    fn add_disk(&mut self, vm: usize, read_only: bool) {
        let vm = self.vms[vm];
        let spec = DiskSpec {
            base: self.disks_made * DISK_SIZE,
            size: DISK_SIZE,
            read_only,
        };
        let disk = self.driver.engine.vms_mut().add_disk(vm, spec).ok();
        assert_eq!(disk.is_some(), self.driver.ledger.is_live(vm));
        let Some(disk) = disk else { return };
        self.disks_made += 1;
        self.driver.ledger.add_disk(disk, vm, spec);
        self.disks.push(disk);
        self.last.push((0, 0));
    }

    fn resize_disk(&mut self, disk: u8, size: u8, place: u8) {
        let Some(&disk) = at(&self.disks, disk) else {
            return;
        };
        let size = match size {
            // Such an end cuts off most of the waiting requests.
            0..=127 => BLOCK as u64 / 2 * size as u64,
            128..=191 => DISK_SIZE / 2,
            _ => DISK_SIZE,
        };
        let base = match place {
            0..=127 => self.driver.ledger.spec(disk).base,
            // Only a disk of less than two blocks ends within 64 bits here.
            128..=135 => u64::MAX / BLOCK as u64 * BLOCK as u64 - BLOCK as u64,
            _ => {
                self.disks_made += 1;
                (self.disks_made - 1) * DISK_SIZE
            }
        };
        // Before the engine's call, which answers requests that the new end cuts off.
        let taken = self.driver.ledger.resize_disk(disk, base, size);
        let resized = self
            .driver
            .engine
            .vms_mut()
            .resize_disk(self.driver.now, disk, base, size);
        assert_eq!(resized.is_ok(), taken, "{disk:?}: {size} bytes at {base}");
    }

    fn connect(&mut self, disk: usize) {
        let disk = self.disks[disk];
        let client = self.driver.engine.connect(disk).ok();
        assert_eq!(client.is_some(), self.driver.ledger.disk_is_live(disk));
        let Some(client) = client else { return };
        self.driver.ledger.connect(client, disk);
        self.clients.push(client);
    }

    fn request(&mut self, client: u8, kind: u8, size: u8, place: u8) {
        let Some(&client) = at(&self.clients, client) else {
            return;
        };
        let disk = self
            .disks
            .iter()
            .position(|&d| d == self.driver.ledger.disk_of(client));
        let disk = disk.expect("a client has a disk");
        let (begin, end) = self.last[disk];
        let disk_size = self.driver.ledger.spec(self.disks[disk]).size;
        let op = op(kind);
        let len = len(op, size);
        let offset = match place {
            0 => u64::MAX - size as u64,
            1 => disk_size.saturating_sub(len as u64 / 2),
            // Last bytes of a disk and first bytes of the one behind it.
            2..=16 => disk_size.saturating_sub(len as u64),
            17..=32 => 0,
            // Right behind the last request, for back-merges; the next range lies before it, for
            // front-merges.
            33..=128 => end,
            129..=190 => begin.wrapping_sub(len as u64).min(DISK_SIZE),
            _ => place as u64 % 8 * 16 * BLOCK as u64,
        };
        let flush = op == Op::Flush;
        let request = Request {
            op,
            offset: if flush { 0 } else { offset },
            len: if flush { 0 } else { len },
            fua: kind >= 192,
            keep_allocated: kind % 64 == 31,
            tag: self.lens.len() as u64,
        };
        // Also for a refused request: the tag is the index.
        self.lens.push(request.len);
        let room = self.room(client);
        let expected = self.driver.ledger.refusal(client, &request, room);
        let taken = self.driver.request(client, request);
        assert_eq!(taken.err(), expected, "{request:?}");
        if taken.is_ok() && !flush {
            self.last[disk] = (offset, offset + len as u64);
        }
    }

    /// Returns the number of a client's requests for which the engine has room, and checks it
    /// against the bounds and the VM's guaranteed part.
    fn room(&mut self, client: ClientId) -> u32 {
        let available =
            (self.driver.engine.admission_mut()).available_slots(self.driver.now, client);
        let ledger = &self.driver.ledger;
        let bounds = ledger.room(client);
        assert!(
            available <= bounds,
            "{available} requests beyond the bounds of {bounds}"
        );
        let vm = ledger.vm_of(client);
        if bounds > 0 && ledger.is_live(vm) {
            // Other VMs must not use up the slots that this one is guaranteed.
            let part = self.driver.engine.admission().holdings(vm).slots_part;
            let left = part.saturating_sub(ledger.inside(vm).into());
            assert!(
                u64::from(available) >= left.min(bounds.into()),
                "the VM's guaranteed slots are not available to it"
            );
        }
        available
    }

    fn complete(&mut self, io: u8, error: u8) {
        let Some(id) = self.driver.ledger.in_flight(io) else {
            return;
        };
        let outcome = match error {
            0..=31 => Err(IoError::Io),
            32..=47 => Err(IoError::NoSpace),
            _ => Ok(()),
        };
        let ios = &self.driver.in_flight;
        let nth = ios.iter().position(|io| io.id == id);
        self.driver.end_nth(nth.expect("it is in flight"), outcome);
    }

    fn dispatch(&mut self, most: u32) {
        for _ in 0..most {
            if self.driver.start().is_none() {
                return self.check_wake_up();
            }
        }
    }

    /// Checks the end of a dispatch: something is in flight or due, or nothing waits.
    fn check_wake_up(&self) {
        let next = self.driver.engine.next_timeout();
        // A policy may use a smaller depth of its own; 0 stands for the device's depth.
        let depths = self.driver.engine.policy().params().iter().copied();
        let own = depths.filter(|(info, depth)| info.name == "depth" && *depth > 0);
        let depth = own
            .map(|(_, depth)| depth as u32)
            .fold(self.driver.engine.config().device.depth, u32::min);
        let in_flight = self.driver.engine.device_stats().in_flight;
        // Units may have to wait for the end of an I/O: bd-edf may leave the device idle to protect
        // a deadline; cfq gives the device to one VM for a slice.
        let (_, _, dispatcher) = self.driver.engine.policy().parts();
        let full = in_flight >= depth || (in_flight > 0 && matches!(dispatcher, "bd-edf" | "cfq"));
        // Credits may wait for the end of an I/O in flight, but admitted units must not.
        let view = self.driver.engine.view();
        let held = in_flight > 0 && !view.vms().any(|vm| view.has_head(vm));
        if self.driver.ledger.anything_waits() && !full {
            assert!(
                next.is_some() || held,
                "requests wait, the device has room, and no wake-up is set"
            );
        }
        assert!(
            next.is_none_or(|t| t > self.driver.now),
            "a wake-up at {next:?} was not served"
        );
    }

    fn timeout(&mut self) {
        if let Some(due) = self.driver.engine.next_timeout() {
            self.driver.now = self.driver.now.max(due);
        }
        self.driver.engine.handle_timeout(self.driver.now);
    }

    /// Checks the invariants after a call.
    fn check(&mut self) {
        for done in self.driver.answers() {
            self.transfers.answered(&done, self.lens[done.tag as usize]);
        }
        self.driver.check();
        self.transfers
            .check(&mut self.driver.engine, self.driver.now, &self.vms);
    }

    /// Stops faults and drains everything.
    fn drain(&mut self) {
        // Far above what the inputs need: a run that does not end by then never would.
        for _ in 0..20_000 {
            self.dispatch(u32::MAX);
            while self.driver.ledger.in_flight(0).is_some() {
                self.driver.now += Nanos(1000);
                self.complete(0, u8::MAX);
                self.check();
            }
            if self.driver.ledger.is_empty() {
                assert!(self.driver.engine.is_idle());
                return;
            }
            self.dispatch(u32::MAX);
            self.check();
            if self.driver.ledger.in_flight(0).is_none() {
                self.timeout();
            }
        }
        panic!("the engine still has requests after all rounds of draining");
    }
}

/// Decodes the operation of a request, in most cases a read or write, so that many can merge.
fn op(kind: u8) -> Op {
    match kind % 16 {
        0..=5 => Op::Read,
        6..=11 => Op::Write,
        12 | 13 => Op::Flush,
        14 => Op::Discard,
        _ => Op::WriteZeroes,
    }
}

fn len(op: Op, size: u8) -> u32 {
    match size {
        0 => 0,
        // A discard of this length is one piece; a read would be split into a million.
        1 if op == Op::Discard => u32::MAX,
        1..=160 => BLOCK / 2 * (1 + size as u32 % 4),
        161..=220 => BLOCK * (1 + size as u32 % 40),
        _ => 1 + size as u32 * 977,
    }
}

fn at<T>(all: &[T], n: u8) -> Option<&T> {
    all.get(n as usize % all.len().max(1))
}
