//! How many requests a second of a pattern saturate the device: the one question that the share
//! model has about it.

use tidegate_base::request::VmId;
use tidegate_capacity::profile::{Estimation, Pattern, Profile};
use tidegate_core::facts::Facts;
use tidegate_core::part::{ParamInfo, Params};

/// The parameter that says how mixes are estimated.
pub(super) const ESTIMATION: ParamInfo = ParamInfo::choice(
    "estimation",
    &["3d", "2d"],
    "how the saturation of a mix follows from the profile: with its measured mixes, or without",
);

/// What answers it: the device's profile, or what was learnt of it. Nothing else of the share model
/// knows what a device is.
#[derive(Clone, Copy, Debug)]
pub struct Saturation {
    estimation: Estimation,
}

impl Saturation {
    /// By the profile, with this estimation.
    pub fn new(estimation: Estimation) -> Saturation {
        Saturation { estimation }
    }

    pub(super) fn from_params(params: &Params) -> Saturation {
        Saturation::new(match params.get(ESTIMATION.name) {
            0 => Estimation::ThreeD,
            _ => Estimation::TwoD,
        })
    }

    /// Requests a second, positive. By the profile; without one by what was learnt of the device
    /// ([`CostEstimator`](tidegate_capacity::estimator::CostEstimator)).
    pub fn iops(&self, facts: &Facts, pattern: &Pattern) -> f64 {
        match (facts.profile(), facts.estimator()) {
            (Some(profile), _) => profile.saturation_iops(pattern, self.estimation),
            (None, Some(estimator)) => 1e12 / estimator.time_ps(pattern),
            (None, None) => 1e12 / Profile::UNKNOWN_PS as f64,
        }
    }

    /// By how much a VM's share is to be varied, as a part of it, so that costs are learnt; 0 by a
    /// profile.
    pub fn dither(&self, facts: &Facts, vm: VmId, pattern: &Pattern) -> f64 {
        match (facts.profile(), facts.estimator()) {
            (None, Some(estimator)) => estimator.dither(vm, estimator.cost(pattern).within),
            _ => 0.0,
        }
    }
}
