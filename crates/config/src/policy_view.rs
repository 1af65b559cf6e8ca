//! Conversion of policies into types of the control API.

use tidegate_api::policy::{ParamValue, PolicyView};
use tidegate_core::part::{Enforces, ParamKind};
use tidegate_core::policy::Policy;
use tidegate_core::time::Nanos;
use tidegate_units as units;

use crate::enforced::enforced_parts;

/// Returns a policy with the values of its parameters.
pub fn policy(spec: &dyn Policy) -> PolicyView {
    let (controller, regulator, dispatcher) = spec.parts();
    PolicyView {
        name: spec.name().to_owned(),
        controller: controller.map(str::to_owned),
        regulator: regulator.to_owned(),
        dispatcher: dispatcher.to_owned(),
        enforces: enforced_names(&spec.enforces()),
        params: (spec.params().iter().copied())
            .map(|(info, value)| ParamValue {
                name: info.name.to_owned(),
                value: with_unit(info.kind, value),
            })
            .collect(),
    }
}

/// Formats a parameter's value exactly, as the configuration takes it: a takeover reads it back.
pub fn with_unit(kind: ParamKind, value: u64) -> String {
    match kind {
        ParamKind::Bytes => units::exact_bytes(value),
        ParamKind::Duration => units::exact_duration(Nanos(value)),
        ParamKind::Count => value.to_string(),
        ParamKind::Flag => (value != 0).to_string(),
        // A choice is stored as the index of its word.
        ParamKind::Choice(words) => words[value as usize].to_owned(),
    }
}

/// Returns the names of the parts of an objective that are enforced.
pub fn enforced_names(enforces: &Enforces) -> Vec<String> {
    enforced_parts(enforces)
        .into_iter()
        .map(str::to_owned)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_policies::policy::PolicySpec;

    #[test]
    fn a_policy_is_shown_with_its_parts_and_parameters() {
        let mclock = policy(&PolicySpec::named("mclock").expect("registered"));
        assert_eq!(mclock.name, "mclock");
        assert!(mclock.enforces.iter().any(|part| part == "reservation"));
        let cost = mclock.params.iter().find(|param| param.name == "cost_size");
        let cost = &cost.expect("a parameter").value;
        assert!(cost.ends_with("KiB"), "{cost}");
    }

    #[test]
    fn values_are_read_back_as_they_are() {
        for value in [1, 1_234_567, 1_000_000_001, 98_765_432_100] {
            let size = with_unit(ParamKind::Bytes, value);
            assert_eq!(units::parse_bytes(&size), Ok(value), "{size}");
            let duration = with_unit(ParamKind::Duration, value);
            assert_eq!(
                units::parse_duration(&duration),
                Ok(Nanos(value)),
                "{duration}"
            );
        }
    }
}
