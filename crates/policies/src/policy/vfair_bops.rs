//! `vfair-bops`: vFair that counts no loss by blending.

use super::{PolicyInfo, vfair};
use crate::control::share_model::strategy::Strategy;

pub(super) const INFO: PolicyInfo = PolicyInfo {
    name: "vfair-bops",
    summary: "vfair, but what VMs' requests cost each other is not counted",
    about: "Each VM is allocated its weight's part of what it could have alone (the paper's \
            blender-oblivious proportional share). Where requests of several VMs stand between \
            each other and become dearer for it, that is more than there is: who reads in \
            sequence bears it. There to be compared with; take vfair.",
    presets: &[
        vfair::PRESETS[0],
        vfair::PRESETS[1],
        ("strategy", Strategy::Bops.word()),
    ],
    ..vfair::INFO
};
