//! `tidegate vcpu`: simulates a host's vCPU schedulers, and lists them.

mod compare;
mod list;

use std::time::Instant;

use anyhow::Result;
use tidegate_config::{ConfigErrors, Diagnostic, document};
use tidegate_report::{Align, Table};
use tidegate_units::format_duration;
use tidegate_units::human::{bytes_per_s, count, duration};
use tidegate_vcpu::report::{VcpuReport, VcpuVmReport};
use tidegate_vcpu::scenario::{self, Scenario, Simulation};

use crate::args::VcpuSimArgs;
use crate::file_kind::FileKind;
use crate::output::{self, Output};
use crate::problem::Problem;
use crate::progress::DelayedBar;

pub(super) use compare::compare;
pub(super) use list::list;

/// Nanoseconds per millisecond: the progress bar counts simulated milliseconds.
const NANOS_PER_MS: u64 = 1_000_000;

pub(super) fn sim(args: &VcpuSimArgs, out: Output) -> Result<()> {
    let scenario = load(args)?;
    let began = Instant::now();
    let mut simulation = Simulation::new(scenario);
    let total = simulation.scenario().frame.duration;
    let mut progress = DelayedBar::new(total.0 / NANOS_PER_MS, "simulating");
    while !simulation.is_over() {
        simulation.step();
        let now = simulation.world().now();
        progress.set(now.0 / NANOS_PER_MS, || {
            format!("{} of {}", duration(now.0), duration(total.0))
        });
    }
    drop(progress);
    let report = simulation.report();
    if out.is_json() {
        return out.json(&report);
    }
    out.text(&heading(&report))?;
    out.table(&table(&report))?;
    output::tell(format_args!(
        "{} context switches simulated in {:.2} s",
        count(report.switches),
        began.elapsed().as_secs_f64()
    ));
    Ok(())
}

fn load(args: &VcpuSimArgs) -> Result<Scenario> {
    let text = document::read_text(&args.file)
        .map_err(|what| ConfigErrors(vec![Diagnostic::error(what)]))?;
    let file = args.file.display().to_string();
    // Both kinds of file have a `host`. Other kinds have keys in common with this one, so that
    // the reader's errors say more.
    if let Some(kind @ FileKind::PlaceHosts) = FileKind::detect(&text) {
        return Err(kind.instead_of(FileKind::Vcpus, &args.file).into());
    }
    let loaded = scenario::read(&text, &file, args.scheduler)?;
    for diagnostic in loaded.warnings.iter().chain(&loaded.notes) {
        output::tell(format_args!("{diagnostic}\n"));
    }
    let mut scenario = loaded.config;
    if let Some(seed) = args.seed {
        scenario.frame.seed = seed;
    }
    if let Some(duration) = args.duration {
        if duration <= scenario.frame.warm_up {
            let what = format!(
                "{} is not longer than the warm-up of {}",
                format_duration(duration),
                format_duration(scenario.frame.warm_up)
            );
            let problem = Problem::new(what).at("--duration");
            return Err(problem.help("counting begins after the warm-up").into());
        }
        scenario.frame.duration = duration;
    }
    Ok(scenario)
}

fn heading(report: &VcpuReport) -> String {
    let counts = report.counts;
    let mut text = String::new();
    if !report.title.is_empty() {
        text += &format!("{}\n", report.title);
    }
    text += &format!(
        "{}, seed {}, {:.1} s (first {:.1} s not counted); {} credit resets",
        report.scheduler,
        report.seed,
        report.duration_s,
        report.warm_up_s,
        count(counts.resets)
    );
    // Counters of ISACS and of turns for I/O (see their modules).
    let others = [
        (counts.turns, "turns for I/O"),
        (counts.boosts, "CPU-BOOSTs"),
        (counts.balanced, "vCPUs migrated for load"),
        (counts.io_balanced, "migrated for I/O"),
        (counts.clamped, "IVCredits clamped"),
    ];
    for (n, what) in others.into_iter().filter(|&(n, _)| n > 0) {
        text += &format!(", {} {what}", count(n));
    }
    text + "\n\n"
}

fn table(report: &VcpuReport) -> Table {
    let mut table = Table::new([
        ("VM", Align::Left),
        ("PCPUS", Align::Right),
        ("EVENTS/S", Align::Right),
        ("RTT MEAN", Align::Right),
        ("RTT P50", Align::Right),
        ("RTT P99", Align::Right),
        ("RTT MAX", Align::Right),
        ("RECEIVED", Align::Right),
        ("WRITTEN", Align::Right),
        ("WORK TIME", Align::Right),
    ]);
    for vm in &report.vms {
        table.row(row(vm));
    }
    table
}

fn row(vm: &VcpuVmReport) -> [String; 10] {
    let or_none = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    let trips = vm.round_trips.as_ref().filter(|trips| trips.answered > 0);
    let ms = |ms: Option<f64>| or_none(ms.map(|ms| format!("{ms:.3} ms")));
    [
        vm.name.clone(),
        format!("{:.3}", vm.cpus),
        format!("{:.0}", vm.notified_per_s),
        ms(trips.map(|trips| trips.mean_ms)),
        ms(trips.map(|trips| trips.p50_ms)),
        ms(trips.map(|trips| trips.p99_ms)),
        ms(trips.map(|trips| trips.max_ms)),
        or_none(vm.received_bytes_per_s.map(bytes_per_s)),
        or_none(vm.file.map(|file| bytes_per_s(file.bytes_per_s))),
        or_none(vm.work_s.map(|s| format!("{s:.2} s"))),
    ]
}
