//! Steps of a pick and a charge on a device that other hosts share: what goes by share keeps to the
//! host's part of the device ([`device_time`](super::device_time)).

use super::device_time::ChargedAs;
use super::{PickReason, Slo};
use tidegate_base::request::{DeviceIo, Op};
use tidegate_base::time::Nanos;
use tidegate_core::view::View;

impl Slo {
    /// Returns true if VMs compete on any host that shares the device.
    pub(super) fn is_bounded(&self) -> bool {
        let time = self.device_time.as_ref();
        time.is_some_and(|time| time.is_bounded())
    }

    /// Returns whether I/Os by share wait because the host has used its part of the device.
    #[inline]
    pub(super) fn is_share_held(&self, now: Nanos) -> bool {
        let time = self.device_time.as_ref();
        time.is_some_and(|time| time.share_held_until(now).is_some())
    }

    /// Returns the time until which a VM that is next by share waits because the host has used its
    /// part of the device, or at which the next promise is due.
    pub(super) fn share_held_until(&mut self, now: Nanos) -> Option<Nanos> {
        let time = self.device_time.as_mut()?;
        let until = time.share_held_until(now)?;
        time.record_held_pick();
        Some(until.min(self.promises.next_coming()))
    }

    /// Charges an I/O of this cost to the host's part of the device. Costs in bytes, before costs
    /// are learnt, are no time of the device.
    #[cold]
    #[inline(never)]
    pub(super) fn charge_device_time(&mut self, view: &View, io: &DeviceIo, cost: u64) {
        let slot = io.vm.index();
        let by_promise = self.last_pick == PickReason::Promise && self.promises.has_rate(slot);
        let charged_as = if view.is_background(io.vm) {
            ChargedAs::Background
        } else if by_promise || io.op == Op::Flush {
            ChargedAs::Promise
        } else {
            ChargedAs::Share
        };
        if let Some(time) = &mut self.device_time
            && self.by_time
        {
            time.charge(view.now(), cost, charged_as);
        }
    }
}
