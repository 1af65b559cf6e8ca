//! How long tasks took, and whether they kept their deadlines.

use crate::device::{TransferDone, TransferTally};
use crate::scenario::Tenant;
use serde::Serialize;
use tidegate_core::time::Nanos;

/// Tasks of a tenant: the requests of its trace, or its whole job with a deadline. They count when
/// they are done.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Responses {
    /// Done, late or not.
    pub done: u64,
    /// Neither done nor past a deadline at the end, or when their VM left or their job's time was
    /// over.
    pub unfinished: u64,
    /// Mean time from when they were to come to their last answer; `None`: none was done.
    pub mean_ns: Option<u64>,
    /// The longest.
    pub max_ns: Option<u64>,
    /// Against their deadlines; `None`: they have none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deadlines: Option<Deadlines>,
}

/// Whether deadlines were kept.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Deadlines {
    /// Done in time.
    pub met: u64,
    /// Done late, or past their deadline and not done.
    pub missed: u64,
    /// The missed of a hundred met or missed; `None`: there were neither.
    pub missed_percent: Option<f64>,
    /// How late those were that were done late, on average; `None`: none was.
    pub late_mean_ns: Option<u64>,
    /// The latest.
    pub late_max_ns: Option<u64>,
}

impl Responses {
    /// Of what was counted; `None`: the tenant has no tasks.
    pub fn new(tenant: &Tenant, tally: Option<&TransferTally>) -> Option<Responses> {
        let tally = tally?;
        let mean = |sum: u128, n: u64| {
            let mean = sum.checked_div(n.into())?;
            u64::try_from(mean).ok()
        };
        let judged = tally.met + tally.missed;
        let deadlines = Deadlines {
            met: tally.met,
            missed: tally.missed,
            missed_percent: (judged > 0).then(|| 100.0 * tally.missed as f64 / judged as f64),
            late_mean_ns: mean(tally.late_sum, tally.late),
            late_max_ns: (tally.late > 0).then_some(tally.late_max.0),
        };
        let has_deadlines = tenant.jobs.iter().any(|job| job.deadline.is_some());
        Some(Responses {
            done: tally.done,
            unfinished: tally.unfinished,
            mean_ns: mean(tally.response_sum, tally.done),
            max_ns: (tally.done > 0).then_some(tally.response_max.0),
            deadlines: has_deadlines.then_some(deadlines),
        })
    }
}

/// A task that was done.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Response {
    /// Its tenant.
    pub vm: String,
    /// Which it is of its trace, from 0 on; those that come again are counted on.
    pub index: u64,
    /// Bytes that it moved.
    pub bytes: u64,
    /// When it was to come, in seconds.
    pub begun_s: f64,
    /// From then to its last answer.
    pub response_ns: u64,
    /// How long it was allowed to take; `None`: it has no deadline.
    pub deadline_ns: Option<u64>,
    /// How late it was; 0 in time.
    pub late_ns: Option<u64>,
}

impl Response {
    /// Of a task of `tenant`.
    pub(crate) fn new(tenant: &Tenant, done: &TransferDone) -> Response {
        let response = done.ended.since(done.since);
        Response {
            vm: tenant.name.clone(),
            index: done.index,
            bytes: done.bytes,
            begun_s: done.since.as_secs_f64(),
            response_ns: response.0,
            deadline_ns: done.deadline.map(|Nanos(ns)| ns),
            late_ns: (done.deadline).map(|deadline| response.since(deadline).0),
        }
    }
}
