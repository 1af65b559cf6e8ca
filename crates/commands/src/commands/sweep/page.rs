//! Report of a sweep as a page for a browser.

use std::fmt::Display;

use serde_json::Value;
use tidegate_report::{Align, Axis, Cell, Intervals, Page, Table, Tone, Unit};

use super::differences::{Compared, FIGURES, Figure, Mean, Variant, compare};
use crate::results::Key;

/// Rows of a chart of differences; further ones are in the table only.
const CHART_ROWS_MAX: usize = 40;

/// Writes the page of results, which come in the order of the command line. `seeds` names the
/// seeds, `version` the Tidegate that simulated.
pub(super) fn page(results: &[(&Key, &Value)], seeds: &str, version: &str) -> String {
    let all = compare(results);
    let mut scenarios: Vec<&str> = Vec::new();
    for compared in &all {
        if !scenarios.contains(&compared.scenario.as_str()) {
            scenarios.push(&compared.scenario);
        }
    }
    let mut page = Page::new(&match scenarios[..] {
        [one] => format!("Sweep of {one}"),
        _ => format!("Sweep of {} scenarios", scenarios.len()),
    });
    let simulations = results.len().to_string();
    let facts = [
        ("scenarios", scenarios.len().to_string()),
        ("seeds", seeds.to_owned()),
        ("simulations", simulations),
        ("simulator", format!("tidegate {version}")),
    ];
    summary(&mut page, facts);
    for (n, &scenario) in scenarios.iter().enumerate() {
        let vms = all.iter().filter(|it| it.scenario == scenario);
        let vms: Vec<&Compared> = vms.collect();
        page.section(&format!("scenario-{}", n + 1), scenario);
        page.table("", &means(&vms));
        differences(&mut page, &vms);
    }
    page.finish()
}

fn summary(page: &mut Page, facts: [(&str, String); 4]) {
    let mut table = Table::properties();
    for (name, value) in facts {
        table.property(name, value);
    }
    page.section("summary", "Summary").table("facts", &table);
    page.paragraph(
        "Means are over all seeds, with 95 % confidence intervals (Student's t). Differences are \
         taken seed by seed, because the same seed gives the same requests under each policy, and \
         their intervals are of those differences. A difference is green or orange if its interval \
         excludes zero: of twenty that do not exist, one looks so.",
    );
}

/// Formats a number with at most four significant digits.
fn number(value: f64) -> String {
    match value.abs() {
        1000.0.. => format!("{value:.0}"),
        100.0.. => format!("{value:.1}"),
        1.0.. => format!("{value:.2}"),
        0.0 => "0".to_owned(),
        small => {
            // Three significant digits: a microsecond in milliseconds is not to become zero.
            let zeros = -small.log10().floor();
            let decimals = (2.0 + zeros).clamp(3.0, 12.0) as usize;
            format!("{value:.decimals$}")
        }
    }
}

/// Formats the half width of an interval.
fn half_width(mean: Mean) -> String {
    if mean.half_width.is_finite() {
        format!(" ± {}", number(mean.half_width))
    } else {
        String::new()
    }
}

fn mean_cell(mean: Option<Mean>) -> Cell {
    match mean {
        Some(mean) => Cell::from(number(mean.mean) + &half_width(mean)),
        None => Cell::from("-"),
    }
}

/// Returns the table of means by VM and policy.
fn means(vms: &[&Compared]) -> Table {
    let columns = [("VM", Align::Left), ("POLICY", Align::Left)];
    let figures = FIGURES.iter().map(|figure| (figure.name, Align::Right));
    let last = [("PROMISES KEPT", Align::Right), ("SEEDS", Align::Right)];
    let mut table = Table::new(columns.into_iter().chain(figures).chain(last));
    for compared in vms {
        for (n, variant) in compared.variants.iter().enumerate() {
            let name = if n == 0 { compared.vm.as_str() } else { "" };
            let mut cells = vec![
                Cell::from(name).tone(Tone::Strong),
                variant.name.as_str().into(),
            ];
            cells.extend((0..FIGURES.len()).map(|figure| mean_cell(variant.mean(figure))));
            cells.push(promises(variant));
            cells.push(variant.seeds().to_string().into());
            table.row(cells);
        }
    }
    table
}

pub(super) fn promises(of: &Variant) -> Cell {
    kept_of(of.promises_kept, of.promises)
}

/// Returns how many of the promises that were judged are kept.
pub(super) fn kept_of<N: PartialEq + Default + Display>(kept: N, judged: N) -> Cell {
    if judged == N::default() {
        return Cell::from("-");
    }
    let tone = if kept == judged {
        Tone::Good
    } else {
        Tone::Bad
    };
    Cell::from(format!("{kept} of {judged}")).tone(tone)
}

/// Writes a table of the differences from the first policy, and a chart for each figure.
fn differences(page: &mut Page, vms: &[&Compared]) {
    let Some(base) = vms.iter().find_map(|it| it.variants.first()) else {
        return;
    };
    if vms.iter().all(|it| it.variants.len() < 2) {
        return;
    }
    page.heading(&format!("Differences from {}", base.name));
    let columns = [("VM", Align::Left), ("POLICY", Align::Left)];
    let figures = FIGURES.iter().map(|figure| (figure.name, Align::Right));
    let mut table = Table::new(columns.into_iter().chain(figures));
    let mut charts = FIGURES.map(|figure| {
        let name = format!("Difference of {}", figure.short);
        Intervals::new(&name, Axis::linear(name.clone(), Unit::Percent))
    });
    let mut rows = 0;
    for compared in vms {
        let Some((base, others)) = compared.variants.split_first() else {
            continue;
        };
        for (n, other) in others.iter().enumerate() {
            let name = if n == 0 { compared.vm.as_str() } else { "" };
            let mut cells = vec![
                Cell::from(name).tone(Tone::Strong),
                other.name.as_str().into(),
            ];
            for (n, figure) in FIGURES.iter().enumerate() {
                let difference = other.difference(n, base);
                cells.push(difference_cell(figure, difference));
                if rows < CHART_ROWS_MAX {
                    let label = format!("{}: {}", compared.vm, other.name);
                    add(
                        &mut charts[n],
                        label,
                        figure,
                        difference,
                        other.base_mean(n, base),
                    );
                }
            }
            table.row(cells);
            rows += 1;
        }
    }
    page.table("", &table);
    for chart in charts.iter().filter(|chart| !chart.is_empty()) {
        page.intervals(chart);
    }
    let hidden = rows.saturating_sub(CHART_ROWS_MAX);
    if hidden > 0 {
        page.paragraph(&format!("{hidden} more differences are in the table only."));
    }
}

/// Returns whether a difference is one for the better; `None` if it may as well be none.
fn better(figure: &Figure, difference: &Mean) -> Option<bool> {
    let more = difference.mean > 0.0;
    difference
        .is_clear()
        .then_some(more == figure.more_is_better)
}

fn difference_cell(figure: &Figure, difference: Option<Mean>) -> Cell {
    let Some(difference) = difference else {
        return Cell::from("-");
    };
    let sign = if difference.mean > 0.0 { "+" } else { "" };
    let text = format!(
        "{sign}{}{}",
        number(difference.mean),
        half_width(difference)
    );
    Cell::from(text).tone(match better(figure, &difference) {
        Some(true) => Tone::Good,
        Some(false) => Tone::Bad,
        None => Tone::Normal,
    })
}

/// Adds a difference to a chart, in per cent of what it differs from.
fn add(
    chart: &mut Intervals,
    label: String,
    figure: &Figure,
    difference: Option<Mean>,
    base: Option<Mean>,
) {
    let (Some(difference), Some(base)) = (difference, base.filter(|base| base.mean > 0.0)) else {
        return;
    };
    let percent = |value: f64| 100.0 * value / base.mean;
    let (mean, half) = (percent(difference.mean), percent(difference.half_width));
    let interval = half.is_finite().then_some((mean - half, mean + half));
    let sign = if mean > 0.0 { "+" } else { "" };
    let written = match interval {
        Some(_) => format!("{sign}{mean:.1} ± {half:.1} %"),
        None => format!("{sign}{mean:.1} %"),
    };
    chart.row(label, mean, interval, written, better(figure, &difference));
}
