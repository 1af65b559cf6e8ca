//! Bottom of the screen: keys, a line that is being typed, and results of changes.

use tidegate_report::{Cell, Tone, printable_line};

use super::canvas::{Canvas, width_of};
use super::wrap::fill;
use crate::commands::top::app::{App, Page, Prompt};
use crate::commands::top::line::Line;
use crate::shell::quoted;

/// Lines that a result or a line that is typed take at most.
const MOST: usize = 6;

/// Draws the bottom of the screen. Returns the number of rows used, and the place of the cursor
/// where something is typed.
pub(super) fn draw(canvas: &mut Canvas<'_>, app: &App) -> (u16, Option<(u16, u16)>) {
    let width = canvas.width();
    let mut lines: Vec<Cell> = Vec::new();
    if let Some((tone, text)) = &app.message {
        let text = text.lines().flat_map(|line| fill(line, width));
        lines.extend(text.map(|line| Cell::from(line).tone(*tone)).take(MOST));
    }
    let mut cursor = None;
    match &app.prompt {
        Prompt::None => lines.push(Cell::from(keys(app.page, width)).tone(Tone::Faint)),
        Prompt::Filter(line) => {
            cursor = Some(typed("filter: ", line, width, &mut lines));
        }
        Prompt::Objective { edit, is_sent } => {
            let (hint, tone) = if *is_sent {
                ("sent; waiting for the daemon", Tone::Warn)
            } else {
                (
                    "Enter applies, Esc leaves; parts left out are removed",
                    Tone::Faint,
                )
            };
            lines.push(Cell::from(hint).tone(tone));
            let name = quoted(&edit.vm);
            cursor = Some(typed(
                &format!("vm set {name} "),
                &edit.line,
                width,
                &mut lines,
            ));
        }
    }
    // Where all of it has no room, its end has the line that is typed.
    let used = lines.len().min(canvas.height().saturating_sub(1));
    let skipped = lines.len() - used;
    let top = canvas.height() - used;
    for (i, line) in lines.iter().skip(skipped).enumerate() {
        canvas.text((0, top + i), width, line.text(), line.tone_of());
    }
    let at = cursor.and_then(|(x, line): (usize, usize)| {
        let y = (top + line).checked_sub(skipped)?;
        Some((canvas.area.x + x as u16, canvas.area.y + y as u16))
    });
    (used as u16, at)
}

/// Appends a line that is typed, in as many rows as it takes, and returns the cursor's column and
/// row among `lines`.
fn typed(label: &str, line: &Line, width: usize, lines: &mut Vec<Cell>) -> (usize, usize) {
    let whole = format!("{label}{}", line.text());
    let before = format!("{label}{}", line.before());
    // Characters that would be orders to the terminal are longer as they are shown.
    let (whole, before) = (printable_line(&whole), printable_line(&before));
    let rows = chunks(&format!("{whole} "), width);
    let first = lines.len();
    lines.extend(
        rows.into_iter()
            .map(|row| Cell::from(row).tone(Tone::Strong)),
    );
    let mut ends = chunks(&format!("{before} "), width);
    // The last row ends with the blank that stands for the cursor.
    let last = ends.pop().unwrap_or_default();
    (width_of(&last).saturating_sub(1), first + ends.len())
}

/// Divides text into rows of at most `width` columns.
fn chunks(text: &str, width: usize) -> Vec<String> {
    let mut rows = vec![String::new()];
    let mut used = 0;
    for c in text.chars() {
        let own = width_of(c.encode_utf8(&mut [0; 4]));
        if used + own > width {
            rows.push(String::new());
            used = 0;
        }
        used += own;
        if let Some(row) = rows.last_mut() {
            row.push(c);
        }
    }
    rows
}

/// Returns the most important keys of a page, as many as fit.
fn keys(page: Page, width: usize) -> String {
    let keys: &[&str] = match page {
        Page::Vms => &[
            "? help",
            "q quit",
            "Enter show",
            "e objective",
            "/ filter",
            "< > sort",
            "m delays",
            "t transfers",
            "Space pause",
            "d device",
        ],
        Page::Vm => &[
            "Esc back",
            "e objective",
            "arrows scroll",
            "Space pause",
            "? help",
            "q quit",
        ],
        Page::Delays | Page::Transfers => &[
            "Esc back",
            "Tab next",
            "arrows scroll",
            "d device",
            "Space pause",
            "? help",
            "q quit",
        ],
        Page::Help => &["Esc back", "arrows scroll", "q quit"],
    };
    let mut text = String::new();
    for key in keys {
        let gap = if text.is_empty() { 0 } else { 2 };
        if width_of(&text) + gap + width_of(key) <= width {
            text.push_str(&" ".repeat(gap));
            text.push_str(key);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_line_takes_several_rows_and_the_cursor_is_in_its_row() {
        let cursor = |text: &str| {
            let mut lines = Vec::new();
            let at = typed("set ", &Line::new(text), 10, &mut lines);
            let rows: Vec<String> = lines.iter().map(|line| line.text().to_owned()).collect();
            (at, rows)
        };
        assert_eq!(cursor("abc"), ((7, 0), vec!["set abc ".to_owned()]));
        let (at, rows) = cursor("abcdefgh");
        assert_eq!((at, rows.len()), ((2, 1), 2));
        assert_eq!(rows[0], "set abcdef");
        let (at, rows) = cursor("abcdef");
        assert_eq!(
            (at, rows.len()),
            ((0, 1), 2),
            "the cursor in a row of its own"
        );
    }

    #[test]
    fn keys_that_fit_are_shown() {
        assert_eq!(keys(Page::Help, 80), "Esc back  arrows scroll  q quit");
        assert_eq!(keys(Page::Help, 20), "Esc back  q quit");
        assert!(width_of(&keys(Page::Vms, 80)) <= 80);
    }
}
