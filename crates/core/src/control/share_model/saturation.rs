//! How many requests a second of a pattern saturate the device: the one question that the share
//! model has about it.

use crate::facts::Facts;
use crate::policy::{ParamInfo, Params};
use crate::profile::{Estimation, Pattern, Profile};

/// The parameter that says how mixes are estimated.
pub(super) const ESTIMATION: ParamInfo = ParamInfo::choice(
    "estimation",
    &["3d", "2d"],
    "how the saturation of a mix follows from the profile: with its measured mixes, or without",
);

/// What answers it: the device's profile. Whatever else is to (a cost that is learnt on line) goes
/// here; nothing else of the share model knows what a device is.
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

    /// Whether there is nothing to go by without a profile.
    pub fn needs_profile(&self) -> bool {
        true
    }

    /// Requests a second, positive. Without a profile every pattern has the same, so that shares are
    /// by weight alone: configuration and API do not let it come to that.
    pub fn iops(&self, facts: &Facts, pattern: &Pattern) -> f64 {
        match facts.profile() {
            Some(profile) => profile.saturation_iops(pattern, self.estimation),
            None => 1e12 / Profile::UNKNOWN_PS as f64,
        }
    }
}
