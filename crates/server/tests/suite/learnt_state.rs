//! Learnt state of a tuner survives a restart, and can be moved with its VM.

use std::path::Path;
use std::time::{Duration, Instant};

use tidegate_api::query::LearntDisks;
use tidegate_core::objective::{Objective, Rate};
use tidegate_core::precision::INTERVAL_S;
use tidegate_core::time::Nanos;
use tidegate_core::tuning::{BandwidthRange, Tuning};
use tidegate_device::catalogue;
use tidegate_nbd::Command;
use tidegate_policies::policy::PolicySpec;
use tidegate_server::command::VmSnapshot;
use tidegate_server::config::{Config, DeviceKind, StoreConfig};
use tidegate_server::daemon::ControlError;
use tidegate_server::learnt_state_file::LearntStateFile;

use crate::common::{Server, config, device, disk, request, vm, wait};

const VM: &str = "precise";
const LEN: u32 = 64 << 10;

fn emulated(model: &str) -> DeviceKind {
    DeviceKind::Emulated {
        model: Box::new(catalogue::load(model).expect("built in")),
    }
}

/// Returns a policy whose windowed tuner profiles two merge limits and revises every second.
fn tuner(policy: &str) -> PolicySpec {
    let mut spec = PolicySpec::named(policy).expect("it is registered");
    let windows = 1;
    for (param, value) in [
        ("tuner", windows),
        ("statistical_interval", Nanos::SECOND.0),
        ("profiling", 1),
        ("max_ml", 2),
    ] {
        spec.set(param, value).expect("the tuner's parameter");
    }
    spec
}

/// Returns a VM with a target of 5 MB/s and one without an objective, on a disk of this kind.
fn precise(dir: &Path, kind: DeviceKind, policy: PolicySpec) -> Config {
    let mut config = config(dir);
    config.devices.push(device("disk0", kind));
    config.devices[0].scheduling.policy = policy;
    for name in [VM, "free"] {
        config
            .vms
            .push(vm(name, 0, vec![disk(name, None, 16 << 20)]));
    }
    config.vms[0].objective = Objective {
        target: Rate::bytes(5_000_000),
        ..Objective::default()
    };
    config
}

fn vm_snapshot(server: &Server) -> VmSnapshot {
    wait(server.handle.vm_snapshot(VM)).expect("it answers")
}

fn tuning(server: &Server) -> Tuning {
    vm_snapshot(server).tuning.expect("it has a target")
}

fn range(server: &Server) -> Option<BandwidthRange> {
    tuning(server).range
}

/// Keeps the VM busy until `until` returns true.
fn busy_until(server: &Server, until: impl Fn(&VmSnapshot) -> bool) {
    let mut client = server.connect(VM);
    let deadline = Instant::now() + Duration::from_secs(60);
    let mut cookie = 0;
    let mut ask = |client: &mut crate::common::Client| {
        cookie += 1;
        let offset = cookie * 37 % 256 * u64::from(LEN);
        let read = Command::Read { df: false };
        client.send(request(read, cookie, offset, LEN), &[]);
    };
    (0..8).for_each(|_| ask(&mut client));
    while !until(&vm_snapshot(server)) {
        assert!(Instant::now() < deadline, "in vain");
        for _ in 0..8 {
            client.receive().result.expect("reads");
            ask(&mut client);
        }
    }
    (0..8).for_each(|_| drop(client.receive()));
}

fn is_profiled(vm: &VmSnapshot) -> bool {
    vm.tuning.is_some_and(|tuning| tuning.range.is_some())
}

fn export(server: &Server) -> LearntStateFile {
    wait(server.handle.export_vm(VM)).expect("it was profiled")
}

#[test]
fn a_tuner_goes_on_where_it_was_after_a_restart() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut config = precise(dir.path(), emulated("ssd-sata-300gb"), tuner("vcup-drr"));
    config.store = Some(StoreConfig {
        path: dir.path().join("tidegate.redb"),
        learnt_every: Nanos::from_secs(3600),
        place: None,
    });
    let server = Server::start(config.clone());
    assert!(tuning(&server).profiling.is_some());
    // Waits until the tuner has profiled and completed one interval.
    busy_until(&server, |vm| {
        is_profiled(vm) && vm.tuning.is_some_and(|tuning| tuning.precision.is_some())
    });
    let range_before = range(&server);
    server.stop().expect("ends in order");

    let server = Server::start(config.clone());
    let now = tuning(&server);
    assert_eq!((now.range, now.profiling), (range_before, None));
    server.stop().expect("ends in order");

    // On another disk only the state that depends on the storage is learnt anew.
    config.devices[0].kind = emulated("hdd-7200-250gb");
    let server = Server::start(config.clone());
    let moved = tuning(&server);
    assert_eq!((moved.range, moved.profiling), (None, Some((0, 2))));
    assert_eq!((moved.window, moved.settled), (now.window, now.settled));
    server.stop().expect("ends in order");

    // Without a store the tuner starts anew.
    config.store = None;
    let server = Server::start(config);
    assert_eq!(range(&server), None);
}

#[test]
fn what_was_learnt_here_is_in_force_there_and_of_another_disk_is_measured_anew() {
    let dirs = [(); 4].map(|()| tempfile::tempdir().expect("a directory"));
    let start = |at: usize, model: &str, policy| {
        Server::start(precise(dirs[at].path(), emulated(model), policy))
    };
    let here = start(0, "ssd-sata-300gb", tuner("vcup-drr"));
    let nothing = wait(here.handle.export_vm(VM)).expect_err("nothing is learnt yet");
    assert!(matches!(nothing, ControlError::Learnt { .. }), "{nothing}");
    busy_until(&here, is_profiled);
    let was = range(&here);
    // The state as read back from the text of its file.
    let text = serde_json::to_string(&export(&here)).expect("plain data");
    let file = serde_json::from_str(&text).expect("what was written");
    let file = LearntStateFile::read(&file).expect("as it was written");
    assert_eq!((file.vm.as_str(), file.controller.as_str()), (VM, "tuner"));
    assert!(
        file.disks[0].starts_with("emulated ssd-sata-300gb"),
        "{:?}",
        file.disks
    );

    // The tuner's range and profiling after an import, with the notes for the operator.
    let import = |server: &Server, disks| {
        let imported = wait(server.handle.import_vm(VM, &file, disks));
        let (now, notes) = imported.expect("taken over");
        let tuning = now.tuning.expect("it has a target");
        ((tuning.range, tuning.profiling), notes)
    };
    let (taken_over, learnt_anew) = ((was, None), (None, Some((0, 2))));
    // Another policy with the same tuner, on the same kind of disk.
    let there = start(1, "ssd-sata-300gb", tuner("vcup-mclock"));
    let (tuning, notes) = import(&there, LearntDisks::Detect);
    assert_eq!(tuning, taken_over);
    assert_eq!(notes.len(), 1, "{notes:?}");
    assert!(notes[0].contains("\"vcup-drr\""), "{notes:?}");
    assert_eq!(import(&there, LearntDisks::Different).0, learnt_anew);

    let moved = start(2, "hdd-7200-250gb", tuner("vcup-drr"));
    let (tuning, notes) = import(&moved, LearntDisks::Detect);
    assert_eq!(tuning, learnt_anew);
    let note = "its disks are on other storage";
    assert!(notes.iter().any(|found| found.contains(note)), "{notes:?}");
    let (tuning, notes) = import(&moved, LearntDisks::Same);
    assert_eq!((tuning.0, notes.as_slice()), (was, &[][..]));

    // A policy without the tuner rejects the state.
    let credits = PolicySpec::named("flubber").expect("it is registered");
    let other = start(3, "ssd-sata-300gb", credits);
    let refused =
        wait(other.handle.import_vm(VM, &file, LearntDisks::Detect)).expect_err("refused");
    let ControlError::Learnt { what, help } = refused else {
        panic!("{refused}")
    };
    assert!(
        what.contains("learnt by tuner, not by credit-feedback"),
        "{what}"
    );
    let help = help.expect("there is some");
    assert!(help.contains("vcup, vcup-mclock, vcup-drr"), "{help}");
    // A VM without a target rejects it as well.
    let free = wait(there.handle.import_vm("free", &file, LearntDisks::Detect));
    let refused = free.expect_err("refused").to_string();
    assert!(refused.contains("the VM has no target"), "{refused}");
    let gone = wait(there.handle.import_vm("gone", &file, LearntDisks::Detect));
    assert!(matches!(gone, Err(ControlError::UnknownVm(_))), "{gone:?}");
}

#[test]
fn how_precisely_a_vm_is_served_is_known_by_the_second() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut policy = PolicySpec::named("vcup-drr").expect("it is registered");
    policy.set("max_ml", 1).expect("the tuner's parameter");
    let server = Server::start(precise(dir.path(), emulated("nvme-1tb"), policy));
    let begun = Instant::now();
    busy_until(&server, |vm| vm.precision(INTERVAL_S).seconds >= 3);
    let took = begun.elapsed().as_secs() as u32;
    let precision = vm_snapshot(&server).precision(1);
    assert!((3..=took + 1).contains(&precision.seconds), "{precision:?}");
    assert_eq!(precision.target, Some(5_000_000));
    let mean = precision.mean.expect("seconds count");
    // The bounds are wide, because the throughput depends on the test host.
    assert!((500_000..=10_000_000).contains(&mean), "{precision:?}");
    assert!(precision.variability.is_some() && precision.absolute_error.is_some());
}
