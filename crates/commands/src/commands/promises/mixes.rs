//! Mixes of the grid: built-in, of files, or random.

use std::path::Path;

use anyhow::Result;
use tidegate_experiments::promises::{Mix, PromiseDevice, mixes};

use crate::args::{MixName, PromisesArgs};
use crate::problem::Problem;

/// Returns the mixes to judge: built-in ones in their order, then random ones and those of files.
/// Files are checked on all devices, so that nothing runs if one of them is wrong.
pub(super) fn wanted(args: &PromisesArgs, devices: &[PromiseDevice]) -> Result<Vec<Mix>> {
    if let Some(count) = args.random {
        let numbers = 1..=count;
        return Ok(numbers.map(|n| Mix::random(args.mix_seed, n)).collect());
    }
    let is_wanted = |mix: &&Mix| {
        let name = MixName::BuiltIn(mix.name.to_string());
        args.mixes.is_empty() || args.mixes.contains(&name)
    };
    let mut wanted: Vec<Mix> = mixes().iter().filter(is_wanted).cloned().collect();
    for mix in &args.mixes {
        match mix {
            MixName::BuiltIn(_) => {}
            MixName::Random(seed, number) => wanted.push(Mix::random(*seed, *number)),
            MixName::File(path) => {
                let mix = read(path, args, devices)?;
                require_unique_name(&mix, path, &wanted)?;
                wanted.push(mix);
            }
        }
    }
    Ok(wanted)
}

/// Reads and checks the mix of a file.
fn read(path: &Path, args: &PromisesArgs, devices: &[PromiseDevice]) -> Result<Mix> {
    let mix = Mix::from_file(path).map_err(|what| {
        let help = "a TOML file with [[vm]] sections: docs/promises-mixes.md describes its form";
        Problem::new(what).at("--mix").help(help)
    })?;
    for device in devices {
        mix.check(device, args.seconds)?;
    }
    Ok(mix)
}

/// Refuses a file's mix with the name of another one: their results could not be told apart.
fn require_unique_name(mix: &Mix, path: &Path, others: &[Mix]) -> Result<()> {
    if others.iter().all(|other| other.name != mix.name) {
        return Ok(());
    }
    let what = format!("{}: another mix is named {:?}", path.display(), mix.name);
    let help = "a mix is named by its file without `.toml`: rename the file";
    Err(Problem::new(what).at("--mix").help(help).into())
}
