//! What can be typed.

use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgGroup, Args as ClapArgs, Parser, Subcommand, ValueEnum, ValueHint};
use tidegate_core::objective::Objective;
use tidegate_core::policy::{self, PolicySpec};
use tidegate_core::time::Nanos;
use tidegate_device::units;
use tidegate_server::config::DEFAULT_CONTROL_SOCKET;

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

#[derive(Debug, Subcommand)]
pub(crate) enum VmCommand {
    /// All VMs in a table
    List,
    /// One VM: objective, disks, where its time goes
    Show {
        /// Its name
        name: String,
    },
    /// Change what a VM was promised, now
    #[command(
        override_usage = "tidegate vm set <NAME> <--PART VALUE>...",
        after_help = "What is not named stays as it is; \"none\" takes a part away. The \
                            change lasts until\nthe daemon ends: write it into the configuration \
                            to keep it.\n\nExamples:
  tidegate vm set oltp --reservation \"120 IOPS @ 16 KiB\" --latency \"30 ms\"
  tidegate vm set bulk --limit \"500 IOPS, 40 MB/s\" --burst \"2000 IOPS\" --burst-length \"10 s\"
  tidegate vm set bulk --limit none --weight 50"
    )]
    Set(Box<ObjectiveArgs>),
}

/// Parts of an objective. Rates are text such as `500 IOPS`, `120 IOPS @ 16 KiB`, `30 MB/s`,
/// `500 IOPS, 30 MB/s` or `none`; the daemon reads them as the configuration's.
#[derive(Debug, ClapArgs)]
#[command(group = ArgGroup::new("parts").required(true).multiple(true).args([
    "reservation", "limit", "limit_read", "limit_write", "burst", "burst_read", "burst_write",
    "burst_length", "target", "weight", "latency",
    "priority",
]))]
pub(crate) struct ObjectiveArgs {
    /// The VM's name
    pub(crate) name: String,
    /// A floor: what the VM gets when it asks
    #[arg(long, value_name = "RATE")]
    pub(crate) reservation: Option<String>,
    /// A cap on reads and writes together; "none" removes every limit
    #[arg(long, value_name = "RATE")]
    pub(crate) limit: Option<String>,
    /// A cap on reads
    #[arg(long, value_name = "RATE")]
    pub(crate) limit_read: Option<String>,
    /// A cap on writes
    #[arg(long, value_name = "RATE")]
    pub(crate) limit_write: Option<String>,
    /// What may pass above the limit for a while; "none" removes the burst
    #[arg(long, value_name = "RATE")]
    pub(crate) burst: Option<String>,
    /// A burst of reads
    #[arg(long, value_name = "RATE")]
    pub(crate) burst_read: Option<String>,
    /// A burst of writes
    #[arg(long, value_name = "RATE")]
    pub(crate) burst_write: Option<String>,
    /// How long a burst may last, such as "10 s"
    #[arg(long, value_name = "TIME")]
    pub(crate) burst_length: Option<String>,
    /// A rate to be held precisely
    #[arg(long, value_name = "RATE")]
    pub(crate) target: Option<String>,
    /// Share of what reservations leave, 1 to 10000; "none" goes back to the default
    #[arg(long, value_name = "N", value_parser = parse_weight)]
    pub(crate) weight: Option<u32>,
    /// Bound on each request's time, such as "30 ms"
    #[arg(long, value_name = "TIME")]
    pub(crate) latency: Option<String>,
    /// Class of I/O priority: realtime, "best-effort 0" to "best-effort 7", idle
    #[arg(long, value_name = "CLASS")]
    pub(crate) priority: Option<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum DeviceCommand {
    /// All devices in a table
    List,
    /// One device: policy, depth, what is not enforced
    Show {
        /// Its name
        name: String,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum PolicyCommand {
    /// All policies and the parts they are made of (asks no daemon)
    List,
    /// One policy or part: what it does, what it enforces, its parameters (asks no daemon)
    #[command(after_help = "Examples:
  tidegate policy show mclock
  tidegate policy show bd-edf                       a part
  tidegate policy show token-bucket+mclock          parts, combined freely")]
    Show {
        /// The name of a policy or of a part, or parts joined by +
        name: String,
    },
    /// Change the policy of a device, now; nothing pending is lost
    #[command(after_help = "Examples:
  tidegate policy set disk0 mclock
  tidegate policy set disk0 mclock --param \"cost_size=64 KiB\"
  tidegate policy set disk0 token-bucket+mclock     parts, combined freely")]
    Set {
        /// The device's name
        device: String,
        /// A policy's name, or REGULATOR+DISPATCHER, or CONTROLLER+REGULATOR+DISPATCHER
        policy: String,
        /// A parameter's value with its unit; may be given several times
        #[arg(long = "param", value_name = "NAME=VALUE", value_parser = parse_param)]
        params: Vec<(String, String)>,
    },
}

#[derive(Debug, ClapArgs)]
pub(crate) struct StatsArgs {
    /// Only this VM
    pub(crate) vm: Option<String>,
    /// Rates of each interval instead of totals, until interrupted
    #[arg(short, long)]
    pub(crate) follow: bool,
    /// Time between two looks, such as "500 ms"
    #[arg(long, value_name = "TIME", default_value = "1 s", value_parser = parse_interval,
          requires = "follow")]
    pub(crate) interval: Duration,
    /// End after so many intervals
    #[arg(long, value_name = "N", requires = "follow")]
    pub(crate) count: Option<u64>,
}

/// What changes a scenario for one run.
#[derive(Debug, ClapArgs)]
pub(crate) struct ChangeArgs {
    /// This model under every device: a name of the catalogue, or a TOML file
    #[arg(long, value_name = "MODEL")]
    pub(crate) device: Option<String>,
    /// This long, such as "60 s"
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub(crate) duration: Option<Nanos>,
    /// Leave out what is not understood of a fio job file, with a warning
    #[arg(long)]
    pub(crate) lenient: bool,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct SimArgs {
    /// A scenario (.toml), or a fio job file (any other ending)
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) file: PathBuf,
    /// This policy on every device
    #[arg(long, value_name = "NAME", value_parser = parse_policy)]
    pub(crate) policy: Option<PolicySpec>,
    /// This seed
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,
    /// A row for each VM every so often, such as "1 s"
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub(crate) interval: Option<Nanos>,
    #[command(flatten)]
    pub(crate) changes: ChangeArgs,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct SweepArgs {
    /// Scenarios (.toml) and fio job files
    #[arg(required = true, value_hint = ValueHint::FilePath)]
    pub(crate) files: Vec<PathBuf>,
    /// These policies, each on every device; the scenarios' own unless said
    #[arg(long = "policy", value_name = "NAME,...", value_delimiter = ',',
          value_parser = parse_policy)]
    pub(crate) policies: Vec<PolicySpec>,
    /// Seeds: 1..20 (both included), or 1,2,3
    #[arg(long, value_name = "N..N|N,...", default_value = "1..10", value_parser = parse_seeds)]
    pub(crate) seeds: Seeds,
    /// Where results are kept, a line of JSON each
    #[arg(long, value_name = "FILE", default_value = "sweep.jsonl",
          value_hint = ValueHint::FilePath)]
    pub(crate) results: PathBuf,
    /// Simulate everything anew, whatever the results file holds
    #[arg(long)]
    pub(crate) fresh: bool,
    /// Simulations at once; as many as there are cores unless said
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) jobs: Option<u16>,
    #[command(flatten)]
    pub(crate) changes: ChangeArgs,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct ReproduceArgs {
    /// The paper; a list of them unless said
    #[arg(value_name = "PAPER")]
    pub(crate) paper: Option<String>,
    /// Only this table of the paper, and what is claimed about it
    #[arg(long, value_name = "N", requires = "paper")]
    pub(crate) table: Option<String>,
    /// Fit the free figures of the models again, and print the calibration
    #[arg(long, requires = "paper", conflicts_with = "table")]
    pub(crate) calibrate: bool,
    /// Simulations at once; as many as there are cores unless said
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) jobs: Option<u16>,
}

/// Seeds, in order, each once.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Seeds(pub(crate) Vec<u64>);

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

#[derive(Debug, ClapArgs)]
pub(crate) struct TortureArgs {
    /// How many seeds; 1000 unless --minutes is given
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1 << 40))]
    pub(crate) seeds: Option<u64>,
    /// The first of them
    #[arg(long, value_name = "SEED", default_value_t = 0)]
    pub(crate) start_seed: u64,
    /// Begin no more seeds after so many minutes
    #[arg(long, value_name = "M", value_parser = parse_minutes)]
    pub(crate) minutes: Option<Duration>,
    /// How many at a time; all processors unless said
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) jobs: Option<u16>,
    /// Only this seed
    #[arg(long, value_name = "SEED", conflicts_with_all = ["seeds", "start_seed", "minutes",
          "jobs", "resume"])]
    pub(crate) seed: Option<u64>,
    /// Only these policies; all of them, and all compositions, unless said
    #[arg(long = "policy", value_name = "NAME,...", value_delimiter = ',',
          value_parser = parse_policy)]
    pub(crate) policies: Vec<PolicySpec>,
    /// Show everything that happens, as it happens
    #[arg(long, requires = "seed")]
    pub(crate) trace: bool,
    /// Remember in this file which seeds have passed, and leave those out; a file belongs to one
    /// build and one choice of policies
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) resume: Option<PathBuf>,
}

fn parse_minutes(text: &str) -> Result<Duration, String> {
    let minutes = text.parse::<f64>().ok();
    minutes
        .filter(|m| (0.01..=1_000_000.0).contains(m))
        .map(|m| Duration::from_secs_f64(m * 60.0))
        .ok_or_else(|| "from 0.01 to 1000000".to_owned())
}

fn parse_param(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.trim().is_empty() => {
            Ok((name.trim().to_owned(), value.trim().to_owned()))
        }
        _ => Err("write NAME=VALUE, such as \"cost_size=64 KiB\"".to_owned()),
    }
}

fn parse_weight(text: &str) -> Result<u32, String> {
    if text.trim().eq_ignore_ascii_case("none") {
        return Ok(Objective::DEFAULT_WEIGHT);
    }
    let weight = text.trim().parse().ok();
    weight
        .filter(|weight| (1..=Objective::MAX_WEIGHT).contains(weight))
        .ok_or_else(|| {
            format!(
                "a whole number from 1 to {}, or \"none\" for the default, {}",
                Objective::MAX_WEIGHT,
                Objective::DEFAULT_WEIGHT
            )
        })
}

fn parse_time(text: &str) -> Result<Nanos, String> {
    match units::parse_duration(text) {
        Ok(Nanos(0)) => Err("it must be longer than nothing".to_owned()),
        Ok(time) => Ok(time),
        Err(error) => Err(error.to_string()),
    }
}

/// More are a mistake in typing.
const MOST_SEEDS: u64 = 1_000_000;

fn parse_seeds(text: &str) -> Result<Seeds, String> {
    let number = |text: &str| text.trim().parse::<u64>().ok();
    let seeds: Option<Vec<u64>> = match text.split_once("..") {
        Some((from, to)) => match (number(from), number(to)) {
            (Some(from), Some(to)) if from <= to && to - from < MOST_SEEDS => {
                Some((from..=to).collect())
            }
            _ => None,
        },
        None => text.split(',').map(number).collect(),
    };
    let mut seeds = seeds.ok_or("write 1..20 (both included) or 1,2,3; at most a million")?;
    seeds.sort_unstable();
    seeds.dedup();
    Ok(Seeds(seeds))
}

/// How often a daemon may be asked.
const INTERVALS: std::ops::RangeInclusive<Nanos> = Nanos::from_millis(50)..=Nanos::from_secs(3600);

fn parse_interval(text: &str) -> Result<Duration, String> {
    let time = units::parse_duration(text).map_err(|error| error.to_string())?;
    if !INTERVALS.contains(&time) {
        return Err("from 50 ms to 1 h".to_owned());
    }
    Ok(Duration::from_nanos(time.0))
}

/// A policy by name, or its parts joined by `+`.
pub(crate) fn parse_policy(text: &str) -> Result<PolicySpec, String> {
    let spec = match text.split('+').collect::<Vec<_>>().as_slice() {
        [regulator, dispatcher] => PolicySpec::composed(None, regulator, dispatcher),
        [controller, regulator, dispatcher] => {
            PolicySpec::composed(Some(controller), regulator, dispatcher)
        }
        _ => PolicySpec::named(text),
    };
    spec.map_err(|error| error.to_string())
}

/// Every policy with its defaults.
pub(crate) fn all_policies() -> Vec<PolicySpec> {
    policy::registry()
        .iter()
        .filter_map(|info| PolicySpec::named(info.name).ok())
        .collect()
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
    fn policies_are_named_or_composed() {
        assert_eq!(parse_policy("mclock").expect("registered").name(), "mclock");
        let composed = parse_policy("token-bucket+mclock").expect("known parts");
        assert_eq!(composed.parts(), (None, "token-bucket", "mclock"));
        assert!(
            parse_policy("mclok")
                .expect_err("unknown")
                .contains("mclock")
        );
        assert!(parse_policy("a+b+c+d").is_err());
    }

    #[test]
    fn seeds_are_a_range_or_a_list() {
        assert_eq!(parse_seeds("3..5"), Ok(Seeds(vec![3, 4, 5])));
        assert_eq!(parse_seeds("9,1,9"), Ok(Seeds(vec![1, 9])));
        for wrong in ["", "5..3", "1..", "1,x", "0..1000000"] {
            assert!(parse_seeds(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn no_weight_is_the_default_one() {
        assert_eq!(parse_weight("none"), Ok(Objective::DEFAULT_WEIGHT));
        assert_eq!(parse_weight("10000"), Ok(10_000));
        for wrong in ["0", "10001", "heavy", "-1", "1.5"] {
            let said = parse_weight(wrong).expect_err("not a weight");
            assert!(said.contains("\"none\" for the default, 100"), "{said}");
        }
    }

    #[test]
    fn changing_nothing_is_a_mistake() {
        assert!(Args::try_parse_from(["tidegate", "vm", "set", "oltp"]).is_err());
        assert!(Args::try_parse_from(["tidegate", "vm", "set", "oltp", "--weight", "7"]).is_ok());
    }
}
