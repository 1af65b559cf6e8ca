//! mClock: reservation, limit and weight for every VM (Gulati, Merchant, Varman, OSDI 2010).
//!
//! Each VM carries three tags, and only for its head: when its reservation is next due (R),
//! when its limit next allows (L), and its place in the order of shares (P, in virtual time).
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
//! Readings, where the paper leaves room:
//! - Tags are start tags: a service moves its VM's tags on by its own cost, so the head's tag
//!   does not depend on the head's size and never needs recomputing when it grows by merging.
//!   With requests of one size this is the paper's order.
//! - Rates in requests and bytes have a pacer each. A floor asks when the first of both is
//!   due, a cap holds until the later.
//! - A VM that wakes joins at the virtual time of the one that was served last (SFQ's start
//!   tag): O(1) where the paper shifts every other VM's tags. Not at that of the one that would
//!   be served next: a VM that its limit holds may stand before it, and would pass the waking
//!   one for as long as its tag takes to get there.
//! - Among reservations that are due, the one goes first that will be overdue first, one
//!   spacing after it came due. By the due time alone, many small reservations that come due
//!   together would hold up a large one for as long as they all take.
//! - A reservation never lifts its VM above its own limit.
//! - A limit does not catch up on a stall: a late dispatch is made good for `slack` (0.9 ms). An
//!   I/O that waits for a busy device would cost its VM a part of what it is allowed each time, and
//!   of a floor near that: one that is limited in requests is made good for as much as leaves no
//!   100 ms with more than one request and 1 % above the rate (see [`RatePacer::spend_late`]).
//! - Reservations that fell behind are made good, for at most `catch_up` (1 s): a floor is a
//!   promise, a long outage is not a debt for ever. What is forgiven beyond is the same time for
//!   all: where reservations are more than the device can do, each VM gets its part by their
//!   rates, as in the paper, and one that wakes joins at the tag of the one that is next.
//! - A VM whose limit held it back does not save up its share meanwhile; one whose reservation gave
//!   it more than its share runs at most 32 I/Os of `cost_size` (or two of its own) ahead.
//! - The cost of a share is, by the parameter `cost`, bytes, at least `cost_size` an I/O; or
//!   requests, size classes or the device's time (see [`cost`](super::cost)). A flush costs as the
//!   smallest I/O does, and counts for neither reservation nor limit. Those count requests and
//!   bytes in any case.
//! - With `target_floor` a target is a reservation, too: see `floor`.
//!
//! Starvation bound: a VM without a reservation is served as long as reservations leave room
//! (they are to be feasible); then, from the moment it waits, every other VM is served at most
//! by its own weight's share of (32 I/Os + the VM's own cost) / the VM's weight before it.

use super::cost::{CostModel, CostParams};
pub(crate) use super::floor::under_targets;
use super::floor::{Floor, TARGET_FLOOR};
use super::virtual_time::{ByTag, Flow, Virtual};
use crate::tournament::Tournament;
use tidegate_base::device::DeviceSpec;
use tidegate_base::objective::{Objective, Rate};
use tidegate_base::pace::{FirstServed, Pacer, RatePacer};
use tidegate_base::request::{DeviceIo, Lane, Op, ReqId, VmId};
use tidegate_base::time::Nanos;
use tidegate_capacity::profile::Profile;
use tidegate_core::facts::{Facts, moved};
use tidegate_core::part::{Capacity, Honours, ParamInfo, ParamKind, PartInfo, SLACK};
use tidegate_core::roles::{Consumed, Dispatcher, Event, Footprint, Interests, Knob, Pick, Spent};
use tidegate_core::starvation::{Bound, Lead, Shares, Weights};

/// One VM's tags.
#[derive(Clone, Copy, Debug)]
struct Tags {
    reservation: RatePacer,
    limit: RatePacer,
    /// The reservation's IOPS count device I/Os.
    counts_ios: bool,
    /// The reservation's spacing: a due service is overdue so much later.
    period: Nanos,
    share: Flow,
    /// Its head stands in the queues below.
    active: bool,
    /// Queue in which its reservation stands, so that none is searched for it.
    asks: Asks,
    /// Since when its limit has held it back, while it does; else never.
    held_since: Nanos,
    /// Time since its last service in which its limit was what it waited for: for the account.
    held: Nanos,
}

/// Place of a VM's reservation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Asks {
    /// It has none, or nothing of the VM waits.
    Nothing,
    /// Among those that will be due.
    Later,
    /// Among those that are due.
    Now,
}

/// mClock's parameters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MClockParams {
    /// What an I/O costs against its VM's share.
    pub cost: CostParams,
    /// A limit makes good a late dispatch for this long, or longer where its promise allows.
    pub slack: Nanos,
    /// A reservation makes good at most this long.
    pub catch_up: Nanos,
    /// A target is a reservation, too.
    pub target_floor: bool,
}

/// What the registry knows of it.
pub(crate) static PART: PartInfo<dyn Dispatcher> = PartInfo {
    name: "mclock",
    summary: "reservations first, then shares by weight, never above limits",
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
            help: "a reservation that fell behind is made good for at most this long",
        },
        TARGET_FLOOR,
    ],
    honours: Honours {
        reservation: true,
        limit: true,
        weight: true,
        ..Honours::NONE
    },
    build: |params, capacity| {
        let params = MClockParams {
            cost: CostParams::from_params(params),
            slack: Nanos(params.get("slack")),
            catch_up: Nanos(params.get("catch_up")),
            target_floor: under_targets(params),
        };
        Box::new(MClock::new(params, capacity))
    },
};

/// A VM's share tag runs at most so many of the smallest I/Os ahead of the others' because of
/// what its reservation gave it.
const MOST_AHEAD: u64 = 32;

/// The dispatcher.
pub struct MClock {
    params: MClockParams,
    cost: CostModel,
    /// Cost of [`MOST_AHEAD`] of the smallest I/Os.
    smallest_ahead: u64,
    tags: Vec<Tags>,
    /// VMs whose reservation will be due, by when (not before their limit allows).
    reserved: Tournament,
    /// VMs whose reservation has come due, by when it is overdue.
    overdue: Tournament,
    /// VMs whose limit allows their head, by P.
    ready: ByTag,
    /// VMs whose limit does not, by L.
    limited: Tournament,
    /// Smallest P among those served lately: where a waking VM joins.
    clock: Virtual,
    /// How far reservations' time, which R tags count, lies behind the driver's: what was
    /// forgiven. It only ever grows.
    forgiven: Nanos,
    /// The latest R that was served, in reservations' time.
    front: Nanos,
    /// The regulator keeps the limits, so this one does not.
    limits_kept: bool,
    /// Whether the last pick was made for a reservation.
    by_reservation: bool,
    /// Time of the last pick at which the device had room and only limits held what waited.
    only_limited_at: Nanos,
}

impl MClock {
    /// Room for all the engine can hold.
    pub fn new(params: MClockParams, capacity: &Capacity) -> MClock {
        let vms = capacity.vms as usize;
        let cost = CostModel::new(params.cost, vms);
        MClock {
            params,
            smallest_ahead: MOST_AHEAD * cost.flush(),
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

    /// Sets the virtual clock, and the value its keys count from: for tests, as if it had been
    /// running for years.
    #[cfg(feature = "fuzzing")]
    pub fn grown_old(mut self, clock: u64, keys_count_from: u64) -> MClock {
        self.clock = Virtual(clock);
        self.ready = ByTag::counting_from(self.tags.len(), Virtual(keys_count_from));
        self
    }

    /// How far ahead in virtual time a VM of this weight may be whose largest I/O costs `cost`.
    fn most_ahead(&self, cost: u64, weight: u32) -> u64 {
        self.smallest_ahead.max(2 * cost) / weight as u64
    }

    /// Whether a VM is not too far ahead of the clock whatever its I/Os cost: mostly so, and found
    /// without a division.
    #[inline]
    fn is_near(&self, share: &Flow) -> bool {
        let ahead = share.tag.since(self.clock);
        ahead.saturating_mul(share.weight.into()) <= self.smallest_ahead
    }

    fn set_ready(&mut self, vm: usize) {
        self.ready.set(vm, self.tags[vm].share.tag);
    }

    /// The clock only ever moves on.
    fn set_clock(&mut self, clock: Virtual) {
        self.clock = clock;
        self.ready.follow(clock);
    }

    /// When a VM's reservation asks for its next service, by the driver's time; it never goes
    /// above the VM's own cap.
    fn asks(&self, vm: usize) -> Option<Nanos> {
        let tags = &self.tags[vm];
        let due = tags.reservation.any_due()? + self.forgiven;
        Some(due.max(tags.limit.all_due()))
    }

    /// Where among those that are due a VM whose reservation is stands: when it will be overdue.
    fn set_overdue(&mut self, vm: usize) {
        let tags = &self.tags[vm];
        let due = tags.reservation.any_due().unwrap_or(Nanos::ZERO);
        self.overdue.set(vm, (due + tags.period).0);
        self.reserved.remove(vm);
        self.tags[vm].asks = Asks::Now;
    }

    /// Takes a VM's reservation out of the queue in which it stands.
    #[inline]
    fn ask_nothing(&mut self, vm: usize) {
        match core::mem::replace(&mut self.tags[vm].asks, Asks::Nothing) {
            Asks::Nothing => {}
            Asks::Later => self.reserved.remove(vm),
            Asks::Now => self.overdue.remove(vm),
        }
    }

    /// R of the reservation that goes next, or the present where none is due.
    fn reservations_stand_at(&self, now: Nanos) -> Nanos {
        let next = self.overdue.peek();
        let due = next.and_then(|(_, vm)| self.tags[vm].reservation.any_due());
        due.unwrap_or(Nanos::MAX).min(now - self.forgiven)
    }

    /// A VM's head came: idle time earned it nothing.
    #[inline]
    fn wake(&mut self, facts: &Facts, vm: usize) {
        let (now, join) = (facts.now(), self.clock);
        // Far ahead is either a tag so old that virtual time has gone round, or a debt
        // beyond what anyone is held to.
        let share = self.tags[vm].share;
        let is_beyond = || {
            let largest = self.cost.largest(&facts.device().spec);
            share.tag > join.plus(self.most_ahead(largest, share.weight))
        };
        let joins_anew = share.tag < join || (!self.is_near(&share) && is_beyond());
        self.release(now);
        let stand_at = self.reservations_stand_at(now);
        let tags = &mut self.tags[vm];
        tags.active = true;
        tags.reservation.forget_before(stand_at);
        if joins_anew {
            tags.share.join(join);
        }
        self.place(facts, vm);
    }

    #[inline]
    fn sleep(&mut self, vm: usize) {
        let tags = &mut self.tags[vm];
        let was_held = tags.is_held();
        tags.active = false;
        tags.held_since = Nanos::MAX;
        tags.held = Nanos::ZERO;
        self.ask_nothing(vm);
        if was_held {
            self.limited.remove(vm);
        } else {
            self.ready.remove(vm);
        }
    }

    /// Puts an active VM into the queues its tags ask for.
    #[inline(always)]
    fn place(&mut self, facts: &Facts, vm: usize) {
        let (now, clock) = (facts.now(), self.clock);
        let tags = &mut self.tags[vm];
        let allowed = tags.limit.all_due();
        // See `asks`.
        if let Some(due) = tags.reservation.any_due() {
            let asks = (due + self.forgiven).max(allowed);
            let (before, overdue) = (tags.asks, due + tags.period);
            if asks <= now {
                tags.asks = Asks::Now;
                self.overdue.set(vm, overdue.0);
                if before == Asks::Later {
                    self.reserved.remove(vm);
                }
            } else {
                tags.asks = Asks::Later;
                self.reserved.set(vm, asks.0);
                if before == Asks::Now {
                    self.overdue.remove(vm);
                }
            }
        }
        if allowed <= now {
            if tags.is_held() {
                tags.let_go(now, clock, self.only_limited_at);
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

    /// Reservations that have come due, and VMs whose limit has come to allow them.
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
            // What was forgiven since it was put there puts it off, but not past the end of keys.
            let puts_off = |asks: &Nanos| asks.0.min(Tournament::LARGEST) > now.0;
            match self.asks(vm).filter(puts_off) {
                Some(later) => self.reserved.set(vm, later.0),
                None => self.set_overdue(vm),
            }
        }
        while let Some((allowed, vm)) = self.limited.peek() {
            if allowed > now.0 {
                break;
            }
            self.limited.remove(vm);
            // Not until now: a device without room is not asked what goes next, and that is no
            // limit.
            self.tags[vm].let_go(Nanos(allowed), self.clock, self.only_limited_at);
            self.set_ready(vm);
        }
    }

    fn charge(&mut self, facts: &Facts, io: &DeviceIo) {
        let now = facts.now();
        let vm = io.vm.index();
        let cost = self.cost.charge(facts, io);
        let by_reservation = self.by_reservation;
        let tags = &mut self.tags[vm];
        let share_before = tags.share.tag;
        tags.share.spend(cost);
        if io.op != Op::Flush {
            let (bytes, first) = (moved(facts, io.op, io.len).into(), io.first_served());
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
        // What a floor gave counts against the VM's share, but it is not a debt without end; nor
        // does it forgive what the VM was served before.
        if (by_reservation || io.op == Op::Flush) && share.tag > self.clock && !self.is_near(&share)
        {
            let most = self.clock.plus(self.most_ahead(cost, share.weight));
            self.tags[vm].share.tag = share.tag.min(most.max(share_before));
        }
        if active && facts.has_head(io.vm) {
            self.place(facts, vm);
        } else {
            self.sleep(vm);
        }
        let first = self.ready.first();
        let least = first.map_or(share_before, |(share, _)| share.min(share_before));
        if least > self.clock {
            self.set_clock(least);
        }
    }

    fn set_vm(&mut self, facts: &Facts, vm: VmId) {
        let objective = facts.objective(vm);
        let floor = Floor::of(objective, self.params.target_floor);
        let tags = &mut self.tags[vm.index()];
        tags.counts_ios = floor.counts_ios;
        tags.reservation
            .set_rate(&floor.rate, facts.now() - self.forgiven);
        let limit = if self.limits_kept {
            Rate::NONE
        } else {
            objective.limit.total
        };
        tags.limit.set_rate(&limit, facts.now());
        tags.share.set_weight(objective.weight, self.clock);
        tags.period = tags.reservation.period(self.params.cost.size);
        if floor.rate.is_none() {
            self.ask_nothing(vm.index());
        }
        self.refresh(facts, vm);
    }

    /// The VM's head, rates or gates changed otherwise than by a service.
    fn refresh(&mut self, facts: &Facts, vm: VmId) {
        let index = vm.index();
        match (self.tags[index].active, facts.has_head(vm)) {
            (true, true) => self.place(facts, index),
            (true, false) => self.sleep(index),
            (false, true) => self.wake(facts, index),
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
        asks: Asks::Nothing,
        held_since: Nanos::MAX,
        held: Nanos::ZERO,
    };

    /// Its limit holds it back: it stands among the limited.
    fn is_held(&self) -> bool {
        self.held_since != Nanos::MAX
    }

    /// Ends the hold of a limit that allows the VM again from `until` on, or was lifted then. The
    /// VM did not save up its share meanwhile.
    ///
    /// The hold counts in the account only if the VM would have gone earlier without a limit. One
    /// that waits goes when its P is the least, so that is the case if one of these came to pass
    /// since its last service:
    ///
    /// - another VM was served at a larger P: the clock, which no VM that is ready stands behind,
    ///   has passed the VM's P;
    /// - there was room, and nobody else to take it (`only_limited_at`): then no clock moves.
    ///
    /// Else its turn by share had not come yet, and contention is what it waited for.
    fn let_go(&mut self, until: Nanos, clock: Virtual, only_limited_at: Nanos) {
        let is_overtaken = self.share.tag < clock;
        if is_overtaken || only_limited_at >= self.held_since {
            self.held += until.since(self.held_since);
        }
        self.held_since = Nanos::MAX;
        if is_overtaken {
            self.share.join(clock);
        }
    }

    /// The VM is served by its reservation. Where even the latest of those served so, `front`,
    /// comes more than `catch_up` late, the rest is forgiven to all; a VM that its own limit kept
    /// behind the others does not count, and is not made good more than that behind them.
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

    fn spend_reservation(&mut self, bytes: u64, first: FirstServed) {
        let counted = match self.counts_ios {
            true => FirstServed { ops: 1, bytes },
            false => first,
        };
        self.reservation.spend(bytes, counted);
    }
}

impl Dispatcher for MClock {
    fn interests(&self) -> Interests {
        (Interests::STARTED.and(Interests::VMS)).and(self.cost.interests())
    }

    fn by_lane(&self) -> bool {
        true
    }

    fn insert(&mut self, facts: &Facts, unit: ReqId) {
        let (vm, _) = facts.queued(unit).vm_lane();
        if !self.tags[vm.index()].active && facts.has_head(vm) {
            self.wake(facts, vm.index());
        }
    }

    fn remove(&mut self, facts: &Facts, unit: ReqId) {
        let (vm, _) = facts.queued(unit).vm_lane();
        // After a service `charge` has seen to it; this is for units taken back.
        if self.tags[vm.index()].active && !facts.has_head(vm) {
            self.sleep(vm.index());
        }
    }

    fn gate(&mut self, facts: &Facts, vm: VmId, _lane: Lane, _open: bool) {
        self.refresh(facts, vm);
    }

    fn on_event(&mut self, facts: &Facts, event: &Event) {
        if let Event::Started(io) = *event {
            return self.charge(facts, io);
        }
        self.cost.on_event(facts, event);
        self.smallest_ahead = MOST_AHEAD * self.cost.flush();
        match *event {
            Event::VmAdded(vm) => {
                let tags = &mut self.tags[vm.index()];
                *tags = Tags::VACANT;
                tags.share.join(self.clock);
                self.set_vm(facts, vm);
            }
            Event::VmChanged(vm) => self.set_vm(facts, vm),
            Event::VmRemoved(vm) => self.sleep(vm.index()),
            _ => {}
        }
    }

    fn set(&mut self, facts: &Facts, vm: VmId, knob: Knob) {
        if let Knob::Weight(weight) = knob {
            let weight = weight.clamp(1, Objective::MAX_WEIGHT);
            self.tags[vm.index()].share.set_weight(weight, self.clock);
            self.refresh(facts, vm);
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
                ahead: (MOST_AHEAD * cost.flush()).max(2 * largest) + largest,
                once: 2 * largest + cost.rounding(),
            },
        })
    }

    fn may_hold(&self) -> bool {
        true
    }

    fn pick(&mut self, facts: &Facts) -> Pick {
        let now = facts.now();
        self.release(now);
        let overdue = self.overdue.peek();
        self.by_reservation = overdue.is_some();
        let vm = match (overdue, self.ready.first()) {
            (Some((_, vm)), _) => vm,
            (None, Some((_, vm))) => vm,
            // Their limits hold all that wait, and no reservation asks before its VM's does.
            (None, None) => {
                self.only_limited_at = now;
                let next = self.limited.peek();
                return Pick::Idle(next.map_or(Nanos::MAX, |(allowed, _)| Nanos(allowed)));
            }
        };
        let held = core::mem::take(&mut self.tags[vm].held);
        let head = facts
            .head(facts.vm_at(vm))
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

    fn consumed(&self, facts: &Facts, vm: VmId) -> Consumed {
        let mut limit = self.tags[vm.index()].limit;
        limit.pay_back();
        let spent = |pacer: &Pacer| {
            let owed = pacer.due() - facts.now();
            pacer.is_set().then_some(Spent {
                owed,
                ..Spent::default()
            })
        };
        let mut consumed = Consumed::default();
        consumed.0[0] = [spent(&limit.ops), spent(&limit.bytes)];
        consumed
    }

    fn adopt(&mut self, facts: &Facts, vm: VmId, consumed: &Consumed) {
        let limit = &mut self.tags[vm.index()].limit;
        // Without bursts here, what a burst's own rate still holds back is held back too.
        let owed = |spent: Option<Spent>| {
            let spent = spent.unwrap_or_default();
            spent.owed.max(spent.burst_owed)
        };
        let owed = consumed.0[0].map(owed);
        limit.ops.forget_before(facts.now() + owed[0]);
        limit.bytes.forget_before(facts.now() + owed[1]);
        self.refresh(facts, vm);
    }
}
