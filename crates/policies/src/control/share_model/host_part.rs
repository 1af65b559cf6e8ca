//! Part of a shared device that this host has, as a bound on its dispatcher's device time: in place
//! of allocations, where the dispatcher itself orders VMs by their objectives.
//!
//! ```text
//!   part = sum over this host's VMs of w / sum w of all hosts, less what is lost by blending
//!   rate = part * scale                              Knobs::bound_device_time, in millionths
//! ```
//!
//! - *Inside* are the I/Os in flight, and those of the waiting ones that the unused device time
//!   would pay for: under credits the same requests would be admitted. Without these the feedback
//!   would not see that it lets in too much while every host keeps its queue at the device full. A
//!   host that fills the device's depth alone counts all that the unused time would pay for: its
//!   guests may keep no more outstanding than that.
//! - *Credits ran out* if something waited in the period that the bound alone held back.
//! - A host whose VMs do not compete has no part while VMs of other hosts compete: its background
//!   processes have one I/O every 500 ms. While all hosts that compete are silent, they have the
//!   part that this host is entitled to; while none competes, they are unbounded.

use tidegate_base::device::DeviceTimeUse;
use tidegate_core::roles::Knobs;
use tidegate_core::view::View;

/// Millionths of the device's time in all of it.
const WHOLE_PPM: f64 = 1e6;
/// Smallest rate while VMs compete, in millionths: a thousandth of the device, so that no VM waits
/// for minutes, whatever the weights.
const RATE_MIN_PPM: f64 = 1e3;

/// Rate that was set last, and the use of it.
#[derive(Debug)]
pub(super) struct HostPart {
    /// Rate that was set last in millionths of the device's time; `None`: none was set.
    rate_ppm: Option<Option<u64>>,
    /// Use at the end of the last period.
    before: DeviceTimeUse,
    /// Mean device time of an I/O in the last period in which any was charged, in picoseconds; 0:
    /// none was yet.
    mean_ps: f64,
}

impl HostPart {
    /// Creates the part of a host for which no rate was set yet.
    pub(super) fn new() -> HostPart {
        HostPart {
            rate_ppm: None,
            before: DeviceTimeUse::default(),
            mean_ps: 0.0,
        }
    }

    /// Returns the I/Os of VMs that are in flight, or could go by the unused device time.
    pub(super) fn inside(&self, view: &View) -> f64 {
        let device = view.device();
        let in_flight = device.in_flight - device.background.in_flight;
        let waiting = device.queued - device.pending - device.background.queued;
        let usage = device.time_use.unwrap_or_default();
        let payable = if self.mean_ps > 0.0 {
            usage.available_ps as f64 / self.mean_ps
        } else {
            0.0
        };
        let payable = if in_flight >= device.spec.depth {
            payable
        } else if usage.waits {
            payable.min(waiting.into())
        } else {
            0.0
        };
        f64::from(in_flight) + payable
    }

    /// Ends a period. Returns whether something waited in it that the bound alone held back.
    pub(super) fn end_period(&mut self, view: &View) -> bool {
        let now = view.device().time_use.unwrap_or_default();
        let before = core::mem::replace(&mut self.before, now);
        let ios = now.ios.saturating_sub(before.ios);
        if ios > 0 {
            let charged_ps = now.charged_ps.wrapping_sub(before.charged_ps);
            self.mean_ps = charged_ps as f64 / ios as f64;
        }
        now.held_picks > before.held_picks
    }

    /// Returns true if the VMs of this host have a rate.
    pub(super) fn has_rate(&self) -> bool {
        self.rate_ppm.flatten().is_some_and(|rate| rate > 0)
    }

    /// Sets the part of a host whose VMs compete, corrected by the scale.
    pub(super) fn set(&mut self, part: f64, out: &mut Knobs) {
        // Other hosts may report any losses, so the part may be negative.
        let rate = (part * WHOLE_PPM).max(RATE_MIN_PPM);
        // From a float that is out of range, `as` makes the nearest that is.
        self.set_rate(Some(rate as u64), out);
    }

    /// Sets the part of a host whose VMs do not compete: none if those of others do.
    pub(super) fn set_idle(&mut self, others_compete: bool, out: &mut Knobs) {
        self.set_rate(others_compete.then_some(0), out);
    }

    fn set_rate(&mut self, rate_ppm: Option<u64>, out: &mut Knobs) {
        if self.rate_ppm != Some(rate_ppm) {
            self.rate_ppm = Some(rate_ppm);
            out.bound_device_time(rate_ppm);
        }
    }
}
