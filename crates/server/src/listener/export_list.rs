//! Volumes that listeners offer to clients; volumes come and go while the daemon runs. Each
//! protocol has its own description of a volume, NBD the export.

use std::sync::{Arc, PoisonError, RwLock};

use tokio::sync::watch;

use crate::command::{Command, NewConnection};
use crate::config::ListenConfig;
use crate::connections::{ConnectionPermit, VmConnections};
use crate::event_loop::LoopHandle;
use crate::frontend::{Opening, Volume};

/// Volume that clients can open, with the event loop that serves it.
#[derive(Clone, Debug)]
pub struct ExportEntry {
    /// Volume; its serial number is that of the disk, by which the event loop finds it.
    pub volume: Volume,
    /// Name of the VM that owns the volume.
    pub vm: String,
    /// Event loop of the volume's device.
    pub handle: LoopHandle,
    /// Connections of the VM that owns the volume, over all of its volumes.
    pub connections: Arc<VmConnections>,
}

impl ExportEntry {
    /// Hands a client's connection over to the event loop, unless the loop has ended.
    pub(super) fn hand_over(self, opening: Opening, peer: String, permit: ConnectionPermit) {
        let Volume { serial, name, .. } = self.volume;
        let new = NewConnection {
            serial,
            disk: name.clone(),
            opening,
            peer,
            permit,
        };
        let sent = self.handle.send(Command::AddConnection(Box::new(new)));
        if sent.is_err() {
            tracing::debug!(export = %name, "its device has shut down");
        }
    }
}

/// Volumes of all devices, oldest first. Read during handshakes, never on the path of a request.
#[derive(Debug, Default)]
pub struct ExportCatalogue {
    entries: RwLock<Vec<ExportEntry>>,
    /// Notified of each change.
    changed: watch::Sender<()>,
    /// True if sessions of front-ends of vhost-user are confined.
    confines_sessions: bool,
}

impl ExportCatalogue {
    /// Makes a catalogue without volumes. `confines_sessions` is true if the sandbox has the
    /// sessions of vhost-user front-ends.
    pub fn new(confines_sessions: bool) -> ExportCatalogue {
        ExportCatalogue {
            confines_sessions,
            ..ExportCatalogue::default()
        }
    }

    /// Adds a volume, or replaces the one of the same name.
    pub fn put(&self, entry: ExportEntry) {
        self.change(|entries| {
            match (entries.iter_mut()).find(|old| old.volume.name == entry.volume.name) {
                // A resized disk is a new volume of the same name, and keeps its place in the list.
                Some(old) => *old = entry,
                None => entries.push(entry),
            }
        });
    }

    /// Removes a volume. Connections that have it open keep it until their event loop closes them.
    pub fn remove(&self, volume: &str) {
        self.change(|entries| entries.retain(|entry| entry.volume.name != volume));
    }

    fn change(&self, change: impl FnOnce(&mut Vec<ExportEntry>)) {
        // Each change leaves the list valid, even if a later one panicked.
        change(&mut self.entries.write().unwrap_or_else(PoisonError::into_inner));
        self.changed.send_replace(());
    }

    fn read<T>(&self, read: impl FnOnce(&[ExportEntry]) -> T) -> T {
        read(&self.entries.read().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Volumes that one listener offers.
#[derive(Clone, Debug)]
pub struct ExportList {
    all: Arc<ExportCatalogue>,
    /// Names of the offered volumes, the first of which is also offered under the empty name. If
    /// empty, all volumes are offered and the empty name has no meaning.
    only: Vec<String>,
}

impl ExportList {
    /// Creates the list of a listener out of `all` volumes.
    pub fn new(config: &ListenConfig, all: Arc<ExportCatalogue>) -> ExportList {
        ExportList {
            all,
            only: config.exports.clone(),
        }
    }

    /// Creates a list of all volumes.
    pub(crate) fn of_all(all: Arc<ExportCatalogue>) -> ExportList {
        let only = Vec::new();
        ExportList { all, only }
    }

    /// Returns the configured names that belong to no volume now.
    pub fn missing(&self) -> Vec<String> {
        let missing = |name: &&String| self.find(name).is_none();
        self.only.iter().filter(missing).cloned().collect()
    }

    /// Returns the offered volume that a client names.
    pub fn find(&self, name: &str) -> Option<ExportEntry> {
        let name = match (name, self.only.first()) {
            // The empty name asks for the default export (NBD protocol, NBD_OPT_GO).
            ("", Some(first)) => first,
            _ => name,
        };
        self.all.read(|all| {
            let offered = |entry: &&ExportEntry| entry.volume.name == name && self.has(name);
            all.iter().find(offered).cloned()
        })
    }

    /// Returns true if the sandbox has the sessions of vhost-user front-ends.
    pub(super) fn confines_sessions(&self) -> bool {
        self.all.confines_sessions
    }

    /// Returns a receiver that is notified of changes of the catalogue from now on.
    pub(super) fn subscribe(&self) -> watch::Receiver<()> {
        self.all.changed.subscribe()
    }

    /// Returns the VM and the name of each volume that is offered, oldest first.
    pub(super) fn names(&self) -> Vec<(String, String)> {
        self.all.read(|all| {
            let offered = all.iter().filter(|entry| self.has(&entry.volume.name));
            offered
                .map(|entry| (entry.vm.clone(), entry.volume.name.clone()))
                .collect()
        })
    }

    /// Calls `f` with the VM and each volume that is offered, oldest first.
    pub fn for_each(&self, mut f: impl FnMut(&str, &Volume)) {
        self.all.read(|all| {
            let offered = all.iter().filter(|entry| self.has(&entry.volume.name));
            offered.for_each(|entry| f(&entry.vm, &entry.volume));
        });
    }

    fn has(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| only == name)
    }
}
