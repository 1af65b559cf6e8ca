//! Random histories against the rules.

use super::{Params, Scan, priority};
use crate::common::MS;
use crate::common::lab::LabConfig;
use crate::common::oracle_test;
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
    let early = (any::<bool>(), any::<bool>(), any::<bool>());
    let later = (
        1u64..4,
        any::<bool>(),
        any::<bool>(),
        (1u64..300).prop_map(|ms| ms * MS),
    );
    let all = (times, rest, 0u64..3, later, early);
    all.prop_map(|(times, rest, background, later, early)| Params {
        background,
        shared_async: early.0,
        async_vm_writes: early.1,
        preemption: early.2,
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

oracle_test! {
    fn picks_are_those_of_the_rules(params in params())
    policies: ["cfq", "token-bucket+cfq"],
    spec: |name| params.spec(name),
    weights: 1u32..=10,
    steps: 600,
    cases: (ProptestConfig::default().cases / 2).max(64),
    config: |config| LabConfig {
        positioning: Nanos(params.positioning),
        priority,
        background: |guest| guest == 0,
        shared: false,
        ..config
    },
    model: |config: &LabConfig| Scan::new(params, config.depth),
}
