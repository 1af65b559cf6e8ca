//! The device's queue is kept as deep as its throughput needs, and no deeper.

use super::lab::*;
use tidegate_core::objective::{Objective, OpsRate};
use tidegate_core::time::Nanos;
use tidegate_device::catalogue::{self, Entry};

/// Seconds after which the depth is found, as docs/queue-depth.md states: on flash, and on a disk.
const FOUND_FLASH: u64 = 3;
const FOUND_DISK: u64 = 30;

fn bottleneck() -> Entry {
    let text = include_str!("../../../../../examples/bottleneck.toml");
    catalogue::parse(text, "bottleneck.toml").expect("an example")
}

fn adapting(entry: &Entry, depth: u32, adapts: bool) -> Lab {
    let mut lab = Lab::new(entry, None, depth, "fifo");
    lab.driver
        .engine
        .device_mut()
        .adapt_depth(Nanos::ZERO, adapts);
    lab
}

/// Bytes that a load moves in so many seconds after the depth was found, and the depth.
fn moved(entry: &Entry, work: Work, depth: u32, adapts: bool, times: [u64; 2]) -> (u64, u32) {
    let mut lab = adapting(entry, depth, adapts);
    lab.guest(&Objective::default(), work);
    lab.seconds(times[0]);
    let bytes = lab.seconds(times[1])[0].bytes;
    let found = lab.driver.engine.device().adapted_depth().unwrap_or(depth);
    (bytes, found)
}

#[test]
fn nothing_is_lost_but_a_twentieth_and_the_queue_is_shorter_where_it_can_be() {
    let loads = [
        reads(64, 16 * KIB),
        reads(64, 128 * KIB),
        writes(64, 128 * KIB),
    ];
    for name in ["ssd-sata-300gb", "nvme-1tb", "hdd-7200-1tb"] {
        let entry = catalogue::load(name).expect("of the catalogue");
        let times = match name {
            "hdd-7200-1tb" => [FOUND_DISK, 40],
            _ => [FOUND_FLASH, 1],
        };
        for (n, work) in loads.into_iter().enumerate() {
            let (all, _) = moved(&entry, work, 32, false, times);
            let (kept, depth) = moved(&entry, work, 32, true, times);
            assert!(
                kept * 20 >= all * 19,
                "{name}, load {n}: {kept} of {all} at depth {depth}"
            );
            println!(
                "{name}, load {n}: depth {depth}, {:.3}",
                kept as f64 / all as f64
            );
        }
    }
}

#[test]
fn a_device_that_does_one_thing_at_a_time_needs_hardly_a_queue() {
    let (all, _) = moved(
        &bottleneck(),
        reads(64, 128 * KIB),
        64,
        false,
        [FOUND_FLASH, 4],
    );
    let (kept, depth) = moved(
        &bottleneck(),
        reads(64, 128 * KIB),
        64,
        true,
        [FOUND_FLASH, 4],
    );
    assert!(depth <= 2, "{depth}");
    assert!(kept * 100 >= all * 98, "{kept} of {all}");
}

#[test]
fn who_waits_for_each_answer_waits_for_less() {
    let entry = bottleneck();
    let latency = |adapts| {
        let mut lab = Lab::new(&entry, None, 64, "sfq");
        lab.driver
            .engine
            .device_mut()
            .adapt_depth(Nanos::ZERO, adapts);
        let patient = Work {
            think: Nanos::from_micros(50),
            ..reads(1, 16 * KIB)
        };
        lab.guest(&Objective::default(), patient);
        lab.guest(&Objective::default(), reads(32, 128 * KIB));
        lab.seconds(FOUND_FLASH);
        let had = lab.seconds(10);
        (had[0].mean(), had[0].bytes + had[1].bytes)
    };
    let ((before, all), (after, kept)) = (latency(false), latency(true));
    assert!(
        after.0 * 10 < before.0,
        "{after} is not a tenth of {before}"
    );
    assert!(kept * 100 >= all * 98, "{kept} of {all}");
}

#[test]
fn another_load_finds_another_depth() {
    let entry = catalogue::load("nvme-1tb").expect("of the catalogue");
    let mut lab = adapting(&entry, 64, true);
    // In sequence a few fill the interface.
    lab.guest(&Objective::default(), reads(64, 512 * KIB));
    lab.seconds(FOUND_FLASH);
    let few = lab
        .driver
        .engine
        .device()
        .adapted_depth()
        .expect("adapting");
    assert!(few <= 8, "{few}");
    // Small ones at random need many dies at once.
    lab.works(0, reads(64, 16 * KIB));
    lab.seconds(FOUND_FLASH);
    let many = lab
        .driver
        .engine
        .device()
        .adapted_depth()
        .expect("adapting");
    let kept = lab.seconds(1)[0].bytes;
    let (all, _) = moved(&entry, reads(64, 16 * KIB), 64, false, [FOUND_FLASH, 1]);
    assert!(
        many > few && kept * 20 >= all * 19,
        "{many} of {few}: {kept} of {all}"
    );
}

#[test]
fn a_device_with_nothing_to_do_says_nothing() {
    let entry = catalogue::load("nvme-1tb").expect("of the catalogue");
    let mut lab = adapting(&entry, 32, true);
    let now_and_then = Work {
        think: Nanos::from_millis(1),
        ..reads(1, 4 * KIB)
    };
    lab.guest(&Objective::default(), now_and_then);
    lab.seconds(10);
    assert_eq!(lab.driver.engine.device().adapted_depth(), Some(32));
    // Nor does one whose guests are held by their limits.
    let mut limited = Lab::new(&entry, None, 32, "limit");
    limited
        .driver
        .engine
        .device_mut()
        .adapt_depth(Nanos::ZERO, true);
    let mut objective = Objective::default();
    objective.limit.total.ops = Some(OpsRate {
        per_s: 2000,
        norm: None,
    });
    limited.guest(&objective, reads(32, 4 * KIB));
    limited.seconds(10);
    assert_eq!(limited.driver.engine.device().adapted_depth(), Some(32));
    // Off again, it is the device's own depth that holds.
    lab.driver
        .engine
        .device_mut()
        .adapt_depth(lab.driver.now, false);
    assert_eq!(lab.driver.engine.device().adapted_depth(), None);
}
