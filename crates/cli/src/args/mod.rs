//! What can be typed: the commands here, the options of those that ask the daemon and of those that
//! simulate in a file each, how a value is read in `value`.

mod agent;
mod daemon;
mod disk;
mod job;
mod part;
mod place;
mod plan;
mod profile;
mod promises;
mod schedule;
mod simulator;
mod trace;
mod value;
mod vcpu;

use std::path::PathBuf;

use clap::builder::{ArgPredicate, PossibleValuesParser, TypedValueParser};
use clap::error::ErrorKind;
use clap::{
    Args as ClapArgs, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum, ValueHint,
};
use tidegate_policies::policy::PolicySpec;
use tidegate_server::config::DEFAULT_CONTROL_SOCKET;

pub(crate) use agent::AgentArgs;
pub(crate) use daemon::{
    AddArgs, DeviceCommand, ImportArgs, ObjectiveArgs, PolicyCommand, RemoveArgs, ResizeArgs,
    StatsArgs, VmCommand,
};
pub(crate) use disk::{DiskCommand, FaultArgs, FaultCommand};
pub(crate) use job::{JobCommand, StartJobArgs};
pub(crate) use part::PartArgs;
pub(crate) use place::{
    AddHostArgs, CentreArgs, DbArg, PlaceCommand, PlaceHostCommand, PlaceJobArgs, RemoveHostArgs,
};
pub(crate) use plan::PlanArgs;
pub(crate) use profile::{MeasureArgs, ProfileArgs, ProfileCommand};
pub(crate) use promises::{Profiled, PromisesArgs};
pub(crate) use schedule::{EntryArgs, ScheduleCommand};
pub(crate) use simulator::{
    ChangeArgs, CompareArgs, PlotArgs, Processors, ReproduceArgs, SimArgs, SweepArgs, TortureArgs,
};
pub(crate) use trace::{TraceCommand, TraceInfoArgs, TraceReadArgs};
pub(crate) use value::{DiskArg, all_policies, parse_policy};
use value::{parse_param, whole};
pub(crate) use vcpu::{VcpuCommand, VcpuSimArgs};

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
  tidegate plan tidegate.toml                  can its devices keep what it promises?
  tidegate serve tidegate.toml                 serve it
  tidegate sim examples/noisy-neighbour.toml   who would get what, in virtual time
  tidegate vm list                             who is served
  tidegate vm set oltp --reservation \"120 IOPS\"
  tidegate transfer start dss --size \"2 GiB\" --deadline \"60 s\"
  tidegate vm add dss --disk \"path=dss.raw,size=20 GiB,create=sparse\"
  tidegate stats --follow                      who gets what, every second"
)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Commands that ask a running daemon; of `policy` only `set` does.
const ASK_THE_DAEMON: [&str; 7] = ["vm", "transfer", "job", "device", "disk", "policy", "stats"];
const ASK_NOBODY: [&str; 2] = ["list", "show"];
/// Commands whose results are one table, whatever they are asked.
const HAVE_CSV: [&str; 2] = ["sim", "sweep"];
/// Commands whose output is a log or a script.
const HAVE_NO_RESULTS: [&str; 2] = ["serve", "completions"];

impl Args {
    /// Reads the command line of this process; where it is wrong, or asks for help, the process
    /// ends.
    pub(crate) fn of_this_process() -> Args {
        Args::read(std::env::args_os()).unwrap_or_else(|error| error.exit())
    }

    fn read(
        words: impl IntoIterator<Item = impl Into<std::ffi::OsString> + Clone>,
    ) -> Result<Args, clap::Error> {
        let mut command = command();
        let matches = command.try_get_matches_from_mut(words)?;
        let args = Args::from_arg_matches(&matches)?;
        let name = matches.subcommand_name().unwrap_or_default();
        if args.global.output == Format::Csv && !HAVE_CSV.contains(&name) {
            let what = format!(
                "`{name}` has no CSV: -o json, or -o csv with `{}`",
                HAVE_CSV.join("` and `")
            );
            return Err(command.error(ErrorKind::InvalidValue, what));
        }
        Ok(args)
    }
}

/// All that can be typed. Options of every command may stand before a command's name, so all of
/// them take all of these; but none shows in its help those that it makes nothing of.
pub(crate) fn command() -> clap::Command {
    let mut command = Args::command();
    let option = |id| {
        let mut options = command.get_arguments();
        options.find(|arg| arg.get_id() == id).cloned()
    };
    let (Some(output), Some(socket)) = (option("output"), option("socket")) else {
        unreachable!("`Global` has them");
    };
    let socket = socket.hide(true);
    let names: Vec<String> = (command.get_subcommands())
        .map(|sub| sub.get_name().to_owned())
        .collect();
    for name in names {
        let has = |list: &[&str]| list.contains(&name.as_str());
        let output = match has(&HAVE_NO_RESULTS) {
            true => output.clone().hide(true),
            false if has(&HAVE_CSV) => output.clone(),
            false => output.clone().value_parser(without_csv()),
        };
        let socket = (!has(&ASK_THE_DAEMON)).then(|| socket.clone());
        command = command.mut_subcommand(&name, |sub| sub.arg(output).args(socket));
    }
    command = command.mut_subcommand("policy", |policy| {
        ASK_NOBODY.iter().fold(policy, |policy, name| {
            policy.mut_subcommand(name, |sub| sub.arg(socket.clone()))
        })
    });
    minus_is_a_number(command)
}

/// Lets `--seed -1` be told what a seed may be, not that there is no option `-1`.
fn minus_is_a_number(command: clap::Command) -> clap::Command {
    let command = command.mut_args(|arg| {
        let takes_value = !arg.is_positional() && arg.get_action().takes_values();
        arg.allow_negative_numbers(takes_value)
    });
    command.mut_subcommands(minus_is_a_number)
}

/// Reads a [`Format`]; CSV, which is refused where its reason can be said, is not offered.
fn without_csv() -> impl TypedValueParser<Value = Format> {
    let offered = Format::value_variants().iter().filter_map(|format| {
        let value = format.to_possible_value()?;
        Some(value.hide(*format == Format::Csv))
    });
    PossibleValuesParser::new(offered).try_map(|text| Format::from_str(&text, false))
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
    /// For spreadsheets and plots: `sim` and `sweep`
    Csv,
}

/// Documents that have a JSON Schema.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, ValueEnum)]
pub(crate) enum SchemaOf {
    /// The configuration of `serve`
    #[default]
    Configuration,
    /// Scenarios of `sim`
    Scenario,
    /// Scenarios of `vcpu sim`
    Vcpu,
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
    /// Check a configuration, a scenario, a device model or a profile, and print what it says
    #[command(
        after_help = "Reports everything that is wrong with the file, each with its line, and \
                      exits with 1\nif anything is. It opens no disk and no socket: that \
                      a disk is in use, has another\nsize or cannot be made is found by \
                      `serve`. VMs and objectives that were persisted are\nread from the \
                      configuration's store, also while a daemon has it open.\n\n\
                      Example:\n  tidegate check examples/limits.toml"
    )]
    Check {
        /// The configuration, the scenario or the device model, TOML; or a fio job file (.fio)
        #[arg(value_hint = ValueHint::FilePath)]
        file: PathBuf,
    },
    /// Print the JSON Schema of the configuration or of scenarios, for editors
    #[command(
        after_help = "Draft 2020-12: every key with its values, its default and what it does. \
                            docs/configuration.md\nsays how editors complete and check keys by \
                            it. `-o json` prints the same.\n\n\
                            Examples:\n  tidegate schema > tidegate.schema.json\n  \
                            tidegate schema scenario > scenario.schema.json"
    )]
    Schema {
        /// The document that it is of
        #[arg(value_enum, default_value_t)]
        document: SchemaOf,
    },
    /// Whether what a configuration or a scenario promises fits its devices
    #[command(
        after_help = "A device needs a profile (`tidegate profile` measures one, `profile =` in \
                      its [[device]] names it), none of its points wider than 25 %.\n\
                      What requests are like follows from `expects` of an objective; \
                      docs/planning.md says what is\nassumed. Exits with 0 when all of it fits, \
                      else with 1.\n\nExamples:
  tidegate plan examples/planned.toml
  tidegate plan examples/planned.toml --headroom \"90 %\" --streams kept
  tidegate plan examples/planned.toml --vm web --reservation \"100 IOPS @ 16 KiB\" \
                      --latency \"200 ms\"
  tidegate plan examples/planned.toml -o json | jq '.devices[].nearest'"
    )]
    Plan(Box<PlanArgs>),
    /// The VMs that are served, and what they were promised
    #[command(subcommand)]
    Vm(VmCommand),
    /// What VMs are to have read and written by when, and what will come of it
    #[command(
        subcommand,
        after_help = "Examples:
  tidegate transfer start dss --size \"2 GiB\" --deadline \"60 s\" --wait
  tidegate transfer list
  tidegate transfer show dss"
    )]
    Transfer(JobCommand),
    /// The old name of `transfer`, accepted for one release
    #[command(subcommand, hide = true)]
    Job(JobCommand),
    /// The devices their disks lie on
    #[command(subcommand)]
    Device(DeviceCommand),
    /// One disk: fault rules, and forgetting it once its file is lost
    #[command(subcommand)]
    Disk(DiskCommand),
    /// The scheduling policies there are, and the one in force
    #[command(subcommand)]
    Policy(PolicyCommand),
    /// What was counted for each VM
    #[command(
        after_help = "Queue time is what scheduling and limits cost; service time is the \
                      device's. Latency is both:\nfrom a request's arrival at the scheduler \
                      to its end there. The time that the client and the socket\ntake is outside \
                      of all of them, so fio or a guest sees more.\n\n\
                      Precision: B is the error of the mean against the target, beta the mean of \
                      |B| over statistical\nintervals, V how far seconds are off their mean on \
                      average; seconds in which a VM had nothing\noutstanding are left out.\n\n\
                      Examples:
  tidegate stats
  tidegate stats --follow --interval \"2 s\"
  tidegate stats --precision --interval \"10 s\"
  tidegate stats --follow -o json | jq '.vms[].iops'"
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
  tidegate sim examples/host-cpu.toml --scheduler isacs  with the processors of the host
  tidegate sim examples/mixed.fio --device nvme-1tb      each [section] is a VM"
    )]
    Sim(Box<SimArgs>),
    /// Simulate a scenario under several policies, with a VM's latency over time
    #[command(
        after_help = "The curves are drawn on the terminal with --plot, and written with \
                      --svg.\n\nExamples:
  tidegate compare examples/host.toml --plot
  tidegate compare examples/noisy-neighbour-nvme.toml --policy slo \\
      --fixed-depth fifo,mclock --svg noisy.svg"
    )]
    Compare(Box<CompareArgs>),
    /// Simulate a grid of scenarios, policies and seeds, on all cores
    #[command(
        after_help = "Each result is a line of the results file. A sweep that was stopped goes on \
                      where it was;\na scenario that has changed is simulated \
                      anew.\n\nExamples:
  tidegate sweep examples/noisy-neighbour.toml --policy fifo,mclock --seeds 1..20
  tidegate sweep examples/host-cpu.toml --scheduler none,credit2,isacs --policy mclock,vfair
  tidegate sweep a.toml b.toml --seeds 1,2,3 --results grid.jsonl -o csv"
    )]
    Sweep(Box<SweepArgs>),
    /// Measure what a device can do at most: its saturation profile
    #[command(
        after_help = "DEVICE is one of these, and of two that a name fits the first; \
                      ./NAME is always a file:
  nvme-1tb, my-disk.toml    a disk model, in virtual time: seconds, the same on every machine
  nvme-1tb --live           the same as an emulated disk, in real time
  /dev/sdb                  a block device
  disk.raw                  a file
  /srv/vms --size \"2 GiB\"  what a directory lies on, by a file that is removed afterwards

A full measurement of a real disk takes about ten minutes and says so first; stopped, the same
command goes on where it was. Nothing that holds anything is written to without --overwrite.

A point whose 95 % confidence interval is wider than 25 % of its mean either way is \
                      measured up to three
times as long. One that stays so is marked, and `tidegate plan` refuses the profile: \
                      measure again while
nothing else uses the device or the processors.

Examples:
  tidegate profile hdd-7200-1tb
  tidegate profile /srv/vms --size \"2 GiB\" --quick
  tidegate profile /dev/sdb --read-only
  tidegate profile show sdb.profile.toml"
    )]
    Profile(Box<ProfileArgs>),
    /// Run a paper's experiments again and set them beside its figures
    #[command(
        after_help = "Everything runs in the simulator and is the same on every machine. \
                      `calibrated` marks the figures\nthat the models of disk and guests \
                      were fitted to; all others are predicted. JSON is a list of\n\
                      {paper, table, row, column, theirs, ours, calibrated} and of {claim, \
                      holds, detail}.\n\nExamples:
  tidegate reproduce                           which papers there are
  tidegate reproduce flubber
  tidegate reproduce flubber --table 3 -o json
  tidegate reproduce flubber --table \"figure 4\" --plot
  tidegate reproduce vfair --figure 6
  tidegate reproduce vcup --table 2
  tidegate reproduce pridyn --figure 4.6 --traces msr-cambridge"
    )]
    Reproduce(ReproduceArgs),
    /// Judge which promises a policy keeps, on a grid of devices, mixes of VMs and round trips
    #[command(
        after_help = "Latencies count from arrival at Tidegate to the answer, without the guest's \
                      round trip. With --compare\nevery cell is set beside all other policies, and \
                      the exit status is 1 where one fails;\ndocs/promises.md says what is \
                      judged.\n\nExamples:
  tidegate promises --policy mclock --device nvme-1tb --mix p1-latency --rtt \"100 us\"
  tidegate promises --policy mclock --device ssd-sata-300gb --profile no -o json
  tidegate promises --mix video --device nvme-1tb --scenario > video.toml
  tidegate promises --policy mclock --compare --results promises.jsonl"
    )]
    Promises(Box<PromisesArgs>),
    /// Set I/O classes of running processes so that their jobs end in time
    #[command(
        after_help = "For hosts whose VMs do not use Tidegate's disks. A disk's scheduler has to \
                      know classes: bfq, or\nmq-deadline. What a VM moved is read from \
                      /proc/PID/io; threads and processes that begin later are\n\
                      found within a second. Every thread is given back what it had when all jobs \
                      have ended, or on SIGTERM,\nSIGINT and SIGHUP. Exits with 1 where a job was \
                      late.\n\nExamples:
  tidegate agent --vm web=4711 --vm batch=4712 --job web=\"2 GiB in 60 s\" \
                      --disk /var/lib/libvirt/images
  tidegate agent --vm web=libvirt:web --vm rest=cgroup:/sys/fs/cgroup/batch.slice \\
      --job web=\"20 GB in 5 min\" --disk /dev/sdb --bandwidth \"150 MB/s\" --dry-run"
    )]
    Agent(AgentArgs),
    /// Which host a job goes to so that it and all that run there end in time
    #[command(
        subcommand,
        after_help = "No daemon is needed: hosts, jobs and what was learnt of hosts are kept in \
                      one file, --db.\n\nExamples:
  tidegate place job backup --size 2GiB --deadline 60s --hosts place.toml
  tidegate place list
  tidegate place moved backup=\"1 GiB\"
  tidegate place end backup
  tidegate place db
  tidegate place sim --hosts 100 --arrivals 10"
    )]
    Place(PlaceCommand),
    /// Block traces: what there is in one
    #[command(subcommand)]
    Trace(TraceCommand),
    /// vCPUs of a host, in virtual time: who runs when
    #[command(subcommand)]
    Vcpu(VcpuCommand),
    /// Show what scheduling is worth: noisy neighbours on an emulated volume and disk
    #[command(
        after_help = "Examples:\n  tidegate demo\n  tidegate demo --seconds 20 --policy \
                      fifo,slo -o json"
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
    /// How long, over all policies, on both devices
    #[arg(long, value_name = "N", default_value_t = 36,
          value_parser = whole::<u64>(8..=3600))]
    pub(crate) seconds: u64,
    /// Policies, in the order they take turns
    #[arg(long = "policy", value_name = "NAME,...", value_delimiter = ',',
          default_value = "fifo,mclock,slo", value_parser = parse_policy)]
    pub(crate) policies: Vec<PolicySpec>,
    /// Draw the curve with ASCII alone, as where the locale is not UTF-8
    #[arg(long)]
    pub(crate) ascii: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum BenchCommand {
    /// What scheduling a request costs, without any device
    #[command(
        after_help = "CPU time of one thread, median of repeated runs, all VMs \
                      backlogged.\n\nExamples:\n  tidegate bench engine --policy mclock \
                      --vms 1,100,10000\n  tidegate bench engine --policy sfq \
                      --param cost=device-time\n\nWith --instructions it counts what the \
                      processor executes instead, with valgrind's callgrind: the \
                      same\nfigure in every run of one build, also on a busy machine, so a \
                      rise of 1 % is seen.\n  tidegate bench engine --instructions --policy \
                      fifo,mclock\n  tidegate bench engine --instructions --against \
                      bench/instructions.json\n  tidegate bench engine \
                      --instructions --record bench/instructions.json"
    )]
    Engine(BenchArgs),
    /// The run of one policy that `--instructions` has callgrind count
    #[command(hide = true)]
    Counted(CountedArgs),
}

/// One policy's run under callgrind.
#[derive(Debug, ClapArgs)]
pub(crate) struct CountedArgs {
    /// Policy
    #[arg(value_parser = parse_policy)]
    pub(crate) policy: PolicySpec,
    /// Number of VMs
    #[arg(value_parser = whole::<u32>(1..=1_000_000))]
    pub(crate) vms: u32,
    /// Number of turns that are counted
    #[arg(value_parser = whole::<u64>(1000..=u64::MAX))]
    pub(crate) requests: u64,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct BenchArgs {
    /// Which policies; all of them unless said
    #[arg(long = "policy", value_name = "NAME,...", value_delimiter = ',',
          value_parser = parse_policy)]
    pub(crate) policies: Vec<PolicySpec>,
    /// A parameter's value with its unit; each policy is measured without and with them
    #[arg(long = "param", value_name = "NAME=VALUE", value_parser = parse_param)]
    pub(crate) params: Vec<(String, String)>,
    /// How many VMs; 1 and 1000 with --instructions
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_value = "1,10,100,1000",
          default_value_if("instructions", ArgPredicate::IsPresent, "1,1000"),
          value_parser = whole::<u32>(1..=1_000_000))]
    pub(crate) vms: Vec<u32>,
    /// How many requests each VM keeps waiting
    #[arg(long = "depth", value_name = "D,...", value_delimiter = ',', default_value = "8",
          value_parser = whole::<u32>(1..=100_000))]
    pub(crate) depths: Vec<u32>,
    /// How many requests a run takes; 20000 with --instructions
    #[arg(long, value_name = "N", default_value = "1000000",
          default_value_if("instructions", ArgPredicate::IsPresent, "20000"),
          value_parser = whole::<u64>(1000..=u64::MAX))]
    pub(crate) requests: u64,
    /// How many runs the median is taken of
    #[arg(long, value_name = "N", default_value_t = 5,
          value_parser = whole::<u32>(1..=1000))]
    pub(crate) runs: u32,
    /// The device has a profile, which it is held against: that costs a little for each request
    ///
    /// Policies that cost the device's time have one in any case.
    #[arg(long)]
    pub(crate) profile: bool,
    /// Count instructions per request instead of measuring time
    ///
    /// Needs valgrind and a release build.
    #[arg(long, conflicts_with_all = ["runs", "params", "depths", "profile"])]
    pub(crate) instructions: bool,
    /// Compare with a file of --record; exit with 1 where a count is more than 2 % above it
    #[arg(long, value_name = "FILE", requires = "instructions")]
    pub(crate) against: Option<PathBuf>,
    /// Write the counts of all policies to a file
    #[arg(long, value_name = "FILE", requires = "instructions",
          conflicts_with_all = ["policies", "vms", "requests"])]
    pub(crate) record: Option<PathBuf>,
    /// Counts at once; as many as there are cores unless said
    #[arg(long, value_name = "N", requires = "instructions",
          value_parser = whole::<u16>(1..=1024))]
    pub(crate) jobs: Option<u16>,
}

#[cfg(test)]
mod tests;
