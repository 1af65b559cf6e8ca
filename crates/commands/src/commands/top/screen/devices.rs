//! Table of devices.

use tidegate_report::{Cell, Tone};
use tidegate_units::human::{duration, rate};

use super::canvas::{Canvas, width_of};
use super::grid::{Column, fit, headings, row};
use crate::commands::device;
use crate::commands::top::app::App;
use crate::commands::top::model::DeviceRow;

/// Part of the page that devices take at most, so that VMs have room.
const MOST_OF_HEIGHT: usize = 3;

/// Place of the column of what is wrong with a device.
const NOTE: usize = 8;

/// Draws the devices in at most `rows` rows and returns the number of rows used: none if there is
/// no room for a device.
pub(super) fn draw(canvas: &mut Canvas<'_>, app: &App, rows: usize) -> usize {
    if rows < 2 {
        return 0;
    }
    let shown = app.model().devices.iter();
    let shown: Vec<&DeviceRow> = match &app.choice.device {
        None => shown.collect(),
        Some(name) => shown.filter(|row| row.view.name == *name).collect(),
    };
    let notes = shown
        .iter()
        .map(|row| width_of(device::warning(&row.view).text()));
    let columns = [
        Column::left("DEVICE", 10, 9).up_to(20),
        Column::left("POLICY", 8, 4).up_to(20),
        Column::right("IOPS", 5, 8),
        Column::right("MB/S", 5, 7),
        Column::right("BUSY", 5, 6),
        Column::right("IN FLIGHT", 9, 5),
        Column::right("WAITING", 7, 3),
        Column::right("P99", 7, 5),
        Column::left("", 10, 1).up_to(notes.max().unwrap_or(0)),
    ];
    let widths = fit(&columns, canvas.width());
    headings(canvas, 0, &columns, &widths, None);
    let room = (canvas.height() / MOST_OF_HEIGHT).clamp(1, rows - 1);
    // Rows of the table with notes that are too long for their column.
    let most = rows.min(canvas.height() / MOST_OF_HEIGHT);
    let mut used = 1;
    let mut left = shown.len().min(room);
    for row_of in shown.iter().take(room) {
        left -= 1;
        let mut cells = cells(row_of);
        let note = cells[NOTE].clone();
        let is_cut = widths[NOTE].unwrap_or(0) < width_of(note.text());
        let has_row = is_cut && used + left + 1 < most;
        if has_row {
            cells[NOTE] = Cell::default();
        }
        row(canvas, used, &columns, &widths, &cells);
        used += 1;
        if has_row {
            canvas.pieces((0, used), &[Cell::from("  "), note]);
            used += 1;
        }
    }
    if shown.len() > room && used < rows {
        let text = format!(
            "{} more devices: d shows one after the other",
            shown.len() - room
        );
        canvas.text((0, used), canvas.width(), &text, Tone::Faint);
        used += 1;
    }
    used
}

fn cells(row: &DeviceRow) -> [Cell; 9] {
    let number = |value: Option<f64>| value.map_or("-".to_owned(), rate);
    let view = &row.view;
    // The depth in force, which is the configured one unless it is adapted.
    let depth = view.adapted_depth.unwrap_or(view.depth);
    [
        Cell::from(view.name.as_str()).tone(Tone::Strong),
        view.policy.name.as_str().into(),
        number(row.iops).into(),
        number(row.mb_s).into(),
        row.busy_percent
            .map_or("-".to_owned(), |percent| format!("{percent:.0} %"))
            .into(),
        format!("{} / {depth}", view.in_flight).into(),
        view.queued.to_string().into(),
        row.p99_ns.map_or("-".to_owned(), duration).into(),
        device::warning(view),
    ]
}
