//! A VM's job moves by what the VM's reads and writes that were answered well have, from its begin
//! on, no more and no less; it ends exactly once, with the answer to its last byte, or when it is
//! cancelled; and a forecast is what its bandwidth, as it is told, makes of what is left. So under
//! every policy, whatever is swapped meanwhile.
//!
//! Answers are to be taken before anything happens to a job, so that both books are of one time.

use super::{Verdict, ensure};
use std::collections::VecDeque;
use tidegate_core::engine::EngineError;
use tidegate_core::jobs::{Job, JobEnd, JobOutcome, JobSpec, JobStatus};
use tidegate_core::request::{Done, VmId};
use tidegate_core::time::Nanos;

/// The checker.
#[derive(Debug, Default)]
pub struct Jobs {
    running: Vec<(VmId, Job)>,
    /// In the order in which they are to be heard of.
    over: VecDeque<JobEnd>,
}

impl Jobs {
    /// A job was asked for at `now`, of a VM that may have one, or may not.
    ///
    /// # Errors
    /// When it was refused and should not have been, or the other way round; or is another one.
    pub fn begun(
        &mut self,
        now: Nanos,
        (vm, may): (VmId, bool),
        spec: &JobSpec,
        said: &Result<JobStatus, EngineError>,
    ) -> Verdict {
        let may = may && spec.bytes > 0 && spec.deadline > Nanos::ZERO;
        ensure!(
            Jobs,
            said.is_ok() == may,
            "{spec:?} of {vm:?}: {said:?}, though that it may be is {may}"
        );
        let Ok(status) = said else { return Ok(()) };
        self.cancelled(now, vm);
        let job = Job {
            bytes: spec.bytes,
            begun: now,
            deadline: spec.deadline,
            moved: 0,
        };
        self.running.push((vm, job));
        self.check(now, vm, Some(status))
    }

    /// A VM's job is not wanted any more, or the VM is not.
    pub fn cancelled(&mut self, now: Nanos, vm: VmId) -> Option<JobEnd> {
        let at = self.running.iter().position(|running| running.0 == vm)?;
        Some(self.ends(at, now, JobOutcome::Cancelled))
    }

    fn ends(&mut self, at: usize, ended: Nanos, outcome: JobOutcome) -> JobEnd {
        let (vm, job) = self.running.remove(at);
        let end = JobEnd {
            vm,
            job,
            ended,
            late: ended.since(job.due()),
            outcome,
        };
        self.over.push_back(end);
        end
    }

    /// A request of so many bytes was answered, and was over at `ended`.
    pub fn answered(&mut self, done: &Done, len: u32, ended: Nanos) {
        if done.outcome.is_err() || !done.op.merges() {
            return;
        }
        let of_vm = self.running.iter().position(|running| running.0 == done.vm);
        let Some(at) = of_vm else { return };
        let job = &mut self.running[at].1;
        job.moved += u64::from(len);
        if job.moved >= job.bytes {
            self.ends(at, ended, JobOutcome::Done);
        }
    }

    /// The engine says that a job is over.
    ///
    /// # Errors
    /// When another one is, or none, or not so.
    pub fn ended(&mut self, end: &JobEnd) -> Verdict {
        let due = self.over.pop_front();
        ensure!(
            Jobs,
            due == Some(*end),
            "{end:?} is said to be over; what is next is {due:?}"
        );
        Ok(())
    }

    /// All jobs that are over were asked for.
    ///
    /// # Errors
    /// When one is missing.
    pub fn none_missing(&self) -> Verdict {
        let first = self.over.front();
        ensure!(Jobs, first.is_none(), "{first:?} was not heard of");
        Ok(())
    }

    /// What the engine says of a VM's job.
    ///
    /// # Errors
    /// When it is not as it stands.
    pub fn check(&self, now: Nanos, vm: VmId, said: Option<&JobStatus>) -> Verdict {
        let running = self.running.iter().find(|running| running.0 == vm);
        let (job, known) = (running.map(|running| running.1), said.map(|said| said.job));
        ensure!(
            Jobs,
            job == known,
            "the job of {vm:?} is {job:?}, and said to be {known:?}"
        );
        if let (Some(job), Some(status)) = (job, said)
            && let Some(bandwidth) = status.bandwidth
        {
            let forecast = job.forecast(now, bandwidth);
            ensure!(
                Jobs,
                status.forecast == forecast,
                "{job:?} at {bandwidth} B/s from {now} on is forecast {:?}, not {forecast:?}",
                status.forecast
            );
        }
        Ok(())
    }
}
