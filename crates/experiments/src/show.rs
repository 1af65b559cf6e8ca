//! Findings as tables for the terminal.

use crate::findings::{Cell, Findings, heading, within};
use tidegate_report::{Align, Cell as Shown, Table, Tone};

/// Largest deviation from the paper, as a fraction, at which a predicted figure is not marked.
const NEAR_DEVIATION: f64 = 0.15;

/// Figures, grouped by the paper's tables.
pub fn tables(findings: &Findings) -> Table {
    let mut table = Table::new([
        ("ROW", Align::Left),
        ("COLUMN", Align::Left),
        ("THEIRS", Align::Right),
        ("OURS", Align::Right),
        ("RATIO", Align::Right),
        ("", Align::Left),
    ]);
    let mut before = "";
    for cell in &findings.cells {
        if cell.table != before {
            before = &cell.table;
            table.line(Shown::from(heading(&cell.table)).tone(Tone::Strong));
        }
        table.row(row(cell));
    }
    table
}

fn row(cell: &Cell) -> [Shown; 6] {
    let ratio = cell.ratio();
    // A figure of 0 in the paper has no ratio.
    let shown = if ratio.is_finite() {
        Shown::from(format!("{ratio:.2}"))
    } else {
        "-".into()
    };
    let tone = match (cell.calibrated, cell.is_within(NEAR_DEVIATION)) {
        (true, _) => Tone::Faint,
        (false, true) => Tone::Good,
        (false, false) => Tone::Bad,
    };
    [
        cell.row.as_str().into(),
        cell.column.as_str().into(),
        figure(cell.theirs).into(),
        figure(cell.ours).into(),
        shown.tone(tone),
        (if cell.calibrated {
            "calibrated"
        } else {
            "predicted"
        })
        .into(),
    ]
}

fn figure(value: f64) -> String {
    match value.abs() {
        // Five digits at most, as papers print them.
        1000.0.. => format!("{value:.0}"),
        100.0.. => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// Claims with their verdicts.
pub fn claims(findings: &Findings) -> Table {
    let mut table = Table::new([("CLAIM", Align::Left), ("", Align::Left)]);
    for claim in &findings.claims {
        let verdict = if claim.holds {
            Shown::from("holds").tone(Tone::Good)
        } else {
            Shown::from("does not hold").tone(Tone::Bad)
        };
        table.row([claim.claim.as_str().into(), verdict]);
        table.line(format!("    {}", claim.detail));
    }
    table
}

/// Summary in one line.
pub fn summary(findings: &Findings) -> String {
    let (near, all) = within(&findings.cells, NEAR_DEVIATION);
    let held = findings.claims.iter().filter(|claim| claim.holds).count();
    format!(
        "{near} of {all} predicted figures are within 15 %; {held} of {} claims hold",
        findings.claims.len()
    )
}
