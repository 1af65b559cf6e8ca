//! What the policy has learnt of a VM, taken out of one daemon and into another.

use tidegate_policies::policy;
use tokio::task::spawn_blocking;

use super::handle::DaemonHandle;
use crate::command::ControlError;
use crate::command::{Command, CommandError, VmSnapshot};
use crate::config::VmConfig;
use crate::identity::{Identity, LiesOn};
use crate::learnt_file::LearntFile;

/// Whether a VM's disks lie where they did when something was learnt of it.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Disks {
    /// As the file says what they lay on then, and what they lie on now.
    #[default]
    Tell,
    /// They do, whatever the file says.
    Same,
    /// They do not.
    Moved,
}

impl DaemonHandle {
    /// What the policy has learnt of a VM.
    ///
    /// # Errors
    /// When there is no such VM, nothing was learnt of it, or its loop has ended.
    pub async fn export_vm(&self, name: &str) -> Result<LearntFile, ControlError> {
        let vm = self.known(name)?;
        let asked = name.to_owned();
        let export = |reply| Command::ExportVm { vm: asked, reply };
        let learnt = self.ask(vm.device, export).await??;
        let now = self.look(name).await?;
        let Some(learnt) = learnt else {
            return Err(nothing_learnt(name, &now.policy));
        };
        let disks = self.identity_of(&vm).await;
        let whose = [name, now.device.as_str(), now.policy.as_str()];
        Ok(LearntFile::new(whose, &disks, &learnt))
    }

    /// Has the policy go on with what was learnt of a VM, here or elsewhere. Answers with the VM as it
    /// stands, and with what somebody ought to know of it.
    ///
    /// # Errors
    /// When there is no such VM, the policy in force does not take it over, or the loop has ended. Then
    /// nothing has changed.
    pub async fn import_vm(
        &self,
        name: &str,
        file: &LearntFile,
        disks: Disks,
    ) -> Result<(VmSnapshot, Vec<String>), ControlError> {
        let vm = self.known(name)?;
        let learnt = file.learnt().map_err(|error| ControlError::Learnt {
            what: error.to_string(),
            help: None,
        })?;
        let is = self.identity_of(&vm).await;
        let moved = match disks {
            Disks::Same => false,
            Disks::Moved => true,
            Disks::Tell => !file.identity().is(&is),
        };
        let asked = name.to_owned();
        let import = |reply| Command::ImportVm {
            vm: asked,
            learnt,
            moved,
            reply,
        };
        let taken = self.ask(vm.device, import).await?;
        let now = taken.map_err(|error| not_taken(file, error))?;
        let notes = notes(file, &now, moved.then_some(&is), disks);
        Ok((now, notes))
    }

    /// What a VM's disks lie on.
    async fn identity_of(&self, vm: &VmConfig) -> Identity {
        let kind = &self.devices()[vm.device].config.kind;
        let lies_on = LiesOn::of(kind, std::slice::from_ref(vm));
        let identity = spawn_blocking(move || lies_on.identity()).await;
        // One that panicked has said so; then nothing tells.
        identity.unwrap_or_else(|_| Identity::from_text(""))
    }
}

fn nothing_learnt(vm: &str, policy: &str) -> ControlError {
    let learns = PolicyNames(|controller| controller.is_some());
    ControlError::Learnt {
        what: format!("policy {policy:?} has learnt nothing of VM {vm:?} that is worth keeping"),
        help: Some(format!(
            "{learns} learn of a VM that has what they enforce, once it has been busy for some \
             intervals"
        )),
    }
}

fn not_taken(file: &LearntFile, error: CommandError) -> ControlError {
    if let CommandError::UnknownVm(_) = error {
        return error.into();
    }
    let controller = file.controller.as_str();
    let have = PolicyNames(|name| name == Some(controller));
    ControlError::Learnt {
        what: error.to_string(),
        help: Some(format!(
            "it was learnt by {controller} under policy {:?} ({have} have it), of a VM with an objective \
             that it is for",
            file.policy
        )),
    }
}

/// The policies of which the controller is like this, in words.
struct PolicyNames<F: Fn(Option<&str>) -> bool>(F);

impl<F: Fn(Option<&str>) -> bool> std::fmt::Display for PolicyNames<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let all = policy::registry().iter();
        let these = all.filter(|policy| (self.0)(policy.controller.map(|part| part.name)));
        let names: Vec<&str> = these.map(|policy| policy.name).collect();
        f.write_str(&names.join(", "))
    }
}

/// What somebody ought to know of what was taken over. `elsewhere`: what the disks lie on, where that is
/// another place.
fn notes(
    file: &LearntFile,
    now: &VmSnapshot,
    elsewhere: Option<&Identity>,
    disks: Disks,
) -> Vec<String> {
    let mut notes = Vec::new();
    if file.policy != now.policy {
        notes.push(format!(
            "it was learnt under policy {:?}, and {:?} is in force",
            file.policy, now.policy
        ));
    }
    if let Some(is) = elsewhere.filter(|_| disks == Disks::Tell) {
        let place = |text: String| match text.is_empty() {
            true => "what nothing tells from others".to_owned(),
            false => text.replace('\n', ", "),
        };
        notes.push(format!(
            "its disks lie elsewhere, so what belongs to them is found out anew: it was learnt on {}, they \
             lie on {}; if that is the same disk, import it as such",
            place(file.disks.join("\n")),
            place(is.to_text()),
        ));
    }
    notes
}
