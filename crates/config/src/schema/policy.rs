//! Schema of a scheduling policy: a name, or a table of its parts and their parameters.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use tidegate_core::part::ParamInfo;
use tidegate_core::policy::Policy;
use tidegate_policies::policy::{self, PolicySpec};

use crate::keys::KeyInfo;

/// Returns the schema of a policy, with the names and parameters of all registered policies.
pub(super) fn schema() -> Value {
    let names: Vec<_> = (policy::registry().iter()).map(|info| info.name).collect();
    let controllers = policy::controllers().iter().map(|part| part.name);
    let controllers: Vec<_> = controllers.chain(["none"]).collect();
    let regulators: Vec<_> = (policy::regulators().iter())
        .map(|part| part.name)
        .collect();
    let dispatchers: Vec<_> = (policy::dispatchers().iter())
        .map(|part| part.name)
        .collect();
    let mut properties = json!({
        "name": { "enum": names, "description": "a policy of the registry" },
        "controller": { "enum": controllers, "default": "none" },
        "regulator": { "enum": regulators, "default": "open" },
        "dispatcher": { "enum": dispatchers, "default": "fifo" },
    });
    for param in params() {
        properties[param.name] = super::property(&KeyInfo::from(param));
    }
    json!({
        "anyOf": [
            { "enum": names },
            {
                "type": "object",
                "properties": properties,
                "minProperties": 1,
                "additionalProperties": false,
            },
        ],
    })
}

/// Parameters of all policies, each once.
fn params() -> impl Iterator<Item = &'static ParamInfo> {
    let all = PolicySpec::every_composition()
        .iter()
        .flat_map(PolicySpec::params);
    let named: BTreeMap<&str, &'static ParamInfo> =
        all.map(|&(info, _)| (info.name, info)).collect();
    named.into_values()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_of_every_part_are_there_with_their_defaults() {
        let schema = schema();
        let table = &schema["anyOf"][1]["properties"];
        assert_eq!(table["background_grace"]["default"], "2 ms");
        assert!(table["cost_size"]["pattern"].is_string());
        let named = table["name"]["enum"].as_array().expect("a list");
        assert!(named.iter().any(|name| name == "mclock"));
    }
}
