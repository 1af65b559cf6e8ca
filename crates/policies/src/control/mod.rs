//! Controllers: what the knobs should be.
//!
//! `credit_feedback` belongs to Flubber, `job_priorities` to PriDyn, `share_model` to vFair,
//! `tuner` to V-Cup, `transfers` to the default policy `slo`.

pub mod credit_feedback;
pub mod job_priorities;
pub mod share_model;
pub mod transfers;
pub mod tuner;

use tidegate_base::time::Nanos;

/// How long a VM has had nothing inside, as far as it falls into the time since `begun`; `since` as
/// [`Facts::quiet_since`](tidegate_core::facts::Facts::quiet_since) has it.
fn quiet_time(now: Nanos, since: Nanos, begun: Nanos) -> Nanos {
    match since {
        // It never asked before.
        Nanos::MAX => now.since(begun),
        since => now.since(since.max(begun)),
    }
}

/// Which of a VM's quiet times was counted last, by its beginning. Their ends are seen by another
/// beginning than that, not by a request that is alone: a flush may have ended one of which nobody
/// hears.
#[derive(Clone, Copy, Default, Debug)]
struct LastQuiet(Option<Nanos>);

impl LastQuiet {
    /// A request came, and the VM was quiet last from `since` on; `None`: that was counted before.
    fn ended(&mut self, since: Nanos) -> Option<Nanos> {
        let counted = self.0.replace(since) == Some(since);
        (!counted).then_some(since)
    }
}
