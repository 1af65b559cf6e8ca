//! `tidegate trace info`: statistics of a trace, and small plots of it.

use anyhow::Result;
use serde::Serialize;
use tidegate_core::time::Nanos;
use tidegate_report::{Align, Table};
use tidegate_units::human::{bytes, bytes_per_s, count, duration, percent, rate};
use tidegate_workload::trace::{self, GAPS, Info, Trace};

use super::plots;
use super::source;
use crate::args::TraceInfoArgs;
use crate::output::Output;
use crate::plot_output;

pub(super) fn run(args: &TraceInfoArgs, out: Output) -> Result<()> {
    let trace = source::whole(&args.file, &args.read)?;
    let whole = TraceStats::from_trace(&trace);
    if out.is_json() {
        out.json(&whole)?;
    } else {
        out.text(&whole.text(&trace, out))?;
    }
    let plots = plots::plots(&trace);
    if args.plot && !out.is_json() {
        out.text("\n")?;
        plot_output::draw(out, &plots, args.plots.ascii)?;
    }
    plot_output::write_svg(&plots, &args.plots)
}

/// Statistics of a trace.
#[derive(Serialize)]
struct TraceStats {
    format: &'static str,
    out_of_order: u64,
    others: u64,
    skipped: u64,
    bad: Vec<Bad>,
    all: Figures,
    disks: Vec<Figures>,
}

#[derive(Serialize)]
struct Bad {
    place: String,
    what: String,
}

/// Statistics of a whole trace or of one of its disks.
#[derive(Serialize)]
struct Figures {
    name: String,
    requests: u64,
    reads: u64,
    discards: u64,
    bytes: u64,
    read_bytes: u64,
    span_s: f64,
    iops: f64,
    peak_iops: u64,
    bytes_per_s: f64,
    sizes: Sizes,
    sequential: f64,
    footprint_bytes: u64,
    extent_bytes: u64,
    gaps: Vec<Gap>,
}

#[derive(Serialize)]
struct Sizes {
    least: u32,
    median: u32,
    most: u32,
    commonest: Vec<SizeCount>,
}

#[derive(Serialize)]
struct SizeCount {
    bytes: u32,
    requests: u64,
}

#[derive(Serialize)]
struct Gap {
    at_least_s: f64,
    count: u64,
    total_s: f64,
}

impl TraceStats {
    fn from_trace(trace: &Trace) -> TraceStats {
        let disk = |(number, name): (usize, &String)| {
            let info = trace::info(trace, Some(number as u32))?;
            Some(Figures::from_info(name.clone(), &info))
        };
        let all = trace::info(trace, None).map(|info| Figures::from_info("all".to_owned(), &info));
        TraceStats {
            format: trace.format.name(),
            out_of_order: trace.out_of_order,
            others: trace.others,
            skipped: trace.skipped,
            bad: (trace.bad.iter())
                .map(|bad| Bad {
                    place: bad.place.to_string(),
                    what: bad.what.clone(),
                })
                .collect(),
            all: all.expect("a trace that was read has a request"),
            disks: trace.disks.iter().enumerate().filter_map(disk).collect(),
        }
    }

    fn text(&self, trace: &Trace, out: Output) -> String {
        let mut text = self.all.table(trace.format.name()).render(out.style());
        // The table of a single disk would repeat the one of the whole trace.
        if self.disks.len() > 1 {
            text.push('\n');
            text.push_str(&self.by_disk().render(out.style()));
        }
        if self.out_of_order > 0 {
            let n = count(self.out_of_order);
            text.push_str(&format!(
                "\n{n} requests are out of order in the file; statistics use their times\n"
            ));
        }
        if self.others > 0 {
            let n = count(self.others);
            text.push_str(&format!(
                "\n{n} requests without bytes (flushes) or without a beginning are left out\n"
            ));
        }
        if self.skipped > 0 {
            text.push_str(&format!(
                "\n{} invalid records were skipped; the first ones:\n",
                count(self.skipped)
            ));
            for bad in &self.bad {
                text.push_str(&format!("  {}: {}\n", bad.place, bad.what));
            }
        }
        text
    }

    fn by_disk(&self) -> Table {
        let columns = [
            "REQUESTS",
            "READS",
            "BYTES",
            "SEQUENTIAL",
            "FOOTPRINT",
            "EXTENT",
        ];
        let columns = columns.map(|title| (title, Align::Right));
        let mut table = Table::new([("DISK", Align::Left)].into_iter().chain(columns));
        for disk in &self.disks {
            table.row([
                disk.name.clone(),
                count(disk.requests),
                percent(disk.reads as f64, disk.requests as f64),
                bytes(disk.bytes),
                percent(disk.sequential, 1.0),
                bytes(disk.footprint_bytes),
                bytes(disk.extent_bytes),
            ]);
        }
        table
    }
}

impl Figures {
    fn from_info(name: String, info: &Info) -> Figures {
        let span = info.span.as_secs_f64();
        let per_s = |amount: u64| {
            // A trace of one request, or with one time for all, has no rate.
            if span > 0.0 {
                amount as f64 / span
            } else {
                0.0
            }
        };
        let gap = |(at_least, gaps): (Nanos, &trace::Gaps)| Gap {
            at_least_s: at_least.as_secs_f64(),
            count: gaps.count,
            total_s: gaps.time.as_secs_f64(),
        };
        Figures {
            name,
            requests: info.requests,
            reads: info.reads,
            discards: info.discards,
            bytes: info.bytes,
            read_bytes: info.read_bytes,
            span_s: span,
            iops: per_s(info.requests),
            peak_iops: info.peak_per_s,
            bytes_per_s: per_s(info.bytes),
            sizes: Sizes {
                least: info.sizes.least,
                median: info.sizes.median,
                most: info.sizes.most,
                commonest: (info.sizes.commonest.iter())
                    .map(|size| SizeCount {
                        bytes: size.bytes,
                        requests: size.requests,
                    })
                    .collect(),
            },
            sequential: info.sequential as f64 / info.requests.max(1) as f64,
            footprint_bytes: info.footprint,
            extent_bytes: info.extent,
            gaps: GAPS.into_iter().zip(&info.gaps).map(gap).collect(),
        }
    }

    /// Returns the smallest, largest and median size of requests.
    fn sizes_text(&self) -> String {
        let [least, most, median] =
            [self.sizes.least, self.sizes.most, self.sizes.median].map(|size| bytes(size.into()));
        format!("{least} to {most}, median {median}")
    }

    /// Returns the commonest sizes, each with its share of the requests, in words.
    fn commonest_text(&self) -> String {
        let shares = self.sizes.commonest.iter().map(|size| {
            let share = percent(size.requests as f64, self.requests as f64);
            format!("{} {share}", bytes(size.bytes.into()))
        });
        shares.collect::<Vec<_>>().join(", ")
    }

    fn table(&self, format: &str) -> Table {
        let mut table = Table::properties();
        let mut row = |what: &str, text: String| {
            table.property(what, text);
        };
        row("format", format.to_owned());
        let share = |part: u64| percent(part as f64, self.requests as f64);
        let mut requests = format!("{}, {} reads", count(self.requests), share(self.reads));
        if self.discards > 0 {
            requests.push_str(&format!(", {} discards", share(self.discards)));
        }
        row("requests", requests);
        row(
            "bytes",
            format!(
                "{}, {} read",
                bytes(self.bytes),
                percent(self.read_bytes as f64, self.bytes as f64)
            ),
        );
        row("span", duration(Nanos::from_secs_f64(self.span_s).0));
        row(
            "rate",
            format!(
                "{} IOPS, peak {} in a second; {}",
                rate(self.iops),
                rate(self.peak_iops as f64),
                bytes_per_s(self.bytes_per_s)
            ),
        );
        row("sizes", self.sizes_text());
        row("most common", self.commonest_text());
        row(
            "sequential",
            format!(
                "{} of requests begin where the previous one on the disk ended",
                percent(self.sequential, 1.0)
            ),
        );
        row(
            "footprint",
            format!(
                "{} accessed, highest address {}",
                bytes(self.footprint_bytes),
                bytes(self.extent_bytes)
            ),
        );
        for gap in self.gaps.iter().filter(|gap| gap.count > 0) {
            let least = duration(Nanos::from_secs_f64(gap.at_least_s).0);
            let part = percent(gap.total_s, self.span_s);
            row(
                &format!("idle {least} or more"),
                format!("{} times, {part} of the span", count(gap.count)),
            );
        }
        table
    }
}
