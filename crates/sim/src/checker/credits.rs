//! Credits are conserved, and hold nobody longer than they say (regulator `vbc`).
//!
//! A unit is let in only while its VM has credit left of what its reservation, or the controller,
//! gives it in an interval; what is left of that is not kept, what was overdrawn is owed. A VM
//! that has credit is not held. Somebody who has none is held no longer than beta / min B while
//! nobody who has credit wants anything that waits: counted from when that began, from the last
//! interval's end, or from when a VM came, went or changed, the latest. By the paper's letter also
//! what is in flight is waited for, however long.
//!
//! Grants are reckoned here from the objectives, on their own. Between the change of a proportion
//! and the next interval either figure may be in force: then both bounds are held.

use super::{Broken, Verdict, ensure};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use tidegate_core::engine::Engine;
use tidegate_core::facts::Facts;
use tidegate_core::objective::Objective;
use tidegate_core::policy::Policy;
use tidegate_core::request::{Op, ReqId, VmId};
use tidegate_core::roles::Roles;
use tidegate_core::roles::{
    Consumed, Event, Gate, Interests, Interval, Knob, Regulator, Reopened, Stage,
};
use tidegate_core::time::Nanos;
use tidegate_policies::policy::PolicySpec;

/// What credits are reckoned by; see the policy's parameters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Terms {
    beta: u128,
    max_interval: u128,
    default_iops: u128,
    request_size: u128,
    literal: bool,
}

impl Terms {
    fn of(policy: &PolicySpec) -> Option<Terms> {
        let (_, regulator, _) = policy.parts();
        let get = |name| {
            let found = policy
                .params()
                .iter()
                .copied()
                .find(|(info, _)| info.name == name);
            found.map_or(0, |(_, value)| u128::from(value))
        };
        (regulator == "vbc").then(|| Terms {
            beta: get("beta"),
            max_interval: get("max_interval"),
            default_iops: get("default_iops"),
            request_size: get("request_size"),
            literal: get("literal") != 0,
        })
    }

    /// Bytes a second, a request being so many.
    fn demand(&self, objective: &Objective) -> u128 {
        let rate = &objective.reservation;
        let ops = rate.ops.map(|ops| ops.per_s as u128 * self.request_size);
        let bytes = rate.bytes_per_s.map(u128::from);
        let promised = ops.max(bytes);
        promised.unwrap_or(self.default_iops * self.request_size)
    }

    /// One credit a request, or for each size that the reservation is reckoned by.
    fn cost(&self, objective: &Objective, requests: u32, bytes: u32) -> i64 {
        let rate = &objective.reservation;
        let ops = rate.ops.map(|ops| ops.per_s as u128 * self.request_size);
        let in_bytes = rate.bytes_per_s.map(u128::from) > ops;
        let size = match rate.ops {
            _ if in_bytes => self.request_size,
            Some(ops) => ops.norm.map_or(u128::MAX, u128::from),
            None => self.request_size,
        };
        (u128::from(bytes).div_ceil(size) as i64).max(requests.into())
    }

    fn longest(&self, facts: &Facts) -> u128 {
        match (self.max_interval, facts.device().spec.bytes_per_s) {
            (0, 0) => 20_000,
            (0, bytes) => (bytes as u128 * 2 / self.request_size).clamp(1, 1 << 30),
            (given, _) => given,
        }
    }
}

/// One VM.
#[derive(Clone, Copy, Debug, Default)]
struct Account {
    demand: u128,
    /// By a controller.
    assigned: Option<i64>,
    /// Grants in force in this interval: the least and the most.
    grants: (i64, i64),
    /// Credit left if it was that.
    left: (i64, i64),
}

impl Account {
    /// It may be granted this instead.
    fn may_have(&mut self, grant: i64) {
        let (least, most) = self.grants;
        self.left.0 -= (least - grant).max(0);
        self.left.1 += (grant - most).max(0);
        self.grants = (least.min(grant), most.max(grant));
    }

    fn interval(&mut self, grant: i64) {
        self.left = (self.left.0.min(0) + grant, self.left.1.min(0) + grant);
        self.grants = (grant, grant);
    }
}

/// The checker's books.
#[derive(Debug, Default)]
struct Books {
    /// Of the policy that comes; `None`: another regulator.
    terms: Option<Terms>,
    vms: BTreeMap<VmId, Account>,
    longest: u128,
    /// Since when somebody has been held though nobody with credit has anything waiting.
    since: Option<Nanos>,
    broken: Option<Broken>,
}

impl Books {
    fn grant(&self, terms: &Terms, vm: &Account) -> i64 {
        if let Some(assigned) = vm.assigned {
            return assigned;
        }
        let least = self.vms.values().map(|vm| vm.demand).min().unwrap_or(1);
        let sum: u128 = self.vms.values().map(|vm| vm.demand).sum();
        let (over, under) = match terms.beta * sum < self.longest * least {
            true => (terms.beta * vm.demand, least),
            false => (self.longest * vm.demand, sum),
        };
        // Half a credit is rounded up.
        let whole = over / under + u128::from(over % under * 2 >= under);
        whole.clamp(1, 1 << 30) as i64
    }

    /// Proportions are those of the reservations again.
    fn reckon(&mut self, terms: &Terms) {
        for vm in self.vms.values_mut() {
            vm.assigned = None;
        }
        for vm in self.vms.keys().copied().collect::<Vec<_>>() {
            let grant = self.grant(terms, &self.vms[&vm]);
            self.vms.entry(vm).or_default().may_have(grant);
        }
        self.since = None;
    }

    fn hear(&mut self, facts: &Facts, event: &Event) -> Verdict {
        let Some(terms) = self.terms else {
            return Ok(());
        };
        match *event {
            Event::VmAdded(vm) | Event::VmChanged(vm) if !facts.is_background(vm) => {
                self.longest = terms.longest(facts);
                let new = !self.vms.contains_key(&vm);
                self.vms.entry(vm).or_default().demand = terms.demand(facts.objective(vm));
                if new {
                    let grant = self.grant(&terms, &self.vms[&vm]);
                    self.vms.entry(vm).or_default().interval(grant);
                }
                self.reckon(&terms);
            }
            Event::VmRemoved(vm) => {
                let known = self.vms.remove(&vm).is_some();
                // One of the background had no credits, and takes nobody's away.
                match known {
                    true => self.reckon(&terms),
                    false => return Ok(()),
                }
            }
            Event::Admitted(unit) => {
                let vm = facts.queued(unit).vm_lane().0;
                let left = self.vms.get(&vm).map_or(1, |vm| vm.left.1);
                ensure!(
                    Credits,
                    left > 0,
                    "{unit:?} of {vm:?} was let in, though it has no credit left ({left})"
                );
                let unit = facts.queued(unit).unit();
                let bytes = match unit.op {
                    Op::Read | Op::Write => unit.len,
                    Op::WriteZeroes if facts.device().spec.zeroes_are_writes => unit.len,
                    Op::WriteZeroes | Op::Discard | Op::Flush => 0,
                };
                self.charge(vm, terms.cost(facts.objective(vm), unit.requests, bytes));
            }
            Event::Merged { into, by } if facts.queued(into).is_admitted() => {
                let vm = facts.queued(into).vm_lane().0;
                let cost = terms.cost(facts.objective(vm), 1, facts.queued(by).request_bytes());
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
        let Some(terms) = self.terms else { return };
        for vm in self.vms.keys().copied().collect::<Vec<_>>() {
            let grant = self.grant(&terms, &self.vms[&vm]);
            self.vms.entry(vm).or_default().interval(grant);
        }
        self.since = None;
    }

    /// Everything that was due is done.
    fn check(&mut self, engine: &Engine) -> Verdict {
        if let Some(broken) = self.broken.take() {
            return Err(broken);
        }
        let (Some(terms), facts) = (self.terms, engine.view()) else {
            return Ok(());
        };
        let mut held = None;
        let mut wanted = false;
        for (&vm, account) in &self.vms {
            let (least, most) = account.left;
            let may = facts.may_enter(vm);
            ensure!(
                Credits,
                (may || least <= 0) && (!may || most > 0),
                "{vm:?} has {least} to {most} credits left; that it may spend any is {may}"
            );
            if facts.pending_head(vm).is_some() {
                ensure!(
                    Credits,
                    !may,
                    "{vm:?} is held, though it has {least} to {most} credits left"
                );
                held = Some(vm);
            }
            let inside = match terms.literal {
                true => facts.requests(vm),
                false => facts.waiting(vm),
            };
            wanted |= may && inside > 0;
        }
        let Some(held) = held.filter(|_| !wanted) else {
            self.since = None;
            return Ok(());
        };
        let least = self.vms.values().map(|vm| vm.demand).min().unwrap_or(1);
        let period = (terms.beta * terms.request_size * 1_000_000_000).div_ceil(least);
        let (now, since) = (facts.now(), *self.since.get_or_insert(facts.now()));
        ensure!(
            Credits,
            u128::from(now.since(since).0) <= period,
            "{held:?} has been held since {since}, until {now}, and nobody who has credit wants \
             anything"
        );
        Ok(())
    }
}

/// The checker.
#[derive(Debug, Default)]
pub struct Credits {
    books: Arc<Mutex<Books>>,
}

fn locked(books: &Mutex<Books>) -> std::sync::MutexGuard<'_, Books> {
    books.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Credits {
    /// This policy comes next.
    pub fn announce(&self, policy: &PolicySpec) {
        *locked(&self.books) = Books {
            terms: Terms::of(policy),
            ..Books::default()
        };
    }

    /// What is to stand around the roles of every policy, outermost. The engine may build them
    /// anew by itself, for the first background tenant: then the books begin anew, too.
    pub fn wrapper(&self) -> impl Fn(Roles) -> Roles + Send + 'static {
        let shared = Arc::clone(&self.books);
        move |roles| {
            let mut books = locked(&shared);
            let (terms, broken) = (books.terms, books.broken.take());
            *books = Books {
                terms,
                broken,
                ..Books::default()
            };
            if terms.is_none() {
                return roles;
            }
            Roles {
                regulator: Box::new(Audited {
                    inner: roles.regulator,
                    books: Arc::clone(&shared),
                }),
                ..roles
            }
        }
    }

    /// Nothing more goes to the device now, and everything that was due is done.
    ///
    /// # Errors
    /// When somebody spent what it had not, or is held too long.
    pub fn check(&self, engine: &Engine) -> Verdict {
        locked(&self.books).check(engine)
    }
}

/// A regulator whose every word goes into the books.
struct Audited {
    inner: Box<dyn Regulator>,
    books: Arc<Mutex<Books>>,
}

impl Regulator for Audited {
    fn stage(&self) -> Stage {
        self.inner.stage()
    }

    fn interests(&self) -> Interests {
        let own = Interests::ADMITTED
            .and(Interests::MERGED)
            .and(Interests::VMS);
        self.inner.interests().and(own)
    }

    fn gate(&self, facts: &Facts, unit: ReqId) -> Gate {
        self.inner.gate(facts, unit)
    }

    fn on_event(&mut self, facts: &Facts, event: &Event, reopen: &mut Reopened) {
        let mut books = locked(&self.books);
        if let Err(broken) = books.hear(facts, event) {
            books.broken.get_or_insert(broken);
        }
        drop(books);
        self.inner.on_event(facts, event, reopen);
    }

    fn admits(&self, facts: &Facts, vm: VmId) -> bool {
        self.inner.admits(facts, vm)
    }

    fn set(&mut self, facts: &Facts, vm: VmId, knob: Knob) {
        if let (Knob::Credits(credits), Some(vm)) = (knob, locked(&self.books).vms.get_mut(&vm)) {
            vm.assigned = Some(i64::from(credits));
            vm.may_have(i64::from(credits));
        }
        self.inner.set(facts, vm, knob);
    }

    fn next_timer(&self) -> Nanos {
        self.inner.next_timer()
    }

    fn on_timer(&mut self, facts: &Facts, reopen: &mut Reopened) -> Option<Interval> {
        let ended = self.inner.on_timer(facts, reopen);
        if ended.is_some() {
            locked(&self.books).interval_ended();
        }
        ended
    }

    fn consumed(&self, facts: &Facts, vm: VmId) -> Consumed {
        self.inner.consumed(facts, vm)
    }

    fn adopt(&mut self, facts: &Facts, vm: VmId, consumed: &Consumed) {
        self.inner.adopt(facts, vm, consumed);
    }
}
