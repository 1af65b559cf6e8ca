//! Division of a device among the hosts that share it, beside another controller.
//!
//! The [share model](ShareModel) computes this host's part of the device from the reports of all
//! hosts, and bounds the dispatcher's device time by it; the other controller turns the knobs that
//! it turns on a device of one host.

use super::share_model::ShareModel;
use tidegate_base::learnt_state::{Blob, BlobError};
use tidegate_base::request::VmId;
use tidegate_base::time::Nanos;
use tidegate_capacity::transfers::{ClassStatus, ForecastParams};
use tidegate_core::part::Capacity;
use tidegate_core::roles::{Controller, Event, Interests, Knobs, PeerShare};
use tidegate_core::tuning::Tuning;
use tidegate_core::view::View;

/// Controller that bounds a host's device time to its part, and passes everything on to another
/// controller.
pub(crate) struct AmongHosts {
    model: ShareModel,
    /// Controller that the policy has on a device of one host; `None` in policies without one.
    inner: Option<Box<dyn Controller>>,
}

impl AmongHosts {
    /// Creates the division with room for the VMs of `capacity`, beside `inner`.
    pub(crate) fn new(inner: Option<Box<dyn Controller>>, capacity: &Capacity) -> AmongHosts {
        AmongHosts {
            model: ShareModel::among_hosts(capacity),
            inner,
        }
    }
}

impl Controller for AmongHosts {
    fn interests(&self) -> Interests {
        let inner = self.inner.as_ref().map(|inner| inner.interests());
        self.model
            .interests()
            .union(inner.unwrap_or(Interests::NONE))
    }

    fn on_event(&mut self, view: &View, event: &Event, out: &mut Knobs) {
        if self.model.interests().has(event.interest()) {
            self.model.on_event(view, event, out);
        }
        if let Some(inner) = &mut self.inner
            && inner.interests().has(event.interest())
        {
            inner.on_event(view, event, out);
        }
    }

    fn next_timer(&self) -> Nanos {
        let inner = self.inner.as_ref().map(|inner| inner.next_timer());
        self.model.next_timer().min(inner.unwrap_or(Nanos::MAX))
    }

    fn on_timer(&mut self, view: &View, out: &mut Knobs) {
        if self.model.next_timer() <= view.now() {
            self.model.on_timer(view, out);
        }
        if let Some(inner) = &mut self.inner
            && inner.next_timer() <= view.now()
        {
            inner.on_timer(view, out);
        }
    }

    fn allocates(&self) -> bool {
        self.inner.as_ref().is_some_and(|inner| inner.allocates())
    }

    fn uses_costs(&self) -> bool {
        self.model.uses_costs() || self.inner.as_ref().is_some_and(|inner| inner.uses_costs())
    }

    fn forecast_params(&self) -> ForecastParams {
        let inner = self.inner.as_ref().map(|inner| inner.forecast_params());
        inner.unwrap_or_default()
    }

    fn class_status(&self, vm: VmId) -> Option<ClassStatus> {
        self.inner.as_ref()?.class_status(vm)
    }

    fn tuning(&self, view: &View, vm: VmId) -> Option<Tuning> {
        self.inner.as_ref()?.tuning(view, vm)
    }

    fn poll_share(&mut self) -> Option<PeerShare> {
        self.model.poll_share()
    }

    fn export(&self, view: &View, vm: VmId) -> Option<Blob> {
        self.inner.as_ref()?.export(view, vm)
    }

    fn import(&mut self, view: &View, vm: VmId, learnt: &Blob) -> Result<(), BlobError> {
        match &mut self.inner {
            Some(inner) => inner.import(view, vm, learnt),
            None => self.model.import(view, vm, learnt),
        }
    }

    fn import_moved(&mut self, view: &View, vm: VmId, learnt: &Blob) -> Result<(), BlobError> {
        match &mut self.inner {
            Some(inner) => inner.import_moved(view, vm, learnt),
            None => self.model.import_moved(view, vm, learnt),
        }
    }

    fn imported(&mut self, view: &View, out: &mut Knobs) {
        if let Some(inner) = &mut self.inner {
            inner.imported(view, out);
        }
    }
}
