//! Envelopes that `expects` gives to latency bounds: a rate other than the floor's, or a burst.
//!
//! ```text
//!   tag(i)  = max(arrival(i), tag(i-1) + 1/rate)
//!   inside the envelope from max(arrival, tag - (burst - 1)/rate) on: due its latency after that
//! ```
//!
//! Until it is inside its envelope, a request has no bound: it goes by the VM's floor, if it has
//! one, or by its share. A request that goes before the envelope allows it does not use the
//! envelope up. So the envelope is that of the [attainment](tidegate_core::attainment).
//!
//! A VM that has a floor, too, is due by whichever comes first. An I/O that goes by promise is
//! charged to the faster of both rates, and to the slower one where that was due: together the VM
//! is promised the faster rate, as admission counts it.

use super::{Head, Place, Promises, SPACING_BYTES};
use crate::tournament::Tournament;
use tidegate_base::objective::Objective;
use tidegate_base::pace::{FirstServed, RatePacer};
use tidegate_base::time::Nanos;

/// Envelope of a VM's latency bound.
#[derive(Clone, Debug)]
pub(super) struct Envelope {
    /// Tags of the rate, in the driver's time.
    pacer: RatePacer,
    /// Requests beyond the first that may arrive at once.
    at_once: u32,
    /// The floor of the VM is slower than the envelope, or it has none.
    is_faster: bool,
    /// Time from which the envelope allows the VM's head, as the VM was placed last.
    inside_from: Nanos,
    /// The head's deadline is that of its bound, not that of the floor.
    is_by_bound: bool,
}

impl Envelope {
    /// Takes over the envelope of an objective from `before`; `None` if it has no latency bound, or
    /// if its target or reservation alone is the envelope.
    pub(super) fn update(
        before: Option<Box<Envelope>>,
        now: Nanos,
        objective: &Objective,
        floor: &RatePacer,
    ) -> Option<Box<Envelope>> {
        let expects = &objective.expects;
        let is_own = expects.iops.is_some() || expects.burst.is_some();
        let given = objective.envelope().filter(|_| is_own)?;
        let mut envelope = before.unwrap_or_else(|| {
            Box::new(Envelope {
                pacer: RatePacer::NONE,
                at_once: 0,
                is_faster: true,
                inside_from: Nanos::MAX,
                is_by_bound: false,
            })
        });
        envelope.pacer.set_rate(&given.rate, now);
        envelope.at_once = given.burst - 1;
        let spacing = envelope.pacer.period(SPACING_BYTES);
        envelope.is_faster = !floor.is_set() || spacing < floor.period(SPACING_BYTES);
        Some(envelope)
    }

    /// Returns the time from which the envelope allows a head.
    fn allows_from(&mut self, head: Head) -> Nanos {
        // Idle time earns nothing but the burst.
        self.pacer.forget_before(head.arrived);
        let tag = self.pacer.all_due();
        if self.at_once == 0 {
            return tag;
        }
        let mut next = self.pacer;
        let one = FirstServed {
            ops: 1,
            bytes: head.len.into(),
        };
        next.spend(head.len.into(), one);
        let cost = next.all_due().since(tag).0;
        let ahead = Nanos(cost.saturating_mul(self.at_once.into()));
        head.arrived.max(tag - ahead)
    }
}

impl Promises {
    /// Returns the time from which a VM's latency bound counts for its head, which arrived at
    /// `arrived`; `None`: the head is outside of its envelope.
    #[inline]
    pub(super) fn bound_from(&self, now: Nanos, vm: usize, arrived: Nanos) -> Option<Nanos> {
        match &self.vms[vm].envelope {
            None => Some(arrived),
            Some(envelope) => Some(envelope.inside_from).filter(|&from| from <= now),
        }
    }

    /// Returns whether the deadline of a VM's head is that of an envelope's bound.
    pub(in super::super) fn is_by_envelope(&self, vm: usize) -> bool {
        let envelope = self.vms[vm].envelope.as_ref();
        envelope.is_some_and(|envelope| envelope.is_by_bound)
    }

    /// Puts a VM with an envelope, whose head waits, where its tags and its head's deadline belong.
    #[cold]
    #[inline(never)]
    pub(super) fn place_by_envelope(&mut self, now: Nanos, vm: usize, head: Head) {
        let promise = &mut self.vms[vm];
        let Some(envelope) = &mut promise.envelope else {
            return;
        };
        let inside_from = envelope.allows_from(head);
        let floor = promise.pacer.any_due();
        let floor_from = floor.map_or(Nanos::MAX, |tag| tag + self.forgiven);
        let by_bound = if inside_from <= now {
            inside_from + promise.latency
        } else {
            Nanos::MAX
        };
        let by_floor = if floor_from <= now {
            floor_from + promise.span
        } else {
            Nanos::MAX
        };
        envelope.inside_from = inside_from;
        envelope.is_by_bound = by_bound < by_floor;
        let is_due = inside_from.min(floor_from) <= now || promise.rest.is_some();
        let deadline = match promise.rest {
            Some(rest) => rest.deadline,
            None => by_bound.min(by_floor),
        };
        let place = if is_due { Place::Due } else { Place::Coming };
        let before = core::mem::replace(&mut promise.place, place);
        if before != place {
            self.leave(vm, before);
        }
        if is_due {
            self.due.set(vm, deadline.0);
        } else {
            // A time beyond the queue's largest key would be reported as come, for ever.
            let from = inside_from.min(floor_from);
            self.coming.set(vm, from.0.min(Tournament::LARGEST));
        }
    }

    /// Charges an I/O that was served by promise to the VM's envelope. Returns whether it is to be
    /// charged to the floor as well.
    #[cold]
    #[inline(never)]
    pub(super) fn spend_envelope(
        &mut self,
        now: Nanos,
        vm: usize,
        bytes: u64,
        first: FirstServed,
    ) -> bool {
        let promise = &mut self.vms[vm];
        let Some(envelope) = &mut promise.envelope else {
            return true;
        };
        if envelope.is_faster || envelope.inside_from <= now {
            envelope.pacer.spend(bytes, first);
        }
        let floor = promise.pacer.any_due();
        floor.is_some_and(|tag| !envelope.is_faster || tag + self.forgiven <= now)
    }
}
