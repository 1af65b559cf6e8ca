//! The store under a whole daemon.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::json;
use tidegate_core::learnt_state::Blob;
use tidegate_core::objective::{Group, Objective, Rate};
use tidegate_core::time::Nanos;
use tidegate_device::catalogue;
use tidegate_nbd::Command;
use tidegate_policies::policy::PolicySpec;
use tidegate_server::config::{
    Config, Create, DeviceKind, Schedule, StoreConfig, VmConfig, by_the_clock, schedule,
};
use tidegate_server::daemon::StartError;
use tidegate_server::persisted_vms::{RecordOutcome, preview_start};
use tidegate_server::store::{Change, Scope, Store, StoreError, VmRecord};

use crate::common::{Client, Server, config, device, disk, request, single, vm, wait};

fn kept_in(path: PathBuf) -> StoreConfig {
    StoreConfig {
        path,
        learnt_every: Nanos::from_secs(60),
        place: None,
    }
}

#[test]
fn the_daemon_holds_its_store_open_and_finds_it_again() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut config = single(dir.path(), DeviceKind::Memory, None, 1 << 20);
    let server = Server::start(config.clone());
    assert!(server.handle.store().is_none(), "none is configured");
    server.stop().expect("ends in order");

    let path = dir.path().join("tidegate.redb");
    config.store = Some(kept_in(path));
    let record = VmRecord::new("oltp", Scope::Objective, &json!({ "weight": 7 }));
    let server = Server::start(config.clone());
    let store = server.handle.store().expect("it is configured");
    store.put_vm(&record).expect("writes");
    // Another daemon with the same store and other sockets.
    let mut second = single(&dir.path().join("other"), DeviceKind::Memory, None, 1 << 20);
    second.store = config.store.clone();
    std::fs::create_dir(dir.path().join("other")).expect("a directory");
    match Server::try_start(second) {
        Err(StartError::Store { source, .. }) => {
            assert!(matches!(source, StoreError::InUse { .. }), "{source}");
        }
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("two daemons have one store"),
    }
    server.stop().expect("ends in order");
    let server = Server::start(config);
    let store = server.handle.store().expect("it is configured");
    assert_eq!(store.vms().expect("reads"), [record]);
}

#[test]
fn a_kept_objective_wins_but_for_what_it_is_older_than() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut config = single(dir.path(), DeviceKind::Memory, None, 1 << 20);
    config.store = Some(kept_in(dir.path().join("tidegate.redb")));
    config.vms[0].objective = Objective {
        weight: 5,
        latency: Some(Nanos::from_millis(9)),
        group: Some(Group::named("servers".parse().expect("a name"))),
        ..Objective::default()
    };
    // A record as written before groups existed: every part of that time, set or not.
    let mut words = json!({
        "reservation": "100 IOPS", "limit": null, "target": null, "weight": 7, "latency": null,
        "priority": "best-effort 4"
    });
    for (group, in_force) in [
        (None, config.vms[0].objective.group),
        (Some(json!(null)), None),
        (
            Some(json!({ "name": "kept", "weight": 3 })),
            Some(Group {
                weight: 3,
                ..Group::named("kept".parse().expect("a name"))
            }),
        ),
    ] {
        if let Some(group) = group {
            words["group"] = group;
        }
        let path = dir.path().join("tidegate.redb");
        let record = VmRecord::new("disk", Scope::Objective, &words);
        (Store::open(path).expect("free").put_vm(&record)).expect("writes");
        let server = Server::start(config.clone());
        let expected = Objective {
            reservation: Rate::iops(100),
            weight: 7,
            group: in_force,
            ..Objective::default()
        };
        assert_eq!(server.handle.vm("disk").expect("there").objective, expected);
        server.stop().expect("ends in order");
    }
}

/// Record of a VM with its disk on a file.
fn on_file(name: &str, file: &Path) -> VmRecord {
    let words = json!({ "name": name, "device": "device", "disk": [{ "path": file }] });
    VmRecord::new(name, Scope::Whole, &words)
}

/// VMs whose files lie outside of the allowed directory: one recorded by a build that knew no
/// `[paths]`, and one by a build that did, whose file has been replaced by a link since.
#[test]
fn a_stored_disk_outside_of_the_allowed_paths_is_served_only_if_it_is_older_than_they_are() {
    let dir = tempfile::tempdir().expect("a directory");
    let elsewhere = tempfile::tempdir().expect("a directory");
    let mut config = single(dir.path(), DeviceKind::File, None, 1 << 20);
    config.vms[0].disks[0].path = Some(elsewhere.path().join("configured.raw"));
    let path = dir.path().join("tidegate.redb");
    config.store = Some(kept_in(path.clone()));
    let outside = |name: &str| {
        let file = elsewhere.path().join(name);
        std::fs::write(&file, vec![0; 1 << 20]).expect("writable");
        file
    };
    let link = dir.path().join("swapped.raw");
    std::os::unix::fs::symlink(outside("secret"), &link).expect("writable");
    let store = Store::open(&path).expect("made");
    for record in [
        on_file("old", &outside("old.raw")),
        on_file("moved", &outside("moved.raw")).confined(),
        on_file("swapped", &link).confined(),
    ] {
        store.put_vm(&record).expect("writes");
    }
    drop(store);
    let reports = preview_start(&Store::read_vms(&path).expect("reads"), &mut config.clone());
    let only = "the only place for disks of the control API";
    for (vm, outcome, part) in [
        (
            "old",
            RecordOutcome::Applied,
            "add its directory to `allow` under [paths]",
        ),
        ("moved", RecordOutcome::Failed, only),
        ("swapped", RecordOutcome::Failed, only),
    ] {
        let report = reports
            .iter()
            .find(|report| report.vm == vm)
            .expect("there");
        assert_eq!(report.outcome, outcome, "{vm}");
        assert!(report.what.contains(part), "{}", report.what);
    }

    let server = Server::start(config);
    let names: Vec<_> = (server.handle.vms().configs().iter())
        .map(|vm| vm.name.clone())
        .collect();
    // Disks of the configuration may be anywhere.
    assert_eq!(names, ["disk", "old"]);
    let problems = server.handle.problems();
    let not_served: Vec<_> = problems.iter().filter_map(|p| p.vm.as_deref()).collect();
    assert_eq!(not_served, ["moved", "swapped"], "{problems:?}");
    // Kept by this build, it is still the old build's disk.
    wait(server.handle.persist("old")).expect("there is a store");
    server.stop().expect("ends in order");
    let store = Store::open(&path).expect("free");
    let old = store.vm("old").expect("reads").expect("there");
    assert!(!old.is_confined());
}

#[test]
fn the_preview_of_a_start_is_what_the_daemon_serves() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut config = single(dir.path(), DeviceKind::File, None, 1 << 20);
    config.vms[0].disks[0].path = Some(dir.path().join("disk.raw"));
    let path = dir.path().join("tidegate.redb");
    config.store = Some(kept_in(path.clone()));
    std::fs::write(dir.path().join("there.raw"), vec![0; 1 << 20]).expect("writable");
    let whole = |name: &str, export: &str, file: &str| {
        let disk = json!({ "export": export, "path": file, "size": "4 MiB", "create": "sparse" });
        let words = json!({ "name": name, "device": "device", "disk": [disk] });
        VmRecord::new(name, Scope::Whole, &words)
    };
    let records = [
        VmRecord::new("disk", Scope::Objective, &json!({ "weight": 7 })),
        whole("again", "again", "there.raw"),
        whole("clash", "disk", "there.raw"),
        whole("lost", "lost", "lost.raw"),
        VmRecord::new(
            "words",
            Scope::Whole,
            &json!({ "name": "words", "weight": 1 }),
        ),
    ];
    let store = Store::open(&path).expect("made");
    for record in &records {
        store.put_vm(record).expect("writes");
    }
    drop(store);
    let mut previewed = config.clone();
    let reports = preview_start(&Store::read_vms(&path).expect("reads"), &mut previewed);
    let lost = reports
        .iter()
        .filter(|reports| reports.outcome == RecordOutcome::Failed);
    let lost: Vec<_> = lost.map(|reports| reports.vm.as_str()).collect();
    assert_eq!(lost, ["clash", "lost", "words"]);

    let server = Server::start(config);
    let served = server.handle.vms().configs();
    let seen = |vms: &[VmConfig]| -> Vec<_> {
        let vms = vms.iter();
        vms.map(|vm| (vm.name.clone(), vm.objective)).collect()
    };
    assert_eq!(seen(&served), seen(&previewed.vms));
    assert_eq!(served[0].objective.weight, 7);
    let size = |vms: &[VmConfig]| vms[1].disks[0].size;
    assert_eq!(size(&served), Some(1 << 20), "as its file");
    assert_eq!(size(&previewed.vms), size(&served));
    let problems = server.handle.problems();
    assert_eq!(problems.len(), lost.len(), "{problems:?}");
    for (problem, vm) in problems.iter().zip(lost) {
        assert_eq!(problem.vm.as_deref(), Some(vm), "{problem:?}");
    }
    server.stop().expect("ends in order");
}

#[test]
fn without_its_store_the_daemon_does_not_start_and_makes_no_disk() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("tidegate.redb");
    std::fs::write(&path, "no store").expect("writable");
    let disk = dir.path().join("disk.raw");
    let mut config = single(dir.path(), DeviceKind::File, Some(disk.clone()), 1 << 20);
    config.store = Some(kept_in(path));
    let error = Server::try_start(config).map(drop).expect_err("started");
    assert!(matches!(error, StartError::Store { .. }), "{error}");
    assert!(!disk.exists(), "made before the store was opened");
}

/// Returns two VMs with credits, on a disk that never reaches what one of them was promised.
fn with_credits(dir: &Path, learnt_every: Nanos) -> Config {
    let mut config = config(dir);
    config.store = Some(StoreConfig {
        learnt_every,
        ..kept_in(dir.join("tidegate.redb"))
    });
    let model = catalogue::load("ssd-sata-300gb").expect("built in");
    let kind = DeviceKind::Emulated {
        model: Box::new(model),
    };
    let mut ssd = device("disk0", kind);
    ssd.scheduling.policy = PolicySpec::named("flubber").expect("it is registered");
    config.devices.push(ssd);
    for (name, latency) in [("hurried", Some(Nanos::from_micros(1))), ("patient", None)] {
        let mut vm = vm(name, 0, vec![disk(name, None, 1 << 20)]);
        vm.objective = Objective {
            reservation: Rate::iops(100),
            latency,
            ..Objective::default()
        };
        config.vms.push(vm);
    }
    config
}

/// Returns the stored learnt states of both VMs.
fn learnt(store: &Store) -> [Option<Vec<u8>>; 2] {
    let learnt = |vm| store.learnt("disk0", "flubber", vm).expect("reads");
    ["hurried", "patient"].map(learnt)
}

/// Sends 64 reads from both VMs, `rounds` times.
fn ask(clients: &mut [Client; 2], rounds: usize) {
    for _ in 0..rounds {
        for client in clients.iter_mut() {
            for cookie in 0..64 {
                client.send(
                    request(Command::Read { df: false }, cookie, cookie * 4096, 4096),
                    &[],
                );
            }
        }
        for client in clients.iter_mut() {
            for _ in 0..64 {
                client.receive().result.expect("reads");
            }
        }
    }
}

fn clients(server: &Server) -> [Client; 2] {
    ["hurried", "patient"].map(|name| server.connect(name))
}

#[test]
fn what_is_learnt_is_kept_while_the_daemon_runs() {
    let dir = tempfile::tempdir().expect("a directory");
    let server = Server::start(with_credits(dir.path(), Nanos::from_millis(20)));
    let mut clients = clients(&server);
    let deadline = Instant::now() + Duration::from_secs(60);
    let store = server.handle.store().expect("it is configured");
    while !matches!(learnt(store), [Some(_), Some(_)]) {
        assert!(Instant::now() < deadline, "nothing is learnt");
        ask(&mut clients, 1);
    }
}

#[test]
fn what_was_learnt_goes_on_after_a_restart() {
    let dir = tempfile::tempdir().expect("a directory");
    let every = Nanos::from_secs(3600);
    let config = with_credits(dir.path(), every);
    let kept = || learnt(&Store::open(dir.path().join("tidegate.redb")).expect("free"));
    let server = Server::start(config.clone());
    ask(&mut clients(&server), 20);
    server.stop().expect("ends in order");
    let first = kept();
    assert!(matches!(first, [Some(_), Some(_)]), "{first:?}");

    // The state is restored, and is in the store again after a run without any I/O.
    let server = Server::start(config.clone());
    server.stop().expect("ends in order");
    assert_eq!(kept(), first);

    // State of another policy is not touched.
    let mut other = config.clone();
    other.devices[0].scheduling.policy = PolicySpec::named("fifo").expect("it is registered");
    let server = Server::start(other);
    server.stop().expect("ends in order");
    assert_eq!(kept(), first);

    // The state of a VM that is gone is deleted.
    let mut fewer = config;
    fewer.vms.pop();
    let server = Server::start(fewer);
    server.stop().expect("ends in order");
    let now = kept();
    assert!(matches!(now, [Some(_), None]), "{now:?}");
}

/// Keeps more requests in flight than the device takes at once, until `until` returns true.
fn keep_busy(client: &mut Client, until: impl Fn() -> bool) {
    let read = |cookie: u64| {
        // No two consecutive requests are adjacent, so that they are not merged.
        let offset = cookie * 37 % 256 * 4096;
        request(Command::Read { df: false }, cookie, offset, 4096)
    };
    let mut asked = 0..;
    let mut answered = 0;
    let deadline = Instant::now() + Duration::from_secs(60);
    asked
        .by_ref()
        .take(128)
        .for_each(|cookie| client.send(read(cookie), &[]));
    while answered % 32 != 0 || answered == 0 || !until() {
        assert!(Instant::now() < deadline, "in vain");
        client.receive().result.expect("reads");
        answered += 1;
        client.send(read(asked.next().expect("endless")), &[]);
    }
    (0..128).for_each(|_| drop(client.receive()));
}

/// Returns the number of windows from which costs were learnt; `None` if costs are not learnt.
fn windows(server: &Server) -> Option<u64> {
    let now = wait(server.handle.snapshot(0)).expect("it answers");
    now.learnt_costs.map(|costs| costs.windows)
}

#[test]
fn what_was_learnt_of_a_device_goes_on_after_a_restart_unless_it_is_another_one() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut config = with_credits(dir.path(), Nanos::from_millis(20));
    let emulated = |model: &str| DeviceKind::Emulated {
        model: Box::new(catalogue::load(model).expect("built in")),
    };
    // Slow enough that one client keeps the device busy.
    config.devices[0].kind = emulated("ssd-sata-300gb");
    // A depth small enough that one client keeps the device busy on any machine.
    let mut vfair = PolicySpec::named("vfair").expect("it is registered");
    vfair.set("depth", 4).expect("it has this parameter");
    config.devices[0].scheduling.policy = vfair;
    let store = || Store::open(dir.path().join("tidegate.redb")).expect("free");
    let kept = |store: &Store| store.device("disk0", "costs").expect("reads");

    let server = Server::start(config.clone());
    assert_eq!(windows(&server), Some(0));
    let written = || kept(server.handle.store().expect("it is configured")).is_some();
    keep_busy(&mut server.connect("patient"), written);
    server.stop().expect("ends in order");
    let first = kept(&store()).expect("it was kept");
    assert!(
        first.0.starts_with("emulated ssd-sata-300gb"),
        "{}",
        first.0
    );

    // The costs are restored, and are in the store again after a run without any I/O.
    let server = Server::start(config.clone());
    let before = windows(&server).expect("they are learnt");
    assert!(before > 0);
    server.stop().expect("ends in order");
    assert_eq!(kept(&store()), Some(first.clone()));

    // With learning switched off the record stays for later.
    let mut other = config.clone();
    other.devices[0].scheduling.policy = PolicySpec::named("fifo").expect("it is registered");
    let server = Server::start(other);
    assert_eq!(windows(&server), None);
    server.stop().expect("ends in order");
    assert_eq!(kept(&store()), Some(first));

    let mut other = config.clone();
    other.devices[0].kind = emulated("hdd-7200-250gb");
    let server = Server::start(other);
    assert_eq!(windows(&server), Some(0), "of another device");
    server.stop().expect("ends in order");
    let server = Server::start(config);
    assert_eq!(windows(&server), Some(before));
}

/// Returns the identity that the daemon gives to the first device.
fn identity(config: &Config) -> String {
    let DeviceKind::Emulated { model } = &config.devices[0].kind else {
        panic!("it is emulated")
    };
    format!("emulated {} {:?}", model.name, model.spec())
}

#[test]
fn bandwidths_that_were_learnt_go_on() {
    let dir = tempfile::tempdir().expect("a directory");
    let config = with_credits(dir.path(), Nanos::from_secs(3600));
    let open = || Store::open(dir.path().join("tidegate.redb")).expect("free");
    // Encoded by number of VMs, in another order than the engine's.
    let bandwidths = |known: [(u64, u64); 2]| {
        let mut blob = Blob::new("bandwidths", 1);
        blob.push_u64(known.len() as u64);
        for (vms, bytes_per_s) in known {
            blob.push_u64(vms).push_u64(bytes_per_s);
        }
        blob
    };
    let known = [(1, 54_000_000), (2, 37_000_000)];
    let (before, after) = (bandwidths([known[1], known[0]]), bandwidths(known));
    let identity = identity(&config);
    let change = Change::PutDevice {
        device: "disk0",
        part: "bandwidths",
        identity: &identity,
        state: Some(before.as_bytes()),
    };
    assert_eq!(open().apply(&[change]).expect("writes"), 1);
    let server = Server::start(config);
    server.stop().expect("ends in order");
    let kept = open().device("disk0", "bandwidths").expect("reads");
    assert_eq!(kept, Some((identity, after.as_bytes().to_vec())));
}

#[test]
fn a_cap_that_was_learnt_is_in_force_again_and_one_that_is_gone_is_forgotten() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut config = with_credits(dir.path(), Nanos::from_secs(3600));
    config.devices[0].scheduling.learn_cap = true;
    // Encoded as by the engine: 500 I/Os a second in thousandths, no limit in bytes.
    let mut cap = Blob::new("cap-learner", 1);
    cap.push_u64(500_000).push_u64(0).push_u64(0);
    let open = || Store::open(dir.path().join("tidegate.redb")).expect("free");
    // The identity that the daemon computes for its device.
    let server = Server::start(config.clone());
    server.stop().expect("ends in order");
    let identity = identity(&config);
    let keep = |store: &Store, identity: &str| {
        let (device, part, state) = ("disk0", "cap", Some(cap.as_bytes()));
        let change = Change::PutDevice {
            device,
            part,
            identity,
            state,
        };
        store.apply(&[change]).expect("writes")
    };
    let in_force = |server: &Server| {
        let now = wait(server.handle.snapshot(0)).expect("it answers");
        now.learnt_cap.and_then(|cap| cap.iops)
    };
    let kept = || open().device("disk0", "cap").expect("reads");
    assert_eq!(keep(&open(), &identity), 1);
    assert_eq!(keep(&open(), &identity), 0, "written again");
    let server = Server::start(config.clone());
    assert_eq!(in_force(&server), Some(500.0));
    server.stop().expect("ends in order");
    assert_eq!(kept(), Some((identity.clone(), cap.as_bytes().to_vec())));

    // State of another device is not restored, and the end deletes the cap, because none is known.
    assert_eq!(keep(&open(), "block device naa.5000c500"), 1);
    let server = Server::start(config.clone());
    assert_eq!(in_force(&server), None);
    server.stop().expect("ends in order");
    assert_eq!(kept(), None);
}

#[test]
fn what_is_no_lesson_does_not_keep_the_daemon_from_serving() {
    let dir = tempfile::tempdir().expect("a directory");
    let config = with_credits(dir.path(), Nanos::from_secs(3600));
    let store = Store::open(dir.path().join("tidegate.redb")).expect("made");
    (store.put_learnt("disk0", "flubber", "hurried", b"garbage")).expect("writes");
    (store.put_learnt("disk0", "flubber", "patient", b"")).expect("writes");
    drop(store);
    let server = Server::start(config);
    ask(&mut clients(&server), 1);
    server.stop().expect("ends in order");
}

/// Uses more VMs than one answer of the event loop covers.
#[test]
fn of_many_vms_all_that_was_learnt_is_kept() {
    const VMS: u32 = 150;
    let dir = tempfile::tempdir().expect("a directory");
    let mut config = with_credits(dir.path(), Nanos::from_secs(3600));
    config.vms.clear();
    let names: Vec<String> = (0..VMS).map(|n| format!("vm{n}")).collect();
    for name in &names {
        let mut vm = vm(name, 0, vec![disk(name, None, 1 << 20)]);
        vm.objective.reservation = Rate::iops(100);
        config.vms.push(vm);
    }
    // Encoded as by the controller: objective, a VM's part, its part by reservations, their sums.
    let lesson = |n: u32| {
        let mut blob = Blob::new("credit-feedback", 1);
        blob.push_u64(100).push_u64(0).push_u64(0).push_u64(0);
        blob.push_f64(1.0 + f64::from(n)).push_f64(1.0);
        blob.push_f64(f64::from(VMS + 1) / 2.0);
        blob
    };
    let lessons: Vec<Blob> = (0..VMS).map(lesson).collect();
    let states: Vec<_> = (names.iter().zip(&lessons))
        .map(|(name, blob)| (name.as_str(), blob.as_bytes()))
        .collect();
    let change = Change::ReplaceLearnt {
        device: "disk0",
        policy: "flubber",
        states: &states,
    };
    let open = || Store::open(dir.path().join("tidegate.redb")).expect("free");
    open().apply(&[change]).expect("writes");
    let server = Server::start(config);
    server.stop().expect("ends in order");
    let store = open();
    for (name, state) in states {
        let kept = store.learnt("disk0", "flubber", name).expect("reads");
        assert_eq!(kept.as_deref(), Some(state), "{name}");
    }
}

/// Returns a schedule whose entry 1 holds at all times and sets a weight.
fn always(base: u32, entry: u32) -> serde_json::Value {
    json!({ "weight": base, "schedule": [{ "from": "00:00", "weight": entry }] })
}

#[test]
fn a_schedule_is_in_force_from_the_start_and_is_kept_with_its_objective() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut config = single(dir.path(), DeviceKind::Memory, None, 1 << 20);
    config.store = Some(kept_in(dir.path().join("tidegate.redb")));
    let schedule = |words| schedule::merge(&Schedule::default(), &words).expect("good");
    config.vms[0].promise(schedule(always(5, 50)));
    let weights = |server: &Server, name: &str| {
        let vm = server.handle.vm(name).expect("there");
        let snapshot = wait(server.handle.vm_snapshot(name)).expect("there");
        assert_eq!(
            snapshot.objective, vm.objective,
            "what is known is what is in force"
        );
        (vm.objective.weight, vm.promised().base().weight)
    };
    let server = Server::start(config.clone());
    assert_eq!(weights(&server, "disk"), (50, 5));
    // A VM of the configuration file is stored as an objective, one that was added as a whole.
    let mut late = vm("late", 0, vec![disk("late", None, 1 << 20)]);
    late.disks[0].create = Create::No;
    late.promise(schedule(always(7, 70)));
    wait(server.handle.add_vm(late)).expect("there is room");
    let other = schedule(always(6, 60));
    server
        .handle
        .vms()
        .set_schedule("disk", by_the_clock(other));
    for name in ["disk", "late"] {
        wait(server.handle.persist(name)).expect("there is a store");
    }
    server.stop().expect("ends in order");

    let server = Server::start(config.clone());
    assert_eq!(weights(&server, "disk"), (60, 6));
    assert_eq!(weights(&server, "late"), (70, 7));
    // An empty objective is stored as well.
    wait(server.handle.set_objective("disk", Objective::default())).expect("good");
    server.handle.vms().set_schedule("disk", None);
    wait(server.handle.persist("disk")).expect("there is a store");
    server.stop().expect("ends in order");
    let server = Server::start(config.clone());
    assert_eq!(weights(&server, "disk"), (100, 100));
    server.stop().expect("ends in order");

    // Records from before schedules existed leave the schedule to the configuration.
    let store = Store::open(dir.path().join("tidegate.redb")).expect("free");
    let old = VmRecord::new(
        "disk",
        Scope::Objective,
        &json!({ "weight": 8, "limit": null }),
    );
    store.put_vm(&old).expect("writes");
    drop(store);
    let server = Server::start(config);
    assert_eq!(weights(&server, "disk"), (50, 8));
    server.stop().expect("ends in order");
}
