//! Issuers: one for each copy of a workload, with the time of its next request.
//!
//! An issuer has no clock and does no I/O. Its driver, the simulator or a client of a live disk,
//! asks for steps with the present time, and reports requests that are over.
//!
//! ```text
//!            Start            issue: room in its depth            answered
//!   planned -------> running ------------------------> outstanding --------+
//!                      ^  |                                                |
//!                      |  +-- closed loop: at once, or after a pause <-----+
//!                      |  +-- open loop, trace: when the next one comes    |
//!                      +---------------------------------------------------+
//! ```

use crate::arrival_process::ArrivalClock;
use crate::replay::Mode;
use crate::source::Source;
use crate::spec::{Flow, Think, Workload};
use crate::stream::Io;
use crate::thoughts::Thoughts;
use crate::trace_replay::Whole;
use rand_pcg::Pcg64Mcg;
use tidegate_core::request::Op;
use tidegate_core::time::Nanos;

/// One copy of a workload that issues its requests.
#[derive(Clone, Debug)]
pub struct Issuer {
    source: Source,
    rng: Pcg64Mcg,
    flow: IssuerFlow,
    iodepth: u32,
    /// `true` if flushes follow some of its writes.
    flushes: bool,
    /// Next request, where that was looked up.
    ahead: Option<Io>,
    /// `true` while the issuer pauses before the request in `ahead`.
    resting: bool,
    /// Requests issued and not over.
    outstanding: u32,
    life: Life,
    /// Time from the VM's arrival to the issuer's start.
    start: Nanos,
    runtime: Option<Nanos>,
    /// Time of the planned wake-up; [`Nanos::MAX`] if none is planned.
    wake_up: Nanos,
}

/// Stage of an issuer's life. It never goes back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Life {
    Planned,
    Running,
    /// The issuer issues nothing more: its time is over, or its workload is complete.
    Over,
}

#[derive(Clone, Debug)]
enum IssuerFlow {
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

/// Next step of an issuer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// Issue this request, which the issuer has wanted since the time.
    Issue(Io, Nanos),
    /// Nothing to issue before this time.
    At(Nanos),
    /// Nothing to issue before the next answer, or ever.
    Wait,
}

impl Issuer {
    /// Creates the issuer of a copy of `workload`, whose requests come from `source`. It has not
    /// begun.
    pub fn new(workload: &Workload, source: Source, rng: Pcg64Mcg) -> Issuer {
        // A replay has a closed flow in its description, whose `iodepth` bounds its pieces.
        let mode = workload.replay.as_ref().map(|replay| replay.mode);
        let (flow, iodepth) = match &workload.flow {
            Flow::Closed { iodepth, .. } if matches!(mode, Some(Mode::Timed(_))) => {
                let start = Nanos::ZERO;
                (IssuerFlow::Timed { start }, *iodepth)
            }
            Flow::Closed { iodepth, .. } if matches!(mode, Some(Mode::Thinking(_))) => {
                (IssuerFlow::Thoughts(Thoughts::default()), *iodepth)
            }
            Flow::Closed {
                iodepth,
                think: None,
            } => (IssuerFlow::Closed, *iodepth),
            Flow::Closed {
                iodepth,
                think: Some(think),
            } => {
                let (think, burst, paused) = (think.clone(), 0, false);
                let flow = IssuerFlow::Thinking {
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
                (IssuerFlow::Open { clock, next }, *iodepth)
            }
        };
        Issuer {
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
            wake_up: Nanos::MAX,
        }
    }

    /// Begins the workload, unless the issuer was stopped before.
    pub fn start(&mut self, now: Nanos, workload: &Workload) {
        // Its VM may have left before the workload was to begin.
        if self.life == Life::Over {
            return;
        }
        self.life = Life::Running;
        if let (IssuerFlow::Open { clock, next }, Flow::Open { arrivals, .. }) =
            (&mut self.flow, &workload.flow)
        {
            *clock = ArrivalClock::new(arrivals, now);
            *next = clock.next(&mut self.rng);
        }
        if let IssuerFlow::Timed { start } = &mut self.flow {
            *start = now;
        }
    }

    /// Stops the issuer: it issues nothing more.
    pub fn stop(&mut self) {
        self.life = Life::Over;
    }

    /// Returns true once it issues nothing more; its last requests may be outstanding.
    pub fn is_over(&self) -> bool {
        self.life == Life::Over
    }

    /// Handles a wake-up: a pause is over, or the next request is due.
    pub fn woken(&mut self) {
        self.wake_up = Nanos::MAX;
        self.resting = false;
        if let IssuerFlow::Thinking { burst, paused, .. } = &mut self.flow {
            (*burst, *paused) = (0, false);
        }
    }

    /// Counts a request that is over, answered or not.
    pub fn request_over(&mut self) {
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
    pub fn step(&mut self, now: Nanos) -> Step {
        if let IssuerFlow::Thoughts(_) = self.flow {
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
        let IssuerFlow::Thoughts(thoughts) = &mut self.flow else {
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
            IssuerFlow::Closed | IssuerFlow::Thoughts(_) => Ok(now),
            IssuerFlow::Thinking { paused: true, .. } => Err(Step::Wait),
            IssuerFlow::Thinking {
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
            IssuerFlow::Open { clock, next } => {
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
            IssuerFlow::Timed { start } => match (&self.ahead, self.source.whole()) {
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

    /// Returns start and end of the workload, relative to the VM's arrival; the end is `None`
    /// without a time limit.
    pub fn span(&self) -> (Nanos, Option<Nanos>) {
        (self.start, self.runtime.map(|runtime| self.start + runtime))
    }

    /// Returns true while none of its requests is outstanding.
    pub fn is_idle(&self) -> bool {
        self.outstanding == 0
    }

    /// Returns the request of a trace to which the request issued last belongs; `None` without a
    /// trace.
    #[inline]
    pub fn whole(&self) -> Option<&Whole> {
        self.source.whole()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random_variate::tests::seeded;
    use crate::replay::Replay;
    use crate::time::TimeDistribution;
    use crate::trace::{Record, Took};

    fn issuer(workload: &Workload) -> Issuer {
        let source = Source::new(workload, 0, 1 << 20, 512).expect("it fits the disk");
        let mut issuer = Issuer::new(workload, source, seeded(1));
        issuer.start(Nanos::ZERO, workload);
        issuer
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
        let mut issuer = issuer(&workload);
        for _ in 0..2 {
            assert!(matches!(issuer.step(Nanos(5)), Step::Issue(_, Nanos(5))));
        }
        assert_eq!(issuer.step(Nanos(5)), Step::Wait);
        issuer.request_over();
        assert!(matches!(issuer.step(Nanos(7)), Step::Issue(_, Nanos(7))));
        assert!(issuer.is_over() && !issuer.is_idle(), "its last are out");
        issuer.request_over();
        issuer.request_over();
        assert_eq!(
            (issuer.step(Nanos(9)), issuer.is_idle()),
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
        let mut issuer = issuer(&workload);
        assert!(matches!(issuer.step(Nanos(1)), Step::Issue(..)));
        assert_eq!(issuer.step(Nanos(1)), Step::Wait);
        issuer.request_over();
        assert_eq!(issuer.step(Nanos(6)), Step::At(Nanos(106)));
        assert_eq!(issuer.step(Nanos(6)), Step::Wait, "said once");
        issuer.woken();
        assert!(matches!(issuer.step(Nanos(106)), Step::Issue(..)));
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
        let mut issuer = issuer(&workload);
        assert_eq!(issuer.step(Nanos(0)), Step::At(Nanos(5)));
        issuer.woken();
        assert!(matches!(issuer.step(Nanos(5)), Step::Issue(_, Nanos(5))));
        assert_eq!(issuer.step(Nanos(5)), Step::At(Nanos(70)));
        issuer.request_over();
        assert_eq!(issuer.step(Nanos(30)), Step::At(Nanos(40)));
        issuer.woken();
        assert!(matches!(issuer.step(Nanos(40)), Step::Issue(_, Nanos(40))));
        assert_eq!(issuer.step(Nanos(40)), Step::At(Nanos(70)));
        issuer.woken();
        assert!(matches!(issuer.step(Nanos(70)), Step::Issue(_, Nanos(70))));
        assert_eq!(issuer.step(Nanos(70)), Step::Wait, "both are outstanding");
        issuer.request_over();
        assert!(matches!(issuer.step(Nanos(90)), Step::Issue(_, Nanos(90))));
        assert!(issuer.is_over() && !issuer.is_idle());
    }

    #[test]
    fn an_issuer_that_is_stopped_before_it_begins_never_does() {
        let workload = Workload::default();
        let source = Source::new(&workload, 0, 1 << 20, 512).expect("it fits the disk");
        let mut issuer = Issuer::new(&workload, source, seeded(1));
        assert_eq!(issuer.step(Nanos(1)), Step::Wait, "it has not begun");
        issuer.stop();
        issuer.start(Nanos(2), &workload);
        assert_eq!(issuer.step(Nanos(2)), Step::Wait);
    }
}
