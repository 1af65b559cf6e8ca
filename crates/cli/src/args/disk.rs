//! Options of `disk`.

use std::path::PathBuf;

use clap::{ArgGroup, Args as ClapArgs, Subcommand};

use super::value::whole;

#[derive(Debug, Subcommand)]
pub(crate) enum DiskCommand {
    /// Have a disk misbehave on purpose, by rule, to rehearse what happens then
    #[command(
        subcommand,
        after_help = "Rules last until they are cleared or the daemon ends; `tidegate device show` \
                      names the disks\nthat have some. docs/fault-drills.md has drills.\n\nExamples:
  tidegate disk fault add oltp --on read --from \"1 GiB\" --length \"64 KiB\" --error EIO
  tidegate disk fault list oltp
  tidegate disk fault clear oltp"
    )]
    Fault(FaultCommand),
    /// Forget a disk that was served, so that an empty one may be created where its file was
    #[command(
        after_help = "With a [store] the daemon knows the disks that it has served, and makes no \
                      empty one in place of a file\nthat is gone: its file system may only not be \
                      mounted. Put the file back; or, where it is gone for good and\n\
                      a new, empty disk is wanted, have it forgotten. The file itself is not \
                      touched.\n\nExamples:
  tidegate disk forget oltp                               a daemon that runs
  tidegate disk forget oltp --config /etc/tidegate.toml   one that does not start for it"
    )]
    Forget {
        /// Export name of the disk, or the absolute path of its file
        name: String,
        /// Configuration file whose store to change directly, while no daemon uses it
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum FaultCommand {
    /// The rules of a disk, and how often each struck
    List {
        /// The disk's export name
        export: String,
    },
    /// One more rule, asked behind those there are
    #[command(
        override_usage = "tidegate disk fault add <EXPORT> [WHICH REQUESTS] <--WHAT HAPPENS>...",
        after_help = "All conditions that are named must hold. The first rule that strikes a \
                      request decides.\n\nExamples:
  tidegate disk fault add oltp --on read --from \"1 GiB\" --length \"64 KiB\" --error EIO
                                                         a place that cannot be read
  tidegate disk fault add oltp --probability \"1 %\" --stall \"2 s\"
                                                         now and then it takes its time
  tidegate disk fault add oltp --stall \"30 s\" --error EIO --after \"60 s\"
                                                         dead in a minute
  tidegate disk fault add oltp --on write --every 100 --torn \"512 B\"
                                                         of each 100th write, one sector
  tidegate disk fault add oltp --on write,discard,write-zeroes --torn \"0 B\" --error none
                                                         from now on it only says that it writes"
    )]
    Add(Box<FaultArgs>),
    /// Take the rules away; whatever stalls on the disk goes on at once
    Clear {
        /// The disk's export name
        export: String,
        /// Only the rule of this number
        #[arg(value_parser = whole::<u32>(1..=u32::MAX.into()))]
        number: Option<u32>,
    },
}

/// A rule. Figures are text with units; the daemon reads them as the configuration's.
#[derive(Debug, ClapArgs)]
#[command(group = ArgGroup::new("what").required(true).multiple(true)
          .args(["error", "stall", "torn"]))]
pub(crate) struct FaultArgs {
    /// The disk's export name
    pub(crate) export: String,
    /// Operations: read, write, flush, discard, write-zeroes, or any
    #[arg(
        long,
        value_name = "OP,...",
        value_delimiter = ',',
        help_heading = "Which requests"
    )]
    pub(crate) on: Vec<String>,
    /// Those that touch the disk from here on, such as "1 GiB"
    #[arg(long, value_name = "SIZE", help_heading = "Which requests")]
    pub(crate) from: Option<String>,
    /// ... to so far behind it
    #[arg(long, value_name = "SIZE", help_heading = "Which requests")]
    pub(crate) length: Option<String>,
    /// Each Nth of those
    #[arg(long, value_name = "N", value_parser = whole::<u64>(1..=1 << 32),
          help_heading = "Which requests")]
    pub(crate) every: Option<u64>,
    /// By chance, such as "0.1 %"
    #[arg(long, value_name = "PERCENT", help_heading = "Which requests")]
    pub(crate) probability: Option<String>,
    /// What decides the draws
    #[arg(long, value_name = "N", requires = "probability",
          value_parser = whole::<u64>(0..=u64::MAX), help_heading = "Which requests")]
    pub(crate) seed: Option<u64>,
    /// From so long after now on, such as "10 s"
    #[arg(long, value_name = "TIME", help_heading = "Which requests")]
    pub(crate) after: Option<String>,
    /// For so long from then on
    #[arg(long = "for", value_name = "TIME", help_heading = "Which requests")]
    pub(crate) lasts: Option<String>,
    /// At most so often
    #[arg(long, value_name = "N", value_parser = whole::<u64>(1..=u64::MAX),
          help_heading = "Which requests")]
    pub(crate) count: Option<u64>,
    /// It fails: EIO, ENOSPC, EPERM or EINVAL; with --torn also none
    #[arg(long, value_name = "ERROR", help_heading = "What happens")]
    pub(crate) error: Option<String>,
    /// It takes so much longer, such as "2 s"
    #[arg(long, value_name = "TIME", help_heading = "What happens")]
    pub(crate) stall: Option<String>,
    /// Only its first bytes reach the medium, in whole sectors of 512 B
    #[arg(long, value_name = "SIZE", help_heading = "What happens")]
    pub(crate) torn: Option<String>,
}
