//! Floors near the limit of their own VM.
//!
//! A limit in bytes, or in requests that count by their size, paces its VM: the next request is due
//! one period after the one before, and of the time by which that one was late only a
//! [slack](MADE_UP_PS) is made up ([`RatePacer::spend_late`](tidegate_base::pace::RatePacer)). A
//! request that is due finds the device full of other VMs' I/Os, and goes once one of them has
//! ended. So a VM that always has requests waiting is served not at the limit's period but at that
//! and the rest of the wait: on a hard disk, half of a floor that is equal to the limit may be
//! missing.
//!
//! The wait is taken as the device time of an I/O of another VM where one I/O is served at a time:
//! deeper queues have more ends, and let promised I/Os wait in the device. The I/O has the size
//! that is assumed of the VM's requests, or, if nothing hints at it, the largest that it may have.
//! Limits with a burst and limits in plain requests make up for more, and are not considered.

use super::cost::Costs;
use super::load::{Load, MICRO_REQUESTS, at_least, at_most, has_no_floor};
use super::messages::time;
use super::mix::nanos;
use super::nearest::{rounded_down_number, rounded_up_number};
use super::{Device, PlannedVm, SECOND_PS};
use crate::profile::{Access, Direction};
use tidegate_base::objective::{OpsRate, Rate};
use tidegate_base::time::Nanos;

/// Lateness in picoseconds that a limit makes up, of the default of the policies' parameter
/// `slack`: 0.9 ms.
const MADE_UP_PS: u64 = 900_000_000;
/// Picoseconds times millionths of a request in a second of one request.
const ONE_PER_S: u128 = SECOND_PS as u128 * MICRO_REQUESTS;

/// Floor that the limit of its VM may keep from being met.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NearLimit {
    /// Index of the VM.
    pub vm: usize,
    /// Longest wait of a request that is due for an I/O of another VM to end.
    pub wait: Nanos,
    /// Key of the objective that has the floor: `reservation` or `target`.
    pub floor_key: &'static str,
    /// Floor.
    pub floor: Rate,
    /// Key of the objective that has the limit: `limit`, `limit.read` or `limit.write`.
    pub limit_key: &'static str,
    /// Limit.
    pub limit: Rate,
    /// Floor that is served beside the limit by this estimate, rounded down to three digits.
    pub served: Rate,
    /// Limit beside which the floor is served, rounded up to three digits; `None`: none is known to
    /// suffice.
    pub enough: Option<Rate>,
}

/// Returns the floors that are nearer to a limit of their VM than the wait for the device allows,
/// in the order of the VMs.
///
/// # Panics
/// If the depth of the device is 0.
pub fn near_limits(device: &Device<'_>, vms: &[PlannedVm<'_>]) -> Vec<NearLimit> {
    assert!(device.depth > 0, "a device of depth 0 serves nothing");
    let costs = Costs::new(device);
    let one_at_a_time = Costs::new(&Device {
        depth: 1,
        ..*device
    });
    let loads: Vec<Load> = vms.iter().map(|vm| Load::for_vm(vm, &costs)).collect();
    let times = vms.iter().zip(&loads);
    let times: Vec<u64> = times
        .map(|(vm, load)| io_ps(&one_at_a_time, vm, load))
        .collect();
    let near = |(index, vm): (usize, &PlannedVm<'_>)| {
        let others = times.iter().enumerate().filter(|(at, _)| *at != index);
        // Alone on its device, a VM finds a place once it may go on.
        let wait = others.map(|(_, time)| *time).max()?;
        near_limit(index, vm, &loads[index], wait)
    };
    vms.iter().enumerate().filter_map(near).collect()
}

/// Device time in picoseconds of an I/O of a VM among others.
fn io_ps(costs: &Costs<'_>, vm: &PlannedVm<'_>, load: &Load) -> u64 {
    let queueing = &costs.device.queueing;
    let is_hinted = vm.objective.expects.size.is_some() || !has_no_floor(vm.objective);
    let size = if is_hinted { load.size } else { load.longest };
    let size = size.min(queueing.part.unwrap_or(u32::MAX));
    let kinds = [
        (Direction::Read, load.may_read),
        (Direction::Write, load.may_write),
    ];
    let times = kinds.into_iter().filter(|kind| kind.1);
    let costlier_ps = times
        .map(|(direction, _)| costs.time_ps(direction, Access::Random, size))
        .max();
    let at_most = match queueing.background_part {
        Some(part) if vm.background => part.0.saturating_mul(1000),
        _ => u64::MAX,
    };
    costlier_ps.unwrap_or(0).min(at_most)
}

/// Returns the floor of a VM if it is too near to a limit, for requests that may wait `wait`
/// picoseconds for the device.
fn near_limit(index: usize, vm: &PlannedVm<'_>, load: &Load, wait: u64) -> Option<NearLimit> {
    let objective = vm.objective;
    let lost = u128::from(wait.saturating_sub(MADE_UP_PS));
    if objective.limit.burst.is_some() || vm.background || lost == 0 {
        return None;
    }
    let limits = [
        ("limit", objective.limit.total, true),
        ("limit.read", objective.limit.read, !load.may_write),
        ("limit.write", objective.limit.write, !load.may_read),
    ];
    let (floor_key, floor) = if objective.target.is_none() {
        ("reservation", objective.reservation)
    } else {
        ("target", objective.target)
    };
    let floor_rate = at_least(&floor, load.size);
    // The strictest limit decides.
    let paced = limits.into_iter().filter(|limit| limit.2);
    let paced =
        paced.map(|(key, limit, _)| (key, limit, at_most(&paced_by_size(limit), load.size)));
    let (limit_key, limit, limit_rate) = paced.min_by_key(|limit| limit.2)?;
    if floor.is_none() || limit_rate == u128::MAX {
        return None;
    }
    // Periods in picoseconds: 1 / served = 1 / limit + lost, and 1 / floor = 1 / enough + lost.
    let period = |rate: u128| ONE_PER_S / rate.max(1);
    let served_rate = ONE_PER_S / (period(limit_rate) + lost);
    if served_rate >= floor_rate {
        return None;
    }
    let left = period(floor_rate)
        .checked_sub(lost)
        .filter(|left| *left > 0);
    let enough_rate = left.map(|left| ONE_PER_S.div_ceil(left));
    Some(NearLimit {
        vm: index,
        wait: nanos(wait.into()),
        floor_key,
        floor,
        limit_key,
        limit,
        served: scaled(&floor, |figure| {
            rounded_down_number(figure * served_rate / floor_rate)
        }),
        enough: enough_rate.map(|enough| {
            scaled(&limit, |figure| {
                rounded_up_number((figure * enough).div_ceil(limit_rate.max(1)))
            })
        }),
    })
}

/// Returns the figures of a limit of which only a slack of lateness is made up: all but plain
/// requests.
fn paced_by_size(limit: Rate) -> Rate {
    Rate {
        ops: limit.ops.filter(|ops| ops.norm.is_some()),
        ..limit
    }
}

/// Applies a change to both figures of a rate.
fn scaled(rate: &Rate, change: impl Fn(u128) -> u128) -> Rate {
    let changed = |figure: u64| {
        let changed = u64::try_from(change(figure.into())).unwrap_or(u64::MAX);
        changed.clamp(1, Rate::MAX)
    };
    Rate {
        ops: rate.ops.map(|ops| OpsRate {
            per_s: changed(ops.per_s),
            ..ops
        }),
        bytes_per_s: rate.bytes_per_s.map(changed),
    }
}

impl NearLimit {
    /// Sentence that says what may be missing, and why.
    pub fn reason(&self) -> String {
        let NearLimit {
            floor_key,
            floor,
            limit_key,
            limit,
            served,
            ..
        } = self;
        format!(
            "the {floor_key} of {floor} is too near to {limit_key} = \"{limit}\": a request that \
             is due may wait {} for the device, which the limit does not make up, so about \
             {served} may be all that is served",
            time(self.wait)
        )
    }

    /// Sentence that says what would be right.
    pub fn instead(&self) -> String {
        let lower = format!("{} = \"{}\" or less", self.floor_key, self.served);
        match &self.enough {
            Some(enough) => format!("{} = \"{enough}\" or more, or {lower}", self.limit_key),
            None => format!("no {}, or {lower}", self.limit_key),
        }
    }
}
