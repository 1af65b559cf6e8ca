//! End of the exchange that a loop holds.

use std::sync::Arc;
use std::sync::mpsc::SyncSender;

use tidegate_core::engine::Engine;
use tidegate_core::time::Nanos;

use super::Input;
use super::inbox::Inbox;
use super::snapshot::{ExchangeSnapshot, Published};

/// End of the exchange that the loop of an array holds.
pub(crate) struct ExchangeLink {
    /// Index of the array.
    array: usize,
    inputs: SyncSender<Input>,
    inbox: Arc<Inbox>,
    published: Arc<Published>,
}

impl ExchangeLink {
    pub(super) fn new(
        array: usize,
        inputs: SyncSender<Input>,
        inbox: Arc<Inbox>,
        published: Arc<Published>,
    ) -> ExchangeLink {
        ExchangeLink {
            array,
            inputs,
            inbox,
            published,
        }
    }

    /// Hands the engine what other hosts have reported, and passes on its own report. Waits for
    /// nothing.
    pub(crate) fn exchange(&self, engine: &mut Engine, now: Nanos) {
        self.deliver(engine, now);
        self.report(engine);
    }

    /// Hands the engine what other hosts have reported. To be called before the engine's timers,
    /// which compute shares of it.
    pub(crate) fn deliver(&self, engine: &mut Engine, now: Nanos) {
        self.inbox.deliver(engine, now);
    }

    /// Passes on the engine's report.
    pub(crate) fn report(&self, engine: &mut Engine) {
        while let Some(share) = engine.poll_share() {
            // A full channel, or a thread that has ended: the next report says more.
            let _ = self.inputs.try_send(Input::Share(self.array, share));
        }
    }

    /// Hands the states of all hosts to an engine whose policy was built anew: it knows none of
    /// them, and silent hosts send nothing.
    pub(crate) fn repeat(&self, engine: &mut Engine, now: Nanos) {
        self.inbox.repeat();
        self.exchange(engine, now);
    }

    /// Returns the state of the exchange.
    pub(crate) fn snapshot(&self) -> ExchangeSnapshot {
        self.published.get()
    }
}

impl std::fmt::Debug for ExchangeLink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ExchangeLink")
            .field("array", &self.array)
            .finish_non_exhaustive()
    }
}
