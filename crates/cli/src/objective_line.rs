//! Objectives on one line.

use tidegate_api::objective::{BurstView, LimitView, ObjectiveView, RatesView};
use tidegate_core::objective::{Objective, Priority};

/// Returns an objective on one line: `at least 120 IOPS; at most 30 MB/s; weight 50`.
pub(crate) fn in_words(background: bool, objective: &ObjectiveView) -> String {
    match promised(objective) {
        parts if background && parts.is_empty() => "background".to_owned(),
        parts if background => format!("background; {parts}"),
        parts if parts.is_empty() => format!("weight {}", Objective::DEFAULT_WEIGHT),
        parts => parts,
    }
}

/// Returns the promises of an objective beyond the default weight; may be empty.
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
        parts.push(format!("in group {}", group.name));
    }
    if objective.priority != default_priority() {
        parts.push(format!("priority {}", objective.priority));
    }
    parts.join("; ")
}

/// Returns the default priority class as the control API spells it.
pub(crate) fn default_priority() -> String {
    Priority::DEFAULT.to_string()
}

/// Returns a limit on one line: `500 IOPS, 20 MB/s of reads, burst 2000 IOPS for 10 s`.
pub(crate) fn limit(limit: &LimitView) -> String {
    let mut parts = by_direction(&limit.rates);
    if let Some(burst) = &limit.burst {
        parts.push(format!("burst {}", self::burst(burst)));
    }
    parts.join(", ")
}

/// Returns a burst on one line: `2000 IOPS for 10 s`.
fn burst(burst: &BurstView) -> String {
    let rates = by_direction(&burst.rates);
    format!("{} for {}", rates.join(", "), burst.length)
}

/// Returns the rates that are set, those by direction with its name.
fn by_direction(RatesView { total, read, write }: &RatesView) -> Vec<String> {
    let named = [(total, ""), (read, " of reads"), (write, " of writes")];
    named
        .into_iter()
        .filter_map(|(rate, of)| Some(format!("{}{of}", rate.as_ref()?)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_by_direction_reads_as_a_sentence() {
        let rates = RatesView {
            total: Some("500 IOPS".to_owned()),
            read: None,
            write: Some("15 MB/s".to_owned()),
        };
        let view = LimitView { rates, burst: None };
        assert_eq!(limit(&view), "500 IOPS, 15 MB/s of writes");
    }
}
