//! Model of CIRC in plain loops over all VMs, which runs beside the regulator: after each event
//! both must agree on everybody's credit. Grants are computed anew each time from the rates in
//! force, and all amounts are kept in books that must balance.

use crate::common::checked::{Checked, Rules};
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};
use tidegate_core::request::VmId;
use tidegate_core::roles::Roles;
use tidegate_core::roles::{
    Controller, Event, Interests, Interval, IntervalEnd, Knob, Knobs, Regulator, Stage,
};
use tidegate_core::time::Nanos;
use tidegate_core::view::View;
use tidegate_policies::regulate::circ::{Circ, CircParams};

/// One credit in the regulator's unit.
pub(crate) const CREDIT: i128 = 1_000_000_000_000;

/// Account of one VM.
#[derive(Clone, Debug, Default)]
pub(crate) struct Account {
    /// Last allocation, and the last one above zero.
    allocation: Option<u64>,
    share: u64,
    active: bool,
    /// Rates of this period: from a time on, at a rate, and `true` if the VM itself has the
    /// credits.
    rates: Vec<(u64, u64, bool)>,
    /// Credits from the period before, the burst, and those passed on by others.
    carried: i128,
    /// Requests admitted during this period, and in all.
    pub spent: u64,
    pub spent_in_all: u64,
    /// Credits passed on by others, in all.
    pub from_others: i128,
    /// Largest excess, over any time up to now, of the credits spent over the credits granted.
    beyond: i128,
    largest_unit: u64,
    /// Requests of this period that were merged into admitted ones.
    joined: u64,
    /// The allocation has changed, and with it the threshold.
    changed: bool,
}

/// Model of the regulator.
#[derive(Debug)]
pub(crate) struct Slow {
    pub params: CircParams,
    pub vms: BTreeMap<VmId, Account>,
    /// Begin and end of the current period, and the time of its grant.
    period: Option<[u64; 3]>,
    pub ended: u64,
    /// Credits due to others, by the number of the period.
    due: BTreeMap<u64, i128>,
    /// All credits granted or added as a burst, and all dropped or lapsed.
    pub minted: i128,
    pub lost: i128,
    /// Requests admitted in all, including those of removed VMs.
    spent: u64,
    /// Credits that removed VMs gave away earlier in this period.
    bequeathed: i128,
}

/// Model shared by the regulator under test and the test.
pub(crate) type Shared = Arc<Mutex<Slow>>;

impl Slow {
    pub(crate) fn new(params: CircParams) -> Slow {
        Slow {
            params,
            vms: BTreeMap::new(),
            period: None,
            ended: 0,
            due: BTreeMap::new(),
            minted: 0,
            lost: 0,
            spent: 0,
            bequeathed: 0,
        }
    }

    /// Returns the credits of this period by the rates in force: those that the VM keeps (`mine`),
    /// or those that it gives away.
    fn granted(&self, account: &Account, mine: bool) -> i128 {
        let Some([_, end, _]) = self.period else {
            return 0;
        };
        let ends = account.rates.iter().skip(1).map(|r| r.0).chain([end]);
        let each = account.rates.iter().zip(ends);
        let of = each.filter(|((_, _, own), _)| *own == mine);
        of.map(|((from, rate, _), until)| i128::from(until - from) * i128::from(*rate))
            .sum()
    }

    fn left(&self, account: &Account) -> i128 {
        account.carried + self.granted(account, true) - i128::from(account.spent) * CREDIT
    }

    /// Returns the credit that the regulator must report.
    pub(crate) fn credit(&self, vm: VmId) -> Option<i128> {
        let account = self.vms.get(&vm)?;
        let has_one = account.active && account.allocation.is_some();
        has_one.then(|| self.left(account))
    }

    fn threshold(&self, account: &Account) -> i128 {
        let share = i128::from(account.share);
        (share * i128::from(self.params.period.0) * i128::from(self.params.burst)).max(CREDIT)
    }

    pub(crate) fn ends(&self) -> Nanos {
        self.period.map_or(Nanos::MAX, |[_, end, _]| Nanos(end))
    }

    /// Returns the time from which a change at `now` counts.
    fn from(&self, now: u64) -> u64 {
        match self.period {
            Some([begin, _, granted]) if granted == now => begin,
            Some([_, end, _]) => now.min(end),
            None => now,
        }
    }

    fn rate(account: &Account, idle: bool) -> u64 {
        match account.allocation {
            None => 0,
            Some(0) if idle && account.active => account.share,
            Some(allocation) => allocation,
        }
    }

    /// Asserts that the credits of all accounts equal those of the books.
    pub(crate) fn balance(&self) {
        let vms = self.vms.values();
        let of_vm = |a: &Account| self.left(a) + self.granted(a, false);
        let due = self.due.values().sum::<i128>() + self.bequeathed;
        let there = vms.map(of_vm).sum::<i128>() + due;
        let granted = |a: &Account| self.granted(a, true) + self.granted(a, false);
        let running: i128 = self.vms.values().map(granted).sum();
        let spent = i128::from(self.spent) * CREDIT;
        assert_eq!(there, self.minted + running - spent - self.lost, "{self:?}");
    }

    fn begin(&mut self, view: &View, begin: u64, now: u64) {
        self.period = Some([begin, begin + self.params.period.0, now]);
        for (&vm, account) in &mut self.vms {
            let rate = Slow::rate(account, view.requests(vm) == 0);
            account.rates = vec![(begin, rate, account.active)];
        }
    }

    fn activate(&mut self, view: &View, vm: VmId) {
        if self.vms[&vm].active {
            return;
        }
        let now = view.now().0;
        if self.period.is_none() {
            self.begin(view, now, now);
        }
        let from = self.from(now);
        let burst = self.threshold(&self.vms[&vm]);
        let account = self.vms.get_mut(&vm).expect("heard of");
        account.active = true;
        if let Some(allocation) = account.allocation {
            account.carried += burst;
            self.minted += burst;
            account.rates.push((from, allocation, true));
        }
    }

    fn charge(&mut self, vm: VmId, requests: u32, joined: bool) {
        let account = self.vms.get_mut(&vm).expect("heard of");
        if account.allocation.is_some() {
            account.joined += u64::from(joined);
            account.spent += u64::from(requests);
            account.spent_in_all += u64::from(requests);
            account.largest_unit = account.largest_unit.max(u64::from(requests));
            self.spent += u64::from(requests);
        }
    }

    fn allocate(&mut self, view: &View, vm: VmId, allocation: u64) {
        let from = self.from(view.now().0);
        let running = self.period.is_some();
        let Some(account) = self.vms.get_mut(&vm) else {
            return;
        };
        // Allocations above 10^9 requests a second count as 10^9.
        let allocation = allocation.min(1_000_000_000_000);
        let back = account.allocation == Some(0) && allocation > 0;
        account.changed |= account.allocation.is_some_and(|old| old != allocation);
        account.allocation = Some(allocation);
        if allocation > 0 {
            account.share = allocation;
        }
        let rate = Slow::rate(account, view.requests(vm) == 0);
        if running {
            account.rates.push((from, rate, account.active));
        }
        let account = self.vms[&vm].clone();
        if let (true, true, Some([_, end, _])) = (back, account.active, self.period) {
            // The VM keeps no more than the burst that it would get as a newcomer.
            let rest = i128::from(end - from) * i128::from(rate);
            let excess = self.left(&account) - self.threshold(&account) - rest;
            self.vms.get_mut(&vm).expect("there").carried -= excess.max(0);
            self.lost += excess.max(0);
        }
    }

    /// Asserts that no VM takes more, in any time, than its grants of that time and its threshold,
    /// except for requests merged into its last unit or into its units after their admission.
    fn bound_bursts(&mut self) {
        let vms: Vec<VmId> = self.vms.keys().copied().collect();
        for vm in vms {
            let account = &self.vms[&vm];
            let (threshold, granted) = (self.threshold(account), self.granted(account, true));
            let unit = i128::from(account.largest_unit.max(1)) * CREDIT;
            let account = self.vms.get_mut(&vm).expect("there");
            let taken = i128::from(account.spent - account.joined) * CREDIT;
            let beyond = account.beyond + taken - granted;
            account.beyond = beyond.max(0);
            let allowed = threshold + unit - CREDIT;
            assert!(account.changed || beyond <= allowed, "{vm:?}: {account:?}");
        }
    }

    /// Ends a period: settles all accounts and passes unused credits on.
    fn end_period(&mut self, view: &View) {
        let [_, end, _] = self.period.expect("one runs");
        self.balance();
        self.bound_bursts();
        let (mut unused, mut over) = (std::mem::take(&mut self.bequeathed), Vec::new());
        for vm in self.vms.keys().copied().collect::<Vec<_>>() {
            let mut account = self.vms[&vm].clone();
            let (mine, given) = (self.granted(&account, true), self.granted(&account, false));
            let (threshold, left) = (self.threshold(&account), self.left(&account));
            self.minted += mine + given;
            unused += given;
            let counted = account.allocation.is_some_and(|a| a > 0);
            account.carried = left.min(threshold);
            if counted {
                unused += left - account.carried;
            } else {
                self.lost += left - account.carried;
            }
            (account.spent, account.joined) = (0, 0);
            let idle = view.requests(vm) == 0;
            let known = account.allocation.is_some();
            if account.active && idle && (!known || account.carried >= threshold) {
                self.lost += account.carried;
                account.carried = 0;
                account.active = false;
            }
            let dry = account.active && known && account.carried < CREDIT;
            if dry && counted && view.pending_head(vm).is_some() {
                over.push(vm);
            }
            self.vms.insert(vm, account);
        }
        self.ended += 1;
        let window = i128::from(self.params.smoothing);
        for later in 0..u64::from(self.params.smoothing) {
            *self.due.entry(self.ended + later).or_default() += unused / window;
        }
        *self.due.entry(self.ended).or_default() += unused % window;
        let due = self.due.remove(&self.ended).expect("just put in");
        let wanted = |vm: &VmId| i128::from(self.vms[vm].share);
        let wanted: i128 = over.iter().map(wanted).sum();
        if over.is_empty() {
            self.lost += due;
        } else {
            *self.due.entry(self.ended + 1).or_default() += due % wanted;
        }
        for vm in over {
            let account = self.vms.get_mut(&vm).expect("there");
            let more = due / wanted * i128::from(account.share);
            account.carried += more;
            account.from_others += more;
            // Credits passed on count as granted in the bound on bursts.
            account.beyond -= more;
        }
        if self.vms.values().any(|account| account.active) {
            let late = view.now().0 >= end + self.params.period.0;
            let begin = if late { view.now().0 } else { end };
            self.begin(view, begin, view.now().0);
        } else {
            self.lost += self.due.values().sum::<i128>();
            self.due.clear();
            self.period = None;
            self.vms.values_mut().for_each(|vm| vm.rates.clear());
        }
        self.balance();
    }

    fn heard(&mut self, view: &View, event: &Event) {
        let vm = match *event {
            Event::Arrived(unit) | Event::Admitted(unit) => view.queued(unit).vm_lane().0,
            Event::Merged { into, .. } => view.queued(into).vm_lane().0,
            Event::VmAdded(vm) | Event::VmRemoved(vm) => vm,
            _ => return,
        };
        if view.is_background(vm) {
            return;
        }
        match *event {
            Event::Arrived(_) => self.activate(view, vm),
            Event::Admitted(unit) => self.charge(vm, view.queued(unit).unit().requests, false),
            Event::Merged { into, .. } if view.queued(into).is_admitted() => {
                self.charge(vm, 1, true)
            }
            Event::VmAdded(_) => {
                self.vms.insert(vm, Account::default());
                if let Some([begin, ..]) = self.period {
                    self.vms.get_mut(&vm).expect("just put in").rates = vec![(begin, 0, false)];
                }
                if view.requests(vm) > 0 {
                    self.activate(view, vm);
                }
            }
            Event::VmRemoved(_) => {
                let mut account = self.vms.remove(&vm).expect("there");
                // The rest of the period's rate is not granted to any VM.
                let now = self.from(view.now().0);
                account.rates.push((now, 0, false));
                let gave = self.granted(&account, false);
                self.bequeathed += gave;
                let granted = self.granted(&account, true) + self.granted(&account, false);
                self.minted += granted;
                self.lost += self.left(&account);
            }
            _ => {}
        }
    }
}

impl Rules for Slow {
    type Real = Circ;

    fn agree(&self, real: &Circ, view: &View) {
        self.balance();
        for (&vm, account) in &self.vms {
            let credit = self.credit(vm);
            assert_eq!(real.credit(vm), credit, "{vm:?}: {account:?}");
            let (admits, may) = (
                real.admits(view, vm),
                credit.is_none_or(|credit| credit >= CREDIT),
            );
            // In slices some of it is not handed out yet, but in the last one.
            let last = self.period.is_none() || real.next_timer() == self.ends();
            assert!(may || !admits, "{vm:?}: {account:?}");
            assert!(admits || !may || !last, "{vm:?}: {account:?}");
        }
        match self.params.slices {
            // Right after a period's end the timer is due again, for what was allocated then.
            1 if real.next_timer() > view.now() => {
                assert_eq!(real.next_timer(), self.ends(), "{self:?}")
            }
            _ => assert!(real.next_timer() <= self.ends(), "{self:?}"),
        }
    }

    fn hear(&mut self, view: &View, event: &Event) {
        self.heard(view, event);
    }

    fn set(&mut self, view: &View, vm: VmId, knob: Knob) {
        if let Knob::Allocation(allocation) = knob {
            self.allocate(view, vm, allocation);
        }
    }

    fn is_over(&mut self, view: &View) -> Option<IntervalEnd> {
        (self.ends() <= view.now()).then_some(IntervalEnd::Period)
    }

    fn end(&mut self, view: &View, ended: Interval) {
        self.end_period(view);
        assert_eq!(ended.number, self.ended);
    }
}

/// Knobs that a controller is to set: at the next event, and at the ends of coming periods.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    pub now: Vec<(VmId, u64)>,
    pub then: VecDeque<(VmId, u64)>,
}

/// A controller that turns what it is told to.
pub(crate) struct Puppet(pub Arc<Mutex<Plan>>);

impl Controller for Puppet {
    fn interests(&self) -> Interests {
        Interests::VMS.union(Interests::INTERVALS)
    }

    fn on_event(&mut self, view: &View, event: &Event, out: &mut Knobs) {
        let mut plan = self.0.lock().expect("no panic before");
        let now = std::mem::take(&mut plan.now);
        let then = match event {
            Event::IntervalEnded(_) => std::mem::take(&mut plan.then),
            _ => VecDeque::new(),
        };
        for (vm, allocation) in now.into_iter().chain(then) {
            // It may be gone, and another one in its slot.
            if !view.vms().any(|there| there == vm) {
                continue;
            }
            out.set(vm, Knob::Allocation(allocation));
        }
    }

    fn next_timer(&self) -> Nanos {
        Nanos::MAX
    }

    fn on_timer(&mut self, _: &View, _: &mut Knobs) {}
}

/// CIRC and the puppet in place of an open gate, with the rules beside it.
pub(crate) fn regulated(
    slow: &Shared,
    plan: &Arc<Mutex<Plan>>,
) -> impl Fn(Roles) -> Roles + Send + 'static {
    let (slow, plan) = (Arc::clone(slow), Arc::clone(plan));
    move |roles| {
        let mut fresh = slow.lock().expect("no panic before");
        let params = fresh.params;
        *fresh = Slow::new(params);
        if roles.regulator.stage() != Stage::Open {
            return roles;
        }
        let checked = Checked::new(Box::new(Circ::new(params, 128)), &slow);
        Roles {
            controller: Some(Box::new(Puppet(Arc::clone(&plan)))),
            regulator: Box::new(checked),
            ..roles
        }
    }
}
