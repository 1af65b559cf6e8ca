//! Checker of deadline transfers. A VM's transfer advances by the bytes of its reads and writes
//! that succeed from its begin on, no more and no less. It ends exactly once, with the answer to
//! its last byte or by a cancellation. Its forecast follows from the bytes left and the bandwidth
//! that the engine reports. All of this holds under every policy and across policy swaps.
//!
//! Answers must be taken before a transfer begins or is cancelled, so that both tallies describe
//! the same moment.

use super::{Verdict, ensure};
use std::collections::VecDeque;
use tidegate_core::engine::EngineError;
use tidegate_core::request::{Done, VmId};
use tidegate_core::time::Nanos;
use tidegate_core::transfers::{
    Transfer, TransferEnd, TransferOutcome, TransferSpec, TransferStatus,
};

/// Transfers that run, and ends that the engine has yet to report.
#[derive(Debug, Default)]
pub struct Transfers {
    running: Vec<(VmId, Transfer)>,
    /// Ends in the order in which the engine must report them.
    over: VecDeque<TransferEnd>,
}

impl Transfers {
    /// Checks the engine's response to a transfer that was requested at `now`. `may` states that
    /// the VM may have a transfer.
    ///
    /// # Errors
    /// Fails when a valid transfer was refused, an invalid one accepted, or another one begun.
    pub fn begun(
        &mut self,
        now: Nanos,
        (vm, may): (VmId, bool),
        spec: &TransferSpec,
        said: &Result<TransferStatus, EngineError>,
    ) -> Verdict {
        let may = may && spec.bytes > 0 && spec.deadline > Nanos::ZERO;
        ensure!(
            Transfers,
            said.is_ok() == may,
            "{spec:?} of {vm:?} is allowed: {may}; the engine returned {said:?}"
        );
        let Ok(status) = said else { return Ok(()) };
        // A new transfer takes the place of the one that runs.
        self.cancelled(now, vm);
        let transfer = Transfer {
            bytes: spec.bytes,
            begun: now,
            deadline: spec.deadline,
            moved: 0,
        };
        self.running.push((vm, transfer));
        self.check(now, vm, Some(status))
    }

    /// Cancels a VM's transfer, by request or because the VM is removed. Returns its end, if one
    /// ran.
    pub fn cancelled(&mut self, now: Nanos, vm: VmId) -> Option<TransferEnd> {
        let at = self.running.iter().position(|running| running.0 == vm)?;
        Some(self.ends(at, now, TransferOutcome::Cancelled))
    }

    fn ends(&mut self, at: usize, ended: Nanos, outcome: TransferOutcome) -> TransferEnd {
        let (vm, transfer) = self.running.remove(at);
        let end = TransferEnd {
            vm,
            transfer,
            ended,
            late: ended.since(transfer.due_time()),
            outcome,
        };
        self.over.push_back(end);
        end
    }

    /// Counts an answered request of `len` bytes that was over at `ended`.
    pub fn answered(&mut self, done: &Done, len: u32, ended: Nanos) {
        // Discards, zeroes and flushes move nothing that a transfer counts.
        if done.outcome.is_err() || !done.op.merges() {
            return;
        }
        let of_vm = self.running.iter().position(|running| running.0 == done.vm);
        let Some(at) = of_vm else { return };
        let transfer = &mut self.running[at].1;
        transfer.moved += u64::from(len);
        // The last request may carry more than is left.
        if transfer.moved >= transfer.bytes {
            self.ends(at, ended, TransferOutcome::Done);
        }
    }

    /// Checks an end of a transfer that the engine reports.
    ///
    /// # Errors
    /// Fails when another end is due next, or none.
    pub fn ended(&mut self, end: &TransferEnd) -> Verdict {
        let due = self.over.pop_front();
        ensure!(
            Transfers,
            due == Some(*end),
            "the engine reports the end {end:?}; the next end is {due:?}"
        );
        Ok(())
    }

    /// Checks that the engine has reported all ends.
    ///
    /// # Errors
    /// Fails when one is missing.
    pub fn none_missing(&self) -> Verdict {
        let first = self.over.front();
        ensure!(
            Transfers,
            first.is_none(),
            "the engine did not report {first:?}"
        );
        Ok(())
    }

    /// Compares the engine's status of a VM's transfer with the tally.
    ///
    /// # Errors
    /// Fails when they differ, or when the forecast does not follow from the reported bandwidth.
    pub fn check(&self, now: Nanos, vm: VmId, said: Option<&TransferStatus>) -> Verdict {
        let running = self.running.iter().find(|running| running.0 == vm);
        let (transfer, known) = (
            running.map(|running| running.1),
            said.map(|said| said.transfer),
        );
        ensure!(
            Transfers,
            transfer == known,
            "the transfer of {vm:?} is {transfer:?}, and the engine reports {known:?}"
        );
        if let (Some(transfer), Some(status)) = (transfer, said)
            && let Some(bandwidth) = status.bandwidth
        {
            let forecast = transfer.forecast(now, bandwidth);
            ensure!(
                Transfers,
                status.forecast == forecast,
                "{transfer:?} at {bandwidth} B/s from {now} on is forecast {:?}, not {forecast:?}",
                status.forecast
            );
        }
        Ok(())
    }
}
