//! Recordings of a running daemon, against the requests that its clients have sent.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use tidegate_core::objective::{Limit, Objective, Rate};
use tidegate_core::request::{IoError, Op};
use tidegate_nbd::Command;
use tidegate_policies::policy::PolicySpec;
use tidegate_recording::{Change, Recording, Request};
use tidegate_server::config::{Config, DeviceKind, LimitGroup, RecordingConfig};
use tidegate_server::daemon::DeviceRecordings;

use crate::common::process::{Process, served_directory, wait_for_end_of_test};
use crate::common::{Client, Server, disk, request, single, vm};

const MIB: u64 = 1 << 20;
const STEP_TIMEOUT: Duration = Duration::from_secs(60);

/// Returns a configuration with one disk in memory, whose device is recorded from the start on.
fn recorded(dir: &Path) -> Config {
    let mut config = single(dir, DeviceKind::Memory, None, 64 * MIB);
    config.recording = Some(RecordingConfig {
        directory: dir.join("recordings"),
        max_bytes: 64 * MIB,
        devices: vec![0],
    });
    config
}

/// Returns the files of the device, oldest first.
fn files(dir: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(dir.join("recordings/device")) else {
        return Vec::new();
    };
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.expect("a file").path()).collect();
    files.sort();
    files
}

fn read(file: &Path) -> Recording {
    let bytes = std::fs::read(file).expect("readable");
    Recording::read(bytes.as_slice(), usize::MAX).expect("a recording")
}

/// Request as a client has sent it: operation, FUA, address, length.
type Sent = (u8, bool, u64, u32);

/// Sends requests of all kinds, some of them at once, and returns what was sent.
fn load(client: &mut Client, seed: u64, requests: u64) -> Vec<Sent> {
    let mut rng = Pcg64::seed_from_u64(seed);
    let mut sent = Vec::new();
    let mut in_flight = 0;
    for cookie in 0..requests {
        let len = 512 * rng.random_range(1..=32);
        let offset = 512 * rng.random_range(0..64 * MIB / 512 - 32);
        let (op, command) = match rng.random_range(0..10) {
            0 => (Op::Flush, Command::Flush),
            1 => (Op::Discard, Command::Trim),
            2 => (
                Op::WriteZeroes,
                Command::WriteZeroes {
                    no_hole: true,
                    fast_zero: false,
                },
            ),
            3..6 => (Op::Write, Command::Write),
            _ => (Op::Read, Command::Read { df: false }),
        };
        let (offset, len) = if op == Op::Flush {
            (0, 0)
        } else {
            (offset, len)
        };
        let mut asked = request(command, cookie, offset, len);
        asked.fua = op == Op::Write && rng.random_bool(0.5);
        let payload = vec![7; if op == Op::Write { len as usize } else { 0 }];
        client.send(asked, &payload);
        sent.push((op as u8, asked.fua, offset, len));
        in_flight += 1;
        if in_flight == 8 {
            client.receive().result.expect("it succeeds");
            in_flight -= 1;
        }
    }
    for _ in 0..in_flight {
        client.receive().result.expect("it succeeds");
    }
    sent
}

fn as_sent(requests: &[Request]) -> Vec<Sent> {
    let mut sent: Vec<Sent> = (requests.iter())
        .map(|it| (it.op as u8, it.fua, it.offset, it.len))
        .collect();
    sent.sort_unstable();
    sent
}

fn sorted(mut sent: Vec<Sent>) -> Vec<Sent> {
    sent.sort_unstable();
    sent
}

#[test]
fn every_request_is_in_the_recording_once_with_its_times() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut config = recorded(dir.path());
    config
        .vms
        .push(vm("other", 0, vec![disk("other", None, 64 * MIB)]));
    let server = Server::start(config);
    let mut of_vms = BTreeMap::new();
    let clients = ["disk", "other"].map(|name| server.connect(name));
    for (mut client, name) in clients.into_iter().zip(["disk", "other"]) {
        of_vms.insert(
            name.to_owned(),
            load(&mut client, name.len() as u64, 10_000),
        );
    }
    server.stop().expect("in order");
    let [file] = &files(dir.path())[..] else {
        panic!("one file: {:?}", files(dir.path()))
    };
    let recording = read(file);
    assert!(recording.is_whole() && recording.summary.is_complete);
    for request in &recording.requests {
        let times = [
            request.arrived,
            request.admitted,
            request.sent,
            request.done,
        ];
        assert!(times.is_sorted(), "{request:?}");
        assert_eq!(request.outcome, Ok(()));
        assert_eq!(request.keep_allocated, request.op == Op::WriteZeroes);
    }
    for (name, sent) in of_vms {
        let of_vm = recording.requests.iter().filter(|request| {
            let vm = recording.inventory.vm_of_disk(request.disk);
            vm.expect("its disk is known").name == name
        });
        let of_vm: Vec<Request> = of_vm.copied().collect();
        assert_eq!(as_sent(&of_vm), sorted(sent), "{name}");
    }
    let bytes = std::fs::metadata(file).expect("there").len();
    let per_request = bytes as f64 / recording.requests.len() as f64;
    assert!(per_request <= 16.0, "{per_request} bytes a request");
    let header = &recording.header;
    assert_eq!(
        (header.device.name.as_str(), header.device.kind.as_str()),
        ("device", "memory")
    );
    assert_eq!(header.device.policy.name, "fifo");
    assert!(header.started_unix_ns > 1_600_000_000_000_000_000);
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_stand_between_the_requests_before_and_behind_them() {
    let dir = tempfile::tempdir().expect("a directory");
    let server = Server::start(recorded(dir.path()));
    let handle = server.handle.clone();
    let mut client = server.connect("disk");
    let before = load(&mut client, 1, 1000);
    let policy = PolicySpec::named("mclock").expect("registered");
    handle.set_policy(0, policy).await.expect("taken");
    let objective = Objective {
        reservation: Rate::iops(40),
        ..Objective::default()
    };
    handle
        .set_objective("disk", objective)
        .await
        .expect("taken");
    handle
        .add_vm(vm("late", 0, vec![disk("late", None, MIB)]))
        .await
        .expect("room");
    let behind = load(&mut client, 2, 1000);
    let of_late = load_of_small_disk(&mut server.connect("late"));
    handle.remove_vm("late", true).await.expect("there");
    let mib = 128 * MIB;
    handle
        .resize_disk("disk", "disk", mib, false)
        .await
        .expect("memory");
    server.stop().expect("in order");
    let recording = read(&files(dir.path())[0]);
    let names: Vec<String> = (recording.changes.iter())
        .map(|(_, change)| match change {
            Change::Policy { policy } => policy.name.clone(),
            Change::Objective { objective, .. } => objective.reservation.clone().expect("it has"),
            Change::VmAdded { vm } => format!("{} added", vm.name),
            Change::VmRemoved { vm } => format!("{vm} removed"),
            Change::DiskResized { size_bytes, .. } => format!("{size_bytes} bytes"),
            other => panic!("{other:?}"),
        })
        .collect();
    let resized = format!("{mib} bytes");
    // The drain has its own policy, under which nothing waits for its limit.
    let expected = [
        "mclock",
        "40 IOPS",
        "late added",
        "1 removed",
        &resized,
        "fifo",
    ];
    assert_eq!(names, expected);
    let at = recording.changes[0].0;
    let (early, late): (Vec<Request>, Vec<Request>) =
        (recording.requests.iter()).partition(|request| request.done <= at);
    assert_eq!(as_sent(&early), sorted(before));
    let (of_late_vm, late): (Vec<Request>, Vec<Request>) =
        (late.iter()).partition(|request| request.disk == 1);
    assert_eq!(as_sent(&late), sorted(behind));
    assert_eq!(as_sent(&of_late_vm), of_late);
    let removed = recording.inventory.vm_of_disk(1);
    assert_eq!(removed.map(|vm| vm.name.as_str()), Some("late"));
}

fn load_of_small_disk(client: &mut Client) -> Vec<Sent> {
    client.write(4096, &[1; 4096]);
    client.read(8192, 512);
    vec![
        (Op::Read as u8, false, 8192, 512),
        (Op::Write as u8, false, 4096, 4096),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn a_recording_begins_and_ends_while_the_device_is_served() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut config = recorded(dir.path());
    if let Some(recording) = &mut config.recording {
        recording.devices.clear();
    }
    let server = Server::start(config);
    let recordings = DeviceRecordings::of(&server.handle);
    let mut client = server.connect("disk");
    load(&mut client, 1, 100);
    assert_eq!(
        files(dir.path()),
        Vec::<PathBuf>::new(),
        "it is off by default"
    );
    recordings.switch(0, false).await.expect("it is off");
    recordings.switch(0, true).await.expect("a directory");
    let refused = recordings.switch(0, true).await.expect_err("it is on");
    assert!(refused.to_string().contains("already"), "{refused}");
    let sent = load(&mut client, 2, 5000);
    recordings.switch(0, false).await.expect("it is on");
    load(&mut client, 3, 100);
    recordings.switch(0, true).await.expect("again");
    let again = load(&mut client, 4, 100);
    server.stop().expect("in order");
    let recordings: Vec<Recording> = files(dir.path()).iter().map(|file| read(file)).collect();
    let [first, second] = &recordings[..] else {
        panic!("two files: {}", recordings.len())
    };
    assert_eq!(as_sent(&first.requests), sorted(sent));
    assert_eq!(as_sent(&second.requests), sorted(again));
    assert!(first.is_whole() && second.is_whole());
}

#[test]
fn a_recording_tells_which_vms_have_limits_of_disks() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut config = recorded(dir.path());
    let limit = Limit::of_all(Rate::iops(1000));
    let name = "logs".to_owned();
    config.devices[0].limit_groups = vec![LimitGroup { name, limit }];
    let with = |name: &str, limit: Limit, group: Option<&str>| {
        let mut disk = disk(name, None, MIB);
        (disk.limit, disk.limit_group) = (limit, group.map(str::to_owned));
        vm(name, 0, vec![disk])
    };
    config.vms.push(with("own", limit, None));
    config.vms.push(with("shared", Limit::NONE, Some("logs")));
    let server = Server::start(config);
    server
        .connect("disk")
        .send(request(Command::Flush, 1, 0, 0), &[]);
    server.stop().expect("it ends in order");
    let recording = read(&files(dir.path())[0]);
    let vms = recording.header.vms.iter();
    let limited: Vec<_> = vms.map(|vm| (vm.name.as_str(), vm.disk_limits)).collect();
    assert_eq!(limited, [("disk", false), ("own", true), ("shared", true)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_directory_nothing_is_recorded_and_the_reason_is_said() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut config = recorded(dir.path());
    config.recording = None;
    let server = Server::start(config);
    let refused = DeviceRecordings::of(&server.handle).switch(0, true).await;
    let refused = refused.expect_err("no directory").to_string();
    assert!(refused.contains("no directory for recordings"), "{refused}");
    // A file stands in the place of the directory: the daemon serves all the same.
    let dir = tempfile::tempdir().expect("a directory");
    std::fs::write(dir.path().join("recordings"), "x").expect("writable");
    let server = Server::start(recorded(dir.path()));
    load(&mut server.connect("disk"), 1, 100);
    let refused = DeviceRecordings::of(&server.handle).switch(0, true).await;
    let refused = refused.expect_err("no directory").to_string();
    assert!(refused.contains("recordings"), "{refused}");
}

#[test]
fn a_request_that_is_refused_at_once_is_not_recorded() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut config = recorded(dir.path());
    config.vms[0].disks[0].read_only = true;
    let server = Server::start(config);
    let mut client = server.connect("disk");
    client.read(0, 4096);
    // The engine does not take it, so that it has none of the four times.
    let refused = client.ask(Command::Write, 0, 512, &[1; 512]);
    assert!(refused.result.is_err());
    server.stop().expect("in order");
    let recording = read(&files(dir.path())[0]);
    let outcomes: Vec<Result<(), IoError>> = (recording.requests.iter())
        .map(|request| request.outcome)
        .collect();
    assert_eq!(outcomes, [Ok(())]);
}

const KILLED: &str = "recording::a_daemon_that_is_killed_leaves_whole_blocks";

#[test]
fn a_daemon_that_is_killed_leaves_whole_blocks() {
    if let Some(dir) = served_directory() {
        let _server = Server::start(recorded(&dir));
        return wait_for_end_of_test();
    }
    let dir = tempfile::tempdir().expect("a directory");
    let mut process = Process::start(KILLED, dir.path());
    let socket = dir.path().join("nbd");
    let until = Instant::now() + STEP_TIMEOUT;
    while !socket.exists() {
        assert!(Instant::now() < until, "the daemon does not start");
        std::thread::yield_now();
    }
    let mut client = Client::connect(&socket, "disk", true);
    // Requests with ascending addresses, so that the recording has to be a prefix of them.
    let mut sent = 0;
    let mut recorded = 0;
    while recorded < 5000 {
        for _ in 0..500 {
            client.read(sent % 100_000 * 512, 512);
            sent += 1;
        }
        assert!(
            Instant::now() < until,
            "{recorded} of {sent} requests are recorded"
        );
        recorded = files(dir.path())
            .first()
            .map_or(0, |file| read(file).requests.len());
    }
    process.kill();
    let recording = read(&files(dir.path())[0]);
    assert!(recording.is_whole(), "{:?}", recording.gaps);
    assert!(!recording.summary.is_complete);
    assert!((5000..=sent as usize).contains(&recording.requests.len()));
    for (number, request) in recording.requests.iter().enumerate() {
        assert_eq!(request.offset, number as u64 % 100_000 * 512);
    }
}
