//! VMs and disks that are added, resized and removed while others are served.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::common::shadow::{Plan, run};
use crate::common::{Client, Server, device, disk, request, single, vm, wait};
use tidegate_core::time::Nanos;
use tidegate_nbd::client::{Handshake, Progress, Wishes};
use tidegate_nbd::{Command, NbdError};
use tidegate_server::command::CommandError;
use tidegate_server::config::{Config, Create, DeviceKind, DiskConfig, VmConfig};
use tidegate_server::daemon::ControlError;
use tidegate_server::fault::{Effect, Rule};

const MIB: u64 = 1 << 20;

/// Returns a device of each kind with one VM, `disk`.
fn kinds() -> Vec<(tempfile::TempDir, DeviceKind, bool)> {
    let model = tidegate_device::catalogue::load("nvme-1tb").unwrap();
    let emulated = DeviceKind::Emulated {
        model: Box::new(model),
    };
    let dir = || tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    vec![
        (dir(), DeviceKind::Memory, false),
        (dir(), DeviceKind::File, true),
        (dir(), emulated.clone(), false),
        (dir(), emulated, true),
    ]
}

fn config((dir, kind, file): &(tempfile::TempDir, DeviceKind, bool)) -> Config {
    let mut config = single(
        dir.path(),
        kind.clone(),
        path(dir.path(), *file, "disk"),
        MIB,
    );
    config.devices[0].scheduling.depth = 8;
    config
}

fn path(dir: &Path, file: bool, name: &str) -> Option<std::path::PathBuf> {
    file.then(|| dir.join(name))
}

fn new_disk((dir, _, file): &(tempfile::TempDir, DeviceKind, bool), name: &str) -> DiskConfig {
    disk(name, path(dir.path(), *file, name), 4 * MIB)
}

fn new_vm(place: &(tempfile::TempDir, DeviceKind, bool), name: &str) -> VmConfig {
    vm(name, 0, vec![new_disk(place, name)])
}

/// Returns true if the list of exports that a client gets contains this one.
fn is_offered(server: &Server, export: &str) -> bool {
    use std::io::{Read, Write};
    let mut stream = std::os::unix::net::UnixStream::connect(&server.socket).unwrap();
    let mut handshake = Handshake::new(export, Wishes::default());
    let mut input = Vec::new();
    loop {
        let Ok((used, progress)) = handshake.handle(&input) else {
            return false;
        };
        input.drain(..used);
        match progress {
            Progress::NeedMore(_) => {
                let mut piece = [0; 4096];
                match stream.read(&mut piece) {
                    Ok(0) | Err(_) => return false,
                    Ok(n) => input.extend_from_slice(&piece[..n]),
                }
            }
            Progress::StartTls => unreachable!("TLS is not required"),
            Progress::Send => {
                stream.write_all(handshake.output()).unwrap();
                let n = handshake.output().len();
                handshake.consume_output(n);
            }
            Progress::Ready(_) => return true,
        }
    }
}

#[test]
fn a_vm_that_is_added_is_served_and_one_that_is_removed_is_gone() {
    for place in kinds() {
        let server = Server::start(config(&place));
        assert!(!is_offered(&server, "late"));
        let now = wait(server.handle.add_vm(new_vm(&place, "late"))).unwrap();
        assert_eq!((now.disks.len(), now.disks[0].size), (1, 4 * MIB));
        let again = wait(server.handle.add_vm(new_vm(&place, "late"))).unwrap_err();
        assert!(
            matches!(again, ControlError::Taken { what: "VM", .. }),
            "{again}"
        );
        let mut rival = new_vm(&place, "rival");
        rival.disks[0].export = "late".into();
        let refused = wait(server.handle.add_vm(rival)).unwrap_err();
        let taken = matches!(&refused, ControlError::Taken { what: "export", .. });
        assert!(taken, "{refused}");
        // Two that are under way at once, as after a change that took too long to be waited for.
        let [first, second] = ["twice"; 2].map(|name| server.handle.add_vm(new_vm(&place, name)));
        let (first, second) = wait(async { tokio::join!(first, second) });
        assert!(
            first.is_ok() != second.is_ok(),
            "one of them is served: {first:?}, {second:?}"
        );
        assert!(wait(server.handle.remove_vm("twice", false)).is_ok());

        let mut client = server.connect("late");
        assert_eq!(client.negotiated.size, 4 * MIB);
        client.write(3 * MIB, &[7; 4096]);
        client.flush().unwrap();
        assert_eq!(client.read(3 * MIB, 4096), [7; 4096]);
        // Without `force` the refusal names the connected clients.
        let refused = wait(server.handle.remove_vm("late", false)).unwrap_err();
        let ControlError::Refused(CommandError::InUse(who)) = &refused else {
            panic!("{refused}");
        };
        assert!(who[0].contains("to \"late\""), "{refused}");
        assert_eq!(client.read(3 * MIB, 1), [7]);
        client.disconnect();
        loop {
            match wait(server.handle.remove_vm("late", false)) {
                Ok(failed) => break assert_eq!(failed, Vec::<String>::new()),
                // The event loop releases a client some time after its socket is closed.
                Err(ControlError::Refused(CommandError::InUse(_))) => {}
                Err(error) => panic!("{error}"),
            }
        }
        assert!(!is_offered(&server, "late"));
        let gone = wait(server.handle.remove_vm("late", false)).unwrap_err();
        assert_eq!(gone, ControlError::UnknownVm("late".into()));
        // A file keeps its content; a disk in memory starts empty.
        wait(server.handle.add_vm(new_vm(&place, "late"))).unwrap();
        let kept = if place.2 { 7 } else { 0 };
        assert_eq!(server.connect("late").read(3 * MIB, 1), [kept]);
        server.stop().unwrap();
    }
}

#[test]
fn a_listener_with_a_list_offers_what_is_on_it_once_it_is_there() {
    let place = kinds().remove(0);
    let mut config = config(&place);
    config.listeners[0].exports = vec!["late".into(), "disk".into()];
    let server = Server::start(config);
    assert!(is_offered(&server, "disk") && !is_offered(&server, "late"));
    // The first configured export is also offered under the empty name once it exists.
    assert!(!is_offered(&server, ""));
    wait(server.handle.add_vm(new_vm(&place, "late"))).unwrap();
    wait(server.handle.add_vm(new_vm(&place, "unlisted"))).unwrap();
    assert!(is_offered(&server, "late") && !is_offered(&server, "unlisted"));
    assert_eq!(server.connect("").negotiated.size, 4 * MIB);
    server.stop().unwrap();
}

#[test]
fn a_vm_removed_under_load_takes_its_clients_along_and_no_other_notices() {
    for place in kinds() {
        let mut config = config(&place);
        config.vms[0].disks[0].size = Some(8 * MIB);
        let server = Server::start(config);
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let steady = scope.spawn(|| {
                let mut rounds = 0;
                while !over.load(Ordering::Relaxed) || rounds == 0 {
                    let mut client = server.connect("disk");
                    let plan = Plan {
                        seed: rounds,
                        start: 0,
                        size: 8 * MIB,
                        block: 512,
                        blocks_max: 64,
                        depth: 16,
                        requests: 300,
                    };
                    run(&mut client, &plan);
                    rounds += 1;
                }
                rounds
            });
            for round in 0..20 {
                wait(server.handle.add_vm(new_vm(&place, "brief"))).unwrap();
                let mut clients: Vec<Client> = (0..3).map(|_| server.connect("brief")).collect();
                for (i, client) in clients.iter_mut().enumerate() {
                    for n in 0..32 {
                        let offset = (i as u64 * 32 + n) * 8192;
                        let (command, payload) = match n % 2 {
                            0 => (Command::Write, vec![round; 8192]),
                            _ => (Command::Read { df: false }, Vec::new()),
                        };
                        client.send(request(command, n, offset, 8192), &payload);
                    }
                }
                let failed = wait(server.handle.remove_vm("brief", true)).unwrap();
                assert_eq!(failed, Vec::<String>::new());
                assert!(clients.iter_mut().all(Client::is_cut_off));
                let device = wait(server.handle.snapshot(0)).unwrap();
                assert_eq!(device.vms.len(), 1, "{:?}", device.vms);
            }
            over.store(true, Ordering::Relaxed);
            assert!(steady.join().unwrap() > 0);
        });
        server.stop().unwrap();
    }
}

#[test]
fn disks_come_and_go_and_the_vms_others_stay() {
    for place in kinds() {
        let server = Server::start(config(&place));
        let mut first = server.connect("disk");
        first.write(0, &[1; 512]);
        let now = wait(server.handle.add_disk("disk", new_disk(&place, "second"))).unwrap();
        assert_eq!(now.disks.len(), 2);
        let mut second = server.connect("second");
        second.write(0, &[2; 512]);
        assert_eq!(first.read(0, 512), [1; 512]);
        let refused = wait(server.handle.remove_disk("disk", "second", false)).unwrap_err();
        assert!(
            matches!(&refused, ControlError::Refused(CommandError::InUse(_))),
            "{refused}"
        );
        wait(server.handle.remove_disk("disk", "second", true)).unwrap();
        assert!(second.is_cut_off() && !is_offered(&server, "second"));
        assert_eq!(first.read(0, 512), [1; 512]);
        let refused = wait(server.handle.remove_disk("disk", "disk", true)).unwrap_err();
        assert_eq!(refused, ControlError::LastDisk("disk".into()));
        let refused = wait(server.handle.remove_disk("disk", "third", true)).unwrap_err();
        let unknown = CommandError::UnknownDisk {
            vm: "disk".into(),
            export: "third".into(),
        };
        assert_eq!(refused, ControlError::Refused(unknown));
        server.stop().unwrap();
    }
}

#[test]
fn a_disk_that_grows_keeps_its_bytes_and_old_clients_their_end() {
    for place in kinds() {
        let server = Server::start(config(&place));
        // A neighbour directly behind the disk forces it to move to other addresses of the device.
        wait(server.handle.add_vm(new_vm(&place, "behind"))).unwrap();
        let mut old = server.connect("disk");
        old.write(MIB - 512, &[5; 512]);
        let now = wait(server.handle.resize_disk("disk", "disk", 3 * MIB, false)).unwrap();
        assert_eq!(now.disks[0].size, 3 * MIB);
        if place.2 {
            let meta = std::fs::metadata(place.0.path().join("disk")).unwrap();
            assert_eq!(meta.len(), 3 * MIB);
        }
        let beyond = old.ask(Command::Read { df: false }, MIB, 512, &[]);
        assert_eq!(beyond.result, Err(NbdError::Einval));
        assert_eq!(old.read(MIB - 512, 512), [5; 512]);
        let mut new = server.connect("disk");
        assert_eq!(new.negotiated.size, 3 * MIB);
        assert_eq!(new.read(MIB - 512, 1024), [[5; 512], [0; 512]].concat());
        new.write(3 * MIB - 4096, &[6; 4096]);
        new.flush().unwrap();
        assert_eq!(new.read(3 * MIB - 4096, 4096), [6; 4096]);
        server.stop().unwrap();
    }
}

#[test]
fn a_size_that_was_given_is_said_where_all_of_the_vm_may_be_kept() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let start = Some(dir.path().join("disk"));
    let mut config = single(dir.path(), DeviceKind::File, start, MIB);
    std::fs::write(dir.path().join("disk"), vec![0; MIB as usize]).unwrap();
    config.vms[0].disks[0].size = None;
    let server = Server::start(config);
    std::fs::write(dir.path().join("new"), vec![0; MIB as usize]).unwrap();
    let mut new = disk("new", Some(dir.path().join("new")), MIB);
    new.size = None;
    wait(server.handle.add_vm(vm("new", 0, vec![new]))).unwrap();
    for (name, size) in [("new", Some(2 * MIB)), ("disk", None)] {
        wait(server.handle.resize_disk(name, name, 2 * MIB, false)).unwrap();
        let vm = server.handle.vm(name).unwrap();
        assert_eq!(vm.disks[0].size, size, "{name}");
    }
    server.stop().unwrap();
}

#[test]
fn a_disk_shrinks_only_if_told_to_and_what_lies_beyond_is_refused() {
    for place in kinds() {
        let server = Server::start(config(&place));
        wait(server.handle.resize_disk("disk", "disk", 4 * MIB, false)).unwrap();
        let mut client = server.connect("disk");
        client.write(0, &vec![9; 4 << 20]);
        let refused = wait(server.handle.resize_disk("disk", "disk", MIB, false)).unwrap_err();
        let shrinks = CommandError::Shrinks {
            now: 4 * MIB,
            size: MIB,
        };
        assert_eq!(refused, ControlError::Refused(shrinks));
        for force in [true, false] {
            // Repeating the resize changes nothing.
            let now = wait(server.handle.resize_disk("disk", "disk", MIB, force)).unwrap();
            assert_eq!(now.disks[0].size, MIB);
        }
        // A client that was connected before continues within the new end.
        assert_eq!(client.read(MIB - 4096, 4096), [9; 4096]);
        let read = client.ask(Command::Read { df: false }, MIB, 512, &[]);
        assert_eq!(read.result, Err(NbdError::Einval));
        let across = client.ask(Command::Write, MIB - 512, 1024, &[1; 1024]);
        assert_eq!(across.result, Err(NbdError::Enospc));
        let status = Command::BlockStatus { one: false };
        let status = client.ask(status, 0, 4 << 20, &[]);
        assert_eq!(status.result, Err(NbdError::Einval));
        // The part that was cut off reads as zeroes after the disk has grown again.
        wait(server.handle.resize_disk("disk", "disk", 2 * MIB, false)).unwrap();
        let mut again = server.connect("disk");
        assert_eq!(again.negotiated.size, 2 * MIB);
        assert_eq!(again.read(MIB - 512, 1024), [[9; 512], [0; 512]].concat());
        server.stop().unwrap();
    }
}

#[test]
fn what_is_in_flight_beyond_a_nearer_end_ends_first_and_nothing_is_written_there_later() {
    for place in kinds() {
        let server = Server::start(config(&place));
        for _ in 0..10 {
            wait(server.handle.resize_disk("disk", "disk", 4 * MIB, false)).unwrap();
            let mut client = server.connect("disk");
            for n in 0..64 {
                let offset = n * (64 << 10);
                client.send(request(Command::Write, n, offset, 64 << 10), &[3; 64 << 10]);
            }
            wait(server.handle.resize_disk("disk", "disk", MIB, true)).unwrap();
            for _ in 0..64 {
                let answer = client.receive();
                let within = answer.cookie < 16;
                match answer.result {
                    Ok(_) => {}
                    Err(error) => assert!(!within && error == NbdError::Enospc, "{answer:?}"),
                }
            }
            assert_eq!(client.read(0, 1 << 20), vec![3; 1 << 20]);
            if place.2 {
                let meta = std::fs::metadata(place.0.path().join("disk")).unwrap();
                assert_eq!(meta.len(), MIB, "written beyond the end");
            }
        }
        server.stop().unwrap();
    }
}

#[test]
fn what_a_fault_rule_holds_up_does_not_hold_up_the_end() {
    for place in kinds() {
        let server = Server::start(config(&place));
        let mut new = new_vm(&place, "stalled");
        new.disks[0].faults = vec![Rule {
            stall: Nanos::from_secs(3600),
            ..Rule::always(Effect::None)
        }];
        for remove in [false, true] {
            if !remove {
                wait(server.handle.add_vm(new.clone())).unwrap();
            }
            let mut client = server.connect("stalled");
            for n in 0..8 {
                client.send(request(Command::Write, n, 3 * MIB, 4096), &[1; 4096]);
            }
            loop {
                let device = wait(server.handle.snapshot(0)).unwrap();
                if device.vms[1].in_flight > 0 {
                    break;
                }
            }
            if remove {
                wait(server.handle.remove_vm("stalled", true)).unwrap();
            } else {
                wait(server.handle.resize_disk("stalled", "stalled", MIB, true)).unwrap();
                wait(
                    server
                        .handle
                        .resize_disk("stalled", "stalled", 4 * MIB, false),
                )
                .unwrap();
            }
        }
        server.stop().unwrap();
    }
}

#[test]
fn what_cannot_be_had_changes_nothing() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let start = Some(dir.path().join("disk"));
    let mut config = single(dir.path(), DeviceKind::File, start.clone(), MIB);
    let model = tidegate_device::catalogue::load("hdd-7200-1tb").unwrap();
    let model = Box::new(model);
    let mut small = device("small", DeviceKind::Emulated { model });
    small.scheduling.depth = 1;
    config.devices.push(small);
    let server = Server::start(config);
    // The second disk's file is served by another VM.
    let mut two = vm("two", 0, vec![disk("a", Some(dir.path().join("a")), MIB)]);
    two.disks.push(disk("b", start, MIB));
    let refused = wait(server.handle.add_vm(two.clone()))
        .unwrap_err()
        .to_string();
    assert!(
        refused.contains("same file") && refused.contains("VM \"disk\""),
        "{refused}"
    );
    assert!(!is_offered(&server, "a") && server.handle.vm("two").is_none());
    // The failed attempt leaves nothing that prevents the next one.
    two.disks.pop();
    wait(server.handle.add_vm(two)).unwrap();

    let mut missing = disk("none", Some(dir.path().join("none")), MIB);
    missing.create = Create::No;
    let refused = wait(server.handle.add_disk("two", missing)).unwrap_err();
    let ControlError::Disk { what, help } = &refused else {
        panic!("{refused}");
    };
    assert!(what.contains("No such file") && help.is_some(), "{refused}");

    // Larger than the model, or grown beyond it.
    let huge = vm("huge", 1, vec![disk("huge", None, 2_000_000_000_000)]);
    let refused = wait(server.handle.add_vm(huge)).unwrap_err();
    assert!(
        matches!(&refused, ControlError::Refused(CommandError::NoRoom(_))),
        "{refused}"
    );
    wait(
        server
            .handle
            .add_vm(vm("fits", 1, vec![disk("fits", None, MIB)])),
    )
    .unwrap();
    let grown = server
        .handle
        .resize_disk("fits", "fits", 2_000_000_000_000, false);
    let refused = wait(grown).unwrap_err();
    assert!(
        matches!(&refused, ControlError::Refused(CommandError::NoRoom(_))),
        "{refused}"
    );
    let mut client = server.connect("fits");
    assert_eq!(client.negotiated.size, MIB);
    client.write(MIB - 512, &[1; 512]);
    let odd = wait(server.handle.resize_disk("two", "a", MIB + 1, false)).unwrap_err();
    assert!(odd.to_string().contains("multiple of"), "{odd}");
    server.stop().unwrap();
}
