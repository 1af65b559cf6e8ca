//! `tidegate whatif`: a recording replayed under other policies, objectives and devices.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::Result;
use serde_json::{Map, Value, json};
use tidegate_config::objective;
use tidegate_core::objective::Objective;
use tidegate_core::policy::Policy;
use tidegate_core::time::Nanos;
use tidegate_policies::policy::PolicySpec;
use tidegate_recording::Recording;
use tidegate_server::calculation::{Results, WhatIfOrder};
use tidegate_sim::report::Report;
use tidegate_sim::scenario::Scenario;
use tidegate_sim::what_if::{RecordedVm, WhatIf};
use tidegate_sim::world::World;

use self::answer::{Answer, Missing};
use super::sim::files::{Files, Wanted};
use crate::args::{ObjectivePart, WhatIfArgs};
use crate::atomic_file::NewFile;
use crate::html_report::plots::VmOverTime;
use crate::output::Output;
use crate::problem::Problem;
use crate::progress::DelayedBar;
use crate::recording_file::{self, ReplayDevice, replay_problem as problem};

mod answer;
mod apply;
mod choose;
mod page;

pub(super) fn run(args: &WhatIfArgs, out: Output) -> Result<()> {
    let recording = recording_file::read(&args.recording, args.allow_gaps)?;
    let device = ReplayDevice {
        model: args.device.as_deref(),
        profile: args.profile.as_deref(),
    };
    let mut replayed = Replayed::new(&args.recording, recording, device)?;
    replayed.what_if.seed = args.seed;
    let what_if = &replayed.what_if;
    if args.choose {
        return choose::run(args, what_if, &replayed.model, replayed.missing, out);
    }
    let objectives = objectives(what_if, changes(&args.objectives), |vm| &vm.objective)?;
    let runs = runs(what_if, &args.policies, &objectives);
    let page = args.report.as_deref().map(NewFile::create).transpose()?;
    let total = what_if.duration.0 / 1_000_000 * runs.len() as u64;
    let mut bar = DelayedBar::new(total, "simulating");
    let results = replayed.simulate(
        &runs,
        page.is_some(),
        |done| Exports::of_run(args, done, &runs),
        |done, step| bar.set((done * total as f64) as u64, || step.to_owned()),
    )?;
    drop(bar);
    let answer = replayed.answer(&results);
    if let Some(page) = page {
        let name = args.recording.display().to_string();
        page.finish(&page::page(&answer, &name, &results.reports, &results.past))?;
    }
    if out.is_json() {
        return out.json(&answer);
    }
    Ok(out.text(&answer.text(out))?)
}

/// Replays a recording for a client of the daemon. Calls `progress` with the part that is done, 0
/// to 1, and the present step.
pub(super) fn calculate(
    order: &WhatIfOrder,
    recording: impl Read,
    progress: impl FnMut(f64, &str),
) -> Result<Results> {
    let name = Path::new(&order.name);
    let recording = recording_file::read_from(recording, name, order.allow_gaps)?;
    let device = ReplayDevice {
        model: order.model.as_deref(),
        profile: None,
    };
    let replayed = Replayed::new(name, recording, device)?;
    let what_if = &replayed.what_if;
    let policies = order.policies.iter();
    let policies = policies.map(|name| PolicySpec::named(name));
    let policies: Vec<PolicySpec> = policies.collect::<Result<_, _>>()?;
    let changes = order.objectives.iter();
    let changes = changes.map(|(vm, change)| (vm.as_str(), change.clone()));
    let objectives = objectives(what_if, changes, |vm| &vm.objective)?;
    let runs = runs(what_if, &policies, &objectives);
    let results = replayed.simulate(&runs, true, |_| Exports::default(), progress)?;
    let answer = replayed.answer(&results);
    Ok(Results {
        page: page::page(&answer, &order.name, &results.reports, &results.past),
        answer: serde_json::to_value(&answer)?,
    })
}

/// Recording that is ready to be replayed.
struct Replayed<'a> {
    /// Path of the recording, for people.
    path: &'a Path,
    what_if: WhatIf,
    /// Name of the device model.
    model: String,
    missing: Missing,
}

/// Results of all runs, in their order.
struct RunResults {
    reports: Vec<RunReport>,
    /// VMs over time of each run; empty unless they were asked for.
    past: Vec<Vec<VmOverTime>>,
}

impl<'a> Replayed<'a> {
    fn new(path: &'a Path, recording: Recording, device: ReplayDevice) -> Result<Replayed<'a>> {
        let (what_if, model) = recording_file::replay(path.display(), &recording, device)?;
        let missing = Missing::new(&recording, &what_if);
        // The simulation has the requests in another form; those of the file end here.
        Ok(Replayed {
            path,
            what_if,
            model: model.name,
            missing,
        })
    }

    /// Simulates the runs; `exports` returns the files of each.
    fn simulate(
        &self,
        runs: &[Run],
        over_time: bool,
        exports: impl Fn(usize) -> Exports,
        mut progress: impl FnMut(f64, &str),
    ) -> Result<RunResults> {
        let (mut reports, mut past) = (Vec::new(), Vec::new());
        let total = self.what_if.duration.as_secs_f64() * runs.len() as f64;
        for (done, (policy, objectives)) in runs.iter().enumerate() {
            let before = self.what_if.duration.as_secs_f64() * done as f64;
            let scenario = self.what_if.scenario(policy.as_ref(), objectives);
            let scenario = scenario.map_err(|error| problem(self.path.display(), error))?;
            let step = policy.as_ref().map_or("its own policy", Policy::name);
            let (report, vms) = simulate(scenario, &exports(done), over_time, |now| {
                progress((before + now.as_secs_f64()) / total, step);
            })?;
            reports.push((policy.clone(), report));
            past.push(vms);
        }
        Ok(RunResults { reports, past })
    }

    fn answer(&self, results: &RunResults) -> Answer {
        Answer::new(
            &self.what_if,
            &self.model,
            &results.reports,
            self.missing.clone(),
        )
    }
}

/// Returns the runs that answer a question: the recording's own first, then the policies, or the
/// recording's own policy with other objectives.
fn runs(
    what_if: &WhatIf,
    asked: &[PolicySpec],
    objectives: &BTreeMap<usize, Objective>,
) -> Vec<Run> {
    let own = what_if.policy();
    let mut runs: Vec<Run> = vec![(None, BTreeMap::new())];
    if asked.is_empty() && !objectives.is_empty() {
        runs.push((Some(own.clone()), objectives.clone()));
    }
    for policy in policies(asked, own) {
        runs.push((Some(policy), objectives.clone()));
    }
    runs
}

/// Policy of a run, with changed objectives; `None`: the recording's own.
type Run = (Option<PolicySpec>, BTreeMap<usize, Objective>);

/// Policy of a run, with its report.
type RunReport = (Option<PolicySpec>, Report);

/// Returns the policies that were asked for. The recording's own keeps its parameters, as with
/// `sweep`.
fn policies(asked: &[PolicySpec], own: &PolicySpec) -> Vec<PolicySpec> {
    asked
        .iter()
        .map(|policy| {
            if policy.name() == own.name() {
                own
            } else {
                policy
            }
        })
        .cloned()
        .collect()
}

/// Files of one replay.
#[derive(Default)]
struct Exports {
    fio_json: Option<PathBuf>,
    hdr_log: Option<PathBuf>,
}

impl Exports {
    /// Returns the files of the run `index`. A replay of the recording as it was has files only if
    /// nothing else was asked for.
    fn of_run(args: &WhatIfArgs, index: usize, runs: &[Run]) -> Exports {
        match (&runs[index].0, runs.len()) {
            (None, 2..) => Exports::default(),
            (Some(policy), 3..) => Exports {
                fio_json: (args.fio_json.as_deref()).map(|path| with_name(path, policy.name())),
                hdr_log: (args.hdr_log.as_deref()).map(|path| with_name(path, policy.name())),
            },
            _ => Exports::of(args),
        }
    }

    /// Returns the files as they were asked for.
    fn of(args: &WhatIfArgs) -> Exports {
        Exports {
            fio_json: args.fio_json.clone(),
            hdr_log: args.hdr_log.clone(),
        }
    }

    fn wanted(&self) -> Wanted<'_> {
        Wanted {
            fio_json: self.fio_json.as_deref(),
            hdr_log: self.hdr_log.as_deref(),
            ..Wanted::default()
        }
    }
}

/// Returns a path with a name before its ending: `out-mclock.json`.
fn with_name(path: &Path, name: &str) -> PathBuf {
    let mut file = OsString::from(path.file_stem().unwrap_or_default());
    file.push(format!("-{name}"));
    if let Some(ending) = path.extension() {
        file.push(".");
        file.push(ending);
    }
    path.with_file_name(file)
}

/// Simulates a replay and writes its files; calls `progress` with the time after every step.
/// Returns its report with its VMs over time, which are empty unless `over_time` is set.
fn simulate(
    scenario: Scenario,
    exports: &Exports,
    over_time: bool,
    mut progress: impl FnMut(Nanos),
) -> Result<(Report, Vec<VmOverTime>)> {
    let wanted = Wanted {
        plots: over_time,
        ..exports.wanted()
    };
    let mut files = Files::create(&wanted)?;
    let interval = files.interval(None, &scenario);
    let mut world = World::new(scenario, interval);
    if over_time {
        world.keep_operations();
    }
    files.prepare(&wanted, &mut world)?;
    while !world.is_over() {
        // The callback cannot fail; its first error ends the run after the step.
        let mut result = Ok(());
        world.step(&mut |row| {
            if result.is_ok() {
                result = files.row(row);
            }
        });
        result?;
        files.step(&mut world)?;
        progress(world.now());
    }
    files.end(&mut world)?;
    let report = world.report();
    let past = files.finish(world.scenario(), &report)?;
    let vms = past.map_or_else(Vec::new, |past| past.vms(world.scenario(), &report));
    Ok((report, vms))
}

/// Returns the parts of objectives that options change, as changes of VMs' objectives.
fn changes(parts: &[ObjectivePart]) -> impl Iterator<Item = (&str, Value)> {
    (parts.iter()).map(|part| (part.vm.as_str(), nested(&part.part, &part.value)))
}

/// Returns the objectives of VMs with the given changes; `of` returns what they are changed from.
fn objectives<'a, 'b>(
    what_if: &'a WhatIf,
    changes: impl Iterator<Item = (&'b str, Value)>,
    of: fn(&'a RecordedVm) -> &'a Objective,
) -> Result<BTreeMap<usize, Objective>> {
    let mut changed: BTreeMap<usize, Objective> = BTreeMap::new();
    for (name, change) in changes {
        let found = what_if.vms.iter().position(|vm| vm.name == name);
        let Some(index) = found else {
            let names: Vec<&str> = what_if.vms.iter().map(|vm| vm.name.as_str()).collect();
            return Err(Problem::new(format!("no VM {name} in the recording"))
                .at("--objective")
                .help(format!("it has: {}", names.join(", ")))
                .into());
        };
        let base = changed.get(&index).unwrap_or(of(&what_if.vms[index]));
        let new = objective::merge(base, &change)?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_policies_come_before_the_ending() {
        let named = |path: &str| with_name(Path::new(path), "mclock");
        assert_eq!(named("a/out.json"), Path::new("a/out-mclock.json"));
        assert_eq!(named("out"), Path::new("out-mclock"));
    }
}
