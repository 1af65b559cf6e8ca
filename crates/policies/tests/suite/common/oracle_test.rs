//! Macro for tests that compare a policy with its oracle.

/// Defines a test that compares a policy with its oracle on random histories: each pick must be the
/// model's.
///
/// The header names the test with its random parameters, the policies without and with a regulator
/// that gates at dispatch, the function from a name and parameters to a policy, the guests'
/// weights, the maximum number of steps of a history, the number of histories, the device beyond
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
        config: $config:expr,
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
                let plain = $crate::common::lab::LabConfig::new(depth, merge, &weights);
                let config = ($config)(plain);
                let mut model = ($model)(&config);
                $crate::common::lab::run_on(&config, policies, &mut model, steps);
            }
        }
    };
}
pub(crate) use oracle_test;
