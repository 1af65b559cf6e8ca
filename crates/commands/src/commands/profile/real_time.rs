//! Measurement in real time: of disks, and of models as emulated disks.

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
use tidegate_profile::outcome::build_profile;
use tidegate_profile::{Options, Plan, Profiler, Target, virtual_time};
use tidegate_server::profile::{self as live, Disk, Ended, Findings};

use super::date;
use super::partial_results::{self, Part};
use crate::args::MeasureArgs;
use crate::output;
use crate::problem::Problem;
use crate::progress;
use crate::signals;

/// Maximum queue depth that is tried; Linux's default of `nr_requests` for many disks.
const DEPTH_MAX: u32 = 128;
/// Largest request in bytes.
const MAX_IO: u32 = 1 << 20;
/// Name of the temporary file in a directory.
const SCRATCH: &str = "tidegate-profile.scratch";
/// Steps of the progress bar.
const BAR_STEPS: u64 = 1000;

/// Measures a model in real time. An interrupted measurement cannot be resumed, because the
/// emulated disk's state is lost.
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
        watcher.poll(profiler, now)
    })?;
    watcher.bar.finish_and_clear();
    match ended {
        Ended::Finished => Ok(build_profile(
            profiler.plan(),
            profiler.outcomes(),
            &date::today(),
        )),
        Ended::Stopped => Err(Problem::new("stopped before the measurement was complete").into()),
    }
}

fn plan(target: Target, options: Options) -> Result<Plan> {
    let name = target.name.clone();
    Plan::new(target, options).map_err(|small| Problem::new(small.to_string()).at(name).into())
}

/// File or block device to measure, with what was found there.
struct Place {
    path: PathBuf,
    found: Findings,
    /// True if the file was created for the measurement, now or by the resumed run.
    scratch: bool,
    /// True if the file does not exist yet.
    new: bool,
    writes: bool,
    /// Size in bytes of the part at its start to measure, or of the file to create.
    size: Option<u64>,
}

impl Place {
    /// Opens or creates the file and examines it again, now that it is locked against others.
    /// `left` has the results of an interrupted run.
    fn open(&mut self, left: Option<Part>, overwrite: bool, results: &Path) -> Result<Disk> {
        let disk = match self.size.filter(|_| self.new) {
            Some(size) => Disk::make(&self.path, size)?,
            None => Disk::open(&self.path, self.writes, self.size)?,
        };
        if self.scratch {
            // An open file keeps its inode, so the identity can be compared now.
            let found = examine(&self.path)?;
            let same = self.new || found.identity == self.found.identity;
            if !same || !disk.is_at(&self.path) {
                let problem = Problem::new("not the file that was created for the measurement");
                return Err(problem.at(self.path.display().to_string()).into());
            }
            self.found = found;
            if let Some(mut left) = left.filter(|left| left.at_rest.is_some()) {
                // Opening probed the file system by writing, which changed the modification time.
                left.at_rest = self.found.modified.clone();
                left.write(results)?;
            }
        } else if self.writes && !overwrite {
            refuse_what_it_holds(&self.path, &examine(&self.path)?)?;
        }
        Ok(disk)
    }
}

/// Temporary file, kept open and locked so that its inode stays its own.
pub(super) struct Scratch {
    disk: Disk,
    path: PathBuf,
}

impl Scratch {
    /// Removes the file unless another one has its name by now. Returns a note if a file stays.
    pub(super) fn remove(self) -> Option<String> {
        let path = self.path.display();
        match std::fs::symlink_metadata(&self.path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return None,
            Ok(_) if !self.disk.is_at(&self.path) => {
                return Some(format!(
                    "{path} was not removed: it is not the measured file"
                ));
            }
            _ => {}
        }
        match std::fs::remove_file(&self.path) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                Some(format!("{path} cannot be removed: {error}"))
            }
            _ => None,
        }
    }
}

/// Measures a disk. Also returns the temporary file to remove once the profile is written.
pub(super) fn disk(
    args: &MeasureArgs,
    path: &Path,
    results: &Path,
    options: Options,
) -> Result<(Measured, Option<Scratch>)> {
    let kept = match partial_results::read(results) {
        Err(_) if args.fresh => None,
        kept => kept?,
    };
    // Also with --fresh, to recognise a temporary file that may be overwritten.
    let mut place = inspect_path(args, path, kept.as_ref())?;
    let left = kept.clone();
    // Checked before a file is created.
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
            // The new file is of no use, so a failure to remove it does not matter.
            let _ = std::fs::remove_file(&place.path);
        }
    })?;
    let mut part = Part::new(place.found.identity.clone(), place.scratch, &plan);
    if let Some(kept) = kept {
        part.resume(kept, results)?;
    }
    if place.scratch {
        // Recorded at once, so that an interrupted run recognises its temporary file.
        part.write(results)?;
    }
    let mut profiler = Profiler::new(plan, part.outcomes.clone());
    tell_beginning(args, &profiler, &place);
    let ended = drive(&disk, &mut profiler, &mut part, results);
    // Only once no write is in flight: the modification time would change again.
    if place.scratch && !matches!(ended, Ok(Ended::Finished)) && profiler.in_flight() == 0 {
        // Any later modification is another program's.
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
    let mut all = build_profile(profiler.plan(), profiler.outcomes(), &date::today());
    all.notes.extend(notes(place));
    // A chosen depth is the user's own; only the default may be too small.
    if args.depth.is_none() && all.depth == DEPTH_MAX {
        all.notes.push(format!(
            "a queue deeper than {DEPTH_MAX}, the deepest that is tried, may reach more"
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

/// Returns the deepest queue to try: the default, or `--depth` if that is more.
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
        watcher.poll(profiler, now)
    });
    watcher.bar.finish_and_clear();
    unkept?;
    // The callback above does not run after the last step, nor after a failed I/O.
    if profiler.outcomes().len() > part.outcomes.len() {
        part.outcomes = profiler.outcomes().to_vec();
        let kept = part.write(results);
        // After success the profile holds all outcomes, so a failure to write them here is
        // harmless.
        if ended.is_err() {
            kept?;
        }
    }
    ended.context("the measurement failed")
}

/// Returns the error for a measurement that ended early, with how to resume it.
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
    let Some(again) = resume_command(args, place) else {
        let help = format!(
            "the file system has no creation times, so {} cannot be recognised: remove it and \
             start again with --fresh",
            place.path.display()
        );
        return Problem::new(why).help(help).into();
    };
    let mut help = match done {
        0 => format!("{again} starts again"),
        _ => format!(
            "{again} resumes it: {done} of {all} steps are stored in {}",
            partial_results::path(results).display()
        ),
    };
    if place.scratch {
        help += &format!("; {} is kept for it", place.path.display());
    }
    Problem::new(why).help(help).into()
}

/// Returns the command that resumes the measurement, if there is one.
fn resume_command(args: &MeasureArgs, place: &Place) -> Option<&'static str> {
    if place.scratch {
        return (!place.found.mistakable).then_some("the same command");
    }
    // A block device that was empty now holds what the measurement wrote.
    if place.writes && !args.overwrite {
        Some("the same command with --overwrite")
    } else {
        Some("the same command")
    }
}

/// Examines the path and decides whether it may be written to.
fn inspect_path(args: &MeasureArgs, path: &Path, kept: Option<&Part>) -> Result<Place> {
    let directory = path.is_dir();
    let path = if directory {
        path.join(SCRATCH)
    } else {
        path.to_owned()
    };
    let at = |what: String| Problem::new(what).at(path.display().to_string());
    let block_device = is_block_device(&path);
    if !block_device && is_empty(&path) {
        let help = "remove it; --size \"2 GiB\" creates a temporary file";
        return Err(at("the file is empty".to_owned()).help(help).into());
    }
    if !path.exists() {
        let what = if directory {
            "this is a directory"
        } else {
            "no such file"
        };
        if args.size.is_none() || args.read_only {
            let help = "--size \"2 GiB\" creates a temporary file there, to measure its disk";
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
    // On a block device --size limits the part that is measured.
    if args.size.is_some() && !block_device && !ours {
        let what = "--size creates a file, but the file exists".to_owned();
        let help = "give a path that does not exist, or leave out --size to measure this file";
        return Err(at(what).help(help).into());
    }
    let writes = !args.read_only;
    if writes && let Some(by) = &found.used_by {
        let help = "stop that first, or measure with --read-only";
        return Err(at(format!("{by}, so it cannot be written to"))
            .help(help)
            .into());
    }
    if writes && !ours && !args.overwrite {
        refuse_what_it_holds(&path, &found)?;
    }
    if !writes && found.unwritten.is_some_and(|(holes, all)| holes == all) {
        let what = "the file is all holes, so that reads would not reach the disk".to_owned();
        let help = "--overwrite fills it with data first";
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
    let what = format!("it contains data: {}", found.holds.join("; "));
    let help = "--read-only measures reads only; --overwrite destroys the data";
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
    live::examine(path).with_context(|| format!("cannot examine {}", path.display()))
}

/// Returns notes on how far the figures can be relied on.
fn notes(place: &Place) -> Vec<String> {
    let mut notes = Vec::new();
    if !place.writes {
        notes.push("writes were not measured".to_owned());
        if let Some((holes, all)) = place.found.unwritten.filter(|of| of.0 > 0) {
            notes.push(format!(
                "{:.0} % of the file was never written, so reads there did not reach the disk",
                100.0 * holes as f64 / all as f64
            ));
        }
        if place.found.only_zeroes {
            notes.push(
                "only zeroes were found: reads of unwritten blocks may not reach the medium"
                    .to_owned(),
            );
        }
    }
    notes
}

/// Returns the estimated duration of the measurement.
fn time(profiler: &Profiler) -> String {
    match profiler.progress(Nanos::ZERO).remaining.0 / 1_000_000_000 {
        left @ 0..100 => format!("about {left} s"),
        left => format!("about {} min", left.div_ceil(60)),
    }
}

fn tell_beginning(args: &MeasureArgs, profiler: &Profiler, place: &Place) {
    let (done, all) = profiler.steps();
    let already = match done {
        0 => String::new(),
        _ => format!(", {done} of {all} steps done before"),
    };
    let goes_on = match resume_command(args, place) {
        Some(again) => format!(" it, {again} resumes it"),
        None => " it; it cannot be resumed on this file system".to_owned(),
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

/// Shows progress and notices SIGINT and SIGTERM.
struct Watcher {
    bar: ProgressBar,
    stop: Arc<AtomicBool>,
    began: Option<Nanos>,
    redrawn: Nanos,
}

/// Interval between updates of the progress bar.
const REDRAW: Nanos = Nanos::from_millis(100);

impl Watcher {
    fn new(profiler: &Profiler) -> Result<Watcher> {
        let stop = Arc::new(AtomicBool::new(false));
        signals::stop_on_first(stop.clone())?;
        let bar = progress::bar(BAR_STEPS, "measuring");
        bar.set_message(format!("{} steps", profiler.plan().steps.len()));
        Ok(Watcher {
            bar,
            stop,
            began: None,
            redrawn: Nanos::ZERO,
        })
    }

    fn poll(&mut self, profiler: &Profiler, now: Nanos) -> ControlFlow<()> {
        if self.stop.load(Ordering::Relaxed) {
            return ControlFlow::Break(());
        }
        let began = *self.began.get_or_insert(now);
        if now.since(self.redrawn) >= REDRAW {
            self.redrawn = now;
            let progress = profiler.progress(now);
            let (gone, left) = (
                now.since(began).as_secs_f64(),
                progress.remaining.as_secs_f64(),
            );
            // Both are 0 before the first step.
            let part = gone / (gone + left).max(1e-9);
            self.bar.set_position((part * BAR_STEPS as f64) as u64);
            self.bar.set_message(progress.description);
        }
        ControlFlow::Continue(())
    }
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
        // Another process has removed it.
        let made = scratch(dir.path());
        std::fs::remove_file(&path).expect("there");
        assert_eq!(made.remove(), None);
        // Or put another in its place.
        let made = scratch(dir.path());
        std::fs::remove_file(&path).expect("there");
        std::fs::write(&path, vec![7; 1 << 20]).expect("written");
        let message = made.remove().expect("it stays");
        assert!(message.contains("not the measured file"), "{message}");
        assert_eq!(std::fs::read(&path).expect("there"), vec![7; 1 << 20]);
    }
}
