//! Hand-over of a session to another daemon, between two messages, and back.
//!
//! ```text
//!   asked --> state, or closed like any session that ends --> rests --+--> other daemon: resumed
//!                                                                     +--> this one: starts queues
//! ```
//!
//! Where requests are recorded, those that were taken and not answered stay in the record, and are
//! done again, as after a crash. So a session can be handed over only with a record.

use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex};

use vhost::vhost_user::message::FrontendReq;
use vhost::vhost_user::{BackendReqHandler, Error, Result};

use super::queues::{Queue, Run};
use super::{CurrentVolume, Device, Session, lock};
use crate::frontend::Volume;
use crate::frontend::vhost_user::assistant::record_layout;
use crate::frontend::vhost_user::back_channel::request;
use crate::frontend::vhost_user::config_space::{self, LOG_ALL};
use crate::frontend::vhost_user::connection::Opening;
use crate::frontend::vhost_user::guest_memory::{GuestMemory, Region};
use crate::frontend::vhost_user::inflight::InflightRegion;
use crate::frontend::vhost_user::mailbox::{Change, RestEnd, Resting};
use crate::frontend::vhost_user::session_state::{RegionState, SessionState};
use crate::ownership::Ownership;
use crate::ring::sys;
use crate::vm_resources::VmResources;

/// Reason why a session cannot be handed over, or a failed copy of a descriptor.
type NotNow = std::borrow::Cow<'static, str>;

impl Session {
    /// Checks that a volume is what driver and front-end know of the one before.
    ///
    /// # Errors
    /// Names what they would miss.
    pub(crate) fn check_volume<F>(
        state: &SessionState<F>,
        volume: &Volume,
    ) -> std::result::Result<(), String> {
        let unknown = state.features & !config_space::features(volume);
        let protocol = state.protocol_features & !super::offered_protocol_features().bits();
        if (unknown, protocol) != (0, 0) {
            return Err(format!(
                "features {unknown:#x} and protocol features {protocol:#x} that are not offered"
            ));
        }
        if state.block_size != volume.block_size || state.payload_max > volume.payload_max {
            return Err(format!(
                "blocks of {} bytes and requests of {} bytes",
                state.block_size, state.payload_max
            ));
        }
        Ok(())
    }

    /// Makes the session of a front-end that another daemon has served, and its other half for the
    /// loop. The record of requests in flight is this daemon's once `lock` is.
    ///
    /// # Errors
    /// If the state cannot be one of a session, memory cannot be mapped, or the VM has as much as
    /// it may.
    pub(crate) fn resumed(
        state: SessionState<OwnedFd>,
        volume: Volume,
        current: CurrentVolume,
        limits: Arc<VmResources>,
        lock: Ownership,
    ) -> std::result::Result<(Session, Opening), String> {
        Session::check_volume(&state, &volume)?;
        let said = |error: std::io::Error| error.to_string();
        let socket = UnixStream::from(state.socket.try_clone().map_err(said)?);
        let session = Session::new(socket.try_clone().map_err(said)?, volume, current, limits);
        let (mut session, opening) = session.map_err(said)?;
        let (features, protocol) = (state.features, state.protocol_features);
        super::lock(&session.device).put_state(state, lock)?;
        session.handler = negotiated(socket, &session.device, features, protocol)?;
        session.resumes = true;
        Ok((session, opening))
    }
}

/// Returns the handler of messages of a front-end that has negotiated: what the handler knows of
/// that, it has from messages alone. Those come by a socket of this process, which is replaced.
fn negotiated(
    socket: UnixStream,
    device: &Arc<Mutex<Device>>,
    features: u64,
    protocol_features: u64,
) -> std::result::Result<BackendReqHandler<Mutex<Device>>, String> {
    let said = |error: std::io::Error| error.to_string();
    let (mut there, here) = UnixStream::pair().map_err(said)?;
    let mut handler = BackendReqHandler::from_stream(here, device.clone());
    for (what, value) in [
        (FrontendReq::GET_FEATURES, None),
        (FrontendReq::SET_PROTOCOL_FEATURES, Some(protocol_features)),
        (FrontendReq::SET_FEATURES, Some(features)),
    ] {
        let body = value.map(u64::to_ne_bytes);
        let message = request(what, body.as_ref().map_or(&[], |body| &body[..]));
        there.write_all(&message).map_err(said)?;
        handler
            .handle_request()
            .map_err(|error| error.to_string())?;
    }
    sys::replace(&handler, socket.as_fd()).map_err(said)?;
    Ok(handler)
}

/// Rests, because another daemon is about to take over; does nothing if the session cannot be
/// handed over.
pub(super) fn rest(device: &Mutex<Device>, listener: String) -> Result<()> {
    let mut device = lock(device);
    let mailbox = device.mailbox.clone();
    let resting = device.resting(listener);
    if let Err(why) = &resting {
        tracing::debug!(export = %device.volume.name, "its front-end is closed: {why}");
    }
    match mailbox.rest(resting.ok()) {
        RestEnd::GoesOn => Ok(()),
        RestEnd::Restarts => device.resume(),
        RestEnd::Closed => Err(Error::Disconnected),
    }
}

impl Device {
    /// Returns what another daemon needs to go on.
    fn resting(&self, listener: String) -> std::result::Result<Resting, NotNow> {
        let features = self.features.filter(|_| self.was_asked);
        let features = features.ok_or("it has not negotiated features yet")?;
        let is_logged = self.queues.iter().any(|queue| queue.logged_at.is_some());
        if self.log.is_some() || self.has(LOG_ALL) || is_logged {
            return Err("its guest migrates, or was about to".into());
        }
        let runs = self.queues.iter().any(|queue| queue.run != Run::Stopped);
        if runs && self.inflight.is_none() {
            return Err("it has no record of requests in flight".into());
        }
        if runs && !self.guest_has_run {
            return Err("its queues have started and are not enabled yet".into());
        }
        let record = self.inflight.as_ref().map(|region| region.state());
        let record = match record.transpose().map_err(said)? {
            Some(None) => return Err("its record of requests in flight has no lock".into()),
            record => record.flatten(),
        };
        let socket = self.mailbox.socket().as_fd().try_clone_to_owned();
        let region = |region: &Arc<Region>| -> std::result::Result<_, NotNow> {
            let file = region.file().try_clone().map_err(said)?.into();
            let address = *region.address();
            Ok(RegionState { address, file })
        };
        let regions = self.memory.regions().iter().map(region);
        let described = self.queues.iter().rposition(|queue| !queue.is_new());
        let queues = &self.queues[..described.map_or(0, |last| last + 1)];
        let queues = queues.iter().map(|queue| queue.state().map_err(said));
        let (notices, known_size) = self.notices.state().map_err(said)?;
        let lock = self.inflight.as_ref().map(|region| region.ownership());
        let state = SessionState {
            listener,
            socket: socket.map_err(said)?,
            features,
            protocol_features: self.protocol_features.bits(),
            block_size: self.volume.block_size,
            payload_max: self.volume.payload_max,
            notices,
            known_size,
            cache: self.cache,
            regions: regions.collect::<std::result::Result<_, _>>()?,
            record,
            queues: queues.collect::<std::result::Result<_, NotNow>>()?,
            guest_has_run: self.guest_has_run,
        };
        let lock = lock.cloned().unwrap_or_default();
        let state = Some(state);
        Ok(Resting { state, lock })
    }

    /// Takes the state of a session of another daemon over, but starts no queue.
    fn put_state(
        &mut self,
        state: SessionState<OwnedFd>,
        lock: Ownership,
    ) -> std::result::Result<(), String> {
        let limits = self.limits.clone();
        self.cache = state.cache;
        self.guest_has_run = state.guest_has_run;
        let notices = state.notices.map(File::from);
        self.notices.put_state(notices, state.known_size)?;
        let map = |region: RegionState<OwnedFd>| {
            Region::map(region.address, &File::from(region.file), &limits).map(Arc::new)
        };
        let regions = state.regions.into_iter().map(map);
        let regions = regions.collect::<std::result::Result<Vec<_>, _>>()?;
        // The loop gets it with the first queue.
        self.memory = Arc::new(GuestMemory::new(regions)?);
        if let Some(record) = state.record {
            let layout = record_layout(record.queues, record.entries)?;
            let region = InflightRegion::resumed(record, layout, lock, &limits)?;
            self.inflight = Some(Arc::new(region));
        }
        if state.queues.len() > self.queues.len() {
            return Err(format!("{} queues", state.queues.len()));
        }
        for (index, queue) in state.queues.into_iter().enumerate() {
            let queue = Queue::of_state(queue, &limits, &self.assistant);
            self.queues[index] = queue.map_err(|error| error.to_string())?;
        }
        let runs = self.queues.iter().any(|queue| queue.run != Run::Stopped);
        if runs && self.inflight.is_none() {
            return Err("queues that run without a record of requests in flight".to_owned());
        }
        Ok(())
    }

    /// Puts the memory table into the loop, which has none, and starts the queues that were
    /// started.
    pub(super) fn resume(&mut self) -> Result<()> {
        let memory = self.memory.clone();
        let rings = Vec::new();
        self.request(Change::Memory { memory, rings })?;
        for index in 0..self.queues.len() {
            if self.queues[index].run == Run::Runs {
                self.queues[index].run = Run::Stopped;
                self.resume_or_pause(index)?;
            }
        }
        Ok(())
    }
}

fn said(error: std::io::Error) -> NotNow {
    error.to_string().into()
}
