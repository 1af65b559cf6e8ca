//! How things are put into words that several commands use.

use tidegate_api::objective::{BurstView, LimitView, ObjectiveView, RatesView};
use tidegate_api::policy::PolicyView;
use tidegate_api::vm::PartView;
use tidegate_core::objective::Priority;
use tidegate_report::{Cell, Tone};

/// An objective on one line: `at least 120 IOPS, at most 30 MB/s, weight 50`.
pub(super) fn promise(background: bool, objective: &ObjectiveView) -> String {
    match promised(objective) {
        parts if background && parts.is_empty() => "background".to_owned(),
        parts if background => format!("background; {parts}"),
        parts if parts.is_empty() => "an equal share".to_owned(),
        parts => parts,
    }
}

/// What it promises beyond an equal share.
fn promised(objective: &ObjectiveView) -> String {
    let mut parts = Vec::new();
    if let Some(rate) = &objective.reservation {
        parts.push(format!("at least {rate}"));
    }
    if let Some(rate) = &objective.target {
        parts.push(format!("exactly {rate}"));
    }
    if let Some(limit) = &objective.limit {
        parts.push(format!("at most {}", self::limit(limit)));
    }
    if let Some(latency) = &objective.latency {
        parts.push(format!("within {latency}"));
    }
    if objective.weight != tidegate_core::objective::Objective::DEFAULT_WEIGHT {
        parts.push(format!("weight {}", objective.weight));
    }
    if let Some(group) = &objective.group {
        parts.push(format!("in {}", group.name));
    }
    if objective.priority != Priority::DEFAULT.to_string() {
        parts.push(objective.priority.clone());
    }
    parts.join("; ")
}

/// A weight: `100`, or `100 of qfs, which has 200`.
pub(super) fn weight(objective: &ObjectiveView) -> String {
    match &objective.group {
        Some(group) => format!(
            "{} of {}, which has {}",
            objective.weight, group.name, group.weight
        ),
        None => objective.weight.to_string(),
    }
}

/// A limit: `500 IOPS, read 20 MB/s, bursts of 2000 IOPS for 10 s`.
pub(super) fn limit(limit: &LimitView) -> String {
    let mut parts = by_direction(&limit.rates);
    if let Some(burst) = &limit.burst {
        parts.push(format!("bursts of {}", self::burst(burst)));
    }
    parts.join(", ")
}

fn burst(burst: &BurstView) -> String {
    let rates = by_direction(&burst.rates);
    format!("{} for {}", rates.join(", "), burst.length)
}

fn by_direction(RatesView { total, read, write }: &RatesView) -> Vec<String> {
    let named = [("", total), ("read ", read), ("write ", write)];
    named
        .into_iter()
        .filter_map(|(name, rate)| Some(format!("{name}{}", rate.as_ref()?)))
        .collect()
}

/// `policy fifo enforces no reservation (120 IOPS); policy "mclock" would`.
pub(super) fn not_enforced(policy: &str, part: &PartView) -> Cell {
    let would = match part.enforced_by.as_slice() {
        [] => "no policy does yet".to_owned(),
        names => {
            let names: Vec<String> = names.iter().map(|name| format!("{name:?}")).collect();
            format!("policy {} would", names.join(" or "))
        }
    };
    let text = format!(
        "policy {policy} enforces no {} ({}); {would}",
        part.part, part.value
    );
    Cell::from(text).tone(Tone::Warn)
}

/// `mclock (open, then mclock)`.
pub(super) fn with_parts(policy: &PolicyView) -> String {
    let parts = parts(
        policy.controller.as_deref(),
        &policy.regulator,
        &policy.dispatcher,
    );
    format!("{} ({parts})", policy.name)
}

pub(super) fn parts(controller: Option<&str>, regulator: &str, dispatcher: &str) -> String {
    let controller = controller
        .map(|name| format!("controller {name}, "))
        .unwrap_or_default();
    format!("{controller}regulator {regulator}, dispatcher {dispatcher}")
}

pub(super) fn enforces(parts: &[String]) -> String {
    if parts.is_empty() {
        "nothing".to_owned()
    } else {
        parts.join(", ")
    }
}
