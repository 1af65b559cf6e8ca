//! Cap in front of a device: the token bucket of a hypervisor or a cloud volume.
//!
//! ```text
//!   submit --> [ buckets: I/Os per second, bytes per second, with credit ] --> the device itself
//! ```
//!
//! An I/O passes when both buckets have enough: one counts I/Os, one counts bytes. I/Os pass in
//! order of submission, as with QEMU's `throttling.iops-total` and `throttling.bps-total` or a
//! cloud volume's provisioned rates. What waits in the bucket is in flight for the driver, which is
//! unaware of the cap: it sees a device whose latency is its number of I/Os in flight divided by
//! the rate (Little's law).
//!
//! A bucket fills at its rate, holds [`CapFigures::burst`] of it and is full at time zero. An I/O
//! that is larger than the bucket's content passes with what there is and leaves a debt. A flush
//! costs nothing, a discard costs an I/O and no bytes.

use crate::figures::{FigureError, require};
use crate::model::{Completion, Model, ModelIo, Spec, assert_submittable};
use serde::Deserialize;
use tidegate_core::pace::Pacer;
use tidegate_core::request::Op;
use tidegate_core::time::Nanos;
use tidegate_units::{Bandwidth, Duration};

/// Figures of a cap: the table `[cap]` of a device description.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CapFigures {
    /// I/Os per second, 1 to 10^7; `None`: not capped.
    pub iops: Option<u64>,
    /// Bytes per second, 100 kB/s to 100 GB/s; `None`: not capped.
    pub bandwidth: Option<Bandwidth>,
    /// Capacity of both buckets as the time in which they fill, up to 24 h; `None`: 0.
    pub burst: Option<Duration>,
}

impl CapFigures {
    /// Checks the ranges of the figures.
    ///
    /// # Errors
    /// If a figure is out of range, or neither figure is set.
    pub(crate) fn check(&self) -> Result<(), FigureError> {
        let nothing = self.iops.is_none() && self.bandwidth.is_none();
        let allowed = "iops, bandwidth or both";
        require(!nothing, "cap", "neither iops nor bandwidth", allowed)?;
        if let Some(iops) = self.iops {
            let fits = (1..=10_000_000).contains(&iops);
            require(fits, "cap.iops", iops, "1 to 10000000")?;
        }
        if let Some(rate) = self.bandwidth {
            let fits = (100_000..=100_000_000_000).contains(&rate.0);
            let allowed = "100 kB/s to 100 GB/s";
            require(fits, "cap.bandwidth", rate, allowed)?;
        }
        let burst = self.burst.unwrap_or(Duration(Nanos::ZERO));
        let day = Nanos(86_400 * Nanos::SECOND.0);
        require(burst.0 <= day, "cap.burst", burst, "up to 24 h")
    }
}

/// Device model behind a cap.
pub struct Capped {
    inner: Box<dyn Model>,
    ios: Pacer,
    bytes: Pacer,
    burst: Nanos,
    last_submit: Nanos,
    /// Time at which the last I/O passed the buckets, or will: later ones pass no earlier.
    passed: Nanos,
}

impl Capped {
    /// Puts a cap in front of a device at time zero.
    ///
    /// # Errors
    /// If a figure is out of range, or neither figure is set.
    pub fn new(inner: Box<dyn Model>, cap: &CapFigures) -> Result<Capped, FigureError> {
        cap.check()?;
        let mut capped = Capped {
            inner,
            ios: Pacer::NONE,
            bytes: Pacer::NONE,
            burst: Nanos::ZERO,
            last_submit: Nanos::ZERO,
            passed: Nanos::ZERO,
        };
        capped.set(Nanos::ZERO, cap);
        Ok(capped)
    }

    /// Replaces the cap, as a provider does when a volume is resized. Saved credit stays as far as
    /// it fits; an I/O that already waits in the bucket keeps its time.
    ///
    /// # Errors
    /// As [`Capped::new`]; the cap is then unchanged.
    pub fn set_cap(&mut self, now: Nanos, cap: &CapFigures) -> Result<(), FigureError> {
        cap.check()?;
        self.set(now, cap);
        Ok(())
    }

    fn set(&mut self, now: Nanos, cap: &CapFigures) {
        // A rate of 0 stands for no limit.
        self.ios.set_rate(cap.iops.unwrap_or(0), 1, now);
        let bandwidth = cap.bandwidth.map_or(0, |rate| rate.0);
        self.bytes.set_rate(bandwidth, 1, now);
        self.burst = cap.burst.map_or(Nanos::ZERO, |burst| burst.0);
        // A smaller bucket loses credit but does not start in debt.
        for bucket in [&mut self.ios, &mut self.bytes] {
            bucket.shrink_tolerance(Nanos::MAX, self.burst, now);
        }
    }

    /// Returns the time at which an I/O submitted at `now` passes both buckets, and charges it.
    fn pass(&mut self, now: Nanos, io: &ModelIo) -> Nanos {
        let mut at = self.passed.max(now);
        if io.op != Op::Flush {
            let bytes = match io.op {
                Op::Discard => 0,
                _ => u64::from(io.len),
            };
            let buckets = [(&mut self.ios, 1), (&mut self.bytes, bytes)];
            for (bucket, _) in &buckets {
                at = at.max(bucket.due() - self.burst);
            }
            for (bucket, cost) in buckets {
                // A full bucket overflows: credit beyond its capacity is not kept.
                bucket.forget_before(at);
                bucket.spend(cost);
            }
        }
        self.passed = at;
        at
    }
}

impl Model for Capped {
    fn spec(&self) -> &Spec {
        self.inner.spec()
    }

    fn submit(&mut self, now: Nanos, io: ModelIo) {
        assert_submittable(self, self.last_submit, now, &io);
        self.last_submit = now;
        // Buckets are first in, first out, so no later I/O can pass earlier and the time is final.
        let at = self.pass(now, &io);
        self.inner.submit(at, io);
    }

    fn next_completion(&self) -> Option<Nanos> {
        self.inner.next_completion()
    }

    fn pop_completed(&mut self, now: Nanos) -> Option<Completion> {
        self.inner.pop_completed(now)
    }

    fn in_flight(&self) -> u32 {
        self.inner.in_flight()
    }

    fn has_room(&self) -> bool {
        self.inner.has_room()
    }
}
