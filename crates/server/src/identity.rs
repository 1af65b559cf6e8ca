//! Which device it is that something was learnt of: it is of no use for another.

use std::collections::BTreeSet;
use std::path::PathBuf;

use crate::config::{DeviceKind, VmConfig};
use crate::profile::lies_on;

/// What the disks of a device lie on.
#[derive(Clone, Debug)]
pub(crate) enum LiesOn {
    /// What has this name whatever the machine.
    Named(String),
    /// What these files, or block devices, lie on.
    Files(Vec<PathBuf>),
}

impl LiesOn {
    /// A device of this kind, with these VMs.
    pub(crate) fn of(kind: &DeviceKind, vms: &[VmConfig]) -> LiesOn {
        match kind {
            DeviceKind::Memory => LiesOn::Named("memory".to_owned()),
            DeviceKind::Emulated { model } => {
                // As far as it tells what it is: how fast it is, is what is learnt.
                LiesOn::Named(format!("emulated {} {:?}", model.name, model.spec()))
            }
            DeviceKind::File => {
                let disks = vms.iter().flat_map(|vm| &vm.disks);
                LiesOn::Files(disks.filter_map(|disk| disk.path.clone()).collect())
            }
        }
    }

    /// The devices, as far as something tells them from others. May wait for the disk.
    pub(crate) fn identity(&self) -> Identity {
        Identity(match self {
            LiesOn::Named(name) => [name.clone()].into(),
            LiesOn::Files(paths) => {
                let known = paths.iter().filter_map(|path| lies_on(path).ok().flatten());
                known.collect()
            }
        })
    }
}

/// The devices that a device of the configuration is made of: one, where it is as it ought to be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Identity(BTreeSet<String>);

impl Identity {
    /// As [`Identity::to_text`] has it.
    pub(crate) fn from_text(text: &str) -> Identity {
        Identity(text.lines().map(str::to_owned).collect())
    }

    /// One a line.
    pub(crate) fn to_text(&self) -> String {
        let names: Vec<&str> = self.0.iter().map(String::as_str).collect();
        names.join("\n")
    }

    /// Whether anything tells it from others.
    pub(crate) fn is_known(&self) -> bool {
        !self.0.is_empty()
    }

    /// Whether they have a device in common: VMs come and go, and their disks are said to lie on
    /// one.
    pub(crate) fn is(&self, other: &Identity) -> bool {
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
        assert!(both.is(&one) && one.is(&both) && !other.is(&both));
        assert!(!none.is(&none) && !none.is_known() && one.is_known());
        for identity in [both, one, none] {
            assert_eq!(Identity::from_text(&identity.to_text()), identity);
        }
    }
}
