//! Log messages about the device as a whole, one for each change.

use tidegate_core::device_monitor::{DeviceAlert, DriftDirection, LearntCap};
use tidegate_core::engine::{Engine, Feasibility};
use tidegate_core::roles::SteppedDown;
use tidegate_core::time::Nanos;
use tidegate_units::format_bandwidth;

/// Logs what the engine has found out about the device since the last call.
pub(super) fn log_alerts(engine: &mut Engine, device: &str) {
    while let Some(notice) = engine.device_mut().poll_alert() {
        match notice {
            DeviceAlert::Drifted(drift) if drift.direction == Some(DriftDirection::Faster) => {
                tracing::info!(
                    device,
                    ratio = drift.ratio,
                    "the device is faster than its profile says: measure it again with \
                     `tidegate profile` unless it serves from a cache"
                )
            }
            DeviceAlert::Drifted(drift) => tracing::warn!(
                device,
                ratio = drift.ratio,
                "the device is slower than its profile says: check its health and its other \
                     users, or measure it again with `tidegate profile`"
            ),
            DeviceAlert::DriftEnded(drift) => tracing::info!(
                device,
                ratio = drift.ratio,
                "the device matches its profile again"
            ),
            DeviceAlert::Capped(cap) => tracing::warn!(
                device,
                cap = format_cap(&cap),
                "a limit in front of the device caps it; I/Os are issued at 97 % of the cap, \
                     so that they queue where the policy orders them"
            ),
            DeviceAlert::Uncapped => {
                tracing::info!(device, "no limit in front of the device any more");
            }
        }
    }
}

/// Last log message on whether all promises of a device fit it.
#[derive(Debug, Default)]
pub(super) struct FeasibilityAlert {
    /// Verdict of that message; `None` before the first one, while costs are not known.
    fits: Option<bool>,
    /// Loop time of that message.
    logged: Nanos,
}

/// Time after a message in which no other is logged, however often the verdict changes.
const LOG_INTERVAL: Nanos = Nanos::from_secs(60);

impl FeasibilityAlert {
    /// Logs when promises that were accepted before costs were known turn out not to fit, or fit
    /// again. A device with a profile needs no message: an objective that does not fit was refused,
    /// or forced, when it was set.
    pub(super) fn log_change(&mut self, now: Nanos, engine: &Engine, device: &str) {
        match self.changed(now, engine.device().feasibility()) {
            Some(false) => tracing::warn!(
                device,
                "by learnt costs, the objectives do not fit the device: promise less, or measure a \
                 profile (`tidegate profile`), by which `tidegate plan` tells what fits"
            ),
            Some(true) => {
                tracing::info!(device, "by learnt costs, the objectives fit the device");
            }
            None => {}
        }
    }

    /// Returns the new verdict by learnt costs if it is to be logged now.
    fn changed(&mut self, now: Nanos, found: Option<Feasibility>) -> Option<bool> {
        // By a profile the verdict was given when the objective was set.
        let fits = found.filter(|found| found.is_learnt)?.fits;
        let quiet = self.fits.is_some() && now.since(self.logged) < LOG_INTERVAL;
        // The first verdict is logged only if promises do not fit.
        if quiet || fits == self.fits.unwrap_or(true) {
            return None;
        }
        (self.fits, self.logged) = (Some(fits), now);
        Some(fits)
    }
}

/// Promises that have given way, as they were logged last.
#[derive(Debug, Default)]
pub(super) struct GivenWayAlert {
    logged: SteppedDown,
}

impl GivenWayAlert {
    /// Logs a change of the promises that have given way, if there is one.
    pub(super) fn log_change(&mut self, engine: &Engine, device: &str) {
        let now = engine.device().stepped_down();
        let before = core::mem::replace(&mut self.logged, now);
        if now == before {
            return;
        }
        let SteppedDown {
            background,
            transfers,
            targets,
            latencies,
        } = now;
        if now == SteppedDown::default() {
            tracing::info!(device, "the device keeps up: no promise gives way any more");
        } else if total(now) > total(before) {
            tracing::warn!(
                device,
                background,
                transfers,
                targets,
                latencies,
                "the device is slower than promised: these promises give way until it keeps up"
            );
        } else {
            tracing::info!(
                device,
                background,
                transfers,
                targets,
                latencies,
                "promises are in force again; these still give way"
            );
        }
    }
}

/// Returns the number of promises that have given way; background processes count as one.
fn total(down: SteppedDown) -> u64 {
    let counts = [down.transfers, down.targets, down.latencies];
    u64::from(down.background) + counts.into_iter().map(u64::from).sum::<u64>()
}

/// Formats a cap, for example `500 IOPS or 50 MB/s`.
fn format_cap(cap: &LearntCap) -> String {
    let iops = cap.iops.map(|iops| format!("{iops:.0} IOPS"));
    let bytes = cap.bytes_per_s.map(format_bandwidth);
    let all: Vec<String> = iops.into_iter().chain(bytes).collect();
    all.join(if cap.either { " or " } else { " and " })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn that_promises_do_not_fit_is_said_once_costs_are_learnt_and_no_more_often_than_once_a_minute()
    {
        let mut alert = FeasibilityAlert::default();
        let mut at = |second, fits, is_learnt| {
            let found = Feasibility {
                fits,
                depth_bound: 32,
                tightest: None,
                blocking: Nanos::SECOND,
                is_learnt,
            };
            alert.changed(Nanos::from_secs(second), Some(found))
        };
        assert_eq!(
            at(1, false, false),
            None,
            "with a profile it was refused or forced"
        );
        assert_eq!(at(2, true, true), None, "that they fit is no news");
        assert_eq!(at(3, false, true), Some(false));
        assert_eq!(at(4, false, true), None);
        assert_eq!(at(5, true, true), None, "lately");
        assert_eq!(at(70, true, true), Some(true));
        assert_eq!(at(140, true, true), None);
    }
}
