//! What the engine knows and every role may read: VMs, their queues, waiting units, the device.
//!
//! Requests live in a slab; queues hold slot numbers. A slot is hot (what scheduling looks at)
//! and cold (the account, the answer's address), kept in two arrays.

use crate::objective::Objective;
use crate::request::{Account, ClientId, DiskId, IoError, Lane, Op, ReqId, VmId};
use crate::stats::VmStats;
use crate::time::Nanos;

/// No slot.
pub(crate) const NIL: u32 = u32::MAX;

/// The device as the engine was told of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DeviceSpec {
    /// I/Os in flight at most, 1 to 4096.
    pub depth: u32,
    /// Splits fall on multiples of this many bytes; a power of two, 512 to 1 MiB.
    pub physical_block: u32,
    /// Largest I/O that carries data, in bytes; a positive multiple of `physical_block`.
    pub max_io: u32,
    /// The backing can only write zeroes out: then `WriteZeroes` costs and splits like a write.
    pub zeroes_are_writes: bool,
}

/// The device as it stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DeviceFacts {
    /// What the engine was told of it.
    pub spec: DeviceSpec,
    /// I/Os with the device now.
    pub in_flight: u32,
    /// Guest requests inside the engine, waiting or in flight.
    pub requests: u32,
    /// Units waiting, over all VMs.
    pub queued: u32,
    /// I/Os handed to the device since the start.
    pub started: u64,
    /// I/Os that ended.
    pub ended: u64,
    /// I/Os that failed.
    pub errors: u64,
    /// End of the last I/O.
    pub last_end: Nanos,
    /// One past the last byte that was dispatched: where a disk's head would stand.
    pub last_addr: u64,
    /// Time in which the dispatcher left room unused on purpose.
    pub deliberate: Nanos,
}

/// One waiting unit: guest requests of a VM, adjacent and of one kind, that go together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Unit {
    /// Its name: that of one of its guest requests.
    pub id: ReqId,
    /// Whose it is.
    pub vm: VmId,
    /// What it does.
    pub op: Op,
    /// First byte on the device that is still to be dispatched.
    pub addr: u64,
    /// Bytes still to be dispatched.
    pub len: u32,
    /// Order of arrival over all VMs.
    pub seq: u64,
    /// When its first guest request arrived.
    pub arrived: Nanos,
}

pub(crate) mod state {
    pub(crate) const FREE: u8 = 0;
    /// First of a unit in a lane, not admitted yet.
    pub(crate) const PENDING: u8 = 1;
    /// First of a unit in a lane, known to the dispatcher.
    pub(crate) const ADMITTED: u8 = 2;
    /// Behind the first of a unit.
    pub(crate) const PASSENGER: u8 = 3;
    /// Wholly handed to the device.
    pub(crate) const STARTED: u8 = 4;
    /// A flush in its express lane.
    pub(crate) const EXPRESS: u8 = 5;
}

pub(crate) mod flag {
    pub(crate) const FUA: u8 = 1;
    pub(crate) const KEEP_ALLOCATED: u8 = 2;
    /// Not to be merged: it failed in company once.
    pub(crate) const ALONE: u8 = 4;
    /// Its operation was charged.
    pub(crate) const CHARGED: u8 = 8;
}

#[derive(Clone, Copy)]
pub(crate) struct Hot {
    pub generation: u32,
    pub state: u8,
    pub op: Op,
    pub flags: u8,
    pub vm: u32,
    /// Bytes of this guest request.
    pub len: u32,
    /// Bytes of it handed to the device.
    pub issued: u32,
    /// First of a unit: bytes of all its guest requests.
    pub unit_len: u32,
    pub seq: u64,
    /// First byte on the device.
    pub addr: u64,
    /// Neighbours in the lane (first of a unit only). `next` also links the free list.
    pub next: u32,
    pub prev: u32,
    /// The guest request behind this one in its unit, and the last one (first of a unit only).
    pub chain_next: u32,
    pub chain_last: u32,
    /// First of a unit: how many guest requests it has, and the one with the lowest address.
    pub unit_reqs: u32,
    pub chain_first: u32,
}

#[derive(Clone, Copy)]
pub(crate) struct Cold {
    pub tag: u64,
    pub client: ClientId,
    pub disk: DiskId,
    pub arrived: Nanos,
    /// When `outstanding` last became or ceased to be zero, or the request was merged.
    pub since: Nanos,
    /// The lane's shut time and the device's deliberate time at `since`.
    pub shut_mark: Nanos,
    pub deliberate_mark: Nanos,
    pub account: Account,
    pub outstanding: u32,
    pub error: Option<IoError>,
}

#[derive(Clone, Copy)]
pub(crate) struct LaneQueue {
    pub head: u32,
    pub tail: u32,
    /// First unit that is not admitted; `NIL`: all are.
    pub pending: u32,
    /// Its gate is shut (dispatch-stage regulators).
    pub shut: bool,
    pub shut_since: Nanos,
    pub shut_total: Nanos,
}

impl LaneQueue {
    pub(crate) const EMPTY: LaneQueue = LaneQueue {
        head: NIL,
        tail: NIL,
        pending: NIL,
        shut: false,
        shut_since: Nanos::ZERO,
        shut_total: Nanos::ZERO,
    };

    pub(crate) fn shut_time(&self, now: Nanos) -> Nanos {
        if self.shut {
            self.shut_total + now.since(self.shut_since)
        } else {
            self.shut_total
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Life {
    Free,
    Live,
    /// Removed; what is in flight has not ended yet.
    Leaving,
}

/// The engine's hot state of one VM.
#[derive(Clone, Copy)]
pub(crate) struct Vm {
    pub lanes: [LaneQueue; 2],
    pub generation: u32,
    pub life: Life,
    /// Guest requests waiting (also flushes).
    pub waiting: u32,
    /// Guest requests inside the engine.
    pub requests: u32,
    pub in_flight: u32,
    pub merge_limit: u32,
    /// Larger reads and writes are split.
    pub largest_io: u32,
    /// When its last outstanding request was answered.
    pub quiet_since: Nanos,
}

/// What roles may read. The engine changes it, then tells them.
pub struct Facts {
    pub(crate) now: Nanos,
    pub(crate) device: DeviceFacts,
    pub(crate) vms: Vec<Vm>,
    pub(crate) objectives: Vec<Objective>,
    pub(crate) stats: Vec<VmStats>,
    pub(crate) hot: Vec<Hot>,
    pub(crate) cold: Vec<Cold>,
}

impl Facts {
    /// The time of the call that is being handled.
    pub fn now(&self) -> Nanos {
        self.now
    }

    /// The device.
    pub fn device(&self) -> &DeviceFacts {
        &self.device
    }

    /// Room for this many VM slots: every [`VmId::index`] is below it.
    pub fn vm_slots(&self) -> usize {
        self.vms.len()
    }

    /// The VMs there are, in the order of their slots.
    pub fn vms(&self) -> impl Iterator<Item = VmId> + '_ {
        (0..self.vms.len()).filter_map(|i| {
            let live = self.vms[i].life == Life::Live;
            live.then_some(VmId {
                index: i as u32,
                generation: self.vms[i].generation,
            })
        })
    }

    /// The handle of the VM in a slot.
    pub fn vm_at(&self, index: usize) -> VmId {
        VmId {
            index: index as u32,
            generation: self.vms[index].generation,
        }
    }

    /// A VM's objective.
    pub fn objective(&self, vm: VmId) -> &Objective {
        &self.objectives[vm.index()]
    }

    /// A VM's statistics.
    pub fn stats(&self, vm: VmId) -> &VmStats {
        &self.stats[vm.index()]
    }

    /// Guest requests of a VM that wait.
    pub fn waiting(&self, vm: VmId) -> u32 {
        self.vms[vm.index()].waiting
    }

    /// Device I/Os of a VM in flight.
    pub fn in_flight(&self, vm: VmId) -> u32 {
        self.vms[vm.index()].in_flight
    }

    /// Whether a lane's gate is open (always, unless the regulator gates at dispatch).
    pub fn gate_open(&self, vm: VmId, lane: Lane) -> bool {
        !self.vms[vm.index()].lanes[lane.index()].shut
    }

    /// The first admitted unit of a lane.
    pub fn lane_head(&self, vm: VmId, lane: Lane) -> Option<ReqId> {
        let queue = &self.vms[vm.index()].lanes[lane.index()];
        (queue.head != queue.pending).then(|| self.req_id(queue.head))
    }

    /// The admitted unit of a VM that arrived first, among the lanes whose gate is open.
    pub fn head(&self, vm: VmId) -> Option<ReqId> {
        let lanes = &self.vms[vm.index()].lanes;
        let head = |l: usize| {
            let q = &lanes[l];
            // `head == pending` also covers the empty lane: both are NIL.
            if q.shut || q.head == q.pending {
                NIL
            } else {
                q.head
            }
        };
        let slot = match (head(0), head(1)) {
            (NIL, NIL) => return None,
            (a, NIL) => a,
            (NIL, b) => b,
            (a, b) if self.hot[a as usize].seq < self.hot[b as usize].seq => a,
            (_, b) => b,
        };
        Some(self.req_id(slot))
    }

    /// A VM's first unit that waits for admission, in the order of arrival over both lanes.
    pub fn pending_head(&self, vm: VmId) -> Option<ReqId> {
        let lanes = &self.vms[vm.index()].lanes;
        let slot = match (lanes[0].pending, lanes[1].pending) {
            (NIL, NIL) => return None,
            (a, NIL) => a,
            (NIL, b) => b,
            (a, b) if self.hot[a as usize].seq < self.hot[b as usize].seq => a,
            (_, b) => b,
        };
        Some(self.req_id(slot))
    }

    /// A waiting unit. Inside the call that says it was removed, `addr` and `len` are what was
    /// left of it: nothing, once it was wholly started.
    pub fn unit(&self, id: ReqId) -> Unit {
        let hot = &self.hot[id.index()];
        debug_assert_eq!(
            hot.generation, id.generation,
            "a role kept a unit it was told is gone"
        );
        let first = &self.hot[hot.chain_first as usize];
        Unit {
            id,
            vm: self.vm_at(hot.vm as usize),
            op: hot.op,
            addr: first.addr + first.issued as u64,
            len: hot.unit_len - first.issued,
            seq: hot.seq,
            arrived: self.cold[id.index()].arrived,
        }
    }

    /// A waiting unit's place in the order of arrival.
    pub fn seq(&self, id: ReqId) -> u64 {
        self.hot[id.index()].seq
    }

    /// A waiting unit's VM slot and lane.
    pub fn vm_lane(&self, id: ReqId) -> (VmId, Lane) {
        let hot = &self.hot[id.index()];
        (self.vm_at(hot.vm as usize), hot.op.lane())
    }

    pub(crate) fn req_id(&self, slot: u32) -> ReqId {
        ReqId {
            index: slot,
            generation: self.hot[slot as usize].generation,
        }
    }

    /// Every admitted unit in the order of arrival: what a new dispatcher's index starts from.
    pub(crate) fn admitted_in_order(&self) -> Vec<ReqId> {
        let mut all: Vec<ReqId> = (0..self.hot.len() as u32)
            .filter(|&slot| self.hot[slot as usize].state == state::ADMITTED)
            .map(|slot| self.req_id(slot))
            .collect();
        all.sort_by_key(|&id| self.seq(id));
        all
    }
}
