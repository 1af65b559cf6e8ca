//! Tests of ISACS against hand-computed values and the rules of its paper: Lee, Yu: I/O
//! Strength-Aware Credit Scheduler for Virtualized Environments (Electronics 9(12), 2020). All
//! equations, algorithms and sections are that paper's.
//!
//! | term        | meaning                                                                       |
//! |-------------|-------------------------------------------------------------------------------|
//! | strength    | number of I/O events times their average interval (equation 1)                 |
//! | IVCredit    | `io_credit`: strength times the vCPU's part of the CPU time (equation 2)      |
//! | group       | vCPUs whose IVCredit is below the mean of the nonzero ones (equation 3)       |
//! | CVCredit    | `cpu_credit`: what a vCPU of the group may use in CPU-BOOST (equation 4)      |
//! | algorithm 2 | moves a vCPU with I/O to the run-queue with less I/O                          |

use super::*;
use proptest::prelude::*;

pub(super) const MS: i64 = 1_000_000;

/// Creates a scheduler with a vCPU for each entry of `queues`, its run-queue.
pub(super) fn isacs_with(params: Params, queues: &[usize]) -> Isacs {
    let mut isacs = Isacs::new(params);
    queues.iter().for_each(|&queue| isacs.add(queue));
    isacs
}

/// Returns the vCPUs of a run-queue.
fn members_of(isacs: &Isacs, queue: usize) -> Vec<VcpuId> {
    let vcpus = (0..isacs.accounts.len()).map(|v| VcpuId(v as u32));
    vcpus.filter(|&v| isacs.account(v).queue == queue).collect()
}

/// Ends the epoch of a run-queue whose vCPUs are all runnable.
pub(super) fn end_epoch(isacs: &mut Isacs, now: Nanos, queue: usize) -> Renewal {
    let all = members_of(isacs, queue);
    let members = Members {
        queue,
        all: &all,
        is_runnable: &|_| true,
    };
    isacs.renew(now, all[0], &members)
}

/// Sends `count` counted events to `v`, `apart` ns from each other, the last one at `now`.
pub(super) fn events(isacs: &mut Isacs, v: VcpuId, now: Nanos, count: u64, apart: u64) {
    for n in (0..=count).rev() {
        isacs.io_event(Nanos(now.0 - n * apart), v, None);
    }
}

/// Three vCPUs after an epoch: the first two had I/O; they ran for 5, 10 and 15 ms.
pub(super) fn after_an_epoch(params: Params) -> Isacs {
    let mut isacs = isacs_with(params, &[0, 0, 0]);
    let now = Nanos::from_millis(30);
    events(&mut isacs, VcpuId(0), now, 20, 1_000_000);
    events(&mut isacs, VcpuId(1), now, 6, 1_000_000);
    for (v, ran) in [5, 10, 15].into_iter().enumerate() {
        isacs.burn(VcpuId(v as u32), ran * MS);
    }
    assert_eq!(end_epoch(&mut isacs, now, 0), Renewal::Reallocated);
    isacs
}

#[test]
fn credits_follow_equations_2_to_4() {
    let isacs = after_an_epoch(Params::default());
    let account = |v: u32| *isacs.account(VcpuId(v));
    // IVCredit in ns: strengths of 20, 6 and 0 ms times the parts 5/30, 10/30 and 15/30 of the CPU
    // time.
    let given = [3_333_333, 2_000_000, 0];
    assert_eq!([0, 1, 2].map(|v| account(v).io_credit), given);
    assert_eq!([0, 1, 2].map(|v| account(v).end), given);
    assert_eq!(
        [0, 1, 2].map(|v| account(v).credit),
        given.map(|g| g + 10 * MS)
    );
    // The mean of the nonzero IVCredits is 2.67 ms: the second and the third are below it.
    assert_eq!([0, 1, 2].map(|v| account(v).in_group), [false, true, true]);
    // Half of 5.33 ms each, times run-time / 10 ms.
    assert_eq!(
        [0, 1, 2].map(|v| account(v).cpu_credit),
        [0, 2_666_666, 3_999_999]
    );
    assert_eq!(isacs.queue(0).io_load, 5_333_333);
}

#[test]
fn without_io_all_vcpus_get_the_same_credit() {
    let mut isacs = isacs_with(Params::default(), &[0, 0]);
    isacs.burn(VcpuId(0), 10 * MS);
    assert_eq!(
        end_epoch(&mut isacs, Nanos::from_millis(10), 0),
        Renewal::Reallocated
    );
    for v in [VcpuId(0), VcpuId(1)] {
        let account = isacs.account(v);
        assert_eq!((account.credit, account.end), (10 * MS, 0));
        assert!(!account.in_group);
    }
}

#[test]
fn io_credit_raises_the_rank_and_cannot_be_spent() {
    let mut isacs = after_an_epoch(Params::default());
    let ranks = [0, 1, 2].map(|v| isacs.rank(VcpuId(v)));
    assert!(ranks[0] > ranks[1] && ranks[1] > ranks[2], "{ranks:?}");
    for v in [0, 1, 2].map(VcpuId) {
        // Section 4.4: the spendable credit is the same for all, whatever the IVCredit.
        assert_eq!(isacs.usable(v), 10 * MS);
        isacs.burn(v, 10 * MS - 1);
        assert!(isacs.rank(v) > 0, "{v:?}");
        isacs.burn(v, 1);
        assert!(isacs.rank(v) <= 0, "{v:?}");
    }
}

#[test]
fn cpu_boost_lasts_from_the_end_of_credit_to_the_end_of_cpu_credit() {
    let mut isacs = after_an_epoch(Params::default());
    let now = Nanos::from_millis(60);
    (0..3).for_each(|v| isacs.burn(VcpuId(v), 10 * MS));
    assert_eq!(end_epoch(&mut isacs, now, 0), Renewal::Boosted);
    // Order by CVCredit; a vCPU without any comes last.
    let ranks = [0, 1, 2].map(|v| isacs.rank(VcpuId(v)));
    assert_eq!(ranks, [0, 2_666_666, 3_999_999]);
    isacs.began(Nanos::ZERO, VcpuId(2));
    isacs.burn(VcpuId(2), 4 * MS);
    assert_eq!(isacs.account(VcpuId(2)).cpu_credit, -1);
    // The other group member has CVCredit left and runs on another pCPU.
    assert_eq!(end_epoch(&mut isacs, now, 0), Renewal::Kept);
    isacs.began(Nanos::ZERO, VcpuId(1));
    isacs.burn(VcpuId(1), 4 * MS);
    assert_eq!(end_epoch(&mut isacs, now, 0), Renewal::Reallocated);
    assert!(!isacs.queue(0).boosted);
}

#[test]
fn slices_in_cpu_boost_are_short_unless_long_boost_is_set() {
    for long_boost in [false, true] {
        let mut isacs = after_an_epoch(Params {
            long_boost,
            ..Params::default()
        });
        let group = VcpuId(2);
        assert!(isacs.has_long_slices(group));
        (0..3).for_each(|v| isacs.burn(VcpuId(v), 10 * MS));
        end_epoch(&mut isacs, Nanos::from_millis(60), 0);
        assert!(isacs.queue(0).boosted);
        assert_eq!(isacs.has_long_slices(group), long_boost);
    }
}

#[test]
fn a_vcpu_that_wakes_with_credit_ends_cpu_boost() {
    let mut isacs = after_an_epoch(Params::default());
    (1..3).for_each(|v| isacs.burn(VcpuId(v), 10 * MS));
    let sleeps = VcpuId(0);
    let all = members_of(&isacs, 0);
    let members = Members {
        queue: 0,
        all: &all,
        is_runnable: &|v| v != sleeps,
    };
    let renewal = isacs.renew(Nanos::from_millis(60), VcpuId(1), &members);
    assert_eq!(renewal, Renewal::Boosted);
    let reorders = |v| isacs.would_reorder(v, true);
    assert!(reorders(sleeps) && !reorders(VcpuId(1)));
    isacs.woke(sleeps);
    assert!(isacs.rank(sleeps) > 0 && isacs.rank(VcpuId(2)) <= 0);
}

/// A vCPU that runs by its CVCredit keeps paying with it after a waking vCPU ended CPU-BOOST.
#[test]
fn a_slice_begun_in_cpu_boost_burns_cpu_credit() {
    let mut isacs = after_an_epoch(Params::default());
    let (sleeps, runs) = (VcpuId(0), VcpuId(2));
    (1..3).for_each(|v| isacs.burn(VcpuId(v), 10 * MS));
    end_epoch(&mut isacs, Nanos::from_millis(60), 0);
    isacs.began(Nanos::ZERO, runs);
    isacs.woke(sleeps);
    let before = *isacs.account(runs);
    isacs.burn(runs, MS);
    let after = isacs.account(runs);
    assert_eq!(after.cpu_credit, before.cpu_credit - MS);
    assert_eq!(after.credit, before.credit);
    assert_eq!(after.consumed_boosted, before.consumed_boosted + MS);
    // Chosen again outside CPU-BOOST, the vCPU burns its credit.
    isacs.began(Nanos::ZERO, runs);
    isacs.burn(runs, MS);
    assert_eq!(isacs.account(runs).credit, before.credit - MS);
}

#[test]
fn a_reset_forgives_debt_unless_keeps_debt_is_set() {
    for (keeps_debt, credit) in [(false, 10 * MS), (true, 7 * MS)] {
        let params = Params {
            keeps_debt,
            ..Params::default()
        };
        let mut isacs = isacs_with(params, &[0]);
        isacs.burn(VcpuId(0), 13 * MS);
        end_epoch(&mut isacs, Nanos::from_millis(13), 0);
        assert_eq!(isacs.account(VcpuId(0)).credit, credit);
    }
}

#[test]
fn io_credit_is_clamped_at_2_pow_31_and_counted() {
    let mut isacs = isacs_with(Params::default(), &[0]);
    // A thousand events in quick succession, then one after 9 ms: a strength of nine seconds.
    let now = Nanos::from_millis(40);
    events(&mut isacs, VcpuId(0), now, 1_000, 10_000);
    isacs.io_event(now + Nanos::from_millis(9), VcpuId(0), None);
    isacs.burn(VcpuId(0), MS);
    end_epoch(&mut isacs, now, 0);
    assert_eq!(isacs.account(VcpuId(0)).io_credit, 1 << 31);
    let mut counts = Counts::default();
    isacs.count(&mut counts);
    assert_eq!(counts.clamped, 1);
}

/// Two run-queues with vCPUs of the given IVCredits and events in the last epoch of 10 ms.
fn two_queues(credits: [&[i64]; 2], events: [u64; 2], params: Params) -> Isacs {
    let queues: Vec<usize> = [0, 1].map(|q| vec![q; credits[q].len()]).concat();
    let mut isacs = isacs_with(params, &queues);
    for (account, &credit) in isacs.accounts.iter_mut().zip(credits.concat().iter()) {
        account.io_credit = credit;
    }
    for q in [0, 1] {
        isacs.queues[q] = QueueState {
            io_load: credits[q].iter().sum(),
            events: events[q],
            epoch: Nanos::from_millis(10),
            ..QueueState::default()
        };
    }
    isacs
}

fn move_from_first(isacs: &Isacs, may: &dyn Fn(VcpuId, usize) -> bool) -> Option<(VcpuId, usize)> {
    let all = members_of(isacs, 0);
    let members = Members {
        queue: 0,
        all: &all,
        is_runnable: &|_| true,
    };
    isacs.io_move(&members, may)
}

#[test]
fn algorithm_2_moves_the_vcpu_that_evens_the_load_best_or_the_last_as_printed() {
    let credits: [&[i64]; 2] = [&[100, 300, 900, 200], &[500]];
    let anywhere = |_: VcpuId, _: usize| true;
    // 1500 against 500: moving 300 leaves 1200 and 800; moving 900 would reverse the imbalance.
    let isacs = two_queues(credits, [10, 5], Params::default());
    assert_eq!(move_from_first(&isacs, &anywhere), Some((VcpuId(1), 1)));
    let printed = Params {
        last_migrates: true,
        ..Params::default()
    };
    let isacs = two_queues(credits, [10, 5], printed);
    assert_eq!(move_from_first(&isacs, &anywhere), Some((VcpuId(3), 1)));
    // Affinity is respected.
    let pinned = |v: VcpuId, _: usize| v != VcpuId(3);
    assert_eq!(move_from_first(&isacs, &pinned), Some((VcpuId(1), 1)));
}

proptest! {
    /// A vCPU moves exactly if both conditions of section 4.5 hold for some vCPU.
    #[test]
    fn algorithm_2_moves_only_under_its_two_conditions(
        here in prop::collection::vec(0_i64..1000, 1..6),
        there in prop::collection::vec(0_i64..1000, 1..6),
        events in [0_u64..20, 0..20],
    ) {
        let isacs = two_queues([&here, &there], events, Params::default());
        let loads = [here.iter().sum::<i64>(), there.iter().sum()];
        let meets = |v: VcpuId| {
            let own = isacs.account(v).io_credit;
            own > 0 && loads[1] + own < loads[0] - own
        };
        let is_due = events[1] < events[0] && (0..here.len()).any(|v| meets(VcpuId(v as u32)));
        let moved = move_from_first(&isacs, &|_, _| true);
        prop_assert_eq!(moved.is_some(), is_due);
        if let Some((v, to)) = moved {
            prop_assert!(meets(v) && to == 1);
        }
    }

    /// Conservation of credit: burnt credit is missing in one account of its vCPU or forgiven at
    /// the minimum, and credit is only given at a reset.
    #[test]
    fn burnt_credit_is_missing_in_one_account(
        steps in prop::collection::vec((0_u32..3, 0_i64..6_000_000), 1..60),
    ) {
        let mut isacs = after_an_epoch(Params::default());
        let both = |account: &Account| account.credit + account.cpu_credit;
        let mut now = Nanos::from_millis(60);
        for (v, amount) in steps {
            let v = VcpuId(v);
            isacs.began(Nanos::ZERO, v);
            let before = isacs.accounts.clone();
            isacs.burn(v, amount);
            for (other, was) in before.iter().enumerate() {
                let is = &isacs.accounts[other];
                if other != v.index() {
                    prop_assert_eq!(is, was);
                    continue;
                }
                let min_credit = was.end - 10 * MS;
                let forgiven = (min_credit - (was.credit - amount)).max(0);
                let forgiven = if was.runs_boosted { 0 } else { forgiven };
                prop_assert_eq!(both(is), both(was) - amount + forgiven);
                prop_assert_eq!(is.consumed, was.consumed + amount);
            }
            if (0..3).all(|v| isacs.rank(VcpuId(v)) <= 0) {
                now += Nanos::from_millis(30);
                let before = isacs.accounts.clone();
                if end_epoch(&mut isacs, now, 0) == Renewal::Reallocated {
                    let consumed: i64 = before.iter().map(|a| a.consumed).sum();
                    for (was, is) in before.iter().zip(&isacs.accounts) {
                        let strength = i128::from(was.events.strength()) * i128::from(was.consumed);
                        let due = strength / i128::from(consumed.max(1));
                        prop_assert_eq!(i128::from(is.io_credit), due);
                        prop_assert_eq!(is.credit, 10 * MS + is.io_credit);
                    }
                }
            }
        }
    }

    /// Every vCPU has the same spendable credit until the next reset, whatever its I/O.
    #[test]
    fn spendable_credit_is_the_same_for_all_vcpus(
        vcpus in prop::collection::vec((0_u64..50, 1_u64..9_000_000, 0_i64..40_000_000), 1..8),
    ) {
        let mut isacs = isacs_with(Params::default(), &vec![0; vcpus.len()]);
        let now = Nanos::from_secs(10);
        for (v, &(count, apart, ran)) in vcpus.iter().enumerate() {
            events(&mut isacs, VcpuId(v as u32), now, count, apart);
            isacs.burn(VcpuId(v as u32), ran);
        }
        end_epoch(&mut isacs, now, 0);
        for v in 0..vcpus.len() {
            prop_assert_eq!(isacs.usable(VcpuId(v as u32)), 10 * MS);
        }
        // Members of the group have at most the mean; a vCPU with less than it is a member.
        let given: Vec<i64> = isacs.accounts.iter().map(|a| a.io_credit).collect();
        let some = given.iter().filter(|&&g| g > 0).count().max(1) as i64;
        let sum: i64 = given.iter().sum();
        for account in &isacs.accounts {
            let below = sum as f64 / some as f64 / (account.io_credit + 1) as f64 > 1.0;
            prop_assert_eq!(account.in_group, below);
        }
    }
}
