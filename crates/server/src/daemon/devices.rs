//! Devices of a daemon, and the messages to their event loops.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tidegate_policies::policy::PolicySpec;
use tokio::sync::oneshot;

use crate::command::{Command, ControlError, DeviceSnapshot, DiskSnapshot, FaultChange};
use crate::config::DeviceConfig;
use crate::connections::VmConnections;
use crate::event_loop::LoopHandle;
use crate::frontend::Volume;
use crate::listener::ExportEntry;

/// Deadline for an answer of an event loop that is not stuck; a healthy loop answers in its next
/// iteration.
pub(super) const ANSWER_TIMEOUT: Duration = Duration::from_secs(1);

/// Device of the configuration with the channel to its event loop.
#[derive(Debug)]
pub struct DeviceEntry {
    name: String,
    /// Section of the configuration file that is in force.
    config: Mutex<DeviceConfig>,
    handle: LoopHandle,
}

impl DeviceEntry {
    pub(super) fn new(config: DeviceConfig, handle: LoopHandle) -> DeviceEntry {
        DeviceEntry {
            name: config.name.clone(),
            config: Mutex::new(config),
            handle,
        }
    }

    /// Returns the name in the configuration.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the configuration of the device: the section of the file that is in force, whatever
    /// was changed by the control API since.
    pub(super) fn config(&self) -> DeviceConfig {
        let config = self.config.lock().unwrap_or_else(PoisonError::into_inner);
        config.clone()
    }

    /// Follows a change of the section that is in force now.
    pub(super) fn change_config(&self, change: impl FnOnce(&mut DeviceConfig)) {
        change(&mut self.config.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Returns the entry of a volume of the device in the export list.
    pub(super) fn export_entry(
        &self,
        vm: String,
        volume: Volume,
        connections: Arc<VmConnections>,
    ) -> ExportEntry {
        let handle = self.handle.clone();
        ExportEntry {
            volume,
            vm,
            handle,
            connections,
        }
    }

    /// Sends a command to the loop.
    ///
    /// # Errors
    /// If the loop has ended.
    pub(super) fn send(&self, command: Command) -> Result<(), ControlError> {
        let sent = self.handle.send(command);
        sent.map_err(|_| ControlError::Gone(self.name().to_owned()))
    }
}

/// Devices in the order of the configuration, addressed by their index.
#[derive(Debug)]
pub struct DeviceTable {
    entries: Vec<DeviceEntry>,
    /// Time at which the daemon started to serve them.
    started: Instant,
}

impl DeviceTable {
    pub(super) fn new(entries: Vec<DeviceEntry>) -> DeviceTable {
        DeviceTable {
            entries,
            started: Instant::now(),
        }
    }

    /// Returns all devices.
    pub fn entries(&self) -> &[DeviceEntry] {
        &self.entries
    }

    /// Returns the time since the daemon started to serve the devices.
    pub fn uptime(&self) -> Duration {
        self.started.elapsed()
    }

    /// Returns the name of a device.
    ///
    /// # Panics
    /// If there is no such device.
    pub fn name(&self, device: usize) -> &str {
        self.entries[device].name()
    }

    /// Returns the configurations of all devices.
    pub fn configs(&self) -> Vec<DeviceConfig> {
        let entries = self.entries.iter();
        entries.map(DeviceEntry::config).collect()
    }

    /// Sends a command to the loop of a device.
    ///
    /// # Errors
    /// If there is no such device or its loop has ended.
    pub(crate) fn send(&self, device: usize, command: Command) -> Result<(), ControlError> {
        let entry = self.entries.get(device);
        let entry = entry.ok_or_else(|| ControlError::UnknownDevice(device.to_string()))?;
        entry.send(command)
    }

    /// Sends a command to every loop that has not ended.
    pub(super) fn send_all(&self, command: impl Fn() -> Command) {
        for entry in &self.entries {
            // Sending fails only if the loop has ended already.
            let _ = entry.send(command());
        }
    }

    /// Sends a command and waits for the answer, without a deadline.
    ///
    /// # Errors
    /// If there is no such device or its loop has ended.
    pub(super) async fn ask<T>(
        &self,
        device: usize,
        command: impl FnOnce(oneshot::Sender<T>) -> Command,
    ) -> Result<T, ControlError> {
        let (reply, answer) = oneshot::channel();
        self.send(device, command(reply))?;
        let answer = answer.await;
        // A loop that ends drops the commands that it has not answered.
        answer.map_err(|_| ControlError::Gone(self.name(device).to_owned()))
    }

    /// Returns a snapshot of a device.
    ///
    /// # Errors
    /// If there is no such device or its loop has ended.
    pub async fn snapshot(&self, device: usize) -> Result<DeviceSnapshot, ControlError> {
        self.ask(device, |reply| Command::Snapshot { reply }).await
    }

    /// Replaces a device's policy and returns a snapshot of the device.
    ///
    /// # Errors
    /// If there is no such device, the engine refuses the policy, or the loop has ended.
    pub async fn set_policy(
        &self,
        device: usize,
        policy: PolicySpec,
    ) -> Result<DeviceSnapshot, ControlError> {
        let set = self.ask(device, |reply| Command::SetPolicy { policy, reply });
        Ok(set.await??)
    }

    /// Changes the fault rules of a disk and returns a snapshot of the disk.
    ///
    /// # Errors
    /// If there is no such device, export or rule, the rule is refused, or the loop has ended.
    pub async fn change_faults(
        &self,
        device: usize,
        export: &str,
        change: FaultChange,
    ) -> Result<DiskSnapshot, ControlError> {
        let export = export.to_owned();
        let changed = self.ask(device, |reply| Command::ChangeFaults {
            export,
            change,
            reply,
        });
        Ok(changed.await??)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_device_that_is_not_there_is_named_by_its_number() {
        let none = DeviceTable::new(Vec::new());
        let error = none.snapshot(3).await.expect_err("there is none");
        assert_eq!(error, ControlError::UnknownDevice("3".to_owned()));
        assert!(none.configs().is_empty());
    }
}
