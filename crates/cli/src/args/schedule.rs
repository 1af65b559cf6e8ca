//! Options of `vm schedule`.

use clap::{Args as ClapArgs, Subcommand};

use super::part::PartArgs;
use super::value::whole;

#[derive(Debug, Subcommand)]
pub(crate) enum ScheduleCommand {
    /// The entries, which of them is in force, what comes next
    List {
        /// The VM's name
        name: String,
    },
    /// One more entry, which wins over those before it
    #[command(
        override_usage = "tidegate vm schedule add <NAME> <--WHEN TIME>... <--PART VALUE>...",
        after_help = "Every week: --from, --until (midnight unless said; the next day where it is \
                      not later) and --days\n(on which it begins; all unless said). Once: --at, \
                      and --until where it is not for good. Times are\nthose of --timezone, which \
                      is the whole schedule's; the host's unless said.\n\nExamples:
  tidegate vm schedule add dss --from 18:00 --until 23:00 --target \"50 MB/s\"
  tidegate vm schedule add dss --from 22:00 --until 06:00 --days mon,tue,wed,thu,fri --limit none
  tidegate vm schedule add dss --days sat,sun --weight 300 --timezone Europe/Berlin --persist
  tidegate vm schedule add dss --at 2026-12-01T18:00 --until 2026-12-02T06:00 --target none"
    )]
    Add(Box<EntryArgs>),
    /// Take entries away
    Clear {
        /// The VM's name
        name: String,
        /// Only the entry of this number
        #[arg(value_parser = whole::<u32>(1..=u32::MAX.into()))]
        number: Option<u32>,
        /// Even if what holds then does not fit the device
        #[arg(long)]
        force: bool,
        /// Let it survive a restart: durable when this returns; needs a [store]
        #[arg(long)]
        persist: bool,
    },
}

/// An entry. Times and figures are text; the daemon reads them as the configuration's.
#[derive(Debug, ClapArgs)]
pub(crate) struct EntryArgs {
    /// The VM's name
    pub(crate) name: String,
    /// From then on, such as 18:00
    #[arg(long, value_name = "TIME", help_heading = "When")]
    pub(crate) from: Option<String>,
    /// Until then: 23:00, or with --at 2026-12-02T06:00
    #[arg(long, value_name = "TIME", help_heading = "When")]
    pub(crate) until: Option<String>,
    /// Days on which it begins: mon, tue, wed, thu, fri, sat, sun
    #[arg(
        long,
        value_name = "DAY,...",
        value_delimiter = ',',
        help_heading = "When"
    )]
    pub(crate) days: Vec<String>,
    /// Once, from then on, such as 2026-12-01T18:00
    #[arg(long, value_name = "DATE", help_heading = "When", conflicts_with_all = ["from", "days"])]
    pub(crate) at: Option<String>,
    /// The time zone of the whole schedule, such as Europe/Berlin; "none" goes back to the host's
    #[arg(long, value_name = "ZONE", help_heading = "When")]
    pub(crate) timezone: Option<String>,
    #[command(flatten)]
    pub(crate) parts: PartArgs,
    /// Even if it does not fit the device, now and when it is due
    #[arg(long)]
    pub(crate) force: bool,
    /// Let it survive a restart: durable when this returns; needs a [store]
    #[arg(long)]
    pub(crate) persist: bool,
}
