//! A request is refused exactly when the documented bounds say so, for the reason they say, and
//! [`Engine::room`](tidegate_core::engine::Engine::room) tells beforehand how many fit.

use super::ledger::Ledger;
use super::{Verdict, ensure};
use tidegate_core::engine::Refusal;
use tidegate_core::request::{ClientId, Op, Request};

/// How many requests a client may hand in.
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

/// What the bounds say of a request.
pub fn expected(ledger: &Ledger, client: ClientId, request: &Request) -> Option<Refusal> {
    let Some(disk) = ledger.disk_of(client) else {
        return Some(Refusal::NotConnected);
    };
    let spec = &ledger.disks[disk as usize].spec;
    if request.op != Op::Flush {
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
    (room(ledger, client) == 0).then_some(Refusal::Full)
}

/// The engine has taken or refused a request, and had said so much of its room before.
///
/// # Errors
/// When the bounds say otherwise.
pub fn check(
    ledger: &Ledger,
    client: ClientId,
    request: &Request,
    said: u32,
    refused: Option<Refusal>,
) -> Verdict {
    let (room, expected) = (room(ledger, client), expected(ledger, client, request));
    ensure!(
        Refusals,
        said == room,
        "{client:?} is told there is room for {said}; there is for {room}"
    );
    ensure!(
        Refusals,
        refused == expected,
        "{request:?} of {client:?} met {refused:?}; the bounds say {expected:?}"
    );
    Ok(())
}
