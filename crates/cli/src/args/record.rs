//! Options of `record`.

use std::path::PathBuf;

use clap::{Args as ClapArgs, Subcommand, ValueHint};
use jiff::civil::{DateTime, Time};
use jiff::{SignedDuration, Timestamp, Zoned};

use crate::completion;

/// Help behind the subcommands.
pub(super) const HELP: &str = "\
A recording has every request of a device: VM, disk, operation, address, length,
and the times at which it arrived, was admitted, was sent to the device and was
done. Files are bounded by [recording] max_size; the oldest are removed first.
Requests that could not be recorded are counted. No data of guests is recorded.

Examples:
  tidegate record on
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
    /// File to write; an existing one is replaced
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) file: PathBuf,
    /// Device name; optional if there is only one, or with --vm
    #[arg(long, value_name = "NAME", add = completion::devices())]
    pub(crate) device: Option<String>,
    /// Only requests of this VM
    #[arg(long, value_name = "NAME", add = completion::vms())]
    pub(crate) vm: Option<String>,
    /// Begin: time of day, date and time, or so long ago
    #[arg(long, value_name = "TIME", value_parser = parse_moment)]
    pub(crate) from: Option<Timestamp>,
    /// End: time of day, date and time, or so long ago
    #[arg(long, value_name = "TIME", value_parser = parse_moment)]
    pub(crate) to: Option<Timestamp>,
}

/// Parses a moment of the past: `14:02` of today, `2026-03-01 14:02`, both in the local time zone,
/// `2026-03-01T14:02:00Z`, or `15 min` for that long ago.
fn parse_moment(text: &str) -> Result<Timestamp, String> {
    parse_moment_at(text, &Zoned::now())
}

fn parse_moment_at(text: &str, now: &Zoned) -> Result<Timestamp, String> {
    let local = |at: DateTime| {
        let zoned = at.to_zoned(now.time_zone().clone());
        zoned.map(|zoned| zoned.timestamp())
    };
    if let Ok(ago) = tidegate_units::parse_duration(text) {
        let ago = SignedDuration::from_nanos(i64::try_from(ago.0).unwrap_or(i64::MAX));
        let at = now.timestamp().checked_sub(ago);
        return at.map_err(|error| error.to_string());
    }
    // A lone number is no time of day: it may as well be meant as that many seconds or minutes ago.
    let of_today = || {
        let time = text.contains(':').then(|| text.parse::<Time>().ok())??;
        local(now.date().to_datetime(time)).ok()
    };
    let parsed = (text.parse::<Timestamp>().ok())
        .or_else(|| text.parse::<DateTime>().and_then(local).ok())
        .or_else(of_today);
    parsed.ok_or_else(|| {
        "give a time of day (14:02), a date and time (2026-03-01T14:02:00Z), or a time ago (15 min)"
            .to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_a_time_of_day_a_date_or_so_long_ago() {
        let now: Zoned = "2026-03-01T12:30:00+01:00[Europe/Berlin]"
            .parse()
            .expect("a time");
        let at = |text: &str| parse_moment_at(text, &now).map(|time| time.to_string());
        for (text, expected) in [
            ("15 min", "2026-03-01T11:15:00Z"),
            ("14:02", "2026-03-01T13:02:00Z"),
            ("14:02:30", "2026-03-01T13:02:30Z"),
            ("2026-02-28 14:02", "2026-02-28T13:02:00Z"),
            ("2026-02-28T14:02:00", "2026-02-28T13:02:00Z"),
            ("2026-02-28T14:02:00Z", "2026-02-28T14:02:00Z"),
        ] {
            assert_eq!(at(text).as_deref(), Ok(expected), "{text}");
        }
        for wrong in ["", "15", "25:00", "yesterday", "2026-13-01 00:00"] {
            let refused = at(wrong).expect_err(wrong);
            assert!(refused.contains("15 min"), "{wrong}: {refused}");
        }
    }
}
