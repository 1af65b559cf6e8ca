//! Options of `vm schedule`.

use clap::{Args as ClapArgs, Subcommand};

use super::objective_parts::PartArgs;
use super::value::whole;
use crate::completion;

#[derive(Debug, Subcommand)]
pub(crate) enum ScheduleCommand {
    /// List the entries, the one in force and the next change
    List {
        /// VM name
        #[arg(add = completion::vms())]
        name: String,
    },
    /// Add an entry, which overrides earlier ones
    #[command(
        override_usage = "tidegate vm schedule add <NAME> <--WHEN TIME>... <--PART VALUE>...",
        after_help = "Weekly: --from and --until are times of day (default midnight; an end that \
                      is not later than the begin is on the next day), --days the days on which \
                      the entry begins (default all). Once: --at, and --until unless it holds for \
                      good. Times are in the schedule's --timezone, by default the \
                      host's.\n\nExamples:
  tidegate vm schedule add dss --from 18:00 --until 23:00 --target \"50 MB/s\"
  tidegate vm schedule add dss --from 22:00 --until 06:00 \\
      --days mon,tue,wed,thu,fri --limit none
  tidegate vm schedule add dss --days sat,sun --weight 300 \\
      --timezone Europe/Berlin --persist
  tidegate vm schedule add dss --at 2026-12-01T18:00 \\
      --until 2026-12-02T06:00 --target none"
    )]
    Add(Box<EntryArgs>),
    /// Remove entries
    Clear {
        /// VM name
        #[arg(add = completion::vms())]
        name: String,
        /// Remove only the entry with this number
        #[arg(value_parser = whole::<u32>(1..=u32::MAX.into()))]
        number: Option<u32>,
        /// Remove it even if the resulting objective does not fit the device
        #[arg(long)]
        force: bool,
        /// Persist the change, so that it survives a restart; needs a [store]
        #[arg(long)]
        persist: bool,
    },
}

/// Options of a new entry. Times and figures are text, which the daemon parses.
#[derive(Debug, ClapArgs)]
pub(crate) struct EntryArgs {
    /// VM name
    #[arg(add = completion::vms())]
    pub(crate) name: String,
    /// Time of day at which the entry begins, such as 18:00
    #[arg(long, value_name = "TIME", help_heading = "When")]
    pub(crate) from: Option<String>,
    /// End: 23:00, or with --at 2026-12-02T06:00
    #[arg(long, value_name = "TIME", help_heading = "When")]
    pub(crate) until: Option<String>,
    /// Days on which the entry begins: mon, tue, wed, thu, fri, sat, sun
    #[arg(
        long,
        value_name = "DAY,...",
        value_delimiter = ',',
        help_heading = "When"
    )]
    pub(crate) days: Vec<String>,
    /// Date and time at which a one-time entry begins, such as 2026-12-01T18:00
    #[arg(long, value_name = "DATE", help_heading = "When", conflicts_with_all = ["from", "days"])]
    pub(crate) at: Option<String>,
    /// Time zone of the whole schedule, such as Europe/Berlin; "none" is the host's
    #[arg(long, value_name = "ZONE", help_heading = "When")]
    pub(crate) timezone: Option<String>,
    #[command(flatten)]
    pub(crate) parts: PartArgs,
    /// Apply it even if it does not fit the device, now and when it is due
    #[arg(long)]
    pub(crate) force: bool,
    /// Persist the change, so that it survives a restart; needs a [store]
    #[arg(long)]
    pub(crate) persist: bool,
}
