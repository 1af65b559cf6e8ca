//! Export and import of learnt state: what the policy's controller learnt of the VMs, a few VMs at
//! a time, and what the engine learnt of the device.

use tidegate_core::attainment::PartRecord;
use tidegate_core::engine::Engine;
use tidegate_core::learnt_state::Blob;

use super::{Loop, Vm};
use crate::command::{CommandError, LearntDeviceState, LearntStates, VmSnapshot};

/// VMs exported by one command, so that a device with many VMs does not delay requests.
const VMS_PER_EXPORT: usize = 64;

impl Loop {
    /// Exports learnt state and attainment of at most [`VMS_PER_EXPORT`] VMs, beginning at index
    /// `from`. The part for index 0 includes the state of the device.
    pub(super) fn export_learnt(&self, from: usize) -> LearntStates {
        let policy = self.engine.policy();
        let mut part = LearntStates {
            policy: policy.name().to_owned(),
            states: Vec::new(),
            attainment: Vec::new(),
            next: None,
            device: match from {
                0 => export_device(&self.engine),
                _ => Vec::new(),
            },
        };
        // A policy without a controller has nothing to export.
        let learns = policy.parts().0.is_some();
        let mut vms = self.vms.iter().skip_while(|&(at, _)| at < from);
        for (_, vm) in vms.by_ref().take(VMS_PER_EXPORT) {
            if learns {
                part.states.extend(learnt_of(&self.engine, vm));
            }
            let records = self.engine.vms().export_attainment(self.now, vm.id);
            if !records.is_empty() {
                part.attainment.push((vm.name.clone(), records));
            }
        }
        part.next = vms.next().map(|(at, _)| at);
        part
    }

    /// Restores the attainment of VMs by name, as it was recorded `ago` seconds ago.
    pub(super) fn import_attainment(&mut self, records: &[(String, Vec<PartRecord>)], ago: u32) {
        for (name, records) in records {
            // A VM that was removed meanwhile has no promises left.
            let found = self.vms.iter().find(|(_, vm)| vm.name == *name);
            if let Some((at, id)) = found.map(|(at, vm)| (at, vm.id)) {
                let mut vms = self.engine.vms_mut();
                let taken = vms.import_attainment(self.now, id, ago, records);
                debug_assert!(taken.is_ok(), "a VM that is served is known to the engine");
                // The history has those seconds already, of the run in which they passed.
                let judged = vms.close_attainment(self.now, id);
                self.vms[at].sampled.skip_attainment(judged);
            }
        }
    }

    /// Gives the policy's controller learnt state of VMs by name. `moved` is true if the disks have
    /// moved to another device, for which part of the state does not hold.
    pub(super) fn import_learnt(&mut self, learnt: &[(String, Blob)], moved: bool) {
        let vms = self.vms.iter();
        let known = vms.flat_map(|(_, vm)| {
            let of_vm = learnt.iter().find(|(name, _)| *name == vm.name);
            of_vm.map(|(_, blob)| (vm.id, blob))
        });
        let known: Vec<_> = known.collect();
        let device = &self.name;
        let vms = known.len();
        let refused = if moved {
            self.engine.vms_mut().import_moved(self.now, known)
        } else {
            self.engine.vms_mut().import_learnt(self.now, known)
        };
        for (id, error) in &refused {
            let vm = self.vms.iter().find(|(_, vm)| vm.id == *id);
            let vm = vm.map_or("?", |(_, vm)| &vm.name);
            tracing::info!(%device, %vm, "learnt state not imported: {error}");
        }
        let vms = vms - refused.len();
        tracing::info!(%device, vms, "the policy has its learnt state again");
    }

    /// Exports learnt state of one VM; `None` if the controller has none.
    pub(super) fn export_vm(&self, vm: &str) -> Result<Option<Blob>, CommandError> {
        let vm = &self.vms[self.vms.named(vm)?];
        let learnt = self.engine.vms().export_learnt(vm.id);
        learnt.map_err(|error| CommandError::Refused(error.to_string()))
    }

    /// Gives the policy's controller learnt state of one VM. `moved` is true if its disks have
    /// moved to another device.
    pub(super) fn import_vm(
        &mut self,
        vm: &str,
        learnt: &Blob,
        moved: bool,
    ) -> Result<VmSnapshot, CommandError> {
        let index = self.vms.named(vm)?;
        let learnt = [(self.vms[index].id, learnt)];
        let refused = if moved {
            self.engine.vms_mut().import_moved(self.now, learnt)
        } else {
            self.engine.vms_mut().import_learnt(self.now, learnt)
        };
        match refused.into_iter().next() {
            Some((_, error)) => Err(CommandError::Refused(format!(
                "learnt state not imported: {error}"
            ))),
            None => Ok(self.vm_snapshot(index)),
        }
    }

    /// Gives the engine learnt state of the device.
    pub(super) fn import_device(&mut self, learnt: &[(LearntDeviceState, Blob)]) {
        let device = &self.name;
        for (part, blob) in learnt {
            let taken = match part {
                LearntDeviceState::Costs => self.engine.device_mut().import_costs(blob),
                LearntDeviceState::Cap => self.engine.device_mut().import_cap(self.now, blob),
                LearntDeviceState::Bandwidths => {
                    self.engine.transfers_mut().import_bandwidths(blob)
                }
            };
            let part = part.name();
            match taken {
                Ok(()) => tracing::info!(%device, part, "learnt state imported"),
                Err(error) => tracing::info!(
                    %device, part, "learnt state not imported: {error}"
                ),
            }
        }
    }
}

/// Exports learnt state of the device. `None` as a value deletes the persisted state.
fn export_device(engine: &Engine) -> Vec<(LearntDeviceState, Option<Blob>)> {
    // Absent costs and bandwidths leave the persisted ones as they are: nothing new was learnt. An
    // absent cap means that the device is no longer capped, so the persisted one must go.
    let costs = (LearntDeviceState::Costs, engine.device().export_costs());
    let bandwidths = (
        LearntDeviceState::Bandwidths,
        engine.transfers().export_bandwidths(),
    );
    let known = [costs, bandwidths].into_iter();
    known
        .filter(|(_, learnt)| learnt.is_some())
        .chain([(LearntDeviceState::Cap, engine.device().export_cap())])
        .collect()
}

/// Exports learnt state of a VM, with its name.
fn learnt_of(engine: &Engine, vm: &Vm) -> Option<(String, Blob)> {
    let learnt = engine.vms().export_learnt(vm.id).ok()??;
    Some((vm.name.clone(), learnt))
}
