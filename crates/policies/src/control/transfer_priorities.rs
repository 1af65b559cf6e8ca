//! Classes of priority so that transfers end in time: PriDyn's priority manager. Jain and Lakshmi,
//! "PriDyn: Enabling Differentiated I/O Services in Cloud using Dynamic Priorities", IEEE TSC 2014,
//! and Jain's thesis, chapters 3 and 4.
//!
//! ```text
//!   a transfer begins or ends, every interval --> figure 3.3, one cycle --> classes of one VM or
//!   some
//! ```
//!
//! The engine measures the throughput of VMs and predicts the ends of their transfers under any
//! policy ([`View::predictor`]). [`Priorities`] decides which VM gets which class, and documents
//! each case. This controller connects the two for the VMs of an engine:
//!
//! - A VM without changes has its objective's class, and its own level whenever it is best effort.
//!   The dispatcher decides the class of background processes.
//! - A transfer that runs when this policy takes over is taken over as it is; nothing is done for
//!   it before the next measurement.
//!
//! A cycle visits all VMs.

use crate::regulate::proportion::LITERAL;
use tidegate_base::objective::{Priority, Rate};
use tidegate_base::request::VmId;
use tidegate_base::time::Nanos;
use tidegate_capacity::transfers::{
    Admission, Change, Class, ClassStatus, ForecastParams, Priorities,
};
use tidegate_core::part::{Enforces, ParamInfo, ParamKind, PartDescriptor};
use tidegate_core::roles::{Controller, Event, Interests, Knob, Knobs};
use tidegate_core::view::View;

/// Parameters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TransferPrioritiesParams {
    /// Interval and bandwidths of the prediction.
    pub forecast: ForecastParams,
    /// Follows figure 3.3 as printed, without corrections.
    pub literal: bool,
    /// Gives a transfer past its deadline the real-time class until it ends.
    pub guard: bool,
}

/// Description for the registry of policy parts.
pub(crate) static DESCRIPTOR: PartDescriptor<dyn Controller> = PartDescriptor {
    name: "pridyn",
    summary: "changes I/O priority classes so that transfers meet their deadlines",
    params: &[
        ParamInfo {
            min: 10_000_000,
            ..ParamInfo::span(
                "interval",
                ForecastParams::INTERVAL.0,
                "interval between two forecasts of all transfers",
            )
        },
        ParamInfo {
            default: 0,
            ..ParamInfo::flag(
                "carry",
                "first forecast by the VM's earlier bandwidth, not by its share of the device",
            )
        },
        ParamInfo {
            name: "max_bandwidth",
            kind: ParamKind::Bytes,
            default: 0,
            min: 0,
            max: Rate::MAX,
            help: "bandwidth of a VM that is alone on the device; 0: measured",
        },
        ParamInfo {
            name: "bandwidth_loss",
            kind: ParamKind::Bytes,
            default: 0,
            min: 0,
            max: Rate::MAX,
            help: "part of max_bandwidth that is lost with two or more VMs",
        },
        ParamInfo::flag(
            "guard",
            "a transfer past its deadline is real time until it ends",
        ),
        LITERAL,
    ],
    enforces: Enforces::NONE,
    build: |params, capacity| {
        let of = TransferPrioritiesParams {
            forecast: ForecastParams {
                interval: Nanos(params.get("interval")),
                keep_bandwidth: params.get("carry") != 0,
                max_bandwidth: params.get("max_bandwidth"),
                bandwidth_loss: params.get("bandwidth_loss"),
            },
            literal: params.get("literal") != 0,
            guard: params.get("guard") != 0,
        };
        Box::new(TransferPriorities::new(of, capacity.vms))
    },
};

/// Controller that sets VMs' priority classes so that their transfers end in time.
#[derive(Debug)]
pub struct TransferPriorities {
    params: TransferPrioritiesParams,
    priorities: Priorities,
    /// Class of each VM, by slot, as last set at the dispatcher or by the VM's objective.
    last_class: Vec<Class>,
    /// Priority of each VM, by slot, that is in force at the dispatcher: the last knob, or the
    /// objective's.
    last_priority: Vec<Priority>,
    changes: Vec<Change>,
}

impl TransferPriorities {
    /// Creates a controller without VMs, with room for `vms` of them.
    pub fn new(params: TransferPrioritiesParams, vms: u32) -> TransferPriorities {
        let mut priorities = Priorities::default();
        if params.literal {
            priorities = priorities.as_printed();
        }
        if !params.guard {
            priorities = priorities.unguarded();
        }
        TransferPriorities {
            priorities,
            params,
            last_class: Vec::with_capacity(vms as usize),
            last_priority: Vec::with_capacity(vms as usize),
            changes: Vec::new(),
        }
    }

    fn added(&mut self, view: &View, vm: VmId) {
        if view.is_background(vm) {
            return;
        }
        let (slot, base) = (vm.index(), Class::from(view.objective(vm).priority));
        if self.last_class.len() <= slot {
            self.last_class.resize(slot + 1, base);
            self.last_priority.resize(slot + 1, Priority::DEFAULT);
        }
        self.last_class[slot] = base;
        self.last_priority[slot] = view.objective(vm).priority;
        self.priorities.add(slot, base);
        // A transfer's end may change every VM once; a cycle, with the guard before it, twice.
        self.changes.reserve(2 * self.last_class.len() + 2);
    }

    /// Takes over the changed objective of a VM, which may name another class or best-effort level.
    fn changed(&mut self, view: &View, vm: VmId, out: &mut Knobs) {
        let (slot, base) = (vm.index(), Class::from(view.objective(vm).priority));
        let transfers = view.predictor();
        let has_transfer =
            transfers.is_some_and(|transfers| transfers.transfer(vm.index()).is_some());
        let changes = &mut self.changes;
        self.priorities.set_base(slot, base, has_transfer, changes);
        // Applied below, with the level of best effort, which a change of class does not name.
        changes.clear();
        if let Some(class) = self.priorities.class(slot) {
            self.last_class[slot] = class;
            let priority = priority(view, vm, class);
            // Setting a knob restarts the measurement of the transfer's rate, so an unchanged
            // priority is not set again.
            if core::mem::replace(&mut self.last_priority[slot], priority) != priority {
                out.set(vm, Knob::Class(priority));
            }
        }
    }

    fn admitted(&mut self, vm: VmId, terms: &Admission) {
        let lowered = terms.lowered.iter();
        let lowered: Vec<_> = lowered.map(|(vm, class)| (vm.index(), *class)).collect();
        let changes = &mut self.changes;
        (self.priorities).apply_admission(vm.index(), terms.class, &lowered, changes);
    }

    fn cycle(&mut self, view: &View) {
        if let Some(predictor) = view.predictor() {
            let changes = &mut self.changes;
            self.priorities.cycle(predictor, view.now(), changes);
        }
    }

    /// Sets the class at the dispatcher of each VM whose class has changed, once a VM.
    fn apply_changes(&mut self, view: &View, out: &mut Knobs) {
        for Change { user, .. } in self.changes.drain(..) {
            let last_class = &mut self.last_class[user];
            if let Some(class) = self.priorities.class(user)
                && *last_class != class
            {
                *last_class = class;
                let vm = view.vm_at(user);
                let priority = priority(view, vm, class);
                self.last_priority[user] = priority;
                out.set(vm, Knob::Class(priority));
            }
        }
    }
}

/// Returns a class as the dispatcher knows it: best effort has its objective's level.
fn priority(view: &View, vm: VmId, class: Class) -> Priority {
    let named = view.objective(vm).priority;
    match class {
        _ if Class::from(named) == class => named,
        Class::Idle => Priority::Idle,
        Class::BestEffort => Priority::DEFAULT,
        Class::RealTime => Priority::RealTime,
    }
}

impl Controller for TransferPriorities {
    fn interests(&self) -> Interests {
        Interests::VMS.union(Interests::TRANSFERS)
    }

    fn on_event(&mut self, view: &View, event: &Event, out: &mut Knobs) {
        match *event {
            Event::VmAdded(vm) => self.added(view, vm),
            Event::VmChanged(vm) => self.changed(view, vm, out),
            Event::VmRemoved(vm) => self.priorities.remove(vm.index(), &mut self.changes),
            Event::TransferBegan(_) => self.priorities.transfer_began(),
            Event::TransferAdmitted { vm, terms } => self.admitted(vm, terms),
            Event::TransferEnded(vm) => self
                .priorities
                .transfer_ended(vm.index(), &mut self.changes),
            Event::TransfersChanged => self.cycle(view),
            _ => {}
        }
        self.apply_changes(view, out);
    }

    fn next_timer(&self) -> Nanos {
        Nanos::MAX
    }

    fn on_timer(&mut self, _view: &View, _out: &mut Knobs) {}

    fn forecast_params(&self) -> ForecastParams {
        self.params.forecast
    }

    fn class_status(&self, vm: VmId) -> Option<ClassStatus> {
        Some(ClassStatus {
            class: self.priorities.class(vm.index())?,
            given_up: self.priorities.is_given_up(vm.index()),
        })
    }
}
