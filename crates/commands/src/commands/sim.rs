//! `tidegate sim`: runs a scenario or a fio job file in virtual time and reports the result.

use std::time::Instant;

use anyhow::Result;
use tidegate_report::{Align, Cell, Table, Tone, csv_record};
use tidegate_sim::report::{Promise, Rates, Report, Responses, Row, VmReport};
use tidegate_sim::world::World;
use tidegate_units::human::{count, duration, percent};

use self::files::{Files, Wanted};
use super::{interference, precision};
use crate::args::{Format, SimArgs};
use crate::output::{self, Output};
use crate::progress::DelayedBar;
use crate::rate_table::mb_per_s;
use crate::simulate::{self, Changes, Ready};

pub(super) mod files;
mod fio_json;
mod hdr_log;
mod page;
mod processors;
mod recording;
mod responses;

pub(super) fn run(args: &SimArgs, out: Output) -> Result<()> {
    let ready = simulate::load(
        &args.file,
        &Changes {
            policy: args.policy.clone(),
            processors: args.scheduler,
            seed: args.seed,
            ..Changes::from(&args.changes)
        },
    )?;
    ready.tell();
    let began = Instant::now();
    let mut printer = Printer::new(out, &ready);
    let wanted = wanted(args);
    let mut files = Files::create(&wanted)?;
    let interval = files.interval(args.interval, &ready.scenario);
    let mut world = World::new(ready.scenario, interval);
    files.prepare(&wanted, &mut world)?;
    // Milliseconds of virtual time.
    let total = world.scenario().frame.duration.0 / 1_000_000;
    let mut progress = DelayedBar::new(total, "simulating");
    while !world.is_over() {
        // The callback cannot fail; its first error ends the run after the step.
        let mut result = Ok(());
        world.step(&mut |row| {
            if result.is_ok() && args.interval.is_some() {
                result = printer.row(row);
            }
            if result.is_ok() {
                result = files.row(row);
            }
        });
        result?;
        files.step(&mut world)?;
        progress.set(world.now().0 / 1_000_000, || {
            let total = world.scenario().frame.duration;
            format!("{} of {}", duration(world.now().0), duration(total.0))
        });
    }
    drop(progress);
    files.end(&mut world)?;
    let (warm_up, ended) = (world.scenario().frame.warm_up, world.now());
    // All results would be empty, and the report would not say why.
    if ended < warm_up {
        output::tell(format_args!(
            "warning: all workloads ended after {}, within the warm-up of {}",
            duration(ended.0),
            duration(warm_up.0)
        ));
    }
    let report = world.report();
    let over_time = files.finish(world.scenario(), &report)?;
    printer.report(&report)?;
    if let Some(over_time) = over_time {
        // Plots are for people: beside JSON and CSV only a file is written.
        let terminal = args.plot && out.format() == Format::Table;
        let results = (world.scenario(), &report);
        over_time.draw(results, terminal, &args.plots, out)?;
    }
    if out.format() == Format::Table {
        let took = began.elapsed().as_secs_f64();
        output::tell(format_args!(
            "{} requests simulated in {took:.2} s ({:.2} million per second)",
            count(report.requests),
            report.requests as f64 / took / 1e6
        ));
    }
    Ok(())
}

/// Returns the paths of the files that are wanted.
fn wanted(args: &SimArgs) -> Wanted<'_> {
    Wanted {
        responses: args.responses.as_deref(),
        record: args.record.as_deref(),
        fio_json: args.fio_json.as_deref(),
        hdr_log: args.hdr_log.as_deref(),
        page: args.report.as_deref().map(|path| (path, &*args.file)),
        plots: args.plot || args.plots.svg.is_some(),
    }
}

/// Printer of the rows of intervals, at once so that memory does not grow, and of the report.
struct Printer {
    out: Output,
    /// Width of the column of names: the longest name of a VM.
    name: usize,
    rows: u64,
    /// True if a VM replays a trace or has a deadline, so that response times are reported.
    responses: bool,
}

/// Columns of rates and latencies in CSV; their names carry the unit.
pub(super) const RATE_COLUMNS: [&str; 12] = [
    "iops",
    "read_iops",
    "write_iops",
    "bytes_per_s",
    "read_bytes_per_s",
    "write_bytes_per_s",
    "errors",
    "latency_mean_ns",
    "latency_p50_ns",
    "latency_p99_ns",
    "latency_p999_ns",
    "latency_max_ns",
];

/// Returns a time in nanoseconds for CSV; empty if no request was answered.
fn latency(ns: Option<u64>) -> String {
    ns.map_or(String::new(), |ns| ns.to_string())
}

/// Returns a time for tables; `-` if no request was answered.
fn shown(ns: Option<u64>) -> String {
    ns.map_or("-".to_owned(), duration)
}

fn rate_cells(rates: &Rates) -> [String; 12] {
    [
        rates.iops.to_string(),
        rates.read_iops.to_string(),
        rates.write_iops.to_string(),
        rates.bytes_per_s.to_string(),
        rates.read_bytes_per_s.to_string(),
        rates.write_bytes_per_s.to_string(),
        rates.errors.to_string(),
        latency(rates.latency_mean_ns),
        latency(rates.latency_p50_ns),
        latency(rates.latency_p99_ns),
        latency(rates.latency_p999_ns),
        latency(rates.latency_max_ns),
    ]
}

impl Printer {
    fn new(out: Output, ready: &Ready) -> Printer {
        let names = ready.scenario.vms.iter().map(|t| t.name.chars().count());
        Printer {
            out,
            // At least as wide as the heading, `VM`.
            name: names.max().unwrap_or(0).max(2),
            rows: 0,
            responses: responses::expected(&ready.scenario),
        }
    }

    fn row(&mut self, row: &Row) -> Result<()> {
        self.rows += 1;
        match self.out.format() {
            Format::Json => self.out.json_line(row),
            Format::Csv => {
                // The heading comes with the first row, so that a run without rows prints none.
                if self.rows == 1 {
                    self.csv_heading("time_s")?;
                }
                let first = [row.time_s.to_string(), row.vm.clone()];
                self.csv_line(first, &row.rates, row.responses.as_ref())
            }
            Format::Table => {
                let mut text = String::new();
                if self.rows == 1 {
                    text = format!(
                        "{:>9}  {:name$}  {:>9}  {:>9}  {:>9}  {:>9}  {:>9}\n",
                        "TIME",
                        "VM",
                        "IOPS",
                        "MB/S",
                        "P50",
                        "P99",
                        "MAX",
                        name = self.name
                    );
                }
                let rates = &row.rates;
                text += &format!(
                    "{:>7.1} s  {:name$}  {:>9.1}  {:>9.2}  {:>9}  {:>9}  {:>9}\n",
                    row.time_s,
                    row.vm,
                    rates.iops,
                    rates.bytes_per_s / 1e6,
                    shown(rates.latency_p50_ns),
                    shown(rates.latency_p99_ns),
                    shown(rates.latency_max_ns),
                    name = self.name
                );
                Ok(self.out.text(&text)?)
            }
        }
    }

    fn csv_heading(&self, first: &str) -> Result<()> {
        let heading = [first, "vm"].into_iter().chain(RATE_COLUMNS);
        let responses = self.responses.then_some(responses::COLUMNS);
        let heading = heading.chain(responses.into_iter().flatten());
        Ok(self.out.text(&csv_record(heading))?)
    }

    fn csv_line(
        &self,
        first: [String; 2],
        rates: &Rates,
        responses: Option<&Responses>,
    ) -> Result<()> {
        let cells = first.into_iter().chain(rate_cells(rates));
        let more = self.responses.then(|| responses::cells(responses));
        let cells = cells.chain(more.into_iter().flatten());
        Ok(self.out.text(&csv_record(cells))?)
    }

    fn report(&mut self, report: &Report) -> Result<()> {
        match self.out.format() {
            // After JSON lines of intervals the report is one more line.
            Format::Json if self.rows > 0 => self.out.json_line(report),
            Format::Json => self.out.json(report),
            // CSV is one table: after rows of intervals there is no place for the report.
            Format::Csv if self.rows > 0 => Ok(()),
            Format::Csv => {
                self.csv_heading("duration_s")?;
                for vm in &report.vms {
                    let first = [report.duration_s.to_string(), vm.name.clone()];
                    self.csv_line(first, &vm.rates, vm.responses.as_ref())?;
                }
                Ok(())
            }
            Format::Table => {
                let gap = if self.rows > 0 { "\n" } else { "" };
                let text = table(report, self.out);
                Ok(self.out.text(&format!("{gap}{text}"))?)
            }
        }
    }
}

/// Formats a time of a report. A fio job file ends with its last answer, at an odd nanosecond.
fn time(seconds: f64) -> String {
    duration((seconds * 1e9).round() as u64)
}

/// Returns the whole report as tables.
fn table(report: &Report, out: Output) -> String {
    let mut head = String::new();
    if !report.title.is_empty() {
        head += &format!("{}\n", report.title);
    }
    let warm_up = match report.warm_up_s {
        0.0 => String::new(),
        s => format!(" (first {} not counted)", time(s)),
    };
    let (simulated, seed) = (time(report.duration_s), report.seed);
    head += &format!("{simulated} simulated{warm_up}, seed {seed}\n");
    let mut parts = vec![
        head,
        devices(report).render(out.style()),
        vms(report).render(out.style()),
    ];
    // Most columns of the table exist for targets only.
    if (report.vms.iter()).any(|vm| vm.precision.target_bytes_per_s.is_some()) {
        parts.push(precision(report).render(out.style()));
    }
    if let Some(cpu) = &report.cpu {
        parts.push(processors::line(cpu));
        parts.push(processors::table(&report.vms).render(out.style()));
    }
    let times = report
        .vms
        .iter()
        .map(|vm| (vm.name.as_str(), &vm.interference));
    let behind = interference::pairs(times);
    if !behind.is_empty() {
        parts.push(behind.render(out.style()));
    }
    let responses = responses::table(&report.vms);
    if !responses.is_empty() {
        parts.push(responses.render(out.style()));
    }
    let tuned: Vec<_> = (report.vms.iter())
        .filter_map(|vm| Some((vm.name.as_str(), vm.tuning.as_ref()?)))
        .collect();
    if !tuned.is_empty() {
        parts.push(precision::tunings(&tuned).render(out.style()));
    }
    let promises = promises(&report.vms);
    if !promises.is_empty() {
        parts.push(promises.render(out.style()));
    }
    parts.join("\n")
}

fn devices(report: &Report) -> Table {
    let mut table = Table::new([
        ("DEVICE", Align::Left),
        ("MODEL", Align::Left),
        ("POLICY", Align::Left),
        ("IOPS", Align::Right),
        ("MB/S", Align::Right),
        ("BUSY", Align::Right),
        ("DEPTH", Align::Right),
    ]);
    for device in &report.devices {
        table.row([
            Cell::from(device.name.as_str()).tone(Tone::Strong),
            device.model.as_str().into(),
            device.policy.as_str().into(),
            format!("{:.1}", device.iops).into(),
            mb_per_s(device.bytes_per_s).into(),
            percent(device.busy, 1.0).into(),
            format!("{:.1}", device.depth).into(),
        ]);
    }
    table
}

fn vms(report: &Report) -> Table {
    let mut table = Table::new([
        ("VM", Align::Left),
        ("IOPS", Align::Right),
        ("MB/S", Align::Right),
        ("MEAN", Align::Right),
        ("P50", Align::Right),
        ("P99", Align::Right),
        ("P99.9", Align::Right),
        ("MAX", Align::Right),
        ("GUEST", Align::Right),
        ("THROTTLED", Align::Right),
        ("QUEUED", Align::Right),
        ("DEVICE", Align::Right),
    ]);
    for vm in &report.vms {
        let (rates, waits) = (&vm.rates, &vm.waits);
        table.row([
            Cell::from(vm.name.as_str()).tone(Tone::Strong),
            format!("{:.1}", rates.iops).into(),
            mb_per_s(rates.bytes_per_s).into(),
            shown(rates.latency_mean_ns).into(),
            shown(rates.latency_p50_ns).into(),
            shown(rates.latency_p99_ns).into(),
            shown(rates.latency_p999_ns).into(),
            shown(rates.latency_max_ns).into(),
            duration(waits.guest_ns).into(),
            duration(waits.regulated_ns).into(),
            duration(waits.queued_ns + waits.merged_ns + waits.deliberate_ns).into(),
            duration(waits.device_ns).into(),
        ]);
    }
    table
}

fn precision(report: &Report) -> Table {
    let vms = report.vms.iter();
    let vms: Vec<_> = vms.map(|vm| (vm.name.as_str(), &vm.precision)).collect();
    precision::table(&vms)
}

fn promises(vms: &[VmReport]) -> Table {
    let mut table = Table::new([
        ("VM", Align::Left),
        ("PROMISE", Align::Left),
        ("KEPT", Align::Left),
        ("DETAIL", Align::Left),
    ]);
    let promises = vms
        .iter()
        .flat_map(|vm| vm.promises.iter().map(move |p| (vm, p)));
    for (vm, promise) in promises {
        table.row([
            Cell::from(vm.name.as_str()).tone(Tone::Strong),
            promise.what.as_str().into(),
            verdict(promise),
            promise.detail.as_str().into(),
        ]);
    }
    table
}

pub(super) fn verdict(promise: &Promise) -> Cell {
    match promise.kept {
        Some(true) => Cell::from("yes").tone(Tone::Good),
        Some(false) => Cell::from("no").tone(Tone::Bad),
        None => Cell::from("-"),
    }
}
