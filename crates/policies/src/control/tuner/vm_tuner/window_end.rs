//! Actions of a tuner at the end of a window in which its VM asked for its target.

use super::{CARRIED_S, VmTuner};
use crate::control::tuner::action::Moved;
use crate::control::tuner::measure::{Amount, Span};
use crate::control::tuner::paced::Passed;
use crate::control::tuner::target::TargetRevision;
use crate::regulate::merge_limit::{PAGE, ios};
use tidegate_base::request::VmId;
use tidegate_base::time::Nanos;
use tidegate_core::view::View;

impl VmTuner {
    /// Adjusts merge limit and rate after a window in which the VM asked for its target.
    pub(super) fn act(&mut self, view: &View, vm: VmId, window: &Span) {
        let now = view.now();
        match self.paced {
            None => self.control_ios(now, window),
            Some(_) => self.keep_pace(view, vm, window),
        }
        if self.paced.is_none() || self.throughput.is_some() {
            self.tune(now, window);
        }
        let rates = [|amount: &Amount| amount.bytes, |amount: &Amount| amount.ios];
        let [bytes, ios] = rates.map(|of| window.rate(now, of));
        self.had = match (self.short_since(), self.had) {
            (None, _) => Amount::default(),
            (Some(_), Amount { bytes: 0, ios: 0 }) => Amount { bytes, ios },
            (Some(_), had) => Amount {
                bytes: had.bytes - had.bytes / 8 + bytes / 8,
                ios: had.ios - had.ios / 8 + ios / 8,
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

    /// Runs target approach (TA) on the merge limit, if there is a bandwidth to aim at.
    fn tune(&mut self, now: Nanos, window: &Span) {
        let Some(TargetRevision { aim, .. }) = self.aim else {
            return;
        };
        let (length, Amount { bytes, ios }) = (window.length(now), window.moved);
        // One unit for both cases. For bandwidth: bytes times nanoseconds a second. For a mean
        // size: bytes times the target rate, against the aim times the I/Os that ended.
        let (scale, due) = match &self.throughput {
            None => (1_000_000_000, u128::from(aim) * u128::from(length.0)),
            Some(held) => (held.target.into(), u128::from(aim) * u128::from(ios)),
        };
        let moved = Moved {
            measured: u128::from(bytes) * scale,
            due,
            most: CARRIED_S * u128::from(aim) * scale,
            page: u128::from(PAGE) * scale,
        };
        let throttles = self.throughput.is_none();
        self.action
            .act(now, &moved, self.params.tolerance, throttles);
    }

    /// Returns the rate that the throttle holds and the unit that it is in.
    fn throttled(&self) -> (u64, fn(&Amount) -> u64) {
        match &self.throughput {
            Some(held) => (held.target, |amount| amount.ios),
            None => self.held(),
        }
    }

    /// Compares what the device completed with what the throttle lets pass, and adjusts the paced
    /// merge limit if it fell behind.
    fn keep_pace(&mut self, view: &View, vm: VmId, window: &Span) {
        let (per_s, of) = self.throttled();
        let (had, tolerance) = (of(&self.had), self.params.tolerance);
        let by_limit = self.throughput.is_none();
        let Some(paced) = &mut self.paced else { return };
        let bytes = if by_limit {
            paced.bytes()
        } else {
            self.top * PAGE
        };
        let largest = Amount {
            bytes: bytes.into(),
            ios: ios(self.target.ops, bytes),
        };
        let passed = Passed {
            per_s,
            asked_for: window.busy(view, vm),
            moved: of(&window.moved),
            largest: of(&largest),
            by_limit,
        };
        paced.act(view.now(), &passed);
        let enough = u128::from(per_s) * u128::from(100 - tolerance);
        if u128::from(had) * 100 >= enough {
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
