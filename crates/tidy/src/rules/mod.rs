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
    pub statement: &'static str,
    /// Advice for code that breaks the rule.
    pub remedy: &'static str,
    /// Way in which an accepted finding follows code that moves.
    pub(crate) moves: Moves,
    /// Finds the places that break the rule.
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

pub(crate) fn rule_by_name(name: &str) -> Option<&'static Rule> {
    RULES.iter().find(|rule| rule.name == name)
}

pub(crate) fn moves_of(rule: &str) -> Moves {
    rule_by_name(rule).map_or(Moves::Nowhere, |rule| rule.moves)
}

/// Findings of one rule in planted sources, for the rules' own tests.
#[cfg(test)]
fn findings_in(rule: &Rule, files: &[(&str, &str)]) -> Vec<Finding> {
    (rule.find)(&Workspace::from_texts(files).expect("planted sources parse"))
}
