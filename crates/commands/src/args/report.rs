//! Options of `report`.

use std::path::PathBuf;

use clap::{Args as ClapArgs, ValueHint};
use tidegate_config::moment::Moment;

use super::value::parse_last;

#[derive(Debug, ClapArgs)]
#[command(
    after_help = "The report is made of the history that the daemon keeps: promises, rates \
                        and latencies of each VM and the load of each device over time, in one \
                        HTML file without scripts that needs no network. Each second is judged \
                        by what was promised in it. Times are as for `history`.\n\nExamples:
  tidegate report --last 1h
  tidegate report --last 1d day.html
  tidegate report --from 2026-11-28T14:00:00Z --to 2026-11-28T14:30:00Z out.html"
)]
pub(crate) struct ReportArgs {
    /// File to write
    #[arg(default_value = "tidegate-report.html", value_hint = ValueHint::FilePath)]
    pub(crate) file: PathBuf,
    /// Time before now that the report is about, such as 15m, 1h or 1d
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = parse_last)]
    pub(crate) last: Moment,
    /// Begin of the span, instead of --last
    #[arg(
        long,
        value_name = "TIME",
        conflicts_with = "last",
        allow_hyphen_values = true
    )]
    pub(crate) from: Option<String>,
    /// End of the span
    #[arg(
        long,
        value_name = "TIME",
        default_value = "now",
        allow_hyphen_values = true,
        requires = "from"
    )]
    pub(crate) to: String,
}

impl ReportArgs {
    /// Returns the begin of the span as the control API takes it.
    pub(crate) fn begin(&self) -> String {
        self.from.clone().unwrap_or_else(|| self.last.to_string())
    }
}
