//! The agent itself: looks, decides, applies, puts back.

use tidegate_core::jobs::{Change, Class, Job, PriorityManager};
use tidegate_core::time::Nanos;

use crate::books::Books;
use crate::host::{Host, Process, TargetError};
use crate::member::{Look, Member};
use crate::offspring;
use crate::told::{Event, Plan, Report, State};

/// New processes and threads are looked for so often.
const LOOK: Nanos = Nanos::SECOND;
/// And no more often than this when a job comes to its end.
const SOONEST: Nanos = Nanos(20_000_000);

/// Somebody's job from the begin to its end.
#[derive(Debug)]
struct Course {
    job: Job,
    state: State,
    /// True once [`Event::Late`] has been reported for this job.
    told_late: bool,
}

impl Course {
    fn new(now: Nanos, (bytes, deadline): (u64, Nanos)) -> Course {
        let job = Job {
            bytes,
            begun: now,
            deadline,
            moved: 0,
        };
        let state = State::Running;
        Course {
            job,
            state,
            told_late: false,
        }
    }

    /// Returns true once per job: on the first call after its deadline has passed while it still
    /// runs.
    fn turns_late(&mut self, now: Nanos) -> bool {
        let is_late = self.state == State::Running && now > self.job.due();
        is_late && !core::mem::replace(&mut self.told_late, true)
    }

    /// It is done now, but for what nobody saw.
    fn done(&self, now: Nanos, unseen: u64) -> State {
        let forecast = Job {
            moved: self.job.bytes,
            ..self.job
        }
        .forecast(now, 0);
        State::Done {
            took: now.since(self.job.begun),
            early: forecast.early,
            late: forecast.late,
            unseen,
        }
    }
}

/// Watches processes and sets their I/O classes so that their jobs end in time.
#[derive(Debug)]
pub struct Agent<H: Host> {
    host: H,
    dry_run: bool,
    manager: PriorityManager,
    members: Vec<Member>,
    books: Books,
    courses: Vec<Option<Course>>,
    /// Bytes in the interval that runs, and a second in the last one.
    moved: Vec<(u64, Option<u64>)>,
    interval: Nanos,
    /// When the interval that runs began.
    since: Nanos,
    /// When everybody was looked at last.
    looked: Nanos,
    /// The device's bandwidth is what was seen at most.
    learns_capacity: bool,
    capacity: u64,
    refused: Vec<bool>,
}

impl<H: Host> Agent<H> {
    /// Jobs begin now. `capacity`: what the disk does in bytes a second; `None`: as much as is ever
    /// seen. Priorities are looked at anew every `interval`. With `dry_run` nothing is set.
    ///
    /// # Errors
    /// Somebody is not there, or cannot be looked at.
    pub fn new(
        mut host: H,
        now: Nanos,
        (interval, capacity, dry_run): (Nanos, Option<u64>, bool),
        plans: Vec<Plan>,
    ) -> Result<(Agent<H>, Vec<Event>), TargetError> {
        let mut manager = PriorityManager::new(now, capacity.unwrap_or(0));
        let (mut members, mut courses) = (Vec::new(), Vec::new());
        for (who, plan) in plans.into_iter().enumerate() {
            manager.add(now, who);
            courses.push(plan.job.map(|job| Course::new(now, job)));
            members.push(Member::new(plan.name, plan.target));
        }
        let found = offspring::find(&mut host, &mut members).into_iter();
        let found = found.collect::<Result<Vec<_>, _>>()?;
        let mut books = Books::default();
        books.open(&mut host, found.iter().flatten())?;
        let count = members.len();
        let mut agent = Agent {
            host,
            dry_run,
            manager,
            members,
            books,
            courses,
            moved: vec![(0, None); count],
            interval,
            since: now,
            looked: now,
            learns_capacity: capacity.is_none(),
            capacity: capacity.unwrap_or(0),
            refused: vec![false; count],
        };
        let mut events = Vec::new();
        agent.count(found, now, &mut Vec::new(), &mut events);
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
        let found = self.find();
        self.count(found, now, &mut changes, &mut events);
        if now.since(self.since) >= self.interval {
            self.measure(now, &mut changes, &mut events);
        }
        self.tell(&changes, &mut events);
        self.tell_late(now, &mut events);
        self.apply(&mut events);
        events
    }

    fn tell_late(&mut self, now: Nanos, events: &mut Vec<Event>) {
        for (course, member) in self.courses.iter_mut().zip(&self.members) {
            if let Some(course) = course
                && course.turns_late(now)
            {
                let (name, left) = (member.name.clone(), course.job.left());
                events.push(Event::Late { name, left });
            }
        }
    }

    /// How long it may wait with its next look: a second, or an interval if that is shorter. Sooner
    /// as a job comes to its end, for of a process that has gone nobody says any more what it
    /// moved.
    pub fn next_look(&self, now: Nanos) -> Nanos {
        let most = LOOK.min(self.interval);
        let running = (self.courses.iter().enumerate())
            .filter_map(|(who, course)| Some((who, course.as_ref()?)))
            .filter(|(_, course)| course.state == State::Running);
        // A quarter of the time that it may take.
        let quarter =
            |(who, course): (usize, &Course)| Nanos(course.job.latency(self.most(who, now)).0 / 4);
        let soon = running.map(quarter).min();
        soon.map_or(most, |soon| soon.clamp(SOONEST.min(most), most))
    }

    /// Bytes a second that somebody may move: the whole disk's, or its own where that is not known
    /// or was less.
    fn most(&self, who: usize, now: Nanos) -> u64 {
        let (bytes, last) = self.moved[who];
        let own = per_s(bytes, now.since(self.since)).max(last.unwrap_or(0));
        own.max(self.capacity)
    }

    /// Who is not there any more has no processes; it may come again.
    fn find(&mut self) -> Vec<Vec<Process>> {
        let found = offspring::find(&mut self.host, &mut self.members);
        found.into_iter().map(Result::unwrap_or_default).collect()
    }

    fn count(
        &mut self,
        found: Vec<Vec<Process>>,
        now: Nanos,
        changes: &mut Vec<Change>,
        events: &mut Vec<Event>,
    ) {
        let moved = self.books.look(&mut self.host, found.iter().flatten());
        for (who, found) in found.iter().enumerate() {
            let look = self.members[who].look(found, &moved);
            self.account(who, look, now, changes, events);
        }
        self.looked = now;
    }

    fn account(
        &mut self,
        who: usize,
        look: Look,
        now: Nanos,
        changes: &mut Vec<Change>,
        events: &mut Vec<Event>,
    ) {
        // Twice as much as it may move: rates are not the same all the time.
        let gap = now.since(self.looked);
        let unseen_most = in_time(self.most(who, self.looked), gap).saturating_mul(2);
        let member = &mut self.members[who];
        let name = || member.name.clone();
        let found = |process| Event::Found {
            name: name(),
            process,
        };
        events.extend(look.new.into_iter().map(found));
        let left = member.present && !member.has_processes();
        if left {
            events.push(Event::Left { name: name() });
        }
        member.present = member.has_processes();
        self.moved[who].0 += look.moved;
        let done = self.manager.moved(who, look.moved);
        let running = |course: &&mut Course| course.state == State::Running;
        let Some(course) = self.courses[who].as_mut().filter(running) else {
            return;
        };
        course.job.moved = course.job.moved.saturating_add(look.moved);
        course.state = match course.job.left() {
            _ if done => course.done(now, 0),
            rest if left && rest <= unseen_most => course.done(now, rest),
            rest if left => State::Gone { left: rest },
            _ => return,
        };
        let (name, state) = (self.members[who].name.clone(), course.state);
        events.push(Event::Ended { name, state });
        self.manager.end(who, changes);
        if self.capacity > 0 {
            self.manager.cycle(now, changes);
        }
    }

    fn measure(&mut self, now: Nanos, changes: &mut Vec<Change>, events: &mut Vec<Event>) {
        let length = now.since(self.since);
        let all = per_s(self.moved.iter().map(|moved| moved.0).sum(), length);
        for (bytes, last) in &mut self.moved {
            *last = Some(per_s(std::mem::take(bytes), length));
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
        self.gather();
        for who in 0..self.members.len() {
            let class = self.manager.class(who).unwrap_or_default();
            self.turn(who, class, events);
        }
    }

    /// Before anybody is given anything: who left somebody may be somebody else's.
    fn gather(&mut self) {
        for member in &mut self.members {
            member.gather(&mut self.host);
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
        let found = self.find();
        let moved = self.books.look(&mut self.host, found.iter().flatten());
        for (member, found) in self.members.iter_mut().zip(&found) {
            member.look(found, &moved);
        }
        self.gather();
        for who in 0..self.members.len() {
            self.refused[who] = false;
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

/// Bytes a second; none in no time.
fn per_s(bytes: u64, time: Nanos) -> u64 {
    let per_s = (u128::from(bytes) * u128::from(Nanos::SECOND.0)).checked_div(time.0.into());
    u64::try_from(per_s.unwrap_or(0)).unwrap_or(u64::MAX)
}

/// Bytes in a time, at so many a second.
fn in_time(bytes_per_s: u64, time: Nanos) -> u64 {
    let bytes = u128::from(bytes_per_s) * u128::from(time.0) / u128::from(Nanos::SECOND.0);
    u64::try_from(bytes).unwrap_or(u64::MAX)
}
