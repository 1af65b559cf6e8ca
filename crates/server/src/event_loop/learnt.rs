//! What the policy's controller has learnt of this device's VMs, told a few at a time; and what was
//! learnt of the device itself.

use tidegate_core::attainment::PartRecord;
use tidegate_core::engine::Engine;
use tidegate_core::learnt::Blob;

use super::{Loop, Vm};
use crate::command::{CommandError, DeviceLearnt, LearntPart, VmSnapshot};

/// VMs that are looked at in one turn.
const AT_ONCE: usize = 64;

impl Loop {
    /// What was learnt of the VMs from this place on, of as many as one turn has time for.
    pub(super) fn export_learnt(&self, from: usize) -> LearntPart {
        let policy = self.engine.policy();
        let mut part = LearntPart {
            policy: policy.name().to_owned(),
            states: Vec::new(),
            attainment: Vec::new(),
            next: None,
            device: match from {
                0 => export_device(&self.engine),
                _ => Vec::new(),
            },
        };
        let learns = policy.parts().0.is_some();
        let mut vms = self.vms.iter().skip_while(|&(at, _)| at < from);
        for (_, vm) in vms.by_ref().take(AT_ONCE) {
            if learns {
                part.states.extend(learnt_of(&self.engine, vm));
            }
            let records = self.engine.tenants().export_attainment(self.now, vm.id);
            if !records.is_empty() {
                part.attainment.push((vm.name.clone(), records));
            }
        }
        part.next = vms.next().map(|(at, _)| at);
        part
    }

    /// Has the engine go on with the attainment of VMs, by their names, of so many seconds ago.
    pub(super) fn import_attainment(&mut self, records: &[(String, Vec<PartRecord>)], ago: u32) {
        for (name, records) in records {
            // A VM that is gone has no promises left.
            if let Some((_, vm)) = self.vms.iter().find(|(_, vm)| vm.name == *name) {
                let mut tenants = self.engine.tenants_mut();
                let taken = tenants.import_attainment(self.now, vm.id, ago, records);
                debug_assert!(taken.is_ok(), "a VM that is served is known to the engine");
            }
        }
    }

    /// Has the policy's controller go on with what was learnt of some VMs, by their names. `moved`:
    /// of disks that lie elsewhere.
    pub(super) fn import_learnt(&mut self, learnt: &[(String, Blob)], moved: bool) {
        let vms = self.vms.iter();
        let known = vms.flat_map(|(_, vm)| {
            let of_vm = learnt.iter().find(|(name, _)| *name == vm.name);
            of_vm.map(|(_, blob)| (vm.id, blob))
        });
        let known: Vec<_> = known.collect();
        let device = &self.name;
        let vms = known.len();
        let refused = match moved {
            true => self.engine.tenants_mut().import_moved(self.now, known),
            false => self.engine.tenants_mut().import_learnt(self.now, known),
        };
        for (id, error) in &refused {
            let vm = self.vms.iter().find(|(_, vm)| vm.id == *id);
            let vm = vm.map_or("?", |(_, vm)| &vm.name);
            tracing::info!(%device, %vm, "what was learnt of it is not taken over: {error}");
        }
        let vms = vms - refused.len();
        tracing::info!(%device, vms, "the policy goes on with what it had learnt");
    }

    /// What was learnt of one VM.
    pub(super) fn export_vm(&self, vm: &str) -> Result<Option<Blob>, CommandError> {
        let vm = &self.vms[self.vms.named(vm)?];
        let learnt = self.engine.tenants().export_learnt(vm.id);
        learnt.map_err(|error| CommandError::Refused(error.to_string()))
    }

    /// Has the policy's controller go on with what was learnt of one VM. `moved`: of disks that lie
    /// elsewhere.
    pub(super) fn import_vm(
        &mut self,
        vm: &str,
        learnt: &Blob,
        moved: bool,
    ) -> Result<VmSnapshot, CommandError> {
        let index = self.vms.named(vm)?;
        let learnt = [(self.vms[index].id, learnt)];
        let refused = match moved {
            true => self.engine.tenants_mut().import_moved(self.now, learnt),
            false => self.engine.tenants_mut().import_learnt(self.now, learnt),
        };
        match refused.into_iter().next() {
            Some((_, error)) => Err(CommandError::Refused(format!("not taken over: {error}"))),
            None => Ok(self.vm_snapshot(index)),
        }
    }

    /// Has the engine go on with what was learnt of the device.
    pub(super) fn import_device(&mut self, learnt: &[(DeviceLearnt, Blob)]) {
        let device = &self.name;
        for (part, blob) in learnt {
            let taken = match part {
                DeviceLearnt::Costs => self.engine.device_mut().import_costs(blob),
                DeviceLearnt::Cap => self.engine.device_mut().import_cap(self.now, blob),
                DeviceLearnt::Bandwidths => self.engine.jobs_mut().import_bandwidths(blob),
            };
            let part = part.name();
            match taken {
                Ok(()) => tracing::info!(%device, part, "goes on with what was learnt of it"),
                Err(error) => tracing::info!(
                    %device, part, "what was learnt of it is not taken over: {error}"
                ),
            }
        }
    }
}

/// State that was learnt of the device, to be kept.
fn export_device(engine: &Engine) -> Vec<(DeviceLearnt, Option<Blob>)> {
    // Costs and bandwidths of which nothing is known here are those that are kept. A cap that is
    // not known any more is none.
    let costs = (DeviceLearnt::Costs, engine.device().export_costs());
    let bandwidths = (DeviceLearnt::Bandwidths, engine.jobs().export_bandwidths());
    let known = [costs, bandwidths].into_iter();
    known
        .filter(|(_, learnt)| learnt.is_some())
        .chain([(DeviceLearnt::Cap, engine.device().export_cap())])
        .collect()
}

/// State that was learnt of a VM, with its name.
fn learnt_of(engine: &Engine, vm: &Vm) -> Option<(String, Blob)> {
    let learnt = engine.tenants().export_learnt(vm.id).ok()??;
    Some((vm.name.clone(), learnt))
}
