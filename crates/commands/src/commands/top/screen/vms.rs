//! Page of devices and VMs.

use ratatui::layout::Rect;
use tidegate_report::{Cell, Tone};
use tidegate_units::human::{duration, percent, rate};

use super::canvas::Canvas;
use super::grid::{Column, first_row, fit, headings, row};
use super::{devices, transfers};
use crate::args::SortColumn;
use crate::commands::attainment;
use crate::commands::top::app::App;
use crate::commands::top::model::{NAME_LEAST, NAME_MOST, STEPS, VmRow};
use crate::objective_line;

/// Height from which on running deadline transfers have lines of their own on this page.
const HEIGHT_FOR_TRANSFERS: usize = 16;
/// Deadline transfers on this page.
const TRANSFERS: usize = 3;

/// Draws devices, VMs and the first deadline transfers. On the lowest terminals a VM comes before
/// the devices.
pub(super) fn draw(canvas: &mut Canvas<'_>, app: &mut App) {
    // Headings and a VM, with the line that says which ones.
    let least = 2 + usize::from(app.choice.is_limited());
    let used = devices::draw(canvas, app, canvas.height().saturating_sub(least));
    // A blank row.
    let used = used + usize::from(used > 0 && used + least < canvas.height());
    let whole = canvas.area;
    let running = transfers::running(app);
    let is_high = canvas.height() >= HEIGHT_FOR_TRANSFERS;
    let below = match running.len().min(TRANSFERS) {
        // A heading, and a blank row above it.
        rows @ 1.. if is_high => rows + 2,
        _ => 0,
    };
    let rest = canvas.height().saturating_sub(used + below);
    canvas.area = Rect::new(whole.x, whole.y + used as u16, whole.width, rest as u16);
    let shown = table(canvas, app);
    if below > 0 {
        let top = used + rest + 1;
        let height = (below - 1) as u16;
        canvas.area = Rect::new(whole.x, whole.y + top as u16, whole.width, height);
        transfers::table(canvas, running, 0);
    }
    canvas.area = whole;
    app.shown = shown;
}

/// Columns with the values that they are sorted by.
fn columns(app: &App) -> Vec<(Column, Option<SortColumn>)> {
    let vms = &app.model().vms;
    let longest = |text: fn(&VmRow) -> String, least: usize| {
        let lengths = vms.iter().map(|vm| super::width_of(&text(vm)));
        lengths.max().unwrap_or(0).max(least)
    };
    let name = longest(|vm| vm.view.name.clone(), 2).min(NAME_MOST);
    let name_least = app.model().names.width.max(NAME_LEAST);
    let device = longest(|vm| vm.view.device.clone(), 6).min(20);
    let objective = longest(brief, 9).min(60);
    let kept = longest(
        |vm| attainment::cell(&vm.view.attainment).text().to_owned(),
        6,
    );
    // The name of a single device is in the table above.
    let has_devices = app.model().devices.len() > 1;
    vec![
        (
            Column::left("VM", name_least, 9).up_to(name),
            Some(SortColumn::Vm),
        ),
        (
            Column::left("DEVICE", 6, 4)
                .up_to(device)
                .only_if(has_devices),
            Some(SortColumn::Device),
        ),
        (
            Column::left("OBJECTIVE", 14, 5).up_to(objective),
            Some(SortColumn::Objective),
        ),
        (
            Column::left("KEPT", 6, 8).up_to(kept.min(48)),
            Some(SortColumn::Kept),
        ),
        (Column::right("IOPS", 5, 7), Some(SortColumn::Iops)),
        (Column::right("MB/S", 5, 6), Some(SortColumn::MbPerS)),
        (Column::right("P50", 7, 2), Some(SortColumn::P50)),
        (Column::right("P99", 7, 7), Some(SortColumn::P99)),
        (Column::right("SHARE", 5, 3), Some(SortColumn::Share)),
        (Column::left("TREND", 6, 1).up_to(STEPS), None),
    ]
}

fn brief(vm: &VmRow) -> String {
    objective_line::in_brief(vm.view.background, &vm.view.objective)
}

/// Draws the VMs, with a line that says which ones and in which order, and returns those that have
/// room.
fn table(canvas: &mut Canvas<'_>, app: &App) -> Vec<String> {
    let rows = app.rows();
    let all = app.model().vms.len();
    let columns = columns(app);
    let sorted = columns
        .iter()
        .position(|(_, sort)| *sort == Some(app.choice.sort));
    let columns: Vec<Column> = columns.into_iter().map(|(column, _)| column).collect();
    let widths = fit(&columns, canvas.width());
    let mut top = 0;
    if app.choice.is_limited() {
        let device = app.choice.device.iter().map(|name| format!(" on {name}"));
        let filter = Some(&app.choice.filter).filter(|text| !text.is_empty());
        let filter = filter.iter().map(|text| format!(" with \"{text}\""));
        let what: String = device.chain(filter).collect();
        let text = format!("{} of {all} VMs{what}", rows.len());
        canvas.text((0, 0), canvas.width(), &text, Tone::Warn);
        top = 1;
    }
    headings(canvas, top, &columns, &widths, sorted);
    top += 1;
    if rows.is_empty() && !app.choice.is_limited() {
        canvas.text((0, top), canvas.width(), "no VMs are served", Tone::Faint);
    }
    let steps = widths.last().copied().flatten().unwrap_or(0);
    let selected = app.selected_index(&rows);
    let room = canvas.height().saturating_sub(top);
    let first = first_row(rows.len(), room, selected);
    for (i, vm) in rows.iter().enumerate().skip(first).take(room) {
        let y = top + i - first;
        row(
            canvas,
            y,
            &columns,
            &widths,
            &cells(canvas, app, vm, &widths, steps),
        );
        if i == selected {
            canvas.select(y);
        }
    }
    let shown = rows.iter().skip(first).take(room);
    shown.map(|vm| vm.view.name.clone()).collect()
}

/// Returns the cell of a name, which is distinct from those of other VMs.
fn name(canvas: &Canvas<'_>, app: &App, name: &str, width: Option<usize>) -> Cell {
    let cut = app.model().names;
    let text = cut.apply(name, width.unwrap_or(0), canvas.look.ellipsis());
    Cell::from(text.into_owned()).tone(Tone::Strong)
}

fn cells(
    canvas: &Canvas<'_>,
    app: &App,
    vm: &VmRow,
    widths: &[Option<usize>],
    steps: usize,
) -> [Cell; 10] {
    let rates = vm.rates.as_ref();
    let number = |value: Option<f64>| value.map_or("-".to_owned(), rate);
    let time = |ms: Option<f64>| ms.map_or("-".to_owned(), |ms| duration((ms * 1e6) as u64));
    let verdict = attainment::cell(&vm.view.attainment);
    let has_room = widths[3].is_some_and(|width| width >= super::width_of(verdict.text()));
    let history = app.model().series(&vm.view.name);
    let history = history.map(|series| series.iops(app.model().at_ms(), steps));
    [
        name(canvas, app, &vm.view.name, widths[0]),
        vm.view.device.as_str().into(),
        brief(vm).into(),
        match has_room {
            true => verdict,
            false => attainment::mark(&vm.view.attainment),
        },
        number(rates.map(|rates| rates.iops)).into(),
        number(rates.map(|rates| rates.mb_s)).into(),
        time(rates.and_then(|rates| rates.p50_ms)).into(),
        time(rates.and_then(|rates| rates.p99_ms)).into(),
        vm.share
            .map_or("-".to_owned(), |share| percent(share, 1.0))
            .into(),
        history
            .map_or(String::new(), |values| canvas.look.sparkline(&values))
            .into(),
    ]
}
