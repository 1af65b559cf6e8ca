//! Views of a device's deviation from its profile, learnt cap and learnt costs.

use tidegate_api::device::{
    CapView, CostView, CostsView, DriftView, ExchangeView, FeasibilityView, PeerView,
    SteppedDownView,
};
use tidegate_core::device_monitor::{Drift, LearntCap};
use tidegate_core::engine::Feasibility;
use tidegate_core::estimator::{LearntCosts, LearntKind};
use tidegate_core::queue_depth::DepthReason;
use tidegate_core::roles::SteppedDown;

use crate::command::VmSnapshot;
use crate::exchange::ExchangeSnapshot;
use crate::labels::kind_name;

pub(super) fn drift(drift: &Drift) -> DriftView {
    DriftView {
        ratio: drift.ratio,
        spread: drift.spread,
        seconds_judged: drift.windows,
        direction: drift.direction.map(|parting| parting.name().to_owned()),
        since_ns: drift.since.0,
        enough_in_flight: drift.saturating_depth,
        too_shallow: drift.too_shallow,
    }
}

/// Returns the reason for the depth in force, in words.
pub(super) fn depth_reason(reason: &DepthReason, vms: &[VmSnapshot]) -> String {
    match reason {
        DepthReason::Start => "initial value, nothing measured yet".to_owned(),
        DepthReason::Product => "bandwidth-delay product".to_owned(),
        DepthReason::Whole => "the load needs the full depth".to_owned(),
        DepthReason::Bound { vm, cost } => {
            let name = vms.iter().find(|snapshot| Some(snapshot.id) == *vm);
            let whose = match name {
                Some(vm) => format!("latency bound of VM {}", vm.name),
                None => "a latency bound".to_owned(),
            };
            match cost {
                // Less than 0.1 % would be shown as 0.0 %.
                Some(cost) if *cost >= 0.001 => {
                    format!("{whose}, costs {:.1} % of throughput", cost * 100.0)
                }
                _ => whose,
            }
        }
    }
}

pub(super) fn feasibility(found: &Feasibility) -> FeasibilityView {
    FeasibilityView {
        fits: found.fits,
        depth_bound: found.depth_bound,
        learnt: found.is_learnt,
    }
}

/// Returns the promises that have given way; `None`: none has.
pub(super) fn stepped_down(found: SteppedDown) -> Option<SteppedDownView> {
    (found != SteppedDown::default()).then_some(SteppedDownView {
        background: found.background,
        transfers: found.transfers,
        targets: found.targets,
        latencies: found.latencies,
    })
}

pub(super) fn exchange(exchange: &ExchangeSnapshot) -> ExchangeView {
    let peers = exchange.peers.iter().map(|peer| PeerView {
        host: peer.name.clone(),
        presence: peer.presence.word().to_owned(),
        weight: peer.weight,
        weight_max: peer.weight_max,
        age_ns: peer.age.map(|age| age.0),
        skew_ns: peer.skew_ns,
        accepted: peer.accepted,
    });
    let ignored = exchange.refused.iter().filter(|(_, count)| *count > 0);
    let error = &exchange.transport.last_error;
    ExchangeView {
        cluster: exchange.cluster.clone(),
        array: exchange.array.clone(),
        host: exchange.host.clone(),
        weight: exchange.weight,
        weight_max: exchange.weight_max,
        connected: exchange.transport.is_connected,
        cut_off: exchange.is_cut_off,
        last_error: (!error.is_empty()).then(|| error.clone()),
        peers: peers.collect(),
        ignored: ignored
            .map(|(word, count)| ((*word).to_owned(), *count))
            .collect(),
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

pub(super) fn costs(learnt: &LearntCosts) -> CostsView {
    let within = learnt.relative_half_width();
    let seen = learnt.kinds.iter().filter(|kind| kind.ios > 0);
    CostsView {
        windows: learnt.windows,
        unused_windows: learnt.discarded_windows,
        // JSON has no infinity.
        relative_half_width: within.is_finite().then_some(within),
        kinds: seen.map(cost).collect(),
    }
}

fn cost(kind: &LearntKind) -> CostView {
    CostView {
        kind: kind_name(kind),
        ios: kind.ios,
        size_bytes: kind.size,
        // Picoseconds to nanoseconds.
        time_ns: kind.cost.time_ps / 1000.0,
        relative_half_width: kind.cost.relative_half_width,
        known: kind.cost.is_known(),
    }
}
