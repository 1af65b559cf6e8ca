//! Objectives, as text with units.

use serde::{Deserialize, Serialize};
use tidegate_config::objective::access_word;
use tidegate_core::expect::{Expects, Thousandths};
use tidegate_core::objective::{Limit, Objective, Rate};
use tidegate_device::units;

/// An objective: what can be written into a configuration file. What is not promised is `null`.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct ObjectiveView {
    /// The floor.
    pub reservation: Option<String>,
    /// The cap.
    pub limit: Option<LimitView>,
    /// The rate to be held precisely.
    pub target: Option<String>,
    /// The share.
    pub weight: u32,
    /// The group that it shares a weight with.
    #[serde(default)]
    pub group: Option<GroupView>,
    /// The bound on each request's time.
    pub latency: Option<String>,
    /// The class of priority.
    pub priority: String,
    /// What its requests are expected to be like.
    #[serde(default)]
    pub expects: Option<ExpectsView>,
}

/// A group.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct GroupView {
    /// Its name.
    pub name: String,
    /// Its share.
    pub weight: u32,
}

/// What requests are expected to be like; what is not said is `null`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ExpectsView {
    /// Reads among them.
    pub reads: Option<String>,
    /// How they lie.
    pub access: Option<String>,
    /// How long each is.
    pub size: Option<String>,
}

/// A cap.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LimitView {
    /// On reads and writes together.
    pub total: Option<String>,
    /// On reads.
    pub read: Option<String>,
    /// On writes.
    pub write: Option<String>,
    /// What may pass above it for a while.
    pub burst: Option<BurstView>,
}

/// A burst.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct BurstView {
    /// Reads and writes together.
    pub total: Option<String>,
    /// Reads.
    pub read: Option<String>,
    /// Writes.
    pub write: Option<String>,
    /// How long it may last.
    pub length: String,
}

impl ObjectiveView {
    /// Shows an objective.
    pub fn new(objective: &Objective) -> ObjectiveView {
        ObjectiveView {
            reservation: said(&objective.reservation),
            limit: (!objective.limit.is_none()).then(|| LimitView::new(&objective.limit)),
            target: said(&objective.target),
            weight: objective.weight,
            group: objective.group.map(|group| GroupView {
                name: group.name.to_string(),
                weight: group.weight,
            }),
            latency: objective.latency.map(units::format_duration),
            priority: objective.priority.to_string(),
            expects: (!objective.expects.is_nothing())
                .then(|| ExpectsView::new(&objective.expects)),
        }
    }
}

impl ExpectsView {
    fn new(expects: &Expects) -> ExpectsView {
        ExpectsView {
            reads: expects.reads.map(|part| Thousandths(part).to_string()),
            access: expects.sequential.map(access_word),
            size: (expects.size).map(|size| units::format_bytes(size.into())),
        }
    }
}

impl LimitView {
    fn new(limit: &Limit) -> LimitView {
        LimitView {
            total: said(&limit.total),
            read: said(&limit.read),
            write: said(&limit.write),
            burst: limit.burst.as_ref().map(|burst| BurstView {
                total: said(&burst.total),
                read: said(&burst.read),
                write: said(&burst.write),
                length: units::format_duration(burst.length),
            }),
        }
    }
}

fn said(rate: &Rate) -> Option<String> {
    (!rate.is_none()).then(|| rate.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config;

    #[test]
    fn an_objective_that_was_shown_can_be_given_back() {
        let change = serde_json::json!({
            "reservation": "120 IOPS @ 16 KiB",
            "limit": {
                "total": "500 IOPS, 40 MB/s",
                "write": "20 MB/s",
                "burst": { "total": "2000 IOPS", "length": "10 s" }
            },
            "target": "300 IOPS",
            "weight": 30,
            "group": { "name": "servers", "weight": 200 },
            "latency": "12.5 ms",
            "expects": { "reads": "70 %", "access": "12.5 % sequential", "size": "16 KiB" }
        });
        let objective = config::objective::merge(&Objective::default(), &change).expect("good");
        let shown = serde_json::to_value(ObjectiveView::new(&objective)).expect("JSON");
        let again = config::objective::merge(&Objective::default(), &shown).expect("good");
        assert_eq!(again, objective);
    }
}
