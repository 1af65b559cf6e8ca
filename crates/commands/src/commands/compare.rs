//! `tidegate compare`: one scenario under several policies, with the latency of a VM over time.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use anyhow::Result;
use serde::Serialize;
use tidegate_core::policy::Policy;
use tidegate_core::splitting::MaxIoShared;
use tidegate_core::time::Nanos;
use tidegate_policies::policy::PolicySpec;
use tidegate_report::{Align, Axis, Cell, Plot, Series, Table, Tone, Unit};
use tidegate_sim::report::{Report, VmReport};
use tidegate_sim::scenario::{Scenario, VmSpec};
use tidegate_sim::world::World;
use tidegate_units::human::duration;

use crate::args::CompareArgs;
use crate::output::Output;
use crate::plot_output;
use crate::problem::Problem;
use crate::progress;
use crate::rate_table::{self, mb_per_s};
use crate::simulate::{self, Changes, Ready};

/// Default number of points of a curve.
const CURVE_POINTS: u64 = 100;

/// Scenario under one policy.
struct Variant {
    /// Name in tables and plots.
    name: String,
    /// Name of the policy.
    policy: String,
    /// True if the queue depth is fixed and I/Os are not split for sharing.
    fixed_depth: bool,
    scenario: Scenario,
}

/// Results of all variants.
#[derive(Serialize)]
struct Comparison {
    /// VM whose latency over time is given.
    vm: String,
    /// Variants in the order of the command line, those of fixed depth last.
    variants: Vec<Outcome>,
}

/// Results of one variant.
#[derive(Serialize)]
struct Outcome {
    /// Name in tables and plots.
    name: String,
    /// Name of the policy.
    policy: String,
    /// True if the queue depth was fixed and I/Os were not split for sharing.
    fixed_depth: bool,
    /// Latency of the compared VM in each interval.
    latency: Vec<Latency>,
    /// Report over the whole time, as `sim` gives it.
    report: Report,
}

/// Latency of the VM in one interval.
#[derive(Serialize)]
struct Latency {
    /// End of the interval, in seconds.
    time_s: f64,
    /// 99th percentile in nanoseconds; `None`: no request completed.
    p99_ns: Option<u64>,
}

pub(super) fn run(args: &CompareArgs, out: Output) -> Result<()> {
    let variants = variants(args)?;
    let first = &variants[0].scenario;
    let vm = compared_vm(first, args)?;
    // At least 1 ns: a duration below `CURVE_POINTS` nanoseconds would give an interval of 0.
    let interval = (args.interval).unwrap_or(Nanos((first.frame.duration.0 / CURVE_POINTS).max(1)));
    let plot = empty_plot(first, vm, interval);
    let comparison = Comparison {
        vm: vm.name.clone(),
        variants: simulate_all(&variants, &vm.name, interval),
    };
    let plots = [with_curves(plot, &comparison.variants)];
    plot_output::write_svg(&plots, &args.plots)?;
    if out.is_json() {
        return out.json(&comparison);
    }
    out.table(&table(&comparison.variants))?;
    if args.plot {
        out.text("\n")?;
        plot_output::draw(out, &plots, args.plots.ascii)?;
    }
    Ok(())
}

/// Returns the variants that the options ask for.
fn variants(args: &CompareArgs) -> Result<Vec<Variant>> {
    let load = |policy: &PolicySpec| {
        simulate::load(
            &args.file,
            &Changes {
                policy: Some(policy.clone()),
                seed: args.seed,
                ..Changes::from(&args.changes)
            },
        )
    };
    let mut variants = Vec::new();
    let mut notes_printed = false;
    let mut tell = |ready: &Ready| {
        // Notes are the same for all variants. Warnings differ by policy and are left out, because
        // the table shows missed promises.
        if !std::mem::replace(&mut notes_printed, true) {
            ready.notes.iter().for_each(crate::output::tell);
        }
    };
    for policy in &args.policies {
        let ready = load(policy)?;
        tell(&ready);
        variants.push(Variant {
            name: policy.name().to_owned(),
            policy: policy.name().to_owned(),
            fixed_depth: false,
            scenario: ready.scenario,
        });
    }
    for policy in &args.fixed_depth {
        let ready = load(policy)?;
        tell(&ready);
        let mut scenario = ready.scenario;
        // Both keys, because the automatic choice of either would hide the effect of the fixed
        // depth.
        for device in &mut scenario.devices {
            device.scheduling.adaptive_depth = false;
            device.scheduling.max_io_shared = MaxIoShared::Off;
        }
        // One depth names the variant only if all devices have it.
        let mut depths = scenario.devices.iter().map(|it| it.scheduling.depth);
        let depth = depths
            .next()
            .filter(|&depth| depths.all(|other| other == depth));
        let name = depth.map_or("fixed depth".to_owned(), |depth| format!("depth {depth}"));
        variants.push(Variant {
            name: format!("{}, {name}", policy.name()),
            policy: policy.name().to_owned(),
            fixed_depth: true,
            scenario,
        });
    }
    Ok(variants)
}

/// Returns the VM whose latency is compared: that of --vm, else the first with a latency bound,
/// else the first.
fn compared_vm<'a>(scenario: &'a Scenario, args: &CompareArgs) -> Result<&'a VmSpec> {
    let vms = &scenario.vms;
    if let Some(name) = &args.vm {
        let names: Vec<&str> = vms.iter().map(|it| it.name.as_str()).collect();
        return vms.iter().find(|it| it.name == *name).ok_or_else(|| {
            let problem = Problem::new(format!("no such VM: {name:?}")).at("--vm");
            problem.help(format!("one of {}", names.join(", "))).into()
        });
    }
    let bound = vms.iter().find(|it| it.objective.latency.is_some());
    let vm = bound.or(vms.first());
    vm.ok_or_else(|| Problem::new("no VM: at least one is required").into())
}

/// Returns the plot without its curves: axes, the promised bound, and the times of other VMs.
fn empty_plot(scenario: &Scenario, vm: &VmSpec, interval: Nanos) -> Plot {
    let title = match scenario.frame.title.as_str() {
        "" => format!("Latency of {}", vm.name),
        title => format!("{title}: latency of {}", vm.name),
    };
    let mut plot = Plot::new(
        title,
        Axis::linear("time", Unit::Seconds).including(0.0),
        Axis::log10(
            format!("latency, p99 of each {}", duration(interval.0)),
            Unit::Nanos,
        ),
    );
    plot.labelled();
    if let Some(bound) = vm.objective.latency {
        plot.level(bound.0 as f64, format!("promised: {}", duration(bound.0)));
    }
    let end = scenario.frame.duration;
    for other in scenario.vms.iter().filter(|it| it.device == vm.device) {
        if let Some((from, to)) = active_time(other, end).filter(|_| other.name != vm.name) {
            let name = format!("{} active", other.name);
            plot.stretch(from.as_secs_f64(), to.as_secs_f64(), name);
        }
    }
    plot
}

/// Returns the time in which a VM with one workload is active; `None`: the whole run, or not known.
fn active_time(vm: &VmSpec, end: Nanos) -> Option<(Nanos, Nanos)> {
    // Several workloads may be active at different times, which one stretch cannot show.
    let [workload] = vm.workloads.as_slice() else {
        return None;
    };
    let from = vm.arrives + workload.start;
    let to = workload.runtime.map_or(end, |runtime| from + runtime);
    let to = to.min(vm.leaves.unwrap_or(end)).min(end);
    // A VM that is active throughout needs no mark in the plot.
    ((from > Nanos::ZERO || to < end) && from < to).then_some((from, to))
}

/// Simulates all variants in parallel on all CPUs.
fn simulate_all(variants: &[Variant], vm: &str, interval: Nanos) -> Vec<Outcome> {
    let cores = thread::available_parallelism().map_or(1, |n| n.get());
    let next = AtomicUsize::new(0);
    let outcomes: Mutex<Vec<Option<Outcome>>> = Mutex::new(variants.iter().map(|_| None).collect());
    let total = variants.iter().map(|it| it.scenario.frame.duration.0);
    // Virtual milliseconds, summed over all variants.
    let bar = progress::bar(total.sum::<u64>() / 1_000_000, "simulating");
    thread::scope(|scope| {
        for _ in 0..cores.min(variants.len()) {
            scope.spawn(|| {
                while let Some((i, variant)) = {
                    let i = next.fetch_add(1, Ordering::Relaxed);
                    variants.get(i).map(|variant| (i, variant))
                } {
                    let outcome = simulate(variant, vm, interval, |ms| bar.inc(ms));
                    let mut outcomes = outcomes.lock().expect("no simulation panics");
                    // By index, so that the results are in the order of the command line.
                    outcomes[i] = Some(outcome);
                }
            });
        }
    });
    bar.finish_and_clear();
    let outcomes = outcomes.into_inner().expect("no simulation panics");
    let outcomes = outcomes.into_iter();
    outcomes
        .map(|it| it.expect("every variant was simulated"))
        .collect()
}

/// Simulates a variant; calls `advanced` with each step of virtual time in milliseconds.
fn simulate(variant: &Variant, vm: &str, interval: Nanos, advanced: impl Fn(u64)) -> Outcome {
    let mut world = World::new(variant.scenario.clone(), Some(interval));
    let mut latency = Vec::new();
    let mut at_ms = 0;
    while !world.is_over() {
        world.step(&mut |row| {
            if row.vm == vm {
                latency.push(Latency {
                    time_s: row.time_s,
                    p99_ns: row.rates.latency_p99_ns,
                });
            }
        });
        let now_ms = world.now().0 / 1_000_000;
        advanced(now_ms - at_ms);
        at_ms = now_ms;
    }
    Outcome {
        name: variant.name.clone(),
        policy: variant.policy.clone(),
        fixed_depth: variant.fixed_depth,
        latency,
        report: world.report(),
    }
}

fn with_curves(mut plot: Plot, outcomes: &[Outcome]) -> Plot {
    for outcome in outcomes {
        let points = outcome.latency.iter();
        // An interval without requests has no latency, and leaves a gap.
        let points = points.filter_map(|it| Some((it.time_s, it.p99_ns? as f64)));
        plot.add(Series::line(&outcome.name).points(points).unmarked());
    }
    plot
}

/// Returns the table of rates, latencies and verdicts, by VM and variant.
fn table(outcomes: &[Outcome]) -> Table {
    let promises = [("PROMISES", Align::Left)];
    let mut table = Table::new(rate_table::BY_POLICY.into_iter().chain(promises));
    let vms = outcomes.first().map_or(0, |it| it.report.vms.len());
    for i in 0..vms {
        for (n, outcome) in outcomes.iter().enumerate() {
            let vm = &outcome.report.vms[i];
            let shown = |ns: Option<u64>| ns.map_or("-".to_owned(), duration);
            table.row([
                Cell::from(if n == 0 { vm.name.as_str() } else { "" }).tone(Tone::Strong),
                outcome.name.as_str().into(),
                format!("{:.1}", vm.rates.iops).into(),
                mb_per_s(vm.rates.bytes_per_s).into(),
                shown(vm.rates.latency_p50_ns).into(),
                shown(vm.rates.latency_p99_ns).into(),
                verdict(vm),
            ]);
        }
    }
    table
}

/// Returns the verdict on all promises of a VM: `kept`, or the missed parts with their seconds.
fn verdict(vm: &VmReport) -> Cell {
    let missed = vm.promises.iter().filter(|it| it.kept == Some(false));
    let missed = missed.map(|it| {
        let (missed, judged) = (it.missed_s, it.judged_s);
        format!("{} in {missed} of {judged} s", it.part)
    });
    let missed: Vec<String> = missed.collect();
    if !missed.is_empty() {
        Cell::from(format!("missed: {}", missed.join(", "))).tone(Tone::Bad)
    } else if vm.promises.iter().any(|it| it.kept == Some(true)) {
        Cell::from("kept").tone(Tone::Good)
    } else {
        Cell::from("-")
    }
}
