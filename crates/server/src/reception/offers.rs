//! Volumes that clients are offered; they come and go while the daemon runs. A protocol turns them
//! into its own description of a disk, NBD into exports.

use std::sync::{Arc, PoisonError, RwLock};

use crate::command::{Adopted, Command};
use crate::config::ListenConfig;
use crate::connections::{ConnectionPermit, VmConnections};
use crate::event_loop::LoopHandle;
use crate::frontend::{Opening, Volume};

/// A volume and the loop that serves it.
#[derive(Clone, Debug)]
pub struct Offer {
    /// The volume; its serial number is that of the disk, by which its loop knows it.
    pub volume: Volume,
    /// The loop.
    pub handle: LoopHandle,
    /// Connections of the VM that owns the volume, over all of its volumes.
    pub connections: Arc<VmConnections>,
}

impl Offer {
    /// Hands a connection of a client over to the loop, unless the loop has ended.
    pub(super) fn adopt(self, opening: Opening, peer: String, permit: ConnectionPermit) {
        let Volume { serial, name, .. } = self.volume;
        let adopted = Adopted {
            serial,
            disk: name.clone(),
            opening,
            peer,
            permit,
        };
        let sent = self.handle.send(Command::Adopt(Box::new(adopted)));
        if sent.is_err() {
            tracing::debug!(export = %name, "its device has shut down");
        }
    }
}

/// All volumes there are, over all devices, oldest first. Looked into during handshakes, never
/// on a request's path.
#[derive(Debug, Default)]
pub struct Catalogue(RwLock<Vec<Offer>>);

impl Catalogue {
    /// Offers one more, or another size of one that is offered already.
    pub fn put(&self, offer: Offer) {
        self.change(|offers| {
            match (offers.iter_mut()).find(|old| old.volume.name == offer.volume.name) {
                Some(old) => *old = offer,
                None => offers.push(offer),
            }
        });
    }

    /// Offers a volume no more. Who has it open keeps it: that is the loop's business.
    pub fn remove(&self, volume: &str) {
        self.change(|offers| offers.retain(|offer| offer.volume.name != volume));
    }

    fn change(&self, change: impl FnOnce(&mut Vec<Offer>)) {
        // Each change is whole, whoever panicked.
        change(&mut self.0.write().unwrap_or_else(PoisonError::into_inner));
    }

    fn look<T>(&self, look: impl FnOnce(&[Offer]) -> T) -> T {
        look(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }
}

/// What one listener offers.
#[derive(Clone, Debug)]
pub struct Offers {
    all: Arc<Catalogue>,
    /// Only these, the first one under the empty name too. Empty: all, and none of them so.
    only: Vec<String>,
}

impl Offers {
    /// What a listener is configured to offer of `all`.
    pub fn new(config: &ListenConfig, all: Arc<Catalogue>) -> Offers {
        Offers {
            all,
            only: config.exports.clone(),
        }
    }

    /// Those of the configuration that there are not now.
    pub fn missing(&self) -> Vec<String> {
        let missing = |name: &&String| self.find(name).is_none();
        self.only.iter().filter(missing).cloned().collect()
    }

    /// The volume that a client means by a name.
    pub fn find(&self, name: &str) -> Option<Offer> {
        let name = match (name, self.only.first()) {
            ("", Some(first)) => first,
            _ => name,
        };
        self.all.look(|all| {
            let offered = |offer: &&Offer| offer.volume.name == name && self.has(name);
            all.iter().find(offered).cloned()
        })
    }

    /// Calls `f` with each volume that is offered, oldest first.
    pub fn for_each(&self, f: impl FnMut(&Volume)) {
        self.all.look(|all| {
            let volumes = all.iter().map(|offer| &offer.volume);
            volumes.filter(|volume| self.has(&volume.name)).for_each(f);
        });
    }

    fn has(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| only == name)
    }
}
