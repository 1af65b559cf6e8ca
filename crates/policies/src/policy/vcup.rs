//! `vcup`: targets held precisely, over CFQ.

use super::PolicyInfo;
use crate::control::tuner;
use crate::dispatch::cfq;
use crate::regulate::merge_limit;

pub(super) const INFO: PolicyInfo = PolicyInfo {
    name: "vcup",
    summary: "a target's bandwidth precisely, by merge limit and throttle, over CFQ",
    source: "Li et al., \"Customizable SLO and Its Near-Precise Enforcement for Storage Bandwidth\", ToS 2017",
    about: "Each VM with a target is paced at it, late slots carried, with I/Os as large as it takes for the \
            device to do as much; or, with tuner = window, comes to it by feedback, its I/Os made smaller or \
            larger a page at a time. CFQ below shares the disk among VMs. A VM without a target is not \
            touched. For hard disks and arrays of them; on flash use vcup-mclock or vcup-drr.",
    controller: Some(&tuner::PART),
    regulator: &merge_limit::PART,
    dispatcher: &cfq::PART,
    // A VM's turn comes round when four others have had slices of 100 ms.
    presets: &[("batch", 400_000_000)],
};
