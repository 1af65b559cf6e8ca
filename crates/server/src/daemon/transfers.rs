//! Deadline transfers of VMs in the store, and placements of a cluster that have begun.
//!
//! ```text
//!   begun, cancelled, ended, snapshot due --ask for running transfers--> event loop
//!                                                                            |
//!   records of the device in the store replaced <----------------------------+
//! ```

use std::sync::Arc;

use jiff::Timestamp;
use tokio::sync::{Mutex, Notify};
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use super::devices::{ANSWER_TIMEOUT, DeviceTable};
use super::persistence::Persistence;
use crate::command::{Command, ControlError};
use crate::store::Change;
use crate::transfer::PersistedTransfers;

/// Transfers of a device, given by its index, by name of the VM.
pub(crate) type DeviceTransfers = (usize, Vec<(String, PersistedTransfers)>);

/// Snapshots of the running deadline transfers.
#[derive(Debug)]
pub(super) struct Transfers {
    /// Held while loops are asked and the store is written, so that an older answer is not written
    /// over a newer one.
    writing: Mutex<()>,
    /// Signal that a transfer has ended, or a snapshot is due.
    transfers_changed: Arc<Notify>,
}

impl Transfers {
    /// Creates the snapshots; event loops signal `transfers_changed`.
    pub(super) fn new(transfers_changed: Arc<Notify>) -> Transfers {
        Transfers {
            writing: Mutex::default(),
            transfers_changed,
        }
    }

    /// Returns the signal that a transfer has ended, or a snapshot is due.
    pub(super) fn changed(&self) -> &Notify {
        &self.transfers_changed
    }

    /// Writes the running transfers of a device, durably. Returns false without a store.
    ///
    /// # Errors
    /// If the loop has ended or does not answer, or the store cannot be written.
    pub(super) async fn snapshot(
        &self,
        devices: &DeviceTable,
        persistence: &Persistence,
        device: usize,
    ) -> Result<bool, ControlError> {
        if persistence.store().is_none() {
            return Ok(false);
        }
        let _one_at_a_time = self.writing.lock().await;
        let transfers = devices.ask(device, |reply| Command::ExportTransfers { reply });
        // The deadline keeps a stuck loop from blocking all who wait for the lock.
        let Ok(transfers) = timeout(ANSWER_TIMEOUT, transfers).await else {
            return Err(not_kept("its event loop does not answer".to_owned(), None));
        };
        write(devices.name(device), persistence, &transfers?).await?;
        Ok(true)
    }

    /// Writes the running transfers of all devices. A device that does not answer keeps its
    /// previous records.
    pub(super) async fn snapshot_all(&self, devices: &DeviceTable, persistence: &Persistence) {
        for device in 0..devices.entries().len() {
            match self.snapshot(devices, persistence, device).await {
                Ok(_) | Err(ControlError::Gone(_)) => {}
                Err(error) => warn_not_kept(devices.name(device), &error),
            }
        }
    }

    /// Writes the transfers that event loops left behind when they ended.
    pub(super) async fn snapshot_last(
        &self,
        devices: &DeviceTable,
        persistence: &Persistence,
        all: &[DeviceTransfers],
    ) {
        let _one_at_a_time = self.writing.lock().await;
        for (device, transfers) in all {
            let device = devices.name(*device);
            if let Err(error) = write(device, persistence, transfers).await {
                warn_not_kept(device, &error);
            }
        }
    }

    /// Sends the recorded transfers of a device to its event loop.
    pub(super) async fn restore(
        &self,
        devices: &DeviceTable,
        persistence: &Persistence,
        device: usize,
    ) {
        let Some(store) = persistence.store().cloned() else {
            return;
        };
        let name = devices.name(device).to_owned();
        let kept = spawn_blocking(move || store.transfers(&name)).await;
        let kept = match kept {
            Ok(Ok(kept)) => kept,
            Ok(Err(error)) => {
                let device = devices.name(device);
                tracing::warn!(device, "the recorded transfers cannot be read: {error}");
                return;
            }
            // The panic hook has logged a panic.
            Err(_) => return,
        };
        let transfers = readable(kept);
        if !transfers.is_empty() {
            let at = Timestamp::now();
            // Sending fails only if the loop has ended, which needs no state then.
            let _ = devices.send(device, Command::ResumeTransfers { transfers, at });
        }
    }
}

/// Replaces the records of a device's transfers.
async fn write(
    device: &str,
    persistence: &Persistence,
    transfers: &[(String, PersistedTransfers)],
) -> Result<(), ControlError> {
    let Some(store) = persistence.store().cloned() else {
        return Ok(());
    };
    let transfers: Vec<_> = (transfers.iter())
        .map(|(vm, transfer)| (vm.clone(), transfer.words()))
        .collect();
    let device = device.to_owned();
    let written = spawn_blocking(move || {
        let (device, transfers) = (device.as_str(), transfers.as_slice());
        store.apply(&[Change::ReplaceTransfers { device, transfers }])
    });
    match written.await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(error)) => Err(not_kept(error.to_string(), error.help())),
        Err(_) => Err(not_kept("the store panicked".to_owned(), None)),
    }
}

/// Returns the transfers that can be parsed, by name of the VM; the others are logged.
fn readable(kept: Vec<(String, String)>) -> Vec<(String, PersistedTransfers)> {
    let read = |(vm, text): (String, String)| match PersistedTransfers::read(&text) {
        Ok(transfer) => Some((vm, transfer)),
        Err(why) => {
            tracing::warn!(vm, "its recorded transfer cannot be read: {why}");
            None
        }
    };
    kept.into_iter().filter_map(read).collect()
}

fn not_kept(what: String, help: Option<String>) -> ControlError {
    ControlError::Store { what, help }
}

fn warn_not_kept(device: &str, error: &ControlError) {
    tracing::warn!(device, "transfers of its VMs are not persisted: {error}");
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::store::Store;
    use crate::transfer::PersistedTransfer;

    fn transfer(bytes: u64) -> PersistedTransfers {
        let begun = Timestamp::UNIX_EPOCH;
        PersistedTransfers {
            running: Some(PersistedTransfer {
                bytes,
                moved: 0,
                begun,
                due: begun,
                placed_ns: None,
            }),
            ..PersistedTransfers::default()
        }
    }

    #[tokio::test]
    async fn what_is_written_of_a_device_replaces_what_was() {
        let dir = tempfile::tempdir().expect("a directory");
        let store = Arc::new(Store::open(dir.path().join("store.redb")).expect("writable"));
        let persistence = Persistence::new(Some(store.clone()), Duration::MAX);
        let all = [("a".to_owned(), transfer(5)), ("b".to_owned(), transfer(7))];
        write("disk0", &persistence, &all).await.expect("writable");
        let kept = store.transfers("disk0").expect("readable");
        assert_eq!(readable(kept), all);
        write("disk0", &persistence, &all[1..])
            .await
            .expect("writable");
        let kept = store.transfers("disk0").expect("readable");
        assert_eq!(readable(kept), &all[1..]);
        assert_eq!(store.transfers("disk1").expect("readable"), []);
    }

    #[tokio::test]
    async fn without_a_store_no_loop_is_asked() {
        let none = Persistence::new(None, Duration::MAX);
        let devices = DeviceTable::new(Vec::new());
        let transfers = Transfers::new(Arc::default());
        assert_eq!(transfers.snapshot(&devices, &none, 0).await, Ok(false));
    }

    #[test]
    fn what_cannot_be_read_is_left_out() {
        let kept = vec![
            ("a".to_owned(), "{".to_owned()),
            ("b".to_owned(), transfer(7).words()),
        ];
        assert_eq!(readable(kept), [("b".to_owned(), transfer(7))]);
    }
}
