//! EDF, earliest deadline first: the baseline that Flubber is measured against, below its credits
//! (Jin et al., 2013, section 4.3).
//!
//! ```text
//! a VM's unit:          deadline = start + latency objective - margin
//! a background unit:    deadline = start + background_latency
//! pick:                 the earliest deadline; never waits while a unit may go
//! ```
//!
//! Decisions where the paper says nothing:
//! - A unit starts with its arrival; with `deadline_from = admission` once no regulator holds it.
//! - A unit's deadline is that of the guest request that gave it its name, the first that came.
//! - A VM's units go in the order of their arrival over both lanes, as far as gates are open. An
//!   I/O of several requests that failed goes again at the front of its lane, request by request.
//! - A VM that has a reservation and no latency bound is held to `default_latency`, 200 ms: later
//!   than every bound that the paper promises (60 to 150 ms). A VM with neither is held to
//!   `best_effort_latency`, 5 s: a long queue of it must not be overdue and go before promises.
//!   Without a deadline it would starve. Background processes come after both.
//! - A deadline that has passed changes nothing: the most overdue goes first.
//!
//! Starvation bound: a unit waits only for units with an earlier deadline. The span of a VM is the
//! fixed time from a unit's start to its deadline. With L the span of the unit's VM and S the
//! smallest span of any VM, those units are the earlier ones of its own VM and the units of others
//! that started before it or less than L - S after it.

use super::deadline_order::{
    BEST_EFFORT_LATENCY, DEADLINE_FROM, DEFAULT_LATENCY, DeadlineOrder, MARGIN, deadlines_of,
    head_of, leads,
};
use tidegate_base::device::DeviceSpec;
use tidegate_base::request::{Lane, ReqId, VmId};
use tidegate_base::time::Nanos;
use tidegate_capacity::profile::Profile;
use tidegate_core::part::{Capacity, Enforces, ParamInfo, PartDescriptor};
use tidegate_core::roles::{Dispatcher, Event, Footprint, Interests, Pick};
use tidegate_core::starvation::{Bound, Deadlines, Due};
use tidegate_core::view::View;

/// Parameters of [`Edf`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EdfParams {
    /// Rules by which VMs' units get their deadlines.
    pub deadlines: Deadlines,
    /// Time from a background unit's start to its deadline.
    pub background_latency: Nanos,
}

/// Registry entry of the `edf` dispatcher.
pub(crate) static DESCRIPTOR: PartDescriptor<dyn Dispatcher> = PartDescriptor {
    name: "edf",
    summary: "earliest deadline first",
    params: &[
        MARGIN,
        DEADLINE_FROM,
        DEFAULT_LATENCY,
        BEST_EFFORT_LATENCY,
        ParamInfo::span(
            "background_latency",
            // Twice the default of `best_effort_latency`, so that the background comes last.
            Nanos::from_secs(10).0,
            "deadline of a background process's request; the paper's baseline: 500 ms",
        ),
    ],
    enforces: Enforces {
        latency: true,
        ..Enforces::NONE
    },
    build: |params, capacity| {
        let params = EdfParams {
            deadlines: deadlines_of(params),
            background_latency: Nanos(params.get("background_latency")),
        };
        Box::new(Edf::new(params, capacity))
    },
};

/// Dispatcher that sends the unit with the earliest deadline first.
pub struct Edf {
    params: EdfParams,
    queue: DeadlineOrder,
}

impl Edf {
    /// Creates the dispatcher with room for every VM of the engine.
    pub fn new(params: EdfParams, capacity: &Capacity) -> Edf {
        Edf {
            params,
            queue: DeadlineOrder::new(capacity.vms, params.deadlines.from),
        }
    }

    /// Updates a VM's place by the deadline of its first unit, after its head, gates or objective
    /// changed.
    fn rank(&mut self, view: &View, vm: VmId) {
        let EdfParams {
            deadlines,
            background_latency,
        } = self.params;
        let background = view.is_background(vm);
        self.queue.rank(view, vm, |start| {
            if background {
                start + background_latency
            } else {
                deadlines.due(view.objective(vm), start)
            }
        });
    }
}

impl Dispatcher for Edf {
    fn interests(&self) -> Interests {
        Interests::VMS
    }

    fn insert(&mut self, view: &View, unit: ReqId) {
        if leads(view, unit) {
            self.rank(view, view.queued(unit).vm_lane().0);
        }
    }

    fn remove(&mut self, view: &View, unit: ReqId) {
        self.rank(view, view.queued(unit).vm_lane().0);
    }

    fn gate(&mut self, view: &View, vm: VmId, _lane: Lane, _open: bool) {
        self.rank(view, vm);
    }

    fn on_event(&mut self, view: &View, event: &Event) {
        match *event {
            Event::VmChanged(vm) => self.rank(view, vm),
            Event::VmRemoved(vm) => self.queue.remove(vm),
            _ => {}
        }
    }

    fn serves_background(&self) -> bool {
        true
    }

    fn starvation(&self, _device: &DeviceSpec, _: Option<&Profile>) -> Bound {
        Bound::Deadline(Due {
            deadlines: self.params.deadlines,
            background_latency: Some(self.params.background_latency),
            before: None,
            promotes: false,
            may_drain: false,
        })
    }

    fn pick(&mut self, view: &View) -> Pick {
        match self.queue.first(view) {
            Some((_, vm)) => Pick::Start {
                head: head_of(view, vm),
                max: u32::MAX,
                held: Nanos::ZERO,
            },
            None => Pick::Idle(Nanos::MAX),
        }
    }

    fn footprint(&self) -> Footprint {
        DeadlineOrder::FOOTPRINT
    }
}
