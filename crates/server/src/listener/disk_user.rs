//! Use of a disk by the front-end of a guest that may migrate.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::timeout;

use super::ExportEntry;
use crate::backing::{Activation, ActivationState, Arrival};
use crate::command::{ActivationChange, Command, DiskLock};
use crate::event_loop::LoopHandle;
use crate::frontend::Volume;
use crate::frontend::vhost_user::QueueUser;

/// Time for which the I/O in flight of a disk that is handed over may take to end; what its own
/// front-end has sent has ended before.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// Tries in the background to take the lock of a disk that another process had when the daemon
/// started, because a client wants to use the disk here. Does nothing for other disks, nor while
/// the lock is being taken.
pub(super) fn try_to_activate(entry: &ExportEntry) {
    let activation = entry.volume.activation.as_ref();
    let locked = |it: &&Arc<Activation>| it.state() == ActivationState::LockedElsewhere;
    let Some(activation) = activation.filter(locked).filter(|it| !it.is_changing()) else {
        return;
    };
    let mut user = DiskUser::new(&entry.volume, activation.clone(), entry.handle.clone());
    tokio::task::spawn_blocking(move || {
        if let Err(why) = user.begin() {
            tracing::debug!(export = %user.name, "still not served: {why}");
        }
    });
}

/// Front-end that uses a disk while its queues run.
pub(super) struct DiskUser {
    name: String,
    serial: u32,
    activation: Arc<Activation>,
    handle: LoopHandle,
    /// True while queues run.
    runs: bool,
}

impl DiskUser {
    /// Makes the user of a disk, whose queues do not run yet.
    pub(super) fn new(
        volume: &Volume,
        activation: Arc<Activation>,
        handle: LoopHandle,
    ) -> DiskUser {
        DiskUser {
            name: volume.name.clone(),
            serial: volume.serial,
            activation,
            handle,
            runs: false,
        }
    }

    /// Tells the loop of the disk of the lock, and waits for the answer.
    fn tell(&self, lock: DiskLock) -> Result<(), String> {
        let (reply, answer) = oneshot::channel();
        let gone = || "the disk is no longer served".to_owned();
        let change = ActivationChange {
            serial: self.serial,
            lock,
            reply,
        };
        let sent = self.handle.send(Command::ChangeActivation(change));
        sent.map_err(|_| gone())?;
        let waiting = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build();
        let waiting = waiting.map_err(|error| error.to_string())?;
        let answer = waiting.block_on(async { timeout(ANSWER_TIMEOUT, answer).await });
        let late = format!("its I/O in flight has not ended within {ANSWER_TIMEOUT:?}");
        let answer = answer.map_err(|_| late)?.map_err(|_| gone())?;
        answer.map_err(|error| error.to_string())
    }

    /// Takes the lock of the file.
    fn activate(&self) -> Result<(), String> {
        let activation = &self.activation;
        let found = activation.lock().map_err(|error| error.to_string())?;
        let active = self.tell(DiskLock::Taken(found));
        if active.is_err() {
            // The disk was removed, or its loop has ended: nothing was written.
            let _ = activation.unlock();
            return active;
        }
        activation.set_state(ActivationState::Active);
        tracing::info!(export = %self.name, "active: the guest runs here, the file is locked");
        Ok(())
    }

    /// Releases the lock of the file. Whatever goes wrong, it stays locked, so that no other daemon
    /// begins with data that are not durable.
    fn hand_over(&self) -> Result<(), String> {
        let activation = &self.activation;
        // First, because a resize that began now would change the file without the lock.
        activation.set_state(ActivationState::HandedOver);
        let stays = |error, why| {
            let told = self.tell(DiskLock::Kept(error));
            activation.set_state(ActivationState::Active);
            told.and(Err(why))
        };
        if let Err(why) = self.tell(DiskLock::Leaves) {
            // Served here as before.
            return stays(None, why);
        }
        if let Err(error) = activation.unlock() {
            let why = format!("it cannot be flushed: {error}");
            return stays(Some(error), why);
        }
        tracing::info!(
            export = %self.name,
            "handed over: the guest migrates, and another daemon may lock the file"
        );
        Ok(())
    }
}

impl QueueUser for DiskUser {
    fn begin(&mut self) -> Result<(), String> {
        if self.runs {
            return Ok(());
        }
        let mut users = self.activation.users();
        if self.activation.state() != ActivationState::Active {
            self.activate()?;
        }
        *users += 1;
        self.runs = true;
        Ok(())
    }

    fn take_arrival(&mut self) -> Option<Arrival> {
        self.activation.take_arrival()
    }

    fn is_settled(&self) -> bool {
        self.activation.is_settled()
    }

    fn set_cache_mode(&mut self, writeback: Option<bool>) {
        self.activation.set_cache_mode(writeback);
    }

    fn end(&mut self, migrates: bool) {
        if !std::mem::take(&mut self.runs) {
            return;
        }
        let mut users = self.activation.users();
        *users -= 1;
        if !migrates || *users > 0 {
            return;
        }
        if let Err(why) = self.hand_over() {
            tracing::error!(
                export = %self.name,
                "not handed over, the guest cannot go on elsewhere: {why}"
            );
        }
    }
}

impl Drop for DiskUser {
    fn drop(&mut self) {
        // A front-end that is gone leaves the disk locked: its guest may still run.
        self.end(false);
    }
}
