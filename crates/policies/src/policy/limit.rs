//! `limit`: caps, and nothing else: what operators have today.

use super::PolicyInfo;
use crate::dispatch::fifo;
use crate::regulate::token_bucket;

pub(super) const INFO: PolicyInfo = PolicyInfo {
    name: "limit",
    summary: "caps in IOPS and bytes/s, by direction, with bursts; then in order of arrival",
    source: "QEMU block throttling, libvirt iotune",
    about: "Each VM's limit is kept by a token bucket: total, reads and writes apart, requests \
            and bytes a second, bursts with a length. It protects neighbours only as far as \
            limits are set low, and gives no VM a floor: use mclock for that.",
    controller: None,
    regulator: &token_bucket::PART,
    dispatcher: &fifo::PART,
    presets: &[],
};
