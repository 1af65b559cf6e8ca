//! The running daemon's side of a takeover: hands everything over, or goes on as before.
//!
//! ```text
//!   Plan --> frozen: no changes, store closed --> paused: nothing received, nothing in flight
//!                    |                                      |             |
//!                    +---- the new daemon is gone, refuses, is late ------+--> goes on
//!                                                                         +--> Yours: ends
//! ```

use std::os::fd::{AsFd, BorrowedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use super::handed_connections::Paused;
use super::handle::DaemonHandle;
use super::persistence::words_of;
use super::{Stopped, disk_limits, hand_over_disks, handed_sessions, snapshots, succession};
use crate::backing::{Activation, ActivationState, LockedFile};
use crate::command::{Command, DeviceSnapshot, HandOverStep, HandedConnection};
use crate::config;
use crate::listener::{Bound, Listener, Stream, VhostUserListener};
use crate::ownership::Ownership;
use crate::ring::sys;
use crate::service_manager::{self, Supervisor};
use crate::takeover::{
    Channel, ClientPlan, DiskPlan, DiskSummary, FORMAT, Hello, Lifeline, LimitGroupPlan, Message,
    Plan, PolicyPlan, Service, SocketPlan, State, TakeoverError, VmPlan, other_format,
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
    /// Listeners for front-ends; weak, because an orderly end closes their sockets by dropping
    /// them.
    pub(super) vhost_user: Vec<Weak<VhostUserListener>>,
    /// Supervisor of this process, which would not know the new one.
    pub(super) supervisor: Option<Supervisor>,
}

/// Connections and sessions that are to be taken back, and the time at which they were paused.
type PausedSince = (Box<Paused>, Instant);

/// Daemon that takes over.
#[derive(Clone, Copy)]
struct Taker {
    pid: i32,
    /// True if it goes on with sessions of vhost-user front-ends.
    sessions: bool,
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
        let shared = giver.handle.shared().clone();
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
                _ if shared.outcome.is_handed_over() => return,
                Ok(Ok(())) => return,
                Ok(Err(error)) => tracing::warn!(%peer, "not taken over: {}", error.of_running()),
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
        channel.send(&Message::Hello(Hello::of(self.service())))?;
        if hello.format != FORMAT {
            return Err(other_format(&hello));
        }
        let own_file = self.handle.shared().config_file.as_deref();
        let supervisor = self.offer.supervisor;
        let by_supervisor = succession::refuse_unless_supervised(supervisor, own_file, pid, &hello);
        let refused_by = |()| Handle::current().block_on(self.refuse_obstacles());
        if let Err(error) = by_supervisor.and_then(refused_by) {
            channel.refuse(&error);
            return Err(error);
        }
        tracing::info!(pid, build = hello.build, "a new daemon takes over");
        let gate = &self.handle.shared().gate;
        let runtime = Handle::current();
        if !runtime.block_on(gate.close(STEP_TIMEOUT)) {
            let error = refused("a change by the control API is under way");
            channel.refuse(&error);
            return Err(error);
        }
        // A daemon that is stopped from now on leaves the files of sockets, with which the new one
        // may go on.
        let sockets = self.sockets();
        sockets.iter().for_each(|bound| bound.give_up());
        let sessions = hello.sessions;
        let taker = Taker { pid, sessions };
        let given = unless_panicked(|| self.give_frozen(&mut channel, taker));
        if given.is_err() && !self.handle.shared().outcome.is_handed_over() {
            sockets.iter().for_each(|bound| bound.take_back());
            if let Some(store) = self.handle.shared().persistence.store() {
                store.reclaim();
            }
            gate.open();
        }
        given
    }

    /// Returns the service of systemd whose main process this one is.
    fn service(&self) -> Option<Service> {
        let supervisor = self.offer.supervisor?;
        (supervisor == Supervisor::Systemd).then(|| Service {
            watchdog_us: service_manager::watchdog_micros(),
        })
    }

    /// Refuses a takeover that would lose something.
    async fn refuse_obstacles(&self) -> Result<(), TakeoverError> {
        let shared = self.handle.shared();
        for vm in shared.vms.configs() {
            if let Some(disk) = vm.disks.iter().find(|disk| disk.nbd.is_some()) {
                return Err(TakeoverError::refused(
                    format!(
                        "disk {:?} is on an NBD server, whose connection cannot be handed over",
                        disk.export
                    ),
                    "restart the daemon: what is acknowledged is flushed before it ends",
                ));
            }
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
        for device in 0..shared.devices.entries().len() {
            let snapshot = self.snapshot(device).await?;
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

    /// Asks an event loop, which may hang.
    async fn ask<T>(
        &self,
        device: usize,
        command: impl FnOnce(oneshot::Sender<T>) -> Command,
    ) -> Result<T, TakeoverError> {
        let devices = &self.handle.shared().devices;
        let answer = timeout(STEP_TIMEOUT, devices.ask(device, command)).await;
        let late = |_| refused(format!("device {:?} hangs", devices.name(device)));
        answer
            .map_err(late)?
            .map_err(|error| refused(error.to_string()))
    }

    async fn snapshot(&self, device: usize) -> Result<DeviceSnapshot, TakeoverError> {
        self.ask(device, |reply| Command::Snapshot { reply }).await
    }

    /// Has all event loops keep an end of a lifeline until their last I/O has ended.
    async fn lifeline(&self) -> Result<Lifeline, TakeoverError> {
        let line = Lifeline::new()?;
        for device in 0..self.handle.shared().devices.entries().len() {
            let file = line.for_ring()?;
            let keep = |reply| Command::HandOver(HandOverStep::Keep { file, reply });
            self.ask(device, keep).await??;
        }
        Ok(line)
    }

    /// Sends what is served here. Returns the disks.
    fn send_plan(
        &self,
        channel: &mut Channel,
        line: &Lifeline,
    ) -> Result<Vec<DiskSummary>, TakeoverError> {
        let shared = self.handle.shared();
        let sockets = self.sockets();
        let disks = hand_over_disks::summaries(shared);
        let mut plan = Plan {
            file_vms: shared.file_vms(),
            not_served: Some(shared.persistence.names_not_served()),
            clients: Handle::current().block_on(self.clients())?,
            recorded: Handle::current().block_on(self.recorded())?,
            policies: Handle::current().block_on(self.policies())?,
            limit_groups: Handle::current().block_on(self.limit_groups())?,
            membership: (shared.membership.as_ref()).and_then(|it| it.handed()),
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
        plan.lifeline = add(line.for_new_daemon().try_clone_to_owned()?.into());
        let activations = hand_over_disks::activations(shared);
        for disk in &disks {
            let of_disk = activations
                .iter()
                .find(|(export, _)| *export == disk.export);
            let locked = of_disk.filter(|_| disk.is_active);
            let locked = locked.map(|(_, activation)| activation.locked_file());
            let (file, claim) = match locked.transpose()? {
                Some(LockedFile { file, claim, .. }) => (Some(file), claim),
                None => (None, None),
            };
            plan.disks.push(DiskPlan {
                disk: disk.clone(),
                descriptor: file.map(&mut add),
                claim: claim.map(&mut add),
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
        channel.send_with(&Message::Plan(Box::new(plan)), &[], &descriptors)?;
        Ok(disks)
    }

    fn sockets(&self) -> Vec<Arc<Bound>> {
        let vhost_user = self.offer.vhost_user.iter().filter_map(Weak::upgrade);
        let of_disks = vhost_user.flat_map(|listener| listener.sockets());
        self.offer.sockets.iter().cloned().chain(of_disks).collect()
    }

    /// Returns the names of the devices whose requests are recorded.
    async fn recorded(&self) -> Result<Vec<String>, TakeoverError> {
        let mut names = Vec::new();
        for device in 0..self.handle.shared().devices.entries().len() {
            let snapshot = self.snapshot(device).await?;
            if snapshot.recording.is_some() {
                names.push(snapshot.name);
            }
        }
        Ok(names)
    }

    async fn policies(&self) -> Result<Vec<PolicyPlan>, TakeoverError> {
        let mut policies = Vec::new();
        let configs = self.handle.shared().devices.configs();
        for (device, config) in configs.into_iter().enumerate() {
            let snapshot = self.snapshot(device).await?;
            policies.push(PolicyPlan {
                device: config.name,
                in_file: config::policy_words(&config.scheduling.policy),
                in_force: config::policy_words(&*snapshot.policy),
            });
        }
        Ok(policies)
    }

    /// Returns the limits that disks share, of the file and in force.
    async fn limit_groups(&self) -> Result<Vec<LimitGroupPlan>, TakeoverError> {
        let mut groups = Vec::new();
        let configs = self.handle.shared().devices.configs();
        for (device, config) in configs.iter().enumerate() {
            let now = self.snapshot(device).await?.limit_groups;
            groups.extend(disk_limits::group_plans(config, &now));
        }
        Ok(groups)
    }

    /// Returns the clients of all disks, those over TLS and vhost-user front-ends included.
    async fn clients(&self) -> Result<Vec<ClientPlan>, TakeoverError> {
        let mut clients = Vec::new();
        for device in 0..self.handle.shared().devices.entries().len() {
            let list = |reply| Command::HandOver(HandOverStep::ListClients { reply });
            let listed = self.ask(device, list).await?.into_iter();
            clients.extend(listed.map(|(peer, export)| ClientPlan { export, peer }));
        }
        Ok(clients)
    }

    fn give_frozen(&self, channel: &mut Channel, taker: Taker) -> Result<(), TakeoverError> {
        let line = Handle::current().block_on(self.lifeline());
        let mut line = line.inspect_err(|error| channel.refuse(error))?;
        let given = self.give_by_plan(channel, &line, taker);
        given.map_err(|(error, paused)| {
            // A word that the new daemon does not get, or does not ask for in time: it must not go
            // on with what it has, which may change from now on, if this daemon ends later.
            if let Err(error) = line.go_on() {
                tracing::error!("the pipe of the takeover takes no byte: {error}");
            }
            channel.refuse(&error);
            if let Some((paused, began)) = paused {
                Handle::current().block_on(async { self.take_back(*paused) });
                let pause_ms = began.elapsed().as_millis() as u64;
                tracing::info!(pause_ms, "goes on as before");
            }
            error
        })
    }

    /// Hands everything over. A failure comes with what is to be taken back, if clients were
    /// paused, and with the time since.
    fn give_by_plan(
        &self,
        channel: &mut Channel,
        line: &Lifeline,
        taker: Taker,
    ) -> Result<(), (TakeoverError, Option<PausedSince>)> {
        let disks = unless_panicked(|| self.prepare(channel, line)).map_err(|it| (it, None))?;
        let stopped = unless_panicked(|| Handle::current().block_on(self.stop_accepting(channel)));
        // Also after a panic clients are to be accepted again.
        stopped.map_err(|error| (error, Some((Box::default(), Instant::now()))))?;
        let mut paused = Paused::default();
        if taker.sessions {
            paused.resting = handed_sessions::rest(&self.offer.vhost_user);
        }
        let began = Instant::now();
        let paused_at = crate::ring::clock().0;
        let given = unless_panicked(|| self.give_paused(channel, &mut paused, paused_at, &disks));
        let outcome = &self.handle.shared().outcome;
        // The new daemon goes on if it has the last word, whatever has panicked after that.
        if let Err(error) = given
            && !outcome.is_handed_over()
        {
            return Err((error, Some((Box::new(paused), began))));
        }
        let service = self.service();
        let ending = outcome.ending(match service {
            None => Stopped::HandedOver,
            Some(_) => Stopped::ServiceHandedOver,
        });
        // First, so that the main task does not take the end of the loops for a failure.
        let _ = self.requests.send(Request::HandedOver);
        let (pid, connections) = (taker.pid, paused.len());
        let pause_ms = began.elapsed().as_millis() as u64;
        tracing::info!(pid, connections, pause_ms, "handed over");
        let give_up = || Command::HandOver(HandOverStep::GiveUpDisks);
        self.handle.devices().send_all(give_up);
        // Kept open until the process ends: the other daemon has copies.
        std::mem::forget(paused);
        if service.is_some()
            && let Err(why) = succession::wait_for(channel, pid)
        {
            tracing::error!("{why}: systemd starts the service again unless it knows that daemon");
        }
        drop(ending);
        Ok(())
    }

    /// Sends the plan, closes the store, and waits until the new daemon is ready. Returns the
    /// disks.
    fn prepare(
        &self,
        channel: &mut Channel,
        line: &Lifeline,
    ) -> Result<Vec<DiskSummary>, TakeoverError> {
        let disks = self.send_plan(channel, line)?;
        channel.expect(&Message::Prepare)?;
        if let Some(store) = self.handle.shared().persistence.store() {
            store.release();
        }
        channel.send(&Message::Prepared)?;
        channel.allow(START_TIMEOUT)?;
        channel.expect(&Message::Pause)?;
        channel.allow(STEP_TIMEOUT)?;
        Ok(disks)
    }

    /// Pauses all clients and hands everything over, up to the last word.
    fn give_paused(
        &self,
        channel: &mut Channel,
        paused: &mut Paused,
        paused_at: u64,
        planned: &[DiskSummary],
    ) -> Result<(), TakeoverError> {
        let runtime = Handle::current();
        // The new daemon may have ended since it asked, which must not cost clients a pause.
        channel.check_peer()?;
        runtime.block_on(self.pause(paused))?;
        // Again, because a disk may have failed since, also by the I/O that has just ended. Now
        // that nothing is in flight, none fails any more.
        runtime.block_on(self.refuse_obstacles())?;
        let activations = hand_over_disks::activations(self.handle.shared());
        // Held until the end, so that no disk goes to another host meanwhile.
        let users = hand_over_disks::hold_users(&activations)?;
        if hand_over_disks::summaries(self.handle.shared()) != planned {
            return Err(refused("a disk was handed to another host, or arrived"));
        }
        self.send_state(channel, paused, paused_at)?;
        channel.expect(&Message::Taken)?;
        let last_word = || self.say_last_word(channel, &activations, paused);
        let given = self.handle.shared().outcome.hand_over(last_word);
        given.unwrap_or_else(|| Err(refused("the daemon is stopping")))?;
        // Until the process ends no front-end makes a disk another host's.
        std::mem::forget(users);
        Ok(())
    }

    /// Gives up the locks of all disks, and says so.
    fn say_last_word(
        &self,
        channel: &mut Channel,
        activations: &[(String, Arc<Activation>)],
        paused: &Paused,
    ) -> Result<(), TakeoverError> {
        let of_disks = || activations.iter().map(|(_, it)| it.ownership());
        let locks = || of_disks().chain(paused.locks());
        // Before the word: from then on nothing here may release a lock.
        locks().for_each(Ownership::give_up);
        // From then on the service's notifications are the new daemon's.
        service_manager::fall_silent();
        if let Err(error) = channel.send(&Message::Yours) {
            service_manager::speak_again();
            locks().for_each(Ownership::take);
            return Err(error.into());
        }
        Ok(())
    }

    /// Stops accepting, and waits for handshakes that have begun and for clients over TLS. The I/O
    /// of all others goes on.
    ///
    /// # Errors
    /// If this daemon is stopping, or the new one is gone: no client is closed for it.
    async fn stop_accepting(&self, channel: &Channel) -> Result<(), TakeoverError> {
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
        channel.check_peer()?;
        // All devices are asked before the first one has answered: each has the whole time.
        let mut closing = Vec::new();
        for entry in self.handle.devices().entries() {
            let (reply, closed) = oneshot::channel();
            // Fails only if the loop has ended.
            let _ = entry.send(Command::HandOver(HandOverStep::CloseTunnelled { reply }));
            closing.push(closed);
        }
        let closed = async {
            for closed in closing {
                // Dropped by a loop that has ended.
                let _ = closed.await;
            }
        };
        let _ = timeout(TLS_TIMEOUT, closed).await;
        Ok(())
    }

    /// Pauses all clients and takes their connections out of the event loops.
    async fn pause(&self, paused: &mut Paused) -> Result<(), TakeoverError> {
        // Clients that have not read all replies of the daemon before this one. First, because an
        // event loop that is paused drops connections that come.
        let shared = self.handle.shared();
        let is_served = |one: &HandedConnection| {
            let listed = shared.disks.offered().find(&one.disk);
            listed.is_some_and(|listed| listed.volume.serial == one.serial)
        };
        paused.connections = shared.unsent.take(is_served);
        for entry in self.handle.devices().entries() {
            let (handed, receiver) = mpsc::unbounded_channel();
            let sent = entry.send(Command::HandOver(HandOverStep::Begin { handed }));
            sent.map_err(|error| refused(error.to_string()))?;
            paused.channels.push(receiver);
        }
        let ended = timeout(IO_TIMEOUT, paused.receive()).await;
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
        paused: &mut Paused,
        paused_at: u64,
    ) -> Result<(), TakeoverError> {
        let states = async { timeout(STEP_TIMEOUT, snapshots::states(self.handle.shared())).await };
        let devices = Handle::current().block_on(states);
        let devices = devices.map_err(|_| refused("a device hangs"))?;
        let devices = devices.map_err(|error| refused(error.to_string()))?;
        let state = State {
            paused_at,
            devices,
            ..State::default()
        };
        Ok(paused.send(channel, state)?)
    }

    /// Goes on with the connections, and with those that come to rest later. Must be called within
    /// the daemon's runtime.
    fn take_back(&self, paused: Paused) {
        let resume = || Command::HandOver(HandOverStep::Resume);
        self.handle.devices().send_all(resume);
        paused.take_back(self.handle.shared());
        let _ = self.requests.send(Request::Accept);
    }
}

/// Takes a step. A panic, which the panic hook has logged, is a refusal: clients that are paused
/// must not stay so.
fn unless_panicked<T>(step: impl FnOnce() -> Result<T, TakeoverError>) -> Result<T, TakeoverError> {
    let taken = catch_unwind(AssertUnwindSafe(step));
    taken.unwrap_or_else(|_| Err(refused("a step of the running daemon has panicked: a bug")))
}

fn refused(what: impl Into<String>) -> TakeoverError {
    TakeoverError::refused(what, "try again")
}

/// Ends a daemon that was taken over, once the service manager knows the other one: writes what it
/// has recorded, and lets clients over TLS have their last replies.
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
    let ended = handle.shared().outcome.may_end();
    let (recorded, (), stopped) = tokio::join!(recorded, sent, ended);
    if let Err(error) = recorded {
        tracing::error!("the last points and requests are not recorded: {error}");
    }
    stopped
}

#[cfg(test)]
#[path = "give_tests.rs"]
mod tests;
