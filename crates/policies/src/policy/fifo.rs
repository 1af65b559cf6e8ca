//! `fifo`: the order of arrival, as a device without a scheduler has it.

use super::PolicyInfo;
use crate::dispatch::fifo;
use crate::regulate::open;

pub(super) const INFO: PolicyInfo = PolicyInfo {
    name: "fifo",
    summary: "first in, first out: no isolation, the yardstick for all others",
    source: "what a host without an I/O scheduler does",
    about: "Serves requests of all VMs in the order they arrive. Nothing is held back and \
            nothing is promised: a VM that keeps many requests waiting takes the device. \
            Cheapest of all; right for one VM alone, or to see what the others are worth.",
    controller: None,
    regulator: &open::PART,
    dispatcher: &fifo::PART,
    presets: &[],
};
