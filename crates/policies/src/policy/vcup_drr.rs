//! `vcup-drr`: targets held precisely, over deficit round robin.

use super::PolicyInfo;
use crate::control::tuner;
use crate::dispatch::drr;
use crate::regulate::merge_limit;

pub(super) const INFO: PolicyInfo = PolicyInfo {
    name: "vcup-drr",
    summary: "the same over deficit round robin: shares by weight for what is left",
    source: "Li et al., \"Customizable SLO and Its Near-Precise Enforcement for Storage Bandwidth\", ToS 2017",
    about: "The tuners of vcup above deficit round robin: besides targets that are held precisely, \
            shares by weight in bytes, cheaply and at the device's full depth.",
    controller: Some(&tuner::PART),
    regulator: &merge_limit::PART,
    dispatcher: &drr::PART,
    presets: &[],
};
