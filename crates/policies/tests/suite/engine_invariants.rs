//! The engine keeps its promises under anything a driver may do.

use proptest::prelude::*;
use tidegate_testkit::operations::{self, Operation, Setup};

fn setup() -> impl Strategy<Value = Setup> {
    (any::<[u8; 4]>(), any::<u16>()).prop_map(|([depth, blocks, merge, bounds], policy)| Setup {
        depth,
        blocks,
        merge,
        bounds,
        policy,
    })
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: ProptestConfig::default().cases.max(1000),
        // A failing case becomes a named test instead.
        failure_persistence: None,
        max_shrink_iters: 20_000,
        max_shrink_time: 60_000,
        ..ProptestConfig::default()
    })]

    #[test]
    fn every_promise_is_kept_under_random_operations(
        setup in setup(),
        operations in prop::collection::vec(any::<[u8; 5]>().prop_map(Operation::from), 0..300),
    ) {
        operations::run(setup, &operations);
    }

    #[test]
    fn any_bytes_are_operations(data in prop::collection::vec(any::<u8>(), 0..2000)) {
        operations::from_bytes(&data);
    }
}
