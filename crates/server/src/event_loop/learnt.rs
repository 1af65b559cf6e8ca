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
        let to = from.saturating_add(AT_ONCE).min(self.vms.len());
        let vms = self.vms.get(from..to).unwrap_or_default();
        part.states
            .extend(vms.iter().filter_map(|vm| self.learnt_of(vm)));
        part.next = (to < self.vms.len()).then_some(to);
        part
    }

    fn learnt_of(&self, vm: &Vm) -> Option<(String, Blob)> {
        let learnt = self.engine.export_learnt(vm.id).ok()??;
        Some((vm.name.clone(), learnt))
    }
}
