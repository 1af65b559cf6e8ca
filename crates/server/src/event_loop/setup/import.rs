//! What controllers had learnt before the daemon was restarted.

use tidegate_core::learnt::Blob;
use tidegate_core::time::Nanos;

use super::Prepared;
use crate::store::{Store, StoreError};

impl Prepared {
    /// Has the policy's controller go on with what was learnt of the device's VMs, all of which are
    /// there. What does not fit them any more is left; without any of it the device is served all
    /// the same.
    pub fn import_learnt(&mut self, store: &Store) {
        let device = &self.name;
        let learnt = match self.kept(store) {
            Ok(learnt) => learnt,
            Err(error) => {
                tracing::warn!(%device, "what was learnt of its VMs is not taken over: {error}");
                return;
            }
        };
        if learnt.is_empty() {
            return;
        }
        let of_vms = learnt.iter().map(|(at, blob)| (self.vms[*at].id, blob));
        let refused = self.engine.import_learnt(Nanos::ZERO, of_vms);
        for (id, error) in &refused {
            let vm = self.vms.iter().find(|vm| vm.id == *id);
            let vm = vm.map_or("?", |vm| &vm.name);
            tracing::info!(%device, %vm, "what was learnt of it is not taken over: {error}");
        }
        let vms = learnt.len() - refused.len();
        tracing::info!(%device, vms, "the policy goes on with what it had learnt");
    }

    /// What the store has for the policy, by the places of the VMs.
    fn kept(&self, store: &Store) -> Result<Vec<(usize, Blob)>, StoreError> {
        let policy = self.engine.policy().name();
        let mut kept = Vec::new();
        for (at, vm) in self.vms.iter().enumerate() {
            let state = store.learnt(&self.name, policy, &vm.name)?;
            kept.extend(state.map(|state| (at, Blob::from_bytes(state))));
        }
        Ok(kept)
    }
}
