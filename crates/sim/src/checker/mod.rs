//! What must hold of an engine in any world, each in a file of its own with its statement first.
//!
//! A checker is told what a driver did and saw, and answers with a [`Verdict`]. It never looks
//! into the engine beyond what every role may read, and it never panics over what it finds.

pub mod answers;
pub mod budgets;
pub mod charges;
pub mod content;
pub mod credits;
pub mod durability;
pub mod jobs;
pub mod ledger;
pub mod limits;
pub mod neighbours;
pub mod progress;
pub mod refusals;
pub mod shape;
pub mod starvation;

use core::fmt;

/// A promise that was broken.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Broken {
    /// Who noticed.
    pub checker: Checker,
    /// In one sentence.
    pub what: String,
}

/// Nothing to say, or what is broken.
pub type Verdict = Result<(), Broken>;

/// Who noticed.
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
    /// [`jobs`].
    Jobs,
    /// [`limits`].
    Limits,
    /// [`neighbours`].
    Neighbours,
    /// [`progress`].
    Progress,
    /// [`refusals`].
    Refusals,
    /// [`shape`].
    Shape,
    /// [`starvation`].
    Starvation,
    /// The engine itself: an assertion of its own failed.
    Panic,
}

impl Checker {
    /// What reports call it.
    pub const fn name(self) -> &'static str {
        match self {
            Checker::Answers => "answers",
            Checker::Budgets => "budgets",
            Checker::Charges => "charges",
            Checker::Content => "content",
            Checker::Credits => "credits",
            Checker::Durability => "durability",
            Checker::Jobs => "jobs",
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
