//! How a device compares with what it is known to be able to do, as answers show it.

use tidegate_api::device::{CapView, CostView, CostsView, DriftView};
use tidegate_core::estimator::{Learnt, LearntKind};
use tidegate_core::watch::{Drift, LearntCap};

use crate::labels::kind_name;

pub(super) fn drift(drift: &Drift) -> DriftView {
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

pub(super) fn cap(cap: &LearntCap) -> CapView {
    CapView {
        iops: cap.iops,
        bytes_per_s: cap.bytes_per_s,
        either: cap.either,
        since_ns: cap.since.0,
    }
}

pub(super) fn costs(learnt: &Learnt) -> CostsView {
    let within = learnt.within();
    let seen = learnt.kinds.iter().filter(|kind| kind.ios > 0);
    CostsView {
        windows: learnt.windows,
        idle_windows: learnt.idle_windows,
        within: within.is_finite().then_some(within),
        kinds: seen.map(cost).collect(),
    }
}

fn cost(kind: &LearntKind) -> CostView {
    CostView {
        kind: kind_name(kind),
        ios: kind.ios,
        size_bytes: kind.size,
        time_ns: kind.cost.time_ps / 1000.0,
        within: kind.cost.within,
        known: kind.cost.is_known(),
    }
}
