//! Jobs of VMs: they begin, move and end, whatever the policy.

use super::{Engine, EngineError};
use crate::facts::{Facts, Life};
use crate::roles::Event;
use core::ops::Range;
use tidegate_base::learnt::{Blob, BlobError};
use tidegate_base::request::VmId;
use tidegate_base::time::Nanos;
use tidegate_capacity::jobs::{
    Admission, Book, Capacity, Class, DeviceTime, Forecast, JobEnd, JobOutcome, JobSpec, JobStatus,
    JobTerms, Standing,
};
use tidegate_capacity::profile::{Access, Direction, Profile};

impl Engine {
    /// A VM is to move so many bytes in time, from now on: reads and writes that are answered well count. A
    /// job that it had before is over, cancelled. Policies that turn classes for jobs (`pridyn`) see to it
    /// that it ends in time, as far as that can be; under the others it is forecast all the same.
    ///
    /// # Errors
    /// When there is no such VM, it is a background tenant, or the job has no bytes or no time. Then nothing
    /// has changed.
    pub fn begin_job(
        &mut self,
        now: Nanos,
        vm: VmId,
        job: &JobSpec,
    ) -> Result<JobStatus, EngineError> {
        self.start_job(now, vm, job)?;
        self.emit(&Event::JobsChanged);
        self.job(now, vm)
            .ok_or(EngineError::Unknown { what: "the job" })
    }

    /// The same of a job that an admission controller let in on these terms: a policy that turns classes for
    /// jobs takes them over as they are, and looks again when something changes.
    ///
    /// # Errors
    /// As [`Engine::begin_job`], and when a VM that is to be lowered is not there.
    pub fn begin_admitted_job(
        &mut self,
        now: Nanos,
        vm: VmId,
        job: &JobSpec,
        terms: &Admission,
    ) -> Result<JobStatus, EngineError> {
        let mut lowered = terms.lowered.iter();
        lowered.try_for_each(|(vm, _)| self.check_vm(*vm))?;
        self.start_job(now, vm, job)?;
        self.emit(&Event::JobAdmitted { vm, terms });
        self.job(now, vm)
            .ok_or(EngineError::Unknown { what: "the job" })
    }

    /// A job begins, in place of any that the VM had.
    fn start_job(&mut self, now: Nanos, vm: VmId, job: &JobSpec) -> Result<(), EngineError> {
        self.advance(now);
        self.check_vm(vm)?;
        check(job)?;
        if self.facts.is_background(vm) {
            return Err(EngineError::BackgroundJob);
        }
        self.finish_job(vm.index, JobOutcome::Cancelled);
        let (now, device) = (self.facts.now, self.device_time());
        self.keep_jobs();
        self.tell_moved(0..self.facts.vms.len());
        let Facts { jobs, vms, .. } = &mut self.facts;
        if let Some(book) = jobs {
            if book.sleeps() {
                let interval = book.interval();
                let moved_nothing = |slot: usize| {
                    let since = vms[slot].quiet_since;
                    let long = since == Nanos::MAX || now.since(since) >= interval;
                    vms[slot].requests == 0 && long
                };
                book.wake(now, device, moved_nothing);
            }
            book.begin(now, vm, job);
            self.measure_at = book.due();
        }
        self.facts.vms[vm.index()].has_job = true;
        self.emit(&Event::JobBegan(vm));
        Ok(())
    }

    /// A VM's job is not wanted any more. Returns how far it came; `None`: the VM had none.
    ///
    /// # Errors
    /// When there is no such VM.
    pub fn end_job(&mut self, now: Nanos, vm: VmId) -> Result<Option<JobEnd>, EngineError> {
        self.advance(now);
        self.check_vm(vm)?;
        let end = self.finish_job(vm.index, JobOutcome::Cancelled);
        self.look_at_jobs(end.is_some());
        Ok(end)
    }

    /// How a VM's job stands, under any policy; `None`: it has none, or there is no such VM.
    pub fn job(&self, now: Nanos, vm: VmId) -> Option<JobStatus> {
        self.check_vm(vm).ok()?;
        let (who, now) = (vm.index(), now.max(self.facts.now));
        let predictor = self.facts.predictor()?;
        let job = *predictor.job(who)?;
        let unknown = || Forecast {
            done: job.due(),
            early: Nanos::ZERO,
            late: Nanos::ZERO,
        };
        let standing = self.standing(vm);
        Some(JobStatus {
            job,
            bandwidth: predictor.bandwidth(who),
            forecast: predictor.forecast(who, now).unwrap_or_else(unknown),
            class: standing.class,
            given_up: standing.given_up,
            possible: predictor.is_possible(who, now),
        })
    }

    /// The next job that is over, the oldest first: done, or cancelled in whichever way. A driver that never
    /// asks loses the oldest of more than a thousand.
    pub fn poll_job_end(&mut self) -> Option<JobEnd> {
        self.facts.jobs.as_mut()?.poll_end()
    }

    /// What the device does in all with so many VMs that use it, in bytes a second: MaxBW - BWloss(N), as far as
    /// that is known. 0: nothing is.
    pub fn total_bandwidth(&self, users: usize) -> u64 {
        if let Some(predictor) = self.facts.predictor() {
            return predictor.capacity().of(users);
        }
        let (terms, mut capacity) = (self.job_terms(), Capacity::learnt(self.said_bandwidth()));
        capacity.give(terms.max_bandwidth, terms.bandwidth_loss);
        capacity.of(users)
    }

    /// What the device does for one VM at best, in bytes a second: no job is possible that needs more, as far as that is
    /// known. 0: nothing is.
    pub fn best_bandwidth(&self) -> u64 {
        if let Some(predictor) = self.facts.predictor() {
            return predictor.capacity().best();
        }
        let (terms, mut capacity) = (self.job_terms(), Capacity::learnt(self.said_bandwidth()));
        capacity.say_best(self.best_bandwidth);
        capacity.give(terms.max_bandwidth, terms.bandwidth_loss);
        capacity.best()
    }

    /// One VM has so many bytes a second at best, wherever on the device: [`DeviceSpec::bytes_per_s`] is what it has
    /// everywhere. 0: not known.
    ///
    /// [`DeviceSpec::bytes_per_s`]: tidegate_base::device::DeviceSpec::bytes_per_s
    pub fn say_best_bandwidth(&mut self, bytes_per_s: u64) {
        self.best_bandwidth = bytes_per_s;
        if let Some(book) = &mut self.facts.jobs {
            book.predictor_mut().capacity_mut().say_best(bytes_per_s);
        }
    }

    /// How many VMs use the device, and this one: they have a job, have something outstanding, or had in the last
    /// interval.
    pub fn users_with(&self, now: Nanos, vm: VmId) -> usize {
        let interval = self.job_terms().interval;
        let uses = |&slot: &usize| {
            let of_vm = &self.facts.vms[slot];
            let lately = of_vm.quiet_since < Nanos::MAX && now.since(of_vm.quiet_since) < interval;
            slot != vm.index() && (of_vm.has_job || of_vm.requests > 0 || lately)
        };
        let slots = (0..self.facts.vms.len()).filter(|&slot| self.may_have_job(slot));
        1 + slots.filter(uses).count()
    }

    /// What was learnt of the device's total bandwidth by how many use it, to be kept beyond the engine's
    /// life; `None`: nothing was. It is learnt while jobs run.
    pub fn export_bandwidths(&self) -> Option<Blob> {
        self.facts.predictor()?.capacity().export()
    }

    /// Goes on with what was learnt of this device before.
    ///
    /// # Errors
    /// When it is not that. Then nothing has changed.
    pub fn import_bandwidths(&mut self, learnt: &Blob) -> Result<(), BlobError> {
        self.keep_jobs();
        match &mut self.facts.jobs {
            Some(book) => book.predictor_mut().capacity_mut().import(learnt),
            None => Ok(()),
        }
    }

    /// The class of a VM just now, whether it has a job or not: the controller's where that turns classes for
    /// jobs, or its objective's where the policy keeps to that. Panics on a handle that was never given out.
    pub fn standing(&self, vm: VmId) -> Standing {
        let of_controller = self.roles.controller.as_ref();
        let of_controller = of_controller.and_then(|controller| controller.standing(vm));
        of_controller.unwrap_or_else(|| Standing {
            class: match self.policy.honours().priority {
                true => self.facts.objective(vm).priority.into(),
                false => Class::BestEffort,
            },
            given_up: false,
        })
    }

    /// From the first job on there is a book of them.
    fn keep_jobs(&mut self) {
        if self.facts.jobs.is_some() {
            return;
        }
        let (now, alone) = (self.facts.now, self.said_bandwidth());
        let mut book = Book::new(now, alone, self.job_terms(), self.device_time());
        (book.predictor_mut().capacity_mut()).say_best(self.best_bandwidth);
        for slot in (0..self.facts.vms.len()).filter(|&slot| self.may_have_job(slot)) {
            book.predictor_mut().add(now, slot);
        }
        self.facts.jobs = Some(Box::new(book));
    }

    /// A VM is there, or not quite gone, that is no background tenant.
    fn may_have_job(&self, slot: usize) -> bool {
        let of_vm = &self.facts.vms[slot];
        of_vm.life != Life::Free && !of_vm.background
    }

    fn job_terms(&self) -> JobTerms {
        let controller = self.roles.controller.as_ref();
        controller.map_or_else(JobTerms::default, |controller| controller.job_terms())
    }

    /// What one is said to have who uses the device alone, in bytes a second; 0: nothing is said.
    fn said_bandwidth(&self) -> u64 {
        match self.config.device.bytes_per_s {
            0 => self.facts.profile().map_or(0, best_bandwidth),
            bytes_per_s => bytes_per_s,
        }
    }

    /// Another profile says something else of the device.
    pub(super) fn jobs_profile_changed(&mut self) {
        let alone = self.said_bandwidth();
        if let Some(book) = &mut self.facts.jobs {
            book.predictor_mut().capacity_mut().say(alone);
        }
    }

    fn device_time(&self) -> DeviceTime {
        DeviceTime::of(&self.facts.device, self.facts.now, self.deliberate_time())
    }

    /// A VM has come.
    pub(super) fn expect_jobs(&mut self, vm: VmId) {
        let now = self.facts.now;
        if self.may_have_job(vm.index())
            && let Some(book) = &mut self.facts.jobs
        {
            book.predictor_mut().add(now, vm.index());
        }
    }

    /// A VM is gone.
    pub(super) fn expect_no_jobs(&mut self, vm: VmId) {
        if let Some(book) = &mut self.facts.jobs {
            book.predictor_mut().remove(vm.index());
        }
    }

    /// Another policy has taken over, and is told of the jobs that run.
    pub(super) fn hand_jobs_on(&mut self) {
        let terms = self.job_terms();
        let Some(book) = &mut self.facts.jobs else {
            return;
        };
        book.set_terms(terms);
        self.measure_at = book.due();
        for slot in 0..self.facts.vms.len() {
            if self.facts.vms[slot].has_job {
                let vm = self.facts.vm_at(slot);
                self.emit(&Event::JobBegan(vm));
            }
        }
    }

    /// The job of the VM in a slot is over, if it has one.
    #[cold]
    #[inline(never)]
    pub(super) fn finish_job(&mut self, slot: u32, outcome: JobOutcome) -> Option<JobEnd> {
        let of_vm = &mut self.facts.vms[slot as usize];
        if !core::mem::take(&mut of_vm.has_job) {
            return None;
        }
        let (now, vm) = (self.facts.now, of_vm.id(slot));
        let end = self.facts.jobs.as_mut()?.end(now, vm, outcome);
        self.emit(&Event::JobEnded(vm));
        end
    }

    /// A job is over, and everything that follows from that alone is done.
    pub(super) fn look_at_jobs(&mut self, is_over: bool) {
        if is_over {
            self.emit(&Event::JobsChanged);
        }
    }

    /// A VM's class is another one: what it had before says nothing of what it has now.
    pub(super) fn class_turned(&mut self, vm: VmId) {
        let now = self.facts.now;
        self.tell_moved(vm.index()..vm.index() + 1);
        if let Some(book) = &mut self.facts.jobs {
            book.predictor_mut().turned(now, vm.index());
        }
    }

    /// Tells the book what VMs have moved in all.
    fn tell_moved(&mut self, slots: Range<usize>) {
        let Facts {
            jobs, vms, ledgers, ..
        } = &mut self.facts;
        let Some(book) = jobs else { return };
        for slot in slots.filter(|&slot| vms[slot].life != Life::Free) {
            let (of_vm, ledger) = (&vms[slot], &ledgers[slot]);
            let total = ledger.read(of_vm.arrived, of_vm.answered).total_bytes();
            book.predictor_mut().has_moved(slot, total);
        }
    }

    /// It is time to see what everybody has.
    #[cold]
    pub(super) fn measure_jobs(&mut self) {
        let (now, device) = (self.facts.now, self.device_time());
        self.tell_moved(0..self.facts.vms.len());
        if let Some(book) = &mut self.facts.jobs {
            book.measure(now, device);
            self.measure_at = book.due();
        }
        self.emit(&Event::JobsChanged);
    }
}

fn check(job: &JobSpec) -> Result<(), EngineError> {
    let positive = |what, value, allowed| match value {
        0 => Err(EngineError::Config {
            what,
            value,
            allowed,
        }),
        _ => Ok(()),
    };
    positive("bytes of the job", job.bytes, "at least 1")?;
    positive("deadline of the job", job.deadline.0, "at least 1 ns")
}

/// The most that a device does by its profile: of any kind and size that was measured.
fn best_bandwidth(profile: &Profile) -> u64 {
    let kinds = [Direction::Read, Direction::Write]
        .into_iter()
        .flat_map(|direction| {
            [Access::Sequential, Access::Random].map(|access| (direction, access))
        });
    let points = kinds.flat_map(|(direction, access)| profile.curve(direction, access).points());
    let bandwidth = |&(bytes, time_ps): &(u32, u64)| {
        let per_s = u128::from(bytes) * 1_000_000_000_000 / u128::from(time_ps.max(1));
        u64::try_from(per_s).unwrap_or(u64::MAX)
    };
    points.map(bandwidth).max().unwrap_or(0)
}
