//! Saturation throughput of the device for a request pattern, in requests a second: the only figure
//! that the share model asks of the device.

use tidegate_base::request::VmId;
use tidegate_capacity::profile::{Estimation, Pattern, Profile};
use tidegate_core::part::{ParamInfo, Params};
use tidegate_core::view::View;

/// Parameter that selects the estimation of mixed patterns.
pub(super) const ESTIMATION: ParamInfo = ParamInfo::choice(
    "estimation",
    &["3d", "2d"],
    "estimates the saturation rate of a mix with the profile's measured mixes, or without",
);

/// Source of saturation throughput: the device's profile, or costs learnt at run time. No other
/// part of the share model depends on the device.
#[derive(Clone, Copy, Debug)]
pub struct Saturation {
    estimation: Estimation,
}

impl Saturation {
    /// Creates a source that estimates mixed patterns of the profile by `estimation`.
    pub fn new(estimation: Estimation) -> Saturation {
        Saturation { estimation }
    }

    pub(super) fn from_params(params: &Params) -> Saturation {
        Saturation::new(match params.get(ESTIMATION.name) {
            0 => Estimation::ThreeD,
            _ => Estimation::TwoD,
        })
    }

    /// Returns the requests a second of `pattern` that saturate the device; positive. Uses the
    /// profile; without one the learnt costs
    /// ([`CostEstimator`](tidegate_capacity::estimator::CostEstimator)).
    pub fn iops(&self, view: &View, pattern: &Pattern) -> f64 {
        match (view.profile(), view.estimator()) {
            (Some(profile), _) => profile.saturation_iops(pattern, self.estimation),
            (None, Some(estimator)) => 1e12 / estimator.time_ps(pattern),
            (None, None) => 1e12 / Profile::UNKNOWN_PS as f64,
        }
    }

    /// Returns the relative variation of a VM's share by which costs are learnt; 0 with a profile.
    pub fn dither(&self, view: &View, vm: VmId, pattern: &Pattern) -> f64 {
        match (view.profile(), view.estimator()) {
            (None, Some(estimator)) => {
                estimator.share_variation(vm, estimator.cost(pattern).relative_half_width)
            }
            _ => 0.0,
        }
    }
}

/// Last estimate for one pattern of a VM. Most patterns do not change from period to period, and a
/// comparison costs less than an estimate.
#[derive(Clone, Copy, Debug)]
pub(super) struct Estimate {
    pattern: Pattern,
    iops: f64,
}

impl Estimate {
    /// No estimate yet, or none by the present profile.
    pub(super) const UNKNOWN: Estimate = Estimate {
        pattern: Pattern::UNKNOWN,
        iops: 0.0,
    };

    /// Returns what [`Saturation::iops`] does. The caller resets this estimate when the profile
    /// changes.
    pub(super) fn iops(&mut self, source: &Saturation, view: &View, pattern: &Pattern) -> f64 {
        let is_known = self.iops > 0.0 && self.pattern == *pattern;
        // Learnt costs change at any time.
        if !is_known || view.profile().is_none() {
            *self = Estimate {
                pattern: *pattern,
                iops: source.iops(view, pattern),
            };
        }
        self.iops
    }
}
