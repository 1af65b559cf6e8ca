//! Replays of a search: several at once, within a budget.

use super::Options;
use super::settings::{Outcome, Settings, replay};
use crate::what_if::{Part, WhatIfError};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;

/// Progress of a search.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Progress {
    /// Replays so far.
    pub replays: u64,
    /// Requests that were simulated so far.
    pub requests: u64,
    /// Requests that may be simulated.
    pub budget: u64,
}

/// Runs replays and counts them.
pub(super) struct Trials<'a> {
    /// VMs of the whole recording.
    vms: usize,
    jobs: usize,
    budget: u64,
    progress: &'a mut dyn FnMut(Progress),
    /// Replays so far.
    pub(super) replays: u64,
    /// Requests that were simulated so far.
    pub(super) requests: u64,
    /// True if settings were left out because of the budget.
    pub(super) exhausted: bool,
}

impl<'a> Trials<'a> {
    pub(super) fn new(
        vms: usize,
        options: &Options,
        progress: &'a mut dyn FnMut(Progress),
    ) -> Trials<'a> {
        Trials {
            vms,
            jobs: options.jobs.max(1),
            budget: options.budget,
            progress,
            replays: 0,
            requests: 0,
            exhausted: false,
        }
    }

    /// Replays a part under all settings, in their order, as far as the budget allows. Settings
    /// that cannot be in force are left out.
    pub(super) fn try_all(
        &mut self,
        part: &Part,
        mut all: Vec<Settings>,
    ) -> Vec<(Settings, Outcome)> {
        // By requests as recorded: which settings are tried must not depend on the order in which
        // replays end.
        let left = self.budget.saturating_sub(self.requests) / part.what_if.requests().max(1);
        let fit = usize::try_from(left).unwrap_or(usize::MAX);
        self.exhausted |= all.len() > fit;
        all.truncate(fit);
        let borrowed: Vec<&Settings> = all.iter().collect();
        let outcomes = self.replay_all(part, &borrowed);
        all.into_iter()
            .zip(outcomes)
            .filter_map(|(settings, outcome)| Some((settings, outcome.ok()?)))
            .collect()
    }

    /// Replays a part under all settings, whatever the budget is.
    pub(super) fn whatever_it_takes<const N: usize>(
        &mut self,
        part: &Part,
        all: [&Settings; N],
    ) -> Result<[Outcome; N], WhatIfError> {
        let outcomes: Result<Vec<Outcome>, _> = self.replay_all(part, &all).into_iter().collect();
        Ok(outcomes?.try_into().expect("each of them was replayed"))
    }

    fn replay_all(&mut self, part: &Part, all: &[&Settings]) -> Vec<Result<Outcome, WhatIfError>> {
        let vms = self.vms;
        let next = AtomicUsize::new(0);
        let mut outcomes: Vec<_> = all.iter().map(|_| None).collect();
        thread::scope(|scope| {
            let (sender, receiver) = mpsc::channel();
            for _ in 0..self.jobs.min(all.len()) {
                let (sender, next) = (sender.clone(), &next);
                scope.spawn(move || {
                    loop {
                        let index = next.fetch_add(1, Ordering::Relaxed);
                        let Some(settings) = all.get(index) else {
                            return;
                        };
                        // The receiver lives as long as the scope.
                        let _ = sender.send((index, replay(part, settings, vms)));
                    }
                });
            }
            // The receiver ends once the last thread has dropped its sender.
            drop(sender);
            for (index, outcome) in receiver {
                self.replays += 1;
                self.requests += outcome.as_ref().map_or(0, |outcome| outcome.requests);
                outcomes[index] = Some(outcome);
                (self.progress)(Progress {
                    replays: self.replays,
                    requests: self.requests,
                    budget: self.budget,
                });
            }
        });
        outcomes.into_iter().flatten().collect()
    }
}
