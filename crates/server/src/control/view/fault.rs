//! Fault rules, as text with units.

use serde::{Deserialize, Serialize};
use tidegate_core::time::Nanos;
use tidegate_device::units;

use crate::command::DiskSnapshot;
use crate::config::fault::{operation, outcome, percent};
use crate::fault::{Effect, Ops, RuleSnapshot, State};

/// The fault rules of a disk.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct DiskFaultsView {
    /// NBD export name.
    pub export: String,
    /// Its VM.
    pub vm: String,
    /// Its device.
    pub device: String,
    /// Requests that something went wrong with on purpose since the daemon started, also by rules
    /// that are gone.
    pub injected: u64,
    /// The rules in force, in the order in which they are asked.
    pub rules: Vec<FaultView>,
}

/// A fault rule: what can be written into a configuration file, and how it fared.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct FaultView {
    /// What it is called.
    pub number: u32,
    /// Where it is in its life: `waiting`, `armed` or `over`.
    pub state: String,
    /// Requests that it was about while it was armed, and that no rule before it struck.
    pub met: u64,
    /// Requests that it struck.
    pub injected: u64,
    /// Operations: one word for all of them, `any`, or several.
    pub on: Vec<String>,
    /// Where the places that it is about begin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// How long they are; absent where they reach to the disk's end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub length: Option<String>,
    /// Strikes each so-manieth.
    pub every: u64,
    /// Strikes with this probability.
    pub probability: String,
    /// What decides the draws; absent where nothing is drawn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// How long after it was set it begins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
    /// How long it lasts from then on.
    #[serde(default, rename = "for", skip_serializing_if = "Option::is_none")]
    pub lasts: Option<String>,
    /// How often it strikes at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
    /// How much longer a request takes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stall: Option<String>,
    /// What it is answered with; `none` where it is answered as if all were well.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// How much of it reaches the medium.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub torn: Option<String>,
}

impl DiskFaultsView {
    /// Shows the rules of a disk of a VM.
    pub fn new(device: &str, vm: &str, disk: &DiskSnapshot) -> DiskFaultsView {
        DiskFaultsView {
            export: disk.export.clone(),
            vm: vm.to_owned(),
            device: device.to_owned(),
            injected: disk.faults_injected,
            rules: disk.faults.iter().map(FaultView::new).collect(),
        }
    }
}

impl FaultView {
    /// Shows a rule.
    pub fn new(snapshot: &RuleSnapshot) -> FaultView {
        let rule = &snapshot.rule;
        let (error, torn) = match rule.effect {
            Effect::None => (None, None),
            Effect::Error(error) => (Some(Err(error)), None),
            Effect::Torn { keep, answer } => (Some(answer), Some(size(keep))),
        };
        let time = |span: Nanos| (span > Nanos::ZERO).then(|| units::format_duration(span));
        let percent = percent(rule.probability_ppm);
        FaultView {
            number: snapshot.number,
            state: state(snapshot.state).to_owned(),
            met: snapshot.met,
            injected: snapshot.injected,
            on: match rule.on {
                Ops::ANY => vec!["any".to_owned()],
                on => on.iter().map(|op| operation(op).to_owned()).collect(),
            },
            from: (rule.from > 0).then(|| size(rule.from)),
            length: (rule.to < u64::MAX).then(|| size(rule.to - rule.from)),
            every: rule.every,
            seed: (percent != "100 %").then_some(rule.seed),
            probability: percent,
            after: time(rule.after),
            lasts: rule.lasts.and_then(time),
            count: rule.count,
            stall: time(rule.stall),
            error: error.map(|error| outcome(error).to_owned()),
            torn,
        }
    }
}

fn state(state: State) -> &'static str {
    match state {
        State::Waiting => "waiting",
        State::Armed => "armed",
        State::Over => "over",
    }
}

/// A size that can be written back: exact, where a short one would be rounded.
fn size(bytes: u64) -> String {
    let short = units::format_bytes(bytes);
    match units::parse_bytes(&short) {
        Ok(same) if same == bytes => short,
        _ => format!("{bytes} B"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::config::fault::from_json;

    #[test]
    fn what_is_shown_can_be_written_back() {
        for rule in [
            json!({ "error": "EIO" }),
            json!({ "on": "flush", "stall": "1.5 s", "after": "10 s", "for": "250 ms" }),
            json!({ "on": ["write", "write-zeroes"], "torn": "0 B", "error": "none", "count": 3 }),
            json!({ "from": "1000000512 B", "length": "1 MiB", "every": 7, "error": "ENOSPC" }),
            json!({ "probability": "0.25 %", "seed": 9, "error": "EPERM" }),
        ] {
            let read = from_json(&rule).expect("good");
            let shown = FaultView::new(&RuleSnapshot {
                number: 1,
                rule: read,
                state: State::Armed,
                met: 0,
                injected: 0,
            });
            let mut shown = serde_json::to_value(shown).expect("plain data");
            let table = shown.as_object_mut().expect("a table");
            for known in ["number", "state", "met", "injected"] {
                table.remove(known).expect("it is shown");
            }
            assert_eq!(from_json(&shown), Ok(read), "{shown}");
        }
    }
}
