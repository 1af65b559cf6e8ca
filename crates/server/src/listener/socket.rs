//! Listening sockets: bound before the daemon reports that it is up, removed when it ends.

mod existing;

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream as StdTcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};

use super::inherited::{key_of_address, key_of_path};
use super::passed_sockets;
use super::socket_file::SocketFile;
use crate::config::{ListenAddress, SocketOwner};
use crate::error_hints::missing_directory;
use crate::ownership::Ownership;
use crate::ring::sys;
use crate::tls::TlsConnection;

/// Error of binding a listener.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// Another process listens on the socket.
    #[error("{}: another process listens on this socket", path.display())]
    InUse {
        /// Path of the socket.
        path: PathBuf,
    },
    /// The path exists and is no socket.
    #[error("{}: exists and is not a socket; it is not touched", path.display())]
    NotASocket {
        /// Path of the file.
        path: PathBuf,
    },
    /// The owner or group of a socket's file is not known.
    #[error("{}: there is no {what} {name:?}", path.display())]
    NoAccount {
        /// Path of the socket.
        path: PathBuf,
        /// `user` or `group`.
        what: &'static str,
        /// Name that was not found.
        name: String,
    },
    /// The socket's file cannot be given to its owner or group.
    #[error("{}: cannot change owner or group of the socket: {source}", path.display())]
    Owner {
        /// Path of the socket.
        path: PathBuf,
        /// Error of the system call.
        source: io::Error,
    },
    /// A system call failed.
    #[error("{address}: cannot {what}: {source}")]
    Io {
        /// Path or address of the listener.
        address: String,
        /// Action that failed.
        what: &'static str,
        /// Error of the system call.
        source: io::Error,
    },
}

impl BindError {
    /// Returns true if the owner or the group of a socket is to blame, not its address.
    pub(crate) fn is_about_owner(&self) -> bool {
        matches!(self, BindError::NoAccount { .. } | BindError::Owner { .. })
    }

    /// Returns a hint, if there is one.
    pub fn help(&self) -> Option<String> {
        let help = match self {
            BindError::InUse { path } => format!(
                "end that process (`fuser {}` says which), or choose another place",
                path.display()
            ),
            BindError::NotASocket { .. } => {
                "remove it if it is not needed, or choose another place".to_owned()
            }
            BindError::NoAccount { what, .. } => {
                let database = if *what == "user" { "passwd" } else { "group" };
                format!("`getent {database}` lists those there are; a number is taken as it is")
            }
            BindError::Owner { .. } => {
                "root and CAP_CHOWN may give a file to any user and group, another user only to \
                 groups that it is a member of: change the daemon's user, or leave owner out"
                    .to_owned()
            }
            BindError::Io {
                address, source, ..
            } => return help_with_binding(address, source.kind()),
        };
        Some(help)
    }
}

fn help_with_binding(address: &str, error: io::ErrorKind) -> Option<String> {
    let help = match (error, address.parse::<SocketAddr>()) {
        (io::ErrorKind::NotFound, Err(_)) => return missing_directory(Path::new(address)),
        (io::ErrorKind::PermissionDenied, Err(_)) => {
            "this user may not make files in that directory: change that, or choose another place"
        }
        (io::ErrorKind::PermissionDenied, Ok(_)) => {
            "a port below 1024 needs root or CAP_NET_BIND_SERVICE: choose a higher one"
        }
        (io::ErrorKind::AddrInUse, Ok(_)) => {
            "another process has this port (`ss -ltnp` says which): end it, or choose another port"
        }
        (io::ErrorKind::AddrNotAvailable, Ok(_)) => {
            "this machine does not have that address: `ip address` lists those it has"
        }
        _ => return None,
    };
    Some(help.to_owned())
}

/// Owner and group of a socket's file by number. `None` leaves those of the daemon's process.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct FileOwner {
    user: Option<u32>,
    group: Option<u32>,
}

impl FileOwner {
    /// Looks the names of an owner and a group up, which may block: to be called when the daemon
    /// starts. `socket` is the path of the socket in errors.
    ///
    /// # Errors
    /// If a name is not known, or the name service fails.
    pub(super) fn look_up(owner: &SocketOwner, socket: &Path) -> Result<FileOwner, BindError> {
        let user = owner.user.as_ref().map(|name| user_number(name, socket));
        let group = owner.group.as_ref().map(|name| group_number(name, socket));
        Ok(FileOwner {
            user: user.transpose()?,
            group: group.transpose()?,
        })
    }
}

/// Checks that the owner and the group of a unix socket exist, as binding it does.
///
/// # Errors
/// If a name is not known, or the name service fails.
pub fn check_owner(owner: &SocketOwner, socket: &Path) -> Result<(), BindError> {
    FileOwner::look_up(owner, socket).map(drop)
}

/// Returns the number of a user, given by name or number. Looking a name up may block: to be called
/// when the daemon starts. `socket` is the path of the socket in errors.
///
/// # Errors
/// If the name is not known, or the name service fails.
pub(crate) fn user_number(name: &str, socket: &Path) -> Result<u32, BindError> {
    account_number(name, socket, "user", sys::user_id)
}

/// Returns the number of a group, given by name or number, as [`user_number`] does that of a user.
///
/// # Errors
/// If the name is not known, or the name service fails.
pub(crate) fn group_number(name: &str, socket: &Path) -> Result<u32, BindError> {
    account_number(name, socket, "group", sys::group_id)
}

fn account_number(
    name: &str,
    socket: &Path,
    what: &'static str,
    look_up: impl Fn(&str) -> io::Result<Option<u32>>,
) -> Result<u32, BindError> {
    if let Ok(number) = name.parse() {
        return Ok(number);
    }
    let path = socket.to_owned();
    match look_up(name) {
        Ok(Some(number)) => Ok(number),
        Ok(None) => Err(BindError::NoAccount {
            path,
            what,
            name: name.to_owned(),
        }),
        Err(source) => Err(BindError::Owner { path, source }),
    }
}

/// Bound listener. Dropping it removes the file of a unix socket.
#[derive(Debug)]
pub struct Bound {
    name: String,
    socket: Socket,
    /// Path of the unix socket with its device and inode, so that a socket that replaced it is not
    /// removed.
    file: Option<(PathBuf, u64, u64)>,
    /// Address as the configuration has it, by which another daemon finds the socket.
    key: String,
    ownership: Ownership,
}

#[derive(Debug)]
enum Socket {
    Unix(std::os::unix::net::UnixListener),
    Tcp(std::net::TcpListener),
}

impl Bound {
    /// Binds a listener. `owner` is that of a unix socket.
    ///
    /// # Errors
    /// If another process listens there already, the owner is not known, or a system call fails.
    ///
    /// # Panics
    /// For a template of sockets, which a [`VhostUserListener`](super::VhostUserListener) binds.
    pub fn new(address: &ListenAddress, owner: &SocketOwner) -> Result<Bound, BindError> {
        if let Some(passed) = passed_sockets::take(address) {
            return Bound::passed(passed, address, owner);
        }
        match address {
            ListenAddress::Unix { path, mode } => {
                bind_unix(path, *mode, FileOwner::look_up(owner, path)?)
            }
            ListenAddress::Tcp(address) => bind_tcp(*address),
            ListenAddress::VhostUser { .. } => panic!("a template is no address"),
        }
    }

    /// Binds a unix socket.
    ///
    /// # Errors
    /// As for [`Bound::new`].
    pub(super) fn unix(path: &Path, mode: u32, owner: FileOwner) -> Result<Bound, BindError> {
        bind_unix(path, mode, owner)
    }

    /// Returns the path or address, for people.
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        if let Some((path, device, inode)) = &self.file
            && self.ownership.is_own()
            // A daemon that was started meanwhile may have replaced the socket by its own.
            && let Ok(meta) = std::fs::symlink_metadata(path)
            && (meta.dev(), meta.ino()) == (*device, *inode)
        {
            let _ = std::fs::remove_file(path);
        }
    }
}

fn bind_unix(path: &Path, mode: u32, owner: FileOwner) -> Result<Bound, BindError> {
    let failed = |what| {
        move |source| BindError::Io {
            address: path.display().to_string(),
            what,
            source,
        }
    };
    let FileOwner { user, group } = owner;
    check_path_free(path)?;
    // Bound under a temporary name and renamed once owner and mode are set: no client connects
    // before that, and a stale socket is replaced atomically.
    let fresh = path.with_file_name(format!(".tidegate-{}", std::process::id()));
    // Left by a daemon with this process number that was killed while it started.
    let _ = std::fs::remove_file(&fresh);
    let listener =
        std::os::unix::net::UnixListener::bind(&fresh).map_err(failed("bind the socket"))?;
    let set_up = || -> Result<(u64, u64), BindError> {
        let file = SocketFile::open(&fresh).map_err(failed("open the file of the socket"))?;
        file.set_mode(mode)
            .map_err(failed("set the mode of the socket"))?;
        file.set_owner(user, group).map_err(|source| {
            let path = path.to_owned();
            BindError::Owner { path, source }
        })?;
        // The standard library's backlog of 128 is too short for a burst of guests that start.
        sys::lengthen_backlog(listener.as_fd())
            .and_then(|()| listener.set_nonblocking(true))
            .and_then(|()| std::fs::rename(&fresh, path))
            .map_err(failed("set up the socket"))?;
        Ok(file.identity())
    };
    let (device, inode) = set_up().inspect_err(|_| drop(std::fs::remove_file(&fresh)))?;
    Ok(Bound {
        name: path.display().to_string(),
        socket: Socket::Unix(listener),
        file: Some((path.to_owned(), device, inode)),
        key: key_of_path(path),
        ownership: Ownership::default(),
    })
}

/// Checks that a path is free or holds a socket on which no process listens.
fn check_path_free(path: &Path) -> Result<(), BindError> {
    let meta = match std::fs::symlink_metadata(path) {
        Ok(meta) => meta,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(source) => {
            let address = path.display().to_string();
            return Err(BindError::Io {
                address,
                what: "look at the socket",
                source,
            });
        }
    };
    if !meta.file_type().is_socket() {
        return Err(BindError::NotASocket {
            path: path.to_owned(),
        });
    }
    // Does not wait for a listener that accepts nobody: the owner of the directory may be hostile,
    // and the control thread binds sockets of disks that are added.
    match sys::is_listened_on(path) {
        Ok(false) => Ok(()),
        _ => Err(BindError::InUse {
            path: path.to_owned(),
        }),
    }
}

fn bind_tcp(address: SocketAddr) -> Result<Bound, BindError> {
    let failed = |what| {
        move |source| BindError::Io {
            address: address.to_string(),
            what,
            source,
        }
    };
    let listener = std::net::TcpListener::bind(address).map_err(failed("bind"))?;
    listener
        .set_nonblocking(true)
        .and_then(|()| sys::lengthen_backlog(listener.as_fd()))
        .map_err(failed("set up the socket"))?;
    // With port 0 the kernel has chosen the port.
    let name = listener.local_addr().unwrap_or(address).to_string();
    Ok(Bound {
        name,
        socket: Socket::Tcp(listener),
        file: None,
        key: key_of_address(address),
        ownership: Ownership::default(),
    })
}

/// Listener registered with a tokio runtime.
pub(crate) enum Listener {
    Unix(UnixListener),
    Tcp(TcpListener),
}

impl Listener {
    pub(crate) fn new(bound: &Bound) -> io::Result<Listener> {
        Ok(match &bound.socket {
            Socket::Unix(l) => Listener::Unix(UnixListener::from_std(l.try_clone()?)?),
            Socket::Tcp(l) => Listener::Tcp(TcpListener::from_std(l.try_clone()?)?),
        })
    }

    /// Waits for the next client.
    pub(crate) async fn accept(&self) -> io::Result<(Stream, Peer)> {
        match self {
            Listener::Unix(listener) => {
                let (stream, _) = listener.accept().await?;
                let peer = Peer::of(&stream);
                Ok((Stream::Unix(stream), peer))
            }
            Listener::Tcp(listener) => {
                let (stream, address) = listener.accept().await?;
                // Replies are sent many at a time; waiting for more would only delay them.
                stream.set_nodelay(true)?;
                sys::keep_tcp_alive(stream.as_fd(), sys::TCP_GIVEN_UP_AFTER)?;
                Ok((Stream::Tcp(stream), Peer::Tcp(address)))
            }
        }
    }
}

/// Remote end of a connection, as the kernel reports it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Peer {
    /// Process of this host, as `SO_PEERCRED` reports it.
    Unix {
        /// User ID of the process when it connected.
        uid: u32,
        /// Process ID; `None` if the process is in another PID namespace.
        pid: Option<i32>,
    },
    /// Remote address and port of a TCP connection.
    Tcp(SocketAddr),
}

impl Peer {
    /// Peer of a unix socket without credentials.
    const UNKNOWN: Peer = Peer::Unix {
        uid: u32::MAX,
        pid: None,
    };

    /// Returns the peer of a connected unix socket.
    pub(super) fn of(stream: &UnixStream) -> Peer {
        stream.peer_cred().map_or(Peer::UNKNOWN, |cred| Peer::Unix {
            uid: cred.uid(),
            // The pid is 0 if the client is in another PID namespace.
            pid: cred.pid().filter(|&pid| pid > 0),
        })
    }

    /// Returns the identity by which the connections of one client are counted together.
    pub(crate) fn key(&self) -> PeerKey {
        match *self {
            Peer::Unix { pid: Some(pid), .. } => PeerKey::Process(pid),
            Peer::Unix { uid, pid: None } => PeerKey::User(uid),
            Peer::Tcp(address) => PeerKey::Address(network(address.ip())),
        }
    }

    /// Returns the identity by which the connections of one user, or of one address, are counted
    /// together. All addresses of loopback are one, because each local process has all of them.
    pub(crate) fn account_key(&self) -> PeerKey {
        match *self {
            Peer::Unix { uid, .. } => PeerKey::User(uid),
            Peer::Tcp(address) if address.ip().to_canonical().is_loopback() => {
                PeerKey::Address(Ipv4Addr::LOCALHOST.into())
            }
            Peer::Tcp(address) => PeerKey::Address(network(address.ip())),
        }
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Peer::Unix { uid, pid: None } => write!(f, "uid {uid}"),
            Peer::Unix {
                uid,
                pid: Some(pid),
            } => write!(f, "uid {uid} pid {pid}"),
            Peer::Tcp(address) => address.fmt(f),
        }
    }
}

/// Identity by which the connections of one client are counted together.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum PeerKey {
    /// Process of this host, by its ID.
    Process(i32),
    /// User ID: of several processes, or of one that is not known.
    User(u32),
    /// IPv4 address, or the /64 network of an IPv6 address, because one host can use all addresses
    /// of it.
    Address(IpAddr),
}

fn network(ip: IpAddr) -> IpAddr {
    const HOST_BITS: u32 = 64;
    // A client of IPv4 on a socket of IPv6 has a mapped address, which counts as its IPv4 address.
    match ip.to_canonical() {
        IpAddr::V6(ip) => Ipv6Addr::from_bits(ip.to_bits() >> HOST_BITS << HOST_BITS).into(),
        ip @ IpAddr::V4(_) => ip,
    }
}

/// User and groups of a process, as the kernel recorded them when it connected.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Credentials {
    /// User.
    pub(crate) user: u32,
    /// Group.
    pub(crate) group: u32,
    /// Supplementary groups.
    pub(crate) groups: Vec<u32>,
}

/// Connection during its handshake.
pub(crate) enum Stream {
    Unix(UnixStream),
    Tcp(TcpStream),
    Tls(Box<TlsConnection>),
}

/// Connection over TCP between two runtimes.
pub(crate) struct Detached(StdTcpStream);

impl Detached {
    /// Puts the connection into the runtime that calls.
    pub(crate) fn attach_tcp(self) -> io::Result<TcpStream> {
        TcpStream::from_std(self.0)
    }
}

impl Stream {
    /// Returns the credentials of the process at the other end of a unix socket; `None` for TCP, or
    /// if the kernel does not have them.
    pub(crate) fn credentials(&self) -> Option<Credentials> {
        let Stream::Unix(stream) = self else {
            return None;
        };
        let process = stream.peer_cred().ok()?;
        Some(Credentials {
            user: process.uid(),
            group: process.gid(),
            // Without the groups the process has fewer rights at most.
            groups: sys::peer_groups(stream.as_fd()).unwrap_or_default(),
        })
    }

    /// Takes a connection over TCP out of its runtime.
    ///
    /// # Panics
    /// If the connection is another one.
    pub(crate) fn detach(self) -> io::Result<Detached> {
        let Stream::Tcp(stream) = self else {
            panic!("only connections over TCP have TLS");
        };
        stream.into_std().map(Detached)
    }

    /// Returns the socket in blocking mode, because io_uring does not wait on non-blocking ones.
    ///
    /// # Panics
    /// With TLS, where the client's socket is not the one that a loop reads.
    pub(super) fn into_fd(self) -> io::Result<OwnedFd> {
        match self {
            Stream::Tls(_) => panic!("a loop cannot read records of TLS"),
            Stream::Unix(stream) => {
                let stream = stream.into_std()?;
                stream.set_nonblocking(false)?;
                Ok(stream.into())
            }
            Stream::Tcp(stream) => {
                let stream = stream.into_std()?;
                stream.set_nonblocking(false)?;
                Ok(stream.into())
            }
        }
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Unix(s) => Pin::new(s).poll_read(cx, buf),
            Stream::Tcp(s) => Pin::new(s).poll_read(cx, buf),
            Stream::Tls(s) => Pin::new(&mut s.stream).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Stream::Unix(s) => Pin::new(s).poll_write(cx, buf),
            Stream::Tcp(s) => Pin::new(s).poll_write(cx, buf),
            Stream::Tls(s) => Pin::new(&mut s.stream).poll_write(cx, buf),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Unix(s) => Pin::new(s).poll_flush(cx),
            Stream::Tcp(s) => Pin::new(s).poll_flush(cx),
            Stream::Tls(s) => Pin::new(&mut s.stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Unix(s) => Pin::new(s).poll_shutdown(cx),
            Stream::Tcp(s) => Pin::new(s).poll_shutdown(cx),
            Stream::Tls(s) => Pin::new(&mut s.stream).poll_shutdown(cx),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_of_one_client_have_one_key() {
        let key = |text: &str| Peer::Tcp(text.parse().expect("an address")).key();
        assert_eq!(key("10.0.0.1:1"), key("10.0.0.1:2"));
        assert_ne!(key("10.0.0.1:1"), key("10.0.0.2:1"));
        assert_eq!(key("10.0.0.1:1"), key("[::ffff:10.0.0.1]:1"));
        assert_eq!(key("[2001:db8::1]:1"), key("[2001:db8::2]:1"));
        assert_ne!(key("[2001:db8::1]:1"), key("[2001:db8:0:1::1]:1"));
        let unix = |uid, pid| Peer::Unix { uid, pid }.key();
        assert_eq!(unix(1, Some(7)), unix(2, Some(7)));
        assert_ne!(unix(1, Some(7)), unix(1, Some(8)));
        assert_ne!(unix(1, None), unix(2, None));
    }

    #[test]
    fn connections_of_one_user_or_of_loopback_have_one_account_key() {
        let key = |text: &str| Peer::Tcp(text.parse().expect("an address")).account_key();
        for local in [
            "127.0.0.2:1",
            "127.255.0.1:9",
            "[::1]:1",
            "[::ffff:127.3.0.1]:1",
        ] {
            assert_eq!(key(local), key("127.0.0.1:1"), "{local}");
        }
        assert_ne!(key("10.0.0.1:1"), key("127.0.0.1:1"));
        assert_ne!(key("10.0.0.1:1"), key("10.0.0.2:1"));
        assert_eq!(key("[2001:db8::1]:1"), key("[2001:db8::2]:1"));
        let unix = |uid, pid| Peer::Unix { uid, pid }.account_key();
        assert_eq!(unix(1, Some(7)), unix(1, Some(8)));
        assert_ne!(unix(1, Some(7)), unix(2, Some(7)));
        assert_eq!(unix(1, Some(7)), unix(1, None));
    }
}
