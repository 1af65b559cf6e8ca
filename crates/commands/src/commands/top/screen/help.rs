//! Page that explains keys and columns.

use tidegate_report::{Cell, Table, Tone};

use super::canvas::Canvas;
use super::wrap::wrap;
use crate::commands::top::app::App;

/// Keys with what they do.
const KEYS: [(&str, &str); 13] = [
    ("q, Ctrl-C", "quit"),
    ("arrows, PgUp, PgDn", "select a VM, or scroll"),
    ("Enter, Esc", "show all about the selected VM, and back"),
    (
        "e",
        "change its objective, in the options of `tidegate vm set`",
    ),
    ("v, m, t, Tab", "VMs, who delayed whom, deadline transfers"),
    ("< >, r", "sort by another column, in the other order"),
    (
        "/",
        "show only VMs with a text in name, device or objective",
    ),
    ("d", "show one device after the other"),
    ("Space, p", "pause, and go on"),
    ("Ctrl-L, Ctrl-Z", "draw anew, suspend"),
    ("?, h, F1", "this page"),
    ("", ""),
    (
        "in an objective",
        "parts left out are removed; add --force or --persist as in `vm set`",
    ),
];

/// Columns with what they mean.
const COLUMNS: [(&str, &str); 10] = [
    (
        "OBJECTIVE",
        ">= reservation, = target, <= limit, < latency, w weight, g: group",
    ),
    (
        "KEPT",
        "verdict since the objective was set; - where nothing was judged",
    ),
    (
        "IOPS, MB/S",
        "requests and megabytes per second, in the last interval",
    ),
    (
        "P50, P99",
        "latency from arrival to completion, in the last interval; of a device the time of I/Os",
    ),
    ("SHARE", "part of the time of all I/Os at the device"),
    (
        "TREND",
        "IOPS, 10 s a character, by the VM's own highest value",
    ),
    ("BUSY", "part of the last second with I/Os in flight"),
    ("IN FLIGHT", "I/Os at the device / queue depth in force"),
    ("WAITING", "requests in the scheduler, after merging"),
    (
        "values ... old",
        "the daemon does not answer; the last values stay",
    ),
];

/// Draws the page, from the line that it is scrolled to.
pub(super) fn draw(canvas: &mut Canvas<'_>, app: &mut App) {
    let style = canvas.look.colours;
    let width = canvas.width();
    let wrapped = |rows: &[(&str, &str)]| {
        let lines = table(rows).lines(style).into_iter();
        lines.flat_map(|line| wrap(line, width)).collect::<Vec<_>>()
    };
    let mut lines = vec![vec![Cell::from("Keys").tone(Tone::Strong)]];
    lines.extend(wrapped(&KEYS));
    lines.push(Vec::new());
    lines.push(vec![Cell::from("Columns").tone(Tone::Strong)]);
    lines.extend(wrapped(&COLUMNS));
    let room = canvas.height();
    app.scroll = app.scroll.min(lines.len().saturating_sub(room));
    for (y, line) in lines.iter().skip(app.scroll).take(room).enumerate() {
        canvas.pieces((0, y), line);
    }
}

fn table(rows: &[(&str, &str)]) -> Table {
    let mut table = Table::properties();
    for (name, text) in rows {
        table.property(name, *text);
    }
    table
}
