//! Controller that changes VMs' merge limits at random, in front of the policy's own controller.
//! Limits rise and fall while requests wait, alone or merged, and while their parts are in flight,
//! under any policy.
//!
//! A limit is at least a physical block, the smallest part of a split request.

use super::TortureRng;
use tidegate_core::device::DeviceSpec;
use tidegate_core::learnt_state::{Blob, BlobError};
use tidegate_core::request::VmId;
use tidegate_core::roles::{Controller, Event, Interests, Knob, Knobs, PeerShare, Roles};
use tidegate_core::time::Nanos;
use tidegate_core::transfers::{ClassStatus, ForecastParams};
use tidegate_core::tuning::Tuning;
use tidegate_core::view::View;

/// Probability, in 1000, that an arriving request or a dispatched I/O is followed by a change of
/// the limit.
const CHANGE_PER_MILLE: u32 = 60;

/// Controller with an inner one, if the policy has any.
pub(super) struct RandomMergeLimits {
    inner: Option<Box<dyn Controller>>,
    interests: Interests,
    rng: TortureRng,
}

impl RandomMergeLimits {
    /// Puts the controller in front of the policy's own, if it has one.
    pub(super) fn in_front(seed: u64, roles: Roles) -> Roles {
        let interests = roles.controller.as_ref();
        let controller = RandomMergeLimits {
            interests: interests.map_or(Interests::NONE, |inner| inner.interests()),
            inner: roles.controller,
            rng: TortureRng::new(seed, 15),
        };
        Roles {
            controller: Some(Box::new(controller)),
            ..roles
        }
    }

    fn turn(&mut self, device: &DeviceSpec, vm: VmId, out: &mut Knobs) {
        if !self.rng.chance(CHANGE_PER_MILLE) {
            return;
        }
        // Up to twice the largest I/O: beyond it the device's own bound holds.
        let most = 2 * u64::from(device.max_io);
        let limit = if self.rng.chance(200) {
            // No limit at all, in one case of five.
            u32::MAX
        } else {
            self.rng.octaves(device.physical_block.into(), most) as u32
        };
        out.set(vm, Knob::MergeLimit(limit));
    }
}

impl Controller for RandomMergeLimits {
    fn interests(&self) -> Interests {
        (self.interests.union(Interests::ARRIVED)).union(Interests::STARTED)
    }

    fn on_event(&mut self, view: &View, event: &Event, out: &mut Knobs) {
        let vm = match *event {
            Event::Arrived(unit) => Some(view.queued(unit).vm_lane().0),
            Event::Started(io) => Some(io.vm),
            _ => None,
        };
        // Background processes have no knobs.
        if let Some(vm) = vm.filter(|&vm| !view.is_background(vm)) {
            self.turn(&view.device().spec, vm, out);
        }
        if let Some(inner) = &mut self.inner
            // The engine would not have called the inner controller for the events added above.
            && self.interests.has(event.interest())
        {
            inner.on_event(view, event, out);
        }
    }

    fn next_timer(&self) -> Nanos {
        let inner = self.inner.as_ref();
        inner.map_or(Nanos::MAX, |inner| inner.next_timer())
    }

    fn on_timer(&mut self, view: &View, out: &mut Knobs) {
        if let Some(inner) = &mut self.inner {
            inner.on_timer(view, out);
        }
    }

    fn allocates(&self) -> bool {
        self.inner.as_ref().is_some_and(|inner| inner.allocates())
    }

    fn uses_costs(&self) -> bool {
        let inner = self.inner.as_ref();
        inner.is_some_and(|inner| inner.uses_costs())
    }

    fn forecast_params(&self) -> ForecastParams {
        let inner = self.inner.as_ref();
        inner.map_or_else(ForecastParams::default, |inner| inner.forecast_params())
    }

    fn class_status(&self, vm: VmId) -> Option<ClassStatus> {
        self.inner.as_ref()?.class_status(vm)
    }

    fn tuning(&self, view: &View, vm: VmId) -> Option<Tuning> {
        self.inner.as_ref()?.tuning(view, vm)
    }

    fn poll_share(&mut self) -> Option<PeerShare> {
        self.inner.as_mut()?.poll_share()
    }

    fn export(&self, view: &View, vm: VmId) -> Option<Blob> {
        self.inner.as_ref()?.export(view, vm)
    }

    fn import(&mut self, view: &View, vm: VmId, learnt: &Blob) -> Result<(), BlobError> {
        match &mut self.inner {
            Some(inner) => inner.import(view, vm, learnt),
            None => Err(BlobError::Unwanted("the controller learns nothing")),
        }
    }

    fn imported(&mut self, view: &View, out: &mut Knobs) {
        if let Some(inner) = &mut self.inner {
            inner.imported(view, out);
        }
    }
}
