//! The state machine that measures.
//!
//! ```text
//!   driver:  loop { while Io(io) = next_io(now) { submit io }   no room, or the step is at its end
//!                   wait for the device; completed(now, id) }   until Finished
//! ```
//!
//! Before each step all requests of the last one have ended. A driver that cannot go on drops the
//! profiler; what it has learnt is in `outcomes`, and a profiler made with those goes on behind
//! them.

use tidegate_core::profile::Direction;
use tidegate_core::random::mix;
use tidegate_core::time::Nanos;

use crate::beside::Beside;
use crate::load::{Bulk, Load, Wanted};
use crate::outcome::{Outcome, beside_in_words, in_words, saturating_depth, span};
use crate::plan::{Depth, Plan, Step};

/// Bytes a second that a device is taken to write while nothing is known of it.
const GUESS_BYTES_PER_S: f64 = 200e6;

/// An I/O for the device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Io {
    /// Given back with its end; below the largest depth.
    pub id: u32,
    /// Which way.
    pub direction: Direction,
    /// Its first byte.
    pub addr: u64,
    /// Bytes.
    pub len: u32,
}

/// What the driver is to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Next {
    /// Submit this, and ask again.
    Io(Io),
    /// Wait until something has ended.
    Wait,
    /// All is measured.
    Finished,
}

/// How far it has come.
#[derive(Clone, PartialEq, Debug)]
pub struct Progress {
    /// Time of the driver's clock that is still to come, as far as can be told.
    pub left: Nanos,
    /// What is measured now, for people.
    pub what: String,
}

#[derive(Debug)]
enum Active {
    Bulk(Bulk),
    Load(Box<Load>),
    Beside(Box<Beside>),
}

/// Measures what a plan says. See the module.
#[derive(Debug)]
pub struct Profiler {
    plan: Plan,
    outcomes: Vec<Outcome>,
    /// The step, and since when.
    active: Option<(usize, Active, Nanos)>,
    /// When the request of each id was submitted, and which way; `None`: the id is free.
    submitted: Vec<Option<(Nanos, Direction)>>,
    free: Vec<u32>,
    /// Time that steps took, and what was expected of them, seconds.
    spent: (f64, f64),
}

impl Profiler {
    /// Goes on behind `outcomes`, those of the same plan's first steps.
    ///
    /// # Panics
    /// When they are of other steps, or not in order.
    pub fn new(plan: Plan, outcomes: Vec<Outcome>) -> Profiler {
        assert!(
            outcomes.len() <= plan.steps.len()
                && outcomes.iter().enumerate().all(|(at, o)| o.step == at),
            "outcomes of another plan"
        );
        let ids = plan.target.depth_max.max(1);
        Profiler {
            plan,
            outcomes,
            active: None,
            submitted: vec![None; ids as usize],
            free: (0..ids).rev().collect(),
            spent: (0.0, 0.0),
        }
    }

    /// What is measured.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// What came of the steps so far, in their order.
    pub fn outcomes(&self) -> &[Outcome] {
        &self.outcomes
    }

    /// What to do now.
    pub fn next_io(&mut self, now: Nanos) -> Next {
        loop {
            let in_flight = self.in_flight();
            let Some((step, active, since)) = &mut self.active else {
                match self.plan.steps.get(self.outcomes.len()) {
                    Some(&step) => self.begin(step, now),
                    None => return Next::Finished,
                }
                continue;
            };
            let (depth, next) = match active {
                Active::Bulk(bulk) => (self.plan.bulk_depth(), bulk.next(now)),
                Active::Load(load) if in_flight < load.depth() => (load.depth(), load.next()),
                // Asking would draw from its addresses.
                Active::Load(_) => return Next::Wait,
                Active::Beside(beside) => match beside.next() {
                    None if !beside.is_done() => return Next::Wait,
                    next => (beside.depth(), next),
                },
            };
            match next {
                Some(wanted) if in_flight < depth => return Next::Io(self.submit(now, wanted)),
                Some(_) => return Next::Wait,
                None if in_flight > 0 => return Next::Wait,
                None => {}
            }
            let taken = match active {
                Active::Bulk(bulk) => bulk.taken(),
                Active::Load(load) => load.taken(),
                Active::Beside(beside) => beside.taken(),
            };
            let (step, took) = (*step, now.since(*since).as_secs_f64());
            self.active = None;
            self.spent.0 += took;
            self.spent.1 += self.expected(&self.plan.steps[step]);
            self.outcomes.push(Outcome { step, taken });
        }
    }

    /// The I/O of that id has ended well.
    ///
    /// # Panics
    /// When none of that id is with the device.
    pub fn completed(&mut self, now: Nanos, id: u32) {
        let submitted = self.submitted[id as usize].take();
        let (submitted, direction) = submitted.expect("an I/O of that id is with the device");
        self.free.push(id);
        let time = now.since(submitted);
        match &mut self.active {
            Some((_, Active::Load(load), _)) => load.completed(now, time),
            Some((_, Active::Beside(beside), _)) => beside.completed(now, time, direction),
            _ => {}
        }
    }

    /// I/Os with the device.
    pub fn in_flight(&self) -> u32 {
        (self.submitted.len() - self.free.len()) as u32
    }

    /// Steps that are behind it, and in all.
    pub fn steps(&self) -> (usize, usize) {
        (self.outcomes.len(), self.plan.steps.len())
    }

    /// How far it has come by `now`.
    pub fn progress(&self, now: Nanos) -> Progress {
        let slowness = match self.spent {
            (spent, expected) if expected > 0.0 => spent / expected,
            _ => 1.0,
        };
        let steps = &self.plan.steps;
        let to_come = steps.get(self.outcomes.len()..).unwrap_or_default();
        let expected = to_come.iter().map(|step| self.expected(step)).sum::<f64>() * slowness;
        let (what, spent) = match &self.active {
            None => (String::new(), 0.0),
            Some((_, Active::Bulk(bulk), since)) => {
                let (asked, total) = bulk.progress();
                let percent = 100.0 * asked as f64 / total.max(1) as f64;
                let spent = now.since(*since).as_secs_f64();
                (format!("writing all of it, {percent:.0} %"), spent)
            }
            Some((step, _, since)) => {
                let what = match &steps[*step] {
                    Step::Measure(point) => in_words(point),
                    Step::BesideWrites(point) => beside_in_words(point),
                    _ => String::new(),
                };
                (what, now.since(*since).as_secs_f64())
            }
        };
        Progress {
            left: Nanos::from_secs_f64(expected - spent),
            what,
        }
    }

    fn begin(&mut self, step: Step, now: Nanos) {
        let at = self.outcomes.len();
        // Of its own for each step, so that what a step does is the same after any resumption.
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
            Step::BesideWrites(point) => {
                Active::Beside(Box::new(Beside::new(point, pace, span, seed, now)))
            }
        };
        self.active = Some((at, active, now));
    }

    fn submit(&mut self, now: Nanos, wanted: Wanted) -> Io {
        let id = self.free.pop().expect("less than all are in flight");
        self.submitted[id as usize] = Some((now, wanted.direction));
        Io {
            id,
            direction: wanted.direction,
            addr: wanted.addr,
            len: wanted.len,
        }
    }

    /// Seconds that a step takes, as far as can be told before.
    fn expected(&self, step: &Step) -> f64 {
        let pace = &self.plan.pace;
        let bytes = self.plan.target.span as f64;
        let within = |s: f64, most: Nanos| s.min(most.as_secs_f64());
        match step {
            Step::Fill => within(bytes / GUESS_BYTES_PER_S, pace.fill_max),
            Step::Condition => {
                let times = f64::from(pace.condition_times);
                within(times * bytes / GUESS_BYTES_PER_S, pace.condition_max)
            }
            Step::BesideWrites(_) => {
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
