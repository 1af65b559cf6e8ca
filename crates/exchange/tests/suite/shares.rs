//! Shares of three hosts on one array, as messages come, fail and lie.

use tidegate_core::time::Nanos;
use tidegate_exchange::in_process::Faults;
use tidegate_exchange::{Presence, Refusal};

use crate::array_world::ArrayWorld;

const SECOND: Nanos = Nanos::SECOND;

const fn seconds(count: u64) -> Nanos {
    Nanos::from_secs(count)
}
/// Three exchanges, one each 30 ms.
const THREE_EXCHANGES: Nanos = Nanos::from_millis(90);

fn assert_near(parts: [f64; 3], wanted: [f64; 3], within: f64, when: &str) {
    for (part, wanted) in parts.iter().zip(wanted) {
        let is_near = (part - wanted).abs() <= within;
        assert!(is_near, "{when}: {parts:?}, not {wanted:?}");
    }
}

#[test]
fn shares_follow_weights_within_three_exchanges() {
    let mut world = ArrayWorld::new(Faults::default(), [100, 200, 300], [600; 3]);
    world.run(seconds(3));
    let parts = world.parts(SECOND);
    assert_near(parts, [1.0 / 6.0, 2.0 / 6.0, 3.0 / 6.0], 0.02, "at first");
    for (weight, parts) in [(600, [6.0, 2.0, 3.0]), (100, [1.0, 2.0, 3.0])] {
        world.set_weight(0, weight);
        world.run(THREE_EXCHANGES);
        let sum: f64 = parts.iter().sum();
        let got = world.parts(Nanos::from_millis(300));
        assert_near(got, parts.map(|part| part / sum), 0.04, "after a change");
    }
}

#[test]
fn lost_late_and_reordered_messages_leave_shares_as_they_are() {
    let faults = Faults {
        lost_per_mille: 200,
        delay_max: Nanos::from_millis(60),
    };
    let mut world = ArrayWorld::new(faults, [100, 200, 300], [600; 3]);
    world.run(seconds(3));
    let parts = world.parts(seconds(2));
    assert_near(
        parts,
        [1.0 / 6.0, 2.0 / 6.0, 3.0 / 6.0],
        0.03,
        "with faults",
    );
    let overtaken = world.rules(0).refused(Refusal::Replayed);
    assert!(overtaken > 0, "messages overtook each other");
}

#[test]
fn the_share_of_a_host_that_withdraws_goes_to_the_others() {
    let mut world = ArrayWorld::new(Faults::default(), [100, 200, 300], [600; 3]);
    world.run(seconds(2));
    world.end(2, true);
    world.run(seconds(2));
    assert_eq!(world.rules(0).peers()[1].presence, Presence::Withdrawn);
    let parts = world.parts(SECOND);
    assert_near(
        parts,
        [1.0 / 3.0, 2.0 / 3.0, 0.0],
        0.03,
        "without the third",
    );
}

#[test]
fn the_entitlement_of_a_host_that_dies_is_left_to_it() {
    let mut world = ArrayWorld::new(Faults::default(), [100, 200, 300], [600; 3]);
    world.run(seconds(2));
    world.end(2, false);
    world.run(seconds(2));
    assert_eq!(world.rules(0).peers()[1].presence, Presence::Silent);
    let parts = world.parts(seconds(2));
    // 600 of the 900 are assumed to compete on the third host.
    assert!(parts[0] <= 0.13 && parts[1] <= 0.25, "{parts:?}");
    assert!(parts[0] >= 0.08 && parts[1] >= 0.17, "{parts:?}");
}

#[test]
fn a_host_that_claims_too_much_has_no_more_than_its_entitlement() {
    let mut world = ArrayWorld::new(Faults::default(), [100, 200, 300], [300; 3]);
    world.run(seconds(2));
    world.lie(2, 10.0);
    world.run(seconds(2));
    let rules = world.rules(0);
    assert!(rules.refused(Refusal::Entitlement) > 30);
    assert_eq!(rules.peers()[1].presence, Presence::Silent);
    let parts = world.parts(SECOND);
    assert!(parts[0] >= 0.14 && parts[1] >= 0.28, "{parts:?}");
}

#[test]
fn a_host_whose_vms_weigh_more_than_its_entitlement_reports_no_more() {
    let mut world = ArrayWorld::new(Faults::default(), [100, 100, 1000], [200; 3]);
    world.run(seconds(3));
    assert_eq!(world.rules(0).refused(Refusal::Entitlement), 0);
    assert!((world.rules(0).peers()[1].weight - 200.0).abs() < 1e-6);
    let parts = world.parts(SECOND);
    assert_near(parts, [0.25, 0.25, 0.5], 0.02, "bounded");
}

#[test]
fn hosts_hold_to_their_entitlements_while_the_exchange_is_away() {
    let mut world = ArrayWorld::new(Faults::default(), [50, 50, 50], [100, 200, 300]);
    world.run(seconds(2));
    assert_near(world.parts(SECOND), [1.0 / 3.0; 3], 0.02, "by weight");
    world.network.set_up(false);
    world.run(SECOND);
    assert!((0..3).all(|host| world.rules(host).is_cut_off()));
    let parts = world.parts(seconds(2));
    assert_near(parts, [1.0 / 6.0, 2.0 / 6.0, 3.0 / 6.0], 0.05, "while away");
    world.network.set_up(true);
    world.run(SECOND);
    assert_near(world.parts(SECOND), [1.0 / 3.0; 3], 0.02, "and back");
}

#[test]
fn hosts_without_load_do_not_hold_the_correction_of_the_profile() {
    for claimed in [0.5, 2.0] {
        let mut world = ArrayWorld::new(Faults::default(), [100, 200, 300], [600; 3]);
        world.end_load(1);
        world.end_load(2);
        world.run(SECOND);
        // From here on the scales of the two idle hosts are wrong, and repeated by heartbeats.
        world.set_profile(claimed);
        world.run(seconds(5));
        assert!((0..2).all(|peer| world.rules(0).peers()[peer].presence == Presence::Live));
        let (part, scale) = (world.parts(SECOND)[0], world.scale(0));
        assert!(part >= 0.97, "{claimed}: {part}");
        let off = scale * claimed;
        assert!((0.7..1.5).contains(&off), "{claimed}: {scale}");
    }
}

#[test]
fn a_host_is_gone_when_the_exchange_says_so_and_not_before() {
    let mut world = ArrayWorld::new(Faults::default(), [100, 200, 300], [600; 3]);
    world.run(seconds(2));
    world.end(2, false);
    (0..2).for_each(|host| world.delay_tick(host, seconds(3)));
    world.run(SECOND);
    let parts = world.parts(SECOND);
    // The third host's last report still counts: its silence is not noticed yet.
    assert!(parts[0] <= 0.19 && parts[1] <= 0.36, "{parts:?}");
}
