//! Attainment: whether promises to a VM are kept.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Attainment of one part of a VM's objective since that part was set or last changed.
///
/// Judged seconds are those that were kept or missed. For the part `transfer`,
/// [`kept_s`](Self::kept_s) and [`missed_s`](Self::missed_s) count deadline transfers instead of
/// seconds.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct AttainmentView {
    /// Part of the objective: `reservation`, `latency`, `target`, `limit` or `transfer`.
    pub part: String,
    /// True if 99 % of the seconds judged were kept and every deadline transfer was done in time.
    /// Absent while there was nothing to judge.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept: Option<bool>,
    /// Share of judged seconds that were kept, in per cent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept_percent: Option<f64>,
    /// Verdict in words.
    pub detail: String,
    /// True for a latency bound without a reservation or target, which is best effort.
    #[serde(default)]
    pub best_effort: bool,
    /// Seconds in which the promise was kept; for `transfer`, the number of deadline transfers that
    /// were done in time.
    pub kept_s: u64,
    /// Seconds in which the promise was missed; for `transfer`, the number of deadline transfers
    /// that were late.
    pub missed_s: u64,
    /// [`missed_s`](Self::missed_s) by cause.
    pub missed_by_cause: CausesView,
    /// Seconds of which the device completed nothing for 100 ms; counted neither as kept nor as
    /// missed.
    pub stalled_s: u64,
    /// Kept seconds in which the VM's demand was below the promise.
    pub asked_less_s: u64,
    /// Requests that were judged.
    pub requests: u64,
    /// Requests that were late, of [`requests`](Self::requests).
    pub late: u64,
    /// Longest time by which a request or a transfer was late, in nanoseconds.
    pub worst_late_ns: u64,
    /// Seconds since the last missed second or late transfer; absent if there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_missed_ago_s: Option<u32>,
    /// Error budget of the last five minutes.
    pub last_5_minutes: BudgetView,
    /// Error budget of the last hour.
    pub last_hour: BudgetView,
    /// Error budget of the last 24 hours.
    pub last_day: BudgetView,
}

/// Missed seconds (late transfers for the part `transfer`) by their cause.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct CausesView {
    /// Seconds in which the VM's own limit or credits held its requests back.
    pub own_limit: u64,
    /// Seconds in which the device served other VMs while this VM's requests were late.
    pub others: u64,
    /// Seconds in which the device was too slow.
    pub device: u64,
    /// Seconds in which the policy in force did not enforce the limit.
    pub policy: u64,
}

/// Error budget over a span of time: 1 % of the judged seconds may be missed.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct BudgetView {
    /// Seconds that were judged.
    pub judged_s: u32,
    /// Seconds that were missed.
    pub missed_s: u32,
    /// Burn rate: part of the span's budget that is used, 1 when 1 % of its judged seconds were
    /// missed. Absent while nothing was judged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub burn_rate: Option<f64>,
}
