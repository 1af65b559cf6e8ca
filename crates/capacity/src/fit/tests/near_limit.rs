//! Floors near a limit of their VM, beside a VM whose I/Os take 4 ms. A limit makes up 0.9 ms.

use super::*;
use tidegate_base::objective::Burst;

const KIB_64: u32 = 64 << 10;

/// VM with a floor and a limit, in requests of 64 KiB.
fn limited(floor: Rate, limit: Rate) -> Objective {
    Objective {
        reservation: floor,
        limit: Limit::of_all(limit),
        expects: ExpectedWorkload {
            size: Some(KIB_64),
            ..ExpectedWorkload::NOTHING
        },
        ..Objective::default()
    }
}

/// Floor that is served and limit that suffices, if those of the first VM are too near.
fn near(objectives: &[Objective]) -> Option<(Rate, Option<Rate>)> {
    let profile = disk();
    let found = near_limits(&device_with(&profile), &vms(objectives));
    assert!(found.iter().all(|near| near.vm == 0), "{found:?}");
    found.first().map(|near| (near.served, near.enough))
}

fn near_beside(objective: Objective) -> Option<(Rate, Option<Rate>)> {
    near(&[objective, Objective::default()])
}

#[test]
fn a_floor_at_its_limit_loses_the_wait_that_is_not_made_up() {
    let (one, more) = (Rate::bytes(1_000_000), Rate::bytes(1_050_000));
    // A request each 65.536 ms: 3.1 ms more give 954.8 kB/s, and 3.1 ms less take 1049.7 kB/s.
    let served = Rate::bytes(954_000);
    assert_eq!(near_beside(limited(one, one)), Some((served, Some(more))));
    // Both ways out are right.
    assert_eq!(near_beside(limited(one, more)), None);
    assert_eq!(near_beside(limited(served, one)), None);
    assert!(near_beside(limited(one, Rate::bytes(1_040_000))).is_some());
    // Alone on the disk, nothing is waited for.
    assert_eq!(near(&[limited(one, one)]), None);
    // A request each 2 ms: every one is later than that.
    let fast = Rate::bytes(32_768_000);
    let found = near_beside(limited(fast, fast)).expect("it is near");
    assert_eq!(found.1, None);
}

#[test]
fn only_limits_that_make_up_a_slack_alone_are_near() {
    let one = Rate::bytes(1_000_000);
    let sized = |per_s| Rate {
        ops: Some(OpsRate {
            per_s,
            norm: Some(16384),
        }),
        bytes_per_s: None,
    };
    // 60 requests of 16 KiB are 15 of 64 KiB, each 66.7 ms.
    assert_eq!(
        near_beside(limited(sized(60), sized(60))),
        Some((sized(57), Some(sized(63))))
    );
    // Plain requests may be late by up to their own time.
    let plain = Rate::iops(15);
    assert_eq!(near_beside(limited(plain, plain)), None);
    assert_eq!(near_beside(limited(plain, Rate::NONE)), None);
    // A burst saves up for what was late.
    let mut bursting = limited(one, one);
    bursting.limit.burst = Some(Burst {
        total: Rate::bytes(2_000_000),
        read: Rate::NONE,
        write: Rate::NONE,
        length: Nanos::SECOND,
    });
    assert_eq!(near_beside(bursting), None);
    // A limit of reads says nothing about a floor that may be writes.
    let mut reads = limited(one, Rate::NONE);
    reads.limit.read = one;
    assert_eq!(near_beside(reads), None);
    reads.expects.reads = Some(1000);
    assert!(near_beside(reads).is_some());
}

#[test]
fn a_warning_says_what_is_lost_and_what_would_be_right() {
    let profile = disk();
    let one = Rate::bytes(1_000_000);
    let objectives = [limited(one, one), Objective::default()];
    let found = near_limits(&device_with(&profile), &vms(&objectives));
    assert_eq!(
        found[0].reason(),
        "the reservation of 1 MB/s is too near to limit = \"1 MB/s\": a request that is due may \
         wait 4 ms for the device, which the limit does not make up, so about 954 kB/s may be all \
         that is served"
    );
    assert_eq!(
        found[0].instead(),
        "limit = \"1.05 MB/s\" or more, or reservation = \"954 kB/s\" or less"
    );
}
