//! Order of VMs by their first unit's deadline, shared by the dispatchers that schedule by
//! deadline.
//!
//! All units of a VM have one objective, so their deadlines come in the order of their arrival, and
//! only the first of each VM competes. An objective that changes at run time moves all deadlines of
//! its VM by the same span, so only the VM's place in the order has to be found again.

use tidegate_base::heap::IndexedHeap;
use tidegate_base::request::{ReqId, VmId};
use tidegate_base::time::Nanos;
use tidegate_core::part::{ParamInfo, ParamKind, Params};
use tidegate_core::roles::Footprint;
use tidegate_core::starvation::{DeadlineFrom, Deadlines};
use tidegate_core::view::{Unit, View};

/// Reads the rules for deadlines from a composition that has the four parameters below.
pub(super) fn deadlines_of(params: &Params) -> Deadlines {
    Deadlines {
        from: DeadlineFrom::from_word(params.get("deadline_from")),
        margin: Nanos(params.get("margin")),
        default_latency: Nanos(params.get("default_latency")),
        best_effort_latency: Nanos(params.get("best_effort_latency")),
    }
}

/// Parameter `margin`. The default of 9 ms is Flubber's (Jin et al., 2013).
pub(super) const MARGIN: ParamInfo = ParamInfo {
    max: 1_000_000_000,
    ..ParamInfo::span(
        "margin",
        9_000_000,
        "margin by which a request is due before its latency bound",
    )
};

/// Parameter `deadline_from`. The default is the arrival, from which the latency counts that the
/// guest sees.
pub(super) const DEADLINE_FROM: ParamInfo = ParamInfo {
    name: "deadline_from",
    kind: ParamKind::Choice(DeadlineFrom::WORDS),
    default: DeadlineFrom::Arrival as u64,
    min: 0,
    max: DeadlineFrom::Admission as u64,
    help: "start of a request's latency: its arrival, or its admission by credits",
};

/// Parameter `default_latency`. The default of 200 ms is later than any bound that the paper
/// promises a VM (60 to 150 ms), and earlier than its background processes (500 ms).
pub(super) const DEFAULT_LATENCY: ParamInfo = ParamInfo {
    max: 5_000_000_000,
    ..ParamInfo::span(
        "default_latency",
        200_000_000,
        "latency bound assumed for a VM with a rate but no bound",
    )
};

/// Parameter `best_effort_latency`. The default of 5 s is that of `write_expire` in Linux's
/// mq-deadline.
pub(super) const BEST_EFFORT_LATENCY: ParamInfo = ParamInfo {
    max: 5_000_000_000,
    ..ParamInfo::span(
        "best_effort_latency",
        5_000_000_000,
        "latency bound assumed for a VM without any objective",
    )
};

/// Key of the order: the deadline, then the arrival number among equal deadlines.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Due {
    pub at: Nanos,
    seq: u64,
}

/// VMs with a unit that may go, by the deadline of their first unit.
#[derive(Debug)]
pub(super) struct DeadlineOrder {
    heads: IndexedHeap<Due>,
    from: DeadlineFrom,
}

impl DeadlineOrder {
    /// Memory that one VM takes.
    pub(super) const FOOTPRINT: Footprint = Footprint {
        vm: IndexedHeap::<Due>::BYTES_PER_ID,
        vm_cold: 0,
        request: 0,
    };

    /// Creates an empty order with room for `vms` VMs.
    pub(super) fn new(vms: u32, from: DeadlineFrom) -> DeadlineOrder {
        DeadlineOrder {
            heads: IndexedHeap::with_capacity(vms as usize),
            from,
        }
    }

    /// Returns the time from which an admitted unit's deadline counts.
    pub(super) fn start(&self, view: &View, unit: &Unit) -> Nanos {
        match self.from {
            DeadlineFrom::Arrival => unit.arrived,
            // The time held is known exactly once the unit is admitted.
            DeadlineFrom::Admission => unit.arrived + view.queued(unit.id).held(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.heads.is_empty()
    }

    /// Returns the earliest deadline and the VM whose first unit has it.
    pub(super) fn first(&self, view: &View) -> Option<(Nanos, VmId)> {
        let (due, vm) = self.heads.peek()?;
        Some((due.at, view.vm_at(vm)))
    }

    /// Updates a VM's place after its first unit, its gates or its objective changed. `due` maps
    /// the start of a unit to its deadline.
    pub(super) fn rank(&mut self, view: &View, vm: VmId, due: impl Fn(Nanos) -> Nanos) {
        match view.head(vm) {
            Some(head) => {
                let unit = view.queued(head).unit();
                let (at, seq) = (due(self.start(view, &unit)), unit.seq);
                self.heads.set(vm.index(), Due { at, seq });
            }
            None => self.remove(vm),
        }
    }

    /// Takes out a VM that has nothing that may go.
    pub(super) fn remove(&mut self, vm: VmId) {
        self.heads.remove(vm.index());
    }
}

/// Returns whether a unit that comes is the first of its lane: only then may it change which unit
/// is its VM's first.
pub(super) fn leads(view: &View, unit: ReqId) -> bool {
    let (vm, lane) = view.queued(unit).vm_lane();
    view.lane_head(vm, lane) == Some(unit)
}

/// Returns the first unit of a VM that stands in the order; panics if the VM has none.
pub(super) fn head_of(view: &View, vm: VmId) -> ReqId {
    view.head(vm).expect("a VM in the order has a head")
}
