//! Tests of VMs and disks that come, grow, shrink, move and go while requests wait and are in
//! flight.

use crate::common::{Driver, Guest, config, limited, policy, weighted};
use tidegate_core::engine::{DiskSpec, Refusal};
use tidegate_core::objective::{Objective, Rate};
use tidegate_core::policy::Policy;
use tidegate_core::random::SplitMix64;
use tidegate_core::request::{ClientId, DeviceIo, DiskId, IoError, Op, Outcome, Request, VmId};
use tidegate_core::time::Nanos;
use tidegate_policies::policy::PolicySpec;

const MIB: u64 = 1 << 20;

fn driver(name: &str, depth: u32) -> Driver {
    Driver::new(config(depth, 128 << 10), &policy(name))
}

fn answers(driver: &mut Driver) -> Vec<(u64, Outcome)> {
    let answers = driver.answers().into_iter();
    answers.map(|done| (done.tag, done.outcome)).collect()
}

/// Serves all requests inside, one I/O at a time. Returns the answers by tag.
fn serve(driver: &mut Driver, check: impl Fn(&DeviceIo)) -> Vec<(u64, Outcome)> {
    while let Some(io) = driver.start() {
        check(&io);
        driver.end(&io, Ok(()));
    }
    let mut answers = answers(driver);
    answers.sort_unstable_by_key(|&(tag, _)| tag);
    answers
}

#[test]
fn a_removed_disk_takes_what_waits_along_and_leaves_the_vms_other_disks_alone() {
    for spec in PolicySpec::every_composition() {
        let name = spec.name();
        let mut driver = driver(name, 1);
        let vm = driver.vm(&Objective::default());
        let Guest {
            disk: gone,
            client: leaver,
            ..
        } = driver.guest_at(vm, 0, MIB);
        let Guest {
            disk: stays,
            client: stayer,
            ..
        } = driver.guest_at(vm, MIB, MIB);
        let ask = |driver: &mut Driver, client, request| {
            driver.request(client, request).expect("taken");
        };
        ask(&mut driver, leaver, Request::write(0, 4096, 1));
        let io = driver.start().expect("goes at once");
        ask(&mut driver, leaver, Request::write(8192, 4096, 2));
        ask(&mut driver, leaver, Request::flush(3));
        ask(&mut driver, stayer, Request::write(0, 4096, 4));
        ask(&mut driver, stayer, Request::flush(5));

        driver.remove_disk(gone);
        let mut cancelled = answers(&mut driver);
        cancelled.sort_unstable_by_key(|&(tag, _)| tag);
        let expected = [2, 3].map(|tag| (tag, Err(IoError::Cancelled)));
        assert_eq!(cancelled, expected, "{name}");
        assert!(
            driver
                .engine
                .vms_mut()
                .remove_disk(driver.now, gone)
                .is_err(),
            "{name}"
        );
        assert!(driver.engine.connect(gone).is_err(), "{name}");
        let refused = driver.request(leaver, Request::read(0, 4096, 6));
        assert_eq!(refused, Err(Refusal::NotConnected), "{name}");
        // Its slot is another's only once its last I/O has ended.
        let spec = DiskSpec {
            base: 4 * MIB,
            size: MIB,
            read_only: false,
        };
        let other = driver.try_disk(vm, spec).expect("fits");
        assert_ne!(other.index(), gone.index(), "{name}");
        driver.end(&io, Ok(()));
        assert_eq!(answers(&mut driver), [(1, Ok(()))], "{name}");
        let again = driver.try_disk(vm, spec).expect("fits");
        assert_eq!(again.index(), gone.index(), "{name}");
        assert_ne!(again, gone, "{name}");

        let left = serve(&mut driver, |io| assert_eq!(io.disk, stays, "{name}"));
        assert_eq!(left, [(4, Ok(())), (5, Ok(()))], "{name}");
        driver.remove_vm(vm);
        assert!(
            driver.engine.is_idle() && driver.engine.connect(again).is_err(),
            "{name}"
        );
    }
}

#[test]
fn what_waits_beyond_a_nearer_end_fails_and_what_is_in_flight_there_is_not_repeated() {
    let mut driver = driver("fifo", 1);
    let vm = driver.vm(&Objective::default());
    let Guest { disk, client, .. } = driver.guest_at(vm, 16 * MIB, 2 * MIB);
    let ask = |driver: &mut Driver, request| {
        driver.request(client, request).expect("taken");
    };
    // Held up behind another, two that merge across what will be the end.
    ask(&mut driver, Request::read(0, 4096, 0));
    let first = driver.start().expect("goes at once");
    for (tag, offset) in [(1, MIB - 4096), (2, MIB)] {
        ask(&mut driver, Request::write(offset, 4096, tag));
    }
    driver.end(&first, Ok(()));
    let merged = driver.start().expect("both");
    assert_eq!(merged.len, 8192);
    // These wait: inside, merged across the end, beyond; and one that ends exactly there.
    ask(&mut driver, Request::read(0, 4096, 3));
    for (tag, offset) in [(4, MIB - 512), (5, MIB), (6, MIB + 4096)] {
        ask(&mut driver, Request::read(offset, 512, tag));
    }
    answers(&mut driver);
    driver.resize_disk(disk, 16 * MIB, MIB);
    let beyond = Err(IoError::BeyondEnd);
    assert_eq!(answers(&mut driver), [(5, beyond), (6, beyond)]);
    // After a merged I/O failed, each goes again by itself: but not beyond the end.
    driver.end(&merged, Err(IoError::Io));
    assert_eq!(answers(&mut driver), [(2, beyond)]);
    let left = serve(&mut driver, |io| {
        assert!(io.offset + u64::from(io.len) <= MIB, "{io:?}")
    });
    assert_eq!(left, [(1, Ok(())), (3, Ok(())), (4, Ok(()))]);
    let refused = driver.request(client, Request::read(MIB, 512, 7));
    let (offset, end) = (MIB, MIB + 512);
    let size = MIB;
    assert_eq!(refused, Err(Refusal::OutOfRange { offset, end, size }));
    driver.resize_disk(disk, 16 * MIB, 4 * MIB);
    ask(&mut driver, Request::read(4 * MIB - 512, 512, 8));
    assert!(
        driver
            .engine
            .vms_mut()
            .resize_disk(driver.now, disk, 0, 0)
            .is_err()
    );
    assert!(
        driver
            .engine
            .vms_mut()
            .resize_disk(driver.now, disk, u64::MAX, 1)
            .is_err()
    );
    driver.disconnect(client);
    assert_eq!(answers(&mut driver).len(), 1);
}

#[test]
fn what_was_cut_off_in_flight_fails_wherever_the_disk_moves() {
    let mut driver = driver("fifo", 1);
    let vm = driver.vm(&Objective::default());
    let Guest { disk, client, .. } = driver.guest_at(vm, 0, 2 * MIB);
    for (tag, offset) in [(1, 0), (2, MIB), (3, MIB + 4096)] {
        let write = Request::write(offset, 4096, tag);
        driver.request(client, write).expect("taken");
    }
    let first = driver.start().expect("goes at once");
    driver.end(&first, Ok(()));
    let merged = driver.start().expect("both");
    assert_eq!(merged.len, 8192);
    answers(&mut driver);
    // To where there are no addresses for what is cut off.
    let base = u64::MAX - MIB - 4095;
    driver.resize_disk(disk, base, MIB);
    driver.end(&merged, Err(IoError::Io));
    let beyond = Err(IoError::BeyondEnd);
    assert_eq!(answers(&mut driver), [(2, beyond), (3, beyond)]);
}

/// VM of the random run, with its disks.
struct VmDisks {
    vm: VmId,
    disks: Vec<Opened>,
}

struct Opened {
    disk: DiskId,
    client: ClientId,
    base: u64,
    size: u64,
}

/// Random run of all operations, drawn from one seed; the engine's answers are compared with its
/// records.
struct Churn {
    driver: Driver,
    random: SplitMix64,
    vms: Vec<VmDisks>,
    /// Number of requests that the engine accepted.
    asked: u64,
    /// Base address of the next disk.
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
        let Guest { disk, client, .. } = self.driver.guest_at(vm, base, size);
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
            1 if self.vms.len() > 2 => {
                let at = self.below(self.vms.len() as u64) as usize;
                let gone = self.vms.swap_remove(at);
                self.driver.remove_vm(gone.vm);
            }
            2 => {
                if let Some(at) = self.random_vm() {
                    let disk = self.add_disk(self.vms[at].vm);
                    self.vms[at].disks.push(disk);
                }
            }
            3 => {
                if let Some((vm, disk)) = self.random_disk() {
                    let gone = self.vms[vm].disks.swap_remove(disk);
                    self.driver.remove_disk(gone.disk);
                }
            }
            4 | 5 => self.resize(),
            6..40 => self.ask(),
            40..52 => self.complete(),
            _ => {
                let passed = 1 + self.below(500);
                self.driver.now += Nanos::from_micros(passed);
                self.dispatch();
            }
        }
        self.driver.check();
    }

    fn add_vm(&mut self) {
        let objective = match self.below(3) {
            0 => limited(Rate::iops(500)),
            n => weighted(100 * n as u32),
        };
        let Some(vm) = self.driver.try_vm(&objective) else {
            return;
        };
        let disks = vec![self.add_disk(vm)];
        self.vms.push(VmDisks { vm, disks });
    }

    fn random_vm(&mut self) -> Option<usize> {
        let n = self.vms.len() as u64;
        (n > 0).then(|| self.below(n) as usize)
    }

    fn random_disk(&mut self) -> Option<(usize, usize)> {
        let vm = self.random_vm()?;
        let n = self.vms[vm].disks.len() as u64;
        (n > 0).then(|| (vm, self.below(n) as usize))
    }

    /// Resizes a disk, at its place or elsewhere.
    fn resize(&mut self) {
        let Some((vm, disk)) = self.random_disk() else {
            return;
        };
        let size = MIB * (1 + self.below(8));
        let moves = self.below(2) == 0 || size > self.vms[vm].disks[disk].size;
        let elsewhere = self.place(size);
        let opened = &mut self.vms[vm].disks[disk];
        opened.size = size;
        if moves {
            opened.base = elsewhere;
        }
        let (id, base) = (opened.disk, opened.base);
        self.driver.resize_disk(id, base, size);
    }

    fn ask(&mut self) {
        let Some((vm, disk)) = self.random_disk() else {
            return;
        };
        let Opened { client, size, .. } = self.vms[vm].disks[disk];
        // Few places, so that some merge and some reach the end.
        let block = 64 << 10;
        let (len, offset) = match self.below(8) {
            0 => (MIB as u32, size - MIB),
            _ => (block as u32, self.below(size / block) * block),
        };
        let op = [Op::Read, Op::Write, Op::Discard, Op::Flush][self.below(4) as usize];
        let (len, offset) = match op {
            Op::Flush => (0, 0),
            _ => (len, offset),
        };
        let taken = self.driver.ask(client, op, offset, len);
        self.asked += u64::from(taken.is_ok());
    }

    fn dispatch(&mut self) {
        while let Some(io) = self.driver.start() {
            if io.op != Op::Flush {
                self.check(&io);
            }
        }
    }

    /// Asserts that an I/O is within its disk, at the disk's present place.
    fn check(&self, io: &DeviceIo) {
        let disks = self.vms.iter().flat_map(|vm| &vm.disks);
        let opened = disks.clone().find(|opened| opened.disk == io.disk);
        let opened = opened.expect("nothing starts for a disk that is gone");
        assert_eq!(io.addr, opened.base + io.offset);
        assert!(io.offset + u64::from(io.len) <= opened.size, "{io:?}");
    }

    fn complete(&mut self) {
        let in_flight = self.driver.in_flight.len() as u64;
        if in_flight == 0 {
            return;
        }
        let at = self.below(in_flight) as usize;
        let outcome = match self.below(10) {
            0 => Err(IoError::Io),
            _ => Ok(()),
        };
        self.driver.end_nth(at, outcome);
    }

    /// Removes all VMs and completes all I/Os in flight. Asserts that nothing is left.
    fn end(mut self) {
        for gone in std::mem::take(&mut self.vms) {
            self.driver.remove_vm(gone.vm);
        }
        self.driver.end_all();
        self.driver.assert_drained();
        assert_eq!(self.driver.ledger.unanswered(), 0);
        // All slots are there again: handles go up to how many there were at once, not beyond.
        let objective = Objective::default();
        let vms = std::iter::from_fn(|| self.driver.try_vm(&objective));
        assert_eq!(vms.count(), 128);
    }
}

#[test]
fn churn_answers_everything_once_where_it_was_asked_for_and_uses_slots_again() {
    for spec in PolicySpec::every_composition() {
        for seed in 0..4 {
            let mut churn = Churn {
                driver: driver(spec.name(), 8),
                random: SplitMix64::new(seed),
                vms: Vec::new(),
                asked: 0,
                next_base: 0,
            };
            (0..3).for_each(|_| churn.add_vm());
            let mut highest = 0;
            for _ in 0..6000 {
                churn.step();
                let disks = churn.vms.iter().flat_map(|vm| &vm.disks);
                highest = highest.max(disks.map(|d| d.disk.index()).max().unwrap_or(0));
            }
            assert!(churn.asked > 1000, "{}: little was asked", spec.name());
            assert!(highest < 100, "{}: {highest}", spec.name());
            churn.end();
        }
    }
}
