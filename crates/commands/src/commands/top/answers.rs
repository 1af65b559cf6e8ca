//! Answers of the daemon that one refresh of the screen is made of.

use std::collections::BTreeMap;

use tidegate_api::device::DeviceView;
use tidegate_api::health::Health;
use tidegate_api::history::HistoryView;
use tidegate_api::stats::StatsView;
use tidegate_api::transfer::VmTransfersView;
use tidegate_api::vm::VmView;

/// Answers of the daemon to one round of requests.
#[derive(Clone, Debug)]
pub(super) struct Answers {
    /// Time at which the first request was sent, in milliseconds since 1970.
    pub(super) asked_ms: u64,
    /// Time of the last answer.
    pub(super) at_ms: u64,
    pub(super) health: Health,
    pub(super) devices: Vec<DeviceView>,
    pub(super) vms: Vec<VmView>,
    /// Counters with the buckets of their histograms.
    pub(super) stats: StatsView,
    pub(super) transfers: Vec<VmTransfersView>,
    /// Last seconds of each device by name; without those whose history is turned off.
    pub(super) device_seconds: BTreeMap<String, HistoryView>,
}
