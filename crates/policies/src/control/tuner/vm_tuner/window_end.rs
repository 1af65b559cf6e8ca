//! Actions of a tuner at the end of a window in which its VM demanded its target: PI throttling,
//! tuning action (TA) and, for a paced tuner, the paced merge limit.

use super::{MAX_CARRIED_S, VmTuner};
use crate::control::tuner::action::Moved;
use crate::control::tuner::measure::{Amount, HeldRate, Span, Unit};
use crate::control::tuner::paced::Passed;
use crate::control::tuner::target::TargetRevision;
use crate::regulate::merge_limit::{PAGE_BYTES, counted_ios};
use tidegate_base::request::VmId;
use tidegate_base::time::Nanos;
use tidegate_core::view::View;

/// Reciprocal of the weight of a window in the exponential average of the rate that status output
/// shows during a shortfall.
const RATE_AVERAGE_WINDOWS: u64 = 8;

impl VmTuner {
    /// Adjusts merge limit and rate after a window in which the VM demanded its target.
    pub(super) fn adjust(&mut self, view: &View, vm: VmId, window: &Span) {
        let now = view.now();
        match self.paced {
            None => self.control_ios(now, window),
            Some(_) => self.adjust_pace(view, vm, window),
        }
        // The paced tuner sets the merge limit for a bandwidth itself; TA still holds a mean size.
        if self.paced.is_none() || self.throughput.is_some() {
            self.tune(now, window);
        }
        let [bytes, ios] = [Unit::Bytes, Unit::MilliIos].map(|unit| window.rate(now, unit));
        let average =
            |old: u64, new: u64| old - old / RATE_AVERAGE_WINDOWS + new / RATE_AVERAGE_WINDOWS;
        self.short_rate = match (self.short_since(), self.short_rate) {
            (None, _) => Amount::default(),
            // The first window of a shortfall: zero is no rate to average with.
            (Some(_), Amount { bytes: 0, ios: 0 }) => Amount { bytes, ios },
            (Some(_), old) => Amount {
                bytes: average(old.bytes, bytes),
                ios: average(old.ios, ios),
            },
        };
    }

    /// Runs PI throttling, if an IOPS target is held.
    fn control_ios(&mut self, now: Nanos, window: &Span) {
        if let Some(throughput) = &mut self.throughput {
            let (length, ios) = (window.length(now), window.moved.ios);
            throughput.step(
                now,
                ios,
                length,
                &self.params.gains(),
                self.params.tolerance,
            );
        }
    }

    /// Runs the tuning action (TA) on the merge limit, if there is a bandwidth to aim at.
    ///
    /// TA compares two amounts in one unit, b being the bytes that the window moved:
    ///
    /// ```text
    ///   bandwidth:            b x 1 s          against  aim x length of the window
    ///   bandwidth and IOPS:   b x target IOPS  against  aim x I/Os of the window
    /// ```
    ///
    /// The second compares mean sizes, b / I/Os against aim / target IOPS, without a division. Both
    /// IOPS and I/Os are in thousandths.
    fn tune(&mut self, now: Nanos, window: &Span) {
        let Some(TargetRevision { aim, .. }) = self.aim else {
            return;
        };
        let (length, Amount { bytes, ios }) = (window.length(now), window.moved);
        let (scale, due) = match &self.throughput {
            None => (
                u128::from(Nanos::SECOND.0),
                u128::from(aim) * u128::from(length.0),
            ),
            Some(held) => (held.target.into(), u128::from(aim) * u128::from(ios)),
        };
        let moved = Moved {
            measured: u128::from(bytes) * scale,
            due,
            max_carried: MAX_CARRIED_S * u128::from(aim) * scale,
            page: u128::from(PAGE_BYTES) * scale,
        };
        let throttles = self.throughput.is_none();
        self.action
            .step(now, &moved, self.params.tolerance, throttles);
    }

    /// Returns the rate that the throttle holds. Where the target has a bandwidth and IOPS, the
    /// throttle holds the IOPS, and the merge limit the mean size, unlike in
    /// [`VmTuner::held_rate`].
    fn throttled_rate(&self) -> HeldRate {
        match &self.throughput {
            Some(held) => HeldRate {
                per_s: held.target,
                unit: Unit::MilliIos,
            },
            None => self.held_rate(),
        }
    }

    /// Compares what the device completed with what the throttle lets pass, and adjusts the paced
    /// merge limit if it fell behind.
    fn adjust_pace(&mut self, view: &View, vm: VmId, window: &Span) {
        let HeldRate { per_s, unit } = self.throttled_rate();
        let tolerance = self.params.tolerance;
        let short_rate = self.short_rate.in_unit(unit);
        let by_limit = self.throughput.is_none();
        let Some(paced) = &mut self.paced else { return };
        let bytes = if by_limit {
            paced.bytes()
        } else {
            self.top * PAGE_BYTES
        };
        let largest = Amount {
            bytes: bytes.into(),
            ios: counted_ios(self.target.ops, bytes),
        };
        let passed = Passed {
            per_s,
            asked_for: window.busy(view, vm),
            moved: window.moved.in_unit(unit),
            largest: largest.in_unit(unit),
            by_limit,
        };
        paced.act(view.now(), &passed);
        // `tolerance` is in per cent.
        let enough = u128::from(per_s) * u128::from(100 - tolerance);
        if u128::from(short_rate) * 100 >= enough {
            paced.recovered();
        }
    }

    /// Returns the time since which the device has fallen short of the target; `None`: it does not.
    pub(super) fn short_since(&self) -> Option<Nanos> {
        let of_rate = match &self.paced {
            Some(paced) => paced.short_since,
            None => self.throughput.and_then(|held| held.short_since),
        };
        match (self.action.short_since, of_rate) {
            (Some(size), Some(rate)) => Some(size.min(rate)),
            (size, rate) => size.or(rate),
        }
    }
}
