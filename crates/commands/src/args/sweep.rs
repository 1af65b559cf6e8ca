//! Options of `tidegate sweep`.

use std::fmt;
use std::path::PathBuf;

use clap::{Args as ClapArgs, Subcommand, ValueHint};
use serde::{Deserialize, Serialize};
use tidegate_policies::policy::PolicySpec;

use super::simulator::{ChangeArgs, Processors, processors};
use super::value::{Seeds, parse_policy, parse_seeds, whole};
use crate::completion;

/// Maximum number of shards of a sweep.
const SHARDS_MAX: u32 = 1_000_000;

#[derive(Debug, ClapArgs)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct SweepArgs {
    #[command(subcommand)]
    pub(crate) command: Option<SweepCommand>,
    #[command(flatten)]
    pub(crate) grid: GridArgs,
}

#[derive(Debug, Subcommand)]
pub(crate) enum SweepCommand {
    /// Put the shards of a sweep together
    #[command(
        after_help = "Prints what one `tidegate sweep` of everything would have printed, and \
                      writes the same files. Refuses shards of different sweeps or builds, \
                      simulations that are in two shards, and a sweep that is not complete: then \
                      it names what is missing, with the commands that simulate it.\n\nExamples:
  tidegate sweep merge results
  tidegate sweep merge results --report sweep.html --per-seed seeds.csv
  tidegate sweep merge node1/results node2/results -o json"
    )]
    Merge(MergeArgs),
}

/// Scenarios, policies and seeds, and how they are simulated.
#[derive(Debug, ClapArgs)]
pub(crate) struct GridArgs {
    /// Scenarios (.toml) and fio job files
    #[arg(required = true, value_hint = ValueHint::FilePath)]
    pub(crate) files: Vec<PathBuf>,
    /// Policies, each on all devices [default: the scenario's own]
    #[arg(long = "policy", value_name = "NAME,...", value_delimiter = ',',
          value_parser = parse_policy, add = completion::policies())]
    pub(crate) policies: Vec<PolicySpec>,
    /// vCPU schedulers, for scenarios with [host.cpu]
    #[arg(long = "scheduler", value_name = "NAME,...", value_delimiter = ',',
          value_parser = processors())]
    pub(crate) schedulers: Vec<Processors>,
    /// Seeds: 1..20 (both included), or 1,2,3
    #[arg(long, value_name = "N..N|N,...", default_value = "1..10", value_parser = parse_seeds)]
    pub(crate) seeds: Seeds,
    /// File for results, one line of JSON each
    #[arg(long, value_name = "FILE", default_value = "sweep.jsonl",
          value_hint = ValueHint::FilePath)]
    pub(crate) results: PathBuf,
    #[command(flatten)]
    pub(crate) files_of_results: ResultFileArgs,
    /// Simulate everything again, ignoring results of before
    #[arg(long)]
    pub(crate) fresh: bool,
    /// Parallel simulations [default: number of CPUs]
    #[arg(long, value_name = "N", value_parser = whole::<u16>(1..=1024))]
    pub(crate) jobs: Option<u16>,
    /// Simulate part I of N, counted from 1; auto: by variables of Slurm or Kubernetes
    #[arg(long, value_name = "I/N|auto", value_parser = parse_shard, requires = "out",
          help_heading = "Several machines")]
    pub(crate) shard: Option<ShardArg>,
    /// Directory for shards, which `tidegate sweep merge DIR` puts together
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath,
          conflicts_with_all = ["results", "per_seed", "report"],
          help_heading = "Several machines")]
    pub(crate) out: Option<PathBuf>,
    /// Print a command for each simulation, or N commands, for GNU parallel or xargs
    #[arg(long, value_name = "N", num_args = 0..=1, require_equals = true,
          value_parser = whole::<u32>(1..=SHARDS_MAX.into()), requires = "out",
          conflicts_with = "shard", help_heading = "Several machines")]
    pub(crate) list: Option<Option<u32>>,
    #[command(flatten)]
    pub(crate) changes: ChangeArgs,
}

/// Files that a sweep writes from all of its results.
#[derive(Debug, ClapArgs)]
pub(crate) struct ResultFileArgs {
    /// Write the results of each VM and seed to FILE as CSV, or as Parquet (FILE.parquet)
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) per_seed: Option<PathBuf>,
    /// Write means and differences between policies to FILE as a page for a browser
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) report: Option<PathBuf>,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct MergeArgs {
    /// Directories with shards, or their files
    #[arg(required = true, value_name = "DIR|FILE", value_hint = ValueHint::AnyPath)]
    pub(crate) shards: Vec<PathBuf>,
    /// Also write all results to FILE, one line of JSON each
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) results: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) files_of_results: ResultFileArgs,
}

/// Part of a sweep that one process simulates: every `count`-th simulation from the `index`-th on.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub(crate) struct Shard {
    /// Number of the shard, from 1 to `count`.
    index: u32,
    count: u32,
}

impl Shard {
    /// Whole sweep as one shard.
    pub(crate) const WHOLE: Shard = Shard { index: 1, count: 1 };

    /// Returns shard `index` of `count`, if there is such a shard.
    pub(crate) fn new(index: u32, count: u32) -> Option<Shard> {
        let exists = (1..=SHARDS_MAX).contains(&count) && (1..=count).contains(&index);
        exists.then_some(Shard { index, count })
    }

    pub(crate) fn index(self) -> u32 {
        self.index
    }

    pub(crate) fn count(self) -> u32 {
        self.count
    }

    /// Returns true if the simulation at a position is one of the shard's.
    pub(crate) fn has(self, position: usize) -> bool {
        position % self.count as usize == self.index as usize - 1
    }

    /// Returns the positions of the shard's simulations among `total`.
    pub(crate) fn positions(self, total: usize) -> impl Iterator<Item = usize> {
        // Neighbours differ in their seed, so that each shard has a similar part of every policy.
        (self.index as usize - 1..total).step_by(self.count as usize)
    }
}

impl fmt::Display for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.index, self.count)
    }
}

impl std::str::FromStr for Shard {
    type Err = String;

    fn from_str(text: &str) -> Result<Shard, String> {
        let number = |text: &str| text.trim().parse::<u32>().ok();
        let numbers = text.split_once('/');
        let numbers = numbers.and_then(|(index, count)| Some((number(index)?, number(count)?)));
        let Some((index, count)) = numbers else {
            return Err("write I/N, such as 1/10 for the first of ten".to_owned());
        };
        Shard::new(index, count).ok_or_else(|| match count {
            1..=SHARDS_MAX => {
                format!("shards count from 1: with {count} there are 1/{count} to {count}/{count}")
            }
            _ => format!("allowed: 1 to {SHARDS_MAX} shards"),
        })
    }
}

impl From<Shard> for String {
    fn from(shard: Shard) -> String {
        shard.to_string()
    }
}

impl TryFrom<String> for Shard {
    type Error = String;

    fn try_from(text: String) -> Result<Shard, String> {
        text.parse()
    }
}

/// Shard as given on the command line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ShardArg {
    /// By the variables of the workload manager that started the process.
    Auto,
    Given(Shard),
}

/// Parses `I/N` or `auto`.
fn parse_shard(text: &str) -> Result<ShardArg, String> {
    if text == "auto" {
        return Ok(ShardArg::Auto);
    }
    let shard = text.parse().map(ShardArg::Given);
    shard.map_err(|error| format!("{error}; or auto, under Slurm or Kubernetes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shard_counts_from_1() {
        let given = |text| parse_shard(text);
        assert_eq!(given("auto"), Ok(ShardArg::Auto));
        let shard = Shard::new(3, 10).expect("it exists");
        assert_eq!(given("3/10"), Ok(ShardArg::Given(shard)));
        for (wrong, why) in [
            ("0/10", "1/10 to 10/10"),
            ("11/10", "1/10 to 10/10"),
            ("1/0", "1 to 1000000 shards"),
            ("1/1000001", "1 to 1000000 shards"),
            ("3", "I/N"),
            ("1/x", "I/N"),
            ("-1/3", "I/N"),
        ] {
            let message = given(wrong).expect_err("no shard");
            assert!(message.contains(why), "{wrong}: {message}");
        }
    }

    #[test]
    fn every_simulation_is_in_one_shard() {
        for count in [1, 2, 3, 7, 20] {
            let shards = (1..=count).map(|index| Shard::new(index, count).expect("it exists"));
            let mut all = Vec::new();
            for shard in shards {
                let positions: Vec<usize> = shard.positions(13).collect();
                assert!(
                    (0..13)
                        .filter(|&it| shard.has(it))
                        .eq(positions.iter().copied())
                );
                all.extend(positions);
            }
            all.sort_unstable();
            assert_eq!(all, (0..13).collect::<Vec<_>>(), "{count} shards");
        }
    }
}
