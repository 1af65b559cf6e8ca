//! Runs of a what-if: a recorded span of a device, replayed under other policies and objectives.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use crate::error::Problem;

/// Body of `POST /v1/whatif`.
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct WhatIfRequest {
    /// Name of the recorded device.
    pub device: String,
    /// Begin of the span, as in `?from=` of a recording; absent: the oldest request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// End of the span; absent: now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// Policies to try, each for the whole span; without one only the recording's own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub policies: Vec<String>,
    /// Changes of objectives by VM, as bodies of `PATCH /v1/vms/{name}/objective`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub objectives: BTreeMap<String, Value>,
    /// Model of the catalogue to replay on; absent: that of the recorded device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// True to replay a span from which requests are missing.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub allow_gaps: bool,
}

/// Answer of `GET /v1/whatif`, and of requests that start or cancel a run.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct WhatIfView {
    /// Bounds of a run.
    pub bounds: WhatIfBounds,
    /// Device models of the catalogue.
    #[serde(default)]
    pub models: Vec<String>,
    /// Last run that was started, also after its end; absent before the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<WhatIfRun>,
}

/// Bounds of a run, beyond which it is ended.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct WhatIfBounds {
    /// CPU time in seconds.
    pub cpu_s: u64,
    /// Time by the clock in seconds.
    pub time_s: u64,
    /// Address space in bytes.
    pub memory_bytes: u64,
    /// Size of the replayed recording in bytes.
    pub recording_bytes: u64,
}

/// Run of a what-if.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct WhatIfRun {
    /// Number of the run since the daemon started, from 1.
    pub number: u64,
    /// State.
    pub state: WhatIfState,
    /// Request as it was sent.
    pub request: WhatIfRequest,
    /// Time of the start (RFC 3339).
    pub begun: String,
    /// Time of the end (RFC 3339); absent while it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<String>,
    /// Part of the replays that is done, 0 to 1.
    pub progress: f64,
    /// Present step in words; empty before the first and after the last.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub step: String,
    /// Reason of a failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<Problem>,
    /// Results, as `tidegate whatif -o json` prints them; absent unless the run is done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<Value>,
}

/// State of a what-if run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum WhatIfState {
    /// The span is read or replayed.
    Running,
    /// The results are there.
    Done,
    /// The run has ended without results.
    Failed,
    /// A client has ended the run.
    Cancelled,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_json::{refuses_unknown, round_trip};

    #[test]
    fn a_request_needs_a_device_alone() {
        let request = WhatIfRequest {
            device: "disk0".to_owned(),
            ..WhatIfRequest::default()
        };
        round_trip(&request, r#"{"device":"disk0"}"#);
        refuses_unknown::<WhatIfRequest>(r#"{"device":"disk0","policy":"slo"}"#, "policy");
        let whole = WhatIfRequest {
            from: Some("-15m".to_owned()),
            to: Some("now".to_owned()),
            policies: vec!["slo".to_owned()],
            objectives: [("db".to_owned(), serde_json::json!({"latency": null}))].into(),
            model: Some("nvme-1tb".to_owned()),
            allow_gaps: true,
            ..request
        };
        let text = concat!(
            r#"{"device":"disk0","from":"-15m","to":"now","policies":["slo"],"#,
            r#""objectives":{"db":{"latency":null}},"model":"nvme-1tb","allow_gaps":true}"#
        );
        round_trip(&whole, text);
    }

    #[test]
    fn a_run_has_no_end_and_no_results_before_they_are_there() {
        let run = WhatIfRun {
            number: 1,
            state: WhatIfState::Running,
            request: WhatIfRequest::default(),
            begun: "2026-11-28T12:00:00Z".to_owned(),
            ended: None,
            progress: 0.5,
            step: "mclock".to_owned(),
            problem: None,
            answer: None,
        };
        let view = WhatIfView {
            bounds: WhatIfBounds::default(),
            models: Vec::new(),
            run: Some(run),
        };
        let text = concat!(
            r#"{"bounds":{"cpu_s":0,"time_s":0,"memory_bytes":0,"recording_bytes":0},"#,
            r#""models":[],"run":{"number":1,"state":"running","request":{"device":""},"#,
            r#""begun":"2026-11-28T12:00:00Z","progress":0.5,"step":"mclock"}}"#
        );
        round_trip(&view, text);
    }
}
