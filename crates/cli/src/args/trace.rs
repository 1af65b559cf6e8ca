//! Commands about block traces.

use std::path::PathBuf;

use clap::{Args as ClapArgs, Subcommand, ValueEnum, ValueHint};
use tidegate_workload::trace;

/// `tidegate trace`.
#[derive(Debug, Subcommand)]
pub(crate) enum TraceCommand {
    /// What a trace is like: requests, sizes, rates, how sequential it is, what it touches
    #[command(
        after_help = "A record that cannot be right is an error with its line, or its number; \
                      --skip-bad counts such records\nand shows the first. A trace without a \
                      request is an error.\n\nFormats:
  msr      Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime (MSR Cambridge)
  disksim  arrival time in ns, device, first sector, sectors, 0 (write) or 1 (read) (MQSim's ASCII)
  vscsi    VMware's vSCSI binary, version 1 (CloudPhysics)

Examples:
  tidegate trace info websearch.disksim
  tidegate trace info usr_0.csv --skip-bad -o json | jq '.all.sequential'"
    )]
    Info(TraceInfoArgs),
}

/// `tidegate trace info`.
#[derive(Debug, ClapArgs)]
pub(crate) struct TraceInfoArgs {
    /// The trace
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) file: PathBuf,
    #[command(flatten)]
    pub(crate) read: TraceReadArgs,
}

/// How a trace is read.
#[derive(Debug, ClapArgs)]
pub(crate) struct TraceReadArgs {
    /// How it is written; told by its beginning where this is not given
    #[arg(long, value_enum, value_name = "FORMAT")]
    pub(crate) format: Option<TraceFormat>,
    /// Pass over records that cannot be right, count and show them
    #[arg(long)]
    pub(crate) skip_bad: bool,
}

/// How a trace is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum TraceFormat {
    /// MSR Cambridge, CSV
    Msr,
    /// DiskSim ASCII, times in ns
    Disksim,
    /// VMware's vSCSI, binary
    Vscsi,
}

impl TraceReadArgs {
    pub(crate) fn options(&self) -> trace::Options {
        let format = self.format.map(|format| match format {
            TraceFormat::Msr => trace::Format::Msr,
            TraceFormat::Disksim => trace::Format::DiskSim,
            TraceFormat::Vscsi => trace::Format::Vscsi,
        });
        trace::Options {
            format,
            skip_bad: self.skip_bad,
        }
    }
}
