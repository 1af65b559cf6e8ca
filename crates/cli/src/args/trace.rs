//! Options of `tidegate trace`.

use std::path::PathBuf;

use clap::{Args as ClapArgs, Subcommand, ValueEnum, ValueHint};
use tidegate_workload::trace;

/// Commands of `tidegate trace`.
#[derive(Debug, Subcommand)]
pub(crate) enum TraceCommand {
    /// Summarise a trace: requests, sizes, rates, access pattern, footprint
    #[command(
        after_help = "An invalid record is an error that names its line or number; --skip-bad \
                      counts such records and shows the first. A trace without requests is an \
                      error.\n\nFormats:
  msr      Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime
  disksim  arrival time (ns), device, first sector, sectors, 1 if it is a read
  vscsi    VMware's vSCSI binary, version 1 (CloudPhysics)

Examples:
  tidegate trace info websearch.disksim
  tidegate trace info usr_0.csv --skip-bad -o json | jq '.all.sequential'"
    )]
    Info(TraceInfoArgs),
}

/// Options of `tidegate trace info`.
#[derive(Debug, ClapArgs)]
pub(crate) struct TraceInfoArgs {
    /// Trace file
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) file: PathBuf,
    #[command(flatten)]
    pub(crate) read: TraceReadArgs,
}

/// Options for reading a trace.
#[derive(Debug, ClapArgs)]
pub(crate) struct TraceReadArgs {
    /// Format of the trace [default: detected]
    #[arg(long, value_enum, value_name = "FORMAT")]
    pub(crate) format: Option<TraceFormat>,
    /// Skip invalid records, and report their number
    #[arg(long)]
    pub(crate) skip_bad: bool,
}

/// Format of a trace.
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
    /// Returns the options for the trace reader.
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
