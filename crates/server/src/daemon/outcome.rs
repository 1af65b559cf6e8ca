//! Decision between the end of the daemon and its hand-over to another one: whichever comes first
//! excludes the other, so that no disk is closed, and its lock released, that is another daemon's.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

/// Manner in which the daemon ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stopped {
    /// All requests were finished and all threads joined.
    InOrder,
    /// The end was cut short. Threads may still be blocked in the kernel, and dropping what they
    /// hold may block as well, so the caller has to end the process with [`std::process::exit`].
    AtOnce,
    /// Another daemon has taken over. The caller has to end the process as after
    /// [`Stopped::AtOnce`]: dropping the files of disks would release locks that the other holds.
    HandedOver,
    /// Another daemon has taken over, and ended before the service manager knew it. The caller has
    /// to end the process with a failure, so that the service manager starts a new one.
    SuccessorLost,
}

/// Decision, none as long as the daemon runs.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    decision: Mutex<Option<Decision>>,
    /// True once this process may end because the other daemon is supervised in its place, false if
    /// that daemon has ended before.
    succeeded: watch::Sender<Option<bool>>,
}

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

    /// Has the daemon end that was handed over. `is_supervised` is false if the other one has ended
    /// before the service manager knew it.
    pub(super) fn let_end(&self, is_supervised: bool) {
        self.succeeded.send_replace(Some(is_supervised));
    }

    /// Waits until the daemon that was handed over may end. Returns the manner.
    pub(super) async fn may_end(&self) -> Stopped {
        let mut succeeded = self.succeeded.subscribe();
        let ended = succeeded.wait_for(Option::is_some).await;
        match ended.as_deref() {
            Ok(Some(false)) => Stopped::SuccessorLost,
            _ => Stopped::HandedOver,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Decision>> {
        // Changed by single assignments.
        self.decision.lock().unwrap_or_else(PoisonError::into_inner)
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
    #[tokio::test]
    async fn a_daemon_that_was_handed_over_ends_by_the_fate_of_the_other_one() {
        for (is_supervised, stopped) in
            [(true, Stopped::HandedOver), (false, Stopped::SuccessorLost)]
        {
            let outcome = Outcome::default();
            let mut end = std::pin::pin!(outcome.may_end());
            tokio::select! {
                biased;
                _ = &mut end => panic!("the other one is not known yet"),
                () = std::future::ready(()) => {}
            }
            outcome.let_end(is_supervised);
            assert_eq!(end.await, stopped);
        }
    }
}
