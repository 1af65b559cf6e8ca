//! Metrics of schedules.

use super::{Metric, Read, plain, renamed};

/// VM that has a schedule.
#[derive(Debug)]
pub(crate) struct Scheduled {
    pub(crate) vm: String,
    /// Name of the device.
    pub(crate) device: String,
    /// True if the objective that the schedule gives now is not in force.
    pub(crate) held: bool,
}

pub(super) static VM_METRICS: &[Metric<Scheduled>] = &[renamed(
    "schedule_held",
    plain(
        "schedule_not_applied",
        "1 if the objective that the VM's schedule gives now is not in force, because it does not \
         fit or its device does not answer; absent without a schedule",
        Read::Gauge(|vm| f64::from(u8::from(vm.held))),
    ),
)];
