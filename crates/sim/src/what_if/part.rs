//! Part of a recording, which is replayed by itself.

use super::{Figures, RecordedVm, WhatIf};
use tidegate_core::objective::{Limit, Objective};
use tidegate_core::time::Nanos;
use tidegate_policies::policy::PolicySpec;
use tidegate_workload::dependence::Span;
use tidegate_workload::trace::{Record, Took};

/// Requests of a recording that arrived in a range of time or were outstanding when it began, with
/// the VMs and settings of that time.
#[derive(Clone, Debug)]
pub struct Part {
    /// Replay of the part, whose time begins at `from`.
    pub what_if: WhatIf,
    /// Place in the whole recording of each VM of the part: VMs without requests are left out.
    pub vms: Vec<usize>,
    /// First time of the recording that belongs to the part.
    pub from: Nanos,
    /// First time that does not.
    pub to: Nanos,
}

impl WhatIf {
    /// Returns the part of the recording from `from` to before `to`. Whether a VM waits for answers
    /// is as the whole recording tells. Requests that were outstanding at `from` arrive then: other
    /// settings that come into force have to serve them, too.
    ///
    /// # Panics
    /// If `to` is not after `from`.
    pub fn part(&self, from: Nanos, to: Nanos) -> Part {
        assert!(from < to, "a part from {from} to {to} is empty");
        let parts = self.vms.iter().enumerate();
        let (places, vms) = parts
            .filter_map(|(place, vm)| Some((place, vm.part(from, to)?)))
            .unzip();
        let mut device = self.device.clone();
        if let Some(policy) = in_force(&self.policies, from) {
            device.scheduling.policy = policy.clone();
        }
        let what_if = WhatIf {
            vms,
            duration: to.since(from),
            seed: self.seed,
            device,
            policies: later(&self.policies, from, to),
        };
        Part {
            what_if,
            vms: places,
            from,
            to,
        }
    }

    /// Returns true if limits were enforced all the time.
    pub(super) fn always_enforced_limits(&self) -> bool {
        use tidegate_core::policy::Policy as _;
        let later = self.policies.iter().map(|(_, policy)| policy);
        let mut all = later.chain([self.policy()]);
        all.all(|policy| policy.enforces().limit)
    }

    /// Returns the policy in force at the end of the recording.
    pub fn last_policy(&self) -> &PolicySpec {
        in_force(&self.policies, self.duration).unwrap_or_else(|| self.policy())
    }

    /// Returns the number of requests that arrived from `from` to before `to`.
    pub(super) fn requests_between(&self, from: Nanos, to: Nanos) -> u64 {
        let of = |vm: &RecordedVm| vm.between(from, to).len() as u64;
        self.vms.iter().map(of).sum()
    }

    /// Returns the range of `length` between `from` and `to` in which most of the VMs `seen` have a
    /// request, and of these the one with the most load: the one in which arrive the requests that
    /// were outstanding for the longest time in total. Ranges begin at multiples of half a length.
    pub(super) fn busiest(
        &self,
        (from, to): (Nanos, Nanos),
        length: Nanos,
        seen: &[usize],
    ) -> (Nanos, Nanos) {
        if to.since(from) <= length {
            return (from, to);
        }
        let half = Nanos((length.0 / 2).max(1));
        let halves = to.since(from).0.div_ceil(half.0) as usize;
        let index = |request: &Record| (request.at.since(from).0 / half.0) as usize;
        let mut sums = vec![0u128; halves];
        for request in self.vms.iter().flat_map(|vm| vm.between(from, to)) {
            sums[index(request)] += u128::from(request.took.get().unwrap_or_default().0);
        }
        let mut seen_in = vec![0usize; halves];
        for &vm in seen {
            let mut has = vec![false; halves + 1];
            for request in self.vms[vm].between(from, to) {
                has[index(request)] = true;
            }
            let ranges = seen_in.iter_mut().zip(has.windows(2));
            ranges.for_each(|(count, two)| *count += usize::from(two[0] || two[1]));
        }
        // A range that would end beyond `to` does not count.
        let begins = (0..halves).filter(|&i| from + Nanos(half.0 * i as u64) + length <= to);
        let load = |&i: &usize| (seen_in[i], sums[i] + sums.get(i + 1).copied().unwrap_or(0));
        // The first of equal ones: `max_by_key` returns the last.
        let begin = begins.rev().max_by_key(load).unwrap_or(0);
        let begin = from + Nanos(half.0 * begin as u64);
        (begin, begin + length)
    }
}

impl RecordedVm {
    /// Returns true if the VM was there at the end of the recording.
    pub fn stays(&self) -> bool {
        self.leaves.is_none()
    }

    /// Returns the objective in force at the end of the recording, or when the VM left.
    pub fn last_objective(&self) -> &Objective {
        let last = self.objectives.last();
        last.map_or(&self.objective, |(_, objective)| objective)
    }

    /// Returns true if the VM had this limit all the time.
    pub(super) fn always_had(&self, limit: &Limit) -> bool {
        let later = self.objectives.iter().map(|(_, objective)| objective);
        let mut all = later.chain([&self.objective]);
        all.all(|objective| objective.limit == *limit)
    }

    /// Returns the requests that arrived from `from` to before `to`.
    fn between(&self, from: Nanos, to: Nanos) -> &[Record] {
        let begin = self.requests.partition_point(|request| request.at < from);
        let end = self.requests.partition_point(|request| request.at < to);
        &self.requests[begin..end]
    }

    /// Returns the requests that arrived before `from` and were answered later, as if they arrived
    /// then.
    fn outstanding(&self, from: Nanos) -> impl Iterator<Item = Record> {
        let earlier = self.between(Nanos::ZERO, from).iter();
        earlier.filter_map(move |request| {
            let ends = request.at + request.took.get()?;
            (ends > from).then(|| Record {
                at: Nanos::ZERO,
                took: Took::new(ends.since(from)),
                ..*request
            })
        })
    }

    /// Returns the part of the VM from `from` to before `to`; `None` if it has no request then.
    fn part(&self, from: Nanos, to: Nanos) -> Option<RecordedVm> {
        let arrives = self.arrives.since(from);
        let arrived = self.between(from, to).iter().map(|request| Record {
            at: request.at.since(from),
            ..*request
        });
        let requests: Vec<Record> = self.outstanding(from).chain(arrived).collect();
        if requests.is_empty() {
            return None;
        }
        let span = |request: &Record| {
            let arrived = request.at.since(arrives);
            let took = request.took.get().unwrap_or_default();
            Span {
                arrived,
                done: arrived + took,
            }
        };
        let spans: Vec<Span> = requests.iter().map(span).collect();
        let leaves = self.leaves.filter(|&leaves| leaves < to);
        let leaves = leaves.map(|leaves| leaves.since(from));
        let there = leaves.unwrap_or(to.since(from)).since(arrives);
        Some(RecordedVm {
            name: self.name.clone(),
            last_name: self.last_name.clone(),
            scheduled: self.scheduled,
            disk_limits: self.disk_limits,
            background: self.background,
            objective: *in_force(&self.objectives, from).unwrap_or(&self.objective),
            inference: self.inference.about(&spans),
            recorded: Figures::of_recorded(&requests, there),
            held_back: self.held_back,
            arrives,
            leaves: leaves.filter(|&leaves| leaves > arrives),
            disk_at: self.disk_at,
            disk_size: self.disk_size,
            requests,
            objectives: later(&self.objectives, from, to),
        })
    }
}

/// Returns the last of the values that came into force by `at`.
fn in_force<T>(values: &[(Nanos, T)], at: Nanos) -> Option<&T> {
    let upto = values.iter().take_while(|(time, _)| *time <= at);
    upto.last().map(|(_, value)| value)
}

/// Returns the values that come into force after `from` and before `to`, with their times since
/// `from`.
fn later<T: Clone>(values: &[(Nanos, T)], from: Nanos, to: Nanos) -> Vec<(Nanos, T)> {
    let later = values.iter().filter(|(at, _)| *at > from && *at < to);
    later
        .map(|(at, value)| (at.since(from), value.clone()))
        .collect()
}
