//! State of one VM in the share model.

use super::feedback::OwnScale;
use tidegate_base::time::Nanos;

/// Weight of the newest period in a moving mean.
const NEWEST: f64 = 0.3;

/// State of one VM slot.
#[derive(Clone, Copy, Debug)]
pub(super) struct Vm {
    pub(super) present: bool,
    /// The VM's slot is in `listed`.
    pub(super) listed: bool,
    /// Weight of the objective.
    pub(super) weight: u32,
    /// Index of its group in `groups`.
    pub(super) group: Option<u32>,
    /// Number of the period in which the VM's last request arrived.
    pub(super) asked_in: u64,
    /// Last allocation set, in thousandths of a request a second; `None`: none was.
    pub(super) allocated: Option<u64>,
    /// Requests answered in this period, and the sum of their device times.
    pub(super) answered: u32,
    pub(super) device: Nanos,
    /// Sum over those requests of the time since their admission.
    pub(super) time_inside: Nanos,
    /// Requests answered a second in the last period.
    pub(super) last_rate: f64,
    /// Moving means: requests answered a second, and device time of a request in seconds.
    pub(super) rate: f64,
    pub(super) latency: f64,
    /// Moving mean of the VM's requests that were admitted and not done.
    pub(super) inside: f64,
    /// Factor of the strict strategy's cuts, 0 to 1.
    pub(super) cut: f64,
    /// Correction of its P_i; `None`: the common scale.
    pub(super) scale: Option<OwnScale>,
}

/// Slot without a VM.
pub(super) const VACANT: Vm = Vm {
    present: false,
    listed: false,
    weight: 0,
    group: None,
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
    /// Updates the means at the end of a period of `length` seconds.
    pub(super) fn settle(&mut self, length: f64) {
        let answered = f64::from(core::mem::take(&mut self.answered));
        let device = core::mem::take(&mut self.device).as_secs_f64();
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
