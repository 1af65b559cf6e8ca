//! Model of Virtual Bandwidth Control in plain loops over all VMs, wrapped around the regulator:
//! after each event both must agree. Credits are kept in books that must balance.

use super::checked::{Checked, Rules};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use tidegate_core::policy::Policy;
use tidegate_core::request::VmId;
use tidegate_core::roles::Roles;
use tidegate_core::roles::{Event, Interval, IntervalEnd, Knob, Regulator, Stage};
use tidegate_core::time::Nanos;
use tidegate_core::view::View;
use tidegate_policies::policy::PolicySpec;
use tidegate_policies::regulate::proportion::Terms;
use tidegate_policies::regulate::vbc::VbcParams;

/// Books of one VM.
#[derive(Clone, Debug, Default)]
pub struct Account {
    /// B as a fraction: requests, and the seconds that they are for.
    demand: (u128, u128),
    /// Credits set by a controller, until proportions return to those of the reservations.
    assigned: Option<u32>,
    pub granted: i64,
    pub spent: i64,
    /// Credits left unused at the ends of intervals.
    pub lost: i64,
    pub left: i64,
    /// Credits of this interval are not granted yet: the VM's first charge grants them.
    fresh: bool,
    last_grant: i64,
    /// Credits spent in this interval, and credits at its beginning.
    pub spent_now: i64,
    pub had: i64,
    think: u64,
    /// State at the VM's last event: requests waiting, requests inside, and the end of its grace
    /// time (zero if it was never quiet).
    seen: (u32, u32, Nanos),
}

/// Model of the regulator.
#[derive(Debug)]
pub struct Slow {
    params: VbcParams,
    most: u128,
    pub vms: BTreeMap<VmId, Account>,
    pub intervals: Vec<(IntervalEnd, BTreeMap<VmId, i64>)>,
    begun: Option<Nanos>,
    charged: bool,
    members: bool,
    idle: bool,
}

/// Model shared by the regulator under test and the test.
pub type Shared = Arc<Mutex<Slow>>;

pub fn params(spec: &PolicySpec) -> VbcParams {
    let get = |name| {
        let found = spec
            .params()
            .iter()
            .copied()
            .find(|(info, _)| info.name == name);
        found.expect("vbc has it").1
    };
    VbcParams {
        terms: Terms {
            beta: get("beta") as u32,
            max_interval: get("max_interval") as u32,
            default_iops: get("default_iops"),
            request_size: get("request_size") as u32,
        },
        idle_grace: Nanos(get("idle_grace")),
        wait_for: Nanos(get("wait_for")),
        bound_intervals: get("bound_intervals") != 0,
        literal: get("literal") != 0,
    }
}

impl Account {
    fn has_credit(&self) -> bool {
        self.fresh || self.left > 0
    }

    fn grant(&mut self, credits: i64) {
        self.granted += credits;
        self.left += credits;
        self.had = self.left;
        (self.last_grant, self.fresh) = (credits, false);
    }
}

impl Slow {
    pub fn new(params: VbcParams) -> Slow {
        Slow {
            params,
            most: params.terms.max_interval.into(),
            vms: BTreeMap::new(),
            intervals: Vec::new(),
            begun: None,
            charged: false,
            members: false,
            idle: false,
        }
    }

    fn least(&self) -> (u128, u128) {
        let all = self.vms.values().map(|vm| vm.demand);
        all.min_by(|a, b| (a.0 * b.1).cmp(&(b.0 * a.1)))
            .expect("a VM is there")
    }

    /// Returns a_i by equations 1 and 4, with all demands brought to one denominator.
    pub fn due(&self, vm: VmId) -> i64 {
        let account = &self.vms[&vm];
        if let Some(credits) = account.assigned {
            return credits.into();
        }
        let common = self.params.terms.request_size as u128;
        let of = |demand: (u128, u128)| demand.0 * (common / demand.1);
        let (mine, least) = (of(account.demand), of(self.least()));
        let sum: u128 = self.vms.values().map(|vm| of(vm.demand)).sum();
        let beta = self.params.terms.beta as u128;
        // The first arm holds where beta * sum(c) reaches the longest interval.
        let (over, under) = if beta * sum >= self.most * least {
            (self.most * mine, sum)
        } else {
            (beta * mine, least)
        };
        let half_up = (over + under / 2) / under;
        let exact_half = under % 2 == 1 && over % under == under / 2;
        assert!(!exact_half || half_up == over / under);
        half_up.max(1) as i64
    }

    fn period(&self) -> u64 {
        let (ops, seconds) = self.least();
        let beta = self.params.terms.beta as u128;
        (beta * seconds * 1_000_000_000).div_ceil(ops) as u64
    }

    /// Returns the time at which the interval ends unless something else happens.
    pub fn ends(&self, now: Nanos) -> Nanos {
        let dry = self.vms.values().any(|vm| !vm.has_credit());
        if self.members || self.idle {
            return now;
        }
        if !self.charged && !dry {
            return Nanos::MAX;
        }
        let bounded = self.params.bound_intervals && !self.params.literal;
        let old = match (self.begun, bounded) {
            (Some(begun), true) => begun + Nanos(self.period()),
            _ => Nanos::MAX,
        };
        let mut end = now;
        for vm in self.vms.values().filter(|vm| vm.has_credit()) {
            let holds_until = match vm.seen {
                (1.., _, _) => return Nanos::MAX,
                (0, 1.., _) if self.params.literal => return Nanos::MAX,
                (0, 1.., _) => old,
                (0, 0, _) if self.params.literal => now,
                (0, 0, grace) => old.min(grace),
            };
            end = end.max(holds_until);
        }
        end
    }

    fn see(&mut self, view: &View, vm: VmId) {
        let account = self.vms.get_mut(&vm).expect("heard of");
        let grace = (2 * account.think).clamp(1_000_000, self.params.idle_grace.0);
        let until = match view.quiet_since(vm) {
            Nanos::MAX => Nanos::ZERO,
            _ if account.think > self.params.wait_for.0 => Nanos::ZERO,
            since => since + Nanos(grace),
        };
        account.seen = (view.waiting(vm), view.requests(vm), until);
    }

    fn charge(&mut self, view: &View, vm: VmId, requests: u32, bytes: u32) {
        let now = view.now();
        let due = self.due(vm);
        // One credit per normalisation size begun, or at least one a request.
        let reservation = &view.objective(vm).reservation;
        let size = match (self.vms[&vm].demand.1, reservation.ops) {
            (1, Some(ops)) => ops.norm,
            _ => Some(self.params.terms.request_size),
        };
        let sizes = size.map_or(0, |size| {
            bytes / size + u32::from(!bytes.is_multiple_of(size))
        });
        let requests = requests.max(sizes);
        let account = self.vms.get_mut(&vm).expect("heard of");
        if account.fresh {
            account.grant(due);
        }
        account.spent += i64::from(requests);
        account.spent_now += i64::from(requests);
        account.left -= i64::from(requests);
        self.charged = true;
        self.begun.get_or_insert(now);
    }

    fn replenish(&mut self, view: &View, end: IntervalEnd) {
        let dry = self.vms.iter().filter(|(_, a)| !a.has_credit());
        for vm in dry.map(|(&vm, _)| vm).collect::<Vec<_>>() {
            self.see(view, vm);
        }
        let spent = self.vms.iter().map(|(&vm, a)| (vm, a.spent_now)).collect();
        self.intervals.push((end, spent));
        let due: Vec<i64> = self.vms.keys().map(|&vm| self.due(vm)).collect();
        for (account, due) in self.vms.values_mut().zip(due) {
            let dry = !account.has_credit();
            account.lost += account.left.max(0);
            account.left = account.left.min(0);
            (account.had, account.spent_now) = (account.left, 0);
            account.fresh = !dry;
            if dry {
                account.grant(due);
            }
        }
        (self.charged, self.members, self.idle) = (false, false, false);
        let dry = self.vms.values().any(|vm| !vm.has_credit());
        self.begun = dry.then_some(view.now());
    }

    /// Asserts that every credit was granted, and is either left, spent or lost.
    pub fn balance(&self) {
        for (vm, a) in &self.vms {
            assert_eq!(a.left, a.granted - a.spent - a.lost, "{vm:?}: {a:?}");
            assert_eq!(a.left, a.had - a.spent_now, "{vm:?}: {a:?}");
        }
    }

    fn all_to_coarse(&mut self) {
        self.vms.values_mut().for_each(|vm| vm.assigned = None);
    }

    /// Returns the VM's demand as a fraction, requests and seconds: the larger of its two
    /// reservations.
    fn demand(&self, view: &View, vm: VmId) -> (u128, u128) {
        let reservation = &view.objective(vm).reservation;
        let size = self.params.terms.request_size as u128;
        let ops = reservation.ops.map(|o| (o.per_s as u128, 1));
        let bytes = reservation.bytes_per_s.map(|b| (b as u128, size));
        match (ops, bytes) {
            (Some(a), Some(b)) if a.0 * b.1 >= b.0 * a.1 => a,
            (Some(a), None) => a,
            (_, Some(b)) => b,
            (None, None) => (self.params.terms.default_iops as u128, 1),
        }
    }

    fn heard(&mut self, view: &View, event: &Event) {
        let worth_it = self.charged || self.vms.values().any(|vm| !vm.has_credit());
        let vm = match *event {
            Event::Arrived(unit) | Event::Admitted(unit) | Event::Cancelled(unit) => {
                view.queued(unit).vm_lane().0
            }
            Event::Merged { into, .. } => view.queued(into).vm_lane().0,
            Event::Started(io) => io.vm,
            Event::Answered(done) => {
                self.idle = view.device().requests == 0 && worth_it;
                done.vm
            }
            Event::VmAdded(vm) | Event::VmChanged(vm) | Event::VmRemoved(vm) => vm,
            _ => return,
        };
        if view.is_background(vm) {
            return;
        }
        match *event {
            Event::Arrived(_) => {
                self.idle = false;
                let since = view.quiet_since(vm);
                if view.requests(vm) == 1 && since != Nanos::MAX {
                    let (t, account) = (view.now().since(since).0, self.vms.get_mut(&vm));
                    let mean = &mut account.expect("heard of").think;
                    *mean = if *mean == 0 {
                        t
                    } else {
                        *mean - *mean / 8 + t / 8
                    };
                }
                // An arrival is admitted at once or held; the VM's state is recorded then.
                return;
            }
            Event::Admitted(unit) => {
                let unit = view.queued(unit).unit();
                let bytes = if unit.op.merges() { unit.len } else { 0 };
                self.charge(view, vm, unit.requests, bytes);
            }
            Event::Merged { into, by } if view.queued(into).is_admitted() => {
                self.charge(view, vm, 1, view.queued(by).request_bytes());
            }
            Event::VmAdded(_) | Event::VmChanged(_) => {
                if self.params.terms.max_interval == 0 {
                    self.most = 20_000;
                }
                let new = !self.vms.contains_key(&vm);
                let demand = self.demand(view, vm);
                self.vms.entry(vm).or_default().demand = demand;
                self.all_to_coarse();
                if !new {
                    return;
                }
                self.vms.get_mut(&vm).expect("just put in").fresh = true;
                self.members |= worth_it;
            }
            Event::VmRemoved(_) => {
                self.vms.remove(&vm);
                self.all_to_coarse();
                self.members |= self.charged || self.vms.values().any(|vm| !vm.has_credit());
                return;
            }
            _ => {}
        }
        self.see(view, vm);
    }
}

impl Rules for Slow {
    type Real = dyn Regulator;

    fn agree(&self, real: &dyn Regulator, view: &View) {
        self.balance();
        for (&vm, account) in &self.vms {
            assert_eq!(
                real.admits(view, vm),
                account.has_credit(),
                "{vm:?}: {account:?}"
            );
        }
        let (now, ends) = (view.now(), self.ends(view.now()));
        assert_eq!(real.next_timer().max(now), ends, "{self:?}");
    }

    fn hear(&mut self, view: &View, event: &Event) {
        self.heard(view, event);
    }

    fn set(&mut self, view: &View, vm: VmId, knob: Knob) {
        let (Knob::Credits(n), Some(account)) = (knob, self.vms.get_mut(&vm)) else {
            return;
        };
        account.assigned = Some(n);
        if !self.charged && !account.fresh {
            // Nothing was charged yet, so the grant of the new interval is replaced.
            (account.granted, account.left) = (
                account.granted - account.last_grant,
                account.left - account.last_grant,
            );
            account.grant(n.into());
            if !account.has_credit() {
                self.begun.get_or_insert(view.now());
            }
        }
    }

    fn is_over(&mut self, view: &View) -> Option<IntervalEnd> {
        self.idle &= view.device().requests == 0;
        let end = match (self.members, self.idle) {
            (true, _) => IntervalEnd::Members,
            (false, true) => IntervalEnd::Idle,
            (false, false) => IntervalEnd::Turn,
        };
        (self.ends(view.now()) <= view.now()).then_some(end)
    }

    fn end(&mut self, view: &View, ended: Interval) {
        self.replenish(view, ended.end);
    }
}

/// Returns a wrapper that puts the model beside each `vbc` of an engine, with the parameters of the
/// policy in force.
pub fn beside(slow: &Shared) -> impl Fn(Roles) -> Roles + Send + 'static {
    let slow = Arc::clone(slow);
    move |roles| match roles.regulator.stage() {
        Stage::Admission => {
            let mut fresh = slow.lock().expect("no panic before");
            *fresh = Slow::new(fresh.params);
            let checked = Checked::new(roles.regulator, &slow);
            Roles {
                regulator: Box::new(checked),
                ..roles
            }
        }
        Stage::Open | Stage::Dispatch => roles,
    }
}

/// Prepares the model for the policy that is set next.
pub fn announce(slow: &Shared, spec: &PolicySpec) {
    slow.lock().expect("no panic before").params = params(spec);
}
