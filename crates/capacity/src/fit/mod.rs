//! Whether what was promised to VMs fits their device together.
//!
//! One function, [`reckon`], for plans, checks, refusals and the admission of deadline transfers.
//! Three things must be enough, each for all VMs at once:
//!
//! - **Device time.** A reservation (a target, a deadline transfer and the envelope of a latency
//!   bound, too) takes its requests a second times what one takes of the device, by the saturation
//!   profile (vFair, Lu et al., SoCC 2015, section 4.1, in 3D). The sum may be at most the
//!   headroom, 80 % unless said: what is beyond is for what no profile knows. `mix` says how reads
//!   and writes that meet are reckoned.
//! - **Latency.** A request with a bound waits for the device's blocking time (`blocking`) and for
//!   what is due before it, and is then with the device itself: a demand-bound test as for
//!   deadlines that do not preempt (`latency`). That may take the headroom's part of the bound.
//! - **Capacity.** The bytes of the disks.
//!
//! Beside the verdict there are two figures: [`Fit::blocking`], by which a floor may be late, and
//! [`Fit::depth_bound`], the deepest queue with which every bound is held.
//!
//! The reckoning errs to the safe side: it asks what the VMs, each asking for at most what it was
//! promised, can make of the device at worst. So nothing that is added makes it fit better, and the
//! order of VMs does not matter. Times are whole picoseconds, rounded up.
//!
//! What is not said of a VM's requests ([`Expects`](tidegate_base::expect::Expects)) is assumed:
//! they are random; as long as the size their rate is counted at (4 KiB where it names none, 128
//! KiB for a bandwidth, what both give where there are both); all reads or all writes, whichever is
//! dearer.
//!
//! ```
//! use tidegate_capacity::fit::{Assumed, Device, Queueing, Tenant, reckon};
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
//! let vm = |name| Tenant::new(name, &objective);
//!
//! // 100 of 200 IOPS are half of the device: one fits, two do not.
//! assert!(reckon(&device, &[vm("a")], &Assumed::default()).fits());
//! assert!(!reckon(&device, &[vm("a"), vm("b")], &Assumed::default()).fits());
//! ```

mod blocking;
mod cost;
mod latency;
mod load;
mod mix;
mod nearest;
mod say;
#[cfg(test)]
mod tests;

use crate::profile::Profile;
use tidegate_base::objective::Objective;
use tidegate_base::time::Nanos;

pub use self::blocking::Blocking;
pub use load::Load;
pub use nearest::{nearest, nearest_of_all};
pub use say::{changed_parts, refusal};

/// Picoseconds of the device in a second.
pub const SECOND_PS: u64 = 1_000_000_000_000;
/// Background parts a second that are served whatever the VMs do: one per 500 ms.
const BACKGROUND_PARTS: u128 = 2;

/// What is shared.
#[derive(Clone, Copy, Debug)]
pub struct Device<'a> {
    /// What it can do at most.
    pub profile: &'a Profile,
    /// I/Os in flight at it at most, at least 1.
    pub depth: u32,
    /// Largest I/O in bytes: how long the requests of a VM may be of which nothing is known.
    pub max_io: u32,
    /// Adjacent requests are merged up to so many bytes.
    pub merge_limit: u32,
    /// Bytes that it holds; `None`: not known, then disks are not counted.
    pub capacity: Option<u64>,
    /// Depth and parts as latency bounds may have them, at most those configured.
    pub queueing: Queueing,
}

/// Limits by which a device's queue is kept short for its latency bounds.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Queueing {
    /// Fewest I/Os in flight that the depth is lowered to for a bound, at least 1; `None`: the
    /// depth stays what it is.
    pub least_depth: Option<u32>,
    /// Largest part of an I/O in bytes while VMs share the device; `None`: I/Os go whole.
    pub part: Option<u32>,
    /// Largest device time of a background part, one of which is in flight at a time; `None`:
    /// background I/Os go like those of VMs.
    pub background_part: Option<Nanos>,
}

/// Somebody whose disks lie on the device.
#[derive(Clone, Copy, Debug)]
pub struct Tenant<'a> {
    /// For messages.
    pub name: &'a str,
    /// What was promised.
    pub objective: &'a Objective,
    /// A process of the host: nothing is reserved for it, but its I/Os are in the way.
    pub background: bool,
    /// Bytes of its disks.
    pub disk_bytes: u64,
    /// Bytes a second that its deadline transfer needs to end in time; 0: it has none.
    pub transfer: u64,
}

impl<'a> Tenant<'a> {
    /// Returns a VM without disks or a transfer.
    pub fn new(name: &'a str, objective: &'a Objective) -> Tenant<'a> {
        Tenant {
            name,
            objective,
            background: false,
            disk_bytes: 0,
            transfer: 0,
        }
    }
}

/// What a plan takes for granted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Assumed {
    /// How much of the device's time, and of a latency bound, may be promised away, in thousandths,
    /// 1 to 1000.
    pub headroom: u32,
    /// What becomes of sequential requests.
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

/// What becomes of sequential requests where several VMs share a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Streams {
    /// They are served by turns with the others', and so cost as much as random ones (vFair's
    /// figure 7: the blender). A VM that is alone on its device keeps its streams.
    Blended,
    /// They stay sequential, as with a scheduler that serves a VM for a while, or where going
    /// elsewhere costs nothing.
    Kept,
}

/// What is to be enough for all of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Resource {
    /// Time of the device, of which the headroom may be promised.
    DeviceTime,
    /// Time of a request.
    Latency,
    /// Bytes.
    Capacity,
}

/// What one VM needs.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Need {
    /// What its requests were taken for, and how many there are at most that were promised.
    pub load: Load,
    /// Time of the device, in picoseconds a second, when all together need most.
    pub time_ps: u64,
    /// Its latency bound; `None`: it has none.
    pub bound: Option<Bound>,
}

/// What becomes of a latency bound.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bound {
    /// What was promised.
    pub asked: Nanos,
    /// The time that it and what is due before it take at most, by the headroom; `None`: not known,
    /// for the profile has no latencies.
    pub takes: Option<Nanos>,
    /// What its requests take on a device that does nothing else, 99 of 100.
    pub alone: Option<Nanos>,
    /// No rate is said for which it holds ([`Objective::envelope`]): one request at a time was
    /// reckoned with, and nothing is promised beyond that.
    pub best_effort: bool,
}

impl Bound {
    /// Returns whether it is held, as far as is known.
    pub fn holds(&self) -> bool {
        self.takes.is_none_or(|takes| takes <= self.asked)
    }
}

/// Whether they fit, and why.
#[derive(Clone, PartialEq, Debug)]
pub struct Fit {
    /// In the order of the tenants.
    pub needs: Vec<Need>,
    /// Device time that all together need at most, in picoseconds a second.
    pub time_ps: u64,
    /// Device time that may be promised, in picoseconds a second.
    pub budget_ps: u64,
    /// Bytes of all disks.
    pub disk_bytes: u64,
    /// Bytes there are, where that is known.
    pub capacity: Option<u64>,
    /// Blocking time T of the device at `depth_bound`: a floor's request is on time when it is
    /// answered by tag + 1/rate + T. A VM that was accepted keeps the largest T since then.
    pub blocking: Nanos,
    /// Causes of the blocking time.
    pub blocked_by: Blocking,
    /// Most I/Os in flight with which every latency bound holds that any depth holds, at most
    /// [`Device::depth`], which it is where nothing lowers it. A bound that no depth holds lowers
    /// nothing: the device would do less, and the bound would be missed all the same.
    pub depth_bound: u32,
}

impl Fit {
    /// Whether all of it fits.
    pub fn fits(&self) -> bool {
        self.short_of().is_none()
    }

    /// What there is too little of; device time first, for bounds follow from it.
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

    /// Whether it does not fit and makes that worse than it was `before`, which has the same
    /// tenants in the same order, or the first of them. Promises may be too much already: then less
    /// is welcome, and more is not.
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

    /// What is nearest to its end, and how much of it is taken, in thousandths rounded up.
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
        // The first of those that are equal.
        bounds
            .chain(capacity)
            .fold(time, |most, next| match next.1 > most.1 {
                true => next,
                false => most,
            })
    }
}

/// Rounds in which bounds are left out that no depth holds; after that all are.
const ROUNDS: u32 = 4;

/// Reckons whether what was promised to all of them fits the device, with the deepest queue with
/// which it does. Where no depth holds all bounds, needs are those at the depth that misses them by
/// least, and depth and blocking time those of the bounds that can be held.
pub fn reckon(device: &Device<'_>, tenants: &[Tenant<'_>], assumed: &Assumed) -> Fit {
    let mut found = at_best_depth(device, tenants, assumed);
    if found.short_of() != Some(Resource::Latency) || device.queueing.least_depth.is_none() {
        return found;
    }
    let mut promised: Vec<Objective> = tenants.iter().map(|tenant| *tenant.objective).collect();
    let mut held = None;
    for round in 1..=ROUNDS {
        let needs = held.as_ref().map_or(&found.needs, |held: &Fit| &held.needs);
        for (objective, need) in promised.iter_mut().zip(needs) {
            if round == ROUNDS || need.bound.is_some_and(|bound| !bound.holds()) {
                objective.latency = None;
            }
        }
        let others = tenants.iter().zip(&promised);
        let others = others.map(|(&tenant, objective)| Tenant {
            objective,
            ..tenant
        });
        let others: Vec<Tenant<'_>> = others.collect();
        let fit = at_best_depth(device, &others, assumed);
        let is_done = fit.short_of() != Some(Resource::Latency);
        held = Some(fit);
        if is_done {
            break;
        }
    }
    if let Some(held) = held {
        found.depth_bound = held.depth_bound;
        (found.blocking, found.blocked_by) = (held.blocking, held.blocked_by);
    }
    found
}

/// Returns the blocking time T of the device at exactly the depth given, for a device whose queue
/// is kept shorter than its bounds demand. [`Fit::blocking`] is the one at [`Fit::depth_bound`].
pub fn blocking(device: &Device<'_>, tenants: &[Tenant<'_>], assumed: &Assumed) -> Nanos {
    at_depth(device, tenants, assumed).blocking
}

/// Reckons with the deepest queue with which all of it fits, or that misses bounds by least.
fn at_best_depth(device: &Device<'_>, tenants: &[Tenant<'_>], assumed: &Assumed) -> Fit {
    let at = |depth| at_depth(&Device { depth, ..*device }, tenants, assumed);
    let mut found = at(device.depth);
    let Some(least) = device.queueing.least_depth else {
        return found;
    };
    if found.short_of() != Some(Resource::Latency) {
        return found;
    }
    for (low, high) in blocking::stretches(device, least) {
        let lowest = at(low);
        match lowest.short_of() {
            None | Some(Resource::Capacity) => return deepest(lowest, low, high, at),
            // Fewer in flight have the device do less: the depth above is as near as it gets.
            Some(Resource::DeviceTime) => {}
            Some(Resource::Latency) if lowest.tightest().1 < found.tightest().1 => found = lowest,
            Some(Resource::Latency) => {}
        }
    }
    found
}

/// Returns the fit with the deepest queue of a stretch in which every bound holds, as it does at
/// its shallowest. Costs are the same in all of it, so blocking alone grows with the depth.
fn deepest(lowest: Fit, low: u32, high: u32, at: impl Fn(u32) -> Fit) -> Fit {
    let (mut found, mut yes, mut no) = (lowest, low, high + 1);
    while no - yes > 1 {
        let middle = yes + (no - yes) / 2;
        let fit = at(middle);
        match fit.short_of() {
            None | Some(Resource::Capacity) => (found, yes) = (fit, middle),
            _ => no = middle,
        }
    }
    found
}

/// Reckons with the device's depth as it is.
fn at_depth(device: &Device<'_>, tenants: &[Tenant<'_>], assumed: &Assumed) -> Fit {
    let costs = cost::Costs::new(device);
    let blended = assumed.streams == Streams::Blended && tenants.len() > 1;
    let loads: Vec<Load> = (tenants.iter())
        .map(|tenant| Load::of(tenant, &costs))
        .collect();
    let sizes = loads.iter().flat_map(|load| [load.size, load.longest]);
    let mixing = cost::Mixing::new(device.profile, sizes);
    let mut taken = mix::worst(&costs, &mixing, &loads, blended);
    let sum = |taken: &[u128]| {
        taken
            .iter()
            .fold(0u128, |sum, &time| sum.saturating_add(time))
    };
    let worst = mix::per_second(sum(&taken));
    let assumptions = (blended, assumed.headroom);
    let bounds = latency::bounds(&costs, &mixing, tenants, &loads, assumptions, worst);
    if let Some(first) = tenants.iter().position(|tenant| tenant.background) {
        let parts = u128::from(bounds.blocking.background) * BACKGROUND_PARTS;
        taken[first] = taken[first].saturating_add(parts * load::MILLION);
    }
    let needs = loads.iter().zip(&taken).zip(bounds.of);
    let needs = needs.map(|((&load, &time), bound)| Need {
        load,
        time_ps: mix::per_second(time),
        bound,
    });
    // Summed before it is rounded: who comes first does not matter.
    let all = sum(&taken);
    Fit {
        needs: needs.collect(),
        time_ps: mix::per_second(all),
        budget_ps: SECOND_PS / 1000 * u64::from(assumed.headroom),
        disk_bytes: (tenants.iter()).fold(0, |sum: u64, t| sum.saturating_add(t.disk_bytes)),
        capacity: device.capacity,
        blocking: bounds.blocking.total(),
        blocked_by: bounds.blocking,
        depth_bound: device.depth,
    }
}
