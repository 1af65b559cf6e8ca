//! `tidegate profile`: measures a device's saturation profile and writes it to a file.

mod curves;
mod date;
mod fit;
mod partial_results;
mod real_time;
mod show;
mod source;

use std::ops::ControlFlow;
use std::path::PathBuf;

use anyhow::Result;
use tidegate_config::profile::Measured;
use tidegate_device::catalogue::Entry;
use tidegate_profile::{Options, virtual_time};
use tidegate_server::feasibility::MEASURE_AGAIN;

use crate::args::{MeasureArgs, ProfileArgs, ProfileCommand};
use crate::output::{self, Output};
use crate::problem::Problem;
use crate::{atomic_file, progress};

use source::Source;

pub(super) fn run(args: ProfileArgs, out: Output) -> Result<()> {
    match args.command {
        Some(ProfileCommand::Show { file, plot }) => show::run(&file, &plot, out),
        Some(ProfileCommand::Fit(args)) => fit::run(&args, out),
        None => measure(&args.measure, out),
    }
}

fn measure(args: &MeasureArgs, out: Output) -> Result<()> {
    let name = args.device.as_deref().unwrap_or_default();
    let options = |in_virtual_time| Options {
        quick: args.quick,
        in_virtual_time,
        depth: args.depth,
        seed: args.seed,
    };
    let source = source::find(name)?;
    let file = results(args, &source);
    // Checked first, rather than after a measurement of ten minutes.
    atomic_file::regular(&file)?;
    let (measured, scratch) = match &source {
        Source::Model(entry) => {
            refuse_disk_options(args)?;
            refuse_depth(args, entry)?;
            let measured = if args.live {
                real_time::model(entry, options(false), args.read_only)?
            } else {
                model(entry, options(true), args.read_only)?
            };
            (measured, None)
        }
        Source::Disk(path) => {
            if args.live {
                let what = "--live is for models; disks are always measured in real time";
                return Err(Problem::new(what).into());
            }
            real_time::disk(args, path, &file, options(false))?
        }
    };
    atomic_file::write(&file, measured.to_toml().as_bytes())?;
    // The profile is written, so a temporary file that cannot be removed is no failure.
    if let Some(stays) = scratch.and_then(real_time::Scratch::remove) {
        output::tell(format_args!("note: {stays}"));
    }
    if let Err(error) = partial_results::remove(&file) {
        output::tell(format_args!("note: {error:#}"));
    }
    show::print(&measured, out)?;
    if let Some(what) = measured.profile().ok().and_then(|it| it.imprecision()) {
        output::tell(format_args!(
            "warning: {what}\n  help: {MEASURE_AGAIN}; `tidegate plan` refuses this profile"
        ));
    }
    output::tell(format_args!(
        "written to {0}; use it with profile = \"{0}\" in a [[device]], draw it with `tidegate \
         profile show {0}`",
        file.display()
    ));
    Ok(())
}

/// Returns the path of the profile.
fn results(args: &MeasureArgs, source: &Source) -> PathBuf {
    let name = match source {
        Source::Model(entry) => entry.name.as_str(),
        Source::Disk(path) => {
            // Resolved, because `.` has no file name.
            let whole = path.canonicalize().unwrap_or_else(|_| path.clone());
            let name = whole
                .file_stem()
                .map(|name| name.to_string_lossy().into_owned());
            let name = name.unwrap_or_else(|| "root".to_owned());
            return args.results.clone().unwrap_or_else(|| default_name(&name));
        }
    };
    args.results.clone().unwrap_or_else(|| default_name(name))
}

/// Returns the default name of a profile, in the current directory.
fn default_name(name: &str) -> PathBuf {
    PathBuf::from(format!("{name}.profile.toml"))
}

/// Refuses options that have no meaning for a model.
fn refuse_disk_options(args: &MeasureArgs) -> Result<()> {
    let given = [
        (args.size.is_some(), "--size"),
        (args.overwrite, "--overwrite"),
        (args.keep, "--keep"),
    ];
    match given.iter().find(|given| given.0) {
        None => Ok(()),
        Some((_, option)) => {
            let problem = Problem::new(format!("{option} is for disks, but this is a model"));
            Err(problem.help("use ./NAME for a file of that name").into())
        }
    }
}

/// Refuses a queue depth above the model's.
fn refuse_depth(args: &MeasureArgs, entry: &Entry) -> Result<()> {
    let most = entry.spec().queue_depth;
    match args.depth {
        Some(depth) if depth > most => {
            let what = format!("--depth {depth} is more than the queue of {}", entry.name);
            Err(Problem::new(what).help(format!("from 1 to {most}")).into())
        }
        _ => Ok(()),
    }
}

/// Measures a model in virtual time.
fn model(entry: &Entry, options: Options, read_only: bool) -> Result<Measured> {
    let mut bar = progress::DelayedBar::new(1, "measuring");
    let mut target = virtual_time::target(entry);
    target.writes = !read_only;
    let measured = virtual_time::measure(entry, target, options, |profiler| {
        let (done, steps) = profiler.steps();
        bar.set_total(steps as u64);
        bar.set(done as u64, || entry.name.clone());
        ControlFlow::Continue(())
    });
    match measured {
        Ok(measured) => Ok(measured.expect("without a signal it ends with a result")),
        Err(small) => Err(Problem::new(small.to_string()).at(&entry.name).into()),
    }
}
