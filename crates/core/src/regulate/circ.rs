//! CIRC, the credit-based I/O rate controller: credits granted every period from what a controller
//! allocates, unused ones passed on to those who ran dry. Lu et al., "vFair: Latency-Aware Fair
//! Storage Scheduling via Per-IO Cost-Based Differentiation", 2015, section 4.3.
//!
//! A guest request costs one credit, whatever its size, when it is admitted: what it costs the
//! device is in the allocation already. A unit of several merged requests costs as many, all at
//! once, and may take its VM into debt, which the next grants pay off; a request that joins a unit
//! already admitted is charged as it joins. The parts of a large request, and what is repeated
//! after an error, cost nothing more; what is cancelled after it was admitted gets nothing back.
//! Flushes pass freely, and background tenants take no credits.
//!
//! ```text
//!               first request               a knob
//!   inactive ──────────────────▶ free ──────────────────┐      free: no allocation is known, all pass
//!    ▲    │ ▲                     │                     ▼
//!    │    │ └── nothing inside ───┘    ┌──▶ active, credit ≥ 1: requests pass
//!    │    │                            │          │ spent          ▲ grant
//!    │    └─ next request, ────────────┘          ▼                │
//!    │       burst up to the threshold     active, dry: they wait ─┘ (over: something waits)
//!    └─ end of a period: credit at the threshold, nothing inside; it is dropped
//! ```
//!
//! At the end of a period each active VM keeps what it has left, up to the threshold; the rest it
//! gives away. A VM that reached the threshold with nothing waiting or in flight is *inactive*:
//! what it had is dropped, its next request finds as much again, and in between all that is
//! allocated to it is given away, as it comes. What was given away is divided evenly among the
//! grants of the next `smoothing` periods, and there among the VMs that are *over* (no credit left
//! and something waiting), in the proportion of their allocations; with nobody over it lapses:
//! nobody was held back. A credit is kept or given away, never both, and the books are checked at
//! the end of every period.
//!
//! Readings, where the paper leaves room:
//! - The threshold is `burst` times what the VM is allocated in one period, at least one credit. A
//!   share by the second would let a VM that was quiet for two seconds have the device for as long:
//!   in figure 12, where the threshold is "twice of the allocated fair share", the bursting VM gets
//!   its fair share and the latency of all stays at the device's, so it is the period's.
//! - A VM passes with a whole credit, and not with less: fractions are saved up, so the smallest
//!   allocation is kept exactly, and what is let in in any time is never more than the threshold
//!   beyond what was granted in it, but for the other requests of one merged unit.
//! - A VM of which nothing is known yet passes freely: no knob is no reason to stop.
//! - Allocations divide the device: those in force ought to add up to it, whether their VMs use
//!   them or not. A controller that counts a VM out allocates 0 to it, so that nothing of it is
//!   given away on top. It then saves up what it would have had until it is inactive, and comes back
//!   with a burst like any other; with something waiting it is granted nothing.
//! - A knob counts from when it is turned: at the end of a period for the whole next one, in between
//!   for what is left of it.
//! - Periods run while somebody is active. After a stall of the driver a period ends late, once; what
//!   nobody could have used meanwhile is not granted.
//!
//! Credits are counted in thousandths of a request a second times nanoseconds, 10^12 to a credit:
//! what an allocation is worth in a period is a whole number then. A request costs O(1), the end
//! of a period O(active VMs).

use super::smoothed::Smoothed;
use crate::engine::Footprint;
use crate::facts::Facts;
use crate::policy::{Capacity, Honours, ParamInfo, ParamKind, PartInfo};
use crate::request::{ReqId, VmId};
use crate::roles::{
    Event, Gate, Interests, Interval, IntervalEnd, Knob, Regulator, Reopened, Stage,
};
use crate::time::Nanos;

/// Parameters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CircParams {
    /// Credits are granted so often; 1 ms to 1 s.
    pub period: Nanos,
    /// A VM saves up as many periods' allocations at most; 1 to 1000.
    pub burst: u32,
    /// What is given away is divided among the grants of so many periods; 1 to
    /// [`CircParams::MOST_SMOOTHING`].
    pub smoothing: u32,
}

impl CircParams {
    /// The longest smoothing window, in periods.
    pub const MOST_SMOOTHING: u32 = Smoothed::MOST as u32;
}

/// What the registry knows of it.
#[allow(dead_code, reason = "a part is known by the policies that have it")]
pub(crate) static PART: PartInfo<dyn Regulator> = PartInfo {
    name: "circ",
    summary: "credits every period as allocated; unused ones go to those who ran dry",
    params: &[
        ParamInfo {
            name: "period",
            kind: ParamKind::Duration,
            default: 30_000_000,
            min: 1_000_000,
            max: 1_000_000_000,
            help: "credits are granted, and allocations reckoned anew, so often",
        },
        ParamInfo {
            name: "burst",
            kind: ParamKind::Count,
            default: 2,
            min: 1,
            max: 1000,
            help: "a VM saves up so many periods' allocations at most, for a burst",
        },
        ParamInfo {
            name: "smoothing",
            kind: ParamKind::Count,
            default: 4,
            min: 1,
            max: CircParams::MOST_SMOOTHING as u64,
            help: "unused credits are passed on evenly over so many periods",
        },
    ],
    honours: Honours::NONE,
    build: |params, capacity| {
        let params = CircParams {
            period: Nanos(params.get("period")),
            burst: params.get("burst") as u32,
            smoothing: params.get("smoothing") as u32,
        };
        Box::new(Circ::new(params, capacity))
    },
};

/// One credit: a thousand thousandths a second, for a second.
const CREDIT: i128 = 1_000 * 1_000_000_000;

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

/// The regulator.
#[derive(Debug)]
pub struct Circ {
    params: CircParams,
    vms: Vec<Vm>,
    /// Slots of VMs that are active or free.
    active: Vec<u32>,
    /// The number of the period.
    number: u64,
    /// When it ends; [`Nanos::MAX`]: none runs.
    end: Nanos,
    /// When its credits were granted.
    granted_at: Nanos,
    /// The rates of all inactive VMs.
    idle_rates: i128,
    /// What they give away in this period.
    idle_gives: i128,
    given: Smoothed,
    /// All credits there are, by another reckoning: grants and bursts less what was spent, dropped
    /// or lapsed.
    books: i128,
}

impl Circ {
    /// With nobody there.
    pub fn new(params: CircParams, capacity: &Capacity) -> Circ {
        Circ {
            params,
            vms: Vec::new(),
            active: Vec::with_capacity(capacity.vms as usize),
            number: 1,
            end: Nanos::MAX,
            granted_at: Nanos::MAX,
            idle_rates: 0,
            idle_gives: 0,
            given: Smoothed::new(params.smoothing as usize),
            books: 0,
        }
    }

    /// What a VM has left, in 10^-12 credits; below zero: debt. `None`: it has no account, because
    /// it is inactive, nothing was allocated to it yet, or it is none of the regulator's.
    pub fn credit(&self, vm: VmId) -> Option<i128> {
        let vm = self.vms.get(vm.index())?;
        (vm.known && vm.at != ABSENT).then_some(vm.credit)
    }

    fn present(&self, vm: VmId) -> bool {
        self.vms.get(vm.index()).is_some_and(|vm| vm.present)
    }

    /// What a VM may save up.
    fn threshold(&self, vm: &Vm) -> i128 {
        let period = i128::from(vm.share) * i128::from(self.params.period.0);
        (period * i128::from(self.params.burst)).max(CREDIT)
    }

    /// How much of the period a knob still counts for that is turned now, in nanoseconds.
    fn left(&self, now: Nanos) -> i128 {
        let left = match (self.end, self.granted_at == now) {
            (Nanos::MAX, _) => Nanos::ZERO,
            // It may have begun a little before, where the driver was late.
            (_, true) => self.params.period,
            (end, false) => end.since(now),
        };
        i128::from(left.0)
    }

    /// A period begins; credits are granted apart.
    fn begin(&mut self, begin: Nanos, now: Nanos) {
        self.end = begin + self.params.period;
        self.granted_at = now;
        self.idle_gives = self.idle_rates * i128::from(self.params.period.0);
        self.books += self.idle_gives;
    }

    /// Nobody is active any more. What was given away for others lapses.
    fn pause(&mut self) {
        self.books -= self.given.clear();
        assert_eq!(self.books, 0, "credits that nobody has");
        self.end = Nanos::MAX;
        self.idle_gives = 0;
    }

    /// A VM has something inside: from now on it has its allocation for itself.
    fn activate(&mut self, facts: &Facts, slot: usize) {
        if self.vms[slot].at != ABSENT {
            return;
        }
        if self.end == Nanos::MAX {
            self.begin(facts.now(), facts.now());
        }
        let left = self.left(facts.now());
        let burst = self.threshold(&self.vms[slot]);
        let vm = &mut self.vms[slot];
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
        vm.credit = 0;
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

    fn added(&mut self, facts: &Facts, vm: VmId) {
        if facts.is_background(vm) {
            return;
        }
        if self.vms.len() <= vm.index() {
            self.vms.resize(vm.index() + 1, GONE);
        }
        self.vms[vm.index()] = Vm {
            present: true,
            ..GONE
        };
        // Of another policy.
        if facts.requests(vm) > 0 {
            self.activate(facts, vm.index());
        }
    }

    fn removed(&mut self, facts: &Facts, slot: usize) {
        let vm = self.vms[slot];
        if vm.at == ABSENT {
            let gives = i128::from(vm.rate) * self.left(facts.now());
            self.idle_rates -= i128::from(vm.rate);
            self.idle_gives -= gives;
            self.books -= gives;
        } else {
            self.leave_active(slot);
            self.books -= vm.credit;
        }
        self.vms[slot] = GONE;
    }

    /// So many requests of a VM were let in.
    fn charge(&mut self, slot: usize, requests: u32) {
        let vm = &mut self.vms[slot];
        if vm.known {
            let cost = i128::from(requests) * CREDIT;
            vm.credit -= cost;
            self.books -= cost;
        }
    }

    /// Whether nothing was minted and nothing lost.
    fn check(&self) {
        let of_vms = self
            .active
            .iter()
            .map(|&slot| self.vms[slot as usize].credit);
        let counted = of_vms.sum::<i128>() + self.idle_gives + self.given.held();
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

    /// The credits of the next period; `time`: for how much longer, in
    /// nanoseconds, those who are over are granted theirs.
    fn grant(&mut self, facts: &Facts, time: i128, reopen: &mut Reopened) {
        let period = i128::from(self.params.period.0);
        for &slot in &self.active {
            let vm = &mut self.vms[slot as usize];
            let id = facts.vm_at(slot as usize);
            if vm.known {
                vm.rate = vm.due(facts.requests(id) == 0);
                let extra = match vm.over {
                    true => i128::from(vm.allocation) * time,
                    false => 0,
                };
                vm.credit += i128::from(vm.rate) * period + extra;
                self.books += i128::from(vm.rate) * period;
            }
            // Also where debt is left: a controller may still allocate more.
            if !facts.may_enter(id) {
                reopen.push(id);
            }
        }
    }
}

impl Regulator for Circ {
    fn stage(&self) -> Stage {
        Stage::Admission
    }

    fn interests(&self) -> Interests {
        Interests::ARRIVED
            .and(Interests::MERGED)
            .and(Interests::ADMITTED)
            .and(Interests::VMS)
            .and(Interests::TIMERS)
    }

    fn gate(&self, facts: &Facts, unit: ReqId) -> Gate {
        let (vm, _) = facts.vm_lane(unit);
        match self.admits(facts, vm) {
            true => Gate::Pass,
            false => Gate::Blocked,
        }
    }

    fn admits(&self, _facts: &Facts, vm: VmId) -> bool {
        // An inactive one finds its burst when it comes.
        self.credit(vm).is_none_or(|credit| credit >= CREDIT)
    }

    fn on_event(&mut self, facts: &Facts, event: &Event, reopen: &mut Reopened) {
        let vm = match *event {
            Event::Arrived(unit) | Event::Admitted(unit) => facts.vm_lane(unit).0,
            Event::Merged { into, .. } => facts.vm_lane(into).0,
            Event::VmAdded(vm) => return self.added(facts, vm),
            Event::VmRemoved(vm) => vm,
            _ => return,
        };
        if !self.present(vm) {
            return;
        }
        match *event {
            Event::Arrived(_) => self.activate(facts, vm.index()),
            Event::Admitted(unit) => self.charge(vm.index(), facts.unit(unit).requests),
            Event::Merged { into, .. } if facts.is_admitted(into) => {
                self.charge(vm.index(), 1);
                reopen.push(vm);
            }
            Event::VmRemoved(_) => self.removed(facts, vm.index()),
            _ => {}
        }
    }

    /// [`Knob::Allocation`]: what the VM is granted from now on.
    fn set(&mut self, facts: &Facts, vm: VmId, knob: Knob) {
        let (Knob::Allocation(allocation), true) = (knob, self.present(vm)) else {
            return;
        };
        let left = self.left(facts.now());
        let idle = facts.requests(vm) == 0;
        let vm = &mut self.vms[vm.index()];
        vm.known = true;
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
    }

    fn next_timer(&self) -> Nanos {
        self.end
    }

    fn on_timer(&mut self, facts: &Facts, reopen: &mut Reopened) -> Option<Interval> {
        let now = facts.now();
        if self.end > now {
            return None;
        }
        self.check();
        let number = self.number;
        self.number += 1;
        let (given, wanted) = self.settle(facts);
        let due = self.given.pass(given);
        let time = match wanted {
            0 => 0,
            wanted => due / wanted,
        };
        match wanted {
            0 => self.books -= due,
            wanted => self.given.put_back(due - time * wanted),
        }
        if self.active.is_empty() {
            self.pause();
        } else {
            let late = now.since(self.end) >= self.params.period;
            self.begin(if late { now } else { self.end }, now);
            self.grant(facts, time, reopen);
        }
        Some(Interval {
            number,
            end: IntervalEnd::Period,
        })
    }

    fn footprint(&self) -> Footprint {
        Footprint {
            vm: size_of::<Vm>() + size_of::<u32>(),
            ..Footprint::default()
        }
    }
}
