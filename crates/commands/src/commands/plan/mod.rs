//! `tidegate plan`: checks whether promises fit their devices.

mod device_vms;
mod nearest;
mod show;

use anyhow::Result;
use serde::Serialize;
use tidegate_api::objective::ObjectiveView;
use tidegate_config::objective;
use tidegate_core::fit::{self, Assumed, Fit, NearLimit, Resource};
use tidegate_core::objective::Objective;
use tidegate_core::policy::Policy;
use tidegate_server::control::view;
use tidegate_server::feasibility::MEASURE_AGAIN;
use tidegate_units::Thousandths;

use super::vm;
use crate::args::PlanArgs;
use crate::atomic_file;
use crate::output::{self, Output};
use crate::problem::Problem;
use device_vms::{Site, SiteVm};
use nearest::Nearest;

/// Plans all devices, prints the result, and fails if a promise does not fit.
pub(super) fn run(args: &PlanArgs, out: Output) -> Result<()> {
    let mut sites = device_vms::load(&args.file)?;
    if let Some(wanted) = &args.device {
        let known = || sites.iter().map(|site| site.name.as_str());
        if !known().any(|name| name == wanted) {
            let names: Vec<_> = known().collect();
            let problem = Problem::new(format!("no such device: {wanted:?}"));
            return Err(problem
                .help(format!("there are: {}", names.join(", ")))
                .into());
        }
        sites.retain(|site| site.name == *wanted);
    }
    match &args.vm {
        Some(name) => what_if(&mut sites, name, args)?,
        None if !vm::change(&args.parts).is_empty() => {
            let problem = Problem::new("an objective without a VM").help("add --vm NAME");
            return Err(problem.into());
        }
        None => {}
    }
    let assumed = Assumed {
        headroom: args.headroom.0,
        streams: args.streams.into(),
    };
    let plans: Vec<Plan> = sites.iter().map(|site| Plan::new(site, &assumed)).collect();
    if let Some(file) = &args.report {
        let page = show::page(&plans, &assumed, &args.file.display().to_string());
        atomic_file::write(file, page.as_bytes())?;
        output::tell(format_args!("wrote {}", file.display()));
    }
    if out.is_json() {
        out.json(&PlanReport::new(&plans))?;
    } else {
        out.text(&show::plans_text(&plans, &assumed, out.style()))?;
    }
    verdict(&plans)
}

/// Adds a VM to the plan, or changes the objective of an existing one.
fn what_if(sites: &mut [Site], name: &str, args: &PlanArgs) -> Result<()> {
    let there = (sites.iter().enumerate())
        .find_map(|(at, site)| Some((at, site.vms.iter().position(|vm| vm.name == name)?)));
    let (site, vm) = match (there, sites.len()) {
        (Some(found), _) => found,
        (None, 1) => {
            // With one device there is no doubt where a new VM goes.
            sites[0].vms.push(SiteVm::new(name));
            (0, sites[0].vms.len() - 1)
        }
        (None, _) => {
            let problem =
                Problem::new(format!("VM {name:?} is new, and there are several devices"));
            return Err(problem
                .at("--vm")
                .help("name its device: --device NAME")
                .into());
        }
    };
    let who = &mut sites[site].vms[vm];
    // Through JSON, because `objective::merge` takes a change as the API does.
    let change = serde_json::to_value(vm::change(&args.parts))?;
    who.objective = objective::merge(&who.objective, &change)?;
    // The VM's objective is no longer that of its table.
    who.table = None;
    sites[site].asked = Some(name.to_owned());
    Ok(())
}

/// Plan of a device.
struct Plan<'a> {
    site: &'a Site,
    /// Result of planning; `None` if the device has no profile, or one too imprecise to plan with.
    found: Option<Found>,
}

/// Result of planning a device.
struct Found {
    fit: Fit,
    /// Reason why the promises do not fit; empty if they do.
    reason: String,
    nearest: Nearest,
    /// Reservations and targets near a limit of their VM, where the policy enforces both.
    near_limits: Vec<NearLimit>,
}

impl Found {
    /// Returns what to do about promises that do not fit.
    fn help(&self) -> &'static str {
        let fit = &self.fit;
        if !self.nearest.is_empty() {
            "lower the promises as shown above, or move a VM to another device"
        } else if fit.capacity.is_some_and(|bytes| fit.disk_bytes > bytes) {
            "make disks smaller, or move a VM to another device"
        } else {
            "the envelopes of latency bounds and background I/Os alone take more than fits: lower \
             expects.iops, or move a VM to another device"
        }
    }
}

impl<'a> Plan<'a> {
    fn new(site: &'a Site, assumed: &Assumed) -> Plan<'a> {
        let found = site.device().map(|device| {
            let planned = site.planned();
            let fit = fit::evaluate(&device, &planned, assumed);
            let enforces = site.scheduling.policy.enforces();
            let near_limits = if enforces.limit && enforces.reservation {
                fit::near_limits(&device, &planned)
            } else {
                Vec::new()
            };
            Found {
                near_limits,
                reason: fit.reason(&planned),
                nearest: Nearest::search(site, &device, &fit, assumed),
                fit,
            }
        });
        Plan { site, found }
    }

    /// Returns true if all promises are known to fit, or there are none.
    fn fits(&self) -> bool {
        match &self.found {
            Some(found) => found.fit.fits(),
            None => !self.promises(),
        }
    }

    fn promises(&self) -> bool {
        self.site.vms.iter().any(SiteVm::is_promised_something)
    }
}

fn verdict(plans: &[Plan<'_>]) -> Result<()> {
    let Some(bad) = plans.iter().find(|plan| !plan.fits()) else {
        return Ok(());
    };
    let name = &bad.site.name;
    Err(match (&bad.found, bad.site.imprecision()) {
        (Some(found), _) => Problem::new(format!("device {name:?}: {}", found.reason))
            .help(found.help())
            .into(),
        (None, Some(what)) => Problem::new(format!("device {name:?}: {what}"))
            .help(MEASURE_AGAIN)
            .into(),
        (None, None) => Problem::new(format!(
            "device {name:?} has no profile, so its throughput is not known"
        ))
        .help(bad.site.profile_help())
        .into(),
    })
}

/// Result as JSON.
#[derive(Serialize)]
struct PlanReport<'a> {
    fits: bool,
    devices: Vec<DeviceView<'a>>,
}

#[derive(Serialize)]
struct DeviceView<'a> {
    device: &'a str,
    policy: &'a str,
    /// Queue depth.
    depth: u32,
    /// True if all promises fit; `null` if the device has no profile, or one too imprecise to plan
    /// with.
    fits: Option<bool>,
    /// Reason why the profile is too imprecise to plan with; absent otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    imprecise: Option<String>,
    /// `device time`, `latency` or `capacity`.
    short_of: Option<&'static str>,
    reason: Option<&'a str>,
    /// Device time that all promises need together at most, in per cent.
    needs_percent: Option<f64>,
    /// Device time that may be promised, in per cent.
    headroom_percent: Option<f64>,
    /// Longest time in nanoseconds by which a request within its reservation may be late.
    blocking_ns: Option<u64>,
    /// Largest number of I/Os in flight with which all latency bounds hold.
    depth_bound: Option<u32>,
    vms: Vec<VmView<'a>>,
    nearest: Option<Lowered<'a>>,
    nearest_of_all: Option<AllLowered<'a>>,
    /// Tables with a `count`, each with the largest number of VMs that fits with all others.
    nearest_counts: Vec<Fewer<'a>>,
    /// Reservations and targets that a limit of their VM may keep from being met.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    near_limits: Vec<NearLimitView<'a>>,
}

#[derive(Serialize)]
struct NearLimitView<'a> {
    vm: &'a str,
    reason: String,
    /// Changes that leave the rate.
    instead: String,
}

#[derive(Serialize)]
struct VmView<'a> {
    vm: &'a str,
    background: bool,
    reads_per_s: Option<f64>,
    writes_per_s: Option<f64>,
    sequential_percent: Option<f64>,
    size_bytes: Option<u32>,
    needs_percent: Option<f64>,
    latency: Option<LatencyView>,
}

#[derive(Serialize)]
struct LatencyView {
    asked_ns: u64,
    /// Longest latency in nanoseconds; `null`: the profile has no latencies.
    takes_ns: Option<u64>,
    alone_ns: Option<u64>,
    holds: bool,
    /// True if no rate is given for which the bound is promised.
    best_effort: bool,
}

#[derive(Serialize)]
struct Lowered<'a> {
    vm: &'a str,
    objective: ObjectiveView,
}

#[derive(Serialize)]
struct AllLowered<'a> {
    /// Part of all reservations and targets.
    percent: f64,
    /// Length of all latency bounds, in per cent of those asked for.
    latency_percent: u32,
    vms: Vec<Lowered<'a>>,
}

#[derive(Serialize)]
struct Fewer<'a> {
    vm: &'a str,
    count: usize,
}

impl<'a> PlanReport<'a> {
    fn new(plans: &'a [Plan<'a>]) -> PlanReport<'a> {
        PlanReport {
            fits: plans.iter().all(Plan::fits),
            devices: plans.iter().map(DeviceView::new).collect(),
        }
    }
}

/// Returns the name of a resource.
fn resource(resource: Resource) -> &'static str {
    match resource {
        Resource::DeviceTime => "device time",
        Resource::Latency => "latency",
        Resource::Capacity => "capacity",
    }
}

fn percent(time_ps: u64) -> f64 {
    time_ps as f64 * 100.0 / fit::SECOND_PS as f64
}

fn lowered<'a>(site: &'a Site, at: usize, objective: &Objective) -> Lowered<'a> {
    Lowered {
        vm: &site.vms[at].name,
        objective: view::objective(objective),
    }
}

impl<'a> DeviceView<'a> {
    fn new(plan: &'a Plan<'a>) -> DeviceView<'a> {
        let (site, found) = (plan.site, plan.found.as_ref());
        let fit = found.map(|found| &found.fit);
        let vms = site.vms.iter().enumerate();
        DeviceView {
            device: &site.name,
            imprecise: site.imprecision(),
            policy: site.scheduling.policy.name(),
            depth: site.scheduling.depth,
            fits: fit.map(Fit::fits),
            short_of: fit.and_then(Fit::short_of).map(resource),
            reason: found
                .map(|found| found.reason.as_str())
                .filter(|text| !text.is_empty()),
            needs_percent: fit.map(|fit| percent(fit.time_ps)),
            headroom_percent: fit.map(|fit| percent(fit.budget_ps)),
            blocking_ns: fit.map(|fit| fit.blocking.0),
            depth_bound: fit.map(|fit| fit.depth_bound),
            vms: vms.map(|(at, vm)| VmView::new(vm, fit, at)).collect(),
            nearest: found.and_then(|found| {
                let (at, objective) = found.nearest.of_one.as_ref()?;
                Some(lowered(site, *at, objective))
            }),
            nearest_of_all: found.and_then(|found| {
                let all = found.nearest.of_all.as_ref()?;
                let vms = all.objectives.iter().enumerate();
                Some(AllLowered {
                    // Thousandths to percent.
                    percent: f64::from(all.floors) / 10.0,
                    latency_percent: all.bounds,
                    vms: vms
                        .map(|(at, objective)| lowered(site, at, objective))
                        .collect(),
                })
            }),
            nearest_counts: found.map_or_else(Vec::new, |found| {
                let counts = found.nearest.counts.iter();
                counts.map(|&(ref vm, count)| Fewer { vm, count }).collect()
            }),
            near_limits: found.map_or_else(Vec::new, |found| {
                let near = found.near_limits.iter();
                near.map(|near| NearLimitView {
                    vm: &site.vms[near.vm].name,
                    reason: near.reason(),
                    instead: near.instead(),
                })
                .collect()
            }),
        }
    }
}

impl<'a> VmView<'a> {
    fn new(vm: &'a SiteVm, fit: Option<&Fit>, at: usize) -> VmView<'a> {
        let need = fit.map(|fit| &fit.needs[at]);
        let load = need.map(|need| &need.load);
        let bound = need.and_then(|need| need.bound);
        VmView {
            vm: &vm.name,
            background: vm.background,
            // Millionths of a request per second.
            reads_per_s: load.map(|load| load.reads as f64 / 1e6),
            writes_per_s: load.map(|load| load.writes as f64 / 1e6),
            // Thousandths to percent.
            sequential_percent: load.map(|load| f64::from(load.sequential) / 10.0),
            size_bytes: load.map(|load| load.size),
            needs_percent: need.map(|need| percent(need.time_ps)),
            latency: bound.map(|bound| LatencyView {
                asked_ns: bound.asked.0,
                takes_ns: bound.takes.map(|takes| takes.0),
                alone_ns: bound.alone.map(|alone| alone.0),
                holds: bound.holds(),
                best_effort: bound.best_effort,
            }),
        }
    }
}

/// Returns device time as thousandths of a second, rounded up.
fn thousandths(time_ps: u64) -> Thousandths {
    let part = time_ps.div_ceil(fit::SECOND_PS / 1000);
    // Time without bound is shown as the largest number instead of failing.
    Thousandths(u32::try_from(part).unwrap_or(u32::MAX))
}
