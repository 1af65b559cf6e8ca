//! What a VM may ask for at most of what it was promised.

use super::Tenant;
use super::cost::Costs;
use crate::profile::{Access, Direction};
use tidegate_base::expect::THOUSAND;
use tidegate_base::objective::{Objective, Rate};

/// Rates are in millionths of a request a second: less is nothing to any device.
pub(super) const MILLION: u128 = 1_000_000;
/// The size of a request whose rate in IOPS names none.
const IOPS_SIZE: u32 = 4096;
/// The size of a request of a bandwidth: what Linux reads ahead.
const BANDWIDTH_SIZE: u32 = 128 << 10;

/// Requests that were promised, and what they were taken for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Load {
    /// Millionths of a read a second, at most.
    pub reads: u64,
    /// Millionths of a write a second, at most.
    pub writes: u64,
    /// Sequential ones among either, in thousandths.
    pub sequential: u32,
    /// Bytes of a request.
    pub size: u32,
    /// Bytes of the longest I/O that may be in the way of others.
    pub longest: u32,
    /// Millionths of a request a second that are due as a floor: reservation, target or deadline
    /// transfer, at most all of them.
    pub floor: u64,
    /// Millionths of a request a second inside the envelope of the latency bound; `None`: no bound,
    /// or one that is best effort.
    pub envelope: Option<u64>,
    /// Requests of the envelope that may come at once, at least 1.
    pub burst: u32,
    /// Whether it reads at all, whatever was promised.
    pub may_read: bool,
    /// Whether it writes at all.
    pub may_write: bool,
}

impl Load {
    pub(super) fn of(tenant: &Tenant<'_>, costs: &Costs<'_>) -> Load {
        let objective = tenant.objective;
        let expects = &objective.expects;
        let floor = [&objective.reservation, &objective.target];
        let transfer = Rate {
            ops: None,
            bytes_per_s: Some(tenant.transfer).filter(|&bytes| bytes > 0),
        };
        let size = expects
            .size
            .unwrap_or_else(|| usual_size([floor[0], floor[1], &transfer]));
        let share = expects.reads.unwrap_or_else(|| dearer(costs, size));
        let limit = &objective.limit;
        let most = at_most(&limit.total, size);
        let (mut due, mut envelope) = (0, None);
        if !tenant.background {
            // Bytes that a floor moves are bytes of the transfer, too.
            let floors = [floor[0], floor[1], &transfer].map(|rate| at_least(rate, size));
            due = floors.into_iter().fold(0, u128::max).min(most);
            let inside = objective.envelope();
            envelope = inside.map(|inside| at_least(&inside.rate, size).min(most));
        }
        let promised = due.max(envelope.unwrap_or(0));
        let part = |share: u32, limit: &Rate| {
            let part = (promised * u128::from(share)).div_ceil(u128::from(THOUSAND));
            u64::try_from(part.min(at_most(limit, size))).unwrap_or(u64::MAX)
        };
        let whole = |rate: u128| u64::try_from(rate).unwrap_or(u64::MAX);
        Load {
            reads: part(share, &limit.read),
            writes: part(THOUSAND - share, &limit.write),
            floor: whole(due),
            envelope: envelope.map(whole),
            burst: expects.burst.unwrap_or(1).max(1),
            sequential: expects.sequential.unwrap_or(0),
            size,
            longest: longest(objective, costs, size),
            may_read: expects.reads != Some(0),
            may_write: expects.reads != Some(THOUSAND),
        }
    }

    /// Millionths of a request a second, at most.
    pub fn requests(&self) -> u64 {
        self.reads.saturating_add(self.writes)
    }
}

/// The size its rates count at: a reservation's own, or a target's, or a transfer's.
fn usual_size<const N: usize>(floor: [&Rate; N]) -> u32 {
    let said = floor.into_iter().find(|rate| !rate.is_none());
    match said.map(|rate| (rate.ops, rate.bytes_per_s)) {
        None => IOPS_SIZE,
        Some((Some(ops), bytes)) => ops.norm.unwrap_or_else(|| match bytes {
            None => IOPS_SIZE,
            Some(bytes) => u32::try_from((bytes / ops.per_s).max(1)).unwrap_or(u32::MAX),
        }),
        Some((None, _)) => BANDWIDTH_SIZE,
    }
}

/// The same objective with other floors, and its requests as long as they were taken for.
pub(super) fn of_size(objective: Objective, size: u32) -> Objective {
    let floor = [&objective.reservation, &objective.target];
    let nothing = floor.iter().all(|rate| rate.is_none());
    let mut kept = objective;
    if kept.expects.size.is_none() && !nothing && usual_size(floor) != size {
        kept.expects.size = Some(size);
    }
    kept
}

/// All reads, or all writes: whichever takes more time, in thousandths of reads.
fn dearer(costs: &Costs<'_>, size: u32) -> u32 {
    let time = |direction| costs.time_ps(direction, Access::Random, size);
    match time(Direction::Write) > time(Direction::Read) {
        true => 0,
        false => THOUSAND,
    }
}

/// Of what nothing is known may be as long as the device takes; what follows each other is merged.
fn longest(objective: &Objective, costs: &Costs<'_>, size: u32) -> u32 {
    let expects = &objective.expects;
    let silent = objective.reservation.is_none() && objective.target.is_none();
    match (expects.size, expects.sequential) {
        (None, _) if silent => costs.device.max_io.max(size),
        (_, Some(0)) => size,
        _ => size.max(costs.device.merge_limit),
    }
}

/// Millionths of a request of that size a second that satisfy a floor: both of its figures hold.
fn at_least(rate: &Rate, size: u32) -> u128 {
    let both = figures(rate, size);
    both.into_iter().flatten().max().unwrap_or(0)
}

/// Millionths of a request of that size a second that a cap lets through.
fn at_most(rate: &Rate, size: u32) -> u128 {
    let both = figures(rate, size);
    both.into_iter().flatten().min().unwrap_or(u128::MAX)
}

fn figures(rate: &Rate, size: u32) -> [Option<u128>; 2] {
    let size = u128::from(size.max(1));
    let ops = rate.ops.map(|ops| {
        // A request counts max(1, size / norm).
        let norm = ops.norm.map_or(size, u128::from);
        (u128::from(ops.per_s) * MILLION * norm).div_ceil(norm.max(size))
    });
    let bytes = (rate.bytes_per_s).map(|bytes| (u128::from(bytes) * MILLION).div_ceil(size));
    [ops, bytes]
}
