//! VMs of a loop, found by index, by the engine's id or by name.

use std::ops::{Index, IndexMut};
use std::sync::Arc;

use tidegate_core::engine::{Engine, EngineError};
use tidegate_core::objective::Objective;
use tidegate_core::request::VmId;
use tidegate_core::time::Nanos;

use super::Vm;
use super::slab::Slab;
use crate::command::CommandError;
use crate::connections::VmConnections;

/// VMs of a loop. A VM keeps its index until it is removed.
#[derive(Debug, Default)]
pub(super) struct Vms {
    vms: Slab<Vm>,
    /// Index of each VM in `vms`, by the engine's [`VmId`]; `usize::MAX` if there is none.
    by_id: Vec<usize>,
}

/// Arguments of [`Vms::add`].
pub(super) struct VmArgs<'a> {
    pub(super) name: &'a str,
    /// True for a background process of the host, which is scheduled beside VMs.
    pub(super) background: bool,
    pub(super) objective: &'a Objective,
    pub(super) connections: Arc<VmConnections>,
}

impl Vms {
    /// Registers a VM without disks with the engine and returns its index.
    pub(super) fn add(
        &mut self,
        engine: &mut Engine,
        now: Nanos,
        new: VmArgs<'_>,
    ) -> Result<usize, EngineError> {
        // Commands name VMs: one for the second would reach the first.
        debug_assert!(
            self.named(new.name).is_err(),
            "VM {:?} is added twice",
            new.name
        );
        let id = if new.background {
            engine.vms_mut().add_background(now, new.objective)?
        } else {
            engine.vms_mut().add_vm(now, new.objective)?
        };
        let at = self.vms.insert(Vm {
            name: new.name.to_owned(),
            id,
            disks: Vec::new(),
            stalled: Default::default(),
            is_removed: false,
            target_alert: Default::default(),
            transfers: Default::default(),
            connections: new.connections,
            reply_time: Default::default(),
            reply_delay: Nanos::ZERO,
            sampled: Default::default(),
        });
        // Ids of removed VMs are reused, so the table stays as long as the most VMs at a time.
        if self.by_id.len() <= id.index() {
            self.by_id.resize(id.index() + 1, usize::MAX);
        }
        self.by_id[id.index()] = at;
        Ok(at)
    }

    /// Removes a VM whose requests have all ended. Panics if there is none at `at`.
    pub(super) fn remove(&mut self, at: usize) -> Vm {
        self.vms.remove(at)
    }

    /// Returns the index of the VM with this id.
    #[inline]
    pub(super) fn index(&self, id: VmId) -> usize {
        let at = self.by_id[id.index()];
        debug_assert!(
            self.vms.is_taken(at) && self.vms[at].id == id,
            "the engine names a VM that has left the table"
        );
        at
    }

    /// Returns the index of the VM with this name, unless it is being removed.
    pub(super) fn named(&self, name: &str) -> Result<usize, CommandError> {
        let found = (self.vms.iter()).find(|(_, vm)| vm.name == name && !vm.is_removed);
        found
            .map(|(at, _)| at)
            .ok_or_else(|| CommandError::UnknownVm(name.to_owned()))
    }

    /// Iterates over indices and VMs, in order of index.
    pub(super) fn iter(&self) -> impl Iterator<Item = (usize, &Vm)> {
        self.vms.iter()
    }

    /// Returns the number of slots: every index is below it.
    pub(super) fn slots(&self) -> usize {
        self.vms.slots()
    }

    /// Returns the VM in a slot, unless the slot is free.
    pub(super) fn get(&self, at: usize) -> Option<&Vm> {
        self.vms.get(at)
    }

    /// Returns the name of the VM with this id; `None` if it was removed.
    pub(super) fn name_of(&self, id: VmId) -> Option<&str> {
        let vm = self.get(*self.by_id.get(id.index())?)?;
        (vm.id == id).then_some(&vm.name)
    }

    /// Iterates over VMs, mutably, in order of index.
    pub(super) fn values_mut(&mut self) -> impl Iterator<Item = &mut Vm> {
        self.vms.values_mut()
    }
}

impl Index<usize> for Vms {
    type Output = Vm;

    #[inline]
    fn index(&self, at: usize) -> &Vm {
        &self.vms[at]
    }
}

impl IndexMut<usize> for Vms {
    #[inline]
    fn index_mut(&mut self, at: usize) -> &mut Vm {
        &mut self.vms[at]
    }
}

#[cfg(test)]
mod tests {
    use tidegate_core::engine::{DeviceSpec, EngineConfig};
    use tidegate_policies::policy::PolicySpec;

    use super::*;
    use crate::connections::DeviceConnections;

    #[test]
    fn a_vm_is_found_by_name_and_by_number_until_it_leaves() {
        let config = EngineConfig {
            device: DeviceSpec {
                depth: 4,
                physical_block: 4096,
                max_io: 1 << 20,
                zeroes_are_writes: false,
                positioning: Nanos::ZERO,
                bytes_per_s: 0,
            },
            max_requests: 64,
            max_pending_per_vm: 64,
            merge_limit: 0,
            max_vms: 4,
        };
        let fifo = PolicySpec::named("fifo").expect("in the registry");
        let mut engine = Engine::new(config, &fifo).expect("sound");
        let connections = DeviceConnections::new(10);
        let mut vms = Vms::default();
        let mut add = |vms: &mut Vms, name| {
            let new = VmArgs {
                name,
                background: false,
                objective: &Objective::default(),
                connections: connections.add_vm(1),
            };
            vms.add(&mut engine, Nanos::ZERO, new).expect("room")
        };
        let (a, b) = (add(&mut vms, "a"), add(&mut vms, "b"));
        assert_eq!(vms.named("b").expect("there"), b);
        assert_eq!(vms.index(vms[a].id), a);
        vms[a].is_removed = true;
        assert!(vms.named("a").is_err());
        let again = add(&mut vms, "a");
        assert_eq!(vms.named("a").expect("the new one"), again);
        vms.remove(a);
        assert_eq!(vms.iter().map(|(at, _)| at).collect::<Vec<_>>(), [b, again]);
    }
}
