//! `tidegate torture`: torture-tests the engine with many seeds on all CPUs.

use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::sync::Mutex;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use serde::Serialize;
use tidegate_policies::policy::PolicySpec;
use tidegate_report::{Style, Table};
use tidegate_sim::torture::{self, Failure, Options, Passed};
use tidegate_units::human::count;

use crate::args::TortureArgs;
use crate::output::Output;
use crate::problem::Problem;
use crate::seeds::{Owner, Seeds};

/// Default number of seeds.
const DEFAULT_SEEDS: u64 = 1000;
/// Number of failures shown in full; of later ones only the broken check is shown.
const FAILURES_SHOWN: usize = 3;
/// Interval between updates of the progress line, and between writes of the resume file.
const UPDATE_INTERVAL: Duration = Duration::from_millis(500);

type Ended = Result<Passed, Box<Failure>>;

/// Result of all seeds, as JSON.
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
    /// Digest of all events, independent of the order in which seeds ran.
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
        Some(seed) => run_seed(seed, args, out),
        None => run_seeds(args, out),
    }
}

/// Runs one seed, with --trace printing every event.
fn run_seed(seed: u64, args: &TortureArgs, out: Output) -> Result<()> {
    let begun = Instant::now();
    // A closed pipe ends the output, not the run, whose verdict still counts.
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

fn run_seeds(args: &TortureArgs, out: Output) -> Result<()> {
    let begun = Instant::now();
    let seeds = args.seeds.or(match args.minutes {
        Some(_) => None,
        None => Some(DEFAULT_SEEDS),
    });
    // Without a number but with --minutes, seeds go on until time is up.
    let last = last_seed(args.start_seed, seeds)?;
    let mut done = match &args.resume {
        Some(file) => Done::open(file, &args.policies)?,
        None => Done::default(),
    };
    let source = Source {
        next: Mutex::new((Some(args.start_seed), done.seeds.clone())),
        last,
        until: args.minutes.map(|minutes| begun + minutes),
    };
    let jobs = match args.jobs {
        Some(jobs) => jobs.into(),
        None => thread::available_parallelism().map_or(1, usize::from),
    };
    let mut summary = Summary {
        left_out: done.seeds.within(args.start_seed, last),
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
            scope.spawn(move || run_worker(source, &args.policies, &sender));
        }
        // Only workers keep senders, so that `collect` ends when the last of them does.
        drop(sender);
        collect(&receiver, &mut summary, &mut done, &mut progress)
    })?;
    summary.print(begun, out)
}

/// Returns the last of `seeds` seeds from `first` on; without a number, the largest seed.
fn last_seed(first: u64, seeds: Option<u64>) -> Result<u64> {
    let Some(seeds) = seeds else {
        return Ok(u64::MAX);
    };
    let beyond = seeds - 1;
    first.checked_add(beyond).ok_or_else(|| {
        let what = format!(
            "there are fewer than {seeds} seeds from {first} on: the largest seed is {}",
            u64::MAX
        );
        let (fit, start) = (u64::MAX - first + 1, u64::MAX - beyond);
        Problem::new(what)
            .at("--start-seed")
            .help(format!(
                "at most --seeds {fit}, or at most --start-seed {start}"
            ))
            .into()
    })
}

/// Seeds that have passed, and the file that records them.
#[derive(Default)]
struct Done<'a> {
    seeds: Seeds,
    kept: Option<(&'a Path, Owner)>,
}

impl<'a> Done<'a> {
    fn open(file: &'a Path, policies: &[PolicySpec]) -> Result<Done<'a>> {
        let owner = Owner::this(policies)?;
        let done = Done {
            seeds: Seeds::read(file, &owner)?,
            kept: Some((file, owner)),
        };
        // Written at once, to find an unwritable file now rather than after an hour.
        done.write()?;
        Ok(done)
    }

    fn write(&self) -> Result<()> {
        match &self.kept {
            Some((file, owner)) => self.seeds.write(file, owner),
            None => Ok(()),
        }
    }
}

/// Seeds still to run: from the next one, if any, to the last.
struct Source {
    next: Mutex<(Option<u64>, Seeds)>,
    last: u64,
    until: Option<Instant>,
}

impl Source {
    fn take(&self) -> Option<u64> {
        if self.until.is_some_and(|until| Instant::now() >= until) {
            return None;
        }
        let mut guard = self.next.lock().expect("no thread panics with the lock");
        let (next, done) = &mut *guard;
        let seed = done.first_not_in((*next)?)?;
        if seed > self.last {
            return None;
        }
        // After the largest seed there is none.
        *next = seed.checked_add(1);
        Some(seed)
    }
}

fn run_worker(source: &Source, policies: &[PolicySpec], sender: &Sender<Ended>) {
    while let Some(seed) = source.take() {
        let options = Options {
            policies,
            ..Options::default()
        };
        // The receiver is gone because the resume file could not be written.
        if sender.send(torture::run_with(seed, options)).is_err() {
            return;
        }
    }
}

fn collect(
    receiver: &Receiver<Ended>,
    summary: &mut Summary,
    done: &mut Done,
    progress: &mut Progress,
) -> Result<()> {
    let mut next = Instant::now() + UPDATE_INTERVAL;
    loop {
        match receiver.recv_timeout(next.saturating_duration_since(Instant::now())) {
            Ok(ended) => {
                match &ended {
                    // A failed seed is not recorded, so that it runs again after a fix.
                    Ok(passed) => done.seeds.add(passed.seed, passed.seed),
                    Err(failure) => {
                        progress.failure(failure, summary.failed.len() < FAILURES_SHOWN)
                    }
                }
                summary.take(&ended);
            }
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => {}
        }
        if Instant::now() >= next {
            next = Instant::now() + UPDATE_INTERVAL;
            progress.show(summary);
            done.write()?;
        }
    }
    progress.clear();
    done.write()
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
        // A sum does not depend on the order in which seeds end.
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
            let mut properties = Table::properties();
            properties.property("passed", count(self.passed));
            if self.left_out > 0 {
                properties.property("passed earlier", count(self.left_out));
            }
            properties
                .property("failed", count(self.failed.len() as u64))
                .property("requests", count(self.requests))
                .property("device I/Os", count(self.device_ios))
                .property("faults", count(self.faults))
                .property("duration", format!("{:.1} s", self.seconds))
                .property("seeds per second", format!("{:.0}", self.seeds_per_second))
                .property("digest", self.digest.as_str());
            out.table(&properties)?;
        }
        let Some(first) = self.failed.first() else {
            return Ok(());
        };
        let what = format!("{} of {ran} seeds failed", self.failed.len());
        Err(Problem::new(what).help(first.again.as_str()).into())
    }
}

/// Progress line on standard error, if it is a terminal.
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
            // Whichever bound is reached first ends the run.
            .fold(f64::INFINITY, f64::min);
        let of = self
            .of
            .map_or(String::new(), |of| format!(" of {}", count(of)));
        let line = format!(
            "{}{of} seeds, {rate:.0} per second, {:.0} s left, {failed} failed",
            count(ran),
            left.max(0.0)
        );
        self.shown = true;
        let line = Style::Colour.group_digits(&line);
        let _ = write!(io::stderr(), "\r\x1b[K{line}");
    }

    fn clear(&mut self) {
        if std::mem::take(&mut self.shown) {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }

    fn failure(&mut self, failure: &Failure, whole: bool) {
        self.clear();
        let _ = if whole {
            writeln!(io::stderr(), "{failure}")
        } else {
            writeln!(io::stderr(), "seed {}: {}", failure.seed, failure.broken)
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_end_at_the_largest_and_what_goes_beyond_is_refused() {
        assert_eq!(last_seed(0, Some(6)).expect("fits"), 5);
        assert_eq!(last_seed(7, None).expect("fits"), u64::MAX);
        assert_eq!(last_seed(u64::MAX, Some(1)).expect("fits"), u64::MAX);
        assert_eq!(last_seed(u64::MAX - 1, Some(2)).expect("fits"), u64::MAX);
        let error = last_seed(u64::MAX - 1, Some(3))
            .expect_err("too many")
            .to_string();
        assert!(error.contains("--seeds 2"), "{error}");
        assert!(
            error.contains("--start-seed 18446744073709551613"),
            "{error}"
        );
    }
}
