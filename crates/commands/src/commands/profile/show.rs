//! `tidegate profile show`: a profile's rates and latencies.

use std::path::Path;

use anyhow::Result;
use serde::Serialize;
use tidegate_config::profile::{
    self, Measured, MeasuredBeside, MeasuredCurve, MeasuredDepth, MeasuredPoint, Mix, uncertainty,
};
use tidegate_core::profile::{Access, Direction};
use tidegate_report::{Align, Cell, Table, Tone};
use tidegate_units::human::{bytes, bytes_per_s, duration, exact_bytes, rate};

use super::curves;
use crate::args::PlotArgs;
use crate::output::Output;
use crate::plot_output;
use crate::problem::Problem;

pub(super) fn run(file: &Path, plot: &PlotArgs, out: Output) -> Result<()> {
    let loaded = if file.is_file() {
        profile::load(file)
    } else {
        // The name of a model of the catalogue, whose profile is built in.
        profile::find(&file.to_string_lossy(), Path::new(""))
    };
    let measured = loaded.map_err(Problem::new)?;
    let plots = curves::plots(&measured);
    plot_output::write_svg(&plots, plot)?;
    print(&measured, out)?;
    if out.is_json() {
        return Ok(());
    }
    out.text("\n")?;
    plot_output::draw(out, &plots, plot.ascii)
}

/// Profile as JSON.
#[derive(Serialize)]
struct ProfileView<'a> {
    device: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    measured: &'a str,
    depth: u32,
    span_bytes: u64,
    notes: &'a [String],
    /// Points too uncertain for plans, each with its confidence interval.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    imprecise: Vec<String>,
    curves: Vec<CurveView>,
    latency: Vec<LatencyView>,
    beside_writes: Vec<ReadsUnderWritesView>,
}

#[derive(Serialize)]
struct CurveView {
    reads_percent: f64,
    access: &'static str,
    points: Vec<PointView>,
}

#[derive(Serialize)]
struct PointView {
    size_bytes: u32,
    iops: f64,
    bytes_per_s: f64,
    /// Half width of the 95 % confidence interval, in per cent of the mean.
    within_percent: f64,
    runs: u32,
}

#[derive(Serialize)]
struct LatencyView {
    op: &'static str,
    access: &'static str,
    size_bytes: u32,
    depth: u32,
    iops: f64,
    mean_ns: u64,
    p50_ns: u64,
    p99_ns: u64,
    /// Half width of the 95 % confidence interval, in per cent of the mean.
    within_percent: f64,
    runs: u32,
}

/// Latency of reads under writes of one size at one depth.
#[derive(Serialize)]
struct ReadsUnderWritesView {
    access: &'static str,
    size_bytes: u32,
    depth: u32,
    p50_ns: u64,
    p99_ns: u64,
    reads: u64,
}

fn access(access: Access) -> &'static str {
    match access {
        Access::Sequential => "sequential",
        Access::Random => "random",
    }
}

fn view(measured: &Measured) -> ProfileView<'_> {
    let point = |point: &MeasuredPoint| PointView {
        size_bytes: point.size,
        iops: point.iops,
        bytes_per_s: point.iops * f64::from(point.size),
        within_percent: point.within_percent,
        runs: point.runs,
    };
    let curve = |curve: &MeasuredCurve| CurveView {
        reads_percent: match curve.mix {
            Mix::All(Direction::Read) => 100.0,
            Mix::All(Direction::Write) => 0.0,
            Mix::Reads(thousandths) => f64::from(thousandths) / 10.0,
        },
        access: access(curve.access),
        points: curve.points.iter().map(point).collect(),
    };
    let under_writes = |MeasuredBeside { point, reads }: &MeasuredBeside| ReadsUnderWritesView {
        access: access(point.access),
        size_bytes: point.size,
        depth: point.depth,
        p50_ns: point.p50.0,
        p99_ns: point.p99.0,
        reads: *reads,
    };
    let latency = |measured_point @ MeasuredDepth { point, .. }: &MeasuredDepth| LatencyView {
        op: match point.direction {
            Direction::Read => "read",
            Direction::Write => "write",
        },
        access: access(point.access),
        size_bytes: point.size,
        depth: point.depth,
        iops: point.iops,
        mean_ns: point.mean.0,
        p50_ns: point.p50.0,
        p99_ns: point.p99.0,
        within_percent: measured_point.within_percent,
        runs: measured_point.runs,
    };
    ProfileView {
        device: &measured.device,
        measured: &measured.measured,
        depth: measured.depth,
        span_bytes: measured.span,
        notes: &measured.notes,
        imprecise: measured.imprecise(),
        curves: measured.curves.iter().map(curve).collect(),
        latency: measured.latency.iter().map(latency).collect(),
        beside_writes: measured.beside_writes.iter().map(under_writes).collect(),
    }
}

/// Prints a profile as JSON or tables.
pub(super) fn print(measured: &Measured, out: Output) -> Result<()> {
    if out.is_json() {
        return out.json(&view(measured));
    }
    let style = out.style();
    let summary = summary_table(measured).render(style);
    let mut text = summary + "\n" + &saturation_table(measured).render(style);
    if !measured.latency.is_empty() {
        text += "\n";
        text += &latency_table(measured).render(style);
    }
    if !measured.beside_writes.is_empty() {
        text += "\n";
        text += &under_writes_table(measured).render(style);
    }
    Ok(out.text(&text)?)
}

/// Returns the table of the profile's origin, range and notes.
fn summary_table(measured: &Measured) -> Table {
    let mut table = Table::properties();
    let device = Cell::from(measured.device.as_str()).tone(Tone::Strong);
    table.property("device", device);
    if !measured.measured.is_empty() {
        table.property("measured", measured.measured.as_str());
    }
    table.property("saturated at", format!("queue depth {}", measured.depth));
    // 0 where the profile does not name the range.
    if measured.span > 0 {
        table.property("range", bytes(measured.span));
    }
    for (i, note) in measured.notes.iter().enumerate() {
        let name = if i == 0 { "note" } else { "" };
        table.property(name, Cell::from(note.as_str()).tone(Tone::Warn));
    }
    match measured.imprecise().len() {
        0 => {}
        n => {
            let points = if n == 1 { "point" } else { "points" };
            let text = format!("{n} {points}, marked ! below; `tidegate plan` refuses the profile");
            table.property("imprecise", Cell::from(text).tone(Tone::Bad));
        }
    }
    table
}

/// Returns the table of rates at saturation, by kind and size.
fn saturation_table(measured: &Measured) -> Table {
    let mut table = Table::new([
        ("AT SATURATION", Align::Left),
        ("SIZE", Align::Right),
        ("IOPS", Align::Right),
        ("+-", Align::Right),
        ("BANDWIDTH", Align::Right),
        ("RUNS", Align::Right),
    ]);
    for curve in &measured.curves {
        for (i, point) in curve.points.iter().enumerate() {
            let name = if i == 0 { curve.name() } else { String::new() };
            let half_width = half_width(point.within_percent, point.runs);
            table.row([
                Cell::from(name).tone(Tone::Strong),
                exact_bytes(point.size.into()).into(),
                rate(point.iops).into(),
                half_width,
                bytes_per_s(point.iops * f64::from(point.size)).into(),
                Cell::from(point.runs.to_string()).tone(Tone::Faint),
            ]);
        }
    }
    table
}

/// Returns the half width of a mean's confidence interval; `-` for a single run, which has none.
fn half_width(percent: f64, runs: u32) -> Cell {
    let half_width = match runs {
        0 | 1 => "-".to_owned(),
        _ => format!("{percent:.1} %"),
    };
    match uncertainty(percent, runs) {
        Some(_) => Cell::from(format!("{half_width} !")).tone(Tone::Bad),
        None => Cell::from(half_width).tone(Tone::Faint),
    }
}

/// Returns the table of the latency of reads under saturating writes. Their size is that of
/// [`BesideWrites::READ_SIZE`](tidegate_core::profile::BesideWrites::READ_SIZE).
fn under_writes_table(measured: &Measured) -> Table {
    let mut table = Table::new([
        ("4 KiB READS DURING", Align::Left),
        ("DEPTH", Align::Right),
        ("READS", Align::Right),
        ("P50", Align::Right),
        ("P99", Align::Right),
    ]);
    for MeasuredBeside { point, reads } in &measured.beside_writes {
        let kind = Mix::All(Direction::Write).with(point.access);
        table.row([
            Cell::from(format!("{} {kind}", exact_bytes(point.size.into()))).tone(Tone::Strong),
            point.depth.to_string().into(),
            reads.to_string().into(),
            duration(point.p50.0).into(),
            duration(point.p99.0).into(),
        ]);
    }
    table
}

/// Returns the table of latency by queue depth.
fn latency_table(measured: &Measured) -> Table {
    let mut table = Table::new([
        ("BY QUEUE DEPTH", Align::Left),
        ("DEPTH", Align::Right),
        ("IOPS", Align::Right),
        ("MEAN", Align::Right),
        ("+-", Align::Right),
        ("P50", Align::Right),
        ("P99", Align::Right),
    ]);
    for group in measured.latency_by_kind() {
        for (i, at) in group.iter().enumerate() {
            let point = &at.point;
            let kind = Mix::All(point.direction).with(point.access);
            let name = match i {
                0 => format!("{} {}", exact_bytes(point.size.into()), kind),
                _ => String::new(),
            };
            table.row([
                Cell::from(name).tone(Tone::Strong),
                point.depth.to_string().into(),
                rate(point.iops).into(),
                duration(point.mean.0).into(),
                half_width(at.within_percent, at.runs),
                duration(point.p50.0).into(),
                duration(point.p99.0).into(),
            ]);
        }
    }
    table
}
