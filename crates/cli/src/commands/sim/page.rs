//! Report of a simulation as a page for a browser.

use std::path::{Path, PathBuf};

use anyhow::Result;
use tidegate_core::attainment::Part;
use tidegate_core::objective::Objective;
use tidegate_core::time::Nanos;
use tidegate_report::{Bars, Page};
use tidegate_sim::report::{DeviceReport, Distance, Report, Row, VmReport};
use tidegate_sim::scenario::{Action, Scenario};
use tidegate_sim::world::World;
use tidegate_units::human::{bytes, count, percent};

use crate::atomic_file::Replacement;
use crate::html_report::intervals::{
    DeviceInterval, Intervals, PromiseOverTime, Verdicts, VmInterval, length,
};
use crate::html_report::plots::{self, Distribution, TimeAxis, VmOverTime};
use crate::html_report::{self, PromiseRow, Verdict, promises_over_time, summary_table};
use crate::output;

/// Shortest time between two looks at the verdicts on promises, which are by the second.
const VERDICTS_EVERY_S: f64 = 1.0;

/// Page that is written at the end of a run, with what it needs of the time before.
pub(super) struct PageFile {
    path: PathBuf,
    file: Replacement,
    scenario_file: PathBuf,
    /// By VM.
    vms: Vec<Intervals<VmInterval>>,
    /// Promises of each VM by part of its objective.
    promises: Vec<Vec<(Part, PromiseOverTime)>>,
    /// By device.
    devices: Vec<Intervals<DeviceInterval>>,
    /// VM of the next row: rows of an interval come in the order of the scenario.
    next_vm: usize,
    /// Time of the last look at the verdicts.
    looked_s: f64,
}

impl PageFile {
    /// Creates the file, so that a wrong path is an error before the run.
    pub(super) fn create(path: &Path, scenario_file: &Path) -> Result<PageFile> {
        Ok(PageFile {
            path: path.to_owned(),
            file: Replacement::create(path)?,
            scenario_file: scenario_file.to_owned(),
            vms: Vec::new(),
            promises: Vec::new(),
            devices: Vec::new(),
            next_vm: 0,
            looked_s: 0.0,
        })
    }

    /// Returns the interval of rows for a scenario.
    pub(super) fn interval(scenario: &Scenario) -> Nanos {
        let frame = &scenario.frame;
        length((!frame.until_done).then_some(frame.duration))
    }

    /// Has the simulation keep what the page needs.
    pub(super) fn prepare(&mut self, world: &mut World) {
        world.keep_operations();
        world.keep_device_rows();
        let scenario = world.scenario();
        self.vms = vec![Intervals::default(); scenario.vms.len()];
        self.promises = vec![Vec::new(); scenario.vms.len()];
        self.devices = vec![Intervals::default(); scenario.devices.len()];
    }

    /// Takes the row of a VM.
    pub(super) fn row(&mut self, row: &Row) {
        self.vms[self.next_vm].add(VmInterval::of_row(row));
        self.next_vm = (self.next_vm + 1) % self.vms.len();
    }

    /// Takes what happened in a step.
    pub(super) fn step(&mut self, world: &mut World) {
        for row in world.take_device_rows() {
            self.devices[row.device].add(DeviceInterval::of_row(&row));
        }
        let now_s = world.now().as_secs_f64();
        if world.now() <= world.scenario().frame.warm_up {
            // Verdicts of the warm-up do not count, and are cleared at its end.
            self.looked_s = now_s;
            return;
        }
        if now_s - self.looked_s >= VERDICTS_EVERY_S || world.is_over() {
            self.look_at_verdicts(world, now_s);
        }
    }

    fn look_at_verdicts(&mut self, world: &World, now_s: f64) {
        for (vm, promises) in self.promises.iter_mut().enumerate() {
            let Some((engine, id)) = world.served(vm) else {
                continue;
            };
            for part in engine.vms().attainment(world.now(), id) {
                let known = promises.iter().position(|it| it.0 == part.part);
                let n = known.unwrap_or_else(|| {
                    promises.push((part.part, PromiseOverTime::begin(self.looked_s)));
                    promises.len() - 1
                });
                promises[n].1.sample(now_s, Verdicts::of_part(&part));
            }
        }
        self.looked_s = now_s;
    }

    /// Writes the page.
    pub(super) fn finish(self, scenario: &Scenario, report: &Report) -> Result<()> {
        use std::io::Write as _;
        let page = Content {
            data: &self,
            scenario,
            report,
            time: TimeAxis::new("time", 0.0, report.duration_s).with_warm_up(report.warm_up_s),
        };
        let html = page.page();
        let mut file = self.file;
        file.write_all(html.as_bytes())?;
        file.commit()?;
        output::tell(format_args!("wrote {}", self.path.display()));
        Ok(())
    }
}

/// Content of the page.
struct Content<'a> {
    data: &'a PageFile,
    scenario: &'a Scenario,
    report: &'a Report,
    time: TimeAxis,
}

impl Content<'_> {
    fn page(&self) -> String {
        let file = self.data.scenario_file.display().to_string();
        let title = match self.report.title.as_str() {
            "" => file.as_str(),
            title => title,
        };
        let mut page = Page::new(title);
        self.summary(&mut page, &file);
        self.promises(&mut page);
        let vms = self.vms_over_time();
        self.all_vms(&mut page, &vms);
        self.each_vm(&mut page, &vms);
        self.devices(&mut page);
        self.details(&mut page);
        page.finish()
    }

    fn summary(&self, page: &mut Page, file: &str) {
        let report = self.report;
        page.section("summary", "Summary");
        page.table("facts", &{
            let promises = report.vms.iter().flat_map(|vm| &vm.promises);
            let mut table = summary_table(promises.map(|promise| promise.kept));
            table.property("scenario", file);
            let seconds = |s: f64| super::time(s);
            let warm_up = match report.warm_up_s {
                0.0 => String::new(),
                s => format!(", of which the first {} do not count", seconds(s)),
            };
            table.property("simulated", seconds(report.duration_s) + &warm_up);
            table.property("requests", count(report.requests));
            table.property("seed", report.seed.to_string());
            table.property("simulator", concat!("tidegate ", env!("CARGO_PKG_VERSION")));
            table
        });
        page.paragraph(
            "Latencies are those that guests see: to a request's answer from when the guest wanted \
             it. Promises are judged at the scheduler, without delays inside the guest.",
        );
    }

    fn promises(&self, page: &mut Page) {
        let table = super::promises(&self.report.vms);
        if table.is_empty() {
            return;
        }
        page.section("promises", "What was promised, and what was kept");
        page.table("promise-table", &table);
        let mut rows = Vec::new();
        for (vm, promises) in self.report.vms.iter().zip(&self.data.promises) {
            for (part, promise) in promises {
                let mut judged = vm.promises.iter().filter(|it| it.part == part.name());
                rows.push(PromiseRow {
                    vm: &vm.name,
                    part: part.name(),
                    missed: judged.any(|it| it.kept == Some(false)),
                    spans: promise.spans().collect(),
                });
            }
        }
        promises_over_time(page, &self.time, rows);
    }

    fn vms_over_time(&self) -> Vec<VmOverTime> {
        let vms = self.scenario.vms.iter().zip(&self.data.vms).enumerate();
        let over_time = vms.map(|(index, (spec, intervals))| VmOverTime {
            name: spec.name.clone(),
            points: intervals.all().iter().map(VmInterval::point).collect(),
            objectives: self.objectives(index),
        });
        over_time.collect()
    }

    /// Objectives of a VM with the times in seconds from which on they were in force.
    fn objectives(&self, vm: usize) -> Vec<(f64, Option<Objective>)> {
        let spec = &self.scenario.vms[vm];
        let mut objectives = vec![(spec.arrives, Some(spec.objective))];
        for change in &self.scenario.changes {
            match &change.action {
                Action::Objective { vm: of, objective } if *of == vm => {
                    objectives.push((change.at, Some(**objective)));
                }
                Action::Objective { .. } | Action::Policy { .. } => {}
            }
        }
        if let Some(leaves) = spec.leaves {
            objectives.retain(|objective| objective.0 < leaves);
            objectives.push((leaves, None));
        }
        let ended = self.report.duration_s;
        let in_seconds = objectives
            .into_iter()
            .map(|(at, it)| (at.as_secs_f64(), it));
        in_seconds.filter(|objective| objective.0 < ended).collect()
    }

    fn all_vms(&self, page: &mut Page, vms: &[VmOverTime]) {
        page.section("vms", "All VMs");
        page.table("vm-table", &super::vms(self.report));
        page.paragraph(
            "GUEST to DEVICE are the mean times of a request: inside the guest and on the way, \
             held back by the VM's own limit, waiting for its turn, and with the device.",
        );
        page.plots(&plots::all_vms(&self.time, vms));
    }

    fn each_vm(&self, page: &mut Page, vms: &[VmOverTime]) {
        page.section("each-vm", "Each VM over time");
        if self.report.warm_up_s > 0.0 {
            page.paragraph("The shaded begin is the warm-up, which does not count.");
        }
        let named = self.report.vms.iter().map(|vm| {
            let promises = vm.promises.iter().map(|promise| promise.kept);
            (vm.name.as_str(), Verdict::on(promises))
        });
        let named: Vec<_> = named.collect();
        html_report::each_vm(page, &named, |index| {
            let (vm, report) = (&vms[index], &self.report.vms[index]);
            let mut plots = vm.rates(&self.time, "");
            plots.push(vm.latency(&self.time, ""));
            plots.push(plots::distributions(
                "Distribution of latency",
                &distributions(report),
                vm.last_bound_ns(),
            ));
            plots
        });
    }

    fn devices(&self, page: &mut Page) {
        page.section("devices", "Devices");
        page.table("device-table", &super::devices(self.report));
        let devices = self.report.devices.iter().zip(&self.scenario.devices);
        for ((report, spec), intervals) in devices.zip(&self.data.devices) {
            let points = intervals.all().iter().map(DeviceInterval::point);
            let points: Vec<_> = points.collect();
            page.heading(&report.name);
            page.plots(&plots::device(&self.time, "mean", &points));
            // Only a device that positions has distances that cost time.
            if spec.model.spec().positioning > Nanos::ZERO {
                page.bars(&distances(report));
            }
        }
    }

    fn details(&self, page: &mut Page) {
        page.section("details", "Details");
        page.heading("Precision of bandwidths");
        page.table("precision", &super::precision(self.report));
        if let Some(cpu) = &self.report.cpu {
            page.heading("Host CPU")
                .paragraph(super::processors::line(cpu).trim_end());
            page.table("cpu", &super::processors::table(&self.report.vms));
        }
        let responses = super::responses::table(&self.report.vms);
        if !responses.is_empty() {
            page.heading("Response times")
                .table("responses", &responses);
        }
    }
}

/// Returns the distributions of a VM's latencies by operation, without operations that it had none
/// of.
fn distributions(vm: &VmReport) -> Vec<(&'static str, Distribution)> {
    let Some(operations) = &vm.operations else {
        return Vec::new();
    };
    let all = [
        ("reads", &operations.read),
        ("writes", &operations.write),
        ("flushes", &operations.flush),
        ("discards", &operations.discard),
    ];
    let used = all
        .into_iter()
        .filter(|(_, operation)| operation.requests > 0);
    let used = used.map(|(name, operation)| {
        let longest = operation.latency.longest();
        let buckets = operation.latency.buckets();
        (
            name,
            buckets
                .map(|(bound, n)| (bound.min(longest).0, n))
                .collect(),
        )
    });
    used.collect()
}

/// Chart of the distances from one I/O of a device to the next.
fn distances(device: &DeviceReport) -> Bars {
    let mut bars = Bars::new("Distance from one I/O to the next", ["I/Os"]);
    let all: u64 = device.distances.iter().map(|it| it.ios).sum();
    let mut lower = None;
    for &Distance { up_to_bytes, ios } in &device.distances {
        let label = match (lower, up_to_bytes) {
            (_, Some(0)) => "none: sequential".to_owned(),
            (_, Some(bound)) => format!("up to {}", bytes(bound)),
            (Some(lower), None) => format!("beyond {}", bytes(lower)),
            (None, None) => "any".to_owned(),
        };
        lower = up_to_bytes;
        let part = percent(ios as f64, all.max(1) as f64);
        bars.row(label, [ios as f64], format!("{part}, {}", count(ios)));
    }
    bars
}
