//! `deadline`: good order on the disk, and nobody forgotten; what most Linux hosts run.

use super::PolicyInfo;
use crate::dispatch::deadline;
use crate::regulate::open;

pub(super) const INFO: PolicyInfo = PolicyInfo {
    name: "deadline",
    summary: "batches in the order of addresses, reads before writes, nothing forgotten",
    source: "Linux mq-deadline",
    about: "Serves batches of reads or of writes in the order of their addresses, prefers reads, \
            and begins with the oldest once it has waited too long. Made for disks that seek, \
            where it gets much more done than the order of arrival. It knows no VMs: one that \
            keeps many requests waiting takes the device, as on a plain Linux host.",
    controller: None,
    regulator: &open::PART,
    dispatcher: &deadline::PART,
    presets: &[],
};
