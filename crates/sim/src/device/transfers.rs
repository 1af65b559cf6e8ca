//! Transfers: data that is moved in several requests and is done once all of them are answered.
//! Each request of a trace is one, and each workload with a deadline. Transfers with a deadline are
//! the engine's deadline transfers, too.
//!
//! ```text
//!   first piece is issued --> running --> last piece is answered: done
//!                                |
//!                                +------> workload is stopped, or its VM leaves: abandoned
//! ```

use std::collections::VecDeque;
use tidegate_core::time::Nanos;
use tidegate_workload::deadline::Deadline;
use tidegate_workload::replay::Mode;
use tidegate_workload::spec::Workload;

/// Transfer that has begun and is not done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Transfer {
    /// Number among its worker's transfers, from 0 on, in the order in which they began.
    pub index: u64,
    /// Bytes that it moves, above 0.
    pub bytes: u64,
    /// Time at which it was to begin.
    pub since: Nanos,
    /// Time that it may take.
    pub deadline: Option<Nanos>,
    /// Bytes that are not issued yet.
    unissued: u64,
    /// Bytes that are not answered. A workload's only transfer is done when its worker is.
    pub left: u64,
}

impl Transfer {
    /// True once its deadline has passed.
    pub(super) fn is_overdue(&self, now: Nanos) -> bool {
        (self.deadline).is_some_and(|deadline| now.since(self.since) > deadline)
    }
}

/// Transfers of a worker.
#[derive(Clone, Debug)]
pub(super) struct Transfers {
    deadline: Option<Deadline>,
    /// Bytes of the worker's only transfer, its workload; `None`: its transfers are the requests of
    /// its trace.
    whole: Option<u64>,
    /// Transfers that have begun so far.
    begun: u64,
    /// In the order of their begin.
    running: VecDeque<Transfer>,
    /// Number of the transfer that an outstanding request belongs to, by the request's slot.
    of_slot: Vec<u64>,
}

impl Transfers {
    /// Transfers of a copy of this workload; `None` if it has none.
    pub(super) fn of_workload(workload: &Workload) -> Option<Box<Transfers>> {
        let whole = match (&workload.replay, workload.deadline, workload.io_size) {
            // Which request is issued next depends on its think time, not on its place.
            (Some(replay), _, _) if matches!(replay.mode, Mode::Thinking(_)) => return None,
            (Some(_), _, _) => None,
            (None, Some(_), Some(bytes)) => Some(bytes),
            _ => return None,
        };
        Some(Box::new(Transfers {
            deadline: workload.deadline,
            whole,
            begun: 0,
            running: VecDeque::new(),
            of_slot: Vec::new(),
        }))
    }

    /// Begins the worker's only transfer, its workload, if it is one.
    pub(super) fn begin_workload(&mut self, now: Nanos) -> Option<Transfer> {
        self.whole.map(|bytes| self.begin(now, bytes))
    }

    /// Counts a request of `len` bytes that is a piece of a trace's request, of which it has the
    /// number and the bytes. Returns the transfer that begins with it, at `since`, if one does.
    pub(super) fn issued(
        &mut self,
        (index, bytes): (u64, u64),
        since: Nanos,
        len: u32,
    ) -> Option<Transfer> {
        // Pieces of one request come in a row, so that a new number begins a new transfer.
        let begun = (index == self.begun).then(|| self.begin(since, bytes));
        if let Some(transfer) = self.running.back_mut() {
            transfer.unissued -= u64::from(len);
        }
        begun
    }

    fn begin(&mut self, since: Nanos, bytes: u64) -> Transfer {
        let transfer = Transfer {
            index: self.begun,
            bytes,
            since,
            deadline: self.deadline.map(|deadline| deadline.for_bytes(bytes)),
            unissued: bytes,
            left: bytes,
        };
        self.begun += 1;
        self.running.push_back(transfer);
        transfer
    }

    /// Notes the slot of the request that was issued last, which belongs to the transfer that began
    /// last.
    pub(super) fn set_slot(&mut self, slot: u32) {
        let slot = slot as usize;
        if self.of_slot.len() <= slot {
            self.of_slot.resize(slot + 1, 0);
        }
        self.of_slot[slot] = self.begun.saturating_sub(1);
    }

    /// Counts the answer to the request in a slot and returns the transfer that is done with it.
    /// `over`: nothing of the worker is to come or outstanding.
    pub(super) fn answered(&mut self, slot: u32, len: u32, over: bool) -> Option<Transfer> {
        let index = *self.of_slot.get(slot as usize)?;
        // A transfer that is not there was abandoned.
        let place = self.running.binary_search_by_key(&index, |it| it.index);
        let transfer = self.running.get_mut(place.ok()?)?;
        // The last request of a workload may exceed its `io_size`.
        transfer.left = transfer.left.saturating_sub(len.into());
        let done = match self.whole {
            // Bytes alone do not tell: a flush may follow the last write.
            Some(_) => over,
            None => transfer.left == 0,
        };
        done.then(|| self.running.remove(place.ok()?))?
    }

    /// Removes transfers that will never be done: `all`, or those that are not issued whole.
    pub(super) fn abandon(&mut self, all: bool) -> Vec<Transfer> {
        // A transfer that is issued whole can still be done, as its answers come.
        let is_lost = |it: &Transfer| all || self.whole.is_some() || it.unissued > 0;
        let running = core::mem::take(&mut self.running);
        let (lost, left): (Vec<Transfer>, Vec<Transfer>) = running.into_iter().partition(is_lost);
        self.running = left.into();
        lost
    }

    /// Transfers that run, in the order in which they began.
    pub(super) fn running(&self) -> impl Iterator<Item = &Transfer> {
        self.running.iter()
    }

    /// Tally of the transfers that run, as if they were abandoned now.
    pub(super) fn tally_running(&self, now: Nanos) -> TransferTally {
        let mut tally = TransferTally::default();
        self.running()
            .for_each(|it| tally.abandoned(it.is_overdue(now)));
        tally
    }
}

/// Counts of a VM's transfers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TransferTally {
    /// Transfers that were done.
    pub done: u64,
    /// Time from when they were to begin to their last answer, summed, in nanoseconds.
    pub response_sum: u128,
    /// Longest such time.
    pub response_max: Nanos,
    /// Transfers that were done in time, of those with a deadline.
    pub met: u64,
    /// Transfers past their deadline, done or not.
    pub missed: u64,
    /// Transfers neither done nor past a deadline when they were abandoned, or at the end.
    pub unfinished: u64,
    /// Time past the deadline of those that were done late, summed, in nanoseconds.
    pub late_sum: u128,
    /// Longest such time.
    pub late_max: Nanos,
    /// Transfers that were done late.
    pub late: u64,
}

impl TransferTally {
    /// Counts a transfer that is done.
    pub(super) fn done(&mut self, response: Nanos, deadline: Option<Nanos>) {
        self.done += 1;
        self.response_sum += u128::from(response.0);
        self.response_max = self.response_max.max(response);
        let Some(deadline) = deadline else { return };
        let late = response.since(deadline);
        if late == Nanos::ZERO {
            self.met += 1;
            return;
        }
        self.missed += 1;
        self.late += 1;
        self.late_sum += u128::from(late.0);
        self.late_max = self.late_max.max(late);
    }

    /// Counts a transfer that is abandoned.
    pub(super) fn abandoned(&mut self, overdue: bool) {
        self.missed += u64::from(overdue);
        self.unfinished += u64::from(!overdue);
    }

    /// Counts another span as well.
    pub(crate) fn add(&mut self, other: &TransferTally) {
        self.done += other.done;
        self.response_sum += other.response_sum;
        self.response_max = self.response_max.max(other.response_max);
        self.met += other.met;
        self.missed += other.missed;
        self.unfinished += other.unfinished;
        self.late_sum += other.late_sum;
        self.late_max = self.late_max.max(other.late_max);
        self.late += other.late;
    }
}

/// Transfer that is done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TransferDone {
    /// VM that it belongs to, as an index into the scenario's VMs.
    pub vm: usize,
    /// Number among its worker's transfers, from 0 on, in the order in which they began.
    pub index: u64,
    /// Bytes that it moved.
    pub bytes: u64,
    /// Time at which it was to begin.
    pub since: Nanos,
    /// Time of its last answer.
    pub ended: Nanos,
    /// Time that it was allowed to take.
    pub deadline: Option<Nanos>,
}

/// Log of a device's transfers.
#[derive(Debug, Default)]
pub(crate) struct TransferLog {
    /// Transfers that were done since they were taken last; `None` where nobody takes them.
    done: Option<Vec<TransferDone>>,
    /// Transfers that began or ended so far, each counted both times.
    changes: u64,
}

impl TransferLog {
    /// Keeps transfers that are done from now on.
    pub(crate) fn keep_done(&mut self) {
        self.done.get_or_insert_default();
    }

    /// Removes and returns the transfers that were kept.
    pub(crate) fn take_done(&mut self) -> Vec<TransferDone> {
        self.done.as_mut().map(core::mem::take).unwrap_or_default()
    }

    /// Counts the begin of a transfer, or its end other than by being done.
    pub(super) fn changed(&mut self) {
        self.changes += 1;
    }

    /// Counts the end of a transfer of `VM` that is done at `now`.
    pub(super) fn done(&mut self, vm: usize, transfer: &Transfer, now: Nanos) {
        self.changed();
        if let Some(done) = &mut self.done {
            done.push(TransferDone {
                vm,
                index: transfer.index,
                bytes: transfer.bytes,
                since: transfer.since,
                ended: now,
                deadline: transfer.deadline,
            });
        }
    }

    /// Number of begins and ends so far.
    pub(super) fn changes(&self) -> u64 {
        self.changes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Nanos = Nanos::SECOND;

    #[test]
    fn what_is_late_is_missed_and_what_is_in_time_to_the_nanosecond_is_met() {
        let mut tally = TransferTally::default();
        for response in [S, S + Nanos(1), S + S + S] {
            tally.done(response, Some(S));
        }
        assert_eq!((tally.done, tally.met, tally.missed), (3, 1, 2));
        assert_eq!((tally.late, tally.late_max), (2, S + S));
        assert_eq!(tally.late_sum, 2_000_000_001);
        assert_eq!(tally.response_max, S + S + S);
        tally.done(S, None);
        assert_eq!((tally.done, tally.met, tally.missed), (4, 1, 2));
        tally.abandoned(true);
        tally.abandoned(false);
        assert_eq!((tally.missed, tally.unfinished, tally.late), (3, 1, 2));
        let mut twice = tally;
        twice.add(&tally);
        assert_eq!((twice.done, twice.missed, twice.late), (8, 6, 4));
        assert_eq!(twice.response_sum, 2 * tally.response_sum);
    }

    #[test]
    fn answers_count_for_the_transfer_that_they_were_issued_in() {
        let mut transfers = Transfers {
            deadline: None,
            whole: None,
            begun: 0,
            running: VecDeque::new(),
            of_slot: Vec::new(),
        };
        // Two at once, whose pieces are answered in no order.
        for (slots, since) in [([3, 0], 5), ([2, 7], 6)] {
            transfers.begin(Nanos(since), 2048);
            for slot in slots {
                transfers.issued((0, 2048), Nanos(since), 1024);
                transfers.set_slot(slot);
            }
        }
        let mut done = |slot| transfers.answered(slot, 1024, false).map(|it| it.index);
        assert_eq!(
            [done(2), done(3), done(7), done(0)],
            [None, None, Some(1), Some(0)]
        );
        assert_eq!(done(0), None, "it is over");
        transfers.begin(Nanos(9), 2048);
        transfers.set_slot(1);
        assert_eq!(transfers.tally_running(Nanos(9)).unfinished, 1);
        assert_eq!(transfers.abandon(false).len(), 1, "not issued whole");
        assert!(transfers.answered(1, 1024, true).is_none());
    }

    #[test]
    fn a_transfer_begins_with_its_first_request_and_is_logged_when_it_is_done() {
        let mut log = TransferLog::default();
        let workload = Workload {
            io_size: Some(4096),
            deadline: Some(Deadline::Fixed(S)),
            ..Workload::default()
        };
        let mut transfers = Transfers::of_workload(&workload).expect("it has a deadline");
        let begun = transfers.begin_workload(Nanos(7)).expect("its workload");
        assert_eq!((begun.bytes, begun.deadline), (4096, Some(S)));
        transfers.set_slot(0);
        let done = transfers.answered(0, 4096, true).expect("its last request");
        log.done(3, &done, Nanos(9));
        assert_eq!(log.take_done(), [], "nobody asked for them");
        log.keep_done();
        log.done(3, &done, Nanos(9));
        let taken = log.take_done();
        assert_eq!((taken[0].vm, taken[0].ended), (3, Nanos(9)));
        assert_eq!(
            (taken.len(), log.take_done().len(), log.changes()),
            (1, 0, 2)
        );
    }
}
