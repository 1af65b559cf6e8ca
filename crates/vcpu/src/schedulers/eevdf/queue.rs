//! Run-queues of EEVDF: virtual run-times, deadlines, lags and eligibility.

use crate::machine::{DEFAULT_WEIGHT, PcpuId, VcpuId};
use tidegate_core::time::Nanos;

/// Units of virtual time per nanosecond, so that dividing by a weight loses little.
const UNITS_PER_NS: u64 = 64;

/// vCPU as EEVDF sees it. Virtual times are in 1/64 ns of a vCPU of the default weight.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entity {
    weight: u32,
    /// Virtual length of a request.
    slice: i64,
    /// Virtual run-time.
    vruntime: i64,
    /// Virtual deadline of the current request.
    deadline: i64,
    /// Virtual run-time up to which the running vCPU is protected.
    protected: i64,
    /// Virtual lag with which the vCPU left its queue.
    lag: i64,
    /// In the queue of `home`.
    queued: bool,
    /// Blocked, and queued until its lag is 0.
    pub(super) delayed: bool,
    /// Runnable, and not queued because its VM has used up its bandwidth.
    pub(super) parked: bool,
    /// pCPU whose queue the vCPU is or was in.
    pub(super) home: PcpuId,
    /// Start of the run-time that is not accounted yet.
    pub(super) start: Nanos,
}

impl Entity {
    pub(super) fn new(weight: u32, slice: Nanos, home: PcpuId) -> Entity {
        let weight = weight.max(1);
        Entity {
            weight,
            slice: virtual_time(slice, weight),
            vruntime: 0,
            deadline: 0,
            protected: 0,
            lag: 0,
            queued: false,
            delayed: false,
            parked: false,
            home,
            start: Nanos::ZERO,
        }
    }
}

/// Virtual time of running for `time` with `weight`.
fn virtual_time(time: Nanos, weight: u32) -> i64 {
    let scaled = u128::from(time.0) * u128::from(UNITS_PER_NS * u64::from(DEFAULT_WEIGHT));
    (scaled / u128::from(weight)) as i64
}

/// Run-queue of a pCPU.
#[derive(Clone, Default, Debug)]
struct Queue {
    /// Queued vCPUs in order of arrival, with the running and the delayed ones.
    members: Vec<VcpuId>,
    /// Weighted average of virtual run-times when the last member left.
    last_average: i64,
}

/// Run-queues of all pCPUs and their vCPUs.
#[derive(Clone, Debug)]
pub(super) struct Queues {
    entities: Vec<Entity>,
    queues: Vec<Queue>,
    /// Largest lag of CPU time that a vCPU keeps when it leaves: a slice and a tick.
    lag_limit: Nanos,
}

impl Queues {
    pub(super) fn new(entities: Vec<Entity>, pcpus: usize, lag_limit: Nanos) -> Queues {
        Queues {
            entities,
            queues: vec![Queue::default(); pcpus],
            lag_limit,
        }
    }

    pub(super) fn entity(&self, v: VcpuId) -> &Entity {
        &self.entities[v.index()]
    }

    pub(super) fn entity_mut(&mut self, v: VcpuId) -> &mut Entity {
        &mut self.entities[v.index()]
    }

    /// Queued vCPUs of `p`, with the running and the delayed ones.
    pub(super) fn members(&self, p: PcpuId) -> &[VcpuId] {
        &self.queues[p.index()].members
    }

    pub(super) fn is_queued_on(&self, v: VcpuId, p: PcpuId) -> bool {
        let entity = self.entity(v);
        entity.queued && entity.home == p
    }

    /// Sum of the weights of the runnable vCPUs queued on `p`.
    pub(super) fn load(&self, p: PcpuId) -> u64 {
        let members = self.members(p).iter().map(|&v| self.entity(v));
        let runnable = members.filter(|entity| !entity.delayed);
        runnable.map(|entity| u64::from(entity.weight)).sum()
    }

    pub(super) fn weight(&self, v: VcpuId) -> u64 {
        u64::from(self.entity(v).weight)
    }

    /// Sum of weight times virtual run-time, and of weights, of the queue of `p`.
    fn sums(&self, p: PcpuId) -> (i128, i128) {
        let members = self.members(p).iter().map(|&v| self.entity(v));
        members.fold((0, 0), |(sum, weights), entity| {
            let weight = i128::from(entity.weight);
            (sum + weight * i128::from(entity.vruntime), weights + weight)
        })
    }

    /// Weighted average of the virtual run-times of the queue of `p`.
    fn average(&self, p: PcpuId) -> i64 {
        match self.sums(p) {
            (_, 0) => self.queues[p.index()].last_average,
            (sum, weights) => sum.div_euclid(weights) as i64,
        }
    }

    /// Returns whether `v`, which is queued, has had no more than its share.
    pub(super) fn is_eligible(&self, v: VcpuId) -> bool {
        let entity = self.entity(v);
        let (sum, weights) = self.sums(entity.home);
        sum >= weights * i128::from(entity.vruntime)
    }

    /// Eligible vCPU of `p` with the earliest deadline; at equal deadlines the running one last.
    pub(super) fn earliest_eligible(&self, p: PcpuId, running: Option<VcpuId>) -> Option<VcpuId> {
        let (sum, weights) = self.sums(p);
        let members = self.members(p).iter().copied();
        let eligible = members.filter(|&v| sum >= weights * i128::from(self.entity(v).vruntime));
        eligible.min_by_key(|&v| (self.entity(v).deadline, Some(v) == running))
    }

    /// Accounts the run-time of `v` up to `now`, and returns it. A request that has been served
    /// is followed by the next one.
    pub(super) fn charge(&mut self, v: VcpuId, now: Nanos) -> Nanos {
        let entity = self.entity_mut(v);
        let ran = now.since(entity.start);
        entity.start = now;
        entity.vruntime += virtual_time(ran, entity.weight);
        if entity.vruntime >= entity.deadline {
            entity.deadline = entity.vruntime + entity.slice;
        }
        ran
    }

    /// Protects `v`, which begins to run, until its deadline, at most for `longest`.
    pub(super) fn protect(&mut self, v: VcpuId, longest: Option<Nanos>) {
        let entity = self.entity_mut(v);
        let longest = longest.map(|time| entity.vruntime + virtual_time(time, entity.weight));
        entity.protected = longest.map_or(entity.deadline, |end| end.min(entity.deadline));
    }

    pub(super) fn is_protected(&self, v: VcpuId) -> bool {
        let entity = self.entity(v);
        entity.vruntime < entity.protected
    }

    /// Inserts `v` into the queue of `p` with the lag that it left with (`PLACE_LAG`).
    pub(super) fn place(&mut self, v: VcpuId, p: PcpuId) {
        let (average, weights) = (self.average(p), self.sums(p).1);
        let entity = self.entity_mut(v);
        assert!(!entity.queued, "{v:?} is queued already");
        // Inserting `v` moves the average towards it, so that its lag shrinks by this ratio.
        let lag = if weights > 0 {
            let both = weights + i128::from(entity.weight);
            (i128::from(entity.lag) * both / weights) as i64
        } else {
            0
        };
        entity.vruntime = average - lag;
        entity.deadline = entity.vruntime + entity.slice;
        entity.home = p;
        entity.queued = true;
        self.queues[p.index()].members.push(v);
    }

    /// Removes `v` from its queue; it keeps its lag.
    pub(super) fn remove(&mut self, v: VcpuId) {
        let p = self.entity(v).home;
        let (average, limit) = (self.average(p), self.lag_limit);
        let entity = self.entity_mut(v);
        let limit = virtual_time(limit, entity.weight);
        entity.lag = (average - entity.vruntime).clamp(-limit, limit);
        entity.queued = false;
        entity.delayed = false;
        let queue = &mut self.queues[p.index()];
        queue.members.retain(|&member| member != v);
        queue.last_average = average;
    }

    /// Removes `v`, which has blocked; if it is ahead of the average it stays until its lag is 0
    /// (`DELAY_DEQUEUE`).
    pub(super) fn block(&mut self, v: VcpuId) {
        if self.is_eligible(v) {
            self.remove(v);
        } else {
            self.entity_mut(v).delayed = true;
        }
    }

    /// Removes `v`, which stayed after it had blocked, without positive lag (`DELAY_ZERO`).
    pub(super) fn remove_delayed(&mut self, v: VcpuId) {
        self.remove(v);
        let entity = self.entity_mut(v);
        entity.lag = entity.lag.min(0);
    }

    /// Makes `v`, which stayed after it had blocked, runnable again, without positive lag.
    pub(super) fn resume_delayed(&mut self, v: VcpuId) {
        let home = self.entity(v).home;
        if self.average(home) > self.entity(v).vruntime {
            self.remove_delayed(v);
            self.place(v, home);
        }
        self.entity_mut(v).delayed = false;
    }

    /// Lag of `v` in nanoseconds of CPU time; that with which it left if it is not queued.
    pub(super) fn lag_ns(&self, v: VcpuId) -> i64 {
        let entity = self.entity(v);
        let lag = if entity.queued {
            self.average(entity.home) - entity.vruntime
        } else {
            entity.lag
        };
        let scale = i128::from(UNITS_PER_NS) * i128::from(DEFAULT_WEIGHT);
        (i128::from(lag) * i128::from(entity.weight) / scale) as i64
    }
}
