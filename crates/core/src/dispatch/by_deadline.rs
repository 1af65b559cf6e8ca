//! What dispatchers of deadlines have in common: VMs in the order of their first unit's deadline.
//!
//! A VM's units have one objective, so their deadlines come in the order of their arrival, and
//! only the first of each VM competes. An objective that changes at run time moves all of a VM's
//! deadlines by the same span: its place alone has to be found again.

use crate::facts::{Facts, Unit};
use crate::heap::IndexedHeap;
use crate::part::{ParamInfo, ParamKind, Params};
use crate::request::{ReqId, VmId};
use crate::roles::Footprint;
use crate::time::Nanos;

/// What "the start time of a request" is in Flubber's eq. 5.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DeadlineFrom {
    /// When it arrived: a promise to the VM, which counts what credits and limits hold back, too.
    Arrival,
    /// Its arrival and what a regulator held it, so for credits the time they let it in: what a
    /// scheduler below them sees. Linux's `struct request` has its `start_time` from there.
    Admission,
}

impl DeadlineFrom {
    /// As the configuration calls them, in this order.
    pub const WORDS: &'static [&'static str] = &["arrival", "admission"];

    /// The one at this place among [`WORDS`](DeadlineFrom::WORDS).
    pub fn from_word(place: u64) -> DeadlineFrom {
        match place {
            0 => DeadlineFrom::Arrival,
            _ => DeadlineFrom::Admission,
        }
    }
}

/// How deadlines come of start times (Flubber, eq. 5).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Deadlines {
    /// From when on they count.
    pub from: DeadlineFrom,
    /// So much before the objective's end: what serving it may take.
    pub margin: Nanos,
    /// The objective of a VM that has a reservation and no latency.
    pub default_latency: Nanos,
    /// That of a VM that was promised neither. It must not have a place before promises, only
    /// not wait for ever.
    pub best_effort_latency: Nanos,
}

impl Deadlines {
    /// Of a composition that has the four parameters below.
    pub(super) fn from_params(params: &Params) -> Deadlines {
        Deadlines {
            from: DeadlineFrom::from_word(params.get("deadline_from")),
            margin: Nanos(params.get("margin")),
            default_latency: Nanos(params.get("default_latency")),
            best_effort_latency: Nanos(params.get("best_effort_latency")),
        }
    }
}

/// The paper's figure.
pub(super) const MARGIN: ParamInfo = ParamInfo {
    max: 1_000_000_000,
    ..ParamInfo::span(
        "margin",
        9_000_000,
        "a request is due so much before its VM's latency is over",
    )
};

/// What the guest sees counts from there.
pub(super) const DEADLINE_FROM: ParamInfo = ParamInfo {
    name: "deadline_from",
    kind: ParamKind::Choice(DeadlineFrom::WORDS),
    default: DeadlineFrom::Arrival as u64,
    min: 0,
    max: DeadlineFrom::Admission as u64,
    help: "from when on a latency counts: a request's arrival, or when credits let it in",
};

/// Later than any bound that the paper promises a VM, earlier than its background processes.
pub(super) const DEFAULT_LATENCY: ParamInfo = ParamInfo {
    max: 5_000_000_000,
    ..ParamInfo::span(
        "default_latency",
        200_000_000,
        "the latency of a VM that was promised a rate alone",
    )
};

/// As Linux's deadline has for writes.
pub(super) const BEST_EFFORT_LATENCY: ParamInfo = ParamInfo {
    max: 5_000_000_000,
    ..ParamInfo::span(
        "best_effort_latency",
        5_000_000_000,
        "the latency of a VM that was promised nothing",
    )
};

impl Deadlines {
    /// When a unit of a VM that started then is due.
    pub(super) fn due(&self, facts: &Facts, vm: VmId, start: Nanos) -> Nanos {
        let objective = facts.objective(vm);
        let latency = match objective.latency {
            Some(latency) => latency,
            None if objective.reservation.is_none() => self.best_effort_latency,
            None => self.default_latency,
        };
        start + latency - self.margin
    }
}

/// A place in the order: the deadline; arrival decides between equals.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Due {
    pub at: Nanos,
    seq: u64,
}

/// VMs with a unit that may go, by the deadline of the first.
#[derive(Debug)]
pub(super) struct ByDeadline {
    heads: IndexedHeap<Due>,
    from: DeadlineFrom,
}

impl ByDeadline {
    /// Memory a VM takes.
    pub(super) const FOOTPRINT: Footprint = Footprint {
        vm: IndexedHeap::<Due>::BYTES_PER_ID,
        vm_cold: 0,
        request: 0,
    };

    /// For so many VMs.
    pub(super) fn new(vms: u32, from: DeadlineFrom) -> ByDeadline {
        ByDeadline {
            heads: IndexedHeap::with_capacity(vms as usize),
            from,
        }
    }

    /// From when on an admitted unit's deadline counts.
    pub(super) fn start(&self, facts: &Facts, unit: &Unit) -> Nanos {
        match self.from {
            DeadlineFrom::Arrival => unit.arrived,
            DeadlineFrom::Admission => unit.arrived + facts.held(unit.id),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.heads.is_empty()
    }

    /// The earliest deadline, and whose.
    pub(super) fn first(&self, facts: &Facts) -> Option<(Nanos, VmId)> {
        let (due, vm) = self.heads.peek()?;
        Some((due.at, facts.vm_at(vm)))
    }

    /// Finds a VM's place: its first unit, its gates or its objective changed. `due`: the
    /// deadline of a unit that started then.
    pub(super) fn rank(&mut self, facts: &Facts, vm: VmId, due: impl Fn(Nanos) -> Nanos) {
        match facts.head(vm) {
            Some(head) => {
                let unit = facts.unit(head);
                let (at, seq) = (due(self.start(facts, &unit)), unit.seq);
                self.heads.set(vm.index(), Due { at, seq });
            }
            None => self.forget(vm),
        }
    }

    /// It has nothing that may go.
    pub(super) fn forget(&mut self, vm: VmId) {
        self.heads.remove(vm.index());
    }
}

/// Whether a unit that comes may change which is its VM's first: only as first of its lane.
pub(super) fn leads(facts: &Facts, unit: ReqId) -> bool {
    let (vm, lane) = facts.vm_lane(unit);
    facts.lane_head(vm, lane) == Some(unit)
}

/// The first unit of a VM that was found in an order of those that have one.
pub(super) fn head_of(facts: &Facts, vm: VmId) -> ReqId {
    facts.head(vm).expect("a VM in the order has a head")
}
