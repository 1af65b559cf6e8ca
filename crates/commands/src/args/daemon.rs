//! Options of the commands that talk to a running daemon.

use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgGroup, Args as ClapArgs, Subcommand, ValueHint};

use super::limit_parts::LimitArgs;
use super::objective_parts::PartArgs;
use super::schedule::ScheduleCommand;
use super::value::{DiskArg, parse_disk, parse_interval, parse_param, whole};
use crate::completion;

#[derive(Debug, Subcommand)]
pub(crate) enum VmCommand {
    /// List all VMs
    List,
    /// Show one VM: objective, disks, counters and latencies
    Show {
        /// VM name
        #[arg(add = completion::vms())]
        name: String,
    },
    /// Change the objective of a VM, at once
    #[command(
        override_usage = "tidegate vm set <NAME> <--PART VALUE>...",
        after_help = "Parts that are not given stay; \"none\" removes a part. The change lasts \
                      until the daemon stops; with --persist it overrides the configuration from \
                      then on. While an entry of the VM's schedule is in force, the parts that it \
                      sets stay in force.\n\nExamples:
  tidegate vm set oltp --reservation \"120 IOPS @ 16 KiB\" --latency \"30 ms\"
  tidegate vm set bulk --limit \"500 IOPS, 40 MB/s\" \\
      --burst \"2000 IOPS\" --burst-length \"10 s\"
  tidegate vm set bulk --limit none --weight 50
  tidegate vm set bulk --weight 50 --persist"
    )]
    Set(Box<ObjectiveArgs>),
    /// Change the objective of a VM at times of day or dates
    #[command(
        subcommand,
        after_help = "Examples:
  tidegate vm schedule add dss --from 18:00 --until 23:00 --target \"50 MB/s\"
  tidegate vm schedule list dss
  tidegate vm schedule clear dss 1"
    )]
    Schedule(ScheduleCommand),
    /// Add a VM and serve it at once
    #[command(
        override_usage = "tidegate vm add <NAME> --disk <KEY=VALUE,...>... [OPTIONS]\n       \
                          tidegate vm add --file <FILE>",
        after_help = "The keys of --disk are those of [[vm.disk]] in the configuration: export, \
                      path, size, create, format, read_only, incoming, block_size. Relative \
                      paths are relative to the daemon's configuration file. If the VM exists, \
                      its objective is replaced; other differences are refused. The VM is served \
                      until the daemon stops, with --persist also after a restart.\n\nExamples:
  tidegate vm add oltp --disk \"path=oltp.raw,size=20 GiB,create=sparse\" \\
      --reservation \"120 IOPS\"
  tidegate vm add dss --disk \"path=dss.raw\" --disk \"export=logs,path=logs.raw\"
  tidegate vm add nightly --background --disk \"path=nightly.raw,read_only=true\"
  tidegate vm add web --disk \"path=/shared/web.raw,incoming=true\"  migrates here
  tidegate vm add --file vm.toml --persist       [[vm]] tables in a file"
    )]
    Add(Box<AddArgs>),
    /// Remove a VM, or one of its disks
    #[command(
        after_help = "Waiting requests are cancelled, requests in flight complete; then the files \
                      are flushed and closed. Files are not deleted. Removing a VM that does not \
                      exist succeeds; --strict makes it fail.\n\nExamples:
  tidegate vm remove oltp
  tidegate vm remove oltp --force          even with open connections
  tidegate vm remove dss --disk logs       only the disk exported as logs"
    )]
    Remove(RemoveArgs),
    /// Change the size of a disk, at once
    #[command(
        override_usage = "tidegate vm resize <NAME> [EXPORT] <SIZE> [OPTIONS]",
        after_help = "A file grows or shrinks with the disk. A block device must have been \
                      enlarged before. Clients see the new size when they connect again. Until \
                      then they use the old part of a disk that has grown, and get errors beyond \
                      the end of one that has shrunk. If the configuration file has a `size` of \
                      the disk, set the new one there as well: the next start of the daemon is \
                      refused while the two differ.\n\nExamples:
  tidegate vm resize oltp \"40 GiB\"
  tidegate vm resize dss logs \"40 GiB\"
  tidegate vm resize dss logs \"10 GiB\" --shrink      data beyond 10 GiB is lost"
    )]
    Resize(ResizeArgs),
    /// Export the state that a policy has learnt of a VM
    #[command(
        after_help = "For policies that learn of each VM, such as slo, flubber, edf-credit and \
                      vcup. The file is small and JSON. Import it with `vm import` on another \
                      daemon after migrating the VM, or after adding the VM again. Without FILE \
                      it is printed. `tidegate export` has what attaches a VM's disks.\n\n\
                      Examples:
  tidegate vm export oltp oltp.learnt.json
  tidegate vm export oltp | ssh other 'cat > oltp.learnt.json'"
    )]
    Export {
        /// VM name
        #[arg(add = completion::vms())]
        name: String,
        /// Output file; an existing file is replaced
        #[arg(value_hint = ValueHint::FilePath)]
        file: Option<PathBuf>,
    },
    /// Import the learnt state of a VM from a file
    #[command(
        after_help = "State of the VM itself is always used. State that depends on its disks \
                      (bandwidth by merge limit) is used only if the disks are on the same device \
                      as at the export, by the file's record; otherwise it is measured again. A \
                      modified file, or one from another controller, is refused.\n\nExamples:
  tidegate vm import oltp oltp.learnt.json
  tidegate vm import oltp oltp.learnt.json --disk-moved    disks migrated, too
  tidegate vm import oltp oltp.learnt.json --same-disk     same disks (NFS)"
    )]
    Import(ImportArgs),
}

#[derive(Debug, ClapArgs)]
pub(crate) struct ImportArgs {
    /// VM name
    #[arg(add = completion::vms())]
    pub(crate) name: String,
    /// File written by `vm export`
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) file: PathBuf,
    /// The disks are different ones, whatever the file says
    #[arg(long)]
    pub(crate) disk_moved: bool,
    /// The disks are the same ones, whatever the file says
    #[arg(long, conflicts_with = "disk_moved")]
    pub(crate) same_disk: bool,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct AddArgs {
    /// VM name
    #[arg(required_unless_present = "file")]
    pub(crate) name: Option<String>,
    /// Device that stores the disks; optional if there is only one
    #[arg(long, value_name = "NAME", add = completion::devices())]
    pub(crate) device: Option<String>,
    /// Disk of the VM; may be repeated
    #[arg(long = "disk", value_name = "KEY=VALUE,...", value_parser = parse_disk,
          required_unless_present = "file")]
    pub(crate) disks: Vec<DiskArg>,
    /// Serve a process of the host, such as a backup, which gets what the VMs leave
    #[arg(long)]
    pub(crate) background: bool,
    /// Maximum number of NBD connections over all disks, 1 to 4096 [default: 64]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub(crate) max_connections: Option<u32>,
    #[command(flatten)]
    pub(crate) parts: PartArgs,
    /// Add the VMs of a file with [[vm]] tables instead
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath,
          conflicts_with_all = ["name", "device", "disks", "background", "max_connections",
                                "PartArgs"])]
    pub(crate) file: Option<PathBuf>,
    /// Apply it even if it does not fit the device
    #[arg(long)]
    pub(crate) force: bool,
    /// Persist the change, so that it survives a restart; needs a [store]
    #[arg(long)]
    pub(crate) persist: bool,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct RemoveArgs {
    /// VM name
    #[arg(add = completion::vms())]
    pub(crate) name: String,
    /// Remove only the disk with this export name
    #[arg(long, value_name = "EXPORT", add = completion::exports())]
    pub(crate) disk: Option<String>,
    /// Close open connections
    #[arg(long)]
    pub(crate) force: bool,
    /// Fail if the VM or disk does not exist
    #[arg(long)]
    pub(crate) strict: bool,
    /// Persist the removal, so that a restart does not bring it back; needs a [store]
    #[arg(long)]
    pub(crate) persist: bool,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct ResizeArgs {
    /// VM name
    #[arg(add = completion::vms())]
    pub(crate) name: String,
    /// New size, such as "40 GiB"; before it the disk's export name if the VM has several disks
    #[arg(value_name = "SIZE", num_args = 1..=2, required = true)]
    pub(crate) disk: Vec<String>,
    /// Allow a smaller size; data beyond the new end is lost
    #[arg(long)]
    pub(crate) shrink: bool,
    /// Persist the change, so that it survives a restart; needs a [store]
    #[arg(long)]
    pub(crate) persist: bool,
}

/// Options of an objective. Rates are text such as `500 IOPS`, `120 IOPS @ 16 KiB`, `30 MB/s`,
/// `500 IOPS, 30 MB/s` or `none`, which the daemon parses as in its configuration.
#[derive(Debug, ClapArgs)]
#[command(
    group = ArgGroup::new("parts").required(true).multiple(true).args(PartArgs::names())
)]
pub(crate) struct ObjectiveArgs {
    /// VM name
    #[arg(add = completion::vms())]
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) parts: PartArgs,
    /// Apply it even if it does not fit the device
    #[arg(long)]
    pub(crate) force: bool,
    /// Persist the change, so that it survives a restart; needs a [store]
    #[arg(long)]
    pub(crate) persist: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum DeviceCommand {
    /// List all devices
    List,
    /// Show one device: policy, queue depth, counters, parts not enforced
    Show {
        /// Device name
        #[arg(add = completion::devices())]
        name: String,
    },
    /// Show what each device can still promise, by part of the objective
    #[command(
        after_help = "Each figure holds by itself for one more VM: promising one of them leaves \
                      less of the\nothers. RESERVATION (or a target) is in requests of 4 KiB, \
                      BANDWIDTH in requests of\n128 KiB, LATENCY the shortest bound of a VM \
                      with 100 requests of 4 KiB a second.\n\nExamples:
  tidegate device budget
  tidegate device budget -o json | jq '.[] | {device, available}'
  tidegate plan host.toml           the same question without a daemon"
    )]
    Budget,
    /// Change a limit that disks of a device share
    #[command(
        override_usage = "tidegate device limit <DEVICE> <GROUP> <LIMITS>",
        after_help = "Only the rates that you name change, until the daemon stops. `tidegate \
                      device show` has the groups of a device.\n\nExamples:
  tidegate device limit nvme0 logs --limit \"40 MB/s\"
  tidegate device limit nvme0 logs --limit none"
    )]
    Limit(Box<GroupLimitArgs>),
}

/// Options of `device limit`.
#[derive(Debug, ClapArgs)]
#[command(group = ArgGroup::new("change").required(true).multiple(true).args(LimitArgs::names()))]
pub(crate) struct GroupLimitArgs {
    /// Device name
    #[arg(add = completion::devices())]
    pub(crate) device: String,
    /// Name of the limit group
    pub(crate) group: String,
    #[command(flatten)]
    pub(crate) limit: LimitArgs,
}

#[derive(Debug, Subcommand)]
pub(crate) enum PolicyCommand {
    /// List all policies and parts (needs no daemon)
    List,
    /// Show one policy or part with its parameters (needs no daemon)
    #[command(after_help = "Examples:
  tidegate policy show mclock
  tidegate policy show bd-edf                       a part
  tidegate policy show token-bucket+mclock          a combination of parts")]
    Show {
        /// Policy, part, or parts joined by +
        #[arg(add = completion::policies_and_parts())]
        name: String,
    },
    /// Change the policy of a device at once, without losing requests
    #[command(after_help = "Examples:
  tidegate policy set disk0 mclock
  tidegate policy set disk0 mclock --param \"cost_size=64 KiB\"
  tidegate policy set disk0 token-bucket+mclock     a combination of parts")]
    Set {
        /// Device name
        #[arg(add = completion::devices())]
        device: String,
        /// Policy, or REGULATOR+DISPATCHER, or CONTROLLER+REGULATOR+DISPATCHER
        #[arg(add = completion::policies())]
        policy: String,
        /// Policy parameter with its unit; may be repeated
        #[arg(long = "param", value_name = "NAME=VALUE", value_parser = parse_param)]
        params: Vec<(String, String)>,
    },
}

#[derive(Debug, ClapArgs)]
#[command(group = ArgGroup::new("view").args(["follow", "precision"]))]
pub(crate) struct StatsArgs {
    /// Show only this VM
    #[arg(add = completion::vms())]
    pub(crate) vm: Option<String>,
    /// Show rates of each interval instead of totals, until interrupted
    #[arg(short, long)]
    pub(crate) follow: bool,
    /// Show the precision of bandwidths over the last five minutes: B, beta and V
    #[arg(long)]
    pub(crate) precision: bool,
    /// Interval of --follow, such as "500 ms" [default: 1 s], or of beta with --precision, in whole
    /// seconds [default: 30 s]
    #[arg(long, value_name = "TIME", value_parser = parse_interval,
          requires = "view")]
    pub(crate) interval: Option<Duration>,
    /// Stop after N intervals
    #[arg(long, value_name = "N", requires = "follow", value_parser = whole::<u64>(0..=u64::MAX))]
    pub(crate) count: Option<u64>,
}
