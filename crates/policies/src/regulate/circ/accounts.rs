//! CIRC's accounts: the credits of each VM, the credits passed on, and a check that their sum is
//! right. The regulator owns the clock; here a period has a length, and callers say how much of it
//! is left.

use super::moving_average::MovingAverage;
use super::slice_queue::SliceQueue;
use tidegate_core::roles::Reopened;
use tidegate_core::view::View;

/// One request, in thousandths of a request a second times nanoseconds: the unit of all amounts
/// here.
pub(super) const UNITS_PER_CREDIT: i128 = 1_000 * 1_000_000_000;

/// Upper bound of allocations, 10^9 requests a second in thousandths. No device is that fast, and
/// no product overflows.
const ALLOCATION_MAX: u64 = 1_000_000_000_000;

/// Value of `Vm::active_index` outside the list of active VMs.
const ABSENT: u32 = u32::MAX;

/// Account of one VM, in one cache line.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
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
    active_index: u32,
    /// An allocation was set at least once; without one the VM is free, not regulated.
    has_allocation: bool,
    /// The VM ended the period without credit and with a request waiting.
    ran_dry: bool,
    present: bool,
}

const _: () = assert!(size_of::<Vm>() == 64);

const NO_ACCOUNT: Vm = Vm {
    credit: 0,
    allocation: 0,
    share: 0,
    rate: 0,
    passed: 0,
    active_index: ABSENT,
    has_allocation: false,
    ran_dry: false,
    present: false,
};

impl Vm {
    /// Returns the rate of the next grant. A VM that does not compete is granted nothing that
    /// others would want, but while it is idle it saves up for its return.
    fn next_rate(&self, idle: bool) -> u64 {
        match self.allocation {
            // An idle VM still in the list of active ones saves up to its threshold, then becomes
            // inactive.
            0 if idle && self.active_index != ABSENT => self.share,
            allocation => allocation,
        }
    }
}

/// Returns `a / b` of numbers that are not negative, in a tenth of the instructions where both have
/// 64 bits. Nearly all have: 2^63 is the worth of nine million requests.
fn divide(a: i128, b: i128) -> i128 {
    match (u64::try_from(a), u64::try_from(b)) {
        (Ok(a), Ok(b)) => (a / b).into(),
        _ => a / b,
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
    inactive_rates: i128,
    /// Credits that inactive VMs give away in this period.
    given_by_inactive: i128,
    given: MovingAverage,
    /// Sum of all credits by an independent account: grants and bursts less those spent, dropped or
    /// lapsed.
    audited_sum: i128,
    /// Length of a slice in nanoseconds, and the number of slices in a period.
    slice: i128,
    slices: usize,
    /// Number of the slice that was handed out last.
    handed_out: usize,
    /// Throttled VMs by the slice in which they can spend a credit.
    throttled: SliceQueue,
    /// Scratch space of [`Accounts::hand_out`].
    due: Vec<u32>,
}

impl Accounts {
    /// Creates accounts without VMs, with room for `vms` active ones. `period` and `slice` in
    /// nanoseconds, `burst` and `smoothing` in periods.
    pub(super) fn new(
        period: u64,
        slice: u64,
        burst: u32,
        smoothing: usize,
        vms: usize,
    ) -> Accounts {
        let slices = period.div_ceil(slice) as usize;
        Accounts {
            period: period.into(),
            slice: slice.into(),
            slices,
            handed_out: 0,
            throttled: SliceQueue::new(slices),
            due: Vec::with_capacity(vms),
            burst: burst.into(),
            vms: Vec::new(),
            active: Vec::with_capacity(vms),
            inactive_rates: 0,
            given_by_inactive: 0,
            given: MovingAverage::new(smoothing),
            audited_sum: 0,
        }
    }

    /// Memory of one more VM, in bytes.
    pub(super) const BYTES_PER_VM: usize =
        size_of::<Vm>() + 2 * size_of::<u32>() + SliceQueue::BYTES_PER_VM;

    /// Returns a VM's credit; `None` without an account or while inactive.
    pub(super) fn credit(&self, slot: usize) -> Option<i128> {
        let vm = self.vms.get(slot)?;
        (vm.has_allocation && vm.active_index != ABSENT).then_some(vm.credit)
    }

    /// Returns the credit that a VM may spend while `rest` nanoseconds of the period are still to
    /// be handed out: its credit less the grant for that time. `None` as for [`Accounts::credit`].
    pub(super) fn spendable(&self, slot: usize, rest: i128) -> Option<i128> {
        let vm = self.vms.get(slot)?;
        let pace = i128::from(vm.rate) + i128::from(vm.passed);
        (vm.has_allocation && vm.active_index != ABSENT).then_some(vm.credit - pace * rest)
    }

    pub(super) fn has_account(&self, slot: usize) -> bool {
        self.vms.get(slot).is_some_and(|vm| vm.present)
    }

    pub(super) fn all_inactive(&self) -> bool {
        self.active.is_empty()
    }

    /// Returns the credit that a VM may save up; at least one request.
    fn threshold(&self, vm: &Vm) -> i128 {
        (i128::from(vm.share) * self.period * self.burst).max(UNITS_PER_CREDIT)
    }

    /// Opens an inactive account.
    pub(super) fn add(&mut self, slot: usize) {
        if self.vms.len() <= slot {
            self.vms.resize(slot + 1, NO_ACCOUNT);
            self.throttled.grow(slot + 1);
        }
        self.vms[slot] = Vm {
            present: true,
            ..NO_ACCOUNT
        };
    }

    /// Closes an account with `left` nanoseconds of the period to go. Credits that the VM gave away
    /// so far stay given.
    pub(super) fn remove(&mut self, slot: usize, left: i128) {
        let vm = self.vms[slot];
        if vm.active_index == ABSENT {
            // An inactive VM gave this period's credits away in advance; those of the rest are
            // taken back.
            let gives = i128::from(vm.rate) * left;
            self.inactive_rates -= i128::from(vm.rate);
            self.given_by_inactive -= gives;
            self.audited_sum -= gives;
        } else {
            self.leave_active(slot);
            self.audited_sum -= vm.credit;
        }
        self.vms[slot] = NO_ACCOUNT;
    }

    /// Activates a VM that has a request inside: from now on it keeps its allocation, and it starts
    /// with a full burst.
    pub(super) fn activate(&mut self, slot: usize, left: i128) {
        // A VM becomes inactive only with its threshold saved up, so it finds as much on its
        // return.
        let burst = self.threshold(&self.vms[slot]);
        let vm = &mut self.vms[slot];
        if vm.active_index != ABSENT {
            return;
        }
        vm.active_index = self.active.len() as u32;
        self.active.push(slot as u32);
        // Without an allocation there is neither credit nor a rate to give away.
        if vm.has_allocation {
            let grant = i128::from(vm.rate) * left;
            vm.credit = burst + grant;
            self.inactive_rates -= i128::from(vm.rate);
            self.given_by_inactive -= grant;
            self.audited_sum += burst;
        }
    }

    /// Deactivates a VM: drops its credit and gives its allocation to others.
    fn deactivate(&mut self, slot: usize) {
        self.leave_active(slot);
        let vm = &mut self.vms[slot];
        self.audited_sum -= vm.credit;
        (vm.credit, vm.passed) = (0, 0);
        vm.rate = vm.allocation;
        self.inactive_rates += i128::from(vm.rate);
    }

    fn leave_active(&mut self, slot: usize) {
        self.throttled.remove(slot);
        let at = core::mem::replace(&mut self.vms[slot].active_index, ABSENT);
        // The last of the list takes the place, and its index is corrected below.
        self.active.swap_remove(at as usize);
        if let Some(&moved) = self.active.get(at as usize) {
            self.vms[moved as usize].active_index = at;
        }
    }

    /// Sets a VM's allocation in thousandths of a request a second, for the `left` nanoseconds of
    /// this period, too. `is_opening`: [`Accounts::hand_out_first`] is still to look at the VM.
    pub(super) fn allocate(
        &mut self,
        slot: usize,
        allocation: u64,
        idle: bool,
        left: i128,
        is_opening: bool,
    ) {
        let vm = &mut self.vms[slot];
        vm.has_allocation = true;
        // A VM that did not compete may have saved up at an allocation of long ago.
        let back = vm.allocation == 0 && allocation > 0;
        // Controllers may name any number; the bound keeps the products below in range.
        vm.allocation = allocation.min(ALLOCATION_MAX);
        if vm.allocation > 0 {
            vm.share = vm.allocation;
        }
        let rate = vm.next_rate(idle);
        let more = i128::from(rate) - i128::from(core::mem::replace(&mut vm.rate, rate));
        match vm.active_index {
            ABSENT => {
                self.inactive_rates += more;
                self.given_by_inactive += more * left;
            }
            _ => vm.credit += more * left,
        }
        self.audited_sum += more * left;
        if back {
            self.drop_beyond_burst(slot, left);
        }
        if is_opening {
            return;
        }
        // A VM that is throttled and no longer needs to be finds out at the next slice.
        let next = self.handed_out + 1;
        let is_active = self.vms[slot].active_index != ABSENT;
        if !self.plan(slot) && is_active && next < self.slices {
            self.throttled.put(slot, next);
        }
    }

    /// Reduces the credit of a VM that competes again to one burst at its new allocation. Its old
    /// credit may stem from a far larger one.
    fn drop_beyond_burst(&mut self, slot: usize, left: i128) {
        let threshold = self.threshold(&self.vms[slot]);
        let vm = &mut self.vms[slot];
        if vm.active_index != ABSENT {
            let excess = (vm.credit - threshold - i128::from(vm.rate) * left).max(0);
            vm.credit -= excess;
            self.audited_sum -= excess;
        }
    }

    /// Charges a VM for requests that were let in.
    pub(super) fn charge(&mut self, slot: usize, requests: u32) {
        let vm = &mut self.vms[slot];
        if vm.has_allocation {
            let cost = i128::from(requests) * UNITS_PER_CREDIT;
            vm.credit -= cost;
            self.audited_sum -= cost;
            self.plan(slot);
        }
    }

    /// Closes a period. Returns the additional nanoseconds for which VMs that ran dry are granted
    /// their allocations in the next one.
    pub(super) fn close_period(&mut self, view: &View) -> i128 {
        let (given, wanted) = self.settle(view);
        let due = self.given.add(given);
        if wanted == 0 {
            self.audited_sum -= due;
            return 0;
        }
        // A division's remainder would be lost credit; it comes out with the next period.
        self.given.put_back(due % wanted);
        due / wanted
    }

    /// Caps all credits at what may be saved up and deactivates VMs that want nothing. Returns the
    /// credits given away, and the sum of the allocations of VMs that ran dry.
    ///
    /// Panics if the credits as they were do not add up to `audited_sum`: credit was created or
    /// lost. The check adds up what this pass over the active VMs reads anyway, so it is cheap
    /// enough for release builds.
    fn settle(&mut self, view: &View) -> (i128, i128) {
        let (mut given, mut wanted) = (self.given_by_inactive, 0);
        let audited_sum = self.audited_sum;
        let mut sum = self.given_by_inactive + self.given.outstanding();
        let mut at = 0;
        while let Some(&slot) = self.active.get(at) {
            let slot = slot as usize;
            let id = view.vm_at(slot);
            let threshold = self.threshold(&self.vms[slot]);
            let vm = &mut self.vms[slot];
            sum += vm.credit;
            let excess = (vm.credit - threshold).max(0);
            vm.credit -= excess;
            match vm.allocation {
                // Credits of a VM that does not compete were never allocated from the device; they
                // lapse.
                0 => self.audited_sum -= excess,
                _ => given += excess,
            }
            // Less than one credit is none: a request needs a whole one.
            vm.ran_dry = vm.has_allocation && vm.credit < UNITS_PER_CREDIT && view.has_pending(id);
            if vm.ran_dry {
                wanted += i128::from(vm.allocation);
            }
            let full = !vm.has_allocation || vm.credit == threshold;
            if full && view.requests(id) == 0 {
                // Does not advance: the last VM of the list has taken this place.
                self.deactivate(slot)
            } else {
                at += 1;
            }
        }
        assert_eq!(sum, audited_sum, "credits do not add up");
        (given, wanted)
    }

    /// Begins a period: computes the credits that inactive VMs give away in it.
    pub(super) fn begin_period(&mut self, slice: usize) {
        self.handed_out = slice;
        self.given_by_inactive = self.inactive_rates * self.period;
        self.audited_sum += self.given_by_inactive;
    }

    /// Grants the period's credits, and to VMs that ran dry `more` nanoseconds' worth on top, as
    /// returned by [`Accounts::close_period`].
    pub(super) fn grant_credits(&mut self, view: &View, more: i128) {
        for &slot in &self.active {
            let vm = &mut self.vms[slot as usize];
            let id = view.vm_at(slot as usize);
            if vm.has_allocation {
                vm.rate = vm.next_rate(view.requests(id) == 0);
                let grant = i128::from(vm.rate) * self.period;
                vm.credit += grant;
                self.audited_sum += grant;
                let passed = i128::from(vm.allocation) * if vm.ran_dry { more } else { 0 };
                vm.credit += passed;
                // Rounds down: less than one unit a nanosecond is thereby available early.
                vm.passed = u64::try_from(divide(passed, self.period)).unwrap_or(u64::MAX);
            }
        }
    }

    /// Hands out slice `slice` of the period: lists the throttled VMs that can spend a credit from
    /// now on for another look at their gates, in the order of the active VMs.
    pub(super) fn hand_out(&mut self, view: &View, slice: usize, reopen: &mut Reopened) {
        self.handed_out = slice;
        let mut due = core::mem::take(&mut self.due);
        self.throttled.take_until(slice, &mut due);
        // Admissions and allocations since then may have moved the time of a VM's next credit.
        due.retain(|&slot| !self.plan(slot as usize) && !view.may_enter(view.vm_at(slot as usize)));
        // The engine admits in this order, on which results depend.
        due.sort_unstable_by_key(|&slot| self.vms[slot as usize].active_index);
        for slot in due.drain(..) {
            reopen.push(view.vm_at(slot as usize));
        }
        self.due = due;
    }

    /// Hands out the first slice of a period whose credits were granted and allocated: looks at all
    /// VMs, as all have new credit.
    pub(super) fn hand_out_first(&mut self, view: &View, reopen: &mut Reopened) {
        for at in 0..self.active.len() {
            let slot = self.active[at] as usize;
            let id = view.vm_at(slot);
            if !self.plan(slot) && !view.may_enter(id) {
                reopen.push(id);
            }
        }
    }

    /// Lists a VM under the slice in which it can spend a credit, if that is yet to come in this
    /// period. Returns `true` if it cannot spend one now.
    fn plan(&mut self, slot: usize) -> bool {
        let rest = self.rest_after(self.handed_out);
        let is_throttled = self
            .spendable(slot, rest)
            .is_some_and(|c| c < UNITS_PER_CREDIT);
        match self.next_slice(slot).filter(|_| is_throttled) {
            Some(slice) => self.throttled.put(slot, slice),
            None => self.throttled.remove(slot),
        }
        is_throttled
    }

    /// Returns the time in nanoseconds that is not handed out yet with slice `slice`.
    fn rest_after(&self, slice: usize) -> i128 {
        (self.period - (slice as i128 + 1) * self.slice).max(0)
    }

    /// Returns the first slice after the last one handed out in which a VM can spend a credit;
    /// `None`: not in this period.
    fn next_slice(&self, slot: usize) -> Option<usize> {
        let next = self.handed_out + 1;
        let vm = &self.vms[slot];
        let pace = i128::from(vm.rate) + i128::from(vm.passed);
        let beyond = vm.credit - UNITS_PER_CREDIT;
        if beyond < 0 || next >= self.slices {
            return None;
        }
        // The part of the period that may still be due then.
        let rest = if pace == 0 {
            self.period
        } else {
            divide(beyond, pace)
        };
        let begins = self.period - rest.min(self.period);
        // The first slice by whose end as much was handed out.
        let slice = (divide(begins + self.slice - 1, self.slice) - 1).max(0) as usize;
        Some(slice.max(next)).filter(|&slice| slice < self.slices)
    }

    /// Stops periods, as no VM is active. Credits given away for others lapse.
    pub(super) fn pause(&mut self) {
        // The only amount left once no VM is active; the assertion below holds it to that.
        self.audited_sum -= self.given.clear();
        assert_eq!(self.audited_sum, 0, "credits that no VM holds");
        self.given_by_inactive = 0;
    }
}
