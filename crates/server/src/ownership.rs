//! Ownership of locks and socket files that two daemons have while one takes over from the other.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// True while locks of files, and files of sockets, are this daemon's: closing them then releases
/// and removes them. Clones are one ownership.
#[derive(Clone, Debug)]
pub struct Ownership(Arc<AtomicBool>);

impl Default for Ownership {
    /// Returns the ownership of what this daemon has made itself.
    fn default() -> Ownership {
        Ownership(Arc::new(AtomicBool::new(true)))
    }
}

impl Ownership {
    /// Returns the ownership of what is another daemon's still.
    pub(crate) fn pending() -> Ownership {
        Ownership(Arc::new(AtomicBool::new(false)))
    }

    /// Notes that everything is this daemon's.
    pub(crate) fn take(&self) {
        self.0.store(true, Ordering::Release);
    }

    /// Notes that everything is another daemon's.
    pub(crate) fn give_up(&self) {
        self.0.store(false, Ordering::Release);
    }

    /// Returns true if everything is this daemon's.
    pub(crate) fn is_own(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}
