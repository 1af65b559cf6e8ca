//! Steps of requests that a device asks of vCPUs, where the machine's processors are simulated.

use std::collections::VecDeque;

/// Step of a request on a vCPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum VcpuStep {
    /// The worker that wants the request in this slot issues it.
    Issue(u32),
    /// The engine has finished the request in this slot, and the worker is to receive the answer.
    Answer(u32),
}

/// Steps that nobody has taken yet, in order.
#[derive(Default)]
pub(super) struct VcpuSteps {
    steps: VecDeque<VcpuStep>,
    /// A request was submitted or answered since the device was last given work.
    dirty: bool,
}

impl VcpuSteps {
    /// Asks for a step.
    pub(super) fn ask(&mut self, step: VcpuStep) {
        self.steps.push_back(step);
    }

    /// Removes the next step.
    pub(super) fn take(&mut self) -> Option<VcpuStep> {
        self.steps.pop_front()
    }

    /// True if no step is left to take.
    pub(super) fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// Notes that a request was submitted or answered: the engine and the device have work.
    pub(super) fn set_dirty(&mut self) {
        self.dirty = true;
    }

    /// True if a request was submitted or answered since this was asked last.
    pub(super) fn take_dirty(&mut self) -> bool {
        core::mem::take(&mut self.dirty)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_taken_in_the_order_in_which_they_were_asked_for() {
        let mut steps = VcpuSteps::default();
        let asked = [VcpuStep::Issue(3), VcpuStep::Answer(1), VcpuStep::Issue(2)];
        asked.into_iter().for_each(|step| steps.ask(step));
        let taken: Vec<_> = core::iter::from_fn(|| steps.take()).collect();
        assert_eq!((taken, steps.is_empty()), (asked.to_vec(), true));
        assert!(!steps.take_dirty());
        steps.set_dirty();
        assert_eq!((steps.take_dirty(), steps.take_dirty()), (true, false));
    }
}
