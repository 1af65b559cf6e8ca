//! Warnings about devices with too few request slots or too little payload memory for their VMs.

use tidegate_config::Field;
use tidegate_core::budget::{Bounds, Budget, Shares};
use tidegate_units::format_bytes;

use super::{DeviceConfig, VmConfig};

/// Returns the smallest guaranteed part of `total` among VMs with these shares; `u64::MAX` without
/// VMs.
fn least_part(total: u64, shares: &[Shares]) -> u64 {
    let bounds = Bounds {
        total,
        per_member: total,
        reserve: 0,
        divided: true,
    };
    let mut budget = Budget::new(bounds, shares.len());
    for (who, &share) in shares.iter().enumerate() {
        budget.add(who, share);
    }
    let parts = (0..shares.len()).map(|who| budget.guaranteed_part(who));
    parts.min().unwrap_or(u64::MAX)
}

/// Warns at a device's section if the guaranteed part of one of its VMs is less payload memory than
/// one I/O of `max_io` bytes, or fewer request slots than the device takes at once.
pub(super) fn warn(field: &Field<'_>, device: &DeviceConfig, vms: &[&VmConfig]) {
    let count = vms.len();
    let of = |shares: fn(&tidegate_core::objective::Objective) -> Shares| {
        let shares = vms.iter().map(|vm| shares(&vm.objective));
        shares.collect::<Vec<_>>()
    };
    let device = &device.scheduling;
    let least = least_part(device.payload().per_direction(), &of(Shares::of_memory));
    let needs = u64::from(device.max_io);
    if least < needs {
        // Rounded down to pages, because odd numbers of bytes have no short form.
        let (least, needs) = (format_bytes(least / 4096 * 4096), format_bytes(needs));
        field.warn(
            format!(
                "buffer_memory guarantees a VM only {least} of payload memory, less than one I/O \
                 of max_io, {needs}: {count} VMs share it, and larger requests take turns"
            ),
            "a larger buffer_memory, or fewer VMs on the device",
        );
    }
    let least = least_part(device.max_requests.into(), &of(Shares::of_slots));
    let needs = device.depth.min(device.max_pending_per_vm);
    if least < u64::from(needs) {
        field.warn(
            format!(
                "max_requests guarantees a VM only {least} requests, and the device takes {needs} \
                 at once: {count} VMs share them"
            ),
            "a larger max_requests, or fewer VMs on the device",
        );
    }
}
