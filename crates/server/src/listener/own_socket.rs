//! Socket of a program that serves one disk, given on its command line instead of in a
//! configuration: the conventions of QEMU for vhost-user back-ends (`--socket-path`, `--fd`).

use std::io;
use std::os::fd::RawFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;

use tokio::net;

use super::ExportList;
use super::front_end::{Place, begin_session};
use super::socket::{BindError, Bound, FileOwner, Peer, Stream};
use super::vhost_user::{Socket, accept_front_ends};
use crate::ring::sys::{self, Inherited};

/// File mode of a socket that the program makes.
const MODE: u32 = 0o600;

/// Socket of vhost-user for one disk.
#[derive(Debug)]
pub struct OwnSocket(Kind);

#[derive(Debug)]
enum Kind {
    /// Socket that the program has made: front-ends come one after the other.
    Bound(Bound),
    /// Inherited socket that listens: the first front-end alone is served.
    Listening(UnixListener),
    /// Inherited socket that the front-end is connected to.
    Connected(UnixStream),
}

/// Reason why an inherited descriptor cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum InheritError {
    /// No file is open under the number.
    #[error("descriptor {0} is not open")]
    NotOpen(RawFd),
    /// The file is no unix stream socket, or a socket that is not connected and does not listen.
    #[error("descriptor {0} is not a unix stream socket that listens or is connected")]
    NotASocket(RawFd),
    /// A system call failed.
    #[error("descriptor {0} cannot be used: {1}")]
    Io(RawFd, io::Error),
}

impl OwnSocket {
    /// Makes a socket that the process's user alone may connect to.
    ///
    /// # Errors
    /// If another process listens there already, or a system call fails.
    pub fn bind(path: &Path) -> Result<OwnSocket, BindError> {
        Bound::unix(path, MODE, FileOwner::default()).map(|bound| OwnSocket(Kind::Bound(bound)))
    }

    /// Uses a socket that the process was started with. To be called before the process opens
    /// files, one of which could have the number otherwise.
    ///
    /// # Errors
    /// If the descriptor is no socket that a front-end can be connected to.
    pub fn inherit(number: RawFd) -> Result<OwnSocket, InheritError> {
        let kind = match sys::inherited_socket(number) {
            Ok(Inherited::Listening(fd)) => Kind::Listening(fd.into()),
            Ok(Inherited::Connected(fd)) => Kind::Connected(fd.into()),
            Err(error) => {
                return Err(match error.raw_os_error() {
                    Some(libc::EBADF) => InheritError::NotOpen(number),
                    Some(libc::ENOTSOCK | libc::EPROTOTYPE | libc::ENOTCONN) => {
                        InheritError::NotASocket(number)
                    }
                    _ => InheritError::Io(number, error),
                });
            }
        };
        Ok(OwnSocket(kind))
    }

    /// Serves the front-ends of a disk until the future is dropped, or until the front-end of an
    /// inherited socket has gone.
    pub(crate) async fn serve(self, disk: String, list: ExportList) {
        let ended = match self.0 {
            Kind::Bound(bound) => {
                return accept_front_ends(Socket::new(bound, disk), list).await;
            }
            Kind::Listening(listener) => first_of(listener).await,
            Kind::Connected(stream) => on_runtime(stream),
        };
        let ended = match ended {
            Ok(stream) => serve_one(stream, &disk, &list).await,
            Err(error) => Err(error.to_string()),
        };
        if let Err(why) = ended {
            tracing::error!(export = %disk, "front-end refused: {why}");
        }
    }
}

/// Waits for the first front-end.
async fn first_of(listener: UnixListener) -> io::Result<net::UnixStream> {
    listener.set_nonblocking(true)?;
    let (stream, _) = net::UnixListener::from_std(listener)?.accept().await?;
    Ok(stream)
}

fn on_runtime(stream: UnixStream) -> io::Result<net::UnixStream> {
    stream.set_nonblocking(true)?;
    net::UnixStream::from_std(stream)
}

/// Serves a front-end until it has gone and its I/O has ended.
async fn serve_one(stream: net::UnixStream, disk: &str, list: &ExportList) -> Result<(), String> {
    let peer = Peer::of(&stream);
    let place = Arc::new(Place::default());
    let taken = place.take().await.expect("a new place is free");
    begin_session(Stream::Unix(stream), &peer, disk, list, taken)?;
    place.freed().await;
    Ok(())
}
