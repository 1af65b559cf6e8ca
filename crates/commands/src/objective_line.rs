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

/// Returns an objective in as few characters as can be read: `>=120IOPS <30ms w50`. `>=` is a
/// reservation, `=` a target, `<=` a limit, `<` a latency bound, `w` a weight and `g:` a group.
pub(crate) fn in_brief(background: bool, objective: &ObjectiveView) -> String {
    let mut parts: Vec<String> = background
        .then(|| "background".to_owned())
        .into_iter()
        .collect();
    let mut add = |sign: &str, value: Option<String>| {
        parts.extend(value.map(|value| format!("{sign}{}", value.replace(' ', ""))));
    };
    add(">=", objective.reservation.clone());
    add("=", objective.target.clone());
    add("<", objective.latency.clone());
    let limits = objective
        .limit
        .as_ref()
        .map(|limit| by_direction(&limit.rates));
    add(
        "<=",
        limits.map(|limits| limits.join(",").replace(" of ", ":")),
    );
    let weight = Some(objective.weight).filter(|weight| *weight != Objective::DEFAULT_WEIGHT);
    add("w", weight.map(|weight| weight.to_string()));
    add(
        "g:",
        objective.group.as_ref().map(|group| group.name.clone()),
    );
    let priority = Some(&objective.priority).filter(|class| **class != default_priority());
    add("", priority.cloned());
    match parts.is_empty() {
        true => format!("w{}", objective.weight),
        false => parts.join(" "),
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

/// Returns the limits that a disk has beside that of its VM: `at most 500 IOPS; in limit group
/// logs`. Empty without one.
pub(crate) fn disk_limits(own: Option<&LimitView>, group: Option<&str>) -> String {
    let own = own.map(|own| format!("at most {}", limit(own)));
    let group = group.map(|group| format!("in limit group {group}"));
    let parts: Vec<String> = own.into_iter().chain(group).collect();
    parts.join("; ")
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

    #[test]
    fn a_brief_objective_has_no_blanks_within_its_parts() {
        let mut objective = ObjectiveView {
            weight: Objective::DEFAULT_WEIGHT,
            priority: default_priority(),
            ..ObjectiveView::default()
        };
        assert_eq!(in_brief(false, &objective), "w100");
        assert_eq!(in_brief(true, &objective), "background");
        objective.reservation = Some("120 IOPS @ 16 KiB".to_owned());
        objective.latency = Some("30 ms".to_owned());
        objective.limit = Some(LimitView {
            rates: RatesView {
                total: Some("500 IOPS, 20 MB/s".to_owned()),
                read: None,
                write: Some("15 MB/s".to_owned()),
            },
            burst: None,
        });
        objective.weight = 50;
        assert_eq!(
            in_brief(false, &objective),
            ">=120IOPS@16KiB <30ms <=500IOPS,20MB/s,15MB/s:writes w50"
        );
    }
}
