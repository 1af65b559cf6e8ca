//! `tidegate sweep`: scenarios x policies x seeds, on all cores, going on where it was stopped.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tidegate_report::{Align, Cell, Table, Tone, csv_record, duration};
use tidegate_sim::world::World;

use crate::args::{Format, SweepArgs};
use crate::output::Output;
use crate::problem::Problem;
use crate::progress;
use crate::simulate::{self, Changes, Ready};

/// What a result is the result of.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
struct Key {
    /// The scenario's file as it was named.
    scenario: String,
    /// What the file said, and what the command line changed: another text is another scenario.
    digest: String,
    /// The policies of its devices with their parameters.
    policy: String,
    seed: u64,
}

/// A line of the results file.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Line {
    #[serde(flatten)]
    key: Key,
    report: Value,
}

pub(super) fn run(args: &SweepArgs, out: Output) -> Result<()> {
    let grid = grid(args)?;
    let kept = match args.fresh {
        true => Vec::new(),
        false => read_results(&args.results)?,
    };
    let mut results: BTreeMap<Key, Value> = BTreeMap::new();
    results.extend(kept.into_iter().map(|line| (line.key, line.report)));
    let missing: Vec<&(Key, Ready)> = (grid.iter())
        .filter(|(key, _)| !results.contains_key(key))
        .collect();
    let known = grid.len() - missing.len();
    if known > 0 {
        let file = args.results.display();
        eprintln!("{known} of {} results are in {file} already", grid.len());
    }
    let path = &args.results;
    write_results(path, results.iter()).with_context(|| cannot_write(path))?;
    let file = OpenOptions::new().append(true).open(path);
    let mut file = file.with_context(|| cannot_write(path))?;
    simulate_all(&missing, args.jobs, |key, report| {
        let line = serde_json::to_string(&Line {
            key: key.clone(),
            report: report.clone(),
        })?;
        // One write a line: a sweep that is killed leaves at most its last one torn.
        file.write_all(format!("{line}\n").as_bytes())
            .with_context(|| cannot_write(path))?;
        results.insert(key, report);
        Ok(())
    })?;
    // In one order, however many cores there were.
    write_results(path, results.iter()).with_context(|| cannot_write(path))?;
    let of_grid: Vec<(&Key, &Value)> = (grid.iter())
        .filter_map(|(key, _)| results.get_key_value(key))
        .collect();
    show(&of_grid, out)
}

fn cannot_write(path: &Path) -> String {
    format!("cannot write {}", path.display())
}

/// Every scenario with every policy and seed, in the order they were named.
fn grid(args: &SweepArgs) -> Result<Vec<(Key, Ready)>> {
    let policies: Vec<_> = match args.policies.as_slice() {
        [] => vec![None],
        policies => policies.iter().cloned().map(Some).collect(),
    };
    let mut grid = Vec::new();
    for file in &args.files {
        for policy in &policies {
            let changes = Changes {
                policy: policy.clone(),
                ..Changes::from(&args.changes)
            };
            let ready = simulate::load(file, &changes)?;
            if policy == &policies[0] {
                ready.tell();
            }
            for &seed in &args.seeds.0 {
                let mut ready = ready.clone();
                ready.scenario.seed = seed;
                grid.push((key(&ready, &args.changes), ready));
            }
        }
    }
    Ok(grid)
}

fn key(ready: &Ready, changes: &crate::args::ChangeArgs) -> Key {
    let policies = ready
        .scenario
        .devices
        .iter()
        .map(|d| format!("{:?}", d.policy));
    let changed = match (&changes.device, &changes.duration) {
        (None, None) => String::new(),
        (device, duration) => format!("/{device:?}/{duration:?}"),
    };
    Key {
        scenario: ready.file.display().to_string(),
        digest: format!("{:016x}{changed}", ready.digest),
        policy: policies.collect::<Vec<_>>().join("; "),
        seed: ready.scenario.seed,
    }
}

/// The results there are. A last line that was torn when a sweep was killed is left out.
fn read_results(path: &PathBuf) -> Result<Vec<Line>> {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => {
            return Err(error).with_context(|| format!("cannot read {}", path.display()));
        }
    };
    let mut results = Vec::new();
    for (i, line) in text.lines().enumerate() {
        match serde_json::from_str(line) {
            Ok(line) => results.push(line),
            Err(_) if i + 1 == text.lines().count() && !text.ends_with('\n') => {}
            Err(error) => {
                let problem = Problem::new(format!("not a result of a sweep: {error}"));
                let at = format!("{}, line {}", path.display(), i + 1);
                let help = "--fresh starts anew, --results FILE uses another file";
                return Err(problem.at(at).help(help).into());
            }
        }
    }
    Ok(results)
}

/// Writes all of them into a file beside it, then puts that in its place.
fn write_results<'a>(
    path: &Path,
    results: impl Iterator<Item = (&'a Key, &'a Value)>,
) -> Result<()> {
    let beside = path.with_extension("jsonl.new");
    let mut file = io::BufWriter::new(File::create(&beside)?);
    for (key, report) in results {
        let line = Line {
            key: key.clone(),
            report: report.clone(),
        };
        writeln!(file, "{}", serde_json::to_string(&line)?)?;
    }
    file.into_inner()?.sync_all()?;
    Ok(fs::rename(&beside, path)?)
}

/// Runs what is missing on all cores; `each` is called here, in the order they end.
fn simulate_all(
    missing: &[&(Key, Ready)],
    jobs: Option<u16>,
    mut each: impl FnMut(Key, Value) -> Result<()>,
) -> Result<()> {
    let cores = thread::available_parallelism().map_or(1, |n| n.get());
    let jobs = jobs.map_or(cores, usize::from).min(missing.len());
    let next = AtomicUsize::new(0);
    let bar = progress::bar(missing.len() as u64, "simulating");
    thread::scope(|scope| {
        let (sender, receiver) = mpsc::channel();
        for _ in 0..jobs {
            let (sender, next) = (sender.clone(), &next);
            scope.spawn(move || {
                while let Some((key, ready)) = missing.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let mut world = World::new(ready.scenario.clone(), None);
                    world.run(&mut |_| {});
                    let report = serde_json::to_value(world.report());
                    // Nobody listens any more: a result could not be kept.
                    if sender.send((key.clone(), report)).is_err() {
                        return;
                    }
                }
            });
        }
        drop(sender);
        for (key, report) in receiver {
            each(key, report?)?;
            bar.inc(1);
        }
        Ok(())
    })
    .inspect(|()| bar.finish_and_clear())
}

/// One VM under one policy, over all seeds.
#[derive(Default, Serialize)]
struct Summary {
    scenario: String,
    policy: String,
    vm: String,
    seeds: usize,
    iops: Spread,
    bytes_per_s: Spread,
    latency_p99_ns: Spread,
    promises: usize,
    promises_kept: usize,
}

/// The mean over seeds, and the extremes.
#[derive(Clone, Copy, Default, Serialize)]
struct Spread {
    mean: f64,
    min: f64,
    max: f64,
}

impl Spread {
    fn of(values: &[f64]) -> Spread {
        Spread {
            mean: values.iter().sum::<f64>() / values.len().max(1) as f64,
            min: values.iter().copied().fold(f64::INFINITY, f64::min),
            max: values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        }
    }
}

fn summarise(results: &[(&Key, &Value)]) -> Vec<Summary> {
    // In the order of the grid; VMs in the order of their scenario.
    let mut groups: Vec<(Summary, Vec<&Value>)> = Vec::new();
    for (key, report) in results {
        for vm in report["vms"].as_array().into_iter().flatten() {
            let name = vm["name"].as_str().unwrap_or_default();
            let same =
                |s: &Summary| s.scenario == key.scenario && s.policy == key.policy && s.vm == name;
            match groups.iter_mut().find(|(summary, _)| same(summary)) {
                Some((_, values)) => values.push(vm),
                None => {
                    let summary = Summary {
                        scenario: key.scenario.clone(),
                        policy: key.policy.clone(),
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
        Spread::of(&values)
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
                promises: promises().count(),
                promises_kept: promises().filter(|p| p["kept"] == true).count(),
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
            ];
            let mut text = csv_record(heading);
            for s in &all {
                let spread = |s: &Spread| [s.mean, s.min, s.max].map(|v| v.to_string());
                let mut cells = vec![s.scenario.clone(), s.policy.clone(), s.vm.clone()];
                cells.push(s.seeds.to_string());
                for values in [&s.iops, &s.bytes_per_s, &s.latency_p99_ns] {
                    cells.extend(spread(values));
                }
                cells.extend([s.promises.to_string(), s.promises_kept.to_string()]);
                text += &csv_record(cells);
            }
            Ok(out.text(&text)?)
        }
        Format::Table => Ok(out.table(&table(&all))?),
    }
}

fn table(all: &[Summary]) -> Table {
    let mut table = Table::new([
        ("VM", Align::Left),
        ("POLICY", Align::Left),
        ("SEEDS", Align::Right),
        ("IOPS", Align::Right),
        ("FROM", Align::Right),
        ("TO", Align::Right),
        ("MB/S", Align::Right),
        ("P99", Align::Right),
        ("WORST P99", Align::Right),
        ("KEPT", Align::Right),
    ]);
    let mut scenario = "";
    for s in all {
        if s.scenario != scenario {
            scenario = &s.scenario;
            table.line(Cell::from(scenario).tone(Tone::Strong));
        }
        let kept = format!("{} of {}", s.promises_kept, s.promises);
        let kept = match s.promises {
            0 => Cell::from("-"),
            n if n == s.promises_kept => Cell::from(kept).tone(Tone::Good),
            _ => Cell::from(kept).tone(Tone::Bad),
        };
        table.row([
            Cell::from(s.vm.as_str()),
            // Its name; the parameters are in the results file.
            s.policy.split('{').next().unwrap_or_default().into(),
            s.seeds.to_string().into(),
            format!("{:.1}", s.iops.mean).into(),
            format!("{:.1}", s.iops.min).into(),
            format!("{:.1}", s.iops.max).into(),
            format!("{:.2}", s.bytes_per_s.mean / 1e6).into(),
            duration(s.latency_p99_ns.mean as u64).into(),
            duration(s.latency_p99_ns.max as u64).into(),
            kept,
        ]);
    }
    table
}
