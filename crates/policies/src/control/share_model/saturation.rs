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
    /// `half_width`: [`Rates::half_width`] of the VM.
    pub(super) fn dither(&self, view: &View, vm: VmId, half_width: f64) -> f64 {
        match (view.profile(), view.estimator()) {
            (None, Some(estimator)) => estimator.share_variation(vm, half_width),
            _ => 0.0,
        }
    }
}

/// Saturation rates of a VM's own pattern and of its blended one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rates {
    /// P_i in requests a second.
    pub(super) alone: f64,
    /// P'_i in requests a second.
    pub(super) blended: f64,
    /// Relative half width of the interval in which the learnt cost of the own pattern lies; 0 with
    /// a profile, or without learnt costs.
    pub(super) half_width: f64,
}

/// Estimates of the VMs' saturation rates. Most patterns are those of the period before, or of the
/// VM before, and a comparison costs less than an estimate.
#[derive(Debug)]
pub(super) struct Estimates {
    /// Last estimates by the profile, for each VM's own pattern and its blended one. Learnt costs
    /// change at any time, so that these are used with a profile only.
    of_vms: Vec<[Estimate; 2]>,
    /// Patterns and rates of the VM before.
    last: Option<([Pattern; 2], Rates)>,
}

impl Estimates {
    /// Creates estimates for `vms` slots, none of them known.
    pub(super) fn new(vms: usize) -> Estimates {
        Estimates {
            of_vms: vec![[Estimate::UNKNOWN; 2]; vms],
            last: None,
        }
    }

    /// Forgets all estimates, as the profile has changed.
    pub(super) fn forget_all(&mut self) {
        self.of_vms.fill([Estimate::UNKNOWN; 2]);
        self.last = None;
    }

    /// Begins an evaluation, in which the device's costs do not change.
    pub(super) fn begin(&mut self) {
        self.last = None;
    }

    /// Returns the rates of the VM in a slot with these patterns, its own and its blended one.
    pub(super) fn rates(
        &mut self,
        source: &Saturation,
        view: &View,
        slot: usize,
        patterns: [Pattern; 2],
    ) -> Rates {
        if let Some((_, rates)) = self.last.filter(|(last, _)| *last == patterns) {
            return rates;
        }
        let [own, blended] = &patterns;
        let same = own == blended;
        let rates = match (view.profile(), view.estimator()) {
            (None, Some(estimator)) => {
                let cost = estimator.cost(own);
                let alone = 1e12 / cost.time_ps;
                Rates {
                    alone,
                    blended: if same {
                        alone
                    } else {
                        source.iops(view, blended)
                    },
                    half_width: cost.relative_half_width,
                }
            }
            _ => {
                let [of_own, of_blended] = &mut self.of_vms[slot];
                let alone = of_own.iops(source, view, own);
                Rates {
                    alone,
                    blended: if same {
                        alone
                    } else {
                        of_blended.iops(source, view, blended)
                    },
                    half_width: 0.0,
                }
            }
        };
        self.last = Some((patterns, rates));
        rates
    }
}

/// Last estimate for one pattern of a VM.
#[derive(Clone, Copy, Debug)]
struct Estimate {
    pattern: Pattern,
    iops: f64,
}

impl Estimate {
    /// No estimate yet, or none by the present profile.
    const UNKNOWN: Estimate = Estimate {
        pattern: Pattern::UNKNOWN,
        iops: 0.0,
    };

    /// Returns what [`Saturation::iops`] does. The caller resets this estimate when the profile
    /// changes.
    fn iops(&mut self, source: &Saturation, view: &View, pattern: &Pattern) -> f64 {
        let is_known = self.iops > 0.0 && self.pattern == *pattern;
        if !is_known || view.profile().is_none() {
            *self = Estimate {
                pattern: *pattern,
                iops: source.iops(view, pattern),
            };
        }
        self.iops
    }
}
