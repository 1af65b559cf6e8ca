//! `lottery`: shares by weight, drawn.

use super::PolicyInfo;
use crate::dispatch::lottery;
use crate::regulate::open;

pub(super) const INFO: PolicyInfo = PolicyInfo {
    name: "lottery",
    summary: "shares by weight, by drawing tickets: nobody's pattern can play it",
    source: "Waldspurger, Weihl: Lottery scheduling, OSDI 1994",
    about: "Each VM that waits holds tickets by its weight, more if its last I/O was small; \
            one is drawn for each I/O. Shares hold in the long run: over n I/Os they stray by \
            about the square root of n, where sfq keeps them to one. What a VM may have does not \
            depend on when it asks. It knows no floors, caps or latency; for caps put the token \
            bucket in front.",
    controller: None,
    regulator: &open::PART,
    dispatcher: &lottery::PART,
    presets: &[],
};
