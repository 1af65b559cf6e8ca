//! Options of `disk`.

use std::path::PathBuf;

use clap::{ArgGroup, Args as ClapArgs, Subcommand};

use super::limit_parts::LimitArgs;
use super::value::whole;
use crate::completion;

#[derive(Debug, Subcommand)]
pub(crate) enum DiskCommand {
    /// Inject faults by rules, to test how guests and operators cope
    #[command(
        subcommand,
        after_help = "Rules last until they are cleared or the daemon stops; `tidegate device \
                      show` names the disks with rules. Drills: docs/fault-drills.md.\n\nExamples:
  tidegate disk fault add oltp --on read --from \"512 MiB\" --error EIO
  tidegate disk fault list oltp
  tidegate disk fault clear oltp"
    )]
    Fault(FaultCommand),
    /// Change the limits of a disk, beside those of its VM
    #[command(
        override_usage = "tidegate disk set <EXPORT> <LIMITS> [--persist]",
        after_help = "Only the limits that you name change. They hold until the daemon stops, with \
                      --persist also after a restart, unless the VM is in the configuration: then \
                      change them there. --limit-group names a [[device.limit_group]] of the \
                      disk's device. docs/configuration-limits.md has what limits of disks \
                      do.\n\nExamples:
  tidegate disk set db-log --limit \"100 MB/s\"
  tidegate disk set db-log --limit-write \"2000 IOPS\" --limit-group none
  tidegate disk set db-log --limit none"
    )]
    Set(Box<DiskLimitArgs>),
    /// Forget a disk whose file is lost, so that an empty one may be created
    #[command(
        after_help = "With a [store] the daemon remembers the disks that it served. If the file of \
                      one is missing, the daemon creates no empty one, because its file system may \
                      just not be mounted. Restore the file; or, if it is lost and you want a new, \
                      empty disk, forget the old one. No file is touched.\n\nExamples:
  tidegate disk forget oltp                 in a running daemon
  tidegate disk forget oltp --config /etc/tidegate/tidegate.toml  no daemon runs"
    )]
    Forget {
        /// Export name of the disk, or the absolute path of its file
        #[arg(add = completion::exports())]
        name: String,
        /// Change the store of this configuration directly, while no daemon runs
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
    },
}

/// Options of `disk set`.
#[derive(Debug, ClapArgs)]
#[command(group = ArgGroup::new("change").required(true).multiple(true)
          .args(LimitArgs::names().chain(["limit_group"])))]
pub(crate) struct DiskLimitArgs {
    /// Export name of the disk
    #[arg(add = completion::exports())]
    pub(crate) export: String,
    #[command(flatten)]
    pub(crate) limit: LimitArgs,
    /// Limit that the disk shares with others; none: none
    #[arg(long, value_name = "NAME")]
    pub(crate) limit_group: Option<String>,
    /// Keep the change in the store, for after a restart
    #[arg(long)]
    pub(crate) persist: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum FaultCommand {
    /// List the rules of a disk and their counters
    List {
        /// Export name of the disk
        #[arg(add = completion::exports())]
        export: String,
    },
    /// Add a rule; earlier rules are tried first
    #[command(
        override_usage = "tidegate disk fault add <EXPORT> [WHICH REQUESTS] <--WHAT HAPPENS>...",
        after_help = "A rule strikes requests that meet all of its conditions. The first rule that \
                      strikes a request decides.\n\nExamples:
  tidegate disk fault add oltp --on read --from \"512 MiB\" --error EIO
      unreadable from 512 MiB on
  tidegate disk fault add oltp --probability \"1 %\" --stall \"2 s\"
      occasional long delays
  tidegate disk fault add oltp --stall \"30 s\" --error EIO --after \"60 s\"
      a disk that fails in a minute
  tidegate disk fault add oltp --on write --every 100 --torn \"512 B\"
      each 100th write is torn after one sector
  tidegate disk fault add oltp --on write --torn \"0 B\" --error none
      writes that are acknowledged and lost"
    )]
    Add(Box<FaultArgs>),
    /// Remove rules; stalled requests go on at once
    Clear {
        /// Export name of the disk
        #[arg(add = completion::exports())]
        export: String,
        /// Remove only the rule with this number
        #[arg(value_parser = whole::<u32>(1..=u32::MAX.into()))]
        number: Option<u32>,
    },
}

/// Options of a fault rule. Figures are text with units, which the daemon parses.
#[derive(Debug, ClapArgs)]
#[command(group = ArgGroup::new("what").required(true).multiple(true)
          .args(["error", "stall", "torn"]))]
pub(crate) struct FaultArgs {
    /// Export name of the disk
    #[arg(add = completion::exports())]
    pub(crate) export: String,
    /// Operations: read, write, flush, discard, write-zeroes, or any
    #[arg(
        long,
        value_name = "OP,...",
        value_delimiter = ',',
        help_heading = "Which requests"
    )]
    pub(crate) on: Vec<String>,
    /// First byte of the range, such as "1 GiB"
    #[arg(long, value_name = "SIZE", help_heading = "Which requests")]
    pub(crate) from: Option<String>,
    /// Length of the range
    #[arg(long, value_name = "SIZE", help_heading = "Which requests")]
    pub(crate) length: Option<String>,
    /// Every Nth request
    #[arg(long, value_name = "N", value_parser = whole::<u64>(1..=1 << 32),
          help_heading = "Which requests")]
    pub(crate) every: Option<u64>,
    /// Probability, such as "0.1 %"
    #[arg(long, value_name = "PERCENT", help_heading = "Which requests")]
    pub(crate) probability: Option<String>,
    /// Seed of the random draws
    #[arg(long, value_name = "N", requires = "probability",
          value_parser = whole::<u64>(0..=u64::MAX), help_heading = "Which requests")]
    pub(crate) seed: Option<u64>,
    /// Delay until the rule becomes active, such as "10 s"
    #[arg(long, value_name = "TIME", help_heading = "Which requests")]
    pub(crate) after: Option<String>,
    /// Time for which the rule is active
    #[arg(long = "for", value_name = "TIME", help_heading = "Which requests")]
    pub(crate) lasts: Option<String>,
    /// Maximum number of requests to strike
    #[arg(long, value_name = "N", value_parser = whole::<u64>(1..=u64::MAX),
          help_heading = "Which requests")]
    pub(crate) count: Option<u64>,
    /// Fail with EIO, ENOSPC, EPERM or EINVAL; with --torn also none
    #[arg(long, value_name = "ERROR", help_heading = "What happens")]
    pub(crate) error: Option<String>,
    /// Delay the request, such as by "2 s"
    #[arg(long, value_name = "TIME", help_heading = "What happens")]
    pub(crate) stall: Option<String>,
    /// Write only the first bytes, a multiple of 512 B
    #[arg(long, value_name = "SIZE", help_heading = "What happens")]
    pub(crate) torn: Option<String>,
}
