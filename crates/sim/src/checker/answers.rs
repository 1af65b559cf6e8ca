//! Checker of answers. Every accepted request is answered exactly once, to its own connection, with
//! its own tag and outcome.
//! The answer comes no earlier than the device releases the request's memory, and no later than the
//! batch in which nothing holds it back.
//! A merged I/O that fails, whole or in part, is repeated request by request, each from its
//! beginning once none of its I/Os is in flight; only the error of such an unmerged I/O counts as
//! the request's own. A request that waits or has to be repeated when its disk shrinks below its
//! end fails with `BeyondEnd`. The components of a request's latency add up to the time that
//! passed.

use super::ledger::{Ledger, NEVER, Part};
use super::{Verdict, ensure};
use tidegate_core::request::{Done, IoError, Op, Outcome};
use tidegate_core::time::Nanos;

/// Records that a device I/O with these parts has started.
pub fn started(ledger: &mut Ledger, op: Op, parts: &[Part]) {
    for part in parts {
        let entry = &mut ledger.entries[part.number as usize];
        entry.outstanding += 1;
        entry.handed += part.len;
        entry.flushed |= op == Op::Flush;
    }
}

/// Records that a device I/O with these parts ended at `now` with `outcome`. Pushes the numbers of
/// requests that are now to be answered onto `over`.
pub fn ended(
    ledger: &mut Ledger,
    now: Nanos,
    op: Op,
    parts: &[Part],
    outcome: Outcome,
    over: &mut Vec<u32>,
) {
    // A failure of a shared I/O does not tell which request is at fault. Flushes are shared by
    // nature and fail together.
    let merged = parts.len() > 1 && op != Op::Flush;
    for part in parts {
        let entry = &mut ledger.entries[part.number as usize];
        let size = ledger.disks[entry.disk as usize].spec.size;
        entry.outstanding -= 1;
        match outcome {
            Ok(()) => entry.moved += part.len,
            Err(_) if merged => entry.again = true,
            Err(error) => {
                // The engine reports the first error of a request; later ones change nothing.
                entry.error.get_or_insert(error);
            }
        }
        if entry.outstanding == 0 {
            entry.go_again(size);
        }
        // After `go_again`, which may give the request more to do.
        ledger.note_over(part.number, now, over);
    }
}

/// Checks one answer of the engine and closes its request. Returns the request's number.
///
/// # Errors
/// Fails when the request was not to be answered yet, or has another connection, outcome or
/// latency.
pub fn answered(ledger: &mut Ledger, done: &Done) -> Result<u32, super::Broken> {
    let number = check(ledger, done)?;
    ledger.closed(number);
    Ok(number)
}

fn check(ledger: &Ledger, done: &Done) -> Result<u32, super::Broken> {
    let tag = done.tag;
    // A tag is an index of the ledger; a wrong one is the engine's mistake, not the checker's.
    let Some(entry) = ledger.entries.get(tag as usize) else {
        return Err(super::Broken {
            checker: super::Checker::Answers,
            what: format!("request {tag} was answered, and never asked"),
        });
    };
    ensure!(
        Answers,
        entry.answered == NEVER,
        "request {tag} was answered twice"
    );
    ensure!(
        Answers,
        (done.client, done.vm, done.op) == (entry.client, entry.vm, entry.request.op),
        "request {tag}, a {:?} of {:?}, was answered as a {:?} to {:?}",
        entry.request.op,
        entry.client,
        done.op,
        done.client
    );
    ensure!(
        Answers,
        entry.over_at.is_some(),
        "request {tag} was answered while the device has its memory, or more to do for it"
    );
    match done.outcome {
        Ok(()) => ensure!(
            Answers,
            entry.error.is_none() && entry.is_handed_out() && entry.moved == entry.request.len,
            "request {tag} was answered well after {} of {} bytes, its error {:?}",
            entry.moved,
            entry.request.len,
            entry.error
        ),
        Err(IoError::Cancelled) => ensure!(
            Answers,
            // A request handed out in full ends with the device's outcome, although its client is
            // gone.
            entry.gone && !entry.is_handed_out(),
            "request {tag} was cancelled for no reason"
        ),
        Err(error) => ensure!(
            Answers,
            entry.error == Some(error),
            "request {tag} failed with {error:?}; its own error is {:?}",
            entry.error
        ),
    }
    // Present since the check above.
    let over_at = entry.over_at.unwrap_or(entry.arrived);
    let (took, account) = (over_at.since(entry.arrived), done.account);
    ensure!(
        Answers,
        account.total() == took,
        "request {tag} took {took}, and its account says {}: {account:?}",
        account.total()
    );
    Ok(tag as u32)
}

/// Checks that every request in `over`, which nothing holds back any more, has been answered. Call
/// it after all answers were taken.
///
/// # Errors
/// Fails with the first request that was not answered.
pub fn none_missing(ledger: &Ledger, over: &mut Vec<u32>) -> Verdict {
    for number in over.drain(..) {
        let entry = &ledger.entries[number as usize];
        ensure!(
            Answers,
            entry.answered != NEVER,
            "request {number} is over and was not answered: {entry:?}"
        );
    }
    Ok(())
}
