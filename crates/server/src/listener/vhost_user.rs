//! Sockets of vhost-user: one for each disk, from the time at which the disk is added until it is
//! removed.
//!
//! A front-end that connects gets a session on a thread of its own. While it is connected, the next
//! one waits for a while and is then refused.

use std::collections::BTreeMap;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::disk_user::DiskUser;
use super::socket::{BindError, Bound, FileOwner, Peer, Stream};
use super::{ACCEPT_RETRY_DELAY, ExportList, InheritedSockets, Listener};
use crate::config::{SocketOwner, SocketTemplate};
use crate::frontend::Opening;
use crate::frontend::vhost_user::{ConfigNotices, Session};
use crate::log_limit;
use crate::sandbox::{self, ThreadKind};

/// Time for which a front-end waits for the one before it to be gone.
const PLACE_TIMEOUT: Duration = Duration::from_secs(5);

/// Listener of vhost-user, with its sockets.
#[derive(Debug)]
pub struct VhostUserListener {
    path: SocketTemplate,
    mode: u32,
    owner: FileOwner,
    list: ExportList,
    sockets: Mutex<BTreeMap<PathBuf, Socket>>,
}

/// Socket of one disk.
#[derive(Clone, Debug)]
pub(super) struct Socket {
    bound: Arc<Bound>,
    /// Name of the disk.
    disk: String,
    place: Arc<Place>,
}

impl VhostUserListener {
    /// Makes a listener without sockets. Looks the names of owner and group up, once for all
    /// sockets of disks that are added later.
    ///
    /// # Errors
    /// If the owner or the group is not known.
    pub fn new(
        path: SocketTemplate,
        mode: u32,
        owner: &SocketOwner,
        list: ExportList,
    ) -> Result<VhostUserListener, BindError> {
        let owner = FileOwner::look_up(owner, Path::new(&path.to_string()))?;
        Ok(VhostUserListener {
            path,
            mode,
            owner,
            list,
            sockets: Mutex::default(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<PathBuf, Socket>> {
        // Each change leaves the map valid, even if a later one panicked.
        self.sockets.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the sockets that there are now.
    pub(crate) fn sockets(&self) -> Vec<Arc<Bound>> {
        let sockets = self.lock();
        sockets
            .values()
            .map(|socket| socket.bound.clone())
            .collect()
    }

    /// Binds the sockets of the disks that there are now, unless another daemon has them.
    ///
    /// # Errors
    /// The first error; the sockets that were bound are removed when the listener is dropped.
    pub fn bind(&self, inherited: &InheritedSockets) -> Result<(), BindError> {
        for (path, disk) in self.wanted() {
            let bound = match Bound::inherited_unix(&path, self.mode, self.owner, inherited) {
                Some(bound) => bound,
                None => Bound::unix(&path, self.mode, self.owner)?,
            };
            self.lock().insert(path, Socket::new(bound, disk));
        }
        Ok(())
    }

    /// Returns the path of each disk's socket with the disk. A path that two disks would have is
    /// the older one's.
    fn wanted(&self) -> BTreeMap<PathBuf, String> {
        let mut wanted = BTreeMap::new();
        for (vm, disk) in self.list.names() {
            let path = self.path.expand(&vm, &disk);
            if let Some(other) = wanted.get(&path) {
                tracing::warn!(
                    %vm, %disk, %other,
                    "no vhost-user socket: another disk has {}; add {{disk}} to vhost_user",
                    path.display()
                );
                continue;
            }
            wanted.insert(path, disk);
        }
        wanted
    }

    /// Accepts front-ends until the future is dropped, on sockets that come and go with their
    /// disks.
    pub async fn serve(self: Arc<Self>) {
        let mut changed = self.list.subscribe();
        let mut accepting = JoinSet::new();
        let mut tasks = BTreeMap::new();
        loop {
            let wanted = self.wanted();
            self.lock().retain(|path, socket| {
                let stays = wanted.get(path) == Some(&socket.disk);
                if !stays && let Some(task) = tasks.remove(path) {
                    let task: tokio::task::AbortHandle = task;
                    task.abort();
                }
                stays
            });
            for (path, disk) in wanted {
                if let Some(socket) = self.socket(&path, disk)
                    && !tasks.contains_key(&path)
                {
                    tracing::info!("listening on {} (vhost-user)", path.display());
                    let list = self.list.clone();
                    tasks.insert(path, accepting.spawn(accept_front_ends(socket, list)));
                }
            }
            self.notify_of_sizes();
            // The list outlives its listener, so the sender is there.
            if changed.changed().await.is_err() {
                return;
            }
        }
    }

    /// Notifies front-ends that know another size of their disk than it has.
    fn notify_of_sizes(&self) {
        let mut sizes = BTreeMap::new();
        self.list.for_each(|_, volume| {
            sizes.insert(volume.name.clone(), volume.size);
        });
        for socket in self.lock().values() {
            if let Some(&size) = sizes.get(&socket.disk) {
                socket.place.size_is(size);
            }
        }
    }

    /// Returns the socket at a path, which is bound unless it is already; `None` if that fails.
    fn socket(&self, path: &PathBuf, disk: String) -> Option<Socket> {
        let mut sockets = self.lock();
        if let Some(socket) = sockets.get(path) {
            return Some(socket.clone());
        }
        match Bound::unix(path, self.mode, self.owner) {
            Ok(bound) => {
                let socket = Socket::new(bound, disk);
                sockets.insert(path.clone(), socket.clone());
                Some(socket)
            }
            Err(error) => {
                tracing::error!(%disk, "no vhost-user socket: {error}");
                None
            }
        }
    }
}

impl Socket {
    pub(super) fn new(bound: Bound, disk: String) -> Socket {
        Socket {
            bound: Arc::new(bound),
            disk,
            place: Arc::default(),
        }
    }
}

/// Place of the one front-end that a socket serves.
#[derive(Default, Debug)]
pub(super) struct Place {
    taken: AtomicBool,
    /// Notices to the front-end that has the place.
    notices: Mutex<Option<Arc<ConfigNotices>>>,
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

    fn notices(&self) -> MutexGuard<'_, Option<Arc<ConfigNotices>>> {
        self.notices.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notifies the front-end that has the place, if it knows another size.
    fn size_is(&self, size: u64) {
        if let Some(notices) = &*self.notices() {
            notices.size_is(size);
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
        *self.0.notices() = None;
        self.0.taken.store(false, Ordering::Release);
        self.0.freed.notify_one();
    }
}

/// Accepts front-ends on a disk's socket until the future is dropped.
pub(super) async fn accept_front_ends(socket: Socket, list: ExportList) {
    let Socket { bound, disk, place } = socket;
    let listener = match Listener::new(&bound) {
        Ok(listener) => listener,
        Err(error) => return tracing::error!(listener = %bound.name(), "cannot listen: {error}"),
    };
    loop {
        let (stream, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                if log_limit::NOT_ACCEPTED.allows(Instant::now()) {
                    tracing::warn!(listener = %bound.name(), "cannot accept: {error}");
                }
                tokio::time::sleep(ACCEPT_RETRY_DELAY).await;
                continue;
            }
        };
        let begun = match place.take().await {
            Some(taken) => begin_session(stream, peer, &disk, &list, taken),
            None => {
                let why = "another front-end is connected, or its requests have not ended";
                Err(why.to_owned())
            }
        };
        if let Err(why) = begun
            && log_limit::REFUSED.allows(Instant::now())
        {
            tracing::warn!(export = %disk, %peer, "front-end refused: {why}");
        }
    }
}

/// Hands a front-end to the event loop of its disk and starts its thread.
pub(super) fn begin_session(
    stream: Stream,
    peer: Peer,
    disk: &str,
    list: &ExportList,
    taken: Taken,
) -> Result<(), String> {
    let entry = list.find(disk).ok_or("the disk was removed")?;
    let permit = entry.connections.admit().map_err(|why| why.to_string())?;
    let failed = |error: std::io::Error| error.to_string();
    let socket = UnixStream::from(stream.into_fd().map_err(failed)?);
    let (name, list) = (disk.to_owned(), list.clone());
    let is_confined = list.confines_sessions();
    let current = Box::new(move || list.find(&name).map(|entry| entry.volume));
    let limits = entry.connections.resources();
    let session = Session::new(socket, entry.volume.clone(), current, limits);
    let (mut session, opening) = session.map_err(failed)?;
    if let Some(activation) = &entry.volume.activation {
        let (handle, assistant) = (entry.handle.clone(), session.assistant());
        let user = DiskUser::new(&entry.volume, activation.clone(), handle, assistant);
        session.set_user(Box::new(user));
    }
    *taken.0.notices() = Some(session.notices());
    let name = disk.to_owned();
    let thread = std::thread::Builder::new().name("vhost-user".to_owned());
    let run = move || {
        if is_confined {
            sandbox::confine(ThreadKind::VhostUser);
        }
        session.run(|reason| {
            if let Some(why) = reason
                && log_limit::CUT_OFF.allows(Instant::now())
            {
                tracing::warn!(export = %name, %peer, "front-end cut off: {why}");
            }
        });
        // Only now: guest memory has been unmapped.
        drop(taken);
    };
    entry.hand_over(Opening::VhostUser(opening), peer.to_string(), permit);
    // Without the thread, the session is dropped, and its connection ends.
    thread.spawn(run).map(drop).map_err(failed)
}
