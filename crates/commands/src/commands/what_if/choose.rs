//! `tidegate whatif --choose`: a search for settings that keep all promises.

use std::collections::BTreeMap;
use std::thread;

use anyhow::Result;
use serde::Serialize;
use tidegate_core::objective::Objective;
use tidegate_core::policy::Policy as _;
use tidegate_core::time::Nanos;
use tidegate_experiments::map_parallel;
use tidegate_report::{Align, Cell, Table, Tone};
use tidegate_sim::report::Promise;
use tidegate_sim::what_if::choose::{
    self, Choice, Finding, FindingKind, Options, Outcome, Settings, Trial, Trialed, VmOutcome,
};
use tidegate_sim::what_if::{Figures, Reproduction, WhatIf, WhatIfError};
use tidegate_sim::world::World;
use tidegate_units::human::{count, duration, percent, rate};

use super::answer::{Missing, agreement};
use super::{Exports, apply, changes, objectives, policies, problem, simulate};
use crate::args::WhatIfArgs;
use crate::output::Output;
use crate::problem::Problem;
use crate::progress::DelayedBar;
use crate::rate_table::mb_per_s;
use crate::recording_file::REQUESTS_PER_S;

/// Part of an objective that limits a VM: what was given is not changed.
const LIMIT: &str = "limit";

pub(super) fn run(
    args: &WhatIfArgs,
    what_if: &WhatIf,
    model: &str,
    missing: Missing,
    out: Output,
) -> Result<()> {
    let recorded = Settings::in_force(what_if);
    let mut before = recorded.clone();
    for (vm, objective) in objectives(what_if, changes(&args.objectives), |vm| vm.last_objective())?
    {
        before.objectives[vm] = objective;
    }
    if before.objectives.iter().all(promises_nothing) {
        return Err(
            Problem::new("no VM of the recording has a promise that could be kept")
                .help("give some with --objective, such as \"etcd=latency=10 ms\"")
                .into(),
        );
    }
    let is_given = |name: &str| {
        let parts = args.objectives.iter();
        parts
            .clone()
            .any(|given| given.vm == name && given.part.starts_with(LIMIT))
    };
    let options = Options {
        budget: u64::try_from(
            u128::from(args.budget.0) * u128::from(REQUESTS_PER_S) / 1_000_000_000,
        )
        .unwrap_or(u64::MAX),
        policies: policies(&args.policies, &before.policy),
        fixed: what_if.vms.iter().map(|vm| is_given(&vm.name)).collect(),
    };
    let wrong = |error| problem(args.recording.display(), error);
    let choice = search(what_if, &before, &options, args.jobs).map_err(wrong)?;
    export(args, what_if, &choice)?;
    // A part begins without the requests that were outstanding: the whole is the better measure.
    let judged = what_if.part(choice.judged.0, choice.judged.1).what_if;
    let is_short = choose::cost(what_if.requests(), what_if.duration) <= options.budget / 4;
    let measured = if is_short { what_if } else { &judged };
    let answer = Answer {
        device: model.to_owned(),
        own_policy: measured.policy().name().to_owned(),
        reproduction: reproduction(measured, options.budget).map_err(wrong)?,
        missing,
        ..Answer::new(what_if, &recorded.objectives, &choice)
    };
    if out.is_json() {
        return out.json(&answer);
    }
    Ok(out.text(&answer.text(out))?)
}

/// Searches with the replays of each batch on `jobs` threads, by default one for each core.
fn search(
    what_if: &WhatIf,
    before: &Settings,
    options: &Options,
    jobs: Option<u16>,
) -> Result<Choice, WhatIfError> {
    let cores = || thread::available_parallelism().map_or(1, |cores| cores.get());
    let jobs = jobs.map_or_else(cores, usize::from);
    let mut bar = DelayedBar::new(options.budget, "searching");
    let (mut replays, mut spent) = (0, 0u64);
    choose::choose(what_if, before, options, &mut |trials: &[Trial<'_>]| {
        let mut ended = |count: usize, _: usize| {
            let count = replays + count;
            bar.set(spent.min(options.budget), || format!("{count} replays"));
        };
        let ends = map_parallel(trials, jobs, &mut ended, Trial::run);
        replays += ends.len();
        spent += ends.iter().map(Trialed::cost).sum::<u64>();
        ends
    })
}

/// Replays a recording as it was, and compares it with what was recorded; `None` if there is
/// nothing to replay, or the replay costs more than `most`.
fn reproduction(what_if: &WhatIf, most: u64) -> Result<Option<Reproduction>, WhatIfError> {
    // A slice without any request.
    if what_if.vms.is_empty() {
        return Ok(None);
    }
    let mut world = World::new(what_if.scenario(None, &BTreeMap::new())?, None);
    while !world.is_over() {
        world.step(&mut |_| {});
        if choose::cost(world.answered(), world.now()) > most {
            return Ok(None);
        }
    }
    let report = world.report();
    let vms = what_if.vms.iter().zip(&report.vms);
    let pairs: Vec<_> = vms
        .map(|(vm, is)| (vm.recorded, Figures::of_simulated(vm, is, what_if.duration)))
        .collect();
    Ok(Some(Reproduction::new(&pairs)))
}

/// Writes the files of the judged part under the chosen settings.
fn export(args: &WhatIfArgs, what_if: &WhatIf, choice: &Choice) -> Result<()> {
    let exports = Exports::of(args);
    if exports.fio_json.is_none() && exports.hdr_log.is_none() {
        return Ok(());
    }
    let part = what_if.part(choice.judged.0, choice.judged.1);
    if part.vms.is_empty() {
        let what = "--fio-json and --hdr-log: the judged slice has no request to write";
        return Err(Problem::new(what).into());
    }
    let objectives = part.vms.iter().enumerate();
    let objectives = objectives.map(|(local, &vm)| (local, choice.after.objectives[vm]));
    let scenario = (part.what_if).scenario(Some(&choice.after.policy), &objectives.collect());
    let scenario = scenario.map_err(|error| problem(args.recording.display(), error))?;
    simulate(scenario, &exports, false, |_| {})?;
    Ok(())
}

/// Returns true if nothing of an objective is judged.
fn promises_nothing(objective: &Objective) -> bool {
    let rates = [&objective.reservation, &objective.target];
    objective.latency.is_none()
        && objective.limit.is_none()
        && rates.iter().all(|rate| rate.is_none())
}

/// Answer of a search.
#[derive(Serialize, Default)]
struct Answer {
    /// Model of the simulated device.
    device: String,
    /// Ranges of the recording, in seconds since its beginning.
    searched_s: [f64; 2],
    slice_s: [f64; 2],
    held_out_s: [f64; 2],
    judged_s: [f64; 2],
    replays: u64,
    simulated_requests: u64,
    budget_exhausted: bool,
    /// True if all promises are kept on the judged slice.
    all_kept: bool,
    /// Promises of which the slice that was searched says nothing, because there were too few
    /// requests.
    unsearched: Vec<Named>,
    /// Promises of which the judged slice says nothing.
    unjudged: Vec<Named>,
    /// True if nothing was changed.
    unchanged: bool,
    findings: Vec<Found>,
    /// Promises that nothing keeps together.
    conflict: Vec<Named>,
    /// Promises that are missed even while all other VMs are nearly idle.
    hopeless: Vec<Named>,
    policy: Change,
    vms: Vec<Vm>,
    commands: Vec<String>,
    /// Differences between the commands and what was simulated.
    cautions: Vec<String>,
    own_policy: String,
    #[serde(flatten)]
    missing: Missing,
    /// `None` if there is nothing to replay, or the replay takes longer than the budget.
    reproduction: Option<Reproduction>,
}

#[derive(Serialize)]
struct Found {
    vm: String,
    #[serde(flatten)]
    finding: Finding,
    text: String,
    /// Command that is suggested beside those that put the settings in force.
    #[serde(skip_serializing_if = "Option::is_none")]
    command: Option<String>,
}

/// Promise by its VM and part.
#[derive(Serialize)]
struct Named {
    vm: String,
    part: &'static str,
}

#[derive(Serialize, Default)]
struct Change {
    before: String,
    after: String,
}

/// VM with its results on the judged slice and on the one that was searched.
#[derive(Serialize)]
struct Vm {
    name: String,
    judged: Results,
    searched: Results,
}

#[derive(Serialize)]
struct Results {
    before: Option<VmOutcome>,
    after: Option<VmOutcome>,
}

impl Answer {
    /// Returns what follows from the choice alone; `recorded` are the objectives in force.
    fn new(what_if: &WhatIf, recorded: &[Objective], choice: &Choice) -> Answer {
        let name = |vm: usize| what_if.vms[vm].name.clone();
        let named = |promises: &[(usize, &'static str)]| {
            let promises = promises.iter();
            promises
                .map(|&(vm, part)| Named { vm: name(vm), part })
                .collect()
        };
        let seconds = |(from, to): (Nanos, Nanos)| [from.as_secs_f64(), to.as_secs_f64()];
        let results = |outcomes: &[Outcome; 2], vm: usize| Results {
            before: outcomes[0].vms[vm].clone(),
            after: outcomes[1].vms[vm].clone(),
        };
        let [before, after] = [&choice.before, &choice.after].map(|it| &it.objectives);
        let is_unchanged = |vm: usize| after[vm].limit == before[vm].limit;
        let never_binds = |it: &Finding| it.kind == FindingKind::LimitNeverBinds;
        let found = |finding: &Finding| Found {
            vm: name(finding.vm),
            text: finding_text(&name(finding.vm), &finding.kind, choice),
            command: (never_binds(finding) && is_unchanged(finding.vm))
                .then(|| apply::remove_limit(what_if, finding.vm))
                .flatten(),
            finding: finding.clone(),
        };
        let [_, judged] = &choice.on_judged;
        let applied = apply::commands(what_if, recorded, &choice.after);
        Answer {
            searched_s: seconds(choice.searched),
            slice_s: seconds(choice.slice),
            held_out_s: seconds(choice.held_out),
            judged_s: seconds(choice.judged),
            replays: choice.replays,
            simulated_requests: choice.requests,
            budget_exhausted: choice.exhausted,
            all_kept: judged.missed().next().is_none() && choice.unjudged.is_empty(),
            unsearched: named(&choice.unsearched),
            unjudged: named(&choice.unjudged),
            unchanged: choice.after == choice.before,
            findings: choice.findings.iter().map(found).collect(),
            conflict: named(&choice.conflict),
            hopeless: named(&choice.hopeless),
            policy: Change {
                before: choice.before.policy.name().to_owned(),
                after: choice.after.policy.name().to_owned(),
            },
            vms: (0..what_if.vms.len())
                .map(|vm| Vm {
                    name: name(vm),
                    judged: results(&choice.on_judged, vm),
                    searched: results(&choice.on_slice, vm),
                })
                .collect(),
            commands: applied.commands,
            cautions: applied.cautions,
            ..Answer::default()
        }
    }

    fn text(&self, out: Output) -> String {
        let style = out.style();
        let mut text = format!(
            "Searched {}; judged on {}, which the search did not see.\n\
             {} replays with {} requests on {}.\n",
            slice(self.slice_s, self.searched_s),
            slice(self.judged_s, self.held_out_s),
            count(self.replays),
            count(self.simulated_requests),
            self.device
        );
        if !self.findings.is_empty() {
            text.push('\n');
            for found in &self.findings {
                text += &format!("{}\n", found.text);
            }
        }
        text += &format!(
            "\n{}\n{}",
            self.promises().render(style),
            self.rates().render(style)
        );
        text += &format!("\n{}", self.verdict());
        if !self.commands.is_empty() {
            text += "\nTo put it in force:\n";
            for command in &self.commands {
                text += &format!("  {command}\n");
            }
        }
        for caution in &self.cautions {
            text += &format!("{caution}\n");
        }
        let idle: Vec<&str> = (self.findings.iter())
            .filter_map(|found| found.command.as_deref())
            .collect();
        if !idle.is_empty() {
            text += "\nTo remove limits that do nothing:\n";
            for command in idle {
                text += &format!("  {command}\n");
            }
        }
        let notes = match self.reproduction {
            Some(reproduction) => agreement(&self.own_policy, reproduction),
            None => vec![
                "How well the replay reproduces the recording is not known: the judged slice has \
                 no request, or its replay takes longer than --budget."
                    .to_owned(),
            ],
        };
        for note in notes.into_iter().chain(self.missing.notes()) {
            text += &format!("\n{note}");
        }
        text + "\n"
    }

    /// Returns the attainment of every promise on the judged slice.
    fn promises(&self) -> Table {
        let policy = &self.policy;
        let [before, after] = match policy.before == policy.after {
            true => ["BEFORE".to_owned(), "AFTER".to_owned()],
            false => [
                format!("BEFORE: {}", policy.before),
                format!("AFTER: {}", policy.after),
            ],
        };
        let mut table = Table::new([
            ("VM", Align::Left),
            ("PROMISE", Align::Left),
            (&before, Align::Left),
            (&after, Align::Left),
        ]);
        for vm in &self.vms {
            let promises = |results: &Option<VmOutcome>| -> Vec<Promise> {
                results
                    .as_ref()
                    .map_or(Vec::new(), |it| it.promises.clone())
            };
            let (was, is) = (promises(&vm.judged.before), promises(&vm.judged.after));
            let mut all: Vec<&Promise> = was.iter().collect();
            all.extend(
                is.iter()
                    .filter(|new| was.iter().all(|old| old.what != new.what)),
            );
            for promise in all {
                let of = |promises: &[Promise]| attained(promises, &promise.what);
                table.row([
                    Cell::from(vm.name.as_str()).tone(Tone::Strong),
                    promise.what.as_str().into(),
                    of(&was),
                    of(&is),
                ]);
            }
        }
        table
    }

    /// Returns throughput and latency of every VM on the judged slice.
    fn rates(&self) -> Table {
        let mut table = Table::new([
            ("VM", Align::Left),
            ("IOPS", Align::Right),
            ("AFTER", Align::Right),
            ("MB/S", Align::Right),
            ("AFTER", Align::Right),
            ("P50", Align::Right),
            ("AFTER", Align::Right),
            ("P99", Align::Right),
            ("AFTER", Align::Right),
        ]);
        for vm in &self.vms {
            let of = |results: &Option<VmOutcome>| {
                results.as_ref().map_or(Figures::default(), |it| it.figures)
            };
            let (was, is) = (of(&vm.judged.before), of(&vm.judged.after));
            table.row([
                Cell::from(vm.name.as_str()).tone(Tone::Strong),
                rate(was.iops).into(),
                rate(is.iops).into(),
                mb_per_s(was.bytes_per_s).into(),
                mb_per_s(is.bytes_per_s).into(),
                duration(was.p50_ns).into(),
                duration(is.p50_ns).into(),
                duration(was.p99_ns).into(),
                duration(is.p99_ns).into(),
            ]);
        }
        table
    }

    fn verdict(&self) -> String {
        let missed: Vec<String> = (self.vms.iter())
            .flat_map(|vm| {
                let after = vm.judged.after.iter().flat_map(|after| &after.promises);
                let missed = after.filter(|promise| promise.kept == Some(false));
                missed.map(move |promise| format!("{} of {}", promise.what, vm.name))
            })
            .collect();
        let list = |promises: &[Named]| {
            let all = promises
                .iter()
                .map(|it| format!("{} of {}", it.part, it.vm));
            all.collect::<Vec<_>>().join(", ")
        };
        let found = self.conflict.is_empty() && self.hopeless.is_empty();
        let is_unknown = !self.unjudged.is_empty();
        let mut text = match (found, self.unchanged, missed.is_empty()) {
            (true, _, true) if is_unknown => {
                "All promises that the judged slice shows are kept; of the others nothing is \
                 known.\n"
            }
            (true, true, true) if self.commands.is_empty() => {
                "All promises are kept as things are: nothing is to be changed.\n"
            }
            (true, true, true) => {
                "All promises are kept with what --objective gives: nothing else changes.\n"
            }
            (true, false, true) => "All promises are kept.\n",
            (true, _, false) => {
                "All promises are kept on the slice that was searched, but not on the judged one: \
                 the rest of the recording differs, or the margin is too small.\n"
            }
            (false, ..) => "No settings that were tried keep all promises; these come closest.\n",
        }
        .to_owned();
        if !self.conflict.is_empty() {
            text += &format!("Not kept together: {}.\n", list(&self.conflict));
        }
        if !self.hopeless.is_empty() {
            let all = list(&self.hopeless);
            text += &format!("Missed even while all other VMs are nearly idle: {all}.\n");
        }
        if !missed.is_empty() {
            text += &format!("Missed on the judged slice: {}.\n", missed.join(", "));
        }
        for (what, promises) in [("searched", &self.unsearched), ("judged", &self.unjudged)] {
            if !promises.is_empty() {
                let all = list(promises);
                text += &format!("Not {what}, for want of requests in its slice: {all}.\n");
            }
        }
        if self.budget_exhausted {
            text += "The budget ended the search; a larger --budget may find more.\n";
        }
        text
    }
}

/// Returns a slice and the range that it is of, in words.
fn slice(slice: [f64; 2], range: [f64; 2]) -> String {
    let span = |[from, to]: [f64; 2]| format!("{from:.0} s to {to:.0} s");
    if slice == range {
        return span(range);
    }
    format!("{}, the busiest slice of {}", span(slice), span(range))
}

/// Returns the part of the judged seconds in which a promise was kept; `-` if it is not made.
fn attained(promises: &[Promise], what: &str) -> Cell {
    let Some(promise) = promises.iter().find(|promise| promise.what == what) else {
        return Cell::from("-");
    };
    let kept = promise.judged_s - promise.missed_s;
    let text = format!(
        "{} of {} s",
        percent(kept as f64, promise.judged_s as f64),
        promise.judged_s
    );
    match promise.kept {
        Some(true) => Cell::from(text).tone(Tone::Good),
        Some(false) => Cell::from(format!("{text}, missed")).tone(Tone::Bad),
        None => Cell::from("not judged"),
    }
}

fn finding_text(vm: &str, kind: &FindingKind, choice: &Choice) -> String {
    let part = |sum: f64| percent(sum, 1.0);
    match *kind {
        FindingKind::LimitHurts {
            missed_with,
            missed_without,
        } => format!(
            "{vm}: its limit hurts: with it {} of the seconds of its promises are missed, without \
             it {}",
            part(missed_with),
            part(missed_without)
        ),
        FindingKind::LimitNeverBinds => {
            format!("{vm}: its limit never held back a request of the recording")
        }
        FindingKind::LimitNotEnforced => format!(
            "{vm}: its limit is not enforced by the policy {}",
            choice.before.policy.name()
        ),
        FindingKind::NoisyWithoutLimit {
            device_share,
            missed_with,
            missed_without,
        } => format!(
            "{vm}: has no limit, and its requests take {} of the device's time: others miss {} of \
             the seconds of their promises, and {} with a quarter of its throughput",
            part(device_share),
            part(missed_with),
            part(missed_without)
        ),
    }
}
