//! `edf`: what is due first goes first.

use super::PolicyInfo;
use crate::dispatch::edf;
use crate::regulate::open;

pub(super) const INFO: PolicyInfo = PolicyInfo {
    name: "edf",
    summary: "the earliest deadline first, by each VM's bound on latency",
    source: "Flubber (its baseline, without credits); Liu and Layland, JACM 1973",
    about: "Each request is due its VM's `latency` after it arrived, less a margin for serving it, \
            and the one that is due first goes next. Keeps bounds on latency as long as the device \
            is fast enough for all that is asked of it. It gives no shares: a VM that asks for more \
            than its part takes it from everybody, so put limits or credits in front where VMs \
            cannot be trusted. On disks that seek it pays for the order it keeps.",
    controller: None,
    regulator: &open::PART,
    dispatcher: &edf::PART,
    presets: &[],
};
