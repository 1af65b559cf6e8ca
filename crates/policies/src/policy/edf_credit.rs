//! `edf-credit`: credits for throughput, deadlines for latency, no waiting; what Flubber is
//! measured against.

use super::PolicyInfo;
use crate::control::credit_feedback;
use crate::dispatch::edf;
use crate::regulate::vbc;

pub(super) const INFO: PolicyInfo = PolicyInfo {
    name: "edf-credit",
    summary: "credits in proportion to reservations, then the earliest deadline first",
    source: "Jin et al., \"Flubber\", 2013 (its baseline, EDF with credit controlling)",
    about: "Each VM may have as many requests in a turn as its reservation is of all of them, \
            more once it missed its IOPS or its latency; what has been let in goes by deadlines. \
            It keeps proportions and bounds waiting, and looks at no addresses: on a disk that \
            seeks it pays for that.",
    controller: Some(&credit_feedback::PART),
    regulator: &vbc::PART,
    dispatcher: &edf::PART,
    presets: &[],
};
