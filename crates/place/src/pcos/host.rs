//! Host as the meta-scheduler sees it.

use tidegate_core::time::Nanos;
use tidegate_core::transfers::Class;

use super::{Explanation, RequestId, Update};
use crate::admission::admit_with_rate;
use crate::forecast::verify;
use crate::what_if::WhatIf;
use crate::{
    Acceptance, Assignment, Bandwidth, Combination, Grace, HostSnapshot, LateRule, MAX_VMS,
    PriorityDatabase, Rejection, Request, VmState, rates,
};

/// Description of a host to add.
#[derive(Clone, Debug)]
pub struct HostSpec {
    /// Measured bandwidths of the host.
    pub database: PriorityDatabase,
    /// Largest number of transfers on the host; values above [`MAX_VMS`] become
    /// [`MAX_VMS`].
    pub transfers: usize,
}

impl HostSpec {
    /// Describes a host of which only the total bandwidth is known.
    pub fn new(bandwidth: Bandwidth) -> HostSpec {
        let database = PriorityDatabase::new(bandwidth);
        let transfers = MAX_VMS;
        HostSpec {
            database,
            transfers,
        }
    }
}

/// Transfer that already runs on a host, for [`Pcos::replace_host`](super::Pcos::replace_host).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ResumedTransfer {
    /// Class, and progress at `as_of`.
    pub vm: VmState,
    /// Time to which the progress refers.
    pub as_of: Nanos,
    /// Declared limit in bytes per second; `None`: none.
    pub limit: Option<u64>,
}

impl ResumedTransfer {
    pub(super) fn to_running(self, id: RequestId) -> Running {
        Running::new(id, self.vm, self.as_of, self.limit.unwrap_or(u64::MAX))
    }
}

/// Transfer that runs on a host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Running {
    /// Identifier of the transfer.
    pub id: RequestId,
    /// Class and estimated progress.
    pub vm: VmState,
    /// Time to which the progress refers.
    pub as_of: Nanos,
    /// Largest rate that the transfer uses, in bytes per second, declared or observed; `None`:
    /// unlimited as far as is known.
    pub limit: Option<u64>,
    /// Limit declared with the request, in bytes per second; [`u64::MAX`]: none.
    declared_limit: u64,
    /// Progress from which `vm` is estimated.
    known: Progress,
}

/// Progress of a transfer that is not an estimate, or was fixed when the rates of its host changed.
/// Estimates are computed from it in one step, so they do not depend on how often they are made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Progress {
    /// Bytes moved.
    moved: u64,
    /// Time to which `moved` refers.
    as_of: Nanos,
}

impl Running {
    /// Creates a transfer that starts or resumes.
    pub(super) fn new(id: RequestId, vm: VmState, as_of: Nanos, limit: u64) -> Running {
        Running {
            id,
            vm,
            as_of,
            limit: (limit < u64::MAX).then_some(limit),
            declared_limit: limit,
            known: Progress {
                moved: vm.transfer.map_or(0, |transfer| transfer.moved),
                as_of,
            },
        }
    }

    /// Makes the estimated progress the known one.
    fn fix_progress(&mut self) {
        self.known = Progress {
            moved: self.vm.transfer.map_or(0, |transfer| transfer.moved),
            as_of: self.as_of,
        };
    }

    /// Replaces the progress by a reported one.
    fn report(&mut self, moved: u64) {
        if let Some(transfer) = &mut self.vm.transfer {
            transfer.moved = moved;
        }
        self.fix_progress();
    }

    /// Updates the observed limit: `at` is a rate limited by the transfer's own demand; `None`: it
    /// used all of the rate `given` to it.
    fn update_limit(&mut self, at: Option<u64>, given: u64) {
        let seen = match at {
            Some(at) => at,
            // A rate below the known limit does not contradict that limit.
            None => self
                .limit
                .filter(|limit| *limit > given)
                .unwrap_or(u64::MAX),
        };
        let limit = seen.min(self.declared_limit);
        self.limit = (limit < u64::MAX).then_some(limit);
    }

    /// Estimates the progress at `now` from the known one, at `bytes_per_s` since then.
    fn advance(&mut self, now: Nanos, bytes_per_s: u64) {
        let time = u128::from(now.since(self.known.as_of).0);
        if let Some(transfer) = &mut self.vm.transfer {
            transfer.moved = self.known.moved;
            // 128 bits, and no more than is left: an unlimited rate is `u64::MAX`.
            let moved = time * u128::from(bytes_per_s) / u128::from(Nanos::SECOND.0);
            let left = u128::from(transfer.bytes_left()).min(moved);
            transfer.moved += left as u64;
        }
        self.as_of = now.max(self.known.as_of);
    }
}

#[derive(Clone, Debug)]
pub(super) struct Host {
    database: PriorityDatabase,
    most: usize,
    /// May accept transfers; `false` after `close_host`.
    open: bool,
    gone: bool,
    running: Vec<Running>,
    /// VMs of `running`, in the same order.
    vms: Vec<VmState>,
    limits: Vec<Option<u64>>,
    grace: Grace,
    late_rule: LateRule,
    acceptance: Acceptance,
}

impl Host {
    pub(super) fn new(spec: HostSpec, grace: Grace, late_rule: LateRule) -> Host {
        Host {
            database: spec.database,
            // The database has no entries beyond `MAX_VMS` VMs.
            most: spec.transfers.min(MAX_VMS),
            open: true,
            gone: false,
            running: Vec::new(),
            vms: Vec::new(),
            limits: Vec::new(),
            grace,
            late_rule,
            acceptance: Acceptance::none(),
        }
    }

    pub(super) fn running(&self) -> &[Running] {
        &self.running
    }

    pub(super) fn database(&self) -> &PriorityDatabase {
        &self.database
    }

    pub(super) fn acceptance(&self) -> &Acceptance {
        &self.acceptance
    }

    pub(super) fn is_open(&self) -> bool {
        self.open
    }

    pub(super) fn set_open(&mut self, open: bool) {
        // A removed host is never opened again.
        self.open = open && !self.gone;
    }

    pub(super) fn is_gone(&self) -> bool {
        self.gone
    }

    /// Removes the host; returns its transfers with their estimated progress.
    pub(super) fn remove(&mut self, now: Nanos) -> Vec<Running> {
        self.advance_all(now);
        (self.open, self.gone) = (false, true);
        core::mem::take(&mut self.running)
    }

    /// Returns whether another transfer may run here.
    fn has_room(&self) -> bool {
        self.open && self.running.len() < self.most
    }

    /// Highest rate of a transfer alone on the host in bytes per second; 0 after removal.
    pub(super) fn solo_rate(&self) -> u64 {
        if self.gone {
            return 0;
        }
        let rate = |class| {
            self.database
                .rates(&Combination::from_classes([class]))
                .for_class(class)
        };
        Class::ALL.map(rate).into_iter().max().unwrap_or(0)
    }

    /// Description of the host, with what its database has learnt.
    #[cfg(test)]
    pub(super) fn spec(&self) -> HostSpec {
        HostSpec {
            database: self.database.clone(),
            transfers: self.most,
        }
    }

    /// Transfers with the progress from which their estimates are computed.
    #[cfg(test)]
    pub(super) fn resumable(&self) -> Vec<ResumedTransfer> {
        let to_known = |running: &Running| {
            let mut vm = running.vm;
            if let Some(transfer) = &mut vm.transfer {
                transfer.moved = running.known.moved;
            }
            ResumedTransfer {
                vm,
                as_of: running.known.as_of,
                limit: running.limit,
            }
        };
        self.running.iter().map(to_known).collect()
    }

    pub(super) fn push(&mut self, running: Running) {
        self.running.push(running);
    }

    /// Snapshot at `now`, with the VMs as last advanced.
    fn snapshot(&self, now: Nanos) -> HostSnapshot<'_> {
        HostSnapshot::new(now, &self.database, &self.vms)
            .with_limits(&self.limits)
            .with_grace(self.grace)
            .with_late_rule(self.late_rule)
    }

    /// Rates of the running transfers in bytes per second, in their order.
    pub(super) fn rates(&self) -> Vec<u64> {
        let (mut vms, mut limits) = (Vec::new(), Vec::new());
        collect_vms(&self.running, &mut vms, &mut limits);
        let snapshot = HostSnapshot::new(Nanos::ZERO, &self.database, &vms);
        rates(&snapshot.with_limits(&limits))
    }

    /// Advances all transfers to `now` at their forecast rates.
    fn advance_all(&mut self, now: Nanos) {
        collect_vms(&self.running, &mut self.vms, &mut self.limits);
        let rates = rates(&self.snapshot(now));
        for ((running, vm), rate) in self.running.iter_mut().zip(&mut self.vms).zip(rates) {
            running.advance(now, rate);
            *vm = running.vm;
        }
    }

    /// Estimates the progress at `now`, and makes it the known one: the rates may change.
    pub(super) fn fix_progress(&mut self, now: Nanos) {
        self.advance_all(now);
        self.running.iter_mut().for_each(Running::fix_progress);
    }

    /// Learns the rates of classes from an interval, and the demand of transfers that had less than
    /// they could get.
    fn learn(&mut self, update: &Update<'_>) {
        if update.measured.is_empty() {
            return;
        }
        let mut demand_limited = [0_usize; 3];
        for running in &self.running {
            let is_limited = update
                .demand_limited
                .iter()
                .any(|(id, _)| *id == running.id);
            demand_limited[running.vm.class as usize] += usize::from(is_limited);
        }
        // Only the number of limited VMs of a class matters, not which ones they are.
        let measured = update.measured.iter().map(|&(class, rate)| {
            let left = &mut demand_limited[class as usize];
            let took_all = *left == 0;
            *left = left.saturating_sub(1);
            (class, rate, took_all)
        });
        // The database is updated first, because the limits below refer to the new rates.
        self.database.learn_with_demand(measured);
        let classes =
            Combination::from_classes(self.running.iter().map(|running| running.vm.class));
        let known = self.database.rates(&classes);
        for running in &mut self.running {
            let at = update
                .demand_limited
                .iter()
                .find(|(id, _)| *id == running.id);
            running.update_limit(at.map(|(_, rate)| *rate), known.for_class(running.vm.class));
        }
    }

    /// Applies an update; returns whether the number or the classes of the transfers have changed.
    pub(super) fn update(&mut self, now: Nanos, update: &Update<'_>) -> bool {
        self.fix_progress(now);
        // Before class changes are applied: the rates were measured under the old classes.
        self.learn(update);
        let mut changed = false;
        for &(id, class) in update.classes {
            if let Some(running) = self.find(id) {
                changed |= running.vm.class != class;
                running.vm.class = class;
            }
        }
        for &(id, moved) in update.moved {
            if let Some(running) = self.find(id) {
                running.report(moved);
            }
        }
        let before = self.running.len();
        self.running
            .retain(|running| !update.ended.contains(&running.id));
        changed | (self.running.len() != before)
    }

    pub(super) fn refresh(&mut self, now: Nanos) {
        self.advance_all(now);
        self.acceptance = if self.has_room() {
            Acceptance::for_snapshot(&self.snapshot(now))
        } else {
            Acceptance::none()
        };
    }

    /// Runs the admission test against the VMs as last advanced. Beside a transfer that is late
    /// at its present rate the decision is verified by a forecast that includes ends of transfers:
    /// that one may be in time because another transfer ends before, and transfers that are in time
    /// do not depend on it.
    pub(super) fn admit(&self, now: Nanos, request: &Request) -> Result<Assignment, Rejection> {
        self.admit_with_rate(now, request).0
    }

    /// Decision of [`Host::admit`], with the newcomer's rate in bytes per second.
    fn admit_with_rate(
        &self,
        now: Nanos,
        request: &Request,
    ) -> (Result<Assignment, Rejection>, u64) {
        if !self.has_room() {
            return (Err(Rejection::full()), 0);
        }
        let snapshot = self.snapshot(now);
        let (decision, rate) = admit_with_rate(&snapshot, request);
        let decision = decision.and_then(|terms| {
            if WhatIf::new(&snapshot).is_any_late_anyway() {
                verify(&snapshot, request, &terms)?;
            }
            Ok(terms)
        });
        (decision, rate)
    }

    /// Decision on a request with its figures, against the VMs as last advanced.
    pub(super) fn explain(&self, now: Nanos, request: &Request) -> Explanation {
        let (decision, rate) = self.admit_with_rate(now, request);
        Explanation {
            decision,
            rate,
            free: self.acceptance.free(),
        }
    }

    /// Starts a transfer if the host accepts it; returns its class and the VMs lowered for it.
    pub(super) fn try_place(
        &mut self,
        now: Nanos,
        id: RequestId,
        request: &Request,
    ) -> Option<(Class, Vec<(RequestId, Class)>)> {
        self.advance_all(now);
        let Assignment { class, lowered } = self.admit(now, request).ok()?;
        self.running.iter_mut().for_each(Running::fix_progress);
        let lower = |(at, class): (usize, Class)| {
            let running = self.running.get_mut(at)?;
            running.vm.class = class;
            Some((running.id, class))
        };
        let lowered = lowered.into_iter().filter_map(lower).collect();
        let transfer = Some(request.start_at(now));
        let vm = VmState { class, transfer };
        self.push(Running::new(id, vm, now, request.limit()));
        Some((class, lowered))
    }

    /// Replaces the declared limit of a transfer, in bytes per second.
    pub(super) fn limit(&mut self, id: RequestId, limit: u64) {
        let mut all = self.running.iter_mut();
        if let Some(running) = all.find(|running| running.id == id) {
            *running = Running::new(id, running.vm, running.as_of, limit);
        }
    }

    fn find(&mut self, id: RequestId) -> Option<&mut Running> {
        self.running.iter_mut().find(|running| running.id == id)
    }
}

/// Fills `vms` and `limits` from `running`.
fn collect_vms(running: &[Running], vms: &mut Vec<VmState>, limits: &mut Vec<Option<u64>>) {
    vms.clear();
    vms.extend(running.iter().map(|running| running.vm));
    limits.clear();
    limits.extend(running.iter().map(|running| running.limit));
}
