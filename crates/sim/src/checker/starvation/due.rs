//! Starvation bound by deadlines: determines the unit that must go next because its deadline is
//! near.

use super::arrival::Promise;
use crate::checker::{Verdict, ensure};
use tidegate_core::engine::Engine;
use tidegate_core::facts::Facts;
use tidegate_core::request::{DeviceIo, Lane, Op, VmId};
use tidegate_core::starvation::DeadlineFrom;
use tidegate_core::starvation::Due;
use tidegate_core::time::Nanos;

/// Returns the unit with the earliest deadline among those that may go, if no other may go before
/// it now.
pub(super) fn first(bound: &Due, engine: &Engine) -> Option<Promise> {
    let facts = engine.view();
    let vms = (0..facts.vm_slots()).map(|slot| facts.vm_at(slot));
    let heads = vms.filter_map(|vm| {
        let (lane, seq, start) = head(bound, facts, vm)?;
        let due = due(bound, facts, vm, start)?;
        Some((due, seq, vm, lane))
    });
    let (due, seq, vm, lane) = heads.min_by_key(|&(due, seq, ..)| (due, seq))?;
    // Before that time another unit may still go without harm to this deadline.
    let strict = bound
        .before
        .is_none_or(|before| due - before <= facts.now());
    strict.then_some(Promise { vm, lane, seq })
}

/// Checks a background I/O that started: where the dispatcher neither promotes background units nor
/// gives them deadlines, none starts while a VM has a unit that may go.
pub(super) fn background_kept(bound: &Due, engine: &Engine, io: &DeviceIo) -> Verdict {
    let facts = engine.view();
    let passed_over = bound.background_latency.is_none() && !bound.promotes;
    if io.op == Op::Flush || !facts.is_background(io.vm) || !passed_over {
        return Ok(());
    }
    let mut vms = facts.vms().filter(|&vm| !facts.is_background(vm));
    let waits = vms.find(|&vm| facts.has_head(vm));
    ensure!(
        Starvation,
        waits.is_none(),
        "{io:?} of the background went before {waits:?}"
    );
    Ok(())
}

fn due(bound: &Due, facts: &Facts, vm: VmId, start: Nanos) -> Option<Nanos> {
    if facts.is_background(vm) {
        return bound.background_latency.map(|latency| start + latency);
    }
    let objective = facts.objective(vm);
    let otherwise = if objective.reservation.is_none() {
        bound.deadlines.best_effort_latency
    } else {
        bound.deadlines.default_latency
    };
    Some(start + objective.latency.unwrap_or(otherwise) - bound.deadlines.margin)
}

/// Returns the VM's unit that arrived first among the heads of its lanes: lane, arrival number and
/// the time from which its deadline counts.
fn head(bound: &Due, facts: &Facts, vm: VmId) -> Option<(Lane, u64, Nanos)> {
    let open = Lane::ALL.into_iter().filter(|&l| facts.gate_open(vm, l));
    let heads = open.filter_map(|lane| {
        let unit = facts.queued(facts.lane_head(vm, lane)?).unit();
        let held = match bound.deadlines.from {
            DeadlineFrom::Arrival => Nanos::ZERO,
            DeadlineFrom::Admission => facts.queued(unit.id).held(),
        };
        Some((lane, unit.seq, unit.arrived + held))
    });
    heads.min_by_key(|&(_, seq, _)| seq)
}
