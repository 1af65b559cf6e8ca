//! Contradictions in a paper: what cannot hold by its own figures.
//!
//! ```toml
//! [[impossible]]
//! id = "thirds"                      # unique in the file
//! from = "fidelity"                  # or "own": counted apart
//! claims = [{ id = "shares" }]       # with claim = "*VM2*": those of the id with such words
//! cells = [{ table = "figure 10", row = "vm1", column = "*" }]
//! comparisons = [{ table = "3", row = "*", column = "cfq", against = "edf" }]
//! with = { used = "theirs(figure 10, vm1, iops) / paper(alone)" }
//! contradiction = [{ below = "used", than = 0.95 }]
//! why = "the disk is used to {100 * used:.0} %"    # no full stop
//! ```
//!
//! `contradiction` has the tests of claims; where all of them pass, the contradiction is shown.
//! Expressions are over the paper's figures alone, so that the verdict does not depend on any run.
//! A cell that is covered takes its comparisons with it, `comparisons` covers these alone.

use super::comparison::Test;
use super::expression::{Call, Measures, Series};
use super::measure::Printed;
use super::words::Words;
use super::{FILE, NoteSpec};
use crate::claim_result::ClaimResult;
use crate::pattern::fits;
use crate::verdict::{Impossible, Note, Origin, Reason, Verdict};
use crate::{Cell, Claim, ExperimentError, Reference};

/// Section `[[impossible]]` of `claims.toml`.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct ImpossibleSpec {
    pub(super) id: String,
    pub(super) from: Origin,
    pub(super) claims: Vec<ClaimPattern>,
    pub(super) cells: Vec<CellPattern>,
    /// Comparisons of cells, each with the pattern of the alternative on the other side.
    pub(super) comparisons: Vec<(CellPattern, String)>,
    pub(super) contradiction: Vec<Test>,
    pub(super) why: Words,
}

/// Claims by their id and words; `*` at either end of the words stands for any text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct ClaimPattern {
    pub(super) id: String,
    pub(super) claim: String,
}

/// Cells by patterns of their place.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct CellPattern {
    pub(super) table: String,
    pub(super) row: String,
    pub(super) column: String,
}

impl CellPattern {
    fn covers(&self, cell: &Cell) -> bool {
        fits(&self.table, &cell.table)
            && fits(&self.row, &cell.row)
            && fits(&self.column, &cell.column)
    }

    fn words(&self) -> String {
        let table = crate::findings::heading(&self.table);
        format!("{table} {}, {}", self.row, self.column)
    }
}

impl ImpossibleSpec {
    /// Covered claims, cells and comparisons in words.
    fn covers(&self) -> String {
        let claims = self.claims.iter().map(|of| match of.claim.as_str() {
            "*" => format!("claim {}", of.id),
            words => format!("claim {} ({words})", of.id),
        });
        let cells = self.cells.iter().map(CellPattern::words);
        let comparisons = self.comparisons.iter().map(|(cell, against)| {
            let cell = cell.words();
            format!("comparisons of {cell} with {against}")
        });
        let all: Vec<String> = claims.chain(cells).chain(comparisons).collect();
        all.join("; ")
    }
}

/// Contradictions of a paper with their outcome.
#[derive(Debug, Default)]
pub(crate) struct Impossibles(Vec<(ImpossibleSpec, Impossible)>);

impl Impossibles {
    /// Evaluates contradictions with the paper's figures.
    ///
    /// # Errors
    /// Fails when an expression names anything but the paper's figures, or one that is not there.
    pub(crate) fn evaluate(
        specs: Vec<ImpossibleSpec>,
        reference: &Reference,
    ) -> Result<Impossibles, ExperimentError> {
        let figures = PaperFigures(reference);
        let evaluated = |spec: ImpossibleSpec| {
            let missing = || {
                let what = format!("{}: the paper has no such figures", spec.id);
                ExperimentError::data(FILE, what)
            };
            let (mut shown, mut first) = (true, None);
            for test in &spec.contradiction {
                let outcome = test.outcome(&figures)?.ok_or_else(missing)?;
                shown &= outcome.holds;
                first.get_or_insert(outcome.items);
            }
            let items = first.unwrap_or_default();
            let why = spec.why.text(&figures, &items)?.ok_or_else(missing)?;
            let impossible = Impossible {
                reason: Reason {
                    id: spec.id.clone(),
                    from: spec.from,
                    arithmetic: why,
                },
                shown,
                covers: spec.covers(),
            };
            Ok((spec, impossible))
        };
        let all: Result<Vec<_>, ExperimentError> = specs.into_iter().map(evaluated).collect();
        Ok(Impossibles(all?))
    }

    /// Contradictions that are shown; those of the second reading first.
    fn shown(&self) -> impl Iterator<Item = (&ImpossibleSpec, &Reason)> {
        [Origin::Fidelity, Origin::Own]
            .into_iter()
            .flat_map(|from| {
                let of_it =
                    move |of: &&(ImpossibleSpec, Impossible)| of.1.shown && of.0.from == from;
                let all = self.0.iter().filter(of_it);
                all.map(|(spec, impossible)| (spec, &impossible.reason))
            })
    }

    /// Marks the cells that are covered, and those whose comparisons are.
    pub(crate) fn mark(&self, mut cells: Vec<Cell>) -> Vec<Cell> {
        for cell in &mut cells {
            let mut uncomparable = Vec::new();
            for (spec, reason) in self.shown() {
                if cell.cannot_hold.is_none() && spec.cells.iter().any(|of| of.covers(cell)) {
                    cell.cannot_hold = Some(reason.clone());
                }
                for (_, against) in spec.comparisons.iter().filter(|(of, _)| of.covers(cell)) {
                    uncomparable.push((against.clone(), reason.from));
                }
            }
            cell.uncomparable = uncomparable;
        }
        cells
    }

    /// Completes a claim with its verdict: one that holds here holds, whatever contradicts it.
    pub(crate) fn judge(&self, mut claim: Claim) -> Claim {
        let covers = |spec: &ImpossibleSpec| {
            let mut patterns = spec.claims.iter();
            patterns.any(|of| of.id == claim.id && fits(&of.claim, &claim.claim))
        };
        let covering = self.shown().find(|(spec, _)| covers(spec));
        if let Some((_, reason)) = covering.filter(|_| !claim.holds) {
            claim.verdict = Verdict::CannotHold;
            claim.cannot_hold = Some(reason.clone());
        }
        claim
    }

    /// Judges all claims, each with its outcome in other variants.
    pub(crate) fn judge_all(
        &self,
        claims: impl IntoIterator<Item = ClaimResult>,
        others: &[(String, Vec<ClaimResult>)],
    ) -> Vec<Claim> {
        let claims = claims.into_iter();
        let claims = claims.map(|result| self.judge(result.with_ablations(others)));
        claims.collect()
    }

    /// Contradictions in the order of the file.
    pub(crate) fn into_results(self) -> Vec<Impossible> {
        self.0
            .into_iter()
            .map(|(_, impossible)| impossible)
            .collect()
    }

    /// Checks that every contradiction is shown and covers something that there is: `ids` are those
    /// of the claims, `parts` the tables.
    #[cfg(test)]
    pub(crate) fn are_sound(&self, ids: &[&str], parts: &[&str], reference: &Reference) {
        for (spec, impossible) in &self.0 {
            let id = &spec.id;
            assert!(impossible.shown, "{id} is not shown: {impossible:?}");
            assert!(!impossible.covers.is_empty(), "{id} covers nothing");
            for claim in &spec.claims {
                assert!(ids.contains(&claim.id.as_str()), "{id}: no claim {claim:?}");
            }
            let comparisons = spec.comparisons.iter().map(|(cell, _)| cell);
            for cell in spec.cells.iter().chain(comparisons) {
                let of_table = parts.iter().filter(|part| fits(&cell.table, part));
                let mut cells = of_table.flat_map(|part| {
                    // Figures of the text have no table: a part without one has to do.
                    reference.cells(part).unwrap_or_default()
                });
                assert!(cells.any(|of| cell.covers(&of)), "{id}: no cell {cell:?}");
            }
        }
    }
}

/// Evaluates notes with the paper's figures.
///
/// # Errors
/// Fails when an expression names anything but the paper's figures, or one that is not there.
pub(crate) fn notes(
    specs: Vec<NoteSpec>,
    reference: &Reference,
) -> Result<Vec<Note>, ExperimentError> {
    let evaluated = |spec: NoteSpec| {
        let text = spec.text.text(&PaperFigures(reference), &[])?;
        let missing = || ExperimentError::data(FILE, format!("{}: no such figures", spec.id));
        Ok(Note {
            text: text.ok_or_else(missing)?,
            id: spec.id,
            part: spec.part,
        })
    };
    specs.into_iter().map(evaluated).collect()
}

/// Figures of the paper alone, as measures.
struct PaperFigures<'a>(&'a Reference);

impl Measures for PaperFigures<'_> {
    fn measure(&self, call: &Call) -> Result<Option<Series>, ExperimentError> {
        match Printed::from_call(call) {
            Some(printed) if printed.is_theirs() => {
                printed.series(self.0, |table| self.0.cells(table))
            }
            _ => Err(ExperimentError::data(
                FILE,
                format!(
                    "`{}` is no figure of the paper: there are paper(PATH) and \
                     theirs(TABLE, ROW, COLUMN)",
                    call.name
                ),
            )),
        }
    }
}
