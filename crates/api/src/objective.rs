//! Objectives: everything that a VM is promised.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Objective of a VM; parts that are not promised are `null`.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize, ToSchema)]
pub struct ObjectiveView {
    /// Minimum rate while the VM has requests: `120 IOPS @ 16 KiB`.
    pub reservation: Option<String>,
    /// Maximum rates.
    pub limit: Option<LimitView>,
    /// Rate that is held precisely, neither less nor more.
    pub target: Option<String>,
    /// Share of the throughput that reservations leave, 1 to 10000.
    pub weight: u32,
    /// Group that shares one weight with the VM in it.
    #[serde(default)]
    pub group: Option<GroupView>,
    /// Bound on the time from a request's arrival to its reply: `30 ms`.
    pub latency: Option<String>,
    /// I/O priority class, as in `ionice`: `realtime`, `best-effort 4`, `idle`.
    pub priority: String,
    /// Workload that plans assume.
    #[serde(default)]
    pub expects: Option<ExpectsView>,
}

/// Group of VMs that share one weight.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct GroupView {
    /// Name of the group.
    pub name: String,
    /// Weight of the group, 1 to 10000.
    pub weight: u32,
}

/// Expected workload of a VM; parts that are not given are `null`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ExpectsView {
    /// Reads among the requests: `70 %`.
    pub reads: Option<String>,
    /// Access pattern: `random`, `sequential` or `40 % sequential`.
    pub access: Option<String>,
    /// Size of a request: `16 KiB`.
    pub size: Option<String>,
    /// Requests a second for which a latency bound is promised.
    #[serde(default)]
    pub iops: Option<u64>,
    /// Requests that may arrive at once within the rate `iops`.
    #[serde(default)]
    pub burst: Option<u32>,
}

/// Rates by direction; `null` for a direction without a limit.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize, ToSchema)]
pub struct RatesView {
    /// Rate of reads and writes together.
    pub total: Option<String>,
    /// Rate of reads.
    pub read: Option<String>,
    /// Rate of writes.
    pub write: Option<String>,
}

/// Maximum rates of a VM.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct LimitView {
    /// Maximum rates; their fields stand beside `burst`.
    #[serde(flatten)]
    pub rates: RatesView,
    /// Rates above the limit that may be used for a limited time.
    pub burst: Option<BurstView>,
}

/// Rates above a limit that may be used after idle time.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct BurstView {
    /// Rates; their fields stand beside `length`.
    #[serde(flatten)]
    pub rates: RatesView,
    /// Longest time for which these rates may be used: `10 s`.
    pub length: String,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_json::round_trip;

    fn text(text: &str) -> Option<String> {
        Some(text.to_owned())
    }

    #[test]
    fn parts_that_are_not_promised_are_null() {
        let nothing = ObjectiveView {
            weight: 100,
            priority: "best-effort 4".to_owned(),
            ..ObjectiveView::default()
        };
        let head = r#"{"reservation":null,"limit":null,"target":null,"weight":100,"group":null,"#;
        let tail = r#""latency":null,"priority":"best-effort 4","expects":null}"#;
        round_trip(&nothing, &format!("{head}{tail}"));
        // Daemons that know neither groups nor expected workloads.
        let early = r#"{"reservation":null,"limit":null,"target":null,"weight":100,
                        "latency":null,"priority":"best-effort 4"}"#;
        let early: ObjectiveView = serde_json::from_str(early).expect("complete");
        assert_eq!(early, nothing);
    }

    #[test]
    fn an_objective_of_all_parts_is_read_as_it_is_written() {
        let limit = LimitView {
            rates: RatesView {
                total: text("500 IOPS"),
                read: None,
                write: text("20 MB/s"),
            },
            burst: Some(BurstView {
                rates: RatesView {
                    total: text("2000 IOPS"),
                    ..RatesView::default()
                },
                length: "10 s".to_owned(),
            }),
        };
        let head = r#"{"total":"500 IOPS","read":null,"write":"20 MB/s","burst":"#;
        let burst = r#"{"total":"2000 IOPS","read":null,"write":null,"length":"10 s"}}"#;
        round_trip(&limit, &format!("{head}{burst}"));
        let group = GroupView {
            name: "servers".to_owned(),
            weight: 200,
        };
        round_trip(&group, r#"{"name":"servers","weight":200}"#);
        let expects = ExpectsView {
            reads: text("70 %"),
            access: None,
            size: text("16 KiB"),
            iops: Some(500),
            burst: None,
        };
        round_trip(
            &expects,
            r#"{"reads":"70 %","access":null,"size":"16 KiB","iops":500,"burst":null}"#,
        );
        // Daemons that know no envelopes.
        let early = r#"{"reads":"70 %","access":null,"size":"16 KiB"}"#;
        let early: ExpectsView = serde_json::from_str(early).expect("complete");
        assert_eq!((early.iops, early.burst), (None, None));
        let whole = ObjectiveView {
            reservation: text("120 IOPS"),
            limit: Some(limit),
            target: text("300 IOPS"),
            weight: 30,
            group: Some(group),
            latency: text("12.5 ms"),
            priority: "idle".to_owned(),
            expects: Some(expects),
        };
        let written = serde_json::to_string(&whole).expect("plain data");
        round_trip(&whole, &written);
    }
}
