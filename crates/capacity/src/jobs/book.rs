//! The engine's book of jobs: those that run, those that are over, when they are measured next.

use super::{Capacity, Job, JobEnd, JobOutcome, JobSpec, JobTerms, Predictor};
use std::collections::VecDeque;
use tidegate_base::device::DeviceFacts;
use tidegate_base::request::VmId;
use tidegate_base::time::Nanos;

/// So many jobs that are over wait to be asked for; then the oldest is lost.
const ENDS: usize = 1024;
/// The device was busy if no more than one part in so many of an interval was nobody's.
const BUSY: u64 = 20;

/// What an interval's time of the device is told by.
#[derive(Clone, Copy, Debug)]
pub struct DeviceTime {
    /// Time without anything in flight, in all.
    idle: Nanos,
    /// Time in which the dispatcher left room unused on purpose, in all.
    deliberate: Nanos,
    ended: u64,
    of_background: u64,
}

impl DeviceTime {
    /// As it stands; `deliberate` up to now.
    pub fn of(device: &DeviceFacts, now: Nanos, deliberate: Nanos) -> DeviceTime {
        DeviceTime {
            idle: device.idle_time(now),
            deliberate,
            ended: device.ended,
            of_background: device.background.ended,
        }
    }

    /// Whether VMs kept the device busy since then, so long: what was waited for on purpose was
    /// theirs, too.
    fn was_busy(&self, then: &DeviceTime, long: Nanos) -> bool {
        let idle = self.idle.since(then.idle);
        let idle = idle.since(self.deliberate.since(then.deliberate));
        let background = self.of_background - then.of_background;
        idle.0.saturating_mul(BUSY) <= long.0
            && background.saturating_mul(BUSY) <= self.ended - then.ended
    }
}

/// Transfers of one engine, as [`crate::jobs`] says. Made with the first transfer.
pub struct Book {
    predictor: Predictor,
    ends: VecDeque<JobEnd>,
    terms: JobTerms,
    /// Jobs that run.
    running: usize,
    /// Some job ran in the interval that runs.
    ran: bool,
    /// What moves is measured.
    awake: bool,
    began_with: DeviceTime,
}

impl Book {
    /// Of a device that is said to do so many bytes a second for one VM; 0: nothing is said. It
    /// sleeps.
    pub fn new(now: Nanos, alone: u64, terms: JobTerms, device: DeviceTime) -> Book {
        let mut book = Book {
            predictor: Predictor::new(now, Capacity::learnt(alone)),
            ends: VecDeque::new(),
            terms,
            running: 0,
            ran: false,
            awake: false,
            began_with: device,
        };
        book.set_terms(terms);
        book
    }

    /// Bandwidth measurements and forecasts of all VMs with transfers.
    pub fn predictor(&self) -> &Predictor {
        &self.predictor
    }

    /// Bandwidth measurements and forecasts of all VMs with transfers, to be fed.
    pub fn predictor_mut(&mut self) -> &mut Predictor {
        &mut self.predictor
    }

    /// Another policy measures otherwise.
    pub fn set_terms(&mut self, terms: JobTerms) {
        self.terms = terms;
        let capacity = self.predictor.capacity_mut();
        capacity.give(terms.max_bandwidth, terms.bandwidth_loss);
    }

    /// When to measure next; [`Nanos::MAX`] while it sleeps.
    pub fn due(&self) -> Nanos {
        match self.awake {
            true => self.predictor.since() + self.terms.interval,
            false => Nanos::MAX,
        }
    }

    /// For how long what moved is measured.
    pub fn interval(&self) -> Nanos {
        self.terms.interval
    }

    /// It sleeps: nobody had a job for a whole interval, so nothing is measured.
    pub fn sleeps(&self) -> bool {
        !self.awake
    }

    /// Measuring begins anew. `is_quiet`: who moved nothing for an interval.
    pub fn wake(&mut self, now: Nanos, device: DeviceTime, is_quiet: impl Fn(usize) -> bool) {
        (self.awake, self.began_with) = (true, device);
        self.predictor.restart(now, is_quiet);
    }

    /// A job begins, of a VM that has none.
    pub fn begin(&mut self, now: Nanos, vm: VmId, spec: &JobSpec) {
        let job = Job {
            bytes: spec.bytes,
            begun: now,
            deadline: spec.deadline,
            moved: 0,
        };
        self.predictor.begin(vm.index(), job, self.terms.carry);
        self.running += 1;
        self.ran = true;
        // Room for all that run, so that none allocates when it ends.
        let room = (self.ends.len() + self.running).min(ENDS);
        self.ends.reserve(room.saturating_sub(self.ends.len()));
    }

    /// So many bytes of a VM with a job were answered well. Returns whether it is done with them.
    #[inline]
    pub fn moved(&mut self, vm: usize, bytes: u32) -> bool {
        self.predictor.job_moved(vm, bytes.into())
    }

    /// A VM's job is over.
    pub fn end(&mut self, now: Nanos, vm: VmId, outcome: JobOutcome) -> Option<JobEnd> {
        let job = self.predictor.end(vm.index())?;
        self.running -= 1;
        let end = JobEnd {
            vm,
            job,
            ended: now,
            late: now.since(job.due()),
            outcome,
        };
        if self.ends.len() == ENDS {
            self.ends.pop_front();
        }
        self.ends.push_back(end);
        Some(end)
    }

    /// The oldest that is over and was not asked for.
    pub fn poll_end(&mut self) -> Option<JobEnd> {
        self.ends.pop_front()
    }

    /// An interval is over; what each VM has moved in all was told before.
    pub fn measure(&mut self, now: Nanos, device: DeviceTime) {
        let long = now.since(self.predictor.since());
        // One that the driver ended far too late says what a stall does, not the device.
        let in_time = long.0
            <= self
                .terms
                .interval
                .0
                .saturating_add(self.terms.interval.0 / 4);
        let busy = in_time && device.was_busy(&self.began_with, long);
        self.predictor.measure(now, busy);
        self.began_with = device;
        self.awake = core::mem::replace(&mut self.ran, self.running > 0);
    }
}
