//! Log messages on whether the device delivers the target of a VM: one when it stops, one when it
//! does again.

use tidegate_core::time::Nanos;
use tidegate_core::tuning::{Inadequate, Tuning};
use tidegate_units::format_bandwidth;

use super::Loop;

/// Time after a message about a VM in which no other is logged, however often the state changes.
const LOG_INTERVAL: Nanos = Nanos::from_secs(60);

/// Last log message on whether the device delivers a VM's target.
#[derive(Debug, Default)]
pub(super) struct TargetAlert {
    /// True if the message was that the device falls short of the target.
    is_short: bool,
    /// Loop time of that message; `None` before the first one.
    logged: Option<Nanos>,
}

/// Message to be logged now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Change {
    Short(Inadequate),
    Adequate,
}

impl TargetAlert {
    fn update(&mut self, now: Nanos, tuning: Option<&Tuning>) -> Option<Change> {
        let Some(tuning) = tuning else {
            // The VM has no target any more; a new one begins afresh.
            *self = TargetAlert::default();
            return None;
        };
        let shortfall = tuning.inadequate;
        let is_quiet = self.logged.is_some_and(|at| now.since(at) < LOG_INTERVAL);
        if shortfall.is_some() == self.is_short || is_quiet {
            return None;
        }
        (self.is_short, self.logged) = (shortfall.is_some(), Some(now));
        Some(shortfall.map_or(Change::Adequate, Change::Short))
    }
}

impl Loop {
    /// Logs for which VMs the device has stopped delivering the target, or delivers it again, since
    /// the last call.
    pub(super) fn log_target_alerts(&mut self) {
        // Only controllers tune VMs to their targets.
        if self.engine.policy().parts().0.is_none() {
            return;
        }
        let device = self.name.as_str();
        for vm in self.vms.values_mut() {
            let tuning = self.engine.vms().tuning(vm.id);
            let Some(change) = vm.target_alert.update(self.now, tuning.as_ref()) else {
                continue;
            };
            let vm_name = vm.name.as_str();
            match change {
                Change::Short(short) => tracing::warn!(
                    device,
                    vm = vm_name,
                    target = %self.engine.vms().objective(vm.id).target,
                    can_be_had = format_bandwidth(short.bytes_per_s),
                    // The engine counts thousandths of an I/O.
                    ios_per_s = short.ios_per_s / 1000,
                    "capacity is inadequate: the VM asks for its target and the device does not \
                     deliver it; lower the target, or move a VM to another device"
                ),
                Change::Adequate => tracing::info!(
                    device,
                    vm = vm_name,
                    "capacity is adequate again: the device delivers the VM's target"
                ),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_core::tuning::Throttle;

    fn tuning(short: bool) -> Tuning {
        let inadequate = Inadequate {
            since: Nanos::SECOND,
            bytes_per_s: 5,
            ios_per_s: 7000,
        };
        Tuning {
            merge_limit: None,
            throttle: Throttle::Off,
            window: Nanos::SECOND,
            settled: true,
            aim: None,
            range: None,
            profiling: None,
            precision: None,
            inadequate: short.then_some(inadequate),
        }
    }

    #[test]
    fn a_change_is_said_once_and_no_more_often_than_once_a_minute() {
        let mut target_alert = TargetAlert::default();
        let mut update = |second, short: Option<bool>| {
            let tuning = short.map(tuning);
            let change = target_alert.update(Nanos::from_secs(second), tuning.as_ref());
            change.map(|change| change != Change::Adequate)
        };
        assert_eq!(update(5, Some(false)), None, "that it does is no news");
        assert_eq!(update(6, Some(true)), Some(true));
        assert_eq!(update(7, Some(true)), None);
        for second in 8..66 {
            assert_eq!(update(second, Some(second % 2 == 0)), None, "{second}");
        }
        assert_eq!(update(66, Some(true)), None, "as it was said");
        assert_eq!(update(67, Some(false)), Some(false));
        assert_eq!(update(200, Some(true)), Some(true));
        assert_eq!(update(201, None), None);
        assert_eq!(update(202, Some(true)), Some(true), "of another target");
    }
}
