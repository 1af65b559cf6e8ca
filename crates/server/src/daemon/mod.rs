//! Starting, running and ending the daemon.
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

use jiff::Timestamp;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinSet;

use crate::backing::memory;
use crate::command::Command;
use crate::config::{Config, DaemonConfig, Place, StoreConfig};
use crate::event_loop::{Files, Prepared, Remains, SetupError};
use crate::log_limit;
use crate::media;
use crate::reception::{BindError, Bound, Catalogue, Offers, receive};
use crate::ring::sys;
use crate::store::{Store, StoreError};

mod changes;
mod devices;
mod directory;
mod disks;
mod handle;
mod learnt;
mod persistence;
mod resize;
mod restore;
mod shared;
mod snapshots;
mod transfers;

pub use crate::command::ControlError;
pub use devices::{DeviceEntry, DeviceTable};
pub use directory::VmDirectory;
pub use handle::DaemonHandle;
use snapshots::Snapshots;
use transfers::DeviceJobs;

/// Why the daemon did not start. Nothing was left behind.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A device, its disks or its loop.
    #[error(transparent)]
    Setup(#[from] SetupError),
    /// A listener.
    #[error("listener {source}")]
    Bind {
        /// Where the configuration names it.
        place: Option<Box<Place>>,
        /// Why.
        source: BindError,
    },
    /// Signals cannot be received.
    #[error("cannot handle signals: {0}")]
    Signals(io::Error),
    /// The store.
    #[error("store {source}")]
    Store {
        /// Where the configuration names it.
        place: Option<Box<Place>>,
        /// Why.
        source: StoreError,
    },
}

impl StartError {
    /// What of the configuration could not be had; `None` where it is not about that, or did not
    /// come from a text.
    pub fn place(&self) -> Option<&Place> {
        match self {
            StartError::Setup(error) => error.place(),
            StartError::Bind { place, .. } | StartError::Store { place, .. } => place.as_deref(),
            StartError::Signals(_) => None,
        }
    }
}

/// Why the daemon ended before it was told to.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// An event loop panicked: a bug. Its clients were cut off.
    #[error("the event loop of device {0:?} panicked")]
    Panicked(String),
    /// An event loop could not go on.
    #[error("the event loop of device {device:?} failed: {source}")]
    Failed {
        /// The device.
        device: String,
        /// How.
        source: io::Error,
    },
}

/// A daemon whose loops run and whose sockets are bound; clients are accepted by
/// [`Daemon::run`].
#[derive(Debug)]
pub struct Daemon {
    handle: DaemonHandle,
    listeners: Vec<(Arc<Bound>, Offers)>,
    threads: Vec<JoinHandle<io::Result<Remains>>>,
    ended: mpsc::UnboundedReceiver<usize>,
    signals: Signals,
}

/// Loops of a daemon that is starting; should it fail to, they end.
#[derive(Default)]
struct Loops {
    devices: Vec<DeviceEntry>,
    threads: Vec<JoinHandle<io::Result<Remains>>>,
}

impl Drop for Loops {
    fn drop(&mut self) {
        for (entry, thread) in self.devices.iter().zip(self.threads.drain(..)) {
            let _ = entry.send(Command::Abort);
            let _ = thread.join();
        }
    }
}

/// Tells that a loop has ended, however it did.
struct Ended(usize, mpsc::UnboundedSender<usize>);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.1.send(self.0);
    }
}

impl Daemon {
    /// Opens everything that the configuration names and starts the loops. Within a runtime, for
    /// from the beginning on SIGTERM and SIGINT wait for [`Daemon::run`].
    ///
    /// # Errors
    /// Names the VM, export, path or address that stood in the way.
    pub fn start(mut config: Config) -> Result<Daemon, StartError> {
        // From here on there is something to end in order, even before it is served.
        let signals = Signals::new().map_err(StartError::Signals)?;
        sys::survive_file_size_limits();
        let store = open_store(&config)?;
        if let Some(store) = &store {
            persistence::overlay(store, &mut config.vms);
        }
        let now = Timestamp::now();
        config.vms.iter_mut().for_each(|vm| vm.put_in_force(now));
        if let Some(what) = memory::beyond_host(config.disks()) {
            tracing::warn!("{what}");
        }
        let files = Files::default();
        if let Some(store) = &store {
            persistence::know_disks(store, &files);
        }
        let prepared = (0..config.devices.len())
            .map(|i| Prepared::open(&config, i, &files))
            .collect::<Result<Vec<_>, _>>()?;
        if let Some(store) = &store {
            persistence::note_disks(store, &files, &config.vms);
        }
        let mut bound = Vec::new();
        for listen in &config.listeners {
            let socket = Bound::new(&listen.address).map_err(|source| StartError::Bind {
                place: listen.place.clone().map(Box::new),
                source,
            })?;
            bound.push((Arc::new(socket), listen));
        }
        let (sender, ended) = mpsc::unbounded_channel();
        let mut loops = Loops::default();
        let (catalogue, news) = (Arc::new(Catalogue::default()), Arc::new(Notify::new()));
        for (i, prepared) in prepared.into_iter().enumerate() {
            let volumes = prepared.volumes();
            let (handle, thread) = prepared.spawn(Ended(i, sender.clone()), news.clone())?;
            let config = config.devices[i].clone();
            let entry = DeviceEntry::new(config, handle);
            for (volume, connections) in volumes {
                catalogue.put(entry.offer(volume, connections));
            }
            loops.devices.push(entry);
            loops.threads.push(thread);
        }
        let offers = |(bound, listen)| (bound, Offers::new(listen, catalogue.clone()));
        let listeners = bound.into_iter().map(offers).collect();
        let devices = std::mem::take(&mut loops.devices);
        let threads = std::mem::take(&mut loops.threads);
        Ok(Daemon {
            handle: DaemonHandle::new(devices, config, files, catalogue, store, news),
            listeners,
            threads,
            ended,
            signals,
        })
    }

    /// The way to control it.
    pub fn handle(&self) -> DaemonHandle {
        self.handle.clone()
    }

    /// Serves the VMs that are in the store, beside those of the configuration, has the policies go
    /// on with what they had learnt, and the VMs with their deadline transfers. A VM that cannot be
    /// served keeps no other from being: that is logged, and a problem of `/healthz`. To be called
    /// before anybody is served.
    pub async fn restore(&self) {
        self.handle.restore().await;
    }

    /// The addresses clients connect to, in the order of the configuration.
    pub fn listeners(&self) -> impl Iterator<Item = &Bound> {
        self.listeners.iter().map(|(bound, _)| &**bound)
    }

    /// Serves until SIGTERM, SIGINT or [`DaemonHandle::shut_down`], then ends in order. Signals are
    /// caught from [`Daemon::start`] on. Runs on the caller's runtime.
    ///
    /// A second signal, or [`stop_within`](crate::config::DaemonConfig::stop_within) after the
    /// first, cuts the end short.
    ///
    /// # Errors
    /// If an event loop ended by itself.
    pub async fn run(mut self) -> Result<Stopped, RunError> {
        let mut reception = JoinSet::new();
        for (bound, offers) in &self.listeners {
            tracing::info!("listening on {}", bound.name());
            for export in offers.missing() {
                tracing::warn!(listener = %bound.name(), %export, "no disk is exported so yet");
            }
            let half_open = self.handle.half_open().clone();
            reception.spawn(receive(bound.clone(), offers.clone(), half_open));
        }
        reception.spawn(log_limit::report_left_out());
        let mut snapshots = Snapshots::new(self.handle.shared());
        let gone = Gone::default();
        let mut watching = JoinSet::new();
        let files = self.handle.files();
        watching.spawn(media::watch(move || files.watched()));
        loop {
            tokio::select! {
                name = self.signals.next() => tracing::info!("{name}: finishing what is in flight"),
                () = self.handle.stopped() => {
                    tracing::info!("told to shut down: finishing what is in flight");
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
            break;
        }
        let Daemon {
            handle,
            listeners,
            threads,
            ended,
            mut signals,
        } = self;
        let limits = handle.config();
        let ending = Ending {
            handle: handle.clone(),
            threads,
            ended,
            gone: gone.clone(),
        };
        let mut ending = pin!(ending.in_order(reception, snapshots));
        let cut_short = tokio::select! {
            ended = &mut ending => return ended.map(|()| Stopped::InOrder),
            name = signals.next() => format!("{name} again"),
            () = tokio::time::sleep(limits.stop_within) => late(&limits),
        };
        tracing::warn!("{cut_short}: ending at once; what is not finished stays unanswered");
        handle.devices().send_all(|| Command::Abort);
        let ended = tokio::time::timeout(ABORTED_WITHIN, ending).await;
        // Closing the listeners keeps clients from connecting while the process waits for the
        // kernel.
        drop(listeners);
        match ended {
            Ok(ended) => ended?,
            Err(_) => tell_stuck(&handle, &gone),
        }
        Ok(Stopped::AtOnce)
    }
}

/// Way in which the daemon ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stopped {
    /// All requests were finished and all threads joined.
    InOrder,
    /// The end was cut short. Threads may still be blocked in the kernel, and dropping what they
    /// hold may block as well, so the caller has to end the process with [`std::process::exit`].
    AtOnce,
}

/// Indices of the devices whose event loops have ended.
#[derive(Clone, Default)]
struct Gone(Arc<Mutex<BTreeSet<usize>>>);

impl Gone {
    fn all(&self) -> MutexGuard<'_, BTreeSet<usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, index: Option<usize>) {
        self.all().extend(index);
    }
}

/// Waits for a second SIGTERM or SIGINT, or for the deadline of an orderly end after the first;
/// returns which of them happened, in words. Used while the daemon is still starting.
///
/// # Errors
/// If the signal handlers cannot be installed.
pub async fn end_at_once(config: &DaemonConfig) -> io::Result<String> {
    let mut signals = Signals::new()?;
    signals.next().await;
    Ok(tokio::select! {
        name = signals.next() => format!("{name} again"),
        () = tokio::time::sleep(config.stop_within) => late(config),
    })
}

/// Reason for which an orderly end is cut short, with the key that says when.
fn late(config: &DaemonConfig) -> String {
    let (seconds, key) = (config.stop_within.as_secs_f64(), config.stop_key);
    format!("not done in {seconds} s ({key})")
}

/// Time that event loops get to end after [`Command::Abort`]; the process has to end within a
/// second of the signal.
const ABORTED_WITHIN: Duration = Duration::from_millis(500);

/// Logs which event loops did not end, and why.
fn tell_stuck(handle: &DaemonHandle, gone: &Gone) {
    let gone = gone.all();
    let devices = handle.devices().entries().iter().enumerate();
    for (_, entry) in devices.filter(|(index, _)| !gone.contains(index)) {
        let device = entry.name();
        tracing::warn!(
            %device,
            "its event loop does not answer: the kernel holds a call on one of its disks"
        );
    }
    tracing::warn!(
        "stopped: not everything was finished and flushed, and something did not end; the process \
         goes once the kernel gives back what it holds"
    );
}

/// Parts of the daemon that an orderly end still has to finish.
struct Ending {
    handle: DaemonHandle,
    threads: Vec<JoinHandle<io::Result<Remains>>>,
    ended: mpsc::UnboundedReceiver<usize>,
    gone: Gone,
}

impl Ending {
    /// Finishes the requests in flight, flushes the disks and persists learnt state. May be dropped
    /// while it waits.
    async fn in_order(
        mut self,
        mut reception: JoinSet<()>,
        snapshots: Snapshots,
    ) -> Result<(), RunError> {
        reception.shutdown().await;
        // Draining takes the policy's place, and what that has learnt goes with it.
        let learnt = snapshots.last().await;
        self.handle.devices().send_all(|| Command::Drain);
        while self.gone.all().len() < self.threads.len() {
            let index = self.ended.recv().await;
            self.gone.add(index);
        }
        let (ended, jobs) = self.join();
        snapshots.finish(learnt, jobs).await;
        log_limit::report_the_rest();
        match &ended {
            Ok(true) => tracing::info!("stopped: every request was finished, every disk flushed"),
            Ok(false) => tracing::warn!("stopped: not everything was finished and flushed"),
            Err(_) => {}
        }
        ended.map(drop)
    }

    /// Collects the threads, all of which have ended: whether everything was finished and flushed,
    /// and the jobs that ran, by the number of the device.
    fn join(self) -> (Result<bool, RunError>, Vec<DeviceJobs>) {
        let mut result = Ok(true);
        let mut jobs = Vec::new();
        let threads = self.handle.devices().entries().iter().zip(self.threads);
        for (index, (entry, thread)) in threads.enumerate() {
            let device = entry.name().to_owned();
            match thread.join() {
                Ok(Ok(remains)) => {
                    result = result.map(|all| all && remains.flushed);
                    jobs.push((index, remains.jobs));
                }
                Ok(Err(source)) => result = Err(RunError::Failed { device, source }),
                Err(_) => result = Err(RunError::Panicked(device)),
            }
        }
        (result, jobs)
    }
}

fn open_store(config: &Config) -> Result<Option<Arc<Store>>, StartError> {
    let open = |store: &StoreConfig| match Store::open(&store.path) {
        Ok(opened) => Ok(Arc::new(opened)),
        Err(source) => Err(StartError::Store {
            place: store.place.clone().map(Box::new),
            source,
        }),
    };
    config.store.as_ref().map(open).transpose()
}

/// The signals that end the daemon.
#[derive(Debug)]
struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn new() -> io::Result<Signals> {
        Ok(Signals {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }
}
