//! `vfair`: fair shares of the device by what requests cost it.

use super::PolicyInfo;
use crate::control::share_model;
use crate::dispatch::cost::CostBy;
use crate::dispatch::sfq;
use crate::regulate::circ;

/// SFQ(D) with the paper's depth, and a request's cost in its VM's allocation alone.
pub(super) const PRESETS: &[(&str, u64)] = &[("depth", 32), ("cost", CostBy::Requests.word())];

pub(super) const INFO: PolicyInfo = PolicyInfo {
    name: "vfair",
    summary: "shares of the device by weight, whatever each VM's requests cost it",
    source: "Lu et al., \"vFair: Latency-Aware Fair Storage Scheduling\", SoCC 2015",
    about: "By the device's profile and what a VM's requests are like it is known how many of them \
            a second would saturate the device; each VM may have its weight's part of that, \
            whatever the others do. So a VM with few small requests gets its share beside one \
            with many large ones. What a VM does not use the others have; a short burst is let \
            through. It needs the device's profile (tidegate profile).",
    controller: Some(&share_model::PART),
    regulator: &circ::PART,
    dispatcher: &sfq::PART,
    presets: PRESETS,
};
