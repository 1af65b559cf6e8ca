//! What clients are offered: exports come and go while the daemon runs.

use std::sync::{Arc, PoisonError, RwLock};

use tidegate_nbd::{Export, Exports};

use crate::config::ListenConfig;
use crate::connections::VmConnections;
use crate::event_loop::LoopHandle;

/// An export and the loop that serves it.
#[derive(Clone, Debug)]
pub struct Offer {
    /// As it is offered; `id` is the disk's serial number, by which its loop knows it.
    pub export: Export,
    /// The loop.
    pub handle: LoopHandle,
    /// Connections of the VM that owns the export, over all of its exports.
    pub connections: Arc<VmConnections>,
}

/// All exports there are, over all devices, oldest first. Looked into during handshakes, never
/// on a request's path.
#[derive(Debug, Default)]
pub struct Catalogue(RwLock<Vec<Offer>>);

impl Catalogue {
    /// Offers one more, or another size of one that is offered already.
    pub fn put(&self, offer: Offer) {
        self.change(|offers| {
            match (offers.iter_mut()).find(|old| old.export.name == offer.export.name) {
                Some(old) => *old = offer,
                None => offers.push(offer),
            }
        });
    }

    /// Offers an export no more. Who has it open keeps it: that is the loop's business.
    pub fn remove(&self, export: &str) {
        self.change(|offers| offers.retain(|offer| offer.export.name != export));
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

    /// The export that a client means by a name.
    pub fn find(&self, name: &str) -> Option<Offer> {
        let name = match (name, self.only.first()) {
            ("", Some(first)) => first,
            _ => name,
        };
        self.all.look(|all| {
            let offered = |offer: &&Offer| offer.export.name == name && self.has(name);
            all.iter().find(offered).cloned()
        })
    }

    fn has(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| only == name)
    }
}

impl Exports for Offers {
    fn lookup(&self, name: &str) -> Option<Export> {
        self.find(name).map(|offer| offer.export)
    }

    fn list(&self, f: &mut dyn FnMut(&str, &str)) {
        self.all.look(|all| {
            let offered = all.iter().filter(|offer| self.has(&offer.export.name));
            offered.for_each(|offer| f(&offer.export.name, &offer.export.description));
        });
    }
}
