//! `vcup-mclock`: targets held precisely, over mClock.

use super::PolicyInfo;
use crate::control::tuner;
use crate::dispatch::mclock;
use crate::regulate::merge_limit;

pub(super) const INFO: PolicyInfo = PolicyInfo {
    name: "vcup-mclock",
    summary: "the same over mClock: targets are floors, too; reservations, and weights for what is left",
    source: "Li et al., \"Customizable SLO and Its Near-Precise Enforcement for Storage Bandwidth\", ToS 2017",
    about: "The tuners of vcup above mClock: targets that are held precisely from above by their throttles \
            and from below as reservations, so that neighbours cannot take them; and reservations and \
            weights for the others, at the device's full depth.",
    controller: Some(&tuner::PART),
    regulator: &merge_limit::PART,
    dispatcher: &mclock::PART,
    // A slot waits until the device has room: for some of its neighbours' I/Os.
    presets: &[("target_floor", 1), ("batch", 20_000_000)],
};
