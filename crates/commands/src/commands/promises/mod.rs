//! `tidegate promises`: tests which promises a policy keeps, on a grid of devices, mixes and round
//! trips.
//!
//! ```text
//!   grid: device x profile x mix x round trip --> judge: the policy, then all others (--compare)
//!                                                    |  results file, a line each
//!                                                    v
//!                                                  show: a table a cell, failing cells at the end
//! ```

mod judge;
mod mixes;
mod show;

use std::sync::Mutex;
use std::thread;

use anyhow::Result;
use tidegate_config as config;
use tidegate_core::policy::Policy;
use tidegate_experiments::promises::{Cell, PromiseDevice, devices};
use tidegate_policies::policy::PolicySpec;

use self::judge::{Judged, Place, Store};
use crate::args::{Profiled, PromisesArgs};
use crate::output::{self, Output};
use crate::problem::Problem;
use crate::seeds;

/// Exit status if a cell fails.
const FAILED: i32 = 1;

pub(super) fn run(args: &PromisesArgs, out: Output) -> Result<()> {
    if args.steered {
        let what = "`--steered` is the old name of `--adaptive`, accepted for one release";
        output::tell(format_args!("note: {what}"));
    }
    let grid = grid(args)?;
    if args.scenario {
        let place = &grid[0];
        let run = (args.is_adaptive(), args.seconds, args.seeds.0[0]);
        return Ok(out.text(&place.mix.text(&place.cell, run)?)?);
    }
    let policy = policy(args)?;
    let build = seeds::build()?;
    let store = Store::open(args, build)?;
    let judged = judge_all(&grid, &policy, args, store)?;
    show::show(&judged, args.compare, out)?;
    if args.compare && judged.iter().any(|one| !one.verdict.is_good()) {
        std::process::exit(FAILED);
    }
    Ok(())
}

/// Returns the policy to judge, with its parameters.
fn policy(args: &PromisesArgs) -> Result<PolicySpec> {
    if args.params.is_empty() {
        return Ok(args.policy.clone());
    }
    let request = super::policy::request(args.policy.name(), &args.params);
    Ok(config::policy::read(&serde_json::to_value(request)?)?)
}

/// Returns the cells in the order of devices, profile, mixes and round trips.
fn grid(args: &PromisesArgs) -> Result<Vec<Place>> {
    let all = devices()?;
    for name in &args.devices {
        if !all.iter().any(|device| device.model == *name) {
            let names: Vec<&str> = all.iter().map(|device| device.model.as_str()).collect();
            let problem = Problem::new(format!("{name:?} is not among the devices for this test"));
            let help = format!("there are: {}", names.join(", "));
            return Err(problem.at("--device").help(help).into());
        }
    }
    let profiled: &[bool] = match args.profile {
        Profiled::Yes => &[true],
        Profiled::No => &[false],
        Profiled::Both => &[true, false],
    };
    let wanted = |it: &PromiseDevice| args.devices.is_empty() || args.devices.contains(&it.model);
    let devices: Vec<PromiseDevice> = all.into_iter().filter(wanted).collect();
    let mixes = mixes::wanted(args, &devices)?;
    let mut grid = Vec::new();
    for device in devices {
        for &profiled in profiled {
            for mix in &mixes {
                for round_trip in &args.round_trips {
                    let cell = Cell {
                        device: device.clone(),
                        profiled,
                        rtt_us: (round_trip.0 / 1000) as u32,
                    };
                    grid.push(Place {
                        cell,
                        mix: mix.clone(),
                    });
                }
            }
        }
    }
    Ok(grid)
}

/// Judges all cells in parallel and returns them in the order of the grid.
fn judge_all(
    grid: &[Place],
    policy: &PolicySpec,
    args: &PromisesArgs,
    store: Store,
) -> Result<Vec<Judged>> {
    let cores = thread::available_parallelism().map_or(1, |n| n.get());
    let jobs = args.jobs.map_or(cores, usize::from);
    let store = Mutex::new(store);
    let ended = Mutex::new(0_usize);
    let mut silent = |_: usize, _: usize| {};
    let judged = tidegate_experiments::map_parallel(grid, jobs, &mut silent, |place| {
        let judged = judge::judge(place, policy, args, &store)?;
        let mut ended = ended.lock().expect("no holder panics");
        *ended += 1;
        if grid.len() > 1 {
            let summary = show::summary(&judged);
            output::tell(format_args!("[{}/{}] {summary}", *ended, grid.len()));
        }
        Ok(judged)
    });
    let store = store.into_inner().expect("no holder panics");
    store.finish()?;
    judged.into_iter().collect()
}
