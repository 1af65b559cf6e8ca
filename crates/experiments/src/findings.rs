//! What an experiment found: figures beside the paper's, and claims.

use serde::Serialize;
use tidegate_report::Plot;

/// Which way a figure is better; an order needs none, but people who read about it do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sense {
    /// Times, latencies.
    Less,
    /// Rates, shares that are to be large.
    More,
}

/// What a cell competes in.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Contest {
    /// What is compared; all cells of a table that share it are.
    pub about: String,
    /// Who competes.
    pub who: String,
    /// Which way is better.
    pub sense: Sense,
}

/// A figure of the paper and ours.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Cell {
    /// Which paper.
    pub paper: &'static str,
    /// Which of its tables, or the figure or section that has it.
    pub table: String,
    /// Which row.
    pub row: String,
    /// Which column; the reference file says its unit.
    pub column: String,
    /// What the paper has.
    pub theirs: f64,
    /// What the simulation has.
    pub ours: f64,
    /// The models were calibrated on it; all others are predicted.
    pub calibrated: bool,
    /// Who it is compared with, where order is what the paper is about.
    #[serde(skip)]
    pub contest: Option<Contest>,
}

impl Cell {
    /// A figure of a paper that stands in its text, and ours if there is one.
    pub(crate) fn stated(
        paper: &'static str,
        [table, row, column]: [&str; 3],
        theirs: f64,
        ours: Option<f64>,
    ) -> Option<Cell> {
        Some(Cell {
            paper,
            table: table.to_owned(),
            row: row.to_owned(),
            column: column.to_owned(),
            theirs,
            ours: ours?,
            calibrated: false,
            contest: None,
        })
    }

    /// Ours as a multiple of theirs.
    pub fn ratio(&self) -> f64 {
        self.ours / self.theirs
    }

    /// Whether ours is within `part` of theirs.
    pub fn is_within(&self, part: f64) -> bool {
        (self.ours - self.theirs).abs() <= part * self.theirs.abs()
    }
}

/// A table by its name: tables are numbered, figures and sections named.
pub(crate) fn heading(table: &str) -> String {
    if table.starts_with(|c: char| c.is_ascii_digit()) {
        format!("table {table}")
    } else {
        table.to_owned()
    }
}

/// Something the paper says.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Claim {
    /// What.
    pub claim: String,
    /// Whether it is so in the simulation.
    pub holds: bool,
    /// Why one thinks so, in a sentence.
    pub detail: String,
}

impl Claim {
    /// That `claim` holds, or does not.
    pub fn new(claim: impl Into<String>, holds: bool, detail: impl Into<String>) -> Claim {
        Claim {
            claim: claim.into(),
            holds,
            detail: detail.into(),
        }
    }
}

/// All that an experiment found.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Findings {
    /// Figures, in the order of the paper.
    pub cells: Vec<Cell>,
    /// Claims, in the order of the paper.
    pub claims: Vec<Claim>,
    /// Curves, for people.
    pub plots: Vec<Plot>,
}

/// An element of the list that machines are given.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(untagged)]
pub enum Entry<'a> {
    /// `{paper, table, row, column, theirs, ours, calibrated}`
    Cell(&'a Cell),
    /// `{claim, holds, detail}`
    Claim(&'a Claim),
}

impl Findings {
    /// The findings of one experiment and then those of another.
    pub fn append(&mut self, other: Findings) {
        self.cells.extend(other.cells);
        self.claims.extend(other.claims);
        self.plots.extend(other.plots);
    }

    /// Everything as one list: cells, then claims.
    pub fn entries(&self) -> Vec<Entry<'_>> {
        let cells = self.cells.iter().map(Entry::Cell);
        cells.chain(self.claims.iter().map(Entry::Claim)).collect()
    }
}

/// How many of the predicted ones among `cells` are within `part` of the paper's, and of how many.
pub fn within<'a>(cells: impl IntoIterator<Item = &'a Cell>, part: f64) -> (usize, usize) {
    let predicted = cells.into_iter().filter(|cell| !cell.calibrated);
    predicted.fold((0, 0), |(near, all), cell| {
        (near + usize::from(cell.is_within(part)), all + 1)
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn cell(theirs: f64, ours: f64, calibrated: bool) -> Cell {
        Cell {
            paper: "p",
            table: "3".to_owned(),
            row: "read".to_owned(),
            column: "cfq".to_owned(),
            theirs,
            ours,
            calibrated,
            contest: None,
        }
    }

    #[test]
    fn only_what_was_predicted_counts() {
        let cells = [
            cell(100.0, 115.0, false),
            cell(100.0, 84.9, false),
            cell(100.0, 100.0, true),
        ];
        assert_eq!(within(&cells, 0.15), (1, 2));
    }

    #[test]
    fn machines_get_one_list() {
        let findings = Findings {
            cells: vec![cell(64.42, 60.5, true)],
            claims: vec![Claim::new("it is faster", false, "it is not")],
            plots: Vec::new(),
        };
        assert_eq!(
            serde_json::to_value(findings.entries()).unwrap(),
            serde_json::json!([
                {"paper": "p", "table": "3", "row": "read", "column": "cfq", "theirs": 64.42,
                 "ours": 60.5, "calibrated": true},
                {"claim": "it is faster", "holds": false, "detail": "it is not"},
            ])
        );
    }
}
