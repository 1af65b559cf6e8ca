//! Comparisons of ISACS with Credit2, and figures of them that `claims.toml` names.

use super::case::Case;
use super::policy::Policy;
use super::run::Runs;
use super::tables::figure;
use crate::claim::{self, Call, ClaimSpec, Item, Measure, Measures, Series, Subject, series};
use crate::claim_result::ClaimResult;
use crate::findings::{Sense, heading};
use crate::{Cell, ExperimentError, Reference, Wanted, folder};
use std::collections::BTreeMap;

/// Text of the paper's claims.
pub(super) const CLAIMS: &str = folder::embedded!("isacs", "claims.toml");

/// Part of the claims about all tables of I/O together.
const EVERY_TABLE: &str = "tables 3 to 8";
/// Part of the paper about fixed work instead of I/O.
const FIXED_WORK: &str = "section 5.4";
/// Gain or loss, as a fraction, up to which two figures count as equal; `claims.toml` uses it as
/// the tolerated loss.
const EQUAL_WITHIN: f64 = 0.01;

/// Part of its time from which on a client or a disk counts as busy without a break.
const BUSY: f64 = 0.97;

/// Source of a figure.
#[derive(Clone, Copy)]
enum Source {
    Paper,
    Simulation,
}

impl Source {
    /// Words of `claims.toml` for the sources.
    const WORDS: &[&str] = &["ours", "theirs"];

    fn from_word(word: &str) -> Source {
        match word {
            "theirs" => Source::Paper,
            _ => Source::Simulation,
        }
    }
}

/// Comparison of Credit2 with ISACS in the paper and in the simulation.
struct Pair<'a> {
    table: &'a str,
    /// Case that the cells are about.
    case: Case,
    /// Subject of the comparison, such as a row of the table.
    about: &'a str,
    sense: Sense,
    /// Figures of the paper: Credit2's and ISACS's.
    theirs: [f64; 2],
    /// Simulated figures: Credit2's and ISACS's.
    ours: [f64; 2],
}

impl Pair<'_> {
    /// Fraction by which ISACS is better than Credit2.
    fn gain([credit2, isacs]: [f64; 2], sense: Sense) -> f64 {
        match sense {
            Sense::More => isacs / credit2 - 1.0,
            Sense::Less => 1.0 - isacs / credit2,
        }
    }

    fn their_gain(&self) -> f64 {
        Pair::gain(self.theirs, self.sense)
    }

    fn our_gain(&self) -> f64 {
        Pair::gain(self.ours, self.sense)
    }

    /// Returns whether both are equal within [`EQUAL_WITHIN`] in the simulation.
    fn is_tied(&self) -> bool {
        (-EQUAL_WITHIN..=EQUAL_WITHIN).contains(&self.our_gain())
    }

    fn name(&self) -> String {
        format!("{}, {}", heading(self.table), self.about)
    }

    /// Name with both gains: `table 3, row 1: 30 % (paper: 32 %)`.
    fn name_with_gains(&self) -> String {
        let percent = |part: f64| format!("{:.0} %", 100.0 * part);
        let (ours, theirs) = (percent(self.our_gain()), percent(self.their_gain()));
        format!("{}: {ours} (paper: {theirs})", self.name())
    }

    fn item(&self, source: Source) -> Item {
        let value = match source {
            Source::Paper => self.their_gain(),
            Source::Simulation => self.our_gain(),
        };
        Item {
            label: self.name(),
            value,
        }
    }
}

/// Results of two schedulers that are compared.
pub(super) struct Compared<'a> {
    pub(super) reference: &'a Reference,
    pub(super) runs: &'a Runs,
    /// Credit2 or the policy in its place, and ISACS or the policy in its place.
    pub(super) policies: [Policy; 2],
    /// Cells of the wanted tables under these schedulers.
    pub(super) cells: &'a [Cell],
}

/// Experiments as a subject of claims.
struct Isacs;

impl Subject for Isacs {
    type Results<'a> = Compared<'a>;
}

const MEASURES: &[Measure<Isacs>] = &[
    // Fraction by which ISACS is better than Credit2 in each cell of tables 3 to 8, or in those
    // where the paper has it better.
    Measure {
        name: "gain",
        arguments: &[&["every cell", "better in the paper"], Source::WORDS],
        evaluate: |compared, arguments| {
            let all = compared.io().into_iter();
            let is_better = |pair: &Pair<'_>| pair.their_gain() > 0.0;
            let wanted = all.filter(|pair| arguments[0] == "every cell" || is_better(pair));
            Some(
                wanted
                    .map(|pair| pair.item(Source::from_word(arguments[1])))
                    .collect(),
            )
        },
    },
    // Simulated gain in each cell of tables 3 to 8, labelled with both gains.
    Measure {
        name: "told_gain",
        arguments: &[],
        evaluate: |compared, _| {
            let item = |pair: Pair<'_>| Item {
                label: pair.name_with_gains(),
                value: pair.our_gain(),
            };
            Some(compared.io().into_iter().map(item).collect())
        },
    },
    // Gain in percent in each cell that is the same under both, labelled with the cause for which
    // no scheduler could change it; and whether there is one, 1 or 0.
    Measure {
        name: "tied",
        arguments: &[&["gain", "bound"]],
        evaluate: |compared, arguments| {
            let all = compared.io();
            let tied = all.iter().filter(|pair| pair.is_tied());
            let item = |pair: &Pair<'_>| match (compared.bound(pair.case), arguments[0]) {
                (Some(cause), "gain") => Item {
                    label: format!("{}: {cause}", pair.name()),
                    value: 100.0 * pair.our_gain(),
                },
                (None, "gain") => Item {
                    label: pair.name(),
                    value: 100.0 * pair.our_gain(),
                },
                (cause, _) => Item {
                    label: pair.name(),
                    value: f64::from(u8::from(cause.is_some())),
                },
            };
            (!all.is_empty()).then(|| tied.map(item).collect())
        },
    },
    // Number of cells of tables 3 to 8 in which ISACS is better or worse than Credit2 by more than
    // [`EQUAL_WITHIN`], or neither.
    Measure {
        name: "cells",
        arguments: &[&["better", "worse", "same"]],
        evaluate: |compared, arguments| {
            compared
                .count(arguments[0])
                .map(|count| series([count as f64]))
        },
    },
    // The longest round trip of all rounds, in ms.
    Measure {
        name: "longest_ms",
        arguments: &[&["hybrid", "mixed"], &["credit2", "isacs"]],
        evaluate: |compared, arguments| {
            let case = match arguments[0] {
                "hybrid" => Case::PingHybrid(3),
                _ => Case::PingMixed,
            };
            let policy = compared.policies[usize::from(arguments[1] == "isacs")];
            Some(series([compared.runs.get(case, policy)?.longest_ms]))
        },
    },
];

impl Compared<'_> {
    /// Comparisons of both schedulers in the tables of I/O, in the order of their names.
    fn io(&self) -> Vec<Pair<'_>> {
        let mut pairs: BTreeMap<(&str, &str), [Option<&Cell>; 2]> = BTreeMap::new();
        for cell in self.cells.iter().filter(|cell| cell.table != FIXED_WORK) {
            if let Some(ordering) = &cell.ordering {
                let key = (cell.table.as_str(), ordering.about.as_str());
                let both = pairs.entry(key).or_default();
                // Index 1 is ISACS's, as in `policies`.
                both[usize::from(ordering.who == "isacs")] = Some(cell);
            }
        }
        let pair = |((table, about), both)| {
            let [Some(credit2), Some(isacs)]: [Option<&Cell>; 2] = both else {
                return None;
            };
            Some(Pair {
                table,
                case: figure(table, &isacs.row, &isacs.column)?.case,
                about,
                sense: isacs.ordering.as_ref()?.sense,
                theirs: [credit2.theirs, isacs.theirs],
                ours: [credit2.ours, isacs.ours],
            })
        };
        pairs.into_iter().filter_map(pair).collect()
    }

    /// Number of cells of a kind; `None` if there are no cells.
    fn count(&self, kind: &str) -> Option<usize> {
        let all = self.io();
        let is = |pair: &&Pair<'_>| match kind {
            "better" => pair.our_gain() > EQUAL_WITHIN,
            "worse" => pair.our_gain() < -EQUAL_WITHIN,
            // `measure` has let only the three words through.
            _ => pair.is_tied(),
        };
        (!all.is_empty()).then(|| all.iter().filter(is).count())
    }

    /// Cause for which a case is the same under all schedulers, in any order of vCPUs.
    fn bound(&self, case: Case) -> Option<&'static str> {
        let result = self.runs.get(case, self.policies[0])?;
        if result.client > BUSY {
            Some("the client has no time left")
        } else if result.disk > BUSY {
            Some("the disk has no time left")
        } else if case.has_spare_pcpus() {
            Some("no vCPU waits")
        } else {
            None
        }
    }

    /// Evaluates the wanted claims of the file.
    ///
    /// # Errors
    /// Fails when a claim names an unknown measure.
    pub(super) fn claims(
        &self,
        specs: &[ClaimSpec],
        wanted: &Wanted,
    ) -> Result<Vec<ClaimResult>, ExperimentError> {
        // Claims about all tables hold for those that are wanted.
        let is_wanted = |spec: &&ClaimSpec| spec.part == EVERY_TABLE || wanted.wants(&spec.part);
        let mut claims = Vec::new();
        for spec in specs.iter().filter(is_wanted) {
            claims.extend(spec.evaluate(self)?);
        }
        Ok(claims)
    }
}

impl Measures for Compared<'_> {
    fn measure(&self, call: &Call) -> Result<Option<Series>, ExperimentError> {
        claim::measure::figures(call, (&[MEASURES], self), self.reference, |table| {
            let of_table = self.cells.iter().filter(|cell| cell.table == table);
            Ok(of_table.cloned().collect())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::policy::Change;
    use super::*;
    use crate::findings::Ordering;
    use crate::findings::tests::cell;

    #[test]
    fn claims_name_known_measures_and_parts() {
        let reference = Reference::parse(super::super::setup::PAPER_TOML).expect("TOML");
        let parts = [super::super::TABLES, &[EVERY_TABLE]].concat();
        claim::tests::are_sound(CLAIMS, &reference, &parts, &[MEASURES], &[]);
    }

    /// Cells of comparisons by name: Credit2 and ISACS in the paper, and here; more is better.
    fn cells(all: &[(&str, [f64; 2], [f64; 2])]) -> Vec<Cell> {
        let both = |(about, theirs, ours): &(&str, [f64; 2], [f64; 2])| {
            [0, 1].map(|n| Cell {
                column: (*about).to_owned(),
                ordering: Some(Ordering {
                    about: (*about).to_owned(),
                    who: ["credit2", "isacs"][n].to_owned(),
                    sense: Sense::More,
                }),
                ..cell(theirs[n], ours[n], false)
            })
        };
        all.iter().flat_map(both).collect()
    }

    /// Result of a claim of the file for these cells; `None`: it is left out.
    fn evaluated(id: &str, cells: &[Cell]) -> Option<crate::Claim> {
        let reference = Reference::parse("").expect("TOML");
        let compared = Compared {
            reference: &reference,
            runs: &Runs::default(),
            policies: Policy::both(Change::Nothing),
            cells,
        };
        let specs = claim::read(CLAIMS).expect("claims");
        let spec = specs.iter().find(|spec| spec.id == id).expect("the claim");
        let result = spec.evaluate(&compared).expect("figures");
        result.map(|result| result.with_ablations(&[]))
    }

    #[test]
    fn gains_are_compared_cell_by_cell() {
        // Gains of 10, 20 and -10 % in the paper; of 15, 0.5 and -5 % here.
        let cells = cells(&[
            ("1", [100.0, 110.0], [100.0, 115.0]),
            ("2", [100.0, 120.0], [200.0, 201.0]),
            ("3", [100.0, 90.0], [100.0, 95.0]),
        ]);
        let better = evaluated("better", &cells).expect("cells");
        assert_eq!(
            (better.holds, better.detail.as_str()),
            (true, "it is in 2 of 2.")
        );
        let ties = evaluated("ties", &cells).expect("cells");
        // Without runs there is no cause.
        let detail = "so it is in 0 of 1; gains in %: +0.5 (table 3, 2). Not in table 3, 2.";
        assert_eq!((ties.holds, ties.detail.as_str()), (false, detail));
        let worse = evaluated("not-worse", &cells).expect("cells");
        let detail = "better in 1 cell(s), worse in 1, equal within 1 % in 1. Worse: table 3, 3.";
        assert_eq!((worse.holds, worse.detail.as_str()), (false, detail));
        let gains = evaluated("gains", &cells).expect("cells");
        let detail = "it is in 2 of 3. Not in table 3, 2: 0 % (paper: 20 %).";
        assert_eq!((gains.holds, gains.detail.as_str()), (false, detail));
        for id in ["better", "not-worse", "ties", "gains"] {
            assert_eq!(evaluated(id, &[]), None, "{id}");
        }
    }
}
