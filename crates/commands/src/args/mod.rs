//! Command line: the commands, and in submodules the options of each and the parsers of values.

mod agent;
mod bench;
mod cluster;
mod daemon;
mod disk;
mod explain;
mod export;
mod global;
mod history;
mod host;
mod import;
mod limit_parts;
mod objective_parts;
mod place;
mod plan;
mod profile;
mod promises;
mod record;
mod report;
mod schedule;
mod serve;
mod simulator;
mod store;
mod sweep;
mod token;
mod top;
mod trace;
mod transfer;
mod value;
mod vcpu;
mod vhost_user_blk;
mod what_if;

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum, ValueHint};

pub(crate) use agent::{AgentArgs, TransferArg};
pub(crate) use bench::{BenchArgs, BenchCommand, CountedArgs, DemoArgs};
pub(crate) use cluster::{ClusterCommand, ClusterStatusArgs};
pub(crate) use daemon::{
    AddArgs, DeviceCommand, ImportArgs, ObjectiveArgs, PolicyCommand, RemoveArgs, ResizeArgs,
    StatsArgs, VmCommand,
};
pub(crate) use disk::{DiskCommand, DiskLimitArgs, FaultArgs, FaultCommand};
pub(crate) use explain::{ExplainArgs, InterferenceArgs};
pub(crate) use export::{AttachArgs, ExportCommand, LibvirtArgs, MachineArgs};
pub(crate) use global::Global;
use global::TO_DAEMON;
pub(crate) use history::HistoryArgs;
pub(crate) use host::{DoctorArgs, InitArgs};
pub(crate) use import::{ImportCommand, ImportOptions, OpenstackArgs};
pub(crate) use objective_parts::PartArgs;
pub(crate) use place::{
    AddHostArgs, DataCentreArgs, PlaceCommand, PlaceHostCommand, PlaceJobArgs, PlaceJobsArgs,
    PlacementArgs, RemoveHostArgs,
};
pub(crate) use plan::PlanArgs;
pub(crate) use profile::{FitArgs, MeasureArgs, ProfileArgs, ProfileCommand};
pub(crate) use promises::{MixName, Profiled, PromisesArgs};
pub(crate) use record::{RecordCommand, RecordDumpArgs};
pub(crate) use report::ReportArgs;
pub(crate) use schedule::{EntryArgs, ScheduleCommand};
pub(crate) use serve::{ListenArg, ServeArgs};
pub(crate) use simulator::{
    ChangeArgs, CompareArgs, PlotArgs, Processors, ReproduceArgs, SimArgs, TortureArgs,
};
pub(crate) use store::StoreArgs;
pub(crate) use sweep::{
    GridArgs, MergeArgs, ResultFileArgs, Shard, ShardArg, SweepArgs, SweepCommand,
};
pub(crate) use token::{AddTokenArgs, TokenCommand};
pub(crate) use top::{ObjectiveLine, SortColumn, TopArgs};
pub(crate) use trace::{
    SampleUnit, TraceCommand, TraceConvertArgs, TraceCutArgs, TraceInfoArgs, TraceLintArgs,
    TraceReadArgs, TraceRewriteArgs, TraceScaleArgs,
};
pub(crate) use transfer::{StartTransferArgs, TransferCommand};
pub(crate) use value::{DiskArg, Seeds, all_policies, parse_policy};
pub(crate) use vcpu::{VcpuCommand, VcpuCompareArgs, VcpuSimArgs};
pub(crate) use vhost_user_blk::{Content, VhostUserBlkArgs};
pub(crate) use what_if::{ObjectivePart, WhatIfArgs};

/// NBD server with per-VM storage QoS on one shared disk
///
/// Tidegate serves VM disks over NBD and schedules their I/O on the shared device by what each VM
/// was promised: minimum IOPS, limits, shares, latency targets and deadlines.
#[derive(Debug, Parser)]
#[command(
    // The program has another name than this package.
    name = "tidegate",
    version,
    max_term_width = 100,
    after_help = "Examples:
  tidegate demo                       see scheduling at work, in under a minute
  tidegate check tidegate.toml        check a configuration, show its meaning
  tidegate plan tidegate.toml         check whether its promises fit its devices
  tidegate serve tidegate.toml        serve its disks
  tidegate serve --file disk.raw --limit \"40 MB/s\"   one disk, without a file
  tidegate init tidegate.toml         write a configuration for this host
  tidegate import libvirt web.xml     limits of a domain as [[vm]] tables
  tidegate sim examples/host.toml     simulate a scenario, in virtual time
  tidegate vm list                    list the VMs being served
  tidegate export qemu oltp           arguments that attach a VM's disks
  tidegate vm set oltp --reservation \"120 IOPS\"
  tidegate transfer start dss --size \"2 GiB\" --deadline \"60 s\"
  tidegate vm add dss --disk \"path=dss.raw,size=20 GiB,create=sparse\"
  tidegate top                        devices, VMs and promises, on a screen
  tidegate stats --follow             throughput and latency of each VM
  tidegate report --last 1h           the last hour as a page for a browser"
)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Commands that talk to a running daemon; of `policy` only `set` does.
#[rustfmt::skip]
const ASK_THE_DAEMON: [&str; 15] = [
    "vm", "export", "transfer", "job", "device", "disk", "policy", "record", "stats", "history",
    "report", "explain", "interference", "token", "top",
];
/// Subcommands of `policy` that need no daemon.
const ASK_NOBODY: [&str; 2] = ["list", "show"];
/// Commands whose result is always one table.
const HAVE_CSV: [&str; 3] = ["sim", "sweep", "history"];
/// Commands whose output is a log or a script, so that `--output` has no effect.
#[rustfmt::skip]
const HAVE_NO_RESULTS: [&str; 8] = [
    "serve", BACKEND, "top", "report", "man", "completions", "init", "import",
];

/// Commands whose output is always text, so that another format is refused.
const TEXT_ONLY: [&str; 8] = [
    "top",
    "report",
    "man",
    "completions",
    "init",
    "import",
    "serve",
    BACKEND,
];

/// Command of a vhost-user back-end.
const BACKEND: &str = "vhost-user-blk";
/// Name of a link to the program by which it is that command. Descriptions of vhost-user back-ends
/// for management programs name a file, without arguments.
const BACKEND_PROGRAM: &str = "tidegate-vhost-user-blk";

fn is_backend(program: &OsStr) -> bool {
    Path::new(program).file_name() == Some(OsStr::new(BACKEND_PROGRAM))
}

impl Args {
    /// Parses the command line of this process. Prints the error or the help text and exits where
    /// there is one.
    pub(crate) fn from_process() -> Args {
        let mut words: Vec<_> = std::env::args_os().collect();
        if words.first().is_some_and(|program| is_backend(program)) {
            words.insert(1, BACKEND.into());
        }
        let read = Args::read(words.iter().cloned());
        read.unwrap_or_else(|error| Args::of_capabilities(&words).unwrap_or_else(|| error.exit()))
    }

    /// Reads a command line that is wrong, but asks for the capabilities of the vhost-user
    /// back-end: QEMU's conventions have it ignore all other options and arguments.
    fn of_capabilities(words: &[OsString]) -> Option<Args> {
        let command = words.iter().position(|word| word == BACKEND)?;
        let (before, after) = words.split_at(command + 1);
        let mut options = after.iter().take_while(|word| *word != "--");
        let asked = options.find(|word| *word == "--print-capabilities")?;
        // Refused unless the word is the command.
        let args = Args::read(before.iter().chain([asked]).cloned()).ok()?;
        matches!(&args.command, Command::VhostUserBlk(_)).then_some(args)
    }

    fn read(
        words: impl IntoIterator<Item = impl Into<OsString> + Clone>,
    ) -> Result<Args, clap::Error> {
        let mut command = command();
        let matches = command.try_get_matches_from_mut(words);
        let matches = matches.map_err(|error| with_own_option(error, &mut command))?;
        let args = Args::from_arg_matches(&matches)?;
        let name = matches.subcommand_name().unwrap_or_default();
        let json_or_csv = match args.global.output {
            Format::Table => None,
            Format::Json => Some("JSON"),
            Format::Csv => Some("CSV"),
        };
        if let Some(format) = json_or_csv.filter(|_| TEXT_ONLY.contains(&name)) {
            let what = format!("`{name}` has no {format} output: leave out --output");
            return Err(command.error(ErrorKind::InvalidValue, what));
        }
        if args.global.output == Format::Csv && !HAVE_CSV.contains(&name) {
            let what = format!(
                "`{name}` has no CSV output: use -o json, or -o csv with `{}`",
                HAVE_CSV.join("` and `")
            );
            return Err(command.error(ErrorKind::InvalidValue, what));
        }
        Ok(args)
    }
}

/// Replaces the error for a throttling option of QEMU, libvirt or Proxmox VE, such as `--iops-rd`,
/// by one that names Tidegate's option.
fn with_own_option(error: clap::Error, command: &mut clap::Command) -> clap::Error {
    let Some(ContextValue::String(typed)) = error.get(ContextKind::InvalidArg) else {
        return error;
    };
    let name = typed.trim_start_matches('-');
    match tidegate_config::objective::flag_for_foreign(name) {
        Some(own) if error.kind() == ErrorKind::UnknownArgument => {
            let what = format!(
                "unexpected argument '{typed}': write --{} {} ({})",
                own.name, own.value, own.help
            );
            command.error(ErrorKind::UnknownArgument, what)
        }
        _ => error,
    }
}

/// Returns the whole command-line grammar. Every command accepts all global options, because they
/// may precede the command's name; its help hides those without effect.
pub(crate) fn command() -> clap::Command {
    let mut command = Args::command();
    let option = |id| {
        let mut options = command.get_arguments();
        options.find(|arg| arg.get_id() == id).cloned()
    };
    let Some(output) = option("output") else {
        unreachable!("`Global` has it");
    };
    let to_daemon: Vec<_> = (TO_DAEMON.iter())
        .filter_map(|id| Some(option(id)?.hide(true)))
        .collect();
    let names: Vec<String> = (command.get_subcommands())
        .map(|sub| sub.get_name().to_owned())
        .collect();
    for name in names {
        let has = |list: &[&str]| list.contains(&name.as_str());
        let output = if has(&HAVE_NO_RESULTS) {
            output.clone().hide(true)
        } else if has(&HAVE_CSV) {
            output.clone()
        } else {
            output.clone().value_parser(without_csv())
        };
        let hidden = if has(&ASK_THE_DAEMON) {
            Vec::new()
        } else {
            to_daemon.clone()
        };
        command = command.mut_subcommand(&name, |sub| sub.arg(output).args(hidden));
    }
    command = command.mut_subcommand("policy", |policy| {
        ASK_NOBODY.iter().fold(policy, |policy, name| {
            policy.mut_subcommand(name, |sub| sub.args(to_daemon.clone()))
        })
    });
    minus_is_a_number(command)
}

/// Makes `--seed -1` fail with the allowed seeds instead of an unknown option `-1`.
fn minus_is_a_number(command: clap::Command) -> clap::Command {
    let command = command.mut_args(|arg| {
        let takes_value = !arg.is_positional() && arg.get_action().takes_values();
        arg.allow_negative_numbers(takes_value)
    });
    command.mut_subcommands(minus_is_a_number)
}

/// Returns a parser of [`Format`] that does not offer CSV. [`Args::read`] refuses it with a reason.
fn without_csv() -> impl TypedValueParser<Value = Format> {
    let offered = Format::value_variants().iter().filter_map(|format| {
        let value = format.to_possible_value()?;
        Some(value.hide(*format == Format::Csv))
    });
    PossibleValuesParser::new(offered).try_map(|text| Format::from_str(&text, false))
}

/// Output format of results.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Format {
    /// Tables and text
    Table,
    /// JSON, for programs
    Json,
    /// CSV, for spreadsheets and plots (`sim`, `sweep` and `history` only)
    Csv,
}

/// Documents that have a JSON Schema.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, ValueEnum)]
pub(crate) enum SchemaOf {
    /// Configuration of `serve`
    #[default]
    Configuration,
    /// Scenarios of `sim`
    Scenario,
    /// Scenarios of `vcpu sim`
    Vcpu,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Serve the disks of a configuration, or of --file, until SIGTERM
    #[command(after_help = serve::HELP)]
    Serve(Box<ServeArgs>),
    /// Serve one disk to one hypervisor by vhost-user, without a configuration
    #[command(
        override_usage = "tidegate vhost-user-blk --blk-file <PATH> --socket-path <PATH>\n       \
                          tidegate vhost-user-blk --blk-file <PATH> --fd <FDNUM>\n       \
                          tidegate vhost-user-blk --print-capabilities",
        after_help = "The options are those of QEMU's conventions for vhost-user back-ends, so \
                      that programs which start such back-ends can start this one. The disk is its \
                      process's own: it shares no device with other VMs, has no objective and no \
                      limit, is not scheduled against anything, and cannot be shown or changed \
                      while it is served. `tidegate serve` can do all of that.\n\n\
                      With --socket-path, front-ends may come one after the other until SIGTERM or \
                      SIGINT. With --fd, the process ends once its front-end has \
                      gone.\n\nExamples:
  tidegate vhost-user-blk --socket-path web.sock --blk-file web.raw
  tidegate vhost-user-blk --socket-path db.sock --blk-file /dev/sdb --read-only
  tidegate vhost-user-blk --print-capabilities"
    )]
    VhostUserBlk(VhostUserBlkArgs),
    /// Check a configuration, scenario, device model, profile or file of hosts
    #[command(
        after_help = "Reports all mistakes of the file with their lines, and exits with 1 if there \
                      are any. No disk and no socket is opened: only `serve` finds that a disk is \
                      in use or cannot be created. Persisted VMs and objectives \
                      are read from the configuration's store, even while a daemon has it \
                      open.\n\nExample:\n  tidegate check examples/limits.toml"
    )]
    Check {
        /// Configuration, scenario, device model, profile or hosts (TOML), or a fio job file
        /// (.fio)
        #[arg(value_hint = ValueHint::FilePath)]
        file: PathBuf,
    },
    /// Write a configuration for this host, with its disks
    #[command(after_help = host::INIT_HELP)]
    Init(InitArgs),
    /// Find what is missing or slow on this host, and how to mend it
    #[command(after_help = host::DOCTOR_HELP)]
    Doctor(DoctorArgs),
    /// Print [[vm]] tables for guests of libvirt, Proxmox VE, QEMU or OpenStack
    #[command(subcommand, after_help = import::HELP)]
    Import(ImportCommand),
    /// Print the JSON Schema of configurations or scenarios, for editors
    #[command(
        after_help = "Draft 2020-12: every key with its values, default and description. \
                      docs/configuration.md describes how editors use the schema to complete and \
                      check keys. `-o json` prints the same.\n\nExamples:\n  tidegate schema > \
                      tidegate.schema.json\n  tidegate schema scenario > scenario.schema.json"
    )]
    Schema {
        /// Kind of document
        #[arg(value_enum, default_value_t)]
        document: SchemaOf,
    },
    /// Check whether the promises of a configuration or scenario fit its devices
    #[command(
        after_help = "Every device needs a profile: measure it with `tidegate profile` and name it \
                      with `profile =` in [[device]]. A profile with a confidence interval above \
                      25 % is refused. The workload of a VM is taken from `expects` of its \
                      objective; docs/planning.md describes the assumptions. Exits with 0 if \
                      everything fits, otherwise with 1.\n\nExamples:
  tidegate plan examples/planned.toml
  tidegate plan examples/planned.toml --headroom \"90 %\" --streams kept
  tidegate plan examples/planned.toml --vm web \\
      --reservation \"100 IOPS @ 16 KiB\" --latency \"200 ms\"
  tidegate plan examples/planned.toml -o json | jq '.devices[].fits'"
    )]
    Plan(Box<PlanArgs>),
    /// List, show, add, change and remove VMs
    #[command(subcommand)]
    Vm(VmCommand),
    /// Print what attaches the disks of a VM to QEMU, libvirt or Cloud Hypervisor
    #[command(
        subcommand,
        after_help = "Nothing is changed: the output is pasted into the hypervisor. Names and \
                      sockets come from the running daemon, or from a file with \
                      --config.\n\nExamples:
  tidegate export libvirt db > db.xml && virsh attach-device db db.xml --config
  tidegate export qemu db
  tidegate export qemu db --config /etc/tidegate/tidegate.toml -o json"
    )]
    Export(ExportCommand),
    /// Deadline transfers: amounts of data that a VM is to move by a deadline
    #[command(
        subcommand,
        after_help = "Examples:
  tidegate transfer start dss --size \"2 GiB\" --deadline \"60 s\" --wait
  tidegate transfer list
  tidegate transfer show dss"
    )]
    Transfer(TransferCommand),
    /// Recordings of every request of a device, with its times
    #[command(subcommand, after_help = record::HELP)]
    Record(RecordCommand),
    /// Tokens that give roles to clients of the control API on TCP
    #[command(subcommand)]
    Token(TokenCommand),
    /// Old name of `transfer`, accepted for one release
    #[command(subcommand, hide = true)]
    Job(TransferCommand),
    /// List and show devices, which store the disks of VMs
    #[command(subcommand)]
    Device(DeviceCommand),
    /// Inject faults into a disk, or forget a disk whose file is lost
    #[command(subcommand)]
    Disk(DiskCommand),
    /// List and show scheduling policies, and set the policy of a device
    #[command(subcommand)]
    Policy(PolicyCommand),
    /// Show counters, rates and latencies of each VM
    #[command(
        after_help = "Latency runs from a request's arrival at the scheduler to its completion. It \
                      is the sum of queue time (waiting for limits and other VMs) and device time. \
                      The time of the client and the socket is not included, so fio or a guest \
                      measures more. WAIT P99 and DEVICE P99 are the larger one of reads and \
                      writes, each by themselves: where few of either are much slower, it is above \
                      P99, which is that of all requests together.\n\nPrecision: B is the \
                      deviation of the mean bandwidth from the target, beta the mean of |B| over \
                      intervals, V the mean deviation of single seconds from their mean. Seconds \
                      in which a VM had nothing outstanding are not counted.\n\nExamples:
  tidegate stats
  tidegate stats --follow --interval \"2 s\"
  tidegate stats --precision --interval \"10 s\"
  tidegate stats --follow -o json | jq '.vms[].iops'"
    )]
    Stats(StatsArgs),
    /// Watch devices, VMs and their promises on a screen that is kept up to date
    Top(TopArgs),
    /// Show what a VM or device did, and where its time went, second by second
    History(HistoryArgs),
    /// Write what VMs and devices did as a page for a browser
    Report(ReportArgs),
    /// Say why a VM was slow: who delayed it, and what may help
    #[command(after_help = explain::EXPLAIN_HELP)]
    Explain(ExplainArgs),
    /// Show who delays whom on a device
    #[command(after_help = explain::INTERFERENCE_HELP)]
    Interference(InterferenceArgs),
    /// Simulate a scenario or a fio job file, in virtual time
    #[command(
        after_help = "The scheduler of the daemon runs against a device model. The same scenario \
                      and seed give the same output on every machine.\n\nPrecision: B is the \
                      deviation of the mean bandwidth from the target, BETA the mean of |B| over \
                      intervals, V the mean deviation of single seconds from their \
                      mean.\n\nExamples:
  tidegate sim examples/noisy-neighbour.toml
  tidegate sim examples/noisy-neighbour.toml --policy fifo
  tidegate sim examples/noisy-neighbour.toml --interval \"1 s\" -o csv
  tidegate sim examples/noisy-neighbour.toml --record noisy.tgrec
  tidegate sim examples/host-cpu.toml --scheduler isacs  simulated CPU
  tidegate sim examples/mixed.fio --device nvme-1tb      each [section] is a VM"
    )]
    Sim(Box<SimArgs>),
    /// Simulate a scenario under several policies and compare a VM's latency
    #[command(
        after_help = "--plot draws the curves on the terminal; --svg writes them to a \
                      file.\n\nExamples:
  tidegate compare examples/host.toml --plot
  tidegate compare examples/noisy-neighbour-nvme.toml --policy slo \\
      --fixed-depth fifo,mclock --svg noisy.svg"
    )]
    Compare(Box<CompareArgs>),
    /// Simulate a grid of scenarios, policies and seeds, on all cores or many machines
    #[command(
        after_help = "Each result is one line of the results file. An interrupted sweep continues \
                      where it stopped; scenarios that have changed are simulated again.\n\n\
                      On several machines, each runs the same command with its --shard and a \
                      directory --out; `tidegate sweep merge` then prints what one machine would \
                      have printed. With --shard auto the shard is that of the Slurm array task \
                      (--array=1-N), or of the pod of an indexed Kubernetes Job, whose \
                      TIDEGATE_SHARDS must be its number of completions. docs/sweeps.md has \
                      scripts and manifests.\n\nBETA is the mean deviation of the bandwidth from \
                      the target over intervals, V that of single seconds from their \
                      mean.\n\nExamples:
  tidegate sweep examples/host.toml --policy fifo,mclock --seeds 1..20
  tidegate sweep examples/host-cpu.toml --scheduler none,credit2,isacs \\
      --policy mclock,vfair
  tidegate sweep a.toml b.toml --seeds 1,2,3 --results grid.jsonl -o csv
  tidegate sweep a.toml --seeds 1..100 --shard 3/10 --out results
  tidegate sweep a.toml --seeds 1..100 --out results --list | parallel
  tidegate sweep merge results"
    )]
    Sweep(Box<SweepArgs>),
    /// Measure the saturation profile of a device: its maximum throughput
    #[command(
        after_help = "DEVICE is the first of these that fits; ./NAME is always a file:
  nvme-1tb, my-disk.toml     a disk model, in virtual time (takes seconds)
  nvme-1tb --live            the model as an emulated disk, in real time
  /dev/sdb                   a block device
  disk.raw                   a file
  /srv/vms --size \"2 GiB\"   the disk of a directory, through a temporary file

A full measurement of a real disk takes about ten minutes. An interrupted measurement continues \
                      when the same command runs again. Disks and files with data are not written \
                      to without --overwrite.

A point with a 95 % confidence interval above 25 % of its mean is measured up to three times as \
                      long. If it stays imprecise it is marked, and `tidegate plan` refuses the \
                      profile: measure again while nothing else uses the device or the CPUs.

Examples:
  tidegate profile hdd-7200-1tb
  tidegate profile /srv/vms --size \"2 GiB\" --quick
  tidegate profile /dev/sdb --read-only
  tidegate profile show sdb.profile.toml"
    )]
    Profile(Box<ProfileArgs>),
    /// Repeat the experiments of a paper and compare with its published figures
    #[command(
        after_help = "Everything but --distributed runs in the simulator and is the same on \
                      every machine. `calibrated` marks figures to which the models were \
                      fitted; all others are predictions. JSON is a list of {paper, table, row, \
                      column, theirs, ours, calibrated} and of {claim, holds, detail}.\n\nExamples:
  tidegate reproduce                           list the papers
  tidegate reproduce flubber
  tidegate reproduce flubber --table 3 -o json
  tidegate reproduce flubber --table \"figure 4\" --plot
  tidegate reproduce vfair --figure 6
  tidegate reproduce vcup --table 2
  tidegate reproduce pridyn --figure 4.6 --traces msr-cambridge
  tidegate reproduce vfair --distributed"
    )]
    Reproduce(ReproduceArgs),
    /// Test which promises a policy keeps, on a grid of devices, mixes of VMs and round trips
    #[command(
        after_help = "Latencies run from arrival at Tidegate to the reply, without the guest's \
                      round trip. --compare compares every cell with all other policies; the exit \
                      status is 1 if one fails. docs/promises.md describes the \
                      criteria.\n\nExamples:
  tidegate promises --policy mclock --device nvme-1tb --mix p1-latency \\
      --rtt \"100 us\"
  tidegate promises --policy mclock --device ssd-sata-300gb --profile no -o json
  tidegate promises --mix video --device nvme-1tb --scenario > video.toml
  tidegate promises --policy mclock --compare --results promises.jsonl"
    )]
    Promises(Box<PromisesArgs>),
    /// Set I/O classes of running processes so that their transfers meet deadlines
    #[command(
        after_help = "For hosts whose VMs do not use Tidegate's disks. The disk's Linux I/O \
                      scheduler must support I/O classes: bfq or mq-deadline. Progress is read \
                      from /proc/PID/io; new threads and child processes are found within a \
                      second. The classes are restored when all transfers have ended, and on \
                      SIGTERM, SIGINT and SIGHUP. Exits with 1 if a transfer missed its \
                      deadline.\n\nExamples:
  tidegate agent --vm web=4711 --vm batch=4712 --job web=\"2 GiB in 60 s\" \\
      --disk /var/lib/libvirt/images
  tidegate agent --vm web=libvirt:web \\
      --vm rest=cgroup:/sys/fs/cgroup/batch.slice \\
      --job web=\"20 GB in 5 min\" --disk /dev/sdb --dry-run"
    )]
    Agent(AgentArgs),
    /// Place transfers on hosts so that all of them meet their deadlines
    #[command(
        subcommand,
        after_help = "No daemon is needed: hosts, jobs and learnt bandwidths are stored in one \
                      file, --db, or for several machines in etcd, --etcd.\n\nExamples:
  tidegate place job backup --size 2GiB --deadline 60s --hosts place.toml
  tidegate place list
  tidegate place moved backup=\"1 GiB\"
  tidegate place end backup
  tidegate place db
  tidegate place sim --hosts 100 --arrivals 8"
    )]
    Place(PlaceCommand),
    /// Show and drain the hosts of a cluster that `tidegate place` places jobs on
    #[command(
        subcommand,
        after_help = "The cluster is in a file, --db, or in etcd, --etcd, where all machines see \
                      the same. The same in the environment: TIDEGATE_PLACE_DB, \
                      TIDEGATE_ETCD.\n\nExamples:
  tidegate cluster status
  tidegate cluster hosts --etcd http://127.0.0.1:2379
  tidegate cluster drain c"
    )]
    Cluster(ClusterCommand),
    /// Analyse block traces
    #[command(subcommand)]
    Trace(TraceCommand),
    /// Replay a recording under other policies and objectives, in virtual time
    #[command(after_help = what_if::HELP)]
    Whatif(WhatIfArgs),
    /// Make a what-if run or a report for the daemon, which starts this command
    #[command(hide = true)]
    Calculate,
    /// Simulate vCPU schedulers of a host, in virtual time
    #[command(subcommand)]
    Vcpu(VcpuCommand),
    /// Demonstrate scheduling: noisy neighbours on an emulated cloud volume and disk
    #[command(
        after_help = "Examples:\n  tidegate demo\n  tidegate demo --seconds 20 --policy \
                      fifo,slo -o json"
    )]
    Demo(DemoArgs),
    /// Benchmark the scheduler itself
    #[command(subcommand)]
    Bench(BenchCommand),
    /// Torture-test the scheduler with random VMs and faults, seed by seed
    #[command(
        after_help = "A seed determines everything: VMs, workloads, policy, device and faults. The \
                      same seed gives the same run on every machine; repeat a failure with --seed. \
                      Exits with 1 if an invariant or promise was broken.\n\nExamples:
  tidegate torture --seeds 10000
  tidegate torture --minutes 60 --resume torture.seeds
  tidegate torture --seeds 5000 --policy mclock,token-bucket+mclock
  tidegate torture --seed 4711 --trace"
    )]
    Torture(TortureArgs),
    /// Write the manual pages of all commands into a directory
    #[command(hide = true)]
    Man {
        /// Directory; made if it is missing
        #[arg(value_hint = ValueHint::DirPath)]
        directory: PathBuf,
    },
    /// Print the script that makes a shell complete commands, options and names
    #[command(
        after_help = "The script calls `tidegate`, which must be in the PATH, and asks a running \
                      daemon for the names of its VMs, devices and disks. Write it again after an \
                      upgrade.\n\nExamples:
  tidegate completions bash > /etc/bash_completion.d/tidegate
  tidegate completions zsh > /usr/local/share/zsh/site-functions/_tidegate
  tidegate completions fish > ~/.config/fish/completions/tidegate.fish"
    )]
    Completions {
        /// Shell
        shell: clap_complete::Shell,
    },
}

/// Log level of `serve`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum LogLevel {
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

/// Format of the log of `serve`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum LogFormat {
    /// Lines for people
    Text,
    /// A JSON object a line, for programs
    Json,
}

#[cfg(test)]
mod tests;
