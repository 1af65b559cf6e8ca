//! Changes that may help a VM, tried on a recording in the simulator.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Result;
use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Value, json};
use tidegate_api::explain::{Cause, Diagnosis, ExplainView, Remedy, Verdict};
use tidegate_api::history::SpanView;
use tidegate_config::objective;
use tidegate_core::objective::Objective;
use tidegate_core::policy::Policy;
use tidegate_core::time::Nanos;
use tidegate_policies::policy::PolicySpec;
use tidegate_sim::what_if::{Figures, Reproduction, WhatIf};
use tidegate_sim::world::World;
use tidegate_units::human::{bytes_per_s, duration, percent};

use crate::args::ExplainArgs;
use crate::problem::Problem;
use crate::progress::DelayedBar;
use crate::recording_file::{self, ReplayDevice, gaps_text, replay_problem};

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
    /// Policy of the recording.
    own_policy: String,
    /// Length of the recording's part that was replayed, and of the explained time that it lacks.
    replayed_ns: u64,
    missing_ns: u64,
    /// Gaps of the recording.
    gaps: usize,
    /// Changes of each kind, the gentlest first.
    changes: Vec<Change>,
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
/// group first.
fn candidates(diagnosis: &Diagnosis) -> Vec<Vec<Change>> {
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
            Remedy::RaiseLimit => {
                let words = format!("no limit on `{}`", diagnosis.vm);
                groups.push(vec![change(&diagnosis.vm, json!({"limit": null}), words)]);
            }
            Remedy::Reserve { .. }
            | Remedy::LessLoad
            | Remedy::CheckDevice
            | Remedy::OtherPolicy => {}
        }
    }
    groups
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
    file: &'a Path,
    progress: DelayedBar,
    done: u64,
}

impl Replays<'_> {
    /// Length of one in milliseconds of simulated time.
    fn length(what_if: &WhatIf) -> u64 {
        what_if.duration.0 / 1_000_000
    }

    /// Simulates one. Returns the figures of all VMs.
    fn run(
        &mut self,
        policy: Option<&PolicySpec>,
        objectives: &BTreeMap<usize, Objective>,
    ) -> Result<Vec<Figures>> {
        let before = self.done * Replays::length(self.what_if);
        self.done += 1;
        let scenario = self.what_if.scenario(policy, objectives);
        let scenario = scenario.map_err(|error| replay_problem(self.file, error))?;
        let mut world = World::new(scenario, None);
        while !world.is_over() {
            world.step(&mut |_| {});
            let now = before + world.now().0 / 1_000_000;
            self.progress.set(now, || "the recording".to_owned());
        }
        let report = world.report();
        let vms = self.what_if.vms.iter().zip(&report.vms);
        let duration = self.what_if.duration;
        Ok(vms
            .map(|(vm, report)| Figures::of_simulated(vm, report, duration))
            .collect())
    }
}

/// Returns the place of a VM in a recording.
fn place(what_if: &WhatIf, vm: &str) -> Option<usize> {
    what_if.vms.iter().position(|it| it.name == vm)
}

/// Tries what may help on a recording.
pub(super) fn tried(file: &Path, args: &ExplainArgs, view: &ExplainView) -> Result<Tried> {
    let Replayed {
        what_if,
        missing,
        gaps,
    } = replay_of(file, args, view.explained)?;
    let diagnosis = &view.diagnosis;
    let Some(victim) = place(&what_if, &diagnosis.vm) else {
        let names: Vec<&str> = what_if.vms.iter().map(|vm| vm.name.as_str()).collect();
        let what = format!(
            "{}: no request of VM {} in the explained time",
            file.display(),
            diagnosis.vm
        );
        return Err(Problem::new(what)
            .at("--recording")
            .help(format!("it has: {}", names.join(", ")))
            .into());
    };
    let mut groups = match diagnosis.verdict {
        // There is nothing to improve.
        Verdict::NotSlower | Verdict::NoRequests => Vec::new(),
        _ => candidates(diagnosis),
    };
    let all = groups.iter().flatten().count() as u64 + 1;
    let mut replays = Replays {
        what_if: &what_if,
        file,
        progress: DelayedBar::new(all * Replays::length(&what_if), "simulating"),
        done: 0,
    };
    let own = replays.run(None, &BTreeMap::new())?;
    let pairs: Vec<_> = (what_if.vms.iter().zip(&own))
        .map(|(vm, figures)| (vm.recorded, *figures))
        .collect();
    let aim_ns = diagnosis.p99_before_ns;
    let aim_ns = aim_ns.map(|p99| (p99 as f64 * GOOD) as u64);
    for group in &mut groups {
        try_group(group, victim, aim_ns, &mut replays)?;
    }
    let changes = groups.into_iter().flatten();
    Ok(Tried {
        vm: diagnosis.vm.clone(),
        p99_ns: own[victim].p99_ns,
        aim_ns,
        reproduction: Reproduction::new(&pairs),
        own_policy: what_if.policy().name().to_owned(),
        replayed_ns: what_if.duration.0,
        missing_ns: missing.0,
        gaps,
        changes: changes.filter(|it| it.p99_ns > 0).collect(),
    })
}

/// Tries changes of one kind until one is good enough; those behind it are removed. What the
/// recording's own policy does not enforce is tried under `slo`.
fn try_group(
    group: &mut Vec<Change>,
    victim: usize,
    aim_ns: Option<u64>,
    replays: &mut Replays<'_>,
) -> Result<()> {
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
        change.p99_ns = replays.run(policy, &changed)?[victim].p99_ns;
        if aim_ns.is_some_and(|aim| change.p99_ns <= aim) {
            group.truncate(index + 1);
            break;
        }
    }
    Ok(())
}

/// Part of a recording that belongs to the explained time.
struct Replayed {
    what_if: WhatIf,
    /// Length of the explained time that the recording lacks.
    missing: Nanos,
    gaps: usize,
}

/// Reads what a recording has of the explained time.
fn replay_of(file: &Path, args: &ExplainArgs, explained: SpanView) -> Result<Replayed> {
    let recording = recording_file::read(file, args.allow_gaps)?;
    let device = ReplayDevice {
        model: args.device.as_deref(),
        profile: args.profile.as_deref(),
    };
    let (whole, _) = recording_file::replay(file, &recording, device)?;
    let started = recording.header.started_unix_ns;
    let [from, to] = [explained.from_ms, explained.to_ms].map(|ms| ms.saturating_mul(1_000_000));
    // The last step of the explained time may be under way.
    let now = u64::try_from(Timestamp::now().as_nanosecond()).unwrap_or(u64::MAX);
    let to = to.min(now);
    let covered = (
        Nanos(from.saturating_sub(started)),
        Nanos(to.saturating_sub(started)).min(whole.duration),
    );
    if covered.0 >= covered.1 {
        let time = |ns: u64| {
            let time = i64::try_from(ns / 1_000_000_000).ok();
            let time = time.and_then(|s| Timestamp::from_second(s).ok());
            time.map_or("an unknown time".to_owned(), |time| time.to_string())
        };
        let what = format!(
            "{}: recorded from {} to {}, and the explained time is from {} to {}",
            file.display(),
            time(started),
            time(started.saturating_add(whole.duration.0)),
            time(from),
            time(to)
        );
        return Err(Problem::new(what)
            .help("`tidegate record dump --from TIME --to TIME FILE` writes another time")
            .into());
    }
    let length = covered.1.since(covered.0);
    Ok(Replayed {
        what_if: whole.part(covered.0, covered.1).what_if,
        missing: Nanos(to.saturating_sub(from)).since(length),
        gaps: recording.gaps.len(),
    })
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
        if self.changes.is_empty() {
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
        if self.missing_ns > 0 {
            sentences.push(format!(
                "The recording lacks {} of the explained time.",
                duration(self.missing_ns)
            ));
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
    use super::*;

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
            own_policy: "slo".to_owned(),
            replayed_ns: 30_000_000_000,
            missing_ns: 0,
            gaps: 0,
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
    }
}
