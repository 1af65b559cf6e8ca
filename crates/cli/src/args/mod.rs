//! What can be typed: the commands here, the options of those that ask the daemon and of those that
//! simulate in a file each, how a value is read in `value`.

mod daemon;
mod simulator;
mod value;

use std::path::PathBuf;

use clap::{Args as ClapArgs, Parser, Subcommand, ValueEnum, ValueHint};
use tidegate_core::policy::PolicySpec;
use tidegate_server::config::DEFAULT_CONTROL_SOCKET;

pub(crate) use daemon::{DeviceCommand, ObjectiveArgs, PolicyCommand, StatsArgs, VmCommand};
pub(crate) use simulator::{ChangeArgs, ReproduceArgs, SimArgs, SweepArgs, TortureArgs};
pub(crate) use value::{all_policies, parse_policy};

/// Gives every virtual machine the disk it was promised.
///
/// Tidegate serves VM disks over NBD and schedules their I/O on the shared device against what
/// each VM was promised: reservations, limits, shares.
#[derive(Debug, Parser)]
#[command(
    version,
    max_term_width = 100,
    after_help = "Examples:
  tidegate demo                                what scheduling is worth, in under a minute
  tidegate check tidegate.toml                 is this configuration good, and what does it say?
  tidegate serve tidegate.toml                 serve it
  tidegate sim examples/noisy-neighbour.toml   who would get what, in virtual time
  tidegate vm list                             who is served
  tidegate vm set oltp --reservation \"120 IOPS\"
  tidegate stats --follow                      who gets what, every second"
)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What every command understands.
#[derive(Debug, ClapArgs)]
#[command(next_help_heading = "Options of every command")]
pub(crate) struct Global {
    /// Tables for people, or JSON for machines
    #[arg(
        short,
        long,
        global = true,
        value_enum,
        default_value = "table",
        value_name = "FORMAT"
    )]
    pub(crate) output: Format,
    /// The daemon's control socket
    #[arg(long, global = true, env = "TIDEGATE_SOCKET", value_name = "PATH",
          default_value = DEFAULT_CONTROL_SOCKET, value_hint = ValueHint::FilePath)]
    pub(crate) socket: PathBuf,
}

/// How results are printed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Format {
    /// For people
    Table,
    /// For machines
    Json,
    /// For spreadsheets and plots: `sim` and `sweep` only
    Csv,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Serve the disks that a configuration names, until SIGTERM
    #[command(
        after_help = "SIGTERM and SIGINT finish what is in flight, then stop; a second one \
                            stops at once.\n\nExample:\n  tidegate serve examples/quickstart.toml"
    )]
    Serve {
        /// The configuration, TOML
        #[arg(value_hint = ValueHint::FilePath)]
        file: PathBuf,
        /// How much to log, on standard error
        #[arg(
            long,
            value_enum,
            default_value = "info",
            env = "TIDEGATE_LOG",
            value_name = "LEVEL"
        )]
        log: LogLevel,
    },
    /// Check a configuration or a scenario, and print what it says
    #[command(
        after_help = "Reports everything that is wrong with the file, each with its line, and \
                            exits with 1\nif anything is. It opens no disk and no socket: that \
                            a disk is in use, has another\nsize or cannot be made is found by \
                            `serve`.\n\n\
                            Example:\n  tidegate check examples/limits.toml"
    )]
    Check {
        /// The configuration or the scenario, TOML
        #[arg(value_hint = ValueHint::FilePath)]
        file: PathBuf,
    },
    /// The VMs that are served, and what they were promised
    #[command(subcommand)]
    Vm(VmCommand),
    /// The devices their disks lie on
    #[command(subcommand)]
    Device(DeviceCommand),
    /// The scheduling policies there are, and the one in force
    #[command(subcommand)]
    Policy(PolicyCommand),
    /// What was counted for each VM
    #[command(
        after_help = "Queue time is what scheduling and limits cost; service time is the \
                            device's.\n\nExamples:\n  tidegate stats\n  tidegate stats --follow \
                            --interval \"2 s\"\n  tidegate stats --follow -o json | jq '.vms[].iops'"
    )]
    Stats(StatsArgs),
    /// Simulate a scenario, or a fio job file, in virtual time
    #[command(
        after_help = "The daemon's own engine runs against a device model: what it does here is \
                            what it does\nserving disks. The same scenario and seed give the same \
                            bytes on every machine.\n\nExamples:
  tidegate sim examples/noisy-neighbour.toml
  tidegate sim examples/noisy-neighbour.toml --policy fifo
  tidegate sim examples/noisy-neighbour.toml --interval \"1 s\" -o csv > series.csv
  tidegate sim examples/mixed.fio --device nvme-1tb      each [section] is a VM"
    )]
    Sim(Box<SimArgs>),
    /// Simulate a grid of scenarios, policies and seeds, on all cores
    #[command(
        after_help = "Each result is a line of the results file. A sweep that was stopped goes on \
                            where it was;\na scenario that has changed is simulated \
                            anew.\n\nExamples:
  tidegate sweep examples/noisy-neighbour.toml --policy fifo,mclock --seeds 1..20
  tidegate sweep a.toml b.toml --seeds 1,2,3 --results grid.jsonl -o csv"
    )]
    Sweep(Box<SweepArgs>),
    /// Run a paper's experiments again and set them beside its figures
    #[command(
        after_help = "Everything runs in the simulator and is the same on every machine. \
                            `calibrated` marks the figures\nthat the models of disk and guests \
                            were fitted to; all others are predicted. JSON is a list of\n\
                            {paper, table, row, column, theirs, ours, calibrated} and of {claim, \
                            holds, detail}.\n\nExamples:
  tidegate reproduce                           which papers there are
  tidegate reproduce flubber
  tidegate reproduce flubber --table 3 -o json"
    )]
    Reproduce(ReproduceArgs),
    /// Show what scheduling is worth: three VMs on one emulated disk
    #[command(
        after_help = "Examples:\n  tidegate demo\n  tidegate demo --seconds 20 --policy \
                            fifo,mclock -o json"
    )]
    Demo(DemoArgs),
    /// Measure Tidegate itself
    #[command(subcommand)]
    Bench(BenchCommand),
    /// Torture the engine under faults, seed by seed
    #[command(
        after_help = "A seed decides everything: VMs, workloads, policy, device, what goes \
                            wrong and when.\nThe same seed does the same on any machine; one that \
                            fails is shown again with --seed.\nExits with 1 when a promise was \
                            broken.\n\nExamples:
  tidegate torture --seeds 10000
  tidegate torture --minutes 60 --resume torture.seeds
  tidegate torture --seeds 5000 --policy mclock,token-bucket+mclock
  tidegate torture --seed 4711 --trace"
    )]
    Torture(TortureArgs),
    /// Print completions for a shell
    #[command(after_help = "Example:\n  tidegate completions bash > \
                            /etc/bash_completion.d/tidegate")]
    Completions {
        /// Which
        shell: clap_complete::Shell,
    },
}

/// How much `serve` logs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum LogLevel {
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct DemoArgs {
    /// How long, over all policies
    #[arg(long, value_name = "N", default_value_t = 45,
          value_parser = clap::value_parser!(u64).range(4..=3600))]
    pub(crate) seconds: u64,
    /// Policies, in the order they take turns
    #[arg(long = "policy", value_name = "NAME,...", value_delimiter = ',',
          default_value = "fifo,mclock,flubber", value_parser = parse_policy)]
    pub(crate) policies: Vec<PolicySpec>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum BenchCommand {
    /// What scheduling a request costs, without any device
    #[command(
        after_help = "CPU time of one thread, median of repeated runs, all VMs \
                            backlogged.\n\nExample:\n  tidegate bench engine --policy mclock \
                            --vms 1,100,10000"
    )]
    Engine(BenchArgs),
}

#[derive(Debug, ClapArgs)]
pub(crate) struct BenchArgs {
    /// Which policies; all of them unless said
    #[arg(long = "policy", value_name = "NAME,...", value_delimiter = ',',
          value_parser = parse_policy)]
    pub(crate) policies: Vec<PolicySpec>,
    /// How many VMs
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_value = "1,10,100,1000",
          value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) vms: Vec<u32>,
    /// How many requests each VM keeps waiting
    #[arg(long = "depth", value_name = "D,...", value_delimiter = ',', default_value = "8",
          value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) depths: Vec<u32>,
    /// How many requests a run takes
    #[arg(long, value_name = "N", default_value_t = 1_000_000,
          value_parser = clap::value_parser!(u64).range(1000..))]
    pub(crate) requests: u64,
    /// How many runs the median is taken of
    #[arg(long, value_name = "N", default_value_t = 5,
          value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) runs: u32,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_arguments_are_well_formed() {
        Args::command().debug_assert();
    }

    #[test]
    fn changing_nothing_is_a_mistake() {
        assert!(Args::try_parse_from(["tidegate", "vm", "set", "oltp"]).is_err());
        assert!(Args::try_parse_from(["tidegate", "vm", "set", "oltp", "--weight", "7"]).is_ok());
    }
}
