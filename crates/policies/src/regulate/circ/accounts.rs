//! CIRC's accounts: the credits of each VM, the credits passed on, and a check that their sum is
//! right. The regulator owns the clock; here a period has a length, and callers say how much of it
//! is left.

use super::moving_average::MovingAverage;
use tidegate_core::roles::Reopened;
use tidegate_core::view::View;

/// One request, in thousandths of a request a second times nanoseconds: the unit of all amounts
/// here.
pub(super) const CREDIT: i128 = 1_000 * 1_000_000_000;

/// Upper bound of allocations, 10^9 requests a second in thousandths. No device is that fast, and
/// no product overflows.
const MOST: u64 = 1_000_000_000_000;

/// Value of `Vm::at` outside the list of active VMs.
const ABSENT: u32 = u32::MAX;

/// Account of one VM.
#[derive(Clone, Copy, Debug)]
struct Vm {
    /// Credit left; below zero: debt. 0 while the VM is inactive or has no allocation yet.
    credit: i128,
    /// Last allocation in thousandths of a request a second; 0: the VM does not compete.
    allocation: u64,
    /// Last allocation above zero.
    share: u64,
    /// Rate, in the same unit, at which the VM is granted credits, or gives them away while
    /// inactive.
    rate: u64,
    /// Rate at which credits passed on to the VM are spread over this period, in the same unit.
    passed: u64,
    /// Index in the list of active VMs.
    at: u32,
    /// An allocation was set at least once; without one the VM is free, not regulated.
    known: bool,
    /// The VM ended the period without credit and with a request waiting.
    over: bool,
    present: bool,
}

const GONE: Vm = Vm {
    credit: 0,
    allocation: 0,
    share: 0,
    rate: 0,
    passed: 0,
    at: ABSENT,
    known: false,
    over: false,
    present: false,
};

impl Vm {
    /// Returns the rate of the next grant. A VM that does not compete is granted nothing that
    /// others would want, but while it is idle it saves up for its return.
    fn due(&self, idle: bool) -> u64 {
        match self.allocation {
            0 if idle && self.at != ABSENT => self.share,
            allocation => allocation,
        }
    }
}

/// Accounts of all VMs, by slot.
#[derive(Debug)]
pub(super) struct Accounts {
    /// Length of a period in nanoseconds.
    period: i128,
    /// Number of periods' allocations that a VM may save up.
    burst: i128,
    vms: Vec<Vm>,
    /// Slots of VMs that are active or not regulated yet.
    active: Vec<u32>,
    /// Sum of the rates of all inactive VMs.
    idle_rates: i128,
    /// Credits that inactive VMs give away in this period.
    idle_gives: i128,
    given: MovingAverage,
    /// Sum of all credits by an independent account: grants and bursts less those spent, dropped or
    /// lapsed.
    books: i128,
}

impl Accounts {
    /// Creates accounts without VMs, with room for `vms` active ones. `period` in nanoseconds,
    /// `burst` and `smoothing` in periods.
    pub(super) fn new(period: u64, burst: u32, smoothing: usize, vms: usize) -> Accounts {
        Accounts {
            period: period.into(),
            burst: burst.into(),
            vms: Vec::new(),
            active: Vec::with_capacity(vms),
            idle_rates: 0,
            idle_gives: 0,
            given: MovingAverage::new(smoothing),
            books: 0,
        }
    }

    /// Memory of one more VM, in bytes.
    pub(super) const BYTES_PER_VM: usize = size_of::<Vm>() + size_of::<u32>();

    /// Returns a VM's credit; `None` without an account or while inactive.
    pub(super) fn credit(&self, slot: usize) -> Option<i128> {
        let vm = self.vms.get(slot)?;
        (vm.known && vm.at != ABSENT).then_some(vm.credit)
    }

    /// Returns the credit that a VM may spend while `rest` nanoseconds of the period are still to
    /// be handed out: its credit less the grant for that time. `None` as for [`Accounts::credit`].
    pub(super) fn spendable(&self, slot: usize, rest: i128) -> Option<i128> {
        let vm = self.vms.get(slot)?;
        let pace = i128::from(vm.rate) + i128::from(vm.passed);
        (vm.known && vm.at != ABSENT).then_some(vm.credit - pace * rest)
    }

    pub(super) fn present(&self, slot: usize) -> bool {
        self.vms.get(slot).is_some_and(|vm| vm.present)
    }

    pub(super) fn all_inactive(&self) -> bool {
        self.active.is_empty()
    }

    /// Returns the credit that a VM may save up; at least one request.
    fn threshold(&self, vm: &Vm) -> i128 {
        (i128::from(vm.share) * self.period * self.burst).max(CREDIT)
    }

    /// Opens an inactive account.
    pub(super) fn add(&mut self, slot: usize) {
        if self.vms.len() <= slot {
            self.vms.resize(slot + 1, GONE);
        }
        self.vms[slot] = Vm {
            present: true,
            ..GONE
        };
    }

    /// Closes an account with `left` nanoseconds of the period to go. Credits that the VM gave away
    /// so far stay given.
    pub(super) fn remove(&mut self, slot: usize, left: i128) {
        let vm = self.vms[slot];
        if vm.at == ABSENT {
            let gives = i128::from(vm.rate) * left;
            self.idle_rates -= i128::from(vm.rate);
            self.idle_gives -= gives;
            self.books -= gives;
        } else {
            self.leave_active(slot);
            self.books -= vm.credit;
        }
        self.vms[slot] = GONE;
    }

    /// Activates a VM that has a request inside: from now on it keeps its allocation, and it starts
    /// with a full burst.
    pub(super) fn activate(&mut self, slot: usize, left: i128) {
        let burst = self.threshold(&self.vms[slot]);
        let vm = &mut self.vms[slot];
        if vm.at != ABSENT {
            return;
        }
        vm.at = self.active.len() as u32;
        self.active.push(slot as u32);
        if vm.known {
            let grant = i128::from(vm.rate) * left;
            vm.credit = burst + grant;
            self.idle_rates -= i128::from(vm.rate);
            self.idle_gives -= grant;
            self.books += burst;
        }
    }

    /// Deactivates a VM: drops its credit and gives its allocation to others.
    fn deactivate(&mut self, slot: usize) {
        self.leave_active(slot);
        let vm = &mut self.vms[slot];
        self.books -= vm.credit;
        (vm.credit, vm.passed) = (0, 0);
        vm.rate = vm.allocation;
        self.idle_rates += i128::from(vm.rate);
    }

    fn leave_active(&mut self, slot: usize) {
        let at = core::mem::replace(&mut self.vms[slot].at, ABSENT);
        self.active.swap_remove(at as usize);
        if let Some(&moved) = self.active.get(at as usize) {
            self.vms[moved as usize].at = at;
        }
    }

    /// Sets a VM's allocation in thousandths of a request a second, for the `left` nanoseconds of
    /// this period, too.
    pub(super) fn allocate(&mut self, slot: usize, allocation: u64, idle: bool, left: i128) {
        let vm = &mut self.vms[slot];
        vm.known = true;
        let back = vm.allocation == 0 && allocation > 0;
        vm.allocation = allocation.min(MOST);
        if vm.allocation > 0 {
            vm.share = vm.allocation;
        }
        let rate = vm.due(idle);
        let more = i128::from(rate) - i128::from(core::mem::replace(&mut vm.rate, rate));
        match vm.at {
            ABSENT => {
                self.idle_rates += more;
                self.idle_gives += more * left;
            }
            _ => vm.credit += more * left,
        }
        self.books += more * left;
        if back {
            self.drop_beyond_burst(slot, left);
        }
    }

    /// Reduces the credit of a VM that competes again to one burst at its new allocation. Its old
    /// credit may stem from a far larger one.
    fn drop_beyond_burst(&mut self, slot: usize, left: i128) {
        let threshold = self.threshold(&self.vms[slot]);
        let vm = &mut self.vms[slot];
        if vm.at != ABSENT {
            let excess = (vm.credit - threshold - i128::from(vm.rate) * left).max(0);
            vm.credit -= excess;
            self.books -= excess;
        }
    }

    /// Charges a VM for requests that were let in.
    pub(super) fn charge(&mut self, slot: usize, requests: u32) {
        let vm = &mut self.vms[slot];
        if vm.known {
            let cost = i128::from(requests) * CREDIT;
            vm.credit -= cost;
            self.books -= cost;
        }
    }

    /// Closes a period. Returns the additional nanoseconds for which VMs that ran dry are granted
    /// their allocations in the next one.
    pub(super) fn close(&mut self, view: &View) -> i128 {
        self.check();
        let (given, wanted) = self.settle(view);
        let due = self.given.pass(given);
        if wanted == 0 {
            self.books -= due;
            return 0;
        }
        self.given.put_back(due % wanted);
        due / wanted
    }

    /// Asserts that the accounts' sum equals `books`: no credit was created or lost.
    fn check(&self) {
        let credit = |&slot: &u32| self.vms[slot as usize].credit;
        let of_vms: i128 = self.active.iter().map(credit).sum();
        let counted = of_vms + self.idle_gives + self.given.held();
        assert_eq!(counted, self.books, "credits do not add up");
    }

    /// Caps all credits at what may be saved up and deactivates VMs that want nothing. Returns the
    /// credits given away, and the sum of the allocations of VMs that ran dry.
    fn settle(&mut self, view: &View) -> (i128, i128) {
        let (mut given, mut wanted) = (self.idle_gives, 0);
        let mut at = 0;
        while let Some(&slot) = self.active.get(at) {
            let slot = slot as usize;
            let id = view.vm_at(slot);
            let threshold = self.threshold(&self.vms[slot]);
            let vm = &mut self.vms[slot];
            let excess = (vm.credit - threshold).max(0);
            vm.credit -= excess;
            match vm.allocation {
                0 => self.books -= excess,
                _ => given += excess,
            }
            vm.over = vm.known && vm.credit < CREDIT && view.pending_head(id).is_some();
            if vm.over {
                wanted += i128::from(vm.allocation);
            }
            let full = !vm.known || vm.credit == threshold;
            if full && view.requests(id) == 0 {
                self.deactivate(slot)
            } else {
                at += 1;
            }
        }
        (given, wanted)
    }

    /// Begins a period: computes the credits that inactive VMs give away in it.
    pub(super) fn begin(&mut self) {
        self.idle_gives = self.idle_rates * self.period;
        self.books += self.idle_gives;
    }

    /// Grants the period's credits, and to VMs that ran dry `more` nanoseconds' worth on top, as
    /// returned by [`Accounts::close`].
    pub(super) fn grant(&mut self, view: &View, more: i128, reopen: &mut Reopened) {
        for &slot in &self.active {
            let vm = &mut self.vms[slot as usize];
            let id = view.vm_at(slot as usize);
            if vm.known {
                vm.rate = vm.due(view.requests(id) == 0);
                let grant = i128::from(vm.rate) * self.period;
                vm.credit += grant;
                self.books += grant;
                let passed = i128::from(vm.allocation) * if vm.over { more } else { 0 };
                vm.credit += passed;
                // Rounds down: less than one unit a nanosecond is thereby available early.
                vm.passed = u64::try_from(passed / self.period).unwrap_or(u64::MAX);
            }
            // VMs in debt are included, since the controller may still allocate more.
            if !view.may_enter(id) {
                reopen.push(id);
            }
        }
    }

    /// Lists the throttled VMs for another look at their gates, as a slice has begun.
    pub(super) fn hand_out(&self, view: &View, reopen: &mut Reopened) {
        for &slot in &self.active {
            let id = view.vm_at(slot as usize);
            if !view.may_enter(id) {
                reopen.push(id);
            }
        }
    }

    /// Stops periods, as no VM is active. Credits given away for others lapse.
    pub(super) fn pause(&mut self) {
        self.books -= self.given.clear();
        assert_eq!(self.books, 0, "credits that nobody has");
        self.idle_gives = 0;
    }
}
