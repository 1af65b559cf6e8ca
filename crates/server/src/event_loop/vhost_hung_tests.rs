//! Front-ends of vhost-user whose disk hangs: they are not kept waiting, and their memory stays
//! mapped until the last I/O on it has ended.

use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::time::{Duration, Instant};

use tidegate_core::objective::{Limit, Objective, Rate};
use tidegate_core::time::Nanos;
use tidegate_policies::policy::PolicySpec;
use vhost::VhostBackend;
use vhost::vhost_user::VhostUserFrontend;

use super::fault_injection_tests::{everywhere, two_disks};
use crate::command::FaultChange;
use crate::common::vhost_guest::{ALL, Guest, OUT, SLOTS, connect, listen, region};
use crate::common::{Server, single, wait};
use crate::config::DeviceKind;
use crate::fault::{Effect, Rule};

const MIB: u64 = 1 << 20;
const STEP_TIMEOUT: Duration = Duration::from_secs(30);

fn stalls() -> Rule {
    Rule {
        stall: Nanos::from_secs(3600),
        ..Rule::always(Effect::None)
    }
}

/// Waits until an I/O of the hung disk is in flight.
fn wait_for_io(server: &Server) {
    let begun = Instant::now();
    while wait(server.handle.snapshot(0)).unwrap().vms[0].in_flight == 0 {
        assert!(begun.elapsed() < STEP_TIMEOUT, "no I/O is sent");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Waits until a request waits for the disk's rate limit.
fn wait_until_one_is_pending(server: &Server) {
    let begun = Instant::now();
    while wait(server.handle.snapshot(0)).unwrap().vms[0].pending == 0 {
        assert!(begun.elapsed() < STEP_TIMEOUT, "no request waits");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Returns true if this process, which is the daemon, maps a file on tmpfs.
fn is_mapped(file: &File) -> bool {
    let inode = file.metadata().unwrap().ino().to_string();
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let of_file = |line: &str| {
        // Addresses, permissions, offset, device, inode, path.
        let mut fields = line.split_ascii_whitespace().skip(4);
        fields.next() == Some(&inode) && fields.next().is_some_and(|p| p.starts_with("/dev/shm"))
    };
    maps.lines().any(of_file)
}

#[test]
fn a_front_end_does_not_wait_for_a_disk_that_hangs() {
    type Act = fn(&mut Guest) -> bool;
    let acts: [Act; 3] = [
        |guest| guest.frontend.get_vring_base(0).is_err(),
        |guest| {
            let table = [region(&guest.memory)];
            guest.frontend.set_mem_table(&table).is_err()
        },
        |guest| guest.frontend.reset_device().is_err(),
    ];
    // Side by side, because most of the time is spent on waiting.
    std::thread::scope(|scope| {
        for (round, (place, act)) in (1..).zip(everywhere().into_iter().zip(acts.iter().cycle())) {
            scope.spawn(move || leaves_a_hung_disk(&place, round, act));
        }
    });
}

/// Has a front-end do what needs an answer of the loop, while a write of its bytes hangs.
fn leaves_a_hung_disk(
    place: &(tempfile::TempDir, DeviceKind),
    byte: u8,
    act: impl Fn(&mut Guest) -> bool,
) {
    let mut config = two_disks(place, 4 * MIB, &[stalls()]);
    listen(&mut config, place.0.path());
    let socket = place.0.path().join("disk.vhost");
    let server = Server::start(config);
    let mut other = server.connect("other");
    let mut guest = Guest::start(&socket, ALL, 1);
    guest.submit(0, OUT, 0, &[byte; 4096]);
    guest.kick(0, 1);
    wait_for_io(&server);
    assert!(act(&mut guest), "an error, not an answer");
    assert!(guest.is_cut_off());
    other.write(0, &[byte; 4096]);
    // The I/O is still to read from the guest's memory, and no other may overtake it.
    assert!(is_mapped(&guest.memory));
    assert!(connect(&socket, ALL).is_err(), "the next front-end");
    wait(server.handle.change_faults(0, "disk", FaultChange::Clear)).unwrap();
    let mut next = Guest::start(&socket, ALL, 1);
    assert!(!is_mapped(&guest.memory));
    assert_eq!(next.read(0, 4096), [byte; 4096], "it was written");
    next.leave();
    server.stop().unwrap();
}

#[test]
fn a_front_end_waits_for_a_slow_disk_that_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = single(dir.path(), DeviceKind::Memory, None, 4 * MIB);
    listen(&mut config, dir.path());
    config.devices[0].scheduling.policy = PolicySpec::named("limit").unwrap();
    config.devices[0].scheduling.merge_limit = 0;
    // All requests take longer than the bound on the silence between two of them, which is 2 s in
    // unit tests.
    config.vms[0].objective = Objective {
        limit: Limit::of_all(Rate::iops(4)),
        ..Objective::default()
    };
    let server = Server::start(config);
    let mut guest = Guest::start(&dir.path().join("disk.vhost"), ALL, 1);
    for n in 0..14 {
        guest.submit(0, OUT, n * 8, &[n as u8; 4096]);
    }
    guest.kick(0, 14);
    wait_until_one_is_pending(&server);
    assert_eq!(guest.stop_queue(0), 14);
    assert_eq!(guest.take_answers(0).len(), 14);
    server.stop().unwrap();
}

#[test]
fn a_front_end_waits_for_requests_that_an_earlier_session_left_while_they_go_on() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = single(dir.path(), DeviceKind::Memory, None, 4 * MIB);
    listen(&mut config, dir.path());
    let scheduling = &mut config.devices[0].scheduling;
    scheduling.policy = PolicySpec::named("limit").unwrap();
    scheduling.merge_limit = 0;
    // As many are in flight all the time, while fewer and fewer are left.
    scheduling.max_pending_per_vm = 2;
    config.vms[0].objective = Objective {
        limit: Limit::of_all(Rate::iops(4)),
        ..Objective::default()
    };
    let server = Server::start(config);
    let socket = dir.path().join("disk.vhost");
    let mut guest = Guest::start_recorded(&socket, ALL, 1);
    for n in 0..SLOTS {
        guest.submit(0, OUT, u64::from(n) * 8, &[n as u8 + 1; 4096]);
    }
    guest.kick(0, SLOTS);
    wait_until_one_is_pending(&server);
    // The session ends without order. By its record all were taken: `MARK` and `COUNTER` of their
    // entries, behind a head of 16 bytes.
    guest.begin_again(&socket).unwrap();
    let answered = guest.take_answers(0).len() as u16;
    let (_, record) = guest.record.as_ref().unwrap();
    for slot in u64::from(answered)..u64::from(SLOTS) {
        let entry = 16 + 16 * 3 * slot;
        record.write_all_at(&[1], entry).unwrap();
        record.write_all_at(&slot.to_le_bytes(), entry + 8).unwrap();
    }
    (guest.frontend)
        .set_mem_table(&[region(&guest.memory)])
        .unwrap();
    guest.restart_at(0, answered);
    assert_eq!(guest.stop_queue(0), SLOTS);
    guest.take_answers(0);
    assert_eq!(guest.in_flight(0), 0, "all are answered");
    server.stop().unwrap();
}
