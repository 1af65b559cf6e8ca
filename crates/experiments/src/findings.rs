//! Findings of an experiment: figures beside the paper's, and claims.

use crate::verdict::{Impossible, Note, Origin, Reason, Scope, Verdict};
use serde::Serialize;
use tidegate_report::Plot;

/// Better direction of a figure. The order itself does not depend on it, its description does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sense {
    /// Smaller is better: times, latencies.
    Less,
    /// Larger is better: rates, shares.
    More,
}

/// Comparison that a cell takes part in.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ordering {
    /// Subject of the comparison; cells of a table with the same subject are compared.
    pub about: String,
    /// Name of the alternative.
    pub who: String,
    /// Better direction.
    pub sense: Sense,
}

/// Figure of the paper beside ours.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Cell {
    /// Name of the paper.
    pub paper: &'static str,
    /// Number of the table, or name of the figure or section.
    pub table: String,
    /// Label of the row.
    pub row: String,
    /// Label of the column; the reference file states its unit.
    pub column: String,
    /// Figure in the paper.
    pub theirs: f64,
    /// Figure in the simulation.
    pub ours: f64,
    /// `true` if models were calibrated on this figure; all others are predicted.
    pub calibrated: bool,
    /// Contradiction in the paper that rules its figure out.
    pub cannot_hold: Option<Reason>,
    /// Comparison with other cells, where the paper is about an order.
    #[serde(skip)]
    pub ordering: Option<Ordering>,
    /// Comparisons that a contradiction rules out without the cell itself: pattern of the
    /// alternative on the other side, and the origin of the contradiction.
    #[serde(skip)]
    pub uncomparable: Vec<(String, Origin)>,
}

impl Cell {
    /// Figure that the paper states in its text, beside ours; `None` if there is no run for it.
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
            cannot_hold: None,
            ordering: None,
            uncomparable: Vec::new(),
        })
    }

    /// Ratio of our figure to the paper's.
    pub fn ratio(&self) -> f64 {
        self.ours / self.theirs
    }

    /// Returns `true` if the cell counts in a scope.
    pub fn is_in(&self, scope: Scope) -> bool {
        scope.includes(self.cannot_hold.as_ref().map(|reason| reason.from))
    }

    /// Returns `true` if our figure is within the fraction `part` of the paper's.
    pub fn is_within(&self, part: f64) -> bool {
        // A product rather than a quotient: a figure of 0 is near only to 0.
        (self.ours - self.theirs).abs() <= part * self.theirs.abs()
    }
}

/// Heading of a table. Tables are numbered; figures and sections have their own names.
pub(crate) fn heading(table: &str) -> String {
    if table.starts_with(|c: char| c.is_ascii_digit()) {
        format!("table {table}")
    } else {
        table.to_owned()
    }
}

/// Claim of the paper.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Claim {
    /// Wording of the claim.
    pub claim: String,
    /// `true` if the claim holds in the simulation.
    pub holds: bool,
    /// Figures that decide it, with its outcome in other variants where it does not hold.
    pub detail: String,
    /// Name in `claims.toml`, which claims that differ in a word share; goals of the experiment
    /// have names of their own.
    pub id: String,
    /// Table, figure or section of the paper; empty for a claim about all of them.
    pub part: String,
    /// Verdict, the same as `holds` but for claims that cannot hold.
    pub verdict: Verdict,
    /// Contradiction in the paper, for a claim that cannot hold.
    pub cannot_hold: Option<Reason>,
    /// Figures that decide it alone.
    pub outcome: String,
    /// Outcomes in other variants, for a claim that does not hold.
    pub ablations: Vec<Ablation>,
}

/// Outcome of a claim in a variant of the runs.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Ablation {
    /// Beginning of a sentence about runs in the variant.
    pub variant: String,
    /// Figures that decide the claim there.
    pub outcome: String,
    /// `true` if the claim would hold.
    pub holds: bool,
}

impl Claim {
    /// Creates a claim with its verdict and explanation.
    pub fn new(claim: impl Into<String>, holds: bool, detail: impl Into<String>) -> Claim {
        let detail = detail.into();
        Claim {
            claim: claim.into(),
            holds,
            outcome: detail.clone(),
            detail,
            id: String::new(),
            part: String::new(),
            verdict: if holds {
                Verdict::Holds
            } else {
                Verdict::DoesNotHold
            },
            cannot_hold: None,
            ablations: Vec::new(),
        }
    }

    /// Returns `true` if the claim counts in a scope.
    pub fn is_in(&self, scope: Scope) -> bool {
        scope.includes(self.cannot_hold.as_ref().map(|reason| reason.from))
    }
}

/// Findings of an experiment.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Findings {
    /// Figures, in the order of the paper.
    pub cells: Vec<Cell>,
    /// Claims, in the order of the paper.
    pub claims: Vec<Claim>,
    /// Plots of curves.
    pub plots: Vec<Plot>,
    /// Contradictions in the paper, in the order of its `claims.toml`.
    pub impossible: Vec<Impossible>,
    /// Remarks that are computed from the paper's figures.
    pub notes: Vec<Note>,
}

/// Element of the machine-readable list of findings.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(untagged)]
pub enum Entry<'a> {
    /// Object `{paper, table, row, column, theirs, ours, calibrated, cannot_hold}`.
    Cell(&'a Cell),
    /// Object `{claim, holds, detail, id, part, verdict, cannot_hold, outcome, ablations}`.
    Claim(&'a Claim),
}

impl Findings {
    /// Appends the findings of another experiment.
    pub fn append(&mut self, other: Findings) {
        self.cells.extend(other.cells);
        self.claims.extend(other.claims);
        self.plots.extend(other.plots);
        self.impossible.extend(other.impossible);
        self.notes.extend(other.notes);
    }

    /// Returns all cells, then all claims, as one list.
    pub fn entries(&self) -> Vec<Entry<'_>> {
        let cells = self.cells.iter().map(Entry::Cell);
        cells.chain(self.claims.iter().map(Entry::Claim)).collect()
    }
}

/// Number of predicted cells whose figure is within the fraction `part` of the paper's, and number
/// of all predicted cells.
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
            cannot_hold: None,
            ordering: None,
            uncomparable: Vec::new(),
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
            ..Findings::default()
        };
        assert_eq!(
            serde_json::to_value(findings.entries()).unwrap(),
            serde_json::json!([
                {"paper": "p", "table": "3", "row": "read", "column": "cfq", "theirs": 64.42,
                 "ours": 60.5, "calibrated": true, "cannot_hold": null},
                {"claim": "it is faster", "holds": false, "detail": "it is not", "id": "",
                 "part": "", "verdict": "does not hold", "cannot_hold": null,
                 "outcome": "it is not", "ablations": []},
            ])
        );
    }
}
