//! Policies, the parts they are made of, and their parameters.

use tidegate_api::policy::{ParamValue, ParamView, PolicyInfoView, PolicyPartView, PolicyView};
use tidegate_core::part::{Enforces, ParamInfo, ParamKind, Part};
use tidegate_core::policy::Policy;
use tidegate_core::time::Nanos;
use tidegate_policies::policy::{self as registry, PolicyInfo, PolicySpec};
use tidegate_units as units;

use crate::config;

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

/// Returns every policy of the registry, in its order.
pub fn policies() -> Vec<PolicyInfoView> {
    registry::registry()
        .iter()
        .filter_map(policy_info)
        .collect()
}

fn policy_info(info: &PolicyInfo) -> Option<PolicyInfoView> {
    // Never `None`: a test of the registry builds every policy by its name.
    let spec = PolicySpec::named(info.name).ok()?;
    Some(PolicyInfoView {
        name: info.name.to_owned(),
        summary: info.summary.to_owned(),
        source: info.source.to_owned(),
        about: info.about.to_owned(),
        controller: info.controller.map(|part| part.name.to_owned()),
        regulator: info.regulator.name.to_owned(),
        dispatcher: info.dispatcher.name.to_owned(),
        enforces: enforced_names(&spec.enforces()),
        params: params(&spec),
    })
}

/// Returns every controller, regulator and dispatcher.
pub fn policy_parts() -> Vec<PolicyPartView> {
    fn views<R: ?Sized>(
        role: &'static str,
        parts: &'static [Part<R>],
    ) -> impl Iterator<Item = PolicyPartView> {
        parts.iter().map(move |part| PolicyPartView {
            name: part.name.to_owned(),
            role: role.to_owned(),
            summary: part.summary.to_owned(),
            enforces: enforced_names(&part.enforces),
            params: (part.params.iter())
                .map(|info| param_view(info, info.default))
                .collect(),
        })
    }
    views("controller", registry::controllers())
        .chain(views("regulator", registry::regulators()))
        .chain(views("dispatcher", registry::dispatchers()))
        .collect()
}

/// Returns the parameters of a policy with the values of `spec` as defaults; a policy may override
/// the defaults of its parts.
pub fn params(spec: &PolicySpec) -> Vec<ParamView> {
    spec.params()
        .iter()
        .copied()
        .map(|(info, value)| param_view(info, value))
        .collect()
}

fn param_view(info: &ParamInfo, default: u64) -> ParamView {
    let kind = match info.kind {
        ParamKind::Bytes => "size",
        ParamKind::Duration => "duration",
        ParamKind::Count => "count",
        ParamKind::Flag => "flag",
        ParamKind::Choice(_) => "choice",
    };
    let choices = match info.kind {
        ParamKind::Choice(words) => words.iter().map(|&w| w.to_owned()).collect(),
        _ => Vec::new(),
    };
    let bound = |value| match info.kind {
        // Words have no order, so a choice has no bounds.
        ParamKind::Choice(_) => String::new(),
        kind => with_unit(kind, value),
    };
    ParamView {
        name: info.name.to_owned(),
        kind: kind.to_owned(),
        default: with_unit(info.kind, default),
        min: bound(info.min),
        max: bound(info.max),
        choices,
        help: info.help.to_owned(),
    }
}

/// Formats a parameter's value as the configuration takes it.
fn with_unit(kind: ParamKind, value: u64) -> String {
    match kind {
        ParamKind::Bytes => units::format_bytes(value),
        ParamKind::Duration => units::format_duration(Nanos(value)),
        ParamKind::Count => value.to_string(),
        ParamKind::Flag => (value != 0).to_string(),
        // A choice is stored as the index of its word.
        ParamKind::Choice(words) => words[value as usize].to_owned(),
    }
}

fn enforced_names(enforces: &Enforces) -> Vec<String> {
    config::enforced_parts(enforces)
        .into_iter()
        .map(str::to_owned)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_policy_is_shown_with_units() {
        let all = policies();
        assert_eq!(all.len(), registry::registry().len());
        let mclock = all
            .iter()
            .find(|info| info.name == "mclock")
            .expect("registered");
        let cost = mclock
            .params
            .iter()
            .find(|p| p.name == "cost_size")
            .expect("a parameter");
        assert_eq!((cost.kind.as_str(), cost.min.as_str()), ("size", "512 B"));
        assert!(mclock.enforces.iter().any(|part| part == "reservation"));
    }
}
