//! Comparison of vCPU schedulers on a fixed grid of hosts, in latency, shares and switches.
//!
//! ```text
//!   CELLS (grid) x contenders() --> run_cell --> Outcome
//!                                                  |
//!                          Comparison <-- all outcomes of a cell, and the goals
//! ```

mod fair;
mod grid;

pub use grid::{CELLS, Cell};

use fair::{Claim, fair_shares};
use grid::Role;
use serde::Serialize;
use tidegate_core::time::Nanos;

use crate::machine::VmId;
use crate::scenario::Simulation;
use crate::schedulers::{SCHEDULERS, eevdf};
use crate::spec::SchedulerSpec;
use crate::world::VcpuWorld;

/// Name of Tidegate's own scheduler, whose goals the comparison checks.
pub const OWN: &str = "io-turns";

/// Goal: the 99th percentile of a mixed cell, as a part of the best of the others'.
pub const LATENCY_GOAL: f64 = 0.25;
/// Goal: the distance of a VM's CPU time from its fair share, as a part of the share.
pub const SHARE_GOAL: f64 = 0.02;

/// Scheduler that takes part in the comparison.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Contender {
    /// Heading of its column.
    pub name: &'static str,
    /// Scheduler with its parameters.
    pub scheduler: SchedulerSpec,
}

/// Returns all contenders: every scheduler of the registry with default parameters, and EEVDF with
/// both usual ticks and with the shortest slices that Linux grants a thread (`sched_setattr`).
pub fn contenders() -> Vec<Contender> {
    let usual = SCHEDULERS
        .iter()
        .filter(|info| info.name != eevdf::SCHEDULER.name);
    let usual = usual.map(|info| Contender {
        name: info.name,
        scheduler: SchedulerSpec::new(info),
    });
    let base = eevdf::Params::default().slice;
    let short = Nanos::from_micros(100);
    let linux = [
        ("eevdf-250", base, 250),
        ("eevdf-1000", base, 1_000),
        ("0.1ms-250", short, 250),
        ("0.1ms-1000", short, 1_000),
    ];
    let linux = linux.map(|(name, slice, hz)| {
        let params = eevdf::Params {
            slice,
            tick: Nanos(Nanos::SECOND.0 / hz),
            run_to_parity: true,
        };
        Contender {
            name,
            scheduler: params.spec(),
        }
    });
    usual.chain(linux).collect()
}

/// Results of one scheduler in one cell.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Outcome {
    /// Contender.
    pub scheduler: &'static str,
    /// Median round trip of the measured VMs in milliseconds.
    pub p50_ms: f64,
    /// 99th percentile in milliseconds.
    pub p99_ms: f64,
    /// Packets that were not answered by the end.
    pub unanswered: u64,
    /// Largest distance of a VM that always computes from its fair share, as a part of the share.
    pub share_error: f64,
    /// Switches of a pCPU to another vCPU, per second.
    pub switches_per_s: f64,
    /// Switches away from a vCPU that could have continued, per second.
    pub preemptions_per_s: f64,
}

/// Simulates `cell` under `contender`.
pub fn run_cell(cell: &Cell, contender: &Contender, seed: u64) -> Outcome {
    let (scenario, roles) = cell.scenario(contender.scheduler, seed);
    let warm_up = scenario.frame.warm_up;
    let mut simulation = Simulation::new(scenario);
    while simulation.world().now() < warm_up {
        simulation.step();
    }
    let before = Totals::of(simulation.world());
    let report = simulation.run();
    let after = Totals::of(simulation.world());
    let seconds = report.duration_s - report.warm_up_s;
    let (mut trips, mut sent) = (Vec::new(), 0);
    // The client is the first VM.
    let measured = roles
        .iter()
        .enumerate()
        .filter(|(_, role)| role.is_measured);
    for (n, _) in measured {
        let (times, count) = simulation.round_trips(n + 1);
        trips.extend(times);
        sent += count;
    }
    trips.sort_unstable();
    // Rank of the percentile, rounded up, counted from 1.
    let at = |part: usize| trips.get((trips.len() * part).div_ceil(100).max(1) - 1);
    let ms = |part: usize| at(part).map_or(0.0, |time| time.as_millis_f64());
    Outcome {
        scheduler: contender.name,
        p50_ms: ms(50),
        p99_ms: ms(99),
        unanswered: sent - trips.len() as u64,
        share_error: share_error(simulation.world(), &roles, &before, &after, seconds),
        switches_per_s: (after.switches - before.switches) as f64 / seconds,
        preemptions_per_s: (after.preemptions - before.preemptions) as f64 / seconds,
    }
}

/// Counters of a world at a time.
struct Totals {
    switches: u64,
    preemptions: u64,
    /// CPU time of each vCPU.
    ran: Vec<Nanos>,
}

impl Totals {
    fn of(world: &VcpuWorld) -> Totals {
        let vcpus = 0..world.machine().vcpus.len() as u32;
        Totals {
            switches: world.switches(),
            preemptions: world.preemptions(),
            ran: vcpus
                .map(|v| world.ran(crate::machine::VcpuId(v)))
                .collect(),
        }
    }
}

/// First guest among the machine's VMs, behind the driver domain and the client.
const FIRST_GUEST: usize = 2;

/// Largest distance of a busy vCPU's VM from its fair share, as a part of the share. VMs that do
/// not compute count as wanting what they had.
fn share_error(
    world: &VcpuWorld,
    roles: &[Role],
    before: &Totals,
    after: &Totals,
    seconds: f64,
) -> f64 {
    let machine = world.machine();
    let ran = |v: usize| after.ran[v].since(before.ran[v]).as_secs_f64() / seconds;
    let (mut claims, mut owners) = (Vec::new(), Vec::new());
    for (n, role) in roles.iter().enumerate() {
        let vm = VmId((n + FIRST_GUEST) as u32);
        let spec = &machine.vms[vm.index()];
        let cap = match spec.cap {
            0 => f64::INFINITY,
            cap => f64::from(cap) / 100.0 / role.busy_vcpus.max(1) as f64,
        };
        for (place, v) in spec.vcpus.iter().enumerate() {
            let is_busy = place < role.busy_vcpus;
            claims.push(Claim {
                weight: f64::from(spec.weight),
                limit: cap.min(1.0),
                affinity: machine.vcpu(*v).affinity,
                used: (!is_busy).then(|| ran(v.index())),
            });
            owners.push((n, is_busy, ran(v.index())));
        }
    }
    let fair = fair_shares(&claims);
    let mut worst: f64 = 0.0;
    for (n, _) in roles.iter().enumerate().filter(|(_, r)| r.busy_vcpus > 0) {
        let own = || {
            owners
                .iter()
                .zip(&fair)
                .filter(|((of, busy, _), _)| *of == n && *busy)
        };
        let had: f64 = own().map(|((_, _, ran), _)| ran).sum();
        let due: f64 = own().map(|(_, due)| due).sum();
        worst = worst.max((had / due - 1.0).abs());
    }
    worst
}

/// Outcomes of all contenders in one cell.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct CellResult {
    /// Name of the cell.
    pub cell: &'static str,
    /// Description of the cell.
    pub what: &'static str,
    /// Not looked at while a scheduler was tuned.
    pub held_out: bool,
    /// The measured VMs compute on the vCPUs that answer.
    pub mixed: bool,
    /// Outcomes in the order of the contenders.
    pub outcomes: Vec<Outcome>,
}

impl CellResult {
    /// Result of `cell` with the outcomes of its contenders.
    pub fn new(cell: &Cell, outcomes: Vec<Outcome>) -> CellResult {
        CellResult {
            cell: cell.name,
            what: cell.what,
            held_out: cell.held_out,
            mixed: cell.is_mixed(),
            outcomes,
        }
    }

    /// Outcome of Tidegate's own scheduler.
    pub fn own(&self) -> Option<&Outcome> {
        self.outcomes
            .iter()
            .find(|outcome| outcome.scheduler == OWN)
    }

    /// Part of the best 99th percentile of the others that the own one is. A scheduler that left
    /// packets unanswered is not among the best.
    pub fn latency_ratio(&self) -> Option<f64> {
        let others = self
            .outcomes
            .iter()
            .filter(|outcome| outcome.scheduler != OWN);
        let whole = others.filter(|outcome| outcome.unanswered == 0);
        let best = whole.map(|outcome| outcome.p99_ms).min_by(f64::total_cmp)?;
        let own = self.own()?;
        Some(if own.unanswered > 0 {
            f64::INFINITY
        } else {
            own.p99_ms / best
        })
    }
}

/// Goals of the own scheduler in a part of the grid.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Verdict {
    /// Mixed cells.
    pub mixed_cells: usize,
    /// Mixed cells in which the 99th percentile is at most [`LATENCY_GOAL`] of the best of the
    /// others.
    pub latency_met: usize,
    /// Mixed cell with the largest part of the best of the others, and that part.
    pub worst_latency: Option<(&'static str, f64)>,
    /// All cells.
    pub cells: usize,
    /// Cells in which every share is within [`SHARE_GOAL`] of its fair one.
    pub shares_met: usize,
    /// Cell with the largest distance from fair shares, and that distance.
    pub worst_share: Option<(&'static str, f64)>,
}

impl Verdict {
    /// Judges the own scheduler in `cells`.
    pub fn of<'a>(cells: impl Iterator<Item = &'a CellResult>) -> Verdict {
        let all: Vec<_> = cells.collect();
        let mixed = all.iter().filter(|cell| cell.mixed);
        let ratios: Vec<_> = mixed
            .filter_map(|cell| Some((cell.cell, cell.latency_ratio()?)))
            .collect();
        let errors: Vec<_> = all
            .iter()
            .filter_map(|cell| Some((cell.cell, cell.own()?.share_error)))
            .collect();
        let worst = |found: &[(&'static str, f64)]| {
            let found = found.iter().copied();
            found.max_by(|a, b| a.1.total_cmp(&b.1))
        };
        Verdict {
            mixed_cells: ratios.len(),
            latency_met: ratios
                .iter()
                .filter(|(_, part)| *part <= LATENCY_GOAL)
                .count(),
            worst_latency: worst(&ratios),
            cells: errors.len(),
            shares_met: errors
                .iter()
                .filter(|(_, error)| *error <= SHARE_GOAL)
                .count(),
            worst_share: worst(&errors),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(scheduler: &'static str, p99_ms: f64, unanswered: u64) -> Outcome {
        Outcome {
            scheduler,
            p50_ms: p99_ms / 2.0,
            p99_ms,
            unanswered,
            share_error: p99_ms / 100.0,
            switches_per_s: 0.0,
            preemptions_per_s: 0.0,
        }
    }

    #[test]
    fn the_best_of_the_others_has_answered_everything() {
        let outcomes = vec![
            outcome("a", 1.0, 3),
            outcome("b", 4.0, 0),
            outcome(OWN, 1.0, 0),
        ];
        let result = CellResult::new(&CELLS[0], outcomes);
        assert_eq!(result.latency_ratio(), Some(0.25));
        let verdict = Verdict::of([&result].into_iter());
        assert_eq!((verdict.mixed_cells, verdict.latency_met), (1, 1));
        assert_eq!(verdict.worst_share, Some((CELLS[0].name, 0.01)));
        let late = vec![outcome("b", 4.0, 0), outcome(OWN, 3.0, 0)];
        let late = CellResult::new(&CELLS[2], late);
        let verdict = Verdict::of([&result, &late].into_iter());
        assert_eq!((verdict.latency_met, verdict.shares_met), (1, 1));
        assert_eq!(verdict.worst_latency, Some((CELLS[2].name, 0.75)));
        let lost = vec![outcome("b", 4.0, 0), outcome(OWN, 0.1, 1)];
        let lost = CellResult::new(&CELLS[0], lost);
        assert_eq!(lost.latency_ratio(), Some(f64::INFINITY));
    }

    /// A VM that computes alone has all of its pCPU but what the switches cost.
    #[test]
    fn a_cell_gives_whole_results() {
        let spare = CELLS
            .iter()
            .find(|cell| cell.name == "spare")
            .expect("it is there");
        for contender in contenders() {
            let outcome = run_cell(spare, &contender, 1);
            assert_eq!(outcome.unanswered, 0, "{outcome:?}");
            assert!(outcome.p99_ms < 0.2, "{outcome:?}");
            assert!(outcome.share_error < 0.001, "{outcome:?}");
        }
    }
}
