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
    /// Another daemon has taken over the service whose main process this one was. The caller has to
    /// end the process as after [`Stopped::HandedOver`], and with a failure: a service manager that
    /// knows the other daemon as the main process ignores the status, and one that does not starts
    /// the service again.
    ServiceHandedOver,
}

/// Decision, none as long as the daemon runs.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    decision: Mutex<Option<Decision>>,
    handed_over: watch::Sender<HandedOver>,
}

/// Progress of a daemon that was handed over.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum HandedOver {
    /// The daemon was not handed over.
    #[default]
    No,
    /// The daemon serves no client any more.
    Yes,
    /// The process may end, in this manner.
    MayEnd(Stopped),
}

/// End of a daemon that was handed over, which may come when this is dropped at the latest.
#[derive(Debug)]
pub(super) struct Ending<'a> {
    outcome: &'a Outcome,
    stopped: Stopped,
}

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        let may_end = HandedOver::MayEnd(self.stopped);
        self.outcome.handed_over.send_replace(may_end);
    }
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
        // Before the word: if it panics, the other daemon may have heard it. Only one may go on.
        *decision = Some(Decision::HandedOver);
        let given = last_word();
        if given.is_err() {
            *decision = None;
        }
        Some(given)
    }

    /// Returns true if everything is another daemon's.
    pub(super) fn is_handed_over(&self) -> bool {
        *self.lock() == Some(Decision::HandedOver)
    }

    /// Ends the service of a daemon that was handed over, and whose process is to end in the manner
    /// `stopped`, also after a panic.
    pub(super) fn ending(&self, stopped: Stopped) -> Ending<'_> {
        self.handed_over.send_replace(HandedOver::Yes);
        let outcome = self;
        Ending { outcome, stopped }
    }

    /// Waits until the daemon was handed over, and serves no client any more.
    pub(super) async fn handed_over(&self) {
        let mut handed_over = self.handed_over.subscribe();
        // This has the sender.
        let _ = handed_over.wait_for(|now| *now != HandedOver::No).await;
    }

    /// Waits until the process of a daemon that was handed over may end. Returns the manner.
    pub(super) async fn may_end(&self) -> Stopped {
        let mut handed_over = self.handed_over.subscribe();
        let may_end = |now: &HandedOver| matches!(now, HandedOver::MayEnd(_));
        let ended = handed_over.wait_for(may_end).await;
        match *ended.expect("this has the sender") {
            HandedOver::MayEnd(stopped) => stopped,
            HandedOver::No | HandedOver::Yes => unreachable!("waited for"),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Decision>> {
        // Changed by single assignments.
        self.decision.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

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
    async fn a_daemon_that_was_handed_over_ends_in_the_manner_that_its_service_needs() {
        for stopped in [Stopped::HandedOver, Stopped::ServiceHandedOver] {
            let outcome = Outcome::default();
            let mut end = std::pin::pin!(outcome.may_end());
            let ending = outcome.ending(stopped);
            tokio::select! {
                biased;
                _ = &mut end => panic!("the other one is not known yet"),
                () = std::future::ready(()) => {}
            }
            drop(ending);
            assert_eq!(end.await, stopped);
        }
    }
    #[tokio::test]
    async fn a_panic_with_the_last_word_hands_over_and_one_after_it_lets_the_process_end() {
        let outcome = Outcome::default();
        let panics = || outcome.hand_over(|| -> Result<(), ()> { panic!("a bug") });
        assert!(catch_unwind(AssertUnwindSafe(panics)).is_err());
        assert!(outcome.is_handed_over() && !outcome.stop());
        let panics = || {
            let _ending = outcome.ending(Stopped::ServiceHandedOver);
            panic!("another bug");
        };
        assert!(catch_unwind(AssertUnwindSafe(panics)).is_err());
        outcome.handed_over().await;
        assert_eq!(outcome.may_end().await, Stopped::ServiceHandedOver);
    }
}
