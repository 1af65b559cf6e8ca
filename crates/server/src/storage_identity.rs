//! Identity of the storage on which learnt state was measured; the state is of no use elsewhere.

use std::collections::BTreeSet;
use std::path::PathBuf;

use crate::config::{DeviceKind, VmConfig};
use crate::profile::{device_number_below, identity_of};

/// Source of a device's identity: a fixed name, or the files that hold its disks.
#[derive(Clone, Debug)]
pub(crate) enum IdentitySource {
    /// Name that is the same on every host, such as a device model with its parameters.
    Named(String),
    /// Names of several storages, such as exports of servers.
    Names(BTreeSet<String>),
    /// Paths of files or block devices; the block devices below them are identified.
    Files(Vec<PathBuf>),
}

impl IdentitySource {
    /// Returns the source for a device of this kind with the disks of these VMs.
    pub(crate) fn of_device(kind: &DeviceKind, vms: &[VmConfig]) -> IdentitySource {
        match kind {
            DeviceKind::Memory => IdentitySource::Named("memory".to_owned()),
            DeviceKind::Emulated { model } => {
                // The parameters are part of the name: learnt costs do not hold for a changed
                // model.
                IdentitySource::Named(format!("emulated {} {:?}", model.name, model.spec()))
            }
            DeviceKind::Nbd => {
                let disks = vms.iter().flat_map(|vm| &vm.disks);
                let uris = disks.filter_map(|disk| Some(disk.nbd.as_ref()?.uri.to_string()));
                IdentitySource::Names(uris.collect())
            }
            DeviceKind::File => {
                let disks = vms.iter().flat_map(|vm| &vm.disks);
                IdentitySource::Files(disks.filter_map(|disk| disk.path.clone()).collect())
            }
        }
    }

    /// Returns the identity of the underlying block devices, without those that cannot be
    /// identified. Reads file metadata, so it may block.
    pub(crate) fn identity(&self) -> Identity {
        Identity(match self {
            IdentitySource::Named(name) => [name.clone()].into(),
            IdentitySource::Names(names) => names.clone(),
            IdentitySource::Files(paths) => {
                let numbers = paths
                    .iter()
                    .filter_map(|path| device_number_below(path).ok());
                // Each once: a serial number may take a command to the device.
                let distinct: BTreeSet<String> = numbers.collect();
                let known = distinct.iter().filter_map(|number| identity_of(number));
                known.collect()
            }
        })
    }
}

/// Set of the block devices under a device's disks: one element in a sensible setup, empty if none
/// can be identified.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Identity(BTreeSet<String>);

impl Identity {
    /// Parses the form that [`Identity::to_text`] writes.
    pub(crate) fn from_text(text: &str) -> Identity {
        Identity(text.lines().map(str::to_owned).collect())
    }

    /// Returns the names of the block devices, one per line.
    pub(crate) fn to_text(&self) -> String {
        let names: Vec<&str> = self.0.iter().map(String::as_str).collect();
        names.join("\n")
    }

    /// Returns true if at least one block device is identified.
    pub(crate) fn is_known(&self) -> bool {
        !self.0.is_empty()
    }

    /// Returns true if the block device of this name is one of them.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.0.contains(name)
    }

    /// Returns true if both identities share a block device. One shared device is enough, because
    /// VMs come and go while the disks of a device are meant to be on one block device.
    pub(crate) fn overlaps(&self, other: &Identity) -> bool {
        !self.0.is_disjoint(&other.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_same_device_while_one_of_its_disks_is() {
        let of = |names: &[&str]| Identity(names.iter().map(|&name| name.to_owned()).collect());
        let (both, one, other, none) = (of(&["a", "b"]), of(&["b"]), of(&["c"]), of(&[]));
        assert!(both.overlaps(&one) && one.overlaps(&both) && !other.overlaps(&both));
        assert!(!none.overlaps(&none) && !none.is_known() && one.is_known());
        for identity in [both, one, none] {
            assert_eq!(Identity::from_text(&identity.to_text()), identity);
        }
    }
}
