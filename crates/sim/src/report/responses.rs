//! Response times of transfers, and their deadlines.

use crate::device::{TransferDone, TransferTally};
use crate::scenario::VmSpec;
use serde::Serialize;
use tidegate_core::time::Nanos;

/// Transfers of a VM: the requests of its trace, or its whole workload with a deadline. A transfer
/// counts when it is done.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Responses {
    /// Number of transfers done, late or not.
    pub done: u64,
    /// Number of transfers that were neither done nor past a deadline at the end of the run, of
    /// their VM or of their workload's time.
    pub unfinished: u64,
    /// Mean time from the planned begin to the last answer; `None` if none was done.
    pub mean_ns: Option<u64>,
    /// Longest such time.
    pub max_ns: Option<u64>,
    /// Deadlines kept and missed; `None` if the transfers have none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deadlines: Option<Deadlines>,
}

/// Counts of deadlines kept and missed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Deadlines {
    /// Transfers done in time.
    pub met: u64,
    /// Transfers done late, or past their deadline and not done.
    pub missed: u64,
    /// Missed deadlines in percent of all met and missed; `None` if there were neither.
    pub missed_percent: Option<f64>,
    /// Mean lateness of those that were done late; `None` if none was.
    pub late_mean_ns: Option<u64>,
    /// Largest lateness.
    pub late_max_ns: Option<u64>,
}

impl Responses {
    /// Computes the results of a tally; `None` if the VM has no transfers.
    pub fn new(spec: &VmSpec, tally: Option<&TransferTally>) -> Option<Responses> {
        let tally = tally?;
        let mean = |sum: u128, n: u64| {
            let mean = sum.checked_div(n.into())?;
            u64::try_from(mean).ok()
        };
        let judged = tally.met + tally.missed;
        // Computed even if it is not reported below: without deadlines all of it is zero.
        let deadlines = Deadlines {
            met: tally.met,
            missed: tally.missed,
            missed_percent: (judged > 0).then(|| 100.0 * tally.missed as f64 / judged as f64),
            late_mean_ns: mean(tally.late_sum, tally.late),
            late_max_ns: (tally.late > 0).then_some(tally.late_max.0),
        };
        let has_deadlines = spec
            .workloads
            .iter()
            .any(|workload| workload.deadline.is_some());
        Some(Responses {
            done: tally.done,
            unfinished: tally.unfinished,
            mean_ns: mean(tally.response_sum, tally.done),
            max_ns: (tally.done > 0).then_some(tally.response_max.0),
            deadlines: has_deadlines.then_some(deadlines),
        })
    }
}

/// Transfer that was done.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Response {
    /// Name of its VM.
    pub vm: String,
    /// Number within its trace, from 0 on; repetitions of the trace continue the count.
    pub index: u64,
    /// Bytes moved.
    pub bytes: u64,
    /// Planned begin, in seconds of simulated time.
    pub begun_s: f64,
    /// Time from the planned begin to the last answer.
    pub response_ns: u64,
    /// Allowed time; `None` without a deadline.
    pub deadline_ns: Option<u64>,
    /// Time past the deadline; 0 if it was in time, `None` without a deadline.
    pub late_ns: Option<u64>,
}

impl Response {
    /// Describes a transfer of the VM `spec`.
    pub(crate) fn new(spec: &VmSpec, done: &TransferDone) -> Response {
        let response = done.ended.since(done.since);
        Response {
            vm: spec.name.clone(),
            index: done.index,
            bytes: done.bytes,
            begun_s: done.since.as_secs_f64(),
            response_ns: response.0,
            deadline_ns: done.deadline.map(|Nanos(ns)| ns),
            late_ns: (done.deadline).map(|deadline| response.since(deadline).0),
        }
    }
}
