//! Deadline transfers of a torture run: begin, cancellation and end.

use super::schedule::Event;
use super::{EventKind, TortureWorld};
use crate::checker::{Verdict, ensure};
use tidegate_core::time::Nanos;
use tidegate_core::transfers::{TransferOutcome, TransferSpec};

/// Approximate number of changes of transfers in a run.
const CHANGES: u64 = 24;

impl TortureWorld<'_, '_> {
    /// Schedules the next change of a transfer, if this run has any.
    pub(super) fn schedule_transfer(&mut self) {
        if self.swarm.transfers && self.running {
            let wait = self
                .draws
                .transfers
                .range(1, 2 * self.swarm.span.0 / CHANGES + 1);
            self.schedule.plan(self.now + Nanos(wait), Event::Transfer);
        }
    }

    /// Begins or cancels the transfer of some VM.
    pub(super) fn change_transfer(&mut self) -> Verdict {
        if !self.running {
            return Ok(());
        }
        // Answers that are not taken yet may end the transfer that is about to be replaced.
        self.process_completions()?;
        let guest = self.draws.transfers.index(self.inventory.vms.len());
        if self.draws.transfers.chance(200) {
            self.cancel_transfer(guest)?
        } else {
            self.begin_transfer(guest)?
        }
        // Help for a transfer goes before shares, so bounds of shares begin and end with it.
        self.checks.starvation.reset(&self.engine);
        self.schedule_transfer();
        Ok(())
    }

    fn begin_transfer(&mut self, guest: usize) -> Verdict {
        let vm = self.inventory.vms[guest].id;
        let mut none = |value| {
            // Neither 0 bytes nor a deadline of 0 is a transfer; the engine must refuse both.
            if self.draws.transfers.chance(20) {
                0
            } else {
                value
            }
        };
        let (bytes, deadline) = (none(1), none(1));
        let spec = TransferSpec {
            bytes: bytes * self.draws.transfers.octaves(512, 4 << 20),
            deadline: Nanos(deadline * self.draws.transfers.octaves(1000, 2 * self.swarm.span.0)),
        };
        let may = self.checks.ledger.is_live(vm) && !self.engine.view().is_background(vm);
        self.record(
            EventKind::Transfer,
            [vm.index() as u64, spec.bytes, spec.deadline.0, 0, 0],
        );
        let clock = self.faults.clock(self.now);
        let said = self.engine.transfers_mut().begin_transfer(clock, vm, &spec);
        let now = self.engine.view().now();
        self.checks.transfers.begun(now, (vm, may), &spec, &said)?;
        self.process_transfer_ends()
    }

    fn cancel_transfer(&mut self, guest: usize) -> Verdict {
        let (vm, clock) = (self.inventory.vms[guest].id, self.faults.clock(self.now));
        let live = self.checks.ledger.is_live(vm);
        self.record(EventKind::TransferEnded, [vm.index() as u64, 1, 0, 0, 0]);
        let said = self.engine.transfers_mut().end_transfer(clock, vm);
        let due = self
            .checks
            .transfers
            .cancelled(self.engine.view().now(), vm);
        ensure!(
            Transfers,
            said.as_ref().ok() == live.then_some(&due),
            "cancelling the transfer of {vm:?} returned {said:?}; expected {due:?}, and an error \
             unless the VM exists ({live})"
        );
        self.process_transfer_ends()
    }

    /// Checks all ends of transfers that the engine reports. Call it after
    /// [`TortureWorld::process_completions`], because answers end transfers.
    pub(super) fn process_transfer_ends(&mut self) -> Verdict {
        while let Some(end) = self.engine.transfers_mut().poll_transfer_end() {
            let done = u64::from(end.outcome == TransferOutcome::Done);
            let figures = [
                end.vm.index() as u64,
                1 - done,
                end.transfer.moved,
                end.late.0,
                0,
            ];
            self.record(EventKind::TransferEnded, figures);
            let mut heard = Vec::new();
            self.plant.transfer_ends(end, &mut heard);
            for end in &heard {
                self.checks.transfers.ended(end)?;
            }
        }
        self.checks.transfers.none_missing()?;
        // Now and then: a comparison at every turn would double the time of a run.
        if self.swarm.transfers && self.draws.transfers.chance(100) {
            let vm = self.inventory.vms[self.draws.transfers.index(self.inventory.vms.len())].id;
            let now = self.engine.view().now();
            let said = self.engine.transfers().transfer(now, vm);
            self.checks.transfers.check(now, vm, said.as_ref())?;
        }
        Ok(())
    }
}
