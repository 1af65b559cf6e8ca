//! Objectives in words.

use tidegate_api::objective::{BurstView, LimitView, ObjectiveView, RatesView};
use tidegate_core::objective::{Objective, Priority};

/// An objective on one line: `at least 120 IOPS, at most 30 MB/s, weight 50`.
pub(crate) fn in_words(background: bool, objective: &ObjectiveView) -> String {
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
    if objective.weight != Objective::DEFAULT_WEIGHT {
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

/// A limit: `500 IOPS, read 20 MB/s, bursts of 2000 IOPS for 10 s`.
pub(crate) fn limit(limit: &LimitView) -> String {
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
