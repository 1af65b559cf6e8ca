//! Requests between arrival and answer.

use tidegate_core::request::Op;
use tidegate_core::time::Nanos;

/// Request that has not been answered.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct Request {
    pub(super) vm: usize,
    pub(super) arrived: Nanos,
    pub(super) op: Op,
    pub(super) len: u32,
    /// Device time by the profile, in picoseconds.
    pub(super) cost_ps: u64,
    /// Latest answer by which the floor is kept; `None`: no floor applies.
    pub(super) floor_due: Option<Nanos>,
    /// Latest answer by which the latency bound is kept; `None`: outside of the VM's envelope.
    pub(super) latency_due: Option<Nanos>,
}

/// Unanswered requests, by the simulator's slot.
#[derive(Default)]
pub(in super::super) struct Requests {
    slots: Vec<Option<Request>>,
}

impl Requests {
    pub(super) fn insert(&mut self, slot: u32, request: Request) {
        let slot = slot as usize;
        if slot >= self.slots.len() {
            self.slots.resize(slot + 1, None);
        }
        self.slots[slot] = Some(request);
    }

    pub(super) fn remove(&mut self, slot: u32) -> Option<Request> {
        self.slots.get_mut(slot as usize)?.take()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Request> {
        self.slots.iter().flatten()
    }
}
