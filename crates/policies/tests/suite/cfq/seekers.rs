//! VMs that seek, waited for all together (cfq-iosched.txt, idling theory: the sync-noidle tree).

use crate::cfq::disk::{AccessPattern, Disk, RANDOM_READER, SEEK_NS, SEQUENTIAL_READER};
use crate::cfq::{DEFAULT_PRIORITY, with};
use crate::common::{MS, SECOND};
use tidegate_policies::policy::PolicySpec;

const LONE_RANDOM_READER: AccessPattern = AccessPattern {
    depth: 1,
    ..RANDOM_READER
};

/// Returns the policy with the parameters of Linux 2.6.33 and later.
fn later() -> PolicySpec {
    with(&[("group_seekers", 1), ("low_latency", 1)])
}

#[test]
fn seekers_are_not_waited_for_one_by_one() {
    let served = |spec: &PolicySpec| {
        let mut disk = Disk::new(1, SEEK_NS, spec);
        for _ in 0..4 {
            let thoughtful = AccessPattern {
                think: 4 * MS,
                ..LONE_RANDOM_READER
            };
            disk.vm(DEFAULT_PRIORITY, thoughtful);
        }
        disk.run(60 * SECOND);
        disk.vms.iter().map(|vm| vm.served).sum::<u64>()
    };
    // An I/O and a thought after the other, 12 ms; or I/Os alone, 8 ms.
    let apart = served(&with(&[]));
    assert!((4900..5100).contains(&apart), "{apart}");
    let grouped = served(&later());
    assert!((7400..=7500).contains(&grouped), "{grouped}");
}

#[test]
fn a_reader_and_seekers_have_their_shares() {
    let mut disk = Disk::new(1, SEEK_NS, &later());
    disk.vm(DEFAULT_PRIORITY, SEQUENTIAL_READER);
    for _ in 0..3 {
        disk.vm(DEFAULT_PRIORITY, LONE_RANDOM_READER);
    }
    disk.run(60 * SECOND);
    for share in disk.shares() {
        assert!((share - 0.25).abs() < 0.04, "{:?}", disk.shares());
    }
}

#[test]
fn a_seeker_beside_many_readers_is_waited_for() {
    // cfq-iosched.txt, FAQ: it would have one I/O a round otherwise.
    let mut disk = Disk::new(1, SEEK_NS, &later());
    let thoughtful = AccessPattern {
        think: MS,
        ..LONE_RANDOM_READER
    };
    let seeker = disk.vm(DEFAULT_PRIORITY, thoughtful);
    for _ in 0..5 {
        disk.vm(DEFAULT_PRIORITY, SEQUENTIAL_READER);
    }
    disk.run(60 * SECOND);
    // Of six that share 300 ms it has 50, in I/Os of 9 ms.
    let of_seeker = &disk.vms[seeker];
    let a_turn = of_seeker.served / of_seeker.turns;
    assert!((5..=6).contains(&a_turn), "{a_turn}");
    let shares = disk.shares();
    assert!(shares[seeker] > 0.1, "{shares:?}");
}

#[test]
fn a_deep_seeker_is_waited_for_by_itself() {
    let mut disk = Disk::new(1, SEEK_NS, &later());
    disk.vm(DEFAULT_PRIORITY, RANDOM_READER);
    disk.vm(DEFAULT_PRIORITY, RANDOM_READER);
    disk.run(60 * SECOND);
    // Two slices of 100 ms: it has more than one I/O a turn.
    for vm in &disk.vms {
        let a_turn = vm.served / vm.turns;
        assert!((12..=14).contains(&a_turn), "{a_turn}");
    }
}
