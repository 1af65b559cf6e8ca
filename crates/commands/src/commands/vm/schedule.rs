//! `tidegate vm schedule`: entries that change an objective at times of day or dates.

use anyhow::Result;
use hyper::Method;
use serde_json::Value;
use tidegate_api::change::{ObjectiveChange, ScheduleEntry};
use tidegate_api::query::{ChangeQuery, percent_encode};
use tidegate_api::schedule::ScheduleView;
use tidegate_api::vm::VmView;
use tidegate_report::{Align, Cell, Table, Tone};

use super::{NOT_PERSISTED, change, describe_change};
use crate::args::{EntryArgs, ScheduleCommand};
use crate::client::{Client, read};
use crate::objective_line;
use crate::output::Output;

pub(super) fn run(command: &ScheduleCommand, client: &Client, out: Output) -> Result<()> {
    let path = |name: &str| format!("/v1/vms/{}/schedule", percent_encode(name));
    let (answer, persisted) = match command {
        ScheduleCommand::List { name } => return list(name, client, out),
        ScheduleCommand::Add(args) => {
            let path = path(&args.name) + &query(args.force, args.persist);
            let answer = client.change(Method::POST, &path, &entry(args))?;
            (answer, args.persist)
        }
        ScheduleCommand::Clear {
            name,
            number,
            force,
            persist,
        } => {
            let one = number.map_or_else(String::new, |number| format!("/{number}"));
            let path = path(name) + &one + &query(*force, *persist);
            (client.change(Method::DELETE, &path, &())?, *persist)
        }
    };
    if out.is_json() {
        return out.json(&answer);
    }
    let note = (!persisted).then_some(NOT_PERSISTED);
    Ok(out.table(&describe_change(&read(answer)?, note))?)
}

fn query(force: bool, persist: bool) -> String {
    ChangeQuery { force, persist }.to_string()
}

fn list(name: &str, client: &Client, out: Output) -> Result<()> {
    let answer = client.get(&format!("/v1/vms/{}", percent_encode(name)))?;
    if out.is_json() {
        return out.json(&answer["schedule"]);
    }
    let vm: VmView = read(answer)?;
    let Some(schedule) = &vm.schedule else {
        return Ok(out.text(&format!("{name} has no schedule\n"))?);
    };
    out.table(&table(schedule))?;
    let mut properties = Table::properties();
    state_properties(&mut properties, schedule);
    Ok(out.text(&format!("\n{}", properties.render(out.style())))?)
}

/// Returns the entry that the options describe.
fn entry(args: &EntryArgs) -> ScheduleEntry {
    ScheduleEntry {
        at: args.at.clone(),
        from: args.from.clone(),
        until: args.until.clone(),
        days: args.days.clone(),
        force: args.force,
        parts: ObjectiveChange {
            timezone: args.timezone.clone().into(),
            ..change(&args.parts)
        },
        ..ScheduleEntry::default()
    }
}

fn table(schedule: &ScheduleView) -> Table {
    let mut table = Table::new([
        ("ENTRY", Align::Right),
        ("WHEN", Align::Left),
        ("CHANGES", Align::Left),
        ("STATE", Align::Left),
    ]);
    for (i, entry) in schedule.entries.iter().enumerate() {
        table.row([
            (i + 1).to_string().into(),
            times_text(entry).into(),
            changes_text(entry).into(),
            match entry_state(schedule, i + 1) {
                EntryState::Inactive => Cell::from(String::new()),
                EntryState::InForce => Cell::from("in force").tone(Tone::Strong),
                EntryState::NotApplied => Cell::from("not applied").tone(Tone::Bad),
            },
        ]);
    }
    table
}

/// State of an entry at the time of the answer.
enum EntryState {
    /// Not due, or overridden by a later entry.
    Inactive,
    InForce,
    /// Due, but refused because it does not fit the device.
    NotApplied,
}

/// Returns the state of an entry by its number, which counts from 1.
fn entry_state(schedule: &ScheduleView, number: usize) -> EntryState {
    let is_due = schedule.entry == Some(number);
    match (is_due, &schedule.not_applied_because) {
        (false, _) => EntryState::Inactive,
        (true, None) => EntryState::InForce,
        (true, Some(_)) => EntryState::NotApplied,
    }
}

/// Adds a schedule to the table of a VM.
pub(super) fn add_properties(table: &mut Table, schedule: &ScheduleView) {
    for (i, entry) in schedule.entries.iter().enumerate() {
        let name = if i == 0 { "schedule" } else { "" };
        let state = match entry_state(schedule, i + 1) {
            EntryState::Inactive => "",
            EntryState::InForce => " (in force)",
            EntryState::NotApplied => " (not applied)",
        };
        let text = format!(
            "{} {}: {}{state}",
            i + 1,
            times_text(entry),
            changes_text(entry)
        );
        table.property(name, text);
    }
    state_properties(table, schedule);
}

/// Adds the base objective, the next change, and the reason why a due entry was not applied.
fn state_properties(table: &mut Table, schedule: &ScheduleView) {
    table.property(
        "base objective",
        objective_line::in_words(false, &schedule.base),
    );
    if let Some(reason) = &schedule.not_applied_because {
        table.property("not applied", Cell::from(reason.as_str()).tone(Tone::Bad));
    }
    let next = match &schedule.next {
        Some(next) => format!(
            "{}: {}",
            time(&next.at),
            objective_line::in_words(false, &next.objective)
        ),
        None => "none".to_owned(),
    };
    table.property("next change", next);
    table.property("time now", time(&schedule.now));
}

/// Shortens `2026-11-22T18:00:00+01:00[Europe/Berlin]` to `2026-11-22 18:00 (Europe/Berlin)`.
fn time(text: &str) -> String {
    let zone = text
        .split_once('[')
        .and_then(|(_, zone)| zone.strip_suffix(']'));
    // Date and time of ISO 8601 to the second; a shorter text is shown as it is.
    let clock = text.get(..19).map(|clock| clock.replacen('T', " ", 1));
    match (clock, zone) {
        (Some(clock), Some(zone)) => {
            // Seconds are shown only where there are any.
            let clock = clock.strip_suffix(":00").unwrap_or(&clock);
            format!("{clock} ({zone})")
        }
        _ => text.to_owned(),
    }
}

/// Returns the times of an entry: `18:00 to 23:00 on mon, tue`.
fn times_text(entry: &Value) -> String {
    let text_of = |key: &str| entry[key].as_str().map(|text| text.replacen('T', " ", 1));
    if let Some(at) = text_of("at") {
        return match text_of("until") {
            Some(until) => format!("{at} to {until}"),
            None => format!("from {at} on"),
        };
    }
    // An entry without times holds for whole days.
    let midnight = || "00:00".to_owned();
    let from = text_of("from").unwrap_or_else(midnight);
    let until = text_of("until").unwrap_or_else(midnight);
    let days = entry["days"].as_array().map(|days| {
        let names: Vec<&str> = days.iter().filter_map(Value::as_str).collect();
        format!("on {}", names.join(", "))
    });
    let days = days.unwrap_or_else(|| "every day".to_owned());
    format!("{from} to {until} {days}")
}

/// Returns the changes of an entry: `target 50 MB/s, weight 7`.
fn changes_text(entry: &Value) -> String {
    let is_time = |key: &str| ["at", "from", "until", "days"].contains(&key);
    let parts = entry.as_object().into_iter().flatten();
    let parts = parts.filter(|(key, _)| !is_time(key));
    let parts = parts.flat_map(|(key, value)| part_texts(key, value));
    parts.collect::<Vec<_>>().join(", ")
}

/// Returns a changed part, or the parts of a table, with dotted names.
fn part_texts(key: &str, value: &Value) -> Vec<String> {
    match value {
        Value::Object(parts) => {
            let name = |inner: &str| match inner {
                // The main key of a table stands for the table, as in the options: `limit`, not
                // `limit.total`.
                "total" | "name" => key.to_owned(),
                inner => format!("{key}.{inner}"),
            };
            let parts = parts.iter();
            parts
                .flat_map(|(inner, value)| part_texts(&name(inner), value))
                .collect()
        }
        Value::String(text) => vec![format!("{key} {text}")],
        Value::Null => vec![format!("{key} none")],
        Value::Bool(true) if key == "force" => vec!["forced".to_owned()],
        other => vec![format!("{key} {other}")],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Args, Command, VmCommand};
    use clap::Parser;
    use serde_json::json;

    #[test]
    fn options_become_an_entry_and_its_text() {
        let typed = |more: &[&str]| {
            let line = ["tidegate", "vm", "schedule", "add", "oltp"].iter();
            match Args::try_parse_from(line.chain(more))
                .expect("good")
                .command
            {
                Command::Vm(VmCommand::Schedule(ScheduleCommand::Add(args))) => {
                    serde_json::to_value(entry(&args)).expect("plain data")
                }
                other => panic!("{other:?}"),
            }
        };
        let evening = typed(&[
            "--from",
            "18:00",
            "--until",
            "23:00",
            "--days",
            "mon,fri",
            "--target",
            "50 MB/s",
            "--timezone",
            "UTC",
        ]);
        assert_eq!(
            evening,
            json!({ "from": "18:00", "until": "23:00", "days": ["mon", "fri"], "target": "50 MB/s",
                    "timezone": "UTC" })
        );
        assert_eq!(times_text(&evening), "18:00 to 23:00 on mon, fri");
        let once = typed(&["--at", "2026-12-01T18:00", "--limit", "none", "--force"]);
        let words = json!({ "at": "2026-12-01T18:00", "limit": null, "force": true });
        assert_eq!(once, words);
        assert_eq!(times_text(&once), "from 2026-12-01 18:00 on");
        assert_eq!(changes_text(&once), "forced, limit none");
        let late = json!({ "from": "18:00", "until": "00:00", "weight": 7 });
        assert_eq!(times_text(&late), "18:00 to 00:00 every day");
        assert_eq!(changes_text(&late), "weight 7");
        let limit = json!({
            "from": "18:00",
            "limit": { "total": "5 IOPS", "burst": { "read": "9 IOPS" } },
        });
        assert_eq!(
            changes_text(&limit),
            "limit.burst.read 9 IOPS, limit 5 IOPS"
        );
    }

    #[test]
    fn times_are_shown_without_zero_seconds_and_offsets() {
        let shown = time("2026-11-22T18:00:00+01:00[Europe/Berlin]");
        assert_eq!(shown, "2026-11-22 18:00 (Europe/Berlin)");
        assert_eq!(
            time("2026-11-22T18:00:30.5+00:00[UTC]"),
            "2026-11-22 18:00:30 (UTC)"
        );
        assert_eq!(time("soon"), "soon");
    }
}
