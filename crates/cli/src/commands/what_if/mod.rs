//! `tidegate whatif`: a recording replayed under other policies, objectives and devices.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::Result;
use serde_json::{Map, Value, json};
use tidegate_config::objective;
use tidegate_core::objective::Objective;
use tidegate_core::policy::Policy;
use tidegate_core::time::Nanos;
use tidegate_policies::policy::PolicySpec;
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
    let (mut what_if, model) =
        recording_file::replay(args.recording.display(), &recording, device)?;
    let wrong = |error| problem(args.recording.display(), error);
    what_if.seed = args.seed;
    let missing = Missing {
        gaps: recording.gaps.len(),
        requests: recording.summary.dropped + recording.summary.lost,
    };
    // The simulation needs the requests in another form; those of the file are not needed twice.
    drop(recording);
    if args.choose {
        return choose::run(args, &what_if, &model.name, missing, out);
    }
    let objectives = objectives(&what_if, &args.objectives, |vm| &vm.objective)?;
    let mut runs: Vec<Run> = vec![(None, BTreeMap::new())];
    if args.policies.is_empty() && !objectives.is_empty() {
        runs.push((Some(what_if.policy().clone()), objectives.clone()));
    }
    for policy in policies(args, what_if.policy()) {
        runs.push((Some(policy), objectives.clone()));
    }
    let page = args.report.as_deref().map(NewFile::create).transpose()?;
    let total = what_if.duration.0 / 1_000_000 * runs.len() as u64;
    let mut progress = DelayedBar::new(total, "simulating");
    let (mut reports, mut past) = (Vec::new(), Vec::new());
    for (done, (policy, objectives)) in runs.iter().enumerate() {
        let before = what_if.duration.0 / 1_000_000 * done as u64;
        let scenario = what_if
            .scenario(policy.as_ref(), objectives)
            .map_err(wrong)?;
        let exports = Exports::of_run(args, done, &runs);
        let (report, vms) = simulate(scenario, &exports, page.is_some(), |now| {
            let name = policy.as_ref().map_or("its own policy", Policy::name);
            progress.set(before + now.0 / 1_000_000, || name.to_owned());
        })?;
        reports.push((policy.clone(), report));
        past.push(vms);
    }
    drop(progress);
    let answer = Answer::new(&what_if, &model.name, &reports, missing);
    if let Some(page) = page {
        let name = args.recording.display().to_string();
        page.finish(&page::page(&answer, &name, &reports, &past))?;
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

/// Returns the policies that were asked for. The recording's own keeps its parameters, as with
/// `sweep`.
fn policies(args: &WhatIfArgs, own: &PolicySpec) -> Vec<PolicySpec> {
    let asked = args.policies.iter();
    asked
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

/// Returns the objectives of VMs with the given parts changed; `of` returns what they are changed
/// from.
fn objectives<'a>(
    what_if: &'a WhatIf,
    parts: &[ObjectivePart],
    of: fn(&'a RecordedVm) -> &'a Objective,
) -> Result<BTreeMap<usize, Objective>> {
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
        let base = changed.get(&index).unwrap_or(of(&what_if.vms[index]));
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
