//! BD-EDF's behaviours; in `rules`, it against its rules in linear scans.

mod rules;

use crate::common::*;
use tidegate_core::objective::Objective;
use tidegate_core::request::{Op, ReqId, Request, VmId};
use tidegate_core::roles::Roles;
use tidegate_core::roles::{Event, Gate, Interests, Regulator, Reopened, Stage};
use tidegate_core::time::Nanos;
use tidegate_core::view::View;

/// A disk of depth `depth` with three guests, one I/O after the other.
struct Disk {
    world: World,
    guests: Vec<Guest>,
}

const SEEK: u64 = 8 * MS;

impl Disk {
    /// With parameters other than the product's.
    fn new(depth: u32, others: &[(&str, u64)]) -> Disk {
        let mut config = config(depth, 0);
        config.device.positioning = Nanos(SEEK);
        config.device.bytes_per_s = 100_000_000;
        let mut spec = policy("open+bd-edf");
        for &(name, value) in others {
            spec.set(name, value).expect("in range");
        }
        let mut world = World::with_config(config, "open+bd-edf", 10 * MS);
        world.driver.engine.set_policy(Nanos::ZERO, &spec);
        world.driver.now.0 = SECOND;
        let promised = Objective {
            latency: Some(Nanos::from_millis(109)),
            ..Objective::default()
        };
        let guests = (0..3).map(|_| world.guest(&promised)).collect();
        Disk { world, guests }
    }

    /// Creates the disk with the paper's parameters and `others`.
    fn of_the_paper(others: &[(&str, u64)]) -> Disk {
        let paper = [("bound_waits", 0), ("deep_queue", 0)];
        Disk::new(32, &[&paper, others].concat())
    }

    /// A guest asks for a block.
    fn ask(&mut self, guest: usize, block: u64) {
        let client = self.guests[guest].client;
        let request = Request::read(block * 4096, 4096, u64::MAX);
        let taken = self.world.driver.request(client, request);
        taken.expect("room");
    }

    /// Runs until `ms` milliseconds from the beginning. Returns the time in ms, the guest and the
    /// block of each start.
    fn until(&mut self, ms: u64) -> Vec<(u64, usize, u64)> {
        let end = SECOND + ms * MS;
        self.world.run(end - self.world.now());
        let log = self.world.driver.log.iter().map(|s| {
            let guest = self.guests.iter().position(|g| g.vm == s.io.vm);
            let ms = (s.at - SECOND) / MS;
            (ms, guest.unwrap_or(usize::MAX), s.io.offset / 4096)
        });
        log.collect()
    }

    fn waits(&self) -> (u64, u64) {
        let waits = self.world.driver.engine.device().waits().expect("it waits");
        (waits.begun, waits.succeeded)
    }
}

#[test]
fn the_paper_waits_for_the_last_vm_until_the_deadline_needs_the_disk() {
    let mut disk = Disk::of_the_paper(&[]);
    disk.ask(0, 100);
    disk.until(5);
    disk.ask(1, 500);
    // Guest 0 has its answer at 10 and says nothing; guest 1 is due 100 ms after it came, and
    // 44 KiB take 0.45 ms.
    let log = disk.until(200);
    assert_eq!(log, [(0, 0, 100), (104, 1, 500)]);
    assert_eq!(disk.waits(), (1, 0));
}

#[test]
fn a_request_of_the_last_vm_ends_the_wait() {
    let mut disk = Disk::of_the_paper(&[]);
    disk.ask(0, 100);
    disk.until(5);
    disk.ask(1, 500);
    disk.until(30);
    disk.ask(0, 900);
    disk.until(60);
    disk.ask(0, 901);
    let log = disk.until(200);
    assert_eq!(
        log,
        [(0, 0, 100), (30, 0, 900), (60, 0, 901), (104, 1, 500)]
    );
    assert_eq!(disk.waits(), (3, 2));
}

#[test]
fn what_continues_the_last_io_goes_before_what_is_near_and_that_before_what_came_first() {
    let mut disk = Disk::of_the_paper(&[]);
    disk.ask(0, 100);
    disk.until(1);
    for block in [300, 90, 104, 101, 500] {
        disk.ask(0, block);
    }
    disk.ask(1, 7);
    let order: Vec<u64> = disk.until(99).iter().map(|&(_, _, block)| block).collect();
    assert_eq!(order, [100, 101, 104, 90, 300, 500]);
}

#[test]
fn in_the_paper_a_batch_goes_on_with_the_next_of_the_sorted_queue_alone() {
    let next = [("batch_order", 1)];
    let mut disk = Disk::of_the_paper(&next);
    disk.ask(0, 100);
    disk.until(1);
    for block in [300, 90, 104] {
        disk.ask(0, block);
    }
    disk.ask(1, 7);
    // Block 90 lies behind the head, and no other of the first guest is ahead of 300: the disk
    // waits at 30, until a request of that guest comes, which need not be ahead.
    let order = disk.until(40);
    assert_eq!(order, [(0, 0, 100), (10, 0, 104), (20, 0, 300)]);
    disk.ask(0, 20);
    let order = disk.until(55);
    // From 20 the next of the sorted queue is block 90.
    assert_eq!(order[3..], [(40, 0, 20), (50, 0, 90)]);
    assert_eq!(disk.waits(), (1, 1));
}

#[test]
fn a_head_past_its_deadline_goes_with_no_wait_and_before_what_is_suitable() {
    let mut disk = Disk::of_the_paper(&[]);
    disk.ask(1, 500);
    disk.ask(0, 99);
    disk.until(5);
    disk.world.stall(200 * MS);
    disk.ask(1, 501);
    // Guest 1 had gone last, but guest 0 is late.
    let log = disk.until(300);
    assert_eq!(log, [(0, 1, 500), (205, 0, 99)]);
}

#[test]
fn a_wait_has_a_cap_where_one_is_set() {
    let mut disk = Disk::of_the_paper(&[("max_wait", 20 * MS)]);
    disk.ask(0, 100);
    disk.until(5);
    disk.ask(1, 500);
    assert_eq!(disk.until(200), [(0, 0, 100), (30, 1, 500)]);
}

#[test]
fn an_idle_disk_that_nobody_waited_at_serves_whoever_comes_at_once() {
    let mut disk = Disk::of_the_paper(&[]);
    disk.ask(0, 100);
    disk.until(50);
    disk.ask(1, 500);
    assert_eq!(disk.until(200), [(0, 0, 100), (50, 1, 500)]);
    assert_eq!(disk.waits(), (0, 0));
}

#[test]
fn a_wait_lasts_no_longer_than_the_seek_it_may_save() {
    let mut disk = Disk::new(1, &[]);
    disk.ask(0, 100);
    disk.until(5);
    disk.ask(1, 500);
    assert_eq!(disk.until(200), [(0, 0, 100), (18, 1, 500)]);
    assert_eq!(disk.waits(), (1, 0));
}

#[test]
fn nobody_waits_for_a_vm_that_thinks_longer_than_a_seek() {
    let mut disk = Disk::new(1, &[]);
    for turn in 0..3 {
        // An answer at 10 ms, the next request 12 ms later.
        disk.ask(0, 100);
        disk.until(turn * 22 + 5);
        if turn == 2 {
            disk.ask(1, 500);
        }
        disk.until(turn * 22 + 22);
    }
    assert_eq!(disk.until(200).last(), Some(&(54, 1, 500)));
    assert_eq!(disk.waits(), (0, 0));
}

#[test]
fn a_flash_disk_never_waits_and_keeps_to_deadlines() {
    let mut disk = Disk::new(1, &[]);
    let mut world = World::new("open+bd-edf", 10 * MS);
    std::mem::swap(&mut disk.world, &mut world);
    drop(world);
    disk.world.driver.now.0 = SECOND;
    let guest = |disk: &mut Disk, ms| {
        disk.world.guest(&Objective {
            latency: Some(Nanos::from_millis(ms)),
            ..Objective::default()
        })
    };
    disk.guests = [109, 50].map(|ms| guest(&mut disk, ms)).to_vec();
    disk.ask(0, 100);
    disk.until(5);
    disk.ask(0, 101);
    disk.ask(1, 500);
    assert_eq!(disk.until(200), [(0, 0, 100), (10, 1, 500), (20, 0, 101)]);
    assert_eq!(disk.waits(), (0, 0));
}

#[test]
fn more_goes_in_flight_only_while_the_earliest_deadline_leaves_room_for_all() {
    let mut disk = Disk::new(32, &[]);
    // Each is due in 100 ms; one takes the disk 8 ms and little for its 4 KiB: 12 of them fit.
    for block in 0..40 {
        disk.ask(0, block * 100);
    }
    let log = disk.until(1);
    assert_eq!(log.len(), 12);
    let mut disk = Disk::new(32, &[("deep_queue", 0)]);
    for block in 0..40 {
        disk.ask(0, block * 100);
    }
    assert_eq!(disk.until(1).len(), 1);
}

#[test]
fn the_background_goes_in_batches_while_no_vm_waits() {
    let mut disk = Disk::of_the_paper(&[]);
    let backup = disk.world.background();
    disk.guests.push(backup);
    for block in [40, 900, 20, 41, 60] {
        disk.ask(3, block);
    }
    disk.until(15);
    disk.ask(0, 7);
    let log = disk.until(300);
    let order: Vec<(usize, u64)> = log
        .iter()
        .map(|&(_, guest, block)| (guest, block))
        .collect();
    // From the oldest upwards; the VM's at once; a new batch begins with the oldest.
    assert_eq!(
        order,
        [(3, 40), (3, 41), (0, 7), (3, 900), (3, 20), (3, 60)]
    );
    assert_eq!(disk.waits(), (0, 0));
}

#[test]
fn the_background_is_passed_over_for_ever_unless_it_is_promoted() {
    let last = |promote: u64| {
        let mut disk = Disk::of_the_paper(&[("promote_background_after", promote)]);
        let backup = disk.world.background();
        disk.guests.push(backup);
        disk.world.load(disk.guests[0], Op::Read, 4096, 4);
        for block in [1, 2, 3] {
            disk.ask(3, block);
        }
        let log = disk.until(2000);
        let times = log.iter().filter(|(_, guest, _)| *guest == 3).map(|s| s.0);
        times.collect::<Vec<u64>>()
    };
    assert_eq!(last(0), [0; 0]);
    // One each 300 ms, when the I/O that is in flight has ended.
    assert_eq!(last(300 * MS), [300, 600, 900]);
}

/// Regulator that admits the given number of units of each VM, and none after them.
struct Purse(Vec<u32>);

impl Regulator for Purse {
    fn stage(&self) -> Stage {
        Stage::Admission
    }

    fn interests(&self) -> Interests {
        Interests::ADMITTED.union(Interests::VMS)
    }

    fn gate(&self, view: &View, unit: ReqId) -> Gate {
        if self.admits(view, view.queued(unit).unit().vm) {
            Gate::Pass
        } else {
            Gate::Blocked
        }
    }

    fn admits(&self, _view: &View, vm: VmId) -> bool {
        self.0[vm.index()] > 0
    }

    fn on_event(&mut self, view: &View, event: &Event, _: &mut Reopened) {
        match *event {
            Event::Admitted(unit) => self.0[view.queued(unit).unit().vm.index()] -= 1,
            Event::VmAdded(vm) => self.0[vm.index()] = 2,
            _ => {}
        }
    }
}

fn with_purses(disk: &mut Disk) {
    let now = disk.world.time();
    disk.world.driver.engine.wrap_roles(now, |roles| Roles {
        regulator: Box::new(Purse(vec![0; 128])),
        ..roles
    });
}

#[test]
fn nobody_waits_for_a_vm_that_has_nothing_left_to_spend() {
    let mut disk = Disk::of_the_paper(&[]);
    with_purses(&mut disk);
    disk.ask(0, 100);
    disk.ask(0, 101);
    disk.until(15);
    disk.ask(1, 500);
    assert_eq!(disk.until(200), [(0, 0, 100), (10, 0, 101), (20, 1, 500)]);
    assert_eq!(disk.waits(), (0, 0));
}

#[test]
fn a_unit_that_grows_before_it_is_admitted_is_not_picked() {
    let mut disk = Disk::of_the_paper(&[]);
    let mut config = *disk.world.driver.engine.config();
    (config.merge_limit, config.device.depth) = (64 * KIB, 1);
    let promised = *disk.world.driver.engine.vms().objective(disk.guests[0].vm);
    disk.world = World::with_config(config, "open+bd-edf", 10 * MS);
    disk.world.driver.now.0 = SECOND;
    disk.guests = vec![disk.world.guest(&promised)];
    with_purses(&mut disk);
    for block in [100, 200, 301, 300] {
        disk.ask(0, block);
    }
    // 300 went to the front of 301, which has no credit.
    assert_eq!(disk.until(100), [(0, 0, 100), (10, 0, 200)]);
}

#[test]
fn nobody_waits_for_a_vm_that_was_removed() {
    let mut disk = Disk::of_the_paper(&[]);
    disk.ask(0, 100);
    disk.until(5);
    disk.ask(1, 500);
    disk.until(15);
    assert_eq!(disk.waits(), (1, 0));
    let gone = disk.guests[0];
    disk.world.driver.remove_vm(gone.vm);
    assert_eq!(disk.until(200).last(), Some(&(15, 1, 500)));
}

#[test]
fn of_several_disks_with_others_between_the_first_to_come_is_next() {
    let mut disk = Disk::of_the_paper(&[]);
    let vm = disk.guests[0].vm;
    let client = disk.world.driver.guest_at(vm, 10 << 40, 1 << 40).client;
    let ask = |disk: &mut Disk, block: u64| {
        let request = Request::read(block * 4096, 4096, u64::MAX);
        let taken = disk.world.driver.request(client, request);
        taken.expect("room");
    };
    disk.ask(0, 100);
    disk.until(0);
    disk.ask(2, 1);
    // Guest 2's lies between guest 0's disks.
    ask(&mut disk, 9);
    ask(&mut disk, 8);
    let order: Vec<u64> = disk.until(99).iter().map(|&(_, _, block)| block).collect();
    assert_eq!(order[..3], [100, 9, 8]);
    disk.world.driver.disconnect(client);
}
