//! `vcup-mclock`: targets held precisely, over mClock.

use super::PolicyInfo;
use crate::control::tuner;
use crate::dispatch::mclock;
use crate::regulate::merge_limit;

pub(super) const INFO: PolicyInfo = PolicyInfo {
    name: "vcup-mclock",
    summary: "the same over mClock: reservations and weights for what is left",
    source: "Li et al., \"Customizable SLO and Its Near-Precise Enforcement for Storage Bandwidth\", ToS 2017",
    about: "The tuners of vcup above mClock: besides targets that are held precisely, reservations and \
            weights, at the device's full depth.",
    controller: Some(&tuner::PART),
    regulator: &merge_limit::PART,
    dispatcher: &mclock::PART,
    presets: &[],
};
