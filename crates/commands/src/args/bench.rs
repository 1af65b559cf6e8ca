//! Options of `demo` and `bench`.

use std::path::PathBuf;

use clap::builder::ArgPredicate;
use clap::{Args as ClapArgs, Subcommand, ValueHint};
use tidegate_policies::policy::PolicySpec;

use super::value::{parse_param, parse_policy, whole};
use crate::completion;

#[derive(Debug, ClapArgs)]
pub(crate) struct DemoArgs {
    /// Duration of the whole demo in seconds
    #[arg(long, value_name = "N", default_value_t = 36,
          value_parser = whole::<u64>(8..=3600))]
    pub(crate) seconds: u64,
    /// Policies to show, in this order
    #[arg(long = "policy", value_name = "NAME,...", value_delimiter = ',',
          default_value = "fifo,mclock,slo", value_parser = parse_policy,
          add = completion::policies())]
    pub(crate) policies: Vec<PolicySpec>,
    /// Draw curves in ASCII (the default where the locale is not UTF-8)
    #[arg(long)]
    pub(crate) ascii: bool,
    /// File of the report that is made in the end, a page for a browser
    #[arg(long, value_name = "FILE", default_value = "tidegate-demo.html",
          value_hint = ValueHint::FilePath)]
    pub(crate) report: PathBuf,
    /// Serve the dashboard after the results, until Ctrl-C
    #[arg(long)]
    pub(crate) keep: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum BenchCommand {
    /// Measure the CPU cost of scheduling a request, without a device
    #[command(
        after_help = "CPU time of one thread, median of several runs, with all VMs \
                      backlogged.\n\nExamples:\n  tidegate bench engine --policy mclock --vms \
                      1,100,10000\n  tidegate bench engine --policy sfq --param \
                      cost=device-time\n\n--instructions counts executed instructions with \
                      valgrind's callgrind instead: the same figure in every run of one build, \
                      even on a busy machine, so that a rise of 1 % is visible.\n  tidegate bench \
                      engine --instructions --policy fifo,mclock\n  tidegate bench engine \
                      --instructions --against bench/instructions.json\n  tidegate bench engine \
                      --instructions --record bench/instructions.json"
    )]
    Engine(BenchArgs),
    /// Run one policy for `--instructions`, under callgrind
    #[command(hide = true)]
    Counted(CountedArgs),
}

/// Options of one policy's run under callgrind.
#[derive(Debug, ClapArgs)]
pub(crate) struct CountedArgs {
    /// Policy
    #[arg(value_parser = parse_policy, add = completion::policies())]
    pub(crate) policy: PolicySpec,
    /// Number of VMs
    #[arg(value_parser = whole::<u32>(1..=1_000_000))]
    pub(crate) vms: u32,
    /// Number of requests to count
    #[arg(value_parser = whole::<u64>(1000..=u64::MAX))]
    pub(crate) requests: u64,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct BenchArgs {
    /// Policies to measure [default: all]
    #[arg(long = "policy", value_name = "NAME,...", value_delimiter = ',',
          value_parser = parse_policy, add = completion::policies())]
    pub(crate) policies: Vec<PolicySpec>,
    /// Policy parameter with its unit; policies are measured with and without it
    #[arg(long = "param", value_name = "NAME=VALUE", value_parser = parse_param)]
    pub(crate) params: Vec<(String, String)>,
    /// Numbers of VMs; 1 and 1000 with --instructions
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_value = "1,10,100,1000",
          default_value_if("instructions", ArgPredicate::IsPresent, "1,1000"),
          value_parser = whole::<u32>(1..=1_000_000))]
    pub(crate) vms: Vec<u32>,
    /// Requests that each VM keeps waiting
    #[arg(long = "depth", value_name = "D,...", value_delimiter = ',', default_value = "8",
          value_parser = whole::<u32>(1..=100_000))]
    pub(crate) depths: Vec<u32>,
    /// Requests of a run; 20000 with --instructions
    #[arg(long, value_name = "N", default_value = "1000000",
          default_value_if("instructions", ArgPredicate::IsPresent, "20000"),
          value_parser = whole::<u64>(1000..=u64::MAX))]
    pub(crate) requests: u64,
    /// Runs for the median
    #[arg(long, value_name = "N", default_value_t = 5,
          value_parser = whole::<u32>(1..=1000))]
    pub(crate) runs: u32,
    /// Give the device a profile, with the cost of comparing it on each request
    ///
    /// Policies with cost = device-time always have a profile.
    #[arg(long)]
    pub(crate) profile: bool,
    /// Count instructions per request instead of measuring time
    ///
    /// Needs valgrind and a release build.
    #[arg(long, conflicts_with_all = ["runs", "params", "depths", "profile"])]
    pub(crate) instructions: bool,
    /// Compare with a file of --record; exit with 1 if a count is more than 2 % higher
    #[arg(long, value_name = "FILE", requires = "instructions")]
    pub(crate) against: Option<PathBuf>,
    /// Write the counts of all policies to a file
    #[arg(long, value_name = "FILE", requires = "instructions",
          conflicts_with_all = ["policies", "vms", "requests"])]
    pub(crate) record: Option<PathBuf>,
    /// Parallel counts [default: number of CPUs]
    #[arg(long, value_name = "N", requires = "instructions",
          value_parser = whole::<u16>(1..=1024))]
    pub(crate) jobs: Option<u16>,
}
