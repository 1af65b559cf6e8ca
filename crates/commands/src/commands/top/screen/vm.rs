//! Page of one VM: what it does now, its last minutes, its objective and where its time went.

use tidegate_report::{Cell, Tone};
use tidegate_units::human::{duration, percent, rate};

use super::canvas::Canvas;
use super::wrap::wrap;
use crate::commands::top::app::App;
use crate::commands::top::model::{STEPS, Series, VmRow};
use crate::commands::vm;

/// Width of the words before a sparkline.
const NAME: usize = 6;
/// Width of the figures behind a sparkline.
const FIGURES: usize = 14;

/// Draws the page, from the line that it is scrolled to.
pub(super) fn draw(canvas: &mut Canvas<'_>, app: &mut App) {
    let Some(row) = app.selected_vm() else { return };
    let name = row.view.name.clone();
    let mut lines = now(row);
    lines.push(Vec::new());
    if let Some(series) = app.model().series(&row.view.name) {
        lines.extend(sparklines(canvas, series, app.model().at_ms()));
        lines.push(Vec::new());
    }
    lines.extend(delays(app, &row.view.name));
    let style = canvas.look.colours;
    for line in vm::describe(&row.view).lines(style) {
        lines.extend(wrap(line, canvas.width()));
    }
    if let Some(stats) = app.model().stats(&row.view.name) {
        for table in vm::tables(stats) {
            lines.push(Vec::new());
            lines.extend(table.lines(style));
        }
    }
    let room = canvas.height();
    app.shown = vec![name];
    app.scroll = app.scroll.min(lines.len().saturating_sub(room));
    for (y, line) in lines.iter().skip(app.scroll).take(room).enumerate() {
        canvas.pieces((0, y), line);
    }
    if app.scroll + room < lines.len() {
        let more = format!(
            "{} more lines: arrows scroll",
            lines.len() - app.scroll - room + 1
        );
        let last = room.saturating_sub(1);
        let blank = " ".repeat(canvas.width());
        canvas.text((0, last), canvas.width(), &blank, Tone::Normal);
        canvas.text((0, last), canvas.width(), &more, Tone::Faint);
    }
}

/// Returns what the VM did in the last interval.
fn now(row: &VmRow) -> Vec<Vec<Cell>> {
    let Some(rates) = &row.rates else {
        let text = "no rates yet: two answers are needed";
        return vec![vec![Cell::from(text).tone(Tone::Faint)]];
    };
    let time = |ms: Option<f64>| ms.map_or("-".to_owned(), |ms| duration((ms * 1e6) as u64));
    let share = row
        .share
        .map_or("-".to_owned(), |share| percent(share, 1.0));
    let first = format!(
        "{} IOPS, {} MB/s, {share} of the device's time",
        rate(rates.iops),
        rate(rates.mb_s)
    );
    let second = format!(
        "p50 {}, p99 {}; p99 of waits {}, at the device {}",
        time(rates.p50_ms),
        time(rates.p99_ms),
        time(rates.queue_p99_ms),
        time(rates.device_p99_ms)
    );
    let name = Cell::from(row.view.name.as_str()).tone(Tone::Strong);
    vec![
        vec![name, Cell::from(format!(": {first}"))],
        vec![Cell::from(second)],
    ]
}

/// Returns a line of IOPS and one of latencies over the last minutes.
fn sparklines(canvas: &Canvas<'_>, series: &Series, now_ms: u64) -> Vec<Vec<Cell>> {
    let steps = canvas.width().saturating_sub(NAME + FIGURES + 2).min(STEPS);
    let line = |name: &str, values: Vec<Option<f64>>, show: fn(f64) -> String| {
        let highest = values.iter().flatten().copied().reduce(f64::max);
        let highest = highest.map_or(String::new(), |value| format!("  max {}", show(value)));
        vec![
            Cell::from(format!("{name:<NAME$} ")).tone(Tone::Faint),
            Cell::from(canvas.look.sparkline(&values)),
            Cell::from(highest),
        ]
    };
    vec![
        line("IOPS", series.iops(now_ms, steps), rate),
        line("p99", series.p99(now_ms, steps), |ns| duration(ns as u64)),
    ]
}

/// Returns the VMs that this one was behind in the last minute.
fn delays(app: &App, name: &str) -> Vec<Vec<Cell>> {
    let delays = &app.model().delays;
    let rows = delays.rows();
    let Some(row) = rows.iter().find(|row| row.vm == name) else {
        return Vec::new();
    };
    let shares = row.behind.iter().filter_map(|(culprit, _)| {
        let share = row.share(culprit).filter(|share| *share >= 0.01)?;
        Some(format!("{culprit} {}", percent(share, 1.0)))
    });
    let shares: Vec<String> = shares.take(4).collect();
    if shares.is_empty() {
        return Vec::new();
    }
    let text = format!("last {} s behind  ", delays.seconds());
    vec![
        vec![
            Cell::from(text).tone(Tone::Faint),
            Cell::from(shares.join(", ")),
        ],
        Vec::new(),
    ]
}
