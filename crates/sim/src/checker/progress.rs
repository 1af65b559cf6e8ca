//! No wake-up is lost: while something waits and the device has room, something is in flight or
//! the engine says when it wants to be called again, and that lies ahead. Once faults stop
//! everything drains within a stated time; then the engine is idle, and every slot is free.
//!
//! The time: what all VMs have ever asked for at their smallest limits, one VM after the other,
//! what the device takes for it all, and ten seconds.

use super::{Verdict, ensure};
use tidegate_core::engine::Engine;
use tidegate_core::objective::{Objective, Rate};
use tidegate_core::time::Nanos;

/// Nothing more goes now, and everything that was due is done.
///
/// # Errors
/// When nothing would ever make the engine go on.
pub fn wakes_up(engine: &Engine) -> Verdict {
    let (facts, view) = (engine.facts(), engine.view());
    if facts.in_flight >= facts.spec.depth {
        return Ok(());
    }
    let next = engine.next_timeout();
    ensure!(
        Progress,
        next.is_none_or(|at| at > view.now()),
        "a wake-up at {next:?} was not served by {:?}",
        view.now()
    );
    // The end of any I/O wakes, also of one that does not count as its disk hangs, or did.
    if facts.in_flight + engine.device().uncounted() > 0 || next.is_some() {
        return Ok(());
    }
    let waits = (0..view.vm_slots()).find(|&slot| view.waiting(view.vm_at(slot)) > 0);
    ensure!(
        Progress,
        waits.is_none(),
        "requests of VM slot {waits:?} wait, nothing is in flight, and no wake-up is set; it lacks \
         memory for \
         reads: {}; {:?}",
        waits.is_some_and(|slot| view.lacks_memory(view.vm_at(slot))),
        waits.map(|slot| engine.admission().holdings(view.vm_at(slot)))
    );
    Ok(())
}

/// Everything has drained.
///
/// # Errors
/// When something is left.
pub fn is_idle(engine: &Engine) -> Verdict {
    let facts = engine.facts();
    ensure!(
        Progress,
        engine.is_idle() && facts.queued == 0,
        "everything was answered, and the engine still has {} requests, {} I/Os in flight, {} \
         units queued",
        facts.requests,
        facts.in_flight,
        facts.queued
    );
    ensure!(
        Progress,
        facts.started == facts.ended,
        "{} I/Os have started and {} have ended",
        facts.started,
        facts.ended
    );
    Ok(())
}

/// How long what a VM asked for may take at one of its limits.
pub fn at_limit(objective: &Objective, ops: u64, bytes: u64) -> Nanos {
    let limit = &objective.limit;
    let time = |rate: &Rate| {
        let by_bytes = rate.bytes_per_s.map_or(0, |per_s| seconds(bytes, per_s));
        let by_ops = rate.ops.map_or(0, |o| {
            let norm = o.norm.unwrap_or(0) as u64;
            let units = ops + bytes.checked_div(norm).unwrap_or(0);
            seconds(units, o.per_s)
        });
        by_bytes.max(by_ops)
    };
    let scopes = [limit.total, limit.read, limit.write];
    Nanos(scopes.iter().map(time).max().unwrap_or(0))
}

fn seconds(units: u64, per_s: u64) -> u64 {
    let nanos = units as u128 * 1_000_000_000 / per_s as u128;
    u64::try_from(nanos).unwrap_or(u64::MAX)
}
