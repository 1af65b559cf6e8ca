//! Options of the commands that ask a running daemon.

use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgGroup, Args as ClapArgs, Subcommand, ValueHint};

use super::part::PartArgs;
use super::schedule::ScheduleCommand;
use super::value::{DiskArg, parse_disk, parse_interval, parse_param, whole};

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
                            change lasts until\nthe daemon ends; with --persist it wins over the \
                            configuration from then on. Where a schedule has an entry in\n\
                            force, what that says holds until it ends.\n\nExamples:
  tidegate vm set oltp --reservation \"120 IOPS @ 16 KiB\" --latency \"30 ms\"
  tidegate vm set bulk --limit \"500 IOPS, 40 MB/s\" --burst \"2000 IOPS\" --burst-length \"10 s\"
  tidegate vm set bulk --limit none --weight 50
  tidegate vm set bulk --weight 50 --persist"
    )]
    Set(Box<ObjectiveArgs>),
    /// What of a VM's promise changes by the clock
    #[command(
        subcommand,
        after_help = "Examples:
  tidegate vm schedule add dss --from 18:00 --until 23:00 --target \"50 MB/s\"
  tidegate vm schedule list dss
  tidegate vm schedule clear dss 1"
    )]
    Schedule(ScheduleCommand),
    /// Serve one more VM, now
    #[command(
        override_usage = "tidegate vm add <NAME> --disk <KEY=VALUE,...>... [OPTIONS]\n       \
                          tidegate vm add --file <FILE>",
        after_help = "A disk's keys are those of [[vm.disk]] in the configuration: export, path, \
                            size, create,\nformat, read_only, block_size. Relative paths are \
                            relative to the daemon's configuration.\nThe same VM once more \
                            changes nothing; another promise replaces the one in force; what\n\
                            cannot be changed in place is said and refused. It lasts until the \
                            daemon ends, with\n--persist for good.\n\nExamples:
  tidegate vm add oltp --disk \"path=oltp.raw,size=20 GiB,create=sparse\" --reservation \"120 IOPS\"
  tidegate vm add dss --disk \"path=dss.raw\" --disk \"export=logs,path=logs.raw\"
  tidegate vm add nightly --background --disk \"path=nightly.raw,read_only=true\"
  tidegate vm add --file vm.toml --persist          [[vm]] tables, as in the configuration"
    )]
    Add(Box<AddArgs>),
    /// Serve a VM, or one of its disks, no more
    #[command(
        after_help = "What waits is cancelled, what is in flight ends; then its files are flushed \
                            and closed, and left\nas they are. A VM that is not there is said \
                            to be gone; with --strict that is a failure.\n\nExamples:
  tidegate vm remove oltp
  tidegate vm remove oltp --force          even while clients are connected
  tidegate vm remove dss --disk logs       only the disk that is exported as logs"
    )]
    Remove(RemoveArgs),
    /// Give a disk another size, now
    #[command(
        override_usage = "tidegate vm resize <NAME> [EXPORT] <SIZE> [OPTIONS]",
        after_help = "Its file is made longer or shorter with it; of a block device, which has to \
                            be larger already,\nmore or less is served. A client sees the new \
                            size when it connects again: until then it has\nthe old part of a \
                            disk that has grown, and errors beyond the end of one that has \
                            shrunk.\n\nExamples:
  tidegate vm resize oltp \"40 GiB\"
  tidegate vm resize dss logs \"40 GiB\"
  tidegate vm resize dss logs \"10 GiB\" --shrink      what lies beyond is lost"
    )]
    Resize(ResizeArgs),
    /// Write what the policy has learnt of a VM into a file
    #[command(
        after_help = "It is a small file of JSON. Another daemon goes on with it (vm import) where \
                      the VM was moved, or\nthis one where it was served anew. Without FILE it is \
                      printed.\n\nExamples:
  tidegate vm export oltp oltp.learnt.json
  tidegate vm export oltp | ssh other 'cat > oltp.learnt.json'"
    )]
    Export {
        /// The VM's name
        name: String,
        /// Where to; a file that is there is replaced
        #[arg(value_hint = ValueHint::FilePath)]
        file: Option<PathBuf>,
    },
    /// Have the policy go on with what was learnt of a VM
    #[command(
        after_help = "What was learnt of the VM holds wherever it is. What was learnt of its disks \
                      (bandwidths by merge limit)\nis taken over where they are on the same device \
                      as then, which the file tells; else it is found out\n\
                      anew. A file that was changed, or that another controller wrote, is \
                      refused.\n\nExamples:
  tidegate vm import oltp oltp.learnt.json
  tidegate vm import oltp oltp.learnt.json --disk-moved     its storage was migrated, too
  tidegate vm import oltp oltp.learnt.json --same-disk      on NFS, say: nothing tells, but you \
                      know"
    )]
    Import(ImportArgs),
}

#[derive(Debug, ClapArgs)]
pub(crate) struct ImportArgs {
    /// The VM's name
    pub(crate) name: String,
    /// What `vm export` wrote
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) file: PathBuf,
    /// Its disks lie elsewhere than where it was learnt, whatever the file says
    #[arg(long)]
    pub(crate) disk_moved: bool,
    /// Its disks lie where they did, whatever the file says
    #[arg(long, conflicts_with = "disk_moved")]
    pub(crate) same_disk: bool,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct AddArgs {
    /// The VM's name
    #[arg(required_unless_present = "file")]
    pub(crate) name: Option<String>,
    /// The device that its disks lie on; may be left out where there is one
    #[arg(long, value_name = "NAME")]
    pub(crate) device: Option<String>,
    /// A disk; may be given several times
    #[arg(long = "disk", value_name = "KEY=VALUE,...", value_parser = parse_disk,
          required_unless_present = "file")]
    pub(crate) disks: Vec<DiskArg>,
    /// A process of the host, such as a backup: it has what the VMs leave
    #[arg(long)]
    pub(crate) background: bool,
    /// Most NBD connections to the VM at a time, over all its disks, 1 to 4096 [default: 64]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub(crate) max_connections: Option<u32>,
    #[command(flatten)]
    pub(crate) parts: PartArgs,
    /// Read VMs from a file of [[vm]] tables instead
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath,
          conflicts_with_all = ["name", "device", "disks", "background", "max_connections",
                                "PartArgs"])]
    pub(crate) file: Option<PathBuf>,
    /// Even if it does not fit the device
    #[arg(long)]
    pub(crate) force: bool,
    /// Let it survive a restart: durable when this returns; needs a [store]
    #[arg(long)]
    pub(crate) persist: bool,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct RemoveArgs {
    /// The VM's name
    pub(crate) name: String,
    /// Only the disk with this export
    #[arg(long, value_name = "EXPORT")]
    pub(crate) disk: Option<String>,
    /// Cut off the clients that are connected
    #[arg(long)]
    pub(crate) force: bool,
    /// Fail where it is not there
    #[arg(long)]
    pub(crate) strict: bool,
    /// For good: a restart does not bring it back
    #[arg(long)]
    pub(crate) persist: bool,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct ResizeArgs {
    /// The VM's name
    pub(crate) name: String,
    /// The disk's export, where the VM has several, and the size it is to have
    #[arg(value_names = ["EXPORT", "SIZE"], num_args = 1..=2, required = true)]
    pub(crate) disk: Vec<String>,
    /// Make it smaller, though what lies beyond the new end is lost
    #[arg(long)]
    pub(crate) shrink: bool,
    /// Let it survive a restart: durable when this returns; needs a [store]
    #[arg(long)]
    pub(crate) persist: bool,
}

/// What a VM is promised. Rates are text such as `500 IOPS`, `120 IOPS @ 16 KiB`, `30 MB/s`,
/// `500 IOPS, 30 MB/s` or `none`; the daemon reads them as the configuration's.
#[derive(Debug, ClapArgs)]
#[command(
    group = ArgGroup::new("parts").required(true).multiple(true).args(PartArgs::names())
)]
pub(crate) struct ObjectiveArgs {
    /// The VM's name
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) parts: PartArgs,
    /// Even if it does not fit the device
    #[arg(long)]
    pub(crate) force: bool,
    /// Let it survive a restart: durable when this returns; needs a [store]
    #[arg(long)]
    pub(crate) persist: bool,
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
#[command(group = ArgGroup::new("view").args(["follow", "precision"]))]
pub(crate) struct StatsArgs {
    /// Only this VM
    pub(crate) vm: Option<String>,
    /// Rates of each interval instead of totals, until interrupted
    #[arg(short, long)]
    pub(crate) follow: bool,
    /// How precisely bandwidths were held in the last five minutes: B, beta and V
    #[arg(long)]
    pub(crate) precision: bool,
    /// With --follow the time between two looks, such as "500 ms" [default: 1 s]; with --precision
    /// the statistical interval of beta, whole seconds [default: 30 s]
    #[arg(long, value_name = "TIME", value_parser = parse_interval,
          requires = "view")]
    pub(crate) interval: Option<Duration>,
    /// End after so many intervals
    #[arg(long, value_name = "N", requires = "follow", value_parser = whole::<u64>(0..=u64::MAX))]
    pub(crate) count: Option<u64>,
}
