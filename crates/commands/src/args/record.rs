//! Options of `record`.

use std::path::PathBuf;

use clap::{Args as ClapArgs, Subcommand, ValueHint};
use tidegate_config::moment::Moment;

use super::value::parse_moment;
use crate::completion;

/// Help behind the subcommands.
pub(super) const HELP: &str = "\
A recording has every request of a device: VM, disk, operation, address, length,
and the times at which it arrived, was admitted, was sent to the device and was
done. Files are bounded by [recording] max_size; the oldest are removed first.
Requests that could not be recorded are counted. No data of guests is recorded.

Examples:
  tidegate record on                       the only device
  tidegate record on disk0                 where there are several
  tidegate record status
  tidegate record dump --vm oltp --from \"15 min\" slow.tgrec
  tidegate trace info slow.tgrec
  tidegate record off";

#[derive(Debug, Subcommand)]
pub(crate) enum RecordCommand {
    /// Record every request of a device from now on
    #[command(
        after_help = "Recording lasts until `record off` or until the daemon stops; [recording] \
                      devices names those that are recorded from the start on. Files of earlier \
                      recordings stay until their place is needed."
    )]
    On {
        /// Device name; optional if there is only one
        #[arg(add = completion::devices())]
        device: Option<String>,
    },
    /// End the recording of a device; its files stay
    Off {
        /// Device name; optional if there is only one
        #[arg(add = completion::devices())]
        device: Option<String>,
    },
    /// Show what is recorded: time covered, size, dropped requests, bytes a request
    Status,
    /// Write one recording of a range of time to a file
    #[command(
        after_help = "The range has the requests that arrived in it; without --from and --to it \
                      is all that there is. Times for which recording was off, and requests that \
                      were dropped or lost, are in the file as gaps.\n\nExamples:
  tidegate record dump all.tgrec
  tidegate record dump --from \"15 min\" last.tgrec         the last 15 minutes
  tidegate record dump --from 14:00 --to 14:05 slow.tgrec  today
  tidegate record dump --vm oltp --from 2026-03-01T14:00:00Z oltp.tgrec"
    )]
    Dump(RecordDumpArgs),
}

#[derive(Debug, ClapArgs)]
pub(crate) struct RecordDumpArgs {
    /// File to write; an existing one is replaced once the dump is whole
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) file: PathBuf,
    /// Device name; optional if there is only one, or with --vm
    #[arg(long, value_name = "NAME", add = completion::devices())]
    pub(crate) device: Option<String>,
    /// Only requests of this VM
    #[arg(long, value_name = "NAME", add = completion::vms())]
    pub(crate) vm: Option<String>,
    /// Begin: time of day, date and time, or so long ago
    #[arg(long, value_name = "TIME", value_parser = parse_moment, allow_hyphen_values = true)]
    pub(crate) from: Option<Moment>,
    /// End: time of day, date and time, or so long ago
    #[arg(long, value_name = "TIME", value_parser = parse_moment, allow_hyphen_values = true)]
    pub(crate) to: Option<Moment>,
}
