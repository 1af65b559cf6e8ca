//! Background processes (a backup, a scrub) under dispatchers that do not serve them: they get what
//! the VMs leave.
//!
//! `BackgroundQueue` wraps such a dispatcher while there are background processes. The dispatcher
//! gets the events of VMs only; background units are kept in a queue of their own, from which they
//! go in batches by address ([`Deadline`]).
//!
//! ```text
//!   a background unit may go, with room for it among `background_depth` in flight, when
//!     no VM has anything with the device or waiting that may go, and none had for
//!     `background_grace` (a guest that has been answered often asks again at once)
//!   or
//!     VMs have I/Os with the device, none waits that may go, and going elsewhere costs the
//!     device nothing (`positioning` is zero): then one is in flight beside theirs
//!   or
//!     nothing of the background has gone for `background_after`: then one I/O, before all VMs
//! ```
//!
//! Each end of a VM's I/O restarts the grace, however long the background has waited. Only the
//! third rule bounds that wait.
//!
//! The third rule keeps a saturated device from starving a backup for ever, and bounds its cost to
//! the VMs: with n units before it, a background unit is started within (n + 1) x
//! `background_after`, and the times until the device has room.

use crate::dispatch::deadline::{Deadline, DeadlineParams};
use tidegate_base::device::DeviceSpec;
use tidegate_base::request::{DeviceIo, Lane, ReqId, VmId};
use tidegate_base::time::Nanos;
use tidegate_capacity::profile::Profile;
use tidegate_core::part::{Capacity, ParamInfo, ParamKind, Params};
use tidegate_core::roles::{Consumed, Dispatcher, Event, Footprint, Interests, Knob, Pick, Waits};
use tidegate_core::starvation::Bound;
use tidegate_core::view::View;

/// Rules by which background I/Os go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BackgroundParams {
    /// Maximum number of background I/Os in flight.
    pub depth: u32,
    /// Time for which VMs must have been quiet.
    pub grace: Nanos,
    /// Time without a background I/O after which one goes before all VMs; zero: never.
    pub after: Nanos,
}

impl BackgroundParams {
    /// Reads the rules from a composition that has [`PARAMS`].
    pub(crate) fn from_params(params: &Params) -> BackgroundParams {
        BackgroundParams {
            depth: params.get("background_depth") as u32,
            grace: Nanos(params.get("background_grace")),
            after: Nanos(params.get("background_after")),
        }
    }
}

/// Parameters of every composition whose dispatcher does not serve background processes.
pub(crate) static PARAMS: &[ParamInfo] = &[
    ParamInfo {
        name: "background_depth",
        kind: ParamKind::Count,
        default: 4,
        min: 1,
        max: 4096,
        help: "maximum number of background I/Os in flight",
    },
    ParamInfo {
        name: "background_grace",
        kind: ParamKind::Duration,
        default: 2_000_000,
        min: 0,
        max: 1_000_000_000,
        help: "idle time of VMs before background I/O starts",
    },
    ParamInfo {
        name: "background_after",
        kind: ParamKind::Duration,
        default: 500_000_000,
        min: 0,
        max: 3_600_000_000_000,
        help: "time after which one background I/O precedes all VMs; 0: never",
    },
];

/// Dispatcher of VMs, with the background served from what they leave.
pub(crate) struct BackgroundQueue {
    vms: Box<dyn Dispatcher>,
    /// Events that `vms` asked for.
    subscribed: Interests,
    params: BackgroundParams,
    /// Order of the background units.
    index: Deadline,
    /// Background units in the index.
    queued: u32,
    /// Background I/Os with the device.
    in_flight: u32,
    /// Time at which an I/O of a VM last went to the device or came back.
    vms_active: Nanos,
    /// Time at which a background I/O last went, or the background began to wait.
    passed_over_since: Nanos,
}

impl BackgroundQueue {
    pub(crate) fn new(
        vms: Box<dyn Dispatcher>,
        params: BackgroundParams,
        capacity: &Capacity,
    ) -> BackgroundQueue {
        // With 0 the background would have I/Os only where it is promoted, or none at all.
        assert!(
            params.depth > 0,
            "background I/Os need a depth of at least 1"
        );
        // The index decides the order only; `pick` below decides when a background I/O may go.
        let order = DeadlineParams {
            // Figures of Linux's mq-deadline for reads, batches and starved writes.
            expire: [Nanos::from_millis(500); 2],
            fifo_batch: 16,
            writes_starved: 2,
        };
        BackgroundQueue {
            subscribed: vms.interests(),
            vms,
            params,
            index: Deadline::new(order, capacity),
            queued: 0,
            in_flight: 0,
            vms_active: Nanos::ZERO,
            passed_over_since: Nanos::ZERO,
        }
    }

    /// Returns the dispatcher that serves `vm`.
    fn dispatcher_for(&mut self, view: &View, vm: VmId) -> &mut dyn Dispatcher {
        if view.is_background(vm) {
            &mut self.index
        } else {
            &mut *self.vms
        }
    }

    /// Returns the time at which a background I/O goes before all VMs.
    fn promoted_at(&self) -> Nanos {
        match self.params.after {
            Nanos::ZERO => Nanos::MAX,
            after => self.passed_over_since + after,
        }
    }

    /// Returns the time from which a background I/O may go if no event comes before; [`Nanos::MAX`]
    /// if only an event can allow it.
    fn allowed_at(&self, view: &View) -> Nanos {
        let device = view.device();
        if self.in_flight >= self.params.depth {
            return Nanos::MAX;
        }
        // No VM has anything with the device; whether any waits, `pick` has asked.
        if device.in_flight == self.in_flight {
            return self.vms_active + self.params.grace;
        }
        let beside = device.spec.positioning == Nanos::ZERO && self.in_flight == 0;
        if beside { view.now() } else { Nanos::MAX }
    }

    /// Counts an I/O that went to the device (`change` 1) or came back (-1).
    fn count_io(&mut self, view: &View, io: &DeviceIo, change: i32) {
        if view.is_background(io.vm) {
            // Never below 0: what was in flight before this queue is counted by `Inherited`.
            self.in_flight = self.in_flight.wrapping_add_signed(change);
            self.passed_over_since = view.now();
        } else {
            self.vms_active = view.now();
        }
    }
}

/// Returns the VM or background process that an event is about; `None` if it is about all.
fn vm_of_event(view: &View, event: &Event) -> Option<VmId> {
    match *event {
        Event::Arrived(unit)
        | Event::Admitted(unit)
        | Event::Cancelled(unit)
        | Event::Advanced(unit) => Some(view.queued(unit).vm_lane().0),
        Event::Merged { into, .. } => Some(view.queued(into).vm_lane().0),
        Event::Started(io) | Event::Inherited(io) | Event::Ended { io, .. } => Some(io.vm),
        Event::Answered(done) => Some(done.vm),
        Event::VmAdded(vm) | Event::VmChanged(vm) | Event::VmRemoved(vm) | Event::Memory(vm) => {
            Some(vm)
        }
        Event::TransferBegan(vm)
        | Event::TransferAdmitted { vm, .. }
        | Event::TransferEnded(vm) => Some(vm),
        Event::IntervalEnded(_)
        | Event::Peer { .. }
        | Event::PeerSilent { .. }
        | Event::HostWeight(_)
        | Event::ProfileChanged
        | Event::CostsLearnt
        | Event::TransfersChanged => None,
    }
}

impl Dispatcher for BackgroundQueue {
    fn interests(&self) -> Interests {
        (self.subscribed.union(self.index.interests()))
            .union(Interests::STARTED)
            .union(Interests::ENDED)
            .union(Interests::INHERITED)
    }

    fn insert(&mut self, view: &View, unit: ReqId) {
        let (vm, _) = view.queued(unit).vm_lane();
        if view.is_background(vm) {
            if self.queued == 0 {
                self.passed_over_since = view.now();
            }
            self.queued += 1;
        }
        self.dispatcher_for(view, vm).insert(view, unit);
    }

    fn remove(&mut self, view: &View, unit: ReqId) {
        let (vm, _) = view.queued(unit).vm_lane();
        if view.is_background(vm) {
            self.queued -= 1;
        }
        self.dispatcher_for(view, vm).remove(view, unit);
    }

    fn gate(&mut self, view: &View, vm: VmId, lane: Lane, open: bool) {
        self.dispatcher_for(view, vm).gate(view, vm, lane, open);
    }

    fn on_event(&mut self, view: &View, event: &Event) {
        match *event {
            Event::Started(io) | Event::Inherited(io) => self.count_io(view, io, 1),
            Event::Ended { io, .. } => self.count_io(view, io, -1),
            _ => {}
        }
        if vm_of_event(view, event).is_some_and(|vm| view.is_background(vm)) {
            if self.index.interests().has(event.interest()) {
                self.index.on_event(view, event);
            }
        } else if self.subscribed.has(event.interest()) {
            self.vms.on_event(view, event);
        }
    }

    fn set(&mut self, view: &View, vm: VmId, knob: Knob) {
        self.dispatcher_for(view, vm).set(view, vm, knob);
    }

    fn waits(&self) -> Option<Waits> {
        self.vms.waits()
    }

    fn serves_background(&self) -> bool {
        true
    }

    fn uses_costs(&self) -> bool {
        self.vms.uses_costs()
    }

    fn depth(&self) -> u32 {
        // Background I/Os go only where VMs leave room, so they add nothing to the depth.
        self.vms.depth()
    }

    fn starvation(&self, device: &DeviceSpec, profile: Option<&Profile>) -> Bound {
        self.vms.starvation(device, profile)
    }

    fn pick(&mut self, view: &View) -> Pick {
        // Without background units this queue costs its dispatcher nothing.
        if self.queued == 0 {
            return self.vms.pick(view);
        }
        let (now, promoted) = (view.now(), self.promoted_at());
        // While its gates are shut the background has nothing to promote; the index then idles, and
        // the VMs' pick follows.
        if promoted <= now
            && let pick @ Pick::Start { .. } = self.index.pick(view)
        {
            return pick;
        }
        let promoted = if promoted <= now {
            Nanos::MAX
        } else {
            promoted
        };
        // All that waits is background, so the VMs' dispatcher need not be asked.
        let until = if view.device().queued == self.queued {
            Nanos::MAX
        } else {
            match self.vms.pick(view) {
                Pick::Idle(until) => until,
                // The dispatcher keeps the device for a VM; only a promoted background I/O ends
                // that.
                Pick::Wait(until) => return Pick::Wait(until.min(promoted)),
                start => return start,
            }
        };
        let allowed = self.allowed_at(view);
        if allowed > now {
            return Pick::Idle(until.min(allowed).min(promoted));
        }
        match self.index.pick(view) {
            Pick::Idle(due) => Pick::Idle(until.min(due)),
            other => other,
        }
    }

    fn footprint(&self) -> Footprint {
        let (vms, index) = (self.vms.footprint(), self.index.footprint());
        Footprint {
            vm: vms.vm + index.vm,
            vm_cold: vms.vm_cold + index.vm_cold,
            request: vms.request + index.request,
        }
    }

    fn consumed(&self, view: &View, vm: VmId) -> Consumed {
        if view.is_background(vm) {
            Consumed::default()
        } else {
            self.vms.consumed(view, vm)
        }
    }

    fn adopt(&mut self, view: &View, vm: VmId, consumed: &Consumed) {
        if !view.is_background(vm) {
            self.vms.adopt(view, vm, consumed);
        }
    }
}
