//! Promised rates near the limit of their own VM.

use jiff::Timestamp;
use jiff::tz::TimeZone;
use tidegate_core::fit::{self, PlannedVm};
use tidegate_core::policy::Policy;

use super::{device, format_local, planned_vm_with, schedule_changes};
use crate::config::{DeviceConfig, Diagnostic, VmConfig};

/// Returns a warning for each VM whose reservation or target is nearer to its own limit than the
/// times of the device's I/Os allow, now or from a later time of a schedule on. `devices` are those
/// of the configuration. Without a profile, or under a policy that enforces no limits, nothing is
/// known to be too near.
pub fn near_limit_warnings(devices: &[DeviceConfig], vms: &[VmConfig]) -> Vec<Diagnostic> {
    warnings_at(devices, vms, Timestamp::now())
}

fn warnings_at(devices: &[DeviceConfig], vms: &[VmConfig], now: Timestamp) -> Vec<Diagnostic> {
    let devices = devices.iter().enumerate();
    let of_device = |(index, config): (usize, &DeviceConfig)| {
        let on_device: Vec<_> = vms.iter().filter(|vm| vm.device == index).collect();
        device_warnings(config, &on_device, now)
    };
    devices.flat_map(of_device).collect()
}

fn device_warnings(config: &DeviceConfig, vms: &[&VmConfig], now: Timestamp) -> Vec<Diagnostic> {
    let enforces = config.scheduling.policy.enforces();
    let planner = device(config).filter(|_| enforces.limit && enforces.reservation);
    let Some(device) = planner else {
        return Vec::new();
    };
    let mut warned = vec![None; vms.len()];
    let schedules = vms.iter().filter_map(|vm| vm.schedule.as_deref());
    for time in std::iter::once(now).chain(schedule_changes(schedules, now)) {
        let planned = vms
            .iter()
            .map(|vm| planned_vm_with(vm, vm.promised_at(time)));
        let planned: Vec<PlannedVm<'_>> = planned.collect();
        for near in fit::near_limits(&device, &planned) {
            // The first time is enough to act on.
            warned[near.vm].get_or_insert_with(|| {
                let what = match time == now {
                    true => near.reason(),
                    false => {
                        let when = format_local(time, TimeZone::system());
                        format!("from {when} on {}", near.reason())
                    }
                };
                let place = format!("vm {:?}: objective.{}", vms[near.vm].name, near.floor_key);
                Diagnostic::error(what)
                    .warning()
                    .located_at(place, &(0..0))
                    .allowing(near.instead())
            });
        }
    }
    warned.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::config;

    /// Returns the warnings about VM `a` with this objective, beside another one on a hard disk, at
    /// noon of Sunday 2026-11-22.
    fn warned(policy: &str, objective: &str) -> Vec<String> {
        let text = format!(
            "[[listen]]\nunix = \"s\"\n[[device]]\nname = \"d\"\nkind = \"emulated\"\n\
             model = \"hdd-7200-1tb\"\nprofile = \"hdd-7200-1tb\"\npolicy = \"{policy}\"\n\
             [[vm]]\nname = \"a\"\n[vm.objective]\nexpects = {{ size = \"64 KiB\" }}\n\
             timezone = \"UTC\"\n{objective}\n[[vm.disk]]\nsize = \"1 GiB\"\n\
             [[vm]]\nname = \"b\"\n[vm.objective]\nexpects = {{ size = \"64 KiB\" }}\n\
             [[vm.disk]]\nsize = \"1 GiB\"\n"
        );
        let loaded = config::parse(&text, "t", Path::new("/")).unwrap_or_else(|e| panic!("{e}"));
        let noon = "2026-11-22T12:00Z".parse().expect("a time");
        let warnings = warnings_at(&loaded.config.devices, &loaded.config.vms, noon);
        warnings.iter().map(ToString::to_string).collect()
    }

    /// The simulator serves 1.74 of 3 MB/s beside a limit of 3 MB/s, and all of it beside twice
    /// that.
    #[test]
    fn a_reservation_at_its_limit_on_a_hard_disk_gives_a_warning() {
        let found = warned("slo", "reservation = \"3 MB/s\"\nlimit = \"3 MB/s\"");
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(
            found[0].contains("vm \"a\": objective.reservation")
                && found[0].contains("is too near to limit = \"3 MB/s\"")
                && found[0].contains("or more, or reservation = "),
            "{found:?}"
        );
        let roomy = "reservation = \"3 MB/s\"\nlimit = \"9 MB/s\"";
        assert_eq!(warned("slo", roomy), [""; 0]);
        // `fifo` enforces neither.
        let at_limit = "reservation = \"3 MB/s\"\nlimit = \"3 MB/s\"";
        assert_eq!(warned("fifo", at_limit), [""; 0]);
    }

    #[test]
    fn a_later_entry_of_a_schedule_gives_a_warning_with_its_time() {
        let found = warned(
            "slo",
            "reservation = \"1 MB/s\"\nlimit = \"8 MB/s\"\n\
             [[vm.objective.schedule]]\nfrom = \"18:00\"\nreservation = \"7 MB/s\"",
        );
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(
            found[0].contains("from Sun 2026-11-22 18:00 ")
                && found[0].contains("the reservation of 7 MB/s"),
            "{found:?}"
        );
    }
}
