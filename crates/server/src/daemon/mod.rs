//! Start, run and end of the daemon.
//!
//! ```text
//!   start: open all disks, bind all sockets, start all loops; or nothing of it
//!   run:   accept clients --signal--> drain: stop reading, finish, flush, answer --> end
//!                                       |
//!                                       +--second signal, or stop_within over--> end within 1 s
//! ```

use std::collections::BTreeSet;
use std::io;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::sync::{Notify, mpsc};
use tokio::task::JoinSet;

use crate::command::Command;
use crate::config::{Config, DaemonConfig};
use crate::disk_file_monitor;
use crate::event_loop::{Files, Prepared, Remains};
use crate::exchange::Exchange;
use crate::history::{History, Recording};
use crate::listener::{
    Bound, ExportCatalogue, ExportList, OwnSocket, VhostUserListener, accept_clients,
};
use crate::log_limit;
use crate::ring::sys;
use crate::sandbox;
use crate::service_manager;
use crate::takeover::{Inherited, TakeoverError, Taking};
use crate::timekeeping;
use crate::tls::{ListenerTls, TlsListeners, TlsThreads};

mod change_gate;
mod changes;
mod config_file;
mod devices;
mod directory;
mod disk_limits;
mod disks;
mod error;
mod file_changes;
mod give;
mod hand_over_disks;
mod handed_connections;
mod handed_sessions;
mod handle;
mod learnt_vm_state;
mod opening;
mod outcome;
mod persistence;
mod recordings;
mod resize;
mod restore;
mod served_vms;
mod service_status;
mod shared;
mod signals;
mod snapshots;
mod succession;
mod taken;
mod transfers;
mod unsent;

pub use crate::command::ControlError;
pub use change_gate::ChangeGate;
pub(crate) use config_file::ConfigFile;
pub use devices::{DeviceEntry, DeviceTable};
pub use directory::VmDirectory;
pub(crate) use disk_limits::DiskLimits;
pub use error::{RunError, StartError};
pub(crate) use file_changes::{FileChanges, NeedsRestart, VmChanges, as_in_force};
use give::{Giver, Offer, Request};
pub use handle::{DaemonHandle, membership_of, published_devices};
use opening::{
    bind_nbd, bind_vhost_user, open_disks, open_exchange, open_store, start_history, tls_of, vm_of,
};
pub use outcome::Stopped;
pub use recordings::DeviceRecordings;
pub use signals::Signals;
use snapshots::Snapshots;
use taken::Taken;
use transfers::DeviceTransfers;

/// Daemon whose event loops run and whose sockets are bound; [`Daemon::run`] accepts clients.
#[derive(Debug)]
pub struct Daemon {
    handle: DaemonHandle,
    listeners: Vec<NbdListener>,
    tls: TlsListeners,
    vhost_user: Vec<Arc<VhostUserListener>>,
    /// Sockets that the configuration does not name, each with its disk.
    own_sockets: Vec<(String, OwnSocket)>,
    threads: Vec<JoinHandle<io::Result<Remains>>>,
    ended: mpsc::UnboundedReceiver<usize>,
    signals: Signals,
    /// Exchange with the hosts that share arrays; `None` without one.
    exchange: Option<Exchange>,
    /// Offer to be taken over, if there is one.
    offer: Option<Offer>,
    /// State of the daemon that this one has taken over from, if there was one.
    taken: Option<Taken>,
}

/// Bound listener of NBD.
#[derive(Debug)]
struct NbdListener {
    bound: Arc<Bound>,
    list: ExportList,
    tls: Option<Arc<ListenerTls>>,
}

/// Event loops of a daemon that is starting. If the start fails, dropping this ends them.
#[derive(Default)]
struct Loops {
    devices: Vec<DeviceEntry>,
    threads: Vec<JoinHandle<io::Result<Remains>>>,
}

impl Loops {
    /// Starts the loop of the next device, and offers its disks.
    fn start(
        &mut self,
        prepared: Prepared,
        guard: NotifyOnEnd,
        transfers_changed: &Arc<Notify>,
        recording: Option<Recording>,
        (config, catalogue): (&Config, &ExportCatalogue),
    ) -> Result<(), StartError> {
        let volumes = prepared.volumes();
        let (handle, thread) = prepared.spawn(guard, transfers_changed.clone(), recording)?;
        let device = config.devices[self.devices.len()].clone();
        let entry = DeviceEntry::new(device, handle);
        for (volume, connections) in volumes {
            let vm = vm_of(&config.vms, &volume.name);
            catalogue.put(entry.export_entry(vm, volume, connections));
        }
        self.devices.push(entry);
        self.threads.push(thread);
        Ok(())
    }
}

impl Drop for Loops {
    fn drop(&mut self) {
        for (entry, thread) in self.devices.iter().zip(self.threads.drain(..)) {
            // A loop that has ended already takes no command, and its thread is joined all the
            // same.
            let _ = entry.send(Command::Abort);
            let _ = thread.join();
        }
    }
}

/// Sends the index of a device when dropped, however its event loop ended.
struct NotifyOnEnd(usize, mpsc::UnboundedSender<usize>);

impl Drop for NotifyOnEnd {
    fn drop(&mut self) {
        // The daemon may have gone first.
        let _ = self.1.send(self.0);
    }
}

impl Daemon {
    /// Opens everything that the configuration names and starts the event loops. Must be called
    /// within a tokio runtime, which receives SIGTERM and SIGINT for [`Daemon::run`] from now on.
    ///
    /// # Errors
    /// If anything cannot be opened; names the VM, export, path or address.
    pub fn start(config: Config) -> Result<Daemon, StartError> {
        // Registered first: a signal during the start must lead to an orderly end.
        let signals = Signals::install().map_err(StartError::Signals)?;
        Daemon::start_with(config, signals)
    }

    /// Starts the daemon as [`Daemon::start`] does, with signals that were installed before: one
    /// that has come since then leads to an orderly end.
    ///
    /// # Errors
    /// If anything cannot be opened; names the VM, export, path or address.
    pub fn start_with(config: Config, signals: Signals) -> Result<Daemon, StartError> {
        Daemon::start_taking_over(config, signals, Inherited::default())
    }

    /// Starts the daemon with what a running one has sent.
    ///
    /// # Errors
    /// As for [`Daemon::start_with`], and if the configuration cannot have what is served.
    pub fn start_taking_over(
        mut config: Config,
        signals: Signals,
        mut inherited: Inherited,
    ) -> Result<Daemon, StartError> {
        // A write beyond RLIMIT_FSIZE must fail with EFBIG instead of SIGXFSZ ending the daemon.
        sys::survive_file_size_limits();
        sandbox::warn_unless(config.daemon.sandbox);
        let (in_file, file_vms) = (config.vms.clone(), taken::file_vms(&config));
        let store = open_store(&config)?;
        let files = Files::default();
        files.inherit(std::mem::take(&mut inherited.files));
        let sockets = inherited.sockets.clone();
        let taken = taken::put_in_force(&mut config, store.as_deref(), inherited, &file_vms)?;
        if let Some(store) = &store {
            persistence::load_known_disks(store, &files);
        }
        // All disks are opened before any loop starts, so that an error leaves nothing to undo.
        // Until a takeover is complete, the store has what the other daemon has recorded.
        let recorded_in = store.as_deref().filter(|_| taken.is_none());
        let prepared = open_disks(&config, recorded_in, &files)?;
        let history = start_history(&config)?;
        let tls = TlsListeners::open(&config, "NBD", tls_of)?;
        let bound = bind_nbd(&config, &sockets)?;
        let (exchange, prepared) = open_exchange(&config, prepared)?;
        let (sender, ended) = mpsc::unbounded_channel();
        let catalogue = Arc::new(ExportCatalogue::new(config.daemon.sandbox));
        let transfers_changed = Arc::new(Notify::new());
        let recording = history.as_ref().map(|history| history.recording());
        let mut loops = Loops::default();
        for (i, prepared) in prepared.into_iter().enumerate() {
            loops.start(
                prepared,
                NotifyOnEnd(i, sender.clone()),
                &transfers_changed,
                recording.clone(),
                (&config, &catalogue),
            )?;
        }
        let listener = |(bound, at): (_, usize)| NbdListener {
            bound,
            list: ExportList::new(&config.listeners[at], catalogue.clone()),
            tls: tls.of(at),
        };
        let listeners = bound.into_iter().map(listener).collect();
        let vhost_user = bind_vhost_user(&config, &catalogue, &sockets)?;
        // Emptied, so that dropping `loops` does not end the threads.
        let devices = std::mem::take(&mut loops.devices);
        let threads = std::mem::take(&mut loops.threads);
        Ok(Daemon {
            handle: DaemonHandle::new(
                (devices, config, in_file),
                files,
                catalogue,
                store,
                transfers_changed,
                history,
            ),
            listeners,
            tls,
            vhost_user,
            own_sockets: Vec::new(),
            threads,
            ended,
            signals,
            exchange,
            offer: None,
            taken,
        })
    }

    /// Lets a new daemon take this one over at `socket`, once clients are accepted. `others` are
    /// all sockets that listen beside those for clients of disks.
    pub fn offer_takeover(&mut self, socket: Bound, others: Vec<Arc<Bound>>) {
        let socket = Arc::new(socket);
        let disks = self.listeners.iter().map(|listener| listener.bound.clone());
        let sockets = others.into_iter().chain(disks).chain([socket.clone()]);
        self.offer = Some(Offer {
            sockets: sockets.collect(),
            vhost_user: self.vhost_user.iter().map(Arc::downgrade).collect(),
            socket,
            supervisor: service_manager::supervisor(),
        });
    }

    /// Takes the connections of the running daemon over, after [`Daemon::restore`]. Clients are
    /// paused from its beginning until they are served here. `done` is called later, once the
    /// service manager knows this daemon, too, or with the error if it may not.
    ///
    /// # Errors
    /// If the running daemon goes on; this one has to end without touching anything.
    pub async fn take_over(
        &mut self,
        taking: Taking,
        done: impl FnOnce(Result<(), TakeoverError>) + Send + 'static,
    ) -> Result<(), TakeoverError> {
        let taken = self.taken.take().unwrap_or_default();
        taken.apply(&self.handle).await?;
        let (taken, taking) = taken::take((&self.handle, &self.vhost_user), taken, taking).await?;
        tokio::spawn(taken.finish(self.handle.clone(), taking, done));
        Ok(())
    }

    /// Serves the front-ends of a disk at a socket that the configuration does not name, once
    /// clients are accepted. The daemon ends in order when that is over: with an inherited socket,
    /// when its front-end has gone.
    pub fn serve_at(&mut self, disk: &str, socket: OwnSocket) {
        self.own_sockets.push((disk.to_owned(), socket));
    }

    /// Returns the handle that controls the daemon.
    pub fn handle(&self) -> DaemonHandle {
        self.handle.clone()
    }

    /// Restores the state in the store: serves its VMs beside those of the configuration, and
    /// passes learnt states, attainment and deadline transfers to the event loops. A VM that cannot
    /// be served does not keep others from being served: it is logged and reported by `/healthz`.
    /// Also switches on the recordings that the configuration names. To be called before clients
    /// are accepted.
    pub async fn restore(&self) {
        let taken = self.taken.as_ref().map(Taken::served_vms);
        self.handle.restore(taken).await;
        if self.taken.is_none() {
            DeviceRecordings::of(&self.handle).start_configured().await;
        }
    }

    /// Returns a future that ends once another daemon serves in the place of this one.
    pub fn handed_over(&self) -> impl Future<Output = ()> + use<> {
        let shared = self.handle.shared().clone();
        async move { shared.outcome.handed_over().await }
    }

    /// Returns the listeners in the order of the configuration.
    pub fn listeners(&self) -> impl Iterator<Item = &Bound> {
        self.listeners.iter().map(|listener| &*listener.bound)
    }

    /// Begins to accept clients, until the set is shut down.
    fn accept(&mut self) -> JoinSet<()> {
        let mut accepting = JoinSet::new();
        for NbdListener { bound, list, tls } in &self.listeners {
            tracing::info!("listening on {}", bound.name());
            for export in list.missing() {
                let listener = bound.name();
                tracing::warn!(%listener, %export, "no disk has this export name yet");
            }
            let half_open = self.handle.half_open().nbd.clone();
            accepting.spawn(accept_clients(
                bound.clone(),
                list.clone(),
                tls.clone(),
                half_open,
            ));
        }
        for listener in &self.vhost_user {
            accepting.spawn(listener.clone().serve());
        }
        for (disk, socket) in self.own_sockets.drain(..) {
            let handle = self.handle.clone();
            let list = handle.shared().disks.offered();
            accepting.spawn(async move {
                socket.serve(disk, list).await;
                handle.shut_down();
            });
        }
        accepting
    }

    /// Begins to log what is noticed once a second, and to report to the service manager, until the
    /// set is shut down.
    fn begin_reports(&self, reporting: &mut JoinSet<()>) {
        reporting.spawn(log_limit::report_suppressed());
        reporting.spawn(sandbox::report());
        if self.handle.shared().config_file.is_none() {
            reporting.spawn(signals::log_hangups());
        }
        reporting.spawn(timekeeping::watch());
        reporting.spawn(service_status::report(self.handle()));
    }

    /// Serves until the daemon is to end in order, or with a result once another daemon has taken
    /// over.
    async fn serve(
        &mut self,
        (accepting, asked): (&mut JoinSet<()>, &mut mpsc::UnboundedReceiver<Request>),
        snapshots: &mut Snapshots,
        gone: &EndedLoops,
    ) -> Option<Stopped> {
        loop {
            tokio::select! {
                // A takeover first: event loops end after it.
                biased;
                Some(request) = asked.recv() => match request {
                    Request::StopAccepting(done) => {
                        accepting.shutdown().await;
                        let _ = done.send(());
                        continue;
                    }
                    Request::Accept => {
                        *accepting = self.accept();
                        self.begin_reports(accepting);
                        continue;
                    }
                    Request::HandedOver => {
                        // The daemon that has taken over speaks for this host now.
                        drop(self.exchange.take());
                        return Some(give::end(&self.handle, self.tls.threads()).await);
                    }
                },
                name = self.signals.next() => {
                    tracing::info!("{name}: finishing requests in flight");
                }
                () = self.handle.stopped() => {
                    tracing::info!("shutdown requested: finishing requests in flight");
                }
                index = self.ended.recv() => {
                    let device = index.map_or("?", |i| self.handle.devices().name(i));
                    gone.add(index);
                    tracing::error!(%device, "its event loop ended: shutting down");
                }
                () = snapshots.due() => {
                    snapshots.begin();
                    continue;
                }
            }
            return None;
        }
    }

    /// Serves until SIGTERM, SIGINT or [`DaemonHandle::shut_down`], then ends in order. Signals
    /// since [`Daemon::start`] count. Runs on the caller's runtime.
    ///
    /// The orderly end is cut short by a second signal, or by the deadline
    /// [`stop_within`](crate::config::DaemonConfig::stop_within) after the first.
    ///
    /// # Errors
    /// If an event loop ended by itself.
    pub async fn run(mut self) -> Result<Stopped, RunError> {
        if let Some(exchange) = &mut self.exchange {
            exchange.begin();
        }
        let mut accepting = self.accept();
        // Memory that reading the configuration took is free by now.
        self.handle.shared().disks.schedule_trim();
        self.begin_reports(&mut accepting);
        let mut snapshots = Snapshots::new(self.handle.shared());
        let gone = EndedLoops::default();
        let mut watching = JoinSet::new();
        let files = self.handle.files();
        watching.spawn(disk_file_monitor::watch(move || files.watched()));
        let (requests, mut asked) = mpsc::unbounded_channel();
        if let Some(offer) = self.offer.take() {
            watching.spawn(Giver::new(self.handle.clone(), offer, requests.clone()).serve());
        }
        let serving = self.serve((&mut accepting, &mut asked), &mut snapshots, &gone);
        if let Some(stopped) = serving.await {
            return Ok(stopped);
        }
        if !self.handle.shared().outcome.stop() {
            drop(self.exchange.take());
            return Ok(give::end(&self.handle, self.tls.threads()).await);
        }
        let Daemon {
            handle,
            listeners,
            tls,
            vhost_user,
            threads,
            ended,
            mut signals,
            exchange,
            ..
        } = self;
        let config = handle.config();
        service_manager::stopping(config.stop_within);
        let ending = Ending {
            handle: handle.clone(),
            threads,
            ended,
            gone: gone.clone(),
            tls: tls.threads(),
            exchange,
        };
        let mut ending = pin!(ending.in_order((accepting, vhost_user), snapshots));
        let cut_short = tokio::select! {
            ended = &mut ending => return ended.map(|()| Stopped::InOrder),
            name = signals.next() => format!("{name} again"),
            () = tokio::time::sleep(config.stop_within) => deadline_reason(&config),
        };
        tracing::warn!("{cut_short}: ending at once; what is not finished stays unanswered");
        handle.devices().send_all(|| Command::Abort);
        // Loops that abort end in their next turn, unless a system call blocks them.
        let ended = tokio::time::timeout(ABORT_TIMEOUT, ending).await;
        // The listeners are closed now, so that no client connects while the process waits for the
        // kernel.
        drop(listeners);
        match ended {
            Ok(ended) => ended?,
            Err(_) => log_stuck_loops(&handle, &gone),
        }
        Ok(Stopped::AtOnce)
    }
}

/// Indices of the devices whose event loops have ended.
#[derive(Clone, Default)]
struct EndedLoops(Arc<Mutex<BTreeSet<usize>>>);

impl EndedLoops {
    fn lock(&self) -> MutexGuard<'_, BTreeSet<usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, index: Option<usize>) {
        self.lock().extend(index);
    }
}

/// Waits for a second SIGTERM or SIGINT, or for the deadline of an orderly end after the first;
/// returns which of the two happened, in words. For use while the daemon is still starting.
pub async fn wait_for_forced_end(mut signals: Signals, config: &DaemonConfig) -> String {
    signals.next().await;
    tokio::select! {
        name = signals.next() => format!("{name} again"),
        () = tokio::time::sleep(config.stop_within) => deadline_reason(config),
    }
}

/// Returns the reason for cutting an orderly end short at its deadline, with the key that sets it.
fn deadline_reason(config: &DaemonConfig) -> String {
    let (seconds, key) = (config.stop_within.as_secs_f64(), config.stop_key);
    format!("not done in {seconds} s ({key})")
}

/// Time for the withdrawal from the exchange; the servers of messages may hang.
const WITHDRAW_TIMEOUT: Duration = Duration::from_secs(1);

/// Begins to withdraw from the exchange with other hosts; waits for that for
/// [`WITHDRAW_TIMEOUT`] at most.
fn withdraw(exchange: Option<Exchange>) -> impl Future<Output = ()> {
    let withdrawing =
        exchange.map(|exchange| tokio::task::spawn_blocking(move || exchange.withdraw()));
    async move {
        if let Some(withdrawing) = withdrawing
            && tokio::time::timeout(WITHDRAW_TIMEOUT, withdrawing)
                .await
                .is_err()
        {
            tracing::warn!("exchange: not withdrawn in time; other hosts reserve this one's share");
        }
    }
}

/// Time that event loops get to end after [`Command::Abort`]. The process has to end within a
/// second of the signal.
const ABORT_TIMEOUT: Duration = Duration::from_millis(500);

/// Logs which event loops did not end, and why.
fn log_stuck_loops(handle: &DaemonHandle, gone: &EndedLoops) {
    let gone = gone.lock();
    let devices = handle.devices().entries().iter().enumerate();
    for (_, entry) in devices.filter(|(index, _)| !gone.contains(index)) {
        let device = entry.name();
        tracing::warn!(
            %device,
            "its event loop does not answer: a system call on one of its disks is blocked"
        );
    }
    tracing::warn!(
        "stopped: some requests were not finished or flushed, and an event loop did not end; the \
         process exits once its system calls return"
    );
}

/// Parts of the daemon that an orderly end has to finish.
struct Ending {
    handle: DaemonHandle,
    threads: Vec<JoinHandle<io::Result<Remains>>>,
    ended: mpsc::UnboundedReceiver<usize>,
    gone: EndedLoops,
    tls: Option<Arc<TlsThreads>>,
    exchange: Option<Exchange>,
}

impl Ending {
    /// Finishes the requests in flight, flushes the disks and persists learnt state. Cancellation
    /// safe: the future may be dropped at any time.
    async fn in_order(
        mut self,
        (mut accepting, vhost_user): (JoinSet<()>, Vec<Arc<VhostUserListener>>),
        snapshots: Snapshots,
    ) -> Result<(), RunError> {
        // First, so that no client connects to a loop that drains.
        accepting.shutdown().await;
        // A hypervisor that connects again would wait for an answer, and its guest with it.
        drop(vhost_user);
        // Taken before the drain, which replaces the policy and thereby drops its learnt state.
        let learnt = snapshots.final_states().await;
        self.send_unsent().await;
        self.handle.devices().send_all(|| Command::Drain);
        // The set may hold loops that had ended before the drain.
        while self.gone.lock().len() < self.threads.len() {
            let index = self.ended.recv().await;
            self.gone.add(index);
        }
        // Only now: until its last request was answered, this host used its share.
        let withdrawn = withdraw(self.exchange.take());
        let tls = self.tls.take();
        let history = history_of(&self.handle);
        let recordings = DeviceRecordings::of(&self.handle).state().clone();
        let (ended, transfers) = self.join();
        let sent = async {
            if let Some(tls) = tls {
                // The last replies are with the threads for TLS.
                tls.finished().await;
            }
        };
        let recorded = tokio::task::spawn_blocking(move || {
            if let Some(history) = history {
                history.stop();
            }
        });
        // At a time: a client that is slow to take its replies costs no learnt state.
        let written = async {
            // It waits for the disk, for some seconds at most.
            let _ = tokio::task::spawn_blocking(move || recordings.finish()).await;
        };
        let finished = snapshots.finish(learnt, transfers);
        let (_, (), recorded, (), ()) = tokio::join!(sent, finished, recorded, written, withdrawn);
        if let Err(error) = recorded {
            tracing::error!("history: the last points are not written: {error}");
        }
        log_limit::report_remaining();
        match &ended {
            Ok(true) => tracing::info!("stopped: every request was finished, every disk flushed"),
            Ok(false) => tracing::warn!("stopped: some requests were not finished or flushed"),
            Err(_) => {}
        }
        ended.map(drop)
    }

    /// Sends the replies that the daemon before this one has left: its clients come to the loops
    /// after that, and not to one that drains.
    async fn send_unsent(&self) {
        let shared = self.handle.shared().clone();
        let _ = tokio::task::spawn_blocking(move || shared.unsent.finish()).await;
    }

    /// Joins the threads of event loops, all of which have ended. Returns true if everything was
    /// finished and flushed, and the transfers that ran, by index of the device.
    fn join(self) -> (Result<bool, RunError>, Vec<DeviceTransfers>) {
        let mut result = Ok(true);
        let mut transfers = Vec::new();
        let entries = self.handle.devices().entries();
        // `zip` would leave threads running whose disks are taken to be closed.
        assert_eq!(
            entries.len(),
            self.threads.len(),
            "an event loop for each device"
        );
        let threads = entries.iter().zip(self.threads);
        for (index, (entry, thread)) in threads.enumerate() {
            let device = entry.name().to_owned();
            match thread.join() {
                Ok(Ok(remains)) => {
                    // An earlier error stays: it is what ended the daemon.
                    result = result.map(|all| all && remains.flushed);
                    transfers.push((index, remains.transfers));
                }
                Ok(Err(source)) => result = Err(RunError::Failed { device, source }),
                Err(_) => result = Err(RunError::Panicked(device)),
            }
        }
        (result, transfers)
    }
}

/// Returns the history of a daemon; `None` if the configuration turns it off.
pub(crate) fn history_of(handle: &DaemonHandle) -> Option<Arc<History>> {
    handle.shared().history.clone()
}

/// Returns the gate for changes of the control API.
pub(crate) fn change_gate_of(handle: &DaemonHandle) -> ChangeGate {
    handle.shared().gate.clone()
}
