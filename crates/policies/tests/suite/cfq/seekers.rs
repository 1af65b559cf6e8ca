//! VMs that seek, waited for all together (cfq-iosched.txt, idling theory: the sync-noidle tree).

use crate::cfq::disk::{Disk, FAR, Habit, READER, SEEKER};
use crate::cfq::{MIDDLE, with};
use crate::common::{MS, SECOND};
use tidegate_policies::policy::PolicySpec;

const LONE_SEEKER: Habit = Habit { depth: 1, ..SEEKER };

/// Returns the policy with the parameters of Linux 2.6.33 and later.
fn later() -> PolicySpec {
    with(&[("group_seekers", 1), ("low_latency", 1)])
}

#[test]
fn seekers_are_not_waited_for_one_by_one() {
    let served = |spec: &PolicySpec| {
        let mut disk = Disk::new(1, FAR, spec);
        for _ in 0..4 {
            let thoughtful = Habit {
                think: 4 * MS,
                ..LONE_SEEKER
            };
            disk.vm(MIDDLE, thoughtful);
        }
        disk.run(60 * SECOND);
        disk.patrons.iter().map(|p| p.served).sum::<u64>()
    };
    // An I/O and a thought after the other, 12 ms; or I/Os alone, 8 ms.
    let apart = served(&with(&[]));
    assert!((4900..5100).contains(&apart), "{apart}");
    let grouped = served(&later());
    assert!((7400..=7500).contains(&grouped), "{grouped}");
}

#[test]
fn a_reader_and_seekers_have_their_shares() {
    let mut disk = Disk::new(1, FAR, &later());
    disk.vm(MIDDLE, READER);
    for _ in 0..3 {
        disk.vm(MIDDLE, LONE_SEEKER);
    }
    disk.run(60 * SECOND);
    for share in disk.shares() {
        assert!((share - 0.25).abs() < 0.04, "{:?}", disk.shares());
    }
}

#[test]
fn a_seeker_beside_many_readers_is_waited_for() {
    // cfq-iosched.txt, FAQ: it would have one I/O a round otherwise.
    let mut disk = Disk::new(1, FAR, &later());
    let thoughtful = Habit {
        think: MS,
        ..LONE_SEEKER
    };
    let seeker = disk.vm(MIDDLE, thoughtful);
    for _ in 0..5 {
        disk.vm(MIDDLE, READER);
    }
    disk.run(60 * SECOND);
    // Of six that share 300 ms it has 50, in I/Os of 9 ms.
    let of_seeker = &disk.patrons[seeker];
    let a_turn = of_seeker.served / of_seeker.turns;
    assert!((5..=6).contains(&a_turn), "{a_turn}");
    let shares = disk.shares();
    assert!(shares[seeker] > 0.1, "{shares:?}");
}

#[test]
fn a_deep_seeker_is_waited_for_by_itself() {
    let mut disk = Disk::new(1, FAR, &later());
    disk.vm(MIDDLE, SEEKER);
    disk.vm(MIDDLE, SEEKER);
    disk.run(60 * SECOND);
    // Two slices of 100 ms: it has more than one I/O a turn.
    for patron in &disk.patrons {
        let a_turn = patron.served / patron.turns;
        assert!((12..=14).contains(&a_turn), "{a_turn}");
    }
}
