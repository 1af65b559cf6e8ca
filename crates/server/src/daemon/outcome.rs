//! Decision between the end of the daemon and its hand-over to another one: whichever comes first
//! excludes the other, so that no disk is closed, and its lock released, that is another daemon's.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Decision, none as long as the daemon runs.
#[derive(Debug, Default)]
pub(super) struct Outcome(Mutex<Option<Decision>>);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Decision {
    Stops,
    HandedOver,
}

impl Outcome {
    /// Decides that the daemon stops. Returns false if everything is another daemon's already.
    pub(super) fn stop(&self) -> bool {
        *self.lock().get_or_insert(Decision::Stops) == Decision::Stops
    }

    /// Decides by `last_word` that everything is another daemon's; a stop waits for it. Returns
    /// `None`, and does not call it, if the daemon stops.
    pub(super) fn hand_over<E>(
        &self,
        last_word: impl FnOnce() -> Result<(), E>,
    ) -> Option<Result<(), E>> {
        let mut decision = self.lock();
        if decision.is_some() {
            return None;
        }
        let given = last_word();
        if given.is_ok() {
            *decision = Some(Decision::HandedOver);
        }
        Some(given)
    }

    fn lock(&self) -> MutexGuard<'_, Option<Decision>> {
        // Changed by single assignments.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_daemon_stops_or_is_handed_over_and_never_both() {
        let stopped = Outcome::default();
        assert!(stopped.stop() && stopped.stop());
        let given = stopped.hand_over(|| -> Result<(), ()> { panic!("it stops") });
        assert_eq!(given, None);

        let handed_over = Outcome::default();
        assert_eq!(handed_over.hand_over(|| Err("lost")), Some(Err("lost")));
        assert_eq!(handed_over.hand_over(|| Ok::<(), ()>(())), Some(Ok(())));
        assert!(!handed_over.stop());
    }
}
