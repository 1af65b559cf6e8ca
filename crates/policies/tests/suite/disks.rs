//! VMs and disks come, grow, shrink, move and go while requests wait and are in flight.

use std::collections::BTreeMap;

use crate::common::{config, limited, open_disk, policy, weighted};
use tidegate_core::engine::{DiskSpec, Engine, Refusal};
use tidegate_core::objective::{Objective, Rate};
use tidegate_core::policy::Policy;
use tidegate_core::random::SplitMix64;
use tidegate_core::request::{ClientId, DeviceIo, DiskId, IoError, Op, Request, VmId};
use tidegate_core::time::Nanos;
use tidegate_policies::policy::PolicySpec;

const MIB: u64 = 1 << 20;

fn engine(name: &str, depth: u32) -> Engine {
    Engine::new(config(depth, 128 << 10), &policy(name)).expect("sound")
}

fn answers(engine: &mut Engine) -> Vec<(u64, Result<(), IoError>)> {
    std::iter::from_fn(|| engine.poll_done())
        .map(|done| (done.tag, done.outcome))
        .collect()
}

#[test]
fn a_removed_disk_takes_what_waits_along_and_leaves_the_vms_other_disks_alone() {
    for spec in PolicySpec::all() {
        let name = spec.name();
        let mut engine = engine(name, 1);
        let now = Nanos::ZERO;
        let vm = engine
            .tenants_mut()
            .add_vm(now, &Objective::default())
            .expect("room");
        let (gone, leaver) = open_disk(&mut engine, vm, 0, MIB);
        let (stays, stayer) = open_disk(&mut engine, vm, MIB, MIB);
        let ask = |engine: &mut Engine, client, request| {
            engine.handle_request(now, client, request).expect("taken");
        };
        ask(&mut engine, leaver, Request::write(0, 4096, 1));
        let io = engine.poll_dispatch(now).expect("goes at once");
        ask(&mut engine, leaver, Request::write(8192, 4096, 2));
        ask(&mut engine, leaver, Request::flush(3));
        ask(&mut engine, stayer, Request::write(0, 4096, 4));
        ask(&mut engine, stayer, Request::flush(5));

        engine.tenants_mut().remove_disk(now, gone).expect("there");
        let mut cancelled = answers(&mut engine);
        cancelled.sort_unstable_by_key(|&(tag, _)| tag);
        let expected = [2, 3].map(|tag| (tag, Err(IoError::Cancelled)));
        assert_eq!(cancelled, expected, "{name}");
        assert!(
            engine.tenants_mut().remove_disk(now, gone).is_err(),
            "{name}"
        );
        assert!(engine.connect(gone).is_err(), "{name}");
        let refused = engine.handle_request(now, leaver, Request::read(0, 4096, 6));
        assert_eq!(refused, Err(Refusal::NotConnected), "{name}");
        // Its slot is another's only once its last I/O has ended.
        let spec = DiskSpec {
            base: 4 * MIB,
            size: MIB,
            read_only: false,
        };
        let other = engine.tenants_mut().add_disk(vm, spec).expect("fits");
        assert_ne!(other.index(), gone.index(), "{name}");
        engine.handle_completion(now, io.id, Ok(()));
        assert_eq!(answers(&mut engine), [(1, Ok(()))], "{name}");
        let again = engine.tenants_mut().add_disk(vm, spec).expect("fits");
        assert_eq!(again.index(), gone.index(), "{name}");
        assert_ne!(again, gone, "{name}");

        let mut left = Vec::new();
        while let Some(io) = engine.poll_dispatch(now) {
            assert_eq!(io.disk, stays, "{name}");
            engine.handle_completion(now, io.id, Ok(()));
            left.extend(answers(&mut engine));
        }
        left.sort_unstable_by_key(|&(tag, _)| tag);
        assert_eq!(left, [(4, Ok(())), (5, Ok(()))], "{name}");
        engine.tenants_mut().remove_vm(now, vm).expect("there");
        assert!(engine.is_idle() && engine.connect(again).is_err(), "{name}");
    }
}

#[test]
fn what_waits_beyond_a_nearer_end_fails_and_what_is_in_flight_there_is_not_repeated() {
    let mut engine = engine("fifo", 1);
    let now = Nanos::ZERO;
    let vm = engine
        .tenants_mut()
        .add_vm(now, &Objective::default())
        .expect("room");
    let (disk, client) = open_disk(&mut engine, vm, 16 * MIB, 2 * MIB);
    let ask = |engine: &mut Engine, request| {
        let taken = engine.handle_request(now, client, request);
        taken.expect("taken");
    };
    // Held up behind another, two that merge across what will be the end.
    ask(&mut engine, Request::read(0, 4096, 0));
    let first = engine.poll_dispatch(now).expect("goes at once");
    for (tag, offset) in [(1, MIB - 4096), (2, MIB)] {
        ask(&mut engine, Request::write(offset, 4096, tag));
    }
    engine.handle_completion(now, first.id, Ok(()));
    let merged = engine.poll_dispatch(now).expect("both");
    assert_eq!(merged.len, 8192);
    // These wait: inside, merged across the end, beyond; and one that ends exactly there.
    ask(&mut engine, Request::read(0, 4096, 3));
    for (tag, offset) in [(4, MIB - 512), (5, MIB), (6, MIB + 4096)] {
        ask(&mut engine, Request::read(offset, 512, tag));
    }
    answers(&mut engine);
    engine
        .tenants_mut()
        .resize_disk(now, disk, 16 * MIB, MIB)
        .expect("there");
    let beyond = Err(IoError::BeyondEnd);
    assert_eq!(answers(&mut engine), [(5, beyond), (6, beyond)]);
    // Failed in company, each goes again by itself: but not beyond the end.
    engine.handle_completion(now, merged.id, Err(IoError::Io));
    assert_eq!(answers(&mut engine), [(2, beyond)]);
    let mut left = Vec::new();
    while let Some(io) = engine.poll_dispatch(now) {
        assert!(io.offset + u64::from(io.len) <= MIB, "{io:?}");
        engine.handle_completion(now, io.id, Ok(()));
        left.extend(answers(&mut engine));
    }
    left.sort_unstable_by_key(|&(tag, _)| tag);
    assert_eq!(left, [(1, Ok(())), (3, Ok(())), (4, Ok(()))]);
    let refused = engine.handle_request(now, client, Request::read(MIB, 512, 7));
    let (offset, end) = (MIB, MIB + 512);
    let size = MIB;
    assert_eq!(refused, Err(Refusal::OutOfRange { offset, end, size }));
    engine
        .tenants_mut()
        .resize_disk(now, disk, 16 * MIB, 4 * MIB)
        .expect("there");
    ask(&mut engine, Request::read(4 * MIB - 512, 512, 8));
    assert!(engine.tenants_mut().resize_disk(now, disk, 0, 0).is_err());
    assert!(
        engine
            .tenants_mut()
            .resize_disk(now, disk, u64::MAX, 1)
            .is_err()
    );
    engine.handle_disconnect(now, client);
    assert_eq!(answers(&mut engine).len(), 1);
}

#[test]
fn what_was_cut_off_in_flight_fails_wherever_the_disk_moves() {
    let mut engine = engine("fifo", 1);
    let now = Nanos::ZERO;
    let vm = engine
        .tenants_mut()
        .add_vm(now, &Objective::default())
        .expect("room");
    let (disk, client) = open_disk(&mut engine, vm, 0, 2 * MIB);
    for (tag, offset) in [(1, 0), (2, MIB), (3, MIB + 4096)] {
        let write = Request::write(offset, 4096, tag);
        engine.handle_request(now, client, write).expect("taken");
    }
    let first = engine.poll_dispatch(now).expect("goes at once");
    engine.handle_completion(now, first.id, Ok(()));
    let merged = engine.poll_dispatch(now).expect("both");
    assert_eq!(merged.len, 8192);
    answers(&mut engine);
    // To where there are no addresses for what is cut off.
    let base = u64::MAX - MIB - 4095;
    let resized = engine.tenants_mut().resize_disk(now, disk, base, MIB);
    resized.expect("there");
    engine.handle_completion(now, merged.id, Err(IoError::Io));
    let beyond = Err(IoError::BeyondEnd);
    assert_eq!(answers(&mut engine), [(2, beyond), (3, beyond)]);
}

/// A VM of the churn.
struct Tenant {
    vm: VmId,
    disks: Vec<Opened>,
}

struct Opened {
    disk: DiskId,
    client: ClientId,
    base: u64,
    size: u64,
}

/// A request that is owed an answer.
struct Owed {
    disk: DiskId,
    offset: u64,
    len: u32,
    /// Bytes of it that the device was asked for.
    asked: u64,
}

/// Everything that may happen, drawn from one seed; the engine's answers are held against it.
struct Churn {
    engine: Engine,
    random: SplitMix64,
    now: Nanos,
    tenants: Vec<Tenant>,
    flights: Vec<DeviceIo>,
    owed: BTreeMap<u64, Owed>,
    next_tag: u64,
    /// Where the next disk lies.
    next_base: u64,
}

impl Churn {
    fn below(&mut self, n: u64) -> u64 {
        self.random.below(n)
    }

    fn place(&mut self, size: u64) -> u64 {
        let base = self.next_base;
        self.next_base += size + MIB;
        base
    }

    fn add_disk(&mut self, vm: VmId) -> Opened {
        let size = MIB * (1 + self.below(8));
        let base = self.place(size);
        let (disk, client) = open_disk(&mut self.engine, vm, base, size);
        Opened {
            disk,
            client,
            base,
            size,
        }
    }

    fn step(&mut self) {
        match self.below(64) {
            0 => self.add_vm(),
            1 if self.tenants.len() > 2 => {
                let at = self.below(self.tenants.len() as u64) as usize;
                let gone = self.tenants.swap_remove(at);
                self.engine
                    .tenants_mut()
                    .remove_vm(self.now, gone.vm)
                    .expect("there");
            }
            2 => {
                if let Some(at) = self.tenant() {
                    let disk = self.add_disk(self.tenants[at].vm);
                    self.tenants[at].disks.push(disk);
                }
            }
            3 => {
                if let Some((tenant, disk)) = self.disk() {
                    let gone = self.tenants[tenant].disks.swap_remove(disk);
                    self.engine
                        .tenants_mut()
                        .remove_disk(self.now, gone.disk)
                        .expect("there");
                }
            }
            4 | 5 => self.resize(),
            6..40 => self.ask(),
            40..52 => self.complete(),
            _ => {
                let passed = 1 + self.below(500);
                self.now += Nanos::from_micros(passed);
                self.dispatch();
            }
        }
        self.settle();
    }

    fn add_vm(&mut self) {
        let objective = match self.below(3) {
            0 => limited(Rate::iops(500)),
            n => weighted(100 * n as u32),
        };
        let Ok(vm) = self.engine.tenants_mut().add_vm(self.now, &objective) else {
            return;
        };
        let disks = vec![self.add_disk(vm)];
        self.tenants.push(Tenant { vm, disks });
    }

    fn tenant(&mut self) -> Option<usize> {
        let n = self.tenants.len() as u64;
        (n > 0).then(|| self.below(n) as usize)
    }

    fn disk(&mut self) -> Option<(usize, usize)> {
        let tenant = self.tenant()?;
        let n = self.tenants[tenant].disks.len() as u64;
        (n > 0).then(|| (tenant, self.below(n) as usize))
    }

    /// Longer or shorter, where it is or elsewhere.
    fn resize(&mut self) {
        let Some((tenant, disk)) = self.disk() else {
            return;
        };
        let size = MIB * (1 + self.below(8));
        let moves = self.below(2) == 0 || size > self.tenants[tenant].disks[disk].size;
        let elsewhere = self.place(size);
        let opened = &mut self.tenants[tenant].disks[disk];
        opened.size = size;
        if moves {
            opened.base = elsewhere;
        }
        let (id, base) = (opened.disk, opened.base);
        let resized = self
            .engine
            .tenants_mut()
            .resize_disk(self.now, id, base, size);
        resized.expect("there");
    }

    fn ask(&mut self) {
        let Some((tenant, disk)) = self.disk() else {
            return;
        };
        let Opened {
            disk, client, size, ..
        } = self.tenants[tenant].disks[disk];
        // Few places, so that some merge and some reach the end.
        let block = 64 << 10;
        let (len, offset) = match self.below(8) {
            0 => (MIB as u32, size - MIB),
            _ => (block as u32, self.below(size / block) * block),
        };
        let op = [Op::Read, Op::Write, Op::Discard, Op::Flush][self.below(4) as usize];
        let tag = self.next_tag;
        let (len, offset) = match op {
            Op::Flush => (0, 0),
            _ => (len, offset),
        };
        let request = Request {
            op,
            ..Request::read(offset, len, tag)
        };
        if self
            .engine
            .handle_request(self.now, client, request)
            .is_ok()
        {
            self.next_tag += 1;
            let asked = 0;
            let owed = Owed {
                disk,
                offset,
                len,
                asked,
            };
            self.owed.insert(tag, owed);
        }
    }

    fn dispatch(&mut self) {
        while let Some(io) = self.engine.poll_dispatch(self.now) {
            if io.op != Op::Flush {
                self.check(&io);
            }
            self.flights.push(io);
        }
    }

    /// It is where its disk is now, and its requests are where they were asked for.
    fn check(&mut self, io: &DeviceIo) {
        let disks = self.tenants.iter().flat_map(|tenant| &tenant.disks);
        let opened = disks.clone().find(|opened| opened.disk == io.disk);
        let opened = opened.expect("nothing starts for a disk that is gone");
        assert_eq!(io.addr, opened.base + io.offset);
        assert!(io.offset + u64::from(io.len) <= opened.size, "{io:?}");
        let mut at = io.offset;
        for segment in self.engine.io_segments(io.id) {
            let owed = self.owed.get_mut(&segment.tag).expect("not answered yet");
            assert_eq!(owed.disk, io.disk);
            assert_eq!(at, owed.offset + u64::from(segment.offset));
            at += u64::from(segment.len);
            owed.asked += u64::from(segment.len);
        }
        assert_eq!(at, io.offset + u64::from(io.len));
    }

    fn complete(&mut self) {
        if self.flights.is_empty() {
            return;
        }
        let at = self.below(self.flights.len() as u64) as usize;
        let io = self.flights.swap_remove(at);
        let outcome = match self.below(10) {
            0 => Err(IoError::Io),
            _ => Ok(()),
        };
        self.engine.handle_completion(self.now, io.id, outcome);
    }

    fn settle(&mut self) {
        while let Some(done) = self.engine.poll_done() {
            let owed = self.owed.remove(&done.tag).expect("answered once");
            let whole = owed.asked >= u64::from(owed.len);
            assert!(done.outcome.is_err() || whole, "{done:?}");
        }
    }

    /// All VMs go; what is in flight ends; nothing is left.
    fn end(mut self) {
        for tenant in std::mem::take(&mut self.tenants) {
            self.engine
                .tenants_mut()
                .remove_vm(self.now, tenant.vm)
                .expect("there");
        }
        for io in std::mem::take(&mut self.flights) {
            self.engine.handle_completion(self.now, io.id, Ok(()));
        }
        self.settle();
        assert!(self.engine.is_idle() && self.owed.is_empty());
        // All slots are there again: handles go up to how many there were at once, not beyond.
        let vms = std::iter::from_fn(|| {
            self.engine
                .tenants_mut()
                .add_vm(self.now, &Objective::default())
                .ok()
        });
        assert_eq!(vms.count(), 128);
    }
}

#[test]
fn churn_answers_everything_once_where_it_was_asked_for_and_uses_slots_again() {
    for spec in PolicySpec::all() {
        for seed in 0..4 {
            let mut churn = Churn {
                engine: engine(spec.name(), 8),
                random: SplitMix64::new(seed),
                now: Nanos::ZERO,
                tenants: Vec::new(),
                flights: Vec::new(),
                owed: BTreeMap::new(),
                next_tag: 0,
                next_base: 0,
            };
            (0..3).for_each(|_| churn.add_vm());
            let mut highest = 0;
            for _ in 0..6000 {
                churn.step();
                let disks = churn.tenants.iter().flat_map(|tenant| &tenant.disks);
                highest = highest.max(disks.map(|d| d.disk.index()).max().unwrap_or(0));
            }
            assert!(churn.next_tag > 1000, "{}: little was asked", spec.name());
            assert!(highest < 100, "{}: {highest}", spec.name());
            churn.end();
        }
    }
}
