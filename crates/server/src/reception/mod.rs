//! Where clients arrive: listeners, and the NBD handshake up to the choice of an export.
//!
//! ```text
//!   accept --> handshake (10 s at most, a bounded number at a time) --> Adopt --> event loop
//!                  |
//!                  +--> refused, broken rule, too slow, gone: closed
//! ```
//!
//! All of this is asynchronous and on the control thread. After the handshake the socket goes to
//! the loop of its device, with what was received beyond the handshake.

mod listen;
mod offers;

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use tidegate_nbd::{Fatal, Limits, Opened, Session, Step};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::command::Command;

pub(crate) use listen::Listener;
use listen::Stream;
pub use listen::{BindError, Bound};
pub use offers::{Catalogue, Offer, Offers};

/// A handshake takes at most so long.
const DEADLINE: Duration = Duration::from_secs(10);
/// Handshakes at a time; further connections wait to be accepted.
const HALF_OPEN_MAX: usize = 128;
/// Bytes received at a time during the handshake: less than a loop's receive buffer.
const PIECE: usize = 4096;

/// A client whose handshake is done.
#[derive(Debug)]
pub struct Adopted {
    /// Its socket, blocking.
    pub fd: OwnedFd,
    /// In the transmission phase, all of its output sent.
    pub session: Session,
    /// What was agreed on.
    pub opened: Opened,
    /// What was received beyond the handshake, at most 4 KiB.
    pub leftover: Vec<u8>,
    /// Who it is, for the log.
    pub peer: String,
}

/// Why a handshake came to nothing.
#[derive(Debug, thiserror::Error)]
enum HandshakeError {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("{0}")]
    Rule(#[from] Fatal),
    #[error("gone during the handshake")]
    Gone,
}

/// Accepts clients until it is dropped.
pub async fn receive(bound: Arc<Bound>, offers: Offers) {
    let offers = Arc::new(offers);
    let half_open = Arc::new(Semaphore::new(HALF_OPEN_MAX));
    let listener = match Listener::new(&bound) {
        Ok(listener) => listener,
        Err(error) => return tracing::error!(listener = %bound.name(), "cannot listen: {error}"),
    };
    loop {
        let permit = half_open
            .clone()
            .acquire_owned()
            .await
            .expect("never closed");
        let (stream, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                // Out of descriptors, most likely: what helps is that somebody leaves.
                tracing::warn!(listener = %bound.name(), "cannot accept: {error}");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let offers = offers.clone();
        tokio::spawn(async move {
            welcome(stream, peer, &offers).await;
            drop(permit);
        });
    }
}

async fn welcome(mut stream: Stream, peer: String, offers: &Offers) {
    match timeout(DEADLINE, shake_hands(&mut stream, offers)).await {
        Ok(Ok(Some((session, opened, leftover)))) => {
            let name = opened.export.name.clone();
            let Some(offer) = offers.find(&name) else {
                return tracing::info!(%peer, export = %name, "client refused: it has gone");
            };
            let fd = match stream.into_fd() {
                Ok(fd) => fd,
                Err(error) => return tracing::warn!(%peer, "client lost: {error}"),
            };
            let adopted = Adopted {
                fd,
                session,
                opened,
                leftover,
                peer,
            };
            if offer
                .handle
                .send(Command::Adopt(Box::new(adopted)))
                .is_err()
            {
                tracing::debug!(export = %name, "its device has shut down");
            }
        }
        Ok(Ok(None)) => tracing::debug!(%peer, "client left during the handshake"),
        Ok(Err(HandshakeError::Gone)) => tracing::debug!(%peer, "client gone in the handshake"),
        Ok(Err(error)) => tracing::warn!(%peer, "client cut off: {error}"),
        Err(_) => tracing::warn!(%peer, "client cut off: no export chosen in {DEADLINE:?}"),
    }
}

/// `None`: the client took its leave in order.
async fn shake_hands(
    stream: &mut Stream,
    offers: &Offers,
) -> Result<Option<(Session, Opened, Vec<u8>)>, HandshakeError> {
    let mut session = Session::new(Limits::default());
    let mut input = Vec::with_capacity(PIECE);
    loop {
        if !session.output().is_empty() {
            stream.write_all(session.output()).await?;
            session.consume_output(session.output().len());
        }
        let (used, step) = session.handle(&input, offers)?;
        input.drain(..used);
        match step {
            Step::NeedMore(_) => {
                let mut piece = [0; PIECE];
                let n = stream.read(&mut piece).await?;
                if n == 0 {
                    return Err(HandshakeError::Gone);
                }
                input.extend_from_slice(&piece[..n]);
            }
            Step::Output => {}
            Step::Opened(opened) => {
                stream.write_all(session.output()).await?;
                session.consume_output(session.output().len());
                return Ok(Some((session, *opened, input)));
            }
            Step::Disconnect(_) => {
                stream.write_all(session.output()).await?;
                return Ok(None);
            }
            Step::Request(_) | Step::Rejected(_) => {
                unreachable!("requests come after the export was chosen")
            }
        }
    }
}
