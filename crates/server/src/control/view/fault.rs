//! Fault rules, as text with units.

use tidegate_api::fault::{DiskFaultsView, FaultView};
use tidegate_core::time::Nanos;
use tidegate_units::{self as units, Millionths};

use crate::command::DiskSnapshot;
use crate::config::fault::{operation, outcome};
use crate::fault::{Effect, Ops, RuleSnapshot, State};

/// Returns the fault rules of a disk of a VM.
pub(crate) fn disk_faults(device: &str, vm: &str, disk: &DiskSnapshot) -> DiskFaultsView {
    DiskFaultsView {
        export: disk.export.clone(),
        vm: vm.to_owned(),
        device: device.to_owned(),
        injected: disk.faults_injected,
        rules: disk.faults.iter().map(fault).collect(),
    }
}

fn fault(snapshot: &RuleSnapshot) -> FaultView {
    let rule = &snapshot.rule;
    let (error, torn) = match rule.effect {
        Effect::None => (None, None),
        Effect::Error(error) => (Some(Err(error)), None),
        Effect::Torn { keep, answer } => (Some(answer), Some(size(keep))),
    };
    let time = |span: Nanos| (span > Nanos::ZERO).then(|| units::format_duration(span));
    let probability = Millionths(rule.probability_ppm);
    FaultView {
        number: snapshot.number,
        state: state(snapshot.state).to_owned(),
        matched: snapshot.met,
        injected: snapshot.injected,
        on: match rule.on {
            Ops::ANY => vec!["any".to_owned()],
            on => on.iter().map(|op| operation(op).to_owned()).collect(),
        },
        from: (rule.from > 0).then(|| size(rule.from)),
        // A rule without an end reaches to the end of the disk, whatever its size.
        length: (rule.to < u64::MAX).then(|| size(rule.to - rule.from)),
        every: rule.every,
        // A rule that strikes with certainty draws nothing, so its seed means nothing.
        seed: (probability < Millionths::WHOLE).then_some(rule.seed),
        probability: probability.to_string(),
        after: time(rule.after),
        lasts: rule.lasts.and_then(time),
        count: rule.count,
        stall: time(rule.stall),
        error: error.map(|error| outcome(error).to_owned()),
        torn,
    }
}

fn state(state: State) -> &'static str {
    match state {
        State::Waiting => "waiting",
        State::Armed => "armed",
        State::Over => "over",
    }
}

/// Formats a size so that it can be parsed back: in exact bytes where the short form would round.
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
            let shown = fault(&RuleSnapshot {
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
