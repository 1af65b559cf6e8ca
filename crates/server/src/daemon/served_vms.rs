//! VMs that the running daemon serves and no configuration names: what the store has of them is not
//! how they are served, where something was changed without a change of the record.

use std::path::Path;

use crate::config::{self, DeviceConfig, PathsConfig, VmConfig};
use crate::takeover::{TakeoverError, VmPlan};

/// VMs of the running daemon that the new configuration does not name.
#[derive(Debug, Default)]
pub(super) struct ServedVms {
    plans: Vec<VmPlan>,
    /// VMs of the store that the running daemon could not serve, if it says which.
    not_served: Option<Vec<String>>,
}

impl ServedVms {
    pub(super) fn new(plans: Vec<VmPlan>, not_served: Option<Vec<String>>) -> ServedVms {
        ServedVms { plans, not_served }
    }

    /// Returns the VMs, also those that the running daemon's configuration names.
    pub(super) fn plans(&self) -> &[VmPlan] {
        &self.plans
    }

    /// Returns a VM of the store as the running daemon serves it, which may have been changed
    /// without a change of its record; `None` if it was removed there.
    ///
    /// # Errors
    /// If the configuration has no such device, or another VM has a disk of one that was not
    /// served.
    pub(super) fn as_served(
        &self,
        stored: VmConfig,
        devices: &[DeviceConfig],
        paths: &PathsConfig,
    ) -> Result<Option<VmConfig>, String> {
        let Some(plan) = self.plans.iter().find(|plan| plan.name == stored.name) else {
            let was_served = |names: &Vec<String>| !names.contains(&stored.name);
            let is_removed = self.not_served.as_ref().is_some_and(was_served);
            return match self.user_of(&stored) {
                _ if is_removed => Ok(None),
                Some(why) => Err(why),
                None => Ok(Some(stored)),
            };
        };
        let now = config::vm::from_json(&plan.words, devices, paths);
        let mut now = now.map_err(|errors| unreadable(&plan.name, &errors).to_string())?;
        // A disk stays where the record has it, also where a new one may not be.
        for disk in &mut now.disks {
            let mut recorded = stored.disks.iter();
            let recorded = recorded.find(|it| (&it.export, &it.path) == (&disk.export, &disk.path));
            if let Some(recorded) = recorded {
                disk.within = recorded.within.clone();
            }
        }
        Ok(Some(now))
    }

    /// Returns which VM uses the export or the file of a disk of a VM that was not served.
    fn user_of(&self, stored: &VmConfig) -> Option<String> {
        // One that the file had may not be served any more.
        let others = self.plans.iter().filter(|plan| !plan.is_configured);
        let disks = others.flat_map(|plan| {
            let disks = plan.words["disk"].as_array().into_iter().flatten();
            disks.map(|disk| (&plan.name, disk))
        });
        for (vm, disk) in disks {
            let path = disk["path"].as_str().map(Path::new);
            for own in &stored.disks {
                if disk["export"].as_str() == Some(&*own.export) {
                    return Some(format!("its export {:?} is VM {vm:?}'s now", own.export));
                }
                if let Some(path) = path.filter(|path| own.path.as_deref() == Some(*path)) {
                    return Some(format!("its file {} is VM {vm:?}'s now", path.display()));
                }
            }
        }
        None
    }
}

/// Returns the refusal for a VM that the configuration cannot have.
pub(super) fn unreadable(vm: &str, errors: &config::ConfigErrors) -> TakeoverError {
    TakeoverError::refused(
        format!("VM {vm:?} of the running daemon does not fit this configuration: {errors}"),
        "put its device, and the limit group of its disks, back into the file, or remove the VM",
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Returns a configuration with a device.
    fn host() -> config::Config {
        let device = "[[device]]\nname = \"d\"\nkind = \"file\"\n";
        let text = format!("[[listen]]\nunix = \"s\"\n{device}");
        let loaded = config::parse(&text, "t", Path::new("/"));
        loaded.expect("good").config
    }

    fn words(name: &str, disks: &[&str]) -> serde_json::Value {
        let disks = disks.iter().map(|disk| {
            json!({ "export": disk, "path": format!("/images/{disk}.raw"), "size": "1 MiB" })
        });
        json!({ "name": name, "device": "d", "disk": disks.collect::<Vec<_>>() })
    }

    #[test]
    fn a_vm_of_the_store_is_what_the_running_daemon_has_made_of_it() {
        let host = host();
        let stored = |name: &str| {
            // VMs that are not served share no disk with one that is.
            let own: &[&str] = match name {
                "changed" | "left" => &["one", "two"],
                _ => &["one", "four"],
            };
            let words = words(name, own);
            let vm = config::vm::from_json(&words, &host.devices, &host.paths);
            let mut vm = vm.unwrap_or_else(|error| panic!("{error}"));
            // Recorded by a build that confined no paths.
            vm.disks.iter_mut().for_each(|disk| disk.within = None);
            vm
        };
        let changed = VmPlan {
            name: "changed".to_owned(),
            is_configured: false,
            words: words("changed", &["two", "three"]),
        };
        let not_served = Some(vec!["lost".to_owned()]);
        let served = ServedVms::new(vec![changed.clone()], not_served);
        let now = |served: &ServedVms, name: &str| {
            let now = served.as_served(stored(name), &host.devices, &host.paths);
            now.expect("the device is there")
        };
        let vm = now(&served, "changed").expect("it is served");
        let disks: Vec<_> = (vm.disks.iter())
            .map(|disk| (disk.export.as_str(), disk.within.is_some()))
            .collect();
        assert_eq!(disks, [("two", false), ("three", true)]);
        assert!(now(&served, "removed").is_none());
        let lost = now(&served, "lost").expect("its file may be back");
        assert_eq!(lost.disks.len(), 2);
        // "left" is in the running daemon's file and in the store.
        let left = VmPlan {
            name: "left".to_owned(),
            is_configured: true,
            words: words("left", &["two"]),
        };
        let taken = VmPlan {
            name: "taken".to_owned(),
            is_configured: false,
            words: words("taken", &["two"]),
        };
        let none = Some(vec!["lost".to_owned()]);
        let after = ServedVms::new(vec![left, taken], none);
        let vm = now(&after, "left").expect("it is served, and in the store");
        assert_eq!(vm.disks.len(), 1);
        let clash = |disks: &[&str]| {
            let words = words("lost", disks);
            let vm = config::vm::from_json(&words, &host.devices, &host.paths);
            let vm = vm.unwrap_or_else(|error| panic!("{error}"));
            after.as_served(vm, &host.devices, &host.paths)
        };
        let why = clash(&["one", "two"]).expect_err("another VM has it");
        assert!(why.contains("export \"two\" is VM \"taken\"'s"), "{why}");
        assert!(clash(&["one"]).expect("it is free").is_some());
        // A running daemon that does not say.
        let older = ServedVms::new(vec![changed], None);
        assert!(now(&older, "removed").is_some());
    }
}
