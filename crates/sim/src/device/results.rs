//! Results of a simulated device and its VMs.

use super::promises::PromiseResult;
use super::request_log::RequestLog;
use super::{CountedModel, DeviceSim, Tally};
use tidegate_core::engine::Engine;
use tidegate_core::interference::VmTimes;
use tidegate_core::precision::{INTERVAL_S, Precision};
use tidegate_core::request::VmId;
use tidegate_core::roles::Waits;
use tidegate_core::time::Nanos;
use tidegate_core::tuning::Tuning;

/// Precision of a VM's bandwidth, with the tuning for it.
#[derive(Clone, Copy, Debug)]
pub struct PrecisionResult {
    /// Precision since the warm-up, or since its target was another one.
    pub precision: Precision,
    /// Tuning as it stands; `None` if nothing tunes the VM, or it has left.
    pub tuning: Option<Tuning>,
}

impl DeviceSim {
    /// Log of its requests.
    pub(crate) fn request_log_mut(&mut self) -> &mut RequestLog {
        &mut self.request_log
    }

    /// Ends a second of simulated time.
    pub(crate) fn second(&mut self) {
        self.vms.end_second(self.now);
    }

    /// Clears all counts; `second` is `true` if a second begins right now.
    pub(crate) fn clear_counts(&mut self, second: bool) {
        self.model.clear();
        for vm in self.vms.iter_mut() {
            vm.clear_counts(second);
            if let Some(id) = vm.id() {
                let engine = self.hosts.engine_mut(vm.host);
                (engine.vms_mut().forget_attainment(self.now, id))
                    .expect("a VM that is there is known");
            }
        }
    }

    /// Tally of every VM since it was last cleared, to be changed, with the VM's index in the
    /// scenario.
    pub(crate) fn tallies_mut(&mut self) -> impl Iterator<Item = (usize, &mut Tally)> {
        (self.vms.iter_mut()).map(|vm| (vm.details.scenario_index, &mut vm.tally))
    }

    /// Tally of every VM since it was last cleared, with the VM's index in the scenario.
    pub(crate) fn tallies(&self) -> impl Iterator<Item = (usize, &Tally)> {
        self.vms
            .iter()
            .map(|vm| (vm.details.scenario_index, &vm.tally))
    }

    /// Time of the last answer of every VM that has done all it was to do, with the VM's index
    /// in the scenario.
    pub(crate) fn ends(&self) -> impl Iterator<Item = (usize, Nanos)> {
        let over = self.vms.finished();
        over.map(|vm| (vm.details.scenario_index, vm.last_answer))
    }

    /// Promises to every VM with their attainment, those in force last, and the VM's index in
    /// the scenario.
    pub(crate) fn promise_results(&self) -> impl Iterator<Item = (usize, Vec<PromiseResult>)> {
        self.vms.iter().map(|vm| {
            let details = &vm.details;
            let vms = self.hosts.engine(vm.host).vms();
            let all = (details.past).past_and_present(vms, self.now, vm.id(), &details.objective);
            (details.scenario_index, all)
        })
    }

    /// Precision of every VM's bandwidth, with the VM's index in the scenario.
    pub(crate) fn precision_results(&self) -> impl Iterator<Item = (usize, PrecisionResult)> {
        self.vms.iter().map(|vm| {
            let target = vm.details.objective.target.bytes_per_s;
            let engine = self.hosts.engine(vm.host);
            let result = PrecisionResult {
                precision: vm.per_second.precision(target, INTERVAL_S),
                tuning: vm.id().and_then(|id| engine.vms().tuning(id)),
            };
            (vm.details.scenario_index, result)
        })
    }

    /// Engine that serves a VM, by its index in the scenario, with the VM's handle
    /// there; `None` if the VM is not there.
    pub(crate) fn served(&self, scenario_index: usize) -> Option<(&Engine, VmId)> {
        let vm = self.vms.vm(self.vms.vm_of_scenario(scenario_index)?);
        Some((self.hosts.engine(vm.host), vm.id()?))
    }

    /// Waits of its policy for requests that might come; `None` if it never waits.
    pub fn waits(&self) -> Option<Waits> {
        self.hosts.waits()
    }

    /// Device model with its counts since the warm-up.
    pub fn model(&self) -> &CountedModel {
        &self.model
    }

    /// Requests answered since the begin of the run.
    pub fn answered(&self) -> u64 {
        self.answered
    }

    /// Time of the last answer, or at which the last workload was stopped.
    pub fn last_end(&self) -> Nanos {
        self.last_end
    }

    /// True once nothing more will be issued, and all requests are answered.
    pub fn is_done(&self) -> bool {
        self.vms.all_finished()
    }

    /// Name of the policy in force.
    pub fn policy(&self) -> &str {
        self.hosts.policy()
    }
}

/// Returns the time of a VM's requests since it came by cause, by its index in the scenario. All
/// zero for a VM that has not come.
pub(crate) fn times(sim: &DeviceSim, scenario_index: usize) -> VmTimes {
    let vm = sim.vms.vm_of_scenario(scenario_index);
    let vm = sim.vms.vm(vm.expect("the VM is on this device"));
    match vm.id() {
        Some(id) => sim.hosts.engine(vm.host).vms().times(id),
        None => vm.details.times,
    }
}

/// Returns the indices in the scenario of all VMs of a VM's host, with their handles in its engine.
pub(crate) fn neighbours(sim: &DeviceSim, scenario_index: usize) -> Vec<(VmId, usize)> {
    let vm = sim.vms.vm_of_scenario(scenario_index);
    let host = sim.vms.vm(vm.expect("the VM is on this device")).host;
    let vms = sim.vms.iter().filter(|vm| vm.host == host);
    let known = vms.filter_map(|vm| Some((vm.details.last_id?, vm.details.scenario_index)));
    known.collect()
}
