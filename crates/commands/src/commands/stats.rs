//! `tidegate stats`: counters since the daemon started, rates of each interval, or precision.

use std::io::IsTerminal;
use std::time::Duration;

use anyhow::Result;
use serde::Serialize;
use tidegate_api::query::StatsQuery;
use tidegate_api::stats::StatsView;
use tidegate_api::tuning::PrecisionView;
use tidegate_api::vm::VmView;
use tidegate_report::{Align, Cell, Table, Tone};
use tidegate_units::human::{bytes, count, duration};

use super::rates::VmRates;
use super::{attainment, precision};
use crate::args::StatsArgs;
use crate::client::{Client, read};
use crate::objective_line;
use crate::output::Output;
use crate::problem::Problem;
use crate::rate_table;

pub(super) fn run(args: &StatsArgs, client: &Client, out: Output) -> Result<()> {
    match (args.follow, args.precision) {
        // clap refuses --follow with --precision.
        (true, _) => follow(args, client, out),
        (false, true) => precision(args, client, out),
        (false, false) => totals(args, client, out),
    }
}

/// Returns the counters of all VMs, or of the one that was asked for.
fn fetch(args: &StatsArgs, client: &Client, query: &StatsQuery) -> Result<StatsView> {
    let mut stats: StatsView = read(client.get(&format!("/v1/stats{query}"))?)?;
    if let Some(wanted) = &args.vm {
        let known: Vec<String> = stats.vms.iter().map(|vm| vm.vm.clone()).collect();
        stats.vms.retain(|vm| vm.vm == *wanted);
        if stats.vms.is_empty() {
            let help = format!("there are: {}", known.join(", "));
            return Err(Problem::new(format!("no such VM: {wanted:?}"))
                .help(help)
                .into());
        }
    }
    Ok(stats)
}

/// Prints counters since the daemon started.
fn totals(args: &StatsArgs, client: &Client, out: Output) -> Result<()> {
    let stats = fetch(args, client, &StatsQuery::default())?;
    if out.is_json() {
        return out.json(&stats);
    }
    let mut table = Table::new([
        ("VM", Align::Left),
        ("REQUESTS", Align::Right),
        ("READ", Align::Right),
        ("WRITTEN", Align::Right),
        ("FAILED", Align::Right),
        ("MERGED", Align::Right),
        ("P50", Align::Right),
        ("P99", Align::Right),
        ("WAIT P99", Align::Right),
        ("DEVICE P99", Align::Right),
        ("MOSTLY BEHIND", Align::Left),
        ("KEPT", Align::Left),
    ]);
    for vm in &stats.vms {
        let operation = |name: &str| vm.operations.iter().find(|op| op.operation == name);
        let failed: u64 = vm.operations.iter().map(|op| op.errors).sum();
        let failed_cell = Cell::from(count(failed));
        let time = |ns| {
            if vm.latency.count == 0 {
                "-".to_owned()
            } else {
                duration(ns)
            }
        };
        let queue = vm.queue_time.read.p99_ns.max(vm.queue_time.write.p99_ns);
        let service = vm
            .service_time
            .read
            .p99_ns
            .max(vm.service_time.write.p99_ns);
        // A VM may wait mostly behind its own requests, which say nothing about its neighbours.
        let behind = vm.waited_behind.iter().find(|behind| behind.vm != vm.vm);
        table.row([
            Cell::from(vm.vm.as_str()).tone(Tone::Strong),
            count(vm.requests()).into(),
            bytes(operation("read").map_or(0, |op| op.bytes)).into(),
            bytes(operation("write").map_or(0, |op| op.bytes)).into(),
            if failed > 0 {
                failed_cell.tone(Tone::Bad)
            } else {
                failed_cell
            },
            count(vm.merged).into(),
            time(vm.latency.p50_ns).into(),
            time(vm.latency.p99_ns).into(),
            time(queue).into(),
            time(service).into(),
            behind
                .map_or(String::new(), |b| format!("{}, {}", b.vm, duration(b.ns)))
                .into(),
            attainment::cell(&vm.attainment),
        ]);
    }
    Ok(out.table_in_width(table, &TOTALS_DROPS)?)
}

/// Columns that [`totals`] leaves out on a narrow terminal, the first ones first.
const TOTALS_DROPS: [&str; 6] = [
    "MERGED",
    "FAILED",
    "DEVICE P99",
    "WAIT P99",
    "MOSTLY BEHIND",
    "REQUESTS",
];

/// Prints the precision of each VM's bandwidth in the last five minutes.
fn precision(args: &StatsArgs, client: &Client, out: Output) -> Result<()> {
    let interval = args.interval;
    let query = StatsQuery {
        // Nanoseconds are exact for every duration that the option takes.
        interval: interval.map(|interval| format!("{}ns", interval.as_nanos())),
        ..StatsQuery::default()
    };
    let stats = fetch(args, client, &query)?;
    let vms: Vec<_> = (stats.vms.iter())
        .map(|vm| (vm.vm.as_str(), &vm.precision))
        .collect();
    if out.is_json() {
        let vms = vms.iter().map(|&(vm, &precision)| VmPrecision {
            vm: vm.to_owned(),
            precision,
        });
        let vms = vms.collect();
        return out.json(&Precisions { vms });
    }
    Ok(out.table(&precision::table(&vms))?)
}

#[derive(Serialize)]
struct Precisions {
    vms: Vec<VmPrecision>,
}

#[derive(Serialize)]
struct VmPrecision {
    vm: String,
    #[serde(flatten)]
    precision: PrecisionView,
}

#[derive(Serialize)]
struct Intervals {
    vms: Vec<VmRates>,
}

/// Prints rates of each interval until interrupted or `--count` is reached.
fn follow(args: &StatsArgs, client: &Client, out: Output) -> Result<()> {
    let with_buckets = StatsQuery {
        buckets: true,
        ..StatsQuery::default()
    };
    // The refresh period; with --precision the same option is the statistical interval.
    let every = args.interval.unwrap_or(Duration::from_secs(1));
    let mut before = fetch(args, client, &with_buckets)?;
    // Pipes and files get one table after the other; only a terminal is redrawn in place.
    let in_place = !out.is_json() && std::io::stdout().is_terminal();
    let mut drawn = 0;
    let mut left = args.count.unwrap_or(u64::MAX);
    while left > 0 {
        std::thread::sleep(every);
        let now = fetch(args, client, &with_buckets)?;
        // Fetched each time, because `vm set` or a schedule may have changed objectives.
        let views: Vec<VmView> = read(client.get("/v1/vms")?)?;
        let vms = VmRates::between_answers(&before, &now, &views);
        if out.is_json() {
            out.json_line(&Intervals { vms })?;
        } else {
            let text = table(&vms).render(out.style());
            let lines = text.lines().count();
            match (in_place, drawn) {
                (true, _) => out.redraw(&text, drawn)?,
                (false, 1..) => out.text(&format!("\n{text}"))?,
                (false, 0) => out.text(&text)?,
            }
            drawn = lines;
        }
        before = now;
        left -= 1;
    }
    Ok(())
}

fn table(vms: &[VmRates]) -> Table {
    let more = [
        ("WAIT P99", Align::Right),
        ("DEVICE P99", Align::Right),
        ("WAITING", Align::Right),
        ("IN FLIGHT", Align::Right),
        ("FAILED", Align::Right),
        ("OBJECTIVE", Align::Left),
    ];
    let mut table = Table::new(rate_table::BY_POLICY.into_iter().chain(more));
    let time = |ms: Option<f64>| ms.map_or("-".to_owned(), |ms| duration((ms * 1e6) as u64));
    for vm in vms {
        let failed = Cell::from(count(vm.failed));
        table.row([
            Cell::from(vm.vm.as_str()).tone(Tone::Strong),
            vm.policy.as_str().into(),
            format!("{:.0}", vm.iops).into(),
            format!("{:.1}", vm.mb_s).into(),
            time(vm.p50_ms).into(),
            time(vm.p99_ms).into(),
            time(vm.queue_p99_ms).into(),
            time(vm.device_p99_ms).into(),
            vm.pending.to_string().into(),
            vm.in_flight.to_string().into(),
            if vm.failed > 0 {
                failed.tone(Tone::Bad)
            } else {
                failed
            },
            objective_cell(vm),
        ]);
    }
    table
}

/// Returns the objective on one line, with the parts that are not enforced.
fn objective_cell(vm: &VmRates) -> Cell {
    let objective = objective_line::in_words(vm.background, &vm.objective);
    if vm.not_enforced.is_empty() {
        return objective.into();
    }
    let not_enforced = format!("; not enforced: {}", vm.not_enforced.join(", "));
    Cell::from(objective).append(Cell::from(not_enforced).tone(Tone::Warn))
}
