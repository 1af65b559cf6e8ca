//! Random histories against the rules.

use super::{Params, Scan, priority};
use crate::common::MS;
use crate::common::lab::{self, GUESTS, Terms};
use proptest::prelude::*;
use tidegate_core::time::Nanos;

fn params() -> impl Strategy<Value = Params> {
    let ms = |most: u64| (0..=most).prop_map(|ms| ms * MS);
    let slice = || (1u64..60).prop_map(|ms| ms * MS);
    let back = (0u64..200, 1u64..4).prop_map(|(blocks, penalty)| (blocks * 4096, penalty));
    let overdue = prop_oneof![Just(0), (1u64..300).prop_map(|ms| ms * MS)];
    let often = || prop::bool::weighted(0.7);
    let times = (slice(), slice(), ms(20), ms(100), ms(200));
    let rest = (
        1u32..=4,
        back,
        often(),
        any::<bool>(),
        ms(40),
        overdue,
        often(),
    );
    let later = (
        1u64..4,
        any::<bool>(),
        any::<bool>(),
        (1u64..300).prop_map(|ms| ms * MS),
    );
    (times, rest, 0u64..3, later).prop_map(|(times, rest, background, later)| Params {
        background,
        async_rq: later.0,
        group: later.1,
        low_latency: later.2,
        target: later.3,
        slice: [times.0, times.1],
        idle: times.2,
        expire: [times.3, times.4],
        depth: rest.0,
        back: rest.1,
        priorities: rest.2,
        async_writes: rest.3,
        grace: rest.4,
        overdue: rest.5,
        positioning: u64::from(rest.6) * 8 * MS,
    })
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: (ProptestConfig::default().cases / 2).max(64),
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn picks_are_those_of_the_rules(
        depth in 1u32..=5,
        merge in any::<bool>(),
        params in params(),
        classes in prop::collection::vec(1u32..=10, GUESTS),
        steps in prop::collection::vec(lab::step(1u32..=10), 0..600),
    ) {
        let policies = ["cfq", "token-bucket+cfq"].map(|name| params.spec(name));
        let terms = Terms {
            positioning: Nanos(params.positioning),
            priority,
            background: |guest| guest == 0,
            shared: false,
            ..Terms::new(depth, merge, &classes)
        };
        lab::run_on(&terms, policies, &mut Scan::new(params, depth), steps);
    }
}
