//! Search for settings that keep all promises of a recording.
//!
//! ```text
//!   recording  |-|---- searched, up to 60 % --|-- judged, 40 % --|
//!                    [== busiest slice ==]
//!
//!   diagnosis: limits that hurt, neighbours without a limit   (one change at a time)
//!   policies:  all on a quarter of the slice, the better half on half of it, the best three
//!   steps:     each of the three: the best of all single changes, as long as one is better
//!   params:    of the policy, if promises are still missed
//! ```
//!
//! Settings are compared by the promises that they miss, then by how much, then by the throughput
//! that they take from VMs; of two that are equal, a limit that is dropped is better than one that
//! is raised. Each change counts as 2 % of throughput, so that one that is not needed is not made,
//! and promises that the policy does not enforce as up to 20 %. The result is judged on the rest of
//! the recording, of which the search knows nothing.
//!
//! The budget is counted in simulated requests and seconds, not in time: the same recording and
//! seed give the same answer on every machine. A search only says which replays it wants
//! ([`Trial`]); its caller runs them, on as many threads as it likes.
//!
//! Sources: successive halving is from Jamieson and Talwalkar, "Non-stochastic best arm
//! identification and hyperparameter optimization", AISTATS 2016.

mod findings;
mod moves;
mod settings;
mod trial;

pub use findings::{Finding, FindingKind};
pub use settings::{Outcome, Settings, VmOutcome};
pub use trial::{RunAll, Trial, Trialed, cost};

use self::moves::Moves;
use self::settings::Score;
use self::trial::Trials;
use super::{Part, WhatIf, WhatIfError};
use tidegate_core::policy::Policy as _;
use tidegate_core::time::Nanos;
use tidegate_policies::policy::PolicySpec;

/// Part of the recording up to which it is searched, in percent; the rest is judged.
const SEARCHED_PERCENT: u64 = 60;
/// Part of the recording that is left out, in percent, and the longest time of it: of the requests
/// that waited when the recording began only those are known that arrived in it, and settings are
/// judged with what waits for them.
const SKIPPED_PERCENT: u64 = 10;
const SKIPPED_MAX_S: u64 = 5;
/// Shortest recording that has room for two parts.
pub const SHORTEST: Nanos = Nanos::from_secs(10);
/// Shortest slice: less has too few whole seconds to judge by.
pub(super) const SLICE_MIN: Nanos = Nanos::from_secs(5);
/// Replays of a whole slice for which the budget must do.
const REPLAYS: u64 = 120;
/// Attempts to find a slice of the judged part whose replays stay within their bound.
const JUDGE_ATTEMPTS: usize = 4;
/// Policies that are searched to the end.
const FINALISTS: usize = 3;
/// Most steps of a policy.
const STEPS_MAX: usize = 12;

/// Options of a search.
#[derive(Clone, Debug)]
pub struct Options {
    /// Requests that may be simulated, which bounds the time. A simulated second counts as some,
    /// too.
    pub budget: u64,
    /// Policies to choose from; empty for all.
    pub policies: Vec<PolicySpec>,
    /// True for each VM, by its place, whose limit is given.
    pub fixed: Vec<bool>,
}

/// Result of a search.
#[derive(Clone, PartialEq, Debug)]
pub struct Choice {
    /// Range of the recording that the search may see.
    pub searched: (Nanos, Nanos),
    /// Slice of it that was replayed.
    pub slice: (Nanos, Nanos),
    /// Range that the search does not see.
    pub held_out: (Nanos, Nanos),
    /// Slice of it that was judged.
    pub judged: (Nanos, Nanos),
    /// Settings at the end of the recording, with the promises that were asked for.
    pub before: Settings,
    /// Settings that were chosen.
    pub after: Settings,
    /// Outcome of both on the slice.
    pub on_slice: [Outcome; 2],
    /// Outcome of both on the judged slice.
    pub on_judged: [Outcome; 2],
    /// Promises of VMs that stay, of which the slice that was searched says nothing, as places of
    /// VMs and names of parts.
    pub unsearched: Vec<(usize, &'static str)>,
    /// Promises of VMs that stay, of which the judged slice says nothing.
    pub unjudged: Vec<(usize, &'static str)>,
    /// Findings about limits.
    pub findings: Vec<Finding>,
    /// Promises that no settings of the search kept together, as places of VMs and names of parts;
    /// empty if all were kept on the slice.
    pub conflict: Vec<(usize, &'static str)>,
    /// Promises among those that were missed even while all other VMs were nearly idle.
    pub hopeless: Vec<(usize, &'static str)>,
    /// Number of replays.
    pub replays: u64,
    /// Simulated requests.
    pub requests: u64,
    /// True if the budget ended the search.
    pub exhausted: bool,
}

/// Searches settings for the recording `what_if`, beginning with `before`, those in force with the
/// promises that must be kept. `run_all` runs the replays.
///
/// # Errors
/// If the recording is too short, cannot be replayed with `before`, or takes too long to replay for
/// the budget.
pub fn choose(
    what_if: &WhatIf,
    before: &Settings,
    options: &Options,
    run_all: &mut RunAll<'_>,
) -> Result<Choice, WhatIfError> {
    if what_if.duration < SHORTEST {
        return Err(WhatIfError::TooShort(what_if.duration));
    }
    // Whole seconds, by which promises are judged.
    let at = |percent| what_if.duration.0 / Nanos::SECOND.0 * percent / 100;
    let first = Nanos::from_secs(at(SKIPPED_PERCENT).min(SKIPPED_MAX_S));
    let middle = Nanos::from_secs(at(SEARCHED_PERCENT));
    let (searched, held_out) = ((first, middle), (middle, what_if.duration));
    let fixed: Vec<bool> = (what_if.vms.iter().zip(&options.fixed))
        .map(|(vm, given)| *given || !vm.stays())
        .collect();
    let moves = Moves {
        what_if,
        in_force: before,
        fixed: &fixed,
        policies: &options.policies,
    };
    let mut ranges = Ranges {
        what_if,
        seen: promised(what_if, before),
        trials: Trials::new(what_if.vms.len(), options.budget, run_all),
    };
    let slice = ranges.slice(searched, before)?;
    let slices = ranges.rungs(slice);
    let first = ranges.trials.first(&slices[2], before)?;
    let mut search = Search {
        moves,
        ranges,
        slices,
        tried: vec![(before.clone(), first.clone())],
        first,
        found: Vec::new(),
    };
    let (after, on_slice) = search.run();
    let (judged, on_judged) = search.ranges.judged(held_out, [before, &after])?;
    let best = (after, on_slice);
    let (conflict, hopeless) = search.conflict(&best);
    let (after, on_slice) = best;
    let trials = &search.ranges.trials;
    Ok(Choice {
        searched,
        slice,
        held_out,
        judged,
        findings: search.findings(),
        before: before.clone(),
        unsearched: on_slice.unjudged(what_if, &after),
        unjudged: on_judged[1].unjudged(what_if, &after),
        after,
        on_slice: [search.first.clone(), on_slice],
        on_judged,
        conflict,
        hopeless,
        replays: trials.replays,
        requests: trials.requests,
        exhausted: trials.exhausted,
    })
}

/// Returns the VMs that are promised a rate or a latency and stay.
fn promised(what_if: &WhatIf, before: &Settings) -> Vec<usize> {
    let vms = what_if.vms.iter().zip(&before.objectives).enumerate();
    let promised = vms.filter(|(_, (vm, objective))| vm.stays() && !moves::is_plain(objective));
    promised.map(|(vm, _)| vm).collect()
}

/// Choice of the parts of a recording that are replayed.
struct Ranges<'a> {
    what_if: &'a WhatIf,
    /// VMs that slices should have requests of.
    seen: Vec<usize>,
    trials: Trials<'a>,
}

impl Ranges<'_> {
    /// Returns the busiest slice of a range of which the budget allows as many replays as a search
    /// takes.
    fn slice(
        &mut self,
        range: (Nanos, Nanos),
        before: &Settings,
    ) -> Result<(Nanos, Nanos), WhatIfError> {
        // How many requests a replay has is not known before: that depends on the device.
        let (from, to) = self.what_if.busiest(range, SLICE_MIN, &self.seen);
        self.trials.first(&self.what_if.part(from, to), before)?;
        let length = self.length(range, self.trials.budget / REPLAYS);
        Ok(self.what_if.busiest(range, length, &self.seen))
    }

    /// Returns the length of a slice of a range that costs about as much as given, in whole
    /// seconds.
    fn length(&self, (from, to): (Nanos, Nanos), most: u64) -> Nanos {
        let whole = to.since(from);
        let cost = (self.trials).expected(self.what_if.requests_between(from, to), whole);
        let share = u128::from(whole.0) * u128::from(most) / u128::from(cost);
        let length = u64::try_from(share).unwrap_or(u64::MAX);
        Nanos(length / Nanos::SECOND.0 * Nanos::SECOND.0).max(SLICE_MIN)
    }

    /// Returns a quarter of a slice, half of it and all of it; no part is shorter than the least.
    fn rungs(&self, (from, to): (Nanos, Nanos)) -> [Part; 3] {
        [4, 2, 1].map(|parts| {
            let length = Nanos(to.since(from).0 / parts).max(SLICE_MIN);
            let (from, to) = self.what_if.busiest((from, to), length, &self.seen);
            self.what_if.part(from, to)
        })
    }

    /// Replays a range that the search has not seen under both settings, or its busiest slice if
    /// all of it takes more than the budget once more. Returns what was replayed with the outcomes.
    fn judged(
        &mut self,
        range: (Nanos, Nanos),
        both: [&Settings; 2],
    ) -> Result<((Nanos, Nanos), [Outcome; 2]), WhatIfError> {
        let mut length = self.length(range, self.trials.budget / 2);
        for _ in 0..JUDGE_ATTEMPTS {
            let (from, to) = self.what_if.busiest(range, length, &self.seen);
            match self.trials.judge(&self.what_if.part(from, to), both)? {
                Ok(outcomes) => return Ok(((from, to), outcomes)),
                // Settings may let through far more requests than those in force.
                Err(reached) => length = Nanos(reached.0 / 2).max(SLICE_MIN),
            }
        }
        Err(WhatIfError::Budget(self.trials.budget))
    }
}

/// State of a search.
struct Search<'a> {
    moves: Moves<'a>,
    ranges: Ranges<'a>,
    /// Parts of the recording to replay: a quarter of the slice, half of it, all of it.
    slices: [Part; 3],
    /// Outcome of the settings in force on the slice.
    first: Outcome,
    /// Everything that was tried on the whole slice.
    tried: Vec<Tried>,
    /// Findings of the diagnosis.
    found: Vec<Finding>,
}

/// Settings with their outcome on the whole slice.
type Tried = (Settings, Outcome);

impl Search<'_> {
    /// Finds the best settings.
    fn run(&mut self) -> Tried {
        let mut best = (self.moves.in_force.clone(), self.first.clone());
        let diagnosed = self.diagnose();
        if best.1.missed().next().is_none() {
            // All is well: what is not needed is not changed.
            return best;
        }
        for start in self.finalists(&diagnosed) {
            let found = self.descend(start);
            best = self.better(best, found);
        }
        if self.score(&best).missed > 0 {
            let params = self.moves.params(&best.0);
            let found = self.best_of(params);
            best = self.better(best, found);
        }
        best
    }

    fn score(&self, (settings, outcome): &Tried) -> Score {
        outcome.score(settings, self.moves.in_force, &self.first)
    }

    /// Returns `other` if it is better than `best`, and `best` otherwise.
    fn better(&self, best: Tried, other: Option<Tried>) -> Tried {
        match other {
            Some(other) if self.score(&other) < self.score(&best) => other,
            _ => best,
        }
    }

    /// Returns the best of settings on the whole slice; `None` if none could be tried.
    fn best_of(&mut self, all: Vec<Settings>) -> Option<Tried> {
        // What was tried is known.
        let is_new = |settings: &Settings| self.tried.iter().all(|(known, _)| known != settings);
        let new: Vec<Settings> = all.into_iter().filter(is_new).collect();
        let tried = self.ranges.trials.try_all(&self.slices[2], new);
        self.tried.extend(tried.iter().cloned());
        let best = |best: Option<Tried>, other: Tried| match best {
            Some(best) => Some(self.better(best, Some(other))),
            None => Some(other),
        };
        tried.into_iter().fold(None, best)
    }

    /// Returns the settings to begin the last search with: the best of each of the best policies.
    fn finalists(&mut self, diagnosed: &Settings) -> Vec<Settings> {
        let in_force = self.moves.in_force;
        let mut all = vec![in_force.clone()];
        for policy in self.policies() {
            for start in [in_force, diagnosed] {
                let start = Settings {
                    policy: policy.clone(),
                    ..start.clone()
                };
                // A limit that is not enforced changes nothing.
                let limits = start.objectives != in_force.objectives;
                if !all.contains(&start) && (!limits || policy.enforces().limit) {
                    all.push(start);
                }
            }
        }
        for rung in 0..2 {
            let tried = self.ranges.trials.try_all(&self.slices[rung], all.clone());
            let Some((_, before)) = tried.iter().find(|(settings, _)| settings == in_force) else {
                break;
            };
            let mut scored: Vec<(Score, &Settings)> = (tried.iter())
                .map(|(settings, outcome)| (outcome.score(settings, in_force, before), settings))
                .collect();
            // Stable: of equal ones the first stays.
            scored.sort_by(|a, b| a.0.partial_cmp(&b.0).expect("scores are numbers"));
            let keep = scored.len().div_ceil(2).max(FINALISTS);
            let mut kept: Vec<Settings> = (scored
                .into_iter()
                .take(keep)
                .map(|(_, settings)| settings.clone()))
            .collect();
            // To change nothing is always a choice, and the measure of throughput.
            if !kept.contains(in_force) {
                kept.push(in_force.clone());
            }
            all = kept;
        }
        // One start for each policy.
        let mut finalists: Vec<Settings> = Vec::new();
        for settings in all {
            let is_new = finalists
                .iter()
                .all(|other| other.policy != settings.policy);
            if is_new && self.moves.may_choose(&settings.policy) && finalists.len() < FINALISTS {
                finalists.push(settings);
            }
        }
        finalists
    }

    /// Returns the policies to try: those that were asked for, or all that can be in force.
    fn policies(&self) -> Vec<PolicySpec> {
        let has_profile = self.moves.what_if.device.scheduling.profile.is_some();
        let own = &self.moves.in_force.policy;
        let asked = if self.moves.policies.is_empty() {
            tidegate_policies::policy::registry()
                .iter()
                .map(|info| PolicySpec::named(info.name).expect("registered"))
                .collect()
        } else {
            self.moves.policies.to_vec()
        };
        // The policy in force keeps its parameters.
        let asked = asked
            .into_iter()
            .map(|policy| match policy.name() == own.name() {
                true => own.clone(),
                false => policy,
            });
        asked
            .filter(|policy| policy.check_profile(has_profile).is_ok())
            .collect()
    }

    /// Takes the best of all single changes as long as one is better.
    fn descend(&mut self, start: Settings) -> Option<Tried> {
        let known = self.tried.iter().find(|(settings, _)| *settings == start);
        let mut best = match known {
            Some(known) => known.clone(),
            None => self.best_of(vec![start])?,
        };
        for _ in 0..STEPS_MAX {
            let steps = self.moves.around(&best.0, &best.1);
            let next = self.best_of(steps);
            let is_better = |next: &Tried| self.score(next) < self.score(&best);
            match next.filter(is_better) {
                Some(next) => best = next,
                None => break,
            }
        }
        Some(best)
    }
}
