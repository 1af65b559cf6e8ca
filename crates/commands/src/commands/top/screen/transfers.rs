//! Page and table of deadline transfers.

use tidegate_api::transfer::VmTransfersView;
use tidegate_report::{Cell, Tone};

use super::canvas::{Canvas, width_of};
use super::grid::{Column, fit, headings, row};
use crate::commands::top::app::App;
use crate::commands::{history, transfer};

/// Draws the page: running transfers and the last ones that ended.
pub(super) fn draw(canvas: &mut Canvas<'_>, app: &mut App) {
    let all = all(app);
    let title = "Deadline transfers: running, or the last one of each VM";
    canvas.text((0, 0), canvas.width(), title, Tone::Strong);
    if all.is_empty() {
        let text = "none since the daemon started; see `tidegate transfer start --help`";
        canvas.text((0, 2), canvas.width(), text, Tone::Faint);
        return;
    }
    let rows: Vec<[Cell; 8]> = all.iter().filter_map(|vm| row_of(app, vm)).collect();
    let room = canvas.height().saturating_sub(3);
    app.scroll = app.scroll.min(rows.len().saturating_sub(room));
    canvas.area.y += 2;
    canvas.area.height = canvas.area.height.saturating_sub(2);
    table(canvas, rows, app.scroll);
}

/// Returns the rows of transfers that run.
pub(super) fn running(app: &App) -> Vec<[Cell; 8]> {
    let running = all(app).into_iter().filter(|vm| vm.transfer.is_some());
    running.filter_map(|vm| row_of(app, vm)).collect()
}

/// Returns the row of a VM's transfer, without the date of a deadline that is today.
fn row_of(app: &App, vm: &VmTransfersView) -> Option<[Cell; 8]> {
    let mut cells = transfer::row(vm)?;
    let now = history::time(app.model().at_ms(), &app.zone, true);
    let today = now.split(' ').next().unwrap_or_default();
    let due = cells[5].text();
    if let Some(clock) = due.strip_prefix(today) {
        cells[5] = Cell::from(clock.trim_start());
    }
    Some(cells)
}

fn all(app: &App) -> Vec<&VmTransfersView> {
    let answers = app.model().answers.iter();
    let all = answers.flat_map(|answers| &answers.transfers);
    let is_shown = |vm: &&VmTransfersView| {
        let device = app.choice.device.as_ref();
        device.is_none_or(|device| vm.device == *device)
    };
    all.filter(is_shown).collect()
}

/// Draws rows of transfers from the `first` on.
pub(super) fn table(canvas: &mut Canvas<'_>, rows: Vec<[Cell; 8]>, first: usize) {
    let longest = |column: usize, least: usize| {
        let widths = rows.iter().map(|cells| width_of(cells[column].text()));
        widths.max().unwrap_or(0).max(least)
    };
    let columns = [
        Column::left("TRANSFER", longest(0, 8).min(14), 9),
        Column::left("DEVICE", 6, 1).up_to(12),
        Column::right("SIZE", 8, 6),
        Column::right("DONE", 5, 7),
        Column::right("RATE", 9, 5),
        Column::left("DEADLINE", longest(5, 8), 4),
        Column::left("I/O CLASS", 11, 0),
        Column::left("FORECAST", longest(7, 8).min(34), 8).up_to(longest(7, 8)),
    ];
    let widths = fit(&columns, canvas.width());
    headings(canvas, 0, &columns, &widths, None);
    let room = canvas.height().saturating_sub(1);
    for (i, cells) in rows.iter().skip(first).take(room).enumerate() {
        row(canvas, 1 + i, &columns, &widths, cells);
    }
}
