//! `tidegate profile`: what a device can do at most, measured and kept in a file.

mod show;
mod source;

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use anyhow::Result;
use tidegate_config::profile::Measured;
use tidegate_device::catalogue::Entry;
use tidegate_profile::{Options, virtual_time};

use crate::args::{MeasureArgs, ProfileArgs, ProfileCommand};
use crate::output::{self, Output};
use crate::problem::Problem;
use crate::{kept, progress};

use source::Source;

pub(super) fn run(args: ProfileArgs, out: Output) -> Result<()> {
    match args.command {
        Some(ProfileCommand::Show { file }) => show::run(&file, out),
        None => measure(&args.measure, out),
    }
}

fn measure(args: &MeasureArgs, out: Output) -> Result<()> {
    let name = args.device.as_deref().unwrap_or_default();
    let options = Options {
        quick: args.quick,
        in_virtual_time: true,
        depth: args.depth,
        seed: args.seed,
    };
    let (measured, file) = match source::find(name)? {
        Source::Model(entry) => {
            let file = results(args, &entry.name);
            (model(&entry, options)?, file)
        }
    };
    kept::write(&file, measured.to_toml().as_bytes())?;
    show::print(&measured, out)?;
    output::tell(format_args!(
        "kept in {}: name it as the `profile` of a [[device]]",
        file.display()
    ));
    Ok(())
}

/// Where the profile goes.
fn results(args: &MeasureArgs, name: &str) -> PathBuf {
    match &args.results {
        Some(file) => file.clone(),
        None => Path::new(&format!("{name}.profile.toml")).to_owned(),
    }
}

/// A model, as fast as it can be reckoned.
fn model(entry: &Entry, options: Options) -> Result<Measured> {
    let mut bar = progress::Patient::new(1, "measuring");
    let measured = virtual_time::measure(entry, options, |profiler| {
        let (done, steps) = profiler.steps();
        bar.of(steps as u64);
        bar.at(done as u64, || entry.name.clone());
        ControlFlow::Continue(())
    });
    match measured {
        Ok(measured) => Ok(measured.expect("nobody ended it")),
        Err(small) => Err(Problem::new(small.to_string()).at(&entry.name).into()),
    }
}
