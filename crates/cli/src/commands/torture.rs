//! `tidegate torture`: runs seeds on all processors, shows those that fail.

use std::collections::BTreeMap;
use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::sync::Mutex;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde::Serialize;
use tidegate_core::policy::PolicySpec;
use tidegate_report::{Table, count};
use tidegate_sim::torture::{self, Failure, Options, Passed};

use crate::args::TortureArgs;
use crate::output::Output;
use crate::problem::Problem;

/// Seeds where neither a number nor a time is given.
const SEEDS: u64 = 1000;
/// Failures that are shown whole; of the others only what broke.
const SHOWN: usize = 3;
/// Between two lines of progress, and at least between two writings of the resume file.
const SOMETIMES: Duration = Duration::from_millis(500);

type Ended = Result<Passed, Box<Failure>>;

/// What a run came to.
#[derive(Debug, Default, Serialize)]
struct Summary {
    passed: u64,
    failed: Vec<Failed>,
    left_out: u64,
    requests: u64,
    device_ios: u64,
    faults: u64,
    seconds: f64,
    seeds_per_second: f64,
    /// Of all that happened, in whatever order the seeds ran.
    digest: String,
    #[serde(skip)]
    sum: u64,
}

#[derive(Debug, Serialize)]
struct Failed {
    seed: u64,
    checker: &'static str,
    what: String,
    again: String,
}

pub(super) fn run(args: &TortureArgs, out: Output) -> Result<()> {
    match args.seed {
        Some(seed) => one(seed, args, out),
        None => many(args, out),
    }
}

/// One seed, perhaps with all that happens.
fn one(seed: u64, args: &TortureArgs, out: Output) -> Result<()> {
    let begun = Instant::now();
    // A closed pipe ends the showing, not the run: its verdict still counts.
    let mut show = |line: &torture::Line| {
        let _ = out.text(&format!("{line}\n"));
    };
    let options = Options {
        policies: &args.policies,
        sink: (args.trace && !out.is_json()).then_some(&mut show),
        plant: None,
    };
    let ended = torture::run_with(seed, options);
    let mut summary = Summary::default();
    if let Err(failure) = &ended
        && !out.is_json()
    {
        out.text(&format!("{failure}\n"))?;
    }
    summary.take(&ended);
    summary.print(begun, out)
}

fn many(args: &TortureArgs, out: Output) -> Result<()> {
    let begun = Instant::now();
    let seeds = args.seeds.or(match args.minutes {
        Some(_) => None,
        None => Some(SEEDS),
    });
    let last = seeds.map_or(u64::MAX, |n| args.start_seed.saturating_add(n));
    let mut done = match &args.resume {
        Some(file) => Done::read(file)?,
        None => Done::default(),
    };
    let source = Source {
        next: Mutex::new((args.start_seed, done.clone())),
        last,
        until: args.minutes.map(|minutes| begun + minutes),
    };
    let jobs = match args.jobs {
        Some(jobs) => jobs.into(),
        None => thread::available_parallelism().map_or(1, usize::from),
    };
    let mut summary = Summary {
        left_out: done.within(args.start_seed, last),
        ..Summary::default()
    };
    let mut progress = Progress {
        begun,
        of: seeds.map(|n| n - summary.left_out),
        until: args.minutes,
        shown: false,
    };
    let (sender, receiver) = mpsc::channel();
    thread::scope(|scope| {
        for _ in 0..jobs {
            let (source, sender) = (&source, sender.clone());
            scope.spawn(move || work(source, &args.policies, &sender));
        }
        drop(sender);
        let resume = args.resume.as_deref();
        collect(&receiver, &mut summary, &mut done, resume, &mut progress)
    })?;
    summary.print(begun, out)
}

/// Which seeds are still to be run.
struct Source {
    next: Mutex<(u64, Done)>,
    last: u64,
    until: Option<Instant>,
}

impl Source {
    fn take(&self) -> Option<u64> {
        if self.until.is_some_and(|until| Instant::now() >= until) {
            return None;
        }
        let mut guard = self.next.lock().expect("nobody panics with it");
        let (next, done) = &mut *guard;
        let seed = done.first_not_in(*next);
        if seed >= self.last {
            return None;
        }
        *next = seed + 1;
        Some(seed)
    }
}

fn work(source: &Source, policies: &[PolicySpec], sender: &Sender<Ended>) {
    while let Some(seed) = source.take() {
        let options = Options {
            policies,
            ..Options::default()
        };
        if sender.send(torture::run_with(seed, options)).is_err() {
            return;
        }
    }
}

fn collect(
    receiver: &Receiver<Ended>,
    summary: &mut Summary,
    done: &mut Done,
    resume: Option<&Path>,
    progress: &mut Progress,
) -> Result<()> {
    let mut next = Instant::now() + SOMETIMES;
    loop {
        match receiver.recv_timeout(next.saturating_duration_since(Instant::now())) {
            Ok(ended) => {
                match &ended {
                    Ok(passed) => done.add(passed.seed),
                    Err(failure) => progress.failure(failure, summary.failed.len() < SHOWN),
                }
                summary.take(&ended);
            }
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => {}
        }
        if Instant::now() >= next {
            next = Instant::now() + SOMETIMES;
            progress.show(summary);
            if let Some(file) = resume {
                done.write(file)?;
            }
        }
    }
    progress.clear();
    match resume {
        Some(file) => done.write(file),
        None => Ok(()),
    }
}

impl Summary {
    fn take(&mut self, ended: &Ended) {
        let (seed, digest) = match ended {
            Ok(passed) => {
                self.passed += 1;
                self.requests += passed.tally.requests;
                self.device_ios += passed.tally.ios;
                self.faults += passed.tally.faults;
                (passed.seed, passed.digest)
            }
            Err(failure) => {
                self.failed.push(Failed {
                    seed: failure.seed,
                    checker: failure.broken.checker.name(),
                    what: failure.broken.what.clone(),
                    again: failure.command(),
                });
                (failure.seed, failure.digest)
            }
        };
        // A sum, because seeds end in any order.
        let mixed = (digest ^ seed).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.sum = self.sum.wrapping_add(mixed ^ (mixed >> 32));
    }

    fn print(mut self, begun: Instant, out: Output) -> Result<()> {
        self.seconds = begun.elapsed().as_secs_f64();
        let ran = self.passed + self.failed.len() as u64;
        self.seeds_per_second = ran as f64 / self.seconds;
        self.digest = format!("{:016x}", self.sum);
        self.failed.sort_by_key(|failed| failed.seed);
        if out.is_json() {
            out.json(&self)?;
        } else {
            let mut facts = Table::facts();
            facts.fact("passed", count(self.passed));
            if self.left_out > 0 {
                facts.fact("passed before", count(self.left_out));
            }
            facts
                .fact("failed", count(self.failed.len() as u64))
                .fact("requests", count(self.requests))
                .fact("device I/Os", count(self.device_ios))
                .fact("faults", count(self.faults))
                .fact("took", format!("{:.1} s", self.seconds))
                .fact("seeds a second", format!("{:.0}", self.seeds_per_second))
                .fact("digest", self.digest.as_str());
            out.table(&facts)?;
        }
        let Some(first) = self.failed.first() else {
            return Ok(());
        };
        let what = format!("{} of {ran} seeds broke a promise", self.failed.len());
        Err(Problem::new(what).help(first.again.as_str()).into())
    }
}

/// Lines on standard error that stay up to date, where somebody looks.
struct Progress {
    begun: Instant,
    of: Option<u64>,
    until: Option<Duration>,
    shown: bool,
}

impl Progress {
    fn show(&mut self, summary: &Summary) {
        if !io::stderr().is_terminal() {
            return;
        }
        let failed = summary.failed.len() as u64;
        let (ran, took) = (summary.passed + failed, self.begun.elapsed().as_secs_f64());
        let rate = ran as f64 / took;
        let by_seeds = self.of.map(|of| (of - ran) as f64 / rate);
        let by_time = self.until.map(|until| until.as_secs_f64() - took);
        let left = by_seeds
            .into_iter()
            .chain(by_time)
            .fold(f64::INFINITY, f64::min);
        let of = self
            .of
            .map_or(String::new(), |of| format!(" of {}", count(of)));
        let line = format!(
            "{}{of} seeds, {rate:.0} a second, {:.0} s left, {failed} failed",
            count(ran),
            left.max(0.0)
        );
        self.shown = true;
        let _ = write!(io::stderr(), "\r\x1b[K{line}");
    }

    fn clear(&mut self) {
        if std::mem::take(&mut self.shown) {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }

    fn failure(&mut self, failure: &Failure, whole: bool) {
        self.clear();
        let _ = match whole {
            true => writeln!(io::stderr(), "{failure}"),
            false => writeln!(io::stderr(), "seed {}: {}", failure.seed, failure.broken),
        };
    }
}

/// Seeds that have passed: ranges, by their first.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Done(BTreeMap<u64, u64>);

impl Done {
    /// Reads a resume file: a range a line, `FIRST LAST`. One that is not there is empty.
    fn read(file: &Path) -> Result<Done> {
        let text = match std::fs::read_to_string(file) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Done::default()),
            Err(error) => return Err(error).with_context(|| format!("{}", file.display())),
        };
        let mut done = Done::default();
        for (number, line) in text.lines().enumerate() {
            let mut words = line.split_whitespace().map(str::parse::<u64>);
            let range = (words.next(), words.next(), words.next());
            match range {
                (Some(Ok(first)), Some(Ok(last)), None) if first <= last => {
                    done.0.insert(first, last);
                }
                _ => {
                    let at = format!("{}, line {}", file.display(), number + 1);
                    let what = format!("{line:?} is no range of seeds such as \"0 999\"");
                    return Err(Problem::new(what).at(at).into());
                }
            }
        }
        Ok(done)
    }

    /// Writes it so that a crash leaves the old file or the new one.
    fn write(&self, file: &Path) -> Result<()> {
        let text: String = self.0.iter().map(|(a, b)| format!("{a} {b}\n")).collect();
        let mut name = file.as_os_str().to_owned();
        name.push(".new");
        std::fs::write(&name, text)
            .and_then(|()| std::fs::rename(&name, file))
            .with_context(|| format!("cannot write {}", file.display()))
    }

    fn add(&mut self, seed: u64) {
        let mut range = (seed, seed);
        if let Some((&first, &last)) = self.0.range(..=seed).next_back() {
            if last >= seed {
                return;
            }
            if last + 1 == seed {
                range.0 = first;
            }
        }
        if let Some(&last) = seed.checked_add(1).and_then(|next| self.0.get(&next)) {
            self.0.remove(&(seed + 1));
            range.1 = last;
        }
        self.0.insert(range.0, range.1);
    }

    /// The first seed from here on that is not in it.
    fn first_not_in(&self, seed: u64) -> u64 {
        match self.0.range(..=seed).next_back() {
            Some((_, &last)) if last >= seed && last < u64::MAX => self.first_not_in(last + 1),
            _ => seed,
        }
    }

    /// How many of `first..end` are in it.
    fn within(&self, first: u64, end: u64) -> u64 {
        let overlap = |(&a, &b): (&u64, &u64)| {
            let (from, to) = (a.max(first), b.min(end.saturating_sub(1)));
            if from > to { 0 } else { to - from + 1 }
        };
        self.0.iter().map(overlap).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_that_passed_are_kept_as_ranges_and_left_out() {
        let mut done = Done::default();
        for seed in [5, 3, 4, 9, 0] {
            done.add(seed);
        }
        assert_eq!(done.0, BTreeMap::from([(0, 0), (3, 5), (9, 9)]));
        assert_eq!(done.first_not_in(0), 1);
        assert_eq!(done.first_not_in(3), 6);
        assert_eq!(done.within(4, 100), 3);
        done.add(4);
        assert_eq!(done.within(0, 100), 5);
    }

    #[test]
    fn a_resume_file_survives_writing_and_reading() {
        let folder = tempfile::tempdir().expect("a directory");
        let file = folder.path().join("seeds");
        assert_eq!(Done::read(&file).expect("none yet"), Done::default());
        let mut done = Done::default();
        (0..100).for_each(|seed| done.add(seed));
        done.add(200);
        done.write(&file).expect("written");
        assert_eq!(Done::read(&file).expect("read"), done);
        std::fs::write(&file, "0 99\n7 to 9\n").expect("written");
        let error = Done::read(&file).expect_err("no range").to_string();
        assert!(error.contains("line 2"), "{error}");
    }
}
