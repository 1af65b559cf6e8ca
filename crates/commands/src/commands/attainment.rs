//! Cells and lines of tables that show how well the parts of an objective (reservation, latency
//! and others) were kept.

use tidegate_api::attainment::{AttainmentView, BudgetView};
use tidegate_core::attainment::Part;
use tidegate_report::{Cell, Table, Tone};

/// Returns the attainment of all parts of an objective in one cell: `kept 99.9 %`, or the missed
/// parts.
pub(super) fn cell(parts: &[AttainmentView]) -> Cell {
    let missed: Vec<String> = (parts.iter())
        .filter(|part| part.kept == Some(false))
        .map(|part| format!("{} {}", part.part, share(part)))
        .collect();
    match (worst(parts), missed.is_empty()) {
        (None, _) => Cell::from("-"),
        (Some(worst), true) => Cell::from(format!("kept {}", share(worst))).tone(Tone::Good),
        (Some(_), false) => Cell::from(format!("missed: {}", missed.join(", "))).tone(Tone::Bad),
    }
}

/// Returns the judged part that was kept least; `None` if none is judged.
pub(super) fn worst(parts: &[AttainmentView]) -> Option<&AttainmentView> {
    let judged = parts.iter().filter(|part| part.kept.is_some());
    // The daemon sends finite percentages, so any two compare.
    judged.min_by(|a, b| a.kept_percent.partial_cmp(&b.kept_percent).expect("finite"))
}

/// Returns the verdict on all parts of an objective in one word: `kept`, `missed`, or `-` where
/// nothing is judged.
pub(super) fn mark(parts: &[AttainmentView]) -> Cell {
    let is_missed = parts.iter().any(|part| part.kept == Some(false));
    match worst(parts) {
        None => Cell::from("-").tone(Tone::Faint),
        Some(_) if is_missed => Cell::from("missed").tone(Tone::Bad),
        Some(_) => Cell::from("kept").tone(Tone::Good),
    }
}

/// Adds a line for each part of an objective, with the reason where it is not judged; for judged
/// parts also the seconds in which the VM asked for less, and the use of the error budget.
pub(super) fn add_properties(table: &mut Table, parts: &[AttainmentView]) {
    for part in parts {
        let (word, tone) = match part.kept {
            None => ("", Tone::Normal),
            Some(true) => ("kept", Tone::Good),
            Some(false) => ("missed", Tone::Bad),
        };
        let name = format!("{} kept?", part.part);
        if part.kept.is_none() {
            table.property(&name, part.detail.as_str());
            continue;
        }
        let text = format!("{word}, {}: {}", share(part), part.detail);
        table.property(&name, Cell::from(text).tone(tone));
        if part.asked_less_s > 0 {
            let text = format!(
                "asked for less than promised in {} of these seconds",
                part.asked_less_s
            );
            table.property("", text);
        }
        if let (Some(hour), Some(day)) = (part.last_hour.burn_rate, part.last_day.burn_rate) {
            let missed = |budget: &BudgetView| {
                let (missed, judged) = (budget.missed_s, budget.judged_s);
                if part.part == Part::Transfer.name() {
                    format!("{missed} of {judged} transfers late")
                } else {
                    format!("{missed} of {judged} s missed")
                }
            };
            let text = format!(
                "error budget used: {:.0} % of the last hour ({}), {:.0} % of the last 24 hours \
                 ({})",
                hour * 100.0,
                missed(&part.last_hour),
                day * 100.0,
                missed(&part.last_day)
            );
            // More than all of a budget is used: the objective is being missed.
            let tone = if hour > 1.0 || day > 1.0 {
                Tone::Warn
            } else {
                Tone::Normal
            };
            table.property("", Cell::from(text).tone(tone));
        }
    }
}

/// Returns the percentage of seconds in which a part was kept, rounded down, so that 100 % means
/// all of them.
fn share(part: &AttainmentView) -> String {
    let percent = part.kept_percent.unwrap_or(0.0);
    format!("{} %", (percent * 10.0).floor() / 10.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use tidegate_report::Style;

    fn part(name: &str, kept_s: u64, missed_s: u64) -> AttainmentView {
        let budget = json!({ "judged_s": kept_s + missed_s, "missed_s": missed_s });
        let percent = 100.0 * kept_s as f64 / (kept_s + missed_s) as f64;
        serde_json::from_value(json!({
            "part": name, "kept": percent >= 99.0, "kept_percent": percent,
            "detail": "words", "kept_s": kept_s, "missed_s": missed_s,
            "missed_by_cause": { "own_limit": 0, "others": missed_s, "device": 0, "policy": 0 },
            "stalled_s": 0, "asked_less_s": 3, "requests": 0, "late": 0, "worst_late_ns": 0,
            "last_5_minutes": budget, "last_hour": budget, "last_day": budget,
        }))
        .expect("a view")
    }

    #[test]
    fn the_use_of_a_budget_names_what_was_judged() {
        let text = |name: &str| {
            let mut part = part(name, 12, 2);
            part.last_hour.burn_rate = Some(14.29);
            part.last_day.burn_rate = Some(14.29);
            let mut table = Table::properties();
            add_properties(&mut table, &[part]);
            table.render(Style::Plain)
        };
        let used = "error budget used: 1429 % of the last hour (2 of 14 s missed), \
                    1429 % of the last 24 hours (2 of 14 s missed)";
        let seconds = text("latency");
        assert!(seconds.contains(used), "{seconds}");
        let late = "error budget used: 1429 % of the last hour (2 of 14 transfers late), \
                    1429 % of the last 24 hours (2 of 14 transfers late)";
        let transfers = text("transfer");
        assert!(transfers.contains(late), "{transfers}");
    }

    #[test]
    fn a_cell_names_the_parts_that_are_missed() {
        let text = |parts: &[AttainmentView]| {
            let mut table = Table::properties();
            table.property("x", cell(parts));
            let text = table.render(Style::default());
            text.trim().trim_start_matches('x').trim().to_owned()
        };
        assert_eq!(text(&[]), "-");
        let (good, bad) = (part("reservation", 9999, 1), part("latency", 1, 1));
        assert_eq!(text(std::slice::from_ref(&good)), "kept 99.9 %");
        assert_eq!(text(&[good, bad]), "missed: latency 50 %");
    }
}
