//! Interface of a driver to the device: state and settings. A driver feeds the engine with events
//! and carries its I/Os out: the server's event loop, or a simulated device.

use super::hung::{HungDisk, HungDisks, SilenceTimeouts};
use super::in_flight::InFlightIo;
use super::promises::Feasibility;
use super::transfer_accounts;
use super::{Engine, NIL};
use crate::device_monitor::{DeviceAlert, Drift, LearntCap};
use crate::interference::CostSource;
use crate::queue_depth::{DepthBound, DepthTuning, DepthView};
use crate::roles::{Event, HostWeight, SteppedDown, Waits};
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

    /// Blocking time: how long the device may be busy with other I/Os when a request is due. A
    /// request within its reservation or target counts as late only beyond it. See
    /// [`DeviceMut::set_blocking_time`].
    pub fn blocking_time(&self) -> Nanos {
        self.engine.attainment.blocking()
    }

    /// Total time of stalls that have ended: 100 ms and more in which I/Os were in flight and none
    /// ended.
    pub fn stalled(&self) -> Nanos {
        self.engine.attainment.stalled()
    }

    /// Returns the outcome of the last feasibility check ([`DeviceMut::check_feasibility`]);
    /// `None`: costs of requests are not known yet, or only from imprecise points of the profile.
    pub fn feasibility(&self) -> Option<Feasibility> {
        self.engine.promises.outcome()
    }

    /// Returns the promises that are suspended for now because the device is slower than promised.
    pub fn stepped_down(&self) -> SteppedDown {
        self.engine.active.roles.dispatcher.stepped_down()
    }

    /// Returns the rate in bytes a second that writes without a promise are held to for the sake of
    /// promised requests; `None`: they are not.
    pub fn write_pace(&self) -> Option<u64> {
        self.engine.active.roles.dispatcher.write_pace()
    }

    /// Returns whether promises or costs have changed since the last feasibility check.
    pub fn is_feasibility_check_due(&self) -> bool {
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

    /// Returns the largest I/O in bytes while VMs share the device, in use now; `None`: I/Os are
    /// not split.
    pub fn max_io_shared(&self) -> Option<u32> {
        self.engine.control.longest_part(u32::MAX)
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

    /// Origin of the device times by which waits are attributed to VMs.
    pub fn cost_source(&self) -> CostSource {
        self.engine.interference.cost_source()
    }

    /// Deliberate waits of the dispatcher in force; `None`: it never waits for requests that may
    /// come.
    pub fn waits(&self) -> Option<Waits> {
        let waits = self.engine.active.roles.dispatcher.waits();
        debug_assert!(
            waits.is_none_or(|waits| waits.succeeded <= waits.begun),
            "more waits have ended than have begun: {waits:?}"
        );
        waits
    }

    /// Returns whether nothing can be dispatched just now whatever the policy: the depth in force
    /// is used up, a learnt cap holds I/Os back, or the last free place of the queue is reserved
    /// for the expected next request of a VM.
    pub fn is_dispatch_blocked(&self) -> bool {
        let full = self.engine.view.queues.device.in_flight >= self.engine.control.limit;
        self.engine.control.held_since.is_some() || self.engine.control.reserves_place || full
    }
}

/// Changes of the device; see [`Engine::device_mut`].
pub struct DeviceMut<'a> {
    pub(super) engine: &'a mut Engine,
}

impl DeviceMut<'_> {
    /// Assumes that VMs with this sum of weights compete on a host that shares the device and does
    /// not report, until its next message ([`Engine::handle_peer`]); 0: it has withdrawn. The scale
    /// of saturation rates does not rise meanwhile, because the device is idle to that extent on
    /// purpose. To be repeated after [`Engine::set_policy`].
    ///
    /// # Panics
    /// If the weight is not finite, or negative.
    pub fn assume_peer(&mut self, now: Nanos, host: u32, weight: f64) {
        assert!(
            weight.is_finite() && weight >= 0.0,
            "a sum of weights of {weight}"
        );
        let Engine { view, active, .. } = &mut *self.engine;
        view.queues.advance(now);
        active.emit(view, &Event::PeerSilent { host, weight });
    }

    /// Sets the rule for the sum of this host's weights beside those of the hosts that share the
    /// device. To be repeated after [`Engine::set_policy`].
    pub fn set_host_weight(&mut self, now: Nanos, weight: HostWeight) {
        let Engine { view, active, .. } = &mut *self.engine;
        view.queues.advance(now);
        active.emit(view, &Event::HostWeight(weight));
    }

    /// Sets the blocking time by which reservations and targets are judged from now on: the I/Os
    /// that may be in flight times the service time of the largest of them. `None`: 10 ms for
    /// flash, 50 ms for a device that positions.
    pub fn set_blocking_time(&mut self, blocking: Option<Nanos>) {
        self.engine.attainment.set_blocking(blocking);
    }

    /// Checks whether the device can keep the promises of all VMs together, if promises or costs
    /// have changed since the last check, at most every 100 ms (every second where learnt costs
    /// changed). The adapted depth then keeps to the bound that latencies leave, and reservations
    /// and targets are judged by the new blocking time. Costs are the profile's, or the learnt ones
    /// once they are known; before that nothing is bounded.
    ///
    /// To be called with every batch of events, before [`Engine::poll_dispatch`]. Returns whether a
    /// check ran.
    #[inline]
    pub fn check_feasibility(&mut self, now: Nanos) -> bool {
        let Engine {
            view,
            control,
            promises,
            attainment,
            ..
        } = &mut *self.engine;
        // Cheap comparisons on every batch; the check itself runs below, if due.
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
        promises.check_feasibility(view, control, attainment, &*active.roles.dispatcher)
    }

    /// Enables the handling of disks that hang: [`DeviceMut::detect_hung_disks`] takes them out of
    /// the depth count. From then on up to [`DeviceSpec::io_slots`](super::DeviceSpec::io_slots)
    /// I/Os are in flight at once. Without effect if it is enabled already.
    ///
    /// # Panics
    /// If anything is in flight, or a time-out is zero.
    pub fn enable_hung_disk_handling(&mut self, now: Nanos, timeouts: SilenceTimeouts) {
        self.engine.view.queues.advance(now);
        assert!(
            self.engine.view.queues.device.in_flight == 0,
            "the slab of I/Os grows only while none is in flight"
        );
        assert!(
            timeouts.data > Nanos::ZERO && timeouts.other > Nanos::ZERO,
            "with a time-out of zero every disk hangs: {timeouts:?}"
        );
        if self.engine.hung.is_some() {
            return;
        }
        let (disks, device) = (
            self.engine.directory.disk_slots(),
            &self.engine.config.device,
        );
        let (uncounted_max, slots) = (device.uncounted_max(), device.io_slots());
        self.engine.in_flight.grow(slots);
        let hung = HungDisks::new(disks, uncounted_max, timeouts);
        self.engine.hung = Some(Box::new(hung));
    }

    /// Detects disks that hang, and takes their I/Os out of the depth count; to be called about
    /// once a second, with [`Engine::poll_dispatch`] after it. Returns whether anything has
    /// changed.
    pub fn detect_hung_disks(&mut self, now: Nanos) -> bool {
        self.engine.view.queues.advance(now);
        // Taken out while `uncount` changes the engine, and put back below.
        let Some(mut hung) = self.engine.hung.take() else {
            return false;
        };
        hung.gather(self.engine.in_flight.iter());
        let mut silent = hung.silent(self.engine.view.queues.now);
        if !silent.is_empty() {
            let last_end = hung.last_end_of_others(&silent);
            // An end of another disk's I/O within that time shows that the device itself works.
            let device_works = last_end > Nanos::ZERO
                && self.engine.view.queues.now.since(last_end) <= hung.timeouts.data;
            // Silent disks that hold every place keep other disks from showing that the device
            // works. They are taken out if others wait: if the device is slow after all, their I/Os
            // end, and they count again.
            let others_starve = hung.hold_the_device(&silent) && self.others_wait(&hung, &silent);
            // A disk is blamed only if the device works for others; otherwise the device itself is
            // slow.
            silent.retain(|&(_, since)| others_starve || (device_works && last_end > since));
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
        let uncounted_before = hung.uncounted;
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
        debug_assert_eq!(
            self.engine
                .in_flight
                .iter()
                .filter(|io| !io.is_counted())
                .count(),
            hung.uncounted as usize,
            "I/Os in flight that do not count"
        );
        let changed = !silent.is_empty() || hung.uncounted > uncounted_before;
        self.engine.hung = Some(hung);
        changed
    }

    /// Returns whether a request waits for a disk that is neither silent nor hangs.
    fn others_wait(&self, hung: &HungDisks, silent: &[(u32, Nanos)]) -> bool {
        let other =
            |disk: u32| silent.iter().all(|&(it, _)| it != disk) && hung.find(disk).is_none();
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
    /// monitor compares the device with; `None`: the device has none.
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

    /// Sets whether a cap in front of the device is learnt and kept: I/Os are then dispatched just
    /// below the cap, so that they queue in the engine, where the policy orders them, and not
    /// behind the cap. Off at first; a learnt cap is dropped when this is turned off.
    pub fn learn_cap(&mut self, learns: bool) {
        self.engine.control.learns_cap = learns;
        self.engine.control.watch_device(&mut self.engine.view);
    }

    /// Starts with a cap that was learnt before, in I/Os and bytes per second, so that it need not
    /// be learnt again after a restart. A changed cap is detected as usual. Without effect where
    /// caps are not learnt.
    pub fn assume_cap(&mut self, now: Nanos, iops: Option<u64>, bytes_per_s: Option<u64>) {
        self.engine.view.queues.advance(now);
        if let Some(monitor) = &mut self.engine.control.monitor {
            monitor.assume_cap(self.engine.view.queues.now, iops, bytes_per_s);
        }
    }

    /// Sets whether the costs of requests are learnt ([`CostEstimator`]) in any case. Off at first:
    /// then they are learnt where the policy uses costs and there is no profile. Learnt costs are
    /// dropped when nothing uses them any more.
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
            None => Err(BlobError::Unwanted(
                "the device has a profile, or its policy uses no costs",
            )),
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
            None => Err(BlobError::Unwanted("learning of caps is off")),
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
            control.set_bound(self.engine.view.queues.now, bound);
        }
        self.engine.control.bound_depth(&self.engine.view);
    }

    /// Sets the maximum bytes of an I/O while other VMs use the device, too; at least a physical
    /// block. Unless it is off, the last free place of the queue is reserved for a VM whose next
    /// request is expected soon.
    pub fn set_max_io_shared(&mut self, max_io: MaxIoShared) {
        self.engine
            .control
            .set_max_io_shared(&self.engine.view, max_io);
        self.engine.promises.changed(self.engine.view.queues.now);
        self.engine
            .control
            .estimate_costs(&mut self.engine.view, &self.engine.active.roles);
    }
}
