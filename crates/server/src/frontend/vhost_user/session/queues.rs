//! Queues of a device as its front-end sets them up, and the memory that their rings are in.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

use vhost::vhost_user::{Error, Result};

use super::{Device, refused};
use crate::frontend::vhost_user::assistant::Assistant;
use crate::frontend::vhost_user::config_space::{EVENT_IDX, INDIRECT_DESC, PROTOCOL_FEATURES};
use crate::frontend::vhost_user::dirty_log::UsedAddress;
use crate::frontend::vhost_user::guest_memory::{GuestMemory, Region};
use crate::frontend::vhost_user::inflight::QueueRecord;
use crate::frontend::vhost_user::mailbox::Change;
use crate::frontend::vhost_user::session_state::QueueState;
use crate::frontend::vhost_user::virtqueue::{QueueSetup, RingAddresses, Rings, SIZE_MAX};
use crate::log_limit;
use crate::ring::sys;
use crate::vm_resources::{Resource, Share, VmResources};

/// Queue as messages have described it.
#[derive(Default, Debug)]
pub(super) struct Queue {
    pub(super) size: u16,
    pub(super) addresses: Option<RingAddresses>,
    pub(super) logged_at: UsedAddress,
    pub(super) base: u16,
    pub(super) kick: Option<EventFile>,
    pub(super) call: Option<EventFile>,
    /// State by `SET_VRING_ENABLE`; `None` before the first one.
    pub(super) enabled: Option<bool>,
    pub(super) run: Run,
}

/// State of a queue by its messages and by the memory table.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) enum Run {
    #[default]
    Stopped,
    /// The loop has the queue.
    Runs,
    /// The queue was started, and its rings are not in the memory table now: the loop does not have
    /// it, and what the driver does meanwhile is found when the rings are back.
    Paused,
}

impl Queue {
    /// Returns true if no message has described the queue.
    pub(super) fn is_new(&self) -> bool {
        let has_files = self.kick.is_some() || self.call.is_some();
        let is_placed = self.size != 0 || self.addresses.is_some() || self.base != 0;
        !has_files && !is_placed && self.enabled.is_none() && self.run == Run::Stopped
    }

    /// Returns the queue for another daemon.
    ///
    /// # Errors
    /// If the process has no free descriptor.
    pub(super) fn state(&self) -> io::Result<QueueState<OwnedFd>> {
        let copy = |file: &Option<EventFile>| {
            let copy = file.as_ref().map(|file| file.file.try_clone());
            copy.transpose().map(|copy| copy.map(OwnedFd::from))
        };
        Ok(QueueState {
            size: self.size,
            addresses: self.addresses,
            base: self.base,
            kick: copy(&self.kick)?,
            call: copy(&self.call)?,
            enabled: self.enabled,
            is_started: self.run != Run::Stopped,
        })
    }

    /// Returns a queue of another daemon, which is started later if it was there.
    ///
    /// # Errors
    /// If a message could not describe it so.
    pub(super) fn of_state(
        state: QueueState<OwnedFd>,
        limits: &Arc<VmResources>,
        assistant: &Assistant,
    ) -> Result<Queue> {
        if state.size != 0 {
            check_size(state.size.into())?;
        }
        let file = |file: Option<OwnedFd>| {
            let file = file.map(|file| EventFile::new(file.into(), limits, assistant));
            file.transpose()
        };
        let call = file(state.call)?;
        if let Some(call) = &call {
            sys::set_nonblocking(call.file()).map_err(Error::ReqHandlerError)?;
        }
        Ok(Queue {
            size: state.size,
            addresses: state.addresses,
            logged_at: None,
            base: state.base,
            kick: file(state.kick)?,
            call,
            enabled: state.enabled,
            run: match state.is_started {
                true => Run::Runs,
                false => Run::Stopped,
            },
        })
    }
}

/// Returns the number of entries of a queue as a message gives it.
///
/// # Errors
/// The number is no power of two, or above the maximum.
pub(super) fn check_size(entries: u32) -> Result<u16> {
    let size = u16::try_from(entries).ok();
    let size = size.filter(|size| size.is_power_of_two() && *size <= SIZE_MAX);
    size.ok_or_else(|| {
        refused(format!(
            "a queue of {entries} entries: a power of two up to {SIZE_MAX}"
        ))
    })
}

impl Device {
    fn rings(&self, memory: &GuestMemory, index: usize) -> Result<Rings> {
        let queue = &self.queues[index];
        let addresses = queue.addresses.as_ref();
        let addresses = addresses.ok_or_else(|| refused("a queue without addresses"))?;
        Rings::locate(memory, queue.size, addresses).map_err(refused)
    }

    /// Starts a queue whose messages have all arrived.
    pub(super) fn start(&mut self, index: usize) -> Result<()> {
        let started = self.try_start(index);
        if started.is_err() {
            // Whichever queue it is: once one of them has taken requests, the guest runs here.
            if let Some(user) = self.user.as_mut().filter(|_| !self.guest_has_run) {
                user.start_failed();
            }
        } else if self.is_enabled(index) {
            self.note_guest_runs();
        }
        started
    }

    /// Returns true if a queue takes requests when it runs. Queues of front-ends that know no
    /// protocol features do so without a message.
    fn is_enabled(&self, index: usize) -> bool {
        let by_message = self.has(PROTOCOL_FEATURES);
        self.queues[index].enabled.unwrap_or(!by_message)
    }

    /// Notes that a queue takes requests, in the record of requests in flight as well: after a
    /// restart of the daemon, the next session has to know. Hypervisors enable queues only once all
    /// have started, so a queue that runs but is not enabled says nothing of the guest.
    pub(super) fn note_guest_runs(&mut self) {
        self.guest_has_run = true;
        if let Some(region) = &self.inflight {
            region.note_guest_runs();
        }
    }

    fn try_start(&mut self, index: usize) -> Result<()> {
        if self.queues[index].size == 0 {
            return Err(refused("a queue without a size"));
        }
        self.check_logged(self.log.as_deref(), index)?;
        let rings = self.rings(&self.memory, index)?;
        let setup = QueueSetup {
            rings,
            size: self.queues[index].size,
            base: self.queues[index].base,
            event_index: self.has(EVENT_IDX),
            indirect: self.has(INDIRECT_DESC),
            logged_at: self.queues[index].logged_at,
        };
        let record = |region| QueueRecord::new(region, index, setup.size).map_err(refused);
        let record = self.inflight.as_ref().map(record).transpose()?;
        let lock = self.inflight.as_ref().map(|region| region.lock());
        let lock = lock.transpose().map_err(Error::ReqHandlerError)?.flatten();
        let queue = &self.queues[index];
        let kick = (queue.kick.as_ref().ok_or_else(|| refused("no kick"))?).copy()?;
        let call = queue.call.as_ref().map(EventFile::copy).transpose()?;
        // Once little can fail any more: a disk that was incoming becomes active here, and is given
        // back only when the session has ended.
        if let Some(user) = &mut self.user {
            user.begin().map_err(refused)?;
        }
        self.settle_cache_mode();
        let change = Change::Start {
            queue: index,
            setup,
            record,
            lock,
            kick,
            call,
            enabled: self.is_enabled(index),
        };
        let left = self.request(change)?;
        self.queues[index].run = Run::Runs;
        if left > 0 && log_limit::RECOVERED.allows(Instant::now()) {
            tracing::info!(
                export = %self.volume.name,
                "queue {index}: requests that were in flight when the last session ended are done \
                 again: {left}"
            );
        }
        let size = self.volume().size;
        self.notices.queue_started(size);
        Ok(())
    }

    /// Stops a queue, and notes where it stands. Returns its state before.
    pub(super) fn stop(&mut self, index: usize) -> Result<Run> {
        let was = std::mem::take(&mut self.queues[index].run);
        if was == Run::Runs {
            self.queues[index].base = self.request(Change::Stop { queue: index })?;
        }
        Ok(was)
    }

    /// Stops a queue for a message that changes it, and puts it into the same state again.
    pub(super) fn restart(&mut self, index: u32, change: impl FnOnce(&mut Queue)) -> Result<()> {
        self.queue(index)?;
        let index = index as usize;
        let was = self.stop(index)?;
        change(&mut self.queues[index]);
        match was {
            Run::Stopped => Ok(()),
            Run::Runs => self.start(index),
            Run::Paused => self.resume_or_pause(index),
        }
    }

    /// Starts a queue, unless its rings are not in the memory table: it is paused then.
    pub(super) fn resume_or_pause(&mut self, index: usize) -> Result<()> {
        if self.rings(&self.memory, index).is_ok() {
            return self.start(index);
        }
        self.queues[index].run = Run::Paused;
        Ok(())
    }

    /// Replaces the memory table once nothing is in flight. Queues whose rings are not in the new
    /// one are paused, because hypervisors remove regions that they are about to add again.
    pub(super) fn put_memory(&mut self, regions: Vec<Arc<Region>>) -> Result<()> {
        let memory = Arc::new(GuestMemory::new(regions).map_err(refused)?);
        self.check_log_of(&memory)?;
        let mut rings = Vec::new();
        for index in 0..self.queues.len() {
            if self.queues[index].run != Run::Runs {
                continue;
            }
            if let Ok(found) = self.rings(&memory, index) {
                rings.push((index, found));
            } else {
                self.stop(index)?;
                self.queues[index].run = Run::Paused;
            }
        }
        let change = Change::Memory {
            memory: memory.clone(),
            rings,
        };
        self.request(change)?;
        // The loop has let go of the old table; regions that are not in the new one are unmapped.
        self.memory = memory;
        for index in 0..self.queues.len() {
            if self.queues[index].run == Run::Paused {
                self.resume_or_pause(index)?;
            }
        }
        Ok(())
    }

    /// Stops all queues and forgets what messages have said of them.
    pub(super) fn reset(&mut self) -> Result<()> {
        for index in 0..self.queues.len() {
            self.stop(index)?;
            self.queues[index] = Queue::default();
        }
        self.driver_was_reset();
        Ok(())
    }
}

/// Eventfd of a queue. While the queue runs, the loop has a copy.
#[derive(Debug)]
pub(super) struct EventFile {
    file: File,
    /// Two descriptors in the VM's limits, this one and the copy.
    _share: Share,
}

impl EventFile {
    /// Takes over a file that must be an eventfd, because nothing else may be waited for in a loop
    /// without harm.
    pub(super) fn new(
        file: File,
        limits: &Arc<VmResources>,
        assistant: &Assistant,
    ) -> Result<EventFile> {
        let is_eventfd = assistant.is_eventfd(file.as_raw_fd());
        if !is_eventfd.map_err(Error::ReqHandlerError)? {
            return Err(refused("a file for kicks or calls that is no eventfd"));
        }
        let share = limits.take(Resource::Descriptors, 2).map_err(refused)?;
        Ok(EventFile {
            file,
            _share: share,
        })
    }

    pub(super) fn file(&self) -> &File {
        &self.file
    }

    /// Copies the descriptor, for the loop.
    pub(super) fn copy(&self) -> Result<File> {
        self.file.try_clone().map_err(Error::ReqHandlerError)
    }
}
