//! Checker of limits of disks, their own and shared ones. Since a limit came in force, what was
//! dispatched of its disks is at most its rate over that time, one burst, one request, and what was
//! inside the engine when it came, or when a disk joined it.
//!
//! Requests pass these limits before the scheduler, which may hold them and then dispatch many at
//! once, so no shorter time has a bound.

use super::limits::{Ceiling, ceiling};
use super::{Verdict, ensure};
use tidegate_core::engine::DeviceSpec;
use tidegate_core::objective::Limit;
use tidegate_core::request::{DeviceIo, Lane, Op, Request};
use tidegate_core::time::Nanos;

/// Nanoseconds of a second.
const NS_PER_S: u128 = 1_000_000_000;
/// Time in nanoseconds for which a late release may be made good: more than the engine's.
const SLACK_NS: u64 = 1_000_000;

/// Requests and bytes that requests or an I/O count as.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Amounts {
    ops: u64,
    /// Bytes asked for.
    asked: u64,
    /// Bytes that the device moves.
    moved: u64,
    lane: Lane,
}

impl Amounts {
    fn new(op: Op, (ops, asked): (u64, u64), device: &DeviceSpec) -> Amounts {
        let moves = match op {
            Op::Read | Op::Write => true,
            Op::WriteZeroes => device.zeroes_are_writes,
            Op::Discard | Op::Flush => false,
        };
        Amounts {
            ops,
            asked,
            moved: if moves { asked } else { 0 },
            lane: op.lane(),
        }
    }

    /// Units of a ceiling.
    fn units(&self, ceiling: &Ceiling, in_bytes: bool) -> u64 {
        match (in_bytes, ceiling.norm) {
            (true, _) => self.moved,
            (false, 0) => self.ops,
            (false, norm) => self.asked.max(self.ops * u64::from(norm)),
        }
    }
}

/// Count of one figure of one scope since its ceiling came in force.
#[derive(Clone, Copy, Debug)]
struct Meter {
    ceiling: Ceiling,
    counted: u64,
    /// Largest amount of an I/O.
    largest: u64,
    /// Amount inside the engine when the ceiling came in force.
    inside: u64,
}

/// Meters of a limit by scope (total, reads, writes) and figure (requests, bytes); `None`: not
/// limited.
#[derive(Clone, Copy, Default, Debug)]
struct Limited {
    since: Nanos,
    meters: [[Option<Meter>; 2]; 3],
}

/// Returns the scopes that count a lane.
fn scopes(lane: Lane) -> [usize; 2] {
    match lane {
        Lane::Read => [0, 1],
        Lane::Write => [0, 2],
    }
}

impl Limited {
    fn new(now: Nanos, limit: &Limit, inside: &[Amounts]) -> Limited {
        let mut limited = Limited {
            since: now,
            ..Limited::default()
        };
        let bursts = limit
            .burst
            .map(|burst| [burst.total, burst.read, burst.write]);
        let rates = [limit.total, limit.read, limit.write];
        for (scope, rate) in rates.iter().enumerate() {
            let burst = limit.burst.zip(bursts);
            let burst = burst.map(|(burst, rates)| (rates[scope], burst.length));
            for in_bytes in [false, true] {
                let ceiling = ceiling(rate, burst, in_bytes, SLACK_NS);
                limited.meters[scope][usize::from(in_bytes)] = ceiling.map(|ceiling| Meter {
                    ceiling,
                    counted: 0,
                    largest: 0,
                    inside: 0,
                });
            }
        }
        limited.join(inside);
        limited
    }

    /// Allows amounts that are inside the engine, which may have passed without a charge.
    fn join(&mut self, inside: &[Amounts]) {
        for (scope, meters) in self.meters.iter_mut().enumerate() {
            for (in_bytes, meter) in [false, true].into_iter().zip(meters) {
                let Some(meter) = meter else {
                    continue;
                };
                let amounts = inside.iter();
                let amounts = amounts.filter(|amounts| scopes(amounts.lane).contains(&scope));
                meter.inside += amounts
                    .map(|amounts| amounts.units(&meter.ceiling, in_bytes))
                    .sum::<u64>();
            }
        }
    }

    /// Counts an I/O. Returns the allowed and the counted amount if the latter is larger.
    fn count(&mut self, now: Nanos, io: &Amounts) -> Option<(u64, u64)> {
        let elapsed = u128::from(now.since(self.since).0);
        for scope in scopes(io.lane) {
            for in_bytes in [false, true] {
                let Some(meter) = &mut self.meters[scope][usize::from(in_bytes)] else {
                    continue;
                };
                let amount = io.units(&meter.ceiling, in_bytes);
                meter.counted += amount;
                meter.largest = meter.largest.max(amount);
                let ceiling = &meter.ceiling;
                let free = u128::from(meter.largest + meter.inside) * NS_PER_S;
                let by_time = u128::from(ceiling.steady) * elapsed;
                let allowed = by_time + ceiling.burst + ceiling.tolerance + free;
                if u128::from(meter.counted) * NS_PER_S > allowed {
                    return Some(((allowed / NS_PER_S) as u64, meter.counted));
                }
            }
        }
        None
    }
}

/// Limits of disks by their numbers, and shared limits by theirs.
#[derive(Debug, Default)]
pub struct DiskLimits {
    disks: Vec<Limited>,
    shared: Vec<Limited>,
    /// Shared limit of each disk.
    shares: Vec<Option<usize>>,
}

impl DiskLimits {
    /// Sets the limit of a disk; `inside` are its requests inside the engine.
    pub fn set_disk<'a>(
        &mut self,
        now: Nanos,
        (disk, limit): (usize, &Limit),
        device: &DeviceSpec,
        inside: impl Iterator<Item = &'a Request>,
    ) {
        put(
            &mut self.disks,
            disk,
            Limited::new(now, limit, &amounts(device, inside)),
        );
    }

    /// Sets a shared limit; `inside` are the requests of its disks inside the engine.
    pub fn set_shared<'a>(
        &mut self,
        now: Nanos,
        (shared, limit): (usize, &Limit),
        device: &DeviceSpec,
        inside: impl Iterator<Item = &'a Request>,
    ) {
        put(
            &mut self.shared,
            shared,
            Limited::new(now, limit, &amounts(device, inside)),
        );
    }

    /// Has a disk share a limit, in place of the one that it shared before; `inside` are its
    /// requests inside the engine.
    pub fn share<'a>(
        &mut self,
        disk: usize,
        shared: Option<usize>,
        device: &DeviceSpec,
        inside: impl Iterator<Item = &'a Request>,
    ) {
        put(&mut self.shares, disk, shared);
        if let Some(limited) = shared.and_then(|shared| self.shared.get_mut(shared)) {
            limited.join(&amounts(device, inside));
        }
    }

    /// Returns whether a disk shares a limit.
    pub fn is_shared(&self, disk: usize, shared: usize) -> bool {
        self.shares.get(disk) == Some(&Some(shared))
    }

    /// Counts a device I/O of a disk that has started.
    ///
    /// # Errors
    /// Fails when it exceeds a limit.
    pub fn started(
        &mut self,
        now: Nanos,
        disk: usize,
        device: &DeviceSpec,
        io: &DeviceIo,
    ) -> Verdict {
        let served = (u64::from(io.first_ops), io.first_bytes);
        let amounts = Amounts::new(io.op, served, device);
        if io.op == Op::Flush || io.first_ops == 0 {
            return Ok(());
        }
        let shared = self.shares.get(disk).copied().flatten();
        let shared = shared.and_then(|shared| self.shared.get_mut(shared));
        let own = self.disks.get_mut(disk);
        for (limited, which) in [(own, "its own"), (shared, "a shared")] {
            let Some((allowed, counted)) = limited.and_then(|limited| limited.count(now, &amounts))
            else {
                continue;
            };
            ensure!(
                Limits,
                false,
                "disk {disk} got {counted} (requests or bytes) where {which} limit allows {allowed}"
            );
        }
        Ok(())
    }
}

fn amounts<'a>(device: &DeviceSpec, inside: impl Iterator<Item = &'a Request>) -> Vec<Amounts> {
    let inside = inside.filter(|request| request.op != Op::Flush);
    inside
        .map(|request| Amounts::new(request.op, (1, request.len.into()), device))
        .collect()
}

fn put<T: Default + Clone>(list: &mut Vec<T>, at: usize, value: T) {
    if list.len() <= at {
        list.resize(at + 1, T::default());
    }
    list[at] = value;
}
