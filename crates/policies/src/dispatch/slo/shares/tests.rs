//! Tests of shares.

use super::*;

/// Returns how many of `turns` the VMs have that are realtime, best effort and idle, with
/// something waiting at all times, one turn each `spacing`.
fn turns_by_class(turns: u64, spacing: Nanos) -> [u64; VM_CLASSES] {
    let mut shares = Shares::with_capacity(VM_CLASSES);
    let priorities = [Priority::RealTime, Priority::BestEffort(4), Priority::Idle];
    for (vm, priority) in priorities.into_iter().enumerate() {
        let objective = Objective {
            priority,
            ..Objective::default()
        };
        shares.set_vm(Nanos::ZERO, vm, &objective, false, true);
        shares.activate(Nanos::ZERO, vm, 0, 0);
    }
    let (mut now, mut had) = (Nanos::ZERO, [0; VM_CLASSES]);
    for _ in 0..turns {
        now += spacing;
        let vm = shares.first(now).expect("all wait");
        shares.charge(now, vm, 1000, None);
        had[vm] += 1;
    }
    had
}

#[test]
fn a_class_below_has_a_turn_each_half_second() {
    let had = turns_by_class(10_000, Nanos::from_millis(1));
    assert_eq!(had, [9961, 20, 19]);
}

fn grouped() -> Objective {
    Objective {
        group: Some(Group {
            name: "chunks".parse().expect("short"),
            weight: 100,
        }),
        ..Objective::default()
    }
}

#[test]
fn members_of_a_group_have_turns_beside_one_that_is_served_by_promise() {
    const COST: u64 = 1 << 20;
    const MOST: u64 = 32 * COST;
    const NOW: Nanos = Nanos::ZERO;
    let mut shares = Shares::with_capacity(4);
    for vm in 0..3 {
        shares.set_vm(NOW, vm, &grouped(), false, true);
    }
    shares.set_vm(NOW, 3, &Objective::default(), false, true);
    for vm in [0, 1, 3] {
        shares.activate(NOW, vm, MOST, 0);
    }
    let share = |shares: &mut Shares| {
        let vm = shares.first(NOW).expect("some wait");
        shares.charge(NOW, vm, COST, None);
        vm
    };
    // Four I/Os by VM 0's promise for each by share: more than the share of its group.
    let mut had = [0u32; 4];
    for _ in 0..6600 {
        (0..4).for_each(|_| shares.charge(NOW, 0, COST, Some(MOST)));
        had[share(&mut shares)] += 1;
    }
    // VM 3 has 32 and one for each of the group's.
    assert_eq!(had[0], 0);
    assert!((190..=201).contains(&had[1]), "{had:?}");
    // One that wakes is served within two turns of its group, as VM 1 is.
    shares.activate(NOW, 2, MOST, 0);
    let until_served = (0..200).find(|_| {
        (0..4).for_each(|_| shares.charge(NOW, 0, COST, Some(MOST)));
        share(&mut shares) == 2
    });
    assert!(
        until_served.is_some_and(|turns| turns <= 66),
        "{until_served:?}"
    );
    // Without the promise VM 0 has its share again once the others have had its lead.
    let mut had = [0u32; 4];
    for _ in 0..600 {
        had[share(&mut shares)] += 1;
    }
    assert!(had[0] >= 70 && had[1].abs_diff(had[2]) <= 1, "{had:?}");
}

#[test]
fn a_group_whose_part_grows_has_its_share_at_once() {
    let mut shares = Shares::with_capacity(2);
    shares.set_vm(Nanos::ZERO, 0, &grouped(), false, true);
    shares.set_vm(Nanos::ZERO, 1, &Objective::default(), false, true);
    shares.activate(Nanos::ZERO, 0, 0, 0);
    shares.activate(Nanos::ZERO, 1, 0, 0);
    // A thousandth of the weight is here: one I/O of 1,000 puts it a million ahead.
    shares.set_group_part(0, Knob::GROUP_WHOLE / 1000);
    shares.charge(Nanos::ZERO, 0, 1000, None);
    shares.set_group_part(0, Knob::GROUP_WHOLE);
    let mut had = [0; 2];
    for _ in 0..100 {
        let vm = shares.first(Nanos::ZERO).expect("both wait");
        shares.charge(Nanos::ZERO, vm, 1000, None);
        had[vm] += 1;
    }
    assert!(had.iter().all(|had| (48..=52).contains(had)), "{had:?}");
}

#[test]
fn no_class_starves_where_turns_are_rare() {
    for millis in [499, 500, 600, 5000] {
        let had = turns_by_class(300, Nanos::from_millis(millis));
        assert!(had.iter().all(|&had| had >= 99), "{millis} ms: {had:?}");
    }
}

/// Cost that members' tags count without a remainder at weights of 100 and 200.
const COST: u64 = 800 << 20;

/// Two members of a group, of weights 100 and 200, of which something waits.
fn two_members() -> Shares {
    let mut shares = Shares::with_capacity(2);
    for (vm, weight) in [100, 200].into_iter().enumerate() {
        let objective = Objective {
            weight,
            ..grouped()
        };
        shares.set_vm(Nanos::ZERO, vm, &objective, false, true);
        shares.activate(Nanos::ZERO, vm, 0, 0);
    }
    shares
}

#[test]
fn members_of_a_group_are_ahead_of_each_other_by_their_own_weights() {
    let mut shares = two_members();
    for _ in 0..4 {
        shares.charge(Nanos::ZERO, 1, COST, None);
    }
    assert!(shares.is_behind(0, 1) && !shares.is_behind(1, 0));
    assert_eq!(
        [shares.lead_over(1, 0), shares.lead_over(0, 1)],
        [4 * COST, 0]
    );
    shares.charge(Nanos::ZERO, 0, 2 * COST, None);
    assert!(
        !shares.is_behind(0, 1) && !shares.is_behind(1, 0),
        "2 at 100 are 4 at 200"
    );
}

#[test]
fn a_member_that_was_passed_over_keeps_what_it_is_behind() {
    let ahead_after = |behind| {
        let mut shares = two_members();
        shares.deactivate(0);
        for _ in 0..8 {
            shares.charge(Nanos::ZERO, 1, COST, None);
        }
        shares.activate(Nanos::ZERO, 0, u64::MAX, behind);
        shares.lead_over(1, 0)
    };
    // The service before the last one is the group's clock.
    assert_eq!(ahead_after(0), COST);
    assert_eq!(
        ahead_after(COST),
        3 * COST,
        "twice by the weight of the other"
    );
    assert_eq!(ahead_after(100 * COST), 8 * COST, "no more than it missed");
}

#[test]
fn a_member_ahead_of_its_own_share_is_not_within_it() {
    let mut shares = two_members();
    assert!(shares.is_within(1, COST));
    for _ in 0..2 {
        shares.charge(Nanos::ZERO, 1, 4 * COST, None);
    }
    // The group is alone in its class, and ahead by its last I/O only.
    assert!(!shares.is_within(1, 6 * COST) && shares.is_within(0, 6 * COST));
}
