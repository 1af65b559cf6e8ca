//! Hung disks in a whole daemon: other disks go on, and the snapshot reports the hang.

use std::time::{Duration, Instant};

use tidegate_core::time::Nanos;
use tidegate_nbd::{Command, NbdError};

use super::fault_injection_tests::{everywhere, two_disks};
use crate::command::{DeviceSnapshot, FaultChange};
use crate::common::{Server, request, wait};
use crate::fault::{Effect, Rule};

const MIB: u64 = 1 << 20;
/// Deadline for any step of these tests, long enough for a busy machine.
const STEP_TIMEOUT: Duration = Duration::from_secs(30);

fn stalls() -> Rule {
    Rule {
        stall: Nanos::from_secs(3600),
        ..Rule::always(Effect::None)
    }
}

fn snapshot(server: &Server) -> DeviceSnapshot {
    wait(server.handle.snapshot(0)).expect("the loop runs")
}

/// Takes snapshots until one satisfies `wanted`; panics with `what` after [`STEP_TIMEOUT`].
fn until(server: &Server, what: &str, wanted: impl Fn(&DeviceSnapshot) -> bool) -> DeviceSnapshot {
    let begun = Instant::now();
    loop {
        let now = snapshot(server);
        if wanted(&now) {
            return now;
        }
        assert!(begun.elapsed() < STEP_TIMEOUT, "{what} never came: {now:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_disk_that_hangs_stops_no_neighbour_and_goes_on_where_it_was() {
    for place in everywhere() {
        let mut config = two_disks(&place, 4 * MIB, &[stalls()]);
        config.devices[0].scheduling.depth = 4;
        let server = Server::start(config);
        let (mut hung, mut other) = (server.connect("disk"), server.connect("other"));
        for i in 0..12 {
            let request = request(Command::Write, i, (i * 128) << 10, 4096);
            hung.send(request, &[7; 4096]);
        }
        until(&server, "a full device", |now| now.stats.in_flight == 4);
        // The write is answered within the test client's timeout although the device's depth is
        // full.
        other.write(0, &[1; 4096]);
        assert_eq!(other.read(0, 4096), vec![1; 4096]);
        let now = until(&server, "the probe", |now| now.uncounted == 5);
        let [disk, neighbour] = [0, 1].map(|vm| &now.vms[vm].disks[0]);
        assert!(disk.hung.is_some_and(|silence| silence >= Nanos::SECOND));
        assert!(disk.oldest_io >= disk.hung, "{disk:?}");
        assert_eq!((neighbour.hung, neighbour.oldest_io), (None, None));
        assert_eq!(now.oldest_io, disk.oldest_io);
        assert_eq!((now.vms[0].in_flight, now.vms[0].pending), (5, 7));
        for i in 0..200 {
            other.write(i * 4096, &[i as u8; 4096]);
        }
        assert_eq!(other.flush(), Ok(()));

        wait(server.handle.change_faults(0, "disk", FaultChange::Clear)).expect("it is there");
        for _ in 0..12 {
            assert_eq!(hung.receive().result, Ok(Vec::new()));
        }
        let now = snapshot(&server);
        assert_eq!((now.uncounted, now.stats.in_flight), (0, 0));
        assert_eq!(now.vms[0].disks[0].hung, None);
        for i in 0..12 {
            assert_eq!(hung.read((i * 128) << 10, 4096), vec![7; 4096]);
        }
        server.stop().expect("every disk is flushed");
    }
}

#[test]
fn a_vm_whose_disk_hangs_can_lose_its_client_and_be_removed() {
    for place in everywhere() {
        let mut config = two_disks(&place, 4 * MIB, &[stalls()]);
        config.devices[0].scheduling.depth = 4;
        let server = Server::start(config);
        let (mut hung, mut other) = (server.connect("disk"), server.connect("other"));
        for i in 0..12 {
            hung.send(
                request(Command::Read { df: false }, i, (i * 128) << 10, 4096),
                &[],
            );
        }
        until(&server, "a full device", |now| now.stats.in_flight == 4);
        other.write(0, &[1; 4096]);
        until(&server, "the probe", |now| now.uncounted == 5);
        drop(hung);
        let now = until(&server, "the cancelled", |now| now.vms[0].pending == 0);
        assert_eq!((now.uncounted, now.vms[0].in_flight), (5, 5));
        // Requests of a new client of the hung disk wait, and the other disk goes on.
        let mut again = server.connect("disk");
        again.send(request(Command::Read { df: false }, 1, 0, 4096), &[]);
        until(&server, "the new request", |now| now.vms[0].pending == 1);
        other.write(0, &[2; 4096]);
        std::thread::scope(|scope| {
            let removed = scope.spawn(|| wait(server.handle.remove_vm("disk", true)));
            let gone = |now: &DeviceSnapshot| now.vms.iter().all(|vm| vm.name != "disk");
            until(&server, "the removal", gone);
            other.write(0, &[3; 4096]);
            assert_eq!(other.read(0, 4096), vec![3; 4096]);
            // The fault rule's stalls end when the disk is removed, so that its file can be closed.
            until(&server, "the end of its I/Os", |now| now.uncounted == 0);
            let removed = removed.join().expect("no panic");
            assert_eq!(removed.map_err(|error| error.to_string()), Ok(Vec::new()));
        });
        server.stop().expect("every disk is flushed");
    }
}

#[test]
fn an_error_of_a_disk_that_hung_is_its_own() {
    for place in everywhere() {
        let failing = Rule {
            stall: Nanos::from_secs(3),
            ..Rule::always(Effect::Error(tidegate_core::request::IoError::Io))
        };
        let mut config = two_disks(&place, 4 * MIB, &[failing]);
        config.devices[0].scheduling.depth = 2;
        let server = Server::start(config);
        let (mut hung, mut other) = (server.connect("disk"), server.connect("other"));
        for i in 0..2 {
            hung.send(
                request(Command::Read { df: false }, i, (i * 128) << 10, 4096),
                &[],
            );
        }
        until(&server, "a full device", |now| now.stats.in_flight == 2);
        other.write(0, &[1; 4096]);
        for _ in 0..2 {
            assert_eq!(hung.receive().result, Err(NbdError::Eio));
        }
        assert_eq!(other.read(0, 4096), vec![1; 4096]);
        until(&server, "the end", |now| now.uncounted == 0);
        server.stop().expect("every disk is flushed");
    }
}
