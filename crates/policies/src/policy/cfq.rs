//! `cfq`: time slices of the disk, by class and level of priority; what Linux had for hard disks.

use super::PolicyInfo;
use crate::dispatch::cfq;
use crate::regulate::open;

pub(super) const INFO: PolicyInfo = PolicyInfo {
    name: "cfq",
    summary: "time slices of the disk, by class and level of priority",
    source: "Linux 2.6 to 4.20, CFQ (Axboe)",
    about: "Gives each VM the device for a slice of time, by turns, longer for a higher level, and \
            waits a little for the next request of one that reads one thing after the other. \
            Real-time VMs go before all others, idle ones when nobody else asks. Made for disks \
            that seek; on flash it keeps the device emptier than it need be.",
    controller: None,
    regulator: &open::PART,
    dispatcher: &cfq::PART,
    presets: &[],
};
