//! Export and import of the state that the policy has learnt of a VM.

use tidegate_api::query::LearntDisks;
use tidegate_policies::policy;
use tokio::task::spawn_blocking;

use super::devices::DeviceTable;
use super::directory::VmDirectory;
use crate::command::{Command, CommandError, ControlError, VmSnapshot};
use crate::config::VmConfig;
use crate::learnt_state_file::LearntStateFile;
use crate::storage_identity::{Identity, IdentitySource};

/// Learnt states of VMs, read from and written to the event loops.
#[derive(Clone, Copy)]
pub(super) struct LearntVmStates<'a> {
    devices: &'a DeviceTable,
    vms: &'a VmDirectory,
}

impl<'a> LearntVmStates<'a> {
    pub(super) fn new(devices: &'a DeviceTable, vms: &'a VmDirectory) -> LearntVmStates<'a> {
        LearntVmStates { devices, vms }
    }

    /// Returns the state that the policy has learnt of a VM, as a file.
    ///
    /// # Errors
    /// If there is no such VM, nothing was learnt of it, or its loop has ended.
    pub(super) async fn export(self, name: &str) -> Result<LearntStateFile, ControlError> {
        let vm = self.vms.find(name)?;
        let asked = name.to_owned();
        let export = |reply| Command::ExportVm { vm: asked, reply };
        let learnt = self.devices.ask(vm.device, export).await??;
        let asked = name.to_owned();
        let look = |reply| Command::SnapshotVm { vm: asked, reply };
        let now = self.devices.ask(vm.device, look).await??;
        let Some(learnt) = learnt else {
            return Err(nothing_learnt(name, &now.policy));
        };
        let disks = self.identity_of(&vm).await;
        let whose = [name, now.device.as_str(), now.policy.as_str()];
        Ok(LearntStateFile::new(whose, &disks, &learnt))
    }

    /// Passes learnt state of a VM, from this or another daemon, to the policy. Returns the VM's
    /// snapshot, and notes for the operator.
    ///
    /// # Errors
    /// If there is no such VM, the policy in force rejects the state, or the loop has ended.
    /// Nothing has changed then.
    pub(super) async fn import(
        self,
        name: &str,
        file: &LearntStateFile,
        disks: LearntDisks,
    ) -> Result<(VmSnapshot, Vec<String>), ControlError> {
        let vm = self.vms.find(name)?;
        let learnt = file.learnt().map_err(|error| ControlError::Learnt {
            what: error.to_string(),
            help: None,
        })?;
        let is = self.identity_of(&vm).await;
        let moved = match disks {
            LearntDisks::Same => false,
            LearntDisks::Different => true,
            // An unknown identity on either side counts as moved, the safe choice.
            LearntDisks::Detect => !file.identity().overlaps(&is),
        };
        let asked = name.to_owned();
        let import = |reply| Command::ImportVm {
            vm: asked,
            learnt,
            moved,
            reply,
        };
        let taken = self.devices.ask(vm.device, import).await?;
        let now = taken.map_err(|error| import_refused(file, error))?;
        let notes = notes(file, &now, moved.then_some(&is), disks);
        Ok((now, notes))
    }

    /// Returns the identity of the block devices under a VM's disks.
    async fn identity_of(self, vm: &VmConfig) -> Identity {
        let kind = self.devices.entries()[vm.device].config().kind;
        let identity_source = IdentitySource::of_device(&kind, std::slice::from_ref(vm));
        let identity = spawn_blocking(move || identity_source.identity()).await;
        // The panic hook has logged a panic; the identity is unknown then.
        identity.unwrap_or_else(|_| Identity::from_text(""))
    }
}

fn nothing_learnt(vm: &str, policy: &str) -> ControlError {
    let learns = PolicyNames(|controller| controller.is_some());
    ControlError::Learnt {
        what: format!("policy {policy:?} has learnt nothing of VM {vm:?} yet"),
        help: Some(format!(
            "these policies learn: {learns}; the VM needs an objective that the policy enforces, \
             and must have been busy for some intervals"
        )),
    }
}

fn import_refused(file: &LearntStateFile, error: CommandError) -> ControlError {
    // A VM that is gone has nothing to do with controllers, which the help below is about.
    if let CommandError::UnknownVm(_) = error {
        return error.into();
    }
    let controller = file.controller.as_str();
    let have = PolicyNames(|name| name == Some(controller));
    ControlError::Learnt {
        what: error.to_string(),
        help: Some(format!(
            "the state is of controller {controller}, learnt under policy {:?}; policies with \
             that controller: {have}; the VM needs an objective that they enforce",
            file.policy
        )),
    }
}

/// Displays the names of the policies whose controller satisfies a predicate.
struct PolicyNames<F: Fn(Option<&str>) -> bool>(F);

impl<F: Fn(Option<&str>) -> bool> std::fmt::Display for PolicyNames<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let all = policy::registry().iter();
        let these = all.filter(|policy| (self.0)(policy.controller.map(|part| part.name)));
        let names: Vec<&str> = these.map(|policy| policy.name).collect();
        f.write_str(&names.join(", "))
    }
}

/// Returns notes for the operator on an import. `elsewhere` is the identity of the VM's disks if
/// they are on other storage than where the state was learnt.
fn notes(
    file: &LearntStateFile,
    now: &VmSnapshot,
    elsewhere: Option<&Identity>,
    disks: LearntDisks,
) -> Vec<String> {
    let mut notes = Vec::new();
    if file.policy != now.policy {
        notes.push(format!(
            "it was learnt under policy {:?}, and {:?} is in force",
            file.policy, now.policy
        ));
    }
    if let Some(is) = elsewhere.filter(|_| disks == LearntDisks::Detect) {
        let place = |text: String| {
            if text.is_empty() {
                "unidentified storage".to_owned()
            } else {
                text.replace('\n', ", ")
            }
        };
        notes.push(format!(
            "its disks are on other storage, so state that depends on it is learnt anew: the \
             state was learnt on {}, the disks are on {}; if that is the same storage, import it \
             as such",
            place(file.disks.join("\n")),
            place(is.to_text()),
        ));
    }
    notes
}

#[cfg(test)]
mod tests {
    use tidegate_core::learnt_state::Blob;

    use super::*;

    fn file(policy: &str) -> LearntStateFile {
        let disks = Identity::from_text("block device a");
        LearntStateFile::new(["oltp", "disk0", policy], &disks, &Blob::new("tuner", 1))
    }

    #[test]
    fn a_policy_that_does_not_take_a_state_over_is_told_which_do() {
        let refused = CommandError::Refused("fifo has no controller".to_owned());
        let ControlError::Learnt { what, help } = import_refused(&file("vcup-mclock"), refused)
        else {
            panic!("it is about what was learnt");
        };
        assert_eq!(what, "fifo has no controller");
        let help = help.expect("it names policies");
        assert!(
            help.contains("controller tuner, learnt under policy \"vcup-mclock\""),
            "{help}"
        );
        let unknown = CommandError::UnknownVm("gone".to_owned());
        let error = import_refused(&file("vcup-mclock"), unknown.clone());
        assert_eq!(error, ControlError::Refused(unknown));
    }

    #[test]
    fn other_disks_and_another_policy_are_noted() {
        let now = crate::command::sample_snapshot::snapshot("disk0", &["oltp"])
            .vms
            .remove(0);
        let elsewhere = Identity::from_text("block device b");
        let same = notes(&file(&now.policy), &now, None, LearntDisks::Detect);
        assert_eq!(same, [""; 0]);
        let file = file("vcup-mclock");
        let all = notes(&file, &now, Some(&elsewhere), LearntDisks::Detect);
        assert_eq!(all.len(), 2, "{all:?}");
        assert!(all[0].contains("\"vcup-mclock\"") && all[0].contains("\"mclock\""));
        assert!(
            all[1].contains("on block device a, the disks are on block device b"),
            "{}",
            all[1]
        );
        let unrelated = notes(&file, &now, Some(&elsewhere), LearntDisks::Different);
        assert_eq!(unrelated.len(), 1, "who says so himself is not told");
    }
}
