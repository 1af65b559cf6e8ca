//! Path of requests over the vCPUs of the machine, where those are simulated.
//!
//! ```text
//!   issue --Issue--> processors ------> submitted --> engine
//!   answered <------ processors <--Answer-- done <------+
//! ```
//!
//! Without pCPUs a request takes these paths at once, or after its VM's delay.

use super::DeviceSim;
use super::vcpu_step::VcpuStep;
use tidegate_core::time::Nanos;

impl DeviceSim {
    /// Routes requests through vCPUs from now on.
    pub(crate) fn route_steps_through_vcpus(&mut self) {
        self.vcpu_steps.get_or_insert_default();
    }

    /// Next step to be done by a vCPU.
    pub(crate) fn poll_vcpu_step(&mut self) -> Option<VcpuStep> {
        self.vcpu_steps.as_mut()?.take()
    }

    /// Worker of the request in a slot.
    pub(crate) fn worker_of(&self, slot: u32) -> usize {
        self.requests.get(slot).worker as usize
    }

    /// Returns the VM of each worker, by its index in the scenario.
    pub(crate) fn vms_of_workers(&self) -> impl Iterator<Item = usize> {
        self.vms.workers().map(|(_, vm)| vm.details.scenario_index)
    }

    /// Time of the next event; [`Nanos::MAX`] if there is none.
    pub(crate) fn next_event(&self) -> Nanos {
        self.next().at
    }

    /// Takes a request that was issued and reaches the scheduler now.
    pub(crate) fn submitted(&mut self, now: Nanos, slot: u32) {
        // Work is given to the device once, when all steps of this time are done.
        self.set_dirty(now);
        self.submit(slot);
    }

    /// Takes an answer that reaches its worker now.
    pub(crate) fn answered_at(&mut self, now: Nanos, slot: u32) {
        self.set_dirty(now);
        self.answer(slot);
    }

    /// Processes everything that is due by `now`, and has the engine and the device act on
    /// submitted requests. Returns `true` if there are steps for vCPUs; the caller takes them and
    /// calls this again.
    pub(crate) fn catch_up(&mut self, now: Nanos) -> bool {
        self.run_until(now);
        let steps = self.vcpu_steps.as_mut();
        // `run_until` settles only at the device's own events; steps of vCPUs are none.
        if steps.is_some_and(|steps| steps.take_dirty()) {
            self.process_answers_and_dispatch();
        }
        (self.vcpu_steps.as_ref()).is_some_and(|steps| !steps.is_empty())
    }

    fn set_dirty(&mut self, now: Nanos) {
        self.advance_to(now);
        if let Some(steps) = &mut self.vcpu_steps {
            steps.set_dirty();
        }
    }
}
