//! The rules, a file each. A new rule is a file with a `RULE` and a line in [`RULES`].

mod cycles;
mod doc_comments;
mod files;
mod functions;
mod impls;
mod lines;
mod methods;
mod pages;
mod retired;

use crate::{Finding, Workspace};

/// One structural rule.
pub struct Rule {
    /// Name in `debts.txt`.
    pub name: &'static str,
    /// Statement of the rule.
    pub says: &'static str,
    /// Advice for whoever broke it.
    pub remedy: &'static str,
    pub(crate) moves: Moves,
    pub(crate) find: fn(&Workspace) -> Vec<Finding>,
}

/// Way in which `--lower` follows code that moves from one place to another.
#[derive(Clone, Copy)]
pub(crate) enum Moves {
    /// An entry stays at its place.
    Nowhere,
    /// An entry follows the item with its name.
    WithItem,
    /// Entries share the sum of their figures.
    WithTotal,
}

/// All rules.
pub const RULES: &[Rule] = &[
    cycles::RULE,
    impls::RULE,
    methods::METHODS,
    methods::SURFACE,
    functions::RULE,
    lines::RULE,
    files::RULE,
    doc_comments::START,
    doc_comments::QUESTION,
    pages::LENGTH,
    pages::LINKS,
    retired::RULE,
];

/// Applies all rules.
#[must_use]
pub fn check(workspace: &Workspace) -> Vec<Finding> {
    RULES
        .iter()
        .flat_map(|rule| (rule.find)(workspace))
        .collect()
}

pub(crate) fn named(name: &str) -> Option<&'static Rule> {
    RULES.iter().find(|rule| rule.name == name)
}

pub(crate) fn moves(name: &str) -> Moves {
    named(name).map_or(Moves::Nowhere, |rule| rule.moves)
}

/// Findings of one rule in planted sources, for the rules' own tests.
#[cfg(test)]
fn found(rule: &Rule, files: &[(&str, &str)]) -> Vec<Finding> {
    (rule.find)(&Workspace::from_texts(files).expect("planted sources parse"))
}
