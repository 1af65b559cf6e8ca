//! Use of a disk by the front-end of a guest that may migrate.
//!
//! ```text
//!   Incoming, HandedOver, LockedElsewhere --first queue starts: lock taken--> Active
//!   Active --last queue stops, guest migrates: lock released--> HandedOver
//!   Active --start fails, no queue was enabled, session ends: lock released--> as before
//! ```
//!
//! Only a front-end has the lock taken, because its queues start where the guest runs. NBD clients
//! use a disk that is active, and never make it so: one that connects while a guest is between two
//! hosts would keep the disk from it.
//!
//! The lock is released once all I/O has ended and is durable, by a thread that may hang with the
//! file system. The front-end waits for it only for a bounded time.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::backing::{Activation, ActivationState, Arrival, Users};
use crate::command::{ActivationChange, Command, DiskLock};
use crate::event_loop::LoopHandle;
use crate::frontend::Volume;
use crate::frontend::vhost_user::{Assistant, QueueUser};

/// Time for which the I/O in flight of a disk that is handed over may take to end; what its own
/// front-end has sent has ended before. Shorter in unit tests.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(if cfg!(test) { 2 } else { 30 });
/// Time for which a front-end waits for the flush of a disk that is handed over: the file system
/// hangs then, and the hypervisor is to go on. Shorter in unit tests.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(if cfg!(test) { 2 } else { 30 });

/// Front-end that uses a disk while its queues run.
pub(super) struct DiskUser {
    name: String,
    serial: u32,
    activation: Arc<Activation>,
    handle: LoopHandle,
    /// Takes and releases the lock, because the session's thread may be confined.
    assistant: Assistant,
    /// True while queues run.
    runs: bool,
    /// State of the disk before this front-end took the lock; `None` if it was active.
    state_before: Option<ActivationState>,
    /// True if a queue could not be started before the guest ran here, so that the lock is to be
    /// given back.
    gives_back: bool,
    /// Result of a flush that hangs.
    flush: Option<Receiver<io::Result<()>>>,
}

impl DiskUser {
    /// Makes the user of a disk, whose queues do not run yet.
    pub(super) fn new(
        volume: &Volume,
        activation: Arc<Activation>,
        handle: LoopHandle,
        assistant: Assistant,
    ) -> DiskUser {
        DiskUser {
            name: volume.name.clone(),
            serial: volume.serial,
            activation,
            handle,
            assistant,
            runs: false,
            state_before: None,
            gives_back: false,
            flush: None,
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
    fn activate(&mut self, users: &mut Users) -> Result<(), String> {
        let before = self.activation.state();
        let locked = self.assistant.lock();
        let locked = locked.map_err(|error| error.to_string())?;
        let found = locked.map_err(|error| error.to_string())?;
        if let Err(why) = self.tell(DiskLock::Taken(found)) {
            // The loop may still hear of it, so it has to hear of the release, too.
            let released = self.release(before, users);
            return released.and(Err(why));
        }
        self.activation.set_state(ActivationState::Active);
        self.state_before = Some(before);
        tracing::info!(export = %self.name, "active: the guest runs here, the file is locked");
        Ok(())
    }

    /// Releases the lock of the file and leaves the disk in the state `to`. Whatever goes wrong, it
    /// stays locked, so that no other daemon begins with data that are not durable.
    ///
    /// # Errors
    /// A message if the flush hangs. The lock is released once the flush has ended, for which the
    /// drop of this user waits.
    fn release(&mut self, to: ActivationState, users: &mut Users) -> Result<(), String> {
        // First, because a resize that began now would change the file without the lock.
        self.activation.set_state(to);
        if let Err(why) = self.tell(DiskLock::Leaves) {
            self.stays_locked(None, &why);
            return Ok(());
        }
        let flush = match self.assistant.unlock() {
            Ok(flush) => flush,
            Err(error) => {
                self.stays_locked(None, &error.to_string());
                return Ok(());
            }
        };
        match flush.recv_timeout(FLUSH_TIMEOUT) {
            Err(RecvTimeoutError::Timeout) => {
                users.is_releasing = true;
                self.flush = Some(flush);
                Err(format!(
                    "its flush has not ended for {} s: the file system hangs, and the lock of the \
                     file is released when it answers",
                    FLUSH_TIMEOUT.as_secs()
                ))
            }
            ended => {
                self.flushed(ended.unwrap_or_else(|_| Err(panicked())));
                Ok(())
            }
        }
    }

    /// Notes the end of a flush, after which the lock has been released unless it failed.
    fn flushed(&self, result: io::Result<()>) {
        if let Err(error) = result {
            let why = format!("it cannot be flushed: {error}");
            return self.stays_locked(Some(error), &why);
        }
        let why = if self.gives_back {
            "a queue of the guest could not be started"
        } else {
            "the guest migrates"
        };
        tracing::info!(
            export = %self.name,
            "handed over: {why}, and another daemon may lock the file"
        );
    }

    /// Serves the disk here as before, because its lock is not released.
    fn stays_locked(&self, error: Option<io::Error>, why: &str) {
        tracing::error!(
            export = %self.name,
            "not handed over, the guest cannot go on elsewhere: {why}"
        );
        if let Err(error) = self.tell(DiskLock::Kept(error)) {
            tracing::error!(export = %self.name, "the disk cannot be served again: {error}");
        }
        self.activation.set_state(ActivationState::Active);
    }
}

fn panicked() -> io::Error {
    io::Error::other("the thread that flushed it panicked")
}

impl QueueUser for DiskUser {
    fn begin(&mut self) -> Result<(), String> {
        if self.runs {
            return Ok(());
        }
        let activation = self.activation.clone();
        let mut users = activation.users();
        if users.is_releasing {
            let what = "the disk is being handed over: what was written is not durable yet";
            return Err(what.to_owned());
        }
        if activation.state() != ActivationState::Active {
            self.activate(&mut users)?;
        }
        users.count += 1;
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

    fn start_failed(&mut self) {
        self.gives_back = true;
    }

    fn end(&mut self, migrates: bool) -> Result<(), String> {
        if !std::mem::take(&mut self.runs) {
            return Ok(());
        }
        let activation = self.activation.clone();
        let mut users = activation.users();
        users.count -= 1;
        let before = self.state_before.take();
        let to = if migrates {
            Some(ActivationState::HandedOver)
        } else {
            before.filter(|_| self.gives_back)
        };
        match to {
            Some(to) if users.count == 0 => self.release(to, &mut users),
            _ => Ok(()),
        }
    }
}

impl Drop for DiskUser {
    /// Leaves the disk locked if its front-end has gone while queues ran: its guest may still run.
    fn drop(&mut self) {
        // Nobody is left to be told of a flush that hangs.
        let _ = self.end(false);
        if let Some(flush) = self.flush.take() {
            let result = flush.recv().unwrap_or_else(|_| Err(panicked()));
            let mut users = self.activation.users();
            self.flushed(result);
            users.is_releasing = false;
        }
    }
}

#[cfg(test)]
#[path = "disk_user_tests.rs"]
mod tests;
