//! Shares of three hosts on one array, as messages come, fail and lie, under each policy that
//! divides an array.

use tidegate_core::time::Nanos;
use tidegate_exchange::in_process::Faults;
use tidegate_exchange::{Presence, Refusal};
use tidegate_testkit::weighted;

use crate::array_world::{ArrayWorld, POLICIES};

const SECOND: Nanos = Nanos::SECOND;

const fn seconds(count: u64) -> Nanos {
    Nanos::from_secs(count)
}
/// Three exchanges, one each 30 ms.
const THREE_EXCHANGES: Nanos = Nanos::from_millis(90);
/// Parts of hosts of weights 100, 200 and 300.
pub(crate) const SIXTHS: [f64; 3] = [1.0 / 6.0, 2.0 / 6.0, 3.0 / 6.0];

pub(crate) fn assert_near(parts: [f64; 3], wanted: [f64; 3], within: f64, when: &str) {
    for (part, wanted) in parts.iter().zip(wanted) {
        let is_near = (part - wanted).abs() <= within;
        assert!(is_near, "{when}: {parts:?}, not {wanted:?}");
    }
}

/// Runs a test with hosts of weights 100, 200 and 300 under each policy.
fn under_each_policy(faults: &Faults, entitled: [u32; 3], test: impl Fn(&str, ArrayWorld)) {
    for policy in POLICIES {
        let world = ArrayWorld::new(policy, *faults, [100, 200, 300], entitled);
        test(policy, world);
    }
}

#[test]
fn shares_follow_weights_within_three_exchanges() {
    under_each_policy(&Faults::default(), [600; 3], |policy, mut world| {
        world.run(seconds(3));
        assert_near(world.parts(SECOND), SIXTHS, 0.02, policy);
        for (weight, parts) in [(600, [6.0, 2.0, 3.0]), (100, [1.0, 2.0, 3.0])] {
            world.set_weight(0, weight);
            world.run(THREE_EXCHANGES);
            let sum: f64 = parts.iter().sum();
            let got = world.parts(Nanos::from_millis(300));
            assert_near(got, parts.map(|part| part / sum), 0.04, policy);
        }
    });
}

#[test]
fn lost_late_and_reordered_messages_leave_shares_as_they_are() {
    let faults = Faults {
        lost_per_mille: 200,
        delay_max: Nanos::from_millis(60),
    };
    under_each_policy(&faults, [600; 3], |policy, mut world| {
        world.run(seconds(3));
        assert_near(world.parts(seconds(2)), SIXTHS, 0.03, policy);
        let overtaken = world.rules(0).refused(Refusal::Replayed);
        assert!(overtaken > 0, "messages overtook each other");
    });
}

#[test]
fn the_share_of_a_host_that_withdraws_goes_to_the_others() {
    under_each_policy(&Faults::default(), [600; 3], |policy, mut world| {
        world.run(seconds(2));
        world.end(2, true);
        world.run(seconds(2));
        assert_eq!(world.rules(0).peers()[1].presence, Presence::Withdrawn);
        let without_third = [1.0 / 3.0, 2.0 / 3.0, 0.0];
        assert_near(world.parts(SECOND), without_third, 0.03, policy);
    });
}

#[test]
fn the_entitlement_of_a_host_that_dies_is_left_to_it() {
    under_each_policy(&Faults::default(), [600; 3], |policy, mut world| {
        world.run(seconds(2));
        world.end(2, false);
        world.run(seconds(2));
        assert_eq!(world.rules(0).peers()[1].presence, Presence::Silent);
        let parts = world.parts(seconds(2));
        // 600 of the 900 are assumed to compete on the third host.
        assert!(parts[0] <= 0.13 && parts[1] <= 0.25, "{policy}: {parts:?}");
        assert!(parts[0] >= 0.08 && parts[1] >= 0.17, "{policy}: {parts:?}");
    });
}

#[test]
fn a_host_that_returns_has_its_share_again() {
    under_each_policy(&Faults::default(), [600; 3], |policy, mut world| {
        world.run(seconds(2));
        world.end(2, false);
        world.run(SECOND);
        assert_eq!(world.rules(0).peers()[1].presence, Presence::Silent);
        world.restart(2, &weighted(300));
        // The restarted host hears the others with their next reports, and they hear its first one.
        world.run(THREE_EXCHANGES);
        assert_eq!(world.rules(0).peers()[1].presence, Presence::Live);
        assert_eq!(world.rules(2).peers()[0].presence, Presence::Live);
        world.run(SECOND);
        assert_near(world.parts(SECOND), SIXTHS, 0.03, policy);
    });
}

#[test]
fn a_host_whose_policy_changes_keeps_its_part() {
    under_each_policy(&Faults::default(), [600; 3], |policy, mut world| {
        world.run(seconds(3));
        for new in POLICIES {
            world.set_policy(0, new);
            world.run(THREE_EXCHANGES);
            let when = format!("{policy}, then {new}");
            assert_near(world.parts(SECOND), SIXTHS, 0.03, &when);
        }
    });
}

#[test]
fn an_adapted_depth_on_each_host_leaves_shares_by_weight() {
    under_each_policy(&Faults::default(), [600; 3], |policy, mut world| {
        world.adapt_depths();
        world.run(seconds(10));
        let parts = world.parts(seconds(5));
        assert_near(parts, SIXTHS, 0.03, policy);
        assert!(parts.iter().sum::<f64>() > 0.97, "{policy}: {parts:?}");
    });
}

#[test]
fn guests_that_do_not_fill_the_depth_share_by_their_queues() {
    under_each_policy(&Faults::default(), [600; 3], |policy, mut world| {
        world.keep_outstanding(4);
        world.run(seconds(20));
        // Together 12 of a depth of 64: the scale rises until nothing waits, and the array serves
        // in order of arrival.
        assert_near(world.parts(seconds(2)), [1.0 / 3.0; 3], 0.03, policy);
    });
}

#[test]
fn a_host_that_claims_too_much_has_no_more_than_its_entitlement() {
    under_each_policy(&Faults::default(), [300; 3], |policy, mut world| {
        world.run(seconds(2));
        world.lie(2, 10.0);
        world.run(seconds(2));
        let rules = world.rules(0);
        assert!(rules.refused(Refusal::Entitlement) > 30);
        assert_eq!(rules.peers()[1].presence, Presence::Silent);
        let parts = world.parts(SECOND);
        assert!(parts[0] >= 0.14 && parts[1] >= 0.28, "{policy}: {parts:?}");
    });
}

#[test]
fn a_host_whose_vms_weigh_more_than_its_entitlement_reports_no_more() {
    for policy in POLICIES {
        let mut world = ArrayWorld::new(policy, Faults::default(), [100, 100, 1000], [200; 3]);
        world.run(seconds(3));
        assert_eq!(world.rules(0).refused(Refusal::Entitlement), 0);
        assert!((world.rules(0).peers()[1].weight - 200.0).abs() < 1e-6);
        assert_near(world.parts(SECOND), [0.25, 0.25, 0.5], 0.02, policy);
    }
}

#[test]
fn hosts_hold_to_their_entitlements_while_the_exchange_is_away() {
    for policy in POLICIES {
        let mut world = ArrayWorld::new(policy, Faults::default(), [50, 50, 50], [100, 200, 300]);
        world.run(seconds(2));
        assert_near(world.parts(SECOND), [1.0 / 3.0; 3], 0.02, policy);
        world.network.set_up(false);
        world.run(SECOND);
        assert!((0..3).all(|host| world.rules(host).is_cut_off()));
        assert_near(world.parts(seconds(2)), SIXTHS, 0.05, policy);
        world.network.set_up(true);
        world.run(SECOND);
        assert_near(world.parts(SECOND), [1.0 / 3.0; 3], 0.02, policy);
    }
}

#[test]
fn hosts_without_load_do_not_hold_the_correction_of_the_profile() {
    for claimed in [0.5, 2.0] {
        under_each_policy(&Faults::default(), [600; 3], |policy, mut world| {
            world.end_load(1);
            world.end_load(2);
            world.run(SECOND);
            // From here on the scales of the two idle hosts are wrong, and repeated by heartbeats.
            world.set_profile(claimed);
            world.run(seconds(5));
            assert!((0..2).all(|peer| world.rules(0).peers()[peer].presence == Presence::Live));
            let (part, scale) = (world.parts(SECOND)[0], world.scale(0));
            assert!(part >= 0.97, "{policy}, {claimed}: {part}");
            let off = scale * claimed;
            assert!((0.7..1.5).contains(&off), "{policy}, {claimed}: {scale}");
        });
    }
}

#[test]
fn a_host_is_gone_when_the_exchange_says_so_and_not_before() {
    under_each_policy(&Faults::default(), [600; 3], |policy, mut world| {
        world.run(seconds(2));
        world.end(2, false);
        (0..2).for_each(|host| world.delay_tick(host, seconds(3)));
        world.run(SECOND);
        let parts = world.parts(SECOND);
        // The third host's last report still counts: its silence is not noticed yet.
        assert!(parts[0] <= 0.19 && parts[1] <= 0.36, "{policy}: {parts:?}");
    });
}

#[test]
fn hosts_under_different_policies_share_by_weight() {
    for order in [["slo", "vfair", "slo"], ["vfair", "slo", "vfair"]] {
        let mut world = ArrayWorld::mixed(order, [100, 200, 300]);
        world.run(seconds(4));
        assert_near(world.parts(seconds(2)), SIXTHS, 0.03, &order.join(", "));
    }
}
