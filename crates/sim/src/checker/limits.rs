//! Checker of limits. In any window of 100 ms, what is dispatched exceeds a limit's rate by at most
//! one device I/O and 1 % (or the policy's own `slack`, if that is more). Where the policy enforces
//! bursts, the window is held to the burst's rate, and over any time a VM gets at most the limit's
//! rate and one burst.
//!
//! While a limit changes, the largest one in force within the window counts. A window in which no
//! limit was in force for a part of the time is not checked. A swap from one policy that enforces
//! limits to another yields no extra credit.

use super::{Verdict, ensure};
use std::collections::VecDeque;
use tidegate_core::engine::DeviceSpec;
use tidegate_core::objective::{Objective, Rate};
use tidegate_core::part::Enforces;
use tidegate_core::policy::Policy;
use tidegate_core::request::{DeviceIo, Lane, Op, VmId};
use tidegate_core::time::Nanos;

/// Length of the windows that are checked, in nanoseconds.
const WINDOW: u64 = 100_000_000;
/// Tolerance of a window: 1 % of it, in nanoseconds.
const SLACK: u64 = WINDOW / 100;
/// Nanoseconds of a second.
const SECOND: u128 = 1_000_000_000;

/// Bound on one figure (requests or bytes) of one scope, in units per second.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Ceiling {
    /// Rate in any window.
    rate: u64,
    /// Rate over any time.
    steady: u64,
    /// Burst that may be saved up beyond the steady rate, in units x 10^9.
    burst: u128,
    /// Bytes that a request counts as at least; 0 if requests count as one each.
    norm: u32,
    slack: u64,
    /// Tolerance beyond the steady rate and the burst over any time, in units x 10^9.
    beyond: u128,
}

/// Meter of one figure of one scope.
#[derive(Debug, Default)]
struct Meter {
    now: Option<Ceiling>,
    /// Former ceilings of the present window, each with the time at which it ended.
    before: Vec<(u64, Ceiling)>,
    recent: VecDeque<(u64, u64)>,
    sum: u64,
    largest: u64,
    /// Amount above the steady rate, in units x 10^9.
    level: u128,
    level_at: u64,
}

impl Meter {
    fn set(&mut self, now: u64, ceiling: Option<Ceiling>) {
        if self.now == ceiling {
            return;
        }
        let norms = (self.now.map(|c| c.norm), ceiling.map(|c| c.norm));
        match (self.now, ceiling) {
            (Some(old), Some(_)) if norms.0 == norms.1 => self.before.push((now, old)),
            // A change from no limit to one, or to other units, makes the counts incomparable.
            _ => {
                self.before.clear();
                self.recent.clear();
                (self.sum, self.largest) = (0, 0);
            }
        }
        self.now = ceiling;
        // Each change starts without an overdraft, which is to the advantage of the policy.
        (self.level, self.level_at) = (0, now);
    }

    /// Counts an amount dispatched at `now`. Returns the allowed and the counted amount if the
    /// latter is larger.
    fn count(&mut self, now: u64, ops: u64, bytes: u64, in_bytes: bool) -> Option<(u64, u64)> {
        let ceiling = self.now?;
        let amount = match (in_bytes, ceiling.norm) {
            (true, _) => bytes,
            (false, 0) => ops,
            // A request of up to `norm` bytes counts as `norm` bytes.
            (false, norm) => bytes.max(ops * norm as u64),
        };
        // Without it an empty I/O would still shift the window.
        if amount == 0 {
            return None;
        }
        // A former limit counts as long as its end lies within the window.
        self.before.retain(|&(until, _)| until + WINDOW > now);
        while let Some(&(at, old)) = self.recent.front()
            && at + WINDOW <= now
        {
            self.recent.pop_front();
            self.sum -= old;
        }
        self.recent.push_back((now, amount));
        self.sum += amount;
        self.largest = self.largest.max(amount);
        // While a limit changes, the largest rate within the window counts.
        let all = || self.before.iter().map(|b| &b.1).chain([&ceiling]);
        let rate = all().map(|c| c.rate).max().unwrap_or(0);
        let slack = all().map(|c| c.slack).max().unwrap_or(0);
        let allowed = rate as u128 * (WINDOW + slack) as u128 / SECOND;
        // One I/O may exceed the rate: it cannot be split for its limit.
        let allowed = allowed.saturating_add(self.largest as u128);
        if self.sum as u128 > allowed {
            return Some((allowed as u64, self.sum));
        }
        self.count_level(now, &ceiling, amount)
    }

    fn count_level(&mut self, now: u64, ceiling: &Ceiling, amount: u64) -> Option<(u64, u64)> {
        // Leaky bucket in units x 10^9, so that no fraction of a unit is lost.
        let regained = ceiling.steady as u128 * (now - self.level_at) as u128;
        self.level = self.level.saturating_sub(regained) + amount as u128 * SECOND;
        self.level_at = now;
        let allowed = ceiling.burst + ceiling.beyond + self.largest as u128 * SECOND;
        let over = self.level > allowed;
        over.then_some(((allowed / SECOND) as u64, (self.level / SECOND) as u64))
    }
}

/// Meters by scope (total, reads, writes) and figure (requests, bytes).
type Meters = [[Meter; 2]; 3];

/// Meters of each VM slot.
#[derive(Debug, Default)]
pub struct Limits {
    vms: Vec<Meters>,
}

impl Limits {
    /// Sets the ceilings of a VM that is added or whose objective or policy changed. `enforces`
    /// lists what the policy enforces for this VM.
    pub fn set(
        &mut self,
        now: Nanos,
        vm: VmId,
        objective: &Objective,
        policy: &dyn Policy,
        enforces: &Enforces,
    ) {
        if self.vms.len() <= vm.index() {
            self.vms.resize_with(vm.index() + 1, Meters::default);
        }
        let limit = &objective.limit;
        let slack = policy
            .params()
            .iter()
            .copied()
            .find(|(info, _)| info.name == "slack");
        // The regulator admits a unit that is due within the next nanosecond, hence the 1.
        let slack = slack.map_or(0, |(_, value)| value).max(SLACK) + 1;
        let burst = limit.burst.filter(|_| enforces.burst);
        let bursts = burst.map(|b| [b.total, b.read, b.write]);
        let scopes = [limit.total, limit.read, limit.write];
        // What the policy does not enforce is not held against it.
        let kept = [
            enforces.limit,
            enforces.limit_by_direction,
            enforces.limit_by_direction,
        ];
        for (scope, rate) in scopes.iter().enumerate() {
            let burst = burst.zip(bursts).map(|(b, all)| (all[scope], b.length));
            for in_bytes in [false, true] {
                let ceiling = ceiling(rate, burst, in_bytes, slack).filter(|_| kept[scope]);
                self.vms[vm.index()][scope][in_bytes as usize].set(now.0, ceiling);
            }
        }
    }

    /// Resets the meters of a removed VM, for the next owner of its slot.
    pub fn removed(&mut self, vm: VmId) {
        if let Some(meters) = self.vms.get_mut(vm.index()) {
            *meters = Meters::default();
        }
    }

    /// Counts a device I/O that has started.
    ///
    /// # Errors
    /// Fails when it exceeds a limit.
    pub fn started(&mut self, now: Nanos, device: &DeviceSpec, io: &DeviceIo) -> Verdict {
        let bytes = match io.op {
            Op::Flush => return Ok(()),
            Op::WriteZeroes if device.zeroes_are_writes => io.len as u64,
            Op::WriteZeroes | Op::Discard => 0,
            Op::Read | Op::Write => io.len as u64,
        };
        let direction = match io.op.lane() {
            Lane::Read => 1,
            Lane::Write => 2,
        };
        for scope in [0, direction] {
            for in_bytes in [false, true] {
                let meter = &mut self.vms[io.vm.index()][scope][in_bytes as usize];
                // Rates of bytes count what goes to the device, normalised requests what they asked
                // for.
                let bytes = if in_bytes { bytes } else { io.first_bytes };
                let over = meter.count(now.0, io.first_ops as u64, bytes, in_bytes);
                let Some((allowed, counted)) = over else {
                    continue;
                };
                ensure!(
                    Limits,
                    false,
                    "{:?} got {counted} {} ({}) where its limit allows {allowed}: {:?}",
                    io.vm,
                    if in_bytes {
                        "bytes"
                    } else {
                        "requests or normalised bytes"
                    },
                    ["in all", "reads", "writes"][scope],
                    meter.now
                );
            }
        }
        Ok(())
    }
}

fn ceiling(
    limit: &Rate,
    burst: Option<(Rate, Nanos)>,
    in_bytes: bool,
    slack: u64,
) -> Option<Ceiling> {
    let units = |rate: &Rate| match (in_bytes, rate.ops) {
        (true, _) => rate.bytes_per_s,
        // A normalised rate is in bytes: requests of the norm's size.
        (false, ops) => ops.map(|o| o.per_s * o.norm.unwrap_or(1) as u64),
    };
    let plain = |rate: &Rate| {
        if in_bytes {
            rate.bytes_per_s
        } else {
            rate.ops.map(|o| o.per_s)
        }
    };
    let steady = units(limit)?;
    let norm = if in_bytes {
        0
    } else {
        limit.ops.and_then(|o| o.norm).unwrap_or(0)
    };
    let mut ceiling = Ceiling {
        rate: steady,
        steady,
        burst: 0,
        norm,
        slack,
        beyond: steady as u128 * slack as u128,
    };
    let fast = burst.and_then(|(rate, length)| Some((plain(&rate)?, length)));
    // What a window allows is a whole number of requests: up to there, those that waited are made
    // good. (With a burst, more is saved up anyhow.)
    if !in_bytes && norm == 0 && fast.is_none() {
        // Rounded down to whole requests and one more, in units x 10^9.
        let whole = (steady as u128 * (WINDOW + SLACK) as u128 / SECOND + 1) * SECOND;
        let room = whole - steady as u128 * WINDOW as u128;
        ceiling.beyond = ceiling.beyond.max(room);
    }
    if let Some((fast, length)) = fast {
        // A burst's requests count as the limit's do.
        let fast = fast as u128 * norm.max(1) as u128;
        // A burst below the limit would not lower it.
        ceiling.rate = u64::try_from(fast).unwrap_or(u64::MAX).max(steady);
        ceiling.burst = fast * length.0 as u128;
    }
    Some(ceiling)
}
