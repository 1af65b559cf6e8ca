//! Reader and judge of a paper's claims, the statements in its text that the simulated runs confirm
//! or contradict. They are data, in `experiments/PAPER/claims.toml`:
//!
//! ```toml
//! [[claim]]
//! id = "vm1-gets-its-rate"           # unique in the file
//! part = "figure 12"                 # where the paper states it, one of Paper::tables
//! claim = "VM1 gets the rate it asks for, from 200 to 1600 IOPS"   # for the reader
//! with = { vm1 = "iops(vm1)" }       # names for expressions, used below
//! holds = [{ at_least = "vm1[..4]", than = "0.99 * asked[..4]" }]   # tests; all must pass
//! detail = "it has {vm1:.0} IOPS"    # figures beside the verdict; no full stop
//! ```
//!
//! Claims are reported in the order of the file. A claim whose runs were not made is left out. In
//! the tests, A and B are figures of the runs or of the paper, or series of equal length that are
//! compared item by item:
//!
//! | test | passes if |
//! |---|---|
//! | `below = A, than = B`; `at_most`, `equals`, `at_least`, `above` | A < B; <=, =, >=, > |
//! | `within = A, of = B, part = 0.1` | A differs from B by at most a tenth of B |
//! | `within = A, of = B, points = 5` | A differs from B by at most 5, in the unit of both |
//! | `between = A, from = B, to = C` | B <= A <= C |
//! | `order = [A, B, C]` | A < B < C |
//! | `rises = A` or `falls = A` | no item of A is below (above) the one before it |
//!
//! For `rises` and `falls`, `strictly = true` excludes equal items, and `slack = 0.05` allows steps
//! the other way of up to 5 %.
//!
//! By default every item must pass. `in_share = 0.9` asks for at least that fraction of them,
//! `in_more_than = 0.5` for more than that fraction.
//!
//! [`expression`] describes the syntax of figures, [`words`] that of texts with figures, and
//! [`impossible`] the sections on figures of a paper that contradict each other. A note is a remark
//! computed from the paper's figures; it has no verdict:
//!
//! ```toml
//! [[note]]
//! id = "knife-edge"
//! part = "3"
//! text = "eight threads and 60 ms are {1000 * 8 / paper(latency_ms):.0} IOPS"
//! ```

mod comparison;
mod expression;
mod impossible;
pub(crate) mod measure;
mod read;
#[cfg(test)]
pub(crate) mod tests;
mod words;

pub(crate) use expression::{Call, Item, Measures, Series, series};
pub(crate) use impossible::{ImpossibleSpec, Impossibles, notes};
pub(crate) use measure::{Measure, Subject};
#[cfg(test)]
pub(crate) use read::read;
pub(crate) use read::read_file;

use crate::ExperimentError;
use crate::claim_result::ClaimResult;
use comparison::Test;
use words::Words;

/// Name of a paper's claims in its folder.
pub(crate) const FILE: &str = "claims.toml";

/// Refusal of a text in `claims.toml` that is not an expression, or lacks one between its braces.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Malformed {
    /// Mistake, as a message.
    what: String,
    /// Valid expression, to be shown beside the mistake.
    example: &'static str,
}

impl Malformed {
    fn new(what: impl Into<String>, example: &'static str) -> Malformed {
        let what = what.into();
        Malformed { what, example }
    }
}

/// Contents of a `claims.toml`.
#[derive(Debug)]
pub(crate) struct ClaimFile {
    pub(crate) claims: Vec<ClaimSpec>,
    pub(crate) impossible: Vec<ImpossibleSpec>,
    pub(crate) notes: Vec<NoteSpec>,
}

/// Section `[[note]]`.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct NoteSpec {
    pub(crate) id: String,
    /// Table, figure or section of the paper.
    pub(crate) part: String,
    text: Words,
}

/// Section `[[claim]]`; a section with `each` stands for one claim for each of its entries.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct ClaimSpec {
    /// Unique within the file, except for claims of the same `each`.
    pub(crate) id: String,
    /// Table, figure or section of the paper.
    pub(crate) part: String,
    /// Variant of the runs that it refers to; empty for runs without a change.
    pub(crate) variant: String,
    pub(crate) body: Body,
}

/// Form in which a claim is tested.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Body {
    /// Comparisons of figures.
    Compared(Compared),
    /// Name of a function of the paper's module, for what no comparison expresses.
    Code(String),
}

/// Claim that is tested by comparisons of figures.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Compared {
    /// Statement of the paper.
    claim: Words,
    tests: Vec<Checked>,
    /// Figures by which the claim is judged.
    detail: Words,
    /// Sentence that is added to the result if any item of the first test fails, even if enough of
    /// them pass for the claim to hold.
    more: Option<Words>,
}

/// Test of a claim.
#[derive(Clone, PartialEq, Debug)]
struct Checked {
    test: Test,
    /// Text that is added to the claim's detail if the test fails.
    otherwise: Option<Words>,
}

impl ClaimSpec {
    /// Returns the claim with its verdict and figures; `None` if a run that it needs was not made.
    ///
    /// # Errors
    /// Fails like [`Compared::evaluate`], and for a claim in code that the paper's module does not
    /// define.
    pub(crate) fn evaluate(
        &self,
        measures: &dyn Measures,
    ) -> Result<Option<ClaimResult>, ExperimentError> {
        match &self.body {
            Body::Compared(claim) => {
                let result = claim.evaluate(measures)?;
                Ok(result.map(|result| result.identified(&self.id, &self.part)))
            }
            Body::Code(name) => {
                // Code that the paper defines was run by the caller before it came here.
                let what = format!("{}: there is no code `{name}`", self.id);
                Err(ExperimentError::data(FILE, what))
            }
        }
    }
}

impl Compared {
    /// Returns the claim with its verdict and figures; `None` if a run that it needs was not made.
    ///
    /// # Errors
    /// If a measure is unknown, or series that are compared have different lengths.
    pub(crate) fn evaluate(
        &self,
        measures: &dyn Measures,
    ) -> Result<Option<ClaimResult>, ExperimentError> {
        let (mut holds, mut first) = (true, None);
        let mut failed = Vec::new();
        for checked in &self.tests {
            let Some(outcome) = checked.test.outcome(measures)? else {
                return Ok(None);
            };
            holds &= outcome.holds;
            failed.extend(checked.otherwise.as_ref().filter(|_| !outcome.holds));
            // Words such as {held} are about the first test; the others qualify it.
            first.get_or_insert(outcome.items);
        }
        let items = first.unwrap_or_default();
        let mut detail = String::new();
        for words in [&self.detail].into_iter().chain(failed) {
            let Some(text) = words.text(measures, &items)? else {
                return Ok(None);
            };
            detail += &text;
        }
        let Some(claim) = self.claim.text(measures, &items)? else {
            return Ok(None);
        };
        let result = ClaimResult::new(claim, holds, detail);
        let all_pass = items.iter().all(|item| item.value > 0.0);
        let Some(more) = self.more.as_ref().filter(|_| !all_pass) else {
            return Ok(Some(result));
        };
        let more = more.text(measures, &items)?;
        Ok(more.map(|more| result.with_more(format!(" {more}."))))
    }

    /// Returns every measure that the claim reads.
    #[cfg(test)]
    pub(crate) fn measures(&self) -> Vec<&Call> {
        let mut all = Vec::new();
        let mut collect = |call| all.push(call);
        self.claim.measures(&mut collect);
        let more = self.tests.iter().filter_map(|of| of.otherwise.as_ref());
        for words in [&self.detail].into_iter().chain(&self.more).chain(more) {
            words.measures(&mut collect);
        }
        for checked in &self.tests {
            checked.test.kind.measures(&mut collect);
        }
        all
    }
}
