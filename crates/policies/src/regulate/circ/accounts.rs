//! CIRC's accounts: what each VM has of credits, what is passed on, and the books over both.
//! Time is the regulator's; here a period has a length and some of it is left.

use super::smoothed::Smoothed;
use tidegate_core::facts::Facts;
use tidegate_core::roles::Reopened;

/// One credit: a thousand thousandths a second, for a second.
pub(super) const CREDIT: i128 = 1_000 * 1_000_000_000;

/// Allocations above 10^9 requests a second hold nobody; with so many no product overflows.
const MOST: u64 = 1_000_000_000_000;

/// Not in the list of the active.
const ABSENT: u32 = u32::MAX;

/// One VM.
#[derive(Clone, Copy, Debug)]
struct Vm {
    /// What it has left; below zero: debt. 0 while it is inactive or free.
    credit: i128,
    /// What the controller last said, in thousandths of a request a second; 0: counted out.
    allocation: u64,
    /// The last above zero.
    share: u64,
    /// What it is being granted, or gives away while it is inactive.
    rate: u64,
    /// What was passed on to it in this period, spread over it, likewise.
    passed: u64,
    /// Its place among the active.
    at: u32,
    /// There was a knob.
    known: bool,
    /// It had no credit left when the period ended, and something waiting.
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
    /// What it is to be granted. Counted out it is granted nothing that others would want, but
    /// while it is idle it goes on saving up for its return.
    fn due(&self, idle: bool) -> u64 {
        match self.allocation {
            0 if idle && self.at != ABSENT => self.share,
            allocation => allocation,
        }
    }
}

/// All VMs' accounts.
#[derive(Debug)]
pub(super) struct Accounts {
    /// How long a period is, in nanoseconds.
    period: i128,
    /// What a VM may save up, in allocations of a period.
    burst: i128,
    vms: Vec<Vm>,
    /// Slots of VMs that are active or free.
    active: Vec<u32>,
    /// The rates of all inactive VMs.
    idle_rates: i128,
    /// What they give away in this period.
    idle_gives: i128,
    given: Smoothed,
    /// All credits there are, by another reckoning: grants and bursts less what was spent, dropped
    /// or lapsed.
    books: i128,
}

impl Accounts {
    /// Of nobody; room for so many VMs to be active.
    pub(super) fn new(period: u64, burst: u32, smoothing: usize, vms: usize) -> Accounts {
        Accounts {
            period: period.into(),
            burst: burst.into(),
            vms: Vec::new(),
            active: Vec::with_capacity(vms),
            idle_rates: 0,
            idle_gives: 0,
            given: Smoothed::new(smoothing),
            books: 0,
        }
    }

    /// Memory of one VM more, in bytes.
    pub(super) const BYTES_PER_VM: usize = size_of::<Vm>() + size_of::<u32>();

    /// What a VM has left; `None`: it has no account, or none with anything in it.
    pub(super) fn credit(&self, slot: usize) -> Option<i128> {
        let vm = self.vms.get(slot)?;
        (vm.known && vm.at != ABSENT).then_some(vm.credit)
    }

    /// What a VM may spend while so much of the period is still to be handed out, in nanoseconds:
    /// what it was granted for that time is not.
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

    /// What a VM may save up.
    fn threshold(&self, vm: &Vm) -> i128 {
        (i128::from(vm.share) * self.period * self.burst).max(CREDIT)
    }

    /// A VM is there, inactive.
    pub(super) fn add(&mut self, slot: usize) {
        if self.vms.len() <= slot {
            self.vms.resize(slot + 1, GONE);
        }
        self.vms[slot] = Vm {
            present: true,
            ..GONE
        };
    }

    /// It is gone, with so much of the period left. What it gave away until now stays given.
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

    /// A VM has something inside: from now on it has its allocation for itself.
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

    /// What a VM has is dropped; what it is allocated goes to others.
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

    /// What a VM is allocated from now on, in thousandths of a request a second.
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

    /// A VM that was counted out is allocated something: what it has of earlier, when that may have
    /// been far more, is no more than what it would come with today.
    fn drop_beyond_burst(&mut self, slot: usize, left: i128) {
        let threshold = self.threshold(&self.vms[slot]);
        let vm = &mut self.vms[slot];
        if vm.at != ABSENT {
            let excess = (vm.credit - threshold - i128::from(vm.rate) * left).max(0);
            vm.credit -= excess;
            self.books -= excess;
        }
    }

    /// So many requests of a VM were let in.
    pub(super) fn charge(&mut self, slot: usize, requests: u32) {
        let vm = &mut self.vms[slot];
        if vm.known {
            let cost = i128::from(requests) * CREDIT;
            vm.credit -= cost;
            self.books -= cost;
        }
    }

    /// A period has ended. Returns for how many nanoseconds more those who are over are to be
    /// granted their allocations in the next one.
    pub(super) fn close(&mut self, facts: &Facts) -> i128 {
        self.check();
        let (given, wanted) = self.settle(facts);
        let due = self.given.pass(given);
        if wanted == 0 {
            self.books -= due;
            return 0;
        }
        self.given.put_back(due % wanted);
        due / wanted
    }

    /// Whether nothing was minted and nothing lost.
    fn check(&self) {
        let credit = |&slot: &u32| self.vms[slot as usize].credit;
        let of_vms: i128 = self.active.iter().map(credit).sum();
        let counted = of_vms + self.idle_gives + self.given.held();
        assert_eq!(counted, self.books, "credits do not add up");
    }

    /// Everybody keeps what it may, and who wants nothing is inactive. Returns what is given away,
    /// and the allocations of those who are over.
    fn settle(&mut self, facts: &Facts) -> (i128, i128) {
        let (mut given, mut wanted) = (self.idle_gives, 0);
        let mut at = 0;
        while let Some(&slot) = self.active.get(at) {
            let slot = slot as usize;
            let id = facts.vm_at(slot);
            let threshold = self.threshold(&self.vms[slot]);
            let vm = &mut self.vms[slot];
            let excess = (vm.credit - threshold).max(0);
            vm.credit -= excess;
            match vm.allocation {
                0 => self.books -= excess,
                _ => given += excess,
            }
            vm.over = vm.known && vm.credit < CREDIT && facts.pending_head(id).is_some();
            if vm.over {
                wanted += i128::from(vm.allocation);
            }
            let full = !vm.known || vm.credit == threshold;
            match full && facts.requests(id) == 0 {
                true => self.deactivate(slot),
                false => at += 1,
            }
        }
        (given, wanted)
    }

    /// What inactive VMs give away in a period that begins.
    pub(super) fn begin(&mut self) {
        self.idle_gives = self.idle_rates * self.period;
        self.books += self.idle_gives;
    }

    /// The credits of a period that begins, with as much more as [`Accounts::close`] said.
    pub(super) fn grant(&mut self, facts: &Facts, more: i128, reopen: &mut Reopened) {
        for &slot in &self.active {
            let vm = &mut self.vms[slot as usize];
            let id = facts.vm_at(slot as usize);
            if vm.known {
                vm.rate = vm.due(facts.requests(id) == 0);
                let grant = i128::from(vm.rate) * self.period;
                vm.credit += grant;
                self.books += grant;
                let passed = i128::from(vm.allocation) * if vm.over { more } else { 0 };
                vm.credit += passed;
                // Less than what was passed on by a part of a billionth: that much comes early.
                vm.passed = u64::try_from(passed / self.period).unwrap_or(u64::MAX);
            }
            // Also where debt is left: a controller may still allocate more.
            if !facts.may_enter(id) {
                reopen.push(id);
            }
        }
    }

    /// A slice of a period has begun: who was held for want of it is asked again.
    pub(super) fn hand_out(&self, facts: &Facts, reopen: &mut Reopened) {
        for &slot in &self.active {
            let id = facts.vm_at(slot as usize);
            if !facts.may_enter(id) {
                reopen.push(id);
            }
        }
    }

    /// No period follows: nobody is active. What was given away for others lapses.
    pub(super) fn pause(&mut self) {
        self.books -= self.given.clear();
        assert_eq!(self.books, 0, "credits that nobody has");
        self.idle_gives = 0;
    }
}
