//! Orderly end with requests that still wait.

use std::time::{Duration, Instant};

use crate::common::{Server, request, single};
use tidegate_core::objective::{Limit, Rate};
use tidegate_nbd::Command;
use tidegate_policies::policy::PolicySpec;
use tidegate_server::config::{DeviceKind, VmConfig};

#[test]
fn what_waits_for_its_limit_is_answered_when_the_daemon_ends() {
    all_is_answered_at_the_end(|vm, limit| vm.objective.limit = limit);
}

#[test]
fn what_waits_for_its_disks_limit_is_answered_when_the_daemon_ends() {
    all_is_answered_at_the_end(|vm, limit| vm.disks[0].limit = limit);
}

fn all_is_answered_at_the_end(set: impl Fn(&mut VmConfig, Limit)) {
    const WAITING: u64 = 100;
    let dir = tempfile::tempdir().unwrap();
    let mut config = single(dir.path(), DeviceKind::Memory, None, 1 << 20);
    config.devices[0].scheduling.policy = PolicySpec::named("limit").unwrap();
    config.devices[0].scheduling.merge_limit = 0;
    let limit = Limit::of_all(Rate::iops(1));
    set(&mut config.vms[0], limit);
    let server = Server::start(config);
    let mut client = server.connect("disk");
    for cookie in 0..WAITING {
        let read = Command::Read { df: false };
        client.send(request(read, cookie, cookie * 4096, 4096), &[]);
    }
    // Waits until the daemon has read all requests; a few may have passed the limit meanwhile.
    loop {
        let snapshot = crate::common::wait(server.handle.snapshot(0)).unwrap();
        let vm = &snapshot.vms[0];
        if u64::from(vm.pending) + vm.stats.total_ops() == WAITING {
            assert!(vm.pending > WAITING as u32 / 2, "the limit holds them");
            break;
        }
    }
    let reader = std::thread::spawn(move || {
        for _ in 0..WAITING {
            assert_eq!(client.receive().result.map(|data| data.len()), Ok(4096));
        }
    });
    let begun = Instant::now();
    server.stop().unwrap();
    // With the limit in force the end would take 90 s; the bound only has to tell the two apart.
    assert!(begun.elapsed() < Duration::from_secs(30));
    reader.join().unwrap();
}
