//! Promises of VMs compared with limits of their disks, their own and shared ones.

use jiff::Timestamp;
use jiff::tz::TimeZone;
use tidegate_core::objective::{Limit, Objective, ObjectiveError, OpsRate, Rate};

use super::{format_local, schedule_changes};
use crate::config::{DeviceConfig, Diagnostic, DiskConfig, LimitGroup, VmConfig};

/// Most names of VMs in a warning.
const NAMES_MAX: usize = 5;

/// Figure of a rate that is compared.
#[derive(Clone, Copy)]
enum Figure {
    /// Requests a second. Requests that count by their sizes have no sum with others.
    Requests,
    /// Bytes a second.
    Bytes,
}

impl Figure {
    /// Returns the figure of a rate; `None` if the rate does not have it.
    fn of(self, rate: &Rate) -> Option<u64> {
        match self {
            Figure::Requests => {
                let ops = rate.ops.filter(|ops| ops.norm.is_none());
                ops.map(|ops| ops.per_s)
            }
            Figure::Bytes => rate.bytes_per_s,
        }
    }

    /// Returns a rate that has this figure alone.
    fn rate(self, value: u64) -> Rate {
        match self {
            Figure::Requests => Rate::iops(value),
            Figure::Bytes => Rate::bytes(value),
        }
    }
}

/// Returns warnings about promises that limits of disks do not allow, at any time of a schedule:
/// one for each VM that is promised more than all its disks may have, and one for each limit group
/// whose VMs are promised more together than it and their other disks may have. `devices` are those
/// of the configuration.
pub fn disk_limit_warnings(devices: &[DeviceConfig], vms: &[VmConfig]) -> Vec<Diagnostic> {
    warnings_at(devices, vms, Timestamp::now())
}

fn warnings_at(devices: &[DeviceConfig], vms: &[VmConfig], now: Timestamp) -> Vec<Diagnostic> {
    let mut warnings = Vec::new();
    for vm in vms {
        let device = devices.get(vm.device);
        warnings.extend(device.and_then(|device| vm_warning(device, vm, now)));
    }
    for (index, device) in devices.iter().enumerate() {
        let on_device: Vec<_> = vms.iter().filter(|vm| vm.device == index).collect();
        let groups = device.limit_groups.iter();
        warnings.extend(groups.filter_map(|group| group_warning(device, group, &on_device, now)));
    }
    warnings
}

/// Returns the warning about a VM that is promised a rate above what its disks allow together.
fn vm_warning(device: &DeviceConfig, vm: &VmConfig, now: Timestamp) -> Option<Diagnostic> {
    let allowed = allowed_together(device, vm);
    let promised = vm.promised();
    let warning = |place: &str, objective| above_disk_limits(objective, allowed, &vm.name, place);
    let of_entries = || {
        let entries = promised.entries().iter().enumerate();
        // One that has ended promises nothing.
        let is_over = |at| promised.end_of_entry(at).is_some_and(|end| end <= now);
        let mut coming = entries.filter(|(at, _)| !is_over(*at));
        coming.find_map(|(_, entry)| {
            let place = format!("objective.schedule ({})", entry.when);
            warning(&place, &entry.objective)
        })
    };
    warning("objective", promised.base()).or_else(of_entries)
}

/// Returns a warning if an objective promises a rate above the one that the limits of all disks
/// allow. `place`: keys of the objective.
fn above_disk_limits(
    objective: &Objective,
    allowed: Rate,
    vm: &str,
    place: &str,
) -> Option<Diagnostic> {
    let promised = Objective {
        reservation: objective.reservation,
        target: objective.target,
        limit: Limit::of_all(allowed),
        ..Objective::default()
    };
    let Err(ObjectiveError::Contradiction {
        low,
        low_value,
        high_value,
        ..
    }) = promised.validate()
    else {
        return None;
    };
    let what = format!("{low_value} is above what the limits of its disks allow: {high_value}");
    Some(
        Diagnostic::error(what)
            .warning()
            .located_at(format!("vm {vm:?}: {place}.{low}"), &(0..0))
            .allowing(format!("a lower {low}, or higher limits of its disks")),
    )
}

/// Returns the warning about a limit that several VMs share and that is below what they are
/// promised together, now or from a later time on. A VM that is promised too much by itself has a
/// warning of its own.
fn group_warning(
    device: &DeviceConfig,
    group: &LimitGroup,
    vms: &[&VmConfig],
    now: Timestamp,
) -> Option<Diagnostic> {
    let schedules = vms.iter().filter_map(|vm| vm.schedule.as_deref());
    let later = schedule_changes(schedules, now);
    let (time, what) = std::iter::once(now)
        .chain(later)
        .find_map(|time| Some((time, group_shortage(device, group, vms, time)?)))?;
    let what = match time == now {
        true => what,
        false => format!("from {} on {what}", format_local(time, TimeZone::system())),
    };
    let place = format!("device {:?}: limit_group {:?}", device.name, group.name);
    let mut warning = Diagnostic::error(what)
        .warning()
        .located_at(place, &(0..0))
        .allowing("a higher limit of the group, or lower promises of its VMs".to_owned());
    warning.place = device.place.clone();
    Some(warning)
}

/// Returns what VMs need of a shared limit above its rate, at a time.
fn group_shortage(
    device: &DeviceConfig,
    group: &LimitGroup,
    vms: &[&VmConfig],
    time: Timestamp,
) -> Option<String> {
    [Figure::Requests, Figure::Bytes]
        .into_iter()
        .find_map(|figure| {
            let limit = figure.of(&group.limit.total)?;
            let mut names = Vec::new();
            let mut sum: u64 = 0;
            for vm in vms {
                let need = needed_of(device, &group.name, vm, vm.promised_at(time), figure);
                // Beyond the limit by itself: the VM's own warning says so.
                if need == 0 || need > limit {
                    continue;
                }
                sum = sum.saturating_add(need);
                names.push(vm.name.as_str());
            }
            (sum > limit).then(|| {
                let more = match names.len().saturating_sub(NAMES_MAX) {
                    0 => String::new(),
                    more => format!(" and {more} more"),
                };
                format!(
                    "promises to {}{more} need {}, above its limit of {}",
                    names[..names.len().min(NAMES_MAX)].join(", "),
                    figure.rate(sum.min(Rate::MAX)),
                    figure.rate(limit)
                )
            })
        })
}

/// Returns the part of a promise that only the disks of a group can serve: all of it that is above
/// what the VM's other disks allow; 0 if it has no disk in the group.
fn needed_of(
    device: &DeviceConfig,
    group: &str,
    vm: &VmConfig,
    objective: &Objective,
    figure: Figure,
) -> u64 {
    let is_in = |disk: &DiskConfig| disk.limit_group.as_deref() == Some(group);
    let promised = figure.of(&objective.reservation);
    let promised = promised.max(figure.of(&objective.target));
    let Some(promised) = promised.filter(|_| vm.disks.iter().any(is_in)) else {
        return 0;
    };
    // Another disk without a limit may have it all.
    let others = allowed(device, vm, Some(group), figure).unwrap_or(u64::MAX);
    promised.saturating_sub(others)
}

/// Upper bound of the rate at which all disks of a VM together may be used. Each figure is there
/// only where each disk has a limit of it, its own or a shared one.
fn allowed_together(device: &DeviceConfig, vm: &VmConfig) -> Rate {
    let together = |figure| {
        let all = allowed(device, vm, None, figure).map(|sum| sum.min(Rate::MAX));
        all.filter(|_| !vm.disks.is_empty())
    };
    Rate {
        ops: together(Figure::Requests).map(|per_s| OpsRate { per_s, norm: None }),
        bytes_per_s: together(Figure::Bytes),
    }
}

/// Upper bound of a figure for the disks of a VM, those of the group `except` left out; `None` if
/// there is none. Disks that share a limit have at most that limit, and at most the sum of their
/// own ones.
fn allowed(
    device: &DeviceConfig,
    vm: &VmConfig,
    except: Option<&str>,
    figure: Figure,
) -> Option<u64> {
    let own_of = |group: Option<&str>| {
        let disks = vm.disks.iter();
        let mut disks = disks.filter(|disk| disk.limit_group.as_deref() == group);
        disks.try_fold(0_u64, |sum, disk| {
            Some(sum.saturating_add(figure.of(&disk.limit.total)?))
        })
    };
    let mut sum = own_of(None)?;
    let groups = device.limit_groups.iter();
    for group in groups.filter(|group| Some(group.name.as_str()) != except) {
        let both = [own_of(Some(&group.name)), figure.of(&group.limit.total)];
        let lower = both.into_iter().flatten().min();
        sum = sum.saturating_add(lower?);
    }
    Some(sum)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::config;

    /// Returns the warnings about VMs of a device with the limit group `logs` of 100 IOPS, at noon
    /// of Sunday 2026-11-22.
    fn warned(vms: &str) -> Vec<String> {
        let text = format!(
            "[[listen]]\nunix = \"s\"\n[[device]]\nname = \"d\"\nkind = \"memory\"\n\
             [[device.limit_group]]\nname = \"logs\"\nlimit = \"100 IOPS\"\n{vms}"
        );
        let loaded = config::parse(&text, "t", Path::new("/"));
        let config = loaded.unwrap_or_else(|e| panic!("{e}")).config;
        let noon = "2026-11-22T12:00Z".parse().expect("a time");
        let warnings = warnings_at(&config.devices, &config.vms, noon);
        warnings.into_iter().map(|warning| warning.what).collect()
    }

    /// Returns the text of a VM. `disks`: keys of each; the name of its export is added.
    fn vm(name: &str, reservation: &str, schedule: &str, disks: &[&str]) -> String {
        let disks = disks
            .iter()
            .enumerate()
            .map(|(at, keys)| format!("{{ size = \"1 GiB\", export = \"{name}{at}\"{keys} }}"));
        let disks: Vec<_> = disks.collect();
        format!(
            "[[vm]]\nname = \"{name}\"\ndisk = [{}]\n[vm.objective]\n\
             reservation = \"{reservation}\"\n{schedule}\n",
            disks.join(", ")
        )
    }

    const OWN: &str = ", limit = \"200 IOPS\"";
    const SHARED: &str = ", limit_group = \"logs\"";

    #[test]
    fn promises_above_the_limits_of_all_disks_give_a_warning() {
        let what = "301 IOPS is above what the limits of its disks allow: 300 IOPS";
        let all = [OWN, SHARED, SHARED];
        assert_eq!(warned(&vm("a", "301 IOPS", "", &all)), [what]);
        assert_eq!(warned(&vm("a", "300 IOPS", "", &all)), [""; 0]);
        // Another disk may have it all, and a limit of requests says nothing of bytes.
        assert_eq!(warned(&vm("a", "301 IOPS", "", &[OWN, ""])), [""; 0]);
        assert_eq!(warned(&vm("a", "9 GB/s", "", &all)), [""; 0]);
    }

    #[test]
    fn disks_with_limits_of_their_own_and_a_shared_one_have_the_lower() {
        let both = |own: u32| format!("{SHARED}, limit = \"{own} IOPS\"");
        for (own, allowed) in [([500, 500], 100), ([30, 40], 70)] {
            let disks = own.map(both);
            let disks = disks.each_ref().map(String::as_str);
            let promised = |rate: u32| warned(&vm("a", &format!("{rate} IOPS"), "", &disks));
            assert_eq!(promised(allowed), [""; 0]);
            let found = promised(allowed + 1);
            let end = format!("allow: {allowed} IOPS");
            assert!(found.len() == 1 && found[0].ends_with(&end), "{found:?}");
        }
    }

    #[test]
    fn promises_for_a_part_of_the_day_are_compared_unless_they_are_over() {
        let entry = |when: &str| {
            format!(
                "timezone = \"UTC\"\n[[vm.objective.schedule]]\n{when}\n\
                 reservation = \"201 IOPS\""
            )
        };
        let found = |when: &str| warned(&vm("a", "2 IOPS", &entry(when), &[OWN]));
        let what = "201 IOPS is above what the limits of its disks allow: 200 IOPS";
        assert_eq!(found("from = \"08:00\"\nuntil = \"18:00\""), [what]);
        assert_eq!(found("at = \"2027-06-01T18:00\""), [what]);
        assert_eq!(
            found("at = \"2026-11-21T18:00\"\nuntil = \"2026-11-21T19:00\""),
            [""; 0]
        );
    }

    #[test]
    fn promises_of_several_vms_above_a_limit_that_they_share_give_a_warning() {
        let two = |a: &str, b: &str, disks: &[&str]| {
            warned(&[vm("a", a, "", &[SHARED]), vm("b", b, "", disks)].concat())
        };
        let what = "promises to a, b need 101 IOPS, above its limit of 100 IOPS";
        assert_eq!(two("60 IOPS", "41 IOPS", &[SHARED]), [what]);
        assert_eq!(two("60 IOPS", "40 IOPS", &[SHARED]), [""; 0]);
        // The other disk of a VM serves what the shared limit does not.
        assert_eq!(two("60 IOPS", "241 IOPS", &[SHARED, OWN]), [what]);
        assert_eq!(two("60 IOPS", "240 IOPS", &[SHARED, OWN]), [""; 0]);
        assert_eq!(two("60 IOPS", "900 IOPS", &[SHARED, ""]), [""; 0]);
        let all: String = (0..7)
            .map(|at| vm(&format!("v{at}"), "20 IOPS", "", &[SHARED]))
            .collect();
        assert_eq!(
            warned(&all),
            [
                "promises to v0, v1, v2, v3, v4 and 2 more need 140 IOPS, above its limit of \
                 100 IOPS"
            ]
        );
        // One that is promised too much by itself is the only one that is named.
        let found = two("60 IOPS", "150 IOPS", &[SHARED]);
        assert!(
            found.len() == 1 && found[0].starts_with("150 IOPS is above"),
            "{found:?}"
        );
    }

    #[test]
    fn promises_that_meet_in_a_shared_limit_later_have_the_time() {
        let entry = |from: &str, to: &str| {
            format!(
                "timezone = \"UTC\"\n[[vm.objective.schedule]]\nfrom = \"{from}\"\n\
                 until = \"{to}\"\nreservation = \"80 IOPS\""
            )
        };
        let night = entry("20:00", "23:00");
        let with = |b: &str| {
            warned(
                &[
                    vm("a", "20 IOPS", &night, &[SHARED]),
                    vm("b", "20 IOPS", b, &[SHARED]),
                ]
                .concat(),
            )
        };
        assert_eq!(with(&entry("08:00", "20:00")), [""; 0]);
        let found = with(&entry("08:00", "21:00"));
        assert!(
            found.len() == 1
                && found[0].starts_with("from Sun 2026-11-22 ")
                && found[0].ends_with("need 160 IOPS, above its limit of 100 IOPS"),
            "{found:?}"
        );
    }
}
