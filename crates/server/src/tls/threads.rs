//! Threads for TLS. Handshakes have a thread of their own: a flood of them costs the connections
//! that are established nothing but processor time.

use std::convert::Infallible;
use std::io;
use std::num::NonZero;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::time::{Duration, Instant};

use tokio::net::{TcpStream, UnixStream};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{oneshot, watch};
use tokio::task::AbortHandle;
use tokio::time::timeout;

use super::TlsStream;
use super::clients::{Registered, Withdrawn};
use super::tunnel::{self, Tunnel};
use crate::log_limit;
use crate::sandbox::{self, ThreadKind};

/// Maximum number of threads that encrypt and decrypt.
const TUNNEL_THREADS_MAX: usize = 4;

/// Time for the tunnels to end after the event loops: [`LINGER`](tunnel::LINGER), and a second for
/// threads that are late.
const FINISH: Duration = Duration::from_secs(1).saturating_add(tunnel::LINGER);

/// Starts `threads` threads with this name, confined if `is_confined`.
pub(super) fn runtime(name: &str, threads: usize, is_confined: bool) -> io::Result<Runtime> {
    let mut builder = Builder::new_multi_thread();
    builder.worker_threads(threads).thread_name(name);
    if is_confined {
        builder.on_thread_start(|| sandbox::confine(ThreadKind::Tls));
    }
    builder.enable_all().build()
}

/// Number of threads that encrypt and decrypt: one for each processor, within a bound.
pub(super) fn tunnel_threads() -> usize {
    let processors = std::thread::available_parallelism().map_or(1, NonZero::get);
    processors.min(TUNNEL_THREADS_MAX)
}

/// Threads for TLS of all listeners.
#[derive(Debug)]
pub(crate) struct TlsThreads {
    /// Thread of handshakes; taken only when it ends, like that of `tunnels`.
    handshakes: Option<Runtime>,
    tunnels: Option<Runtime>,
    /// Number of tunnels.
    open: watch::Sender<usize>,
}

impl TlsThreads {
    /// Starts the threads, which work on bytes of clients: confined, if `is_confined`.
    ///
    /// # Errors
    /// If a thread cannot be started.
    pub(crate) fn start(is_confined: bool) -> io::Result<TlsThreads> {
        Ok(TlsThreads {
            handshakes: Some(runtime("tls handshake", 1, is_confined)?),
            tunnels: Some(runtime("tls", tunnel_threads(), is_confined)?),
            open: watch::Sender::new(0),
        })
    }

    /// Runs a handshake.
    pub(crate) fn spawn_handshake(
        &self,
        handshake: impl Future<Output = ()> + Send + 'static,
    ) -> AbortHandle {
        let runtime = self.handshakes.as_ref().expect("the threads run");
        runtime.spawn(handshake).abort_handle()
    }

    /// Runs a tunnel, and returns the event loop's end of it. `withdrawn` ends the tunnel at once;
    /// `registered` is dropped with it.
    pub(super) fn tunnel(
        &self,
        stream: TlsStream<TcpStream>,
        peer: String,
        closed: oneshot::Receiver<Infallible>,
        (registered, withdrawn): (Registered, oneshot::Receiver<Withdrawn>),
    ) -> io::Result<OwnedFd> {
        let (tcp, tls) = stream.into_inner();
        // The socket leaves the thread for handshakes.
        let tcp = tcp.into_std()?;
        let (of_loop, local) = StdUnixStream::pair()?;
        local.set_nonblocking(true)?;
        self.open.send_modify(|open| *open += 1);
        let counted = Counted(self.open.clone());
        let run = async move {
            let _counted = (counted, registered);
            let tunnel = TcpStream::from_std(tcp)
                .and_then(|tcp| Ok(Tunnel::new(tls.into(), tcp, UnixStream::from_std(local)?)));
            let ended = match tunnel {
                Ok(tunnel) => tunnel.run(closed, withdrawn).await,
                Err(error) => Err(tunnel::Cut::Io(error)),
            };
            log_end(&peer, ended);
        };
        self.tunnels.as_ref().expect("the threads run").spawn(run);
        Ok(of_loop.into())
    }

    /// Waits until every tunnel has ended, or should have. An event loop that has ended leaves each
    /// at most [`LINGER`](tunnel::LINGER).
    pub(crate) async fn finished(&self) {
        let mut open = self.open.subscribe();
        // This value has the sender, so the channel is open.
        let all_ended = open.wait_for(|open| *open == 0);
        if timeout(FINISH, all_ended).await.is_err() {
            tracing::warn!("TLS connections are cut: they have not ended within {FINISH:?}");
        }
    }
}

impl Drop for TlsThreads {
    fn drop(&mut self) {
        // Without waiting: a runtime may not be dropped by one of its own or another's tasks.
        for runtime in [self.handshakes.take(), self.tunnels.take()] {
            runtime.expect("taken only here").shutdown_background();
        }
    }
}

/// Counts a tunnel until it is dropped.
struct Counted(watch::Sender<usize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.send_modify(|open| *open -= 1);
    }
}

fn log_end(peer: &str, ended: Result<(), tunnel::Cut>) {
    match ended {
        Ok(()) => tracing::debug!(%peer, "TLS connection closed"),
        Err(cut @ (tunnel::Cut::Rule(_) | tunnel::Cut::Empty | tunnel::Cut::Withdrawn(_))) => {
            if log_limit::CUT_OFF.allows(Instant::now()) {
                tracing::warn!(%peer, "client cut off: {cut}");
            }
        }
        Err(cut) => tracing::debug!(%peer, "TLS connection cut: {cut}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The daemon has work behind the wait for tunnels, such as writing learnt state.
    #[tokio::test(start_paused = true)]
    async fn a_tunnel_that_does_not_end_is_not_waited_for() {
        let threads = TlsThreads::start(true).expect("threads");
        timeout(Duration::ZERO, threads.finished())
            .await
            .expect("there is no tunnel");
        threads.open.send_modify(|open| *open += 1);
        let begun = tokio::time::Instant::now();
        timeout(2 * FINISH, threads.finished())
            .await
            .expect("the time is over");
        assert!(begun.elapsed() >= tunnel::LINGER, "each has its time");
    }
}
