//! Read-only view that roles have of the engine: VMs, their queues, waiting units, the device.
//! The memory layout is described in `slots`.

mod queued;
mod queues;
mod requests;

use crate::splitting::Splitting;
use crate::stats::{Ledger, VmStats};
use core::cell::Ref;
pub use queued::Queued;
pub(crate) use queues::{Queues, enter_lane, unlink};
pub(crate) use requests::{MergeSearch, NewRequest, Requests};
use std::sync::Arc;
use tidegate_base::bandwidth_samples::BandwidthSamples;
use tidegate_base::device::{DeviceSpec, DeviceStats};
use tidegate_base::objective::Objective;
use tidegate_base::request::{Lane, Op, ReqId, VmId};
use tidegate_base::time::Nanos;
use tidegate_capacity::estimator::CostEstimator;
use tidegate_capacity::profile::Profile;
use tidegate_capacity::transfers::{Predictor, TransferAccounts};

pub(crate) use crate::slots::{Cold, Hot, Life, Vm, flag, shut, state};
pub use tidegate_base::slab::NIL;

/// One waiting unit: guest requests of a VM, adjacent and of one kind, that go together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Unit {
    /// Handle of the unit: the handle of one of its guest requests.
    pub id: ReqId,
    /// VM that issued the unit's requests.
    pub vm: VmId,
    /// Operation that all requests of the unit share.
    pub op: Op,
    /// First byte on the device that is still to be dispatched.
    pub addr: u64,
    /// Bytes still to be dispatched.
    pub len: u32,
    /// Guest requests in it.
    pub requests: u32,
    /// Order of arrival over all VMs.
    pub seq: u64,
    /// Arrival time of its first guest request.
    pub arrived: Nanos,
}

/// State of the engine that roles may read. The engine changes it first and then notifies the
/// roles.
pub struct View {
    pub(crate) queues: Queues,
    pub(crate) objectives: Vec<Objective>,
    /// By VM slot; see [`View::allocation`].
    pub(crate) allocations: Vec<u64>,
    pub(crate) ledgers: Vec<Ledger>,
    /// Times at which parts of the engine itself have work to do.
    pub(crate) timers: PartTimers,
    /// Time at which the dispatcher wants to be asked again; [`Nanos::MAX`]: no such wish.
    pub(crate) pick_at: Nanos,
    pub(crate) profile: Option<Arc<Profile>>,
    pub(crate) estimator: Option<Box<CostEstimator>>,
    pub(crate) learnt: Option<LearntCosts>,
    /// Deadline transfers; `None` until the first one.
    pub(crate) transfers: Option<Box<TransferAccounts>>,
}

/// Costs of I/Os as the estimator learnt them.
pub(crate) struct LearntCosts {
    pub(crate) costs: Box<Profile>,
    /// Windows that the estimator had seen when these costs were taken.
    pub(crate) windows: u64,
}

/// Times at which parts of the engine itself have work to do, whatever the policy.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PartTimers {
    measure_at: Nanos,
    release_at: Nanos,
    next: Nanos,
}

impl PartTimers {
    /// No part has work to do.
    const NONE: PartTimers = PartTimers {
        measure_at: Nanos::MAX,
        release_at: Nanos::MAX,
        next: Nanos::MAX,
    };

    /// The earliest of the times; [`Nanos::MAX`]: none is set.
    #[inline]
    pub(crate) fn next(&self) -> Nanos {
        self.next
    }

    /// Time of the next measurement of VMs' throughput for their deadline transfers;
    /// [`Nanos::MAX`] while no VM has one.
    pub(crate) fn measure_at(&self) -> Nanos {
        self.measure_at
    }

    /// Sets the time of the next measurement.
    pub(crate) fn set_measure_at(&mut self, at: Nanos) {
        self.measure_at = at;
        self.next = at.min(self.release_at);
    }

    /// Time at which the next request may pass a limit of its disk; [`Nanos::MAX`] while none
    /// waits for one.
    pub(crate) fn release_at(&self) -> Nanos {
        self.release_at
    }

    /// Sets the time at which the next request may pass a limit of its disk.
    pub(crate) fn set_release_at(&mut self, at: Nanos) {
        self.release_at = at;
        self.next = at.min(self.measure_at);
    }
}

impl From<Queues> for View {
    /// Creates the state of an engine without VMs.
    fn from(queues: Queues) -> View {
        View {
            queues,
            objectives: Vec::new(),
            allocations: Vec::new(),
            ledgers: Vec::new(),
            timers: PartTimers::NONE,
            pick_at: Nanos::MAX,
            profile: None,
            estimator: None,
            learnt: None,
            transfers: None,
        }
    }
}

impl View {
    /// The time of the call that is being handled.
    #[inline]
    pub fn now(&self) -> Nanos {
        self.queues.now
    }

    /// Specification and counters of the device.
    #[inline]
    pub fn device(&self) -> &DeviceStats {
        &self.queues.device
    }

    /// Saturation profile: the device's measured maximum throughput; `None`: not measured.
    #[inline]
    pub fn profile(&self) -> Option<&Profile> {
        self.profile.as_deref()
    }

    /// Costs of I/Os in device time, for sharing it: the profile, or the costs learnt online, which
    /// are replaced when new ones are learnt ([`Event::CostsLearnt`]). `None`: the dispatcher does
    /// not use costs, or too few I/Os were seen.
    ///
    /// [`Event::CostsLearnt`]: crate::roles::Event::CostsLearnt
    #[inline]
    pub fn costs(&self) -> Option<&Profile> {
        let learnt = || self.learnt.as_ref().map(|learnt| &*learnt.costs);
        self.profile().or_else(learnt)
    }

    /// Estimator of the requests' cost in device time; `None`: no role or option needs it.
    #[inline]
    pub fn estimator(&self) -> Option<&CostEstimator> {
        self.estimator.as_deref()
    }

    /// Throughput of VMs with deadline transfers, by VM slot; `None`: there was no transfer yet.
    pub fn predictor(&self) -> Option<&Predictor> {
        self.transfers.as_deref().map(TransferAccounts::predictor)
    }

    /// Number of VM slots: every [`VmId::index`] is below it.
    pub fn vm_slots(&self) -> usize {
        self.queues.vms.len()
    }

    /// Iterates over the live VMs in the order of their slots.
    pub fn vms(&self) -> impl Iterator<Item = VmId> + '_ {
        (0..self.queues.vms.len()).filter_map(|i| {
            let live = self.queues.vms[i].life == Life::Live;
            live.then_some(self.vm_at(i))
        })
    }

    /// State of a VM.
    #[inline(always)]
    fn vm(&self, vm: VmId) -> &Vm {
        &self.queues.vms[vm.index()]
    }

    /// The handle of the VM in a slot.
    #[inline]
    pub fn vm_at(&self, index: usize) -> VmId {
        self.queues.vms[index].id(index as u32)
    }

    /// True while a VM is served: it was added, and its removal has not begun.
    #[inline]
    pub fn is_live(&self, vm: VmId) -> bool {
        self.vm(vm).life == Life::Live
    }

    /// Largest device I/O of a VM in bytes: larger reads and writes are split.
    #[inline]
    pub fn largest_io(&self, vm: VmId) -> u32 {
        self.vm(vm).largest_io
    }

    /// Returns whether this is a background process of the host (a backup, a scrub) instead of a
    /// VM: it gets the throughput that VMs leave, and no regulator's credits hold it back.
    pub fn is_background(&self, vm: VmId) -> bool {
        self.vm(vm).background
    }

    /// Returns whether a regulator that gates at admission (credits) would admit a VM's next unit;
    /// always true without such a regulator.
    pub fn may_enter(&self, vm: VmId) -> bool {
        !self.vm(vm).spent
    }

    /// Guest requests of a VM inside the engine, waiting or in flight.
    pub fn requests(&self, vm: VmId) -> u32 {
        self.vm(vm).requests
    }

    /// Time at which a VM's last request was answered with none left; [`Nanos::MAX`]: never yet.
    /// The value stays while the next requests are inside, so inside
    /// [`Event::Arrived`](crate::roles::Event) with [`View::requests`] 1 it gives the VM's think
    /// time.
    pub fn quiet_since(&self, vm: VmId) -> Nanos {
        self.vm(vm).quiet_since
    }

    /// Objective in force for a VM.
    pub fn objective(&self, vm: VmId) -> &Objective {
        &self.objectives[vm.index()]
    }

    /// Rate that the policy's controller last allocated to a VM, in thousandths of a request a
    /// second ([`Knob::Allocation`](crate::roles::Knob)); 0: no allocation yet.
    pub fn allocation(&self, vm: VmId) -> u64 {
        self.allocations[vm.index()]
    }

    /// Statistics of a VM, including counts that are not in its ledger yet.
    pub fn stats(&self, vm: VmId) -> Ref<'_, VmStats> {
        let of_vm = self.vm(vm);
        self.ledgers[vm.index()].read(of_vm.arrived, of_vm.answered)
    }

    /// Starts the per-second statistics of a VM with the current second.
    pub(crate) fn begin_seconds(&mut self, vm: usize) {
        let (of_vm, ledger) = (&mut self.queues.vms[vm], &mut self.ledgers[vm]);
        of_vm.second = BandwidthSamples::second_number(self.queues.now);
        ledger.begin_seconds(of_vm.second, of_vm.arrived, of_vm.answered);
    }

    /// Guest requests of a VM that wait.
    pub fn waiting(&self, vm: VmId) -> u32 {
        self.vm(vm).waiting
    }

    /// Device I/Os of a VM in flight.
    pub fn in_flight(&self, vm: VmId) -> u32 {
        self.vm(vm).in_flight
    }

    /// Returns whether a lane's gate is open (always, unless the regulator gates at dispatch).
    #[inline]
    pub fn gate_open(&self, vm: VmId, lane: Lane) -> bool {
        !self.vm(vm).is_closed(lane)
    }

    /// Returns whether a VM's reads are held back because there is no payload memory for the next
    /// one.
    pub fn lacks_memory(&self, vm: VmId) -> bool {
        let of_vm = self.vm(vm);
        of_vm.shelved || of_vm.shut[Lane::Read.index()] & shut::LACKS_MEMORY != 0
    }

    /// First admitted unit of a lane, whatever the lane's gate says.
    #[inline]
    pub fn lane_head(&self, vm: VmId, lane: Lane) -> Option<ReqId> {
        let head = self.vm(vm).lanes[lane.index()].admitted_head();
        (head != NIL).then(|| self.req_id(head))
    }

    /// Returns whether a VM has an admitted unit in a lane whose gate is open.
    #[inline]
    pub fn has_head(&self, vm: VmId) -> bool {
        let vm = self.vm(vm);
        vm.open_head(0) != NIL || vm.open_head(1) != NIL
    }

    /// Admitted unit of a VM that arrived first, among the lanes whose gate is open.
    #[inline(always)]
    pub fn head(&self, vm: VmId) -> Option<ReqId> {
        let vm = self.vm(vm);
        let slot = match (vm.open_head(0), vm.open_head(1)) {
            (NIL, NIL) => return None,
            (a, NIL) => a,
            (NIL, b) => b,
            (a, b)
                if self.queues.reqs.hot[a as usize].seq < self.queues.reqs.hot[b as usize].seq =>
            {
                a
            }
            (_, b) => b,
        };
        Some(self.req_id(slot))
    }

    /// Returns whether a VM has a unit that waits for admission. Reads no request, unlike
    /// [`View::pending_head`].
    #[inline]
    pub fn has_pending(&self, vm: VmId) -> bool {
        let lanes = &self.vm(vm).lanes;
        lanes[0].pending != NIL || lanes[1].pending != NIL
    }

    /// First unit of a VM that waits for admission, in the order of arrival over both lanes.
    pub fn pending_head(&self, vm: VmId) -> Option<ReqId> {
        let lanes = &self.vm(vm).lanes;
        let slot = match (lanes[0].pending, lanes[1].pending) {
            (NIL, NIL) => return None,
            (a, NIL) => a,
            (NIL, b) => b,
            (a, b)
                if self.queues.reqs.hot[a as usize].seq < self.queues.reqs.hot[b as usize].seq =>
            {
                a
            }
            (_, b) => b,
        };
        Some(self.req_id(slot))
    }

    /// Returns a reader of a waiting unit, or of one of its guest requests.
    #[inline]
    pub fn queued(&self, id: ReqId) -> Queued<'_> {
        Queued { view: self, id }
    }

    /// Returns the handle of the guest request that is in a slot now.
    #[inline]
    pub fn req_id(&self, slot: u32) -> ReqId {
        self.queues.reqs.id(slot)
    }
}

/// Counts the arrival of a VM's request. Returns whether the request may continue one that arrived
/// shortly before: a hint, checked against the lane by the caller.
#[inline(always)]
pub(crate) fn count_arrival(
    now: Nanos,
    of_vm: &mut Vm,
    ledger: &mut Ledger,
    (vm, op, addr, len): (u32, Op, u64, u32),
    splitting: Option<&mut Splitting>,
) -> bool {
    of_vm.waiting += 1;
    // Think time is known only for the first request after an idle time.
    let mut thought = None;
    if of_vm.requests == 0 {
        thought = end_quiet_time(now, of_vm, ledger);
    }
    of_vm.requests += 1;
    if let Some(splitting) = splitting
        // The split into parts protects VMs from each other; background processes do not count.
        && !of_vm.background
    {
        splitting.arrived(now, vm, thought);
    }
    // The edges of the last arrivals are a cheap filter: without a match the lane is not searched
    // for a merge.
    let end = addr.wrapping_add(len as u64);
    let continues = op.merges() && of_vm.edges.meet(of_vm.arrived, op, addr, end);
    ledger.arrived(&mut of_vm.arrived, op, addr, len);
    continues
}

/// Ends the idle time of a VM that has a request inside again. Returns the VM's think time; `None`:
/// this is its first request.
#[inline(never)]
fn end_quiet_time(now: Nanos, of_vm: &mut Vm, ledger: &mut Ledger) -> Option<Nanos> {
    pass_seconds(now, of_vm, ledger, false);
    if of_vm.quiet_since == Nanos::MAX {
        return None;
    }
    let span = now.since(of_vm.quiet_since);
    ledger.at_once().thought(span);
    Some(span)
}

/// Closes a VM's statistics of past seconds, if the second has changed, before an answer or the end
/// of an idle time is counted. `asked`: the VM had requests inside ever since its last closed
/// second; otherwise it had none.
#[inline]
pub(crate) fn pass_seconds(now: Nanos, of_vm: &mut Vm, ledger: &mut Ledger, asked: bool) {
    // Computing the number of a second takes a division; testing against a known second does not.
    let began = u64::from(of_vm.second) * Nanos::SECOND.0;
    if now.0.wrapping_sub(began) >= Nanos::SECOND.0 {
        close_seconds(now, of_vm, ledger, asked);
    }
}

#[cold]
#[inline(never)]
fn close_seconds(now: Nanos, of_vm: &mut Vm, ledger: &mut Ledger, asked: bool) {
    let second = BandwidthSamples::second_number(now);
    // Second numbers wrap after 2^32 seconds; from then on the caller's cheap test always fails.
    if of_vm.second == second {
        return;
    }
    of_vm.second = second;
    ledger.pass_seconds(second, asked, of_vm.arrived, of_vm.answered);
}

/// Bytes of `len` that an operation transfers to or from the device: 0 where the device only
/// changes metadata (discard, zeroes that are not written).
pub fn moved(view: &View, op: Op, len: u32) -> u32 {
    moved_by(op, len, &view.device().spec)
}

/// Bytes that a request moves to or from a device.
#[inline]
pub(crate) fn moved_by(op: Op, len: u32, device: &DeviceSpec) -> u32 {
    match op {
        Op::Read | Op::Write => len,
        Op::WriteZeroes if device.zeroes_are_writes => len,
        Op::WriteZeroes | Op::Discard | Op::Flush => 0,
    }
}
