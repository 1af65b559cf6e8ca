//! The agent itself: looks, decides, applies, puts back.

use std::io;

use tidegate_core::jobs::{Change, Class, Forecast, Job, PriorityManager};
use tidegate_core::time::Nanos;

use crate::host::{Host, Target, TargetError, Thread};
use crate::member::Member;

/// Somebody to be watched.
#[derive(Clone, Debug)]
pub struct Plan {
    /// What people call it; unique.
    pub name: String,
    /// Its processes.
    pub target: Target,
    /// Bytes and how long from now they may take; `None`: it has all the time there is.
    pub job: Option<(u64, Nanos)>,
}

/// What became of a job.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// It runs.
    Running,
    /// All its bytes have moved; how much before its deadline, and behind it.
    Done {
        /// How long it took.
        took: Nanos,
        /// Before its deadline by so much.
        early: Nanos,
        /// Behind it by so much.
        late: Nanos,
    },
    /// Its processes ended before its bytes had moved.
    Gone {
        /// So many were left.
        left: u64,
    },
}

/// Something people may want to know.
#[derive(Debug)]
pub enum Event {
    /// A process was found.
    Found {
        /// Whose.
        name: String,
        /// Which.
        process: Thread,
    },
    /// Somebody's processes have all ended.
    Left {
        /// Whose.
        name: String,
    },
    /// Somebody's class is another from now on, or would be.
    Class {
        /// Whose.
        name: String,
        /// Which.
        class: Class,
    },
    /// A job cannot be met, whatever others give up; it is no more helped until a job begins or ends.
    GivenUp {
        /// Whose.
        name: String,
    },
    /// A job has ended.
    Ended {
        /// Whose.
        name: String,
        /// How.
        state: State,
    },
    /// A thread's priority cannot be changed.
    Refused {
        /// Whose.
        name: String,
        /// Which.
        thread: Thread,
        /// Why.
        error: io::Error,
    },
}

/// How somebody stands.
#[derive(Clone, Debug)]
pub struct Report {
    /// Who.
    pub name: String,
    /// Its class.
    pub class: Class,
    /// It has processes.
    pub present: bool,
    /// What it moved a second in the last interval; `None`: not measured yet.
    pub bytes_per_s: Option<u64>,
    /// Its job, as far as it has come, and how it stands.
    pub job: Option<(Job, State)>,
    /// What comes of the job as things are, while it runs.
    pub forecast: Option<Forecast>,
}

/// Somebody's job from the begin to its end.
#[derive(Debug)]
struct Course {
    job: Job,
    state: State,
}

/// Watches processes and sets their I/O classes so that their jobs end in time.
#[derive(Debug)]
pub struct Agent<H: Host> {
    host: H,
    dry_run: bool,
    manager: PriorityManager,
    members: Vec<Member>,
    courses: Vec<Option<Course>>,
    /// Bytes in the interval that runs, and a second in the last one.
    moved: Vec<(u64, Option<u64>)>,
    interval: Nanos,
    /// When the interval that runs began.
    since: Nanos,
    /// The device's bandwidth is what was seen at most.
    learns_capacity: bool,
    capacity: u64,
    refused: Vec<bool>,
}

impl<H: Host> Agent<H> {
    /// Jobs begin now. `capacity`: what the disk does in bytes a second; `None`: as much as is ever seen.
    /// Priorities are looked at anew every `interval`. With `dry_run` nothing is set.
    ///
    /// # Errors
    /// Somebody is not there.
    pub fn new(
        mut host: H,
        now: Nanos,
        (interval, capacity, dry_run): (Nanos, Option<u64>, bool),
        plans: Vec<Plan>,
    ) -> Result<(Agent<H>, Vec<Event>), TargetError> {
        let mut manager = PriorityManager::new(now, capacity.unwrap_or(0));
        let (mut members, mut courses, mut events) = (Vec::new(), Vec::new(), Vec::new());
        for (who, plan) in plans.into_iter().enumerate() {
            let mut member = Member::new(plan.name, plan.target);
            for process in member.look(&mut host, true)?.new {
                let name = member.name.clone();
                events.push(Event::Found { name, process });
            }
            member.present = member.has_processes();
            manager.add(now, who);
            let course = plan.job.map(|(bytes, deadline)| Course {
                job: Job {
                    bytes,
                    begun: now,
                    deadline,
                    moved: 0,
                },
                state: State::Running,
            });
            members.push(member);
            courses.push(course);
        }
        let count = members.len();
        let mut agent = Agent {
            host,
            dry_run,
            manager,
            members,
            courses,
            moved: vec![(0, None); count],
            interval,
            since: now,
            learns_capacity: capacity.is_none(),
            capacity: capacity.unwrap_or(0),
            refused: vec![false; count],
        };
        agent.begin(now, &mut events);
        Ok((agent, events))
    }

    fn begin(&mut self, now: Nanos, events: &mut Vec<Event>) {
        let mut changes = Vec::new();
        for who in 0..self.members.len() {
            let Some(course) = &self.courses[who] else {
                continue;
            };
            let can_be = self.manager.begin(who, course.job, &mut changes);
            if !can_be && !self.learns_capacity {
                let name = self.members[who].name.clone();
                events.push(Event::GivenUp { name });
            }
        }
        // Of a disk of which nothing is known nothing follows yet.
        if !self.learns_capacity {
            self.manager.cycle(now, &mut changes);
        }
        self.tell(&changes, events);
        self.apply(events);
    }

    /// Looks at everybody, and at the end of an interval at their priorities.
    pub fn step(&mut self, now: Nanos) -> Vec<Event> {
        let (mut events, mut changes) = (Vec::new(), Vec::new());
        for who in 0..self.members.len() {
            self.look(who, now, &mut changes, &mut events);
        }
        if now.since(self.since) >= self.interval {
            self.measure(now, &mut changes, &mut events);
        }
        self.tell(&changes, &mut events);
        self.apply(&mut events);
        events
    }

    fn look(&mut self, who: usize, now: Nanos, changes: &mut Vec<Change>, events: &mut Vec<Event>) {
        let member = &mut self.members[who];
        let name = member.name.clone();
        // Who is not there any more has moved nothing; it may come again.
        let look = member
            .look(&mut self.host, false)
            .unwrap_or_else(|_| member.forget());
        let found = |process| Event::Found {
            name: name.clone(),
            process,
        };
        events.extend(look.new.into_iter().map(found));
        let (was, is) = (member.present, member.has_processes());
        member.present = is;
        self.moved[who].0 += look.moved;
        let done = self.manager.moved(who, look.moved);
        let running = |course: &&mut Course| course.state == State::Running;
        let course = self.courses[who].as_mut().filter(running);
        let ended = course.and_then(|course| {
            course.job.moved = course.job.moved.saturating_add(look.moved);
            course.state = match (done, was && !is) {
                (true, _) => {
                    let forecast = course.job.forecast(now, 0);
                    let took = now.since(course.job.begun);
                    let (early, late) = (forecast.early, forecast.late);
                    State::Done { took, early, late }
                }
                (false, true) => State::Gone {
                    left: course.job.left(),
                },
                (false, false) => return None,
            };
            Some(course.state)
        });
        if was && !is {
            events.push(Event::Left { name: name.clone() });
        }
        if let Some(state) = ended {
            self.manager.end(who, changes);
            if self.capacity > 0 {
                self.manager.cycle(now, changes);
            }
            events.push(Event::Ended { name, state });
        }
    }

    fn measure(&mut self, now: Nanos, changes: &mut Vec<Change>, events: &mut Vec<Event>) {
        let length = u128::from(now.since(self.since).0.max(1));
        let per_s = |bytes: u64| (u128::from(bytes) * u128::from(Nanos::SECOND.0) / length) as u64;
        let all = per_s(self.moved.iter().map(|moved| moved.0).sum());
        for (bytes, last) in &mut self.moved {
            *last = Some(per_s(std::mem::take(bytes)));
        }
        if self.learns_capacity && all > self.capacity {
            self.capacity = all;
            self.manager.set_capacity(all);
        }
        let given_up: Vec<bool> = self.given_up().collect();
        self.manager.measure(now, changes);
        self.since = now;
        for (who, was) in given_up.into_iter().enumerate() {
            if !was && self.manager.is_given_up(who) {
                let name = self.members[who].name.clone();
                events.push(Event::GivenUp { name });
            }
        }
    }

    fn given_up(&self) -> impl Iterator<Item = bool> {
        (0..self.members.len()).map(|who| self.manager.is_given_up(who))
    }

    /// Only what somebody's class is in the end is told.
    fn tell(&self, changes: &[Change], events: &mut Vec<Event>) {
        for (at, change) in changes.iter().enumerate() {
            if changes[at + 1..]
                .iter()
                .all(|later| later.who != change.who)
            {
                let (name, class) = (self.members[change.who].name.clone(), change.class);
                events.push(Event::Class { name, class });
            }
        }
    }

    fn apply(&mut self, events: &mut Vec<Event>) {
        if self.dry_run {
            return;
        }
        for who in 0..self.members.len() {
            let class = self.manager.class(who).unwrap_or_default();
            self.turn(who, class, events);
        }
    }

    fn turn(&mut self, who: usize, class: Class, events: &mut Vec<Event>) {
        let member = &mut self.members[who];
        let refused = member.apply(&mut self.host, class);
        // Said once, not every second.
        let told = std::mem::replace(&mut self.refused[who], refused.is_some());
        if let Some((thread, error)) = refused.filter(|_| !told) {
            let name = member.name.clone();
            events.push(Event::Refused {
                name,
                thread,
                error,
            });
        }
    }

    /// How everybody stands.
    pub fn report(&self, now: Nanos) -> Vec<Report> {
        let report = |(who, member): (usize, &Member)| Report {
            name: member.name.clone(),
            class: self.manager.class(who).unwrap_or_default(),
            present: member.present,
            bytes_per_s: self.moved[who].1,
            job: self.courses[who]
                .as_ref()
                .map(|course| (course.job, course.state)),
            forecast: self
                .manager
                .forecast(who, now)
                .filter(|_| self.capacity > 0),
        };
        self.members.iter().enumerate().map(report).collect()
    }

    /// Every job has ended, one way or the other. Never, where there is none.
    pub fn is_done(&self) -> bool {
        let mut courses = self.courses.iter().flatten().peekable();
        courses.peek().is_some() && courses.all(|course| course.state != State::Running)
    }

    /// Gives every thread that was touched what it had before.
    pub fn restore(&mut self) -> Vec<Event> {
        let mut events = Vec::new();
        for who in 0..self.members.len() {
            self.refused[who] = false;
            let _ = self.members[who].look(&mut self.host, false);
            self.turn(who, Class::BestEffort, &mut events);
        }
        events
    }
}

impl<H: Host> Drop for Agent<H> {
    fn drop(&mut self) {
        self.restore();
    }
}
