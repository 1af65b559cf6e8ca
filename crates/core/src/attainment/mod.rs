//! Attainment: whether promises to VMs were kept, by the second.
//!
//! The engine judges every VM that was promised something, so the simulator and the daemon give the
//! same verdicts. Parts of an objective are judged as follows:
//!
//! - **Reservation and target** are floors. A request has a tag, the later of its arrival and the
//!   previous tag plus what the previous request takes of the rate. It is on time when it is
//!   answered by its tag plus what it takes of the rate itself plus the device's blocking time
//!   (`DeviceMut::set_blocking_time`). So a VM of queue depth 1 is judged like one that always has
//!   something waiting. What the VM has beyond its floor moves no tag. A second is kept when all
//!   but one of the requests that were due in it were on time. The one is forgiven only while it
//!   is less than [`LATE`] late: in a second in which a request is later than that, or hangs from
//!   the second's begin to its end, the VM went without service however few requests it had. A
//!   second in which the whole rate of a target was answered, less one request, is kept as well: a
//!   target is a rate over seconds (V-Cup, ToS 2017, section 2.2), and its I/Os may go in groups.
//! - **Latency** holds inside the VM's envelope, the rate of `expects` or else of the target or the
//!   reservation, of which `burst` requests may come at once. A request that comes sooner than the
//!   envelope allows is due its bound after the envelope allows it, as the policy `slo` has it. A
//!   second is kept when 99 % of the requests that were due in it were in time. Without an envelope
//!   every request is judged from its arrival, and the verdict is called best effort.
//! - **Limit** is counted at dispatch: a second is missed when more went to the device than the
//!   rate, 1 % and one request, or what a burst had left.
//! - **Deadline transfers** are judged one by one.
//!
//! A second that was missed while the medium ended nothing for 100 ms counts apart, as the
//! device's. Shares by weight are not judged.
//!
//! ```text
//!   arrives --> tag, due time --> one counter up in the ring of seconds
//!   answered --> in time? one counter down        a new second of this VM? --> close those before
//! ```
//!
//! Seconds are closed by the VM's own requests and by readers; nothing looks at all VMs. A request
//! that is due more than 31 s ahead is judged by its answer alone.

mod due_ring;
mod floor;
mod history;
mod latency;
mod limit;
mod part;
mod service;
mod stalls;
mod tags;
#[cfg(test)]
mod tests;
mod vm;

pub use history::Window;
pub(crate) use latency::BoundUse;
pub use part::{Cause, Part, PartAttainment, PartRecord, PartSeconds};
pub(crate) use service::Circumstances;
pub(crate) use stalls::Stalls;
pub(crate) use vm::Dues;
use vm::VmAttainment;

use tidegate_base::device::DeviceSpec;
use tidegate_base::objective::Objective;
use tidegate_base::pace::FirstServed;
use tidegate_base::request::{Account, IoError, Lane, Outcome};
use tidegate_base::time::Nanos;

/// Share of seconds that must be kept for a promise to be called kept.
pub const KEPT_SHARE: f64 = 0.99;
/// Lateness from which on no request is forgiven, and a floor is overdue.
pub const LATE: Nanos = Nanos::from_millis(100);

/// Blocking time of a flash device of which only the kind is known.
const BLOCKING_FLASH: Nanos = Nanos::from_millis(10);
/// Blocking time of a device that positions, such as a hard disk.
const BLOCKING_DISK: Nanos = Nanos::from_millis(50);

/// Number of the second that contains a time. All times from 136 years on lie in the last one,
/// which never ends, so that seconds never go back to zero.
fn second_of(now: Nanos) -> u32 {
    u32::try_from(now.0 / Nanos::SECOND.0).unwrap_or(u32::MAX)
}

/// State of a VM at the moment when a second of its attainment is closed. Tells the cause of a
/// missed second in which no late request was answered, for example because all of them still wait.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StateAtClose {
    /// A regulator has closed a lane of the VM: its own limit holds requests back.
    pub regulated: bool,
    /// Requests of the VM wait, and other VMs have requests in the scheduler as well.
    pub waits_for_others: bool,
    /// I/Os of any VM are in flight.
    pub device_busy: bool,
}

/// Attainment of all VMs of a device.
pub(crate) struct Attainments {
    /// By VM slot; `None` for a VM that was promised nothing.
    vms: Vec<Option<Box<VmAttainment>>>,
    /// Due times by request slot; empty until a VM is promised something.
    dues: Vec<Dues>,
    /// Number of requests that have a slot.
    requests: u32,
    /// Blocking time: the one that was set, or else that of the device's kind.
    blocking: Nanos,
    /// Blocking time of the device's kind.
    blocking_of_kind: Nanos,
    /// Number of times that the blocking time was set; with each, VMs drop a longer one they kept.
    blocking_set: u32,
    stalls: Stalls,
    /// Requests by the part of their latency bound that they took, since that was last asked.
    bound_use: BoundUse,
    /// Number of the newest objective: distinguishes requests that came under an earlier one.
    epoch: u64,
}

impl Attainments {
    /// Memory in bytes of a VM that was promised every part.
    pub(crate) const BYTES_PER_VM: usize = size_of::<Option<Box<()>>>() + size_of::<VmAttainment>();

    /// Creates the attainment of a device without VMs.
    pub(crate) fn new(device: &DeviceSpec, requests: u32) -> Attainments {
        let blocking_of_kind = Attainments::blocking_of_kind(device);
        Attainments {
            vms: Vec::new(),
            dues: Vec::new(),
            requests,
            blocking: blocking_of_kind,
            blocking_of_kind,
            blocking_set: 0,
            stalls: Stalls::default(),
            bound_use: BoundUse::default(),
            epoch: 0,
        }
    }

    /// Blocking time of a device of which nothing but its kind is known.
    pub(crate) fn blocking_of_kind(device: &DeviceSpec) -> Nanos {
        match device.positioning {
            Nanos::ZERO => BLOCKING_FLASH,
            _ => BLOCKING_DISK,
        }
    }

    /// Blocking time of the device, which a floor's requests may be late by: 10 ms for flash, 50 ms
    /// for a hard disk, unless it was set.
    pub(crate) fn blocking(&self) -> Nanos {
        self.blocking
    }

    /// Sets the blocking time for requests of all VMs that arrive from now on; `None`: that of its
    /// kind.
    pub(crate) fn set_blocking(&mut self, blocking: Option<Nanos>) {
        self.blocking = blocking.unwrap_or(self.blocking_of_kind);
        self.blocking_set = self.blocking_set.wrapping_add(1);
    }

    /// Sets the blocking time as [`Attainments::set_blocking`] does, but a VM whose promises stay
    /// the same keeps a longer one: what is promised to others makes its promises no tighter.
    pub(crate) fn loosen_blocking(&mut self, blocking: Option<Nanos>) {
        self.blocking = blocking.unwrap_or(self.blocking_of_kind);
    }

    /// Stalls of the device.
    #[inline]
    pub(crate) fn stalls(&mut self) -> &mut Stalls {
        &mut self.stalls
    }

    /// Total time of stalls that have ended.
    pub(crate) fn stalled(&self) -> Nanos {
        self.stalls.total()
    }

    /// Makes room for a VM that was added: nothing is promised to it yet.
    pub(crate) fn add(&mut self, vm: usize) {
        if self.vms.len() <= vm {
            self.vms.resize_with(vm + 1, || None);
        }
        self.vms[vm] = None;
    }

    /// Judges an objective of a VM from now on. Parts that stay the same keep their counts;
    /// of those that change the history stays. Returns whether its requests are judged.
    pub(crate) fn change(
        &mut self,
        now: Nanos,
        vm: usize,
        objective: &Objective,
        state: StateAtClose,
    ) -> bool {
        let judged = vm::is_judged(objective);
        if self.vms[vm].is_none() && !judged {
            return false;
        }
        if self.dues.is_empty() {
            self.dues = vec![Dues::default(); self.requests as usize];
        }
        // A request's stamp has room for 32 bits of it.
        self.epoch = (self.epoch + 1) % (1 << 32);
        let second = second_of(now);
        let of_vm = self.vms[vm].get_or_insert_with(|| Box::new(VmAttainment::new(second)));
        let stalls = self.stalls;
        of_vm.roll(now, state, &stalls);
        of_vm.set_objective(now, objective, self.epoch);
        judged
    }

    /// Counts a request in the slot `request` that arrived at `since`, before which `answered`
    /// requests of its VM were answered, modulo 2^32. `state` is only called when a second has
    /// ended.
    #[inline(always)]
    pub(crate) fn arrived(
        &mut self,
        now: Nanos,
        [vm, request]: [u32; 2],
        (since, len, answered): (Nanos, u32, u32),
        state: impl FnOnce() -> StateAtClose,
    ) {
        let blocking = (self.blocking, self.blocking_set);
        let Some(of_vm) = &mut self.vms[vm as usize] else {
            return;
        };
        of_vm.pass(now, state, &self.stalls);
        let dues = &mut self.dues[request as usize];
        of_vm.arrived((since, len), blocking, answered, dues);
    }

    /// Counts the answer to the request of `len` bytes in the slot `request`. Returns whether it
    /// was late: then [`Attainments::blame`] is to be told where its time went.
    #[inline(always)]
    pub(crate) fn answered(
        &mut self,
        now: Nanos,
        [vm, request]: [u32; 2],
        len: u32,
        outcome: Outcome,
        state: impl FnOnce() -> StateAtClose,
    ) -> bool {
        let Some(of_vm) = &mut self.vms[vm as usize] else {
            return false;
        };
        of_vm.pass(now, state, &self.stalls);
        // Due times need not be cleared: the slot's next request writes its own, unless it is not
        // judged; then the old ones carry the number of an earlier objective.
        let dues = &self.dues[request as usize];
        if outcome == Err(IoError::Cancelled) {
            // A cancelled request was not served: it is judged as if it had never been there.
            of_vm.cancelled(dues, len);
            return false;
        }
        of_vm.answered(now, dues, len, &mut self.bound_use)
    }

    /// Returns how much of their latency bounds requests used up since the last call.
    /// `second_ends`: VMs are counted anew.
    pub(crate) fn take_bound_use(&mut self, second_ends: bool) -> BoundUse {
        self.bound_use.take(second_ends)
    }

    /// Counts where the time of a VM's late request in the slot `request` went.
    #[cold]
    #[inline(never)]
    pub(crate) fn blame(
        &mut self,
        [vm, request]: [u32; 2],
        account: &Account,
        circumstances: Circumstances,
    ) {
        if let Some(of_vm) = &mut self.vms[vm as usize] {
            of_vm.blame(&self.dues[request as usize], account, circumstances);
        }
    }

    /// Counts requests that go to the device for the first time.
    #[inline(always)]
    pub(crate) fn dispatched(
        &mut self,
        now: Nanos,
        vm: u32,
        lane: Lane,
        first: FirstServed,
        state: impl FnOnce() -> StateAtClose,
    ) {
        if let Some(of_vm) = &mut self.vms[vm as usize] {
            of_vm.pass(now, state, &self.stalls);
            of_vm.dispatched(lane, first);
        }
    }

    /// Counts a deadline transfer that is over, `late` after its deadline.
    pub(crate) fn transfer_ended(&mut self, now: Nanos, vm: usize, late: Nanos) {
        if let Some(Some(of_vm)) = self.vms.get_mut(vm) {
            of_vm.transfer_ended(second_of(now), late);
        }
    }

    /// Makes room for the transfer of a VM that begins, so that its end allocates nothing.
    pub(crate) fn expect_transfer(&mut self, now: Nanos, vm: usize) {
        self.vms[vm].get_or_insert_with(|| Box::new(VmAttainment::new(second_of(now))));
    }

    /// Attainment of each part of a VM's objective so far, without the second that runs.
    pub(crate) fn view(&self, now: Nanos, vm: usize, state: StateAtClose) -> Vec<PartAttainment> {
        let Some(Some(of_vm)) = self.vms.get(vm) else {
            return Vec::new();
        };
        // Reading must not change the judge: seconds are closed in a copy.
        let mut of_vm = of_vm.clone();
        of_vm.roll(now, state, &self.stalls);
        of_vm.view(second_of(now))
    }

    /// Closes the seconds of a VM before `now`, as its own requests do, and returns those that were
    /// judged, by [`Part`]; `None` for a VM that was promised nothing.
    pub(crate) fn close_seconds(
        &mut self,
        now: Nanos,
        vm: usize,
        state: StateAtClose,
    ) -> Option<[PartSeconds; Part::ALL.len()]> {
        let of_vm = self.vms.get_mut(vm)?.as_mut()?;
        of_vm.pass(now, || state, &self.stalls);
        Some(of_vm.seconds())
    }

    /// Forgets all counts and history of a VM; its objective is judged on.
    pub(crate) fn reset_vm(&mut self, now: Nanos, vm: usize, state: StateAtClose) {
        if let Some(Some(of_vm)) = self.vms.get_mut(vm) {
            of_vm.roll(now, state, &self.stalls);
            of_vm.reset(now);
        }
    }

    /// Counts and history of each part, to be kept beyond the engine's life.
    pub(crate) fn export(&self, now: Nanos, vm: usize, state: StateAtClose) -> Vec<PartRecord> {
        let Some(Some(of_vm)) = self.vms.get(vm) else {
            return Vec::new();
        };
        let mut of_vm = of_vm.clone();
        of_vm.roll(now, state, &self.stalls);
        of_vm.export(second_of(now))
    }

    /// Continues with the counts that [`Attainments::export`] gave `ago` seconds ago, as far as the
    /// promises are the same.
    pub(crate) fn import(&mut self, now: Nanos, vm: usize, ago: u32, records: &[PartRecord]) {
        if let Some(of_vm) = self.vms.get_mut(vm) {
            let second = second_of(now);
            let transfers = records.iter().any(|it| it.part == Part::Transfer);
            if transfers && of_vm.is_none() {
                *of_vm = Some(Box::new(VmAttainment::new(second)));
            }
            if let Some(of_vm) = of_vm {
                of_vm.import(second, ago, records);
            }
        }
    }
}
