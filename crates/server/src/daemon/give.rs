//! The running daemon's side of a takeover: hands everything over, or goes on as before.
//!
//! ```text
//!   Plan --> frozen: no changes, store closed --> paused: nothing received, nothing in flight
//!                    |                                      |             |
//!                    +---- the new daemon is gone, refuses, is late ------+--> goes on
//!                                                                         +--> Yours: ends
//! ```

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use super::handle::DaemonHandle;
use super::{Stopped, snapshots, unsent};
use crate::backing::ActivationState;
use crate::command::{Command, HandOverStep, HandedConnection};
use crate::config;
use crate::listener::{Bound, Listener, Stream, VhostUserListener};
use crate::ring::sys;
use crate::takeover::{
    Channel, ConnectionState, DiskPlan, FORMAT, Hello, Message, Plan, PolicyPlan, Problem,
    SocketPlan, State, TakeoverError, VmPlan, other_format,
};
use crate::tls::TlsThreads;

/// Time in which the new daemon starts, with its store and all disks open.
const START_TIMEOUT: Duration = Duration::from_secs(120);
/// Time for each other step of the new daemon.
const STEP_TIMEOUT: Duration = Duration::from_secs(5);
/// Time for handshakes that have begun, while I/O goes on. A client that is silent for longer is
/// cut off.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(1);
/// Time for the replies to clients over TLS, while the I/O of others goes on.
const TLS_TIMEOUT: Duration = Duration::from_secs(5);
/// Time for I/O in flight to end while clients are paused: a disk that hangs must not stop all
/// others for longer.
const IO_TIMEOUT: Duration = Duration::from_secs(2);
/// Pause between two looks at the number of handshakes.
const LOOK_INTERVAL: Duration = Duration::from_millis(5);

/// Request of a hand-over to the daemon's main task.
#[derive(Debug)]
pub(super) enum Request {
    /// Accept nobody from now on.
    StopAccepting(oneshot::Sender<()>),
    /// Accept clients again.
    Accept,
    /// End: everything is the new daemon's.
    HandedOver,
}

/// Offer to be taken over.
#[derive(Debug)]
pub(super) struct Offer {
    pub(super) socket: Arc<Bound>,
    /// All listening sockets, that of the offer included.
    pub(super) sockets: Vec<Arc<Bound>>,
    pub(super) vhost_user: Vec<Arc<VhostUserListener>>,
}

/// Connections that were sent off, and the channels of those that may follow.
#[derive(Default)]
struct Paused {
    connections: Vec<HandedConnection>,
    channels: Vec<mpsc::UnboundedReceiver<HandedConnection>>,
}

/// Side of the running daemon.
pub(super) struct Giver {
    handle: DaemonHandle,
    offer: Offer,
    requests: mpsc::UnboundedSender<Request>,
}

impl Giver {
    pub(super) fn new(
        handle: DaemonHandle,
        offer: Offer,
        requests: mpsc::UnboundedSender<Request>,
    ) -> Giver {
        Giver {
            handle,
            offer,
            requests,
        }
    }

    /// Waits for new daemons, one after the other.
    pub(super) async fn serve(self) {
        let socket = &self.offer.socket;
        let listener = match socket.listen_again().and_then(|()| Listener::new(socket)) {
            Ok(listener) => listener,
            Err(error) => return tracing::error!("this daemon cannot be taken over: {error}"),
        };
        let giver = Arc::new(self);
        loop {
            let Ok((Stream::Unix(stream), peer)) = listener.accept().await else {
                tokio::time::sleep(STEP_TIMEOUT).await;
                continue;
            };
            let giver = giver.clone();
            let served = tokio::task::spawn_blocking(move || {
                let channel = stream.into_std().and_then(Channel::new);
                channel
                    .map_err(TakeoverError::from)
                    .and_then(|channel| giver.give(channel))
            });
            match served.await {
                // The socket is the new daemon's.
                Ok(Ok(())) => return,
                Ok(Err(error)) => tracing::warn!(%peer, "not taken over: {error}"),
                Err(error) => tracing::error!(%peer, "not taken over: {error}"),
            }
        }
    }

    /// Hands everything over to the daemon at the other end.
    fn give(&self, mut channel: Channel) -> Result<(), TakeoverError> {
        let (pid, user) = sys::peer_process(channel.stream())?;
        if user != 0 && user != sys::own_user() {
            return Err(refused(format!("user {user} may not take it over")));
        }
        channel.allow(STEP_TIMEOUT)?;
        let hello = match channel.receive()?.0 {
            Message::Hello(hello) => hello,
            _ => return Err(refused("the peer does not begin with its version")),
        };
        // The new daemon compares, too: whichever is newer knows what to say.
        channel.send(&Message::Hello(Hello::own()))?;
        if hello.format != FORMAT {
            return Err(other_format(&hello));
        }
        if let Err(error) = Handle::current().block_on(self.refuse_obstacles()) {
            tell(&mut channel, &error);
            return Err(error);
        }
        tracing::info!(pid, build = hello.build, "a new daemon takes over");
        let gate = &self.handle.shared().gate;
        let runtime = Handle::current();
        if !runtime.block_on(gate.close(STEP_TIMEOUT)) {
            let error = refused("a change by the control API is under way");
            tell(&mut channel, &error);
            return Err(error);
        }
        let given = self.give_frozen(&mut channel, pid);
        if given.is_err() {
            if let Some(store) = self.handle.shared().persistence.store() {
                store.reclaim();
            }
            runtime.block_on(gate.open());
        }
        given
    }

    /// Refuses a takeover that would lose something.
    async fn refuse_obstacles(&self) -> Result<(), TakeoverError> {
        let shared = self.handle.shared();
        for vm in shared.vms.configs() {
            if let Some(disk) = vm.disks.iter().find(|disk| disk.path.is_none()) {
                return Err(TakeoverError::refused(
                    format!(
                        "disk {:?} is in memory, which ends with its daemon",
                        disk.export
                    ),
                    "restart the daemon, which loses the disk's bytes, or put the disk into a file",
                ));
            }
        }
        if shared.unsent.load(Ordering::Relaxed) > 0 {
            return Err(refused(
                "a client has not read replies since the last takeover",
            ));
        }
        for device in 0..shared.devices.entries().len() {
            let snapshot = shared.devices.snapshot(device).await;
            let snapshot = snapshot.map_err(|error| refused(error.to_string()))?;
            for disk in snapshot.vms.iter().flat_map(|vm| &vm.disks) {
                let export = &disk.export;
                let moved = matches!(
                    disk.activation,
                    Some(ActivationState::HandedOver | ActivationState::LockedElsewhere)
                );
                let why = match (&disk.failed, disk.hung) {
                    (Some(why), _) => format!("disk {export:?} has failed: {why}"),
                    (None, Some(_)) => format!("disk {export:?} hangs"),
                    (None, None) if moved => format!("disk {export:?} is another host's"),
                    (None, None) => continue,
                };
                return Err(TakeoverError::refused(
                    why,
                    "mend that, remove the disk, or restart the daemon",
                ));
            }
        }
        Ok(())
    }

    fn send_plan(&self, channel: &mut Channel) -> Result<(), TakeoverError> {
        let shared = self.handle.shared();
        let sockets = self.sockets();
        let mut plan = Plan {
            file_vms: shared.file_vms.clone(),
            recorded: Handle::current().block_on(self.recorded()),
            policies: Handle::current().block_on(self.policies()),
            ..Plan::default()
        };
        let mut files = Vec::new();
        let mut add = |file| {
            files.push(file);
            (sockets.len() + files.len() - 1) as u32
        };
        for bound in &sockets {
            let (key, file) = bound.identity();
            let descriptor = plan.sockets.len() as u32;
            let key = key.to_owned();
            plan.sockets.push(SocketPlan {
                key,
                file,
                descriptor,
            });
        }
        let mut volumes = Vec::new();
        shared.disks.offered().for_each(|_, volume| {
            volumes.extend(
                volume
                    .activation
                    .clone()
                    .map(|it| (volume.name.clone(), it)),
            );
        });
        for (export, activation) in volumes {
            if activation.state() != ActivationState::Active {
                continue;
            }
            let locked = activation.locked_file()?;
            plan.disks.push(DiskPlan {
                export,
                descriptor: add(locked.file),
                claim: locked.claim.map(&mut add),
            });
        }
        for vm in shared.vms.configs() {
            let device = shared.devices.name(vm.device);
            plan.vms.push(VmPlan {
                name: vm.name.clone(),
                is_configured: shared.vms.is_configured(&vm.name),
                words: words_of(vm, device),
            });
        }
        let sockets = sockets.iter().map(|bound| bound.descriptor());
        let descriptors: Vec<BorrowedFd<'_>> =
            sockets.chain(files.iter().map(AsFd::as_fd)).collect();
        Ok(channel.send_with(&Message::Plan(plan), &[], &descriptors)?)
    }

    fn sockets(&self) -> Vec<Arc<Bound>> {
        let of_disks = self.offer.vhost_user.iter().flat_map(|it| it.sockets());
        self.offer.sockets.iter().cloned().chain(of_disks).collect()
    }

    /// Returns the names of the devices whose requests are recorded.
    async fn recorded(&self) -> Vec<String> {
        let devices = &self.handle.shared().devices;
        let mut names = Vec::new();
        for device in 0..devices.entries().len() {
            if let Ok(snapshot) = devices.snapshot(device).await
                && snapshot.recording.is_some()
            {
                names.push(snapshot.name);
            }
        }
        names
    }

    async fn policies(&self) -> Vec<PolicyPlan> {
        let devices = &self.handle.shared().devices;
        let mut policies = Vec::new();
        for (device, config) in devices.configs().into_iter().enumerate() {
            if let Ok(snapshot) = devices.snapshot(device).await {
                policies.push(PolicyPlan {
                    device: config.name,
                    in_file: config::policy_words(&config.scheduling.policy),
                    in_force: config::policy_words(&*snapshot.policy),
                });
            }
        }
        policies
    }

    fn give_frozen(&self, channel: &mut Channel, pid: i32) -> Result<(), TakeoverError> {
        self.send_plan(channel)?;
        expect(channel, &Message::Prepare)?;
        if let Some(store) = self.handle.shared().persistence.store() {
            store.release();
        }
        channel.send(&Message::Prepared)?;
        channel.allow(START_TIMEOUT)?;
        expect(channel, &Message::Pause)?;
        channel.allow(STEP_TIMEOUT)?;
        let runtime = Handle::current();
        runtime.block_on(self.stop_accepting())?;
        let began = Instant::now();
        let paused_at = crate::ring::clock().0;
        let mut paused = Paused::default();
        let given = runtime
            .block_on(self.pause(&mut paused))
            .and_then(|()| self.send_state(channel, &paused, paused_at))
            .and_then(|()| expect(channel, &Message::Taken))
            .and_then(|()| Ok(channel.send(&Message::Yours)?));
        match given {
            Ok(()) => {
                let connections = paused.connections.len();
                let pause_ms = began.elapsed().as_millis() as u64;
                tracing::info!(pid, connections, pause_ms, "handed over");
                self.sockets().iter().for_each(|bound| bound.give_up());
                // First, so that the main task does not take the end of the loops for a failure.
                let _ = self.requests.send(Request::HandedOver);
                let give_up = || Command::HandOver(HandOverStep::GiveUpDisks);
                self.handle.devices().send_all(give_up);
                // Kept open until the process ends: the other daemon has copies.
                std::mem::forget(paused);
                Ok(())
            }
            Err(error) => {
                tell(channel, &error);
                runtime.block_on(async { self.take_back(paused) });
                let pause_ms = began.elapsed().as_millis() as u64;
                tracing::info!(pause_ms, "goes on as before");
                Err(error)
            }
        }
    }

    /// Stops accepting, and waits for handshakes that have begun and for clients over TLS. The I/O
    /// of all others goes on.
    async fn stop_accepting(&self) -> Result<(), TakeoverError> {
        let (done, stopped) = oneshot::channel();
        // Dropped by a main task that has ended, or is about to.
        let _ = self.requests.send(Request::StopAccepting(done));
        let stopping = |_| refused("the daemon is stopping");
        stopped.await.map_err(stopping)?;
        let shaken = async {
            while self.handle.half_open().nbd.counts().half_open > 0 {
                tokio::time::sleep(LOOK_INTERVAL).await;
            }
        };
        let _ = timeout(HANDSHAKE_TIMEOUT, shaken).await;
        let devices = &self.handle.shared().devices;
        let closed = async {
            for device in 0..devices.entries().len() {
                let close = |reply| Command::HandOver(HandOverStep::CloseTunnelled { reply });
                let _ = devices.ask(device, close).await;
            }
        };
        let _ = timeout(TLS_TIMEOUT, closed).await;
        Ok(())
    }

    /// Pauses all clients and takes their connections out of the event loops.
    async fn pause(&self, paused: &mut Paused) -> Result<(), TakeoverError> {
        for entry in self.handle.devices().entries() {
            let (handed, receiver) = mpsc::unbounded_channel();
            let sent = entry.send(Command::HandOver(HandOverStep::Begin { handed }));
            sent.map_err(|error| refused(error.to_string()))?;
            paused.channels.push(receiver);
        }
        let Paused {
            connections,
            channels,
        } = paused;
        let all = async {
            for channel in channels {
                while let Some(one) = channel.recv().await {
                    connections.push(one);
                }
            }
        };
        let ended = timeout(IO_TIMEOUT, all).await;
        ended.map_err(|_| {
            TakeoverError::refused(
                format!("I/O in flight has not ended within {IO_TIMEOUT:?}"),
                "try again once no disk hangs: `tidegate device show` says which",
            )
        })
    }

    fn send_state(
        &self,
        channel: &mut Channel,
        paused: &Paused,
        paused_at: u64,
    ) -> Result<(), TakeoverError> {
        let connections = paused.connections.iter().enumerate();
        let connections = connections.map(|(at, one)| {
            let state = &one.handed.state;
            ConnectionState {
                export: one.disk.clone(),
                peer: one.peer.clone(),
                descriptor: at as u32,
                size: state.size,
                skip: state.skip,
                block_min: state.block_min,
                payload_max: state.payload_max,
                flags: state.flags,
                structured_replies: state.style == tidegate_nbd::ReplyStyle::Structured,
                context: one.handed.allocation_context,
                input: one.handed.input.len() as u64,
                unsent: one.handed.unsent.len() as u64,
            }
        });
        let state = State {
            paused_at,
            connections: connections.collect(),
            devices: Handle::current().block_on(snapshots::states(self.handle.shared())),
        };
        let handed = || paused.connections.iter().map(|one| &one.handed);
        let bytes: Vec<&[u8]> = handed()
            .flat_map(|handed| [&handed.input[..], &handed.unsent[..]])
            .collect();
        let descriptors: Vec<_> = handed().map(|handed| handed.fd.as_fd()).collect();
        Ok(channel.send_with(&Message::State(state), &bytes, &descriptors)?)
    }

    /// Goes on with the connections, and with those that come to rest later. Must be called within
    /// the daemon's runtime.
    fn take_back(&self, paused: Paused) {
        let resume = || Command::HandOver(HandOverStep::Resume);
        self.handle.devices().send_all(resume);
        let Paused {
            connections,
            channels,
        } = paused;
        for one in connections {
            unsent::add(self.handle.shared(), one);
        }
        for mut channel in channels {
            let shared = self.handle.shared().clone();
            tokio::spawn(async move {
                while let Some(one) = channel.recv().await {
                    unsent::add(&shared, one);
                }
            });
        }
        let _ = self.requests.send(Request::Accept);
    }
}

/// Returns the keys of a VM as the store and the API have them, with absolute paths.
pub(super) fn words_of(vm: config::VmConfig, device: &str) -> serde_json::Value {
    config::vm::to_json(&super::persistence::with_absolute_paths(vm), device)
}

fn refused(what: impl Into<String>) -> TakeoverError {
    TakeoverError::refused(what, "try again")
}

/// Receives the message that has to come next.
fn expect(channel: &mut Channel, expected: &Message) -> Result<(), TakeoverError> {
    match channel.receive()?.0 {
        message if message == *expected => Ok(()),
        Message::Refused(Problem { what, help }) => Err(TakeoverError::Refused { what, help }),
        _ => Err(io::Error::other("another message is due").into()),
    }
}

/// Tells the new daemon why this one goes on. It may be gone.
fn tell(channel: &mut Channel, error: &TakeoverError) {
    let problem = Problem {
        what: error.to_string(),
        help: error.help().unwrap_or_default(),
    };
    let _ = channel.send(&Message::Refused(problem));
}

/// Ends a daemon that was taken over: writes what it has recorded, and lets clients over TLS have
/// their last replies.
pub(super) async fn end(handle: &DaemonHandle, tls: Option<Arc<TlsThreads>>) -> Stopped {
    let shared = handle.shared().clone();
    let recorded = tokio::task::spawn_blocking(move || {
        if let Some(history) = &shared.history {
            history.stop();
        }
        shared.recordings.finish();
    });
    let sent = async {
        if let Some(tls) = tls {
            tls.finished().await;
        }
    };
    let (recorded, ()) = tokio::join!(recorded, sent);
    if let Err(error) = recorded {
        tracing::error!("the last points and requests are not recorded: {error}");
    }
    Stopped::HandedOver
}
