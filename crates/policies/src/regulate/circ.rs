//! CIRC, the credit-based I/O rate controller: credits granted every period from what a controller
//! allocates, unused ones passed on to those who ran dry. Lu et al., "vFair: Latency-Aware Fair
//! Storage Scheduling via Per-IO Cost-Based Differentiation", 2015, section 4.3.
//!
//! A guest request costs one credit, whatever its size, when it is admitted: what it costs the
//! device is in the allocation already. A unit of several merged requests costs as many, all at
//! once, and may take its VM into debt, which the next grants pay off; a request that joins a unit
//! already admitted is charged as it joins. The parts of a large request, and what is repeated
//! after an error, cost nothing more; what is cancelled after it was admitted gets nothing back.
//! Flushes pass freely, and background processes take no credits.
//!
//! ```text
//!               first request               a knob
//!   inactive ──────────────────▶ free ──────────────────┐   free: no allocation is known, all pass
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
//! - The threshold is `burst` times the VM's allocation in one period, at least one credit. With a
//!   share by the second a VM that was quiet for two seconds could have the device for as long. In
//!   figure 12, where the threshold is "twice of the allocated fair share", the bursting VM gets
//!   its fair share and the latency of all stays at the device's, so the period's share is meant.
//! - A VM needs a whole credit to pass. Fractions are saved up, so the smallest allocation is kept
//!   exactly. Admissions in any time exceed its grants by at most the threshold, apart from the
//!   other requests of one merged unit.
//! - A VM without an allocation passes freely: a missing knob is no reason to stop.
//! - Allocations divide the device: they ought to add up to it, whether their VMs use them or not.
//!   A controller allocates 0 to a VM that does not compete, so that nothing of it is given away in
//!   addition. Such a VM saves up its former share until it is inactive, and returns with a burst
//!   like any other; with a request waiting it is granted nothing. With a new allocation its credit
//!   is cut to the burst of that.
//! - A knob counts from the time it is set: at the end of a period for all of the next one,
//!   otherwise for the rest of the period.
//! - A period's credits are handed out in `slices` parts over the period; 1 grants them at once, as
//!   the paper has it. At once they fill the device's queue at the beginning of each period, and
//!   later requests wait behind all of it; in slices the queue is equally deep all the time. The
//!   credit at the end of a period is the same.
//! - Periods run while a VM is active. After a stall of the driver one period ends late; credits
//!   that no VM could have used meanwhile are not granted.
//!
//! Credits are counted in thousandths of a request a second times nanoseconds, 10^12 to a credit,
//! so that the worth of an allocation in a period is a whole number. A request costs O(1), a slice
//! O(VMs that can spend a credit in it), the end of a period O(active VMs).

mod accounts;
mod moving_average;
mod slice_queue;

use accounts::{Accounts, UNITS_PER_CREDIT};
use moving_average::MovingAverage;
use tidegate_base::request::VmId;
use tidegate_base::time::Nanos;
use tidegate_core::part::{Enforces, ParamInfo, ParamKind, PartDescriptor};
use tidegate_core::roles::{
    Event, Footprint, Interests, Interval, IntervalEnd, Knob, Regulator, Reopened, Stage,
};
use tidegate_core::view::View;

/// Parameters of [`Circ`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CircParams {
    /// Interval between grants of credits; 1 ms to 1 s.
    pub period: Nanos,
    /// Periods of its allocation that a VM may save up; 1 to 1000.
    pub burst: u32,
    /// Number of periods over which credits given away are spread; 1 to
    /// [`CircParams::SMOOTHING_MAX`].
    pub smoothing: u32,
    /// Number of parts in which a period's grant is handed out, one after the other; 1 to 100.
    pub slices: u32,
}

impl CircParams {
    /// Longest smoothing window, in periods.
    pub const SMOOTHING_MAX: u32 = MovingAverage::WINDOW_MAX as u32;
}

/// Description for the registry of policy parts.
pub(crate) static DESCRIPTOR: PartDescriptor<dyn Regulator> = PartDescriptor {
    name: "circ",
    summary: "credits per period as allocated; unused ones go to VMs that have none left",
    params: &[
        ParamInfo {
            name: "period",
            kind: ParamKind::Duration,
            default: 30_000_000,
            min: 1_000_000,
            max: 1_000_000_000,
            help: "interval between two grants of credits and allocations",
        },
        ParamInfo {
            name: "burst",
            kind: ParamKind::Count,
            default: 2,
            min: 1,
            max: 1000,
            help: "periods whose allocation a VM may save for a burst",
        },
        ParamInfo {
            name: "smoothing",
            kind: ParamKind::Count,
            default: 4,
            min: 1,
            max: CircParams::SMOOTHING_MAX as u64,
            help: "periods over which unused credits are passed on",
        },
        ParamInfo {
            name: "slices",
            kind: ParamKind::Count,
            default: 10,
            min: 1,
            max: 100,
            help: "portions in which a period's credits are granted",
        },
    ],
    enforces: Enforces::NONE,
    build: |params, capacity| {
        let params = CircParams {
            period: Nanos(params.get("period")),
            burst: params.get("burst") as u32,
            smoothing: params.get("smoothing") as u32,
            slices: params.get("slices") as u32,
        };
        Box::new(Circ::new(params, capacity.vms))
    },
};

/// Regulator that grants allocated credits every period and passes unused ones on.
#[derive(Debug)]
pub struct Circ {
    /// Interval between grants of credits.
    period: Nanos,
    /// Length of a slice.
    slice: Nanos,
    /// End of the current slice.
    slice_end: Nanos,
    accounts: Accounts,
    /// Number of the current period.
    number: u64,
    /// End of the current period; [`Nanos::MAX`]: none runs.
    end: Nanos,
    /// Time at which the period's credits were granted.
    granted_at: Nanos,
    /// Credits were granted, and gates are still to be looked at, after the controller has
    /// allocated for the new period.
    is_opening: bool,
}

impl Circ {
    /// Creates a regulator without VMs, with room for `vms` of them.
    pub fn new(params: CircParams, vms: u32) -> Circ {
        let CircParams {
            period,
            burst,
            smoothing,
            slices,
        } = params;
        // Rounded up, so that the last slice ends at or behind the end of the period, where it is
        // cut.
        let slice = Nanos(period.0.div_ceil(u64::from(slices.max(1))));
        Circ {
            period,
            slice,
            // No period runs until the first request of a VM.
            slice_end: Nanos::MAX,
            accounts: Accounts::new(period.0, slice.0, burst, smoothing as usize, vms as usize),
            number: 1,
            end: Nanos::MAX,
            granted_at: Nanos::MAX,
            is_opening: false,
        }
    }

    /// Returns a VM's credit in units of 10^-12 credits; below zero: debt. `None` if the VM has no
    /// account: it is inactive, nothing was allocated to it yet, or this regulator does not serve
    /// it.
    pub fn credit(&self, vm: VmId) -> Option<i128> {
        self.accounts.credit(vm.index())
    }

    /// Returns the nanoseconds of the period for which a knob set now counts.
    fn period_left(&self, now: Nanos) -> i128 {
        let left = match (self.end, self.granted_at == now) {
            // Between periods nothing is granted for a part of one; the next begins with a whole
            // grant.
            (Nanos::MAX, _) => Nanos::ZERO,
            // A late driver begins a period after its nominal start, but its grant covers all of
            // it.
            (_, true) => self.period,
            (end, false) => end.since(now),
        };
        i128::from(left.0)
    }

    /// Returns the nanoseconds of the period in slices that have not begun.
    fn undistributed_time(&self) -> i128 {
        i128::from(self.end.since(self.slice_end).0)
    }

    /// Sets the end of the slice that runs at `now`, and returns the slice's number.
    fn set_slice_end(&mut self, begin: Nanos, now: Nanos) -> usize {
        // Computed from the begin of the period: a late driver does not shift the slices behind it.
        let over = now.since(begin).0 / self.slice.0 + 1;
        self.slice_end = (begin + Nanos(over * self.slice.0)).min(self.end);
        over as usize - 1
    }

    fn begin_period(&mut self, begin: Nanos, now: Nanos) {
        self.end = begin + self.period;
        let slice = self.set_slice_end(begin, now);
        self.granted_at = now;
        self.accounts.begin_period(slice);
    }

    /// Activates a VM that has a request inside, and begins a period if none runs.
    fn activate(&mut self, view: &View, slot: usize) {
        if self.end == Nanos::MAX {
            self.begin_period(view.now(), view.now());
        }
        self.accounts.activate(slot, self.period_left(view.now()));
    }

    fn added(&mut self, view: &View, vm: VmId) {
        // Background processes take no credits, so they have no account.
        if view.is_background(vm) {
            return;
        }
        self.accounts.add(vm.index());
        // VMs taken over from another policy may have requests inside already.
        if view.requests(vm) > 0 {
            self.activate(view, vm.index());
        }
    }
}

impl Regulator for Circ {
    fn stage(&self) -> Stage {
        Stage::Admission
    }

    fn interests(&self) -> Interests {
        Interests::ARRIVED
            .union(Interests::MERGED)
            .union(Interests::ADMITTED)
            .union(Interests::VMS)
            .union(Interests::TIMERS)
    }

    fn admits(&self, _view: &View, vm: VmId) -> bool {
        // An inactive VM has no account yet, but starts with a burst, so it may enter.
        let spendable = self
            .accounts
            .spendable(vm.index(), self.undistributed_time());
        spendable.is_none_or(|credit| credit >= UNITS_PER_CREDIT)
    }

    fn on_event(&mut self, view: &View, event: &Event, reopen: &mut Reopened) {
        let vm = match *event {
            Event::Arrived(unit) | Event::Admitted(unit) => view.queued(unit).vm_lane().0,
            Event::Merged { into, .. } => view.queued(into).vm_lane().0,
            Event::VmAdded(vm) => return self.added(view, vm),
            Event::VmRemoved(vm) => vm,
            _ => return,
        };
        // Units of background processes, which have no account.
        if !self.accounts.has_account(vm.index()) {
            return;
        }
        match *event {
            Event::Arrived(_) => self.activate(view, vm.index()),
            Event::Admitted(unit) => self
                .accounts
                .charge(vm.index(), view.queued(unit).unit().requests),
            Event::Merged { into, .. } if view.queued(into).is_admitted() => {
                self.accounts.charge(vm.index(), 1);
                // The charge may have used up the VM's credit, so its gate is looked at again.
                reopen.push(vm);
            }
            Event::VmRemoved(_) => {
                // The rest of the period matters: an inactive VM's credits given away stop now.
                self.accounts
                    .remove(vm.index(), self.period_left(view.now()));
            }
            _ => {}
        }
    }

    /// Sets the VM's allocation ([`Knob::Allocation`]) from now on.
    fn set(&mut self, view: &View, vm: VmId, knob: Knob) {
        if let (Knob::Allocation(rate), true) = (knob, self.accounts.has_account(vm.index())) {
            let (idle, left) = (view.requests(vm) == 0, self.period_left(view.now()));
            self.accounts
                .allocate(vm.index(), rate, idle, left, self.is_opening);
        }
    }

    fn next_timer(&self) -> Nanos {
        if self.is_opening {
            self.granted_at
        } else {
            self.slice_end
        }
    }

    fn on_timer(&mut self, view: &View, reopen: &mut Reopened) -> Option<Interval> {
        let now = view.now();
        // The engine calls again at once after the end of a period, with what was allocated then.
        if core::mem::take(&mut self.is_opening) {
            self.accounts.hand_out_first(view, reopen);
            return None;
        }
        if self.end > now {
            if self.slice_end <= now {
                // No underflow: `end` is a time plus the period.
                let slice = self.set_slice_end(Nanos(self.end.0 - self.period.0), now);
                self.accounts.hand_out(view, slice, reopen);
            }
            return None;
        }
        let number = self.number;
        self.number += 1;
        // Before the next period begins: `close_period` checks the sum of the old one.
        let more = self.accounts.close_period(view);
        if self.accounts.all_inactive() {
            self.accounts.pause();
            // No timer while all are inactive; the next request begins a period.
            (self.end, self.slice_end) = (Nanos::MAX, Nanos::MAX);
        } else {
            // A whole period late: the stalled driver's VMs could not have used the credits in
            // between.
            let late = now.since(self.end) >= self.period;
            self.begin_period(if late { now } else { self.end }, now);
            self.accounts.grant_credits(view, more);
            self.is_opening = true;
        }
        Some(Interval {
            number,
            end: IntervalEnd::Period,
        })
    }

    fn footprint(&self) -> Footprint {
        Footprint {
            vm: Accounts::BYTES_PER_VM,
            ..Footprint::default()
        }
    }
}
