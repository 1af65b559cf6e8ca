//! CFQ against its rules in linear scans, its bound on starvation, and its behaviours.

#[path = "../common/mod.rs"]
mod common;

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

use common::policy;
use tidegate_core::objective::Priority;
use tidegate_core::policy::PolicySpec;

const MIDDLE: Priority = Priority::DEFAULT;

fn with(params: &[(&str, u64)]) -> PolicySpec {
    let mut spec = policy("cfq");
    for (name, value) in params {
        spec.set(name, *value).expect("in range");
    }
    spec
}
