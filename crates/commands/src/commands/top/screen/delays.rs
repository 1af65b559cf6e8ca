//! Page of who delayed whom.

use std::collections::BTreeSet;

use tidegate_report::{Align, Cell, Tone};

use super::canvas::{Canvas, width_of};
use crate::commands::top::app::App;
use crate::commands::top::model::{Delayed, Delays};

/// Least width of a column of shares.
const COLUMN: usize = 8;
/// Largest width of the names of delayed VMs where shorter ones are distinct.
const NAME: usize = 20;

/// Share from which on a VM is marked as a cause of delays.
const MUCH: f64 = 0.3;

/// Draws the matrix: a row for each VM, that with most time behind others first, and a column for
/// each VM that it was behind.
pub(super) fn draw(canvas: &mut Canvas<'_>, app: &mut App) {
    let delays = &app.model().delays;
    let vms = app.rows();
    let vms: BTreeSet<&str> = vms.iter().map(|vm| vm.view.name.as_str()).collect();
    let is_shown = |row: &Delayed| vms.contains(row.vm.as_str());
    let rows: Vec<Delayed> = delays.rows().into_iter().filter(is_shown).collect();
    let culprits = Delays::culprits(&rows);
    let title = format!(
        "Behind whom: part of each VM's request time spent behind others, last {} s",
        delays.seconds()
    );
    canvas.text((0, 0), canvas.width(), &title, Tone::Strong);
    if culprits.is_empty() {
        let text = "no VM was behind another one";
        canvas.text((0, 2), canvas.width(), text, Tone::Faint);
        return;
    }
    let mark = canvas.look.ellipsis();
    let cut = app.model().names;
    let longest = rows.iter().map(|row| width_of(&row.vm)).max().unwrap_or(0);
    let names = longest
        .clamp(2, NAME.max(cut.width))
        .min(canvas.width() / 2);
    let longest = culprits
        .iter()
        .map(|name| width_of(name))
        .max()
        .unwrap_or(0);
    let column_width = longest.clamp(COLUMN, COLUMN.max(cut.width));
    let place = |i: usize| names + 1 + i * (column_width + 1);
    let count = (culprits.len()).min((canvas.width() - names) / (column_width + 1));
    let (shown, rest) = culprits.split_at(count);
    let heading = Cell::from("VM").tone(Tone::Strong);
    canvas.cell((0, 2), names, &heading, Align::Left);
    for (i, culprit) in shown.iter().enumerate() {
        let text = cut.apply(culprit, column_width, mark).into_owned();
        let heading = Cell::from(text).tone(Tone::Strong);
        canvas.cell((place(i), 2), column_width, &heading, Align::Right);
    }
    let room = canvas.height().saturating_sub(4);
    app.scroll = app.scroll.min(rows.len().saturating_sub(room));
    for (i, row) in rows.iter().skip(app.scroll).take(room).enumerate() {
        let y = 3 + i;
        let name = cut.apply(&row.vm, names, mark).into_owned();
        let name = Cell::from(name).tone(Tone::Strong);
        canvas.cell((0, y), names, &name, Align::Left);
        for (column, culprit) in shown.iter().enumerate() {
            let cell = share(app, row, culprit);
            canvas.cell((place(column), y), column_width, &cell, Align::Right);
        }
    }
    if !rest.is_empty() {
        let text = format!(
            "and {} VMs with less, for which there is no room",
            rest.len()
        );
        canvas.text(
            (0, canvas.height().saturating_sub(1)),
            canvas.width(),
            &text,
            Tone::Faint,
        );
    }
}

/// Returns a cell of the matrix; empty for a VM and itself, or a VM of another device.
fn share(app: &App, row: &Delayed, culprit: &str) -> Cell {
    let device = |name: &str| app.model().vm(name).map(|vm| vm.view.device.as_str());
    // One that was removed has no device any more.
    let is_apart = device(culprit).is_some_and(|of| device(&row.vm) != Some(of));
    if is_apart || row.vm == culprit {
        return Cell::default();
    }
    match row.share(culprit) {
        None => Cell::from("-").tone(Tone::Faint),
        Some(0.0) => Cell::from(".").tone(Tone::Faint),
        Some(share) if share < 0.01 => Cell::from("<1 %").tone(Tone::Faint),
        Some(share) => {
            let tone = if share >= MUCH {
                Tone::Bad
            } else {
                Tone::Normal
            };
            Cell::from(format!("{:.0} %", 100.0 * share)).tone(tone)
        }
    }
}
