//! Listeners on sockets that exist: of the service manager, or of the daemon before.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::{BindError, Bound, FileOwner, Socket, SocketFile};
use crate::config::{ListenAddress, SocketOwner};
use crate::listener::inherited::{InheritedSocket, InheritedSockets, key_of_address, key_of_path};
use crate::listener::passed_sockets::PassedSocket;
use crate::ownership::Ownership;
use crate::ring::sys;

impl Bound {
    /// Uses a socket that the service manager has bound. Its file is the service manager's: it
    /// stays when the daemon ends.
    pub(super) fn passed(
        socket: PassedSocket,
        address: &ListenAddress,
        owner: &SocketOwner,
    ) -> Result<Bound, BindError> {
        let name = socket.address.to_string();
        let (socket, key) = match address {
            ListenAddress::Unix { path, mode } => {
                warn_of_other_access(path, *mode, FileOwner::look_up(owner, path)?);
                (Socket::Unix(socket.fd.into()), key_of_path(path))
            }
            ListenAddress::Tcp(address) => {
                (Socket::Tcp(socket.fd.into()), key_of_address(*address))
            }
            ListenAddress::VhostUser { .. } => panic!("a template is no address"),
        };
        let nonblocking = match &socket {
            Socket::Unix(listener) => listener.set_nonblocking(true),
            Socket::Tcp(listener) => listener.set_nonblocking(true),
        };
        nonblocking.map_err(|source| BindError::Io {
            address: name.clone(),
            what: "set up the socket",
            source,
        })?;
        Ok(Bound {
            name,
            socket,
            file: None,
            key,
            ownership: Ownership::default(),
        })
    }

    /// Takes the socket of another daemon for this address, or binds one.
    ///
    /// # Errors
    /// As for [`Bound::new`].
    ///
    /// # Panics
    /// As for [`Bound::new`].
    pub fn new_or_inherited(
        address: &ListenAddress,
        owner: &SocketOwner,
        inherited: &InheritedSockets,
    ) -> Result<Bound, BindError> {
        let taken = match address {
            ListenAddress::Unix { path, mode } => {
                let owner = FileOwner::look_up(owner, path)?;
                Bound::inherited_unix(path, *mode, owner, inherited)
            }
            ListenAddress::Tcp(address) => {
                let socket = inherited.take(&key_of_address(*address));
                socket.map(|(socket, ownership)| {
                    let InheritedSocket { key, fd, .. } = socket;
                    let listener = std::net::TcpListener::from(fd);
                    let name = listener.local_addr().unwrap_or(*address).to_string();
                    Bound {
                        name,
                        socket: Socket::Tcp(listener),
                        file: None,
                        key,
                        ownership,
                    }
                })
            }
            ListenAddress::VhostUser { .. } => None,
        };
        taken.map_or_else(|| Bound::new(address, owner), Ok)
    }

    /// Takes the unix socket of another daemon at a path, if it has one. Its file gets this mode
    /// and owner with the [ownership](InheritedSockets::own) of the socket.
    pub(in crate::listener) fn inherited_unix(
        path: &Path,
        mode: u32,
        owner: FileOwner,
        inherited: &InheritedSockets,
    ) -> Option<Bound> {
        let (socket, ownership) = inherited.take(&key_of_path(path))?;
        let InheritedSocket { key, file, fd } = socket;
        if let Some(file) = file {
            let set = move |path: &Path| set_access(path, file, mode, owner);
            inherited.later(path, set);
        }
        Some(Bound {
            name: path.display().to_string(),
            socket: Socket::Unix(fd.into()),
            file: file.map(|(device, inode)| (path.to_owned(), device, inode)),
            key,
            ownership,
        })
    }

    /// Returns the address as the configuration has it, and device and inode of a socket's file.
    pub(crate) fn identity(&self) -> (&str, Option<(u64, u64)>) {
        let file = self
            .file
            .as_ref()
            .map(|(_, device, inode)| (*device, *inode));
        (&self.key, file)
    }

    /// Makes this process the one that clients of the unix socket see, in place of the daemon that
    /// it was inherited from.
    ///
    /// # Errors
    /// If the system call fails.
    pub(crate) fn listen_again(&self) -> io::Result<()> {
        sys::lengthen_backlog(self.descriptor())
    }

    /// Returns the socket itself.
    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        match &self.socket {
            Socket::Unix(listener) => listener.as_fd(),
            Socket::Tcp(listener) => listener.as_fd(),
        }
    }

    /// Leaves the file of the socket to the daemon that has the socket now.
    pub(crate) fn give_up(&self) {
        self.ownership.give_up();
    }

    /// Makes the file of the socket this daemon's again, which goes on with it.
    pub(crate) fn take_back(&self) {
        self.ownership.take();
    }
}

/// Sets mode and owner of a socket's file, unless another file is at its path by now.
fn set_access(path: &Path, identity: (u64, u64), mode: u32, owner: FileOwner) -> io::Result<()> {
    let file = SocketFile::open(path)?;
    if file.identity() != identity {
        return Err(io::Error::other("another process has replaced it"));
    }
    file.set_mode(mode)?;
    file.set_owner(owner.user, owner.group)
}

/// Warns if the file of a socket of the service manager has another mode or owner than the
/// configuration says.
fn warn_of_other_access(path: &Path, mode: u32, owner: FileOwner) {
    let Ok(meta) = std::fs::metadata(path) else {
        return;
    };
    let other = |wanted: Option<u32>, is: u32| wanted.is_some_and(|wanted| wanted != is);
    let is = meta.mode() & 0o777;
    if is != mode || other(owner.user, meta.uid()) || other(owner.group, meta.gid()) {
        tracing::warn!(
            "{}: the socket of the service manager has the mode {is:04o}, user {} and group {}, \
             which are not those of the configuration; SocketMode=, SocketUser= and SocketGroup= \
             of its unit set them",
            path.display(),
            meta.uid(),
            meta.gid()
        );
    }
}
