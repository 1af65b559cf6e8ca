//! `tidegate disk`: fault rules of a disk, and forgetting a disk whose file is lost.

use std::path::Path;

use anyhow::Result;
use hyper::Method;
use serde_json::Value;
use tidegate_api::fault::{DiskFaultsView, FaultRequest, FaultView};
use tidegate_api::query::{ChangeQuery, percent_encode};
use tidegate_api::vm::{Removed, VmView};
use tidegate_report::{Align, Cell, Table, Tone};
use tidegate_server::config;
use tidegate_server::store::{Store, StoreError};
use tidegate_units::human::count;

use crate::args::{DiskCommand, DiskLimitArgs, FaultArgs, FaultCommand};
use crate::client::{Client, read};
use crate::output::Output;
use crate::problem::Problem;

/// Note on a change of limits without `--persist`.
const NOT_PERSISTED: &str = "a restart of the daemon would lose this change: --persist keeps it; \
                             for a VM of the configuration, set the limit there";

pub(super) fn run(command: DiskCommand, client: &Client, out: Output) -> Result<()> {
    let command = match command {
        DiskCommand::Fault(command) => command,
        DiskCommand::Set(args) => return set(&args, client, out),
        DiskCommand::Forget { name, config: None } => {
            let path = format!("/v1/disks/{}/known", percent_encode(&name));
            let answer = client.change_slowly(Method::DELETE, &path, &())?;
            return forgotten(&name, &answer, out);
        }
        DiskCommand::Forget {
            name,
            config: Some(file),
        } => {
            forget_in_store(&name, &file)?;
            let removed = Removed {
                removed: name.clone(),
                not_flushed: Vec::new(),
            };
            return forgotten(&name, &serde_json::to_value(removed)?, out);
        }
    };
    let path = |export: &str| format!("/v1/disks/{}/faults", percent_encode(export));
    let answer = match &command {
        FaultCommand::List { export } => client.get(&path(export)),
        FaultCommand::Add(args) => client.change(Method::POST, &path(&args.export), &rule(args)),
        FaultCommand::Clear { export, number } => {
            let one = number.map_or_else(String::new, |number| format!("/{number}"));
            client.change(Method::DELETE, &(path(export) + &one), &())
        }
    }?;
    if out.is_json() {
        return out.json(&answer);
    }
    let disk: DiskFaultsView = read(answer)?;
    if disk.rules.is_empty() {
        let before = match disk.injected {
            0 => String::new(),
            n => format!("; earlier rules struck {} requests", count(n)),
        };
        return Ok(out.text(&format!("{} has no fault rules{before}\n", disk.export))?);
    }
    Ok(out.table(&table(&disk))?)
}

/// Changes the limits of a disk, and shows its VM.
fn set(args: &DiskLimitArgs, client: &Client, out: Output) -> Result<()> {
    let vms: Vec<VmView> = read(client.get("/v1/vms")?)?;
    let has = |vm: &&VmView| vm.disks.iter().any(|disk| disk.export == args.export);
    let Some(vm) = vms.iter().find(has) else {
        let what = format!("no VM has a disk that is exported as {:?}", args.export);
        let help = "`tidegate vm show` has the exports of a VM";
        return Err(Problem::new(what).help(help).into());
    };
    let query = ChangeQuery {
        force: false,
        persist: args.persist,
    };
    let (vm, export) = (percent_encode(&vm.name), percent_encode(&args.export));
    let path = format!("/v1/vms/{vm}/disks/{export}/limits{query}");
    let answer = client.change(Method::PATCH, &path, &limits(args))?;
    if out.is_json() {
        return out.json(&answer);
    }
    let note = (!args.persist).then_some(NOT_PERSISTED);
    Ok(out.table(&super::vm::describe_change(&read(answer)?, note))?)
}

/// Returns the change of a disk's limits that the options make.
fn limits(args: &DiskLimitArgs) -> Value {
    let mut change = args.limit.change();
    if let Some(group) = &args.limit_group {
        change["limit_group"] = group.as_str().into();
    }
    change
}

/// Prints the confirmation that a disk was forgotten; `answer` is its JSON form.
fn forgotten(name: &str, answer: &Value, out: Output) -> Result<()> {
    if out.is_json() {
        return out.json(answer);
    }
    Ok(out.text(&format!(
        "{name} is forgotten: with create = \"sparse\" a new, empty disk will be created in place \
         of its file\n"
    ))?)
}

/// Forgets a disk in the store that a configuration file names. Fails while a daemon has the store
/// open, and where the store knows no such disk.
fn forget_in_store(name: &str, file: &Path) -> Result<()> {
    let loaded = config::load(file)?;
    let Some(store) = loaded.config.store else {
        let what = format!(
            "{}: no [store] section, so no disk is remembered",
            file.display()
        );
        let help = "without a store a missing file is created again; nothing needs to be forgotten";
        return Err(Problem::new(what).help(help).into());
    };
    // `Store::open` would create it.
    if !store.path.try_exists()? {
        let what = format!(
            "{}: the store does not exist, so no disk is remembered",
            store.path.display()
        );
        return Err(Problem::new(what).into());
    }
    let opened = Store::open(&store.path).map_err(|error| {
        let in_use = matches!(error, StoreError::InUse { .. });
        let problem = Problem::new(error.to_string());
        if in_use {
            problem.help("a daemon is running: leave out --config, and the daemon forgets the disk")
        } else {
            problem
        }
    })?;
    if opened.forget_disk(name)? {
        return Ok(());
    }
    let known = opened.disks()?;
    let known = known
        .iter()
        .map(|disk| format!("{} ({})", disk.export, disk.path));
    let known = known.collect::<Vec<_>>().join(", ");
    let help = if known.is_empty() {
        "the store remembers no disk".to_owned()
    } else {
        format!("the store remembers: {known}")
    };
    let what = format!(
        "{}: the store has no record of a disk {name:?}",
        store.path.display()
    );
    Err(Problem::new(what).help(help).into())
}

/// Returns the rule that the options describe.
fn rule(args: &FaultArgs) -> FaultRequest {
    FaultRequest {
        on: args.on.clone(),
        from: args.from.clone(),
        length: args.length.clone(),
        every: args.every,
        probability: args.probability.clone(),
        seed: args.seed,
        after: args.after.clone(),
        lasts: args.lasts.clone(),
        count: args.count,
        stall: args.stall.clone(),
        error: args.error.clone(),
        torn: args.torn.clone(),
    }
}

/// Returns the table of a disk's rules with their counters.
fn table(disk: &DiskFaultsView) -> Table {
    let mut table = Table::new([
        ("RULE", Align::Right),
        ("STATE", Align::Left),
        ("REQUESTS", Align::Left),
        ("EFFECT", Align::Left),
        ("MATCHED", Align::Right),
        ("STRUCK", Align::Right),
    ]);
    for rule in &disk.rules {
        let state = Cell::from(rule.state.as_str());
        let armed = rule.state == "armed";
        table.row([
            rule.number.to_string().into(),
            if armed { state.tone(Tone::Warn) } else { state },
            scope_text(rule).into(),
            effect_text(rule).into(),
            count(rule.matched).into(),
            count(rule.injected).into(),
        ]);
    }
    table
}

/// Returns the requests that a rule applies to: `read from 1 GiB, 64 KiB long; 1 in 100`.
fn scope_text(rule: &FaultView) -> String {
    let place = match (&rule.from, &rule.length) {
        (None, None) => String::new(),
        (from, length) => {
            let from = from.as_deref().unwrap_or("0 B");
            let length = length.as_deref().map_or_else(
                || ", to the end".to_owned(),
                |length| format!(", {length} long"),
            );
            format!(" from {from}{length}")
        }
    };
    let mut parts = vec![format!("{}{place}", rule.on.join(", "))];
    if rule.every > 1 {
        parts.push(format!("1 in {}", count(rule.every)));
    }
    // Only rules that draw at random have a seed; others strike with certainty.
    if rule.seed.is_some() {
        parts.push(rule.probability.clone());
    }
    if let Some(after) = &rule.after {
        parts.push(format!("after {after}"));
    }
    if let Some(lasts) = &rule.lasts {
        parts.push(format!("for {lasts}"));
    }
    if let Some(most) = rule.count {
        parts.push(format!("at most {}", count(most)));
    }
    parts.join("; ")
}

/// Returns the effect of a rule: `2 s late, then EIO`.
fn effect_text(rule: &FaultView) -> String {
    let late = rule.stall.as_ref().map(|stall| format!("{stall} late"));
    let fails = match (&rule.torn, rule.error.as_deref()) {
        (Some(torn), Some("none")) => Some(format!("torn after {torn}, reported as written")),
        // A torn write without another answer fails with EIO.
        (Some(torn), error) => Some(format!("torn after {torn}, {}", error.unwrap_or("EIO"))),
        (None, error) => error.map(str::to_owned),
    };
    let parts: Vec<String> = late.into_iter().chain(fails).collect();
    parts.join(", then ")
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use serde_json::json;
    use tidegate_config::device::limit_groups;
    use tidegate_config::objective::limit;
    use tidegate_core::objective::{Burst, Limit, Rate};
    use tidegate_core::time::Nanos;
    use tidegate_units::parse_rate;

    use super::*;
    use crate::args::{Args, Command};

    fn typed(args: &[&str]) -> Result<Value, clap::Error> {
        let line = ["tidegate", "disk", "fault", "add", "oltp"];
        let read = Args::try_parse_from(line.iter().chain(args))?;
        match read.command {
            Command::Disk(DiskCommand::Fault(FaultCommand::Add(args))) => {
                Ok(serde_json::to_value(rule(&args)).expect("plain data"))
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_is_typed_becomes_a_rule() {
        let args = [
            "--on",
            "read,write",
            "--from",
            "1 GiB",
            "--every",
            "100",
            "--probability",
            "1 %",
            "--seed",
            "7",
            "--after",
            "10 s",
            "--for",
            "5 s",
            "--count",
            "3",
            "--stall",
            "2 s",
            "--error",
            "EIO",
        ];
        let rule = json!({
            "on": ["read", "write"], "from": "1 GiB", "every": 100, "probability": "1 %",
            "seed": 7, "after": "10 s", "for": "5 s", "count": 3, "stall": "2 s", "error": "EIO",
        });
        assert_eq!(typed(&args).expect("good"), rule);
        let torn = typed(&["--torn", "512 B"]).expect("good");
        assert_eq!(torn, json!({ "torn": "512 B" }));
    }

    /// The words of a line as a shell would pass them on.
    fn words(line: &str) -> Vec<String> {
        let mut words = Vec::new();
        for (i, part) in line.split('"').enumerate() {
            match i % 2 {
                0 => words.extend(part.split_whitespace().map(str::to_owned)),
                _ => words.push(part.to_owned()),
            }
        }
        words
    }

    #[test]
    fn the_guide_and_the_help_show_rules_that_are_taken() {
        let guide = include_str!("../../../../docs/fault-drills.md").to_owned();
        let help = |words: &str| {
            let shown = Args::try_parse_from(words.split(' ')).expect_err("help ends it");
            shown.to_string()
        };
        let texts = [
            guide,
            help("tidegate disk fault --help"),
            help("tidegate disk fault add --help"),
        ];
        for text in texts {
            let mut shown = 0;
            let lines = text.lines().map(str::trim);
            for line in lines.filter(|line| line.starts_with("tidegate disk fault ")) {
                let line = line.split(" #").next().unwrap_or(line);
                let read = Args::try_parse_from(words(line)).unwrap_or_else(|e| panic!("{e}"));
                if let Command::Disk(DiskCommand::Fault(FaultCommand::Add(args))) = read.command {
                    let rule = serde_json::to_value(rule(&args)).expect("plain data");
                    let read = tidegate_server::config::fault::from_json(&rule);
                    assert!(read.is_ok(), "{line}: {read:?}");
                    shown += 1;
                }
            }
            assert!(shown > 0, "none is shown in {text}");
        }
    }

    #[test]
    fn limits_that_are_typed_become_a_change() {
        let set = |args: &[&str]| {
            let line = ["tidegate", "disk", "set", "oltp"];
            let read = Args::try_parse_from(line.iter().chain(args))?;
            match read.command {
                Command::Disk(DiskCommand::Set(args)) => Ok(limits(&args)),
                other => panic!("{other:?}"),
            }
        };
        for (args, change) in [
            (
                &["--limit-read", "5 MB/s", "--limit-group", "logs"][..],
                json!({ "limit": { "read": "5 MB/s" }, "limit_group": "logs" }),
            ),
            (&["--limit", "none"], json!({ "limit": null })),
            (&["--limit-group", "none"], json!({ "limit_group": "none" })),
        ] {
            let found: Result<Value, clap::Error> = set(args);
            assert_eq!(found.expect("good"), change);
        }
        let message = set(&["--persist"])
            .expect_err("nothing to change")
            .to_string();
        assert!(message.contains("--limit"), "{message}");
        assert!(set(&["--weight", "3"]).is_err(), "disks have no weight");
    }

    #[test]
    fn commands_of_advice_on_limits_are_read() {
        let burst = Burst {
            total: Rate::iops(900),
            read: Rate::NONE,
            write: Rate::bytes(9_000_001),
            length: Nanos::from_millis(1500),
        };
        let limit = Limit {
            total: parse_rate("500 IOPS @ 16 KiB, 30 MB/s").expect("a rate"),
            read: Rate::iops(20),
            write: Rate::bytes(5_000_000),
            burst: Some(burst),
        };
        for limit in [limit, Limit::NONE] {
            let options = limit::options(&limit);
            let words = words(&format!("tidegate disk set log {options}"));
            let Ok(Command::Disk(DiskCommand::Set(args))) =
                Args::try_parse_from(&words).map(|args| args.command)
            else {
                panic!("{words:?}");
            };
            let was = Limit::of_all(Rate::iops(1_000_000));
            let (now, _) = limit_groups::merge(&limits(&args), (&was, None), &[])
                .unwrap_or_else(|e| panic!("{e}"));
            assert_eq!(now, limit, "{words:?}");
        }
    }

    #[test]
    fn a_rule_that_does_nothing_is_refused() {
        let message = typed(&["--on", "read"]).expect_err("it says nothing of what happens");
        assert!(message.to_string().contains("--stall"), "{message}");
        assert!(typed(&["--error", "EIO", "--seed", "1"]).is_err());
    }

    #[test]
    fn a_rule_is_put_into_words() {
        let view = |more: Value| {
            let mut rule = json!({
                "number": 1, "state": "armed", "met": 0, "injected": 0, "on": ["any"],
                "every": 1, "probability": "100 %",
            });
            let table = rule.as_object_mut().expect("a table");
            table.extend(more.as_object().expect("a table").clone());
            serde_json::from_value::<FaultView>(rule).expect("a view")
        };
        let rule = view(json!({ "stall": "2 s", "error": "EIO" }));
        assert_eq!(
            (scope_text(&rule), effect_text(&rule)),
            ("any".into(), "2 s late, then EIO".into())
        );
        let rule = view(json!({
            "on": ["write"], "from": "1 GiB", "length": "64 KiB", "every": 100, "seed": 0,
            "probability": "1 %", "after": "10 s", "count": 3, "torn": "0 B", "error": "none",
        }));
        let words = "write from 1 GiB, 64 KiB long; 1 in 100; 1 %; after 10 s; at most 3";
        assert_eq!(scope_text(&rule), words);
        assert_eq!(effect_text(&rule), "torn after 0 B, reported as written");
    }
}
