//! Starvation bound by deadlines: determines the unit that must go next because its deadline is
//! near.

use super::arrival::Promise;
use crate::checker::{Verdict, ensure};
use tidegate_core::engine::Engine;
use tidegate_core::request::{DeviceIo, Lane, Op, VmId};
use tidegate_core::starvation::DeadlineFrom;
use tidegate_core::starvation::Due;
use tidegate_core::time::Nanos;
use tidegate_core::view::View;

/// Returns the unit with the earliest deadline among those that may go, if no other may go before
/// it now.
pub(super) fn earliest_unit(bound: &Due, engine: &Engine) -> Option<Promise> {
    let view = engine.view();
    let vms = (0..view.vm_slots()).map(|slot| view.vm_at(slot));
    let heads = vms.filter_map(|vm| {
        let (lane, seq, start) = head(bound, view, vm)?;
        let due = due(bound, view, vm, start)?;
        Some((due, seq, vm, lane))
    });
    let (due, seq, vm, lane) = heads.min_by_key(|&(due, seq, ..)| (due, seq))?;
    // Before that time another unit may still go without harm to this deadline.
    let strict = bound.before.is_none_or(|before| due - before <= view.now());
    strict.then_some(Promise { vm, lane, seq })
}

/// Checks a background I/O that started: where the dispatcher neither promotes background units nor
/// gives them deadlines, none starts while a VM has a unit that may go.
pub(super) fn background_kept(bound: &Due, engine: &Engine, io: &DeviceIo) -> Verdict {
    let view = engine.view();
    let passed_over = bound.background_latency.is_none() && !bound.promotes;
    // Flushes are not ordered by the dispatcher.
    if io.op == Op::Flush || !view.is_background(io.vm) || !passed_over {
        return Ok(());
    }
    let mut vms = view.vms().filter(|&vm| !view.is_background(vm));
    let waits = vms.find(|&vm| view.has_head(vm));
    ensure!(
        Starvation,
        waits.is_none(),
        "{io:?} of the background went before {waits:?}"
    );
    Ok(())
}

fn due(bound: &Due, view: &View, vm: VmId, start: Nanos) -> Option<Nanos> {
    if view.is_background(vm) {
        return bound.background_latency.map(|latency| start + latency);
    }
    let objective = view.objective(vm);
    let otherwise = if objective.reservation.is_none() {
        bound.deadlines.best_effort_latency
    } else {
        bound.deadlines.default_latency
    };
    Some(start + objective.latency.unwrap_or(otherwise) - bound.deadlines.margin)
}

/// Returns the VM's unit that arrived first among the heads of its lanes: lane, arrival number and
/// the time from which its deadline counts.
fn head(bound: &Due, view: &View, vm: VmId) -> Option<(Lane, u64, Nanos)> {
    let open = Lane::ALL.into_iter().filter(|&l| view.gate_open(vm, l));
    let heads = open.filter_map(|lane| {
        let unit = view.queued(view.lane_head(vm, lane)?).unit();
        let held = match bound.deadlines.from {
            DeadlineFrom::Arrival => Nanos::ZERO,
            DeadlineFrom::Admission => view.queued(unit.id).held(),
        };
        Some((lane, unit.seq, unit.arrived + held))
    });
    heads.min_by_key(|&(_, seq, _)| seq)
}
