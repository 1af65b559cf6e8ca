//! Replays of a search, within a budget. Who searches runs them, one by one or several at once.

use super::settings::{Outcome, Settings, VmOutcome};
use crate::what_if::{Figures, Part, WhatIfError};
use crate::world::World;
use std::collections::BTreeMap;
use tidegate_core::objective::Objective;
use tidegate_core::time::Nanos;

/// Longest time at the beginning of a replay that is not judged: policies learn of the device.
const WARM_UP_MAX: Nanos = Nanos::from_secs(5);
/// Part of a replay that is not judged, at most.
const WARM_UP_PART: u64 = 10;
/// Requests for which a simulated second counts: a replay without requests takes time, too.
const SECOND_COST: u64 = 100;
/// Part of the budget that the first replays may take, as divisor.
const FIRST: u64 = 4;

/// Replay that a search wants.
#[derive(Clone, Copy, Debug)]
pub struct Trial<'a> {
    /// Part of the recording.
    part: &'a Part,
    /// Settings that hold all the time.
    settings: &'a Settings,
    /// VMs of the whole recording.
    vms: usize,
    /// Cost at which the replay stops.
    most: u64,
}

impl Trial<'_> {
    /// Runs the replay. It has the same result whenever it runs, and whatever runs beside it.
    pub fn run(&self) -> Trialed {
        replay(self.part, self.settings, self.vms, self.most)
    }
}

/// End of a replay.
#[derive(Debug)]
pub struct Trialed {
    /// Outcome, or the reason why there is none.
    pub(super) result: Result<Outcome, NoOutcome>,
    /// Requests that were simulated.
    pub(super) requests: u64,
    /// Simulated time.
    pub(super) reached: Nanos,
}

/// Reason why a replay has no outcome.
#[derive(Debug)]
pub(super) enum NoOutcome {
    /// The settings cannot be in force.
    Refused(WhatIfError),
    /// The replay took more than it may.
    Stopped,
}

impl Trialed {
    /// Returns the cost of the replay, as the budget counts it.
    pub fn cost(&self) -> u64 {
        cost(self.requests, self.reached)
    }
}

/// Replays a part under settings that hold all the time. The replay stops when it has a cost of
/// `most`.
fn replay(part: &Part, settings: &Settings, vms: usize, most: u64) -> Trialed {
    let mut end = Trialed {
        result: Ok(Outcome {
            vms: vec![None; vms],
            requests: 0,
        }),
        requests: 0,
        reached: Nanos::ZERO,
    };
    // No scenario is without VMs, but a part of a recording may have no request.
    if part.vms.is_empty() {
        return end;
    }
    let objectives: BTreeMap<usize, Objective> = (part.vms.iter().enumerate())
        .map(|(local, &place)| (local, settings.objectives[place]))
        .collect();
    let scenario = part.what_if.scenario(Some(&settings.policy), &objectives);
    let mut scenario = match scenario {
        Ok(scenario) => scenario,
        Err(error) => {
            end.result = Err(NoOutcome::Refused(error));
            return end;
        }
    };
    let warm_up = Nanos(part.what_if.duration.0 / WARM_UP_PART).min(WARM_UP_MAX);
    // Promises are judged by whole seconds.
    scenario.frame.warm_up = Nanos(warm_up.0.next_multiple_of(Nanos::SECOND.0));
    let mut world = World::new(scenario, None);
    while !world.is_over() {
        world.step(&mut |_| {});
        (end.requests, end.reached) = (world.answered(), world.now());
        if cost(end.requests, end.reached) > most {
            end.result = Err(NoOutcome::Stopped);
            return end;
        }
    }
    let mut outcome = Outcome {
        vms: vec![None; vms],
        requests: end.requests,
    };
    for (vm, &place) in world.report().vms.into_iter().zip(&part.vms) {
        outcome.vms[place] = Some(VmOutcome {
            figures: Figures::of_rates(&vm.rates),
            promises: vm.promises,
        });
    }
    end.result = Ok(outcome);
    end
}

/// Returns the cost of a replay with so many requests in so much simulated time, as a budget counts
/// it.
pub fn cost(requests: u64, time: Nanos) -> u64 {
    let seconds = time.0.div_ceil(Nanos::SECOND.0);
    requests.saturating_add(seconds.saturating_mul(SECOND_COST))
}

/// Runs all trials of a batch, in any order, and returns their ends in the order of the trials.
pub type RunAll<'a> = dyn FnMut(&[Trial<'_>]) -> Vec<Trialed> + 'a;

/// Runs replays and counts them.
pub(super) struct Trials<'a> {
    run_all: &'a mut RunAll<'a>,
    /// VMs of the whole recording.
    vms: usize,
    pub(super) budget: u64,
    /// Cost of the search so far.
    spent: u64,
    /// Requests that are simulated for each one that was recorded, at least 1: VMs that wait for
    /// answers send more of them on a faster device.
    ratio: f64,
    /// Replays so far.
    pub(super) replays: u64,
    /// Requests that were simulated so far.
    pub(super) requests: u64,
    /// True if settings were left out because of the budget.
    pub(super) exhausted: bool,
}

impl<'a> Trials<'a> {
    pub(super) fn new(vms: usize, budget: u64, run_all: &'a mut RunAll<'a>) -> Trials<'a> {
        Trials {
            run_all,
            vms,
            budget,
            spent: 0,
            ratio: 1.0,
            replays: 0,
            requests: 0,
            exhausted: false,
        }
    }

    /// Returns the expected cost of a replay of so many recorded requests in a time.
    pub(super) fn expected(&self, recorded: u64, time: Nanos) -> u64 {
        cost((recorded as f64 * self.ratio) as u64, time).max(1)
    }

    /// Replays a part under all settings, in their order, as far as the budget allows. Settings
    /// that cannot be in force are left out.
    pub(super) fn try_all(
        &mut self,
        part: &Part,
        mut all: Vec<Settings>,
    ) -> Vec<(Settings, Outcome)> {
        // Which settings are tried must not depend on the order in which replays end.
        let left = self.budget.saturating_sub(self.spent);
        let expected = self.expected(part.what_if.requests(), part.what_if.duration);
        let fit = usize::try_from(left / expected).unwrap_or(usize::MAX);
        self.exhausted |= all.len() > fit;
        all.truncate(fit);
        let borrowed: Vec<&Settings> = all.iter().collect();
        // All of them together stay within the budget, whatever the settings do.
        let most = left / borrowed.len().max(1) as u64;
        let ends = self.run(part, &borrowed, most);
        self.spent += ends.iter().map(Trialed::cost).sum::<u64>();
        let mut tried = Vec::new();
        for (settings, end) in all.into_iter().zip(ends) {
            match end.result {
                Ok(outcome) => tried.push((settings, outcome)),
                Err(NoOutcome::Stopped) => self.exhausted = true,
                Err(NoOutcome::Refused(_)) => {}
            }
        }
        tried
    }

    /// Replays a part under the settings in force, from which the cost of other replays is
    /// expected.
    ///
    /// # Errors
    /// If the settings cannot be in force, or the replay takes more than its part of the budget.
    pub(super) fn first(
        &mut self,
        part: &Part,
        settings: &Settings,
    ) -> Result<Outcome, WhatIfError> {
        let most = self.budget / FIRST;
        let mut ends = self.run(part, &[settings], most);
        let end = ends.pop().expect("a trial has an end");
        self.spent += end.cost();
        let recorded = part.what_if.requests().max(1) as f64;
        self.ratio = (end.requests as f64 / recorded).max(1.0);
        end.result.map_err(|why| match why {
            NoOutcome::Refused(error) => error,
            NoOutcome::Stopped => WhatIfError::Budget(most),
        })
    }

    /// Replays a part under both settings, beside the budget and each for as much as the whole of
    /// it. Returns the time that was reached if one of them takes more.
    pub(super) fn judge(
        &mut self,
        part: &Part,
        both: [&Settings; 2],
    ) -> Result<Result<[Outcome; 2], Nanos>, WhatIfError> {
        let mut outcomes = Vec::new();
        let mut reached = None;
        for end in self.run(part, &both, self.budget) {
            match end.result {
                Ok(outcome) => outcomes.push(outcome),
                Err(NoOutcome::Stopped) => {
                    let least: Nanos = reached.unwrap_or(end.reached);
                    reached = Some(least.min(end.reached));
                }
                Err(NoOutcome::Refused(error)) => return Err(error),
            }
        }
        Ok(match reached {
            Some(reached) => Err(reached),
            None => Ok(outcomes.try_into().expect("each of them was replayed")),
        })
    }

    fn run(&mut self, part: &Part, all: &[&Settings], most: u64) -> Vec<Trialed> {
        let vms = self.vms;
        let trials = all.iter().map(|settings| Trial {
            part,
            settings,
            vms,
            most,
        });
        let trials: Vec<Trial<'_>> = trials.collect();
        let ends = (self.run_all)(&trials);
        assert_eq!(ends.len(), trials.len(), "each trial has an end");
        self.replays += ends.len() as u64;
        self.requests += ends.iter().map(|end| end.requests).sum::<u64>();
        ends
    }
}
