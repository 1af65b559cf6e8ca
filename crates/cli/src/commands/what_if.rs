//! `tidegate whatif`: a recording replayed under other policies, objectives and devices.

use std::collections::BTreeMap;
use std::fs::File;

use anyhow::Result;
use serde::Serialize;
use serde_json::{Map, Value, json};
use tidegate_config::objective;
use tidegate_core::objective::Objective;
use tidegate_core::policy::Policy;
use tidegate_policies::policy::PolicySpec;
use tidegate_recording::Recording;
use tidegate_report::{Align, Cell, Table, Tone};
use tidegate_sim::report::{Promise, Report};
use tidegate_sim::what_if::{Figures, RecordedVm, Reproduction, WhatIf, WhatIfError};
use tidegate_sim::world::World;
use tidegate_units::human::{count, duration, percent, rate};

use crate::args::{ObjectivePart, WhatIfArgs};
use crate::atomic_file::NewFile;
use crate::html_report::over_time::OverTime;
use crate::html_report::plots::VmOverTime;
use crate::output::Output;
use crate::problem::Problem;
use crate::progress::DelayedBar;
use crate::simulate::find_model;

mod page;

/// Requests of a recording that are read into memory, some 100 bytes each with their replay.
const REQUESTS_MAX: usize = 20_000_000;
/// Error of a replay beyond which its answers are shown with a warning.
const ERROR_MAX: f64 = 0.1;

pub(super) fn run(args: &WhatIfArgs, out: Output) -> Result<()> {
    let recording = read(args)?;
    let file = &args.recording;
    let facts = &recording.header.device;
    let Some(model) = args.device.as_deref().or(facts.model.as_deref()) else {
        let what = format!(
            "{}: the device {} of kind {} has no model that could be simulated",
            file.display(),
            facts.name,
            facts.kind
        );
        return Err(Problem::new(what)
            .help("name one with --device: a model of the catalogue, or the path of a .toml file")
            .into());
    };
    let model = find_model(model)?;
    let wrong = |error: WhatIfError| Problem::new(format!("{}: {error}", file.display()));
    let what_if = WhatIf::new(&recording, &model).map_err(wrong)?;
    let missing = recording.summary.dropped + recording.summary.lost;
    let gaps = recording.gaps.len();
    // The simulation needs the requests in another form; those of the file are not needed twice.
    drop(recording);
    let objectives = objectives(&what_if, &args.objectives)?;
    let mut runs: Vec<Run> = vec![(None, BTreeMap::new())];
    if args.policies.is_empty() && !objectives.is_empty() {
        runs.push((Some(what_if.policy().clone()), objectives.clone()));
    }
    let own = what_if.policy();
    for policy in &args.policies {
        // The recording's own policy keeps its parameters, as with `sweep`.
        let is_own = policy.name() == own.name();
        let policy = if is_own { own } else { policy };
        runs.push((Some(policy.clone()), objectives.clone()));
    }
    let page = args.report.as_deref().map(NewFile::create).transpose()?;
    let results = simulate(&what_if, &runs, page.is_some()).map_err(wrong)?;
    let (reports, past): (Vec<_>, Vec<_>) = results.into_iter().unzip();
    let answer = Answer::new(&what_if, &model.name, &reports, gaps, missing);
    if let Some(page) = page {
        let html = page::page(&answer, &file.display().to_string(), &reports, &past);
        page.finish(&html)?;
    }
    if out.is_json() {
        return out.json(&answer);
    }
    Ok(out.text(&answer.text(out))?)
}

/// Policy of a run, with changed objectives; `None`: the recording's own.
type Run = (Option<PolicySpec>, BTreeMap<usize, Objective>);

/// Policy of a run, with its report.
type RunReport = (Option<PolicySpec>, Report);

/// Simulates all runs. Returns the policy and the report of each with its VMs over time, which are
/// empty unless `over_time` is set.
fn simulate(
    what_if: &WhatIf,
    runs: &[Run],
    over_time: bool,
) -> Result<Vec<(RunReport, Vec<VmOverTime>)>, WhatIfError> {
    let of_run = what_if.duration.0 / 1_000_000;
    let mut progress = DelayedBar::new(of_run * runs.len() as u64, "simulating");
    let mut results = Vec::new();
    for (done, (policy, objectives)) in runs.iter().enumerate() {
        let before = of_run * done as u64;
        let scenario = what_if.scenario(policy.as_ref(), objectives)?;
        let interval = over_time.then(|| OverTime::interval(&scenario));
        let mut world = World::new(scenario, interval);
        let mut past = over_time.then(|| {
            world.keep_operations();
            OverTime::begin(&mut world)
        });
        while !world.is_over() {
            world.step(&mut |row| {
                if let Some(past) = &mut past {
                    past.row(row);
                }
            });
            if let Some(past) = &mut past {
                past.step(&mut world);
            }
            let name = policy.as_ref().map_or("its own policy", Policy::name);
            progress.set(before + world.now().0 / 1_000_000, || name.to_owned());
        }
        let report = world.report();
        let vms = past.map_or_else(Vec::new, |past| past.vms(world.scenario(), &report));
        results.push(((policy.clone(), report), vms));
    }
    Ok(results)
}

/// Reads a recording; one with gaps only if that is allowed.
fn read(args: &WhatIfArgs) -> Result<Recording> {
    let name = args.recording.display();
    let file = File::open(&args.recording)
        .map_err(|error| Problem::new(format!("cannot read {name}: {error}")))?;
    let recording = Recording::read(file, REQUESTS_MAX)
        .map_err(|error| Problem::new(format!("{name}: {error}")))?;
    if recording.is_whole() || args.allow_gaps {
        return Ok(recording);
    }
    let first = recording.gaps[0];
    let what = format!(
        "{name}: {}, the first after {}: a replay would miss what delayed the rest",
        gaps_text(recording.gaps.len()),
        duration(first.from.0)
    );
    Err(Problem::new(what)
        .help("--allow-gaps replays what is there")
        .into())
}

fn gaps_text(gaps: usize) -> String {
    match gaps {
        1 => "1 gap".to_owned(),
        gaps => format!("{gaps} gaps"),
    }
}

/// Returns the objectives of VMs with the given parts changed.
fn objectives(what_if: &WhatIf, parts: &[ObjectivePart]) -> Result<BTreeMap<usize, Objective>> {
    let mut changed: BTreeMap<usize, Objective> = BTreeMap::new();
    for part in parts {
        let found = what_if.vms.iter().position(|vm| vm.name == part.vm);
        let Some(index) = found else {
            let names: Vec<&str> = what_if.vms.iter().map(|vm| vm.name.as_str()).collect();
            return Err(Problem::new(format!("no VM {} in the recording", part.vm))
                .at("--objective")
                .help(format!("it has: {}", names.join(", ")))
                .into());
        };
        let base = changed.get(&index).unwrap_or(&what_if.vms[index].objective);
        let new = objective::merge(base, &nested(&part.part, &part.value))?;
        changed.insert(index, new);
    }
    Ok(changed)
}

/// Returns the JSON of one part of an objective: `limit.write` is a key in an object.
fn nested(path: &str, text: &str) -> Value {
    let value = match text {
        "none" => Value::Null,
        _ => text
            .parse::<u64>()
            .map_or_else(|_| json!(text), |number| json!(number)),
    };
    path.rsplit('.').fold(value, |inner, key| {
        let mut object = Map::new();
        object.insert(key.to_owned(), inner);
        Value::Object(object)
    })
}

/// Answer to the question.
#[derive(Serialize)]
struct Answer {
    /// Model of the simulated device.
    device: String,
    duration_s: f64,
    /// Gaps of the recording, and requests that are missing.
    gaps: usize,
    missing_requests: u64,
    /// Agreement of the replay under the recording's own policy with the recording.
    own_policy: String,
    reproduction: Reproduction,
    vms: Vec<Vm>,
}

/// VM with what was inferred, and its figures.
#[derive(Serialize)]
struct Vm {
    name: String,
    requests: usize,
    /// True if requests wait for answers.
    closed: bool,
    depth: usize,
    think_ns: Option<u64>,
    evidence: &'static str,
    /// True if its results depend on an inference that leaves doubt.
    inferred: bool,
    recorded: Figures,
    policies: Vec<PolicyResult>,
}

/// Result of a VM under a policy.
#[derive(Serialize)]
struct PolicyResult {
    policy: String,
    /// True for the replay under the recording's own policy and objectives.
    own: bool,
    #[serde(flatten)]
    figures: Figures,
    promises: Vec<Promise>,
}

impl Answer {
    fn new(
        what_if: &WhatIf,
        model: &str,
        reports: &[RunReport],
        gaps: usize,
        missing: u64,
    ) -> Answer {
        let own_policy = what_if.policy().name().to_owned();
        let figures = |index: usize, vm: &RecordedVm, report: &Report| {
            Figures::of_simulated(vm, &report.vms[index], what_if.duration)
        };
        let result = |index: usize, vm: &RecordedVm, run: &RunReport| {
            let (policy, report) = run;
            PolicyResult {
                policy: policy
                    .as_ref()
                    .map_or(&*own_policy, Policy::name)
                    .to_owned(),
                own: policy.is_none(),
                figures: figures(index, vm, report),
                promises: report.vms[index].promises.clone(),
            }
        };
        let vms = what_if.vms.iter().enumerate();
        let own = &reports[0].1;
        let pairs: Vec<_> = (vms.clone())
            .map(|(index, vm)| (vm.recorded, figures(index, vm, own)))
            .collect();
        Answer {
            device: model.to_owned(),
            duration_s: what_if.duration.as_secs_f64(),
            gaps,
            missing_requests: missing,
            reproduction: Reproduction::new(&pairs),
            vms: vms
                .map(|(index, vm)| Vm {
                    name: vm.name.clone(),
                    requests: vm.inference.chains.iter().map(Vec::len).sum(),
                    closed: vm.inference.closed,
                    depth: vm.inference.depth,
                    think_ns: vm.inference.think.map(|think| think.0),
                    evidence: vm.inference.evidence.text(),
                    inferred: vm.is_inferred(),
                    recorded: vm.recorded,
                    policies: reports.iter().map(|run| result(index, vm, run)).collect(),
                })
                .collect(),
            own_policy,
        }
    }

    fn text(&self, out: Output) -> String {
        let style = out.style();
        let mut text = self.inferences().render(style) + "\n" + &self.results().render(style);
        for note in self.notes() {
            text += &format!("\n{note}");
        }
        text + "\n"
    }

    /// Returns how far the results can be trusted, in sentences.
    fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if self.vms.iter().any(|vm| vm.inferred) {
            notes.push("* depends on the inference about the VM's requests\n".to_owned());
        }
        let Reproduction {
            throughput_error,
            latency_error,
        } = self.reproduction;
        notes.push(format!(
            "Under its own policy ({}) the replay differs from the recording by {} in throughput \
             and {} in latency (median of all VMs).",
            self.own_policy,
            percent(throughput_error, 1.0),
            percent(latency_error, 1.0)
        ));
        if throughput_error.max(latency_error) > ERROR_MAX {
            let text = "Differences between policies that are not clearly larger mean nothing.";
            notes.push(text.to_owned());
        }
        if self.gaps > 0 {
            notes.push(format!(
                "The recording has {}; {} requests are known to be missing.",
                gaps_text(self.gaps),
                count(self.missing_requests)
            ));
        }
        notes
    }

    fn inferences(&self) -> Table {
        let mut table = Table::new([
            ("VM", Align::Left),
            ("REQUESTS", Align::Right),
            ("DEPTH", Align::Right),
            ("THINK", Align::Right),
            ("REPLAYED", Align::Left),
            ("BECAUSE", Align::Left),
        ]);
        for vm in &self.vms {
            let mark = if vm.inferred { " *" } else { "" };
            let how = if vm.closed {
                "when answered"
            } else {
                "at its times"
            };
            table.row([
                Cell::from(format!("{}{mark}", vm.name)).tone(Tone::Strong),
                count(vm.requests as u64).into(),
                vm.depth.to_string().into(),
                vm.think_ns.map_or("-".to_owned(), duration).into(),
                how.into(),
                vm.evidence.into(),
            ]);
        }
        table
    }

    fn results(&self) -> Table {
        let mut table = Table::new([
            ("VM", Align::Left),
            ("POLICY", Align::Left),
            ("IOPS", Align::Right),
            ("MB/S", Align::Right),
            ("P50", Align::Right),
            ("P99", Align::Right),
            ("P99.9", Align::Right),
            ("KEPT", Align::Left),
        ]);
        for vm in &self.vms {
            let mark = if vm.inferred { " *" } else { "" };
            let name = Cell::from(format!("{}{mark}", vm.name)).tone(Tone::Strong);
            table.row(row(
                name,
                "recorded".to_owned(),
                &vm.recorded,
                Cell::from(""),
            ));
            for result in &vm.policies {
                let own = if result.own { ", own" } else { "" };
                let policy = format!("{}{own}", result.policy);
                table.row(row(
                    Cell::from(""),
                    policy,
                    &result.figures,
                    kept(&result.promises),
                ));
            }
        }
        table
    }
}

fn row(name: Cell, policy: String, figures: &Figures, kept: Cell) -> [Cell; 8] {
    [
        name,
        policy.into(),
        rate(figures.iops).into(),
        format!("{:.2}", figures.bytes_per_s / 1e6).into(),
        duration(figures.p50_ns).into(),
        duration(figures.p99_ns).into(),
        duration(figures.p999_ns).into(),
        kept,
    ]
}

/// Returns how many of the promises that were judged are kept, and the parts that are not.
fn kept(promises: &[Promise]) -> Cell {
    let judged = promises.iter().filter(|promise| promise.kept.is_some());
    let missed: Vec<&str> = (judged.clone())
        .filter(|promise| promise.kept == Some(false))
        .map(|promise| promise.part)
        .collect();
    match (judged.count(), missed.len()) {
        (0, _) => Cell::from("-"),
        (all, 0) => Cell::from(format!("{all} of {all}")).tone(Tone::Good),
        (all, n) => {
            let text = format!("{} of {all}, not {}", all - n, missed.join(", "));
            Cell::from(text).tone(Tone::Bad)
        }
    }
}
