//! Fault rules: disks that misbehave on purpose.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Fault rules of a disk.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct DiskFaultsView {
    /// NBD export name of the disk.
    pub export: String,
    /// Name of its VM.
    pub vm: String,
    /// Name of its device.
    pub device: String,
    /// Requests into which a fault was injected since the daemon started, by rules in force and by
    /// removed ones.
    pub injected: u64,
    /// Rules in force, in the order in which they are tried.
    pub rules: Vec<FaultView>,
}

/// Fault rule: its configuration, state and counters.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct FaultView {
    /// Number of the rule, unique among all rules that the disk ever had.
    pub number: u32,
    /// State of the rule: `waiting`, `armed` or `over`.
    pub state: String,
    /// Requests that matched the conditions of the armed rule and into which no earlier rule had
    /// injected a fault.
    #[serde(rename = "met")]
    pub matched: u64,
    /// Requests into which the rule injected its fault.
    pub injected: u64,
    /// Operations that the rule applies to: `any`, or several of `read`, `write`, `flush`,
    /// `discard` and `write-zeroes`.
    pub on: Vec<String>,
    /// First byte of the disk that the rule applies to; absent: byte 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// Number of bytes that the rule applies to; absent: to the disk's end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub length: Option<String>,
    /// The fault is injected into every n-th of the matching requests.
    pub every: u64,
    /// Probability that a request selected by `every` gets the fault: `0.1 %`.
    pub probability: String,
    /// Seed of the random draws; absent where the probability is 100 %.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// Time from the rule's creation until it is armed; absent: armed at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
    /// Time for which the rule is armed; absent: for ever.
    #[serde(default, rename = "for", skip_serializing_if = "Option::is_none")]
    pub lasts: Option<String>,
    /// Maximum number of requests into which the fault is injected; absent: no maximum.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
    /// Delay added to the request; absent: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stall: Option<String>,
    /// Error of the reply, such as `EIO`; `none` for a request that is torn and reported as done;
    /// absent where the request does not fail.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Bytes of a write that reach the medium; absent: the whole write, or nothing if `error` is
    /// set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub torn: Option<String>,
}

/// Body of `POST /v1/disks/{export}/faults`, and a `[[vm.disk.fault]]` of the configuration. At
/// least one of `stall`, `error` and `torn` is required.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct FaultRequest {
    /// Operations that the rule applies to; all where empty. The daemon also takes one as text:
    /// [`Operations`].
    #[serde(alias = "operations", skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Operations)]
    pub on: Vec<String>,
    /// First byte of the disk that the rule applies to: `1 GiB`; default: byte 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// Number of bytes that the rule applies to: `64 KiB`; default: to the disk's end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub length: Option<String>,
    /// Injects the fault into every n-th matching request: 100 for one in a hundred; default: 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub every: Option<u64>,
    /// Probability that a request selected by `every` gets the fault: `0.1 %`; default: 100 %.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub probability: Option<String>,
    /// Seed of the random draws; default: chosen by the daemon.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// Time until the rule is armed: `10 s`; default: armed at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
    /// Time for which the rule is armed: `5 s`; default: for ever.
    #[serde(
        rename = "for",
        alias = "duration",
        skip_serializing_if = "Option::is_none"
    )]
    pub lasts: Option<String>,
    /// Maximum number of requests into which the fault is injected; default: no maximum.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
    /// Delay added to the request: `2 s`; default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stall: Option<String>,
    /// Error of the reply: `EIO`, `ENOSPC`, `EPERM` or `EINVAL`; with `torn` also `none`; default:
    /// the request does not fail.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Bytes of a write that reach the medium, in whole sectors of 512 B; default: the whole write,
    /// or nothing if `error` is set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub torn: Option<String>,
}

/// Operations of a [`FaultRequest`] as the daemon takes them: `any`, or some of `read`, `write`,
/// `flush`, `discard` and `write-zeroes`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum Operations {
    /// A single operation.
    One(String),
    /// Several operations.
    Several(Vec<String>),
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_json::{refuses_unknown, round_trip};

    fn text(text: &str) -> Option<String> {
        Some(text.to_owned())
    }

    fn rule() -> FaultView {
        FaultView {
            number: 1,
            state: "armed".to_owned(),
            matched: 7,
            injected: 2,
            on: vec!["any".to_owned()],
            from: None,
            length: None,
            every: 1,
            probability: "100 %".to_owned(),
            seed: None,
            after: None,
            lasts: None,
            count: None,
            stall: None,
            error: None,
            torn: None,
        }
    }

    #[test]
    fn conditions_without_a_value_are_absent_from_a_rule() {
        let head = r#"{"number":1,"state":"armed","met":7,"injected":2,"on":["any"],"#;
        let short = format!(r#"{head}"every":1,"probability":"100 %"}}"#);
        round_trip(&rule(), &short);
        let whole = FaultView {
            from: text("1 GiB"),
            length: text("64 KiB"),
            seed: Some(9),
            after: text("10 s"),
            lasts: text("5 s"),
            count: Some(3),
            stall: text("2 s"),
            error: text("none"),
            torn: text("512 B"),
            ..rule()
        };
        let place = r#""from":"1 GiB","length":"64 KiB","every":1,"probability":"100 %","seed":9,"#;
        let time = r#""after":"10 s","for":"5 s","count":3,"#;
        let effect = r#""stall":"2 s","error":"none","torn":"512 B"}"#;
        round_trip(&whole, &format!("{head}{place}{time}{effect}"));
        let disk = DiskFaultsView {
            export: "oltp".to_owned(),
            vm: "vm1".to_owned(),
            device: "disk0".to_owned(),
            injected: 4,
            rules: vec![rule()],
        };
        let head = r#"{"export":"oltp","vm":"vm1","device":"disk0","injected":4,"rules":"#;
        round_trip(&disk, &format!("{head}[{short}]}}"));
    }

    #[test]
    fn fault_requests_round_trip_and_refuse_unknown_keys() {
        let request = FaultRequest {
            on: vec!["read".to_owned(), "write".to_owned()],
            from: text("1 GiB"),
            length: text("64 KiB"),
            every: Some(100),
            probability: text("1 %"),
            seed: Some(7),
            after: text("10 s"),
            lasts: text("5 s"),
            count: Some(3),
            stall: text("2 s"),
            error: text("EIO"),
            torn: text("0 B"),
        };
        let place = r#"{"on":["read","write"],"from":"1 GiB","length":"64 KiB","every":100,"#;
        let time = r#""probability":"1 %","seed":7,"after":"10 s","for":"5 s","count":3,"#;
        let effect = r#""stall":"2 s","error":"EIO","torn":"0 B"}"#;
        round_trip(&request, &format!("{place}{time}{effect}"));
        let short = FaultRequest {
            stall: text("2 s"),
            ..FaultRequest::default()
        };
        round_trip(&short, r#"{"stall":"2 s"}"#);
        refuses_unknown::<FaultRequest>(r#"{"stal":"2 s"}"#, "stal");
    }
}
