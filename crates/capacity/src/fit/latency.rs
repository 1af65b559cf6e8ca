//! Latency bounds: a demand-bound test for deadlines that do not preempt.
//!
//! What is due first goes first (`edf`). A request of VM i that arrives when everything is against
//! it waits for all that is with the device, of whoever has the longest there; for one request of
//! every VM with a bound that is due no later, and for what more of those comes meanwhile; then for
//! itself. For every bound t that was promised there must hold
//!
//! ```text
//! all in flight + longest service of those due by t
//!     + sum over j due by t of (c_j + (t - L_j) u_j) <= t
//! ```
//!
//! with L the bounds, c the time of the device that a request takes (one's own counts as part of
//! its service) and u the part of the device that was promised, by which what comes in t - L_j is
//! bounded: requests come no denser than was promised, evenly. While all u together are below one,
//! the left side grows slower than t from one bound to the next, so these are all there is to look
//! at. (Jeffay, Stanat and Martel, *On Non-Preemptive Scheduling of Periodic and Sporadic Tasks*,
//! RTSS 1991, has the test for one server; Albers and Slomka, *An Event Stream Driven Approximation
//! for the Analysis of Real-Time Systems*, ECRTS 2004, the line above the steps.)
//!
//! What is in flight and one's own service are the profile's 99th percentiles, so that is what a
//! bound is held for; the whole is divided by the headroom, as device time is. What a profile does
//! not say is how long reads wait for writes that the device answered before it had done them.

use super::cost::{Costs, Mixing, ONE, points, times};
use super::load::Load;
use super::mix::per_second;
use super::{Bound, SECOND_PS, Tenant};
use crate::profile::{Access, Direction};
use tidegate_base::time::Nanos;

/// One VM, all times in picoseconds.
#[derive(Clone, Copy, Default)]
struct Vm {
    /// A request's time of the device.
    cost: u64,
    /// What was promised, of a second.
    used: u64,
    /// A request's time with a device that does nothing else; `None`: not measured.
    alone: Option<u64>,
}

pub(super) fn bounds(
    costs: &Costs<'_>,
    mixing: &Mixing,
    tenants: &[Tenant<'_>],
    loads: &[Load],
    blended: bool,
    headroom: u32,
) -> Vec<Option<Bound>> {
    let bound = |tenant: &Tenant<'_>| tenant.objective.latency.filter(|_| !tenant.background);
    if tenants.iter().all(|tenant| bound(tenant).is_none()) {
        return vec![None; tenants.len()];
    }
    let mixed = loads.iter().any(|load| load.may_read) && loads.iter().any(|load| load.may_write);
    let dearer = |size| match mixed {
        true => mixing.dearest(size),
        false => ONE,
    };
    let in_flight = in_flight(costs, loads, dearer);
    let mut due: Vec<(Nanos, usize, Vm)> = (tenants.iter().enumerate())
        .filter_map(|(at, tenant)| {
            let vm = Vm::of(costs, &loads[at], dearer(loads[at].size), blended);
            Some((bound(tenant)?, at, vm))
        })
        .collect();
    due.sort_by_key(|&(bound, at, _)| (bound, at));
    let mut found = vec![None; tenants.len()];
    let mut before = Demand::default();
    for same in due.chunk_by(|a, b| a.0 == b.0) {
        let asked = same[0].0;
        same.iter()
            .for_each(|(bound, _, vm)| before.add(*bound, vm));
        let most = in_flight.map(|in_flight| {
            let most = before.until(asked, in_flight).saturating_mul(1000);
            nanos(most.div_ceil(headroom.max(1).into()))
        });
        for &(_, at, vm) in same {
            found[at] = Some(Bound {
                asked,
                takes: most,
                alone: vm.alone.map(|ps| nanos(ps.into())),
            });
        }
    }
    found
}

/// What those due so far ask for.
#[derive(Default)]
struct Demand {
    /// One request each, picoseconds.
    first: u128,
    /// Of a second, picoseconds.
    used: u128,
    /// The same by their bounds, in nanoseconds.
    used_by_bound: u128,
    /// The longest service beyond one's own cost.
    beyond: u64,
}

impl Demand {
    fn add(&mut self, bound: Nanos, vm: &Vm) {
        self.first += u128::from(vm.cost);
        self.used += u128::from(vm.used);
        self.used_by_bound += u128::from(vm.used) * u128::from(bound.0);
        self.beyond = (self.beyond).max(vm.alone.unwrap_or(0).saturating_sub(vm.cost));
    }

    /// Picoseconds until all that is due by then is answered.
    fn until(&self, bound: Nanos, in_flight: u64) -> u128 {
        if self.used > u128::from(SECOND_PS) {
            return u128::MAX;
        }
        let more = self.used * u128::from(bound.0) - self.used_by_bound;
        let more = more.div_ceil(u128::from(Nanos::SECOND.0));
        u128::from(in_flight) + u128::from(self.beyond) + self.first + more
    }
}

/// Picoseconds until all that is with the device has ended, of anybody, VMs without a promise, too:
/// as long as the longest of it stays. `None`: not measured.
fn in_flight(costs: &Costs<'_>, loads: &[Load], dearer: impl Fn(u32) -> u64) -> Option<u64> {
    let mut longest = 0;
    for load in loads {
        let kinds = [
            (Direction::Read, load.may_read),
            (Direction::Write, load.may_write),
        ];
        for (direction, _) in kinds.into_iter().filter(|kind| kind.1) {
            let stay = stay(costs, direction, load.longest, costs.device.depth)?;
            longest = longest.max(times(stay, dearer(load.longest)));
        }
    }
    Some(longest)
}

impl Vm {
    /// `factor`: how much dearer mixing makes its requests, in millionths.
    fn of(costs: &Costs<'_>, load: &Load, factor: u64, blended: bool) -> Vm {
        let mut vm = Vm::default();
        let mut used = 0u128;
        // Without a promise one at a time is reckoned with, of whatever it is expected to do.
        let silent = load.requests() == 0;
        for (direction, rate, may) in [
            (Direction::Read, load.reads, load.may_read),
            (Direction::Write, load.writes, load.may_write),
        ] {
            if rate == 0 && !(silent && may) {
                continue;
            }
            let cost = times(costs.blended_ps(direction, load.size), factor);
            vm.cost = vm.cost.max(cost);
            let streams = u128::from(rate) * u128::from(load.sequential);
            let random = u128::from(rate) * 1000 - streams;
            let sequential = match blended {
                true => cost,
                false => costs.time_ps(direction, Access::Sequential, load.size),
            };
            let time = streams.saturating_mul(sequential.into());
            used += time
                .saturating_add(random.saturating_mul(cost.into()))
                .div_ceil(1000);
            let alone = stay(costs, direction, load.size, 1).map(|alone| times(alone, factor));
            vm.alone = vm.alone.max(alone);
        }
        vm.used = per_second(used);
        vm
    }
}

/// Picoseconds that 99 of 100 random requests stay with the device at that depth, by the measured
/// depth that is no less; beyond the deepest in proportion. A size above those measured stays
/// longer as it costs more. `None`: not measured.
fn stay(costs: &Costs<'_>, direction: Direction, size: u32, depth: u32) -> Option<u64> {
    let other = match direction {
        Direction::Read => Direction::Write,
        Direction::Write => Direction::Read,
    };
    let kinds = [
        (direction, Access::Random),
        (other, Access::Random),
        (direction, Access::Sequential),
        (other, Access::Sequential),
    ];
    let found = (kinds.into_iter())
        .map(|(direction, access)| points(&costs.device, direction, access, size))
        .find(|points| !points.is_empty())?;
    let deepest = found[found.len() - 1];
    let point = (found.iter())
        .find(|p| p.depth >= depth)
        .unwrap_or(&deepest);
    let deeper = u64::from(depth).max(point.depth.into());
    let time = (point.p99.0.saturating_mul(1000))
        .saturating_mul(deeper)
        .div_ceil(point.depth.into());
    let cost = |direction, access, bytes| costs.time_ps(direction, access, bytes);
    let of = cost(direction, Access::Random, size);
    let measured = cost(point.direction, point.access, point.size);
    let longer = (u128::from(of) * u128::from(ONE)).div_ceil(measured.into());
    Some(times(
        time,
        u64::try_from(longer).unwrap_or(u64::MAX).max(ONE),
    ))
}

fn nanos(ps: u128) -> Nanos {
    Nanos(u64::try_from(ps.div_ceil(1000)).unwrap_or(u64::MAX))
}
