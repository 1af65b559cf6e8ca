//! `vfair-bsps`: vFair that holds what VMs get to the ratio of what each would have alone.

use super::{PolicyInfo, vfair};
use crate::control::share_model::strategy::Strategy;

pub(super) const INFO: PolicyInfo = PolicyInfo {
    name: "vfair-bsps",
    summary: "vfair, held strictly to the ratio of what VMs could have alone",
    about: "As vfair, but where a VM gets less than its part because of the others, they are cut \
            by a twentieth at a time until what everybody gets is in the ratio of their weights \
            and of what they could have alone (the paper's blender-aware strict proportional \
            share). That leaves the device idle where it must.",
    presets: &[
        vfair::PRESETS[0],
        vfair::PRESETS[1],
        ("strategy", Strategy::Bsps.word()),
    ],
    ..vfair::INFO
};
