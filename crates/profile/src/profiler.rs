//! State machine of a measurement.
//!
//! ```text
//!   driver:  loop { while Io(io) = next_io(now) { submit io }   no room, or the step is at its end
//!                   wait for the device; completed(now, id) }   until Finished
//! ```
//!
//! A step begins when all requests of the one before have ended. A driver that cannot continue
//! drops the profiler; its results are in `outcomes`, and a profiler that is created with those
//! continues after them.

use tidegate_core::profile::Direction;
use tidegate_core::random::mix;
use tidegate_core::time::Nanos;

use crate::load::{Bulk, Load, Request};
use crate::outcome::{Outcome, describe, describe_reads_under_writes, saturating_depth, span};
use crate::plan::{Depth, Plan, Step};
use crate::read_latency_under_writes::ReadsUnderWrites;

/// Write bandwidth in bytes per second that is assumed to estimate the durations of filling and
/// conditioning: between that of a hard disk and that of a SATA SSD.
const GUESS_BYTES_PER_S: f64 = 200e6;

/// I/O for the device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Io {
    /// Identifier, to be passed to [`Profiler::completed`]; below the largest depth.
    pub id: u32,
    /// Direction.
    pub direction: Direction,
    /// First byte on the device.
    pub addr: u64,
    /// Length in bytes.
    pub len: u32,
}

/// Next action of the driver.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Next {
    /// Submit this I/O, and ask again.
    Io(Io),
    /// Wait until an I/O has ended.
    Wait,
    /// The measurement is complete.
    Finished,
}

/// Progress of a measurement.
#[derive(Clone, PartialEq, Debug)]
pub struct Progress {
    /// Estimated remaining time by the driver's clock.
    pub remaining: Nanos,
    /// Description of the present step, for people.
    pub description: String,
}

#[derive(Debug)]
enum Active {
    Bulk(Bulk),
    Load(Box<Load>),
    ReadsUnderWrites(Box<ReadsUnderWrites>),
}

/// State machine that measures a plan; see the module's documentation.
#[derive(Debug)]
pub struct Profiler {
    plan: Plan,
    outcomes: Vec<Outcome>,
    active: Option<ActiveStep>,
    /// Time of submission and direction of the request of each id; `None`: the id is free.
    submitted: Vec<Option<(Nanos, Direction)>>,
    free: Vec<u32>,
    /// Durations of completed steps; their ratio corrects later estimates.
    completed_steps: Durations,
}

/// Step that is being measured.
#[derive(Debug)]
struct ActiveStep {
    /// Index in the plan.
    index: usize,
    state: Active,
    began: Nanos,
}

/// Total durations in seconds.
#[derive(Clone, Copy, Default, Debug)]
struct Durations {
    actual: f64,
    estimated: f64,
}

impl Profiler {
    /// Creates a profiler that continues after `outcomes`, the results of the plan's first steps.
    ///
    /// # Panics
    /// If they belong to other steps, or are not in order.
    pub fn new(plan: Plan, outcomes: Vec<Outcome>) -> Profiler {
        assert!(
            outcomes.len() <= plan.steps.len()
                && outcomes.iter().enumerate().all(|(at, o)| o.step == at),
            "outcomes of another plan"
        );
        let ids = plan.target.depth_max;
        Profiler {
            plan,
            outcomes,
            active: None,
            submitted: vec![None; ids as usize],
            free: (0..ids).rev().collect(),
            completed_steps: Durations::default(),
        }
    }

    /// Returns the plan.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Returns the results of the completed steps, in order.
    pub fn outcomes(&self) -> &[Outcome] {
        &self.outcomes
    }

    /// Returns the next action of the driver at `now`.
    pub fn next_io(&mut self, now: Nanos) -> Next {
        loop {
            let in_flight = self.in_flight();
            let Some(ActiveStep {
                index,
                state: active,
                began,
            }) = &mut self.active
            else {
                match self.plan.steps.get(self.outcomes.len()) {
                    Some(&step) => self.begin(step, now),
                    None => return Next::Finished,
                }
                continue;
            };
            let (depth, next) = match active {
                // At full depth no request must be drawn: it would be lost, and a fill would leave
                // its bytes unwritten.
                Active::Bulk(_) if in_flight >= self.plan.bulk_depth() => return Next::Wait,
                Active::Bulk(bulk) => (self.plan.bulk_depth(), bulk.next(now)),
                Active::Load(load) if in_flight >= load.depth() => return Next::Wait,
                Active::Load(load) => (load.depth(), load.next()),
                Active::ReadsUnderWrites(mixed) => match mixed.next() {
                    None if !mixed.is_done() => return Next::Wait,
                    next => (mixed.depth(), next),
                },
            };
            match next {
                Some(request) if in_flight < depth => return Next::Io(self.submit(now, request)),
                Some(_) => return Next::Wait,
                None if in_flight > 0 => return Next::Wait,
                None => {}
            }
            let result = match active {
                Active::Bulk(bulk) => bulk.result(),
                Active::Load(load) => load.result(),
                Active::ReadsUnderWrites(mixed) => mixed.result(),
            };
            let (step, took) = (*index, now.since(*began).as_secs_f64());
            self.active = None;
            self.completed_steps.actual += took;
            self.completed_steps.estimated += self.expected(&self.plan.steps[step]);
            self.outcomes.push(Outcome { step, result });
        }
    }

    /// Records that the I/O with this id has succeeded.
    ///
    /// # Panics
    /// If no I/O with this id is in flight.
    pub fn completed(&mut self, now: Nanos, id: u32) {
        let submitted = self.submitted[id as usize].take();
        let (submitted, direction) = submitted.expect("an I/O of that id is with the device");
        self.free.push(id);
        let time = now.since(submitted);
        match self.active.as_mut().map(|step| &mut step.state) {
            Some(Active::Load(load)) => load.completed(now, time),
            Some(Active::ReadsUnderWrites(mixed)) => mixed.completed(now, time, direction),
            _ => {}
        }
    }

    /// Number of I/Os in flight.
    pub fn in_flight(&self) -> u32 {
        (self.submitted.len() - self.free.len()) as u32
    }

    /// Returns the number of completed steps, and of all steps.
    pub fn steps(&self) -> (usize, usize) {
        (self.outcomes.len(), self.plan.steps.len())
    }

    /// Returns the progress at `now`.
    pub fn progress(&self, now: Nanos) -> Progress {
        // The device is as much slower than estimated as it has been so far.
        let Durations { actual, estimated } = self.completed_steps;
        let slowness = if estimated > 0.0 {
            actual / estimated
        } else {
            1.0
        };
        let steps = &self.plan.steps;
        let to_come = steps.get(self.outcomes.len()..).unwrap_or_default();
        let expected = to_come.iter().map(|step| self.expected(step)).sum::<f64>() * slowness;
        let Some(active) = &self.active else {
            return Progress {
                remaining: Nanos::from_secs_f64(expected),
                description: String::new(),
            };
        };
        let description = match (&active.state, &steps[active.index]) {
            (Active::Bulk(bulk), _) => {
                let (submitted, total) = bulk.progress();
                let percent = 100.0 * submitted as f64 / total.max(1) as f64;
                format!("writing the whole device, {percent:.0} %")
            }
            (_, Step::Measure(point)) => describe(point),
            (_, Step::ReadsUnderWrites(point)) => describe_reads_under_writes(point),
            (_, Step::Fill | Step::Condition) => String::new(),
        };
        let spent = now.since(active.began).as_secs_f64();
        Progress {
            remaining: Nanos::from_secs_f64(expected - spent),
            description,
        }
    }

    fn begin(&mut self, step: Step, now: Nanos) {
        let at = self.outcomes.len();
        // Each step has a seed of its own, so that it is the same after any resumption.
        let seed = mix(self.plan.options.seed ^ mix(at as u64));
        let (plan, pace) = (&self.plan, &self.plan.pace);
        let span = span(plan, &self.outcomes);
        let (size, block) = (plan.bulk_size(), plan.target.block);
        let active = match step {
            Step::Fill => Active::Bulk(Bulk::fill(span, size, block, now + pace.fill_max)),
            Step::Condition => {
                let end = now + pace.condition_max;
                Active::Bulk(Bulk::condition(span, size, pace.condition_times, end, seed))
            }
            Step::Measure(point) => {
                let depth = match point.depth {
                    Depth::Of(depth) => depth,
                    Depth::Saturating => saturating_depth(plan, &self.outcomes),
                };
                Active::Load(Box::new(Load::new(point, depth, pace, span, seed, now)))
            }
            Step::ReadsUnderWrites(point) => Active::ReadsUnderWrites(Box::new(
                ReadsUnderWrites::new(point, pace, span, seed, now),
            )),
        };
        self.active = Some(ActiveStep {
            index: at,
            state: active,
            began: now,
        });
    }

    fn submit(&mut self, now: Nanos, request: Request) -> Io {
        let id = self.free.pop().expect("less than all are in flight");
        self.submitted[id as usize] = Some((now, request.direction));
        Io {
            id,
            direction: request.direction,
            addr: request.addr,
            len: request.len,
        }
    }

    /// Estimates the duration of a step in seconds.
    fn expected(&self, step: &Step) -> f64 {
        let pace = &self.plan.pace;
        let bytes = self.plan.target.span as f64;
        let at_most = |s: f64, max: Nanos| s.min(max.as_secs_f64());
        match step {
            Step::Fill => at_most(bytes / GUESS_BYTES_PER_S, pace.fill_max),
            Step::Condition => {
                let times = f64::from(pace.condition_times);
                at_most(times * bytes / GUESS_BYTES_PER_S, pace.condition_max)
            }
            Step::ReadsUnderWrites(_) => {
                let runs = pace.runs_min as f64;
                pace.warm_up.as_secs_f64() + runs * pace.run.as_secs_f64()
            }
            Step::Measure(_) => {
                let runs = (pace.runs_min + pace.runs_max) as f64 / 2.0;
                pace.warm_up.as_secs_f64() + runs * pace.run.as_secs_f64()
            }
        }
    }
}
