//! Listening sockets of another daemon, which a new one goes on with.

use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use crate::ownership::Ownership;

/// Listening socket of another daemon.
#[derive(Debug)]
pub struct InheritedSocket {
    /// Address as the configuration has it: `unix PATH` with an absolute path, or `tcp ADDRESS`.
    pub key: String,
    /// Device and inode of the file of a unix socket.
    pub file: Option<(u64, u64)>,
    /// Socket.
    pub fd: OwnedFd,
}

/// Listening sockets of another daemon that no listener has taken yet. Clones share them.
#[derive(Clone, Debug)]
pub struct InheritedSockets {
    sockets: Arc<Mutex<Vec<InheritedSocket>>>,
    later: Arc<Mutex<Vec<Later>>>,
    ownership: Ownership,
}

/// Change of the file at a path.
type Change = dyn FnOnce(&Path) -> io::Result<()> + Send;

/// Change of a socket's file that waits until it is this daemon's.
struct Later {
    path: PathBuf,
    change: Box<Change>,
}

impl fmt::Debug for Later {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Later").field(&self.path).finish()
    }
}

impl Default for InheritedSockets {
    fn default() -> InheritedSockets {
        InheritedSockets::new(Vec::new(), Ownership::default())
    }
}

/// Beginning of the key of a unix socket.
const UNIX: &str = "unix ";

/// Returns the key of a unix socket.
pub(crate) fn key_of_path(path: &Path) -> String {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    format!("{UNIX}{}", path.display())
}

/// Returns the key of a TCP address as the configuration has it, port 0 included.
pub(crate) fn key_of_address(address: std::net::SocketAddr) -> String {
    format!("tcp {address}")
}

impl InheritedSockets {
    /// Makes the set of these sockets.
    pub(crate) fn new(sockets: Vec<InheritedSocket>, ownership: Ownership) -> InheritedSockets {
        InheritedSockets {
            sockets: Arc::new(Mutex::new(sockets)),
            later: Arc::default(),
            ownership,
        }
    }

    /// Takes the first socket with this key.
    pub(crate) fn take(&self, key: &str) -> Option<(InheritedSocket, Ownership)> {
        let mut sockets = self.sockets.lock().unwrap_or_else(PoisonError::into_inner);
        let at = sockets.iter().position(|socket| socket.key == key)?;
        Some((sockets.remove(at), self.ownership.clone()))
    }

    /// Has a socket's file changed once it is this daemon's.
    pub(super) fn later(
        &self,
        path: &Path,
        change: impl FnOnce(&Path) -> io::Result<()> + Send + 'static,
    ) {
        let (path, change) = (path.to_owned(), Box::new(change));
        let mut later = self.later.lock().unwrap_or_else(PoisonError::into_inner);
        later.push(Later { path, change });
    }

    /// Makes all sockets this daemon's: changes the files of those that listeners have taken,
    /// closes the others, which the configuration no longer names, and removes their files.
    pub(crate) fn own(&self) {
        self.ownership.take();
        let mut later = self.later.lock().unwrap_or_else(PoisonError::into_inner);
        for Later { path, change } in later.drain(..) {
            if let Err(error) = change(&path) {
                let path = path.display();
                tracing::warn!("{path}: mode and owner of the socket stay as they were: {error}");
            }
        }
        let mut sockets = self.sockets.lock().unwrap_or_else(PoisonError::into_inner);
        for InheritedSocket { key, file, .. } in sockets.drain(..) {
            tracing::info!("no longer listening on {key}");
            let path = key.strip_prefix(UNIX).map(Path::new);
            if let (Some(path), Some(file)) = (path, file)
                && std::fs::symlink_metadata(path).is_ok_and(|it| (it.dev(), it.ino()) == file)
            {
                let _ = std::fs::remove_file(path);
            }
        }
    }
}
