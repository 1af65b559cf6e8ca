//! Time model of the device: transfer times, I/Os in flight with their deadlines, and the think
//! times of VMs.

use super::BdEdfParams;
use tidegate_base::device::DeviceSpec;
use tidegate_base::heap::IndexedHeap;
use tidegate_base::request::{DeviceIo, VmId};
use tidegate_base::time::Nanos;
use tidegate_core::view::{View, moved};

/// Transfer rate in bytes per second of a device that does not state one: the slower half of a 7200
/// rpm disk.
const DEFAULT_TRANSFER_RATE: u64 = 100_000_000;

impl BdEdfParams {
    /// Returns the time of a transfer of `bytes`, without positioning.
    pub(super) fn transfer(&self, view: &View, bytes: u64) -> Nanos {
        let rate = match (self.transfer_rate, view.device().spec.bytes_per_s) {
            (0, 0) => DEFAULT_TRANSFER_RATE,
            (0, of_device) => of_device,
            (own, _) => own,
        };
        Nanos(bytes.saturating_mul(Nanos::SECOND.0).div_ceil(rate))
    }
}

/// I/Os with the device, by deadline, and their bytes.
pub(super) struct InFlight {
    /// Deadline of each I/O's unit, by I/O slot. Background I/Os have none.
    due: IndexedHeap<Nanos>,
    /// Bytes of all I/Os in flight.
    bytes: u64,
}

impl InFlight {
    pub(super) fn new() -> InFlight {
        InFlight {
            due: IndexedHeap::with_capacity(DeviceSpec::MAX_IO_SLOTS as usize),
            bytes: 0,
        }
    }

    pub(super) fn started(&mut self, view: &View, io: &DeviceIo, due: Nanos) {
        self.bytes += moved(view, io.op, io.len) as u64;
        // Background I/Os have no deadline, yet their bytes take the device's time.
        if due < Nanos::MAX {
            self.due.set(io.id.index(), due);
        }
    }

    pub(super) fn ended(&mut self, view: &View, io: &DeviceIo) {
        self.bytes -= moved(view, io.op, io.len) as u64;
        self.due.remove(io.id.index());
    }

    /// Returns whether one more I/O of `bytes` may go: all I/Os in flight and it, at one
    /// positioning and their transfer each, must be done by the earliest deadline in flight or
    /// waiting. So even an I/O that the device serves last is in time. `due`: the earliest deadline
    /// that waits.
    pub(super) fn leaves_room(
        &self,
        params: &BdEdfParams,
        view: &View,
        due: Nanos,
        bytes: u32,
    ) -> bool {
        let device = view.device();
        // A positioning for each I/O: the device may serve them in any order.
        let ios = device.in_flight as u64 + 1;
        let positioning = device.spec.positioning.0.saturating_mul(ios);
        let transfer = params.transfer(view, self.bytes + bytes as u64);
        let earliest = self
            .due
            .peek()
            .map_or(due, |(in_flight, _)| in_flight.min(due));
        view.now() + Nanos(positioning) + transfer <= earliest
    }
}

/// Think time of one VM.
#[derive(Clone, Copy, Debug)]
struct ThinkTime {
    /// Time at which the VM's last I/O ended; [`Nanos::MAX`] once a request has followed it.
    ended: Nanos,
    /// Moving average of think times, 1/8 of it the newest; [`Nanos::MAX`]: not known.
    mean: Nanos,
}

/// Think time of a VM of which nothing was seen.
const UNKNOWN: ThinkTime = ThinkTime {
    ended: Nanos::MAX,
    mean: Nanos::MAX,
};

/// Think times of VMs: from the end of a VM's last I/O to its next request, if none of its own was
/// waiting when that came. Other I/Os of the VM may be in flight, because a guest with several
/// threads sends as soon as one of them has its answer.
pub(super) struct Thinking {
    vms: Vec<ThinkTime>,
}

impl Thinking {
    /// Memory of one VM in bytes.
    pub(super) const BYTES_PER_VM: usize = size_of::<ThinkTime>();

    pub(super) fn new(vms: u32) -> Thinking {
        Thinking {
            vms: vec![UNKNOWN; vms as usize],
        }
    }

    /// Drops the think time of a slot that a new VM takes.
    pub(super) fn reset_vm(&mut self, vm: VmId) {
        self.vms[vm.index()] = UNKNOWN;
    }

    pub(super) fn ended(&mut self, vm: VmId, now: Nanos) {
        self.vms[vm.index()].ended = now;
    }

    /// Records the arrival of a unit, which ends a think time if nothing else of the VM waits. No
    /// think time counts for more than `most`, as in Linux's CFQ, so that one long pause does not
    /// dominate the mean.
    pub(super) fn arrived(&mut self, view: &View, vm: VmId, most: Nanos) {
        let thought = &mut self.vms[vm.index()];
        // The request that arrived is counted as waiting: more than one means that another was
        // there.
        if thought.ended == Nanos::MAX || view.waiting(vm) > 1 {
            return;
        }
        let took = view.now().since(thought.ended).min(most);
        // Only the first request after an end is a think time.
        thought.ended = Nanos::MAX;
        thought.mean = match thought.mean {
            Nanos::MAX => took,
            mean => Nanos(mean.0 - mean.0 / 8 + took.0 / 8),
        };
    }

    /// Returns whether the VM's mean think time is known and above `span`.
    pub(super) fn exceeds(&self, vm: VmId, span: Nanos) -> bool {
        let mean = self.vms[vm.index()].mean;
        mean > span && mean != Nanos::MAX
    }
}
