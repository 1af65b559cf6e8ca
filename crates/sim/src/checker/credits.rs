//! Checker of credits of the regulator [`vbc`](tidegate_policies::regulate::vbc), which cites its
//! paper. Credits are conserved, and no VM is held for longer than the regulator states.
//!
//! A unit is admitted only while its VM has credit left of its grant for the interval, which comes
//! from the reservation or the controller. Unused credit expires at the end of an interval;
//! overdrawn credit is carried over as debt. A VM with credit is never held. A VM without credit is
//! held for at most beta / min B while no VM with credit has anything waiting. That time counts
//! from the latest of: the start of that condition, the end of the last interval, and the last
//! change of the set of VMs or of an objective. In the paper's literal variant, and without
//! `bound_intervals`, I/Os in flight count as waiting, for however long they take; without
//! `bound_intervals` the bound is the longest grace time.
//!
//! Grants are computed here independently from the objectives. Between the change of a proportion
//! and the next interval either figure may be in force, so both bounds are tracked.

use super::{Broken, Verdict, ensure};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use tidegate_core::engine::Engine;
use tidegate_core::objective::Objective;
use tidegate_core::policy::Policy;
use tidegate_core::request::{Op, ReqId, VmId};
use tidegate_core::roles::Roles;
use tidegate_core::roles::{
    Consumed, Event, Gate, Interests, Interval, Knob, Regulator, Reopened, Stage,
};
use tidegate_core::time::Nanos;
use tidegate_core::view::View;
use tidegate_policies::policy::PolicySpec;

/// Maximum number of credits in an interval, as in
/// [`Terms::CREDITS_MAX`](tidegate_policies::regulate::proportion::Terms).
const CREDITS_MAX: u128 = 1 << 30;
/// Credits in the longest interval where the device's bandwidth is unknown: the default of `vbc`.
const UNKNOWN_INTERVAL_CREDITS: u128 = 20_000;
/// Longest interval in seconds of the device's bandwidth, where none is given: the default of
/// `vbc`.
const LONGEST_INTERVAL_S: u128 = 2;

/// Parameters of `vbc`. The checker repeats the regulator's rules and bounds on purpose, so that a
/// mistake in one of them shows as a difference.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Parameters {
    /// Requests of the VM with the smallest demand in an interval.
    beta: u128,
    /// Maximum number of credits in an interval; 0: as many as the device serves in
    /// [`LONGEST_INTERVAL_S`].
    max_interval: u128,
    /// Demand of a VM without a reservation, in requests per second.
    default_iops: u128,
    /// Bytes of a request.
    request_size: u128,
    /// I/Os in flight count as waiting, as in the paper.
    in_flight_waits: bool,
    /// Longest time in nanoseconds for which a VM without requests is waited for, where that
    /// bounds intervals instead of beta / min B.
    grace: Option<u128>,
}

impl Parameters {
    /// Returns the parameters of a policy with the regulator `vbc`; `None` for another regulator.
    fn from_policy(policy: &PolicySpec) -> Option<Parameters> {
        let (_, regulator, _) = policy.parts();
        let get = |name| {
            let found = policy
                .params()
                .iter()
                .copied()
                .find(|(info, _)| info.name == name);
            found.map_or(0, |(_, value)| u128::from(value))
        };
        (regulator == "vbc").then(|| Parameters {
            beta: get("beta"),
            max_interval: get("max_interval"),
            default_iops: get("default_iops"),
            request_size: get("request_size"),
            in_flight_waits: get("literal") != 0 || get("bound_intervals") == 0,
            // The literal variant has no grace times.
            grace: (get("literal") == 0 && get("bound_intervals") == 0).then(|| get("idle_grace")),
        })
    }

    /// Demand in bytes per second, with a request counted as `request_size` bytes.
    fn demand(&self, objective: &Objective) -> u128 {
        let rate = &objective.reservation;
        let ops = rate.ops.map(|ops| ops.per_s as u128 * self.request_size);
        let bytes = rate.bytes_per_s.map(u128::from);
        // `None` is less than any rate, so that one figure alone is the demand.
        let promised = ops.max(bytes);
        promised.unwrap_or(self.default_iops * self.request_size)
    }

    /// Cost in credits: one per request, or one per unit of the size in which the reservation is
    /// counted.
    fn cost(&self, objective: &Objective, requests: u32, bytes: u32) -> i64 {
        let rate = &objective.reservation;
        let ops = rate.ops.map(|ops| ops.per_s as u128 * self.request_size);
        let in_bytes = rate.bytes_per_s.map(u128::from) > ops;
        let size = match rate.ops {
            _ if in_bytes => self.request_size,
            // Without a norm any number of bytes is one unit.
            Some(ops) => ops.norm.map_or(u128::MAX, u128::from),
            None => self.request_size,
        };
        // At least one credit for each request of a merged unit.
        (u128::from(bytes).div_ceil(size) as i64).max(requests.into())
    }

    /// Returns the maximum number of credits in an interval.
    fn interval_credits(&self, view: &View) -> u128 {
        match (self.max_interval, view.device().spec.bytes_per_s) {
            // The regulator's own default where the device's bandwidth is unknown.
            (0, 0) => UNKNOWN_INTERVAL_CREDITS,
            (0, bytes) => {
                let credits = bytes as u128 * LONGEST_INTERVAL_S / self.request_size;
                credits.clamp(1, CREDITS_MAX)
            }
            (given, _) => given,
        }
    }
}

/// Credit account of one VM.
#[derive(Clone, Copy, Debug, Default)]
struct Account {
    demand: u128,
    /// Grant that a controller has set.
    assigned: Option<i64>,
    /// Smallest and largest grant that may be in force in this interval.
    grants: (i64, i64),
    /// Credit left under the smallest and under the largest grant.
    left: (i64, i64),
}

impl Account {
    /// Widens the range of grants so that it includes `grant`.
    fn widen_grants(&mut self, grant: i64) {
        let (least, most) = self.grants;
        // The lower bound only falls and the upper bound only rises, so both cover either grant.
        self.left.0 -= (least - grant).max(0);
        self.left.1 += (grant - most).max(0);
        self.grants = (least.min(grant), most.max(grant));
    }

    fn interval(&mut self, grant: i64) {
        // Only debt is carried over; unused credit expires.
        self.left = (self.left.0.min(0) + grant, self.left.1.min(0) + grant);
        self.grants = (grant, grant);
    }
}

/// Independent model of the regulator's credits.
#[derive(Debug, Default)]
struct CreditModel {
    /// Parameters of the policy in force; `None` under another regulator.
    parameters: Option<Parameters>,
    vms: BTreeMap<VmId, Account>,
    /// Maximum number of credits in an interval.
    longest: u128,
    /// Start of the time in which a VM has been held although no VM with credit has anything
    /// waiting.
    held_since: Option<Nanos>,
    broken: Option<Broken>,
}

impl CreditModel {
    fn grant(&self, parameters: &Parameters, vm: &Account) -> i64 {
        if let Some(assigned) = vm.assigned {
            return assigned;
        }
        let least = self.vms.values().map(|vm| vm.demand).min().unwrap_or(1);
        let sum: u128 = self.vms.values().map(|vm| vm.demand).sum();
        // The interval gives `beta` requests to the smallest demand, unless that makes it longer
        // than `longest` credits.
        let (over, under) = if parameters.beta * sum < self.longest * least {
            (parameters.beta * vm.demand, least)
        } else {
            (self.longest * vm.demand, sum)
        };
        // Rounds to the nearest credit, and half a credit up.
        let whole = over / under + u128::from(over % under * 2 >= under);
        whole.clamp(1, CREDITS_MAX) as i64
    }

    /// Resets the proportions to those of the reservations.
    fn reset_proportions(&mut self, parameters: &Parameters) {
        for vm in self.vms.values_mut() {
            vm.assigned = None;
        }
        // After all assignments are gone: a grant depends on the demands of all.
        for vm in self.vms.keys().copied().collect::<Vec<_>>() {
            let grant = self.grant(parameters, &self.vms[&vm]);
            self.vms.entry(vm).or_default().widen_grants(grant);
        }
        self.held_since = None;
    }

    fn on_event(&mut self, view: &View, event: &Event) -> Verdict {
        let Some(parameters) = self.parameters else {
            return Ok(());
        };
        match *event {
            Event::VmAdded(vm) | Event::VmChanged(vm) if !view.is_background(vm) => {
                // The device's bandwidth may have been set since.
                self.longest = parameters.interval_credits(view);
                let new = !self.vms.contains_key(&vm);
                self.vms.entry(vm).or_default().demand = parameters.demand(view.objective(vm));
                if new {
                    let grant = self.grant(&parameters, &self.vms[&vm]);
                    self.vms.entry(vm).or_default().interval(grant);
                }
                self.reset_proportions(&parameters);
            }
            Event::VmRemoved(vm) => {
                let known = self.vms.remove(&vm).is_some();
                // A background process has no credits, so its removal changes no grant.
                if known {
                    self.reset_proportions(&parameters)
                } else {
                    return Ok(());
                }
            }
            Event::Admitted(unit) => {
                let vm = view.queued(unit).vm_lane().0;
                // Background processes have no account and are never held.
                let left = self.vms.get(&vm).map_or(1, |vm| vm.left.1);
                ensure!(
                    Credits,
                    left > 0,
                    "{unit:?} of {vm:?} was let in, though it has no credit left ({left})"
                );
                let unit = view.queued(unit).unit();
                let bytes = match unit.op {
                    Op::Read | Op::Write => unit.len,
                    Op::WriteZeroes if view.device().spec.zeroes_are_writes => unit.len,
                    // Operations without data cost one credit per request.
                    Op::WriteZeroes | Op::Discard | Op::Flush => 0,
                };
                self.charge(
                    vm,
                    parameters.cost(view.objective(vm), unit.requests, bytes),
                );
            }
            Event::Merged { into, by } if view.queued(into).is_admitted() => {
                let vm = view.queued(into).vm_lane().0;
                let cost = parameters.cost(view.objective(vm), 1, view.queued(by).request_bytes());
                self.charge(vm, cost);
            }
            _ => {}
        }
        Ok(())
    }

    fn charge(&mut self, vm: VmId, cost: i64) {
        if let Some(vm) = self.vms.get_mut(&vm) {
            vm.left.0 -= cost;
            vm.left.1 -= cost;
        }
    }

    fn interval_ended(&mut self) {
        let Some(parameters) = self.parameters else {
            return;
        };
        for vm in self.vms.keys().copied().collect::<Vec<_>>() {
            let grant = self.grant(&parameters, &self.vms[&vm]);
            self.vms.entry(vm).or_default().interval(grant);
        }
        // A new interval has credit for all, so that the time of being held begins anew.
        self.held_since = None;
    }

    /// Compares the model with the engine, after everything that was due is done.
    fn check(&mut self, engine: &Engine) -> Verdict {
        if let Some(broken) = self.broken.take() {
            return Err(broken);
        }
        let (Some(parameters), view) = (self.parameters, engine.view()) else {
            return Ok(());
        };
        let mut held = None;
        let mut uses_credit = false;
        for (&vm, account) in &self.vms {
            let (least, most) = account.left;
            let may = view.may_enter(vm);
            ensure!(
                Credits,
                (may || least <= 0) && (!may || most > 0),
                "{vm:?} has {least} to {most} credits left; the regulator lets it spend any: {may}"
            );
            if view.pending_head(vm).is_some() {
                ensure!(
                    Credits,
                    !may,
                    "{vm:?} is held, though it has {least} to {most} credits left"
                );
                held = Some(vm);
            }
            let inside = if parameters.in_flight_waits {
                view.requests(vm)
            } else {
                view.waiting(vm)
            };
            uses_credit |= may && inside > 0;
        }
        let Some(held) = held.filter(|_| !uses_credit) else {
            self.held_since = None;
            return Ok(());
        };
        let least = self.vms.values().map(|vm| vm.demand).min().unwrap_or(1);
        // beta / min B in nanoseconds, B being the demand in bytes per second.
        let period = (parameters.beta * parameters.request_size * 1_000_000_000).div_ceil(least);
        let longest = parameters.grace.unwrap_or(period);
        let (now, since) = (view.now(), *self.held_since.get_or_insert(view.now()));
        ensure!(
            Credits,
            u128::from(now.since(since).0) <= longest,
            "{held:?} has been held since {since}, until {now}, and no VM with credit has queued \
             requests"
        );
        Ok(())
    }
}

/// Checker of credits; shares its model with the audited regulator.
#[derive(Debug, Default)]
pub struct Credits {
    model: Arc<Mutex<CreditModel>>,
}

fn locked(model: &Mutex<CreditModel>) -> std::sync::MutexGuard<'_, CreditModel> {
    // A poisoned lock is a panic elsewhere, which is reported by itself; the model is still whole.
    model.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Credits {
    /// Announces the policy that is set next, and starts the model anew.
    pub fn announce(&self, policy: &PolicySpec) {
        // Accounts are filled by the events with which the new policy learns its VMs.
        *locked(&self.model) = CreditModel {
            parameters: Parameters::from_policy(policy),
            ..CreditModel::default()
        };
    }

    /// Returns a wrapper that puts the audit around the roles of every policy, outermost. The
    /// engine may rebuild the roles by itself, for the first background process; the model then
    /// starts anew, too.
    pub fn wrapper(&self) -> impl Fn(Roles) -> Roles + Send + 'static {
        let shared = Arc::clone(&self.model);
        move |roles| {
            let mut model = locked(&shared);
            let (parameters, broken) = (model.parameters, model.broken.take());
            *model = CreditModel {
                parameters,
                // A violation must not be lost with the accounts.
                broken,
                ..CreditModel::default()
            };
            // Other regulators run without the audit, which would only cost time.
            if parameters.is_none() {
                return roles;
            }
            Roles {
                regulator: Box::new(Audited {
                    inner: roles.regulator,
                    model: Arc::clone(&shared),
                }),
                ..roles
            }
        }
    }

    /// Checks credits once the device takes nothing more and everything that was due is done.
    ///
    /// # Errors
    /// Fails when a VM spent credit that it did not have, or is held for too long.
    pub fn check(&self, engine: &Engine) -> Verdict {
        locked(&self.model).check(engine)
    }
}

/// Regulator that forwards to `inner` and reports every event to the model.
struct Audited {
    inner: Box<dyn Regulator>,
    model: Arc<Mutex<CreditModel>>,
}

impl Regulator for Audited {
    fn stage(&self) -> Stage {
        self.inner.stage()
    }

    fn interests(&self) -> Interests {
        let own = Interests::ADMITTED
            .union(Interests::MERGED)
            .union(Interests::VMS);
        self.inner.interests().union(own)
    }

    fn gate(&self, view: &View, unit: ReqId) -> Gate {
        self.inner.gate(view, unit)
    }

    fn on_event(&mut self, view: &View, event: &Event, reopen: &mut Reopened) {
        let mut model = locked(&self.model);
        if let Err(broken) = model.on_event(view, event) {
            model.broken.get_or_insert(broken);
        }
        // Before the inner regulator runs, which may come back here.
        drop(model);
        self.inner.on_event(view, event, reopen);
    }

    fn admits(&self, view: &View, vm: VmId) -> bool {
        self.inner.admits(view, vm)
    }

    fn set(&mut self, view: &View, vm: VmId, knob: Knob) {
        // The lock ends with this statement; `inner` comes after it.
        if let (Knob::Credits(credits), Some(vm)) = (knob, locked(&self.model).vms.get_mut(&vm)) {
            vm.assigned = Some(i64::from(credits));
            vm.widen_grants(i64::from(credits));
        }
        self.inner.set(view, vm, knob);
    }

    fn next_timer(&self) -> Nanos {
        self.inner.next_timer()
    }

    fn on_timer(&mut self, view: &View, reopen: &mut Reopened) -> Option<Interval> {
        let ended = self.inner.on_timer(view, reopen);
        if ended.is_some() {
            locked(&self.model).interval_ended();
        }
        ended
    }

    fn consumed(&self, view: &View, vm: VmId) -> Consumed {
        self.inner.consumed(view, vm)
    }

    fn adopt(&mut self, view: &View, vm: VmId, consumed: &Consumed) {
        self.inner.adopt(view, vm, consumed);
    }
}
