//! Requests that wait for limits of their disks, on their way into the engine and out of it.

use super::charge;
use crate::engine::Engine;
use crate::slots::{Hot, mark, state};
use crate::view::{NewRequest, Queues, Requests, count_arrival};
use tidegate_base::request::{IoError, Op, ReqId};
use tidegate_base::slab::NIL;

/// Has a new request wait in its slot if it is beyond a limit of its disk. Returns its handle
/// then; `None`: it may go on, and was charged.
#[inline(never)]
pub(in crate::engine) fn hold(engine: &mut Engine, slot: u32, with: NewRequest) -> Option<ReqId> {
    let Queues {
        now, reqs, device, ..
    } = &mut engine.view.queues;
    let limits = engine.disk_limits.as_mut()?;
    let charge = charge(with.op, with.len, with.since, &device.spec);
    if with.op == Op::Flush || limits.passes(*now, with.disk, &charge) {
        return None;
    }
    let id = reqs.fill(slot, &with, state::LIMITED, NIL);
    if with.since < *now {
        let outside = now.since(with.since);
        engine.interference.waited_for_admission(slot, outside);
        reqs.cold[slot as usize].waited_outside(outside);
    }
    limits.push(*now, reqs, [with.disk, slot], (with.vm, with.op.lane()));
    engine.view.timers.set_release_at(limits.next_timer());
    Some(id)
}

/// Passes requests on whose limits let them go now.
pub(in crate::engine) fn release_due(engine: &mut Engine) {
    while let Some(limits) = &mut engine.disk_limits {
        let Queues {
            now, reqs, device, ..
        } = &mut engine.view.queues;
        let Some(slot) = limits.next_due(*now, reqs, &device.spec) else {
            engine.view.timers.set_release_at(limits.next_timer());
            return;
        };
        // The last one that waited for a limit that was lifted.
        let disk = reqs.cold[slot as usize].disk;
        if limits.close_unlimited(disk) {
            engine.directory.set_limited(disk, false);
        }
        arrive(engine, slot);
        enter_lane(engine, slot);
    }
}

/// Counts the arrival of a request that its disk's limits let go, or that is cancelled: for the
/// scheduler it arrives now. The time until now is kept, and counts in the request's answer: as
/// held by a limit since it was taken, as admission before.
fn arrive(engine: &mut Engine, slot: u32) {
    let deliberate = engine.view.queues.deliberate_time();
    let Queues {
        now,
        reqs,
        vms,
        device,
        ..
    } = &mut engine.view.queues;
    let (hot, cold) = (&reqs.hot[slot as usize], &mut reqs.cold[slot as usize]);
    let (vm, op) = (hot.vm, hot.op);
    let of_vm = &mut vms[vm as usize];
    let held = cold.released(*now, of_vm.shut_time(op.lane(), *now), deliberate);
    if let Some(limits) = &mut engine.disk_limits {
        limits.keep_held(slot, held);
    }
    let ledger = &mut engine.view.ledgers[vm as usize];
    let splitting = engine.control.splitting.as_deref_mut();
    // Whether it continues another one does not matter: requests that are paced do not merge.
    count_arrival(*now, of_vm, ledger, (vm, op, hot.addr, hot.len), splitting);
    device.requests += 1;
    if engine.interference.is_due(vm, of_vm.arrived) {
        let times = [*now, device.idle_time(*now)];
        let request = [vm, of_vm.arrived, slot];
        if engine.interference.begin(times, request) {
            cold.marks |= mark::SAMPLED;
        }
    }
    if of_vm.judged {
        let request = (*now, hot.len, of_vm.answered);
        (engine.attainment).arrived(*now, [vm, slot], request, || of_vm.state_at_close(device));
    }
}

/// Puts a request that its disk's limits let go at the end of its lane.
fn enter_lane(engine: &mut Engine, slot: u32) {
    let queues = &mut engine.view.queues;
    let Hot { vm, op, .. } = queues.reqs.hot[slot as usize];
    let of_vm = &queues.vms[vm as usize];
    let pending = engine.active.holds_at_admission(of_vm);
    let alone = of_vm.lanes[op.lane().index()].tail == NIL;
    queues.reqs.hot[slot as usize].state = if pending {
        state::PENDING
    } else {
        state::ADMITTED
    };
    // Lanes are in the order of these numbers.
    queues.reqs.renumber(slot);
    queues.link(slot, NIL);
    let id = queues.reqs.id(slot);
    let client = queues.reqs.cold[slot as usize].client;
    let own_memory = engine.directory.client_at(client).own_memory;
    engine.active.take_in(
        &mut engine.view,
        id,
        (vm, op.lane(), own_memory),
        alone,
        pending,
    );
}

/// Answers those requests that wait for a limit of their disk and for which `are` holds with an
/// error.
pub(in crate::engine) fn cancel(
    engine: &mut Engine,
    disk: u32,
    error: IoError,
    are: impl Fn(&Requests, u32) -> bool,
) {
    let Some(limits) = &mut engine.disk_limits else {
        return;
    };
    let Queues { now, reqs, .. } = &mut engine.view.queues;
    let removed = limits.remove(*now, reqs, disk, are);
    if !removed.is_empty() && limits.close_unlimited(disk) {
        engine.directory.set_limited(disk, false);
    }
    engine.view.timers.set_release_at(limits.next_timer());
    for slot in removed {
        arrive(engine, slot);
        let vm = engine.view.queues.reqs.hot[slot as usize].vm;
        engine.view.queues.vms[vm as usize].waiting -= 1;
        engine.cancel_request(slot, error);
    }
}

/// Forgets the limits of a disk that is removed.
pub(in crate::engine) fn forget(engine: &mut Engine, disk: u32) {
    if let Some(limits) = &mut engine.disk_limits {
        limits.forget(engine.view.queues.now, disk);
        engine.view.timers.set_release_at(limits.next_timer());
    }
}
