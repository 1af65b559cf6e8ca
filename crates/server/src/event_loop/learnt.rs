//! What the policy's controller has learnt of this device's VMs, told a few at a time.

use tidegate_core::learnt::Blob;

use super::{Loop, Vm};
use crate::command::LearntPart;

/// VMs that are looked at in one turn.
const AT_ONCE: usize = 64;

impl Loop {
    /// What was learnt of the VMs from this place on, of as many as one turn has time for.
    pub(super) fn export_learnt(&self, from: usize) -> LearntPart {
        let policy = self.engine.policy();
        let mut part = LearntPart {
            policy: policy.name().to_owned(),
            states: Vec::new(),
            next: None,
        };
        if policy.parts().0.is_none() {
            return part;
        }
        let mut vms = self.vms.iter().skip_while(|&(at, _)| at < from);
        let some = vms.by_ref().take(AT_ONCE);
        part.states = some.filter_map(|(_, vm)| self.learnt_of(vm)).collect();
        part.next = vms.next().map(|(at, _)| at);
        part
    }

    /// Has the policy's controller go on with what was learnt of some VMs, by their names.
    pub(super) fn import_learnt(&mut self, learnt: &[(String, Blob)]) {
        let vms = self.vms.iter();
        let known = vms.flat_map(|(_, vm)| {
            let of_vm = learnt.iter().find(|(name, _)| *name == vm.name);
            of_vm.map(|(_, blob)| (vm.id, blob))
        });
        let known: Vec<_> = known.collect();
        let device = &self.name;
        let vms = known.len();
        let refused = self.engine.import_learnt(self.now, known);
        for (id, error) in &refused {
            let vm = self.vms.iter().find(|(_, vm)| vm.id == *id);
            let vm = vm.map_or("?", |(_, vm)| &vm.name);
            tracing::info!(%device, %vm, "what was learnt of it is not taken over: {error}");
        }
        let vms = vms - refused.len();
        tracing::info!(%device, vms, "the policy goes on with what it had learnt");
    }

    fn learnt_of(&self, vm: &Vm) -> Option<(String, Blob)> {
        let learnt = self.engine.export_learnt(vm.id).ok()??;
        Some((vm.name.clone(), learnt))
    }
}
