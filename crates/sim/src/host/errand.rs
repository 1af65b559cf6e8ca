//! What a host asks of the processors of its machine, where those are simulated.
//!
//! ```text
//!   issue --Issue--> processors ------> submitted --> engine
//!   answered <------ processors <--Answer-- done <------+
//! ```
//!
//! Without processors a request goes these ways at once, or after its VM's delay.

use super::Host;
use std::collections::VecDeque;
use tidegate_core::time::Nanos;

/// What a request needs of processors.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Errand {
    /// The worker that wants the request in this slot issues it.
    Issue(u32),
    /// The engine is done with the request in this slot, and its worker has to hear of that.
    Answer(u32),
}

/// Errands that nobody has taken yet, in order.
#[derive(Default)]
pub(super) struct Errands {
    all: VecDeque<Errand>,
    /// A request was submitted or answered: the engine and the device are to be seen to.
    stirred: bool,
}

impl Errands {
    pub(super) fn ask(&mut self, errand: Errand) {
        self.all.push_back(errand);
    }
}

impl Host {
    /// From now on requests go by way of processors.
    pub(crate) fn run_errands(&mut self) {
        self.errands.get_or_insert_default();
    }

    /// What is to be done next.
    pub(crate) fn poll_errand(&mut self) -> Option<Errand> {
        self.errands.as_mut()?.all.pop_front()
    }

    /// The worker whose request lies in this slot.
    pub(crate) fn worker_of(&self, slot: u32) -> usize {
        self.pending[slot as usize].worker as usize
    }

    /// The tenant of each worker, as its place in the scenario.
    pub(crate) fn tenants_of_workers(&self) -> impl Iterator<Item = usize> {
        let workers = self.workers.iter();
        workers.map(|worker| self.guests[worker.tenant as usize].rest.index)
    }

    /// When something happens next by itself; [`Nanos::MAX`]: never.
    pub(crate) fn next_event(&self) -> Nanos {
        self.next().at
    }

    /// A request that was issued reaches the scheduler, now.
    pub(crate) fn submitted(&mut self, now: Nanos, slot: u32) {
        self.stir(now);
        self.submit(slot);
    }

    /// A worker has heard of its answer, now.
    pub(crate) fn answered_at(&mut self, now: Nanos, slot: u32) {
        self.stir(now);
        self.answer(slot);
    }

    /// Lets all happen that is due by `now`, and has the engine and the device see to what was
    /// submitted. Whether there are errands then: once they are taken, this is to be called again.
    pub(crate) fn catch_up(&mut self, now: Nanos) -> bool {
        self.run_until(now);
        let errands = self.errands.as_mut();
        if errands.is_some_and(|errands| core::mem::take(&mut errands.stirred)) {
            self.settle();
        }
        (self.errands.as_ref()).is_some_and(|errands| !errands.all.is_empty())
    }

    fn stir(&mut self, now: Nanos) {
        self.pass_to(now);
        if let Some(errands) = &mut self.errands {
            errands.stirred = true;
        }
    }
}
