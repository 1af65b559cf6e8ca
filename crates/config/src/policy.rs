//! Reader of a policy: a name, or a table of a name or parts, and parameters.

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

const PARTS: [&str; 4] = ["name", "controller", "regulator", "dispatcher"];

fn from_section(mut section: Section<'_>) -> Option<PolicySpec> {
    let [name, controller, regulator, dispatcher] = PARTS.map(|part| section.take(part));
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
    let mut good = true;
    // Not `Section::finish`: the keys allowed here depend on the policy, known only now.
    for (entry, field) in section.entries() {
        if PARTS.contains(&entry.key.as_str()) {
            continue;
        }
        match known.iter().find(|info| info.name == entry.key) {
            // Goes on after a wrong parameter, so that all mistakes are reported.
            Some(info) => good &= set(&mut spec, info, &field).is_some(),
            None => {
                let known: Vec<&str> = known.iter().map(|info| info.name).chain(PARTS).collect();
                section.unknown(entry, &known);
                good = false;
            }
        }
    }
    // A parameter of another tuner is valid and silently unused, so it only gets a warning.
    for (entry, field) in section.entries() {
        if let Some(tuner) = spec.tuner_needed_by(&entry.key) {
            let help = format!("leave it out, or add tuner = \"{tuner}\"");
            field.warn("has no effect with this tuner", &help);
        }
    }
    good.then_some(spec)
}

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
    let controller_name = word(&controller, "none")?;
    let controller_name = Some(controller_name).filter(|name| *name != "none");
    let (regulator_name, dispatcher_name) = (word(&regulator, "open")?, word(&dispatcher, "fifo")?);
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
        (spec, None) => spec.ok(),
    }
}

fn word<'a>(field: &Option<Field<'a>>, default: &'a str) -> Option<&'a str> {
    match field {
        Some(field) => field.text(),
        None => Some(default),
    }
}

fn set(spec: &mut PolicySpec, info: &ParamInfo, field: &Field<'_>) -> Option<()> {
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
    fn what_says_nothing_with_the_tuner_that_is_chosen_is_told() {
        let paced = "{ name = \"vcup\", tuner = \"paced\", grain = \"9 ms\", profiling = true, \
                     headroom = 5 }";
        let said = warned(paced);
        assert_eq!(said.len(), 2, "{said:?}");
        assert!(
            said[0].contains("policy.profiling: has no effect with this tuner"),
            "{said:?}"
        );
        assert!(said[0].contains("add tuner = \"window\""), "{said:?}");
        let windows = "{ name = \"vcup\", tuner = \"window\", grain = \"9 ms\", profiling = true }";
        let said = warned(windows);
        assert!(
            said.len() == 1 && said[0].contains("policy.grain"),
            "{said:?}"
        );
        let said =
            warned("{ name = \"vcup\", tuner = \"paced\", tolerance = 3, batch = \"1 ms\" }");
        assert!(said.is_empty(), "{said:?}");
        assert!(warned("{ name = \"mclock\", cost_size = \"16 KiB\" }").is_empty());
    }
}
