//! A cap in front of a device: the token bucket of a hypervisor or a cloud.
//!
//! ```text
//!   submit --> [ bucket: so many I/Os and bytes a second, some saved up ] --> the device itself
//! ```
//!
//! An I/O passes once both buckets have let it: one of I/Os, one of bytes; in order of submission,
//! as QEMU's `throttling.iops-total` and `throttling.bps-total` or a cloud volume's provisioned
//! rates hold a guest. What waits there is in flight for the driver, which is told of no cap: it
//! sees a device whose latency is what it has in flight over the rate (Little's law).
//!
//! A bucket fills at its rate and holds [`CapFigures::burst`] of it; it is full at time zero. An
//! I/O larger than what is in it passes with what there is and leaves a debt. A flush costs
//! nothing, a discard an I/O and no bytes.

use crate::figures::{FigureError, require};
use crate::model::{Completion, Model, ModelIo, Spec, assert_submittable};
use serde::Deserialize;
use tidegate_core::pace::Pacer;
use tidegate_core::request::Op;
use tidegate_core::time::Nanos;
use tidegate_units::{Bandwidth, Duration};

/// The figures of a cap, the table `[cap]` of a device's description.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CapFigures {
    /// I/Os a second, 1 to 10^7; `None`: as many as the device does.
    pub iops: Option<u64>,
    /// Bytes a second, 100 kB/s to 100 GB/s; `None`: as many as the device moves.
    pub bandwidth: Option<Bandwidth>,
    /// What the buckets hold, as the time in which they fill, up to 24 h; `None`: nothing.
    pub burst: Option<Duration>,
}

impl CapFigures {
    /// # Errors
    /// When a figure is out of range, or nothing is capped.
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

/// A device behind a cap.
pub struct Capped {
    inner: Box<dyn Model>,
    ios: Pacer,
    bytes: Pacer,
    burst: Nanos,
    last_submit: Nanos,
    /// When the last I/O passed, or will: nothing passes before it.
    passed: Nanos,
}

impl Capped {
    /// Puts a cap in front of a device at time zero.
    ///
    /// # Errors
    /// When a figure is out of range, or nothing is capped.
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

    /// Another cap from now on: a provider has sold more, or less. What was saved up stays as far
    /// as it fits; an I/O that waits in the bucket keeps its time.
    ///
    /// # Errors
    /// As [`Capped::new`]; nothing has changed then.
    pub fn set_cap(&mut self, now: Nanos, cap: &CapFigures) -> Result<(), FigureError> {
        cap.check()?;
        self.set(now, cap);
        Ok(())
    }

    fn set(&mut self, now: Nanos, cap: &CapFigures) {
        self.ios.set_rate(cap.iops.unwrap_or(0), 1, now);
        let bandwidth = cap.bandwidth.map_or(0, |rate| rate.0);
        self.bytes.set_rate(bandwidth, 1, now);
        self.burst = cap.burst.map_or(Nanos::ZERO, |burst| burst.0);
        // A bucket that holds less now is empty, not in debt.
        for bucket in [&mut self.ios, &mut self.bytes] {
            bucket.shrink_tolerance(Nanos::MAX, self.burst, now);
        }
    }

    /// When an I/O that is submitted now passes the buckets; it has spent its part then.
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
                // The bucket has overflowed before: nothing of that is kept.
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
        // Nothing that comes later passes sooner, so the device may be told at once when it will.
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
