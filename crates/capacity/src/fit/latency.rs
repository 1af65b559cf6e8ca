//! Latency bounds: a demand-bound test for non-preemptive deadlines.
//!
//! Floors (reservations, targets and deadline transfers, as a rate) and requests with a bound form
//! one queue, ordered by deadline. In the worst case a
//! request of VM i waits for the device's blocking time B, for requests due before it, and then for
//! its own service. For every promised bound t there must hold
//!
//! ```text
//! B + longest service of those due by t + sum over j of dem_j(t) <= headroom * t
//!
//! dem_j(t) = floor_j t                                    floors alone, due at tag + 1/rate
//!            max(floor_j t, c_j b_j + (t - L_j) env_j)    from t = L_j on, for VMs with a bound
//! ```
//!
//! with the bounds L, the device time c of a request (its own is part of its service), the burst b
//! of the envelope, and the parts floor and env of the device that floor and envelope take. A floor
//! request is due no earlier than 1/rate after its tag, so at most t * rate of them are due within
//! t, and the line `floor_j t` bounds them without a step. A VM whose floor is due no earlier than
//! its bound (rate * L at most 1) is counted by its bound alone. While all parts together are below
//! one, the left side grows slower than t between bounds, so that testing the bounds suffices.
//! (Jeffay, Stanat and Martel, *On Non-Preemptive Scheduling of Periodic and Sporadic Tasks*, RTSS
//! 1991, gives the test for one server; Albers and Slomka, *An Event Stream Driven Approximation
//! for the Analysis of Real-Time Systems*, ECRTS 2004, the line above the steps.)
//!
//! Where all bounds hold, no request due earlier delays a floor by more than B: its requests are
//! answered by tag + 1/rate + T, where T is B plus the longest service beyond a request's own cost.
//! `blocking` computes the parts of both.

use super::blocking::{Blocking, p99_latency_ps};
use super::cost::{Costs, FACTOR_ONE, MixFactors, scaled};
use super::load::{Load, MICRO_REQUESTS};
use super::mix::{nanos, per_second};
use super::{Bound, PlannedVm, SECOND_PS};
use crate::profile::{Access, Direction};
use tidegate_base::time::Nanos;

/// Demand of one VM, with all times in picoseconds.
#[derive(Clone, Copy, Default)]
struct VmDemand {
    /// Device time of a request.
    cost: u64,
    /// Device time per second of its floor, as far as the floor is due before the bound.
    floor: u64,
    /// Device time per second of its envelope; 0 without an envelope: one request counts.
    envelope: u64,
    /// Requests of the envelope that may arrive at once.
    burst: u32,
    /// 99th percentile of a request's latency on an otherwise idle device; `None`: not measured.
    alone: Option<u64>,
}

/// Verdicts on all latency bounds, with the blocking time of the device.
pub(super) struct Bounds {
    /// Verdict of each VM, in the order of the VMs; `None`: no bound.
    pub(super) verdicts: Vec<Option<Bound>>,
    pub(super) blocking: Blocking,
}

/// Tests all latency bounds. `assumed`: whether sequential requests are blended, and the headroom
/// in thousandths. `worst`: device time per second of all promises at the worst mix, in
/// picoseconds.
pub(super) fn bounds(
    costs: &Costs<'_>,
    mix_factors: &MixFactors,
    vms: &[PlannedVm<'_>],
    loads: &[Load],
    assumed: (bool, u32),
    worst: u64,
) -> Bounds {
    let (blended, headroom) = assumed;
    let mixed = loads.iter().any(|load| load.may_read) && loads.iter().any(|load| load.may_write);
    let mix_factor = |size| {
        if mixed {
            mix_factors.largest_for(size)
        } else {
            FACTOR_ONE
        }
    };
    let bound = |vm: &PlannedVm<'_>| vm.objective.latency.filter(|_| !vm.background);
    let mut blocking = Blocking::new(costs, vms, loads, mix_factor);
    let mut due: Vec<(Nanos, usize, VmDemand)> = Vec::new();
    let mut before = Demand::default();
    for (at, (vm, load)) in vms.iter().zip(loads).enumerate() {
        let bound = bound(vm);
        // Such a VM goes by share only, which no bound waits for.
        if bound.is_none() && load.floor == 0 {
            continue;
        }
        let vm = VmDemand::for_load(costs, load, mix_factor(load.size), blended, bound);
        before.floors += u128::from(vm.floor);
        let beyond = vm.alone.unwrap_or(0).saturating_sub(vm.cost);
        blocking.service = blocking.service.max(beyond);
        due.extend(bound.map(|bound| (bound, at, vm)));
    }
    before.worst = worst.into();
    due.sort_by_key(|&(bound, at, _)| (bound, at));
    let mut verdicts = vec![None; vms.len()];
    // Equal bounds are tested together: each may have to wait for all the others.
    for same in due.chunk_by(|a, b| a.0 == b.0) {
        let asked = same[0].0;
        same.iter()
            .for_each(|(bound, _, vm)| before.add(*bound, vm));
        let takes = blocking.is_measured.then(|| {
            let time_ps = before.answered_by(asked, &blocking).saturating_mul(1000);
            nanos(time_ps.div_ceil(headroom.max(1).into()))
        });
        for &(_, at, vm) in same {
            verdicts[at] = Some(Bound {
                asked,
                takes,
                alone: vm.alone.map(|ps| nanos(ps.into())),
                best_effort: loads[at].envelope.is_none(),
            });
        }
    }
    Bounds { verdicts, blocking }
}

/// Demand of floors, and of VMs with the bounds tested so far.
#[derive(Default)]
struct Demand {
    /// Device time per second of all floors, each at the mix that is worst for it, in picoseconds.
    floors: u128,
    /// Device time per second of all promises together at the worst mix, in picoseconds.
    worst: u128,
    /// VMs whose bound is tested or shorter, with their bounds.
    due: Vec<(Nanos, VmDemand)>,
    /// Longest service beyond a request's own cost.
    beyond: u64,
}

impl Demand {
    fn add(&mut self, bound: Nanos, vm: &VmDemand) {
        self.due.push((bound, *vm));
        self.beyond = (self.beyond).max(vm.alone.unwrap_or(0).saturating_sub(vm.cost));
    }

    /// Picoseconds until all requests due within `bound` are answered.
    fn answered_by(&self, bound: Nanos, blocking: &Blocking) -> u128 {
        let envelopes = self.due.iter().map(|(_, vm)| u128::from(vm.envelope));
        // More than a second of device time per second: the queue grows without end.
        if envelopes.sum::<u128>() > u128::from(SECOND_PS) {
            return u128::MAX;
        }
        // Picoseconds per second times nanoseconds: picoseconds scaled by 10^9, divided once at the
        // end.
        let within = |part: u64, time: Nanos| u128::from(part) * u128::from(time.0);
        let asks = |(own, vm): &(Nanos, VmDemand)| {
            let burst = u128::from(vm.cost) * u128::from(vm.burst) * u128::from(Nanos::SECOND.0);
            burst + within(vm.envelope, bound.since(*own))
        };
        let beyond_floor =
            |due: &(Nanos, VmDemand)| asks(due).saturating_sub(within(due.1.floor, bound));
        let floors = self.floors.saturating_mul(u128::from(bound.0));
        let each = (self.due.iter().map(beyond_floor)).fold(floors, u128::saturating_add);
        // `floors` takes each floor at its costliest mix, which cannot hold for all at once.
        // `worst` takes all promises at one mix and the envelopes in addition, even where they are
        // part of the floors. Both bound the demand, so the smaller one counts.
        let worst = self.worst.saturating_mul(u128::from(bound.0));
        let together = (self.due.iter().map(asks)).fold(worst, u128::saturating_add);
        let more = each.min(together).div_ceil(u128::from(Nanos::SECOND.0));
        blocking
            .device_ps()
            .saturating_add(u128::from(self.beyond))
            .saturating_add(more)
    }
}

impl VmDemand {
    /// Demand of a VM. `factor`: cost of its requests in mixes, in millionths.
    fn for_load(
        costs: &Costs<'_>,
        load: &Load,
        factor: u64,
        blended: bool,
        bound: Option<Nanos>,
    ) -> VmDemand {
        let mut vm = VmDemand {
            burst: load.burst,
            ..VmDemand::default()
        };
        let mut used = 0u128;
        // Without a promise, one request at a time counts, in either direction that the VM may use.
        let silent = load.requests() == 0;
        for (direction, rate, may) in [
            (Direction::Read, load.reads, load.may_read),
            (Direction::Write, load.writes, load.may_write),
        ] {
            if rate == 0 && !(silent && may) {
                continue;
            }
            let cost = scaled(costs.blended_ps(direction, load.size), factor);
            // The costlier direction, since the request that counts may be either.
            vm.cost = vm.cost.max(cost);
            let streams = u128::from(rate) * u128::from(load.sequential);
            let random = u128::from(rate) * 1000 - streams;
            let sequential = if blended {
                cost
            } else {
                costs.time_ps(direction, Access::Sequential, load.size)
            };
            let time = streams.saturating_mul(sequential.into());
            used += time
                .saturating_add(random.saturating_mul(cost.into()))
                .div_ceil(1000);
            let alone =
                p99_latency_ps(costs, direction, load.size, 1).map(|alone| scaled(alone, factor));
            vm.alone = vm.alone.max(alone);
        }
        // Floor and envelope are parts of the VM's requests, which are the larger of the two.
        let all = u128::from(load.requests().max(1));
        let part = |rate: u64| per_second(used.saturating_mul(rate.into()).div_ceil(all).min(used));
        vm.envelope = part(load.envelope.unwrap_or(0));
        vm.floor = match bound {
            // Counted with the envelope already.
            Some(bound) if is_due_after(load, bound) => 0,
            _ => part(load.floor),
        };
        vm
    }
}

/// Returns true if requests of the floor are due no earlier than the bound allows, so that those of
/// the envelope cover them.
fn is_due_after(load: &Load, bound: Nanos) -> bool {
    let inside = load.envelope.is_some_and(|rate| rate >= load.floor);
    let by_bound = u128::from(load.floor) * u128::from(bound.0);
    inside && by_bound <= MICRO_REQUESTS * u128::from(Nanos::SECOND.0)
}
