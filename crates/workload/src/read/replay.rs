//! Reading what a job replays, and by when it is to be done.

use super::value::{LONGEST, is_table};
use crate::deadline::{BySize, Deadline};
use crate::replay::{Factor, Mode, Replay};
use crate::trace::{self, Format, Options, Trace, TraceError};
use tidegate_config::library::Library;
use tidegate_config::{Field, Section};
use tidegate_core::time::Nanos;

/// Tolerances above are none.
const TOLERANCE: f64 = 1000.0;
/// More than share any device.
const MOST_TENANTS: u64 = 4096;

#[derive(Clone, Copy, PartialEq)]
enum Word {
    Timed,
    Scaled,
    NextWhenDone,
}

const MODES: [(&str, Word); 3] = [
    ("timed", Word::Timed),
    ("scaled", Word::Scaled),
    ("next-when-done", Word::NextWhenDone),
];

/// `replay = { file = "web.csv", mode = "next-when-done", size_factor = 100, ... }`. `None`:
/// something was wrong and has been reported.
pub(super) fn replay(field: &Field<'_>, library: &dyn Library) -> Option<Replay> {
    let mut section = Section::of(field)?;
    let format = section.read("format", None, |field| {
        let all = Format::ALL.map(|format| (format.name(), format));
        field.choice(&all).map(Some)
    });
    let skip_bad = section.read("skip_bad", false, Field::flag);
    let trace = section
        .need("file", "the trace's path: file = \"web.csv\"")
        .zip(format.zip(skip_bad))
        .and_then(|(field, (format, skip_bad))| {
            read_trace(&field, library, &Options { format, skip_bad })
        });
    section.renamed("disk", "trace_disk");
    let disk = section.read("trace_disk", None, |field| {
        // Which there are is not known of a trace that was wrong.
        let names = trace.as_ref()?.disks.iter().map(String::as_str);
        let wanted = field.reference("disk of the trace", names.clone())?;
        Some(names.clone().position(|name| name == wanted))
    });
    let limit = section.read("limit", None, |field| field.count(1..=u64::MAX).map(Some));
    let mode = mode(&mut section);
    let factor = |field: &Field<'_>| field.decimal(Factor::RANGE).map(Factor::new);
    let size_factor = section.read("size_factor", Factor::ONE, factor);
    let again = section.read("loop", false, Field::flag);
    section.finish();
    let disk = disk?.map(|disk| disk as u32);
    let mut replay = Replay::new(&trace?, disk, limit?)?;
    (replay.mode, replay.size_factor, replay.again) = (mode?, size_factor?, again?);
    Some(replay)
}

fn mode(section: &mut Section<'_>) -> Option<Mode> {
    let allowed = "when requests come: mode = \"timed\", \"scaled\" or \"next-when-done\"";
    let word = section.need("mode", allowed);
    let word = word.and_then(|field| field.choice(&MODES));
    let factor = section.take("time_factor");
    let scaled = word.is_none_or(|word| word == Word::Scaled);
    if let (Some(field), false) = (&factor, scaled) {
        field.error(
            "times are as they are in this mode",
            "mode = \"scaled\", or leave it out",
        );
        return None;
    }
    match word? {
        Word::Timed => Some(Mode::Timed(Factor::ONE)),
        Word::NextWhenDone => Some(Mode::NextWhenDone),
        Word::Scaled => {
            let example = "what times are multiplied by: time_factor = 0.5";
            let field = factor.or_else(|| section.need("time_factor", example))?;
            let factor = field.decimal(Factor::RANGE)?;
            Some(Mode::Timed(Factor::new(factor)))
        }
    }
}

fn read_trace(field: &Field<'_>, library: &dyn Library, options: &Options) -> Option<Trace> {
    let name = field.text()?;
    let (what, allowed) = match library.open(name) {
        Err(what) => (
            what,
            "the path of a trace, relative to the scenario".to_owned(),
        ),
        Ok(input) => match trace::read(input, options) {
            Ok(trace) => return Some(trace),
            Err(error) => explain(name, &error),
        },
    };
    field.error(what, &allowed);
    None
}

/// What is wrong with a trace, and what would be right.
fn explain(name: &str, error: &TraceError) -> (String, String) {
    let allowed = match error {
        TraceError::Bad(bad) => format!("{}; skip_bad = true passes over bad records", bad.right),
        TraceError::Unknown => "format = \"msr\", \"disksim\" or \"vscsi\"".to_owned(),
        TraceError::Empty {
            first: Some(bad), ..
        } => bad.right.to_owned(),
        TraceError::Empty { .. } | TraceError::Io(_) => "a trace with requests".to_owned(),
    };
    (format!("{name}: {error}"), allowed)
}

/// `deadline = "60 s"`, or
/// `{ tolerance = 0.3, max_bandwidth = "54 MB/s", bandwidth_loss = "17 MB/s" }`.
pub(super) fn deadline(field: &Field<'_>) -> Option<Deadline> {
    if !is_table(field) {
        return field.duration(Nanos(1)..=LONGEST).map(Deadline::Fixed);
    }
    let mut section = Section::of(field)?;
    let tolerance = section
        .need(
            "tolerance",
            "how much longer than at best it may take: tolerance = 0.3",
        )
        .and_then(|field| field.decimal(0.0..=TOLERANCE));
    let most = section.need(
        "max_bandwidth",
        "what one tenant gets: max_bandwidth = \"54 MB/s\"",
    );
    let max_bandwidth = most.as_ref().and_then(bandwidth);
    let bandwidth_loss = section.read("bandwidth_loss", 0, bandwidth);
    let tenants = section.read("tenants", 1, |field| field.count(1..=MOST_TENANTS));
    let as_printed = section.read("as_printed", false, Field::flag);
    section.finish();
    if let (Some(field), Some(most), Some(loss)) = (most, max_bandwidth, bandwidth_loss)
        && loss >= most
    {
        field.error("nothing is left of it", "more than bandwidth_loss");
        return None;
    }
    Some(Deadline::BySize(BySize {
        tolerance: (tolerance? * 1000.0 + 0.5) as u32,
        max_bandwidth: max_bandwidth?,
        bandwidth_loss: bandwidth_loss?,
        tenants: tenants? as u32,
        as_printed: as_printed?,
    }))
}

fn bandwidth(field: &Field<'_>) -> Option<u64> {
    let rate = field.rate()?;
    if let (None, Some(per_s)) = (rate.ops, rate.bytes_per_s) {
        return Some(per_s);
    }
    field.error(
        format!("found {}", field.describe()),
        "bytes a second, such as \"54 MB/s\"",
    );
    None
}
