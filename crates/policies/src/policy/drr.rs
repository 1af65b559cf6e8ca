//! `drr`: shares by weight in turns, at the lowest cost.

use super::PolicyInfo;
use crate::dispatch::drr;
use crate::regulate::open;

pub(super) const INFO: PolicyInfo = PolicyInfo {
    name: "drr",
    summary: "shares by weight in turns, nearly as cheap as the order of arrival",
    source: "Shreedhar, Varghese: Deficit round robin, SIGCOMM 1995",
    about: "Gives VMs turns one after the other, each for as many bytes as its weight says. \
            A decision takes as long among ten VMs as among a hundred thousand. A VM waits for the turns of \
            all others, so times vary more than with sfq, most where weights lie far apart. \
            It knows no floors, caps or latency; for caps put the token bucket in front.",
    controller: None,
    regulator: &open::PART,
    dispatcher: &drr::PART,
    presets: &[],
};
