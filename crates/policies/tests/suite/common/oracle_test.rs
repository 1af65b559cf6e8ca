//! Header of tests that hold a policy against its oracle.

/// Test of a policy against its oracle: random histories in which each pick must be the model's.
///
/// The header names the test with its random parameters, the policies without and with a regulator
/// that gates at dispatch, how a name and parameters become a policy, the guests' weights, how many
/// steps a history has at most, how many histories there are, what the device is like beyond a
/// depth and merging, and the model.
macro_rules! oracle_test {
    (
        $(#[$meta:meta])*
        fn $test:ident($($arg:ident in $strategy:expr),* $(,)?)
        policies: $policies:expr,
        spec: $spec:expr,
        weights: $weight:expr,
        steps: $steps:expr,
        cases: $cases:expr,
        terms: $terms:expr,
        model: $model:expr $(,)?
    ) => {
        proptest::proptest! {
            #![proptest_config(proptest::prelude::ProptestConfig {
                cases: $cases,
                failure_persistence: None,
                ..proptest::prelude::ProptestConfig::default()
            })]

            $(#[$meta])*
            #[test]
            fn $test(
                depth in 1u32..=5,
                merge in proptest::prelude::any::<bool>(),
                $($arg in $strategy,)*
                weights in proptest::collection::vec($weight, $crate::common::lab::GUESTS),
                steps in proptest::collection::vec($crate::common::lab::step($weight), 0..$steps),
            ) {
                let policies = $policies.map($spec);
                let plain = $crate::common::lab::Terms::new(depth, merge, &weights);
                let terms = ($terms)(plain);
                let mut model = ($model)(&terms);
                $crate::common::lab::run_on(&terms, policies, &mut model, steps);
            }
        }
    };
}
pub(crate) use oracle_test;
