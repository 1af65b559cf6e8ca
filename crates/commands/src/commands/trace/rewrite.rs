//! `tidegate trace convert`, `cut` and `scale`: a trace is read, changed and written to a file.
//!
//! ```text
//!   file --Reader--> by time --change--> Writer --> file beside --> renamed onto the output
//! ```

use std::io::BufWriter;
use std::path::Path;

use anyhow::{Context, Result};
use serde::Serialize;
use tidegate_core::request::Op;
use tidegate_core::time::Nanos;
use tidegate_report::Table;
use tidegate_units::human::{count, duration};
use tidegate_workload::replay::Factor;
use tidegate_workload::trace::{
    Cut, Format, InOrder, Losses, Record, Sample, SampleBy, Scale, Writer,
};

use super::source;
use crate::args::{SampleUnit, TraceConvertArgs, TraceCutArgs, TraceRewriteArgs, TraceScaleArgs};
use crate::atomic_file::Replacement;
use crate::output::Output;
use crate::problem::Problem;

/// Bytes written to a file at once.
const BUFFER: usize = 1 << 20;

/// Request after a change.
enum Changed {
    Kept(Record),
    Dropped,
    /// No later request is kept.
    End,
}

pub(super) fn convert(args: &TraceConvertArgs, out: Output) -> Result<()> {
    let format = Some(args.written.format());
    rewrite(&args.files, format, out, |record, _| {
        Ok(Changed::Kept(*record))
    })
}

pub(super) fn cut(args: &TraceCutArgs, out: Output) -> Result<()> {
    let op = match (args.read_only, args.write_only) {
        (true, _) => Some(Op::Read),
        (_, true) => Some(Op::Write),
        _ => None,
    };
    let cut = Cut {
        from: args.from.unwrap_or(Nanos::ZERO),
        to: args.to,
        op,
    };
    if let Some(to) = cut.to.filter(|&to| to <= cut.from) {
        let (from, to) = (duration(cut.from.0), duration(to.0));
        return Err(
            Problem::new(format!("--to is {to}, which is not after --from, {from}")).into(),
        );
    }
    let format = args.written.map(|written| written.format());
    rewrite(&args.files, format, out, |record, after| {
        Ok(match cut.keeps(after, record) {
            true => Changed::Kept(*record),
            false if cut.is_over(after) => Changed::End,
            false => Changed::Dropped,
        })
    })
}

pub(super) fn scale(args: &TraceScaleArgs, out: Output) -> Result<()> {
    let sample = args.count.map(|(keep, of)| {
        let by = match args.by {
            SampleUnit::Region => SampleBy::Region(args.region),
            SampleUnit::Request => SampleBy::Request,
        };
        Sample::new(keep, of, by)
    });
    let factor = |factor: Option<f64>| factor.map_or(Factor::ONE, Factor::new);
    let mut scale = Scale::new(factor(args.time), factor(args.size), sample);
    let format = args.written.map(|written| written.format());
    rewrite(&args.files, format, out, |record, _| {
        Ok(scale.apply(record)?.map_or(Changed::Dropped, Changed::Kept))
    })
}

/// Reads a trace, changes each request with the time since the first one, and writes the rest.
fn rewrite(
    files: &TraceRewriteArgs,
    format: Option<Format>,
    out: Output,
    mut change: impl FnMut(&Record, Nanos) -> Result<Changed, String>,
) -> Result<()> {
    let error = |error| source::problem(&files.file, error);
    let reader = source::open(&files.file, &files.read)?;
    let own = Some(reader.format()).filter(|own| Format::WRITABLE.contains(own));
    let format = format.or(own).unwrap_or(Format::Msr);
    let mut reader = InOrder::new(reader);
    let cannot = || format!("cannot write {}", files.out.display());
    let to = BufWriter::with_capacity(BUFFER, Replacement::create(&files.out)?);
    let mut writer = Writer::new(to, format).with_context(cannot)?;
    let (mut first, mut written) = (None, 0);
    while let Some(record) = reader.next().map_err(error)? {
        let first = *first.get_or_insert(record.at);
        let changed = change(&record, record.at.since(first)).map_err(|what| {
            let name = files.file.display();
            Problem::new(format!("{name}: {what}")).at(reader.place().to_string())
        })?;
        match changed {
            Changed::Kept(changed) => {
                let name = &reader.reader().disks()[record.disk as usize];
                writer.write(&changed, name).with_context(cannot)?;
                written += 1;
            }
            Changed::Dropped => {}
            Changed::End => break,
        }
    }
    let (tally, _) = reader.finish().map_err(error)?;
    let (to, losses) = writer.finish().with_context(cannot)?;
    let written = written - losses.discards;
    if written == 0 {
        return Err(nothing(&files.out, &losses, format));
    }
    let to = to.into_inner().map_err(|error| error.into_error());
    to.with_context(cannot)?.commit()?;
    let result = Rewritten {
        format: format.name(),
        read: tally.requests,
        written,
        discards_left_out: losses.discards,
        times_rounded: losses.times,
        sectors_rounded: losses.sectors,
        others: tally.others,
        skipped: tally.skipped,
    };
    if out.is_json() {
        return out.json(&result);
    }
    Ok(out.table(&result.table())?)
}

fn nothing(file: &Path, losses: &Losses, format: Format) -> anyhow::Error {
    let what = format!("no request is left, so {} is not written", file.display());
    let problem = Problem::new(what);
    match losses.discards {
        0 => problem.into(),
        n => problem
            .help(format!(
                "{n} discards are left, which {format} does not have; iolog does"
            ))
            .into(),
    }
}

/// Result of writing a trace.
#[derive(Serialize)]
struct Rewritten {
    format: &'static str,
    read: u64,
    written: u64,
    discards_left_out: u64,
    times_rounded: u64,
    sectors_rounded: u64,
    others: u64,
    skipped: u64,
}

impl Rewritten {
    fn table(&self) -> Table {
        let mut table = Table::properties();
        table.property("format", self.format.to_owned());
        table.property("read", count(self.read));
        table.property("written", count(self.written));
        for (n, what, why) in [
            (
                self.discards_left_out,
                "left out",
                "discards: the format has none",
            ),
            (
                self.times_rounded,
                "rounded",
                "times, down to the format's unit",
            ),
            (
                self.sectors_rounded,
                "extended",
                "requests, to whole sectors",
            ),
            (
                self.others,
                "not read",
                "requests without bytes or beginning",
            ),
            (self.skipped, "skipped", "invalid records"),
        ] {
            if n > 0 {
                table.property(what, format!("{} {why}", count(n)));
            }
        }
        table
    }
}
