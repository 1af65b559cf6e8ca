//! `tidegate sweep`: simulates scenarios x policies x seeds on all CPUs, and resumes a stopped
//! sweep.

use std::collections::BTreeSet;
use std::collections::btree_map::{BTreeMap, Entry};
use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;

use anyhow::Result;
use serde::Serialize;
use serde_json::Value;
use tidegate_config::policy_view;
use tidegate_core::part::ParamInfo;
use tidegate_core::policy::Policy;
use tidegate_policies::policy::PolicySpec;
use tidegate_report::{Align, Cell as TableCell, Table, Tone, csv_record};
use tidegate_sim::scenario::Scenario;
use tidegate_sim::seed::{fnv1a, fnv1a_from};
use tidegate_sim::world::World;
use tidegate_units::human::duration;

use crate::args::{Format, SweepArgs};
use crate::atomic_file::NewFile;
use crate::output::{self, Output};
use crate::progress;
use crate::rate_table::mb_per_s;
use crate::results::{Key, Results};
use crate::simulate::{self, Changes, Ready};
use row_file::RowFile;

mod differences;
mod page;
#[cfg(feature = "parquet")]
mod parquet_rows;
mod per_seed;
mod row_file;

/// Simulation of a sweep: a scenario, and the key of its result, which has the seed.
struct Cell {
    key: Key,
    ready: Arc<Ready>,
}

pub(super) fn run(args: &SweepArgs, out: Output) -> Result<()> {
    let grid = grid(args)?;
    let per_seed = args.per_seed.as_deref().map(RowFile::create).transpose()?;
    let report = args.report.as_deref().map(NewFile::create).transpose()?;
    let mut results = Results::open(&args.results, args.fresh)?;
    results.respell(grid.iter().map(|cell| &cell.key));
    let missing: Vec<&Cell> = (grid.iter())
        .filter(|cell| results.get(&cell.key).is_none())
        .collect();
    let known = grid.len() - missing.len();
    if known > 0 {
        let file = results.path().display();
        output::tell(format_args!(
            "{known} of {} results are already in {file}",
            grid.len()
        ));
    }
    simulate_all(&missing, args.jobs, |key, report| {
        results.append(key, report)
    })?;
    results.finish()?;
    if !missing.is_empty() {
        let file = results.path().display();
        output::tell(format_args!("wrote {} results to {file}", missing.len()));
    }
    let of_grid: Vec<(&Key, &Value)> = (grid.iter())
        .filter_map(|cell| results.get(&cell.key))
        .collect();
    if let Some(file) = per_seed {
        file.finish(&of_grid)?;
    }
    if let Some(file) = report {
        file.finish(&page::page(&of_grid, &args.seeds.to_string()))?;
    }
    show(&of_grid, out)
}

/// Returns every scenario with every policy, scheduler and seed, in the order given, each once.
fn grid(args: &SweepArgs) -> Result<Vec<Cell>> {
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
    let mut grid = Vec::new();
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
            let any_seed = key(&ready);
            // A policy given twice, or the scenario's own given by name, has one result.
            if !seen.insert(any_seed.clone()) {
                continue;
            }
            for &seed in &args.seeds.0 {
                let key = Key {
                    seed,
                    ..any_seed.clone()
                };
                let ready = ready.clone();
                grid.push(Cell { key, ready });
            }
        }
    }
    Ok(grid)
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
    match changed.is_empty() {
        true => policy.name().to_owned(),
        false => format!("{} ({})", policy.name(), changed.join(", ")),
    }
}

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
    write!(sum, "{scenario:?}").expect("a sum takes everything");
    sum.0
}

/// Simulates the missing cells in parallel; calls `each` on this thread, in order of completion.
fn simulate_all(
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

/// Results of one VM under one policy over all seeds.
#[derive(Default, Serialize)]
struct Summary {
    scenario: String,
    policy: String,
    /// vCPU scheduler; absent without a host CPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    scheduler: Option<String>,
    vm: String,
    seeds: usize,
    iops: Spread,
    bytes_per_s: Spread,
    latency_p99_ns: Spread,
    /// Beta of the V-Cup paper; absent without a target bandwidth.
    #[serde(skip_serializing_if = "Option::is_none")]
    absolute_error_percent: Option<Spread>,
    /// V of the V-Cup paper; absent if too little moved.
    #[serde(skip_serializing_if = "Option::is_none")]
    variability_percent: Option<Spread>,
    /// Number of promises that could be judged.
    promises: usize,
    promises_kept: usize,
    /// Missed requests in per cent, of a trace or with deadlines; absent if the VM has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    missed_percent: Option<Spread>,
    /// pCPUs used; absent without a host CPU, and for background processes.
    #[serde(skip_serializing_if = "Option::is_none")]
    cpus: Option<Spread>,
    /// 99th percentile of the wait of completions for a vCPU, in nanoseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    cpu_wait_p99_ns: Option<Spread>,
}

/// Mean, minimum and maximum over seeds.
#[derive(Clone, Copy, Default, Serialize)]
struct Spread {
    mean: f64,
    min: f64,
    max: f64,
}

impl Spread {
    fn from_values(values: &[f64]) -> Spread {
        Spread {
            // No values have the mean 0, not NaN, which JSON cannot hold.
            mean: values.iter().sum::<f64>() / values.len().max(1) as f64,
            min: values.iter().copied().fold(f64::INFINITY, f64::min),
            max: values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        }
    }
}

fn summarise(results: &[(&Key, &Value)]) -> Vec<Summary> {
    // Kept in the order of the grid, and VMs in the order of their scenario.
    let mut groups: Vec<(Summary, Vec<&Value>)> = Vec::new();
    let mut places: BTreeMap<_, usize> = BTreeMap::new();
    for (key, report) in results {
        for vm in report["vms"].as_array().into_iter().flatten() {
            let name = vm["name"].as_str().unwrap_or_default();
            // The digest covers policy and scheduler, so one entry has all seeds of a cell.
            let place = places.entry((&key.scenario, &key.digest, name));
            match place {
                Entry::Occupied(place) => groups[*place.get()].1.push(vm),
                Entry::Vacant(place) => {
                    place.insert(groups.len());
                    let summary = Summary {
                        scenario: key.scenario.clone(),
                        policy: key.policy.clone(),
                        scheduler: key.scheduler.clone(),
                        vm: name.to_owned(),
                        ..Summary::default()
                    };
                    groups.push((summary, vec![vm]));
                }
            }
        }
    }
    let spread = |vms: &[&Value], what: &str| {
        let values: Vec<f64> = vms.iter().filter_map(|vm| vm[what].as_f64()).collect();
        Spread::from_values(&values)
    };
    let known = |vms: &[&Value], what: &str| {
        // A report leaves the key out where the value does not exist.
        let values = vms.iter().filter_map(|vm| vm.pointer(what)?.as_f64());
        let values: Vec<f64> = values.collect();
        (!values.is_empty()).then(|| Spread::from_values(&values))
    };
    groups
        .into_iter()
        .map(|(summary, vms)| {
            let promises = || {
                vms.iter()
                    .flat_map(|vm| vm["promises"].as_array())
                    .flatten()
            };
            Summary {
                seeds: vms.len(),
                iops: spread(&vms, "iops"),
                bytes_per_s: spread(&vms, "bytes_per_s"),
                latency_p99_ns: spread(&vms, "latency_p99_ns"),
                absolute_error_percent: known(&vms, "/precision/absolute_error_percent"),
                variability_percent: known(&vms, "/precision/variability_percent"),
                promises: promises().filter(|p| !p["kept"].is_null()).count(),
                promises_kept: promises().filter(|p| p["kept"] == true).count(),
                missed_percent: known(&vms, "/responses/deadlines/missed_percent"),
                cpus: known(&vms, "/cpu/cpus"),
                cpu_wait_p99_ns: known(&vms, "/cpu/wait_p99_ns"),
                ..summary
            }
        })
        .collect()
}

fn show(results: &[(&Key, &Value)], out: Output) -> Result<()> {
    let all = summarise(results);
    match out.format() {
        Format::Json => out.json(&all),
        Format::Csv => {
            let more = [
                "scheduler",
                "cpus",
                "cpus_min",
                "cpus_max",
                "cpu_wait_p99_ns",
                "cpu_wait_p99_ns_min",
                "cpu_wait_p99_ns_max",
            ];
            let more = has_processors(&all).then_some(more);
            let heading = [
                "scenario",
                "policy",
                "vm",
                "seeds",
                "iops",
                "iops_min",
                "iops_max",
                "bytes_per_s",
                "bytes_per_s_min",
                "bytes_per_s_max",
                "latency_p99_ns",
                "latency_p99_ns_min",
                "latency_p99_ns_max",
                "promises",
                "promises_kept",
                "absolute_error_percent",
                "absolute_error_percent_min",
                "absolute_error_percent_max",
                "variability_percent",
                "variability_percent_min",
                "variability_percent_max",
                "missed_percent",
                "missed_percent_min",
                "missed_percent_max",
            ];
            let mut text = csv_record(heading.into_iter().chain(more.into_iter().flatten()));
            for s in &all {
                let spread = |s: &Spread| [s.mean, s.min, s.max].map(|v| v.to_string());
                let known = |s: &Option<Spread>| s.as_ref().map_or_else(Default::default, spread);
                let mut cells = vec![s.scenario.clone(), s.policy.clone(), s.vm.clone()];
                cells.push(s.seeds.to_string());
                for values in [&s.iops, &s.bytes_per_s, &s.latency_p99_ns] {
                    cells.extend(spread(values));
                }
                cells.extend([s.promises.to_string(), s.promises_kept.to_string()]);
                for values in [
                    &s.absolute_error_percent,
                    &s.variability_percent,
                    &s.missed_percent,
                ] {
                    cells.extend(known(values));
                }
                if more.is_some() {
                    cells.push(s.scheduler.clone().unwrap_or_default());
                    cells.extend(known(&s.cpus));
                    cells.extend(known(&s.cpu_wait_p99_ns));
                }
                text += &csv_record(cells);
            }
            Ok(out.text(&text)?)
        }
        Format::Table => Ok(out.table(&table(&all))?),
    }
}

/// Returns true if a scenario has a host CPU.
fn has_processors(all: &[Summary]) -> bool {
    all.iter().any(|s| s.scheduler.is_some())
}

/// Formats a 99th percentile; `-` if no request was answered, as of a VM that only computes.
fn p99(ns: f64) -> TableCell {
    match ns as u64 {
        0 => TableCell::from("-"),
        ns => TableCell::from(duration(ns)),
    }
}

fn table(all: &[Summary]) -> Table {
    let processors = has_processors(all);
    let missed = all.iter().any(|s| s.missed_percent.is_some());
    let columns = [
        ("VM", Align::Left),
        ("POLICY", Align::Left),
        ("SEEDS", Align::Right),
        ("IOPS", Align::Right),
        ("MIN", Align::Right),
        ("MAX", Align::Right),
        ("MB/S", Align::Right),
        ("P99", Align::Right),
        ("MAX P99", Align::Right),
        ("BETA", Align::Right),
        ("V", Align::Right),
        ("KEPT", Align::Right),
    ];
    let of_processors = [
        ("SCHEDULER", Align::Left),
        ("PCPUS", Align::Right),
        ("WAIT P99", Align::Right),
    ];
    let more = missed.then_some(("MISSED", Align::Right));
    let more = (more.into_iter()).chain(of_processors.into_iter().filter(|_| processors));
    let mut table = Table::new(columns.into_iter().chain(more));
    let percent = |spread: Option<Spread>| match spread {
        Some(spread) => TableCell::from(format!("{:.1} %", spread.mean)),
        None => TableCell::from("-"),
    };
    let mut scenario = "";
    for s in all {
        // Results come in the order of the grid, so a scenario's rows are together.
        if s.scenario != scenario {
            scenario = &s.scenario;
            table.line(TableCell::from(scenario).tone(Tone::Strong));
        }
        let cells = [
            TableCell::from(s.vm.as_str()),
            s.policy.as_str().into(),
            s.seeds.to_string().into(),
            format!("{:.1}", s.iops.mean).into(),
            format!("{:.1}", s.iops.min).into(),
            format!("{:.1}", s.iops.max).into(),
            mb_per_s(s.bytes_per_s.mean).into(),
            p99(s.latency_p99_ns.mean),
            p99(s.latency_p99_ns.max),
            percent(s.absolute_error_percent),
            percent(s.variability_percent),
            page::kept_of(s.promises_kept, s.promises),
        ];
        let or_none = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
        let cpus = s.cpus.map(|cpus| format!("{:.2}", cpus.mean));
        let wait = s.cpu_wait_p99_ns.map(|wait| duration(wait.mean as u64));
        let of_processors = [s.scheduler.clone(), cpus, wait].map(|text| or_none(text).into());
        let more = missed.then(|| percent(s.missed_percent)).into_iter();
        let more = more.chain(of_processors.into_iter().filter(|_| processors));
        table.row(cells.into_iter().chain(more));
    }
    table
}
