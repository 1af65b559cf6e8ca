//! `tidegate sweep`: simulates scenarios x policies x seeds on all CPUs, and resumes a stopped
//! sweep; on several machines in shards.
//!
//! ```text
//!   grid: scenario x policy x scheduler x seed
//!     |-- one machine: results file, a line a simulation ------------> all results --> summary
//!     |-- shard I of N: a line a simulation --> shard file --> merge ------^    |--> per_seed
//!     `-- list: a command for each shard                                        `--> page
//! ```

use std::path::Path;

use anyhow::Result;
use serde_json::Value;

use self::grid::{Cell, Grid};
use self::row_file::RowFile;
use crate::args::{GridArgs, ResultFileArgs, SweepArgs, SweepCommand};
use crate::atomic_file::NewFile;
use crate::output::{self, Output};
use crate::problem::Problem;
use crate::results::{ANOTHER_FILE, Key, Results};

mod command_line;
mod differences;
mod grid;
mod merge;
mod page;
#[cfg(feature = "parquet")]
mod parquet_rows;
mod per_seed;
mod row_file;
mod shard;
mod shard_file;
mod shard_variables;
mod summary;

pub(super) fn run(args: &SweepArgs, out: Output) -> Result<()> {
    if let Some(SweepCommand::Merge(args)) = &args.command {
        return merge::run(args, out);
    }
    let args = &args.grid;
    refuse_merge_behind_options(args)?;
    match (&args.out, args.list) {
        (None, _) => simulate_here(args, out),
        (Some(directory), None) => shard::run(args, directory, out),
        (Some(directory), Some(most)) => command_line::list(args, directory, most, out),
    }
}

/// Refuses `merge` behind options, where it is the name of a scenario, unless there is such a file.
fn refuse_merge_behind_options(args: &GridArgs) -> Result<()> {
    let first = args.files.first();
    let Some(first) = first.filter(|file| *file == Path::new("merge") && !file.exists()) else {
        return Ok(());
    };
    let problem = Problem::new("no such file, and a subcommand cannot follow options");
    let help = "write `tidegate sweep merge`, and options behind it: `sweep merge DIR -o json`";
    Err(problem.at(first.display().to_string()).help(help).into())
}

/// Simulates everything, and shows it.
fn simulate_here(args: &GridArgs, out: Output) -> Result<()> {
    let grid = Grid::load(args)?;
    let cells: Vec<Cell> = grid.cells().collect();
    let files = ResultFiles::create(&args.files_of_results)?;
    let mut results = Results::open(&args.results, args.fresh, ANOTHER_FILE)?;
    results.respell(cells.iter().map(|cell| &cell.key));
    let simulated = simulate_missing(&cells, args.jobs, &mut results)?;
    results.finish()?;
    tell_written(simulated, results.path());
    let of_grid: Vec<(&Key, &Value)> = (cells.iter())
        .filter_map(|cell| results.get(&cell.key))
        .collect();
    files.finish(&of_grid, &grid.seeds.to_string(), env!("CARGO_PKG_VERSION"))?;
    summary::show(&of_grid, out)
}

/// Simulates the cells whose results are not in the file, and appends those. Returns their number.
fn simulate_missing(cells: &[Cell], jobs: Option<u16>, results: &mut Results) -> Result<usize> {
    let missing: Vec<&Cell> = (cells.iter())
        .filter(|cell| results.get(&cell.key).is_none())
        .collect();
    let known = cells.len() - missing.len();
    if known > 0 {
        let file = results.path().display();
        output::tell(format_args!(
            "{known} of {} results are already in {file}",
            cells.len()
        ));
    }
    grid::simulate_all(&missing, jobs, |key, report| results.append(key, report))?;
    Ok(missing.len())
}

/// Reports new results in a results file on standard error.
fn tell_written(results: usize, file: &Path) {
    if results > 0 {
        output::tell(format_args!(
            "wrote {results} results to {}",
            file.display()
        ));
    }
}

/// Files written from all results of a sweep.
struct ResultFiles {
    per_seed: Option<RowFile>,
    report: Option<NewFile>,
}

impl ResultFiles {
    /// Creates the files, which are not in their places yet.
    ///
    /// # Errors
    /// If a file cannot be written, or this build cannot write its format.
    fn create(args: &ResultFileArgs) -> Result<ResultFiles> {
        Ok(ResultFiles {
            per_seed: args.per_seed.as_deref().map(RowFile::create).transpose()?,
            report: args.report.as_deref().map(NewFile::create).transpose()?,
        })
    }

    /// Writes the results, which come in the order of the command line. `seeds` names the seeds,
    /// `version` the Tidegate that simulated.
    fn finish(self, results: &[(&Key, &Value)], seeds: &str, version: &str) -> Result<()> {
        if let Some(file) = self.per_seed {
            file.finish(results)?;
        }
        if let Some(file) = self.report {
            file.finish(&page::page(results, seeds, version))?;
        }
        Ok(())
    }
}
