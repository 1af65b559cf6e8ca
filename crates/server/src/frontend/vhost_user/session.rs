//! Session of a front-end: messages of the vhost-user protocol, on a thread of its own.
//!
//! The thread blocks in reads of the socket and waits for the loop where a message needs it, so a
//! front-end that sends half a message stops nobody but itself. Every error ends the session: the
//! device stops, and the front-end may connect again.

mod cache_mode;
mod hand_over;
mod queues;

use std::fs::File;
use std::io;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use vhost::vhost_user::message::{
    VhostTransferStateDirection, VhostTransferStatePhase, VhostUserConfigFlags, VhostUserInflight,
    VhostUserLog, VhostUserMemoryRegion, VhostUserShMemConfig, VhostUserSharedMsg,
    VhostUserSingleMemoryRegion, VhostUserVringAddrFlags, VhostUserVringState,
};
use vhost::vhost_user::{
    BackendReqHandler, Error, GpuBackend, Result, VhostUserBackendReqHandlerMut,
    VhostUserProtocolFeatures,
};

use self::queues::{EventFile, Queue, Run, check_size};
use super::assistant::{Assistant, record_layout};
use super::back_channel::{ConfigNotices, SocketOffer};
use super::cache_mode::CacheMode;
use super::config_space::{self, CONFIG_WCE, LOG_ALL};
use super::connection::{Opening, QUEUES_MAX};
use super::dirty_log::DirtyLog;
use super::guest_memory::{GuestMemory, REGIONS_MAX, Region, RegionAddress};
use super::inflight::{InflightRegion, Layout};
use super::mailbox::{Change, LoopEnd, Mailbox, Outcome, Summons};
use super::virtqueue::{RingAddresses, used_bytes};
use crate::backing::Arrival;
use crate::frontend::Volume;
use crate::vm_resources::{Resource, Share, VmResources};

/// Bytes of the configuration space that a front-end may read; those that this device has no
/// fields for are zero.
const CONFIG_MAX: u32 = 256;

/// Descriptors of a session without queues: the socket twice, both ends of the bell, the summons
/// for a hand-over, and the socket for notices.
const SESSION_DESCRIPTORS: u64 = 6;

/// Source of the volume's current description, whose size may change.
pub(crate) type CurrentVolume = Box<dyn Fn() -> Option<Volume> + Send>;

/// Use of a disk by the queues of a front-end, told by its session. Dropping it ends the use, once
/// the loop has let go of the queues.
pub(crate) trait QueueUser: Send {
    /// Prepares the disk for the first queue that starts; does nothing while queues run. May block.
    ///
    /// # Errors
    /// A message if another daemon has the disk, or its file is not what it was.
    fn begin(&mut self) -> std::result::Result<(), String>;

    /// Returns the arrival of the disk from another daemon, once after `begin`: the first front-end
    /// that uses it has to know what its driver counts on.
    fn take_arrival(&mut self) -> Option<Arrival>;

    /// Returns true if the disk is in use by this daemon, so that a driver whose queues start now
    /// has read its configuration here.
    fn is_settled(&self) -> bool;

    /// Sets the cache mode that the driver knows, which goes with the disk that is handed over.
    fn set_cache_mode(&mut self, writeback: Option<bool>);

    /// Notes that a queue could not be started and that the guest has not run here, as far as this
    /// session or its record of requests in flight tells. The session is about to end.
    fn start_failed(&mut self);

    /// Notes that the last queue has stopped. If the guest `migrates`, another daemon may have the
    /// disk from now on. May block, for a bounded time.
    ///
    /// # Errors
    /// A message if the disk hangs, so that the session has to end.
    fn end(&mut self, migrates: bool) -> std::result::Result<(), String>;
}

/// Front-end that has connected.
pub(crate) struct Session {
    handler: BackendReqHandler<Mutex<Device>>,
    device: Arc<Mutex<Device>>,
    /// True for a session of another daemon, whose queues are to be started.
    resumes: bool,
    /// Ends the connection also of a session that never runs, or panics.
    end: End,
}

/// Ends a session's connection when it is dropped.
struct End(Arc<Mailbox>);

impl Drop for End {
    fn drop(&mut self) {
        self.0.abandon();
    }
}

impl Session {
    /// Makes the session of a front-end, and its other half for the loop.
    ///
    /// # Errors
    /// If the process has no free descriptor, or the VM as many as it may have.
    pub(crate) fn new(
        socket: UnixStream,
        volume: Volume,
        current: CurrentVolume,
        limits: Arc<VmResources>,
    ) -> io::Result<(Session, Opening)> {
        let descriptors = limits.take(Resource::Descriptors, SESSION_DESCRIPTORS);
        let descriptors = descriptors.map_err(io::Error::other)?;
        let assistant = Assistant::start(volume.activation.clone())?;
        let mailbox = Mailbox::new(&socket)?;
        let opening = Opening {
            mailbox: LoopEnd::new(mailbox.clone()),
            volume: volume.clone(),
        };
        let end = End(mailbox.clone());
        let device = Device {
            mailbox,
            volume,
            current,
            user: None,
            assistant,
            limits,
            _descriptors: descriptors,
            features: None,
            protocol_features: VhostUserProtocolFeatures::empty(),
            notices: Arc::default(),
            cache: CacheMode::default(),
            memory: Arc::default(),
            log: None,
            inflight: None,
            was_asked: false,
            queues: (0..QUEUES_MAX).map(|_| Queue::default()).collect(),
            guest_has_run: false,
        };
        let device = Arc::new(Mutex::new(device));
        let session = Session {
            handler: BackendReqHandler::from_stream(socket, device.clone()),
            device,
            resumes: false,
            end,
        };
        Ok((session, opening))
    }

    /// Has a user told when queues run, because the disk can be handed over to another daemon.
    pub(crate) fn set_user(&mut self, user: Box<dyn QueueUser>) {
        lock(&self.device).user = Some(user);
    }

    /// Returns the assistant of the session's thread, which may be confined.
    pub(crate) fn assistant(&self) -> Assistant {
        lock(&self.device).assistant.clone()
    }

    /// Returns the notices to the front-end that the size of the disk has changed.
    pub(crate) fn notices(&self) -> Arc<ConfigNotices> {
        lock(&self.device).notices.clone()
    }

    /// Returns the means to have the session rest, for a hand-over.
    pub(crate) fn summons(&self) -> Summons {
        Summons::new(lock(&self.device).mailbox.clone())
    }

    /// Handles messages until the front-end has gone or the loop has closed, then lets go of guest
    /// memory, which waits for requests in flight. Calls `on_end` before that with the reason;
    /// `None` for an end in order.
    pub(crate) fn run(self, on_end: impl FnOnce(Option<String>)) {
        let Session {
            mut handler,
            device,
            mut resumes,
            end: _end,
        } = self;
        let mailbox = lock(&device).mailbox.clone();
        let reason = loop {
            let handled = if std::mem::take(&mut resumes) {
                lock(&device).resume()
            } else {
                await_and_handle(&mailbox, &mut handler, &device)
            };
            match handled {
                Ok(()) => lock(&device).keep_cache_mode(),
                // The front-end has gone, or the loop has closed the connection.
                Err(Error::Disconnected | Error::SocketBroken(_)) => break None,
                Err(Error::ReqHandlerError(error)) => break Some(error.to_string()),
                Err(error) => break Some(error.to_string()),
            }
        };
        on_end(reason);
        mailbox.leave();
    }
}

/// Waits for the next message and handles it, or rests if it is time for that.
fn await_and_handle(
    mailbox: &Mailbox,
    handler: &mut BackendReqHandler<Mutex<Device>>,
    device: &Mutex<Device>,
) -> Result<()> {
    let asked = mailbox.await_message().map_err(Error::ReqHandlerError)?;
    if let Some(listener) = asked {
        return hand_over::rest(device, listener);
    }
    let offer = SocketOffer::receive(mailbox.socket()).map_err(Error::ReqHandlerError)?;
    match offer {
        Some(offer) => lock(device).accept_socket(offer),
        None => handler.handle_request(),
    }
}

/// Device as its front-end has set it up.
struct Device {
    mailbox: Arc<Mailbox>,
    volume: Volume,
    current: CurrentVolume,
    /// Use of a disk that can be handed over.
    user: Option<Box<dyn QueueUser>>,
    assistant: Assistant,
    limits: Arc<VmResources>,
    _descriptors: Share,
    /// True once the front-end has asked for the features that are offered.
    was_asked: bool,
    /// Features that driver and front-end accepted; `None` before they have.
    features: Option<u64>,
    protocol_features: VhostUserProtocolFeatures,
    notices: Arc<ConfigNotices>,
    cache: CacheMode,
    memory: Arc<GuestMemory>,
    /// Log of the last `SET_LOG_BASE`, used while `VHOST_F_LOG_ALL` is accepted. Covers guest
    /// memory and what the queues that run have in it.
    log: Option<Arc<DirtyLog>>,
    /// Record of requests in flight that the front-end keeps, if it does.
    inflight: Option<Arc<InflightRegion>>,
    queues: Vec<Queue>,
    /// True once a queue has taken requests, in this session or by the record of an earlier one.
    guest_has_run: bool,
}

/// Locks the device, which no other thread does.
fn lock(device: &Mutex<Device>) -> MutexGuard<'_, Device> {
    device.lock().unwrap_or_else(PoisonError::into_inner)
}

fn refused(what: impl Into<String>) -> Error {
    Error::ReqHandlerError(io::Error::other(what.into()))
}

impl Device {
    fn has(&self, feature: u32) -> bool {
        self.features.unwrap_or(0) >> feature & 1 != 0
    }

    fn volume(&mut self) -> &Volume {
        // A disk that was removed is about to be closed.
        if let Some(volume) = (self.current)() {
            self.volume = volume;
        }
        &self.volume
    }

    fn request(&self, change: Change) -> Result<u16> {
        let outcome: Outcome = self.mailbox.request(change);
        outcome.map_err(refused)
    }

    fn queue(&mut self, index: u32) -> Result<&mut Queue> {
        let queues = self.queues.len();
        (self.queues.get_mut(index as usize))
            .ok_or_else(|| refused(format!("queue {index} of {queues}")))
    }

    /// Has the loop mark what it writes in the log, or in none.
    fn put_log(&mut self) -> Result<()> {
        let log = (self.log.clone()).filter(|_| self.has(LOG_ALL));
        self.request(Change::Log { log }).map(drop)
    }

    /// Checks that a log has a place for the used ring of a queue.
    fn check_logged(&self, log: Option<&DirtyLog>, index: usize) -> Result<()> {
        let queue = &self.queues[index];
        let (Some(log), Some(at)) = (log, queue.logged_at) else {
            return Ok(());
        };
        let end = at.checked_add(used_bytes(queue.size.into()) as u64);
        let end = end.ok_or_else(|| refused(format!("a used ring that is logged at {at:#x}")))?;
        log.check_covers(end).map_err(refused)
    }

    /// Lets go of a log that has no place for a new memory table.
    fn check_log_of(&mut self, memory: &GuestMemory) -> Result<()> {
        let log = self.log.as_ref();
        let Some(Err(why)) = log.map(|log| log.check_covers(memory.end())) else {
            return Ok(());
        };
        if self.has(LOG_ALL) && self.queues.iter().any(|queue| queue.run != Run::Stopped) {
            return Err(refused(why));
        }
        // That of an earlier migration, or the front-end sets another before its queues run.
        let _old = self.log.take();
        self.put_log()
    }

    /// Takes over the front-end's socket for notices.
    fn accept_socket(&mut self, offer: SocketOffer) -> Result<()> {
        let accepted = match offer.file {
            _ if !self.accepts(VhostUserProtocolFeatures::BACKEND_REQ) => Err(not_offered()),
            Some(file) => self.notices.connect(file).map_err(refused),
            None => Err(refused("a socket for notices without its file")),
        };
        if offer.needs_reply && self.accepts(VhostUserProtocolFeatures::REPLY_ACK) {
            let sent = SocketOffer::answer(self.mailbox.socket(), accepted.is_ok());
            sent.map_err(Error::SocketBroken)?;
        }
        accepted
    }

    fn accepts(&self, feature: VhostUserProtocolFeatures) -> bool {
        self.protocol_features.contains(feature)
    }
}

fn address(region: &VhostUserMemoryRegion) -> RegionAddress {
    RegionAddress {
        guest: region.guest_phys_addr,
        user: region.user_addr,
        len: region.memory_size,
        offset: region.mmap_offset,
    }
}

/// Returns the layout of memory that records requests in flight.
fn layout(of: &VhostUserInflight) -> Result<Layout> {
    record_layout(of.num_queues, of.queue_size).map_err(refused)
}

impl VhostUserBackendReqHandlerMut for Device {
    fn set_owner(&mut self) -> Result<()> {
        Ok(())
    }

    fn reset_owner(&mut self) -> Result<()> {
        self.reset()
    }

    fn reset_device(&mut self) -> Result<()> {
        self.reset()
    }

    fn get_features(&mut self) -> Result<u64> {
        self.was_asked = true;
        Ok(config_space::features(self.volume()))
    }

    fn set_features(&mut self, features: u64) -> Result<()> {
        let unknown = features & !config_space::features(&self.volume);
        if unknown != 0 {
            return Err(refused(format!("unknown features {unknown:#x}")));
        }
        let logged = self.has(LOG_ALL);
        self.features = Some(features);
        self.put_cache_mode();
        if self.log.is_some() && self.has(LOG_ALL) != logged {
            self.put_log()?;
        }
        Ok(())
    }

    fn set_mem_table(
        &mut self,
        regions: &[VhostUserMemoryRegion],
        files: Vec<File>,
        _: Option<bool>,
    ) -> Result<Option<Vec<u64>>> {
        let map = |(region, file): (&VhostUserMemoryRegion, &File)| {
            Region::map(address(region), file, &self.limits).map(Arc::new)
        };
        let mapped = regions.iter().zip(&files).map(map);
        let mapped = mapped.collect::<std::result::Result<_, _>>();
        self.put_memory(mapped.map_err(refused)?)?;
        Ok(None)
    }

    fn set_vring_num(&mut self, index: u32, num: u32) -> Result<()> {
        let size = check_size(num)?;
        self.restart(index, |queue| queue.size = size)
    }

    fn set_vring_addr(
        &mut self,
        index: u32,
        flags: VhostUserVringAddrFlags,
        descriptors: u64,
        used: u64,
        available: u64,
        log: u64,
    ) -> Result<()> {
        let addresses = RingAddresses {
            descriptors,
            available,
            used,
        };
        let is_logged = flags.contains(VhostUserVringAddrFlags::VHOST_VRING_F_LOG);
        let logged_at = is_logged.then_some(log);
        let queue = self.queue(index)?;
        if queue.run != Run::Runs || queue.addresses != Some(addresses) {
            return self.restart(index, |queue| {
                (queue.addresses, queue.logged_at) = (Some(addresses), logged_at);
            });
        }
        // A migration begins or ends; the queue goes on meanwhile.
        queue.logged_at = logged_at;
        let queue = index as usize;
        self.check_logged(self.log.as_deref(), queue)?;
        self.request(Change::LogUsed { queue, logged_at }).map(drop)
    }

    fn set_vring_base(&mut self, index: u32, base: u32) -> Result<()> {
        let base = u16::try_from(base).map_err(|_| refused(format!("index {base} of a queue")))?;
        let queue = self.queue(index)?;
        if queue.run != Run::Stopped {
            return Err(refused("a new index for a queue that runs"));
        }
        queue.base = base;
        Ok(())
    }

    fn get_vring_base(&mut self, index: u32) -> Result<VhostUserVringState> {
        self.queue(index)?;
        self.stop(index as usize)?;
        let migrates = self.has(LOG_ALL);
        let is_last = self.queues.iter().all(|queue| queue.run == Run::Stopped);
        if let Some(user) = self.user.as_mut().filter(|_| is_last) {
            user.set_cache_mode(self.cache.writeback());
            // Before the answer, after which the guest may go on elsewhere.
            user.end(migrates).map_err(refused)?;
        }
        let queue = self.queue(index)?;
        // The front-end sends both anew before it starts the queue again.
        (queue.kick, queue.call) = (None, None);
        Ok(VhostUserVringState::new(index, queue.base.into()))
    }

    fn set_vring_kick(&mut self, index: u8, file: Option<File>) -> Result<()> {
        let file = file.ok_or_else(|| refused("queues without kicks are not supported"))?;
        let kick = EventFile::new(file, &self.limits, &self.assistant)?;
        let queue = self.queue(index.into())?;
        if queue.run == Run::Stopped {
            queue.kick = Some(kick);
            return self.start(index.into());
        }
        self.restart(index.into(), |queue| queue.kick = Some(kick))
    }

    fn set_vring_call(&mut self, index: u8, file: Option<File>) -> Result<()> {
        let file = file.map(|file| EventFile::new(file, &self.limits, &self.assistant));
        let file = file.transpose()?;
        let index = u32::from(index);
        if let Some(file) = &file {
            // The loop must not wait for a driver that does not read.
            crate::ring::sys::set_nonblocking(file.file()).map_err(Error::ReqHandlerError)?;
        }
        let queue = self.queue(index)?;
        queue.call = file;
        if queue.run != Run::Runs {
            return Ok(());
        }
        let call = queue.call.as_ref().map(EventFile::copy).transpose();
        let change = Change::Call {
            queue: index as usize,
            call: call?,
        };
        self.request(change).map(drop)
    }

    fn set_vring_err(&mut self, _: u8, _: Option<File>) -> Result<()> {
        // Errors end the session instead.
        Ok(())
    }

    fn get_protocol_features(&mut self) -> Result<VhostUserProtocolFeatures> {
        Ok(offered_protocol_features())
    }

    fn set_protocol_features(&mut self, features: u64) -> Result<()> {
        let unknown = features & !offered_protocol_features().bits();
        if unknown != 0 {
            let what = format!("unknown protocol features {unknown:#x}");
            return Err(refused(what));
        }
        self.protocol_features = VhostUserProtocolFeatures::from_bits_truncate(features);
        Ok(())
    }

    fn get_queue_num(&mut self) -> Result<u64> {
        Ok(QUEUES_MAX as u64)
    }

    fn set_vring_enable(&mut self, index: u32, enable: bool) -> Result<()> {
        let queue = self.queue(index)?;
        queue.enabled = Some(enable);
        if queue.run != Run::Runs {
            return Ok(());
        }
        if enable {
            self.note_guest_runs();
        }
        let change = Change::Enable {
            queue: index as usize,
            enabled: enable,
        };
        self.request(change).map(drop)
    }

    fn get_config(&mut self, offset: u32, size: u32, _: VhostUserConfigFlags) -> Result<Vec<u8>> {
        let end = offset.checked_add(size).filter(|&end| end <= CONFIG_MAX);
        let end = end.ok_or_else(|| refused("beyond the configuration space"))?;
        if self.queues.iter().all(|queue| queue.run == Run::Stopped) {
            self.cache.was_read();
        }
        let writeback = self.cache.writeback().unwrap_or(true);
        self.put_cache_mode();
        let notices = self.notices.clone();
        let mut space = Vec::new();
        // The size is the first field.
        let reads_size = offset == 0 && end >= 8;
        notices.note_read(reads_size, || {
            let volume = self.volume();
            space.extend(config_space::bytes(volume, writeback));
            volume.size
        });
        space.resize(CONFIG_MAX as usize, 0);
        Ok(space[offset as usize..end as usize].to_vec())
    }

    fn set_config(&mut self, offset: u32, bytes: &[u8], _: VhostUserConfigFlags) -> Result<()> {
        let &[writeback] = bytes else {
            return Err(refused("a field of the configuration that is read-only"));
        };
        // A driver may write it before the front-end has told the features that it accepted.
        let accepted = self.features.is_none() || self.has(CONFIG_WCE);
        if offset != config_space::WRITEBACK || !accepted || writeback > 1 {
            return Err(refused("a field of the configuration that is read-only"));
        }
        self.cache.was_set(writeback == 1);
        self.put_cache_mode();
        if writeback == 0 {
            // Before the answer, because the driver counts on it from then on.
            self.keep_cache_mode();
        }
        Ok(())
    }

    fn get_max_mem_slots(&mut self) -> Result<u64> {
        Ok(REGIONS_MAX as u64)
    }

    fn add_mem_region(
        &mut self,
        region: &VhostUserSingleMemoryRegion,
        file: File,
        _: Option<bool>,
    ) -> Result<Option<u64>> {
        let region = Region::map(address(region), &file, &self.limits).map_err(refused)?;
        let mut regions = self.memory.regions().to_vec();
        regions.push(Arc::new(region));
        self.put_memory(regions)?;
        Ok(None)
    }

    fn remove_mem_region(&mut self, region: &VhostUserSingleMemoryRegion) -> Result<()> {
        let gone = address(region);
        // The offset is not part of the region's identity, as in other back-ends.
        let is_gone = |other: &RegionAddress| {
            (other.guest, other.user, other.len) == (gone.guest, gone.user, gone.len)
        };
        let mut regions = self.memory.regions().to_vec();
        let before = regions.len();
        regions.retain(|region| !is_gone(region.address()));
        if regions.len() == before {
            return Err(refused("a region of guest memory that is not there"));
        }
        self.put_memory(regions)
    }

    fn set_gpu_socket(&mut self, _: GpuBackend) -> Result<()> {
        Err(not_offered())
    }

    fn get_shared_object(&mut self, _: VhostUserSharedMsg) -> Result<File> {
        Err(not_offered())
    }

    fn get_inflight_fd(&mut self, of: &VhostUserInflight) -> Result<(VhostUserInflight, File)> {
        let layout = layout(of)?;
        let created = self.assistant.make_record(of.num_queues, of.queue_size);
        let file = created.map_err(refused)?;
        // Front-ends keep a record until their driver starts anew.
        if self.queues.iter().all(|queue| queue.run == Run::Stopped) {
            self.driver_was_reset();
        }
        let made = VhostUserInflight::new(layout.bytes(), 0, of.num_queues, of.queue_size);
        Ok((made, file))
    }

    fn set_inflight_fd(&mut self, given: &VhostUserInflight, file: File) -> Result<()> {
        if self.queues.iter().any(|queue| queue.run != Run::Stopped) {
            return Err(refused(
                "memory for requests in flight while a queue runs: queues are stopped first",
            ));
        }
        let layout = layout(given)?;
        // Before the next one is locked, which may be the same memory.
        self.inflight = None;
        let open = |descriptor| self.assistant.open_record(descriptor);
        let range = (given.mmap_offset, given.mmap_size);
        let region = InflightRegion::map_with(open, layout, &file, range, &self.limits);
        let region = region.map_err(refused)?;
        self.cache.was_recorded(region.writeback());
        if region.is_truncated() {
            return Err(refused("the memory for requests in flight is gone"));
        }
        // Other queues of the guest may have run before, or the same one.
        self.guest_has_run |= region.guest_has_run();
        self.inflight = Some(Arc::new(region));
        self.put_cache_mode();
        self.keep_cache_mode();
        Ok(())
    }

    fn set_device_state_fd(
        &mut self,
        _: VhostTransferStateDirection,
        _: VhostTransferStatePhase,
        _: File,
    ) -> Result<Option<File>> {
        Err(not_offered())
    }

    fn check_device_state(&mut self) -> Result<()> {
        Err(not_offered())
    }

    fn get_shmem_config(&mut self) -> Result<VhostUserShMemConfig> {
        Err(not_offered())
    }

    fn set_log_base(&mut self, log: &VhostUserLog, file: File) -> Result<()> {
        let log = DirtyLog::map(&file, log.mmap_offset, log.mmap_size, &self.limits);
        let log = log.map_err(refused)?;
        log.check_covers(self.memory.end()).map_err(refused)?;
        for index in (0..self.queues.len()).filter(|&index| self.queues[index].run != Run::Stopped)
        {
            self.check_logged(Some(&log), index)?;
        }
        // Unmapped once the loop has let go of it.
        let _old = self.log.replace(Arc::new(log));
        self.put_log()
    }
}

/// Returns the protocol features that are offered.
fn offered_protocol_features() -> VhostUserProtocolFeatures {
    VhostUserProtocolFeatures::MQ
        | VhostUserProtocolFeatures::CONFIG
        | VhostUserProtocolFeatures::REPLY_ACK
        | VhostUserProtocolFeatures::BACKEND_REQ
        | VhostUserProtocolFeatures::RESET_DEVICE
        | VhostUserProtocolFeatures::INFLIGHT_SHMFD
        | VhostUserProtocolFeatures::CONFIGURE_MEM_SLOTS
        | VhostUserProtocolFeatures::LOG_SHMFD
}

fn not_offered() -> Error {
    refused("a message of a feature that is not offered")
}

#[cfg(test)]
#[path = "session_tests.rs"]
mod tests;
