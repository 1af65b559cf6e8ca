//! The books of `tidegate place`: what becomes of jobs, in what is kept and in the state machine.

use anyhow::Result;
use tidegate_core::jobs::Class;
use tidegate_core::time::Nanos;
use tidegate_place::{Event, HostId, Placement, Request, RequestId, Update};
use tidegate_report::duration;

use super::kept::KeptJob;
use super::start;
use super::state::Place;
use crate::output::tell;
use crate::problem::Problem;

/// Rates over less than this say nothing.
const SHORTEST_INTERVAL: Nanos = Nanos::SECOND;

impl Place {
    /// The name of a job that comes.
    pub(super) fn name_for(&mut self, name: Option<&str>) -> Result<String> {
        match name {
            Some(name) if self.kept.has_job(name) => {
                let what = format!("there is a job {name:?} already");
                let help = format!("choose another name, or `tidegate place end {name}` first");
                Err(Problem::new(what).at("NAME").help(help).into())
            }
            Some("") => Err(Problem::new("a job's name is empty").at("NAME").into()),
            Some(name) => Ok(name.to_owned()),
            None => loop {
                self.kept.numbered += 1;
                let name = format!("job-{}", self.kept.numbered);
                if !self.kept.has_job(&name) {
                    return Ok(name);
                }
            },
        }
    }

    pub(super) fn unknown(&self, name: &str) -> Problem {
        let running = self.kept.running.iter().map(|job| job.name.as_str());
        let waiting = self.kept.waiting.iter().map(|job| job.name.as_str());
        let names: Vec<_> = running.chain(waiting).collect();
        let problem = Problem::new(format!("there is no job {name:?}"));
        match names.is_empty() {
            true => problem.help("there is none at all"),
            false => problem.help(format!("there are: {}", names.join(", "))),
        }
    }

    /// A job begins on a host.
    pub(super) fn begin(&mut self, name: &str, request: &Request, placement: &Placement) {
        let HostId(at) = placement.host;
        for (id, class) in &placement.lowered {
            let lowered = self.name_of(*id).to_owned();
            self.lower(&lowered, *class, name);
        }
        let Some(host) = self.kept.hosts.get_mut(at) else {
            return;
        };
        host.steady_ns = self.now.0;
        self.kept.running.push(KeptJob {
            name: name.to_owned(),
            host: host.name.clone(),
            bytes: request.bytes(),
            deadline_ns: request.deadline().0,
            begun_ns: self.now.0,
            moved: 0,
            as_of_ns: self.now.0,
            told: 0,
            told_ns: self.now.0,
            class: placement.class.name().to_owned(),
            lowered_for: Vec::new(),
            limit: (request.limit() < u64::MAX).then(|| request.limit()),
            live: false,
        });
    }

    /// Somebody has a lower class for another's job.
    fn lower(&mut self, who: &str, class: Class, for_whom: &str) {
        if let Some(job) = self.kept.running.iter_mut().find(|job| job.name == who) {
            let steps = job.class() as usize - class as usize;
            job.lowered_for.extend(vec![for_whom.to_owned(); steps]);
            job.class = class.name().to_owned();
        }
    }

    /// A job that runs has ended: who was lowered for it is what it was.
    pub(super) fn ended(&mut self, id: RequestId, name: &str) {
        let Some(at) = self.kept.running.iter().position(|job| job.name == name) else {
            return;
        };
        let ended = self.kept.running.remove(at);
        let mut classes = Vec::new();
        for job in &mut self.kept.running {
            let before = job.lowered_for.len();
            job.lowered_for.retain(|whom| whom != name);
            let steps = before - job.lowered_for.len();
            if steps > 0 {
                job.class = job.class().raised(steps).name().to_owned();
                classes.push((job.name.clone(), job.class()));
            }
        }
        let classes: Vec<_> = classes
            .iter()
            .filter_map(|(name, class)| Some((self.id_of(name)?, *class)))
            .collect();
        let Some(host) = self.kept.host(&ended.host) else {
            return;
        };
        self.kept.hosts[host.0].steady_ns = self.now.0;
        let ended = [id];
        let update = Update {
            ended: &ended,
            classes: &classes,
            ..Update::default()
        };
        self.pcos.update(self.now, host, &update);
    }

    pub(super) fn check_moved(&self, name: &str, bytes: u64) -> Result<()> {
        self.check_own(name)?;
        let Some(job) = self.kept.running.iter().find(|job| job.name == name) else {
            if self.kept.has_job(name) {
                let problem =
                    Problem::new(format!("job {name:?} waits: nothing of it can have moved"));
                return Err(problem.into());
            }
            return Err(self.unknown(name).into());
        };
        let what = match bytes {
            bytes if bytes < job.told => {
                format!("{bytes} bytes of {name:?} are fewer than were told before")
            }
            bytes if bytes > job.bytes => format!("{bytes} bytes are more than {name:?} has"),
            _ => return Ok(()),
        };
        let help = format!(
            "from {} to {} bytes, all that has moved since it began",
            job.told, job.bytes
        );
        Err(Problem::new(what).help(help).into())
    }

    /// A job that a daemon told of is the daemon's.
    pub(super) fn check_own(&self, name: &str) -> Result<()> {
        let job = self
            .kept
            .running
            .iter()
            .find(|job| job.name == name && job.live);
        let Some(job) = job else {
            return Ok(());
        };
        let host = self.kept.hosts.iter().find(|host| host.name == job.host);
        let socket = host
            .and_then(|host| host.socket.as_deref())
            .unwrap_or_default();
        let what =
            format!("job {name:?} is known from its host's daemon, which says how it stands");
        let help = format!("ask that one: `tidegate --socket {socket} job --help`");
        Err(Problem::new(what).help(help).into())
    }

    /// Jobs of a host have moved on. Whether something was learnt: where all of them were told of at one time before
    /// and are told of now, and nothing has changed between.
    pub(super) fn moved_on(&mut self, host: HostId, moved: &[(String, u64)]) -> bool {
        let told = |job: &KeptJob| {
            let found = moved.iter().find(|(name, _)| *name == job.name);
            found.map(|told| told.1)
        };
        let (mut had, mut sated) = (Vec::new(), Vec::new());
        if let Some(length) = self.interval(host, |job| told(job).is_some()) {
            for job in self.kept.running.iter().filter(|job| self.is_on(host, job)) {
                let bytes = told(job).unwrap_or(job.told).saturating_sub(job.told);
                let rate = per_s(bytes, length);
                had.push((job.class(), rate));
                // Of a job that nearly had what it takes nobody knows what it was given.
                let is_sated = job.limit.is_some_and(|most| rate >= most - most / 20);
                sated.extend(
                    self.id_of(&job.name)
                        .filter(|_| is_sated)
                        .map(|id| (id, rate)),
                );
            }
        }
        let name = self.kept.hosts[host.0].name.clone();
        let mut now_moved = Vec::new();
        for job in self.kept.running.iter_mut().filter(|job| job.host == name) {
            if let Some(bytes) = told(job) {
                (job.told, job.told_ns) = (bytes, self.now.0);
                now_moved.push((job.name.clone(), bytes));
            }
        }
        let now_moved: Vec<_> = now_moved
            .iter()
            .filter_map(|(name, bytes)| Some((self.id_of(name)?, *bytes)))
            .collect();
        let update = Update {
            moved: &now_moved,
            had: &had,
            sated: &sated,
            ..Update::default()
        };
        self.pcos.update(self.now, host, &update);
        !had.is_empty()
    }

    fn is_on(&self, host: HostId, job: &KeptJob) -> bool {
        job.host == self.kept.hosts[host.0].name
    }

    /// How long the interval was over which all jobs of a host were told of, if it says something.
    fn interval(&self, host: HostId, is_told: impl Fn(&KeptJob) -> bool) -> Option<Nanos> {
        let mut all = (self.kept.running.iter()).filter(|job| self.is_on(host, job));
        let since = Nanos(all.clone().next()?.told_ns);
        let length = self.now.since(since);
        let steady = Nanos(self.kept.hosts[host.0].steady_ns);
        let is_whole = length >= SHORTEST_INTERVAL && since >= steady;
        (is_whole && all.all(|job| job.told_ns == since.0 && is_told(job))).then_some(length)
    }

    /// What came of those that waited is kept, and told.
    pub(super) fn take_events(&mut self) {
        while let Some(event) = self.pcos.poll_event() {
            let id = match &event {
                Event::Placed(placement) => placement.id,
                Event::Discarded(id) => *id,
            };
            let name = self.name_of(id).to_owned();
            let Some(at) = self.kept.waiting.iter().position(|job| job.name == name) else {
                continue;
            };
            let waited = self.kept.waiting.remove(at);
            let said = match event {
                Event::Discarded(_) => {
                    format!("{name} has waited until its deadline, and is discarded")
                }
                Event::Placed(placement) => {
                    if let Ok(request) = waited.request() {
                        self.begin(&name, &request, &placement);
                    }
                    let host = &self.kept.hosts[placement.host.0];
                    let started = match waited.start && !self.just_looking {
                        true => start::said(host, &name, waited.request().ok().as_ref()),
                        false => String::new(),
                    };
                    let (after, class) = (duration(placement.waited.0), placement.class.name());
                    format!(
                        "{name} goes to host {} after {after}, class {class}{started}",
                        host.name
                    )
                }
            };
            if !self.just_looking {
                tell(said);
            }
        }
    }
}

fn per_s(bytes: u64, length: Nanos) -> u64 {
    let bytes = u128::from(bytes) * u128::from(Nanos::SECOND.0);
    u64::try_from(bytes / u128::from(length.0.max(1))).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::place::kept::{HostsFile, KeptHost};
    use tidegate_place::{Combination, Outcome};

    const MB: u64 = 1_000_000;

    fn hosts() -> Option<HostsFile> {
        let hosts = vec![KeptHost::new("a".to_owned(), 60 * MB, Vec::new(), 4)];
        Some(HostsFile { hosts, grace: None })
    }

    fn ask(place: &mut Place, name: &str, mb: u64, seconds: u64) {
        let request = Request::new(mb * MB, Nanos::from_secs(seconds)).expect("it is one");
        let answer = place.pcos.request(place.now, request);
        place.name(answer.id, name);
        let Outcome::Placed(placement) = answer.outcome else {
            panic!("{name}: {answer:?}");
        };
        place.begin(name, &request, &placement);
    }

    /// After a restart, so many seconds later.
    fn again(mut place: Place, path: &std::path::Path, seconds: u64) -> Place {
        let now = place.now + Nanos::from_secs(seconds);
        place.save(&[HostId(0)]).expect("writes");
        drop(place);
        let mut place = Place::open(path, None, false).expect("opens");
        place.now = now;
        place
    }

    fn moved(place: &mut Place, all: &[(&str, u64)]) -> bool {
        let all: Vec<_> = all
            .iter()
            .map(|(name, mb)| ((*name).to_owned(), mb * MB))
            .collect();
        place.moved_on(HostId(0), &all)
    }

    #[test]
    fn an_interval_teaches_where_all_were_told_of_and_nothing_has_changed() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("place.redb");
        let mut place = Place::open(&path, hosts(), false).expect("made");
        ask(&mut place, "x", 6_000, 1_000);
        let mut place = again(place, &path, 10);
        assert!(moved(&mut place, &[("x", 500)]), "50 MB/s alone");
        ask(&mut place, "y", 6_000, 1_000);
        let mut place = again(place, &path, 10);
        // One of two says nothing of both.
        assert!(!moved(&mut place, &[("x", 700)]));
        place.now += Nanos::from_secs(10);
        // Both, but not over the same time.
        assert!(!moved(&mut place, &[("x", 900), ("y", 400)]));
        let mut place = again(place, &path, 10);
        assert!(moved(&mut place, &[("x", 1_100), ("y", 800)]));
        place.now += Nanos(SHORTEST_INTERVAL.0 - 1);
        assert!(!moved(&mut place, &[("x", 1_100), ("y", 800)]), "too short");
        let place = again(place, &path, 0);
        let database = place.database(HostId(0)).expect("there");
        let of = |n| Combination::of(vec![Class::BestEffort; n]);
        let rates = [1, 2].map(|n| database.rates(&of(n)).of(Class::BestEffort));
        assert_eq!(rates, [50 * MB, 30 * MB], "the mean of 20 and 40 MB/s");
    }

    #[test]
    fn a_job_that_had_what_it_takes_says_nothing_of_what_its_class_has() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("place.redb");
        let mut place = Place::open(&path, hosts(), false).expect("made");
        ask(&mut place, "x", 6_000, 1_000);
        ask(&mut place, "y", 6_000, 1_000);
        place.kept.running[0].limit = Some(10 * MB);
        // 9.6 of 10 MB/s are what it takes, and 48 beside that what the other one had of 57.6.
        let mut place = again(place, &path, 10);
        assert!(moved(&mut place, &[("x", 96), ("y", 480)]));
        let place = again(place, &path, 0);
        let database = place.database(HostId(0)).expect("there");
        let rate = database.rates(&Combination::of([Class::BestEffort; 2]));
        assert_eq!(rate.of(Class::BestEffort), 28_800_000);
        let view = place.pcos.host(HostId(0)).expect("there");
        let rates: Vec<_> = view.running().iter().map(|job| view.rate(job)).collect();
        assert_eq!(rates, [10 * MB, 47_600_000]);
    }

    #[test]
    fn who_was_lowered_for_a_job_is_restored_when_it_ends() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("place.redb");
        let mut place = Place::open(&path, hosts(), false).expect("made");
        ask(&mut place, "x", 600, 1_000);
        // Beside somebody idle one has 50 MB/s, and that one 10.
        place.kept.running[0].class = "idle".to_owned();
        let mut place = again(place, &path, 0);
        let had = [(Class::BestEffort, 50 * MB), (Class::Idle, 10 * MB)];
        let update = Update {
            had: &had,
            ..Update::default()
        };
        place.pcos.update(place.now, HostId(0), &update);
        let had = [(Class::BestEffort, 30 * MB); 2];
        let update = Update {
            had: &had,
            ..Update::default()
        };
        place.pcos.update(place.now, HostId(0), &update);
        place.kept.running[0].class = "best-effort".to_owned();
        let mut place = again(place, &path, 0);
        ask(&mut place, "y", 4_500, 100);
        assert_eq!(place.kept.running[0].class, "idle");
        assert_eq!(place.kept.running[0].lowered_for, ["y"]);
        let mut place = again(place, &path, 5);
        let id = place.id_of("y").expect("it runs");
        place.ended(id, "y");
        assert_eq!(place.kept.running.len(), 1);
        assert_eq!(place.kept.running[0].class, "best-effort");
        let view = place.pcos.host(HostId(0)).expect("there");
        assert_eq!(view.running()[0].tenant.class, Class::BestEffort);
    }
}
