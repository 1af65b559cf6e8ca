//! First words of doc comments. A comment that stands alone names its subject.

use super::{Moves, Rule};
use crate::{Finding, Workspace, source::Source};

/// Beginnings that refer to another comment or to the line below.
const ANAPHORA: &[&str] = &[
    "It",
    "Its",
    "They",
    "Their",
    "Them",
    "Those",
    "These",
    "This",
    "That",
    "The same",
    "Same",
    "Of",
    "So many",
    "So much",
    "As",
    "One of them",
    "Others",
    "Both",
    "None",
    "All of",
];

/// Beginnings that ask instead of naming.
const QUESTIONS: &[&str] = &[
    "What", "How", "Whether", "When", "Where", "Why", "Which", "Who", "Whose", "Whom",
];

pub(super) const START: Rule = Rule {
    name: "doc-comment-start",
    statement: "a doc comment does not begin with a pronoun or another word that refers elsewhere",
    remedy: "begin with a noun phrase or a verb in the third person: \"Refill rate in bytes per \
             second.\", \"Returns the time at which ...\"",
    moves: Moves::WithTotal,
    find: |workspace| find(workspace, START.name, ANAPHORA),
};

pub(super) const QUESTION: Rule = Rule {
    name: "doc-comment-question",
    statement: "a doc comment does not begin with a question word",
    remedy: "begin with what the item is or returns: \"Size of the disk in bytes.\", \"Returns \
             `true` if the VM waits.\"",
    moves: Moves::WithTotal,
    find: |workspace| find(workspace, QUESTION.name, QUESTIONS),
};

fn find(workspace: &Workspace, rule: &'static str, beginnings: &[&str]) -> Vec<Finding> {
    let sources = workspace.sources.iter();
    sources
        .filter_map(|source| comments(source, rule, beginnings))
        .collect()
}

/// One finding a file, so that its debt is a number of comments.
fn comments(source: &Source, rule: &'static str, beginnings: &[&str]) -> Option<Finding> {
    let begins = |(line, comment): (usize, &str)| {
        let word = beginnings.iter().find(|word| begins_with(comment, word))?;
        Some((line, *word))
    };
    let found: Vec<(usize, &str)> = first_lines(&source.text).filter_map(begins).collect();
    let &(line, _) = found.first()?;
    let list: Vec<String> = found
        .iter()
        .map(|(line, word)| format!("{line} ({word})"))
        .collect();
    Some(Finding {
        rule,
        place: source.path.clone(),
        item: None,
        line,
        figure: found.len(),
        what: format!("doc comments in lines {}", list.join(", ")),
    })
}

/// First line of each doc comment, with its number. An attribute between two lines of a comment
/// does not end the comment.
fn first_lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut continues = false;
    let numbered = text.lines().enumerate();
    numbered.filter_map(move |(index, line)| {
        let line = line.trim_start();
        let comment = line.strip_prefix("///").or(line.strip_prefix("//!"));
        let is_first = comment.is_some() && !continues;
        continues = comment.is_some() || continues && line.starts_with("#[");
        comment
            .filter(|_| is_first)
            .map(|comment| (index + 1, comment.trim_start()))
    })
}

/// Returns `true` if a comment begins with these words, the last of which is a whole one.
fn begins_with(comment: &str, words: &str) -> bool {
    comment
        .strip_prefix(words)
        // `Item` does not begin with `It`.
        .is_some_and(|rest| !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(rule: &Rule, text: &str) -> (usize, String) {
        let found = super::super::findings_in(rule, &[("crates/a/src/lib.rs", text)]);
        let first = found.into_iter().next();
        first.map_or((0, String::new()), |found| (found.figure, found.what))
    }

    #[test]
    fn comments_that_refer_elsewhere_are_found() {
        let text = "//! It does so.\n\n/// Of the device.\n///\n/// These lines go on.\nfn a() {}\n\
                    \nstruct B {\n    /// The same in bytes.\n    b: u8,\n}\n";
        let (figure, what) = lines(&START, text);
        assert_eq!(figure, 3);
        assert_eq!(what, "doc comments in lines 1 (It), 3 (Of), 9 (The same)");
        assert_eq!(lines(&QUESTION, text), (0, String::new()));
    }

    #[test]
    fn comments_that_ask_are_found() {
        let text = "/// Whether it waits.\nfn a() {}\n\n/// What it has, in bytes.\nfn b() {}\n";
        let found = "doc comments in lines 1 (Whether), 4 (What)".to_owned();
        assert_eq!(lines(&QUESTION, text), (2, found));
        assert_eq!(lines(&START, text), (0, String::new()));
    }

    #[test]
    fn whole_words_at_the_beginning_of_a_comment_count() {
        let text = "/// Items of the list; `None` if it is empty.\n/// It may be long.\nfn a() {}\n\
                    \n\
                    /// Assertion at the end.\n#[cold]\n/// That panics.\nfn b() {}\n\n\
                    // It is no doc comment.\n/// `None` stands for no limit.\nfn c() {}\n\n\
                    /// The sameness of two lists.\nfn d() {}\n\n/// Whenever.\nfn e() {}\n";
        assert_eq!(lines(&START, text), (0, String::new()));
        assert_eq!(lines(&QUESTION, text), (0, String::new()));
    }
}
