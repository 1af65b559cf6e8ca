//! Options of `history`.

use clap::Args as ClapArgs;
use tidegate_config::moment::Moment;

use super::value::{parse_last, parse_moment};
use crate::completion;

#[derive(Debug, ClapArgs)]
#[command(
    after_help = "The daemon keeps points of 1 s for 15 minutes and points of 10 s for 24 h. \
                        Times are \"now\", a time ago such as -15m, \"15 min\", 2h or 1d, a time \
                        of day such as 14:02, a date and time such as 2026-11-28T14:02:00Z, or \
                        seconds since 1970.\n\n\
                        The columns from LIMIT to DEVICE say where the time of all requests \
                        went, in per cent: held back by the VM's own LIMIT, behind other requests \
                        (QUEUED), left idle on purpose (PAUSE), merged (MERGED), with the DEVICE. \
                        A gap says whether the VM was idle or the daemon did not run.\n\nExamples:
  tidegate history oltp                     the last 15 minutes
  tidegate history oltp --last 1m
  tidegate history oltp --from -2h --step 1m
  tidegate history oltp --from 2026-11-28T14:00:00Z --to 2026-11-28T14:10:00Z
  tidegate history oltp --from -5m -o csv > oltp.csv
  tidegate history --device disk0 --from -1d
  tidegate history --status                 how far it goes back, and its files"
)]
pub(crate) struct HistoryArgs {
    /// VM name; one that was removed has its history until it ages out
    #[arg(add = completion::vms(), required_unless_present_any = ["device", "status"])]
    pub(crate) vm: Option<String>,
    /// Show a device instead of a VM
    #[arg(long, value_name = "NAME", add = completion::devices(), conflicts_with = "vm")]
    pub(crate) device: Option<String>,
    /// Time before now that is shown, such as 1m, 1h or 1d, instead of --from and --to
    #[arg(long, value_name = "TIME", value_parser = parse_last,
          conflicts_with_all = ["from", "to", "status"])]
    pub(crate) last: Option<Moment>,
    /// Begin of the span
    #[arg(
        long,
        value_name = "TIME",
        default_value = "-15m",
        value_parser = parse_moment,
        allow_hyphen_values = true
    )]
    pub(crate) from: Moment,
    /// End of the span
    #[arg(
        long,
        value_name = "TIME",
        default_value = "now",
        value_parser = parse_moment,
        allow_hyphen_values = true
    )]
    pub(crate) to: Moment,
    /// Length of an interval: 1s, or a multiple of 10 s [default: by the span]
    #[arg(long, value_name = "TIME")]
    pub(crate) step: Option<String>,
    /// Show the state of the history itself
    #[arg(long, conflicts_with_all = ["vm", "device", "step"])]
    pub(crate) status: bool,
    /// Draw the plot in ASCII (the default where the locale is not UTF-8)
    #[arg(long)]
    pub(crate) ascii: bool,
}
