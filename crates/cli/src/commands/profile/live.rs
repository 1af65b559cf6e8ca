//! Measuring in real time: disks, and models as emulated disks.

use std::io::ErrorKind;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result};
use indicatif::ProgressBar;
use tidegate_config::profile::Measured;
use tidegate_core::time::Nanos;
use tidegate_device::catalogue::Entry;
use tidegate_profile::outcome::measured;
use tidegate_profile::{Options, Plan, Profiler, Target, virtual_time};
use tidegate_server::profile::{self as live, Disk, Ended, Findings};
use tokio::signal::unix::{SignalKind, signal};

use super::part::{self, Part};
use super::when;
use crate::args::MeasureArgs;
use crate::output;
use crate::problem::Problem;
use crate::progress;

/// Requests that a disk is given at a time, at most: what Linux queues for most of them.
const DEPTH_MAX: u32 = 128;
/// Bytes of the largest request.
const MAX_IO: u32 = 1 << 20;
/// The file that is made in a directory.
const SCRATCH: &str = "tidegate-profile.scratch";
/// Parts of a bar.
const BAR: u64 = 1000;

/// A model in real time. Stopped, it begins anew: it remembers nothing of what was written.
pub(super) fn model(entry: &Entry, options: Options, read_only: bool) -> Result<Measured> {
    let mut target = virtual_time::target(entry);
    target.writes = !read_only;
    target.depth_max = target.depth_max.min(depth_max(options.depth));
    target.max_io = target.max_io.min(MAX_IO);
    let mut profiler = Profiler::new(plan(target, options)?, Vec::new());
    let (name, time) = (&entry.name, time(&profiler));
    output::tell(format_args!("measuring {name} in real time: {time}"));
    let mut watcher = Watcher::new(&profiler)?;
    let ended = live::measure_emulated(entry, &mut profiler, |profiler, now| {
        watcher.look(profiler, now)
    })?;
    watcher.bar.finish_and_clear();
    match ended {
        Ended::Finished => Ok(measured(
            profiler.plan(),
            profiler.outcomes(),
            &when::today(),
        )),
        Ended::Stopped => Err(Problem::new("stopped before all was measured").into()),
    }
}

fn plan(target: Target, options: Options) -> Result<Plan> {
    let name = target.name.clone();
    Plan::new(target, options).map_err(|small| Problem::new(small.to_string()).at(name).into())
}

/// What is to be measured, and what is there.
struct Place {
    path: PathBuf,
    found: Findings,
    /// It was made to be measured, now or by the run that is gone on with.
    scratch: bool,
    /// It is yet to be made.
    new: bool,
    writes: bool,
    /// Bytes from its start, or of the file that is made.
    size: Option<u64>,
}

impl Place {
    /// Opens it, or makes it, and examines it again: nobody else may write to it from now on.
    /// `left` is what an earlier run left in the results.
    fn open(&mut self, left: Option<Part>, overwrite: bool, results: &Path) -> Result<Disk> {
        let disk = match self.size.filter(|_| self.new) {
            Some(size) => Disk::make(&self.path, size)?,
            None => Disk::open(&self.path, self.writes, self.size)?,
        };
        if self.scratch {
            // Its inode is no other's now that it is open.
            let found = examine(&self.path)?;
            let same = self.new || found.identity == self.found.identity;
            if !same || !disk.is_at(&self.path) {
                let problem = Problem::new("it is not the file that was made to be measured");
                return Err(problem.at(self.path.display().to_string()).into());
            }
            self.found = found;
            if let Some(mut left) = left.filter(|left| left.at_rest.is_some()) {
                // To open it was to write to it: what its filesystem can do was tried.
                left.at_rest = self.found.modified.clone();
                left.write(results)?;
            }
        } else if self.writes && !overwrite {
            refuse_what_it_holds(&self.path, &examine(&self.path)?)?;
        }
        Ok(disk)
    }
}

/// The file that was made to be measured. It stays open, and locked: its inode is no other's.
pub(super) struct Scratch {
    disk: Disk,
    path: PathBuf,
}

impl Scratch {
    /// Removes it, unless something else has its name by now; what to say where it stays.
    pub(super) fn remove(self) -> Option<String> {
        let path = self.path.display();
        match std::fs::symlink_metadata(&self.path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return None,
            Ok(_) if !self.disk.is_at(&self.path) => {
                return Some(format!(
                    "{path} stays: it is not the file that was measured"
                ));
            }
            _ => {}
        }
        match std::fs::remove_file(&self.path) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                Some(format!("{path} stays: it cannot be removed: {error}"))
            }
            _ => None,
        }
    }
}

/// A disk, and what is to be removed once its profile is written.
pub(super) fn disk(
    args: &MeasureArgs,
    path: &Path,
    results: &Path,
    options: Options,
) -> Result<(Measured, Option<Scratch>)> {
    let kept = match part::read(results) {
        Err(_) if args.fresh => None,
        kept => kept?,
    };
    // With --fresh too: a file that is ours may be written anew.
    let mut place = place(args, path, kept.as_ref())?;
    let left = kept.clone();
    // Before a file is made.
    let kept = kept.filter(|_| !args.fresh);
    if let Some(kept) = &kept
        && kept.device != place.found.identity
    {
        return Err(kept.differs("another device", results));
    }
    let disk = place.open(left, args.overwrite, results)?;
    let target = target(path, &disk, &place, args.depth);
    let plan = plan(target, options).inspect_err(|_| {
        if place.new && disk.is_at(&place.path) {
            // Nothing was learnt from it.
            let _ = std::fs::remove_file(&place.path);
        }
    })?;
    let mut part = Part::new(place.found.identity.clone(), place.scratch, &plan);
    if let Some(kept) = kept {
        part.go_on(kept, results)?;
    }
    if place.scratch {
        // From now on it is known to be ours.
        part.write(results)?;
    }
    let mut profiler = Profiler::new(plan, part.outcomes.clone());
    tell_beginning(args, &profiler, &place);
    let ended = drive(&disk, &mut profiler, &mut part, results);
    if place.scratch && !matches!(ended, Ok(Ended::Finished)) && profiler.in_flight() == 0 {
        // Whatever is in it from now on that is not from before is somebody else's.
        part.at_rest = examine(&place.path)?.modified;
        part.write(results)?;
    }
    let error = match ended {
        Ok(Ended::Finished) => {
            let all = figures(args, &profiler, &place, &disk);
            let scratch = (place.scratch && !args.keep).then_some(Scratch {
                disk,
                path: place.path,
            });
            return Ok((all, scratch));
        }
        Ok(Ended::Stopped) => None,
        Err(error) => Some(error),
    };
    Err(stopped(args, &part, &profiler, &place, results, error))
}

/// Returns what was measured, with notes on how far the figures can be relied on.
fn figures(args: &MeasureArgs, profiler: &Profiler, place: &Place, disk: &Disk) -> Measured {
    let mut all = measured(profiler.plan(), profiler.outcomes(), &when::today());
    all.notes.extend(notes(place));
    if args.depth.is_none() && all.depth == DEPTH_MAX {
        all.notes.push(format!(
            "more than {DEPTH_MAX} requests outstanding, the most that are tried, may reach more"
        ));
    }
    all.notes.extend(disk.caveat().map(str::to_owned));
    all
}

fn target(path: &Path, disk: &Disk, place: &Place, depth: Option<u32>) -> Target {
    Target {
        name: path.display().to_string(),
        span: disk.size(),
        block: disk.block(),
        max_io: MAX_IO,
        depth_max: depth_max(depth),
        writes: place.writes,
        fill: place.writes,
        condition: place.found.rotational == Some(false),
    }
}

/// More than is usual where more is asked for.
fn depth_max(asked: Option<u32>) -> u32 {
    DEPTH_MAX.max(asked.unwrap_or(0))
}

fn drive(disk: &Disk, profiler: &mut Profiler, part: &mut Part, results: &Path) -> Result<Ended> {
    let mut watcher = Watcher::new(profiler)?;
    let mut unkept = Ok(());
    let ended = disk.measure(profiler, |profiler, now| {
        if profiler.outcomes().len() > part.outcomes.len() {
            part.outcomes = profiler.outcomes().to_vec();
            unkept = part.write(results);
            if unkept.is_err() {
                return ControlFlow::Break(());
            }
        }
        watcher.look(profiler, now)
    });
    watcher.bar.finish_and_clear();
    unkept?;
    // Nobody looks after the last step, nor after the I/O that failed.
    if profiler.outcomes().len() > part.outcomes.len() {
        part.outcomes = profiler.outcomes().to_vec();
        let kept = part.write(results);
        // All that is measured goes into the profile now, kept here or not.
        if ended.is_err() {
            kept?;
        }
    }
    ended.context("the measurement was broken off")
}

/// What to say where it ended early.
fn stopped(
    args: &MeasureArgs,
    part: &Part,
    profiler: &Profiler,
    place: &Place,
    results: &Path,
    error: Option<anyhow::Error>,
) -> anyhow::Error {
    let (done, all) = (part.outcomes.len(), profiler.plan().steps.len());
    let why = match &error {
        None => "stopped".to_owned(),
        Some(error) => format!("{error:#}"),
    };
    let Some(again) = again(args, place) else {
        let help = format!(
            "its filesystem does not tell when a file was made, so {} may be anybody's: remove it, \
             and --fresh begins anew",
            place.path.display()
        );
        return Problem::new(why).help(help).into();
    };
    let mut help = match done {
        0 => format!("{again} begins again"),
        _ => format!(
            "{again} goes on: {done} of {all} steps are kept in {}",
            part::path(results).display()
        ),
    };
    if place.scratch {
        help += &format!("; {} stays for it", place.path.display());
    }
    Problem::new(why).help(help).into()
}

/// What goes on with it, if anything does.
fn again(args: &MeasureArgs, place: &Place) -> Option<&'static str> {
    if place.scratch {
        return (!place.found.mistakable).then_some("the same command");
    }
    // A block device that was empty holds what was written to it by now.
    match place.writes && !args.overwrite {
        true => Some("the same command with --overwrite"),
        false => Some("the same command"),
    }
}

/// Finds out what is there and whether it may be written to.
fn place(args: &MeasureArgs, path: &Path, kept: Option<&Part>) -> Result<Place> {
    let directory = path.is_dir();
    let path = match directory {
        true => path.join(SCRATCH),
        false => path.to_owned(),
    };
    let at = |what: String| Problem::new(what).at(path.display().to_string());
    let block_device = is_block_device(&path);
    if !block_device && is_empty(&path) {
        let help = "remove it: --size \"2 GiB\" makes a file, and removes it afterwards";
        return Err(at("the file is empty".to_owned()).help(help).into());
    }
    if !path.exists() {
        let what = match directory {
            true => "this is a directory",
            false => "there is no such file",
        };
        if args.size.is_none() || args.read_only {
            let help = "--size \"2 GiB\" makes a file there to measure what it lies on, and \
                        removes it afterwards";
            return Err(at(what.to_owned()).help(help).into());
        }
        return Ok(Place {
            scratch: true,
            new: true,
            writes: true,
            size: args.size,
            found: Findings::default(),
            path,
        });
    }
    let found = examine(&path)?;
    let ours = kept.is_some_and(|kept| kept.is_of(&found));
    if args.size.is_some() && !block_device && !ours {
        let what = "--size makes a file, and there is one".to_owned();
        let help = "name one that is not there yet; without --size this one is measured";
        return Err(at(what).help(help).into());
    }
    let writes = !args.read_only;
    if writes && let Some(by) = &found.used_by {
        let help = "end that first, or measure with --read-only";
        return Err(at(format!("{by}: it is not written to")).help(help).into());
    }
    if writes && !ours && !args.overwrite {
        refuse_what_it_holds(&path, &found)?;
    }
    if !writes && found.unwritten.is_some_and(|(holes, all)| holes == all) {
        let what = "nothing was ever written to it: reads of it measure nothing".to_owned();
        let help = "--overwrite fills it first";
        return Err(at(what).help(help).into());
    }
    Ok(Place {
        scratch: ours,
        new: false,
        writes,
        size: args.size,
        found,
        path,
    })
}

fn refuse_what_it_holds(path: &Path, found: &Findings) -> Result<()> {
    if found.holds.is_empty() {
        return Ok(());
    }
    let what = format!("it holds something: {}", found.holds.join("; "));
    let help = "--read-only measures reads alone; --overwrite destroys what it holds";
    Err(Problem::new(what)
        .at(path.display().to_string())
        .help(help)
        .into())
}

fn is_block_device(path: &Path) -> bool {
    use std::os::unix::fs::FileTypeExt;
    std::fs::metadata(path).is_ok_and(|meta| meta.file_type().is_block_device())
}

fn is_empty(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|meta| meta.is_file() && meta.len() == 0)
}

fn examine(path: &Path) -> Result<Findings> {
    live::examine(path).with_context(|| format!("cannot look at {}", path.display()))
}

/// What whoever reads the figures should know of where they are from.
fn notes(place: &Place) -> Vec<String> {
    let mut notes = Vec::new();
    if !place.writes {
        notes.push("writes were not measured".to_owned());
        if let Some((holes, all)) = place.found.unwritten.filter(|of| of.0 > 0) {
            notes.push(format!(
                "{:.0} % of the file was never written: reads there measure nothing",
                100.0 * holes as f64 / all as f64
            ));
        }
        if place.found.only_zeroes {
            notes.push(
                "only zeroes were found: what was never written may be read without looking"
                    .to_owned(),
            );
        }
    }
    notes
}

/// How long it will take, as far as can be told.
fn time(profiler: &Profiler) -> String {
    match profiler.progress(Nanos::ZERO).left.0 / 1_000_000_000 {
        left @ 0..100 => format!("about {left} s"),
        left => format!("about {} min", left.div_ceil(60)),
    }
}

fn tell_beginning(args: &MeasureArgs, profiler: &Profiler, place: &Place) {
    let (done, all) = profiler.steps();
    let already = match done {
        0 => String::new(),
        _ => format!(", {done} of {all} steps are known already"),
    };
    let goes_on = match again(args, place) {
        Some(again) => format!(", and {again} goes on"),
        None => "; on this filesystem nothing goes on".to_owned(),
    };
    output::tell(format_args!(
        "measuring {}: {}{already}; Ctrl-C stops{goes_on}",
        place.path.display(),
        time(profiler)
    ));
    for note in notes(place) {
        output::tell(format_args!("note: {note}"));
    }
}

/// Shows how far it has come, and notices when somebody has had enough.
struct Watcher {
    bar: ProgressBar,
    stop: Arc<AtomicBool>,
    began: Option<Nanos>,
    looked: Nanos,
}

/// Between two looks at how far it has come.
const LOOK: Nanos = Nanos::from_millis(100);

impl Watcher {
    fn new(profiler: &Profiler) -> Result<Watcher> {
        let stop = Arc::new(AtomicBool::new(false));
        listen(stop.clone())?;
        let bar = progress::bar(BAR, "measuring");
        bar.set_message(format!("{} steps", profiler.plan().steps.len()));
        Ok(Watcher {
            bar,
            stop,
            began: None,
            looked: Nanos::ZERO,
        })
    }

    fn look(&mut self, profiler: &Profiler, now: Nanos) -> ControlFlow<()> {
        if self.stop.load(Ordering::Relaxed) {
            return ControlFlow::Break(());
        }
        let began = *self.began.get_or_insert(now);
        if now.since(self.looked) >= LOOK {
            self.looked = now;
            let progress = profiler.progress(now);
            let (gone, left) = (now.since(began).as_secs_f64(), progress.left.as_secs_f64());
            let part = gone / (gone + left).max(1e-9);
            self.bar.set_position((part * BAR as f64) as u64);
            self.bar.set_message(progress.what);
        }
        ControlFlow::Continue(())
    }
}

/// Sets `stop` with the first SIGINT or SIGTERM; the second ends the process.
fn listen(stop: Arc<AtomicBool>) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let signals = runtime.block_on(async {
        Ok::<_, std::io::Error>((
            signal(SignalKind::interrupt())?,
            signal(SignalKind::terminate())?,
        ))
    });
    let (mut interrupt, mut terminate) = signals?;
    std::thread::spawn(move || {
        runtime.block_on(async {
            loop {
                tokio::select! {
                    _ = interrupt.recv() => {}
                    _ = terminate.recv() => {}
                }
                if stop.swap(true, Ordering::Relaxed) {
                    std::process::exit(130);
                }
            }
        });
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scratch(dir: &Path) -> Scratch {
        let path = dir.join("disk.raw");
        let disk = Disk::make(&path, 1 << 20).expect("room for it");
        Scratch { disk, path }
    }

    #[test]
    fn only_the_file_that_was_measured_is_removed() {
        let dir = tempfile::tempdir().expect("a directory");
        let made = scratch(dir.path());
        let path = made.path.clone();
        assert_eq!(made.remove(), None);
        assert!(!path.exists());
        // Somebody has removed it.
        let made = scratch(dir.path());
        std::fs::remove_file(&path).expect("there");
        assert_eq!(made.remove(), None);
        // Or put another in its place.
        let made = scratch(dir.path());
        std::fs::remove_file(&path).expect("there");
        std::fs::write(&path, vec![7; 1 << 20]).expect("written");
        let said = made.remove().expect("it stays");
        assert!(said.contains("not the file that was measured"), "{said}");
        assert_eq!(std::fs::read(&path).expect("there"), vec![7; 1 << 20]);
    }
}
