//! Picks: which I/O goes next, and whether any does.

use super::at_disk::DuePromise;
use super::stay::Stay;
use super::{PickReason, Slo};
use tidegate_base::request::{Op, ReqId};
use tidegate_base::time::Nanos;
use tidegate_core::roles::Pick;
use tidegate_core::view::View;

/// Time before the earliest deadline, in positionings, within which a stream is not stayed with.
const NEAR_POSITIONINGS: u64 = 4;

impl Slo {
    /// Returns the head that continues the last I/O, if the device is to stay with its stream.
    #[cold]
    fn head_to_stay_with(&self, view: &View, earliest: Option<(Nanos, usize)>) -> Option<ReqId> {
        let spec = &view.device().spec;
        let near = Nanos(NEAR_POSITIONINGS * spec.positioning.0);
        // A target may go in batches; a floor or a latency bound waits for no stream.
        let is_near = |(deadline, slot): (Nanos, usize)| {
            if self.promises.has_target(slot) {
                deadline + near < view.now()
            } else {
                deadline < view.now() + near
            }
        };
        if earliest.is_some_and(is_near) {
            return None;
        }
        let vm = view.vm_at(self.stay.vm);
        let head = view.head(vm).filter(|_| view.is_live(vm))?;
        let continues = view.queued(head).unit().addr == view.device().last_addr;
        (continues && !view.is_background(vm)).then_some(head)
    }

    /// Returns the time until which the VM whose turn it is by share waits, if at all: see
    /// [`turns`](super::turns).
    fn held_back_until(&mut self, view: &View, slot: usize) -> Option<Nanos> {
        let costs = self.turn_costs(view);
        let (promises, active) = (&self.promises, &self.active);
        self.turns.held_back_until(
            view,
            &self.shares,
            slot,
            costs,
            |absent| promises.is_transfer_behind(view.now(), absent),
            |favoured| active[favoured],
        )
    }

    /// Returns a pick of a background I/O if one is to go now, else the time at which the next may.
    #[cold]
    fn pick_background(&mut self, view: &View, promised: bool) -> Result<Pick, Nanos> {
        let (now, device) = (view.now(), view.device());
        self.background.poll_window(now);
        if self.overload.is_late() {
            self.background.promise_late();
        }
        let least = self.overload.is_background_down();
        let vms_in_flight = device.in_flight - self.background.in_flight();
        let vms_wait = self.shares.any_waits();
        let at = if !vms_wait {
            self.background.allowed_at(now, vms_in_flight, least)
        } else if promised {
            // A promise that is due goes before all background I/Os but one that has waited for too
            // long.
            self.background.overdue_at()
        } else {
            self.background.due_at(least)
        };
        let at = match &self.device_time {
            Some(time) => {
                let held = time.used_up_until(now).map_or(at, |until| at.max(until));
                held.min(at.max(self.background.overdue_at()))
            }
            None => at,
        };
        let Some(slot) = self.shares.first_background().filter(|_| at <= now) else {
            return Err(at.min(self.background.window_end()));
        };
        let max = if vms_wait || vms_in_flight > 0 || self.is_bounded() {
            self.background_io_size
        } else {
            u32::MAX
        };
        Ok(Self::start(view, slot, max))
    }

    /// Returns the earliest deadline of a latency bound without a rate, and its VM, while the part
    /// of the device that the host has leaves room for what goes by share.
    #[inline]
    fn first_by_share(&self, now: Nanos) -> Option<(Nanos, usize)> {
        let first = self.promises.first_by_share();
        first.filter(|_| !self.is_share_held(now))
    }

    /// Returns the time until which the VM whose turn it is by share waits, because its head is a
    /// write that comes too early for the pace.
    #[inline(always)]
    fn write_held_until(&mut self, view: &View, slot: usize) -> Option<Nanos> {
        let until = self.write_pace.held_until(view.now())?;
        let head = view.head(view.vm_at(slot))?;
        (view.queued(head).unit().op == Op::Write).then_some(until)
    }

    /// Picks where I/Os may be held back: on a disk that seeks, while a background process waits,
    /// or where other hosts share the device. `earliest`: the earliest deadline that is due, and
    /// its VM.
    #[cold]
    #[inline(never)]
    pub(super) fn pick_with_care(&mut self, view: &View, earliest: Option<(Nanos, usize)>) -> Pick {
        let now = view.now();
        // A promised I/O is overdue at the disk: even promised ones would be served before it.
        let due = earliest.map_or(DuePromise::None, |(_, slot)| {
            self.promises.due_promise(slot)
        });
        if let Some(until) = self.at_disk.held_until(now, due) {
            return Pick::Idle(until);
        }
        // Only promises that are due go past the hold.
        if due != DuePromise::None && self.at_disk.held_until(now, DuePromise::None).is_some() {
            return self.pick_next(view, earliest, Nanos::MAX);
        }
        let by_share = self.first_by_share(now);
        let bounded = [earliest, by_share].into_iter().flatten().min();
        let mut part_at = Nanos::MAX;
        if self.background_waiting > 0 {
            match self.pick_background(view, bounded.is_some()) {
                Ok(pick) => return pick,
                Err(at) => part_at = at,
            }
        }
        let early = self.promises.first_early();
        if view.device().seeks
            && !self.is_share_held(now)
            && let (None, None, Some(slot)) = (bounded, early, self.shares.first(now))
            && let Some(until) = self.held_back_until(view, slot)
        {
            return Pick::Idle(until.min(part_at));
        }
        if self.stay.budget_left > 0
            && early.is_none()
            && let Some(head) = self.head_to_stay_with(view, bounded)
        {
            let promised = bounded.filter(|&(_, slot)| slot == self.stay.vm);
            self.last_pick = match promised {
                Some((deadline, _)) => {
                    (self.promised_deadline, self.is_early) = (deadline, false);
                    PickReason::Promise
                }
                None => PickReason::Share,
            };
            return Pick::Start {
                head,
                max: u32::MAX,
                held: Nanos::ZERO,
            };
        }
        if (bounded, early) == (None, None)
            && self.shares.any_waits()
            && let Some(until) = self.share_held_until(now)
        {
            return Pick::Idle(until.min(part_at));
        }
        self.pick_next(view, earliest, part_at)
    }

    /// Picks what is promised, or else the next by share. `earliest`: the earliest deadline that is
    /// due, and its VM; `part_at`: time at which a background I/O may go.
    #[inline(always)]
    pub(super) fn pick_next(
        &mut self,
        view: &View,
        earliest: Option<(Nanos, usize)>,
        part_at: Nanos,
    ) -> Pick {
        let slot = if let Some((deadline, slot)) = earliest {
            (self.promised_deadline, self.is_early) = (deadline, false);
            self.last_pick = PickReason::Promise;
            slot
        } else if let Some((deadline, slot)) = self.promises.first_early() {
            (self.promised_deadline, self.is_early) = (deadline, true);
            self.last_pick = PickReason::Promise;
            slot
        } else if let Some((deadline, slot)) = self.first_by_share(view.now()) {
            (self.promised_deadline, self.is_early) = (deadline, false);
            self.last_pick = PickReason::Promise;
            slot
        } else if let Some(slot) = self.shares.first(view.now()) {
            if let Some(until) = self.write_held_until(view, slot) {
                return Pick::Idle(until.min(part_at));
            }
            self.last_pick = PickReason::Share;
            slot
        } else {
            return Pick::Idle(part_at);
        };
        if slot != self.stay.vm {
            self.stay = Stay::NONE;
        }
        Self::start(view, slot, u32::MAX)
    }

    #[inline(always)]
    fn start(view: &View, slot: usize, max: u32) -> Pick {
        let head = view
            .head(view.vm_at(slot))
            .expect("a VM in a queue has a head");
        Pick::Start {
            head,
            max,
            held: Nanos::ZERO,
        }
    }
}
