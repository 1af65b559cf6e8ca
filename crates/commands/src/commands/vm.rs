//! `tidegate vm`: who is served, and what was promised.

mod add_remove_resize;
mod learnt_state;
mod schedule;

use anyhow::Result;
use hyper::Method;
use tidegate_api::change::ObjectiveChange;
use tidegate_api::disk::{DiskView, Inactive, hang_notice};
use tidegate_api::objective::ObjectiveView;
use tidegate_api::query::{ChangeQuery, percent_encode};
use tidegate_api::stats::{StatsView, TimeView, VmStatsView};
use tidegate_api::vm::{IntakeView, VmView};
use tidegate_report::{Align, Cell, Style, Table, Tone};
use tidegate_units::human::{bytes, count, duration, percent};

use super::{attainment, precision, transfer, wording};
use crate::args::{ObjectiveArgs, PartArgs, VmCommand};
use crate::client::{Client, read};
use crate::objective_line;
use crate::output::Output;

/// Note on a change without `--persist`.
const NOT_PERSISTED: &str = "a restart of the daemon would lose this change: --persist keeps it";

pub(super) fn run(command: VmCommand, client: &Client, out: Output) -> Result<()> {
    match command {
        VmCommand::List => list(client, out),
        VmCommand::Show { name } => show_one(&name, client, out),
        VmCommand::Set(args) => set(&args, client, out),
        VmCommand::Schedule(command) => schedule::run(&command, client, out),
        VmCommand::Add(args) => add_remove_resize::add(&args, client, out),
        VmCommand::Remove(args) => add_remove_resize::remove(&args, client, out),
        VmCommand::Resize(args) => add_remove_resize::resize(&args, client, out),
        VmCommand::Export { name, file } => {
            learnt_state::export(&name, file.as_deref(), client, out)
        }
        VmCommand::Import(args) => learnt_state::import(&args, client, out),
    }
}

fn list(client: &Client, out: Output) -> Result<()> {
    let answer = client.get("/v1/vms")?;
    if out.is_json() {
        return out.json(&answer);
    }
    let vms: Vec<VmView> = read(answer)?;
    Ok(out.table_in_width(list_table(&vms), &LIST_DROPS)?)
}

/// Columns that [`list`] leaves out on a narrow terminal, the first ones first.
const LIST_DROPS: [&str; 7] = [
    "WAITING",
    "IN FLIGHT",
    "POLICY",
    "CONNECTIONS",
    "NOT ENFORCED",
    "DEVICE",
    "DISK LIMITS",
];

fn list_table(vms: &[VmView]) -> Table {
    let mut columns = vec![
        ("VM", Align::Left),
        ("DEVICE", Align::Left),
        ("POLICY", Align::Left),
        ("CONNECTIONS", Align::Right),
        ("WAITING", Align::Right),
        ("IN FLIGHT", Align::Right),
        ("OBJECTIVE", Align::Left),
        ("KEPT", Align::Left),
        ("NOT ENFORCED", Align::Left),
    ];
    // A column of its own only where there is something to say: most hosts have healthy disks.
    let is_troubled = |vm: &VmView| vm.disks.iter().any(|disk| disk_trouble(disk).is_some());
    let troubled = vms.iter().any(is_troubled);
    if troubled {
        columns.push(("DISKS", Align::Left));
    }
    let limited = vms.iter().any(|vm| !disk_limits(vm).is_empty());
    if limited {
        columns.push(("DISK LIMITS", Align::Left));
    }
    let mut table = Table::new(columns);
    for vm in vms {
        let parts: Vec<&str> = vm
            .not_enforced
            .iter()
            .map(|part| part.part.as_str())
            .collect();
        let disks: Vec<String> = (vm.disks.iter())
            .filter_map(|disk| Some(format!("{} {}", disk.export, disk_trouble(disk)?)))
            .collect();
        let name = Cell::from(vm.name.as_str());
        let mut row = vec![
            name.tone(if disks.is_empty() {
                Tone::Strong
            } else {
                Tone::Bad
            }),
            vm.device.as_str().into(),
            vm.policy.as_str().into(),
            vm.clients.to_string().into(),
            vm.pending.to_string().into(),
            vm.in_flight.to_string().into(),
            promised(vm),
            attainment::cell(&vm.attainment),
            Cell::from(parts.join(", ")).tone(Tone::Warn),
        ];
        if troubled {
            row.push(Cell::from(disks.join(", ")).tone(Tone::Bad));
        }
        if limited {
            row.push(disk_limits(vm).into());
        }
        table.row(row);
    }
    table
}

/// Returns the limits that a VM's disks have beside its own, by export; empty without one.
fn disk_limits(vm: &VmView) -> String {
    let limits = vm.disks.iter().filter_map(|disk| {
        let limits = objective_line::disk_limits(disk.limit.as_ref(), disk.limit_group.as_deref());
        (!limits.is_empty()).then(|| format!("{}: {limits}", disk.export))
    });
    limits.collect::<Vec<_>>().join(", ")
}

/// Returns what is wrong with a disk, in a word; `vm show` has the rest.
fn disk_trouble(disk: &DiskView) -> Option<&'static str> {
    if disk.failed.is_some() {
        return Some("failed");
    }
    if disk.unreachable.is_some() {
        return Some("unreachable");
    }
    if disk.hung_for_ns.is_some() {
        return Some("hangs");
    }
    (disk.inactive == Some(Inactive::LockedElsewhere)).then_some("locked elsewhere")
}

/// Returns a VM's objective on one line, with a warning if it does not fit or may not fit the
/// device.
fn promised(vm: &VmView) -> Cell {
    let words = Cell::from(objective_line::in_words(vm.background, &vm.objective));
    match vm.feasible.as_deref() {
        Some("does not fit") => words.append(Cell::from(" (does not fit)").tone(Tone::Warn)),
        // Shown by `vm show`; most VMs of a device without a profile have it after a start.
        _ => words,
    }
}

fn show_one(name: &str, client: &Client, out: Output) -> Result<()> {
    let mut answer = client.get(&format!("/v1/vms/{}", percent_encode(name)))?;
    let stats: StatsView = read(client.get("/v1/stats")?)?;
    let stats = stats.vms.iter().find(|stats| stats.vm == name);
    if out.is_json() {
        if let Some(stats) = stats {
            answer["precision"] = serde_json::to_value(stats.precision)?;
        }
        return out.json(&answer);
    }
    let mut table = describe(&read(answer)?);
    // Daemons that have just started have no second to judge precision by.
    if let Some(stats) = stats.filter(|stats| stats.precision.seconds > 0) {
        table.property("last 5 minutes", precision::in_line(&stats.precision));
    }
    out.table(&table)?;
    match stats {
        Some(stats) => Ok(out.text(&history(stats, out.style()))?),
        None => Ok(()),
    }
}

fn set(args: &ObjectiveArgs, client: &Client, out: Output) -> Result<()> {
    let query = ChangeQuery {
        force: args.force,
        persist: args.persist,
    };
    let path = format!("/v1/vms/{}/objective{query}", percent_encode(&args.name));
    let answer = client.change(Method::PATCH, &path, &change(&args.parts))?;
    if out.is_json() {
        return out.json(&answer);
    }
    let note = (!args.persist).then_some(NOT_PERSISTED);
    Ok(out.table(&describe_change(&read(answer)?, note))?)
}

/// Returns the table of a VM that was just changed, with a note if a restart of the daemon would
/// lose the change.
pub(super) fn describe_change(vm: &VmView, note: Option<&str>) -> Table {
    let mut table = describe(vm);
    if let Some(note) = note {
        table.property("note", Cell::from(note).tone(Tone::Warn));
    }
    table
}

/// Returns the change of an objective that the options make. `none` removes a whole table; as the
/// value of a single figure it is passed on to the daemon.
pub(super) fn change(args: &PartArgs) -> ObjectiveChange {
    serde_json::from_value(args.change()).expect("the registry uses the API's notation")
}

/// Returns the table of a VM's objective, disks and state.
pub(super) fn describe(vm: &VmView) -> Table {
    let mut table = Table::properties();
    table
        .property("VM", Cell::from(vm.name.as_str()).tone(Tone::Strong))
        .property("device", format!("{}, policy {}", vm.device, vm.policy));
    if vm.background {
        table.property("background", "process of the host; gets what the VMs leave");
    }
    objective_properties(&mut table, &vm.objective);
    if let Some(feasible) = &vm.feasible {
        let (text, tone) = match feasible.as_str() {
            "fits" => ("fits the device", Tone::Good),
            "does not fit" => ("does not fit the device", Tone::Warn),
            other => (other, Tone::Warn),
        };
        table.property("feasibility", Cell::from(text).tone(tone));
    }
    if let Some(schedule) = &vm.schedule {
        schedule::add_properties(&mut table, schedule);
    }
    attainment::add_properties(&mut table, &vm.attainment);
    for (i, part) in vm.not_enforced.iter().enumerate() {
        let name = if i == 0 { "not enforced" } else { "" };
        table.property(name, wording::not_enforced(&vm.policy, part));
    }
    for disk in &vm.disks {
        disk_properties(&mut table, disk);
    }
    table.property("connections", connections(vm));
    let now = format!("{} waiting, {} in flight", vm.pending, vm.in_flight);
    table.property("requests", now);
    intake_properties(&mut table, &vm.intake);
    if let Some(tuning) = &vm.tuning {
        precision::add_properties(&mut table, tuning);
    }
    if let Some(running) = &vm.transfer {
        table.property("transfer", transfer::in_line(running));
        for note in &running.notes {
            table.property("", Cell::from(note.as_str()).tone(Tone::Warn));
        }
    }
    for note in &vm.notes {
        table.property("note", Cell::from(note.as_str()).tone(Tone::Warn));
    }
    table
}

/// Adds the parts of an objective that are set.
fn objective_properties(table: &mut Table, objective: &ObjectiveView) {
    let priority =
        Some(&objective.priority).filter(|class| **class != objective_line::default_priority());
    let set = [
        ("reservation", objective.reservation.clone()),
        ("limit", objective.limit.as_ref().map(objective_line::limit)),
        ("target", objective.target.clone()),
        ("latency", objective.latency.clone()),
        ("priority", priority.cloned()),
    ];
    for (part, value) in set {
        if let Some(value) = value {
            table.property(part, value);
        }
    }
    // The weight matters for every VM, so the default is shown as well.
    table.property("weight", wording::weight(objective));
    if let Some(expects) = &objective.expects {
        let reads = expects.reads.as_ref().map(|reads| format!("{reads} reads"));
        let iops = expects.iops.map(|iops| format!("{iops} IOPS"));
        let burst = expects.burst.map(|burst| format!("{burst} at once"));
        let parts = [
            reads,
            expects.access.clone(),
            expects.size.clone(),
            iops,
            burst,
        ];
        let expected: Vec<String> = parts.into_iter().flatten().collect();
        table.property("expects", expected.join(", "));
    }
}

/// Adds a disk with its problems and fault rules.
fn disk_properties(table: &mut Table, disk: &DiskView) {
    let text = format!("{}, {}", disk.export, bytes(disk.size_bytes));
    match &disk.failed {
        None => table.property("disk", text),
        Some(why) => table.property("disk", Cell::from(format!("{text}: {why}")).tone(Tone::Bad)),
    };
    if let Some(why) = &disk.unreachable {
        table.property("", Cell::from(why.clone()).tone(Tone::Bad));
    }
    if let Some(inactive) = disk.inactive {
        table.property("", Cell::from(inactive.notice()).tone(Tone::Warn));
    }
    if let Some(silence) = disk.hung_for_ns {
        let text = hang_notice(&duration(silence));
        table.property("", Cell::from(text).tone(Tone::Bad));
    }
    if let Some(limit) = &disk.limit {
        table.property("", format!("limit: {}", objective_line::limit(limit)));
    }
    if let Some(group) = &disk.limit_group {
        table.property("", format!("shares the limit of the group {group:?}"));
    }
    if disk.fault_rules > 0 {
        let rules = match disk.fault_rules {
            1 => "1 fault rule".to_owned(),
            n => format!("{n} fault rules"),
        };
        let struck = count(disk.faults_injected);
        let text = format!(
            "fault injection: {rules}, {struck} requests struck; see `tidegate disk fault list \
             {}`",
            disk.export
        );
        table.property("", Cell::from(text).tone(Tone::Warn));
    }
}

/// Adds request slots and payload memory, if the daemon reports them.
fn intake_properties(table: &mut Table, intake: &IntakeView) {
    if intake.slots_part > 0 {
        let held = format!(
            "{} in use, {} guaranteed",
            count(intake.slots),
            count(intake.slots_part)
        );
        table.property("request slots", held);
    }
    if intake.payload_part_bytes > 0 {
        let part = bytes(intake.payload_part_bytes);
        let held = format!(
            "{} in use, {part} guaranteed for writes and {part} for reads",
            bytes(intake.payload_bytes)
        );
        table.property("payload memory", held);
    }
    if intake.waiting_connections > 0 {
        let text = match intake.waiting_connections {
            1 => "1 connection waits for a slot or for memory".to_owned(),
            n => format!("{n} connections wait for a slot or for memory"),
        };
        table.property("", Cell::from(text).tone(Tone::Warn));
    }
}

/// Returns the number of connections, their maximum, and the number refused.
fn connections(vm: &VmView) -> Cell {
    let text = format!("{} (maximum {})", vm.clients, vm.max_connections);
    match vm.connections_refused {
        0 => text.into(),
        n => Cell::from(format!("{text}, {} refused", count(n))).tone(Tone::Warn),
    }
}

/// Returns what was counted since the daemon started, as text.
fn history(stats: &VmStatsView, style: Style) -> String {
    let tables = tables(stats);
    if tables.is_empty() {
        return "\nNo requests yet.\n".to_owned();
    }
    let text = |table: &Table| format!("\n{}", table.render(style));
    tables.iter().map(text).collect()
}

/// Returns tables of what was counted since the daemon started: operations, times, and what the
/// time was spent on. None is empty; there are none before the first request.
pub(super) fn tables(stats: &VmStatsView) -> Vec<Table> {
    let mut operations = Table::new([
        ("OPERATION", Align::Left),
        ("REQUESTS", Align::Right),
        ("BYTES", Align::Right),
        ("FAILED", Align::Right),
        ("SEQUENTIAL", Align::Right),
    ]);
    for op in stats
        .operations
        .iter()
        .filter(|op| op.requests + op.errors > 0)
    {
        let sequential = match op.operation.as_str() {
            "read" => percent(stats.sequential_reads as f64, op.arrived as f64),
            "write" => percent(stats.sequential_writes as f64, op.arrived as f64),
            _ => String::new(),
        };
        let failed = Cell::from(count(op.errors));
        operations.row([
            op.operation.as_str().into(),
            count(op.requests).into(),
            bytes(op.bytes).into(),
            if op.errors > 0 {
                failed.tone(Tone::Bad)
            } else {
                failed
            },
            sequential.into(),
        ]);
    }
    if operations.is_empty() {
        return Vec::new();
    }
    let mut times = Table::new([
        ("TIME", Align::Left),
        ("MEAN", Align::Right),
        ("P50", Align::Right),
        ("P99", Align::Right),
        ("P99.9", Align::Right),
        ("MAX", Align::Right),
    ]);
    for (name, time) in [
        ("wait, reads", &stats.queue_time.read),
        ("wait, writes", &stats.queue_time.write),
        ("device, reads", &stats.service_time.read),
        ("device, writes", &stats.service_time.write),
        ("total", &stats.latency),
    ] {
        times.row(time_row(name, time));
    }
    // Daemons of earlier versions do not report reply times: their count is 0.
    for (name, time) in [
        ("parse to reply, reads", &stats.reply_time.read),
        ("parse to reply, writes", &stats.reply_time.write),
    ] {
        if time.count > 0 {
            times.row(time_row(name, time));
        }
    }
    let tables = [operations, times, spent(stats)];
    // Nothing is spent yet where requests took no measurable time, as on a device in memory.
    let tables = tables.into_iter().filter(|table| !table.is_empty());
    tables.collect()
}

/// Returns a row of a histogram's mean, quantiles and maximum.
fn time_row(name: &str, time: &TimeView) -> [String; 6] {
    let show = |ns| {
        if time.count == 0 {
            "-".to_owned()
        } else {
            duration(ns)
        }
    };
    [
        name.to_owned(),
        show(time.mean_ns),
        show(time.p50_ns),
        show(time.p99_ns),
        show(time.p999_ns),
        show(time.max_ns),
    ]
}

/// Returns the table of where requests spent their time.
fn spent(stats: &VmStatsView) -> Table {
    let account = &stats.account;
    let parts = [
        (
            "throttled by its own limit or credits",
            account.regulated_ns,
        ),
        ("queued behind other requests", account.queued_ns),
        ("merged with another request", account.merged_wait_ns),
        ("anticipation (device kept idle)", account.deliberate_ns),
        ("at the device", account.device_ns),
    ];
    let all: u64 = parts.iter().map(|(_, ns)| ns).sum();
    let mut table = Table::new([
        ("TIME SPENT", Align::Left),
        ("TIME", Align::Right),
        ("", Align::Right),
    ]);
    for (name, ns) in parts.into_iter().filter(|(_, ns)| *ns > 0) {
        table.row([
            name.to_owned(),
            duration(ns),
            percent(ns as f64, all as f64),
        ]);
    }
    // An estimate of the VMs behind which requests were, in the queue and at the device.
    for behind in stats.waited_behind.iter().take(3) {
        table.row([
            format!("of these about, behind {}", behind.vm),
            duration(behind.ns),
            percent(behind.ns as f64, all as f64),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Args, Command};
    use clap::Parser;
    use serde_json::json;
    use tidegate_api::objective::{LimitView, RatesView};

    fn typed(args: &[&str]) -> serde_json::Value {
        let line = ["tidegate", "vm", "set", "oltp"].iter().chain(args);
        match Args::try_parse_from(line).expect("good").command {
            Command::Vm(VmCommand::Set(args)) => {
                serde_json::to_value(change(&args.parts)).expect("plain data")
            }
            other => panic!("{other:?}"),
        }
    }

    fn vm(name: &str, failed: Option<&str>) -> VmView {
        let view = json!({
            "name": name, "device": "nvme0", "policy": "slo", "background": false,
            "objective": { "reservation": "120 IOPS @ 8 KiB", "limit": null, "target": null,
                           "weight": 100, "latency": "30 ms", "priority": "best-effort 4" },
            "not_enforced": [], "clients": 1, "pending": 3, "in_flight": 2,
            "disks": [{ "export": name, "size_bytes": 4096, "failed": failed }],
        });
        serde_json::from_value(view).expect("complete")
    }

    #[test]
    fn the_list_has_the_limits_of_disks_beside_those_of_their_vms() {
        let mut limited = vm("web", None);
        limited.disks[0].limit = Some(LimitView {
            rates: RatesView {
                total: Some("500 IOPS".to_owned()),
                ..RatesView::default()
            },
            burst: None,
        });
        limited.disks.push(DiskView {
            export: "web-vdb".to_owned(),
            limit: None,
            limit_group: Some("web-data".to_owned()),
            ..limited.disks[0].clone()
        });
        let text = list_table(&[limited, vm("ci", None)]).render(Style::Plain);
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].ends_with("DISK LIMITS"), "{text}");
        let limits = "web: at most 500 IOPS, web-vdb: in limit group web-data";
        assert!(lines[1].ends_with(limits), "{text}");
        assert!(!lines[2].contains("limit"), "{text}");
        let without = list_table(&[vm("ci", None)]).render(Style::Plain);
        assert!(!without.contains("DISK LIMITS"), "{without}");
    }

    #[test]
    fn the_list_marks_failed_disks_and_fits_80_columns() {
        let healthy = list_table(&[vm("oltp", None), vm("ci", None)]).render(Style::Plain);
        assert!(!healthy.contains("DISKS"), "{healthy}");
        let mut list = list_table(&[vm("oltp", None), vm("ci", Some("the file is gone"))]);
        list.fit_width(80, &LIST_DROPS, Style::Plain);
        let text = list.render(Style::Plain);
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].ends_with("DISKS"), "{text}");
        assert!(
            lines[1].starts_with("oltp") && !lines[1].contains("failed"),
            "{text}"
        );
        assert!(lines[2].ends_with("ci failed"), "{text}");
        assert!(
            lines.iter().all(|line| line.chars().count() <= 80),
            "{text}"
        );
        assert!(text.contains("120 IOPS @ 8 KiB"), "{text}");
    }

    #[test]
    fn a_change_that_a_restart_loses_says_so() {
        let table = |note| describe_change(&vm("oltp", None), note).render(Style::Plain);
        let marked = table(Some(NOT_PERSISTED));
        assert!(
            marked.contains("a restart of the daemon would lose"),
            "{marked}"
        );
        assert!(!table(None).contains("restart"), "{}", table(None));
    }

    #[test]
    fn what_is_typed_becomes_a_merge_patch() {
        assert_eq!(
            typed(&["--limit", "500 IOPS"]),
            json!({ "limit": { "total": "500 IOPS" } })
        );
        assert_eq!(typed(&["--limit", "none"]), json!({ "limit": null }));
        assert_eq!(
            typed(&["--limit", "none", "--limit-read", "5 MB/s"]),
            json!({ "limit": { "total": "none", "read": "5 MB/s" } })
        );
        assert_eq!(
            typed(&["--burst", "none"]),
            json!({ "limit": { "burst": null } })
        );
        assert_eq!(
            typed(&[
                "--burst",
                "2000 IOPS",
                "--burst-length",
                "10 s",
                "--weight",
                "3"
            ]),
            json!({
                "limit": { "burst": { "total": "2000 IOPS", "length": "10 s" } },
                "weight": 3
            })
        );
        assert_eq!(typed(&["--group", "none"]), json!({ "group": null }));
        assert_eq!(
            typed(&["--group", "servers", "--group-weight", "200"]),
            json!({ "group": { "name": "servers", "weight": 200 } })
        );
    }
}
