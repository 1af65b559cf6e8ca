//! Every accepted request is answered exactly once, to its client, with its own tag and the
//! outcome that was its own, no earlier than the device has let go of its memory and no later
//! than the batch in which nothing keeps it back any more. What failed in company, whole or in
//! part, goes again from its beginning once nothing of it is in flight, and no error but its own is
//! its. What waits, or has to be repeated, when its disk has become too short for it fails as being
//! beyond the end. Where its time went adds up to the time that passed.

use super::ledger::{Ledger, NEVER, Part};
use super::{Verdict, ensure};
use tidegate_core::request::{Done, IoError, Op, Outcome};
use tidegate_core::time::Nanos;

/// A device I/O with these parts has started.
pub fn started(ledger: &mut Ledger, op: Op, parts: &[Part]) {
    for part in parts {
        let entry = &mut ledger.entries[part.number as usize];
        entry.outstanding += 1;
        entry.handed += part.len;
        entry.flushed |= op == Op::Flush;
    }
}

/// A device I/O with these parts has ended at `now`; `over` collects those that are to be
/// answered.
pub fn ended(
    ledger: &mut Ledger,
    now: Nanos,
    op: Op,
    parts: &[Part],
    outcome: Outcome,
    over: &mut Vec<u32>,
) {
    let company = parts.len() > 1 && op != Op::Flush;
    for part in parts {
        let entry = &mut ledger.entries[part.number as usize];
        let size = ledger.disks[entry.disk as usize].spec.size;
        entry.outstanding -= 1;
        match outcome {
            Ok(()) => entry.moved += part.len,
            Err(_) if company => entry.again = true,
            Err(error) => {
                entry.error.get_or_insert(error);
            }
        }
        if entry.outstanding == 0 {
            entry.go_again(size);
        }
        ledger.note_over(part.number, now, over);
    }
}

/// The engine has answered a request. Returns its number.
///
/// # Errors
/// When it should not have, or not so.
pub fn answered(ledger: &mut Ledger, done: &Done) -> Result<u32, super::Broken> {
    let number = check(ledger, done)?;
    ledger.closed(number);
    Ok(number)
}

fn check(ledger: &Ledger, done: &Done) -> Result<u32, super::Broken> {
    let tag = done.tag;
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

/// All answers were taken: those that nothing keeps back must be among them.
///
/// # Errors
/// When one is missing.
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
