//! Attempts at one kind of write, with a pause that grows while etcd refuses.

use std::time::{Duration, Instant};

use super::LONGEST_PAUSE;
use crate::store::StoreError;

/// Pause after the first failure; it doubles up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(500);

/// Attempts at one kind of write.
#[derive(Default)]
pub(super) struct Attempts {
    /// Time of the next attempt, and the pause before it; `None`: the last one has succeeded.
    next: Option<(Instant, Duration)>,
}

impl Attempts {
    /// Returns whether an attempt may be made now.
    pub(super) fn is_due(&self) -> bool {
        self.next.is_none_or(|(at, _)| at <= Instant::now())
    }

    /// Records a success, and logs the end of a series of failures. `what` was written.
    pub(super) fn succeeded(&mut self, what: &str) {
        if self.next.take().is_some() {
            tracing::info!("published in the cluster again: {what}");
        }
    }

    /// Records a failure, and logs the first one of a series.
    pub(super) fn failed(&mut self, what: &str, error: &StoreError) {
        let pause = match self.next {
            Some((_, pause)) => (pause * 2).min(LONGEST_PAUSE),
            None => {
                tracing::warn!(
                    "not published in the cluster: {what}: {error}; placers go by what was \
                     published last"
                );
                FIRST_PAUSE
            }
        };
        self.next = Some((Instant::now() + pause, pause));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_their_bound_and_end_with_a_success() {
        let mut attempts = Attempts::default();
        assert!(attempts.is_due());
        let mut pauses = Vec::new();
        for _ in 0..6 {
            attempts.failed("budgets", &StoreError::TooLarge("2 MB".to_owned()));
            pauses.push(attempts.next.expect("failed").1.as_millis());
        }
        assert_eq!(pauses, [500, 1000, 2000, 4000, 5000, 5000]);
        assert!(!attempts.is_due());
        attempts.succeeded("budgets");
        assert!(attempts.is_due());
    }
}
