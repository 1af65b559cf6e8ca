//! Merging and splitting under a whole daemon, with limits on the length of I/Os that change under
//! load: every byte is compared with a copy, and every error must reach the right client.

use tidegate_policies::policy::PolicySpec;

use super::fault_injection_tests::{bad_rules, everywhere, two_disks as by_rules};
use super::fault_tests::{
    BLOCK, BLOCKS, Driver, block_faults, noise, places, two_disks as on_files,
};
use crate::common::{Server, wait};
use crate::config::Config;
use crate::ring::faults::Fault;

/// Maximum length of I/Os in pages of 4 KiB, applied in sequence; 0 means the device's own.
const PAGES: [u64; 7] = [11, 1, 0, 3, 32, 2, 5];

/// Policies with a maximum of this many pages, as far as they have such a parameter.
fn policies(pages: u64) -> Vec<PolicySpec> {
    let named = [
        "vcup",
        "vcup-mclock",
        "vcup-drr",
        "fifo",
        "vfair",
        "flubber",
    ];
    let named = named.map(PolicySpec::named);
    let composed = ["fifo", "sfq", "mclock", "deadline"]
        .map(|dispatcher| PolicySpec::composed(None, "merge-limit", dispatcher));
    let all = named.into_iter().chain(composed);
    all.map(|policy| {
        let mut policy = policy.unwrap();
        // Policies without these parameters refuse them.
        let _ = policy.set("pages", pages);
        let _ = policy.set("fill", pages * 9 % 101);
        policy
    })
    .collect()
}

/// Returns the number of merged requests, and the number of parts beyond the first of each request.
fn drive(mut config: Config, block: u64) -> [u64; 2] {
    // New requests wait while the device is busy.
    config.devices[0].scheduling.depth = 2;
    config.devices[0].scheduling.max_io = 128 << 10;
    config.devices[0].scheduling.merge_limit = 128 << 10;
    let server = Server::start(config);
    let mut driver = Driver::new(block);
    std::thread::scope(|scope| {
        // Also set if a driver panics.
        let run = scope.spawn(|| driver.run(&mut server.connect("disk"), block, 1200));
        for pages in PAGES.into_iter().cycle() {
            for policy in policies(pages) {
                wait(server.handle.set_policy(0, policy)).unwrap();
                // A short pause, whose length does not matter, lets some requests pass under this
                // limit.
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
            if run.is_finished() {
                break;
            }
        }
    });
    assert!(driver.failed > 30, "{} met a bad place", driver.failed);
    let stats = wait(server.handle.snapshot(0)).unwrap().vms[0]
        .stats
        .clone();
    server.stop().unwrap();
    [stats.merged, stats.split]
}

fn all_of_it(counts: impl Iterator<Item = [u64; 2]>) {
    let sum = |[a, b]: [u64; 2], [c, d]: [u64; 2]| [a + c, b + d];
    let [merged, split] = counts.reduce(sum).unwrap();
    assert!(
        merged > 100 && split > 100,
        "{merged} merged, {split} split"
    );
}

#[test]
fn limits_that_change_mix_no_bytes_and_no_errors() {
    let blocks = [BLOCK, 512].into_iter().cycle();
    all_of_it(everywhere().iter().zip(blocks).map(|(place, block)| {
        let config = by_rules(place, BLOCKS * BLOCK, &bad_rules());
        drive(config, block)
    }));
}

#[test]
fn nor_do_they_where_system_calls_fail_or_fall_short() {
    let blocks = [512, BLOCK].into_iter().cycle();
    all_of_it(places().iter().zip(blocks).map(|(place, block)| {
        let mut noise = noise(block);
        let faults = move |call| match block_faults(call) {
            Fault::None => noise(call),
            fault => fault,
        };
        drive(on_files(place, BLOCKS * BLOCK, faults), block)
    }));
}
