//! `mclock`: a floor, a cap and a share for every VM.

use super::PolicyInfo;
use crate::dispatch::mclock;
use crate::regulate::open;

pub(super) const INFO: PolicyInfo = PolicyInfo {
    name: "mclock",
    summary: "reservation, limit and weight for every VM",
    source: "Gulati, Merchant, Varman: mClock, OSDI 2010",
    about: "Serves overdue reservations first, then shares what is left by weight among VMs \
            below their limit. Reservations must together fit the device. It knows no latency: \
            a VM's reservation stands in for it, since a VM that asks for less than its \
            reservation hardly waits. Caps by direction and bursts need the token bucket: \
            policy = { regulator = \"token-bucket\", dispatcher = \"mclock\" }.",
    controller: None,
    regulator: &open::PART,
    dispatcher: &mclock::PART,
    presets: &[],
};
