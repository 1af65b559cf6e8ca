//! Workers: one for each copy of a workload, with the time of its next request.
//!
//! ```text
//!            Start            issue: room in its depth            answered
//!   planned -------> running ------------------------> outstanding --------+
//!                      ^  |                                                |
//!                      |  +-- closed loop: at once, or after a pause <-----+
//!                      |  +-- open loop, trace: when the next one comes    |
//!                      +---------------------------------------------------+
//! ```

use super::thoughts::Thoughts;
use super::transfers::{Transfer, Transfers};
use rand_pcg::Pcg64Mcg;
use tidegate_core::request::Op;
use tidegate_core::time::Nanos;
use tidegate_workload::arrival_process::ArrivalClock;
use tidegate_workload::replay::Mode;
use tidegate_workload::source::Source;
use tidegate_workload::spec::{Flow, Think, Workload};
use tidegate_workload::stream::Io;

/// One copy of a workload.
#[derive(Clone, Debug)]
pub(super) struct Worker {
    /// VM of the worker, as an index into the device's.
    vm: u32,
    source: Source,
    rng: Pcg64Mcg,
    flow: WorkerFlow,
    iodepth: u32,
    /// `true` if flushes follow some of its writes.
    flushes: bool,
    /// Next request, where that was looked up.
    ahead: Option<Io>,
    /// `true` while the worker pauses before the request in `ahead`.
    resting: bool,
    /// Requests issued and not over.
    outstanding: u32,
    life: Life,
    /// Time from the VM's arrival to the worker's start.
    start: Nanos,
    runtime: Option<Nanos>,
    /// Transfers of the worker; `None` where it has none.
    transfers: Option<Box<Transfers>>,
    /// Time of the planned wake-up; [`Nanos::MAX`] if none is planned.
    wake_up: Nanos,
}

/// Stage of a worker's life. It never goes back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Life {
    Planned,
    Running,
    /// The worker issues nothing more: its time is over, or its workload is complete.
    Over,
}

#[derive(Clone, Debug)]
enum WorkerFlow {
    Closed,
    /// Closed loop with pauses. `burst`: requests issued since the last pause; `paused`: a pause is
    /// planned.
    Thinking {
        think: Think,
        burst: u32,
        paused: bool,
    },
    /// Open loop. `next`: time of the next request.
    Open {
        clock: ArrivalClock,
        next: Nanos,
    },
    /// Replay at a trace's times, relative to `start`.
    Timed {
        start: Nanos,
    },
    /// Replay with a think time before each request, as many at once as the depth.
    Thoughts(Thoughts),
}

/// Next step of a worker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Step {
    /// Issue this request, which the worker has wanted since the time.
    Issue(Io, Nanos),
    /// Nothing to issue before this time.
    At(Nanos),
    /// Nothing to issue before the next answer, or ever.
    Wait,
}

impl Worker {
    /// Worker of a VM, by the VM's index, that has not begun.
    pub(super) fn new(vm: u32, workload: &Workload, source: Source, rng: Pcg64Mcg) -> Worker {
        // A replay has a closed flow in its description, whose `iodepth` bounds its pieces.
        let mode = workload.replay.as_ref().map(|replay| replay.mode);
        let (flow, iodepth) = match &workload.flow {
            Flow::Closed { iodepth, .. } if matches!(mode, Some(Mode::Timed(_))) => {
                let start = Nanos::ZERO;
                (WorkerFlow::Timed { start }, *iodepth)
            }
            Flow::Closed { iodepth, .. } if matches!(mode, Some(Mode::Thinking(_))) => {
                (WorkerFlow::Thoughts(Thoughts::default()), *iodepth)
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
                // A stand-in until `start`, which knows the time.
                let clock = ArrivalClock::new(arrivals, Nanos::ZERO);
                let next = Nanos::MAX;
                (WorkerFlow::Open { clock, next }, *iodepth)
            }
        };
        Worker {
            vm,
            source,
            rng,
            flow,
            iodepth,
            flushes: workload.fsync > 0,
            ahead: None,
            resting: false,
            outstanding: 0,
            life: Life::Planned,
            start: workload.start,
            runtime: workload.runtime,
            transfers: Transfers::of_workload(workload),
            wake_up: Nanos::MAX,
        }
    }

    /// Begins the workload, unless the worker was stopped before.
    pub(super) fn start(&mut self, now: Nanos, workload: &Workload) {
        // Its VM may have left before the workload was to begin.
        if self.life == Life::Over {
            return;
        }
        self.life = Life::Running;
        if let (WorkerFlow::Open { clock, next }, Flow::Open { arrivals, .. }) =
            (&mut self.flow, &workload.flow)
        {
            *clock = ArrivalClock::new(arrivals, now);
            *next = clock.next(&mut self.rng);
        }
        if let WorkerFlow::Timed { start } = &mut self.flow {
            *start = now;
        }
    }

    /// Stops the worker: it issues nothing more.
    pub(super) fn stop(&mut self) {
        self.life = Life::Over;
    }

    /// True once the worker issues nothing more; its last requests may be outstanding.
    pub(super) fn is_over(&self) -> bool {
        self.life == Life::Over
    }

    /// Handles a wake-up: a pause is over, or the next request is due.
    pub(super) fn woken(&mut self) {
        self.wake_up = Nanos::MAX;
        self.resting = false;
        if let WorkerFlow::Thinking { burst, paused, .. } = &mut self.flow {
            (*burst, *paused) = (0, false);
        }
    }

    /// Counts a request that is over, answered or not.
    pub(super) fn request_over(&mut self) {
        self.outstanding -= 1;
    }

    /// Returns `true` if the next request may be issued beside those outstanding. With a page cache
    /// this depends on the next request itself, which is drawn first.
    fn may_issue(&mut self) -> bool {
        if let Source::Direct(_) = &self.source {
            // Drawn requests need not be looked at, which is the case of nearly all workloads.
            return self.outstanding < self.iodepth;
        }
        if self.ahead.is_none() {
            self.ahead = self.source.next(&mut self.rng);
        }
        // At the end of the workload `step` notices that nothing is left.
        self.ahead.is_none_or(|io| {
            if io.waits {
                self.outstanding == 0
            } else {
                self.outstanding < self.source.depth(&io, self.iodepth)
            }
        })
    }

    /// Next step at `now`; to be asked until it issues nothing. Returns [`Step::At`] once for each
    /// time at which it is to be woken.
    pub(super) fn step(&mut self, now: Nanos) -> Step {
        if let WorkerFlow::Thoughts(_) = self.flow {
            return self.think(now);
        }
        if self.life != Life::Running || self.resting || !self.may_issue() {
            return Step::Wait;
        }
        // The pause is taken out of the request, so that it is made once.
        if let Some(io) = &mut self.ahead
            && io.pause > Nanos::ZERO
        {
            self.resting = true;
            return Step::At(now + core::mem::take(&mut io.pause));
        }
        let since = match self.wanted(now) {
            Ok(since) => since,
            Err(wait) => return wait,
        };
        let ahead = self.ahead.take();
        let Some(io) = ahead.or_else(|| self.source.next(&mut self.rng)) else {
            self.life = Life::Over;
            return Step::Wait;
        };
        self.outstanding += 1;
        // Known at the last request rather than one later, so that its answer ends the workload.
        if self.ahead.is_none() && self.source.is_over() {
            self.life = Life::Over;
        }
        Step::Issue(io, since)
    }

    /// Next step of a replay with think times: each end lets the next request come.
    fn think(&mut self, now: Nanos) -> Step {
        let WorkerFlow::Thoughts(thoughts) = &mut self.flow else {
            unreachable!("only such a replay thinks");
        };
        if self.life != Life::Running {
            return Step::Wait;
        }
        while thoughts.len() + (self.outstanding as usize) < self.iodepth as usize {
            let Some(io) = self.source.next(&mut self.rng) else {
                break;
            };
            thoughts.plan(now, io);
        }
        if let Some(io) = thoughts.take_due(now) {
            self.outstanding += 1;
            if thoughts.len() == 0 && self.source.is_over() {
                self.life = Life::Over;
            }
            return Step::Issue(io, now);
        }
        match thoughts.next() {
            Some(at) => self.wake_at(at),
            None => Step::Wait,
        }
    }

    /// Time since which the request that may be issued at `now` has been wanted, or the step
    /// instead where it is not wanted yet.
    fn wanted(&mut self, now: Nanos) -> Result<Nanos, Step> {
        match &mut self.flow {
            WorkerFlow::Closed | WorkerFlow::Thoughts(_) => Ok(now),
            WorkerFlow::Thinking { paused: true, .. } => Err(Step::Wait),
            WorkerFlow::Thinking {
                think,
                burst,
                paused,
            } => {
                // As fio's `thinktime_blocks`: a pause begins once the whole burst is answered.
                if *burst == think.blocks {
                    if self.outstanding > 0 {
                        return Err(Step::Wait);
                    }
                    *paused = true;
                    self.wake_up = now + think.time.draw(&mut self.rng);
                    return Err(Step::At(self.wake_up));
                }
                *burst += 1;
                Ok(now)
            }
            WorkerFlow::Open { clock, next } => {
                if self.flushes && self.ahead.is_none() {
                    self.ahead = self.source.next(&mut self.rng);
                }
                if self.ahead.is_some_and(|io| io.op == Op::Flush) {
                    // A flush follows the write that it makes durable, with no arrival of its own.
                    Ok(now)
                } else if *next <= now {
                    Ok(core::mem::replace(next, clock.next(&mut self.rng)))
                } else {
                    let at = *next;
                    Err(self.wake_at(at))
                }
            }
            WorkerFlow::Timed { start } => match (&self.ahead, self.source.whole()) {
                (Some(_), Some(whole)) => {
                    let at = *start + whole.at;
                    if at > now {
                        Err(self.wake_at(at))
                    } else {
                        Ok(at)
                    }
                }
                _ => Ok(now),
            },
        }
    }

    /// Plans a wake-up, unless that one is planned.
    fn wake_at(&mut self, at: Nanos) -> Step {
        // A second event for one time would issue a request too many.
        if self.wake_up == at {
            return Step::Wait;
        }
        self.wake_up = at;
        Step::At(at)
    }

    /// VM of the worker, as an index into the device's.
    pub(super) fn vm(&self) -> u32 {
        self.vm
    }

    /// Start and end of the workload, relative to the VM's arrival; the end is `None` without a
    /// time limit.
    pub(super) fn span(&self) -> (Nanos, Option<Nanos>) {
        (self.start, self.runtime.map(|runtime| self.start + runtime))
    }

    /// True while none of the worker's requests is outstanding.
    pub(super) fn is_idle(&self) -> bool {
        self.outstanding == 0
    }

    /// Transfers of the worker; `None` where it has none.
    pub(super) fn transfers(&self) -> Option<&Transfers> {
        self.transfers.as_deref()
    }

    /// Transfers of the worker, to be changed.
    pub(super) fn transfers_mut(&mut self) -> Option<&mut Transfers> {
        self.transfers.as_deref_mut()
    }

    /// Counts a request of `len` bytes that it has just issued, wanted `since`. Returns the
    /// transfer that begins with it, if one does.
    pub(super) fn issued(&mut self, since: Nanos, len: u32) -> Option<Transfer> {
        let whole = self.source.whole()?;
        let of_trace = (whole.index, whole.bytes);
        self.transfers.as_mut()?.issued(of_trace, since, len)
    }

    /// Counts the answer to its request in a slot. Returns the transfer that is done with it, if
    /// one is.
    pub(super) fn answered(&mut self, slot: u32, len: u32) -> Option<Transfer> {
        let over = self.is_over() && self.is_idle();
        self.transfers.as_mut()?.answered(slot, len, over)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seed::generator;
    use tidegate_workload::replay::Replay;
    use tidegate_workload::time::TimeDistribution;
    use tidegate_workload::trace::{Record, Took};

    fn worker(workload: &Workload) -> Worker {
        let source = Source::new(workload, 0, 1 << 20, 512).expect("it fits the disk");
        let mut worker = Worker::new(3, workload, source, generator(1, "vm", 0));
        worker.start(Nanos::ZERO, workload);
        worker
    }

    #[test]
    fn a_closed_loop_keeps_as_many_requests_outstanding_as_its_depth() {
        let workload = Workload {
            flow: Flow::Closed {
                iodepth: 2,
                think: None,
            },
            number_ios: Some(3),
            ..Workload::default()
        };
        let mut worker = worker(&workload);
        for _ in 0..2 {
            assert!(matches!(worker.step(Nanos(5)), Step::Issue(_, Nanos(5))));
        }
        assert_eq!(worker.step(Nanos(5)), Step::Wait);
        worker.request_over();
        assert!(matches!(worker.step(Nanos(7)), Step::Issue(_, Nanos(7))));
        assert!(worker.is_over() && !worker.is_idle(), "its last are out");
        worker.request_over();
        worker.request_over();
        assert_eq!(
            (worker.step(Nanos(9)), worker.is_idle()),
            (Step::Wait, true)
        );
    }

    #[test]
    fn a_pause_begins_once_nothing_is_outstanding() {
        let time = TimeDistribution::Fixed(Nanos(100));
        let workload = Workload {
            flow: Flow::Closed {
                iodepth: 4,
                think: Some(Think { time, blocks: 1 }),
            },
            ..Workload::default()
        };
        let mut worker = worker(&workload);
        assert!(matches!(worker.step(Nanos(1)), Step::Issue(..)));
        assert_eq!(worker.step(Nanos(1)), Step::Wait);
        worker.request_over();
        assert_eq!(worker.step(Nanos(6)), Step::At(Nanos(106)));
        assert_eq!(worker.step(Nanos(6)), Step::Wait, "said once");
        worker.woken();
        assert!(matches!(worker.step(Nanos(106)), Step::Issue(..)));
    }

    #[test]
    fn each_end_lets_one_request_come_after_its_think_time() {
        let record = |at| Record {
            at: Nanos(at),
            disk: 0,
            op: Op::Read,
            fua: false,
            offset: 0,
            len: 4096,
            took: Took::UNKNOWN,
        };
        // Two come by themselves, one of them late, and two follow ends.
        let replay = Replay::thinking(vec![record(5), record(70)], vec![record(10), record(0)]);
        let workload = Workload {
            replay,
            flow: Flow::Closed {
                iodepth: 2,
                think: None,
            },
            ..Workload::default()
        };
        let mut worker = worker(&workload);
        assert_eq!(worker.step(Nanos(0)), Step::At(Nanos(5)));
        worker.woken();
        assert!(matches!(worker.step(Nanos(5)), Step::Issue(_, Nanos(5))));
        assert_eq!(worker.step(Nanos(5)), Step::At(Nanos(70)));
        worker.request_over();
        assert_eq!(worker.step(Nanos(30)), Step::At(Nanos(40)));
        worker.woken();
        assert!(matches!(worker.step(Nanos(40)), Step::Issue(_, Nanos(40))));
        assert_eq!(worker.step(Nanos(40)), Step::At(Nanos(70)));
        worker.woken();
        assert!(matches!(worker.step(Nanos(70)), Step::Issue(_, Nanos(70))));
        assert_eq!(worker.step(Nanos(70)), Step::Wait, "both are outstanding");
        worker.request_over();
        assert!(matches!(worker.step(Nanos(90)), Step::Issue(_, Nanos(90))));
        assert!(worker.is_over() && !worker.is_idle());
    }

    #[test]
    fn a_worker_that_is_stopped_before_it_begins_never_does() {
        let workload = Workload::default();
        let source = Source::new(&workload, 0, 1 << 20, 512).expect("it fits the disk");
        let mut worker = Worker::new(0, &workload, source, generator(1, "vm", 0));
        assert_eq!(worker.step(Nanos(1)), Step::Wait, "it has not begun");
        worker.stop();
        worker.start(Nanos(2), &workload);
        assert_eq!(worker.step(Nanos(2)), Step::Wait);
    }
}
