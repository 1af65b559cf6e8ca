//! Admission planning of a configuration: prepares the arguments of [`tidegate_core::fit`].

use jiff::Timestamp;
use jiff::tz::TimeZone;
use tidegate_core::fit::{self, Assumed, PlannedVm};
use tidegate_core::objective::Objective;

mod disk_limits;
mod near_limits;
mod standing;

pub use disk_limits::disk_limit_warnings;
pub use near_limits::near_limit_warnings;
pub use standing::standing_reservation;

use crate::config::{Config, DeviceConfig, DeviceKind, Diagnostic, Schedule, VmConfig};

/// Help text for a profile that is too imprecise to plan with.
pub const MEASURE_AGAIN: &str = "measure the device again while nothing else uses it or the \
                                 processors: `tidegate profile`, without --quick";

/// Returns a device for the planner; `None` if it has no profile, or one too imprecise to plan
/// with.
pub fn device(config: &DeviceConfig) -> Option<fit::Device<'_>> {
    config.scheduling.planned(capacity(&config.kind))
}

/// Returns the capacity of a device in bytes; `None` for files and memory, which are limited by
/// their file system or the host.
pub fn capacity(kind: &DeviceKind) -> Option<u64> {
    match kind {
        DeviceKind::Emulated { model } => Some(model.spec().capacity),
        DeviceKind::File | DeviceKind::Memory | DeviceKind::Nbd => None,
    }
}

/// Returns the VMs whose disks are on a device, in the order of the configuration.
pub fn planned_vms(config: &Config, device: usize) -> Vec<PlannedVm<'_>> {
    let on_device = config.vms.iter().filter(|vm| vm.device == device);
    on_device.map(planned_vm).collect()
}

/// Returns a VM for the planner. A disk without a configured size counts as 0 bytes.
pub fn planned_vm(vm: &VmConfig) -> PlannedVm<'_> {
    let sizes = vm.disks.iter().filter_map(|disk| disk.size);
    PlannedVm {
        background: vm.background,
        disk_bytes: sizes.fold(0, u64::saturating_add),
        ..PlannedVm::new(&vm.name, &vm.objective)
    }
}

/// Returns a VM for the planner with an objective in place of the one in force, such as that of a
/// later time of its schedule.
pub(crate) fn planned_vm_with<'a>(vm: &'a VmConfig, objective: &'a Objective) -> PlannedVm<'a> {
    PlannedVm {
        objective,
        ..planned_vm(vm)
    }
}

/// Maximum number of future changes of schedules that are checked. Each check computes the fit of
/// all VMs of a device on the control thread, which also serves the API.
const SCHEDULE_CHANGES_MAX: usize = 128;

/// Returns the times at which these schedules change an objective, in ascending order: of weekly
/// entries within the next week, of one-time entries without bound; at most
/// [`SCHEDULE_CHANGES_MAX`].
pub(crate) fn schedule_changes<'a>(
    schedules: impl IntoIterator<Item = &'a Schedule>,
    now: Timestamp,
) -> Vec<Timestamp> {
    let schedules = schedules.into_iter();
    let mut all: Vec<_> = schedules
        .flat_map(|schedule| schedule.bounds(now))
        .collect();
    all.sort_unstable();
    all.dedup();
    // Sorted, so that the earliest changes are kept.
    all.truncate(SCHEDULE_CHANGES_MAX);
    all
}

/// Formats a time for people, in a time zone.
pub(crate) fn format_local(time: Timestamp, zone: TimeZone) -> String {
    let local = time.to_zoned(zone);
    local.strftime("%a %Y-%m-%d %H:%M %Z").to_string()
}

/// Returns a warning for each VM whose latency bound is best effort because its objective gives no
/// request rate for it.
pub fn best_effort_warnings(vms: &[VmConfig]) -> Vec<Diagnostic> {
    let warning = |vm: &VmConfig| {
        let latency = vm.objective.latency?;
        // A background process is promised nothing; with an envelope the bound is more than best
        // effort.
        if vm.background || vm.objective.envelope().is_some() {
            return None;
        }
        let what =
            format!("the bound of {latency} is best effort: no request rate is given for it");
        let help =
            "a rate in requests a second: expects = { iops = 500 }, or a reservation".to_owned();
        Some(
            Diagnostic::error(what)
                .warning()
                .located_at(format!("vm {:?}: objective.latency", vm.name), &(0..0))
                .allowing(help),
        )
    };
    vms.iter().filter_map(warning).collect()
}

/// Returns a warning for each device that cannot keep the objectives of its VMs, now or at a later
/// time of their schedules. Only a warning, because a daemon that starts should serve its disks
/// even if each VM gets less than promised.
pub fn warnings(devices: &[DeviceConfig], vms: &[VmConfig]) -> Vec<Diagnostic> {
    warnings_at(devices, vms, Timestamp::now())
}

fn warnings_at(devices: &[DeviceConfig], vms: &[VmConfig], now: Timestamp) -> Vec<Diagnostic> {
    (devices.iter().enumerate())
        .filter_map(|(index, device)| {
            let vms = vms.iter().filter(|vm| vm.device == index);
            let profile = device.scheduling.profile.as_ref();
            let (what, help) = match profile.and_then(|profile| profile.imprecision()) {
                Some(what) => (
                    format!("{what}; whether the objectives fit is not checked"),
                    MEASURE_AGAIN.to_owned(),
                ),
                None => (
                    shortage(device, vms, now)?,
                    "`tidegate plan` says what would fit".to_owned(),
                ),
            };
            let mut warning = Diagnostic::error(what)
                .warning()
                .located_at(format!("device {:?}", device.name), &(0..0))
                .allowing(help);
            warning.place = device.place.clone();
            Some(warning)
        })
        .collect()
}

/// Returns the resource that a device lacks for its VMs and from when on; `None` if all fits.
pub(crate) fn shortage<'a>(
    config: &DeviceConfig,
    vms: impl IntoIterator<Item = &'a VmConfig>,
    now: Timestamp,
) -> Option<String> {
    let device = device(config)?;
    let vms: Vec<_> = vms.into_iter().collect();
    let reason = |time: Timestamp| {
        let planned: Vec<_> = (vms.iter())
            .map(|vm| planned_vm_with(vm, vm.promised_at(time)))
            .collect();
        let reason = fit::evaluate(&device, &planned, &Assumed::default()).reason(&planned);
        Some(reason).filter(|reason| !reason.is_empty())
    };
    // The present comes first: an operator can do something about it at once.
    if let Some(reason) = reason(now) {
        return Some(reason);
    }
    let schedules = vms.iter().filter_map(|vm| vm.schedule.as_deref());
    schedule_changes(schedules, now)
        .into_iter()
        .find_map(|time| {
            let reason = reason(time)?;
            let when = format_local(time, TimeZone::system());
            Some(format!("from {when} on {reason}"))
        })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::config;

    /// Returns the warnings about a disk with two VMs, of which the first has this entry of a
    /// schedule, at noon of Sunday 2026-11-22.
    fn warnings_with(schedule: &str) -> Vec<String> {
        let text = format!(
            "[[listen]]\nunix = \"s\"\n[[device]]\nname = \"d\"\nkind = \"emulated\"\n\
             model = \"hdd-7200-1tb\"\nprofile = \"hdd-7200-1tb\"\n\
             [[vm]]\nname = \"a\"\n[vm.objective]\nreservation = \"20 IOPS\"\ntimezone = \"UTC\"\n\
             [[vm.objective.schedule]]\n{schedule}\n[[vm.disk]]\nsize = \"1 GiB\"\n\
             [[vm]]\nname = \"b\"\n[vm.objective]\nreservation = \"40 IOPS\"\ntimezone = \"UTC\"\n\
             [[vm.objective.schedule]]\nfrom = \"20:00\"\nreservation = \"20 IOPS\"\n\
             [[vm.disk]]\nsize = \"1 GiB\"\n"
        );
        let loaded = config::parse(&text, "t", Path::new("/")).unwrap_or_else(|e| panic!("{e}"));
        let noon = "2026-11-22T12:00Z".parse().expect("a time");
        let warnings = warnings_at(&loaded.config.devices, &loaded.config.vms, noon);
        warnings.into_iter().map(|warning| warning.what).collect()
    }

    #[test]
    fn an_imprecise_profile_gives_a_warning_and_is_not_planned_with() {
        let dir = tempfile::tempdir().expect("a directory");
        let busy = include_str!("../../config/tests/data/busy.profile.toml");
        let write = |text: &str| std::fs::write(dir.path().join("p.toml"), text).expect("written");
        let load = || {
            let text = "[[listen]]\nunix = \"s\"\n[[device]]\nname = \"d\"\nkind = \"memory\"\n\
                        profile = \"p.toml\"\n[[vm]]\nname = \"a\"\n[vm.objective]\n\
                        reservation = \"1000000 IOPS\"\n[[vm.disk]]\nsize = \"1 GiB\"\n";
            let loaded = config::parse(text, "t", dir.path()).unwrap_or_else(|e| panic!("{e}"));
            let warnings = warnings(&loaded.config.devices, &loaded.config.vms);
            let messages = warnings.iter().map(|warning| warning.to_string());
            (
                messages.collect::<Vec<_>>(),
                device(&loaded.config.devices[0]).is_some(),
            )
        };
        write(busy);
        let (warned, is_planned_with) = load();
        assert!(!is_planned_with);
        assert!(
            warned.len() == 1
                && warned[0].contains("4 points of the profile")
                && warned[0].contains("`tidegate profile`, without --quick"),
            "{warned:?}"
        );
        // The same profile with narrow confidence intervals.
        let precise = ["330.12", "26.00", "48.30"]
            .iter()
            .fold(busy.to_owned(), |text, wide| text.replace(wide, "2.50"));
        write(&precise.replace("runs = 1 ", "runs = 4 "));
        let (warned, is_planned_with) = load();
        assert!(
            is_planned_with && warned[0].contains("the promises need"),
            "{warned:?}"
        );
    }

    #[test]
    fn a_later_entry_of_a_schedule_that_does_not_fit_gives_a_warning_with_its_time() {
        let fits = "from = \"21:00\"\nreservation = \"40 IOPS\"";
        assert_eq!(
            warnings_with(fits),
            [""; 0],
            "the neighbour has 20 IOPS less by then"
        );
        let daily = warnings_with("from = \"18:00\"\nreservation = \"5000 IOPS\"");
        assert_eq!(daily.len(), 1);
        assert!(
            daily[0].starts_with("from Sun 2026-11-22 18:00 "),
            "{daily:?}"
        );
        let dated = warnings_with("at = \"2027-06-01T18:00\"\nreservation = \"5000 IOPS\"");
        assert!(dated[0].starts_with("from Tue 2027-06-01 "), "{dated:?}");
    }
}
