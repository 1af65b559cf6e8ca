//! Standing reservation of a device: bandwidth that its VMs' objectives take from deadline
//! transfers, in bytes per second.

use jiff::Timestamp;
use tidegate_core::fit::{self, Assumed, Budget, PlannedVm};
use tidegate_core::objective::{Objective, Rate};

use super::{planned_vm_with, schedule_changes};
use crate::config::{DeviceConfig, VmConfig};

/// Size in bytes of a request of a rate in IOPS whose size neither the rate nor the objective
/// gives; that of the rates in `GET /v1/budget`.
const REQUEST_BYTES: u64 = 4096;

/// Returns the standing reservation of the VMs of a device in bytes per second: the largest at
/// `now` and at all later times of their schedules. Background processes reserve nothing.
///
/// It is the sum of the reserved rates. With a profile it is at least the part of the device's
/// time that they take, of the rate that one transfer gets from the whole device: a disk whose
/// time is taken by small requests has no bandwidth left, although these are few bytes.
pub fn standing_reservation(device: &DeviceConfig, vms: &[VmConfig], now: Timestamp) -> u64 {
    let planner = super::device(device);
    let whole = planner.as_ref().map_or(0, whole_bandwidth);
    let at = |time: Option<Timestamp>| {
        let objective = |vm| -> &Objective {
            let vm: &VmConfig = vm;
            time.map_or(&vm.objective, |time| vm.promised_at(time))
        };
        let promised = vms.iter().filter(|vm| !vm.background);
        let sum = promised.fold(0_u64, |sum, vm| {
            sum.saturating_add(reserved_rate(objective(vm)))
        });
        let planned: Vec<_> = vms
            .iter()
            .map(|vm| planned_vm_with(vm, objective(vm)))
            .collect();
        let by_time = planner
            .as_ref()
            .filter(|_| whole > 0)
            .map_or(0, |device| whole_part(whole, device, &planned));
        sum.max(by_time)
    };
    let schedules = vms.iter().filter_map(|vm| vm.schedule.as_deref());
    let later = schedule_changes(schedules, now).into_iter().map(Some);
    later.chain([None]).map(at).max().unwrap_or_default()
}

/// Returns the rate in bytes per second that one transfer may need of the device without VMs.
fn whole_bandwidth(device: &fit::Device<'_>) -> u64 {
    let Budget { transfer, .. } = fit::budget(device, &[Vec::new()], &Assumed::default());
    transfer
}

/// Returns the part of `whole` that the device's time for these VMs is of all that can be
/// promised, rounded up and at most `whole`.
fn whole_part(whole: u64, device: &fit::Device<'_>, vms: &[PlannedVm<'_>]) -> u64 {
    let fit = fit::evaluate(device, vms, &Assumed::default());
    let (used, all) = (u128::from(fit.time_ps), u128::from(fit.budget_ps.max(1)));
    let part = (u128::from(whole) * used).div_ceil(all);
    u64::try_from(part).map_or(whole, |part| part.min(whole))
}

/// Returns the rate in bytes per second that an objective promises: the larger of its reservation
/// and its target.
fn reserved_rate(objective: &Objective) -> u64 {
    let size = objective.expects.size.map_or(REQUEST_BYTES, u64::from);
    let bytes = |rate: &Rate| {
        let by_requests = rate.ops.map_or(0, |ops| {
            ops.per_s.saturating_mul(ops.norm.map_or(size, u64::from))
        });
        rate.bytes_per_s.unwrap_or(0).max(by_requests)
    };
    bytes(&objective.reservation).max(bytes(&objective.target))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::config;

    /// Returns the standing reservation of a device with two VMs at noon of Sunday 2026-11-22.
    fn reserved(device: &str, first: &str, second: &str) -> u64 {
        let vm = |name: &str, objective: &str| {
            format!(
                "[[vm]]\nname = \"{name}\"\n[vm.objective]\ntimezone = \"UTC\"\n{objective}\n\
                 [[vm.disk]]\nsize = \"1 GiB\"\n"
            )
        };
        let text = format!(
            "[[listen]]\nunix = \"s\"\n[[device]]\nname = \"d\"\n{device}\n{}{}",
            vm("a", first),
            vm("b", second)
        );
        let loaded = config::parse(&text, "t", Path::new("/")).unwrap_or_else(|e| panic!("{e}"));
        let noon = "2026-11-22T12:00Z".parse().expect("a time");
        standing_reservation(&loaded.config.devices[0], &loaded.config.vms, noon)
    }

    const MEMORY: &str = "kind = \"memory\"";

    #[test]
    fn rates_are_added_in_bytes() {
        let rate = "reservation = \"30 MB/s\"";
        assert_eq!(reserved(MEMORY, "", ""), 0);
        assert_eq!(
            reserved(MEMORY, rate, "reservation = \"100 IOPS @ 16 KiB\""),
            31_638_400
        );
        // Without a size a request counts as it is expected, else as 4 KiB.
        assert_eq!(reserved(MEMORY, "target = \"100 IOPS\"", ""), 409_600);
        let sized = "reservation = \"100 IOPS\"\nexpects = { size = \"64 KiB\" }";
        assert_eq!(reserved(MEMORY, sized, ""), 6_553_600);
        // A limit promises nothing.
        assert_eq!(reserved(MEMORY, "limit = \"40 MB/s\"", ""), 0);
    }

    #[test]
    fn the_largest_reservation_of_all_times_stands() {
        let evening = "reservation = \"10 MB/s\"\n[[vm.objective.schedule]]\nfrom = \"20:00\"\n\
                       until = \"21:00\"\nreservation = \"50 MB/s\"";
        assert_eq!(reserved(MEMORY, evening, ""), 50_000_000);
    }

    #[test]
    fn small_requests_take_the_bandwidth_of_a_disk_whose_time_they_take() {
        let disk = "kind = \"emulated\"\nmodel = \"hdd-7200-1tb\"\nprofile = \"hdd-7200-1tb\"";
        let small = reserved(disk, "reservation = \"40 IOPS\"", "");
        assert!(small > 1_000_000, "{small}, of which 163,840 are moved");
        let both = reserved(
            disk,
            "reservation = \"40 IOPS\"",
            "reservation = \"20 IOPS\"",
        );
        assert!(both > small, "{both} {small}");
        assert_eq!(reserved(disk, "", ""), 0);
    }
}
