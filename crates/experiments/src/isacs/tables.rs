//! Figures of the simulation beside the paper's.

use super::case::{Case, Source};
use super::points::{POINTS, Point};
use super::policy::Policy;
use super::run::{CaseResult, Runs};
use crate::findings::{Ordering, Sense};
use crate::{Cell, ExperimentError, Reference, Wanted};

pub(super) const PAPER: &str = "isacs";

/// Tables with the better direction of their figures.
pub(super) const TABLES: [(&str, Sense); 7] = [
    ("3", Sense::Less),
    ("4", Sense::Less),
    ("5", Sense::More),
    ("6", Sense::More),
    ("7", Sense::More),
    ("8", Sense::More),
    ("section 5.4", Sense::Less),
];

/// Source of a cell: the runs, and the figure of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Figure {
    pub(super) case: Case,
    pub(super) is_isacs: bool,
    /// Index of the VM, where a cell is about one.
    vm: Option<usize>,
}

impl Figure {
    pub(super) fn value(&self, found: &CaseResult) -> Option<f64> {
        match (self.case, self.vm) {
            (Case::PingMixed, Some(vm)) => found.trips_ms.get(vm).copied(),
            (Case::PingHybrid(_) | Case::PingMixed, _) => Some(found.trip_ms()),
            (Case::Inside(_) | Case::NeighbourHybrid(_) | Case::NeighbourMixed(_), _) => {
                Some(found.work_s)
            }
            _ => Some(found.amount),
        }
    }
}

/// Source of the cell at a row and a column of a table.
pub(super) fn figure(table: &str, row: &str, column: &str) -> Option<Figure> {
    let hybrid = || column.strip_prefix('i')?.split_once('c')?.0.parse().ok();
    let mixed = || column.strip_prefix('m')?.parse().ok();
    let (scheduler, source) = row.split_once(' ').unwrap_or((row, ""));
    // Rows without a source are of tables without files, where it is not used.
    let source = match source {
        "urandom" => Source::Urandom,
        _ => Source::Zero,
    };
    let case = match table {
        "3" => Case::PingHybrid(column.parse().ok()?),
        "4" => Case::PingMixed,
        "5" => Case::IperfHybrid(hybrid()?),
        "6" => Case::IperfMixed(mixed()?),
        "7" => Case::DdHybrid(source, hybrid()?),
        "8" => Case::DdMixed(source, mixed()?),
        "section 5.4" => match row {
            "inside, six mixed VMs" => Case::Inside(6),
            "neighbour, hybrid" => Case::NeighbourHybrid(6),
            _ => Case::NeighbourMixed(4),
        },
        _ => return None,
    };
    let of_vm = column
        .strip_prefix("vm")
        .and_then(|n| n.parse::<usize>().ok());
    let is_isacs = match table {
        "section 5.4" => column == "isacs",
        _ => scheduler == "isacs",
    };
    Some(Figure {
        case,
        is_isacs,
        // Columns count VMs from 1.
        vm: of_vm.and_then(|n| n.checked_sub(1)),
    })
}

/// All wanted cells, in the order of the paper, with the schedulers that stand for Credit2 and
/// ISACS.
pub(super) fn cells(
    reference: &Reference,
    runs: &Runs,
    [credit2, isacs]: [Policy; 2],
    wanted: &Wanted,
) -> Result<Vec<Cell>, ExperimentError> {
    let mut cells = Vec::new();
    for (table, sense) in TABLES.into_iter().filter(|(table, _)| wanted.wants(table)) {
        let ours = |labels: &[String], column: &str| {
            let figure = figure(table, labels.first()?, column)?;
            let policy = if figure.is_isacs { isacs } else { credit2 };
            figure.value(runs.get(figure.case, policy)?)
        };
        let found = reference.table(table, 1)?.cells(PAPER, ours);
        cells.extend(found.into_iter().map(|cell| compared(cell, sense)));
    }
    Ok(cells)
}

/// Adds the comparison that a cell takes part in. Only the one cell of each experiment counts as
/// calibrated.
fn compared(mut cell: Cell, sense: Sense) -> Cell {
    let (about, who) = match cell.table.as_str() {
        "section 5.4" => (cell.row.clone(), cell.column.clone()),
        _ => match cell.row.split_once(' ') {
            Some((who, source)) => (format!("{source} {}", cell.column), who.to_owned()),
            None => (cell.column.clone(), cell.row.clone()),
        },
    };
    let is_point = |point: &Point| {
        (point.table, point.row, point.column)
            == (cell.table.as_str(), cell.row.as_str(), cell.column.as_str())
    };
    // `paper.toml` allows more cells for calibration than were used.
    cell.calibrated &= POINTS.iter().any(is_point);
    cell.ordering = Some(Ordering { about, who, sense });
    cell
}

/// All wanted cases.
pub(super) fn cases(reference: &Reference, wanted: &Wanted) -> Result<Vec<Case>, ExperimentError> {
    let mut cases = Vec::new();
    for (table, _) in TABLES.into_iter().filter(|(table, _)| wanted.wants(table)) {
        reference.table(table, 1)?.cells(PAPER, |labels, column| {
            cases.extend(figure(table, labels.first()?, column).map(|figure| figure.case));
            // Cells are walked for their labels alone; none is computed.
            None
        });
    }
    // Tables share cases, each of which is run once.
    cases.sort();
    cases.dedup();
    Ok(cases)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cell_of_the_paper_stands_for_a_run() {
        let reference = Reference::parse(super::super::setup::PAPER_TOML).expect("TOML");
        for (table, _) in TABLES {
            let table_of = reference.table(table, 1).expect("there");
            let all = table_of.cells(PAPER, |_, _| Some(0.0)).len();
            let mut known = 0;
            table_of.cells(PAPER, |labels, column| {
                known += usize::from(figure(table, &labels[0], column).is_some());
                None
            });
            assert_eq!(known, all, "table {table}");
        }
        let of = |table, row, column| figure(table, row, column).map(|f| (f.case, f.is_isacs));
        let zero = Case::DdHybrid(Source::Zero, 9);
        assert_eq!(of("7", "isacs zero", "i9c3"), Some((zero, true)));
        let urandom = Case::DdMixed(Source::Urandom, 12);
        assert_eq!(of("8", "credit2 urandom", "m12"), Some((urandom, false)));
        assert_eq!(
            of("section 5.4", "neighbour, hybrid", "isacs"),
            Some((Case::NeighbourHybrid(6), true))
        );
    }
}
