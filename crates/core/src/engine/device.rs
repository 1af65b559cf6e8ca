//! Control of the device as a whole, whatever the policy: queue depth, length of I/Os, learnt cap
//! and costs.

use super::active::ActivePolicy;
use crate::device_monitor::DeviceMonitor;
use crate::queue_depth::DepthTuning;
use crate::queue_depth::control::{Budget, DepthControl, End};
use crate::roles::Roles;
use crate::splitting::{MaxIoShared, Splitting};
use crate::view::Life;
use crate::view::{LearntCosts, View, Vm, moved};
use tidegate_base::request::{DeviceIo, Op};
use tidegate_base::time::Nanos;
use tidegate_capacity::estimator::CostEstimator;
use tidegate_capacity::profile::{Access, Direction, Profile};

/// Bounds on the use of the device whatever the policy: an adapted queue depth, a learnt cap, the
/// length of I/Os while VMs share it.
pub(super) struct DeviceControl {
    /// Device monitor: compares the device with its profile, and keeps to a cap below it.
    pub monitor: Option<Box<DeviceMonitor>>,
    /// An operator wants a cap in front of the device to be learnt.
    pub learns_cap: bool,
    /// Costs are to be learnt even if the policy does not need them.
    pub learns_costs: bool,
    /// Time since which the learnt cap has held I/Os back that the device had room for.
    pub held_since: Option<Nanos>,
    /// Maximum number of I/Os in flight: the configured depth, or the adapted one.
    pub limit: u32,
    pub depth_control: Option<Box<DepthControl>>,
    /// Amount of queueing with the device that is allowed.
    pub depth_tuning: DepthTuning,
    /// Latency objectives of all VMs, in sum; `None`: no VM has one.
    pub promised: Option<Promised>,
    /// Activity of VMs that use the device at the same time; `None`: I/Os are not shortened.
    pub splitting: Option<Box<Splitting>>,
    /// The last free place of the device's queue was reserved for an expected request when an I/O
    /// was last to be dispatched.
    pub reserves_place: bool,
    /// Caches of [`DeviceControl::is_adaptive`] and [`DeviceControl::is_observed`]: one test in
    /// place of one for each part, on the path of every request.
    adaptive: bool,
    observed: bool,
}

/// Latency objectives of VMs, as far as they bound what is in flight.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Promised {
    /// Tightest latency.
    pub tightest: Nanos,
    /// VM of the tightest one.
    vm: u32,
    /// VMs that have one.
    vms: u32,
}

/// Windows of the estimator after which costs are compared with those in force: half a second at
/// least.
const COSTS_COMPARED_AFTER_WINDOWS: u64 = 4;
/// I/O sizes in bytes at which costs are compared.
const COMPARED_SIZES: [u32; 4] = [4 << 10, 16 << 10, 64 << 10, 512 << 10];
/// Divisor of the smallest difference of costs that counts, 2.5 %: with each new set of costs,
/// roles that share the device by them start anew.
const COST_TOLERANCE_DIVISOR: u64 = 40;

/// Returns whether any cost differs by more than one part in [`COST_TOLERANCE_DIVISOR`].
fn costs_differ(costs: &Profile, other: &Profile) -> bool {
    let directions = [Direction::Read, Direction::Write];
    let accesses = [Access::Sequential, Access::Random];
    let kinds = directions.map(|direction| accesses.map(|access| (direction, access)));
    let mut kinds = kinds.iter().flatten();
    kinds.any(|&(direction, access)| {
        COMPARED_SIZES.iter().any(|&bytes| {
            let times = [costs, other].map(|costs| costs.time_ps(direction, access, bytes));
            times[0].abs_diff(times[1]) > times[0] / COST_TOLERANCE_DIVISOR
        })
    })
}

/// Returns whether the length of parts is chosen by the work that the device delivers with them.
fn measures_parts(control: &Option<Box<DepthControl>>) -> bool {
    control.as_ref().is_some_and(|c| c.measures_parts())
}

impl Promised {
    const NONE: Promised = Promised {
        tightest: Nanos::MAX,
        vm: 0,
        vms: 0,
    };

    /// Returns the latency objective of the VM in a slot; `None` also for background processes and
    /// VMs that are leaving.
    fn latency_objective(view: &View, slot: u32) -> Option<Nanos> {
        let vm = &view.queues.vms[slot as usize];
        let latency = view.objectives[slot as usize].latency;
        latency.filter(|_| vm.life == Life::Live && !vm.background)
    }

    /// Searches all VMs for the tightest latency objective; `None`: none has one.
    fn tightest_of(view: &View) -> Option<Promised> {
        let slots = 0..view.queues.vms.len() as u32;
        let promises =
            slots.filter_map(|slot| Some((Promised::latency_objective(view, slot)?, slot)));
        let all = promises.fold(Promised::NONE, |before, (latency, slot)| Promised {
            tightest: latency.min(before.tightest),
            vm: if latency < before.tightest {
                slot
            } else {
                before.vm
            },
            vms: before.vms + 1,
        });
        (all.vms > 0).then_some(all)
    }
}

/// Divisor of the tightest latency for the part that I/Os in flight may take: one half. The other
/// half is for requests that the policy orders first and for the request itself.
const BUDGET_DIVISOR: u64 = 2;

impl DeviceControl {
    /// Creates a control that bounds nothing but the depth.
    pub(super) fn new(depth: u32) -> DeviceControl {
        DeviceControl {
            monitor: None,
            learns_cap: false,
            learns_costs: false,
            held_since: None,
            limit: depth,
            depth_control: None,
            depth_tuning: DepthTuning::Balanced,
            promised: None,
            splitting: None,
            reserves_place: false,
            adaptive: false,
            observed: false,
        }
    }

    /// Returns whether anything but the policy decides which I/Os the device gets, and so must be
    /// told when nothing goes.
    #[inline]
    pub(super) fn is_adaptive(&self) -> bool {
        self.adaptive
    }

    /// Returns whether anything learns of the device by its I/Os.
    #[inline]
    pub(super) fn is_observed(&self) -> bool {
        self.observed
    }

    /// Updates the cached flags; to be called after a part was added or removed.
    fn update_flags(&mut self, view: &View) {
        let learns = self.monitor.is_some() || self.depth_control.is_some();
        self.adaptive = learns || self.splitting.is_some();
        self.observed = learns || view.estimator.is_some();
    }

    /// Records that a request of the VM in slot `vm` was answered.
    #[inline(always)]
    pub(super) fn record_answer(&mut self, now: Nanos, vm: u32, of_vm: &Vm) {
        // Background processes only get what VMs leave: no I/O is shortened or held for them.
        if let Some(splitting) = &mut self.splitting
            && !of_vm.background
        {
            splitting.answered();
            if of_vm.requests == 0 {
                splitting.went_quiet(now, vm);
            }
        }
    }

    /// Decides anew, since policy or profile may have changed, whether costs are to be learnt.
    pub(super) fn estimate_costs(&mut self, view: &mut View, roles: &Roles) {
        let (now, spec) = (view.queues.now, &view.queues.device.spec);
        let controller = roles.controller.as_ref();
        let wanted = controller.is_some_and(|controller| controller.uses_costs())
            || roles.dispatcher.uses_costs();
        // The length of parts is chosen by costs as well.
        let parts = self
            .splitting
            .as_ref()
            .is_some_and(|splitting| splitting.is_auto());
        // An estimator that is needed still keeps what it has learnt.
        let before = view.estimator.take();
        if self.learns_costs || ((wanted || parts) && view.profile.is_none()) {
            let new = || Box::new(CostEstimator::new(now, spec));
            view.estimator = Some(before.unwrap_or_else(new));
        }
        // Learnt costs in force count for a dispatcher without a profile only.
        if !roles.dispatcher.uses_costs() || view.profile.is_some() {
            view.learnt = None;
        }
        self.update_flags(view);
    }

    /// Puts learnt costs in force if they differ from those before; to be called after a window
    /// that yielded something. Returns whether they did.
    #[cold]
    pub(super) fn learn_costs(&self, view: &mut View, roles: &Roles) -> bool {
        let Some(estimator) = &view.estimator else {
            return false;
        };
        let before = view.learnt.as_ref().map_or(0, |learnt| learnt.windows);
        let windows = estimator.windows();
        if view.profile.is_some()
            || windows < before + COSTS_COMPARED_AFTER_WINDOWS
            || !roles.dispatcher.uses_costs()
        {
            return false;
        }
        let costs = estimator.expected_profile();
        let learnt = view.learnt.as_ref();
        if learnt.is_some_and(|learnt| !costs_differ(&learnt.costs, &costs)) {
            return false;
        }
        view.learnt = Some(LearntCosts {
            costs: Box::new(costs),
            windows,
        });
        true
    }

    /// Has the estimator of costs follow an I/O that starts.
    #[inline(always)]
    pub(super) fn estimate_start(&self, view: &mut View, active: &ActivePolicy, io: &DeviceIo) {
        let bytes = moved(view, io.op, io.len);
        let deepest = self.limit.min(active.fan_out.depth);
        // On a disk that seeks, an I/O that continues its VM's last one costs as much as any other
        // once the head was elsewhere, so the order of all I/Os decides there.
        let access = if view.queues.device.seeks {
            None
        } else {
            active
                .roles
                .dispatcher
                .charged_access(Direction::for_op(io.op))
        };
        if let Some(estimator) = &mut view.estimator {
            estimator.started(view.queues.now, (io, access), bytes, deepest);
        }
    }

    /// Returns whether waiting requests are held back by a learnt cap now, and notes until when. To
    /// be called only with a device monitor, so that an engine without one does not pay for the
    /// call.
    #[inline(never)]
    pub(super) fn hold(&mut self, view: &mut View) -> bool {
        let Some(monitor) = &mut self.monitor else {
            return false;
        };
        let (now, waits) = (view.queues.now, view.queues.device.queued > 0);
        monitor.close_window(now, view.profile.as_deref());
        let Some(until) = monitor.hold(now, waits) else {
            return false;
        };
        view.pick_at = until;
        self.held_since.get_or_insert(now);
        // The dispatcher's deliberate wait ends here: the cap alone keeps the device idle now.
        view.queues.device.deliberate = view.queues.deliberate_time();
        view.queues.waiting_since = None;
        true
    }

    /// Ends a hold of the learnt cap; `went`: an I/O goes at once. Returns how long it was held
    /// back.
    #[inline]
    pub(super) fn release(&mut self, view: &View, went: bool) -> Nanos {
        match self.held_since {
            None => Nanos::ZERO,
            Some(since) => self.release_held(view, since, went),
        }
    }

    #[inline(never)]
    fn release_held(&mut self, view: &View, since: Nanos, went: bool) -> Nanos {
        self.held_since = None;
        let now = view.queues.now;
        if let Some(monitor) = &mut self.monitor {
            monitor.release(now, went);
        }
        now.since(since)
    }

    /// Creates the device monitor anew after profile or settings have changed, with what the one
    /// before has learnt.
    pub(super) fn watch_device(&mut self, view: &mut View) {
        let (spec, now) = (view.queues.device.spec, view.queues.now);
        let (before, profile) = (self.monitor.take(), view.profile.as_deref());
        self.monitor = DeviceMonitor::new(before, profile, self.learns_cap, &spec, now);
        self.held_since = None;
        self.update_flags(view);
    }

    /// Counts the end of an I/O for the adapted depth, and puts the depth in force.
    #[cold]
    pub(super) fn count_end(&mut self, view: &View, io: &DeviceIo, well: bool) {
        let now = view.queues.now;
        let end = End {
            op: io.op,
            // An I/O that failed moved nothing, but its end still frees a place.
            bytes: if well {
                moved(view, io.op, io.len).min(view.queues.device.spec.max_io)
            } else {
                0
            },
            // The I/O that ended is counted out already; it was in flight until now.
            in_flight: view.queues.device.in_flight + 1,
        };
        let top = view.queues.device.spec.depth;
        let Some(control) = &mut self.depth_control else {
            return;
        };
        let Some(monitor) = &mut self.monitor else {
            control.ended(now, view.profile.as_deref(), &end);
            self.limit = control.limit();
            return;
        };
        self.limit = match (monitor.wanted_depth(), monitor.cap()) {
            // The monitor probes at a depth of its own: ends tell nothing about the depth in force.
            (Some(wanted), _) => wanted.min(control.most()).max(control.limit()),
            // With a known cap its pace bounds the I/Os in flight, so the depth need not.
            (None, Some(_)) => top.min(control.most()),
            (None, None) => {
                control.ended(now, view.profile.as_deref(), &end);
                control.limit()
            }
        };
        debug_assert!(
            (1..=top).contains(&self.limit),
            "the depth in force is {}, of 1 to {top}",
            self.limit
        );
        // Below a bound the device may do less than it could, and less than its profile promises.
        let keeps_busy = if control.is_bounded() {
            top
        } else {
            self.limit
        };
        monitor.set_depth(control.depth(), keeps_busy, top);
    }

    /// Records that no I/O goes; `full`: because the depth in force is used up.
    #[cold]
    pub(super) fn count_full(&mut self, view: &mut View, full: bool) {
        if let Some(control) = &mut self.depth_control {
            control.dispatch_stopped(full && view.queues.device.queued > 0);
        }
    }

    /// Turns the control of the depth on or off.
    pub(super) fn adapt_depth(&mut self, view: &View, adapts: bool) {
        let (spec, now) = (&view.queues.device.spec, view.queues.now);
        if adapts && self.depth_control.is_none() {
            let mut control = DepthControl::new(spec, view.profile.as_deref(), now);
            control.set_tuning(now, self.depth_tuning);
            self.depth_control = Some(Box::new(control));
        } else if !adapts {
            self.depth_control = None;
            if let Some(monitor) = &mut self.monitor {
                monitor.set_depth(spec.depth, spec.depth, spec.depth);
            }
        }
        self.update_flags(view);
        self.bound_depth(view);
    }

    /// Bounds the I/Os in flight by the tightest latency objective, and puts the depth in force.
    pub(super) fn bound_depth(&mut self, view: &View) {
        let spec = &view.queues.device.spec;
        let part = self.splitting.as_ref().map_or(spec.max_io, |s| s.longest());
        let budget = self.promised.map(|promised| {
            let vm = view.vm_at(promised.vm as usize);
            Budget {
                time: Nanos(promised.tightest.0 / BUDGET_DIVISOR),
                vm: Some(vm),
                part: part.min(spec.max_io),
            }
        });
        self.limit = spec.depth;
        if let Some(control) = &mut self.depth_control {
            control.set_budget(budget, view.profile.as_deref());
            self.limit = control.limit();
            // Trials begin with the usual length, not with one that costs learnt meanwhile gave.
            if let Some(splitting) = &mut self.splitting
                && splitting.is_auto()
                && control.measures_parts()
            {
                splitting.set_profile(None);
            }
        }
        assert!(
            (1..=spec.depth).contains(&self.limit),
            "the depth in force is {}, of 1 to {}",
            self.limit,
            spec.depth
        );
    }

    /// Takes in that a VM's latency objective has changed; `before`: the former one.
    pub(super) fn promise_changed(&mut self, view: &View, vm: u32, before: Option<Nanos>) {
        let Promised { tightest, vms, .. } = self.promised.unwrap_or(Promised::NONE);
        let after = Promised::latency_objective(view, vm);
        match (before, after) {
            (None, None) => return,
            (None, Some(latency)) => {
                let vm = match self.promised {
                    Some(promised) if latency >= tightest => promised.vm,
                    _ => vm,
                };
                self.promised = Some(Promised {
                    tightest: latency.min(tightest),
                    vm,
                    vms: vms + 1,
                });
            }
            // The tightest may have gone, so all VMs are searched; latencies change rarely.
            (Some(_), _) => self.promised = Promised::tightest_of(view),
        }
        debug_assert_eq!(
            self.promised
                .map(|promised| (promised.tightest, promised.vms)),
            Promised::tightest_of(view).map(|all| (all.tightest, all.vms)),
            "the latency objectives in sum are not those of all VMs"
        );
        self.bound_depth(view);
    }

    /// Chooses the length of parts anew by learnt costs, unless it is measured.
    #[inline]
    pub(super) fn learn_parts(&mut self, view: &View) {
        if let (Some(splitting), Some(estimator)) = (&mut self.splitting, &view.estimator)
            && view.profile.is_none()
            && !measures_parts(&self.depth_control)
            && splitting.choose_by_costs(estimator)
        {
            self.bound_depth(view);
        }
    }

    /// Sets whether seeks dominate the device's service times, as learnt, in place of the
    /// configured kind of device.
    pub(super) fn learn_seeks(&mut self, view: &mut View, seeks: bool) {
        if core::mem::replace(&mut view.queues.device.seeks, seeks) == seeks {
            return;
        }
        if let Some(depth) = &mut self.depth_control {
            depth.set_seeks(seeks);
        }
        if let Some(splitting) = &mut self.splitting {
            splitting.set_seeks(seeks);
        }
    }

    /// Returns the longest part, in bytes, of I/Os of up to `max_io` bytes while VMs share the
    /// device; `None`: the longest I/Os go whole.
    pub(super) fn longest_part(&self, max_io: u32) -> Option<u32> {
        let splitting = self.splitting.as_ref();
        let longest = splitting.map(|s| self.measured_part(s, s.longest()));
        longest.filter(|&part| part < max_io)
    }

    /// Sets the length of I/Os while VMs share the device.
    pub(super) fn set_max_io_shared(&mut self, view: &View, max_io: MaxIoShared) {
        let spec = &view.queues.device.spec;
        let vms = &view.queues.vms;
        let foreground = vms.iter().filter(|vm| !vm.background);
        let inside = foreground.map(|vm| vm.requests).sum();
        self.reserves_place = false;
        let is_on = !matches!(max_io, MaxIoShared::Off | MaxIoShared::Bytes(0));
        self.splitting = is_on.then(|| {
            let profile = view.profile.as_deref();
            Box::new(Splitting::new(max_io, vms.len(), inside, spec, profile))
        });
        self.update_flags(view);
        self.bound_depth(view);
    }

    /// Reserves the last free place of the device's queue if a request is expected soon, and sets
    /// the time until which it is reserved. Returns whether it is.
    #[inline(never)]
    pub(super) fn reserve_place(&mut self, view: &mut View) -> bool {
        let until = self.reserved_until(view);
        view.pick_at = until.unwrap_or(view.pick_at);
        self.reserves_place = until.is_some();
        if self.reserves_place {
            // Neither the dispatcher nor a cap is the reason now: they are not asked while a place
            // is reserved.
            view.queues.device.deliberate = view.queues.deliberate_time();
            view.queues.waiting_since = None;
            self.release(view, false);
        }
        self.reserves_place
    }

    /// Time until which the last free place is reserved for a VM whose next request is expected
    /// soon; `None`: it is not.
    pub(super) fn reserved_until(&self, view: &View) -> Option<Nanos> {
        let device = &view.queues.device;
        let last = device.in_flight > 0 && device.in_flight + 1 >= self.limit;
        if !last || device.queued == 0 {
            return None;
        }
        // A VM that has a request inside already competes by the policy; it needs no place.
        let (vm, until) = self.splitting.as_ref()?.expected(view.queues.now)?;
        (view.queues.vms[vm as usize].requests == 0).then_some(until)
    }

    /// Bytes of a request of `len` bytes that go at once while other VMs use the device; also the
    /// size up to which requests merge then.
    #[inline]
    pub(super) fn shared_part(&self, view: &View, vm: u32, op: Op, len: u32) -> u32 {
        match (&self.splitting, op) {
            (Some(splitting), Op::Read | Op::Write) => {
                let of_vm = &view.queues.vms[vm as usize];
                let own = if of_vm.background { 0 } else { of_vm.requests };
                // A VM with a latency objective may send a request at any time, even if it has none
                // now.
                let promised = self.promised.map_or(0, |promised| promised.vms);
                let own_promise = view.objectives[vm as usize].latency.is_some();
                let is_shared = splitting.inside() > own || promised > u32::from(own_promise);
                let chosen = splitting.part_len(view.queues.now, vm, op, len, is_shared);
                self.measured_part(splitting, chosen).max(1)
            }
            _ => u32::MAX,
        }
    }

    /// Returns the length of parts by measured work, where `chosen` is the one chosen without it.
    fn measured_part(&self, splitting: &Splitting, chosen: u32) -> u32 {
        let control = self.depth_control.as_ref();
        let control = control.filter(|_| splitting.is_auto());
        control.map_or(chosen, |control| control.part_len(chosen))
    }

    /// Notes that `len` bytes of a unit are sent where VMs share the device, `whole` if they did
    /// not.
    #[inline]
    pub(super) fn was_bounded(&mut self, whole: u32, len: u32) {
        if let Some(control) = &mut self.depth_control {
            control.was_bounded(whole, len);
        }
    }

    /// Size in bytes up to which a VM's requests are merged just now.
    pub(super) fn merge_size_max(&self, view: &View, vm: u32, op: Op) -> u32 {
        let limit = view.queues.vms[vm as usize].merge_limit;
        limit.min(self.shared_part(view, vm, op, limit))
    }
}
