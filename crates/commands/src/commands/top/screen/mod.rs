//! Drawing of the screen from its state. The same state gives the same characters.

mod canvas;
mod delays;
mod devices;
mod grid;
mod help;
mod prompt;
mod transfers;
mod vm;
mod vms;
mod wrap;

use ratatui::Frame;
use ratatui::layout::{Position, Rect};
use tidegate_api::health::Severity;
use tidegate_report::{Cell, Tone};

pub(super) use canvas::Look;

use super::app::{App, Page};
use crate::commands::history;
use canvas::{Canvas, width_of};

/// Least size of a terminal that anything can be read on.
const LEAST: (u16, u16) = (30, 6);

/// Draws the whole screen. `now_ms`: the present time, from which the age of the values follows.
pub(super) fn draw(frame: &mut Frame<'_>, app: &mut App, look: Look, now_ms: u64) {
    let area = frame.area();
    let mut canvas = Canvas {
        buffer: frame.buffer_mut(),
        area,
        look,
        is_stale: false,
    };
    if area.width < LEAST.0 || area.height < LEAST.1 {
        let text = format!("needs {} x {}", LEAST.0, LEAST.1);
        canvas.text((0, 0), area.width.into(), &text, Tone::Bad);
        return;
    }
    canvas.is_stale = age_s(app, now_ms).is_some();
    header(&mut canvas, app);
    let problems = problems(app, now_ms);
    for (i, line) in problems.iter().enumerate() {
        canvas.pieces((0, 1 + i), std::slice::from_ref(line));
    }
    let above = 1 + problems.len() as u16;
    let (below, cursor) = prompt::draw(&mut canvas, app);
    let rest = area.height.saturating_sub(above + below);
    canvas.area = Rect::new(area.x, area.y + above, area.width, rest);
    match app.page {
        Page::Vms => vms::draw(&mut canvas, app),
        Page::Delays => delays::draw(&mut canvas, app),
        Page::Transfers => transfers::draw(&mut canvas, app),
        Page::Vm => vm::draw(&mut canvas, app),
        Page::Help => help::draw(&mut canvas, app),
    }
    if let Some((x, y)) = cursor {
        frame.set_cursor_position(Position::new(x, y));
    }
}

/// Returns the age of the values in seconds if they are older than they are to be.
fn age_s(app: &App, now_ms: u64) -> Option<u64> {
    let age = now_ms.saturating_sub(app.model().at_ms());
    let is_old = age > 3 * app.interval_ms.max(1000);
    let is_stale = !app.is_paused() && (app.model().failure.is_some() || is_old);
    is_stale.then_some(age / 1000)
}

/// Draws the line of the daemon: version, health, time since its start, what it serves, and the
/// time of the values.
fn header(canvas: &mut Canvas<'_>, app: &App) {
    let Some(answers) = &app.model().answers else {
        canvas.text(
            (0, 0),
            canvas.width(),
            "tidegate: no answer yet",
            Tone::Normal,
        );
        return;
    };
    let health = &answers.health;
    let version = health.version.as_deref().unwrap_or("?");
    let uptime = health
        .uptime_s
        .map_or("?".to_owned(), |s| history::span(s * 1000));
    let clock = history::time(answers.at_ms, &app.zone, false);
    let verdict = match health.status {
        Severity::Ok => Cell::from("ok").tone(Tone::Good),
        Severity::Degraded => Cell::from("degraded").tone(Tone::Warn),
        Severity::Failing => Cell::from("failing").tone(Tone::Bad),
    };
    let marks = answers.vms.iter().map(|vm| &vm.attainment);
    let missed = marks.filter(|parts| parts.iter().any(|part| part.kept == Some(false)));
    let missed = missed.count();
    let of_missed = match missed {
        0 => Cell::from("no promise missed").tone(Tone::Good),
        n => Cell::from(format!("{n} missed")).tone(Tone::Bad),
    };
    let plural = |n: usize, one: &str| format!("{n} {one}{}", if n == 1 { "" } else { "s" });
    let what = format!(
        "{}, {}",
        plural(answers.devices.len(), "device"),
        plural(answers.vms.len(), "VM")
    );
    let pieces = [
        Cell::from(format!("tidegate {version}")).tone(Tone::Strong),
        Cell::from("  "),
        // Before what a narrow terminal has no room for.
        verdict,
        Cell::from(format!("  up {uptime}  {what}, ")),
        of_missed,
    ];
    canvas.pieces((0, 0), &pieces);
    let used: usize = pieces.iter().map(|piece| width_of(piece.text())).sum();
    let right = match app.is_paused() {
        true => format!("PAUSED {clock}"),
        false => clock,
    };
    let at = canvas.width().saturating_sub(width_of(&right));
    let tone = if app.is_paused() {
        Tone::Warn
    } else {
        Tone::Normal
    };
    if at > used {
        canvas.text((at, 0), canvas.width(), &right, tone);
    }
    let room = at.saturating_sub(used + 4);
    if width_of(&app.place) <= room {
        canvas.text((used + 2, 0), room, &app.place, Tone::Faint);
    }
}

/// Returns the lines about what is wrong with the values or with the daemon.
fn problems(app: &App, now_ms: u64) -> Vec<Cell> {
    let model = app.model();
    let mut lines = Vec::new();
    if let Some(age) = age_s(app, now_ms) {
        let why = model
            .failure
            .as_deref()
            .unwrap_or("the daemon has not answered yet");
        // The first line has what is wrong; help about options is of no use here.
        let why = why.lines().next().unwrap_or_default();
        let why = why.trim_start_matches("error: ");
        let text = format!("values are {age} s old: {why}; trying again");
        lines.push(Cell::from(text).tone(Tone::Bad));
    }
    let health = model.answers.iter().map(|answers| &answers.health);
    for health in health {
        let tone = match health.status {
            Severity::Failing => Tone::Bad,
            Severity::Ok | Severity::Degraded => Tone::Warn,
        };
        if let Some(first) = health.problems.first() {
            let more = match health.problems.len() {
                1 => String::new(),
                n => format!(" (and {} more)", n - 1),
            };
            lines.push(Cell::from(format!("{first}{more}")).tone(tone));
        }
    }
    lines
}

#[cfg(test)]
mod tests;
