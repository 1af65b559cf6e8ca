//! Deadline transfers of a torture run: begin, cancellation and end.

use super::schedule::Event;
use super::{TortureWorld, What};
use crate::checker::{Verdict, ensure};
use tidegate_core::jobs::{JobOutcome, JobSpec};
use tidegate_core::time::Nanos;

/// Approximate number of changes of transfers in a run.
const CHANGES: u64 = 24;

impl TortureWorld<'_, '_> {
    /// Schedules the next change of a transfer, if this run has any.
    pub(super) fn schedule_job(&mut self) {
        if self.swarm.jobs && self.running {
            let wait = self
                .draws
                .jobs
                .range(1, 2 * self.swarm.span.0 / CHANGES + 1);
            self.schedule.plan(self.now + Nanos(wait), Event::Job);
        }
    }

    /// Begins or cancels the transfer of some VM.
    pub(super) fn change_job(&mut self) -> Verdict {
        if !self.running {
            return Ok(());
        }
        self.take_answers()?;
        let guest = self.draws.jobs.index(self.inventory.vms.len());
        if self.draws.jobs.chance(200) {
            self.cancel_job(guest)?
        } else {
            self.begin_job(guest)?
        }
        self.schedule_job();
        Ok(())
    }

    fn begin_job(&mut self, guest: usize) -> Verdict {
        let vm = self.inventory.vms[guest].id;
        let mut none = |value| if self.draws.jobs.chance(20) { 0 } else { value };
        let (bytes, deadline) = (none(1), none(1));
        let spec = JobSpec {
            bytes: bytes * self.draws.jobs.octaves(512, 4 << 20),
            deadline: Nanos(deadline * self.draws.jobs.octaves(1000, 2 * self.swarm.span.0)),
        };
        let may = self.checks.ledger.is_live(vm) && !self.engine.view().is_background(vm);
        self.write(
            What::Job,
            [vm.index() as u64, spec.bytes, spec.deadline.0, 0, 0],
        );
        let clock = self.faults.clock(self.now);
        let said = self.engine.jobs_mut().begin_job(clock, vm, &spec);
        let now = self.engine.view().now();
        self.checks.jobs.begun(now, (vm, may), &spec, &said)?;
        self.hear_of_jobs()
    }

    fn cancel_job(&mut self, guest: usize) -> Verdict {
        let (vm, clock) = (self.inventory.vms[guest].id, self.faults.clock(self.now));
        let live = self.checks.ledger.is_live(vm);
        self.write(What::JobEnded, [vm.index() as u64, 1, 0, 0, 0]);
        let said = self.engine.jobs_mut().end_job(clock, vm);
        let due = self.checks.jobs.cancelled(self.engine.view().now(), vm);
        ensure!(
            Jobs,
            said.as_ref().ok() == live.then_some(&due),
            "the job of {vm:?} was cancelled: {said:?}; it was {due:?}, and its VM's being there \
             is {live}"
        );
        self.hear_of_jobs()
    }

    /// Checks all ends of transfers that the engine reports. Call it after all answers were taken.
    pub(super) fn hear_of_jobs(&mut self) -> Verdict {
        while let Some(end) = self.engine.jobs_mut().poll_job_end() {
            let done = u64::from(end.outcome == JobOutcome::Done);
            let figures = [
                end.vm.index() as u64,
                1 - done,
                end.job.moved,
                end.late.0,
                0,
            ];
            self.write(What::JobEnded, figures);
            let mut heard = Vec::new();
            self.plant.job_ends(end, &mut heard);
            for end in &heard {
                self.checks.jobs.ended(end)?;
            }
        }
        self.checks.jobs.none_missing()?;
        if self.swarm.jobs && self.draws.jobs.chance(100) {
            let vm = self.inventory.vms[self.draws.jobs.index(self.inventory.vms.len())].id;
            let now = self.engine.view().now();
            let said = self.engine.jobs().job(now, vm);
            self.checks.jobs.check(now, vm, said.as_ref())?;
        }
        Ok(())
    }
}
