//! Reader of a workload's replay and of its deadline.

use super::keys::replay::{self as keys, Pace};
use super::value::is_table;
use crate::deadline::{BySize, Deadline};
use crate::replay::{Factor, Mode, Replay};
use crate::trace::{self, Options, Trace, TraceError};
use tidegate_config::diagnostic::one_of;
use tidegate_config::library::Library;
use tidegate_config::{Field, Section};
use tidegate_core::time::Nanos;

/// Reads the key `replay`, such as `replay = { file = "web.csv", mode = "next-when-done",
/// size_factor = 100 }`. `None`: a mistake was found and reported.
pub(super) fn replay(field: &Field<'_>, library: &dyn Library) -> Option<Replay> {
    let mut section = Section::with_keys(field, &keys::REPLAY_TABLE)?;
    let format = section.value(&keys::FORMAT, None, |field| {
        field.choice(&keys::FORMATS).map(Some)
    });
    let skip_bad = section.flag(&keys::SKIP_BAD);
    // Accepted with a note for one release.
    section.renamed("disk", "trace_disk");
    let file = section.field(&keys::FILE);
    let disk_field = section.field(&keys::TRACE_DISK);
    // Requests of other disks are passed over as they are read, so that they need no memory.
    let disk = match &disk_field {
        Some(field) => field.text().map(|name| Some(name.to_owned())),
        None => Some(None),
    };
    let options = format.zip(skip_bad).zip(disk);
    let trace = file
        .zip(options)
        .and_then(|(field, ((format, skip_bad), disk))| {
            let options = Options {
                format,
                skip_bad,
                disk,
            };
            read_trace(&field, disk_field.as_ref(), library, &options)
        });
    let limit = section.number_if_any(&keys::LIMIT);
    let mode = mode(&mut section);
    let key = &keys::SIZE_FACTOR;
    let size_factor = section.value(key, Factor::ONE, |field| {
        field.plain_number(key).map(Factor::new)
    });
    let looped = section.flag(&keys::LOOP);
    section.finish();
    let mut replay = Replay::new(&trace?, None, limit?)?;
    (replay.mode, replay.size_factor, replay.looped) = (mode?, size_factor?, looped?);
    Some(replay)
}

/// Reads `mode`, and `time_factor`, which belongs to the mode `scaled`.
fn mode(section: &mut Section<'_>) -> Option<Mode> {
    let word = section.word(&keys::MODE, &keys::MODES);
    let factor = section.field(&keys::TIME_FACTOR);
    let scaled = word.is_none_or(|word| word == Pace::Scaled);
    if let (Some(field), false) = (&factor, scaled) {
        field.error(
            "time_factor applies only to mode = \"scaled\"",
            "mode = \"scaled\", or no time_factor",
        );
        return None;
    }
    match word? {
        Pace::Timed => Some(Mode::Timed(Factor::ONE)),
        Pace::NextWhenDone => Some(Mode::NextWhenDone),
        Pace::Scaled => {
            let example = "the factor of the trace's times, such as time_factor = 0.5";
            let field = factor.or_else(|| section.need(keys::TIME_FACTOR.name, example))?;
            let factor = field.plain_number(&keys::TIME_FACTOR)?;
            Some(Mode::Timed(Factor::new(factor)))
        }
    }
}

/// Reads the trace that `field` names, with an error there if it cannot be read, or at
/// `disk_field` if it has no request of the disk.
fn read_trace(
    field: &Field<'_>,
    disk_field: Option<&Field<'_>>,
    library: &dyn Library,
    options: &Options,
) -> Option<Trace> {
    let name = field.text()?;
    let (what, allowed) = match library.open(name) {
        Err(what) => (
            what,
            "the path of a trace, relative to the scenario".to_owned(),
        ),
        Ok(input) => match trace::read(input, options) {
            Ok(trace) => return Some(trace),
            Err(TraceError::NoDisk { names, .. }) => {
                // An unknown name is reported with the nearest one of the trace.
                let names = names.iter().map(String::as_str);
                disk_field?.reference("disk of the trace", names);
                return None;
            }
            Err(error) => explain(name, &error),
        },
    };
    field.error(what, &allowed);
    None
}

/// Returns the message about an unreadable trace, and the correction.
fn explain(name: &str, error: &TraceError) -> (String, String) {
    let allowed = match error {
        TraceError::Bad(bad) => format!("{}; skip_bad = true skips bad records", bad.right),
        TraceError::Unknown => format!("format = {}", one_of(keys::FORMATS.map(|(name, _)| name))),
        TraceError::Empty {
            first: Some(bad), ..
        } => bad.right.to_owned(),
        TraceError::TooLate { .. } => "requests nearly in the order of their times".to_owned(),
        TraceError::Empty { .. } | TraceError::NoDisk { .. } | TraceError::Io(_) => {
            "a trace with requests".to_owned()
        }
    };
    (format!("{name}: {error}"), allowed)
}

/// Reads the key `deadline`: a duration such as `"60 s"`, or a table of [`BySize`] such as
/// `{ tolerance = 0.3, max_bandwidth = "54 MB/s", bandwidth_loss = "17 MB/s" }`.
pub(super) fn deadline(field: &Field<'_>) -> Option<Deadline> {
    if !is_table(field) {
        let time = field.number(&super::keys::DEADLINE);
        return time.map(|time| Deadline::Fixed(Nanos(time)));
    }
    let mut section = Section::with_keys(field, &keys::DEADLINE_TABLE)?;
    let tolerance = section
        .field(&keys::TOLERANCE)
        .and_then(|field| field.plain_number(&keys::TOLERANCE));
    let most = section.field(&keys::MAX_BANDWIDTH);
    let max_bandwidth = most.as_ref().and_then(bandwidth);
    let bandwidth_loss = section.value(
        &keys::BANDWIDTH_LOSS,
        keys::BANDWIDTH_LOSS.default_number(),
        bandwidth,
    );
    section.renamed("tenants", keys::VMS.name);
    let vms = section.number(&keys::VMS);
    let as_printed = section.flag(&keys::AS_PRINTED);
    section.finish();
    if let (Some(field), Some(most), Some(loss)) = (most, max_bandwidth, bandwidth_loss)
        // An equal loss would leave a bandwidth of 0, and a deadline that never comes.
        && loss >= most
    {
        field.error(
            "max_bandwidth does not exceed bandwidth_loss",
            "more than bandwidth_loss",
        );
        return None;
    }
    Some(Deadline::BySize(BySize {
        // In thousandths, rounded to the nearest.
        tolerance: (tolerance? * 1000.0 + 0.5) as u32,
        max_bandwidth: max_bandwidth?,
        bandwidth_loss: bandwidth_loss?,
        vms: vms? as u32,
        as_printed: as_printed?,
    }))
}

/// Reads a bandwidth in bytes per second; a rate in IOPS is refused with a message of its own.
fn bandwidth(field: &Field<'_>) -> Option<u64> {
    let rate = field.rate()?;
    if let (None, Some(per_s)) = (rate.ops, rate.bytes_per_s) {
        return Some(per_s);
    }
    field.error(
        format!("found {}", field.describe()),
        "a bandwidth, such as \"54 MB/s\"",
    );
    None
}
