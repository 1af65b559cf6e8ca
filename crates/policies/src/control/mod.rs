//! Controllers: the part of a policy that sets the other parts' knobs.
//!
//! `credit_feedback` belongs to Flubber, `transfer_priorities` to PriDyn, `share_model` to vFair,
//! `tuner` to V-Cup, `transfers` to the default policy `slo`. `among_hosts` adds the division of a
//! device among hosts to any of them.

pub(crate) mod among_hosts;
pub mod credit_feedback;
pub mod share_model;
pub mod transfer_priorities;
pub mod transfers;
pub mod tuner;

use tidegate_base::time::Nanos;

/// Time without a request inside, counted from `begun` at the earliest, of a VM that has been quiet
/// since `since`; [`View::quiet_since`](tidegate_core::view::View::quiet_since) defines that
/// time.
fn quiet_time(now: Nanos, since: Nanos, begun: Nanos) -> Nanos {
    match since {
        // The VM has never issued a request.
        Nanos::MAX => now.since(begun),
        since => now.since(since.max(begun)),
    }
}

/// Beginning of the quiet time of a VM that was counted last. A new quiet time is recognised by
/// another beginning. A request that finds the VM empty would not do: a flush, of which controllers
/// hear nothing, may have ended the quiet time before.
#[derive(Clone, Copy, Default, Debug)]
struct LastQuiet(Option<Nanos>);

impl LastQuiet {
    /// Marks the quiet time that began at `since` as ended by a request. Returns its beginning, or
    /// `None` if it was counted before.
    fn ended(&mut self, since: Nanos) -> Option<Nanos> {
        let counted = self.0.replace(since) == Some(since);
        (!counted).then_some(since)
    }
}
