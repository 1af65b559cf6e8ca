//! Connections that were handed over: their last replies are sent before they go to a loop.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use tidegate_core::time::Nanos;

use crate::command::HandedConnection;
use crate::event_loop::DRAIN_PROGRESS_TIMEOUT;
use crate::ring::{clock, sys};

/// Time after which a thread that waits for a client looks whether it is to stop.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// Connections whose clients have yet to take replies. Each has a thread, because a client may take
/// none for as long as it likes.
#[derive(Debug, Default)]
pub(super) struct Unsent(Mutex<Vec<Sending>>);

/// Thread of a connection, which returns it with the replies that are left if it is stopped.
#[derive(Debug)]
struct Sending {
    thread: JoinHandle<Option<HandedConnection>>,
    orders: Arc<Orders>,
}

/// Orders for the thread of a connection.
#[derive(Debug, Default)]
struct Orders {
    /// Return the connection.
    stops: AtomicBool,
    /// Cut off a client that has not taken all replies at this time.
    ends_at: OnceLock<Nanos>,
}

impl Unsent {
    /// Passes a connection to `go_on` once its client has taken the replies that the socket did not
    /// take before.
    pub(super) fn add(
        &self,
        connection: HandedConnection,
        go_on: impl FnOnce(HandedConnection) + Send + 'static,
    ) {
        let orders = Arc::new(Orders::default());
        let run = {
            let orders = orders.clone();
            move || send_unsent(connection, &orders, go_on)
        };
        let thread = std::thread::Builder::new().name("unsent replies".to_owned());
        // Before the thread runs: a takeover takes all connections of the list, and must not miss
        // one that is on its way to a loop.
        let mut all = self.lock();
        match thread.spawn(run) {
            Ok(thread) => {
                all.retain(|sending| !sending.thread.is_finished());
                all.push(Sending { thread, orders });
            }
            Err(error) => tracing::error!("client lost: {error}"),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Sending>> {
        // Changed by single calls.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until all clients have taken their replies, and their connections went on. Clients
    /// that have not after [`DRAIN_PROGRESS_TIMEOUT`] are cut off, also those that are just slow:
    /// the disks of all others wait for them. Blocks.
    pub(super) fn finish(&self) {
        self.finish_within(DRAIN_PROGRESS_TIMEOUT);
    }

    fn finish_within(&self, within: Nanos) {
        let all = std::mem::take(&mut *self.lock());
        let ends_at = Nanos(clock().0.saturating_add(within.0));
        for sending in &all {
            // Set once: each was taken out of the list.
            let _ = sending.orders.ends_at.set(ends_at);
        }
        for sending in all {
            // A panic was logged by the panic hook.
            let _ = sending.thread.join();
        }
    }

    /// Takes all connections back, with the replies that are left. They are no loop's. Those to
    /// disks that `is_served` does not know any more are closed. Blocks for some milliseconds.
    pub(super) fn take(
        &self,
        is_served: impl Fn(&HandedConnection) -> bool,
    ) -> Vec<HandedConnection> {
        let all = std::mem::take(&mut *self.lock());
        all.iter()
            .for_each(|sending| sending.orders.stops.store(true, Ordering::Release));
        // A panic was logged by the panic hook.
        let left = all.into_iter().map(|sending| sending.thread.join());
        left.filter_map(|left| left.ok().flatten())
            .filter(is_served)
            .collect()
    }
}

/// Sends what the socket has not taken, then passes the connection on. Returns it with the rest if
/// it is to stop before.
fn send_unsent(
    mut connection: HandedConnection,
    orders: &Orders,
    go_on: impl FnOnce(HandedConnection),
) -> Option<HandedConnection> {
    let mut sent = 0;
    while sent < connection.handed.unsent.len() {
        if orders.stops.load(Ordering::Acquire) {
            drop(connection.handed.unsent.drain(..sent));
            return Some(connection);
        }
        if orders.ends_at.get().is_some_and(|at| clock() > *at) {
            tracing::warn!(
                export = %connection.disk,
                "client cut off: it has not taken its replies, and the daemon ends"
            );
            return None;
        }
        let socket = &connection.handed.fd;
        if !sys::is_writable(socket, LOOK_INTERVAL) {
            continue;
        }
        match sys::send_some(socket, &connection.handed.unsent[sent..]) {
            Ok(taken) => sent += taken,
            Err(error) if is_passing(&error) => {}
            Err(error) => {
                tracing::info!(export = %connection.disk, "client gone: {error}");
                return None;
            }
        }
    }
    connection.handed.unsent.clear();
    go_on(connection);
    None
}

/// Returns true for an error after which a socket may take bytes.
fn is_passing(error: &io::Error) -> bool {
    let kinds = [io::ErrorKind::WouldBlock, io::ErrorKind::Interrupted];
    kinds.contains(&error.kind())
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::net::UnixStream;

    use tidegate_nbd::{ReplyStyle, TransmissionState};

    use super::*;
    use crate::connections::DeviceConnections;
    use crate::frontend::nbd::Handed;

    /// Bytes of replies, which the client needs 16 s to take: far longer than this test waits.
    const LEFT: usize = 64 << 20;

    #[test]
    fn a_client_that_is_slow_to_take_its_replies_is_cut_off_at_the_end_of_the_daemon() {
        let (here, mut there) = UnixStream::pair().expect("sockets");
        let vm = DeviceConnections::new(1).add_vm(1);
        let connection = HandedConnection {
            disk: "disk".to_owned(),
            serial: 0,
            peer: "a client".to_owned(),
            permit: vm.admit().expect("a place"),
            handed: Handed {
                fd: here.into(),
                state: TransmissionState {
                    size: 0,
                    skip: 0,
                    block_min: 1,
                    payload_max: 0,
                    flags: 0,
                    style: ReplyStyle::Simple,
                    has_context: false,
                },
                allocation_context: None,
                input: Vec::new(),
                unsent: vec![7; LEFT],
            },
        };
        let unsent = Unsent::default();
        unsent.add(connection, |_| panic!("replies are left"));
        let client = std::thread::spawn(move || {
            let (mut piece, mut taken) = ([0; 4096], 0);
            loop {
                match there.read(&mut piece).expect("a socket") {
                    0 => return taken,
                    len => taken += len,
                }
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        unsent.finish_within(Nanos(0));
        assert!(client.join().expect("no panic") < LEFT);
    }
}
