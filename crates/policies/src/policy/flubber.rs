//! `flubber`: credits for throughput over batches and waits between deadlines.

use super::PolicyInfo;
use crate::control::credit_feedback;
use crate::dispatch::bd_edf;
use crate::regulate::vbc;

pub(super) const INFO: PolicyInfo = PolicyInfo {
    name: "flubber",
    summary: "credits in proportion to reservations, then batches as far as deadlines allow",
    source: "Jin et al., \"Flubber: Two-level Disk Scheduling in Virtualized Environment\", 2013",
    about: "Each VM may have as many requests in a turn as its reservation is of all of them, \
            more once it missed its IOPS or its latency. What has been let in goes by deadlines, \
            but while the earliest lies ahead the disk goes on with what continues the last I/O \
            or comes from the same VM, and waits for it. For hard disks whose VMs are promised \
            IOPS and a latency.",
    controller: Some(&credit_feedback::PART),
    regulator: &vbc::PART,
    dispatcher: &bd_edf::PART,
    presets: &[],
};
