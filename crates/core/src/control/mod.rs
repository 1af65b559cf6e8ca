//! Controllers: what the knobs should be.

pub mod credit_feedback;
pub mod share_model;
pub mod tuner;

use crate::time::Nanos;

/// How long a VM has had nothing inside, as far as it falls into the time since `begun`; `since` as
/// [`Facts::quiet_since`](crate::facts::Facts::quiet_since) has it.
fn quiet_time(now: Nanos, since: Nanos, begun: Nanos) -> Nanos {
    match since {
        // It never asked before.
        Nanos::MAX => now.since(begun),
        since => now.since(since.max(begun)),
    }
}
