//! Runs of a mix in a cell of the grid under a policy.

use super::device::{Cell, PromiseDevice};
use super::judge::{Judge, Part, VmJudge};
use super::mix::Mix;
use super::outcome::{Measured, Outcome, Promise, Unit, VmOutcome};
use crate::ExperimentError;
use tidegate_config::device::Scheduling;
use tidegate_core::fit::{self, Assumed, PlannedVm};
use tidegate_core::objective::{Limit, Objective};
use tidegate_core::time::Nanos;
use tidegate_policies::policy::PolicySpec;
use tidegate_sim::report::VmReport;
use tidegate_sim::scenario::Scenario;
use tidegate_sim::world::World;
use tidegate_units::format_duration;
use tidegate_workload::spec::{Flow, Workload};

/// Largest number of judged seconds.
pub const SECONDS: u64 = 200;
/// Number of requests after which a run ends, at the end of the second.
pub const REQUESTS: u64 = 2_000_000;
/// Smallest number of judged seconds, whatever the number of requests.
const FEWEST_SECONDS: u64 = 5;

/// Points of device time by which a VM may be short of its share and the promise still count as
/// kept. The comparison of two policies is finer: it ignores only one point.
const SHARE_POINTS: f64 = 2.0;

/// Device time by the profile, in seconds per second, up to which the profile measures shares in a
/// cell of a flash disk where the scheduler does not have it. A flash disk does more than its
/// profile says only by I/Os that the profile overprices, such as random writes to a small part of
/// it. A scheduler without the profile shares what the disk really takes for them, which is not
/// known here.
const METER_WORK_MAX: f64 = 1.25;

/// Run of a mix in a cell.
#[derive(Clone, Debug)]
pub struct Run {
    /// Policy of the device.
    pub policy: PolicySpec,
    /// True for `adaptive_depth` and `max_io_shared = "64 KiB"`.
    pub adaptive_queue: bool,
    /// Seed of all random numbers.
    pub seed: u64,
    /// Largest number of judged seconds.
    pub seconds: u64,
    /// Number of requests after which the run ends.
    pub requests: u64,
    /// Keys of promises ([`Promise::key`]) that must be kept: the run is aborted as soon as one of
    /// them cannot be kept any more.
    pub needed: Vec<String>,
}

/// Runs a mix in a cell.
///
/// # Errors
/// When the mix is not valid, or the policy is not available in the cell.
pub fn run(mix: &Mix, cell: &Cell, run: &Run) -> Result<Outcome, ExperimentError> {
    let scenario = mix.scenario(
        cell,
        &run.policy,
        (run.adaptive_queue, run.seconds, run.seed),
    )?;
    Ok(simulate(scenario, &cell.device, run))
}

/// Reason why the promises of a scenario do not fit its device together, by the device's profile;
/// empty if they fit.
fn infeasible(scenario: &Scenario, device: &PromiseDevice) -> String {
    let entry = &scenario.devices[0];
    let scheduling = Scheduling {
        profile: Some(device.profile.clone()),
        ..entry.scheduling.clone()
    };
    let planned = scheduling.planned(Some(entry.model.spec().capacity));
    let planned = planned.expect("profiles of the catalogue are precise");
    let vms = scenario.vms.iter().map(|vm| PlannedVm {
        background: vm.background,
        disk_bytes: vm.disk_size,
        ..PlannedVm::new(&vm.name, &vm.objective)
    });
    let vms: Vec<PlannedVm<'_>> = vms.collect();
    fit::evaluate(&planned, &vms, &Assumed::default()).reason(&vms)
}

fn simulate(scenario: Scenario, device: &PromiseDevice, run: &Run) -> Outcome {
    let profiled = scenario.devices[0].scheduling.profile.is_some();
    let infeasible = infeasible(&scenario, device);
    let objectives: Vec<(Objective, bool)> = (scenario.vms.iter())
        .map(|vm| {
            let objective = Objective {
                // A background process takes no part of its group's share.
                group: vm.objective.group.filter(|_| !vm.background),
                ..vm.objective
            };
            let shares = !vm.background && vm.workloads.iter().all(is_backlogged);
            (objective, shares)
        })
        .collect();
    let names: Vec<String> = scenario.vms.iter().map(|vm| vm.name.clone()).collect();
    let mut judge = Judge::new(device, &objectives);
    let mut world = World::new(scenario, None);
    world.keep_requests();
    let (mut events, mut second) = (Vec::new(), Nanos::ZERO);
    let mut given_up = Vec::new();
    while !world.is_over() {
        world.step(&mut |_| {});
        // Grids have one device, which is device 0.
        world.take_requests(0, &mut events);
        if world.now() != second + Nanos::SECOND {
            // A step ends between whole seconds only where the warm-up does.
            continue;
        }
        second = world.now();
        judge.second(second, &events, second > device.warm_up);
        events.clear();
        let judged = judge.seconds();
        // A mix of many small requests on flash would run for minutes otherwise.
        if judged >= FEWEST_SECONDS && world.answered() >= run.requests {
            break;
        }
        given_up = unkeepable_promises(&judge, &names, run);
        if !given_up.is_empty() {
            break;
        }
    }
    let report = world.report();
    let seconds = judge.seconds();
    let total: u128 = judge.vms().iter().map(|vm| vm.counted().cost_ps).sum();
    // Picoseconds become seconds.
    let work = per_s(total as f64 / 1e12, seconds);
    let judges_shares = profiled || !device.flash || work <= METER_WORK_MAX;
    let vms = judge.vms().iter().zip(&report.vms).zip(&objectives);
    Outcome {
        seconds,
        requests: report.requests,
        given_up,
        work,
        infeasible,
        vms: vms
            .map(|((judge, report), (objective, _))| {
                let mut vm = vm_outcome(judge, report, objective, (seconds, total));
                if !judges_shares {
                    (vm.promises.iter_mut())
                        .filter(|promise| promise.part == "share")
                        .for_each(|share| (share.kept, share.measured) = (None, None));
                }
                vm
            })
            .collect(),
    }
}

/// True if a workload issues the next request as soon as one is answered.
fn is_backlogged(workload: &Workload) -> bool {
    matches!(workload.flow, Flow::Closed { think: None, .. })
}

/// Keys of needed promises that cannot be kept any more.
fn unkeepable_promises(judge: &Judge, names: &[String], run: &Run) -> Vec<String> {
    // A complete run is wanted, whatever is missed.
    if run.needed.is_empty() {
        return Vec::new();
    }
    let mut unkeepable = Vec::new();
    for (vm, name) in judge.vms().iter().zip(names) {
        let parts = [
            ("floor", &vm.floor_part),
            ("target", &vm.floor_part),
            ("latency", &vm.latency_part),
            ("limit", &vm.limit_part),
        ];
        for (part, judged) in parts {
            let key = Promise::key(name, part);
            // More than 1 % of the longest possible run was missed.
            if judged.missed * 100 > run.seconds && run.needed.contains(&key) {
                unkeepable.push(key);
            }
        }
    }
    unkeepable
}

fn per_s(amount: f64, seconds: u64) -> f64 {
    amount / seconds.max(1) as f64
}

fn vm_outcome(
    judge: &VmJudge,
    report: &VmReport,
    objective: &Objective,
    (seconds, total): (u64, u128),
) -> VmOutcome {
    let counted = judge.counted();
    let iops = per_s(counted.requests as f64, seconds);
    let bytes_per_s = per_s(counted.bytes as f64, seconds);
    let p99_ns = judge.times().quantile(0.99).0;
    let served = (per_s(counted.floor_ops, seconds), bytes_per_s);
    let mut promises = promises(judge, report, objective, served);
    promises.extend(share(judge, seconds));
    promises.extend(transfers(report));
    VmOutcome {
        name: report.name.clone(),
        iops,
        bytes_per_s,
        p50_ns: judge.times().quantile(0.5).0,
        p99_ns,
        bound_ns: objective.latency.map(|bound| bound.0),
        device_time: counted.cost_ps as f64 / total.max(1) as f64,
        promises,
    }
}

/// Promises of a VM that are judged by the second. `iops`: as the floor counts requests.
fn promises(
    judge: &VmJudge,
    report: &VmReport,
    objective: &Objective,
    (iops, bytes_per_s): (f64, f64),
) -> Vec<Promise> {
    let mut promises = Vec::new();
    let served = |rate: &tidegate_core::objective::Rate| {
        let ops = rate.ops.map(|ops| iops / ops.per_s as f64);
        let bytes = rate.bytes_per_s.map(|it| bytes_per_s / it as f64);
        // The judge counts a second as served if either figure is reached, and so does this
        // measure. More than was promised is no better than all of it.
        let value = ops.unwrap_or(0.0).max(bytes.unwrap_or(0.0)).min(1.0);
        let unit = Unit::Served;
        Some(Measured { value, unit })
    };
    if !objective.target.is_none() {
        // Beta where there were several intervals, else the error of the only one.
        let beta = report.precision.absolute_error_percent;
        let beta = beta.or(report.precision.error_percent.map(f64::abs));
        let unit = Unit::Precision;
        let measured = beta.map(|value| Measured { value, unit });
        let promised = objective.target.rounded();
        promises.push(promise("target", promised, &judge.floor_part, measured));
    } else if !objective.reservation.is_none() {
        let promised = objective.reservation.rounded();
        let measured = served(&objective.reservation);
        promises.push(promise("floor", promised, &judge.floor_part, measured));
    }
    if let Some(bound) = objective.latency {
        let unit = Unit::P99;
        let value = judge.times().quantile(0.99).0 as f64;
        let measured = Some(Measured { value, unit });
        let promised = format_duration(bound);
        promises.push(promise("latency", promised, &judge.latency_part, measured));
    }
    if objective.limit != Limit::NONE {
        let limit = &objective.limit;
        let rates = [
            ("", limit.total),
            ("read ", limit.read),
            ("write ", limit.write),
        ];
        let rates = rates.iter().filter(|(_, rate)| !rate.is_none());
        let rates: Vec<String> = rates
            .map(|(of, rate)| format!("{of}{}", rate.rounded()))
            .collect();
        promises.push(promise("limit", rates.join(", "), &judge.limit_part, None));
    }
    promises
}

/// Share of a VM with a weight of its own; `None`: no such weight, or too few seconds to judge.
fn share(judge: &VmJudge, seconds: u64) -> Option<Promise> {
    let (had, due, judged) = judge.share(seconds)?;
    let points = 100.0 * (had - due);
    let value = points.abs();
    let unit = Unit::Points;
    Some(Promise {
        part: "share".to_owned(),
        promised: format!("{:.1} %", 100.0 * due),
        seconds: judged,
        missed: 0,
        devices: 0,
        // More than its share is no harm to the VM.
        kept: Some(points >= -SHARE_POINTS),
        measured: Some(Measured { value, unit }),
    })
}

fn promise(part: &str, promised: String, judged: &Part, measured: Option<Measured>) -> Promise {
    Promise {
        part: part.to_owned(),
        promised,
        seconds: judged.seconds,
        missed: judged.missed,
        devices: judged.devices,
        kept: judged.is_kept(),
        measured,
    }
}

/// Deadline transfers of a VM; `None`: it has none.
fn transfers(report: &VmReport) -> Option<Promise> {
    let deadlines = report.responses.as_ref()?.deadlines.as_ref()?;
    let judged = deadlines.met + deadlines.missed;
    Some(Promise {
        part: "transfer".to_owned(),
        promised: "in time".to_owned(),
        seconds: judged,
        missed: deadlines.missed,
        devices: 0,
        kept: (judged > 0).then_some(deadlines.missed == 0),
        measured: None,
    })
}

#[cfg(test)]
mod tests {
    use super::super::device::devices;
    use super::super::mix::mixes;
    use super::*;

    fn outcome(mix: &str, policy: &str, needed: &[String]) -> Outcome {
        outcome_on("ssd-sata-300gb", mix, policy, needed)
    }

    fn outcome_on(model: &str, mix: &str, policy: &str, needed: &[String]) -> Outcome {
        for_seconds(10, (model, true), mix, policy, needed)
    }

    /// Outcome on a device, `true` with its profile.
    fn for_seconds(
        seconds: u64,
        (model, profiled): (&str, bool),
        mix: &str,
        policy: &str,
        needed: &[String],
    ) -> Outcome {
        let mix = mixes().iter().find(|it| it.name == mix);
        let mix = mix.expect("it is a mix");
        run_mix(mix, seconds, (model, profiled), policy, needed)
    }

    fn run_mix(
        mix: &Mix,
        seconds: u64,
        (model, profiled): (&str, bool),
        policy: &str,
        needed: &[String],
    ) -> Outcome {
        let all = devices().expect("they are read");
        let device = all.into_iter().find(|it| it.model == model);
        let cell = Cell {
            device: device.expect("it is among them"),
            profiled,
            rtt_us: 100,
        };
        let settings = Run {
            policy: PolicySpec::named(policy).expect("it is registered"),
            adaptive_queue: false,
            seed: 1,
            seconds,
            requests: 1_000_000,
            needed: needed.to_vec(),
        };
        run(mix, &cell, &settings).expect("it runs")
    }

    #[test]
    fn a_policy_without_latencies_misses_the_bound_and_is_given_up_where_it_is_needed() {
        let fifo = outcome("p1-latency", "fifo", &[]);
        assert_eq!((fifo.seconds, fifo.given_up.len()), (10, 0));
        assert!(fifo.missed().contains(&"db.latency".to_owned()), "{fifo:?}");
        let (db, bulk) = (&fifo.vms[0], &fifo.vms[1]);
        assert!(db.p99_ns > 50_000_000 && bulk.promises.is_empty());
        assert!((db.device_time + bulk.device_time - 1.0).abs() < 1e-9);
        // The cost of requests is their time at a saturated device.
        assert!((0.9..1.1).contains(&fifo.work), "{}", fifo.work);
        let needed = ["db.latency".to_owned()];
        let given_up = outcome("p1-latency", "fifo", &needed);
        assert_eq!(given_up.given_up, needed);
        assert!(given_up.seconds < 3, "{}", given_up.seconds);
    }

    #[test]
    fn a_vm_that_reads_large_takes_the_others_shares_under_fifo() {
        let missed = outcome("p1-floors", "fifo", &[]).missed();
        let shares = ["db.floor", "db.share", "web.share"];
        assert_eq!(missed, shares.map(str::to_owned));
    }

    #[test]
    fn the_default_policy_keeps_weights_on_a_disk_that_orders_its_queue() {
        let kept = outcome_on("hdd-7200-1tb", "p1-floors", "slo", &[]);
        assert_eq!(kept.missed(), [""; 0], "{kept:?}");
        let fifo = outcome_on("hdd-7200-1tb", "p1-floors", "fifo", &[]);
        assert!(kept.work > 0.9 * fifo.work, "{} {}", kept.work, fifo.work);
        assert_eq!(kept.infeasible, "");
    }

    /// The charge of a sequential stream's parts and the cost that is learnt of them must be of the
    /// same kind, though I/Os of other VMs go in between.
    #[test]
    fn shares_are_kept_beside_a_stream_whose_cost_is_learnt() {
        let kept = for_seconds(15, ("ssd-sata-300gb", false), "p1-floors", "slo", &[]);
        let shares = ["db.share", "web.share"].map(str::to_owned);
        assert!(
            shares.iter().all(|share| kept.kept().contains(share)),
            "{kept:?}"
        );
    }

    #[test]
    fn no_share_is_judged_by_a_profile_that_overprices_the_mix() {
        let shares = |profiled| {
            let device = ("ssd-sata-300gb", profiled);
            let outcome = for_seconds(5, device, "p2-background", "slo", &[]);
            let promises = outcome.vms.into_iter().flat_map(|vm| vm.promises);
            let shares: Vec<_> = promises.filter(|it| it.part == "share").collect();
            (outcome.work, shares)
        };
        let (work, unknown) = shares(false);
        assert!(work > METER_WORK_MAX, "{work}");
        assert!(!unknown.is_empty() && unknown.iter().all(|it| it.kept.is_none()));
        let (_, known) = shares(true);
        assert!(known.iter().any(|it| it.kept == Some(true)), "{known:?}");
    }

    /// The transfers have 4 requests outstanding each beside a stream with 32.
    #[test]
    fn transfers_end_in_time_on_a_disk_that_orders_its_queue() {
        let kept = for_seconds(130, ("hdd-7200-1tb", true), "batch-deadline", "slo", &[]);
        assert_eq!((kept.missed(), kept.infeasible.as_str()), (vec![], ""));
        let in_time = |vm| kept.kept().contains(&Promise::key(vm, "transfer"));
        assert!(in_time("etl") && in_time("render"), "{kept:?}");
    }

    #[test]
    fn promises_beyond_the_device_are_infeasible_by_the_plan() {
        let demo = outcome_on("hdd-7200-1tb", "demo", "slo", &[]);
        assert!(demo.infeasible.contains("of the device"), "{demo:?}");
    }

    #[test]
    fn limits_are_judged_by_what_was_answered() {
        let limited = outcome("backup-window", "limit", &[]);
        let kept = limited.kept();
        for vm in ["nightly-1", "nightly-2", "nightly-3"] {
            assert!(kept.contains(&Promise::key(vm, "limit")), "{kept:?}");
        }
        let free = outcome("backup-window", "fifo", &[]).missed();
        assert!(free.contains(&"nightly-1.limit".to_owned()), "{free:?}");
    }

    #[test]
    fn runs_of_several_seeds_keep_what_each_of_them_keeps() {
        let run = outcome("p1-latency", "fifo", &[]);
        let mut other = run.clone();
        let promise = &mut other.vms[0].promises[1];
        (promise.kept, promise.missed) = (Some(true), 0);
        let merged = Outcome::merged(&[other, run.clone()]);
        assert_eq!(merged.seconds, 20);
        assert_eq!(merged.missed(), run.missed());
        let seconds: Vec<u64> = merged.vms[0].promises.iter().map(|it| it.seconds).collect();
        assert_eq!(seconds, [20, 20]);
    }
}
