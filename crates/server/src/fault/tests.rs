//! Verdicts of fault rules: examples, and properties checked against a slow, obvious oracle.

use proptest::prelude::*;
use tidegate_core::request::{IoError, Op};
use tidegate_core::time::Nanos;

use super::*;

const EIO: Effect = Effect::Error(IoError::Io);
const MIB: u64 = 1 << 20;

fn faults(rules: &[Rule]) -> Faults {
    let mut faults = Faults::default();
    for &rule in rules {
        faults.add(Nanos::ZERO, rule).expect("there is room");
    }
    faults
}

/// Judges `n` adjacent writes of 4 KiB from the disk's start, and returns which were struck.
fn strikes(faults: &mut Faults, n: u64) -> Vec<bool> {
    let write = |i| faults.judge(Nanos::ZERO, Op::Write, i * 4096, 4096).struck;
    (0..n).map(write).collect()
}

#[test]
fn each_nth_of_those_it_meets_is_struck_up_to_its_count() {
    let rule = Rule {
        on: Ops::only(Op::Write),
        every: 3,
        count: Some(2),
        ..Rule::always(EIO)
    };
    let mut faults = faults(&[rule]);
    let (t, f) = (true, false);
    // Requests that the rule does not apply to are not counted.
    assert!(!faults.judge(Nanos::ZERO, Op::Read, 0, 512).struck);
    let struck = strikes(&mut faults, 12);
    assert_eq!(struck, [f, f, t, f, f, t, f, f, f, f, f, f]);
    let left = faults.snapshot(Nanos::ZERO)[0];
    assert_eq!((left.met, left.injected, left.state), (6, 2, State::Over));
}

#[test]
fn a_rule_has_its_time() {
    let rule = Rule {
        after: Nanos::from_secs(10),
        lasts: Some(Nanos::from_secs(5)),
        ..Rule::always(EIO)
    };
    let mut faults = Faults::default();
    faults.add(Nanos::from_secs(100), rule);
    let mut at = |ms: u64| {
        let now = Nanos::from_millis(ms);
        let struck = faults.judge(now, Op::Flush, 0, 0).struck;
        (struck, faults.snapshot(now)[0].state)
    };
    assert_eq!(at(109_999), (false, State::Waiting));
    assert_eq!(at(110_000), (true, State::Armed));
    assert_eq!(at(114_999), (true, State::Armed));
    assert_eq!(at(115_000), (false, State::Over));
}

#[test]
fn a_place_is_met_by_whatever_touches_it_and_by_no_flush() {
    let rule = Rule {
        from: MIB,
        to: MIB + 512,
        ..Rule::always(EIO)
    };
    for (op, offset, len, meets) in [
        (Op::Read, MIB - 512, 512, false),
        (Op::Read, MIB - 512, 513, true),
        (Op::Write, MIB + 511, 1, true),
        (Op::Write, MIB + 512, 4096, false),
        (Op::Discard, 0, 4 * MIB, true),
        (Op::Flush, 0, 0, false),
    ] {
        assert_eq!(
            rule.applies_to(op, offset, len),
            meets,
            "{op:?} at {offset}"
        );
    }
    assert!(Rule::always(EIO).applies_to(Op::Flush, 0, 0));
}

#[test]
fn the_first_rule_that_strikes_decides() {
    let stall = Rule {
        every: 2,
        stall: Nanos::from_secs(2),
        ..Rule::always(Effect::None)
    };
    let mut faults = faults(&[stall, Rule::always(EIO)]);
    let mut next = || faults.judge(Nanos::ZERO, Op::Read, 0, 512).verdict;
    assert_eq!(next().effect, EIO);
    let stalled = next();
    assert_eq!(stalled.stall, Nanos::from_secs(2));
    assert_eq!(stalled.effect, Effect::None);
    let rules = faults.snapshot(Nanos::ZERO);
    assert_eq!((rules[0].met, rules[1].met), (2, 1));
}

#[test]
fn what_is_torn_keeps_whole_sectors_and_what_is_not_longer_is_not_torn() {
    let torn = |keep| Effect::Torn {
        keep,
        answer: Err(IoError::Io),
    };
    assert_eq!(torn(512).kept_bytes(4096, 4096), Some(512));
    assert_eq!(torn(0).kept_bytes(4096, 4096), Some(0));
    assert_eq!(torn(4096).kept_bytes(4096, 4096), None);
    // A torn write that begins within a sector ends on a sector all the same.
    assert_eq!(torn(512).kept_bytes(100, 4096), Some(412));
    assert_eq!(torn(512).kept_bytes(1000, 10), None);
    let rule = Rule {
        on: Ops::CHANGES,
        ..Rule::always(torn(4096))
    };
    assert!(!rule.applies_to(Op::Write, 8192, 4096));
    assert!(rule.applies_to(Op::Write, 8192, 4608));
}

#[test]
fn it_is_said_once_and_then_how_often_it_was_not() {
    let mut faults = faults(&[Rule::always(EIO)]);
    let mut at = |s| {
        let now = Nanos::from_secs(s);
        faults.judge(now, Op::Read, 0, 512).log
    };
    let log = |suppressed| {
        Some(RuleLog {
            number: 1,
            suppressed,
        })
    };
    assert_eq!((at(0), at(3), at(9)), (log(0), None, None));
    assert_eq!((at(10), at(11)), (log(2), None));
    assert_eq!(at(1000), log(1));
}

#[test]
fn numbers_stay_with_their_rules() {
    let mut faults = faults(&[Rule::always(EIO); 3]);
    assert!(faults.remove(2));
    assert!(!faults.remove(2));
    assert_eq!(faults.add(Nanos::ZERO, Rule::always(EIO)), Some(4));
    let numbers: Vec<u32> = (faults.snapshot(Nanos::ZERO).iter())
        .map(|rule| rule.number)
        .collect();
    assert_eq!(numbers, [1, 3, 4]);
    let more = (0..).map_while(|_| faults.add(Nanos::ZERO, Rule::always(EIO)));
    assert_eq!(more.count(), Faults::RULES_MAX - 3);
}

#[test]
fn a_probability_is_about_as_likely_as_it_says() {
    let rule = Rule {
        probability_ppm: 10_000,
        ..Rule::always(EIO)
    };
    for seed in 0..4 {
        let mut faults = faults(&[Rule { seed, ..rule }]);
        let struck = strikes(&mut faults, 100_000).iter().filter(|s| **s).count();
        // Binomial distribution: mean 1000, standard deviation 31.5; the bounds are four of them.
        assert!((874..=1126).contains(&struck), "seed {seed}: {struck}");
    }
}

fn any_rule() -> impl Strategy<Value = Rule> {
    let place = prop_oneof![
        Just((0, u64::MAX)),
        (0..64_u64, 1..16_u64).prop_map(|(from, len)| { (from * 512, (from + len) * 512) })
    ];
    let when = (0..8_u64, proptest::option::of(0..8_u64));
    let often = (
        1..4_u64,
        prop_oneof![Just(1_000_000), 0..1_000_000_u32],
        0..3_u64,
    );
    let effect = prop_oneof![
        Just(Effect::None),
        Just(EIO),
        (0..9_u64).prop_map(|sectors| Effect::Torn {
            keep: sectors * 512,
            answer: Ok(())
        }),
    ];
    (
        place,
        when,
        often,
        proptest::option::of(1..6_u64),
        effect,
        1..32_u8,
    )
        .prop_map(
            |((from, to), (after, lasts), (every, probability_ppm, seed), count, effect, ops)| {
                Rule {
                    on: (Op::ALL.into_iter().enumerate())
                        .filter(|(bit, _)| ops >> bit & 1 == 1)
                        .fold(Ops::NONE, |all, (_, op)| all.union(Ops::only(op))),
                    from,
                    to,
                    every,
                    probability_ppm,
                    seed,
                    after: Nanos::from_secs(after),
                    lasts: lasts.map(Nanos::from_secs),
                    count,
                    stall: Nanos::from_millis(every),
                    effect,
                }
            },
        )
}

fn any_request() -> impl Strategy<Value = (u64, Op, u64, u64)> {
    (0..20_u64, 0..5_usize, 0..64_u64, 1..16_u64).prop_map(|(at, op, from, len)| {
        match Op::ALL[op] {
            Op::Flush => (at, Op::Flush, 0, 0),
            op => (at, op, from * 512, len * 512),
        }
    })
}

/// Oracle of [`Rule::applies_to`], sector by sector, with the time of the rule.
fn meets(rule: &Rule, (at, op, offset, len): (u64, Op, u64, u64)) -> bool {
    let (at, begins) = (Nanos::from_secs(at), rule.after);
    let in_time = at >= begins && rule.lasts.is_none_or(|lasts| at.0 < begins.0 + lasts.0);
    let sectors = |from: u64, to: u64| (from / 512..to / 512).collect::<Vec<_>>();
    let place = match (op, rule.has_range()) {
        (Op::Flush, ranged) => !ranged,
        (_, false) => true,
        (_, true) => {
            let theirs = sectors(rule.from, rule.to);
            sectors(offset, offset + len)
                .iter()
                .any(|s| theirs.contains(s))
        }
    };
    let torn = match rule.effect {
        Effect::Torn { keep, .. } => !matches!(op, Op::Flush | Op::Read) && keep < len,
        _ => true,
    };
    in_time && place && rule.on.contains(op) && torn
}

proptest! {
    /// Rules strike only requests that they apply to and at most `count` of them, all counters add
    /// up, and the same requests get the same verdicts.
    #[test]
    fn the_rules_are_kept(
        rules in prop::collection::vec(any_rule(), 1..5),
        mut requests in prop::collection::vec(any_request(), 0..200),
    ) {
        requests.sort_by_key(|request| request.0);
        let (mut first, mut again) = (faults(&rules), faults(&rules));
        let (mut met, mut injected) = (vec![0; rules.len()], vec![0; rules.len()]);
        for &request in &requests {
            let (at, op, offset, len) = request;
            let now = Nanos::from_secs(at);
            let judged = first.judge(now, op, offset, len);
            prop_assert_eq!(judged, again.judge(now, op, offset, len));
            // The oracle cannot know the draws, so it follows the rules' own counters there.
            let counted = first.snapshot(now);
            let mut struck = None;
            for (i, rule) in rules.iter().enumerate() {
                let used_up = rule.count.is_some_and(|count| injected[i] >= count);
                if used_up || struck.is_some() || !meets(rule, request) {
                    continue;
                }
                met[i] += 1;
                let due = met[i] % rule.every == 0;
                let drawn = counted[i].injected > injected[i];
                prop_assert!(due || !drawn, "rule {} struck out of turn", i);
                if due && (rule.probability_ppm == 1_000_000 || drawn) {
                    injected[i] += 1;
                    struck = Some(i);
                }
            }
            let due = struck.map_or(Verdict::WELL, |i| Verdict {
                stall: rules[i].stall,
                effect: rules[i].effect,
            });
            prop_assert_eq!((judged.verdict, judged.struck), (due, struck.is_some()));
            for (i, rule) in counted.iter().enumerate() {
                prop_assert_eq!((rule.met, rule.injected), (met[i], injected[i]));
            }
        }
    }

    /// The kept part of a torn write is a prefix, ends on a sector, and is at most as long as
    /// asked.
    #[test]
    fn what_is_kept_is_the_promised_prefix(
        keep in (0..64_u64).prop_map(|sectors| sectors * SECTOR),
        offset in 0..100_000_u64,
        len in 1..100_000_u64,
    ) {
        let torn = Effect::Torn { keep, answer: Ok(()) };
        match torn.kept_bytes(offset, len) {
            Some(kept) => {
                prop_assert!(kept < len && kept <= keep);
                prop_assert!(kept == 0 || (offset + kept) % SECTOR == 0);
                // One more sector would be more than asked for.
                prop_assert!(kept + SECTOR > keep);
            }
            None => prop_assert!(len <= keep),
        }
    }
}
