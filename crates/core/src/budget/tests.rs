//! Tests of [`Budget`].

use super::*;
use tidegate_base::random::SplitMix64;

const MS: u64 = 1_000_000;

fn shares(weight: u64, reservation: u64) -> Shares {
    Shares {
        weight,
        reservation,
    }
}

fn budget(total: u64, per_member: u64, reserve: u64) -> Budget {
    let bounds = Bounds {
        total,
        per_member,
        reserve,
        divided: true,
    };
    Budget::new(bounds, 64)
}

/// Members of weight 1 without reservations.
fn alike(members: usize, bounds: (u64, u64, u64)) -> Budget {
    let mut budget = budget(bounds.0, bounds.1, bounds.2);
    (0..members).for_each(|who| budget.add(who, shares(1, 0)));
    budget
}

#[test]
fn the_guaranteed_half_is_divided_by_weight_and_by_reservation() {
    let mut by_weight = budget(800, 800, 0);
    by_weight.add(0, shares(1, 0));
    by_weight.add(1, shares(3, 0));
    assert_eq!(
        [by_weight.guaranteed_part(0), by_weight.guaranteed_part(1)],
        [50 + 75, 50 + 225]
    );

    let mut both = budget(800, 800, 0);
    both.add(0, shares(1, 0));
    both.add(1, shares(1, 500));
    assert_eq!(
        [both.guaranteed_part(0), both.guaranteed_part(1)],
        [50 + 75, 50 + 75 + 150]
    );

    both.remove(0);
    assert_eq!(both.guaranteed_part(1), 400);
    both.change(1, shares(7, 0));
    assert_eq!(both.guaranteed_part(1), 400);
}

#[test]
fn a_member_added_as_the_epoch_wraps_has_its_part() {
    let mut budget = budget(800, 800, 0);
    budget.division.epoch = u32::MAX;
    budget.add(0, shares(1, 0));
    assert_eq!(budget.division.epoch, 1);
    assert_eq!(budget.available(Nanos::ZERO, 0), 400);
}

#[test]
fn a_part_is_there_whatever_others_hold() {
    let mut budget = alike(4, (800, 800, 0));
    let now = Nanos::ZERO;
    for greedy in 0..3 {
        while budget.take_or_wait(now, greedy, 1) {}
    }
    assert_eq!(budget.used(), 300);
    for _ in 0..100 {
        assert!(budget.take_or_wait(now, 3, 1));
    }
    assert!(!budget.take_or_wait(now, 3, 1));
}

#[test]
fn a_member_borrows_what_it_returns_in_100_ms_and_no_more() {
    let mut budget = alike(2, (800, 800, 0));
    let mut now = Nanos::ZERO;
    while budget.take_or_wait(now, 0, 1) {}
    assert_eq!(budget.held(0), 200);
    // 50 in 100 ms, each taken again at once.
    for _ in 0..50 {
        now += Nanos(2 * MS);
        budget.give_back(now, 0, 1);
        while budget.take_or_wait(now, 0, 1) {}
    }
    let lent = budget.held(0) - 200;
    assert!((45..=51).contains(&lent), "{lent}");
    assert!(budget.exceeds_part(0));
    // A second later there were no returns in the window: nothing more is lent.
    now += Nanos(1000 * MS);
    budget.give_back(now, 0, 30);
    let before = budget.held(0);
    while budget.take_or_wait(now, 0, 1) {}
    assert!(budget.held(0) <= before + 30 && budget.held(0) < 260);
}

#[test]
fn a_request_larger_than_its_part_is_held_in_the_reserve_one_member_at_a_time() {
    let mut budget = alike(10, (100, 100, 64));
    let now = Nanos::ZERO;
    assert!(budget.take_or_wait(now, 0, 64));
    assert!(!budget.take_or_wait(now, 1, 64));
    assert!(!budget.take_or_wait(now, 2, 64));
    assert!(budget.is_contended());
    assert_eq!(budget.next_ready(), None);
    // Parts are not touched by it.
    assert!(budget.take_or_wait(now, 3, 4));
    budget.give_back(now, 0, 64);
    assert_eq!(budget.next_ready(), Some(1));
    assert!(budget.take_or_wait(now, 1, 64));
    assert_eq!(budget.next_ready(), None);
    budget.give_back(now, 1, 64);
    assert_eq!(budget.next_ready(), Some(2));
    assert!(budget.take_or_wait(now, 2, 64));
    assert!(!budget.is_contended());
}

#[test]
fn undivided_it_is_first_come_first_served() {
    let bounds = Bounds {
        total: 10,
        per_member: 8,
        reserve: 0,
        divided: false,
    };
    let mut budget = Budget::new(bounds, 64);
    (0..3).for_each(|who| budget.add(who, shares(1, 0)));
    let now = Nanos::ZERO;
    assert!(budget.take_or_wait(now, 0, 8) && !budget.take_or_wait(now, 0, 1));
    assert!(budget.take_or_wait(now, 1, 2));
    assert!(!budget.take_or_wait(now, 2, 1) && !budget.take_or_wait(now, 1, 1));
    budget.give_back(now, 0, 2);
    let mut told = Vec::new();
    while let Some(who) = budget.next_ready() {
        assert!(budget.take_or_wait(now, who, 1));
        told.push(who);
    }
    assert_eq!(told, [2, 1]);
}

#[test]
fn loans_go_round_by_weight() {
    let mut budget = budget(2000, 2000, 0);
    budget.add(0, shares(1, 0));
    budget.add(1, shares(3, 0));
    let mut now = Nanos::ZERO;
    // Both have returned a lot lately, and want more than there is to lend.
    for who in [0, 1] {
        while budget.take_or_wait(now, who, 1) {}
        let held = budget.held(who);
        budget.give_back(now, who, held);
        for _ in 0..30 {
            assert!(budget.take_or_wait(now, who, held));
            budget.give_back(now, who, held);
        }
        assert!(budget.take_or_wait(now, who, held));
    }
    for who in [0, 1] {
        while budget.take_or_wait(now, who, 10) {}
    }
    let mut grants = [0, 0];
    for turn in 0..400 {
        // A member that holds a loan returns some of it.
        let giver = [0, 1][turn % 2];
        if budget.members[giver].loan >= 10 {
            now += Nanos(1000);
            budget.give_back(now, giver, 10);
        }
        while let Some(who) = budget.next_ready() {
            if budget.take_or_wait(now, who, 10) {
                grants[who] += 1;
            }
            while budget.take_or_wait(now, who, 10) {
                grants[who] += 1;
            }
        }
    }
    assert!(grants[0] > 0 && grants[1] >= grants[0], "{grants:?}");
}

#[test]
fn undone_claims_count_for_nothing() {
    let mut budget = alike(2, (80, 80, 0));
    let now = Nanos::ZERO;
    for _ in 0..100 {
        assert!(budget.take_or_wait(now, 0, 20));
        budget.undo(0, 20);
    }
    assert!(budget.take_or_wait(now, 0, 20));
    assert!(!budget.take_or_wait(now, 0, 1), "nothing was returned");
}

#[test]
fn a_claim_inside_its_part_comes_first_when_parts_became_smaller() {
    let mut budget = alike(1, (100, 100, 0));
    let now = Nanos::ZERO;
    assert!(budget.take_or_wait(now, 0, 50));
    budget.give_back(now, 0, 50);
    assert!(budget.take_or_wait(now, 0, 100), "it returned 50 just now");
    budget.add(1, shares(1, 0));
    assert!(!budget.take_or_wait(now, 0, 1));
    assert!(!budget.take_or_wait(now, 1, 25));
    budget.give_back(now, 0, 25);
    assert_eq!(budget.next_ready(), Some(1));
    assert!(budget.take_or_wait(now, 1, 25));
}

#[test]
fn memory_of_members_that_left_is_given_back() {
    let mut budget = budget(1 << 20, 1 << 20, 0);
    (0..1000).for_each(|who| budget.add(who, shares(1, 0)));
    (0..1000).for_each(|who| budget.remove(who));
    assert!(budget.members.capacity() < 100);
    budget.add(3, shares(1, 0));
    assert!(budget.take_or_wait(Nanos::ZERO, 3, 1));
}

/// Random claims and returns: the bounds hold, a claim inside a part is refused only where parts
/// became smaller, and every waiting member gets its claim once everything was returned.
#[test]
fn bounds_hold_and_every_wait_ends() {
    for seed in 0..300 {
        let mut random = SplitMix64::new(seed);
        let members = 1 + random.below(12) as usize;
        let (total, reserve) = (random.below(400), 64 * random.below(2));
        let bounds = (total.max(1), 1 + random.below(total + 1), reserve);
        let mut budget = budget(bounds.0, bounds.1, bounds.2);
        for who in 0..members {
            budget.add(who, shares(1 + random.below(5), random.below(3) * 100));
        }
        let mut held: Vec<Vec<u64>> = vec![Vec::new(); members];
        let mut wants: Vec<Option<u64>> = vec![None; members];
        let mut now = Nanos::ZERO;
        let settle =
            |budget: &mut Budget, held: &mut Vec<Vec<u64>>, wants: &mut Vec<Option<u64>>, now| {
                while let Some(who) = budget.next_ready() {
                    let want = wants[who].expect("who wants nothing is not told");
                    if budget.take_or_wait(now, who, want) {
                        held[who].push(want);
                        wants[who] = None;
                    }
                }
            };
        for _ in 0..400 {
            now += Nanos(random.below(20 * MS));
            let who = random.below(members as u64) as usize;
            if random.below(2) == 0 && wants[who].is_none() {
                let largest = if reserve > 0 { 64 } else { 1 };
                let amount = 1 + random.below(largest);
                let sum: u64 = held[who].iter().sum();
                // A part is at least 1, however small the total is.
                let enough = total >= 2 * members as u64;
                let inside = enough && sum + amount <= budget.guaranteed_part(who).min(bounds.1);
                if budget.take_or_wait(now, who, amount) {
                    held[who].push(amount);
                } else {
                    assert!(!inside, "seed {seed}: a claim inside its part was refused");
                    wants[who] = Some(amount);
                }
            } else if !held[who].is_empty() {
                let at = random.below(held[who].len() as u64) as usize;
                let amount = held[who].swap_remove(at);
                budget.give_back(now, who, amount);
            }
            settle(&mut budget, &mut held, &mut wants, now);
            let sums: Vec<u64> = held.iter().map(|of| of.iter().sum()).collect();
            assert_eq!(budget.used(), sums.iter().sum::<u64>(), "seed {seed}");
            assert!(budget.used() <= bounds.0 + bounds.2.max(64), "seed {seed}");
            for (who, sum) in sums.iter().enumerate() {
                assert_eq!(budget.held(who), *sum, "seed {seed}");
                assert!(*sum <= bounds.1.max(64), "seed {seed}");
            }
        }
        for _ in 0..10_000 {
            let Some(who) = held.iter().position(|of| !of.is_empty()) else {
                break;
            };
            now += Nanos(MS);
            let amount = held[who].pop().expect("it is not empty");
            budget.give_back(now, who, amount);
            settle(&mut budget, &mut held, &mut wants, now);
        }
        assert!(
            wants.iter().all(Option::is_none),
            "seed {seed}: {wants:?} wait for ever"
        );
    }
}
