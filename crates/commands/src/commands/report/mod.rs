//! `tidegate report`: the daemon's history of a span of time as a page for a browser.

mod past;
mod promise_past;
mod times_of_day;

use std::path::Path;

use anyhow::Result;
use jiff::tz::TimeZone;
use serde_json::json;
use tidegate_api::device::DeviceView;
use tidegate_api::objective::ObjectiveView;
use tidegate_api::vm::VmView;
use tidegate_config::objective;
use tidegate_core::objective::Objective;
use tidegate_report::{Align, Cell, Page, Table, Tone};
use tidegate_server::calculation::{ReportOrder, Results};
use tidegate_units::human::{bytes_per_s, count, duration, rate};

use self::past::{DevicePast, Span, TIME_PARTS, Unread, VmPast};
use self::promise_past::{PARTS, PromisePast};
use self::times_of_day::times_of_day;
use super::history::time_and_offset;
use crate::args::ReportArgs;
use crate::atomic_file;
use crate::client::{Client, read};
use crate::html_report::interference::{self, VmTimes};
use crate::html_report::plots::{self, TimeAxis, VmOverTime};
use crate::html_report::{self, PromiseRow, Verdict, promises_over_time, summary_table};
use crate::objective_line;
use crate::output;
use crate::problem::Problem;

pub(super) fn run(args: &ReportArgs, client: &Client) -> Result<()> {
    write(&args.file, client, &args.begin(), &args.to)
}

/// Writes the report of a span of a daemon's history to a file, and says so.
pub(super) fn write(file: &Path, client: &Client, from: &str, to: &str) -> Result<()> {
    let host = Host::read(client, from, to)?;
    atomic_file::write(file, host.page(&TimeZone::system()).as_bytes())?;
    output::tell(format_args!("wrote {}", file.display()));
    Ok(())
}

/// Makes the page of a daemon's history for one of its clients.
pub(super) fn calculate(order: &ReportOrder) -> Result<Results> {
    let client = Client::new(&order.socket)?;
    let host = Host::read(&client, &order.from, &order.to)?;
    Ok(Results {
        page: host.page(&TimeZone::system()),
        ..Results::default()
    })
}

/// VMs and devices of a daemon with their past.
struct Host {
    span: Span,
    /// Time of the span in seconds in which the daemon ran and of which it has a history.
    recorded_s: f64,
    vms: Vec<(VmView, VmPast)>,
    devices: Vec<(DeviceView, DevicePast)>,
    /// VMs and devices whose history could not be read.
    unread: Vec<Unread>,
}

impl Host {
    fn read(client: &Client, from: &str, to: &str) -> Result<Host> {
        let vms: Vec<VmView> = read(client.get("/v1/vms")?)?;
        let devices: Vec<DeviceView> = read(client.get("/v1/devices")?)?;
        let Some(first) = devices.first() else {
            return Err(Problem::new("the daemon has no device").into());
        };
        // The first answer says which span the words mean by the daemon's clock.
        let answer = past::first(client, &first.name, from, to)?;
        let span = Span {
            from_ms: answer.from_ms,
            to_ms: answer.to_ms,
            step_s: answer.step_s,
        };
        let names: Vec<&str> = vms.iter().map(|vm| vm.name.as_str()).collect();
        let (mut pasts, mut unread) = past::vms(client, &names, &span);
        if let (true, Some((_, why))) = (pasts.is_empty(), unread.first()) {
            let what = format!("the history of no VM can be read: {why}");
            return Err(Problem::new(what).into());
        }
        let vms = vms.into_iter().filter_map(|vm| {
            let past = pasts.remove(&vm.name)?;
            Some((vm, past))
        });
        let vms = vms.collect();
        let mut of_devices = Vec::new();
        for device in devices {
            match past::device(client, &device.name, &span) {
                Ok(past) => of_devices.push((device, past)),
                Err(error) => unread.push((device.name, error.to_string())),
            }
        }
        Ok(Host {
            span,
            recorded_s: past::recorded_s(&answer),
            vms,
            devices: of_devices,
            unread,
        })
    }

    /// Length of the span in seconds.
    fn length_s(&self) -> f64 {
        (self.span.to_ms - self.span.from_ms) as f64 / 1000.0
    }

    /// Returns a count as a rate over the time that the history has.
    fn per_s(&self, count: u64) -> f64 {
        if self.recorded_s > 0.0 {
            count as f64 / self.recorded_s
        } else {
            0.0
        }
    }

    fn page(&self, zone: &TimeZone) -> String {
        let (from, to) = (self.span.from_ms, self.span.to_ms);
        let [from, to] = [from, to].map(|ms| time_and_offset(ms, zone));
        let mut page = Page::new(&format!("Tidegate from {from} to {to}"));
        let axis = TimeAxis::new("time before the end", -self.length_s(), 0.0)
            .with_times_of_day(times_of_day(&self.span, zone));
        self.summary(&mut page, &from, &to);
        self.promises(&mut page, &axis);
        let over_time = self.vms_over_time();
        page.section("vms", "All VMs")
            .table("vm-table", &self.vm_table());
        page.paragraph(
            "Rates are over the recorded time. P99 and MAX are the highest of any interval. \
             Latencies are those at the daemon, from a request's arrival to the end of its I/O.",
        );
        page.plots(&plots::all_vms(&axis, &over_time));
        self.each_vm(&mut page, &axis, &over_time);
        let times = self.vms.iter().map(|(vm, past)| VmTimes {
            vm: vm.name.clone(),
            requests: past.requests,
            parts: past.times_ns.clone(),
            behind: past.behind.clone(),
        });
        let names = TIME_PARTS.map(|part| part.0);
        interference::sections(&mut page, &names, times.collect());
        self.devices(&mut page, &axis);
        page.finish()
    }

    fn summary(&self, page: &mut Page, from: &str, to: &str) {
        let promises = self.vms.iter().flat_map(|(_, past)| &past.promises);
        let mut table = summary_table(promises.map(PromisePast::kept));
        table.property("from", from);
        table.property("to", to);
        let recorded = |seconds: f64| duration((seconds * 1e9) as u64);
        let part = match recorded(self.recorded_s) {
            all if all == recorded(self.length_s()) => all,
            part => format!("{part} of {}", recorded(self.length_s())),
        };
        table.property("recorded", part);
        table.property("points", format!("of {} s", self.span.step_s));
        let active = self.vms.iter().filter(|(_, past)| past.requests > 0);
        let vms = format!(
            "{}, of which {} had requests",
            self.vms.len(),
            active.count()
        );
        table.property("VMs", vms);
        page.section("summary", "Summary").table("facts", &table);
        if !self.unread.is_empty() {
            page.heading("Left out, because their history could not be read");
            let mut table = Table::new([("NAME", Align::Left), ("REASON", Align::Left)]);
            for (name, why) in &self.unread {
                table.row([
                    Cell::from(name.as_str()),
                    Cell::from(why.as_str()).tone(Tone::Bad),
                ]);
            }
            page.table("unread", &table);
        }
    }

    fn promises(&self, page: &mut Page, axis: &TimeAxis) {
        page.section("promises", "What was promised, and what was kept");
        let mut table = Table::new([
            ("VM", Align::Left),
            ("PROMISE", Align::Left),
            ("KEPT", Align::Left),
            ("DETAIL", Align::Left),
        ]);
        let mut rows: Vec<PromiseRow<'_>> = Vec::new();
        for (vm, past) in &self.vms {
            for promise in &past.promises {
                table.row([
                    Cell::from(vm.name.as_str()).tone(Tone::Strong),
                    promised(&vm.objective, promise.part).into(),
                    kept(promise),
                    detail(promise, past).into(),
                ]);
                rows.push(PromiseRow {
                    vm: &vm.name,
                    part: promise.part,
                    missed: promise.kept() == Some(false),
                    spans: promise.spans.clone(),
                });
            }
        }
        if table.is_empty() {
            page.paragraph("Nothing that was promised had to be judged in this time.");
            return;
        }
        page.table("promise-table", &table);
        page.paragraph(
            "Each second is judged by what was promised in it. Promises are named as they are at \
             the time of the report; the verdict on one that was changed covers the time before, \
             too.",
        );
        promises_over_time(page, axis, rows);
    }

    fn vm_table(&self) -> Table {
        let mut table = Table::new([
            ("VM", Align::Left),
            ("DEVICE", Align::Left),
            ("OBJECTIVE", Align::Left),
            ("IOPS", Align::Right),
            ("READ", Align::Right),
            ("WRITTEN", Align::Right),
            ("P99", Align::Right),
            ("MAX", Align::Right),
            ("FAILED", Align::Right),
        ]);
        let latency = |ns: u64| match ns {
            0 => "-".to_owned(),
            ns => duration(ns),
        };
        for (vm, past) in &self.vms {
            table.row([
                Cell::from(vm.name.as_str()).tone(Tone::Strong),
                vm.device.as_str().into(),
                objective_line::in_words(vm.background, &vm.objective).into(),
                rate(self.per_s(past.requests)).into(),
                bytes_per_s(self.per_s(past.bytes_read)).into(),
                bytes_per_s(self.per_s(past.bytes_written)).into(),
                latency(past.worst_p99_ns).into(),
                latency(past.longest_ns).into(),
                failed(past.errors),
            ]);
        }
        table
    }

    fn vms_over_time(&self) -> Vec<VmOverTime> {
        let active = self.vms.iter().filter(|(_, past)| past.requests > 0);
        let over_time = active.map(|(vm, past)| VmOverTime {
            name: vm.name.clone(),
            points: past.points.clone(),
            objectives: vec![(-self.length_s(), Some(objective_of(&vm.objective)))],
        });
        over_time.collect()
    }

    fn each_vm(&self, page: &mut Page, axis: &TimeAxis, over_time: &[VmOverTime]) {
        page.section("each-vm", "Each VM over time");
        let active = self.vms.iter().filter(|(_, past)| past.requests > 0);
        let active: Vec<&(VmView, VmPast)> = active.collect();
        let named = active.iter().map(|(vm, past)| {
            let promises = past.promises.iter().map(PromisePast::kept);
            (vm.name.as_str(), Verdict::on(promises))
        });
        let named: Vec<_> = named.collect();
        html_report::each_vm(page, &named, |index| {
            let vm = &over_time[index];
            let mut plots = vm.rates(axis, "");
            plots.push(vm.latency(axis, ""));
            let of_span = &active[index].1.latencies;
            if !of_span.is_empty() {
                plots.push(plots::distributions(
                    "Distribution of latency",
                    &[("all requests", of_span.clone())],
                    vm.last_bound_ns(),
                ));
            }
            plots
        });
        let idle = self.vms.len() - named.len();
        if idle > 0 {
            page.paragraph(&format!("VMs without requests in this time: {idle}."));
        }
    }

    fn devices(&self, page: &mut Page, axis: &TimeAxis) {
        let mut table = Table::new([
            ("DEVICE", Align::Left),
            ("POLICY", Align::Left),
            ("IOPS", Align::Right),
            ("MOVED", Align::Right),
            ("BUSY", Align::Right),
            ("STALLED", Align::Right),
            ("FAILED", Align::Right),
        ]);
        for (device, past) in &self.devices {
            let busy = match self.recorded_s {
                0.0 => 0.0,
                recorded_s => 100.0 * past.busy_s / recorded_s,
            };
            table.row([
                Cell::from(device.name.as_str()).tone(Tone::Strong),
                device.policy.name.as_str().into(),
                rate(self.per_s(past.ios)).into(),
                bytes_per_s(self.per_s(past.bytes)).into(),
                format!("{:.0} %", busy.min(100.0)).into(),
                duration((past.stalled_s * 1e9) as u64).into(),
                failed(past.io_errors),
            ]);
        }
        page.section("devices", "Devices")
            .table("device-table", &table);
        for (device, past) in &self.devices {
            page.heading(&device.name);
            page.plots(&plots::device(
                axis,
                "at the end of each second, the largest",
                &past.points,
            ));
        }
    }
}

fn failed(n: u64) -> Cell {
    let cell = Cell::from(count(n));
    if n > 0 { cell.tone(Tone::Bad) } else { cell }
}

fn kept(promise: &PromisePast) -> Cell {
    match promise.kept() {
        Some(true) => Cell::from("yes").tone(Tone::Good),
        Some(false) => Cell::from("no").tone(Tone::Bad),
        None => Cell::from("-"),
    }
}

/// Returns how many seconds of a promise were missed, and mostly why.
fn detail(promise: &PromisePast, past: &VmPast) -> String {
    let verdicts = promise.verdicts;
    let judged = verdicts.kept_s + verdicts.missed_s;
    let mut text = match verdicts.missed_s {
        0 => format!("in all {} s", count(judged)),
        missed => format!("missed in {} of {} s", count(missed), count(judged)),
    };
    if let Some(cause) = past.cause.filter(|_| verdicts.missed_s > 0) {
        // Causes are counted for all parts of the objective together.
        let missed = past.promises.iter().filter(|it| it.verdicts.missed_s > 0);
        text += &match missed.count() {
            ..=1 => format!(": {cause}"),
            _ => format!("; of all promises of the VM, mostly: {cause}"),
        };
    }
    if verdicts.stalled_s > 0 {
        text += &format!(
            "; {} s are not judged: the device stalled",
            verdicts.stalled_s
        );
    }
    text
}

/// Returns what an objective promises of a part; the part's name if it promises it no longer.
fn promised(objective: &ObjectiveView, part: &str) -> String {
    let [reservation, target, latency, limit] = PARTS;
    let value = match part {
        it if it == reservation => objective.reservation.clone(),
        it if it == target => objective.target.clone(),
        it if it == latency => objective.latency.clone(),
        it if it == limit => objective.limit.as_ref().map(objective_line::limit),
        _ => None,
    };
    match value {
        Some(value) => format!("{part} {value}"),
        None => format!("{part}, no longer promised"),
    }
}

/// Returns the objective of a view; without promises if a newer daemon has parts that are unknown
/// here.
fn objective_of(view: &ObjectiveView) -> Objective {
    // Only what plots show: rates and the latency bound.
    let limit = view.limit.as_ref();
    let change = json!({
        "reservation": view.reservation,
        "target": view.target,
        "latency": view.latency,
        "limit": { "total": limit.and_then(|limit| limit.rates.total.clone()) },
    });
    objective::merge(&Objective::default(), &change).unwrap_or_default()
}
