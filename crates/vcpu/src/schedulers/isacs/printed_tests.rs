//! Tests of algorithm 1 as printed, and of the readings of equation 4 and of line 18; terms as in
//! [`tests`](super::tests).

use super::tests::{MS, after_an_epoch, end_epoch, events, isacs_with};
use super::*;

fn printed() -> Params {
    Params {
        algorithm_1: Algorithm1::Printed,
        ..Params::default()
    }
}

/// Lines 3 and 4: the vCPU with the highest credit, IVCredit included, is at its own end. IVCredits
/// are 3.33, 2 and 0 ms.
#[test]
fn as_printed_cpu_boost_begins_although_others_have_credit() {
    let ended = |params, last: i64| {
        let mut isacs = after_an_epoch(params);
        for (v, ran) in [10 * MS, 10 * MS, last].into_iter().enumerate() {
            isacs.burn(VcpuId(v as u32), ran);
        }
        let first = (0..3).map(VcpuId).max_by_key(|&v| isacs.rank(v));
        let first = first.expect("three vCPUs");
        (first, isacs.is_spent(first))
    };
    // The third has 3 ms left, less than the first one's IVCredit, or 4 ms, which is more.
    assert_eq!(ended(printed(), 7 * MS), (VcpuId(0), true));
    assert_eq!(ended(printed(), 6 * MS), (VcpuId(2), false));
    assert_eq!(ended(Params::default(), 7 * MS), (VcpuId(2), false));
}

/// Three vCPUs in CPU-BOOST as printed, the third of which has 3 ms of credit left; the group are
/// the second and the third, with CVCredits of 2.67 and 4 ms.
fn in_cpu_boost() -> Isacs {
    let mut isacs = after_an_epoch(printed());
    for (v, ran) in [10, 10, 7].into_iter().enumerate() {
        isacs.burn(VcpuId(v as u32), ran * MS);
    }
    let renewal = end_epoch(&mut isacs, Nanos::from_millis(60), 0);
    assert_eq!(renewal, Renewal::Boosted);
    isacs
}

#[test]
fn as_printed_a_vcpu_that_is_put_back_leaves_cpu_boost_as_it_is() {
    let isacs = in_cpu_boost();
    let (second, third) = (VcpuId(1), VcpuId(2));
    assert!(!isacs.would_reorder(third, false));
    assert_eq!(isacs.rank(second), 2_666_666);
    assert_eq!(isacs.rank(third), 3_999_999);
    // A vCPU outside the group comes last, and above an idle pCPU.
    assert!(isacs.rank(VcpuId(0)) <= 0 && isacs.is_spent(VcpuId(0)));
}

#[test]
fn as_printed_a_vcpu_that_wakes_with_credit_goes_before_the_group() {
    let mut isacs = in_cpu_boost();
    let (second, third) = (VcpuId(1), VcpuId(2));
    assert!(isacs.would_reorder(third, true));
    isacs.woke(third);
    assert!(isacs.queue(0).boosted);
    assert!(isacs.rank(third) > isacs.rank(second) + 100 * MS);
    assert_eq!(isacs.usable(third), 3 * MS);
    // The vCPU pays with credit, and with its CVCredit once that is used up.
    isacs.began(Nanos::ZERO, third);
    isacs.burn(third, 3 * MS);
    let account = *isacs.account(third);
    assert_eq!((account.credit, account.cpu_credit), (0, 3_999_999));
    assert_eq!(isacs.rank(third), 3_999_999);
    // A vCPU without credit that wakes changes nothing.
    assert!(!isacs.would_reorder(VcpuId(0), true));
}

/// Equations 3 and 4 give nothing to a vCPU that did not run, so one that leads by an IVCredit
/// above the default credit keeps all others from running, for good.
#[test]
fn as_printed_a_vcpu_with_much_io_starves_one_without() {
    let mut isacs = isacs_with(printed(), &[0, 0]);
    let (io, hog) = (VcpuId(0), VcpuId(1));
    for epoch in 1..20 {
        // The first event is more than 10 ms after the last epoch's, and is not counted.
        let now = Nanos::from_millis(31 * epoch);
        events(&mut isacs, io, now, 40, 500_000);
        isacs.burn(io, 10 * MS);
        assert_eq!(end_epoch(&mut isacs, now, 0), Renewal::Reallocated);
        // All credit burnt is its own: 40 events of half a millisecond are 20 ms.
        assert_eq!(isacs.account(io).io_credit, 20 * MS);
        let other = isacs.account(hog);
        assert!(other.in_group && other.cpu_credit == 0);
        assert!(isacs.rank(io) - 10 * MS > isacs.rank(hog));
    }
}

/// Equation 4 by hand: the third vCPU pays 10 ms with credit and 4 ms with CVCredit.
#[test]
fn what_cpu_boost_burnt_counts_in_equation_4_only_if_it_is_to() {
    for (counts_boost, consumed) in [(true, 14), (false, 10)] {
        let mut isacs = after_an_epoch(Params {
            counts_boost,
            ..Params::default()
        });
        let (io, third) = (VcpuId(0), VcpuId(2));
        (0..3).for_each(|v| isacs.burn(VcpuId(v), 10 * MS));
        // The first event is 12 ms after the last epoch's, and is not counted.
        let now = Nanos::from_millis(80);
        assert_eq!(end_epoch(&mut isacs, now, 0), Renewal::Boosted);
        for v in [VcpuId(1), third] {
            isacs.began(Nanos::ZERO, v);
            isacs.burn(v, 4 * MS);
        }
        events(&mut isacs, io, now, 38, 1_000_000);
        assert_eq!(end_epoch(&mut isacs, now, 0), Renewal::Reallocated);
        // Equation 2: 38 events of 1 ms times 10 of 38 ms; the group has two members.
        assert_eq!(isacs.account(io).io_credit, 10 * MS);
        let due = 10 * MS / 2 * consumed / 10;
        assert_eq!(isacs.account(third).cpu_credit, due, "{counts_boost}");
    }
}

/// Credit2's rule: what is left is carried over, up to half a millisecond, and so is debt.
#[test]
fn credit_is_added_and_clipped_if_it_is_to_be() {
    for (ran, credit) in [(6, 10_500_000), (10, 10_000_000), (12, 8_000_000)] {
        let params = Params {
            adds_credit: true,
            ..Params::default()
        };
        let mut isacs = isacs_with(params, &[0]);
        isacs.burn(VcpuId(0), ran * MS);
        end_epoch(&mut isacs, Nanos::from_millis(13), 0);
        assert_eq!(isacs.account(VcpuId(0)).credit, credit);
    }
}
