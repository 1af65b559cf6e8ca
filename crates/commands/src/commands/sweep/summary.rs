//! Results of a sweep over all seeds, as a table, JSON or CSV.

use std::collections::btree_map::{BTreeMap, Entry};

use anyhow::Result;
use serde::Serialize;
use serde_json::Value;
use tidegate_report::{Align, Cell as TableCell, Table, Tone, csv_record};
use tidegate_units::human::duration;

use super::page;
use crate::args::Format;
use crate::output::Output;
use crate::rate_table::mb_per_s;
use crate::results::Key;

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

/// Prints the results by VM and policy.
pub(super) fn show(results: &[(&Key, &Value)], out: Output) -> Result<()> {
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
