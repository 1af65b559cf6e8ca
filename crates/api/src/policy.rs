//! Policies, their parts (controller, regulator, dispatcher) and their parameters.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

/// Policy in force, with the values of its parameters.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct PolicyView {
    /// Name of the policy, or the names of its parts joined by `+`.
    pub name: String,
    /// Name of its controller; `null`: no controller.
    pub controller: Option<String>,
    /// Name of its regulator.
    pub regulator: String,
    /// Name of its dispatcher.
    pub dispatcher: String,
    /// Parts of an objective that are enforced.
    pub enforces: Vec<String>,
    /// Values of its parameters.
    pub params: Vec<ParamValue>,
}

impl PolicyView {
    /// Returns the parameters on one line: `cost_size = 16 KiB, slack = 900 us`.
    pub fn params_in_words(&self) -> String {
        let params = self.params.iter();
        let words: Vec<_> = params
            .map(|p| format!("{} = {}", p.name, p.value))
            .collect();
        words.join(", ")
    }
}

/// Value of a parameter.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ParamValue {
    /// Name of the parameter.
    pub name: String,
    /// Value with its unit, as the configuration takes it.
    pub value: String,
}

/// Policy that can be put in force on a device.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct PolicyInfoView {
    /// Name of the policy.
    pub name: String,
    /// Summary on one line.
    pub summary: String,
    /// Paper or scheduler that the policy comes from.
    pub source: String,
    /// Advice on when to use it.
    pub about: String,
    /// Name of its controller; `null`: no controller.
    pub controller: Option<String>,
    /// Name of its regulator.
    pub regulator: String,
    /// Name of its dispatcher.
    pub dispatcher: String,
    /// Parts of an objective that are enforced.
    pub enforces: Vec<String>,
    /// Parameters and their allowed values.
    pub params: Vec<ParamView>,
}

/// Part that policies are composed of.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct PolicyPartView {
    /// Name of the part.
    pub name: String,
    /// `controller`, `regulator` or `dispatcher`.
    pub role: String,
    /// Summary on one line.
    pub summary: String,
    /// Parts of an objective that are enforced.
    pub enforces: Vec<String>,
    /// Parameters and their allowed values.
    pub params: Vec<ParamView>,
}

/// Parameter of a policy; values are text with units.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ParamView {
    /// Name of the parameter.
    pub name: String,
    /// Kind of its values: `size`, `duration`, `count`, `flag` or `choice`.
    pub kind: String,
    /// Default value.
    pub default: String,
    /// Smallest value allowed; empty for a choice.
    pub min: String,
    /// Largest value allowed; empty for a choice.
    pub max: String,
    /// Words of a choice; absent for other kinds.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub choices: Vec<String>,
    /// Effect of the parameter.
    pub help: String,
}

/// Body of `PUT /v1/devices/{name}/policy`: a policy by its name, or one composed of parts. The
/// daemon also takes the bare name as a JSON string: [`PolicyChoice`].
///
/// Every further key is a parameter; the daemon refuses one that the policy does not have.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct PolicyRequest {
    /// Name of a policy; absent where parts are named.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Name of a controller.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub controller: Option<String>,
    /// Name of a regulator.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub regulator: Option<String>,
    /// Name of a dispatcher.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dispatcher: Option<String>,
    /// Parameters by name: text with a unit, a whole number for a count, true or false for a flag.
    #[serde(flatten)]
    pub params: BTreeMap<String, Value>,
}

/// Body of `PUT /v1/devices/{name}/policy` as the daemon takes it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum PolicyChoice {
    /// Name of a policy, with the default values of its parameters.
    Name(String),
    /// Policy with parameters.
    Request(PolicyRequest),
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_json::round_trip;

    fn param() -> ParamView {
        ParamView {
            name: "cost_size".to_owned(),
            kind: "size".to_owned(),
            default: "16 KiB".to_owned(),
            min: "512 B".to_owned(),
            max: "1 MiB".to_owned(),
            choices: Vec::new(),
            help: "bytes".to_owned(),
        }
    }

    #[test]
    fn a_policy_has_its_parts_and_the_values_of_its_parameters() {
        let value = |name: &str, value: &str| ParamValue {
            name: name.to_owned(),
            value: value.to_owned(),
        };
        let policy = PolicyView {
            name: "mclock".to_owned(),
            controller: None,
            regulator: "open".to_owned(),
            dispatcher: "mclock".to_owned(),
            enforces: vec!["reservation".to_owned()],
            params: vec![value("cost_size", "16 KiB"), value("slack", "900 us")],
        };
        let parts = r#"{"name":"mclock","controller":null,"regulator":"open","#;
        let enforces = r#""dispatcher":"mclock","enforces":["reservation"],"params":["#;
        let params = r#"{"name":"cost_size","value":"16 KiB"},{"name":"slack","value":"900 us"}]}"#;
        round_trip(&policy, &format!("{parts}{enforces}{params}"));
        let words = policy.params_in_words();
        assert_eq!(words, "cost_size = 16 KiB, slack = 900 us");
    }

    #[test]
    fn choices_are_listed_for_a_choice_only() {
        let head = r#"{"name":"cost_size","kind":"size","default":"16 KiB","min":"512 B","#;
        let size = format!(r#"{head}"max":"1 MiB","help":"bytes"}}"#);
        round_trip(&param(), &size);
        let choice = ParamView {
            kind: "choice".to_owned(),
            default: "fair".to_owned(),
            min: String::new(),
            max: String::new(),
            choices: vec!["fair".to_owned(), "fast".to_owned()],
            ..param()
        };
        let head = r#"{"name":"cost_size","kind":"choice","default":"fair","min":"","max":"","#;
        let tail = r#""choices":["fair","fast"],"help":"bytes"}"#;
        round_trip(&choice, &format!("{head}{tail}"));
    }

    #[test]
    fn policies_and_parts_describe_themselves() {
        let size = serde_json::to_string(&param()).expect("plain data");
        let policy = PolicyInfoView {
            name: "fifo".to_owned(),
            summary: "in order".to_owned(),
            source: "-".to_owned(),
            about: "baseline".to_owned(),
            controller: Some("tuner".to_owned()),
            regulator: "open".to_owned(),
            dispatcher: "fifo".to_owned(),
            enforces: Vec::new(),
            params: vec![param()],
        };
        let head = r#"{"name":"fifo","summary":"in order","source":"-","about":"baseline","#;
        let parts = r#""controller":"tuner","regulator":"open","dispatcher":"fifo","#;
        let tail = format!(r#""enforces":[],"params":[{size}]}}"#);
        round_trip(&policy, &format!("{head}{parts}{tail}"));
        let part = PolicyPartView {
            name: "fifo".to_owned(),
            role: "dispatcher".to_owned(),
            summary: "in order".to_owned(),
            enforces: Vec::new(),
            params: vec![param()],
        };
        let head = r#"{"name":"fifo","role":"dispatcher","summary":"in order","#;
        round_trip(&part, &format!("{head}{tail}"));
    }

    #[test]
    fn parameters_stand_beside_the_name() {
        let mut request = PolicyRequest {
            name: Some("mclock".to_owned()),
            ..PolicyRequest::default()
        };
        round_trip(&request, r#"{"name":"mclock"}"#);
        request
            .params
            .insert("cost_size".to_owned(), "64 KiB".into());
        request.params.insert("n".to_owned(), 5.into());
        round_trip(&request, r#"{"name":"mclock","cost_size":"64 KiB","n":5}"#);
        let parts = PolicyRequest {
            controller: Some("tuner".to_owned()),
            regulator: Some("token-bucket".to_owned()),
            dispatcher: Some("mclock".to_owned()),
            ..PolicyRequest::default()
        };
        let head = r#"{"controller":"tuner","regulator":"token-bucket","#;
        round_trip(&parts, &format!(r#"{head}"dispatcher":"mclock"}}"#));
    }
}
