//! Upper bound on the requests that a VM may send under its promises, with the properties assumed
//! of them.

use super::PlannedVm;
use super::cost::Costs;
use crate::profile::{Access, Direction};
use tidegate_base::expected_workload::THOUSAND;
use tidegate_base::objective::{Objective, Rate};

/// Rates are counted in millionths of a request per second, so that rounding up one is negligible
/// on any device.
pub(super) const MICRO_REQUESTS: u128 = 1_000_000;
/// Size of a request of an IOPS rate that names none: the page size of most guests, and the size at
/// which data sheets count IOPS.
const DEFAULT_IOPS_REQUEST_BYTES: u32 = 4096;
/// Size of a request of a bandwidth: Linux's default read-ahead.
const DEFAULT_BANDWIDTH_REQUEST_BYTES: u32 = 128 << 10;

/// Upper bound on the promised requests of a VM, with the properties assumed of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Load {
    /// Reads at most, in millionths of a request per second.
    pub reads: u64,
    /// Writes at most, in millionths of a request per second.
    pub writes: u64,
    /// Part of sequential requests among reads and among writes, in thousandths.
    pub sequential: u32,
    /// Size of a request in bytes.
    pub size: u32,
    /// Size in bytes of the longest I/O by which the VM may delay others.
    pub longest: u32,
    /// Floor: requests that are due at a promised rate, in millionths per second. The largest of
    /// reservation, target and deadline transfer; at most the limit of reads and writes together.
    pub floor: u64,
    /// Requests inside the envelope of the latency bound, in millionths per second; `None`: no
    /// bound, or one that is best effort.
    pub envelope: Option<u64>,
    /// Requests of the envelope that may arrive at once, at least 1.
    pub burst: u32,
    /// True if the VM may read, promised or not.
    pub may_read: bool,
    /// True if the VM may write, promised or not.
    pub may_write: bool,
}

impl Load {
    /// Returns the upper bound for a VM, with assumptions where its objective leaves it open.
    pub(super) fn for_vm(vm: &PlannedVm<'_>, costs: &Costs<'_>) -> Load {
        let objective = vm.objective;
        let expects = &objective.expects;
        let floor_rates = [&objective.reservation, &objective.target];
        let transfer = Rate {
            ops: None,
            bytes_per_s: Some(vm.transfer).filter(|&bytes| bytes > 0),
        };
        let size = expects
            .size
            .unwrap_or_else(|| usual_size([floor_rates[0], floor_rates[1], &transfer]));
        let limit_total = at_most(&objective.limit.total, size);
        let (mut floor, mut envelope) = (0, None);
        if !vm.background {
            // The transfer's bytes count towards the floors, and theirs towards it: the largest is
            // due.
            let rates = [floor_rates[0], floor_rates[1], &transfer];
            floor = (rates.into_iter().map(|rate| at_least(rate, size)))
                .fold(0, u128::max)
                .min(limit_total);
            let inside = objective.envelope();
            envelope = inside.map(|inside| at_least(&inside.rate, size).min(limit_total));
        }
        let promised = floor.max(envelope.unwrap_or(0));
        let saturated = |rate: u128| u64::try_from(rate).unwrap_or(u64::MAX);
        let [reads, writes] = by_direction(promised, objective, costs, size).map(saturated);
        Load {
            reads,
            writes,
            floor: saturated(floor),
            envelope: envelope.map(saturated),
            // A rate without a burst still has the one request that is due.
            burst: expects.burst.unwrap_or(1).max(1),
            sequential: expects.sequential.unwrap_or(0),
            size,
            longest: longest(objective, costs, size),
            may_read: expects.reads != Some(0),
            may_write: expects.reads != Some(THOUSAND),
        }
    }

    /// Requests at most, in millionths per second.
    pub fn requests(&self) -> u64 {
        self.reads.saturating_add(self.writes)
    }
}

/// Size at which the rates count: that of the first rate given, in their order.
fn usual_size<const N: usize>(rates: [&Rate; N]) -> u32 {
    let first = rates.into_iter().find(|rate| !rate.is_none());
    match first.map(|rate| (rate.ops, rate.bytes_per_s)) {
        None => DEFAULT_IOPS_REQUEST_BYTES,
        Some((Some(ops), bytes)) => ops.norm.unwrap_or_else(|| match bytes {
            None => DEFAULT_IOPS_REQUEST_BYTES,
            // Both rates are meant to be reached together, so their quotient is the size.
            Some(bytes) => u32::try_from((bytes / ops.per_s).max(1)).unwrap_or(u32::MAX),
        }),
        Some((None, _)) => DEFAULT_BANDWIDTH_REQUEST_BYTES,
    }
}

/// Returns an objective whose requests are `size` bytes long, whatever its floors are changed to.
pub(super) fn with_fixed_size(objective: Objective, size: u32) -> Objective {
    let mut sized = objective;
    let usual = || usual_size([&objective.reservation, &objective.target]);
    if sized.expects.size.is_none() && !has_no_floor(&objective) && usual() != size {
        sized.expects.size = Some(size);
    }
    sized
}

/// Returns true if an objective promises no rate.
pub(super) fn has_no_floor(objective: &Objective) -> bool {
    objective.reservation.is_none() && objective.target.is_none()
}

/// Reads and writes at most, of `promised` requests of a size; all in millionths per second.
///
/// An objective that does not say in which direction its requests go promises them in either. Then
/// as many as the limit of the costlier direction permits go in that one, and the rest in the
/// other: a limit of writes takes back no promise of reads.
fn by_direction(promised: u128, objective: &Objective, costs: &Costs<'_>, size: u32) -> [u128; 2] {
    let limit = &objective.limit;
    let limits = [&limit.read, &limit.write].map(|limit| at_most(limit, size));
    let part = |share: u32| (promised * u128::from(share)).div_ceil(u128::from(THOUSAND));
    let [reads, writes] = match objective.expects.reads {
        Some(share) => [part(share), part(THOUSAND - share)],
        None if writes_cost_more(costs, size) => {
            let writes = promised.min(limits[Direction::Write as usize]);
            [promised - writes, writes]
        }
        None => {
            let reads = promised.min(limits[Direction::Read as usize]);
            [reads, promised - reads]
        }
    };
    [reads.min(limits[0]), writes.min(limits[1])]
}

/// Returns true if random writes of a size take more device time than reads.
fn writes_cost_more(costs: &Costs<'_>, size: u32) -> bool {
    let time = |direction| costs.time_ps(direction, Access::Random, size);
    time(Direction::Write) > time(Direction::Read)
}

/// Longest I/O of a VM in bytes: the device's largest if its size is not known; at least the merge
/// limit if its requests may be adjacent.
fn longest(objective: &Objective, costs: &Costs<'_>, size: u32) -> u32 {
    let expects = &objective.expects;
    match (expects.size, expects.sequential) {
        // Neither a size nor a rate hints at its requests, so the longest I/O is assumed.
        (None, _) if has_no_floor(objective) => costs.device.max_io.max(size),
        // Requests that are never adjacent are never merged.
        (_, Some(0)) => size,
        _ => size.max(costs.device.merge_limit),
    }
}

/// Requests of a size that satisfy a floor with both of its rates, in millionths per second.
pub(super) fn at_least(rate: &Rate, size: u32) -> u128 {
    let rates = requests_per_s(rate, size);
    rates.into_iter().flatten().max().unwrap_or(0)
}

/// Requests of a size that a limit permits, in millionths per second.
pub(super) fn at_most(rate: &Rate, size: u32) -> u128 {
    let rates = requests_per_s(rate, size);
    rates.into_iter().flatten().min().unwrap_or(u128::MAX)
}

/// Requests of a size by the IOPS and by the bandwidth of a rate, in millionths per second.
fn requests_per_s(rate: &Rate, size: u32) -> [Option<u128>; 2] {
    let size = u128::from(size.max(1));
    let ops = rate.ops.map(|ops| {
        // A request counts as max(1, size / norm) requests.
        let norm = ops.norm.map_or(size, u128::from);
        (u128::from(ops.per_s) * MICRO_REQUESTS * norm).div_ceil(norm.max(size))
    });
    let bytes = (rate.bytes_per_s).map(|bytes| (u128::from(bytes) * MICRO_REQUESTS).div_ceil(size));
    [ops, bytes]
}
