//! Front-ends of vhost-user: the place of the one that a socket serves, and its session, which is
//! new or another daemon's.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use tokio::time::timeout;

use super::disk_user::DiskUser;
use super::socket::{Peer, Stream};
use super::{ExportEntry, ExportList};
use crate::connections::ConnectionPermit;
use crate::frontend::vhost_user::{self, ConfigNotices, Session, SessionState, Summons};
use crate::frontend::{Opening, Volume};
use crate::log_limit;
use crate::ownership::Ownership;
use crate::sandbox::{self, ThreadKind};

/// Time for which a front-end waits for the one before it to be gone.
const PLACE_TIMEOUT: Duration = Duration::from_secs(5);

/// Session that has a place, as far as others than its thread deal with it.
#[derive(Debug)]
struct Connected {
    notices: Arc<ConfigNotices>,
    summons: Summons,
}

/// Place of the one front-end that a socket serves.
#[derive(Default, Debug)]
pub(super) struct Place {
    taken: AtomicBool,
    /// Session of the front-end that has the place.
    session: Mutex<Option<Connected>>,
    /// Notified when the place is free again.
    freed: Notify,
}

impl Place {
    /// Waits until the place is free and takes it; `None` if it stays taken. A front-end that has
    /// just gone has it until its I/O in flight has ended, and its guest's next one may come
    /// before that.
    pub(super) async fn take(self: &Arc<Place>) -> Option<Taken> {
        let free = async {
            while self.taken.swap(true, Ordering::Acquire) {
                self.freed.notified().await;
            }
        };
        timeout(PLACE_TIMEOUT, free).await.ok()?;
        Some(Taken(self.clone()))
    }

    /// Takes the place if it is free.
    pub(super) fn take_now(self: &Arc<Place>) -> Option<Taken> {
        let was_taken = self.taken.swap(true, Ordering::Acquire);
        (!was_taken).then(|| Taken(self.clone()))
    }

    fn session(&self) -> MutexGuard<'_, Option<Connected>> {
        self.session.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the means to have the session of the front-end rest that has the place.
    pub(super) fn summons(&self) -> Option<Summons> {
        let session = self.session();
        session.as_ref().map(|session| session.summons.clone())
    }

    /// Notifies the front-end that has the place, if it knows another size.
    pub(super) fn size_is(&self, size: u64) {
        if let Some(session) = &*self.session() {
            session.notices.size_is(size);
        }
    }

    /// Waits until the place is free, and leaves it so.
    pub(super) async fn freed(&self) {
        while self.taken.load(Ordering::Acquire) {
            self.freed.notified().await;
        }
    }
}

/// Place that is taken; free again when dropped.
pub(super) struct Taken(Arc<Place>);

impl Drop for Taken {
    fn drop(&mut self) {
        *self.0.session() = None;
        self.0.taken.store(false, Ordering::Release);
        self.0.freed.notify_one();
    }
}

/// Session of a front-end, whose thread does not run yet.
pub(crate) struct FrontEnd {
    session: Session,
    opening: vhost_user::Opening,
    entry: ExportEntry,
    permit: ConnectionPermit,
    peer: String,
    is_confined: bool,
}

impl FrontEnd {
    /// Makes the session of a front-end that has connected.
    fn new(stream: Stream, peer: &Peer, disk: &str, list: &ExportList) -> Result<FrontEnd, String> {
        let entry = list.find(disk).ok_or("the disk was removed")?;
        let permit = entry.connections.admit().map_err(|why| why.to_string())?;
        let failed = |error: std::io::Error| error.to_string();
        let socket = UnixStream::from(stream.into_fd().map_err(failed)?);
        let (current, limits) = (current(disk, list), entry.connections.resources());
        let session = Session::new(socket, entry.volume.clone(), current, limits);
        let (session, opening) = session.map_err(failed)?;
        Ok(FrontEnd {
            session,
            opening,
            entry,
            permit,
            peer: peer.to_string(),
            is_confined: list.confines_sessions(),
        })
    }

    /// Makes the session of a front-end that another daemon has served. The record of its requests
    /// in flight is this daemon's once `lock` is.
    ///
    /// # Errors
    /// As for [`Session::resumed`].
    pub(crate) fn resumed(
        state: SessionState<OwnedFd>,
        (entry, list): (ExportEntry, &ExportList),
        (peer, permit): (String, ConnectionPermit),
        lock: Ownership,
    ) -> Result<FrontEnd, String> {
        let current = current(&entry.volume.name, list);
        let limits = entry.connections.resources();
        let session = Session::resumed(state, entry.volume.clone(), current, limits, lock);
        let (session, opening) = session?;
        Ok(FrontEnd {
            session,
            opening,
            entry,
            permit,
            peer,
            is_confined: list.confines_sessions(),
        })
    }

    /// Hands the device to the event loop of its disk and starts the session's thread.
    ///
    /// # Errors
    /// If the thread cannot be started.
    pub(super) fn begin(self, taken: Taken) -> Result<(), String> {
        let FrontEnd {
            mut session,
            opening,
            entry,
            permit,
            peer,
            is_confined,
        } = self;
        if let Some(activation) = &entry.volume.activation {
            let (handle, assistant) = (entry.handle.clone(), session.assistant());
            let user = DiskUser::new(&entry.volume, activation.clone(), handle, assistant);
            session.set_user(Box::new(user));
        }
        *taken.0.session() = Some(Connected {
            notices: session.notices(),
            summons: session.summons(),
        });
        let (name, from) = (entry.volume.name.clone(), peer.clone());
        let thread = std::thread::Builder::new().name("vhost-user".to_owned());
        let run = move || {
            if is_confined {
                sandbox::confine(ThreadKind::VhostUser);
            }
            session.run(|reason| {
                if let Some(why) = reason
                    && log_limit::CUT_OFF.allows(Instant::now())
                {
                    tracing::warn!(export = %name, peer = %from, "front-end cut off: {why}");
                }
            });
            // Only now: guest memory has been unmapped.
            drop(taken);
        };
        entry.hand_over(Opening::VhostUser(opening), peer, permit);
        // Without the thread, the session is dropped, and its connection ends.
        let failed = |error: std::io::Error| error.to_string();
        thread.spawn(run).map(drop).map_err(failed)
    }
}

/// Returns the source of a disk's description as it is now.
fn current(disk: &str, list: &ExportList) -> Box<dyn Fn() -> Option<Volume> + Send> {
    let (name, list) = (disk.to_owned(), list.clone());
    Box::new(move || list.find(&name).map(|entry| entry.volume))
}

/// Hands a front-end to the event loop of its disk and starts its thread.
pub(super) fn begin_session(
    stream: Stream,
    peer: &Peer,
    disk: &str,
    list: &ExportList,
    taken: Taken,
) -> Result<(), String> {
    FrontEnd::new(stream, peer, disk, list)?.begin(taken)
}
