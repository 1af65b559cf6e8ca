//! Report of a simulation as a page for a browser.

use std::path::Path;

use tidegate_core::time::Nanos;
use tidegate_report::{Bars, Page};
use tidegate_sim::report::{DeviceReport, Distance, Report, VmReport};
use tidegate_sim::scenario::Scenario;
use tidegate_units::human::{bytes, count, percent};

use crate::html_report::interference::{self, VmTimes};
use crate::html_report::intervals::DeviceInterval;
use crate::html_report::over_time::OverTime;
use crate::html_report::plots::{self, Distribution, TimeAxis, VmOverTime};
use crate::html_report::{
    self, PromiseRow, Verdict, distribution, promises_over_time, summary_table,
};

/// Returns the page of a run. `file` is the scenario's.
pub(super) fn page(
    file: &Path,
    over_time: &OverTime,
    scenario: &Scenario,
    report: &Report,
) -> String {
    let content = Content {
        file,
        over_time,
        scenario,
        report,
        time: OverTime::axis(report),
    };
    content.page()
}

/// Content of the page.
struct Content<'a> {
    file: &'a Path,
    over_time: &'a OverTime,
    scenario: &'a Scenario,
    report: &'a Report,
    time: TimeAxis,
}

impl Content<'_> {
    fn page(&self) -> String {
        let file = self.file.display().to_string();
        let title = match self.report.title.as_str() {
            "" => file.as_str(),
            title => title,
        };
        let mut page = Page::new(title);
        self.summary(&mut page, &file);
        self.promises(&mut page);
        let vms = self.over_time.vms(self.scenario, self.report);
        self.all_vms(&mut page, &vms);
        self.each_vm(&mut page, &vms);
        let times = self.report.vms.iter().map(times).collect();
        interference::sections(&mut page, &PARTS, times);
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
        for (vm, promises) in self.report.vms.iter().zip(self.over_time.promises()) {
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
        for ((report, spec), intervals) in devices.zip(self.over_time.devices()) {
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

/// Parts of the time of requests.
const PARTS: [&str; 7] = [
    "own limit",
    "other VMs",
    "own requests",
    "scheduler",
    "device",
    "slow device",
    "unknown",
];

/// Returns where the time of a VM's requests went, in [`PARTS`].
fn times(vm: &VmReport) -> VmTimes {
    let times = &vm.interference;
    let behind = times.behind.iter();
    VmTimes {
        vm: vm.name.clone(),
        requests: times.requests,
        parts: vec![
            times.own_limit_ns,
            times.others_ns,
            times.own_requests_ns,
            times.admission_ns + times.merged_wait_ns + times.deliberate_ns,
            times.service_ns,
            times.slow_device_ns,
            times.unknown_ns,
        ],
        behind: behind
            .map(|it| (it.vm.clone(), it.waited_ns + it.inside_ns))
            .collect(),
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
    let used = used.map(|(name, operation)| (name, distribution(&operation.latency)));
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
