//! Reader of a policy: a name (`"mclock"`), or a table with a name or with the parts of a
//! composition (controller, regulator, dispatcher), and with parameters.

use tidegate_core::part::{ParamInfo, ParamKind};
use tidegate_core::policy::Policy;
use tidegate_policies::policy::{PolicyError, PolicySpec};

use crate::diagnostic::ConfigErrors;
use crate::document;
use crate::field::Field;
use crate::keys::KeyInfo;
use crate::node::Value;
use crate::section::Section;

/// Reads a policy from JSON: a name, or an object such as
/// `{"name": "mclock", "cost_size": "16 KiB"}`.
///
/// # Errors
/// All mistakes of the policy and its parameters.
pub fn read(json: &serde_json::Value) -> Result<PolicySpec, ConfigErrors> {
    document::read_json(json, "policy", from_field)
}

/// Reads a policy. `None`: something was wrong, which has been reported.
pub fn from_field(field: &Field<'_>) -> Option<PolicySpec> {
    match &field.node.value {
        Value::Text(name) => accept(field, PolicySpec::named(name)),
        Value::Table(_) => from_section(Section::open(field)?),
        _ => {
            field.refuse("a policy", "\"mclock\" or { name = \"mclock\", ... }");
            None
        }
    }
}

/// Returns the value of `result`, and reports an error at `field`.
fn accept<T>(field: &Field<'_>, result: Result<T, PolicyError>) -> Option<T> {
    match result {
        Ok(value) => Some(value),
        Err(error) => {
            field.push(field.diagnostic(error.to_string()));
            None
        }
    }
}

/// Word for a policy without a controller.
const NO_CONTROLLER: &str = "none";
/// Regulator where none is named: the one that never holds a request.
const DEFAULT_REGULATOR: &str = "open";
/// Dispatcher where none is named: the one that keeps the order of arrival.
const DEFAULT_DISPATCHER: &str = "fifo";
/// Keys that name a policy or its parts; all others are parameters.
const STRUCTURE_KEYS: [&str; 4] = ["name", "controller", "regulator", "dispatcher"];

/// Reads a policy from its table. `None`: something was wrong, which has been reported.
fn from_section(mut section: Section<'_>) -> Option<PolicySpec> {
    let [name, controller, regulator, dispatcher] = STRUCTURE_KEYS.map(|key| section.take(key));
    let mut spec = match &name {
        Some(field) => {
            // Reported at each part, so that the reader need not guess which one is too much.
            for part in [&controller, &regulator, &dispatcher].into_iter().flatten() {
                part.error(
                    "a policy's name already determines its parts",
                    "give either `name`, or the parts",
                );
            }
            accept(field, PolicySpec::named(field.text()?))?
        }
        None => composed(&section, controller, regulator, dispatcher)?,
    };
    let known: Vec<&'static ParamInfo> = spec
        .params()
        .iter()
        .copied()
        .map(|(info, _)| info)
        .collect();
    let mut all_valid = true;
    // Not `Section::finish`: the keys allowed here depend on the policy, known only now.
    for (entry, field) in section.entries() {
        if STRUCTURE_KEYS.contains(&entry.key.as_str()) {
            continue;
        }
        match known.iter().find(|info| info.name == entry.key) {
            // Goes on after a wrong parameter, so that all mistakes are reported.
            Some(info) => all_valid &= set_param(&mut spec, info, &field).is_some(),
            None => {
                let known: Vec<&str> = known
                    .iter()
                    .map(|info| info.name)
                    .chain(STRUCTURE_KEYS)
                    .collect();
                section.unknown(entry, &known);
                all_valid = false;
            }
        }
    }
    // Policy `vcup` has several tuners (parameter `tuner`), each with parameters of its own. One of
    // another tuner is valid and would silently have no effect, so it gets a warning.
    for (entry, field) in section.entries() {
        if let Some(tuner) = spec.tuner_needed_by(&entry.key) {
            let help = format!("leave it out, or add tuner = \"{tuner}\"");
            field.warn("has no effect with this tuner", &help);
        }
    }
    all_valid.then_some(spec)
}

/// Composes a policy of the parts that the table names, with defaults for the others; at least one
/// has to be named. `None`: something was wrong, which has been reported.
fn composed(
    section: &Section<'_>,
    controller: Option<Field<'_>>,
    regulator: Option<Field<'_>>,
    dispatcher: Option<Field<'_>>,
) -> Option<PolicySpec> {
    if [&controller, &regulator, &dispatcher]
        .into_iter()
        .all(Option::is_none)
    {
        section.error(
            "the policy's name is missing",
            "name = \"mclock\", or a regulator and a dispatcher",
        );
        return None;
    }
    let controller_name = part_name(&controller, NO_CONTROLLER)?;
    let controller_name = Some(controller_name).filter(|name| *name != NO_CONTROLLER);
    let (regulator_name, dispatcher_name) = (
        part_name(&regulator, DEFAULT_REGULATOR)?,
        part_name(&dispatcher, DEFAULT_DISPATCHER)?,
    );
    let spec = PolicySpec::composed(controller_name, regulator_name, dispatcher_name);
    // An unknown part is reported at the key that names it.
    let blamed = match &spec {
        Err(PolicyError::Unknown {
            kind: "controller", ..
        }) => controller,
        Err(PolicyError::Unknown {
            kind: "regulator", ..
        }) => regulator,
        _ => dispatcher,
    };
    match (spec, blamed) {
        (spec, Some(field)) => accept(&field, spec),
        // Only an unknown part is refused here, and defaults are known: no error goes unreported.
        (spec, None) => spec.ok(),
    }
}

/// Name of a part, or `default` where the key is missing. `None`: it is no text, which has been
/// reported.
fn part_name<'a>(field: &Option<Field<'a>>, default: &'a str) -> Option<&'a str> {
    match field {
        Some(field) => field.text(),
        None => Some(default),
    }
}

/// Sets a parameter to the value of `field`. `None`: the value is wrong, which has been reported.
fn set_param(spec: &mut PolicySpec, info: &ParamInfo, field: &Field<'_>) -> Option<()> {
    let value = match info.kind {
        ParamKind::Bytes | ParamKind::Duration | ParamKind::Count => {
            field.number(&KeyInfo::from(info))?
        }
        ParamKind::Flag => field.flag()?.into(),
        ParamKind::Choice(words) => {
            let choices: Vec<(&str, u64)> = words.iter().copied().zip(0..).collect();
            field.choice(&choices)?
        }
    };
    accept(field, spec.set(info.name, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the warnings with their places.
    fn warned(policy: &str) -> Vec<String> {
        let reader = |root: &Field<'_>| {
            let mut section = Section::open(root)?;
            let spec = from_field(&section.need("policy", "policy = \"fifo\"")?);
            section.finish();
            spec
        };
        let loaded = document::read(&format!("policy = {policy}"), "f.toml", reader);
        let loaded = loaded.expect("nothing is refused");
        loaded.warnings.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn parameter_of_another_tuner_gets_a_warning() {
        let paced = "{ name = \"vcup\", tuner = \"paced\", grain = \"9 ms\", profiling = true, \
                     headroom = 5 }";
        let warnings = warned(paced);
        assert_eq!(warnings.len(), 2, "{warnings:?}");
        assert!(
            warnings[0].contains("policy.profiling: has no effect with this tuner"),
            "{warnings:?}"
        );
        assert!(
            warnings[0].contains("add tuner = \"window\""),
            "{warnings:?}"
        );
        let windows = "{ name = \"vcup\", tuner = \"window\", grain = \"9 ms\", profiling = true }";
        let warnings = warned(windows);
        assert!(
            warnings.len() == 1 && warnings[0].contains("policy.grain"),
            "{warnings:?}"
        );
        let warnings =
            warned("{ name = \"vcup\", tuner = \"paced\", tolerance = 3, batch = \"1 ms\" }");
        assert!(warnings.is_empty(), "{warnings:?}");
        assert!(warned("{ name = \"mclock\", cost_size = \"16 KiB\" }").is_empty());
    }
}
