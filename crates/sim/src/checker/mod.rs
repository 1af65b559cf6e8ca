//! Invariants of an engine in any world, one checker per file, each stated at the top of its file.
//!
//! A checker is told what a driver did and observed, and returns a [`Verdict`]. It reads no more of
//! the engine than a role may, and never panics over a violation.

pub mod answers;
pub mod budgets;
pub mod charges;
pub mod content;
pub mod credits;
pub mod device_ios;
pub mod disk_limits;
pub mod durability;
pub mod hung_neighbours;
pub mod ledger;
pub mod limits;
pub mod progress;
pub mod refusals;
pub mod starvation;
pub mod transfers;

use core::fmt;

/// Violated invariant.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Broken {
    /// Checker that found the violation.
    pub checker: Checker,
    /// Description in one sentence.
    pub what: String,
}

/// Outcome of a check: `Ok`, or the violated invariant.
pub type Verdict = Result<(), Broken>;

/// Checkers by name, for reports and planted faults.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Checker {
    /// [`answers`].
    Answers,
    /// [`budgets`].
    Budgets,
    /// [`charges`].
    Charges,
    /// [`content`].
    Content,
    /// [`credits`].
    Credits,
    /// [`durability`].
    Durability,
    /// [`transfers`].
    Transfers,
    /// [`limits`] and [`disk_limits`].
    Limits,
    /// [`hung_neighbours`].
    Neighbours,
    /// [`progress`].
    Progress,
    /// [`refusals`].
    Refusals,
    /// [`device_ios`].
    Shape,
    /// [`starvation`].
    Starvation,
    /// Assertion inside the engine itself that failed.
    Panic,
}

impl Checker {
    /// Name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Checker::Answers => "answers",
            Checker::Budgets => "budgets",
            Checker::Charges => "charges",
            Checker::Content => "content",
            Checker::Credits => "credits",
            Checker::Durability => "durability",
            Checker::Transfers => "jobs",
            Checker::Limits => "limits",
            Checker::Neighbours => "neighbours",
            Checker::Progress => "progress",
            Checker::Refusals => "refusals",
            Checker::Shape => "shape",
            Checker::Starvation => "starvation",
            Checker::Panic => "panic",
        }
    }
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.checker.name(), self.what)
    }
}

/// Returns what is broken unless the condition holds.
macro_rules! ensure {
    ($checker:ident, $holds:expr, $($what:tt)+) => {
        if !$holds {
            return Err($crate::checker::Broken {
                checker: $crate::checker::Checker::$checker,
                what: format!($($what)+),
            });
        }
    };
}
pub(crate) use ensure;
