//! Checker of refusals. A request is refused for the reason that the documented bounds give, and
//! for lack of room exactly where
//! [`AdmissionMut::available_slots`](tidegate_core::engine::AdmissionMut::available_slots) returns
//! 0. There is room as long as a VM holds less than its guaranteed part, and never beyond the
//!    bounds.
//!
//! The ledger of `tidegate-testkit`, the oracle of unit tests, states the same rules again. This is
//! intended: simulations run in the released program, which has no test code, and a mistake in one
//! statement of the rules shows where the other disagrees with the engine.

use super::ledger::Ledger;
use super::{Verdict, ensure};
use tidegate_core::engine::Refusal;
use tidegate_core::request::{ClientId, Op, Request};

/// Largest number of requests that a connection may submit now.
pub fn room(ledger: &Ledger, client: ClientId) -> u32 {
    let Some(disk) = ledger.disk_of(client) else {
        return 0;
    };
    let config = ledger.config();
    let vm = ledger.disks[disk as usize].vm;
    let (of_vm, of_all) = ledger.inside(vm);
    let room = config.max_pending_per_vm.saturating_sub(of_vm);
    room.min(config.max_requests - of_all)
}

/// Refusal that the bounds require for a request, where the engine reported room for
/// `reported_room` requests.
pub fn expected(
    ledger: &Ledger,
    client: ClientId,
    request: &Request,
    reported_room: u32,
) -> Option<Refusal> {
    let Some(disk) = ledger.disk_of(client) else {
        return Some(Refusal::NotConnected);
    };
    let spec = &ledger.disks[disk as usize].spec;
    if request.op != Op::Flush {
        // A request that wraps around is as far out of range as any.
        let end = request.offset.saturating_add(request.len as u64);
        if request.len == 0 {
            return Some(Refusal::Empty);
        }
        if end > spec.size {
            return Some(Refusal::OutOfRange {
                offset: request.offset,
                end,
                size: spec.size,
            });
        }
        if spec.read_only && request.op != Op::Read {
            return Some(Refusal::ReadOnly);
        }
    }
    // Room is checked last: an invalid request is refused as invalid even if there is no room.
    (reported_room == 0).then_some(Refusal::Full)
}

/// Checks that a request was accepted or refused as the bounds require. `reported_room`: room that
/// the engine reported before. `guaranteed_slots`: guaranteed request slots of the VM.
/// `has_memory`:
/// `false` for a write that may lack payload memory.
///
/// # Errors
/// Fails when the bounds require another outcome.
pub fn check(
    ledger: &Ledger,
    client: ClientId,
    request: &Request,
    reported_room: u32,
    guaranteed_slots: u64,
    has_memory: bool,
    refused: Option<Refusal>,
) -> Verdict {
    let (room, expected) = (
        room(ledger, client),
        expected(ledger, client, request, reported_room),
    );
    let inside = ledger.disk_of(client).map_or(0, |disk| {
        let vm = ledger.disks[disk as usize].vm;
        ledger.inside(vm).0
    });
    let left = guaranteed_slots
        .saturating_sub(inside.into())
        .min(room.into());
    ensure!(
        Refusals,
        reported_room <= room,
        "the engine reports room for {reported_room} requests of {client:?}; the bounds leave \
         {room}"
    );
    ensure!(
        Budgets,
        u64::from(reported_room) >= left,
        "the engine reports room for {reported_room} requests of {client:?}; {left} of its VM's \
         {guaranteed_slots} guaranteed slots are free"
    );
    // Memory is not among the slots that `room` reports.
    let lacks_memory = !has_memory && expected.is_none() && refused == Some(Refusal::Full);
    ensure!(
        Refusals,
        refused == expected || lacks_memory,
        "{request:?} of {client:?} was refused as {refused:?}; the bounds require {expected:?}"
    );
    Ok(())
}
