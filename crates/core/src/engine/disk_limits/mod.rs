//! Limits of single disks, and limits that several disks share. Requests beyond them wait here,
//! before the lanes of their VM, so that a VM's other disks go on.
//!
//! ```text
//! arrival --> [ queue of the disk and lane ] -- the disk's limit
//!         --> [ turns of the disks that share a limit ] -- the shared limit --> lane of the VM
//! ```
//!
//! As in QEMU's throttle groups, disks that share a limit take turns, one request each; reads and
//! writes wait for themselves. Flushes pass freely and cost nothing. A request is charged whole
//! when it passes. The scheduler knows nothing of what waits here: its roles hear of a request, and
//! the counters of [`View`](crate::view::View) have it, when it has passed, and that is its time of
//! arrival. The time for which it was held is kept here until it is answered, and then counts as
//! held by a limit. Disks without limits cost one test of a flag.

mod requests;

pub(super) use requests::{cancel, forget, hold, release_due};

use crate::limit_accounts::{Charge, LimitAccount};
use crate::roles::Consumed;
use crate::slots::state;
use crate::view::{Requests, moved_by};
use std::collections::VecDeque;
use tidegate_base::device::DeviceSpec;
use tidegate_base::heap::IndexedHeap;
use tidegate_base::objective::Limit;
use tidegate_base::pace::FirstServed;
use tidegate_base::request::{Lane, Op, ReqId};
use tidegate_base::slab::{NIL, Slab};
use tidegate_base::time::Nanos;

/// Time for which a late release is made good: the default of the token bucket's `slack`.
const SLACK: Nanos = Nanos(crate::part::SLACK.default);
/// Number of lanes of a disk.
const LANES: usize = Lane::ALL.len();

/// Handle of a limit that disks share; see
/// [`VmsMut::add_shared_limit`](super::VmsMut::add_shared_limit).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct SharedLimitId {
    index: u32,
    generation: u32,
}

/// Time of a timer, and the number of the last release: of those that are due at the same time, the
/// one that was served longest ago is next.
type Due = (Nanos, u64);

/// Waiting requests of one lane of a disk, linked by [`Hot::chain_next`](crate::view::Hot).
#[derive(Clone, Copy, Debug)]
struct Queue {
    first: u32,
    last: u32,
    /// The disk stands in the turns of its shared limit.
    in_turn: bool,
    /// Number of the last release.
    released: u64,
}

impl Queue {
    const EMPTY: Queue = Queue {
        first: NIL,
        last: NIL,
        in_turn: false,
        released: 0,
    };

    fn is_empty(&self) -> bool {
        self.first == NIL
    }
}

/// Disk with a limit of its own, a share of one, or both.
#[derive(Debug)]
struct LimitedDisk {
    own: Option<LimitAccount>,
    /// Slot of the shared limit; [`NIL`]: none.
    shared: u32,
    queues: [Queue; LANES],
}

/// Limit that disks share.
#[derive(Debug)]
struct Shared {
    account: LimitAccount,
    /// Slots of disks whose next request waits for this limit only, by lane, in order of turn.
    turns: [VecDeque<u32>; LANES],
    /// Number of the last release, by lane.
    released: [u64; LANES],
    /// Number of disks.
    disks: u32,
}

impl Shared {
    /// Returns whether a request of a disk that has no turn yet may go now. Those that wait have
    /// the next turns, also in the other lane, because both may share one rate.
    fn lets_pass(&self, now: Nanos, lane: Lane) -> bool {
        self.turns.iter().all(VecDeque::is_empty) && self.account.due(lane) <= now
    }
}

/// All limits of disks, with the requests that wait for them.
#[derive(Debug, Default)]
pub(super) struct DiskLimits {
    /// By slot of the disk; `None`: no limit.
    disks: Vec<Option<Box<LimitedDisk>>>,
    shared: Slab<Shared>,
    /// Times at which disks' own limits let the next request go, by slot of the disk and lane.
    own_timers: Timers,
    /// Times at which shared limits let the next request go, by slot of the limit and lane.
    shared_timers: Timers,
    /// Number of requests released so far.
    released: u64,
    /// Number of waiting requests by slot of the VM.
    waiting: Vec<u32>,
    /// Time for which a request was held, by its slot: of those with the mark
    /// [`HELD`](crate::slots::mark::HELD).
    held: Vec<Nanos>,
    /// Last answered request that was held, with the time.
    answered: Option<(ReqId, Nanos)>,
}

/// Timers by slot and lane.
#[derive(Debug)]
struct Timers(IndexedHeap<Due>);

impl Default for Timers {
    fn default() -> Timers {
        Timers(IndexedHeap::with_capacity(0))
    }
}

impl Timers {
    fn set(&mut self, slot: u32, lane: Lane, due: Due) {
        self.0.set(slot as usize * LANES + lane.index(), due);
    }

    fn remove(&mut self, slot: u32, lane: Lane) {
        self.0.remove(slot as usize * LANES + lane.index());
    }

    /// Time of the first timer; [`Nanos::MAX`]: there is none.
    fn next(&self) -> Nanos {
        self.0.peek().map_or(Nanos::MAX, |((at, _), _)| at)
    }

    /// Takes the first timer if it is due.
    fn take(&mut self, now: Nanos) -> Option<(u32, Lane)> {
        let ((at, _), id) = self.0.peek()?;
        if at > now {
            return None;
        }
        self.0.remove(id);
        Some(((id / LANES) as u32, Lane::ALL[id % LANES]))
    }

    /// Makes room for timers of the slots below `slots`, so that setting them allocates nothing.
    fn make_room(&mut self, slots: usize) {
        self.0.make_room(slots * LANES);
    }
}

impl DiskLimits {
    /// Returns whether a disk has a limit, of its own or shared, or requests that still wait for
    /// one that was lifted.
    pub(super) fn has(&self, disk: u32) -> bool {
        self.disk(disk).is_some()
    }

    /// Limits a disk, or changes its limit; [`Limit::NONE`] lifts it and closes its account. The
    /// entry is closed by [`DiskLimits::close_unlimited`].
    pub(super) fn set_own(&mut self, now: Nanos, disk: u32, limit: &Limit) {
        if limit.is_none() && self.disk(disk).is_none() {
            return;
        }
        let of_disk = self.entry(disk);
        match &mut of_disk.own {
            // A pacer without a rate has no debt either, so an open account would keep nothing.
            own if limit.is_none() => *own = None,
            Some(account) => account.set(now, limit),
            own => *own = Some(LimitAccount::new(now, limit)),
        }
        self.rearm(now, disk);
    }

    /// Closes the entry of a disk that has no limit and no waiting request any more. Returns
    /// whether there is none now, so that requests of the disk need not ask for limits.
    pub(super) fn close_unlimited(&mut self, disk: u32) -> bool {
        let Some(of_disk) = self.disks.get_mut(disk as usize) else {
            return true;
        };
        let is_unlimited = |of_disk: &LimitedDisk| {
            // Requests that wait go first, so that those of a lane stay in order.
            of_disk.own.is_none()
                && of_disk.shared == NIL
                && of_disk.queues.iter().all(Queue::is_empty)
        };
        if of_disk.as_deref().is_some_and(is_unlimited) {
            *of_disk = None;
        }
        of_disk.is_none()
    }

    /// Adds a limit that disks may share.
    pub(super) fn add_shared(&mut self, now: Nanos, limit: &Limit) -> SharedLimitId {
        let shared = Shared {
            account: LimitAccount::new(now, limit),
            turns: Default::default(),
            released: [0; LANES],
            disks: 0,
        };
        let index = self.shared.insert(shared);
        self.shared_timers.make_room(self.shared.len());
        SharedLimitId {
            index,
            generation: self.shared.generation(index),
        }
    }

    /// Changes a shared limit. Returns false if there is none of this handle.
    pub(super) fn set_shared(&mut self, now: Nanos, id: SharedLimitId, limit: &Limit) -> bool {
        let Some(shared) = self.shared.get_mut(id.index, id.generation) else {
            return false;
        };
        shared.account.set(now, limit);
        self.arm_shared(now, id.index);
        true
    }

    /// Returns the part of a disk's own limit that is used up at `now`; `None`: it has none.
    pub(super) fn own_consumed(&self, now: Nanos, disk: u32) -> Option<Consumed> {
        let account = self.disk(disk)?.own.as_ref()?;
        Some(account.consumed(now))
    }

    /// Returns the part of a shared limit that is used up at `now`; `None`: there is none of this
    /// handle.
    pub(super) fn shared_consumed(&self, now: Nanos, id: SharedLimitId) -> Option<Consumed> {
        let shared = self.shared.get(id.index, id.generation)?;
        Some(shared.account.consumed(now))
    }

    /// Has a disk's own limit, if there is one, owe what was owed elsewhere.
    pub(super) fn adopt_own(&mut self, now: Nanos, disk: u32, consumed: &Consumed) {
        let of_disk = self.disks.get_mut(disk as usize).and_then(Option::as_mut);
        if let Some(account) = of_disk.and_then(|of_disk| of_disk.own.as_mut()) {
            account.adopt(now, consumed);
            self.rearm(now, disk);
        }
    }

    /// Has a shared limit, if there is one of this handle, owe what was owed elsewhere.
    pub(super) fn adopt_shared(&mut self, now: Nanos, id: SharedLimitId, consumed: &Consumed) {
        if let Some(shared) = self.shared.get_mut(id.index, id.generation) {
            shared.account.adopt(now, consumed);
            self.arm_shared(now, id.index);
        }
    }

    /// Removes a shared limit that no disk has. Returns false if a disk has it, or there is none of
    /// this handle.
    pub(super) fn remove_shared(&mut self, id: SharedLimitId) -> bool {
        let found = self.shared.get_mut(id.index, id.generation);
        let is_free = found.is_some_and(|shared| shared.disks == 0);
        if is_free {
            self.shared.give_back(id.index);
        }
        is_free
    }

    /// Returns whether there is a shared limit of this handle.
    pub(super) fn knows(&self, id: SharedLimitId) -> bool {
        self.shared.get(id.index, id.generation).is_some()
    }

    /// Has a disk share a limit, or none, in place of the one it shared before.
    pub(super) fn share(&mut self, now: Nanos, disk: u32, with: Option<SharedLimitId>) {
        let to = with.map_or(NIL, |id| id.index);
        if self.disk(disk).map_or(NIL, |of_disk| of_disk.shared) == to {
            return;
        }
        self.leave_shared(now, disk);
        if to != NIL {
            self.entry(disk).shared = to;
            let shared = self.shared.value_at_mut(to);
            shared.disks += 1;
            for turns in &mut shared.turns {
                turns.reserve(shared.disks as usize);
            }
        }
        self.rearm(now, disk);
    }

    /// Takes a disk out of the limit that it shares.
    fn leave_shared(&mut self, now: Nanos, disk: u32) {
        let Some(of_disk) = self.disks.get_mut(disk as usize).and_then(Option::as_mut) else {
            return;
        };
        let from = core::mem::replace(&mut of_disk.shared, NIL);
        if from == NIL {
            return;
        }
        let shared = self.shared.value_at_mut(from);
        shared.disks -= 1;
        for (queue, turns) in of_disk.queues.iter_mut().zip(&mut shared.turns) {
            if core::mem::take(&mut queue.in_turn) {
                turns.retain(|&other| other != disk);
            }
        }
        self.arm_shared(now, from);
    }

    /// Lifts the limits of all disks. Returns the disks without waiting requests, whose entries are
    /// closed.
    pub(super) fn lift_all(&mut self, now: Nanos) -> Vec<u32> {
        let mut closed = Vec::new();
        for disk in 0..self.disks.len() as u32 {
            if self.has(disk) {
                self.share(now, disk, None);
                self.set_own(now, disk, &Limit::NONE);
                closed.extend(self.close_unlimited(disk).then_some(disk));
            }
        }
        closed
    }

    /// Forgets a disk, whose requests must have been taken before ([`DiskLimits::remove`]).
    pub(super) fn forget(&mut self, now: Nanos, disk: u32) {
        self.leave_shared(now, disk);
        if let Some(of_disk) = self.disks.get_mut(disk as usize) {
            debug_assert!(
                (of_disk.as_ref()).is_none_or(|of_disk| of_disk.queues.iter().all(Queue::is_empty)),
                "a disk is forgotten while requests wait for its limit"
            );
            *of_disk = None;
        }
    }

    /// Makes room for `requests` slots, so that a request that is held allocates nothing.
    pub(super) fn make_room(&mut self, requests: usize) {
        if self.held.len() < requests {
            self.held.resize(requests, Nanos::ZERO);
        }
    }

    /// Keeps the time for which the request in a slot was held.
    pub(super) fn keep_held(&mut self, slot: u32, time: Nanos) {
        self.held[slot as usize] = time;
    }

    /// Returns the time for which limits held a request, which is answered now.
    pub(super) fn held_until_answer(&mut self, request: ReqId) -> Nanos {
        let held = self.held[request.index()];
        self.answered = Some((request, held));
        held
    }

    /// Returns the time for which the request that was answered last was held; `None`: it was not.
    pub(super) fn held_before_answer(&self, request: ReqId) -> Option<Nanos> {
        let (answered, held) = self.answered?;
        (answered == request).then_some(held)
    }

    /// Number of a VM's requests that wait for limits of its disks.
    pub(super) fn waiting(&self, vm: u32) -> u32 {
        self.waiting.get(vm as usize).copied().unwrap_or(0)
    }

    /// Number of requests that wait for limits.
    pub(super) fn all_waiting(&self) -> u32 {
        self.waiting.iter().sum()
    }

    /// Time at which [`DiskLimits::next_due`] may have a request; [`Nanos::MAX`]: never.
    pub(super) fn next_timer(&self) -> Nanos {
        self.own_timers.next().min(self.shared_timers.next())
    }

    /// Returns whether a request of a disk may pass at once; it is charged then. Otherwise it is to
    /// be given to [`DiskLimits::push`].
    pub(super) fn passes(&mut self, now: Nanos, disk: u32, charge: &Charge) -> bool {
        let Some(of_disk) = self.disks.get_mut(disk as usize).and_then(Option::as_mut) else {
            return true;
        };
        let lane = charge.lane;
        if !of_disk.queues[lane.index()].is_empty() {
            return false;
        }
        let own = of_disk.own.as_ref();
        if own.is_some_and(|account| account.due(lane) > now) {
            return false;
        }
        if of_disk.shared != NIL {
            let shared = self.shared.value_at(of_disk.shared);
            if !shared.lets_pass(now, lane) {
                return false;
            }
        }
        self.charge(now, disk, charge);
        true
    }

    /// Puts a request at the end of the queue of its disk and lane.
    pub(super) fn push(
        &mut self,
        now: Nanos,
        reqs: &mut Requests,
        [disk, slot]: [u32; 2],
        (vm, lane): (u32, Lane),
    ) {
        if self.waiting.len() <= vm as usize {
            self.waiting.resize(vm as usize + 1, 0);
        }
        self.waiting[vm as usize] += 1;
        let queue = &mut self.entry(disk).queues[lane.index()];
        debug_assert_ne!(queue.last, slot, "a queue that leads to itself has no end");
        match queue.last {
            NIL => queue.first = slot,
            last => reqs.hot[last as usize].chain_next = slot,
        }
        queue.last = slot;
        if queue.first == slot {
            self.arm(now, disk, lane);
        }
    }

    /// Takes the next request that its limits let go, and charges it. To be called until `None`.
    pub(super) fn next_due(
        &mut self,
        now: Nanos,
        reqs: &mut Requests,
        device: &DeviceSpec,
    ) -> Option<u32> {
        loop {
            if let Some((disk, lane)) = self.own_timers.take(now) {
                if self.may_go(now, disk, lane) {
                    return Some(self.release(now, reqs, (disk, lane), device));
                }
                continue;
            }
            let (shared, lane) = self.shared_timers.take(now)?;
            let of_shared = self.shared.value_at_mut(shared);
            if of_shared.account.due(lane) <= now
                && let Some(disk) = of_shared.turns[lane.index()].pop_front()
            {
                self.entry(disk).queues[lane.index()].in_turn = false;
                if self.is_own_due(now, disk, lane) {
                    return Some(self.release(now, reqs, (disk, lane), device));
                }
                // Its other lane used up what both may have.
                self.arm(now, disk, lane);
            }
            self.arm_shared(now, shared);
        }
    }

    /// Takes those waiting requests of a disk for which `are` holds out of its queues, without
    /// charging them. Returns their slots.
    pub(super) fn remove(
        &mut self,
        now: Nanos,
        reqs: &mut Requests,
        disk: u32,
        are: impl Fn(&Requests, u32) -> bool,
    ) -> Vec<u32> {
        let mut removed = Vec::new();
        let Some(of_disk) = self.disks.get_mut(disk as usize).and_then(Option::as_mut) else {
            return removed;
        };
        for queue in &mut of_disk.queues {
            let mut at = queue.first;
            (queue.first, queue.last) = (NIL, NIL);
            while at != NIL {
                let this = at;
                at = core::mem::replace(&mut reqs.hot[this as usize].chain_next, NIL);
                if are(reqs, this) {
                    self.waiting[reqs.hot[this as usize].vm as usize] -= 1;
                    removed.push(this);
                    continue;
                }
                match queue.last {
                    NIL => queue.first = this,
                    last => reqs.hot[last as usize].chain_next = this,
                }
                queue.last = this;
            }
        }
        if !removed.is_empty() {
            self.rearm(now, disk);
        }
        removed
    }

    /// Takes the first request of a lane of a disk, whose limits let it go, charges it, and sets
    /// the timers of what waits behind it. Returns its slot.
    fn release(
        &mut self,
        now: Nanos,
        reqs: &mut Requests,
        (disk, lane): (u32, Lane),
        device: &DeviceSpec,
    ) -> u32 {
        self.released += 1;
        let number = self.released;
        let queue = &mut self.entry(disk).queues[lane.index()];
        let slot = queue.first;
        debug_assert_ne!(slot, NIL, "a request of an empty queue is released");
        queue.first = core::mem::replace(&mut reqs.hot[slot as usize].chain_next, NIL);
        if queue.first == NIL {
            queue.last = NIL;
        }
        queue.released = number;
        self.waiting[reqs.hot[slot as usize].vm as usize] -= 1;
        let charge = charge_of(reqs, slot, device);
        self.charge(now, disk, &charge);
        // Both: the other lane may have given way to this one.
        for lane in Lane::ALL {
            self.arm(now, disk, lane);
        }
        let shared = self.entry(disk).shared;
        if shared != NIL {
            self.shared.value_at_mut(shared).released[lane.index()] = number;
            self.arm_shared(now, shared);
        }
        slot
    }

    /// Charges a request to the limits of its disk.
    fn charge(&mut self, now: Nanos, disk: u32, charge: &Charge) {
        let Some(of_disk) = self.disks.get_mut(disk as usize).and_then(Option::as_mut) else {
            return;
        };
        if let Some(account) = &mut of_disk.own {
            account.charge(now, charge, SLACK);
        }
        if of_disk.shared != NIL {
            let shared = self.shared.value_at_mut(of_disk.shared);
            shared.account.charge(now, charge, SLACK);
        }
    }

    /// Returns whether a disk's own limit lets the next request of a lane go.
    fn is_own_due(&self, now: Nanos, disk: u32, lane: Lane) -> bool {
        self.own_due(disk, lane) <= now
    }

    /// Earliest time at which a disk's own limit lets the next request of a lane go.
    fn own_due(&self, disk: u32, lane: Lane) -> Nanos {
        let own = self.disk(disk).and_then(|of_disk| of_disk.own.as_ref());
        own.map_or(Nanos::ZERO, |account| account.due(lane))
    }

    /// Returns whether the first request of a lane of a disk may go now. Otherwise a timer is set,
    /// or the disk stands in the turns of the limit that it shares.
    fn may_go(&mut self, now: Nanos, disk: u32, lane: Lane) -> bool {
        let due = self.own_due(disk, lane);
        let of_disk = self.entry(disk);
        let (shared, queue) = (of_disk.shared, of_disk.queues[lane.index()]);
        if due > now {
            let at = (due, queue.released);
            self.own_timers.set(disk, lane, at);
            return false;
        }
        if shared == NIL {
            return true;
        }
        if self.gives_way(disk, lane) {
            self.own_timers.remove(disk, lane);
            return false;
        }
        let of_shared = self.shared.value_at_mut(shared);
        if of_shared.lets_pass(now, lane) {
            return true;
        }
        of_shared.turns[lane.index()].push_back(disk);
        self.entry(disk).queues[lane.index()].in_turn = true;
        self.own_timers.remove(disk, lane);
        self.arm_shared(now, shared);
        false
    }

    /// Returns whether a lane of a disk waits for the other one, which was served longer ago: both
    /// may have one rate of the disk, and who is first in the turns of the shared limit would use
    /// it up each time.
    fn gives_way(&self, disk: u32, lane: Lane) -> bool {
        self.disk(disk).is_some_and(|of_disk| {
            let [this, other] = [lane.index(), 1 - lane.index()].map(|at| &of_disk.queues[at]);
            of_disk.own.is_some() && !other.is_empty() && other.released < this.released
        })
    }

    /// Sets the timer of the next request of a lane of a disk, unless it has its turn already.
    fn arm(&mut self, now: Nanos, disk: u32, lane: Lane) {
        let queue = self.entry(disk).queues[lane.index()];
        if queue.is_empty() {
            self.own_timers.remove(disk, lane);
        } else if !queue.in_turn && self.may_go(now, disk, lane) {
            // It goes when timers are handled next.
            self.own_timers.set(disk, lane, (now, queue.released));
        }
    }

    /// Sets the timers of a shared limit by those that wait for it.
    fn arm_shared(&mut self, now: Nanos, shared: u32) {
        let of_shared = self.shared.value_at(shared);
        for lane in Lane::ALL {
            if of_shared.turns[lane.index()].is_empty() {
                self.shared_timers.remove(shared, lane);
                continue;
            }
            let due = of_shared.account.due(lane).max(now);
            let at = (due, of_shared.released[lane.index()]);
            self.shared_timers.set(shared, lane, at);
        }
    }

    /// Sets all timers of a disk anew, after its limits or its queues have changed.
    fn rearm(&mut self, now: Nanos, disk: u32) {
        let Some(of_disk) = self.disks.get_mut(disk as usize).and_then(Option::as_mut) else {
            return;
        };
        let shared = of_disk.shared;
        let mut left = false;
        for (at, queue) in of_disk.queues.iter_mut().enumerate() {
            // An empty queue has no turn any more; one whose own limit was lowered loses it when it
            // comes.
            if queue.is_empty() && core::mem::take(&mut queue.in_turn) {
                let turns = &mut self.shared.value_at_mut(shared).turns[at];
                turns.retain(|&other| other != disk);
                left = true;
            }
        }
        if left {
            self.arm_shared(now, shared);
        }
        for lane in Lane::ALL {
            self.arm(now, disk, lane);
        }
    }

    fn disk(&self, disk: u32) -> Option<&LimitedDisk> {
        self.disks.get(disk as usize)?.as_deref()
    }

    /// Returns the entry of a disk, which is made if there is none.
    fn entry(&mut self, disk: u32) -> &mut LimitedDisk {
        let at = disk as usize;
        if self.disks.len() <= at {
            self.disks.resize_with(at + 1, || None);
        }
        if self.disks[at].is_none() {
            self.own_timers.make_room(at + 1);
        }
        self.disks[at].get_or_insert_with(|| {
            Box::new(LimitedDisk {
                own: None,
                shared: NIL,
                queues: [Queue::EMPTY; LANES],
            })
        })
    }
}

/// Returns what a waiting request is charged.
fn charge_of(reqs: &Requests, slot: u32, device: &DeviceSpec) -> Charge {
    let hot = &reqs.hot[slot as usize];
    debug_assert_eq!(hot.state, state::LIMITED, "slot {slot} waits for no limit");
    charge(hot.op, hot.len, reqs.cold[slot as usize].arrived, device)
}

/// Returns what a request of `len` bytes that arrived at `arrived` is charged.
pub(super) fn charge(op: Op, len: u32, arrived: Nanos, device: &DeviceSpec) -> Charge {
    Charge {
        lane: op.lane(),
        arrived,
        first: FirstServed {
            ops: 1,
            bytes: u64::from(len),
        },
        bytes: u64::from(moved_by(op, len, device)),
    }
}
