//! Simulations of a sweep: scenarios x policies x vCPU schedulers x seeds.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;

use anyhow::Result;
use serde_json::Value;
use tidegate_config::policy_view;
use tidegate_core::part::ParamInfo;
use tidegate_core::policy::Policy;
use tidegate_policies::policy::PolicySpec;
use tidegate_sim::scenario::Scenario;
use tidegate_sim::seed::{fnv1a, fnv1a_from};
use tidegate_sim::world::World;

use crate::args::{GridArgs, Seeds};
use crate::progress;
use crate::results::Key;
use crate::simulate::{self, Changes, Ready};

/// Scenario under one policy and vCPU scheduler, which is simulated with every seed.
pub(super) struct Series {
    /// Key of its results, with seed 0.
    pub(super) key: Key,
    pub(super) ready: Arc<Ready>,
}

/// All simulations of a sweep.
pub(super) struct Grid {
    /// In the order given, each once.
    pub(super) all: Vec<Series>,
    pub(super) seeds: Seeds,
}

/// Simulation of a sweep: a scenario, and the key of its result, which has the seed.
pub(super) struct Cell {
    pub(super) key: Key,
    pub(super) ready: Arc<Ready>,
}

impl Grid {
    /// Loads every scenario with every policy and scheduler.
    ///
    /// # Errors
    /// If a scenario is wrong, or does not go with a policy or scheduler.
    pub(super) fn load(args: &GridArgs) -> Result<Grid> {
        // `None` stands for the scenario's own policy, so that the loop below runs at least once.
        let policies: Vec<_> = match args.policies.as_slice() {
            [] => vec![None],
            policies => policies.iter().cloned().map(Some).collect(),
        };
        let schedulers: Vec<_> = match args.schedulers.as_slice() {
            [] => vec![None],
            schedulers => schedulers.iter().copied().map(Some).collect(),
        };
        let both = policies.iter().flat_map(|policy| {
            let schedulers = schedulers.iter();
            schedulers.map(move |&scheduler| (policy, scheduler))
        });
        let mut all = Vec::new();
        let mut seen = BTreeSet::new();
        for file in &args.files {
            for (n, (policy, processors)) in both.clone().enumerate() {
                let changes = Changes {
                    policy: policy.clone(),
                    processors,
                    // One load serves for all seeds, which are set just before each run.
                    seed: Some(0),
                    ..Changes::from(&args.changes)
                };
                let ready = Arc::new(simulate::load(file, &changes)?);
                // Notes concern the file, so they are the same under every policy.
                if n == 0 {
                    ready.tell();
                }
                let key = key(&ready);
                // A policy given twice, or the scenario's own given by name, has one result.
                if seen.insert(key.clone()) {
                    all.push(Series { key, ready });
                }
            }
        }
        let seeds = args.seeds.clone();
        Ok(Grid { all, seeds })
    }

    /// Number of simulations.
    pub(super) fn len(&self) -> usize {
        self.all.len() * self.seeds.0.len()
    }

    /// Returns all simulations: each series with its seeds.
    pub(super) fn cells(&self) -> impl Iterator<Item = Cell> {
        (0..self.len()).map(|position| self.cell(position))
    }

    /// Returns the simulation at a position below [`Self::len`].
    pub(super) fn cell(&self, position: usize) -> Cell {
        let seeds = &self.seeds.0;
        let series = &self.all[position / seeds.len()];
        Cell {
            key: Key {
                seed: seeds[position % seeds.len()],
                ..series.key.clone()
            },
            ready: series.ready.clone(),
        }
    }
}

/// Returns the key of a scenario, without its final seed.
fn key(ready: &Ready) -> Key {
    let policies = ready.scenario.devices.iter();
    let mut policies: Vec<String> = policies
        .map(|device| in_words(&device.scheduling.policy))
        .collect();
    // One name stands for all devices if they have the same policy.
    policies.dedup();
    Key {
        scenario: ready.file.display().to_string(),
        digest: format!("{:016x}", digest(&ready.scenario)),
        policy: policies.join("; "),
        scheduler: (ready.scenario.cpu).map(|cpu| cpu.scheduler.name().to_owned()),
        seed: ready.scenario.frame.seed,
    }
}

/// Returns the name of a policy with the parameters that are not at their defaults, as the
/// configuration has them: `mclock (cost_size = 1 MiB)`. Two policies of a sweep that differ have
/// different words.
fn in_words(policy: &PolicySpec) -> String {
    let defaults = PolicySpec::named(policy.name());
    let is_default = |info: &ParamInfo, value: u64| {
        let of_policy = defaults.as_ref().map_or(&[][..], |it| it.params());
        let preset = of_policy.iter().find(|param| param.0.name == info.name);
        value == preset.map_or(info.default, |param| param.1)
    };
    let changed = policy
        .params()
        .iter()
        .filter(|(info, value)| !is_default(info, *value));
    let changed = changed.map(|&(info, value)| {
        let value = policy_view::with_unit(info.kind, value);
        format!("{} = {value}", info.name)
    });
    let changed: Vec<String> = changed.collect();
    if changed.is_empty() {
        policy.name().to_owned()
    } else {
        format!("{} ({})", policy.name(), changed.join(", "))
    }
}

/// Version of what [`digest`] covers. In the first one, which had no number, times of the scenario
/// were rounded, so that its results may be those of another scenario.
const DIGEST: &str = " 2";

/// Returns a hash of everything but the seed that determines a result: the scenario as read, its
/// device models, and the version of the simulator.
fn digest(scenario: &Scenario) -> u64 {
    struct Sum(u64);
    impl std::fmt::Write for Sum {
        fn write_str(&mut self, text: &str) -> std::fmt::Result {
            self.0 = fnv1a_from(self.0, text.as_bytes());
            Ok(())
        }
    }
    let mut sum = Sum(fnv1a(env!("CARGO_PKG_VERSION").as_bytes()));
    sum.0 = fnv1a_from(sum.0, DIGEST.as_bytes());
    // Times are exact in this format alone.
    write!(sum, "{scenario:#?}").expect("a sum takes everything");
    sum.0
}

/// Simulates the missing cells in parallel; calls `each` on this thread, in order of completion.
pub(super) fn simulate_all(
    missing: &[&Cell],
    jobs: Option<u16>,
    mut each: impl FnMut(Key, Value) -> Result<()>,
) -> Result<()> {
    let cores = thread::available_parallelism().map_or(1, |n| n.get());
    // More threads than cells would find nothing to do.
    let jobs = jobs.map_or(cores, usize::from).min(missing.len());
    let next = AtomicUsize::new(0);
    let bar = progress::bar(missing.len() as u64, "simulating");
    thread::scope(|scope| {
        let (sender, receiver) = mpsc::channel();
        for _ in 0..jobs {
            let (sender, next) = (sender.clone(), &next);
            scope.spawn(move || {
                while let Some(cell) = missing.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let mut scenario = cell.ready.scenario.clone();
                    scenario.frame.seed = cell.key.seed;
                    let mut world = World::new(scenario, None);
                    world.run(&mut |_| {});
                    let report = serde_json::to_value(world.report());
                    // The receiver is gone because a result could not be written.
                    if sender.send((cell.key.clone(), report)).is_err() {
                        return;
                    }
                }
            });
        }
        // The receiver ends once the last thread has dropped its sender.
        drop(sender);
        for (key, report) in receiver {
            each(key, report?)?;
            bar.inc(1);
        }
        Ok(())
    })
    .inspect(|()| bar.finish_and_clear())
}
