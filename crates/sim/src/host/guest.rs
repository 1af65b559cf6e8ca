//! Guests: what a worker (one copy of a job) does next.
//!
//! ```text
//!            Start            issue: room in its depth            answered
//!   planned -------> running ------------------------> outstanding --------+
//!                      ^  |                                                |
//!                      |  +-- closed loop: at once, or after a pause <-----+
//!                      |  +-- open loop, trace: when the next one comes    |
//!                      +---------------------------------------------------+
//! ```

use super::tasks::Tasks;
use rand_pcg::Pcg64Mcg;
use tidegate_core::request::Op;
use tidegate_core::time::Nanos;
use tidegate_workload::arrive::ArrivalClock;
use tidegate_workload::job::{Flow, Job, Think};
use tidegate_workload::replay::Mode;
use tidegate_workload::source::Source;
use tidegate_workload::stream::Io;

/// One copy of a job.
#[derive(Clone, Debug)]
pub(super) struct Worker {
    pub(super) tenant: u32,
    pub(super) source: Source,
    rng: Pcg64Mcg,
    flow: WorkerFlow,
    iodepth: u32,
    /// Flushes follow some of its writes.
    flushes: bool,
    /// Its next request, where that was looked up.
    ahead: Option<Io>,
    /// It pauses before that one.
    resting: bool,
    pub(super) outstanding: u32,
    life: Life,
    pub(super) start: Nanos,
    pub(super) runtime: Option<Nanos>,
    /// What it asks for in many requests, where that is followed.
    pub(super) tasks: Option<Box<Tasks>>,
    /// When it is to be woken; [`Nanos::MAX`]: not planned.
    wake_up: Nanos,
}

/// How far a worker has come. It never goes back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Life {
    Planned,
    Running,
    /// It asks for nothing more: its time is over, or it has done all it was to do.
    Over,
}

#[derive(Clone, Debug)]
enum WorkerFlow {
    Closed,
    /// `burst`: issued since the last pause; `paused`: a pause is planned.
    Thinking {
        think: Think,
        burst: u32,
        paused: bool,
    },
    /// `next`: when the next one comes.
    Open {
        clock: ArrivalClock,
        next: Nanos,
    },
    /// At a trace's times, from its start on.
    Timed {
        start: Nanos,
    },
}

/// What a worker does now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Step {
    /// It asks for this, and wanted to since then.
    Issue(Io, Nanos),
    /// Nothing before this time.
    At(Nanos),
    /// Nothing before its next answer, or ever.
    Wait,
}

impl Worker {
    pub(super) fn new(tenant: u32, job: &Job, source: Source, rng: Pcg64Mcg) -> Worker {
        let timed = (job.replay.as_ref()).is_some_and(|replay| replay.mode != Mode::NextWhenDone);
        let (flow, iodepth) = match &job.flow {
            Flow::Closed { iodepth, .. } if timed => {
                let start = Nanos::ZERO;
                (WorkerFlow::Timed { start }, *iodepth)
            }
            Flow::Closed {
                iodepth,
                think: None,
            } => (WorkerFlow::Closed, *iodepth),
            Flow::Closed {
                iodepth,
                think: Some(think),
            } => {
                let (think, burst, paused) = (think.clone(), 0, false);
                let flow = WorkerFlow::Thinking {
                    think,
                    burst,
                    paused,
                };
                (flow, *iodepth)
            }
            Flow::Open { arrivals, iodepth } => {
                let clock = ArrivalClock::new(arrivals, Nanos::ZERO);
                let next = Nanos::MAX;
                (WorkerFlow::Open { clock, next }, *iodepth)
            }
        };
        Worker {
            tenant,
            source,
            rng,
            flow,
            iodepth,
            flushes: job.fsync > 0,
            ahead: None,
            resting: false,
            outstanding: 0,
            life: Life::Planned,
            start: job.start,
            runtime: job.runtime,
            tasks: Tasks::of(job),
            wake_up: Nanos::MAX,
        }
    }

    /// It begins, unless it was stopped before.
    pub(super) fn start(&mut self, now: Nanos, job: &Job) {
        if self.life == Life::Over {
            return;
        }
        self.life = Life::Running;
        if let (WorkerFlow::Open { clock, next }, Flow::Open { arrivals, .. }) =
            (&mut self.flow, &job.flow)
        {
            *clock = ArrivalClock::new(arrivals, now);
            *next = clock.next(&mut self.rng);
        }
        if let WorkerFlow::Timed { start } = &mut self.flow {
            *start = now;
        }
    }

    /// It asks for nothing more.
    pub(super) fn stop(&mut self) {
        self.life = Life::Over;
    }

    pub(super) fn is_over(&self) -> bool {
        self.life == Life::Over
    }

    /// It was woken: a pause is over, or its next request comes.
    pub(super) fn woken(&mut self) {
        self.wake_up = Nanos::MAX;
        self.resting = false;
        if let WorkerFlow::Thinking { burst, paused, .. } = &mut self.flow {
            (*burst, *paused) = (0, false);
        }
    }

    /// One of its requests is over.
    pub(super) fn answered(&mut self) {
        self.outstanding -= 1;
    }

    /// Whether what it asks for next may be outstanding beside what is already. A guest that
    /// writes back looks at its next request first.
    fn may_issue(&mut self) -> bool {
        if let Source::Direct(_) = &self.source {
            return self.outstanding < self.iodepth;
        }
        if self.ahead.is_none() {
            self.ahead = self.source.next(&mut self.rng);
        }
        // With nothing left to ask for, the step after this one finds that out.
        self.ahead.is_none_or(|io| match io.waits {
            true => self.outstanding == 0,
            false => self.outstanding < self.source.depth(&io, self.iodepth),
        })
    }

    /// What it does now; to be asked until it does not issue any more. Says [`Step::At`] once
    /// for each time it is to be woken.
    pub(super) fn step(&mut self, now: Nanos) -> Step {
        if self.life != Life::Running || self.resting || !self.may_issue() {
            return Step::Wait;
        }
        if let Some(io) = &mut self.ahead
            && io.pause > Nanos::ZERO
        {
            self.resting = true;
            return Step::At(now + core::mem::take(&mut io.pause));
        }
        let since = match &mut self.flow {
            WorkerFlow::Closed => now,
            WorkerFlow::Thinking { paused: true, .. } => return Step::Wait,
            WorkerFlow::Thinking {
                think,
                burst,
                paused,
            } => {
                if *burst == think.blocks {
                    if self.outstanding > 0 {
                        return Step::Wait;
                    }
                    *paused = true;
                    self.wake_up = now + think.time.draw(&mut self.rng);
                    return Step::At(self.wake_up);
                }
                *burst += 1;
                now
            }
            WorkerFlow::Open { clock, next } => {
                if self.flushes && self.ahead.is_none() {
                    self.ahead = self.source.next(&mut self.rng);
                }
                if self.ahead.is_some_and(|io| io.op == Op::Flush) {
                    // It follows the write it makes durable, with no arrival of its own.
                    now
                } else if *next <= now {
                    core::mem::replace(next, clock.next(&mut self.rng))
                } else if self.wake_up == *next {
                    return Step::Wait;
                } else {
                    self.wake_up = *next;
                    return Step::At(*next);
                }
            }
            WorkerFlow::Timed { start } => match (&self.ahead, self.source.whole()) {
                (Some(_), Some(whole)) if *start + whole.at > now => {
                    let at = *start + whole.at;
                    if self.wake_up == at {
                        return Step::Wait;
                    }
                    self.wake_up = at;
                    return Step::At(at);
                }
                (Some(_), Some(whole)) => *start + whole.at,
                _ => now,
            },
        };
        let ahead = self.ahead.take();
        match ahead.or_else(|| self.source.next(&mut self.rng)) {
            Some(io) => {
                self.outstanding += 1;
                if self.ahead.is_none() && self.source.is_over() {
                    self.life = Life::Over;
                }
                Step::Issue(io, since)
            }
            None => {
                self.life = Life::Over;
                Step::Wait
            }
        }
    }
}
