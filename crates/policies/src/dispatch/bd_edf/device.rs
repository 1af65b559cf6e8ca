//! What is known of the device's time: transfers, what is in flight until when, and how long
//! VMs think.

use super::BdEdfParams;
use tidegate_base::device::DeviceSpec;
use tidegate_base::heap::IndexedHeap;
use tidegate_base::request::{DeviceIo, VmId};
use tidegate_base::time::Nanos;
use tidegate_core::facts::{Facts, moved};

/// Bytes a second of a device that does not say: a 7200 rpm disk's slower half.
const RATE: u64 = 100_000_000;

impl BdEdfParams {
    /// How long so many bytes take once the device has got to them.
    pub(super) fn transfer(&self, facts: &Facts, bytes: u64) -> Nanos {
        let rate = match (self.transfer_rate, facts.device().spec.bytes_per_s) {
            (0, 0) => RATE,
            (0, of_device) => of_device,
            (own, _) => own,
        };
        Nanos(bytes.saturating_mul(Nanos::SECOND.0).div_ceil(rate))
    }
}

/// I/Os with the device.
pub(super) struct InFlight {
    /// By the deadline of the unit that each is of; those of background tenants have none.
    due: IndexedHeap<Nanos>,
    bytes: u64,
}

impl InFlight {
    pub(super) fn new() -> InFlight {
        InFlight {
            due: IndexedHeap::with_capacity(DeviceSpec::MAX_IO_SLOTS as usize),
            bytes: 0,
        }
    }

    pub(super) fn started(&mut self, facts: &Facts, io: &DeviceIo, due: Nanos) {
        self.bytes += moved(facts, io.op, io.len) as u64;
        if due < Nanos::MAX {
            self.due.set(io.id.index(), due);
        }
    }

    pub(super) fn ended(&mut self, facts: &Facts, io: &DeviceIo) {
        self.bytes -= moved(facts, io.op, io.len) as u64;
        self.due.remove(io.id.index());
    }

    /// Whether one more may go along: even if the device serves what is due first last of all,
    /// it is in time. `due`: the earliest deadline of those that wait.
    pub(super) fn leaves_room(
        &self,
        params: &BdEdfParams,
        facts: &Facts,
        due: Nanos,
        bytes: u32,
    ) -> bool {
        let device = facts.device();
        let ios = device.in_flight as u64 + 1;
        let positioning = device.spec.positioning.0.saturating_mul(ios);
        let transfer = params.transfer(facts, self.bytes + bytes as u64);
        let earliest = self
            .due
            .peek()
            .map_or(due, |(in_flight, _)| in_flight.min(due));
        facts.now() + Nanos(positioning) + transfer <= earliest
    }
}

/// A VM's think time.
#[derive(Clone, Copy, Debug)]
struct Thought {
    /// When its last I/O ended; [`Nanos::MAX`]: what came next is counted already.
    ended: Nanos,
    /// Moving average; [`Nanos::MAX`]: not known.
    mean: Nanos,
}

const UNKNOWN: Thought = Thought {
    ended: Nanos::MAX,
    mean: Nanos::MAX,
};

/// How long VMs think: from the end of their last I/O to their next request, if none of theirs
/// was waiting when that came. Other I/Os of theirs may be in flight: a guest of several threads
/// sends as soon as one of them has its answer.
pub(super) struct Thinking {
    vms: Vec<Thought>,
}

impl Thinking {
    /// Memory a VM takes.
    pub(super) const BYTES_PER_VM: usize = size_of::<Thought>();

    pub(super) fn new(vms: u32) -> Thinking {
        Thinking {
            vms: vec![UNKNOWN; vms as usize],
        }
    }

    pub(super) fn forget(&mut self, vm: VmId) {
        self.vms[vm.index()] = UNKNOWN;
    }

    pub(super) fn ended(&mut self, vm: VmId, now: Nanos) {
        self.vms[vm.index()].ended = now;
    }

    /// A unit of it came; counts if nothing else of it waits. One long pause is not a habit:
    /// no time counts for more than `most`, as in Linux's CFQ.
    pub(super) fn arrived(&mut self, facts: &Facts, vm: VmId, most: Nanos) {
        let thought = &mut self.vms[vm.index()];
        if thought.ended == Nanos::MAX || facts.waiting(vm) > 1 {
            return;
        }
        let took = facts.now().since(thought.ended).min(most);
        thought.ended = Nanos::MAX;
        thought.mean = match thought.mean {
            Nanos::MAX => took,
            mean => Nanos(mean.0 - mean.0 / 8 + took.0 / 8),
        };
    }

    /// Whether it thinks longer than that on average, as far as is known.
    pub(super) fn longer_than(&self, vm: VmId, span: Nanos) -> bool {
        let mean = self.vms[vm.index()].mean;
        mean > span && mean != Nanos::MAX
    }
}
