//! Starting, running and ending the daemon.
//!
//! ```text
//!   start: open all disks, bind all sockets, start all loops; or nothing of it
//!   run:   accept clients --signal--> drain: stop reading, finish, flush, answer --> end
//!                                       |
//!                                       +--second signal--> end at once
//! ```

use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use tidegate_core::objective::Objective;
use tidegate_core::policy::PolicySpec;
use tidegate_core::time::Nanos;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::task::JoinSet;

use crate::command::{
    Command, CommandError, DeviceSnapshot, DiskSnapshot, FaultChange, VmSnapshot,
};
use crate::config::{Config, ListenConfig, Place, StoreConfig};
use crate::event_loop::{Files, LoopHandle, Prepared, SetupError};
use crate::keeper::Keeper;
use crate::reception::{BindError, Bound, Offer, Offers, receive};
use crate::ring::sys;
use crate::store::{Store, StoreError};

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
    /// The store.
    #[error("store {source}")]
    Store {
        /// Where the configuration names it.
        place: Option<Box<Place>>,
        /// Why.
        source: StoreError,
    },
    /// A listener offers what is not there.
    #[error("listener {listener}: no export named {export:?}")]
    UnknownExport {
        /// The listener.
        listener: String,
        /// What it was to offer.
        export: String,
    },
}

impl StartError {
    /// What of the configuration could not be had; `None` where it is not about that, or did not
    /// come from a text.
    pub fn place(&self) -> Option<&Place> {
        match self {
            StartError::Setup(error) => error.place(),
            StartError::Bind { place, .. } | StartError::Store { place, .. } => place.as_deref(),
            StartError::UnknownExport { .. } => None,
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
    /// Signals cannot be received.
    #[error("cannot handle signals: {0}")]
    Signals(io::Error),
}

/// A daemon whose loops run and whose sockets are bound; clients are accepted by
/// [`Daemon::run`].
#[derive(Debug)]
pub struct Daemon {
    handle: DaemonHandle,
    listeners: Vec<(Arc<Bound>, Offers)>,
    threads: Vec<JoinHandle<io::Result<bool>>>,
    ended: mpsc::UnboundedReceiver<usize>,
}

/// Loops of a daemon that is starting; should it fail to, they end.
#[derive(Default)]
struct Loops {
    devices: Vec<DeviceEntry>,
    threads: Vec<JoinHandle<io::Result<bool>>>,
}

impl Drop for Loops {
    fn drop(&mut self) {
        for (entry, thread) in self.devices.iter().zip(self.threads.drain(..)) {
            let _ = entry.handle.send(Command::Abort);
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
    /// Opens everything that the configuration names and starts the loops.
    ///
    /// # Errors
    /// Names the VM, export, path or address that stood in the way.
    pub fn start(config: Config) -> Result<Daemon, StartError> {
        sys::survive_file_size_limits();
        let store = open_store(&config)?;
        let mut files = Files::default();
        let mut prepared = (0..config.devices.len())
            .map(|i| Prepared::open(&config, i, &mut files))
            .collect::<Result<Vec<_>, _>>()?;
        if let Some(store) = &store {
            prepared
                .iter_mut()
                .for_each(|device| device.import_learnt(store));
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
        let mut offers = Vec::new();
        for (i, prepared) in prepared.into_iter().enumerate() {
            let exports = prepared.exports();
            let vms = prepared.vm_names();
            let (handle, thread) = prepared.spawn(Ended(i, sender.clone()))?;
            offers.extend(exports.into_iter().map(|export| Offer {
                export,
                handle: handle.clone(),
            }));
            let name = config.devices[i].name.clone();
            loops.devices.push(DeviceEntry { name, vms, handle });
            loops.threads.push(thread);
        }
        let listeners = bound
            .into_iter()
            .map(|(bound, listen)| offer(bound, listen, &offers))
            .collect::<Result<_, _>>()?;
        let devices = std::mem::take(&mut loops.devices);
        let threads = std::mem::take(&mut loops.threads);
        let shared = Arc::new(Shared {
            devices,
            store,
            learnt_every: (config.store.as_ref()).map_or(Nanos::MAX, |store| store.learnt_every),
            stop: Notify::new(),
        });
        Ok(Daemon {
            handle: DaemonHandle { shared },
            listeners,
            threads,
            ended,
        })
    }

    /// The way to control it.
    pub fn handle(&self) -> DaemonHandle {
        self.handle.clone()
    }

    /// The addresses clients connect to, in the order of the configuration.
    pub fn listeners(&self) -> impl Iterator<Item = &Bound> {
        self.listeners.iter().map(|(bound, _)| &**bound)
    }

    /// Serves until SIGTERM, SIGINT or [`DaemonHandle::shut_down`], then ends in order. Runs on
    /// the caller's runtime.
    ///
    /// # Errors
    /// When a loop ended by itself.
    pub async fn run(mut self) -> Result<(), RunError> {
        let mut signals = Signals::new().map_err(RunError::Signals)?;
        let mut reception = JoinSet::new();
        for (bound, offers) in &self.listeners {
            tracing::info!("listening on {}", bound.name());
            reception.spawn(receive(bound.clone(), offers.clone()));
        }
        let mut left = self.threads.len();
        let mut keeper = Keeper::new(&self.handle);
        loop {
            tokio::select! {
                name = signals.next() => tracing::info!("{name}: finishing what is in flight"),
                () = self.handle.shared.stop.notified() => {
                    tracing::info!("told to shut down: finishing what is in flight");
                }
                index = self.ended.recv() => {
                    left -= 1;
                    let device = index.map_or("?", |i| &self.handle.devices()[i].name);
                    tracing::error!(%device, "its event loop ended: shutting down");
                }
                () = keeper.due() => {
                    keeper.keep();
                    continue;
                }
            }
            break;
        }
        reception.shutdown().await;
        // Draining takes the policy's place, and what that has learnt goes with it.
        let learnt = keeper.last().await;
        self.tell_all(|| Command::Drain);
        while left > 0 {
            tokio::select! {
                _ = self.ended.recv() => left -= 1,
                name = signals.next() => {
                    tracing::warn!("{name} again: ending at once; what is not finished stays unanswered");
                    self.tell_all(|| Command::Abort);
                }
            }
        }
        keeper.finish(learnt).await;
        self.join()
    }

    fn tell_all(&self, command: impl Fn() -> Command) {
        for entry in self.handle.devices() {
            // A loop that has ended needs no telling.
            let _ = entry.handle.send(command());
        }
    }

    /// Collects the threads, all of which have ended.
    fn join(self) -> Result<(), RunError> {
        let mut result = Ok(());
        let mut flushed = true;
        for (entry, thread) in self.handle.devices().iter().zip(self.threads) {
            let device = entry.name.clone();
            match thread.join() {
                Ok(Ok(all)) => flushed &= all,
                Ok(Err(source)) => result = Err(RunError::Failed { device, source }),
                Err(_) => result = Err(RunError::Panicked(device)),
            }
        }
        match &result {
            Ok(()) if flushed => {
                tracing::info!("stopped: every request was finished, every disk flushed");
            }
            Ok(()) => tracing::warn!("stopped: not everything was finished and flushed"),
            Err(_) => {}
        }
        result
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

fn offer(
    bound: Arc<Bound>,
    listen: &ListenConfig,
    all: &[Offer],
) -> Result<(Arc<Bound>, Offers), StartError> {
    match Offers::new(listen, all) {
        Ok(offers) => Ok((bound, offers)),
        Err(export) => Err(StartError::UnknownExport {
            listener: bound.name().to_owned(),
            export,
        }),
    }
}

/// The signals that end the daemon.
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

/// What there is to control, cloneable: the control API's view of the running daemon.
#[derive(Clone, Debug)]
pub struct DaemonHandle {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    devices: Vec<DeviceEntry>,
    store: Option<Arc<Store>>,
    learnt_every: Nanos,
    stop: Notify,
}

/// A device's fixed facts and the way to its loop.
#[derive(Debug)]
pub struct DeviceEntry {
    /// Its name in the configuration.
    pub name: String,
    /// Its VMs in the order of the configuration.
    pub vms: Vec<String>,
    handle: LoopHandle,
}

/// Why a control request came to nothing. Nothing has changed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ControlError {
    /// No device of that name or number.
    #[error("no device {0}")]
    UnknownDevice(String),
    /// No VM of that name on any device.
    #[error("no VM named {0:?}")]
    UnknownVm(String),
    /// The device's event loop has ended.
    #[error("device {0:?} has shut down")]
    Gone(String),
    /// The loop refused.
    #[error(transparent)]
    Refused(#[from] CommandError),
}

impl DaemonHandle {
    /// The devices in the order of the configuration.
    pub fn devices(&self) -> &[DeviceEntry] {
        &self.shared.devices
    }

    /// What keeps changes that shall survive a restart; `None` where the configuration names no
    /// store. Its calls may wait for the disk: make them where a thread may block.
    pub fn store(&self) -> Option<&Arc<Store>> {
        self.shared.store.as_ref()
    }

    /// How often what controllers have learnt is kept.
    pub(crate) fn learnt_every(&self) -> Duration {
        Duration::from_nanos(self.shared.learnt_every.0)
    }

    /// The index of the device that a VM lives on.
    pub fn device_of(&self, vm: &str) -> Option<usize> {
        self.devices()
            .iter()
            .position(|d| d.vms.iter().any(|v| v == vm))
    }

    /// Sends a command to the loop of a device.
    ///
    /// # Errors
    /// When there is no such device or its loop has ended.
    pub fn send(&self, device: usize, command: Command) -> Result<(), ControlError> {
        let entry = self
            .devices()
            .get(device)
            .ok_or_else(|| ControlError::UnknownDevice(device.to_string()))?;
        entry
            .handle
            .send(command)
            .map_err(|_| ControlError::Gone(entry.name.clone()))
    }

    /// A device as it stands.
    ///
    /// # Errors
    /// When there is no such device or its loop has ended.
    pub async fn snapshot(&self, device: usize) -> Result<DeviceSnapshot, ControlError> {
        self.ask(device, |reply| Command::Snapshot { reply }).await
    }

    /// Replaces a VM's objective; answers with what is in force.
    ///
    /// # Errors
    /// When there is no such VM, the engine refuses the objective, or the loop has ended.
    pub async fn set_objective(
        &self,
        vm: &str,
        objective: Objective,
    ) -> Result<VmSnapshot, ControlError> {
        let device = self
            .device_of(vm)
            .ok_or_else(|| ControlError::UnknownVm(vm.to_string()))?;
        let vm = vm.to_string();
        let objective = Box::new(objective);
        let answer = self
            .ask(device, |reply| Command::SetObjective {
                vm,
                objective,
                reply,
            })
            .await?;
        Ok(answer?)
    }

    /// Replaces a device's policy; answers with what is in force.
    ///
    /// # Errors
    /// When there is no such device, the engine refuses the policy, or the loop has ended.
    pub async fn set_policy(
        &self,
        device: usize,
        policy: PolicySpec,
    ) -> Result<DeviceSnapshot, ControlError> {
        let answer = self
            .ask(device, |reply| Command::SetPolicy { policy, reply })
            .await?;
        Ok(answer?)
    }

    /// Changes what goes wrong on purpose with a disk of a device; answers with what is in force.
    ///
    /// # Errors
    /// When there is no such device, export or rule, the rule is refused, or the loop has ended.
    pub async fn change_faults(
        &self,
        device: usize,
        export: &str,
        change: FaultChange,
    ) -> Result<DiskSnapshot, ControlError> {
        let export = export.to_owned();
        let answer = self
            .ask(device, |reply| Command::ChangeFaults {
                export,
                change,
                reply,
            })
            .await?;
        Ok(answer?)
    }

    /// Begins an orderly end, as SIGTERM does. [`Daemon::run`] returns when it is done.
    pub fn shut_down(&self) {
        self.shared.stop.notify_one();
    }

    /// Sends a command and waits for the answer to it.
    pub(crate) async fn ask<T>(
        &self,
        device: usize,
        command: impl FnOnce(oneshot::Sender<T>) -> Command,
    ) -> Result<T, ControlError> {
        let (reply, answer) = oneshot::channel();
        self.send(device, command(reply))?;
        answer
            .await
            .map_err(|_| ControlError::Gone(self.devices()[device].name.clone()))
    }
}
