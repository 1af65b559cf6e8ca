//! Changes that may help a VM, tried on a recording in the simulator.

use std::collections::BTreeMap;

use anyhow::Result;
use serde::Serialize;
use serde_json::{Value, json};
use tidegate_api::explain::{Cause, Diagnosis, ExplainView, Remedy, Verdict};
use tidegate_config::objective;
use tidegate_core::objective::Objective;
use tidegate_core::policy::Policy;
use tidegate_policies::policy::PolicySpec;
use tidegate_sim::what_if::choose;
use tidegate_sim::what_if::{Figures, Reproduction, WhatIf};
use tidegate_sim::world::World;
use tidegate_units::human::{bytes_per_s, count, duration, percent};

use super::source::{Replayed, Source};
use crate::problem::Problem;
use crate::progress::DelayedBar;
use crate::recording_file::{gaps_text, replay_problem};

/// Divisors of a culprit's rate that are tried as its limit, the gentlest first.
const LIMITS: [u64; 3] = [2, 4, 8];
/// Growth of the usual 99th percentile up to which a change is good enough.
const GOOD: f64 = 1.25;
/// Part of the 99th percentile that a change must save to have helped at all.
const HELPS: f64 = 0.8;
/// Error of the replay beyond which small differences mean nothing.
const ERROR_MAX: f64 = 0.1;

/// Changes that were tried.
#[derive(Debug, Serialize)]
pub(super) struct Tried {
    /// Name of the VM.
    vm: String,
    /// 99th percentile in the replay without a change.
    p99_ns: u64,
    /// 99th percentile that is good enough: near the usual one, if that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    aim_ns: Option<u64>,
    reproduction: Reproduction,
    /// Model of the simulated device.
    model: String,
    /// Policy of the recording.
    own_policy: String,
    /// Length of the recording's part that was replayed, and of the explained time that it lacks.
    replayed_ns: u64,
    missing_ns: u64,
    /// Gaps of the recording.
    gaps: usize,
    /// Requests that were replayed, if the recording has more.
    #[serde(skip_serializing_if = "Option::is_none")]
    first_requests: Option<usize>,
    /// Changes for which the budget had nothing left.
    #[serde(skip_serializing_if = "is_zero")]
    untried_changes: usize,
    /// Commands that try all of it.
    #[serde(skip)]
    by_hand: Option<String>,
    /// Changes of each kind, the gentlest first.
    changes: Vec<Change>,
}

fn is_zero(count: &usize) -> bool {
    *count == 0
}

/// Change of one VM's objective, with what it brings.
#[derive(Debug, Serialize)]
struct Change {
    /// VM whose objective is changed.
    vm: String,
    /// The change, as `PATCH /v1/vms/{name}/objective` takes it.
    objective: Value,
    /// Policy under which it was tried; absent: the recording's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    policy: Option<String>,
    /// Words for it: `a limit of 40 MB/s on`.
    #[serde(skip)]
    words: String,
    /// 99th percentile of the explained VM with it.
    p99_ns: u64,
}

/// Returns changes of the main cause to be tried, in groups of one kind each, the gentlest of each
/// group first; none if there is nothing to improve.
fn candidates(diagnosis: &Diagnosis) -> Vec<Vec<Change>> {
    if let Verdict::NotSlower | Verdict::NoRequests = diagnosis.verdict {
        return Vec::new();
    }
    let change = |vm: &str, objective: Value, words: String| Change {
        vm: vm.to_owned(),
        objective,
        policy: None,
        words,
        p99_ns: 0,
    };
    let is_named = |vm: &Option<String>| {
        let vm = vm.as_ref();
        vm.is_some_and(|vm| diagnosis.culprits.contains(vm))
    };
    let causes = diagnosis.findings.iter().filter(|it| match it.cause {
        Cause::Vm => is_named(&it.vm),
        Cause::OtherVms => diagnosis.verdict == Verdict::Others,
        Cause::OwnLimit => diagnosis.verdict == Verdict::OwnLimit,
        _ => false,
    });
    let of_finding = causes.flat_map(|it| &it.remedies);
    let mut groups: Vec<Vec<Change>> = Vec::new();
    let mut has_reservation = false;
    for remedy in of_finding {
        match remedy {
            Remedy::Limit {
                vm,
                bytes_per_s: half,
                iops: half_iops,
            } => {
                let limit = |divisor: &u64| {
                    // The remedy is half of the rate.
                    let (rate, value) = match half * 2 / divisor {
                        0 => {
                            let iops = (half_iops * 2 / divisor).max(1);
                            (format!("{iops} IOPS"), format!("{iops} IOPS"))
                        }
                        rate => (bytes_per_s(rate as f64), format!("{rate} B/s")),
                    };
                    let words = format!("a limit of {rate} on `{vm}`");
                    change(vm, json!({"limit": {"total": value}}), words)
                };
                groups.push(LIMITS.iter().map(limit).collect());
            }
            Remedy::Reserve { iops } if !has_reservation => {
                has_reservation = true;
                let words = format!("a reservation of {iops} IOPS for `{}`", diagnosis.vm);
                let objective = json!({"reservation": format!("{iops} IOPS")});
                groups.push(vec![change(&diagnosis.vm, objective, words)]);
            }
            // Recordings do not have the limits of disks.
            Remedy::RaiseLimit if diagnosis.limited || diagnosis.limited_disks.is_empty() => {
                let words = format!("no limit on `{}`", diagnosis.vm);
                groups.push(vec![change(&diagnosis.vm, json!({"limit": null}), words)]);
            }
            Remedy::Reserve { .. }
            | Remedy::RaiseLimit
            | Remedy::LessLoad
            | Remedy::CheckDevice
            | Remedy::OtherPolicy => {}
        }
    }
    groups
}

/// Returns true if there is a change that could be tried.
pub(super) fn has_candidates(diagnosis: &Diagnosis) -> bool {
    !candidates(diagnosis).is_empty()
}

/// Returns true if a policy enforces a change.
fn enforces(policy: &PolicySpec, change: &Change) -> bool {
    let enforces = policy.enforces();
    if change.objective.get("limit").is_some() {
        enforces.limit
    } else {
        enforces.reservation
    }
}

/// Replays of a recording with changed objectives.
struct Replays<'a> {
    what_if: &'a WhatIf,
    /// Name of the recording.
    name: &'a str,
    progress: DelayedBar,
    done: u64,
    /// Cost that is left for further replays, as [`choose::cost`] counts it.
    budget: u64,
}

impl Replays<'_> {
    /// Length of one in milliseconds of simulated time.
    fn length(what_if: &WhatIf) -> u64 {
        what_if.duration.0 / 1_000_000
    }

    /// Simulates one. Returns the figures of all VMs; `None` if the budget ended it.
    fn run(
        &mut self,
        policy: Option<&PolicySpec>,
        objectives: &BTreeMap<usize, Objective>,
    ) -> Result<Option<Vec<Figures>>> {
        let before = self.done * Replays::length(self.what_if);
        self.done += 1;
        let scenario = self.what_if.scenario(policy, objectives);
        let scenario = scenario.map_err(|error| replay_problem(self.name, error))?;
        let mut world = World::new(scenario, None);
        while !world.is_over() {
            world.step(&mut |_| {});
            if choose::cost(world.answered(), world.now()) > self.budget {
                self.budget = 0;
                return Ok(None);
            }
            let now = before + world.now().0 / 1_000_000;
            self.progress.set(now, || "the recording".to_owned());
        }
        self.budget -= choose::cost(world.answered(), world.now());
        let report = world.report();
        let vms = self.what_if.vms.iter().zip(&report.vms);
        let duration = self.what_if.duration;
        let figures = vms.map(|(vm, report)| Figures::of_simulated(vm, report, duration));
        Ok(Some(figures.collect()))
    }
}

/// Returns the place of a VM in a recording.
fn place(what_if: &WhatIf, vm: &str) -> Option<usize> {
    what_if.vms.iter().position(|it| it.name == vm)
}

/// Returns the place of the explained VM in a recording of the explained time.
fn victim(what_if: &WhatIf, name: &str, vm: &str) -> Result<usize> {
    place(what_if, vm).ok_or_else(|| {
        let names: Vec<&str> = what_if.vms.iter().map(|vm| vm.name.as_str()).collect();
        let what = format!("{name}: no request of VM {vm} in the explained time");
        Problem::new(what)
            .at("--recording")
            .help(format!("it has: {}", names.join(", ")))
            .into()
    })
}

/// Tries what may help on a recording.
pub(super) fn tried(source: &Source, replay: Replayed, view: &ExplainView) -> Result<Tried> {
    let Replayed {
        what_if,
        model,
        missing,
    } = replay;
    let diagnosis = &view.diagnosis;
    let victim = victim(&what_if, &source.name, &diagnosis.vm)?;
    let bounds = source.bounds.as_ref();
    let mut groups = candidates(diagnosis);
    let all = groups.iter().flatten().count() as u64 + 1;
    let mut replays = Replays {
        what_if: &what_if,
        name: &source.name,
        progress: DelayedBar::new(all * Replays::length(&what_if), "simulating"),
        done: 0,
        budget: bounds.map_or(u64::MAX, |bounds| bounds.budget),
    };
    let Some(own) = replays.run(None, &BTreeMap::new())? else {
        let length = duration(what_if.duration.0);
        let what = format!("a replay of {length} takes more requests than are simulated unasked");
        let problem = Problem::new(format!("{}: {what}", source.name));
        let by_hand = bounds.map(|bounds| bounds.by_hand.as_str());
        return Err(problem.help(by_hand.unwrap_or_default()).into());
    };
    let pairs: Vec<_> = (what_if.vms.iter().zip(&own))
        .map(|(vm, figures)| (vm.recorded, *figures))
        .collect();
    let aim_ns = diagnosis.p99_before_ns;
    let aim_ns = aim_ns.map(|p99| (p99 as f64 * GOOD) as u64);
    let mut untried_changes = 0;
    for group in &mut groups {
        untried_changes += try_group(group, victim, aim_ns, &mut replays)?;
    }
    let changes = groups.into_iter().flatten();
    Ok(Tried {
        vm: diagnosis.vm.clone(),
        p99_ns: own[victim].p99_ns,
        aim_ns,
        reproduction: Reproduction::new(&pairs),
        model,
        own_policy: what_if.policy().name().to_owned(),
        replayed_ns: what_if.duration.0,
        missing_ns: missing.0,
        gaps: source.recording.gaps.len(),
        first_requests: bounds
            .filter(|bounds| bounds.is_cut)
            .map(|_| source.recording.requests.len()),
        untried_changes,
        by_hand: bounds.map(|bounds| bounds.by_hand.clone()),
        changes: changes.filter(|it| it.p99_ns > 0).collect(),
    })
}

/// Tries changes of one kind until one is good enough; those behind it are removed. Changes that
/// the recording's own policy does not enforce are tried under `slo`. Returns the number of changes
/// for which the budget had nothing left.
fn try_group(
    group: &mut Vec<Change>,
    victim: usize,
    aim_ns: Option<u64>,
    replays: &mut Replays<'_>,
) -> Result<usize> {
    let what_if = replays.what_if;
    let slo = PolicySpec::named("slo").expect("it is registered");
    for index in 0..group.len() {
        let change = &mut group[index];
        let Some(vm) = place(what_if, &change.vm) else {
            continue;
        };
        let policy = if enforces(what_if.policy(), change) {
            None
        } else {
            change.policy = Some(slo.name().to_owned());
            Some(&slo)
        };
        let changed = objective::merge(&what_if.vms[vm].objective, &change.objective)?;
        let changed = BTreeMap::from([(vm, changed)]);
        let Some(figures) = replays.run(policy, &changed)? else {
            return Ok(group.len() - index);
        };
        change.p99_ns = figures[victim].p99_ns;
        if aim_ns.is_some_and(|aim| change.p99_ns <= aim) {
            group.truncate(index + 1);
            break;
        }
    }
    Ok(0)
}

impl Tried {
    /// Says what each kind of change would have brought.
    pub(super) fn sentences(&self) -> Vec<String> {
        let Reproduction {
            throughput_error,
            latency_error,
        } = self.reproduction;
        let error = throughput_error.max(latency_error);
        let basis = format!(
            "(simulated on the recording, which it reproduces within {})",
            percent(error, 1.0)
        );
        if self.changes.is_empty() && self.untried_changes == 0 {
            return vec![format!(
                "There was no change to try on the recording {basis}."
            )];
        }
        let mut sentences = Vec::new();
        let mut rest = &self.changes[..];
        while let Some(first) = rest.first() {
            let is_alike = |it: &&Change| {
                it.vm == first.vm
                    && it.objective.get("limit").is_some() == first.objective.get("limit").is_some()
            };
            let (group, others) = rest.split_at(rest.iter().take_while(is_alike).count());
            sentences.push(self.sentence(group, &basis));
            rest = others;
        }
        let others = self.changes.iter().find_map(|it| it.policy.as_ref());
        if let Some(policy) = others {
            sentences.push(format!(
                "What needs the policy `{policy}` is not enforced by `{}`.",
                self.own_policy
            ));
        }
        if error > ERROR_MAX {
            sentences.push("Differences that are not clearly larger mean nothing.".to_owned());
        }
        match self.first_requests {
            Some(requests) => sentences.push(format!(
                "Only the first {} of the explained time, {} requests, were simulated.",
                duration(self.replayed_ns),
                count(requests as u64)
            )),
            None if self.missing_ns > 0 => sentences.push(format!(
                "The recording lacks {} of the explained time.",
                duration(self.missing_ns)
            )),
            None => {}
        }
        if self.untried_changes > 0 {
            let changes = match self.untried_changes {
                1 => "1 change was".to_owned(),
                changes => format!("{changes} changes were"),
            };
            sentences.push(format!("{changes} not tried, to answer soon."));
        }
        if let (Some(by_hand), true) = (
            &self.by_hand,
            self.first_requests.is_some() || self.untried_changes > 0,
        ) {
            sentences.push(format!("All of it: {by_hand}."));
        }
        if self.gaps > 0 {
            sentences.push(format!(
                "The recording has {}: what the missing requests did is not simulated.",
                gaps_text(self.gaps)
            ));
        }
        sentences
    }

    /// Says what changes of one kind would have brought, by the last that was tried.
    fn sentence(&self, group: &[Change], basis: &str) -> String {
        let best = group.iter().min_by_key(|it| it.p99_ns);
        let best = best.expect("a group has a change");
        let is_good = self.aim_ns.is_some_and(|aim| best.p99_ns <= aim);
        let helps = (best.p99_ns as f64) < self.p99_ns as f64 * HELPS;
        let mut words = best.words.clone();
        words[..1].make_ascii_uppercase();
        if let Some(policy) = &best.policy {
            words += &format!(" under the policy `{policy}`");
        }
        let p99 = duration(best.p99_ns);
        if is_good || helps {
            format!(
                "{words} would have kept p99 at {p99} instead of {} {basis}.",
                duration(self.p99_ns)
            )
        } else {
            format!("{words} would not have helped: p99 {p99} {basis}.")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::source::{Bounds, replay_of};
    use super::*;
    use crate::problem;
    use crate::recording_file::ReplayDevice;
    use tidegate_api::history::SpanView;
    use tidegate_api::objective::ObjectiveView;
    use tidegate_core::request::Op;
    use tidegate_core::time::Nanos;
    use tidegate_recording::{
        DeviceFacts, DiskFacts, Encoder, Header, Recording, Request, VmFacts,
    };

    fn change(vm: &str, rate: &str, p99_ms: u64) -> Change {
        Change {
            vm: vm.to_owned(),
            objective: json!({"limit": {"total": rate}}),
            policy: None,
            words: format!("a limit of {rate} on `{vm}`"),
            p99_ns: p99_ms * 1_000_000,
        }
    }

    #[test]
    fn the_change_that_helps_is_named_with_how_far_the_replay_is_right() {
        let mut tried = Tried {
            vm: "db".to_owned(),
            p99_ns: 31_000_000,
            aim_ns: Some(9_000_000),
            reproduction: Reproduction {
                throughput_error: 0.01,
                latency_error: 0.06,
            },
            model: "hdd-7200-1tb".to_owned(),
            own_policy: "slo".to_owned(),
            replayed_ns: 30_000_000_000,
            missing_ns: 0,
            gaps: 0,
            first_requests: None,
            untried_changes: 0,
            by_hand: Some("`tidegate record dump`".to_owned()),
            changes: vec![
                change("backup", "80 MB/s", 20),
                change("backup", "40 MB/s", 8),
            ],
        };
        assert_eq!(
            tried.sentences(),
            [
                "A limit of 40 MB/s on `backup` would have kept p99 at 8 ms instead of 31 ms \
              (simulated on the recording, which it reproduces within 6 %)."
            ]
        );
        tried.changes = vec![change("backup", "10 MB/s", 30)];
        tried.reproduction.latency_error = 0.3;
        let text = tried.sentences().join(" ");
        assert!(text.contains("would not have helped: p99 30 ms"), "{text}");
        assert!(text.contains("mean nothing"), "{text}");
        (tried.missing_ns, tried.gaps) = (4_000_000_000, 1);
        let text = tried.sentences().join(" ");
        assert!(text.contains("lacks 4 s of the explained time"), "{text}");
        assert!(text.contains("has 1 gap"), "{text}");
        tried.changes[0].policy = Some("slo".to_owned());
        tried.own_policy = "fifo".to_owned();
        let text = tried.sentences().join(" ");
        assert!(
            text.contains("on `backup` under the policy `slo` would not"),
            "{text}"
        );
        assert!(text.contains("not enforced by `fifo`"), "{text}");
        assert!(!text.contains("All of it"), "{text}");
        // Bounds left a part out: of the time, and of the changes.
        tried.first_requests = Some(500_000);
        let text = tried.sentences().join(" ");
        let requests = count(500_000);
        let first = format!(
            "Only the first 30 s of the explained time, {requests} requests, were simulated."
        );
        for part in [&*first, "All of it: `tidegate record dump`."] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(!text.contains("lacks"), "{text}");
        tried.first_requests = None;
        for (untried, part) in [(1, "1 change was not"), (4, "4 changes were not")] {
            tried.untried_changes = untried;
            let text = tried.sentences().join(" ");
            assert!(text.contains(part), "{part}: {text}");
            assert!(text.contains("All of it"), "{text}");
        }
        tried.changes.clear();
        let text = tried.sentences().join(" ");
        assert!(!text.contains("no change to try"), "{text}");
    }

    /// Diagnosis of `db`, which `backup` delays at 80 MB/s.
    fn diagnosis() -> Diagnosis {
        let finding = json!({
            "cause": "vm", "vm": "backup", "share": 1.0, "mean_ns": 1, "confidence": "high",
            "remedies": [{"kind": "limit", "vm": "backup", "bytes_per_s": 40_000_000, "iops": 40}],
        });
        let diagnosis = json!({
            "vm": "db", "verdict": "others", "culprits": ["backup"], "basis": "total",
            "mean_ns": 1, "p99_before_ns": 1, "stalled_ns": 0, "hung": false, "unanswered": 0,
            "missed": [], "findings": [finding], "gaps": [],
        });
        serde_json::from_value(diagnosis).expect("a diagnosis")
    }

    /// Recording of two VMs that read from a hard disk at once, for `seconds`.
    fn recording(seconds: u64) -> Recording {
        let objective = objective::to_json(&Objective::default());
        let objective: ObjectiveView = serde_json::from_value(objective).expect("a view");
        let vm = |number: u32, name: &str| VmFacts {
            number,
            name: name.to_owned(),
            disks: vec![DiskFacts {
                number,
                name: name.to_owned(),
                size_bytes: 1 << 30,
                at: u64::from(number) << 30,
            }],
            objective: objective.clone(),
            ..VmFacts::default()
        };
        let header = Header {
            device: DeviceFacts {
                model: Some("hdd-7200-1tb".to_owned()),
                ..DeviceFacts::default()
            },
            vms: vec![vm(0, "db"), vm(1, "backup")],
            ..Header::default()
        };
        let mut bytes = Vec::new();
        let mut encoder = Encoder::new(&header, &mut bytes);
        for number in 0..seconds * 10 {
            for disk in 0..2 {
                let arrived = Nanos(number * 100_000_000);
                let done = Nanos(arrived.0 + 20_000_000);
                let request = Request {
                    disk,
                    op: Op::Read,
                    fua: false,
                    keep_allocated: false,
                    outcome: Ok(()),
                    offset: number * 4096,
                    len: 4096,
                    arrived,
                    admitted: arrived,
                    sent: arrived,
                    done,
                };
                encoder.push(&request, &mut bytes);
            }
        }
        encoder.end(Nanos::from_secs(seconds), &mut bytes);
        Recording::read(bytes.as_slice(), usize::MAX).expect("a recording")
    }

    /// Tries changes within a budget.
    fn tried_within(budget: u64) -> Result<Tried> {
        let source = Source {
            name: "the recording".to_owned(),
            recording: recording(10),
            bounds: Some(Bounds {
                is_cut: false,
                budget,
                by_hand: "`do it`".to_owned(),
            }),
        };
        let span = SpanView {
            from_ms: 0,
            to_ms: 10_000,
        };
        let device = ReplayDevice {
            model: None,
            profile: None,
        };
        let view = ExplainView {
            asked: span,
            explained: span,
            searched: false,
            device: Some("disk0".to_owned()),
            sentences: Vec::new(),
            diagnosis: diagnosis(),
        };
        tried(&source, replay_of(&source, device, span)?, &view)
    }

    #[test]
    fn a_budget_bounds_the_changes_that_are_tried() {
        let all = tried_within(u64::MAX).expect("it can be replayed");
        assert_eq!((all.changes.len(), all.untried_changes), (3, 0));
        // A replay costs some 200 requests, and 100 for each of ten seconds.
        let some = tried_within(3000).expect("it can be replayed");
        assert_eq!((some.changes.len(), some.untried_changes), (1, 2));
        let none = tried_within(600).expect_err("too little");
        let text = problem::sentence(&none);
        assert!(text.contains("a replay of 10 s takes more"), "{text}");
        assert!(text.contains("`do it`"), "{text}");
    }

    #[test]
    fn there_is_nothing_to_try_for_a_vm_that_is_as_fast_as_usual() {
        let mut diagnosis = diagnosis();
        assert!(has_candidates(&diagnosis));
        diagnosis.verdict = Verdict::NotSlower;
        assert!(!has_candidates(&diagnosis));
    }
}
