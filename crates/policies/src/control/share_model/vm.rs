//! State of one VM in the share model.

use super::feedback::OwnScale;
use tidegate_base::time::Nanos;

/// Weight of the newest period in the moving means, 0 to 1.
const NEWEST: f64 = 0.3;

/// State of one VM slot, in two cache lines: counts of the period, which requests change, and what
/// is evaluated once a period.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub(super) struct Vm {
    /// Number of the period in which the VM's last request arrived.
    pub(super) asked_in: u64,
    /// Sum of the device times of the requests answered in this period.
    pub(super) device: Nanos,
    /// Sum of the times from admission to answer of the requests answered in this period.
    pub(super) time_inside: Nanos,
    /// Requests answered in this period.
    pub(super) answered: u32,
    /// Weight of the VM's objective.
    pub(super) weight: u32,
    /// Index of the VM's group in [`ShareModel`](super::ShareModel)'s `groups`.
    pub(super) group: Option<u32>,
    /// A VM has the slot.
    pub(super) present: bool,
    /// The VM competes: its slot is in [`ShareModel`](super::ShareModel)'s `listed`.
    pub(super) listed: bool,
    /// Last part of the group's weight that was set
    /// ([`Knob::GroupPart`](tidegate_core::roles::Knob)); 0: none was.
    pub(super) group_part: u32,
    /// Last allocation that was set, in thousandths of a request per second; `None`: none was.
    pub(super) allocated: Option<u64>,
    /// Requests answered per second in the last period.
    pub(super) last_rate: f64,
    /// Moving mean of the requests answered per second.
    pub(super) rate: f64,
    /// Moving mean of the device time of a request in seconds; 0: no request was answered yet.
    pub(super) latency: f64,
    /// Moving mean of the number of the VM's requests that were admitted and not answered.
    pub(super) inside: f64,
    /// Factor by which the strict strategy cuts the VM's allocation, 0 to 1.
    pub(super) cut: f64,
    /// Correction of the VM's saturating rate P_i, requests per second of its pattern that saturate
    /// the device; `None`: the scale that is common to all VMs.
    pub(super) scale: Option<OwnScale>,
}

const _: () = assert!(size_of::<Vm>() == 128);

/// Slot without a VM.
pub(super) const VACANT: Vm = Vm {
    present: false,
    listed: false,
    weight: 0,
    group: None,
    group_part: 0,
    asked_in: 0,
    allocated: None,
    answered: 0,
    device: Nanos::ZERO,
    time_inside: Nanos::ZERO,
    last_rate: 0.0,
    rate: 0.0,
    latency: 0.0,
    inside: 0.0,
    cut: 1.0,
    scale: None,
};

impl Vm {
    /// Returns the factor for the VM's P_i where `common` is that of VMs without an own one.
    pub(super) fn scale_beside(&self, common: f64) -> f64 {
        self.scale.map_or(common, OwnScale::get)
    }

    /// Updates the means at the end of a period of `length` seconds.
    pub(super) fn settle(&mut self, length: f64) {
        let answered = f64::from(core::mem::take(&mut self.answered));
        let device = core::mem::take(&mut self.device).as_secs_f64();
        // Little's law: the time inside, summed over a period, is its length times the mean number.
        let inside = core::mem::take(&mut self.time_inside).as_secs_f64() / length;
        self.inside += NEWEST * (inside - self.inside);
        self.last_rate = answered / length;
        self.rate += NEWEST * (self.last_rate - self.rate);
        if answered > 0.0 {
            let mean = device / answered;
            self.latency += if self.latency == 0.0 {
                mean
            } else {
                NEWEST * (mean - self.latency)
            };
        }
    }
}
