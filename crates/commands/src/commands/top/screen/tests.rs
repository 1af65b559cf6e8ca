//! Screens as they are drawn, character by character.
//!
//! `golden/*.txt` holds screens of the fixture's daemon in terminals of several sizes.
//! `TIDEGATE_BLESS=1` writes them anew, to be looked at before they are committed.

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::Buffer;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::style::Modifier;
use serde_json::json;
use tidegate_report::{Glyphs, Style};

use super::*;
use crate::commands::top::fixture;
use crate::commands::top::quantiles::Quantiles;

const LOOK: Look = Look {
    colours: Style::Plain,
    glyphs: Glyphs::Unicode,
};

/// Returns the cells of a screen that is drawn `late_ms` after its values came.
fn cells(app: &mut App, (width, height): (u16, u16), look: Look, late_ms: u64) -> Buffer {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("in memory");
    let now_ms = app.model().at_ms() + late_ms;
    let frame = terminal.draw(|frame| draw(frame, app, look, now_ms));
    frame.expect("in memory").buffer.clone()
}

/// Returns the rows of a screen without trailing blanks.
fn rows(buffer: &Buffer) -> Vec<String> {
    let row = |y| -> String {
        let mut row = String::new();
        let mut x = 0;
        while x < buffer.area.width {
            let symbol = buffer[(x, y)].symbol();
            row.push_str(symbol);
            // The cell behind a wide character is a part of it.
            x += width_of(symbol).max(1) as u16;
        }
        row.trim_end().to_owned()
    };
    (0..buffer.area.height).map(row).collect()
}

fn text(app: &mut App, size: (u16, u16)) -> String {
    rows(&cells(app, size, LOOK, 0)).join("\n") + "\n"
}

fn press(app: &mut App, keys: &str) {
    for c in keys.chars() {
        let code = match c {
            '\n' => KeyCode::Enter,
            '↓' => KeyCode::Down,
            c => KeyCode::Char(c),
        };
        app.key(KeyEvent::new(code, KeyModifiers::NONE));
    }
}

/// Compares a screen with its file.
#[track_caller]
fn compare(name: &str, drawn: &str) {
    let directory = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/src/commands/top/screen/golden"
    );
    let path = format!("{directory}/{name}.txt");
    if std::env::var_os("TIDEGATE_BLESS").is_some() {
        std::fs::write(&path, drawn).expect("the sources can be written");
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(drawn, expected, "{name}: see golden/{name}.txt");
}

#[test]
fn pages_fit_terminals_of_every_size() {
    for (page, keys) in [
        ("vms", ""),
        ("vm", "↓\n"),
        ("delays", "m"),
        ("transfers", "t"),
        ("help", "?"),
        ("edit", "↓e"),
    ] {
        for (size, columns, lines) in [("80x24", 80, 24), ("120x40", 120, 40), ("60x16", 60, 16)] {
            let mut app = fixture::app();
            press(&mut app, keys);
            compare(&format!("{page}-{size}"), &text(&mut app, (columns, lines)));
        }
    }
}

#[test]
fn a_terminal_of_any_size_is_drawn_on() {
    for keys in ["", "↓\n", "m", "t", "?", "↓e", "/oltp"] {
        for (width, height) in [
            (1, 1),
            (29, 50),
            (30, 6),
            (31, 7),
            (45, 9),
            (300, 3),
            (250, 80),
        ] {
            let mut app = fixture::app();
            press(&mut app, keys);
            app.changed(Err("error: one\n  help: two\n".repeat(9)), 0);
            let drawn = text(&mut app, (width, height));
            assert_eq!(drawn.lines().count(), usize::from(height));
        }
    }
    assert!(text(&mut fixture::app(), (20, 5)).starts_with("needs 30 x 6"));
}

#[test]
fn the_smallest_terminal_shows_the_selected_vm() {
    for (width, height) in [(30, 6), (30, 7), (30, 8), (80, 6)] {
        for devices in [1, 2] {
            let mut app = fixture::app();
            let mut answers = fixture::answers(2);
            answers.devices = vec![answers.devices[0].clone(); devices];
            app.update(Ok(answers));
            for (keys, vm) in [("", "bulk"), ("↓", "oltp"), ("/oltp\n", "oltp")] {
                press(&mut app, keys);
                let drawn = text(&mut app, (width, height));
                let is_there = drawn.lines().any(|row| row.starts_with(vm));
                assert!(is_there, "{width} x {height}, {devices}: {drawn}");
            }
        }
    }
}

#[test]
fn names_that_are_alike_are_told_apart_on_80_columns() {
    let mut app = fixture::app();
    let mut answers = fixture::answers(2);
    for (vm, name) in [(0, "customer-01234"), (1, "customer-01299")] {
        name.clone_into(&mut answers.vms[vm].name);
        name.clone_into(&mut answers.stats.vms[vm].vm);
    }
    "customer-01299".clone_into(&mut answers.stats.vms[0].waited_behind[0].vm);
    // With the column of devices there is the least room.
    let mut other = answers.devices[0].clone();
    "hdd0".clone_into(&mut other.name);
    answers.devices.push(other);
    app.update(Ok(answers));
    for (keys, heading) in [("", ""), ("m", "…1299")] {
        press(&mut app, keys);
        let drawn = text(&mut app, (80, 24));
        for end in ["34", "99"] {
            let first = |row: &str| row.chars().take(14).collect::<String>();
            let name = |row: &str| row.starts_with("custo") && first(row).contains(end);
            assert_eq!(drawn.lines().filter(|row| name(row)).count(), 1, "{drawn}");
        }
        assert!(drawn.contains(heading), "{drawn}");
    }
}

#[test]
fn the_history_of_vms_that_are_shown_is_asked_for() {
    let mut app = fixture::app();
    let mut answers = fixture::answers(2);
    let (vm, stats) = (answers.vms[1].clone(), answers.stats.vms[1].clone());
    for i in 0..5000 {
        let name = format!("vm{i:04}");
        let (mut vm, mut stats) = (vm.clone(), stats.clone());
        name.clone_into(&mut vm.name);
        name.clone_into(&mut stats.vm);
        answers.vms.push(vm);
        answers.stats.vms.push(stats);
    }
    app.update(Ok(answers));
    text(&mut app, (80, 24));
    assert!(app.shown.len() < 24, "{:?}", app.shown);
    assert!(!app.shown.is_empty());
    let shown = Quantiles::Of(app.shown.clone());
    assert_eq!(app.quantiles(), Some(shown), "buckets of no other VM");
    press(&mut app, "/vm4321\n\n");
    text(&mut app, (80, 24));
    assert_eq!(app.shown, ["vm4321"], "the page of a VM");
}

#[test]
fn what_is_wrong_with_a_device_has_a_row_where_its_column_is_too_narrow() {
    let mut app = fixture::app();
    let mut answers = fixture::answers(2);
    let wrong = json!({ "fits": false, "depth_bound": 1, "learnt": false });
    answers.devices[0].feasibility = serde_json::from_value(wrong).expect("a verdict");
    app.update(Ok(answers));
    let note = "the promises do not fit, by the profile";
    let drawn = |app: &mut App, size| rows(&cells(app, size, LOOK, 2000));
    let wide = drawn(&mut app, (140, 24));
    assert!(
        wide[2].starts_with("nvme0") && wide[2].ends_with(note),
        "{wide:?}"
    );
    let narrow = drawn(&mut app, (80, 24));
    assert!(narrow[2].starts_with("nvme0"), "{narrow:?}");
    assert!(!narrow[2].contains("the prom"), "{narrow:?}");
    assert_eq!(narrow[3], format!("  {note}"));
    assert!(
        narrow.iter().any(|row| row.starts_with("oltp")),
        "{narrow:?}"
    );
    // Without rows to spare, VMs come first.
    let low = drawn(&mut app, (80, 8));
    assert!(!low.iter().any(|row| row.contains(note)), "{low:?}");
    assert!(low.iter().any(|row| row.starts_with("bulk")), "{low:?}");
}

#[test]
fn old_values_stay_and_are_said_to_be_old() {
    let mut app = fixture::app();
    app.update(Err(
        "error: no daemon listens\n  help: start one\n".to_owned()
    ));
    let drawn = rows(&cells(&mut app, (80, 24), LOOK, 12_000));
    assert_eq!(
        drawn[1],
        "values are 12 s old: no daemon listens; trying again"
    );
    assert!(drawn.iter().any(|row| row.starts_with("oltp")), "{drawn:?}");
    let colours = Look {
        colours: Style::Colour,
        ..LOOK
    };
    let buffer = cells(&mut app, (80, 24), colours, 12_000);
    let oltp = drawn.iter().position(|row| row.starts_with("oltp"));
    let y = oltp.expect("a row") as u16;
    assert!(buffer[(0, y)].modifier.contains(Modifier::DIM));
    // A daemon that hangs gives no error, and its values get old all the same.
    let mut app = fixture::app();
    assert_ne!(rows(&cells(&mut app, (80, 24), LOOK, 9_000)), drawn);
    let hanging = rows(&cells(&mut app, (80, 24), LOOK, 9_000));
    assert!(
        hanging[1].starts_with("values are 9 s old: "),
        "{hanging:?}"
    );
    // A paused screen is old on purpose.
    press(&mut app, " ");
    let paused = rows(&cells(&mut app, (80, 24), LOOK, 9_000));
    assert!(paused[0].contains("PAUSED"), "{paused:?}");
    assert!(!paused.iter().any(|row| row.contains("old")), "{paused:?}");
}

#[test]
fn without_colours_the_selection_and_verdicts_are_seen() {
    let mut app = fixture::app();
    let buffer = cells(&mut app, (80, 24), LOOK, 0);
    let has_colour = buffer.content().iter().any(|cell| {
        cell.fg != ratatui::style::Color::Reset || cell.bg != ratatui::style::Color::Reset
    });
    assert!(!has_colour, "NO_COLOR");
    let bulk = rows(&buffer).iter().position(|row| row.starts_with("bulk"));
    let y = bulk.expect("a row") as u16;
    assert!(buffer[(0, y)].modifier.contains(Modifier::REVERSED));
    assert!(rows(&buffer)[usize::from(y)].contains("missed"));
}

#[test]
fn a_hostile_name_cannot_move_the_cursor_or_turn_a_row_around() {
    let name = "x\u{1b}[2J\u{202e}evil\nrow\u{9b}2J";
    let mut app = fixture::app();
    let mut answers = fixture::answers(2);
    name.clone_into(&mut answers.vms[0].name);
    name.clone_into(&mut answers.stats.vms[0].vm);
    name.clone_into(&mut answers.transfers[0].vm);
    let culprit = &mut answers.stats.vms[0].waited_behind[0].vm;
    name.clone_into(culprit);
    answers.devices[0].vms = vec![name.to_owned()];
    let group = tidegate_api::objective::GroupView {
        name: name.to_owned(),
        weight: 7,
    };
    answers.vms[0].objective.group = Some(group);
    app.update(Ok(answers));
    for keys in ["", "↓\n", "m", "t", "v↓e", "/\u{202e}"] {
        press(&mut app, keys);
        app.message = Some((Tone::Bad, name.to_owned()));
        let drawn = text(&mut app, (120, 40));
        let is_order = |c: char| (c.is_control() && c != '\n') || c == '\u{202e}';
        assert!(!drawn.contains(is_order), "{keys}: {drawn:?}");
        assert!(drawn.contains("evil"), "{keys}: {drawn}");
    }
}

#[test]
fn in_ascii_every_character_is_ascii() {
    let ascii = Look {
        glyphs: Glyphs::Ascii,
        ..LOOK
    };
    for keys in ["", "↓\n", "m", "t", "?", "e"] {
        let mut app = fixture::app();
        press(&mut app, keys);
        let drawn = rows(&cells(&mut app, (80, 24), ascii, 0)).join("\n");
        assert!(drawn.is_ascii(), "{keys}: {drawn}");
    }
}

#[test]
fn the_cursor_stands_where_something_is_typed() {
    let mut app = fixture::app();
    let mut terminal = Terminal::new(TestBackend::new(80, 24)).expect("in memory");
    press(&mut app, "/ol");
    let drawn = terminal.draw(|frame| draw(frame, &mut app, LOOK, 0));
    drawn.expect("in memory");
    let place = terminal.get_cursor_position().expect("in memory");
    assert_eq!((place.x, place.y), ("filter: ol".len() as u16, 23));
}
