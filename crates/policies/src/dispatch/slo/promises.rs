//! Promises in the order of their deadlines: floors and latency bounds in one queue.
//!
//! ```text
//!   a VM's head waits ---> tag <= now ? --yes--> due, by deadline = tag + span
//!                              |                    ^
//!                              no                   | time reaches the tag
//!                              v                    |
//!                           coming, by tag ---------+
//! ```
//!
//! - **Tag.** A VM with a rate (reservation, target, deadline transfer) has one tag: when its next
//!   request is due. A request served by promise moves the tag on by its own cost; one served by
//!   share does not (mClock's rule). A VM that wakes begins with the tag that is due next, so idle
//!   time earns nothing.
//! - **Transfers.** A VM with a reservation in IOPS and a deadline transfer has a tag of each; the
//!   earlier one counts. So the reservation is served in full, and its bytes are the transfer's,
//!   too.
//! - **Span.** The time after the tag by which the request is to go: one spacing of the rate, or
//!   the latency bound, whichever is shorter. The bound counts from the arrival where that is
//!   later than the tag: a request within the rate is due its latency after it came, and one that
//!   came too soon is due its latency after the rate allows it.
//! - **Rest of a request.** A request that goes in parts is charged whole with its first one. The
//!   rest keeps the deadline of the first part, because the promise is for the whole request. Not
//!   so for a rate in bytes alone, by which each part is charged and due.
//! - **Early.** Requests of a VM with a latency bound and a rate come in bursts. One whose tag lies
//!   ahead by at most [`EARLY_SPACINGS`] spacings goes after all that is due and before shares.
//!   Over some time the VM has no more than its rate, and no promise waits for it.
//! - **Envelope.** A bound that `expects` gives a rate or a burst has tags of its own. A request
//!   inside the envelope is due its latency after it came, and one outside has the floor or the
//!   share only, and does not go early ([`envelope`]).
//! - **A latency bound without a rate** has no envelope, and admission does not count it: best
//!   effort. Its VM's requests are due their latency after they came for as long as the VM is not
//!   ahead of its share. They have a queue of their own, which comes after all that is promised and
//!   is no sign of overload ([`by_share`]).
//! - **Debts end.** Tags count on a clock of their own, which lies behind the driver's by the debt
//!   that was forgiven: where even the latest tag is served more than [`CATCH_UP`] late, the rest
//!   of the delay is forgiven to all VMs. So rates that exceed the device are cut in proportion.
//! - **Overload.** Deadline order collapses as a whole, so promises step down one by one: see
//!   [`overload`](super::overload).

mod by_share;
mod envelope;
#[cfg(test)]
mod tests;

use super::super::floor::Floor;
use super::at_disk::{DuePromise, WatchedFor};
use super::overload::{Part, Parts};
use crate::tournament::Tournament;
use envelope::Envelope;
use tidegate_base::objective::{Objective, Rate};
use tidegate_base::pace::{FirstServed, RatePacer};
use tidegate_base::request::ReqId;
use tidegate_base::time::Nanos;

/// Longest debt of a rate that is made good, so that an outage does not become a debt without end.
const CATCH_UP: Nanos = Nanos::SECOND;
/// Request size in bytes by which the spacing of a rate in bytes is computed.
const SPACING_BYTES: u32 = 16 << 10;
/// Spacings of its rate by which a VM with a latency bound may be early, and the least time: of
/// Poisson arrivals at 80 % of the rate, 1 % are earlier.
const EARLY_SPACINGS: u64 = 10;
const EARLY_MIN: Nanos = Nanos::from_millis(10);
/// Value of a span or latency that does not exist.
const NEVER: Nanos = Nanos::MAX;

/// Returns whether an objective has a part that goes before shares.
pub(crate) fn is_promised(objective: &Objective) -> bool {
    let rates = [objective.reservation, objective.target];
    objective.latency.is_some() || rates.iter().any(|rate| !rate.is_none())
}

/// Queue in which a VM stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Place {
    None,
    /// Among those whose tag lies ahead; where the VM may go early, perhaps among those that may,
    /// too.
    Coming,
    Due,
    /// Due by a latency bound without a rate.
    DueByShare,
}

/// Rest of a request whose first part went by promise.
#[derive(Clone, Copy, Debug)]
struct Rest {
    unit: ReqId,
    /// Deadline of the first part.
    deadline: Nanos,
    /// The first part went early: the VM's tag lay ahead.
    early: bool,
}

/// Promise to one VM.
#[derive(Clone, Debug)]
struct Promise {
    /// Tags of the VM's rate, on the clock of tags.
    pacer: RatePacer,
    /// Time by which the VM's last request is late as a floor is judged, in the driver's time: all
    /// requests count, served by promise or by share.
    judged: RatePacer,
    /// Time after its tag by which a request is to go; [`NEVER`]: nothing is promised.
    span: Nanos,
    /// Latency bound; [`NEVER`]: none.
    latency: Nanos,
    /// Envelope of the latency bound, if it is not the rate with a burst of one request.
    envelope: Option<Box<Envelope>>,
    /// Time before its tag at which a request may go ahead of shares; 0 without a latency bound.
    early: Nanos,
    /// The rate is a target's.
    target: bool,
    /// The VM's limit leaves it little more than its rate.
    near_limit: bool,
    /// Bytes a second that the VM's deadline transfer needs; 0: none runs.
    transfer: u64,
    /// Parts that have stepped down.
    down: Parts,
    /// Queue in which the VM stands.
    place: Place,
    /// Request that has begun by promise and goes on; perhaps one that is over.
    rest: Option<Rest>,
}

impl Promise {
    const NONE: Promise = Promise {
        pacer: RatePacer::NONE,
        judged: RatePacer::NONE,
        span: NEVER,
        latency: NEVER,
        envelope: None,
        early: Nanos::ZERO,
        target: false,
        near_limit: false,
        transfer: 0,
        down: Parts::NONE,
        place: Place::None,
        rest: None,
    };

    /// Returns whether requests within a rate, of a floor or an envelope, are promised.
    #[inline]
    fn has_rate(&self) -> bool {
        self.pacer.is_set() || self.envelope.is_some()
    }

    /// Returns whether a deadline transfer runs that has not stepped down.
    #[inline]
    fn has_transfer(&self) -> bool {
        self.transfer > 0 && !self.down.has(Part::Transfer)
    }
}

/// Has the time until `until`, in which a VM was idle, earn nothing. A transfer is to move all its
/// bytes: what it is behind is made good, up to [`CATCH_UP`].
fn forget_idle(pacer: &mut RatePacer, until: Nanos, has_transfer: bool) {
    if has_transfer {
        pacer.ops.forget_before(until);
        pacer.bytes.forget_before(until - CATCH_UP);
    } else {
        pacer.forget_before(until);
    }
}

/// Returns whether a limit leaves less than one and a half times a rate, in requests or in bytes.
///
/// Such a VM cannot make up within a second for I/Os that a disk passes over: on `hdd-7200-1tb`, of
/// 1 MB/s beside a limit of 1.25 MB/s three seconds in 60 were missed, and none beside 1.5 MB/s.
fn is_near_limit(rate: &Rate, limit: &Rate) -> bool {
    let is_near = |limit: u64, rate: u64| limit < rate.saturating_add(rate / 2);
    let by_ops = (limit.ops.zip(rate.ops))
        .is_some_and(|(limit, rate)| limit.norm == rate.norm && is_near(limit.per_s, rate.per_s));
    let by_bytes =
        (limit.bytes_per_s.zip(rate.bytes_per_s)).is_some_and(|(limit, rate)| is_near(limit, rate));
    by_ops || by_bytes
}

/// Facts about a VM's head that decide its place.
#[derive(Clone, Copy, Debug)]
pub(super) struct Head {
    /// Arrival of the head.
    pub arrived: Nanos,
    /// Length of the head in bytes.
    pub len: u32,
    /// The VM is not ahead of its share.
    pub within_share: bool,
}

/// Promises to all VMs, in the order of their deadlines.
pub(super) struct Promises {
    vms: Vec<Promise>,
    /// VMs whose tag lies ahead, by their tag in the driver's time.
    coming: Tournament,
    /// VMs whose tag has come, by the deadline of their head.
    due: Tournament,
    /// VMs whose tag lies ahead by no more than they may be early, by the arrival of their head
    /// plus their latency bound.
    early: Tournament,
    /// VMs with a latency bound and no rate, by the deadline of their head.
    due_by_share: Tournament,
    /// Time by which the clock of tags lies behind the driver's; never shrinks.
    forgiven: Nanos,
    /// Latest tag that was served, on the clock of tags.
    front: Nanos,
}

impl Promises {
    /// Creates an empty queue with room for `vms` VMs.
    pub(super) fn with_capacity(vms: usize) -> Promises {
        Promises {
            vms: vec![Promise::NONE; vms],
            coming: Tournament::with_capacity(vms),
            due: Tournament::with_capacity(vms),
            early: Tournament::with_capacity(vms),
            due_by_share: Tournament::with_capacity(vms),
            forgiven: Nanos::ZERO,
            front: Nanos::ZERO,
        }
    }

    /// Returns the bytes of memory that one more VM takes, at the present number of VMs.
    pub(super) fn bytes_per_vm(&self) -> usize {
        let vms = self.vms.len();
        size_of::<Promise>() + (4 * Tournament::bytes(vms)).div_ceil(vms.max(1))
    }

    /// Returns whether anything is promised to a VM.
    #[inline]
    pub(super) fn has(&self, vm: usize) -> bool {
        self.vms[vm].span != NEVER
    }

    /// Returns whether a VM's bound on latency is scheduled by, so that the arrival of its head
    /// matters.
    #[inline]
    pub(super) fn has_latency(&self, vm: usize) -> bool {
        self.vms[vm].latency != NEVER
    }

    /// Returns the kind of a VM's promise that is due.
    pub(super) fn due_promise(&self, vm: usize) -> DuePromise {
        if self.has_latency(vm) {
            DuePromise::Bound
        } else {
            DuePromise::Floor
        }
    }

    /// Returns whether a VM has a target.
    #[inline]
    pub(super) fn has_target(&self, vm: usize) -> bool {
        self.vms[vm].target
    }

    /// Returns whether a VM has a deadline transfer that has not stepped down.
    #[inline]
    pub(super) fn has_transfer(&self, vm: usize) -> bool {
        self.vms[vm].has_transfer()
    }

    /// Returns whether a VM has a deadline transfer that is behind its rate.
    pub(super) fn is_transfer_behind(&self, now: Nanos, vm: usize) -> bool {
        let tag = self.vms[vm].pacer.bytes.due();
        self.has_transfer(vm) && tag + self.forgiven <= now
    }

    /// Returns whether a VM has a rate, of a floor or an envelope: requests beyond it are not
    /// promised anything.
    #[inline]
    pub(super) fn has_rate(&self, vm: usize) -> bool {
        self.vms[vm].has_rate()
    }

    /// Returns whether a VM has a floor: a reservation, a target or a deadline transfer.
    #[inline]
    pub(super) fn has_floor(&self, vm: usize) -> bool {
        self.vms[vm].pacer.is_set()
    }

    /// Returns whether the place of a VM depends on its head: by a bound on latency, or because a
    /// request may have begun by promise and go on.
    #[inline]
    pub(super) fn needs_head(&self, vm: usize) -> bool {
        let promise = &self.vms[vm];
        promise.latency != NEVER || promise.rest.is_some()
    }

    /// Records that the VM's request `unit` has begun by promise and goes on, with the deadline of
    /// its first part; `early`: that one went early.
    pub(super) fn begin_rest(&mut self, vm: usize, unit: ReqId, deadline: Nanos, early: bool) {
        let promise = &mut self.vms[vm];
        // By a rate in bytes alone each part is charged, and due by its own tag.
        if promise.pacer.ops.is_set() || promise.latency != NEVER {
            promise.rest = Some(Rest {
                unit,
                deadline,
                early,
            });
        }
    }

    /// Forgets the request of a VM that has begun by promise, unless it is the VM's head.
    pub(super) fn end_rest(&mut self, vm: usize, head: ReqId) {
        let rest = &mut self.vms[vm].rest;
        *rest = rest.filter(|rest| rest.unit == head);
    }

    /// Forgets a VM's promise; another one may come into its slot.
    pub(super) fn clear(&mut self, vm: usize) {
        self.sleep(vm);
        self.vms[vm] = Promise::NONE;
    }

    /// Sets the rate that a VM's deadline transfer needs, in bytes a second; 0: none runs. To be
    /// followed by [`Promises::set`].
    pub(super) fn set_transfer(&mut self, vm: usize, bytes_per_s: u64) {
        self.vms[vm].transfer = bytes_per_s.min(Rate::MAX);
    }

    /// Returns whether a part of a VM's objective is promised and has not stepped down.
    pub(super) fn can_step_down(&self, vm: usize, objective: &Objective, part: Part) -> bool {
        let promise = &self.vms[vm];
        let is_promised = match part {
            Part::Transfer => promise.transfer > 0,
            Part::Target => !objective.target.is_none(),
            // Without a rate the bound is best effort, and no promise gives way to it.
            Part::Latency => objective.latency.is_some() && promise.has_rate(),
        };
        is_promised && !promise.down.has(part)
    }

    /// Makes a part of a VM's objective step down, or come back. To be followed by
    /// [`Promises::set`].
    pub(super) fn set_down(&mut self, vm: usize, part: Part, is_down: bool) {
        self.vms[vm].down.set(part, is_down);
    }

    /// Takes over a VM's objective, as far as its parts have not stepped down.
    pub(super) fn set(&mut self, now: Nanos, vm: usize, objective: &Objective) {
        let promise = &mut self.vms[vm];
        let mut rate = Floor::from_objective(objective, !promise.down.has(Part::Target)).rate;
        if promise.has_transfer() {
            rate.bytes_per_s = rate.bytes_per_s.max(Some(promise.transfer));
        }
        promise.target = !objective.target.is_none() && !promise.down.has(Part::Target);
        promise.near_limit = is_near_limit(&rate, &objective.limit.total);
        // The pacer's tags are on the clock of tags, those of `judged` in the driver's time.
        promise.pacer.set_rate(&rate, now - self.forgiven);
        promise.judged.set_rate(&rate, now);
        promise.latency = match objective.latency {
            Some(latency) if !promise.down.has(Part::Latency) => latency,
            _ => NEVER,
        };
        let spacing = if rate.is_none() {
            NEVER
        } else {
            promise.pacer.period(SPACING_BYTES)
        };
        promise.span = spacing.min(promise.latency);
        let envelope = promise.envelope.take();
        if promise.latency != NEVER {
            promise.envelope = Envelope::update(envelope, now, objective, &promise.pacer);
        }
        promise.early = match (promise.latency, spacing) {
            // Early service needs both: a bound that makes it useful and a rate that limits it. An
            // envelope says itself how many requests may come at once.
            (NEVER, _) | (_, NEVER) => Nanos::ZERO,
            _ if promise.envelope.is_some() => Nanos::ZERO,
            _ => Nanos(spacing.0.saturating_mul(EARLY_SPACINGS)).max(EARLY_MIN),
        };
        // The VM may have lost its bound while it stood in the queue of early ones.
        if promise.early == Nanos::ZERO {
            self.early.remove(vm);
        }
        let promise = &mut self.vms[vm];
        let has_rate_now = promise.place == Place::DueByShare && promise.has_rate();
        if promise.span == NEVER || has_rate_now {
            self.sleep(vm);
        }
    }

    /// Sets the tag of a VM whose head came after nothing waited: idle time earns nothing.
    pub(super) fn wake(&mut self, now: Nanos, vm: usize) {
        let next = self.due.peek();
        // Where others are behind, a VM that wakes begins as far behind as the next of them.
        let due = next.and_then(|(_, vm)| self.vms[vm].pacer.any_due());
        let stand_at = due.unwrap_or(Nanos::MAX).min(now - self.forgiven);
        let promise = &mut self.vms[vm];
        let has_transfer = promise.has_transfer();
        forget_idle(&mut promise.pacer, stand_at, has_transfer);
    }

    /// Takes a VM out of the queues once nothing of it waits that may go.
    #[inline(always)]
    pub(super) fn sleep(&mut self, vm: usize) {
        let place = core::mem::replace(&mut self.vms[vm].place, Place::None);
        self.leave(vm, place);
    }

    /// Takes a VM out of the queues of a place.
    #[inline(always)]
    fn leave(&mut self, vm: usize, place: Place) {
        match place {
            Place::None => {}
            Place::Due => self.due.take_out(vm),
            Place::DueByShare => self.due_by_share.take_out(vm),
            Place::Coming => {
                self.coming.take_out(vm);
                if self.vms[vm].early > Nanos::ZERO {
                    self.early.remove(vm);
                }
            }
        }
    }

    /// Puts a VM with a promise, whose head waits, where its tag and its head's deadline belong.
    pub(super) fn place(&mut self, now: Nanos, vm: usize, head: Head) {
        let promise = &mut self.vms[vm];
        if promise.envelope.is_some() {
            return self.place_by_envelope(now, vm, head);
        }
        let Some(tag) = promise.pacer.any_due() else {
            return self.place_by_share(vm, head);
        };
        // A tag beyond the queue's largest key is cut to it: otherwise the queue would report it
        // due and `place` would put it back, for ever.
        let tag = (tag + self.forgiven).min(Nanos(Tournament::LARGEST));
        let is_due = tag <= now || promise.rest.is_some_and(|rest| !rest.early);
        let place = if is_due { Place::Due } else { Place::Coming };
        let before = core::mem::replace(&mut promise.place, place);
        if place == Place::Coming {
            if before == Place::Due {
                self.due.take_out(vm);
            }
            return self.place_coming(now, vm, tag, head);
        }
        let mut deadline = tag + promise.span;
        // The span is the bound's, which counts from the arrival where that is later.
        if promise.latency == promise.span {
            deadline = tag.max(head.arrived) + promise.span;
        }
        if let Some(rest) = promise.rest {
            deadline = rest.deadline;
        }
        self.due.set(vm, deadline.0);
        if before == Place::Coming {
            self.leave(vm, before);
        }
    }

    /// Puts a VM whose tag lies ahead where it belongs.
    fn place_coming(&mut self, now: Nanos, vm: usize, tag: Nanos, head: Head) {
        let promise = &self.vms[vm];
        if promise.early == Nanos::ZERO {
            self.coming.set(vm, tag.0);
            return;
        }
        let may_go_from = match promise.rest {
            Some(_) => now,
            None => tag - promise.early,
        };
        if may_go_from <= now {
            self.early.set(vm, (head.arrived + promise.latency).0);
            self.coming.set(vm, tag.0);
        } else {
            self.early.remove(vm);
            // Looked at again once it may go early, not only at its tag.
            self.coming.set(vm, may_go_from.0);
        }
    }

    /// Returns a VM whose head may go ahead of shares although its tag lies ahead, and the time by
    /// which its latency bound has it answered.
    #[inline]
    pub(super) fn first_early(&self) -> Option<(Nanos, usize)> {
        let (deadline, vm) = self.early.peek()?;
        Some((Nanos(deadline), vm))
    }

    /// Returns the time after the tag of a VM's request by which it is to go, and the VM's latency
    /// bound; [`Nanos::MAX`]: none.
    #[inline]
    pub(super) fn span_and_latency(&self, vm: usize) -> (Nanos, Nanos) {
        let Promise { span, latency, .. } = self.vms[vm];
        (span, latency)
    }

    /// Returns a VM whose tag has come since it was placed, for it to be placed anew.
    #[inline]
    pub(super) fn poll_coming(&self, now: Nanos) -> Option<usize> {
        let (tag, vm) = self.coming.peek()?;
        (tag <= now.0).then_some(vm)
    }

    /// Returns the time at which the next VM is to be placed anew; [`Nanos::MAX`]: none is.
    pub(super) fn next_coming(&self) -> Nanos {
        self.coming.peek().map_or(Nanos::MAX, |(tag, _)| Nanos(tag))
    }

    /// Returns the earliest deadline of a promise with a rate, and the VM whose head has it.
    #[inline]
    pub(super) fn first(&self) -> Option<(Nanos, usize)> {
        let (deadline, vm) = self.due.peek()?;
        Some((Nanos(deadline), vm))
    }

    /// Returns the promise for which an I/O of a VM that goes now is watched at a disk that seeks;
    /// `None`: it is outside of its envelope, and there is no floor. `inside`: requests of the VM
    /// in the scheduler or at the device; `late_max`: time from which an I/O of a deadline transfer
    /// is late.
    ///
    /// An I/O of a floor is late after its arrival or the due time of the request before, and one
    /// spacing more (docs/promises.md, "Kept and missed"), short of the device's blocking time. A
    /// VM that is served beyond its rate is far from late.
    pub(super) fn watched_for(
        &mut self,
        (now, vm, inside): (Nanos, usize, u32),
        arrived: Nanos,
        (bytes, first): (u64, FirstServed),
        late_max: Nanos,
    ) -> Option<WatchedFor> {
        let bound_from = self.bound_from(now, vm, arrived);
        let promise = &mut self.vms[vm];
        let has_transfer = promise.has_transfer();
        forget_idle(&mut promise.judged, arrived, has_transfer);
        if promise.near_limit {
            // Earlier service beyond the rate counts for no longer than the VM's requests inside
            // take at the rate.
            let each = promise
                .judged
                .period(u32::try_from(bytes).unwrap_or(u32::MAX));
            let latest = arrived + Nanos(each.0.saturating_mul(inside.into()));
            promise.judged.ops.forget_beyond(latest);
            promise.judged.bytes.forget_beyond(latest);
        }
        promise.judged.spend(bytes, first);
        let late = match promise.judged.any_due() {
            // The last I/Os of a transfer count as much as the first, so none may be left with the
            // disk because the transfer is ahead of its rate.
            Some(due) if has_transfer => Some(due.min(late_max)),
            due => due,
        };
        match bound_from {
            Some(from) if promise.latency != NEVER && promise.has_rate() => {
                Some(WatchedFor::Bound(from + promise.latency))
            }
            Some(_) if promise.latency != NEVER => Some(WatchedFor::BestEffort),
            _ => late.map(WatchedFor::Floor),
        }
    }

    /// Charges an I/O that was served by promise.
    pub(super) fn spend(&mut self, now: Nanos, vm: usize, bytes: u64, first: FirstServed) {
        let promise = &self.vms[vm];
        let for_floor = match promise.envelope {
            Some(_) => self.spend_envelope(now, vm, bytes, first),
            None => promise.pacer.is_set(),
        };
        if !for_floor {
            return;
        }
        let promise = &mut self.vms[vm];
        // A VM that its own limit kept behind the others is made good for no more than they are.
        let spacing = promise.pacer.period(SPACING_BYTES);
        promise.pacer.forget_before(self.front - CATCH_UP - spacing);
        let tag = promise.pacer.any_due().unwrap_or(self.front);
        // The rest of a request goes by the tag of its first part.
        let is_rest = first.ops == 0 && promise.rest.is_some();
        if tag > self.front && !is_rest {
            self.front = tag;
            // Subtraction of `Nanos` saturates, so nothing is forgiven below the longest debt.
            self.forgiven += (now - self.forgiven - tag) - CATCH_UP;
        }
        // An I/O that goes because of a floor in IOPS alone does not count against the transfer,
        // nor does one by share: its controller asks for less once fewer bytes are left.
        let RatePacer {
            ops, bytes: moved, ..
        } = &promise.pacer;
        let by_floor = promise.has_transfer() && ops.is_set() && ops.due() < moved.due();
        promise.pacer.spend(if by_floor { 0 } else { bytes }, first);
    }
}
