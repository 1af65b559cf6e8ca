//! Verdicts on claims, figures and comparisons: what holds, what does not, and what cannot hold by
//! the paper's own figures.

use serde::Serialize;

/// Verdict on a claim.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub enum Verdict {
    /// The claim holds in the simulation.
    #[serde(rename = "holds")]
    Holds,
    /// The claim does not hold in the simulation.
    #[serde(rename = "does not hold")]
    DoesNotHold,
    /// The claim does not hold, and the paper's own figures contradict it.
    #[serde(rename = "cannot hold")]
    CannotHold,
}

impl Verdict {
    /// Verdict in words: `holds`, `does not hold` or `cannot hold`.
    pub fn words(self) -> &'static str {
        match self {
            Verdict::Holds => "holds",
            Verdict::DoesNotHold => "does not hold",
            Verdict::CannotHold => "cannot hold",
        }
    }
}

/// Origin of a contradiction. Counts are given without each of the two.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Origin {
    /// Named by the second reading of the papers, before anything of it was built.
    Fidelity,
    /// Found since, by the experiment itself.
    Own,
}

/// Contradiction that covers a claim or a figure.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Reason {
    /// Name of the contradiction in `claims.toml`.
    pub id: String,
    /// Origin of the contradiction.
    pub from: Origin,
    /// Computation with the paper's figures in it.
    pub arithmetic: String,
}

/// Contradiction in a paper, evaluated with the paper's figures.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Impossible {
    /// Contradiction itself.
    pub reason: Reason,
    /// `true` if the paper's figures show it. One that is not shown has no effect on verdicts.
    pub shown: bool,
    /// Claims, figures and comparisons that it covers, in words.
    pub covers: String,
}

/// Remark that is computed from the paper's figures and decides nothing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Note {
    /// Name of the note in `claims.toml`.
    pub id: String,
    /// Table, figure or section of the paper.
    pub part: String,
    /// Remark with the paper's figures in it.
    pub text: String,
}

/// Part of a paper's claims, figures and comparisons that a count is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scope {
    /// Everything.
    All,
    /// Without what cannot hold by [`Origin::Fidelity`].
    CanHold,
    /// Without what cannot hold by either origin.
    CanHoldByOwn,
}

impl Scope {
    /// All scopes, the widest first.
    pub const EACH: [Scope; 3] = [Scope::All, Scope::CanHold, Scope::CanHoldByOwn];

    /// Returns `true` if the scope has what cannot hold for this reason; `None` if it can.
    pub fn includes(self, reason: Option<Origin>) -> bool {
        match (self, reason) {
            (Scope::All, _) | (_, None) | (Scope::CanHold, Some(Origin::Own)) => true,
            (Scope::CanHold, Some(Origin::Fidelity)) | (Scope::CanHoldByOwn, Some(_)) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_scope_is_a_part_of_the_one_before() {
        let reasons = [None, Some(Origin::Own), Some(Origin::Fidelity)];
        let included = Scope::EACH.map(|scope| reasons.map(|reason| scope.includes(reason)));
        assert_eq!(
            included,
            [[true; 3], [true, true, false], [true, false, false]]
        );
    }
}
