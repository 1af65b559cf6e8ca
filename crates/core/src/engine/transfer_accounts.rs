//! Updates of the book of deadline transfers with the state of VMs and the device.

use crate::slots::Life;
use crate::view::View;
use core::ops::Range;
use tidegate_base::request::VmId;
use tidegate_capacity::profile::{Access, Direction, Profile};
use tidegate_capacity::transfers::DeviceTime;

/// Busy, idle and deliberately idle time of the device until now.
pub(super) fn device_time(view: &View) -> DeviceTime {
    DeviceTime::from_stats(
        &view.queues.device,
        view.queues.now,
        view.queues.deliberate_time(),
    )
}

/// Tells the book the total bytes that VMs have moved.
pub(super) fn report_moved(view: &mut View, slots: Range<usize>) {
    let View {
        transfers,
        queues,
        ledgers,
        ..
    } = view;
    let vms = &queues.vms;
    let Some(book) = transfers else { return };
    for slot in slots.filter(|&slot| vms[slot].life != Life::Free) {
        let (of_vm, ledger) = (&vms[slot], &ledgers[slot]);
        let total = ledger.read(of_vm.arrived, of_vm.answered).total_bytes();
        book.predictor_mut().set_total(slot, total);
    }
}

/// Returns whether the VM in a slot may have a deadline transfer: it is live or leaving, and no
/// background process.
pub(super) fn may_have_transfer(view: &View, slot: usize) -> bool {
    let of_vm = &view.queues.vms[slot];
    of_vm.life != Life::Free && !of_vm.background
}

/// Adds a new VM to the book.
pub(super) fn expect_transfers(view: &mut View, vm: VmId) {
    let now = view.queues.now;
    if may_have_transfer(view, vm.index())
        && let Some(book) = &mut view.transfers
    {
        book.predictor_mut().add(now, vm.index());
    }
}

/// Removes a VM from the book.
pub(super) fn expect_no_transfers(view: &mut View, vm: VmId) {
    if let Some(book) = &mut view.transfers {
        book.predictor_mut().remove(vm.index());
    }
}

/// Updates the device's bandwidth after its profile has changed.
pub(super) fn transfers_profile_changed(view: &mut View) {
    let alone = specified_bandwidth(view);
    if let Some(book) = &mut view.transfers {
        book.predictor_mut().capacity_mut().set_single_user(alone);
    }
}

/// Configured or measured bandwidth of a VM that uses the device alone, in bytes a second; 0:
/// unknown.
pub(super) fn specified_bandwidth(view: &View) -> u64 {
    match view.queues.device.spec.bytes_per_s {
        0 => view.profile().map_or(0, best_bandwidth),
        bytes_per_s => bytes_per_s,
    }
}

/// Maximum bandwidth in a device's profile, over all kinds and sizes that were measured, in bytes a
/// second.
fn best_bandwidth(profile: &Profile) -> u64 {
    let kinds = [Direction::Read, Direction::Write]
        .into_iter()
        .flat_map(|direction| {
            [Access::Sequential, Access::Random].map(|access| (direction, access))
        });
    let points = kinds.flat_map(|(direction, access)| profile.curve(direction, access).points());
    let bandwidth = |&(bytes, time_ps): &(u32, u64)| {
        // Profiles hold picoseconds per I/O; 64 bits overflow from 18 MB on.
        let per_s = u128::from(bytes) * 1_000_000_000_000 / u128::from(time_ps.max(1));
        u64::try_from(per_s).unwrap_or(u64::MAX)
    };
    points.map(bandwidth).max().unwrap_or(0)
}
