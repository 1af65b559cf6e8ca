//! mClock: reservation, limit and weight for every VM (Gulati, Merchant, Varman, OSDI 2010).
//!
//! Each VM has three tags, kept for its head only: the time at which its reservation is next due
//! (R), the time from which its limit allows an I/O (L), and its place in the order of shares (P,
//! in virtual time).
//!
//! ```text
//!              R due, L due -----------------------> reservation phase: earliest overdue first
//!  pick(now) <
//!              else, L due and smallest P ----------> weight phase
//!              else ---------------------------------> idle until the next R or L
//! ```
//!
//! Every service moves L and P on; only a service in the reservation phase moves R on, so that
//! what a VM got by weight does not count against its floor (the paper's step that subtracts
//! 1/r from R after a weight-phase service).
//!
//! Decisions where the paper leaves room:
//! - Tags are start tags: a service moves its VM's tags on by its own cost, so the head's tag
//!   does not depend on the head's size and never needs recomputing when it grows by merging.
//!   With requests of one size this is the paper's order.
//! - Rates in requests and bytes have a pacer each. A reservation is due at the earlier of both, a
//!   limit holds until the later.
//! - A VM that wakes joins at the virtual time of the one that was served last (SFQ's start tag):
//!   O(1) where the paper shifts every other VM's tags. The tag of the VM that would be served next
//!   is no substitute: a VM held by its limit may have a smaller tag, and would go before the
//!   waking one until its tag has caught up.
//! - Among reservations that are due, the one that will be overdue first goes first; a reservation
//!   is overdue one spacing after it came due. By the due time alone, many small reservations that
//!   come due together would hold up a large one for as long as they all take.
//! - A reservation never lifts its VM above its own limit.
//! - A limit does not catch up on a stall: a late dispatch is made good for `slack` (0.9 ms).
//!   Without that, each I/O that waits for a busy device would cost its VM a part of its limit, and
//!   of a reservation near the limit. A VM that is limited in requests is made good for as much as
//!   leaves no 100 ms with more than one request and 1 % above the rate (see
//!   [`RatePacer::spend_late`]).
//! - Reservations that fell behind are made good, for at most `catch_up` (1 s): the debt of a long
//!   outage is bounded. Time forgiven beyond that is the same for all VMs: where reservations
//!   exceed the device, each VM is served in proportion to its reservation, as in the paper. A VM
//!   that wakes joins at the tag of the one that is next.
//! - A VM whose limit held it back does not save up its share meanwhile; one whose reservation gave
//!   it more than its share runs at most 32 I/Os of `cost_size` (or two of its own) ahead.
//! - The cost of a share is, by the parameter `cost`, bytes, at least `cost_size` an I/O; or
//!   requests, size classes or the device's time (see [`cost`](super::cost)). A flush costs as the
//!   smallest I/O does, and counts for neither reservation nor limit. Reservation and limit count
//!   requests and bytes, whatever `cost` is.
//! - With `target_floor` a target is a reservation, too: see `floor`.
//!
//! Starvation bound: a VM without a reservation is served as long as reservations leave room (they
//! must fit the device); then, from the moment it waits, every other VM is served at most by its
//! own weight's share of (32 I/Os + the VM's own cost) / the VM's weight before it.

use super::cost::{CostModel, CostParams};
pub(crate) use super::floor::targets_are_floors;
use super::floor::{Floor, TARGET_FLOOR};
use super::virtual_time::{ByTag, Flow, Virtual};
use crate::tournament::Tournament;
use tidegate_base::device::DeviceSpec;
use tidegate_base::objective::{Objective, Rate};
use tidegate_base::pace::{FirstServed, Pacer, RatePacer};
use tidegate_base::request::{DeviceIo, Lane, Op, ReqId, VmId};
use tidegate_base::time::Nanos;
use tidegate_capacity::profile::Profile;
use tidegate_core::part::{Capacity, Enforces, ParamInfo, ParamKind, PartDescriptor, SLACK};
use tidegate_core::roles::{Consumed, Dispatcher, Event, Footprint, Interests, Knob, Pick, Spent};
use tidegate_core::starvation::{Bound, Lead, Shares, Weights};
use tidegate_core::view::{View, moved};

/// Tags and queue state of one VM.
#[derive(Clone, Copy, Debug)]
struct Tags {
    reservation: RatePacer,
    limit: RatePacer,
    /// The reservation's IOPS count device I/Os instead of guest requests.
    counts_ios: bool,
    /// Spacing of the reservation: time from the moment a service is due until it is overdue.
    period: Nanos,
    share: Flow,
    /// The VM has a head that stands in the queues of [`MClock`].
    active: bool,
    /// Queue in which the VM's reservation stands, so that no other is searched for it.
    reservation_queue: ReservationQueue,
    /// Time since which the limit has held the VM back; [`Nanos::MAX`] while it does not.
    held_since: Nanos,
    /// Part of the time since the VM's last service for which only its limit held it back; for the
    /// account of delays.
    held: Nanos,
}

/// Queue in which a VM's reservation stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ReservationQueue {
    /// No queue: the VM has no reservation, or nothing of the VM waits.
    Nothing,
    /// `reserved`: the reservation will be due later.
    Later,
    /// `overdue`: the reservation is due.
    Now,
}

/// Parameters of [`MClock`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MClockParams {
    /// Cost of an I/O against its VM's share.
    pub cost: CostParams,
    /// Time for which a limit makes good a late dispatch, or longer where the precision of limits
    /// allows it.
    pub slack: Nanos,
    /// Longest time for which a late reservation is made good.
    pub catch_up: Nanos,
    /// Targets count as reservations, too.
    pub target_floor: bool,
}

/// Registry entry of the `mclock` dispatcher.
pub(crate) static DESCRIPTOR: PartDescriptor<dyn Dispatcher> = PartDescriptor {
    name: "mclock",
    summary: "reservations first, then shares by weight up to limits",
    params: &[
        CostParams::BY,
        CostParams::SIZE,
        SLACK,
        ParamInfo {
            name: "catch_up",
            kind: ParamKind::Duration,
            default: 1_000_000_000,
            min: 0,
            max: 3_600_000_000_000,
            help: "maximum backlog of a reservation that is made up for",
        },
        TARGET_FLOOR,
    ],
    enforces: Enforces {
        reservation: true,
        limit: true,
        weight: true,
        ..Enforces::NONE
    },
    build: |params, capacity| {
        let params = MClockParams {
            cost: CostParams::from_params(params),
            slack: Nanos(params.get("slack")),
            catch_up: Nanos(params.get("catch_up")),
            target_floor: targets_are_floors(params),
        };
        Box::new(MClock::new(params, capacity))
    },
};

/// Maximum lead of a VM's share tag because of service by reservation, in smallest I/Os.
const MAX_IOS_AHEAD: u64 = 32;

/// Dispatcher of mClock: reservations first, then shares by weight, below limits.
pub struct MClock {
    params: MClockParams,
    cost: CostModel,
    /// Cost of [`MAX_IOS_AHEAD`] of the smallest I/Os.
    smallest_ahead: u64,
    tags: Vec<Tags>,
    /// VMs whose reservation will be due, by that time (not before their limit allows).
    reserved: Tournament,
    /// VMs whose reservation is due, by the time at which it is overdue.
    overdue: Tournament,
    /// VMs whose limit allows their head, by tag P.
    ready: ByTag,
    /// VMs whose limit does not allow their head, by tag L.
    limited: Tournament,
    /// Smallest P among the VMs served lately; a waking VM joins there.
    clock: Virtual,
    /// Time by which the clock of R tags lies behind the driver's, because that much debt was
    /// forgiven. Never shrinks.
    forgiven: Nanos,
    /// Latest R that was served, by the clock of R tags.
    front: Nanos,
    /// The composition's regulator enforces limits, so this dispatcher does not.
    limits_kept: bool,
    /// The last pick was made for a reservation.
    by_reservation: bool,
    /// Time of the last pick at which the device had room and only limits held what waited.
    only_limited_at: Nanos,
}

impl MClock {
    /// Creates the dispatcher with room for every VM of the engine.
    pub fn new(params: MClockParams, capacity: &Capacity) -> MClock {
        let vms = capacity.vms as usize;
        let cost = CostModel::new(params.cost, vms);
        MClock {
            params,
            smallest_ahead: MAX_IOS_AHEAD * cost.flush(),
            cost,
            tags: vec![Tags::VACANT; vms],
            reserved: Tournament::with_capacity(vms),
            overdue: Tournament::with_capacity(vms),
            limits_kept: capacity.limits_kept,
            ready: ByTag::with_capacity(vms),
            limited: Tournament::with_capacity(vms),
            clock: Virtual(0),
            forgiven: Nanos::ZERO,
            front: Nanos::ZERO,
            by_reservation: false,
            only_limited_at: Nanos::ZERO,
        }
    }

    /// Sets the virtual clock and the value its keys count from, as if the dispatcher had been
    /// running for years; for tests.
    #[cfg(feature = "fuzzing")]
    pub fn grown_old(mut self, clock: u64, keys_count_from: u64) -> MClock {
        self.clock = Virtual(clock);
        self.ready = ByTag::counting_from(self.tags.len(), Virtual(keys_count_from));
        self
    }

    /// Returns the largest span in virtual time by which a VM of this weight may be ahead, where
    /// its largest I/O costs `cost`.
    fn max_lead(&self, cost: u64, weight: u32) -> u64 {
        self.smallest_ahead.max(2 * cost) / weight as u64
    }

    /// Returns whether a VM is within [`MAX_IOS_AHEAD`] of the smallest I/Os of the clock. True for
    /// most VMs, and decided without a division.
    #[inline]
    fn is_near(&self, share: &Flow) -> bool {
        let ahead = share.tag.since(self.clock);
        // Saturates for tags so old that virtual time has wrapped round: those are not near.
        ahead.saturating_mul(share.weight.into()) <= self.smallest_ahead
    }

    fn set_ready(&mut self, vm: usize) {
        self.ready.set(vm, self.tags[vm].share.tag);
    }

    /// Moves the virtual clock forward; it never moves back.
    fn set_clock(&mut self, clock: Virtual) {
        self.clock = clock;
        self.ready.follow(clock);
    }

    /// Returns the driver's time at which a VM's reservation is due for its next service, not
    /// before the VM's own limit allows it; `None` without a reservation.
    fn reservation_due(&self, vm: usize) -> Option<Nanos> {
        let tags = &self.tags[vm];
        let due = tags.reservation.any_due()? + self.forgiven;
        Some(due.max(tags.limit.all_due()))
    }

    /// Moves a VM whose reservation is due to `overdue`, by the time at which it will be overdue.
    fn set_overdue(&mut self, vm: usize) {
        let tags = &self.tags[vm];
        let due = tags.reservation.any_due().unwrap_or(Nanos::ZERO);
        // Keys are on the clock of R tags: forgiving moves all alike, so the order stays.
        self.overdue.set(vm, (due + tags.period).0);
        self.reserved.remove(vm);
        self.tags[vm].reservation_queue = ReservationQueue::Now;
    }

    /// Takes a VM's reservation out of the queue in which it stands.
    #[inline]
    fn leave_reservation_queue(&mut self, vm: usize) {
        match core::mem::replace(
            &mut self.tags[vm].reservation_queue,
            ReservationQueue::Nothing,
        ) {
            ReservationQueue::Nothing => {}
            ReservationQueue::Later => self.reserved.remove(vm),
            ReservationQueue::Now => self.overdue.remove(vm),
        }
    }

    /// Returns R of the reservation that goes next, or the present where none is due; by the clock
    /// of R tags.
    fn reservations_stand_at(&self, now: Nanos) -> Nanos {
        let next = self.overdue.peek();
        let due = next.and_then(|(_, vm)| self.tags[vm].reservation.any_due());
        due.unwrap_or(Nanos::MAX).min(now - self.forgiven)
    }

    /// Puts a VM whose head has just come into the queues. Idle time earns nothing.
    #[inline]
    fn wake(&mut self, view: &View, vm: usize) {
        let (now, join) = (view.now(), self.clock);
        // A tag far ahead of the clock is either so old that virtual time has wrapped round, or a
        // debt larger than any VM is charged.
        let share = self.tags[vm].share;
        let is_beyond = || {
            let largest = self.cost.largest(&view.device().spec);
            share.tag > join.plus(self.max_lead(largest, share.weight))
        };
        // `is_near` first: it needs no division and is true for most VMs.
        let joins_anew = share.tag < join || (!self.is_near(&share) && is_beyond());
        self.release(now);
        let stand_at = self.reservations_stand_at(now);
        let tags = &mut self.tags[vm];
        tags.active = true;
        tags.reservation.forget_before(stand_at);
        if joins_anew {
            tags.share.join(join);
        }
        self.place(view, vm);
    }

    #[inline]
    fn sleep(&mut self, vm: usize) {
        let tags = &mut self.tags[vm];
        let was_held = tags.is_held();
        tags.active = false;
        tags.held_since = Nanos::MAX;
        tags.held = Nanos::ZERO;
        self.leave_reservation_queue(vm);
        // A VM stands in `limited` or in `ready`, never in both.
        if was_held {
            self.limited.remove(vm);
        } else {
            self.ready.remove(vm);
        }
    }

    /// Puts an active VM into the queues that fit its tags.
    #[inline(always)]
    fn place(&mut self, view: &View, vm: usize) {
        let (now, clock) = (view.now(), self.clock);
        let tags = &mut self.tags[vm];
        let allowed = tags.limit.all_due();
        // The same time as in `reservation_due`, computed here to save a second read of the tags.
        if let Some(due) = tags.reservation.any_due() {
            let asks = (due + self.forgiven).max(allowed);
            let (before, overdue) = (tags.reservation_queue, due + tags.period);
            if asks <= now {
                tags.reservation_queue = ReservationQueue::Now;
                self.overdue.set(vm, overdue.0);
                // A VM stands in one of the two queues, so the other is not searched for it.
                if before == ReservationQueue::Later {
                    self.reserved.remove(vm);
                }
            } else {
                tags.reservation_queue = ReservationQueue::Later;
                self.reserved.set(vm, asks.0);
                if before == ReservationQueue::Now {
                    self.overdue.remove(vm);
                }
            }
        }
        if allowed <= now {
            if tags.is_held() {
                tags.end_hold(now, clock, self.only_limited_at);
                self.limited.remove(vm);
            }
            self.ready.set(vm, tags.share.tag);
        } else {
            if !tags.is_held() {
                tags.held_since = now;
            }
            self.limited.set(vm, allowed.0);
            self.ready.remove(vm);
        }
    }

    /// Moves reservations that have come due, and VMs whose limit has come to allow them, to their
    /// queues.
    #[inline]
    fn release(&mut self, now: Nanos) {
        if self.reserved.reaches(now.0) || self.limited.reaches(now.0) {
            self.release_due(now);
        }
    }

    #[inline(never)]
    fn release_due(&mut self, now: Nanos) {
        while let Some((asks, vm)) = self.reserved.peek() {
            if asks > now.0 {
                break;
            }
            // Debt forgiven since the VM was queued postpones its due time, but not past the
            // largest key: a VM at the end of keys would never come due.
            let puts_off = |asks: &Nanos| asks.0.min(Tournament::LARGEST) > now.0;
            match self.reservation_due(vm).filter(puts_off) {
                Some(later) => self.reserved.set(vm, later.0),
                None => self.set_overdue(vm),
            }
        }
        while let Some((allowed, vm)) = self.limited.peek() {
            if allowed > now.0 {
                break;
            }
            self.limited.remove(vm);
            // The hold ends at `allowed`, not now: the engine does not ask a device without room,
            // and that wait is not the limit's.
            self.tags[vm].end_hold(Nanos(allowed), self.clock, self.only_limited_at);
            self.set_ready(vm);
        }
    }

    fn charge(&mut self, view: &View, io: &DeviceIo) {
        let now = view.now();
        let vm = io.vm.index();
        let cost = self.cost.charge(view, io);
        let by_reservation = self.by_reservation;
        let tags = &mut self.tags[vm];
        let share_before = tags.share.tag;
        tags.share.spend(cost);
        if io.op != Op::Flush {
            let (bytes, first) = (moved(view, io.op, io.len).into(), io.first_served());
            // The wait since the arrival tells how much of a late dispatch the limit may make good.
            let waited = [io.arrived, now];
            tags.limit
                .spend_late(bytes, first, waited, self.params.slack);
            if by_reservation {
                let times = [&mut self.front, &mut self.forgiven];
                tags.move_front(now, times, self.params.catch_up);
                tags.spend_reservation(bytes, first);
            }
        }
        let (active, share) = (tags.active, tags.share);
        // Service by reservation counts against the VM's share, but the debt is bounded. The bound
        // forgives nothing that the VM was served before.
        if (by_reservation || io.op == Op::Flush) && share.tag > self.clock && !self.is_near(&share)
        {
            let most = self.clock.plus(self.max_lead(cost, share.weight));
            self.tags[vm].share.tag = share.tag.min(most.max(share_before));
        }
        if active && view.has_head(io.vm) {
            self.place(view, vm);
        } else {
            self.sleep(vm);
        }
        // The smallest P of all ready VMs and the one just served: no VM that is ready falls behind
        // the clock.
        let first = self.ready.first();
        let least = first.map_or(share_before, |(share, _)| share.min(share_before));
        if least > self.clock {
            self.set_clock(least);
        }
    }

    fn set_vm(&mut self, view: &View, vm: VmId) {
        let objective = view.objective(vm);
        let floor = Floor::from_objective(objective, self.params.target_floor);
        let tags = &mut self.tags[vm.index()];
        tags.counts_ios = floor.counts_ios;
        tags.reservation
            .set_rate(&floor.rate, view.now() - self.forgiven);
        let limit = if self.limits_kept {
            Rate::NONE
        } else {
            objective.limit.total
        };
        tags.limit.set_rate(&limit, view.now());
        tags.share.set_weight(objective.weight, self.clock);
        tags.period = tags.reservation.period(self.params.cost.size);
        if floor.rate.is_none() {
            self.leave_reservation_queue(vm.index());
        }
        self.refresh(view, vm);
    }

    /// Updates a VM's queues after its head, rates or gates changed otherwise than by a service.
    fn refresh(&mut self, view: &View, vm: VmId) {
        let index = vm.index();
        match (self.tags[index].active, view.has_head(vm)) {
            (true, true) => self.place(view, index),
            (true, false) => self.sleep(index),
            (false, true) => self.wake(view, index),
            (false, false) => {}
        }
    }
}

impl Tags {
    const VACANT: Tags = Tags {
        reservation: RatePacer::NONE,
        limit: RatePacer::NONE,
        counts_ios: false,
        period: Nanos::ZERO,
        share: Flow::new(Virtual(0), Objective::DEFAULT_WEIGHT),
        active: false,
        reservation_queue: ReservationQueue::Nothing,
        held_since: Nanos::MAX,
        held: Nanos::ZERO,
    };

    /// Returns whether the VM's limit holds it back, so that it stands in `limited`.
    fn is_held(&self) -> bool {
        self.held_since != Nanos::MAX
    }

    /// Ends the hold of a limit that allows the VM again from `until` on, or was lifted then. The
    /// VM did not save up its share meanwhile.
    ///
    /// The hold counts in the account of delays only if the VM would have gone earlier without a
    /// limit. A waiting VM goes when its P is the smallest, so that holds if one of these happened
    /// since its last service:
    ///
    /// - another VM was served at a larger P: the clock, which never passes a VM that is ready, has
    ///   passed this VM's P;
    /// - the device had room and no other VM could use it (`only_limited_at`): then the clock does
    ///   not move.
    ///
    /// Otherwise its turn by share had not come yet, and it waited because of contention.
    fn end_hold(&mut self, until: Nanos, clock: Virtual, only_limited_at: Nanos) {
        let is_overtaken = self.share.tag < clock;
        if is_overtaken || only_limited_at >= self.held_since {
            self.held += until.since(self.held_since);
        }
        self.held_since = Nanos::MAX;
        if is_overtaken {
            self.share.join(clock);
        }
    }

    /// Moves `front` and `forgiven` on for a service by reservation. Where even the latest tag
    /// served, `front`, comes more than `catch_up` late, the rest of the delay is forgiven to all
    /// VMs. A VM that its own limit kept behind the others is made good for at most `catch_up`
    /// behind them, and does not count in `front`.
    #[inline]
    fn move_front(&mut self, now: Nanos, [front, forgiven]: [&mut Nanos; 2], catch_up: Nanos) {
        self.reservation
            .forget_before(*front - catch_up - self.period);
        let due = self.reservation.any_due().unwrap_or(*front);
        if due > *front {
            *front = due;
            *forgiven += (now - *forgiven - due) - catch_up;
        }
    }

    /// Moves the reservation's tag R on by a service.
    fn spend_reservation(&mut self, bytes: u64, first: FirstServed) {
        let counted = if self.counts_ios {
            FirstServed { ops: 1, bytes }
        } else {
            first
        };
        self.reservation.spend(bytes, counted);
    }
}

impl Dispatcher for MClock {
    fn interests(&self) -> Interests {
        (Interests::STARTED.union(Interests::VMS)).union(self.cost.interests())
    }

    fn by_lane(&self) -> bool {
        true
    }

    fn insert(&mut self, view: &View, unit: ReqId) {
        let (vm, _) = view.queued(unit).vm_lane();
        if !self.tags[vm.index()].active && view.has_head(vm) {
            self.wake(view, vm.index());
        }
    }

    fn remove(&mut self, view: &View, unit: ReqId) {
        let (vm, _) = view.queued(unit).vm_lane();
        // After a service, `charge` has done this already; here only units that are taken back need
        // it.
        if self.tags[vm.index()].active && !view.has_head(vm) {
            self.sleep(vm.index());
        }
    }

    fn gate(&mut self, view: &View, vm: VmId, _lane: Lane, _open: bool) {
        self.refresh(view, vm);
    }

    fn on_event(&mut self, view: &View, event: &Event) {
        if let Event::Started(io) = *event {
            return self.charge(view, io);
        }
        self.cost.on_event(view, event);
        // The event may have brought a profile, with other costs.
        self.smallest_ahead = MAX_IOS_AHEAD * self.cost.flush();
        match *event {
            Event::VmAdded(vm) => {
                let tags = &mut self.tags[vm.index()];
                *tags = Tags::VACANT;
                // A new VM starts even with the one that was served last.
                tags.share.join(self.clock);
                self.set_vm(view, vm);
            }
            Event::VmChanged(vm) => self.set_vm(view, vm),
            Event::VmRemoved(vm) => self.sleep(vm.index()),
            _ => {}
        }
    }

    fn set(&mut self, view: &View, vm: VmId, knob: Knob) {
        if let Knob::Weight(weight) = knob {
            let weight = weight.clamp(1, Objective::MAX_WEIGHT);
            self.tags[vm.index()].share.set_weight(weight, self.clock);
            self.refresh(view, vm);
        }
    }

    fn starvation(&self, device: &DeviceSpec, profile: Option<&Profile>) -> Bound {
        let cost = self.cost.stated(device, profile);
        let largest = cost.largest(device);
        Bound::Shares(Shares {
            cost,
            largest,
            weights: Weights::Objectives,
            lead: Lead::Ahead {
                ahead: (MAX_IOS_AHEAD * cost.flush()).max(2 * largest) + largest,
                once: 2 * largest + cost.rounding(),
            },
        })
    }

    fn may_hold(&self) -> bool {
        true
    }

    fn pick(&mut self, view: &View) -> Pick {
        let now = view.now();
        self.release(now);
        let overdue = self.overdue.peek();
        self.by_reservation = overdue.is_some();
        let vm = match (overdue, self.ready.first()) {
            (Some((_, vm)), _) => vm,
            (None, Some((_, vm))) => vm,
            // All VMs that wait are held by their limits, and no reservation is due before its VM's
            // limit allows it.
            (None, None) => {
                self.only_limited_at = now;
                let next = self.limited.peek();
                return Pick::Idle(next.map_or(Nanos::MAX, |(allowed, _)| Nanos(allowed)));
            }
        };
        let held = core::mem::take(&mut self.tags[vm].held);
        let head = view
            .head(view.vm_at(vm))
            .expect("a VM in a queue has a head");
        Pick::Start {
            head,
            max: u32::MAX,
            held,
        }
    }

    fn footprint(&self) -> Footprint {
        let vms = self.tags.len();
        let tournaments = 3 * Tournament::bytes(vms) + ByTag::bytes(vms);
        let tournaments = tournaments.div_ceil(vms.max(1));
        Footprint {
            vm: size_of::<Tags>() + tournaments,
            vm_cold: self.cost.bytes_per_vm(),
            ..Footprint::default()
        }
    }

    fn consumed(&self, view: &View, vm: VmId) -> Consumed {
        let mut limit = self.tags[vm.index()].limit;
        // On a copy: what remains owed is handed over, and this dispatcher goes.
        limit.revoke_forgiven();
        let spent = |pacer: &Pacer| {
            let owed = pacer.due() - view.now();
            pacer.is_set().then_some(Spent {
                owed,
                ..Spent::default()
            })
        };
        let mut consumed = Consumed::default();
        consumed.0[0] = [spent(&limit.ops), spent(&limit.bytes)];
        consumed
    }

    fn adopt(&mut self, view: &View, vm: VmId, consumed: &Consumed) {
        let limit = &mut self.tags[vm.index()].limit;
        // This dispatcher has no bursts, so the debt of a burst's own rate holds the VM back, too.
        let owed = |spent: Option<Spent>| {
            let spent = spent.unwrap_or_default();
            spent.owed.max(spent.burst_owed)
        };
        let owed = consumed.0[0].map(owed);
        limit.ops.forget_before(view.now() + owed[0]);
        limit.bytes.forget_before(view.now() + owed[1]);
        self.refresh(view, vm);
    }
}
