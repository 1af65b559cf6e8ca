//! Simulation of one shard of a sweep.
//!
//! ```text
//!   shard-3-of-10.jsonl is there: whole, and of this sweep and build? --> nothing to do
//!   --fresh --> shard-3-of-10.jsonl is removed
//!   else shard-3-of-10.jsonl.part: a line as each simulation ends --> shard-3-of-10.jsonl at once
//! ```

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::Serialize;

use super::command_line::{refuse_csv, words};
use super::grid::{Cell, Grid};
use super::shard_file::{self, ShardFile, Sweep};
use super::{merge, shard_variables, simulate_missing};
use crate::args::{GridArgs, Shard, ShardArg};
use crate::atomic_file;
use crate::output::{self, Output};
use crate::problem::Problem;
use crate::results::{Line, Results};

/// Option for other files of results, in errors.
const ANOTHER_DIRECTORY: &str = "another directory: --out DIR";

/// Shard that is complete.
#[derive(Serialize)]
struct Done {
    file: PathBuf,
    shard: Shard,
    /// Number of its simulations.
    results: usize,
    /// Number of those that this command simulated.
    simulated: usize,
    /// Number of simulations of the whole sweep.
    of: usize,
}

/// Simulates what a shard lacks.
pub(super) fn run(args: &GridArgs, directory: &Path, out: Output) -> Result<()> {
    refuse_csv(out)?;
    let shard = match args.shard {
        None => Shard::WHOLE,
        Some(ShardArg::Given(shard)) => shard,
        Some(ShardArg::Auto) => shard_variables::shard()?,
    };
    let words = words(args)?;
    let grid = Grid::load(args)?;
    let sweep = Sweep::new(&grid, words)?;
    create(directory)?;
    refuse_other_counts(directory, shard)?;
    if !args.fresh {
        refuse_other_sweep(directory, shard, &sweep)?;
    }
    let file = directory.join(shard_file::name(shard));
    let positions: Vec<usize> = shard.positions(grid.len()).collect();
    let simulated = if !args.fresh && is_there(&file, &sweep)? {
        0
    } else {
        simulate(args, &grid, &sweep, &file, (shard, &positions))?
    };
    let done = Done {
        file,
        shard,
        results: positions.len(),
        simulated,
        of: grid.len(),
    };
    if out.is_json() {
        return out.json(&done);
    }
    done.tell();
    Ok(())
}

/// Simulates what the unfinished shard lacks, and finishes it. Returns the number of simulations.
fn simulate(
    args: &GridArgs,
    grid: &Grid,
    sweep: &Sweep,
    file: &Path,
    (shard, positions): (Shard, &[usize]),
) -> Result<usize> {
    let part = file.with_file_name(shard_file::part_name(shard));
    let mut results = if args.fresh {
        without_old(file, &part)?
    } else {
        Results::open(&part, false, ANOTHER_DIRECTORY)?
    };
    // Another process may have finished the shard before this one had the lock.
    if !args.fresh && is_there(file, sweep)? {
        results.remove()?;
        return Ok(0);
    }
    let cells = positions.iter().map(|&position| Cell {
        key: sweep.shard_key(position),
        ready: grid.cell(position).ready,
    });
    let cells: Vec<Cell> = cells.collect();
    let simulated = simulate_missing(&cells, args.jobs, &mut results)?;
    let lines = cells.iter().filter_map(|cell| results.get(&cell.key));
    let lines = lines.map(|(key, report)| Line {
        key: key.clone(),
        report: report.clone(),
    });
    let lines: Vec<Line> = lines.collect();
    shard_file::write(file, sweep.clone(), shard, &lines)?;
    results.remove()?;
    Ok(simulated)
}

/// Opens an unfinished shard for `--fresh`, and removes the whole one, which would count as done
/// if this process were stopped. Results of an unfinished shard without a whole one stay: a process
/// with the same option may have begun it, and their digests say that they are of this build.
fn without_old(file: &Path, part: &Path) -> Result<Results> {
    let is_whole = atomic_file::regular(file)?.is_some();
    let results = Results::open(part, is_whole, ANOTHER_DIRECTORY);
    // Lines that cannot be read are begun anew; another process still has its lock.
    let results = results.or_else(|_| Results::open(part, true, ANOTHER_DIRECTORY))?;
    if is_whole {
        let removed = fs::remove_file(file);
        removed.with_context(|| format!("cannot remove {}", file.display()))?;
    }
    Ok(results)
}

/// Returns true if a shard is there.
///
/// # Errors
/// If the file is something else, damaged, or of another sweep or build.
fn is_there(file: &Path, sweep: &Sweep) -> Result<bool> {
    if atomic_file::regular(file)?.is_none() {
        return Ok(false);
    }
    let found = ShardFile::read(file)?;
    match merge::difference("the file", &found.sweep, "this command", sweep) {
        None => Ok(true),
        Some(difference) => {
            let what = format!("a shard of another sweep is there: {difference}");
            let help = format!("use {ANOTHER_DIRECTORY}, or replace the shard with --fresh");
            let at = file.display().to_string();
            Err(Problem::new(what).at(at).help(help).into())
        }
    }
}

fn create(directory: &Path) -> Result<()> {
    let created = fs::create_dir_all(directory);
    created.with_context(|| format!("cannot create {}", directory.display()))
}

/// Refuses a directory with shards of another number of shards: a merge would find simulations
/// twice.
fn refuse_other_counts(directory: &Path, shard: Shard) -> Result<()> {
    let all = merge::shards_in(directory)?;
    let other = all.iter().find(|it| it.shard.count() != shard.count());
    let Some(other) = other else {
        return Ok(());
    };
    let what = format!(
        "shard {} of {} is there, and this one is shard {} of {}",
        other.shard.index(),
        other.shard.count(),
        shard.index(),
        shard.count()
    );
    let help = format!("divide the sweep into as many shards, or use {ANOTHER_DIRECTORY}");
    let at = other.path.display().to_string();
    Err(Problem::new(what).at(at).help(help).into())
}

/// Refuses a directory whose first other shard is of another sweep or build: a merge would refuse
/// both.
fn refuse_other_sweep(directory: &Path, shard: Shard, sweep: &Sweep) -> Result<()> {
    let all = merge::shards_in(directory)?;
    let other = all.iter().find(|it| it.is_finished && it.shard != shard);
    // A merge names what is no shard; this one does not depend on it.
    let other = other.and_then(|it| Some((&it.path, shard_file::read_sweep(&it.path).ok()?)));
    let Some((path, other)) = other else {
        return Ok(());
    };
    let difference = merge::difference("the file", &other, "this command", sweep);
    difference.map_or(Ok(()), |difference| {
        let what = format!("a shard of another sweep is there: {difference}");
        let help = format!("use {ANOTHER_DIRECTORY}, or replace all shards with --fresh");
        let at = path.display().to_string();
        Err(Problem::new(what).at(at).help(help).into())
    })
}

impl Done {
    fn tell(&self) {
        let file = self.file.display();
        let Done { results, of, .. } = self;
        let shard = self.shard;
        match self.simulated {
            0 if *results > 0 => output::tell(format_args!(
                "shard {shard}: all {results} results are already in {file}"
            )),
            _ => output::tell(format_args!(
                "shard {shard}: wrote {results} of {of} results to {file}"
            )),
        }
    }
}
