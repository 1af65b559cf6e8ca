//! Virtual Bandwidth Control: credits in proportion to VMs' reservations, granted again when all
//! VMs have had their turn. Jin et al., "Flubber: Two-level Disk Scheduling in
//! Virtualized Environment", 2013, section 3.2.
//!
//! A guest request costs one credit, whatever its size, when it is admitted. If the reservation is
//! in bytes a second or names a normalisation size, it costs one for each such size begun
//! ([`Terms::cost`]). A unit of several merged requests costs as many, all at once, and may take
//! its VM into debt, which the next grants pay off. A request merged into an admitted unit is
//! charged then. The parts of a large request, and repetitions after an error, cost nothing more; a
//! request cancelled after its admission is not refunded. Flushes pass freely.
//!
//! An interval ends, and every VM is granted its a_i (see [`Proportions`]), when
//!
//! 1. no VM with credit left has a request waiting or in flight (*turn*),
//! 2. nothing waits and nothing is in flight (*idle*), or
//! 3. a VM comes or goes (*members*).
//!
//! A VM with credit left and nothing waiting delays the end only while a request of it is in
//! flight, and for a grace time after its last answer, since it may ask again. A VM that thinks for
//! longer than `wait_for` gets no grace time: the device would idle, and its neighbours would get
//! no more than their reservations. No VM delays the end beyond the age of beta / min B, unless
//! `bound_intervals` is off, as in the paper, which has no such rule. The interval's age counts
//! from its first charge, or from its beginning if a VM is still in debt.
//!
//! A grant is recorded when its VM is next charged, by the interval's number. Only VMs that ran dry
//! are visited at the beginning of an interval, and each has spent a credit for that. So an
//! interval costs O(1) amortised over requests, and an event O(log n) for the grace time.

use super::proportion::{
    BETA, DEFAULT_IOPS, LITERAL, MAX_INTERVAL, Proportions, REQUEST_SIZE, Terms,
};
use super::turn_holds::{Hold, TurnHolds};
use tidegate_base::request::{Lane, VmId};
use tidegate_base::time::Nanos;
use tidegate_core::part::{Capacity, Enforces, ParamInfo, ParamKind, PartDescriptor};
use tidegate_core::roles::{
    Event, Footprint, Interests, Interval, IntervalEnd, Knob, Regulator, Reopened, Stage,
};
use tidegate_core::view::{Unit, View, moved};

/// Shortest grace time, for VMs with very short think times.
const GRACE_MIN: Nanos = Nanos::from_millis(1);

/// Parameters of [`Vbc`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct VbcParams {
    /// Terms by which credits are computed.
    pub terms: Terms,
    /// Longest grace time. A VM with credit left and no request delays the others' next turn for
    /// twice its mean think time after its last answer, at least 1 ms and at most this.
    pub idle_grace: Nanos,
    /// Mean think time above which a VM gets no grace time.
    pub wait_for: Nanos,
    /// An interval ends at the age of beta / min B, though a VM with credit left may ask again.
    pub bound_intervals: bool,
    /// Follows the paper as printed: no grace time, and requests in flight are waited for at any
    /// age.
    pub literal: bool,
}

/// Description for the registry of policy parts.
pub(crate) static DESCRIPTOR: PartDescriptor<dyn Regulator> = PartDescriptor {
    name: "vbc",
    summary: "credits in proportion to reservations, granted again once all VMs had their turn",
    params: &[
        BETA,
        MAX_INTERVAL,
        DEFAULT_IOPS,
        REQUEST_SIZE,
        ParamInfo {
            name: "idle_grace",
            kind: ParamKind::Duration,
            default: 50_000_000,
            min: 1_000_000,
            max: 3_600_000_000_000,
            help: "maximum wait for an idle VM with credit (otherwise twice its mean think time)",
        },
        ParamInfo {
            name: "wait_for",
            kind: ParamKind::Duration,
            default: 10_000_000,
            min: 0,
            max: 3_600_000_000_000,
            help: "mean think time above which an idle VM is not waited for",
        },
        ParamInfo::flag(
            "bound_intervals",
            "grants credits anew after beta / the smallest reservation at the latest",
        ),
        LITERAL,
    ],
    enforces: Enforces {
        reservation: true,
        ..Enforces::NONE
    },
    build: |params, capacity| {
        let params = VbcParams {
            terms: Terms::from_params(params),
            idle_grace: Nanos(params.get("idle_grace")),
            wait_for: Nanos(params.get("wait_for")),
            bound_intervals: params.get("bound_intervals") != 0,
            literal: params.get("literal") != 0,
        };
        Box::new(Vbc::new(params, capacity))
    },
};

/// Value of `Vm::dry_at` outside the list of VMs that ran dry.
const ABSENT: u32 = u32::MAX;

/// State of one VM slot.
#[derive(Clone, Copy, Debug)]
struct Vm {
    /// Number of the interval for which credits were granted last.
    granted_in: u64,
    /// Credits left of that grant; below zero: debt.
    credits: i32,
    /// Credits of a grant; valid while `grant_epoch` equals the current epoch.
    grant: u32,
    grant_epoch: u32,
    /// Index in the list of VMs that ran dry.
    dry_at: u32,
    /// Exponential mean of the VM's think time, with weight 1/8.
    think: Nanos,
    present: bool,
}

const VACANT: Vm = Vm {
    granted_in: 0,
    credits: 0,
    grant: 0,
    grant_epoch: 0,
    dry_at: ABSENT,
    think: Nanos::ZERO,
    present: false,
};

/// Regulator that grants credits in proportion to reservations, turn by turn.
#[derive(Debug)]
pub struct Vbc {
    params: VbcParams,
    due: Proportions,
    vms: Vec<Vm>,
    /// Number of the current interval.
    interval: u64,
    /// Time from which the interval's age counts; [`Nanos::MAX`]: it has not begun.
    begun: Nanos,
    /// A request was charged in the interval.
    charged: bool,
    /// Nothing waits or is in flight, and a request was charged.
    idle: bool,
    /// VMs came or went after a request was charged.
    membership_changed: bool,
    /// Incremented when proportions return to equation 1, which invalidates all computed grants.
    epoch: u32,
    /// Slots of VMs without credit.
    dry: Vec<u32>,
    turn: TurnHolds,
}

impl Vbc {
    /// Creates a regulator without VMs, with room for those of `capacity`.
    ///
    /// # Panics
    /// When `idle_grace` is below 1 ms.
    pub fn new(params: VbcParams, capacity: &Capacity) -> Vbc {
        // Grace times are clamped between the two, per request.
        assert!(
            params.idle_grace >= GRACE_MIN,
            "the longest grace time is at least 1 ms"
        );
        Vbc {
            params,
            due: Proportions::new(params.terms),
            vms: Vec::new(),
            interval: 1,
            begun: Nanos::MAX,
            charged: false,
            idle: false,
            membership_changed: false,
            epoch: 1,
            dry: Vec::with_capacity(capacity.vms as usize),
            turn: TurnHolds::new(capacity.vms as usize),
        }
    }

    /// Returns `true` if a VM has credit: some is left, or it was not charged in this interval yet.
    fn has_credit(&self, slot: usize) -> bool {
        let vm = &self.vms[slot];
        // Grants are lazy, but VMs without credit were granted theirs when the interval began.
        vm.granted_in != self.interval || vm.credits > 0
    }

    fn is_present(&self, vm: VmId) -> bool {
        self.vms.get(vm.index()).is_some_and(|vm| vm.present)
    }

    /// Grants this interval's credits, once. Debt is paid from them; unused ones of the last
    /// interval are lost.
    fn grant(&mut self, slot: usize) {
        let vm = &mut self.vms[slot];
        if vm.granted_in == self.interval {
            return;
        }
        // Grants are computed when needed: a change of one VM changes those of all.
        if vm.grant_epoch != self.epoch {
            vm.grant_epoch = self.epoch;
            vm.grant = self.due.grant(slot);
        }
        // No overflow: a grant is at most 2^30, and debts saturate.
        vm.credits = vm.credits.min(0) + vm.grant as i32;
        vm.granted_in = self.interval;
    }

    /// Charges a VM for requests that were let in, `bytes` in all.
    fn charge(&mut self, view: &View, vm: VmId, requests: u32, bytes: u32) {
        self.grant(vm.index());
        self.charged = true;
        self.begun = self.begun.min(view.now());
        let cost = (self.params.terms).cost(view.objective(vm), requests, bytes);
        let credits = &mut self.vms[vm.index()].credits;
        // A merged unit may cost more than any grant; its debt is paid by the next ones.
        *credits = credits.saturating_sub_unsigned(cost);
        self.settle(vm.index());
    }

    /// Keeps the list of VMs without credit up to date. Returns `true` if this VM has credit.
    fn settle(&mut self, slot: usize) -> bool {
        let vm = &mut self.vms[slot];
        if vm.credits > 0 {
            self.leave_dry(slot);
            return true;
        }
        if vm.dry_at == ABSENT {
            vm.dry_at = self.dry.len() as u32;
            self.dry.push(slot as u32);
        }
        false
    }

    fn leave_dry(&mut self, slot: usize) {
        let at = core::mem::replace(&mut self.vms[slot].dry_at, ABSENT);
        if at == ABSENT {
            return;
        }
        // The last of the list takes the place, and its index is corrected below.
        self.dry.swap_remove(at as usize);
        if let Some(&moved) = self.dry.get(at as usize) {
            self.vms[moved as usize].dry_at = at;
        }
    }

    /// Updates the reason for which a VM delays the end of the turn, after a change.
    fn update_hold(&mut self, view: &View, vm: VmId) {
        let hold = self.hold_of(view, vm);
        self.turn.set(vm.index(), hold);
    }

    fn hold_of(&self, view: &View, vm: VmId) -> Hold {
        let VbcParams {
            literal,
            idle_grace,
            wait_for,
            ..
        } = self.params;
        if !self.has_credit(vm.index()) {
            return Hold::No;
        }
        // A VM whose reads wait for payload memory cannot use its credit, so others must not wait
        // for it.
        let stuck = view.lacks_memory(vm) && view.lane_head(vm, Lane::Write).is_none();
        match (view.waiting(vm), view.requests(vm)) {
            (1.., _) if stuck && view.in_flight(vm) > 0 => Hold::Flying,
            (1.., _) if stuck => Hold::No,
            (1.., _) => Hold::Waiting,
            // As printed: requests in flight are waited for at any age.
            (0, 1..) if literal => Hold::Waiting,
            (0, 1..) => Hold::Flying,
            (0, 0) if literal || view.quiet_since(vm) == Nanos::MAX => Hold::No,
            // Waiting for a VM that thinks long would cost the others more than it gains.
            (0, 0) if self.vms[vm.index()].think > wait_for => Hold::No,
            (0, 0) => {
                let think = self.vms[vm.index()].think;
                // `idle_grace` is at least 1 ms by its range, so the bounds are in order.
                let grace = (think + think).clamp(GRACE_MIN, idle_grace);
                Hold::Quiet(view.quiet_since(vm) + grace)
            }
        }
    }

    /// Begins a new interval: grants credits to the VMs that ran dry; others get theirs when first
    /// charged.
    fn replenish(&mut self, view: &View, reopen: &mut Reopened) {
        self.interval += 1;
        (self.charged, self.idle, self.membership_changed) = (false, false, false);
        let mut at = 0;
        while let Some(&slot) = self.dry.get(at) {
            let (slot, vm) = (slot as usize, view.vm_at(slot as usize));
            self.grant(slot);
            // VMs in debt are included, since the controller may still grant more.
            reopen.push(vm);
            // `settle` removes a VM with credit and moves another to its place, so the index stays.
            if !self.settle(slot) {
                at += 1;
            }
            self.update_hold(view, vm);
        }
        self.begun = if self.dry.is_empty() {
            Nanos::MAX
        } else {
            view.now()
        };
    }

    /// Returns `true` if a new interval would change any VM's credits.
    fn would_change_credits(&self) -> bool {
        self.charged || !self.dry.is_empty()
    }

    /// Takes in a VM that is new or whose objective has changed, and invalidates computed grants.
    fn update_demand(&mut self, view: &View, vm: VmId) {
        let (objective, device) = (view.objective(vm), &view.device().spec);
        self.due.set(vm.index(), objective, device);
        self.epoch = self.epoch.wrapping_add(1);
    }

    fn added(&mut self, view: &View, vm: VmId) {
        if view.is_background(vm) {
            return;
        }
        if self.vms.len() <= vm.index() {
            self.vms.resize(vm.index() + 1, VACANT);
        }
        self.vms[vm.index()] = Vm {
            present: true,
            ..VACANT
        };
        self.update_demand(view, vm);
        self.update_hold(view, vm);
        self.membership_changed |= self.would_change_credits();
    }

    fn removed(&mut self, vm: VmId) {
        // Before the slot is cleared: its index in the list is read here.
        self.leave_dry(vm.index());
        self.turn.set(vm.index(), Hold::No);
        self.vms[vm.index()] = VACANT;
        self.due.remove(vm.index());
        self.epoch = self.epoch.wrapping_add(1);
        self.membership_changed |= self.would_change_credits();
    }

    fn arrived(&mut self, view: &View, vm: VmId) {
        self.idle = false;
        let since = view.quiet_since(vm);
        // The first request inside ends a think time; a VM that never had one has no such time.
        if view.requests(vm) == 1 && since != Nanos::MAX {
            let thought = view.now().since(since).0;
            let mean = &mut self.vms[vm.index()].think;
            *mean = match mean.0 {
                0 => Nanos(thought),
                old => Nanos(old - old / 8 + thought / 8),
            };
        }
    }
}

impl Regulator for Vbc {
    fn stage(&self) -> Stage {
        Stage::Admission
    }

    fn interests(&self) -> Interests {
        Interests::ARRIVED
            .union(Interests::MERGED)
            .union(Interests::ADMITTED)
            .union(Interests::CANCELLED)
            .union(Interests::STARTED)
            .union(Interests::ANSWERED)
            .union(Interests::VMS)
            .union(Interests::MEMORY)
            .union(Interests::TIMERS)
    }

    fn admits(&self, _view: &View, vm: VmId) -> bool {
        !self.is_present(vm) || self.has_credit(vm.index())
    }

    fn on_event(&mut self, view: &View, event: &Event, reopen: &mut Reopened) {
        let vm = match *event {
            Event::Arrived(unit) | Event::Admitted(unit) | Event::Cancelled(unit) => {
                view.queued(unit).vm_lane().0
            }
            Event::Merged { into, .. } => view.queued(into).vm_lane().0,
            Event::Started(io) => io.vm,
            Event::Answered(done) => done.vm,
            Event::VmAdded(vm) => return self.added(view, vm),
            Event::VmChanged(vm) | Event::VmRemoved(vm) | Event::Memory(vm) => vm,
            _ => return,
        };
        // Before the check below: answers to background processes count for idleness, too.
        if let Event::Answered(_) = event {
            self.idle = view.device().requests == 0 && self.would_change_credits();
        }
        if !self.is_present(vm) {
            return;
        }
        match *event {
            Event::Arrived(_) => return self.arrived(view, vm),
            Event::VmChanged(_) => return self.update_demand(view, vm),
            Event::VmRemoved(_) => return self.removed(vm),
            Event::Admitted(unit) => {
                let Unit {
                    requests, op, len, ..
                } = view.queued(unit).unit();
                self.charge(view, vm, requests, moved(view, op, len));
            }
            Event::Merged { into, by } if view.queued(into).is_admitted() => {
                self.charge(view, vm, 1, view.queued(by).request_bytes());
                reopen.push(vm);
            }
            _ => {}
        }
        self.update_hold(view, vm);
    }

    /// Sets the VM's grant ([`Knob::Credits`]) from the next interval on, or in the present one if
    /// no request was charged in it yet.
    fn set(&mut self, view: &View, vm: VmId, knob: Knob) {
        let (Knob::Credits(credits), true) = (knob, self.is_present(vm)) else {
            return;
        };
        let of_vm = &mut self.vms[vm.index()];
        let old = core::mem::replace(&mut of_vm.grant, credits.clamp(1, Terms::CREDITS_MAX));
        of_vm.grant_epoch = self.epoch;
        if of_vm.granted_in == self.interval && !self.charged {
            of_vm.credits += of_vm.grant as i32 - old as i32;
            if !self.settle(vm.index()) {
                // A VM still in debt after the grant starts the interval's clock: it must not wait
                // for the first charge of another VM.
                self.begun = self.begun.min(view.now());
            }
            self.update_hold(view, vm);
        }
    }

    fn next_timer(&self) -> Nanos {
        if self.idle || self.membership_changed {
            // At once: the interval ends without waiting for its clock.
            return Nanos::ZERO;
        }
        if self.would_change_credits() {
            let oldest = if self.params.bound_intervals {
                self.begun + self.due.period()
            } else {
                Nanos::MAX
            };
            self.turn.end(oldest)
        } else {
            Nanos::MAX
        }
    }

    fn on_timer(&mut self, view: &View, reopen: &mut Reopened) -> Option<Interval> {
        // A flush may have arrived since; the regulator gets no event for it.
        self.idle &= view.device().requests == 0;
        let end = match (self.membership_changed, self.idle) {
            (true, _) => IntervalEnd::Members,
            (false, true) => IntervalEnd::Idle,
            (false, false) => IntervalEnd::Turn,
        };
        if self.next_timer() > view.now() {
            return None;
        }
        let number = self.interval;
        self.replenish(view, reopen);
        Some(Interval { number, end })
    }

    fn footprint(&self) -> Footprint {
        Footprint {
            vm: size_of::<Vm>() + size_of::<u32>() + TurnHolds::BYTES_PER_VM,
            vm_cold: Proportions::BYTES_PER_VM,
            request: 0,
        }
    }
}
