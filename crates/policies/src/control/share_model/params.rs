//! Parameters of the share model.

use super::strategy::Strategy;
use crate::pattern::WINDOW;
use tidegate_base::time::Nanos;
use tidegate_core::part::{ParamInfo, Params};

pub(super) const STRATEGY: ParamInfo = ParamInfo::choice(
    "strategy",
    Strategy::WORDS,
    "who bears the cost of interference between VMs: all, the VM it affects, or all strictly",
);
pub(super) const LEND: ParamInfo = ParamInfo::flag(
    "lend",
    "converts unused allocation by its device time; off: credit for credit",
);
pub(super) const LATENCY_TARGET: ParamInfo = ParamInfo::span(
    "latency_target",
    0,
    "device latency up to which more is admitted; 0: latency at full depth",
);
pub(super) const LATENCY_BY: ParamInfo = ParamInfo::choice(
    "latency_by",
    &["measured", "profile"],
    "rate from which the latency at full depth follows: measured, or of the profile",
);
pub(super) const CORRECTION: ParamInfo = ParamInfo::choice(
    "correction",
    &["per-vm", "common"],
    "scale of the feedback: per-vm by the VM's own unused credits, or one for all VMs",
);
pub(super) const LATENCY_OVER: ParamInfo = ParamInfo::choice(
    "latency_over",
    &["period", "end"],
    "latency held to latency_target: mean over a period, or at its end",
);

/// Parameters.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ShareModelParams {
    /// Strategy by which the loss through interleaved requests is shared.
    pub strategy: Strategy,
    /// Lends unused allocations to the other VMs.
    pub lend: bool,
    /// Latency that the feedback holds; zero: the latency at depth `depth`.
    pub latency_target: Nanos,
    /// Corrects the P_i of each VM by its own unused credits; `false`: one scale for all.
    pub own_scales: bool,
    /// Holds the mean latency over a period to `latency_target`; `false`: that at its end.
    pub over_period: bool,
    /// Computes the latency at full depth by the scaled profile instead of the measured rate.
    pub by_profile: bool,
    /// Maximum number of I/Os at the device, equal to the dispatcher's; 0: the device's own
    /// maximum.
    pub depth: u32,
    /// Length of a period under a regulator that has no periods.
    pub period: Nanos,
}

impl ShareModelParams {
    /// Parameters of a model that divides the device among hosts alone: all bear the loss, as under
    /// `vfair`, and VMs have no scales of their own.
    pub(super) const AMONG_HOSTS: ShareModelParams = ShareModelParams {
        strategy: Strategy::Baps,
        lend: false,
        latency_target: Nanos::ZERO,
        own_scales: false,
        over_period: true,
        by_profile: false,
        depth: 0,
        period: WINDOW,
    };

    pub(super) fn from_params(params: &Params) -> ShareModelParams {
        ShareModelParams {
            strategy: Strategy::from_word(params.get(STRATEGY.name)),
            lend: params.get(LEND.name) != 0,
            latency_target: Nanos(params.get(LATENCY_TARGET.name)),
            own_scales: params.get(CORRECTION.name) == 0,
            over_period: params.get(LATENCY_OVER.name) == 0,
            by_profile: params.get(LATENCY_BY.name) == 1,
            depth: params.find("depth").unwrap_or(0) as u32,
            period: params.find("period").map_or(WINDOW, Nanos),
        }
    }
}
