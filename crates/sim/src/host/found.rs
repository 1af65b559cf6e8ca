//! What is found out about a host and its tenants, and how promises are judged.

use super::count::{Kept, Tally};
use super::distance::Distances;
use super::guest::Worker;
use super::{DeviceTally, Guest, Host};
use tidegate_core::engine::Engine;
use tidegate_core::objective::Objective;
use tidegate_core::precision::{INTERVAL_S, Precision};
use tidegate_core::request::{Op, VmId};
use tidegate_core::roles::Waits;
use tidegate_core::time::Nanos;
use tidegate_core::tuning::Tuning;

/// Promises, and how far they were kept while they were in force.
#[derive(Clone, Copy, Debug)]
pub struct Judged {
    /// What was promised.
    pub objective: Objective,
    /// What came of it.
    pub kept: Kept,
}

/// How precisely a tenant's bandwidth was held, and how it is tuned to that.
#[derive(Clone, Copy, Debug)]
pub struct Held {
    /// Since the warm-up, or since its target was another one.
    pub precision: Precision,
    /// As it stands; `None`: nothing tunes it, or it has left.
    pub tuning: Option<Tuning>,
}

impl Host {
    /// A second is over: promises are judged by the second.
    pub(crate) fn second(&mut self) {
        for guest in &mut self.guests {
            let asks = guest.engine.is_some() && guest.outstanding > 0;
            guest.watch.second(asks);
            let ended = guest.last_answer < self.now && guest.is_over(&self.workers);
            if guest.engine.is_none() || ended {
                guest.seconds.leave_out();
            }
            guest.seconds.second(asks);
        }
    }

    /// What was before does not count; `second`: one begins right now.
    pub(crate) fn forget(&mut self, second: bool) {
        self.device = DeviceTally::default();
        self.distances.clear();
        for guest in &mut self.guests {
            guest.tally.clear();
            guest.watch.forget(second);
            guest.seconds.forget(second);
            guest.rest.past.clear();
        }
    }

    /// Every tenant by its place in the scenario, with what was counted since it was last
    /// cleared, which this does.
    pub(crate) fn collect(&mut self, mut each: impl FnMut(usize, &Tally)) {
        for guest in &mut self.guests {
            each(guest.rest.index, &guest.tally);
            guest.tally.clear();
        }
    }

    /// Every tenant by its place in the scenario, with what was counted since it was last cleared.
    pub(crate) fn tallies(&self) -> impl Iterator<Item = (usize, &Tally)> {
        self.guests
            .iter()
            .map(|guest| (guest.rest.index, &guest.tally))
    }

    /// Every tenant by its place in the scenario that has done all it was to do, and when it had.
    pub(crate) fn ends(&self) -> impl Iterator<Item = (usize, Nanos)> {
        let over = |guest: &&Guest| guest.is_over(&self.workers);
        let done = self.guests.iter().filter(over);
        done.map(|guest| (guest.rest.index, guest.last_answer))
    }

    /// Every tenant by its place in the scenario, with what became of its promises: those in
    /// force last.
    pub(crate) fn judge(&self, mut each: impl FnMut(usize, Vec<Judged>)) {
        let mut overdue = vec![0; self.guests.len()];
        for pending in &self.pending {
            let tenant = self.workers[pending.worker as usize].tenant as usize;
            let guest = &self.guests[tenant];
            let bound = guest.rest.objective.latency.unwrap_or(Nanos::MAX);
            let there = guest.engine.is_some() && pending.io.op != Op::Flush;
            overdue[tenant] += u64::from(there && self.now.since(pending.since) > bound);
        }
        for (guest, overdue) in self.guests.iter().zip(overdue) {
            let mut kept = guest.watch.kept();
            // Who is never answered at all was not served in time either.
            kept.judged += overdue;
            kept.late += overdue;
            let mut all = guest.rest.past.clone();
            all.push(Judged {
                objective: guest.rest.objective,
                kept,
            });
            each(guest.rest.index, all);
        }
    }

    /// Every tenant by its place in the scenario, with how precisely it was served.
    pub(crate) fn held(&self) -> impl Iterator<Item = (usize, Held)> {
        self.guests.iter().map(|guest| {
            let target = guest.rest.objective.target.bytes_per_s;
            let engine = &self.engines[guest.host];
            let held = Held {
                precision: guest.seconds.precision(target, INTERVAL_S),
                tuning: guest.engine.and_then(|(vm, _)| engine.tuning(vm)),
            };
            (guest.rest.index, held)
        })
    }

    /// The engine that serves the tenant at this place of the scenario, and what that calls it;
    /// `None`: the tenant is not there.
    pub(crate) fn served(&self, index: usize) -> Option<(&Engine, VmId)> {
        let guest = self.guests.iter().find(|guest| guest.rest.index == index)?;
        let (vm, _) = guest.engine?;
        Some((&self.engines[guest.host], vm))
    }

    /// Waits of its policy for requests that might come.
    pub fn waits(&self) -> Option<Waits> {
        let all = self.engines.iter().filter_map(Engine::waits);
        all.reduce(|a, b| Waits {
            begun: a.begun + b.begun,
            succeeded: a.succeeded + b.succeeded,
        })
    }

    /// What the device did since the warm-up.
    pub fn device(&self) -> DeviceTally {
        self.device
    }

    /// How far it went from one I/O to the next since the warm-up.
    pub fn distances(&self) -> &Distances {
        &self.distances
    }

    /// Requests answered since the beginning.
    pub fn answered(&self) -> u64 {
        self.answered
    }

    /// When the last of them was, or the last job's time was over.
    pub fn last_end(&self) -> Nanos {
        self.last_end
    }

    /// Nobody will ever ask for anything any more, and everybody has been answered.
    pub fn is_done(&self) -> bool {
        self.guests.iter().all(|guest| guest.outstanding == 0)
            && self.workers.iter().all(Worker::is_over)
    }

    /// The policy in force.
    pub fn policy(&self) -> &str {
        self.engines[0].policy().name()
    }
}
