//! Tests of CFQ: against a model that applies its rules by linear scans, its bound on starvation,
//! and examples of its behaviour.

mod asynchronous;
mod classes;
mod depth;
mod disk;
mod duel;
mod elevator;
mod idling;
mod preemption;
mod scan;
mod seekers;
mod shares;

use crate::common::policy;
use tidegate_core::objective::Priority;
use tidegate_policies::policy::PolicySpec;

const DEFAULT_PRIORITY: Priority = Priority::DEFAULT;

/// Returns CFQ by the rules of Linux before 2.6.32, with the given parameters. The later rules
/// (`group_seekers`, `low_latency`) change the length of slices and the idling, and have their own
/// tests.
fn with(params: &[(&str, u64)]) -> PolicySpec {
    let mut spec = policy("cfq");
    let early = [("group_seekers", 0), ("low_latency", 0)];
    for (name, value) in early.iter().chain(params) {
        spec.set(name, *value).expect("in range");
    }
    spec
}
