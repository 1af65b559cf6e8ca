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

/// Length in nanoseconds of the windows that are checked.
const WINDOW_NS: u64 = 100_000_000;
/// Tolerance of a window in nanoseconds: 1 % of its length.
const SLACK_NS: u64 = WINDOW_NS / 100;
/// Nanoseconds of a second.
const NS_PER_S: u128 = 1_000_000_000;

/// Bound on one figure (requests or bytes) of one scope, in units per second.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Ceiling {
    /// Rate in any window.
    rate: u64,
    /// Rate over any time.
    pub(super) steady: u64,
    /// Burst that may be saved up beyond the steady rate, in units x 10^9.
    pub(super) burst: u128,
    /// Bytes that a request counts as at least; 0 if requests count as one each.
    pub(super) norm: u32,
    /// Tolerance of a window in nanoseconds.
    slack_ns: u64,
    /// Tolerance beyond the steady rate and the burst over any time, in units x 10^9.
    pub(super) tolerance: u128,
}

/// Meter of one figure of one scope. Times are in nanoseconds.
#[derive(Debug, Default)]
struct Meter {
    /// Ceiling in force; `None`: the figure is not limited.
    ceiling: Option<Ceiling>,
    /// Former ceilings of the present window, each with the time at which it ended.
    former: Vec<(u64, Ceiling)>,
    /// Amounts dispatched in the present window, each with its time.
    window: VecDeque<(u64, u64)>,
    /// Sum of the amounts in `window`.
    sum: u64,
    /// Largest amount of an I/O since the units of the ceiling changed.
    largest: u64,
    /// Amount above the steady rate, in units x 10^9.
    level: u128,
    /// Time to which `level` refers.
    level_at: u64,
}

impl Meter {
    fn set(&mut self, now: u64, ceiling: Option<Ceiling>) {
        if self.ceiling == ceiling {
            return;
        }
        match (self.ceiling, ceiling) {
            (Some(old), Some(new)) if old.norm == new.norm => self.former.push((now, old)),
            // A change from no limit to one, or to other units, makes the counts incomparable.
            _ => {
                self.former.clear();
                self.window.clear();
                (self.sum, self.largest) = (0, 0);
            }
        }
        self.ceiling = ceiling;
        // Each change starts without an overdraft, which is to the advantage of the policy.
        (self.level, self.level_at) = (0, now);
    }

    /// Counts an amount dispatched at `now`. Returns the allowed and the counted amount if the
    /// latter is larger.
    fn count(&mut self, now: u64, ops: u64, bytes: u64, in_bytes: bool) -> Option<(u64, u64)> {
        let ceiling = self.ceiling?;
        let amount = match (in_bytes, ceiling.norm) {
            (true, _) => bytes,
            (false, 0) => ops,
            // A request of up to `norm` bytes counts as `norm` bytes.
            (false, norm) => bytes.max(ops * norm as u64),
        };
        // An I/O without an amount, such as a discard under a limit of bytes, counts nothing.
        if amount == 0 {
            return None;
        }
        // A former limit counts as long as its end lies within the window.
        self.former.retain(|&(until, _)| until + WINDOW_NS > now);
        while let Some(&(at, old)) = self.window.front()
            && at + WINDOW_NS <= now
        {
            self.window.pop_front();
            self.sum -= old;
        }
        self.window.push_back((now, amount));
        self.sum += amount;
        self.largest = self.largest.max(amount);
        // While a limit changes, the largest rate within the window counts.
        let ceilings = || {
            self.former
                .iter()
                .map(|(_, former)| former)
                .chain([&ceiling])
        };
        let rate = ceilings().map(|c| c.rate).max().unwrap_or(0);
        let slack_ns = ceilings().map(|c| c.slack_ns).max().unwrap_or(0);
        let allowed = rate as u128 * (WINDOW_NS + slack_ns) as u128 / NS_PER_S;
        // One I/O may exceed the rate: it cannot be split for its limit.
        let allowed = allowed.saturating_add(self.largest as u128);
        if self.sum as u128 > allowed {
            return Some((allowed as u64, self.sum));
        }
        self.count_level(now, &ceiling, amount)
    }

    /// Counts an amount against the steady rate and the burst. Returns the allowed and the counted
    /// amount if the latter is larger.
    fn count_level(&mut self, now: u64, ceiling: &Ceiling, amount: u64) -> Option<(u64, u64)> {
        // Leaky bucket in units x 10^9, so that no fraction of a unit is lost.
        let regained = ceiling.steady as u128 * (now - self.level_at) as u128;
        self.level = self.level.saturating_sub(regained) + amount as u128 * NS_PER_S;
        self.level_at = now;
        let allowed = ceiling.burst + ceiling.tolerance + self.largest as u128 * NS_PER_S;
        let is_over = self.level > allowed;
        is_over.then_some(((allowed / NS_PER_S) as u64, (self.level / NS_PER_S) as u64))
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
        let slack_ns = slack.map_or(0, |(_, value)| value).max(SLACK_NS) + 1;
        let burst = limit.burst.filter(|_| enforces.burst);
        let bursts = burst.map(|b| [b.total, b.read, b.write]);
        let scopes = [limit.total, limit.read, limit.write];
        // Limits that the policy does not enforce are not checked.
        let is_enforced = [
            enforces.limit,
            enforces.limit_by_direction,
            enforces.limit_by_direction,
        ];
        for (scope, rate) in scopes.iter().enumerate() {
            let burst = burst.zip(bursts).map(|(b, all)| (all[scope], b.length));
            for in_bytes in [false, true] {
                let ceiling =
                    ceiling(rate, burst, in_bytes, slack_ns).filter(|_| is_enforced[scope]);
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
                    meter.ceiling
                );
            }
        }
        Ok(())
    }
}

/// Returns the ceiling on one figure of a limit, with the rate and length of its burst; `None`: the
/// limit does not bound the figure. `slack_ns` is the tolerance of a window.
pub(super) fn ceiling(
    limit: &Rate,
    burst: Option<(Rate, Nanos)>,
    in_bytes: bool,
    slack_ns: u64,
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
        slack_ns,
        tolerance: steady as u128 * slack_ns as u128,
    };
    let fast = burst.and_then(|(rate, length)| Some((plain(&rate)?, length)));
    // A window allows a whole number of requests. A policy that counts them may make up for those
    // that waited to the same number, so the tolerance over any time is at least that rounding.
    // With a burst more is saved up anyway.
    if !in_bytes && norm == 0 && fast.is_none() {
        // Rounded down to whole requests and one more, in units x 10^9.
        let whole = (steady as u128 * (WINDOW_NS + SLACK_NS) as u128 / NS_PER_S + 1) * NS_PER_S;
        let rounding = whole - steady as u128 * WINDOW_NS as u128;
        ceiling.tolerance = ceiling.tolerance.max(rounding);
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
