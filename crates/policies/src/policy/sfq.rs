//! `sfq`: shares by weight, request by request.

use super::PolicyInfo;
use crate::dispatch::sfq;
use crate::regulate::open;

pub(super) const INFO: PolicyInfo = PolicyInfo {
    name: "sfq",
    summary: "shares by weight, fair from one request to the next",
    source: "Goyal et al.: SFQ, SIGCOMM 1996; Jin, Chase, Kaur: SFQ(D), SIGMETRICS 2004",
    about: "Of the VMs that wait, serves the one that had least for its weight. What one VM \
            leaves unused the others share at once; idle time saves nothing up. With a small \
            depth the order is kept closely, with a large one the device is kept busier. It \
            knows no floors, caps or latency: use mclock for those, or put the token bucket in \
            front.",
    controller: None,
    regulator: &open::PART,
    dispatcher: &sfq::PART,
    presets: &[],
};
