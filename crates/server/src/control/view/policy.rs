//! Policies, the parts they are made of, and their parameters.

use serde::{Deserialize, Serialize};
use tidegate_core::part::{Honours, ParamInfo, ParamKind, Part};
use tidegate_core::policy::Policy;
use tidegate_core::time::Nanos;
use tidegate_device::units;
use tidegate_policies::policy::{self, PolicyInfo, PolicySpec};

use crate::config;

/// A policy with the values of its parameters.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PolicyView {
    /// Its name.
    pub name: String,
    /// Its controller.
    pub controller: Option<String>,
    /// Its regulator.
    pub regulator: String,
    /// Its dispatcher.
    pub dispatcher: String,
    /// Which parts of an objective it enforces.
    pub enforces: Vec<String>,
    /// Its parameters.
    pub params: Vec<ParamValue>,
}

/// A parameter's value.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ParamValue {
    /// The parameter.
    pub name: String,
    /// Its value with its unit.
    pub value: String,
}

/// A policy there is.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PolicyInfoView {
    /// Its name.
    pub name: String,
    /// One line.
    pub summary: String,
    /// Where it comes from.
    pub source: String,
    /// When to use it.
    pub about: String,
    /// Its controller.
    pub controller: Option<String>,
    /// Its regulator.
    pub regulator: String,
    /// Its dispatcher.
    pub dispatcher: String,
    /// Which parts of an objective it enforces.
    pub enforces: Vec<String>,
    /// Its parameters.
    pub params: Vec<ParamView>,
}

/// A part that policies are made of.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PolicyPartView {
    /// Its name.
    pub name: String,
    /// `controller`, `regulator` or `dispatcher`.
    pub role: String,
    /// One line.
    pub summary: String,
    /// Which parts of an objective it enforces.
    pub enforces: Vec<String>,
    /// Its parameters.
    pub params: Vec<ParamView>,
}

/// A parameter there is, its values with their units.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ParamView {
    /// Its name.
    pub name: String,
    /// `size`, `duration`, `count`, `flag` or `choice`.
    pub kind: String,
    /// Where none is given.
    pub default: String,
    /// The smallest value allowed; empty for a choice.
    pub min: String,
    /// The largest value allowed; empty for a choice.
    pub max: String,
    /// The words there are, of a choice.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub choices: Vec<String>,
    /// What it does.
    pub help: String,
}

impl PolicyView {
    /// Shows a policy.
    pub fn new(spec: &dyn Policy) -> PolicyView {
        let (controller, regulator, dispatcher) = spec.parts();
        PolicyView {
            name: spec.name().to_owned(),
            controller: controller.map(str::to_owned),
            regulator: regulator.to_owned(),
            dispatcher: dispatcher.to_owned(),
            enforces: enforces(&spec.honours()),
            params: (spec.params().iter().copied())
                .map(|(info, value)| ParamValue {
                    name: info.name.to_owned(),
                    value: with_unit(info.kind, value),
                })
                .collect(),
        }
    }

    /// Its parameters on one line: `cost_size = 16 KiB, slack = 900 us`.
    pub fn params_in_words(&self) -> String {
        let params = self.params.iter();
        let words: Vec<_> = params
            .map(|p| format!("{} = {}", p.name, p.value))
            .collect();
        words.join(", ")
    }
}

impl PolicyInfoView {
    /// Every policy of the registry, in its order.
    pub fn all() -> Vec<PolicyInfoView> {
        policy::registry()
            .iter()
            .filter_map(PolicyInfoView::new)
            .collect()
    }

    fn new(info: &PolicyInfo) -> Option<PolicyInfoView> {
        let spec = PolicySpec::named(info.name).ok()?;
        Some(PolicyInfoView {
            name: info.name.to_owned(),
            summary: info.summary.to_owned(),
            source: info.source.to_owned(),
            about: info.about.to_owned(),
            controller: info.controller.map(|part| part.name.to_owned()),
            regulator: info.regulator.name.to_owned(),
            dispatcher: info.dispatcher.name.to_owned(),
            enforces: enforces(&spec.honours()),
            params: ParamView::all_of(&spec),
        })
    }
}

impl PolicyPartView {
    /// Every controller, regulator and dispatcher.
    pub fn all() -> Vec<PolicyPartView> {
        fn views<R: ?Sized>(
            role: &'static str,
            parts: &'static [Part<R>],
        ) -> impl Iterator<Item = PolicyPartView> {
            parts.iter().map(move |part| PolicyPartView {
                name: part.name.to_owned(),
                role: role.to_owned(),
                summary: part.summary.to_owned(),
                enforces: enforces(&part.honours),
                params: (part.params.iter())
                    .map(|info| ParamView::new(info, info.default))
                    .collect(),
            })
        }
        views("controller", policy::controllers())
            .chain(views("regulator", policy::regulators()))
            .chain(views("dispatcher", policy::dispatchers()))
            .collect()
    }
}

impl ParamView {
    /// The parameters that a policy has, of which none was set: a policy's defaults may be others than
    /// its parts'.
    pub fn all_of(spec: &PolicySpec) -> Vec<ParamView> {
        spec.params()
            .iter()
            .copied()
            .map(|(info, value)| ParamView::new(info, value))
            .collect()
    }

    fn new(info: &ParamInfo, default: u64) -> ParamView {
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
}

/// A parameter's value as the configuration takes it.
fn with_unit(kind: ParamKind, value: u64) -> String {
    match kind {
        ParamKind::Bytes => units::format_bytes(value),
        ParamKind::Duration => units::format_duration(Nanos(value)),
        ParamKind::Count => value.to_string(),
        ParamKind::Flag => (value != 0).to_string(),
        ParamKind::Choice(words) => words[value as usize].to_owned(),
    }
}

fn enforces(honours: &Honours) -> Vec<String> {
    config::honoured(honours)
        .into_iter()
        .map(str::to_owned)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_policy_is_shown_with_units() {
        let all = PolicyInfoView::all();
        assert_eq!(all.len(), policy::registry().len());
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
