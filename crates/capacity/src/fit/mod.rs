//! Fit: checks that the promises to all VMs of a device can be kept together.
//!
//! [`evaluate`] serves plans, checks, refusals and the admission of deadline transfers. Three
//! resources must suffice, each for all VMs at once:
//!
//! - **Device time.** A reservation, a target, a deadline transfer or the envelope of a latency
//!   bound takes its requests per second times the device time of one, by the saturation profile
//!   (vFair, Lu et al., SoCC 2015, section 4.1; here by direction, access pattern and size). The
//!   sum may be at most the headroom, by default 80 %; the rest covers what no profile knows.
//!   `mix` describes the worst mix of reads and writes.
//! - **Latency.** A request with a bound waits for the device's blocking time (`blocking`) and for
//!   requests due before it, and is then served itself: a demand-bound test for non-preemptive
//!   deadlines (`latency`). The sum may be at most the headroom's part of the bound.
//! - **Capacity.** The bytes of the disks.
//!
//! Beside the verdict there are two figures: [`Fit::blocking`], the time by which a request of a
//! floor (a reservation, a target or the rate that a deadline transfer needs) may be late, and
//! [`Fit::depth_bound`], the largest queue depth that keeps every bound.
//!
//! The result errs on the safe side: it is the worst that VMs can do to the device while each asks
//! for at most what it was promised. So an added promise never makes the others fit better, and the
//! order of VMs does not matter. Times are integers of picoseconds, rounded up.
//!
//! Properties of requests that a VM's objective leaves out
//! ([`ExpectedWorkload`](tidegate_base::expected_workload::ExpectedWorkload)) are assumed: random;
//! of the size at which their rate is counted (4 KiB if an IOPS rate names none, 128 KiB for a
//! bandwidth, the quotient of both where there are both); reads or writes, whichever cost more, and
//! beyond the limit of that direction the other.
//!
//! ```
//! use tidegate_capacity::fit::{Assumed, Device, Queueing, PlannedVm, evaluate};
//! use tidegate_base::objective::{Objective, Rate};
//! use tidegate_capacity::profile::{Curve, Profile};
//!
//! let curve = |iops| Curve::new(&[(4096, iops)]).expect("a curve");
//! let profile = Profile::new([curve(8000.0), curve(200.0)], None, Vec::new(), Vec::new());
//! let device = Device {
//!     profile: &profile,
//!     depth: 32,
//!     max_io: 1 << 20,
//!     merge_limit: 0,
//!     capacity: None,
//!     queueing: Queueing::default(),
//! };
//! let objective = Objective { reservation: Rate::iops(100), ..Objective::default() };
//! let vm = |name| PlannedVm::new(name, &objective);
//!
//! // 100 of 200 IOPS are half of the device: one VM fits, two do not.
//! assert!(evaluate(&device, &[vm("a")], &Assumed::default()).fits());
//! assert!(!evaluate(&device, &[vm("a"), vm("b")], &Assumed::default()).fits());
//! ```

mod blocking;
mod budget;
mod cost;
mod latency;
mod load;
mod messages;
mod mix;
mod near_limit;
mod nearest;
#[cfg(test)]
mod tests;

use crate::profile::Profile;
use tidegate_base::objective::Objective;
use tidegate_base::time::Nanos;

pub use self::blocking::Blocking;
pub use budget::{Budget, LATENCY_PROBE_OPS, budget};
pub use load::Load;
pub use messages::{changed_parts, refusal};
pub use near_limit::{NearLimit, near_limits};
pub use nearest::{nearest, nearest_bounds, nearest_of_all};

/// Picoseconds in a second: the device time of a second.
pub const SECOND_PS: u64 = 1_000_000_000_000;
/// Background parts per second that are served whatever the VMs do: one per 500 ms.
const BACKGROUND_PARTS_PER_S: u128 = 2;

/// Device that VMs share.
#[derive(Clone, Copy, Debug)]
pub struct Device<'a> {
    /// Saturation profile.
    pub profile: &'a Profile,
    /// Maximum number of I/Os in flight, at least 1.
    pub depth: u32,
    /// Largest I/O in bytes; assumed for VMs whose request size is not known.
    pub max_io: u32,
    /// Size in bytes up to which adjacent requests are merged.
    pub merge_limit: u32,
    /// Size in bytes; `None`: not known, then disks are not counted.
    pub capacity: Option<u64>,
    /// Limits to which depth and I/O size may be lowered for latency bounds.
    pub queueing: Queueing,
}

/// Limits by which a device's queue is kept short for its latency bounds.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Queueing {
    /// Smallest depth to which latency bounds may lower the depth, at least 1; `None`: the depth
    /// stays as configured.
    pub least_depth: Option<u32>,
    /// Largest part of an I/O in bytes while VMs share the device; `None`: I/Os are not split.
    pub part: Option<u32>,
    /// Largest device time of a background part, with one part in flight at a time; `None`:
    /// background I/Os are scheduled like those of VMs.
    pub background_part: Option<Nanos>,
}

/// VM or background process with disks on the device, as a plan sees it.
#[derive(Clone, Copy, Debug)]
pub struct PlannedVm<'a> {
    /// Name, for messages.
    pub name: &'a str,
    /// Promises.
    pub objective: &'a Objective,
    /// Background process of the host: without promises, but its I/Os delay others.
    pub background: bool,
    /// Total bytes of its disks.
    pub disk_bytes: u64,
    /// Bytes per second that its deadline transfer needs to end in time; 0: no transfer.
    pub transfer: u64,
}

impl<'a> PlannedVm<'a> {
    /// Returns a VM without disks or a transfer.
    pub fn new(name: &'a str, objective: &'a Objective) -> PlannedVm<'a> {
        PlannedVm {
            name,
            objective,
            background: false,
            disk_bytes: 0,
            transfer: 0,
        }
    }
}

/// Assumptions of a plan.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Assumed {
    /// Part of the device's time, and of a latency bound, that may be promised, in thousandths, 1
    /// to 1000.
    pub headroom: u32,
    /// Treatment of sequential requests.
    pub streams: Streams,
}

impl Default for Assumed {
    /// 80 %, and streams are blended.
    fn default() -> Self {
        Assumed {
            headroom: 800,
            streams: Streams::Blended,
        }
    }
}

/// Treatment of sequential requests where several VMs share a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Streams {
    /// Interleaved with requests of other VMs, so that they cost as much as random ones (vFair's
    /// figure 7: the blender). A VM that is alone on its device keeps its streams.
    Blended,
    /// Served in sequence, as with a scheduler that serves one VM for a while, or on a device
    /// without positioning times.
    Kept,
}

/// Resource that must suffice for all VMs of a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Resource {
    /// Device time, of which the headroom may be promised.
    DeviceTime,
    /// Latency of requests with a bound.
    Latency,
    /// Bytes of the device.
    Capacity,
}

/// Requirements of one VM.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Need {
    /// Upper bound on the promised requests, and the properties assumed of them.
    pub load: Load,
    /// Device time in picoseconds per second, in the mix in which all VMs together need most.
    pub time_ps: u64,
    /// Latency bound; `None`: not promised.
    pub bound: Option<Bound>,
}

/// Verdict on a latency bound.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bound {
    /// Promised bound.
    pub asked: Nanos,
    /// Worst-case latency, divided by the headroom to compare with the bound; `None`: not known,
    /// because the profile has no latencies.
    pub takes: Option<Nanos>,
    /// 99th percentile of the latency on an otherwise idle device; `None`: not measured.
    pub alone: Option<Nanos>,
    /// No envelope is given for which it holds ([`Objective::envelope`]): the verdict assumes one
    /// request at a time, and promises nothing beyond that.
    pub best_effort: bool,
}

impl Bound {
    /// Returns true if the bound holds, or is not known to fail.
    pub fn holds(&self) -> bool {
        self.takes.is_none_or(|takes| takes <= self.asked)
    }
}

/// Result of a fit: needs of all VMs against the device.
#[derive(Clone, PartialEq, Debug)]
pub struct Fit {
    /// Needs in the order of the VMs.
    pub needs: Vec<Need>,
    /// Device time that all VMs together need at most, in picoseconds per second.
    pub time_ps: u64,
    /// Device time that may be promised, in picoseconds per second.
    pub budget_ps: u64,
    /// Total bytes of all disks.
    pub disk_bytes: u64,
    /// Bytes of the device; `None`: not known.
    pub capacity: Option<u64>,
    /// Blocking time T of the device at `depth_bound`: a floor's request is on time if it is
    /// answered by its mClock reservation tag + 1/rate + T. T is the worst case; the engine judges
    /// by less where the device, at its measured pace, completes its queue sooner.
    pub blocking: Nanos,
    /// Causes of the blocking time.
    pub blocked_by: Blocking,
    /// Largest depth at which all latency bounds hold that can hold at any depth, at most
    /// [`Device::depth`], the value where nothing lowers it. A bound that holds at no depth lowers
    /// nothing: the device would do less, and the bound would be missed all the same.
    pub depth_bound: u32,
}

impl Fit {
    /// Returns true if all three resources suffice.
    pub fn fits(&self) -> bool {
        self.short_of().is_none()
    }

    /// Resource that does not suffice; device time first, because latencies depend on it.
    pub fn short_of(&self) -> Option<Resource> {
        let held = |need: &Need| need.bound.is_none_or(|bound| bound.holds());
        if self.time_ps > self.budget_ps {
            Some(Resource::DeviceTime)
        } else if !self.needs.iter().all(held) {
            Some(Resource::Latency)
        } else if self.capacity.is_some_and(|bytes| self.disk_bytes > bytes) {
            Some(Resource::Capacity)
        } else {
            None
        }
    }

    /// Returns true if promises do not fit and exceed the device by more than `before`. `before` is
    /// the fit of the same VMs in the same order, or of the first ones of them. Where too much is
    /// promised already, a change may reduce the excess but not raise it.
    pub fn is_worse_than(&self, before: &Fit) -> bool {
        let time = self.time_ps > self.budget_ps && self.time_ps > before.time_ps;
        let disks = self.capacity.is_some_and(|bytes| self.disk_bytes > bytes)
            && self.disk_bytes > before.disk_bytes;
        let beyond = |bound: Option<Bound>| {
            let bound = bound.filter(|bound| !bound.holds())?;
            Some(bound.takes?.since(bound.asked))
        };
        let late = self.needs.iter().enumerate().any(|(at, need)| {
            let before = before.needs.get(at).and_then(|need| beyond(need.bound));
            beyond(need.bound) > before
        });
        time || disks || late
    }

    /// Returns the scarcest resource with its used part, in thousandths rounded up.
    pub fn tightest(&self) -> (Resource, u32) {
        let part = |used: u64, all: u64| {
            let part = (u128::from(used) * 1000).div_ceil(u128::from(all.max(1)));
            part.min(u32::MAX.into()) as u32
        };
        let time = (Resource::DeviceTime, part(self.time_ps, self.budget_ps));
        let bounds = self.needs.iter().filter_map(|need| need.bound);
        let bounds = bounds.filter_map(|b| Some((Resource::Latency, part(b.takes?.0, b.asked.0))));
        let capacity = self
            .capacity
            .map(|all| (Resource::Capacity, part(self.disk_bytes, all)));
        // Strict comparison keeps the first of several equal parts.
        bounds
            .chain(capacity)
            .fold(time, |most, next| if next.1 > most.1 { next } else { most })
    }
}

/// Rounds in which bounds that hold at no depth are dropped; the last drops all bounds. One round
/// suffices unless the bounds kept miss only without the dropped ones' depth; each costs a whole
/// search for the depth.
const DROP_ROUNDS_MAX: u32 = 4;

/// Checks the promises of all VMs against the device, at the largest depth at which they fit. If no
/// depth keeps all bounds, `needs` are those at the depth that misses them by least, while depth
/// and blocking time are those of the bounds that can hold.
///
/// # Panics
/// If the depth of the device is 0.
pub fn evaluate(device: &Device<'_>, vms: &[PlannedVm<'_>], assumed: &Assumed) -> Fit {
    assert!(device.depth > 0, "a device of depth 0 serves nothing");
    let mut fit_of_all = at_best_depth(device, vms, assumed);
    if fit_of_all.short_of() != Some(Resource::Latency) || device.queueing.least_depth.is_none() {
        return fit_of_all;
    }
    let mut promised: Vec<Objective> = vms.iter().map(|vm| *vm.objective).collect();
    let mut held = None;
    for round in 1..=DROP_ROUNDS_MAX {
        let needs = held
            .as_ref()
            .map_or(&fit_of_all.needs, |held: &Fit| &held.needs);
        for (objective, need) in promised.iter_mut().zip(needs) {
            // A bound that holds at no depth must not lower the depth for others.
            if round == DROP_ROUNDS_MAX || need.bound.is_some_and(|bound| !bound.holds()) {
                objective.latency = None;
            }
        }
        let others = vms.iter().zip(&promised);
        let others = others.map(|(&vm, objective)| PlannedVm { objective, ..vm });
        let others: Vec<PlannedVm<'_>> = others.collect();
        let fit = at_best_depth(device, &others, assumed);
        let is_done = fit.short_of() != Some(Resource::Latency);
        held = Some(fit);
        if is_done {
            break;
        }
    }
    if let Some(held) = held {
        fit_of_all.depth_bound = held.depth_bound;
        (fit_of_all.blocking, fit_of_all.blocked_by) = (held.blocking, held.blocked_by);
    }
    fit_of_all
}

/// Returns the blocking time T at exactly the given depth, for a device whose queue is kept shorter
/// than its bounds demand. [`Fit::blocking`] is the one at [`Fit::depth_bound`].
pub fn blocking(device: &Device<'_>, vms: &[PlannedVm<'_>], assumed: &Assumed) -> Nanos {
    at_depth(device, vms, assumed).blocking
}

/// Returns the fit at the largest depth at which all promises fit, or that misses bounds by least.
fn at_best_depth(device: &Device<'_>, vms: &[PlannedVm<'_>], assumed: &Assumed) -> Fit {
    let at = |depth| at_depth(&Device { depth, ..*device }, vms, assumed);
    let mut best = at(device.depth);
    let Some(least) = device.queueing.least_depth else {
        return best;
    };
    if best.short_of() != Some(Resource::Latency) {
        return best;
    }
    for (low, high) in blocking::constant_cost_depths(device, least) {
        let lowest = at(low);
        match lowest.short_of() {
            None | Some(Resource::Capacity) => return deepest(lowest, low, high, at),
            // A smaller depth only reduces throughput further, so the last `best` stays the best.
            Some(Resource::DeviceTime) => {}
            Some(Resource::Latency) if lowest.tightest().1 < best.tightest().1 => best = lowest,
            Some(Resource::Latency) => {}
        }
    }
    best
}

/// Returns the fit at the largest depth of a range at which every bound holds, as it does at the
/// smallest. Costs are constant in the range, so that blocking alone grows with the depth.
fn deepest(lowest: Fit, low: u32, high: u32, at: impl Fn(u32) -> Fit) -> Fit {
    let (mut best, mut holds, mut fails) = (lowest, low, high + 1);
    while fails - holds > 1 {
        let middle = holds + (fails - holds) / 2;
        let fit = at(middle);
        match fit.short_of() {
            None | Some(Resource::Capacity) => (best, holds) = (fit, middle),
            _ => fails = middle,
        }
    }
    best
}

/// Returns the fit at the given depth of the device.
fn at_depth(device: &Device<'_>, vms: &[PlannedVm<'_>], assumed: &Assumed) -> Fit {
    let costs = cost::Costs::new(device);
    let blended = assumed.streams == Streams::Blended && vms.len() > 1;
    let loads: Vec<Load> = (vms.iter()).map(|vm| Load::for_vm(vm, &costs)).collect();
    let sizes = loads.iter().flat_map(|load| [load.size, load.longest]);
    let mix_factors = cost::MixFactors::new(device.profile, sizes);
    // Millionths of a picosecond per second, by VM.
    let mut vm_times = mix::worst_mix_times(&costs, &mix_factors, &loads, blended);
    let sum = |vm_times: &[u128]| {
        vm_times
            .iter()
            .fold(0u128, |sum, &time| sum.saturating_add(time))
    };
    let worst = mix::per_second(sum(&vm_times));
    let assumptions = (blended, assumed.headroom);
    let bounds = latency::bounds(&costs, &mix_factors, vms, &loads, assumptions, worst);
    if let Some(first) = vms.iter().position(|vm| vm.background) {
        let parts = u128::from(bounds.blocking.background) * BACKGROUND_PARTS_PER_S;
        vm_times[first] = vm_times[first].saturating_add(parts * load::MICRO_REQUESTS);
    }
    let needs = loads.iter().zip(&vm_times).zip(bounds.verdicts);
    let needs = needs.map(|((&load, &time), bound)| Need {
        load,
        time_ps: mix::per_second(time),
        bound,
    });
    // Added up before they are rounded, so that the order of VMs does not matter.
    let all = sum(&vm_times);
    Fit {
        needs: needs.collect(),
        time_ps: mix::per_second(all),
        budget_ps: SECOND_PS / 1000 * u64::from(assumed.headroom),
        disk_bytes: (vms.iter()).fold(0, |sum: u64, vm| sum.saturating_add(vm.disk_bytes)),
        capacity: device.capacity,
        blocking: bounds.blocking.total(),
        blocked_by: bounds.blocking,
        depth_bound: device.depth,
    }
}
