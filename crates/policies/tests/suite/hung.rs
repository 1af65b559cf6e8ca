//! Tests of disks that hang while others go on, under every policy.

use std::collections::BTreeMap;

use crate::common::{Driver, Guest, config, policy};
use tidegate_core::engine::{DATA_SILENCE_TIMEOUT, OTHER_SILENCE_TIMEOUT, SilenceTimeouts};
use tidegate_core::objective::Objective;
use tidegate_core::policy::Policy;
use tidegate_core::request::{DeviceIo, DiskId, IoError, Op, Outcome, Request, VmId};
use tidegate_core::time::Nanos;
use tidegate_policies::policy::PolicySpec;

const DEPTH: u32 = 4;
const MIB: u64 = 1 << 20;

/// Guests on a device that ends I/Os only when told to.
struct Rig {
    driver: Driver,
    next_tag: u64,
    answers: BTreeMap<u64, Outcome>,
}

impl Rig {
    fn new(policy_name: &str) -> Rig {
        let mut config = config(DEPTH, 128 << 10);
        config.device.max_io = 64 << 10;
        let mut driver = Driver::new(config, &policy(policy_name));
        driver
            .engine
            .device_mut()
            .enable_hung_disk_handling(Nanos::ZERO, SilenceTimeouts::default());
        Rig {
            driver,
            next_tag: 0,
            answers: BTreeMap::new(),
        }
    }

    fn guest(&mut self) -> Guest {
        self.driver.guest(&Objective::default())
    }

    /// Adds a disk to a VM, with its client.
    fn guest_of(&mut self, vm: VmId) -> Guest {
        let disk = self.driver.disk(vm);
        let client = self.driver.client(disk);
        Guest { vm, disk, client }
    }

    fn ask(&mut self, guest: Guest, request: fn(u64) -> Request) -> u64 {
        let tag = self.next_tag;
        self.next_tag += 1;
        let taken = self.driver.request(guest.client, request(tag));
        taken.expect("there is room");
        tag
    }

    fn detect_hung_disks(&mut self) -> bool {
        let Driver { engine, now, .. } = &mut self.driver;
        engine.device_mut().detect_hung_disks(*now)
    }

    /// Issues a read far from the last one, so that nothing merges.
    fn read(&mut self, guest: Guest) -> u64 {
        self.ask(guest, |tag| Request::read(tag % 32 * MIB, 4096, tag))
    }

    fn flush(&mut self, guest: Guest) -> u64 {
        self.ask(guest, Request::flush)
    }

    /// Starts all I/Os that may go now and takes all answers. Returns the number of I/Os started.
    fn dispatch(&mut self) -> usize {
        let started = self.driver.start_all().len();
        self.take_answers();
        started
    }

    fn take_answers(&mut self) {
        let answers = self.driver.answers().into_iter();
        self.answers
            .extend(answers.map(|done| (done.tag, done.outcome)));
    }

    fn end(&mut self, io: DeviceIo, outcome: Outcome) {
        self.driver.end(&io, outcome);
        self.take_answers();
    }

    /// Serves all disks but `hung` for `time`, or until nothing is left.
    fn serve_all_but(&mut self, hung: Option<DiskId>, time: Nanos) {
        let until = self.driver.now + time;
        while self.driver.now < until {
            self.dispatch();
            let next = self
                .driver
                .in_flight
                .iter()
                .find(|io| Some(io.disk) != hung)
                .copied();
            match next {
                Some(io) => self.end(io, Ok(())),
                None if self.driver.engine.is_idle() => return,
                // A policy waits for what may come, or for its time.
                None => self.driver.pass(Nanos::from_millis(19)),
            }
            self.driver.pass(Nanos::from_millis(1));
        }
    }

    /// Completes all requests and asserts that each was answered once, without error.
    fn drain(&mut self) {
        self.serve_all_but(None, Nanos::from_secs(600));
        assert_eq!(self.answers.len() as u64, self.next_tag);
        self.driver.check();
        self.driver.assert_drained();
    }
}

#[test]
fn a_neighbour_of_a_hung_disk_goes_on_until_it_goes_on_itself() {
    for spec in PolicySpec::every_composition() {
        let name = spec.name();
        let mut rig = Rig::new(name);
        let (hung, neighbour) = (rig.guest(), rig.guest());
        for _ in 0..12 {
            rig.read(hung);
        }
        rig.dispatch();
        let stuck = rig.driver.in_flight.len();
        assert!(stuck > 0, "{name}");
        let first = rig.read(neighbour);
        rig.driver.pass(DATA_SILENCE_TIMEOUT - Nanos(1));
        assert!(!rig.detect_hung_disks(), "{name}");
        rig.driver.pass(Nanos(1));
        assert!(rig.detect_hung_disks(), "{name}");
        assert_eq!(
            rig.driver.engine.device().hung_since(hung.disk),
            Some(Nanos::ZERO)
        );
        assert_eq!(rig.driver.engine.device().hung_since(neighbour.disk), None);
        assert_eq!(rig.driver.engine.device_stats().in_flight, 0, "{name}");
        rig.serve_all_but(Some(hung.disk), Nanos::from_secs(2));
        assert_eq!(rig.answers.get(&first), Some(&Ok(())), "{name}");
        for _ in 0..20 {
            let next = rig.read(neighbour);
            rig.serve_all_but(Some(hung.disk), Nanos::from_secs(1));
            assert_eq!(rig.answers.get(&next), Some(&Ok(())), "{name}");
        }
        let of_hung = rig
            .driver
            .in_flight
            .iter()
            .filter(|io| io.disk == hung.disk)
            .count();
        assert_eq!(of_hung, stuck + 1, "{name}: one I/O at a time");
        assert_eq!(
            rig.driver.engine.device().uncounted() as usize,
            of_hung,
            "{name}"
        );
        assert_eq!(
            rig.driver.engine.vms().pending(hung.vm) as usize,
            12 - of_hung,
            "{name}"
        );
        let oldest = rig.driver.engine.device().ios_in_flight();
        let oldest = oldest.filter(|(disk, _)| *disk == hung.disk);
        assert_eq!(oldest.map(|(_, since)| since).min(), Some(Nanos::ZERO));

        let one = *rig.driver.in_flight.back().expect("it is stuck");
        rig.end(one, Ok(()));
        assert_eq!(
            rig.driver.engine.device().hung_since(hung.disk),
            None,
            "{name}"
        );
        assert!(!rig.detect_hung_disks(), "{name}");
        rig.drain();
    }
}

#[test]
fn a_disk_whose_neighbours_io_ends_beside_it_hangs_too() {
    let mut rig = Rig::new("mclock");
    let (hung, neighbour) = (rig.guest(), rig.guest());
    rig.read(hung);
    rig.dispatch();
    rig.read(neighbour);
    rig.serve_all_but(Some(hung.disk), DATA_SILENCE_TIMEOUT);
    // No VM waits, and none has been served for long enough, so there is no need to act.
    rig.driver.pass(Nanos::from_secs(3));
    assert!(!rig.detect_hung_disks());
    rig.read(neighbour);
    rig.serve_all_but(Some(hung.disk), Nanos::from_millis(5));
    assert!(rig.detect_hung_disks());
    assert_eq!(
        rig.driver.engine.device().hung_since(hung.disk),
        Some(Nanos::ZERO)
    );
    rig.drain();
}

#[test]
fn alone_on_its_device_no_disk_is_taken_out() {
    let mut rig = Rig::new("mclock");
    let (only, idle) = (rig.guest(), rig.guest());
    for _ in 0..12 {
        rig.read(only);
    }
    rig.dispatch();
    rig.driver.pass(Nanos::from_secs(100));
    assert!(!rig.detect_hung_disks());
    assert_eq!(rig.dispatch(), 0, "the depth holds");
    // The whole device hangs: a disk that comes later is admitted once, and hangs, too.
    rig.read(idle);
    assert!(rig.detect_hung_disks());
    rig.dispatch();
    rig.driver.pass(Nanos::from_secs(100));
    assert!(!rig.detect_hung_disks());
    rig.drain();
}

#[test]
fn a_lone_flush_has_more_time() {
    let mut rig = Rig::new("mclock");
    let (hung, neighbour) = (rig.guest(), rig.guest());
    let (first, second) = (rig.flush(hung), rig.flush(hung));
    rig.dispatch();
    let third = rig.flush(hung);
    let almost = OTHER_SILENCE_TIMEOUT - Nanos::from_millis(200);
    while rig.driver.now < almost {
        rig.read(neighbour);
        rig.serve_all_but(Some(hung.disk), Nanos::from_millis(50));
        assert!(!rig.detect_hung_disks(), "{}", rig.driver.now);
    }
    rig.driver.pass(Nanos::from_millis(200));
    assert!(rig.detect_hung_disks());
    // One more I/O may be tried; later flushes wait for the first.
    let reads = [rig.read(hung), rig.read(hung)];
    rig.serve_all_but(Some(hung.disk), Nanos::from_millis(50));
    assert_eq!(rig.driver.in_flight.len(), 2);
    let flush = rig.driver.in_flight[0];
    assert_eq!(flush.op, Op::Flush);
    rig.end(flush, Ok(()));
    rig.drain();
    for tag in [first, second, third, reads[0], reads[1]] {
        assert_eq!(rig.answers[&tag], Ok(()));
    }
}

#[test]
fn a_flush_may_be_the_one_io_of_a_hung_disk_and_others_keep_their_turn() {
    let mut rig = Rig::new("mclock");
    let (hung, neighbour) = (rig.guest(), rig.guest());
    for _ in 0..DEPTH {
        rig.read(hung);
    }
    rig.dispatch();
    rig.read(neighbour);
    rig.driver.pass(DATA_SILENCE_TIMEOUT);
    assert!(rig.detect_hung_disks());
    let of_hung = rig.flush(hung);
    rig.serve_all_but(Some(hung.disk), Nanos::from_millis(100));
    assert_eq!(rig.driver.in_flight.back().map(|io| io.op), Some(Op::Flush));
    let again = rig.read(hung);
    let of_neighbour = rig.flush(neighbour);
    rig.serve_all_but(Some(hung.disk), Nanos::from_millis(100));
    assert_eq!(rig.answers.get(&of_neighbour), Some(&Ok(())));
    assert_eq!(rig.driver.in_flight.len(), DEPTH as usize + 1);
    rig.drain();
    assert_eq!(
        (rig.answers[&of_hung], rig.answers[&again]),
        (Ok(()), Ok(()))
    );
}

#[test]
fn flushes_that_wait_for_a_hung_disk_go_when_it_goes_on() {
    let mut rig = Rig::new("fifo");
    let (hung, neighbour) = (rig.guest(), rig.guest());
    for _ in 0..=DEPTH {
        rig.read(hung);
    }
    rig.dispatch();
    rig.read(neighbour);
    rig.driver.pass(DATA_SILENCE_TIMEOUT);
    assert!(rig.detect_hung_disks());
    rig.serve_all_but(Some(hung.disk), Nanos::from_millis(100));
    assert_eq!(rig.driver.in_flight.len(), DEPTH as usize + 1);
    let flush = rig.flush(hung);
    rig.serve_all_but(Some(hung.disk), Nanos::from_millis(100));
    assert_eq!(
        rig.driver.in_flight.len(),
        DEPTH as usize + 1,
        "it has had its one"
    );
    let one = rig.driver.in_flight[0];
    rig.end(one, Ok(()));
    rig.dispatch();
    assert_eq!(rig.driver.in_flight.back().map(|io| io.op), Some(Op::Flush));
    rig.drain();
    assert_eq!(rig.answers[&flush], Ok(()));
}

#[test]
fn what_waits_for_a_hung_disk_is_cancelled_and_what_is_with_the_device_ends() {
    for spec in PolicySpec::every_composition() {
        for way in 0..3 {
            let name = spec.name();
            let mut rig = Rig::new(name);
            let (hung, neighbour) = (rig.guest(), rig.guest());
            let other_disk = rig.guest_of(hung.vm);
            for _ in 0..12 {
                rig.read(hung);
            }
            rig.dispatch();
            rig.read(neighbour);
            rig.driver.pass(DATA_SILENCE_TIMEOUT);
            assert!(rig.detect_hung_disks(), "{name}");
            rig.serve_all_but(Some(hung.disk), Nanos::from_secs(3));
            rig.flush(hung);
            let stuck = rig.driver.in_flight.len();
            let of_other = rig.read(other_disk);
            match way {
                0 => rig.driver.disconnect(hung.client),
                1 => rig.driver.remove_disk(hung.disk),
                _ => rig.driver.remove_vm(hung.vm),
            }
            rig.take_answers();
            let cancelled = rig.answers.values();
            let cancelled = cancelled.filter(|o| **o == Err(IoError::Cancelled));
            let expected = 12 - stuck + 1 + usize::from(way == 2);
            assert_eq!(cancelled.count(), expected, "{name}");
            rig.serve_all_but(Some(hung.disk), Nanos::from_secs(3));
            let served = rig.answers[&of_other] == Ok(());
            assert_eq!(served, way < 2, "{name}: the VM's other disk goes on");
            // A disk that comes meanwhile gets another slot, and is not taken for the one that
            // hangs.
            let new = rig.guest();
            assert_ne!(new.disk.index(), hung.disk.index(), "{name}");
            let of_new = rig.read(new);
            rig.serve_all_but(Some(hung.disk), Nanos::from_secs(3));
            assert_eq!(rig.answers.get(&of_new), Some(&Ok(())), "{name}");
            assert_eq!(rig.driver.in_flight.len(), stuck, "{name}");
            rig.drain();
            assert!(!rig.detect_hung_disks(), "{name}");
        }
    }
}

#[test]
fn the_policy_changes_while_a_disk_hangs() {
    let mut rig = Rig::new("fifo");
    let (hung, neighbour) = (rig.guest(), rig.guest());
    for _ in 0..12 {
        rig.read(hung);
    }
    rig.dispatch();
    rig.read(neighbour);
    rig.driver.pass(DATA_SILENCE_TIMEOUT);
    assert!(rig.detect_hung_disks());
    for spec in PolicySpec::every_composition() {
        rig.driver
            .engine
            .set_policy(rig.driver.now, &policy(spec.name()));
        let next = rig.read(neighbour);
        rig.serve_all_but(Some(hung.disk), Nanos::from_secs(3));
        assert_eq!(rig.answers.get(&next), Some(&Ok(())), "{}", spec.name());
        assert_eq!(
            rig.driver.in_flight.len(),
            DEPTH as usize + 1,
            "{}",
            spec.name()
        );
    }
    rig.drain();
}

#[test]
fn requests_of_a_disk_that_hung_go_in_the_order_of_arrival() {
    let mut rig = Rig::new("fifo");
    let hung = rig.guest();
    let (same_vm, neighbour) = (rig.guest_of(hung.vm), rig.guest());
    let mut expected = Vec::new();
    for n in 0..16 {
        let tag = rig.read(hung);
        if n > DEPTH {
            expected.push(tag);
        }
    }
    rig.dispatch();
    rig.read(neighbour);
    rig.driver.pass(DATA_SILENCE_TIMEOUT);
    assert!(rig.detect_hung_disks());
    rig.serve_all_but(Some(hung.disk), Nanos::from_millis(100));
    // The VM's other disk goes on in the same lane.
    let beside = rig.read(same_vm);
    rig.serve_all_but(Some(hung.disk), Nanos::from_millis(100));
    assert_eq!(rig.answers.get(&beside), Some(&Ok(())));
    expected.push(rig.read(hung));
    rig.serve_all_but(Some(hung.disk), Nanos::from_millis(100));
    expected.extend([rig.read(same_vm), rig.read(hung)]);
    let stuck = rig.driver.in_flight.clone();
    let mut order = Vec::new();
    rig.end(stuck[0], Ok(()));
    loop {
        while let Some(io) = rig.driver.start() {
            let segments = rig.driver.engine.io_segments(io.id);
            order.extend(segments.map(|segment| segment.tag));
        }
        let Some(&io) = rig.driver.in_flight.front() else {
            break;
        };
        rig.end(io, Ok(()));
    }
    assert_eq!(order, expected);
    rig.drain();
}

#[test]
fn no_more_ios_are_left_out_than_there_is_room_for() {
    let mut rig = Rig::new("fifo");
    let most = rig.driver.engine.config().device.uncounted_max();
    for round in 0..6 {
        let next = rig.guest();
        for _ in 0..2 * DEPTH {
            rig.read(next);
        }
        rig.dispatch();
        rig.driver.pass(DATA_SILENCE_TIMEOUT);
        let waits = rig.guest();
        rig.read(waits);
        rig.detect_hung_disks();
        rig.dispatch();
        assert!(
            rig.driver.engine.device().uncounted() <= most,
            "round {round}"
        );
        assert!(
            rig.driver.in_flight.len() as u32 <= DEPTH + most,
            "round {round}"
        );
    }
    assert_eq!(rig.driver.engine.device().uncounted(), most);
    rig.drain();
}

#[test]
fn a_merged_io_that_failed_on_a_hung_disk_goes_again_one_by_one() {
    let mut rig = Rig::new("mclock");
    let (hung, neighbour) = (rig.guest(), rig.guest());
    let together: Vec<u64> = (0..3)
        .map(|_| rig.ask(hung, |tag| Request::write(tag * 4096, 4096, tag)))
        .collect();
    rig.dispatch();
    assert_eq!(rig.driver.in_flight.len(), 1, "they are merged");
    rig.read(neighbour);
    rig.serve_all_but(Some(hung.disk), Nanos::from_millis(1100));
    rig.read(neighbour);
    rig.serve_all_but(Some(hung.disk), Nanos::from_millis(10));
    assert!(rig.detect_hung_disks());
    let io = rig.driver.in_flight[0];
    rig.end(io, Err(IoError::Io));
    assert_eq!(rig.driver.engine.device().hung_since(hung.disk), None);
    rig.dispatch();
    assert_eq!(rig.driver.in_flight.len(), 3, "each goes by itself");
    rig.drain();
    for tag in together {
        assert_eq!(rig.answers[&tag], Ok(()));
    }
}
