//! Interface of a driver to the device: questions and settings.

use super::hung::{HungDisk, HungDisks, Patience};
use super::in_flight::InFlightIo;
use super::promises::Feasibility;
use super::transfer_accounts;
use super::{Engine, NIL};
use crate::device_monitor::{DeviceAlert, Drift, LearntCap};
use crate::queue_depth::{DepthBound, DepthTuning, DepthView};
use crate::roles::{Event, SteppedDown, Waits};
use crate::splitting::MaxIoShared;
use std::sync::Arc;
use tidegate_base::learnt_state::{Blob, BlobError};
use tidegate_base::request::{DiskId, IoId};
use tidegate_base::time::Nanos;
use tidegate_capacity::estimator::{CostEstimator, LearntCosts};
use tidegate_capacity::profile::Profile;

/// Read-only view of the device; see [`Engine::device`].
pub struct Device<'a> {
    pub(super) engine: &'a Engine,
}

impl<'a> Device<'a> {
    /// Returns the time since which no I/O of a disk has ended, if the disk hangs; `None`: it does
    /// not, or was removed.
    pub fn hung_since(&self, disk: DiskId) -> Option<Nanos> {
        let hung = self.engine.hung.as_ref()?.find(disk.index)?;
        self.engine.directory.is_current(disk).then_some(hung.since)
    }

    /// Returns whether any disk hangs.
    pub fn any_hung(&self) -> bool {
        self.engine.any_hung
    }

    /// Returns whether an I/O is with the device and counts against its depth.
    pub fn is_counted(&self, io: IoId) -> bool {
        self.engine
            .in_flight
            .get(io)
            .is_some_and(InFlightIo::is_counted)
    }

    /// Iterates over all I/Os with the device: the disk of each, and when it started.
    pub fn ios_in_flight(&self) -> impl Iterator<Item = (DiskId, Nanos)> + 'a {
        let live = self.engine.in_flight.iter();
        live.map(|slot| (slot.io.disk, slot.started))
    }

    /// Time for which the device may block the next request, by which a floor's requests may be
    /// late. See [`DeviceMut::set_blocking_time`].
    pub fn blocking_time(&self) -> Nanos {
        self.engine.attainment.blocking()
    }

    /// Returns the outcome of reckoning all promises on the device together
    /// ([`DeviceMut::reckon_promises`]); `None`: costs of requests are not known yet, or only from
    /// imprecise points of the profile.
    pub fn feasibility(&self) -> Option<Feasibility> {
        self.engine.promises.outcome()
    }

    /// Returns the promises that are suspended for now because the device is slower than promised.
    pub fn stepped_down(&self) -> SteppedDown {
        self.engine.active.roles.dispatcher.stepped_down()
    }

    /// Returns whether promises have changed since they were reckoned together.
    pub fn has_promises_to_reckon(&self) -> bool {
        self.engine.promises.is_due()
    }

    /// Number of I/Os in flight that do not count against the device's depth.
    pub fn uncounted(&self) -> u32 {
        self.engine.hung.as_ref().map_or(0, |hung| hung.uncounted)
    }

    /// Comparison of the device with its profile; `None`: it has none.
    pub fn drift(&self) -> Option<Drift> {
        self.engine.control.monitor.as_ref()?.drift()
    }

    /// Learnt cap below the device's own throughput; `None`: none was found.
    pub fn learnt_cap(&self) -> Option<LearntCap> {
        self.engine.control.monitor.as_ref()?.cap()
    }

    /// Exports the learnt cap, to be persisted; `None`: none is known.
    pub fn export_cap(&self) -> Option<Blob> {
        self.engine.control.monitor.as_ref()?.export_cap()
    }

    /// Returns the adapted depth in force; `None`: the configured one holds.
    pub fn adapted_depth(&self) -> Option<u32> {
        self.adapted().map(|adapted| adapted.depth)
    }

    /// Returns the adapted depth in force and the reason for it; `None`: the configured one holds.
    pub fn adapted(&self) -> Option<DepthView> {
        let control = self.engine.control.depth_control.as_ref();
        control.map(|control| control.view())
    }

    /// Returns the largest I/O in bytes while VMs share the device, in use now; 0: not shortened.
    pub fn shared_io(&self) -> u32 {
        let splitting = self.engine.control.splitting.as_ref();
        splitting.map_or(0, |splitting| match splitting.longest() {
            u32::MAX => 0,
            longest => longest,
        })
    }

    /// Costs of requests as learnt so far; `None`: they are not being learnt.
    pub fn learnt_costs(&self) -> Option<LearntCosts> {
        self.engine.view.estimator().map(CostEstimator::learnt)
    }

    /// Exports the learnt costs, to be persisted; `None`: they are not being learnt, or nothing was
    /// learnt since [`DeviceMut::import_costs`].
    pub fn export_costs(&self) -> Option<Blob> {
        self.engine.view.estimator().and_then(CostEstimator::export)
    }

    /// Deliberate waits of the dispatcher in force; `None`: it never waits for requests that may
    /// come.
    pub fn waits(&self) -> Option<Waits> {
        self.engine.active.roles.dispatcher.waits()
    }

    /// Returns whether waiting requests are held back whatever the policy: by a learnt cap, by the
    /// adapted depth, or by a place that is kept for an expected request. The device is as good as
    /// full then.
    pub fn is_held(&self) -> bool {
        let full = self.engine.view.queues.device.in_flight >= self.engine.control.limit;
        self.engine.control.held_since.is_some() || self.engine.control.keeps_place || full
    }
}

/// Changes of the device; see [`Engine::device_mut`].
pub struct DeviceMut<'a> {
    pub(super) engine: &'a mut Engine,
}

impl DeviceMut<'_> {
    /// Sets the time for which the device may block the next request, by which floors are judged
    /// from now on: the I/Os that may be in flight times the service time of the largest part.
    /// `None`: 10 ms for flash, 50 ms for a device that positions.
    pub fn set_blocking_time(&mut self, blocking: Option<Nanos>) {
        self.engine.attainment.set_blocking(blocking);
    }

    /// Reckons all promises on the device together, if they or the costs of requests have changed
    /// since the last time. The adapted depth then keeps to the bound that latencies leave, and
    /// floors are judged by the blocking time. Costs are the profile's, or the learnt ones once
    /// they are known; before that nothing is bounded. To be called with every batch of events,
    /// before [`Engine::poll_dispatch`]: nearly always it returns at once, for it reckons at most
    /// ten times a second. Returns whether it has.
    #[inline]
    pub fn reckon_promises(&mut self, now: Nanos) -> bool {
        let Engine {
            view,
            control,
            promises,
            attainment,
            ..
        } = &mut *self.engine;
        promises.follow_costs(view);
        promises.follow_depth(view, control, attainment);
        if !self.engine.promises.is_due() {
            return false;
        }
        self.engine.view.queues.advance(now);
        let Engine {
            view,
            control,
            attainment,
            promises,
            active,
            ..
        } = &mut *self.engine;
        promises.reckon(view, control, attainment, &*active.roles.dispatcher)
    }

    /// Takes disks that hang out of the depth count from now on, when
    /// [`DeviceMut::look_for_hung_disks`] finds them. From then on up to
    /// [`DeviceSpec::io_slots`](super::DeviceSpec::io_slots) I/Os are in flight at once. Panics
    /// while anything is in flight.
    pub fn set_hung_disks_aside(&mut self, now: Nanos, patience: Patience) {
        self.engine.view.queues.advance(now);
        assert!(
            self.engine.view.queues.device.in_flight == 0,
            "the slab of I/Os grows only while none is in flight"
        );
        if self.engine.hung.is_some() {
            return;
        }
        let (disks, device) = (
            self.engine.directory.disk_slots(),
            &self.engine.config.device,
        );
        let (most, slots) = (device.uncounted_most(), device.io_slots());
        self.engine.in_flight.grow(slots);
        let hung = HungDisks::new(disks, most, patience);
        self.engine.hung = Some(Box::new(hung));
    }

    /// Looks for disks that hang, and takes them out of the depth count; to be called about once a
    /// second, with [`Engine::poll_dispatch`] after it. Returns whether anything has changed.
    pub fn look_for_hung_disks(&mut self, now: Nanos) -> bool {
        self.engine.view.queues.advance(now);
        let Some(mut hung) = self.engine.hung.take() else {
            return false;
        };
        hung.gather(self.engine.in_flight.iter());
        let mut silent = hung.silent(self.engine.view.queues.now);
        if !silent.is_empty() {
            let others = hung.last_end_of_others(&silent);
            // An end of another disk's I/O within that time shows that the device itself works.
            let lately = others > Nanos::ZERO
                && self.engine.view.queues.now.since(others) <= hung.patience.data;
            let all = hung.hold_the_device(&silent) && self.others_wait(&hung, &silent);
            // A disk is blamed only if the device works for others; otherwise the device itself is
            // slow.
            silent.retain(|&(_, since)| all || (lately && others > since));
        }
        for &(disk, since) in &silent {
            hung.hung.push(HungDisk {
                disk,
                since,
                probed: false,
                parked: Vec::new(),
            });
        }
        self.engine.any_hung = !hung.hung.is_empty();
        let before = hung.uncounted;
        // Also I/Os of disks found before, for which there was no room then.
        for index in 0..self.engine.in_flight.slots() {
            let slot = self.engine.in_flight.io_at(index);
            let hangs = self.engine.in_flight.is_taken(index)
                && slot.is_counted()
                && hung.find(slot.io.disk.index).is_some();
            if hangs && hung.has_room() {
                hung.uncounted += 1;
                self.engine.uncount(index);
            }
        }
        let changed = !silent.is_empty() || hung.uncounted > before;
        self.engine.hung = Some(hung);
        changed
    }

    /// Returns whether a request waits for a disk that is neither silent nor hangs.
    fn others_wait(&self, hung: &HungDisks, silent: &[(u32, Nanos)]) -> bool {
        let other =
            |disk: u32| silent.iter().all(|&(of, _)| of != disk) && hung.find(disk).is_none();
        let hot = &self.engine.view.queues.reqs.hot;
        let waits = |first: u32| {
            let mut unit = first;
            core::iter::from_fn(move || {
                let this = unit;
                (this != NIL).then(|| {
                    unit = hot[this as usize].next;
                    this
                })
            })
        };
        let mut lanes = self.engine.view.queues.vms.iter().flat_map(|vm| &vm.lanes);
        self.engine.flushes.turns().any(other)
            || lanes.any(|lane| {
                waits(lane.head)
                    .any(|unit| other(self.engine.view.queues.reqs.cold[unit as usize].disk))
            })
    }

    /// Sets the device's profile, which costs and controllers use from the next request on, and the
    /// monitor compares the device with; `None`: it is not known any more.
    pub fn set_profile(&mut self, profile: Option<Arc<Profile>>) {
        self.engine.view.profile = profile;
        // A profile outweighs learnt seeks, and without one they are learnt anew.
        let device = &mut self.engine.view.queues.device;
        device.seeks = device.spec.positioning > Nanos::ZERO;
        if let Some(splitting) = &mut self.engine.control.splitting {
            splitting.set_profile(self.engine.view.profile.as_deref());
        }
        let view = &self.engine.view;
        if let Some(control) = &mut self.engine.control.depth_control {
            let (spec, now) = (&view.queues.device.spec, view.queues.now);
            control.set_profile(spec, view.profile.as_deref(), now);
        }
        self.engine.promises.profile_changed(view.queues.now);
        self.engine.control.bound_depth(view);
        self.engine
            .control
            .estimate_costs(&mut self.engine.view, &self.engine.active.roles);
        transfer_accounts::transfers_profile_changed(&mut self.engine.view);
        self.engine
            .active
            .emit(&mut self.engine.view, &Event::ProfileChanged);
        self.engine.control.watch_device(&mut self.engine.view);
    }

    /// Sets whether a cap in front of the device is learnt and kept: then I/Os go just slower than
    /// the cap lets them pass, so that they queue here, where the policy decides, and not behind
    /// it. Off at first; a learnt cap is forgotten when this is turned off.
    pub fn learn_cap(&mut self, learns: bool) {
        self.engine.control.learns_cap = learns;
        self.engine.control.watch_device(&mut self.engine.view);
    }

    /// Starts with a cap that was learnt before, in I/Os and bytes a second, so that it need not be
    /// learnt again after a restart. A changed cap is found out as usual. Without effect where caps
    /// are not learnt.
    pub fn assume_cap(&mut self, now: Nanos, iops: Option<u64>, bytes_per_s: Option<u64>) {
        self.engine.view.queues.advance(now);
        if let Some(monitor) = &mut self.engine.control.monitor {
            monitor.assume_cap(self.engine.view.queues.now, iops, bytes_per_s);
        }
    }

    /// Sets whether the costs of requests are learnt ([`CostEstimator`]) in any case. Off at first:
    /// then they are learnt where the policy uses costs and there is no profile. Learnt costs are
    /// forgotten when there is no reason left.
    pub fn learn_costs(&mut self, learns: bool) {
        self.engine.control.learns_costs = learns;
        self.engine
            .control
            .estimate_costs(&mut self.engine.view, &self.engine.active.roles);
    }

    /// Continues with costs that were learnt of this device before ([`CostEstimator::import`]).
    ///
    /// # Errors
    /// If costs are not learnt here, or the blob does not hold them. Then nothing has changed.
    pub fn import_costs(&mut self, learnt: &Blob) -> Result<(), BlobError> {
        match &mut self.engine.view.estimator {
            Some(estimator) => estimator.import(learnt),
            None => Err(BlobError::Unwanted("there is a profile, or no policy asks")),
        }
    }

    /// Starts with a cap that was learnt of this device before, as [`DeviceMut::assume_cap`].
    ///
    /// # Errors
    /// If caps are not learnt here, or the blob does not hold one. Then nothing has changed.
    pub fn import_cap(&mut self, now: Nanos, learnt: &Blob) -> Result<(), BlobError> {
        self.engine.view.queues.advance(now);
        match &mut self.engine.control.monitor {
            Some(monitor) => monitor.import_cap(self.engine.view.queues.now, learnt),
            None => Err(BlobError::Unwanted("no cap is to be learnt")),
        }
    }

    /// Returns the next alert for the operator since the last call; to be called until `None`,
    /// about once a second.
    pub fn poll_alert(&mut self) -> Option<DeviceAlert> {
        self.engine.control.monitor.as_mut()?.take_alert()
    }

    /// Sets whether the device's queue is kept only as deep as its throughput needs, at most the
    /// configured depth, which holds otherwise. Off at first.
    pub fn adapt_depth(&mut self, now: Nanos, adapts: bool) {
        self.engine.view.queues.advance(now);
        self.engine.control.adapt_depth(&self.engine.view, adapts);
        self.engine.promises.changed(self.engine.view.queues.now);
    }

    /// Sets the amount of queueing with the device that is allowed where the depth is adapted.
    pub fn tune_depth(&mut self, now: Nanos, tuning: DepthTuning) {
        self.engine.view.queues.advance(now);
        let now = self.engine.view.queues.now;
        self.engine.control.depth_tuning = tuning;
        if let Some(control) = &mut self.engine.control.depth_control {
            control.set_tuning(now, tuning);
        }
        self.engine.control.bound_depth(&self.engine.view);
    }

    /// Bounds the adapted depth from outside, in addition to the bound by latency objectives;
    /// `None`: no such bound. Without effect where the depth is not adapted.
    pub fn set_depth_bound(&mut self, bound: Option<DepthBound>) {
        if let Some(control) = &mut self.engine.control.depth_control {
            control.set_bound(bound);
        }
        self.engine.control.bound_depth(&self.engine.view);
    }

    /// Sets the maximum bytes of an I/O while other VMs use the device, too; at least a physical
    /// block. Unless it is off, a place is kept for a VM whose next request is expected soon.
    pub fn share_io(&mut self, asked: MaxIoShared) {
        self.engine.control.share_io(&self.engine.view, asked);
        self.engine.promises.changed(self.engine.view.queues.now);
        self.engine
            .control
            .estimate_costs(&mut self.engine.view, &self.engine.active.roles);
    }
}
