//! Checker of progress. No wake-up is lost: while something waits and the device has room, an I/O
//! is in flight or the engine states a time ahead at which it is to be called. Once faults stop,
//! everything drains within a bounded time; the engine is idle then, and every slot is free.
//!
//! That bound is the sum over all VMs of the time that their requests take at their smallest
//! limits, plus the device's time for all of them, plus ten seconds. Where the policy paces targets
//! by a timer with ticks, a tick for each I/O of the VM with most of them comes on top.

use super::{Verdict, ensure};
use tidegate_core::engine::Engine;
use tidegate_core::objective::{Objective, Rate};
use tidegate_core::time::Nanos;

/// Checks that the engine will be woken, once nothing more goes now and everything that was due is
/// done.
///
/// # Errors
/// Fails when requests wait and nothing would ever wake the engine.
pub fn wakes_up(engine: &Engine) -> Verdict {
    let (stats, view) = (engine.device_stats(), engine.view());
    // At full depth an end of an I/O is the wake-up.
    if stats.in_flight >= stats.spec.depth {
        return Ok(());
    }
    let next = engine.next_timeout();
    ensure!(
        Progress,
        next.is_none_or(|at| at > view.now()),
        "a wake-up at {next:?} was not served by {:?}",
        view.now()
    );
    // The end of any I/O wakes the engine, including I/Os of a hung disk that do not count.
    if stats.in_flight + engine.device().uncounted() > 0 || next.is_some() {
        return Ok(());
    }
    // Those that limits of disks hold wait as well.
    let waits = (0..view.vm_slots()).find(|&slot| engine.vms().pending(view.vm_at(slot)) > 0);
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

/// Checks that the engine is empty after everything has drained.
///
/// # Errors
/// Fails when requests, units or I/Os are left.
pub fn is_idle(engine: &Engine) -> Verdict {
    let stats = engine.device_stats();
    ensure!(
        Progress,
        engine.is_idle() && stats.queued == 0,
        "everything was answered, and the engine still has {} requests, {} I/Os in flight, {} \
         units queued",
        stats.requests,
        stats.in_flight,
        stats.queued
    );
    ensure!(
        Progress,
        stats.started == stats.ended,
        "{} I/Os have started and {} have ended",
        stats.started,
        stats.ended
    );
    Ok(())
}

/// Time that `ops` requests of `bytes` bytes in all may take at the slowest of a VM's limits.
pub fn at_limit(objective: &Objective, ops: u64, bytes: u64) -> Nanos {
    let limit = &objective.limit;
    let time = |rate: &Rate| {
        let by_bytes = rate.bytes_per_s.map_or(0, |per_s| seconds(bytes, per_s));
        let by_ops = rate.ops.map_or(0, |o| {
            let norm = o.norm.unwrap_or(0) as u64;
            // At least one unit for each request; the sum bounds the larger of both from above.
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
