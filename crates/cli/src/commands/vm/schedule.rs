//! `tidegate vm schedule`: what of an objective changes by the clock.

use anyhow::Result;
use hyper::Method;
use serde_json::Value;
use tidegate_api::change::{ObjectiveChange, ScheduleEntry};
use tidegate_api::query::ChangeQuery;
use tidegate_api::schedule::ScheduleView;
use tidegate_api::vm::VmView;
use tidegate_report::{Align, Cell, Table, Tone};

use super::{change, describe};
use crate::args::{EntryArgs, ScheduleCommand};
use crate::client::{Client, escape, read};
use crate::output::Output;
use crate::promise;

pub(super) fn run(command: &ScheduleCommand, client: &Client, out: Output) -> Result<()> {
    let path = |name: &str| format!("/v1/vms/{}/schedule", escape(name));
    let answer = match command {
        ScheduleCommand::List { name } => return list(name, client, out),
        ScheduleCommand::Add(args) => {
            let path = path(&args.name) + &query(args.force, args.persist);
            client.change(Method::POST, &path, &entry(args))
        }
        ScheduleCommand::Clear {
            name,
            number,
            force,
            persist,
        } => {
            let one = number.map_or_else(String::new, |number| format!("/{number}"));
            let path = path(name) + &one + &query(*force, *persist);
            client.change(Method::DELETE, &path, &())
        }
    }?;
    if out.is_json() {
        return out.json(&answer);
    }
    Ok(out.table(&describe(&read(answer)?))?)
}

fn query(force: bool, persist: bool) -> String {
    ChangeQuery { force, persist }.to_string()
}

fn list(name: &str, client: &Client, out: Output) -> Result<()> {
    let answer = client.get(&format!("/v1/vms/{}", escape(name)))?;
    if out.is_json() {
        return out.json(&answer["schedule"]);
    }
    let vm: VmView = read(answer)?;
    let Some(schedule) = &vm.schedule else {
        return Ok(out.text(&format!("{name} has no schedule\n"))?);
    };
    out.table(&table(schedule))?;
    let mut facts = Table::facts();
    told(&mut facts, schedule);
    Ok(out.text(&format!("\n{}", facts.render(out.style())))?)
}

/// Returns the entry that was typed.
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
    }
}

fn table(schedule: &ScheduleView) -> Table {
    let mut table = Table::new([
        ("ENTRY", Align::Right),
        ("WHEN", Align::Left),
        ("WHAT", Align::Left),
        ("", Align::Left),
    ]);
    for (i, entry) in schedule.entries.iter().enumerate() {
        table.row([
            (i + 1).to_string().into(),
            when(entry).into(),
            what(entry).into(),
            holds(schedule, i + 1),
        ]);
    }
    table
}

/// Whether an entry is in force.
fn holds(schedule: &ScheduleView, number: usize) -> Cell {
    match (&schedule.held, schedule.entry == Some(number)) {
        (_, false) => Cell::from(String::new()),
        (None, true) => Cell::from("in force").tone(Tone::Strong),
        (Some(_), true) => Cell::from("held").tone(Tone::Bad),
    }
}

/// A schedule among the facts of a VM.
pub(super) fn facts(table: &mut Table, schedule: &ScheduleView) {
    for (i, entry) in schedule.entries.iter().enumerate() {
        let name = if i == 0 { "schedule" } else { "" };
        let holds = match (&schedule.held, schedule.entry == Some(i + 1)) {
            (_, false) => "",
            (None, true) => " (in force)",
            (Some(_), true) => " (held)",
        };
        let text = format!("{} {}: {}{holds}", i + 1, when(entry), what(entry));
        table.fact(name, text);
    }
    told(table, schedule);
}

/// What else there is to say of it.
fn told(table: &mut Table, schedule: &ScheduleView) {
    table.fact("otherwise", promise::in_words(false, &schedule.base));
    if let Some(held) = &schedule.held {
        let text = format!("the entry that is due is not in force: {held}");
        table.fact("held", Cell::from(text).tone(Tone::Bad));
    }
    let next = match &schedule.next {
        Some(next) => format!(
            "at {}: {}",
            time(&next.at),
            promise::in_words(false, &next.objective)
        ),
        None => "never".to_owned(),
    };
    table.fact("next change", next);
    table.fact("its clock", time(&schedule.now));
}

/// `2026-11-22T18:00:00+01:00[Europe/Berlin]` as `2026-11-22 18:00 (Europe/Berlin)`.
fn time(text: &str) -> String {
    let zone = text
        .split_once('[')
        .and_then(|(_, zone)| zone.strip_suffix(']'));
    let clock = text.get(..19).map(|clock| clock.replacen('T', " ", 1));
    match (clock, zone) {
        (Some(clock), Some(zone)) => {
            let clock = clock.strip_suffix(":00").unwrap_or(&clock);
            format!("{clock} ({zone})")
        }
        _ => text.to_owned(),
    }
}

/// `18:00 to 23:00 on mon, tue`.
fn when(entry: &Value) -> String {
    let said = |key: &str| entry[key].as_str().map(|text| text.replacen('T', " ", 1));
    if let Some(at) = said("at") {
        return match said("until") {
            Some(until) => format!("{at} to {until}"),
            None => format!("{at} on"),
        };
    }
    let midnight = || "00:00".to_owned();
    let from = said("from").unwrap_or_else(midnight);
    let until = said("until").unwrap_or_else(midnight);
    let days = entry["days"].as_array().map(|days| {
        let names: Vec<&str> = days.iter().filter_map(Value::as_str).collect();
        format!("on {}", names.join(", "))
    });
    let days = days.unwrap_or_else(|| "every day".to_owned());
    format!("{from} to {until} {days}")
}

/// `target 50 MB/s, weight 7`.
fn what(entry: &Value) -> String {
    let is_when = |key: &str| ["at", "from", "until", "days"].contains(&key);
    let parts = entry.as_object().into_iter().flatten();
    let parts = parts.filter(|(key, _)| !is_when(key));
    let parts = parts.flat_map(|(key, value)| part(key, value));
    parts.collect::<Vec<_>>().join(", ")
}

fn part(key: &str, value: &Value) -> Vec<String> {
    match value {
        Value::Object(parts) => {
            let name = |inner: &str| match inner {
                "total" | "name" => key.to_owned(),
                inner => format!("{key}.{inner}"),
            };
            let parts = parts.iter();
            parts
                .flat_map(|(inner, value)| part(&name(inner), value))
                .collect()
        }
        Value::String(text) => vec![format!("{key} {text}")],
        Value::Null => vec![format!("{key} none")],
        Value::Bool(true) if key == "force" => vec!["by force".to_owned()],
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
    fn what_is_typed_becomes_an_entry_and_is_shown_as_it_was() {
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
        assert_eq!(when(&evening), "18:00 to 23:00 on mon, fri");
        let once = typed(&["--at", "2026-12-01T18:00", "--limit", "none", "--force"]);
        let words = json!({ "at": "2026-12-01T18:00", "limit": null, "force": true });
        assert_eq!(once, words);
        assert_eq!(when(&once), "2026-12-01 18:00 on");
        assert_eq!(what(&once), "by force, limit none");
        let late = json!({ "from": "18:00", "until": "00:00", "weight": 7 });
        assert_eq!(when(&late), "18:00 to 00:00 every day");
        assert_eq!(what(&late), "weight 7");
        let limit = json!({
            "from": "18:00",
            "limit": { "total": "5 IOPS", "burst": { "read": "9 IOPS" } },
        });
        assert_eq!(what(&limit), "limit.burst.read 9 IOPS, limit 5 IOPS");
    }

    #[test]
    fn times_are_shown_without_what_goes_without_saying() {
        let shown = time("2026-11-22T18:00:00+01:00[Europe/Berlin]");
        assert_eq!(shown, "2026-11-22 18:00 (Europe/Berlin)");
        assert_eq!(
            time("2026-11-22T18:00:30.5+00:00[UTC]"),
            "2026-11-22 18:00:30 (UTC)"
        );
        assert_eq!(time("soon"), "soon");
    }
}
