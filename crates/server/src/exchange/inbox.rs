//! Last state of each other host, from the exchange's thread to a loop.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use tidegate_core::engine::Engine;
use tidegate_core::roles::HostWeight;
use tidegate_core::time::Nanos;
use tidegate_exchange::{ArrayExchange, Update};

/// Places for the last state of each host. A later state replaces one that was not taken, so that
/// a loop that sleeps for hours has the present ones when it wakes.
#[derive(Debug)]
pub(super) struct Inbox {
    /// Something has changed since the loop looked last.
    has_new: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    peers: Vec<Place>,
    host_weight: HostWeight,
    is_weight_new: bool,
}

#[derive(Clone, Copy, Debug)]
struct Place {
    update: Update,
    is_new: bool,
}

impl Inbox {
    /// Creates an inbox with the first state of all hosts.
    pub(super) fn new(rules: &ArrayExchange) -> Inbox {
        let numbers = 0..rules.peers().len() as u32;
        let place = |number| Place {
            update: rules.update(number),
            is_new: true,
        };
        Inbox {
            has_new: AtomicBool::new(true),
            state: Mutex::new(State {
                peers: numbers.map(place).collect(),
                host_weight: rules.host_weight(),
                is_weight_new: true,
            }),
        }
    }

    /// Puts the states of these hosts, and the rule for this host's weight.
    pub(super) fn put(&self, rules: &ArrayExchange, changed: &[u32]) {
        let mut state = self.lock();
        for &number in changed {
            state.peers[number as usize] = Place {
                update: rules.update(number),
                is_new: true,
            };
        }
        let weight = rules.host_weight();
        if state.host_weight != weight {
            state.host_weight = weight;
            state.is_weight_new = true;
        }
        self.has_new.store(true, Ordering::Release);
    }

    /// Marks every state as new, for an engine that has lost them with its policy.
    pub(super) fn repeat(&self) {
        let mut state = self.lock();
        state.peers.iter_mut().for_each(|place| place.is_new = true);
        state.is_weight_new = true;
        self.has_new.store(true, Ordering::Release);
    }

    /// Hands new states to an engine, unless the thread is putting some at this moment. Returns how
    /// many there were.
    pub(super) fn deliver(&self, engine: &mut Engine, now: Nanos) -> usize {
        if !self.has_new.load(Ordering::Relaxed) {
            return 0;
        }
        let mut state = match self.state.try_lock() {
            Ok(state) => state,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            // The next turn takes them.
            Err(TryLockError::WouldBlock) => return 0,
        };
        let mut delivered = 0;
        self.has_new.store(false, Ordering::Relaxed);
        if std::mem::take(&mut state.is_weight_new) {
            engine.device_mut().set_host_weight(now, state.host_weight);
            delivered += 1;
        }
        for (number, place) in (0..).zip(&mut state.peers) {
            if !std::mem::take(&mut place.is_new) {
                continue;
            }
            delivered += 1;
            match &place.update {
                Update::Share(share) => engine.handle_peer(now, number, share),
                Update::Silent(weight) => engine.device_mut().assume_peer(now, number, *weight),
            }
        }
        delivered
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
