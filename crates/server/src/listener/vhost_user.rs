//! Sockets of vhost-user: one for each disk, from the time at which the disk is added until it is
//! removed.
//!
//! A front-end that connects gets a session on a thread of its own. While it is connected, the next
//! one waits for a while and is then refused.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tokio::task::JoinSet;

use super::front_end::{FrontEnd, Place, begin_session};
use super::inherited::key_of_path;
use super::socket::{BindError, Bound, FileOwner};
use super::{ACCEPT_RETRY_DELAY, ExportList, InheritedSockets, Listener};
use crate::config::{SocketOwner, SocketTemplate};
use crate::frontend::vhost_user::Summons;
use crate::log_limit;

/// Listener of vhost-user, with its sockets.
#[derive(Debug)]
pub struct VhostUserListener {
    path: SocketTemplate,
    mode: u32,
    owner: FileOwner,
    list: ExportList,
    sockets: Mutex<BTreeMap<PathBuf, Socket>>,
    /// Places of front-ends of another daemon, at paths that have no socket yet.
    reserved: Mutex<BTreeMap<PathBuf, Arc<Place>>>,
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
            reserved: Mutex::default(),
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

    /// Asks the sessions of all front-ends to rest, and returns the means to wait for that.
    pub(crate) fn rest(&self) -> Vec<Summons> {
        let mut all = Vec::new();
        for socket in self.lock().values() {
            if let Some(summons) = socket.place.summons() {
                summons.ask_to_rest(socket.bound.identity().0);
                all.push(summons);
            }
        }
        all
    }

    /// Begins the session of a front-end that another daemon has served at the socket with this
    /// key. It has the place of that socket, if one of `listeners` has it still.
    ///
    /// # Errors
    /// If the session's thread cannot be started.
    pub(crate) fn begin_handed(
        listeners: &[Arc<VhostUserListener>],
        key: &str,
        front_end: FrontEnd,
    ) -> Result<(), String> {
        let place = listeners.iter().find_map(|listener| listener.place(key));
        let taken = place.and_then(|place| place.take_now());
        let taken = taken.or_else(|| Arc::<Place>::default().take_now());
        front_end.begin(taken.expect("a new place is free"))
    }

    /// Returns the place of the socket with a key, also if it is yet to be made.
    fn place(&self, key: &str) -> Option<Arc<Place>> {
        let sockets = self.lock();
        if let Some(socket) = sockets.values().find(|it| it.bound.identity().0 == key) {
            return Some(socket.place.clone());
        }
        drop(sockets);
        let mut paths = self.wanted().into_keys();
        let path = paths.find(|path| key_of_path(path) == key)?;
        Some(self.reserved().entry(path).or_default().clone())
    }

    fn reserved(&self) -> MutexGuard<'_, BTreeMap<PathBuf, Arc<Place>>> {
        // Changed by single calls.
        (self.reserved.lock()).unwrap_or_else(PoisonError::into_inner)
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
                let mut socket = Socket::new(bound, disk);
                if let Some(place) = self.reserved().remove(path) {
                    socket.place = place;
                }
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
            Some(taken) => begin_session(stream, &peer, &disk, &list, taken),
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
