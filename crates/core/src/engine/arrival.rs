//! Arrival of a guest request: checks, merging, admission, gates.

use super::directory::Client;
use super::request_budgets::RequestBudgets;
use super::{DiskSpec, Engine, Refusal, disk_limits};
use crate::interference::Interference;
use crate::slots::mark;
use crate::view::{
    Cold, Life, MergeSearch, NIL, NewRequest, Queues, Requests, Vm, count_arrival, enter_lane,
    flag, state,
};
use tidegate_base::device::DeviceStats;
use tidegate_base::request::{ClientId, Op, ReqId, Request};
use tidegate_base::time::Nanos;

/// Takes a guest request of a disk with limits: out of line, so that others have no part in it.
#[cold]
#[inline(never)]
fn take_limited(
    engine: &mut Engine,
    now: Nanos,
    client: ClientId,
    request: &Request,
    claimed_since: Option<Nanos>,
) -> Result<ReqId, Refusal> {
    take_request::<true>(engine, now, client, request, claimed_since)
}

/// Takes a guest request. `claimed_since`: time since which it has waited for the slot and memory
/// that it already has ([`Engine::hand_in`]); `None`: both are taken here. `LIMITED`: its disk has
/// limits.
#[inline(always)]
fn take_request<const LIMITED: bool>(
    engine: &mut Engine,
    now: Nanos,
    client: ClientId,
    request: &Request,
    claimed_since: Option<Nanos>,
) -> Result<ReqId, Refusal> {
    engine.view.queues.advance(now);
    let now = engine.view.queues.now;
    let deliberate = engine.view.queues.deliberate_time();
    let found = engine.directory.client_and_disk(client);
    let (from, disk) = found.ok_or(Refusal::NotConnected)?;
    if !LIMITED && disk.limited {
        return take_limited(engine, now, client, request, claimed_since);
    }
    check_range(request, &disk.spec)?;
    let (vm, op) = (from.vm, request.op);
    let (reqs, of_vm, device) = parts_of(&mut engine.view.queues, vm);
    if of_vm.life != Life::Live {
        return Err(Refusal::NotConnected);
    }
    let mut with = new_request(
        request,
        (client, from, &disk.spec),
        of_vm,
        [now, deliberate],
    );
    claim(&mut engine.budgets, now, &mut with, claimed_since)?;
    from.requests += 1;
    let slot = reqs.next_slot();
    // Parts are borrowed again for limited disks alone: other requests would pay for it.
    let (reqs, of_vm, device) = if LIMITED {
        if let Some(id) = disk_limits::hold(engine, slot, with) {
            return Ok(id);
        }
        parts_of(&mut engine.view.queues, vm)
    } else {
        (reqs, of_vm, device)
    };
    let (ledger, splitting) = (
        &mut engine.view.ledgers[vm as usize],
        &mut engine.control.splitting,
    );
    let what = (vm, op, with.addr, with.len);
    let continues = count_arrival(now, of_vm, ledger, what, splitting.as_deref_mut());
    device.requests += 1;
    let is_sampled = engine.interference.is_due(vm, of_vm.arrived);
    if continues || op == Op::Flush {
        return Ok(arrived_with_others(engine, slot, with, is_sampled));
    }
    let pending = engine.active.holds_at_admission(of_vm);
    let (id, alone) = enter_lane(reqs, device, of_vm, slot, &with, pending);
    if is_sampled | (with.since < now) {
        let cold = &mut reqs.cold[slot as usize];
        let request = ([vm, of_vm.arrived, slot], with.since, is_sampled);
        mark_arrival(&mut engine.interference, (now, device), cold, request);
    }
    if with.judged {
        let arrival = (with.since, with.len, of_vm.answered);
        (engine.attainment).arrived(now, [vm, slot], arrival, || of_vm.state_at_close(device));
    }
    let place = (vm, op.lane(), with.own_memory);
    (engine.active).take_in(&mut engine.view, id, place, alone, pending);
    Ok(id)
}

/// Returns the parts of the queues that the arrival of a VM's request changes.
#[inline(always)]
fn parts_of(queues: &mut Queues, vm: u32) -> (&mut Requests, &mut Vm, &mut DeviceStats) {
    let Queues {
        reqs, vms, device, ..
    } = queues;
    (reqs, &mut vms[vm as usize], device)
}

/// Describes a request that a client makes at `now`, on its disk. `deliberate`: total time for
/// which the device was left idle on purpose.
#[inline(always)]
fn new_request(
    request: &Request,
    (client, from, disk): (ClientId, &Client, &DiskSpec),
    of_vm: &Vm,
    [now, deliberate]: [Nanos; 2],
) -> NewRequest {
    NewRequest {
        addr: address(request, disk),
        len: request.len,
        op: request.op,
        flags: flags(request),
        vm: from.vm,
        client: client.index,
        disk: from.disk,
        tag: request.tag,
        since: now,
        shut: of_vm.shut_time(request.op.lane(), now),
        deliberate,
        own_memory: from.own_memory,
        judged: of_vm.judged,
    }
}

/// Takes the slot and the payload memory of a new request, unless it has had them since
/// `claimed_since`.
///
/// # Errors
/// If there is no room; nothing has changed then.
#[inline(always)]
fn claim(
    budgets: &mut RequestBudgets,
    now: Nanos,
    with: &mut NewRequest,
    claimed_since: Option<Nanos>,
) -> Result<(), Refusal> {
    if budgets.bounds_payload() && holds_memory(with.op, with.own_memory) {
        with.flags |= flag::HOLDS;
    }
    match claimed_since {
        // The wait cannot begin after the present.
        Some(since) => with.since = since.min(now),
        None => budgets.take_in(now, with.vm as usize, with.own_memory, with.op, with.len)?,
    }
    Ok(())
}

/// Writes a flush, or a request that may continue a waiting one, into its slot. Returns its handle.
/// Kept out of line, so that a request that adjoins nothing stays in registers.
#[inline(never)]
fn arrived_with_others(
    engine: &mut Engine,
    slot: u32,
    mut with: NewRequest,
    is_sampled: bool,
) -> ReqId {
    let now = engine.view.queues.now;
    let mut merge_target = None;
    if with.op != Op::Flush {
        let search = engine.find_merge_target(with);
        with.flags |= if search.is_followed {
            flag::FOLLOWED
        } else {
            0
        };
        merge_target = search.target;
    }
    let vm = with.vm as usize;
    let joins = merge_target.is_some() || with.op == Op::Flush;
    let Queues {
        reqs, vms, device, ..
    } = &mut engine.view.queues;
    let pending = engine.active.holds_at_admission(&vms[vm]);
    let (id, alone) = if joins {
        (reqs.fill(slot, &with, state::EXPRESS, NIL), false)
    } else {
        enter_lane(reqs, device, &mut vms[vm], slot, &with, pending)
    };
    if is_sampled || with.since < now {
        let cold = &mut reqs.cold[slot as usize];
        let request = ([with.vm, vms[vm].arrived, slot], with.since, is_sampled);
        mark_arrival(&mut engine.interference, (now, device), cold, request);
    }
    if with.judged && with.op != Op::Flush {
        let request = (with.since, with.len, vms[vm].answered);
        (engine.attainment).arrived(now, [with.vm, slot], request, || {
            vms[vm].state_at_close(device)
        });
    }
    if let Some((unit, behind)) = merge_target {
        engine.active.join(&mut engine.view, unit, slot, behind);
    } else if with.op == Op::Flush {
        engine.flushes.push(reqs, slot, with.disk);
    } else {
        let place = (with.vm, with.op.lane(), with.own_memory);
        engine
            .active
            .take_in(&mut engine.view, id, place, alone, pending);
    }
    id
}

/// Marks a request that is sampled, or that waited before it was taken. `request`: slot of the VM,
/// number of the request, its slot; the time since which it waits; true if it is to be sampled.
#[cold]
#[inline(never)]
fn mark_arrival(
    interference: &mut Interference,
    (now, device): (Nanos, &DeviceStats),
    cold: &mut Cold,
    (request, since, is_sampled): ([u32; 3], Nanos, bool),
) {
    if since < now {
        let outside = now.since(since);
        interference.waited_for_admission(request[2], outside);
        cold.waited_outside(outside);
    }
    if is_sampled && interference.begin([now, device.idle_time(now)], request) {
        cold.marks |= mark::SAMPLED;
    }
}

impl Engine {
    /// Takes a guest request. It will come out of [`Engine::poll_done`] exactly once.
    ///
    /// # Errors
    /// See [`Refusal`]; nothing has changed then.
    pub fn handle_request(
        &mut self,
        now: Nanos,
        client: ClientId,
        request: Request,
    ) -> Result<ReqId, Refusal> {
        take_request::<false>(self, now, client, &request, None)
    }

    /// Takes a guest request that has its slot, and memory if it needs some now, and that has
    /// waited for them since `since`.
    pub(super) fn hand_in(
        &mut self,
        now: Nanos,
        client: ClientId,
        request: &Request,
        since: Nanos,
    ) -> Result<ReqId, Refusal> {
        take_request::<false>(self, now, client, request, Some(since))
    }

    /// Finds a waiting unit that a request can join. The request is passed by value: if its address
    /// were taken, requests that continue nothing would be spilled to memory, too.
    #[inline(never)]
    fn find_merge_target(&mut self, request: NewRequest) -> MergeSearch {
        let lane = self.view.queues.vms[request.vm as usize].lanes[request.op.lane().index()];
        let unit_len_max = self
            .control
            .merge_size_max(&self.view, request.vm, request.op);
        // Nothing waits that the request could join, or the VM's requests do not merge.
        if lane.head == NIL || unit_len_max == 0 {
            return MergeSearch {
                target: None,
                is_followed: false,
            };
        }
        self.view
            .queues
            .reqs
            .find_merge_target(lane, &request, unit_len_max)
    }
}

/// Returns whether a request has its payload memory from the start: a write, and a read into the
/// client's own memory.
fn holds_memory(op: Op, own_memory: bool) -> bool {
    op == Op::Write || op == Op::Read && own_memory
}

/// Checks a request against its disk: not empty, within the disk, no writing to a read-only disk.
/// Flushes have no range and always pass.
#[inline(always)]
fn check_range(request: &Request, spec: &DiskSpec) -> Result<(), Refusal> {
    if request.op == Op::Flush {
        return Ok(());
    }
    if request.len == 0 {
        return Err(Refusal::Empty);
    }
    // Saturates at an end that no disk has, so the check below refuses it.
    let end = request.offset.saturating_add(request.len as u64);
    if end > spec.size {
        let (offset, size) = (request.offset, spec.size);
        return Err(Refusal::OutOfRange { offset, end, size });
    }
    if spec.read_only && request.op != Op::Read {
        return Err(Refusal::ReadOnly);
    }
    Ok(())
}

/// Returns the first byte of a request on the device; 0 for a flush.
#[inline(always)]
fn address(request: &Request, spec: &DiskSpec) -> u64 {
    match request.op {
        Op::Flush => 0,
        // Checked by `check_range`; wrapping saves a branch on this path.
        _ => spec.base.wrapping_add(request.offset),
    }
}

/// Returns bits of [`flag`] for the request's options.
#[inline(always)]
fn flags(request: &Request) -> u8 {
    if request.fua | request.keep_allocated {
        kind_of(request)
    } else {
        0
    }
}

/// Bits of [`flag`] for the request's options; FUA only where the operation writes.
#[cold]
fn kind_of(request: &Request) -> u8 {
    let mut flags = 0;
    if request.fua && matches!(request.op, Op::Write | Op::Discard | Op::WriteZeroes) {
        flags |= flag::FUA;
    }
    if request.keep_allocated {
        flags |= flag::KEEP_ALLOCATED;
    }
    flags
}
