//! CFQ against its rules in linear scans, its bound on starvation, and its behaviours.

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

const MIDDLE: Priority = Priority::DEFAULT;

/// The rules of before 2.6.32, for what came then changes how long slices are and whom the disk
/// waits for, and is tested by itself; with these parameters others.
fn with(params: &[(&str, u64)]) -> PolicySpec {
    let mut spec = policy("cfq");
    let early = [("group_seekers", 0), ("low_latency", 0)];
    for (name, value) in early.iter().chain(params) {
        spec.set(name, *value).expect("in range");
    }
    spec
}
