//! Book of jobs: what it is told of VMs and the device.

use crate::facts::Facts;
use crate::slots::Life;
use core::ops::Range;
use tidegate_base::request::VmId;
use tidegate_capacity::jobs::DeviceTime;
use tidegate_capacity::profile::{Access, Direction, Profile};

pub(super) fn device_time(facts: &Facts) -> DeviceTime {
    DeviceTime::of(
        &facts.queues.device,
        facts.queues.now,
        facts.queues.deliberate_time(),
    )
}

/// Tells the book what VMs have moved in all.
pub(super) fn tell_moved(facts: &mut Facts, slots: Range<usize>) {
    let Facts {
        jobs,
        queues,
        ledgers,
        ..
    } = facts;
    let vms = &queues.vms;
    let Some(book) = jobs else { return };
    for slot in slots.filter(|&slot| vms[slot].life != Life::Free) {
        let (of_vm, ledger) = (&vms[slot], &ledgers[slot]);
        let total = ledger.read(of_vm.arrived, of_vm.answered).total_bytes();
        book.predictor_mut().has_moved(slot, total);
    }
}

/// A VM is there, or not quite gone, that is no background tenant.
pub(super) fn may_have_job(facts: &Facts, slot: usize) -> bool {
    let of_vm = &facts.queues.vms[slot];
    of_vm.life != Life::Free && !of_vm.background
}

/// A VM has come.
pub(super) fn expect_jobs(facts: &mut Facts, vm: VmId) {
    let now = facts.queues.now;
    if may_have_job(facts, vm.index())
        && let Some(book) = &mut facts.jobs
    {
        book.predictor_mut().add(now, vm.index());
    }
}

/// A VM is gone.
pub(super) fn expect_no_jobs(facts: &mut Facts, vm: VmId) {
    if let Some(book) = &mut facts.jobs {
        book.predictor_mut().remove(vm.index());
    }
}

/// Another profile says something else of the device.
pub(super) fn jobs_profile_changed(facts: &mut Facts) {
    let alone = said_bandwidth(facts);
    if let Some(book) = &mut facts.jobs {
        book.predictor_mut().capacity_mut().say(alone);
    }
}

/// What one is said to have who uses the device alone, in bytes a second; 0: nothing is said.
pub(super) fn said_bandwidth(facts: &Facts) -> u64 {
    match facts.queues.device.spec.bytes_per_s {
        0 => facts.profile().map_or(0, best_bandwidth),
        bytes_per_s => bytes_per_s,
    }
}

/// The most that a device does by its profile: of any kind and size that was measured.
fn best_bandwidth(profile: &Profile) -> u64 {
    let kinds = [Direction::Read, Direction::Write]
        .into_iter()
        .flat_map(|direction| {
            [Access::Sequential, Access::Random].map(|access| (direction, access))
        });
    let points = kinds.flat_map(|(direction, access)| profile.curve(direction, access).points());
    let bandwidth = |&(bytes, time_ps): &(u32, u64)| {
        let per_s = u128::from(bytes) * 1_000_000_000_000 / u128::from(time_ps.max(1));
        u64::try_from(per_s).unwrap_or(u64::MAX)
    };
    points.map(bandwidth).max().unwrap_or(0)
}
