//! Who has a job and which bandwidth, and what follows: steps 1 to 5 of figure 3.3.

use super::{Capacity, Forecast, Job};
use tidegate_base::objective::Rate;
use tidegate_base::time::Nanos;

/// Somebody who uses the device.
#[derive(Clone, Debug, Default)]
struct Process {
    job: Option<Job>,
    /// What it takes at most, in bytes a second, whatever it is given; `None`: all of it, as far as
    /// is known.
    limit: Option<u64>,
    /// B: what it moved a second in the last interval; `None`: not measured yet.
    bandwidth: Option<u64>,
    /// Bytes it has moved in all, as far as was told.
    total: u64,
    /// The same when what is measured of it began, and when that was: the interval, or its job.
    before: u64,
    since: Nanos,
    /// The same at the interval's begin.
    at_begin: u64,
}

/// Measures what everybody has, an interval at a time, and forecasts when jobs will be done.
///
/// Who uses the device is a number, small and used again.
#[derive(Clone, Debug)]
pub struct Predictor {
    processes: Vec<Option<Process>>,
    capacity: Capacity,
    /// When the interval began that runs.
    since: Nanos,
    /// All who used the device in it are there still.
    whole: bool,
}

impl Predictor {
    /// Nobody uses the device yet.
    pub fn new(now: Nanos, capacity: Capacity) -> Predictor {
        Predictor {
            processes: Vec::new(),
            capacity,
            since: now,
            whole: true,
        }
    }

    /// What the device does in all.
    pub fn capacity(&self) -> &Capacity {
        &self.capacity
    }

    /// The same, to be changed.
    pub fn capacity_mut(&mut self) -> &mut Capacity {
        &mut self.capacity
    }

    /// When the interval began that runs.
    pub fn since(&self) -> Nanos {
        self.since
    }

    /// Somebody comes who has moved nothing so far; `who` is nobody yet.
    pub fn add(&mut self, now: Nanos, who: usize) {
        if self.processes.len() <= who {
            self.processes.resize(who + 1, None);
        }
        self.processes[who] = Some(Process {
            since: now,
            ..Process::default()
        });
    }

    /// Somebody goes, with its job.
    pub fn remove(&mut self, who: usize) {
        if let Some(slot) = self.processes.get_mut(who) {
            self.whole &= slot.take().is_none();
        }
    }

    fn process(&self, who: usize) -> Option<&Process> {
        self.processes.get(who)?.as_ref()
    }

    fn process_mut(&mut self, who: usize) -> Option<&mut Process> {
        self.processes.get_mut(who)?.as_mut()
    }

    /// The job of somebody.
    pub fn job(&self, who: usize) -> Option<&Job> {
        self.process(who)?.job.as_ref()
    }

    /// What somebody moved a second in the last interval; `None`: it was not measured yet.
    pub fn bandwidth(&self, who: usize) -> Option<u64> {
        self.process(who)?.bandwidth
    }

    /// Somebody takes so many bytes a second at most, whatever it is given; `None`: all that it is
    /// given.
    pub fn set_limit(&mut self, who: usize, limit: Option<u64>) {
        if let Some(process) = self.process_mut(who) {
            process.limit = limit;
        }
    }

    /// What somebody has who has the whole device to itself, as far as is known: 0 where that is
    /// not.
    pub(super) fn of_the_whole(&self, who: usize) -> u64 {
        let limit = self.process(who).and_then(|process| process.limit);
        self.capacity.of(1).min(limit.unwrap_or(u64::MAX))
    }

    /// A job begins, in place of any before. `carry`: it begins with what its owner had in the last
    /// interval; else nothing is known of it yet.
    pub fn begin(&mut self, who: usize, job: Job, carry: bool) {
        let Some(process) = self.process_mut(who) else {
            return;
        };
        process.job = Some(job);
        if !carry {
            process.bandwidth = None;
            (process.before, process.since) = (process.total, job.begun);
        }
    }

    /// A job is over.
    pub fn end(&mut self, who: usize) -> Option<Job> {
        self.process_mut(who)?.job.take()
    }

    /// So many bytes of somebody have moved. Returns whether its job is done with them.
    pub fn moved(&mut self, who: usize, bytes: u64) -> bool {
        if let Some(process) = self.process_mut(who) {
            process.total = process.total.saturating_add(bytes);
        }
        self.job_moved(who, bytes)
    }

    /// The same, where [`Predictor::has_moved`] tells of all that moves before it is measured.
    #[inline]
    pub fn job_moved(&mut self, who: usize, bytes: u64) -> bool {
        let job = self.process_mut(who).and_then(|of| of.job.as_mut());
        job.is_some_and(|job| {
            job.moved = job.moved.saturating_add(bytes);
            job.left() == 0
        })
    }

    /// So many bytes have moved of somebody, in all.
    pub fn has_moved(&mut self, who: usize, total: u64) {
        if let Some(process) = self.process_mut(who) {
            process.total = total;
        }
    }

    /// Somebody's class is another one: what it had before says nothing of what it has now.
    pub fn turned(&mut self, now: Nanos, who: usize) {
        if let Some(process) = self.process_mut(who) {
            process.bandwidth = None;
            (process.before, process.since) = (process.total, now);
        }
    }

    /// Measuring begins anew, after a time in which nobody did. `is_quiet`: who moved nothing of
    /// late.
    pub fn restart(&mut self, now: Nanos, is_quiet: impl Fn(usize) -> bool) {
        (self.since, self.whole) = (now, true);
        for (who, process) in self.processes.iter_mut().enumerate() {
            if let Some(process) = process {
                process.bandwidth = is_quiet(who).then_some(0);
                (process.before, process.at_begin) = (process.total, process.total);
                process.since = now;
            }
        }
    }

    /// An interval is over: what moved in it is what everybody has. Of a job that began in its last
    /// two thirds nothing is known yet. `busy`: they kept the device busy all the time, so that it
    /// is learnt what it does.
    pub fn measure(&mut self, now: Nanos, busy: bool) {
        let interval = now.since(self.since);
        if busy && self.whole && interval > Nanos::ZERO {
            let (users, bytes_per_s) = self.usage(interval);
            if users > 0 {
                self.capacity.learn(users, bytes_per_s);
            }
        }
        for process in self.processes.iter_mut().flatten() {
            process.at_begin = process.total;
            let length = now.since(process.since);
            if length.0.saturating_mul(3) < interval.0 || length == Nanos::ZERO {
                continue;
            }
            process.bandwidth = Some(per_s(process.total - process.before, length));
            (process.before, process.since) = (process.total, now);
        }
        (self.since, self.whole) = (now, true);
    }

    /// How many shared the interval that is over, and what they had together. Who had little counts
    /// for little: so many as would, with even shares, have a sum of squares like theirs.
    fn usage(&self, interval: Nanos) -> (usize, u64) {
        // In kilobytes, so that no square of a sum is too large.
        let moved = |process: &Process| {
            let bytes_per_s = per_s(process.total - process.at_begin, interval);
            u128::from((bytes_per_s / 1000).min(u64::from(u32::MAX)))
        };
        let shares = || self.processes.iter().flatten().map(moved);
        let (sum, squares) = (
            shares().sum::<u128>(),
            shares().map(|share| share * share).sum::<u128>(),
        );
        match squares {
            0 => (0, 0),
            _ => {
                let users = (sum * sum + squares / 2) / squares;
                let bytes_per_s = u64::try_from(sum * 1000).unwrap_or(u64::MAX);
                (users as usize, bytes_per_s.min(Rate::MAX))
            }
        }
    }

    /// It has a job, or it asked for something in the last interval: the others take nothing from
    /// anybody.
    pub(super) fn is_active(&self, who: usize) -> bool {
        self.process(who).is_some_and(Process::is_active)
    }

    /// What somebody has: what was measured, or its part of what the device does with so many.
    /// `None`: neither is known.
    fn expected(&self, process: &Process) -> Option<u64> {
        let share = || {
            let active = self.processes.iter().flatten().filter(|of| of.is_active());
            let active = active.count().max(1);
            let all = self.capacity.of(active);
            (all > 0).then(|| all / active as u64)
        };
        process.bandwidth.or_else(share)
    }

    /// What comes of somebody's job at the bandwidth that it has; `None`: it has no job, or nothing
    /// is known yet of what it has.
    pub fn forecast(&self, who: usize, now: Nanos) -> Option<Forecast> {
        let process = self.process(who)?;
        let job = process.job.as_ref()?;
        Some(job.forecast(now, self.expected(process)?))
    }

    /// Whether somebody's job is in time if it has the whole device from `now` on, as far as is
    /// known.
    pub fn is_possible(&self, who: usize, now: Nanos) -> bool {
        let limit = self.process(who).and_then(|process| process.limit);
        let whole = self.capacity.best().min(limit.unwrap_or(u64::MAX));
        match self.process(who).and_then(|of| of.job.zip(Some(of))) {
            Some((job, process)) if whole > 0 => {
                let most = whole.max(process.bandwidth.unwrap_or(0));
                job.forecast(now, most).late == Nanos::ZERO
            }
            _ => true,
        }
    }
}

impl Process {
    fn is_active(&self) -> bool {
        self.job.is_some() || self.bandwidth != Some(0)
    }
}

fn per_s(bytes: u64, length: Nanos) -> u64 {
    let bytes = u128::from(bytes) * u128::from(Nanos::SECOND.0);
    u64::try_from(bytes / u128::from(length.0)).unwrap_or(u64::MAX)
}
