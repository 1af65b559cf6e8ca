//! Policies, the parts they are made of, and their parameters.

use tidegate_api::policy::{ParamView, PolicyInfoView, PolicyPartView};
pub use tidegate_config::policy_view::policy;
use tidegate_config::policy_view::{enforced_names, with_unit};
use tidegate_core::part::{ParamInfo, ParamKind, Part};
use tidegate_core::policy::Policy;
use tidegate_policies::policy::{self as registry, PolicyInfo, PolicySpec};

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
