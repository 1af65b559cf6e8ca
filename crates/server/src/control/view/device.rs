//! How a device compares with what it is known to be able to do, as answers show it.

use serde::{Deserialize, Serialize};
use tidegate_core::estimator::{Learnt, LearntKind};
use tidegate_core::watch::{Drift, LearntCap};

use crate::labels::kind_name;

/// How a device compares with its profile.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct DriftView {
    /// Time that passed by the time that the profile gives for what was done meanwhile, smoothed;
    /// above 1: slower. 1 until something was judged.
    pub ratio: f64,
    /// Standard deviation of single seconds around it.
    pub spread: f64,
    /// Seconds that were judged: those in which the device had enough to do.
    pub seconds_judged: u64,
    /// `slower` or `faster` than the profile says; absent while it agrees.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parted: Option<String>,
    /// Since when it agrees or does not, by the loop's clock; 0: from the start.
    pub since_ns: u64,
    /// I/Os that must be in flight for a second to count.
    pub enough_in_flight: u32,
    /// The device's depth is below that: nothing will be judged.
    pub too_shallow: bool,
}

impl DriftView {
    pub(crate) fn new(drift: &Drift) -> DriftView {
        DriftView {
            ratio: drift.ratio,
            spread: drift.spread,
            seconds_judged: drift.windows,
            parted: drift.parted.map(|parting| parting.name().to_owned()),
            since_ns: drift.since.0,
            enough_in_flight: drift.enough,
            too_shallow: drift.too_shallow,
        }
    }
}

/// A cap below a device that was learnt.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct CapView {
    /// I/Os a second; absent where they are not capped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub iops: Option<f64>,
    /// Bytes a second; absent where they are not capped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_per_s: Option<u64>,
    /// One of the two is capped, and it is not known which: all I/Os had one size.
    pub either: bool,
    /// Since when a cap has been known, by the loop's clock.
    pub since_ns: u64,
}

impl CapView {
    pub(crate) fn new(cap: &LearntCap) -> CapView {
        CapView {
            iops: cap.iops,
            bytes_per_s: cap.bytes_per_s,
            either: cap.either,
            since_ns: cap.since.0,
        }
    }
}

/// What was learnt of what requests cost a device that has no profile.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct CostsView {
    /// Windows that were learnt from: those in which the device was full.
    pub windows: u64,
    /// Windows that said nothing: it was not, or an I/O failed.
    pub idle_windows: u64,
    /// Half the width of a 90 % interval in parts of the cost, in the mean over what was seen; absent before
    /// anything was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub within: Option<f64>,
    /// The kinds of I/O that were seen.
    pub kinds: Vec<CostView>,
}

/// What one I/O of a kind costs.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct CostView {
    /// `random read` and the like.
    pub kind: String,
    /// I/Os that were learnt from.
    pub ios: u64,
    /// Their mean size.
    pub size_bytes: u32,
    /// Time of the full device that one of this size takes.
    pub time_ns: f64,
    /// Half the width of its 90 % interval, in parts of it.
    pub within: f64,
    /// It is narrow enough to be relied on.
    pub known: bool,
}

impl CostsView {
    pub(crate) fn new(learnt: &Learnt) -> CostsView {
        let within = learnt.within();
        let seen = learnt.kinds.iter().filter(|kind| kind.ios > 0);
        CostsView {
            windows: learnt.windows,
            idle_windows: learnt.idle_windows,
            within: within.is_finite().then_some(within),
            kinds: seen.map(CostView::new).collect(),
        }
    }
}

impl CostView {
    fn new(kind: &LearntKind) -> CostView {
        CostView {
            kind: kind_name(kind),
            ios: kind.ios,
            size_bytes: kind.size,
            time_ns: kind.cost.time_ps / 1000.0,
            within: kind.cost.within,
            known: kind.cost.is_known(),
        }
    }
}
