//! Width of lines. rustfmt keeps that of code; it leaves comments and string literals alone.

use super::{Moves, Rule};
use crate::{Finding, Workspace, source::Source};

/// Largest number of columns of a line, as `max_width` in `rustfmt.toml`.
const MAX_COLUMNS: usize = 100;

pub(super) const RULE: Rule = Rule {
    name: "line-width",
    statement: "lines have at most 100 columns, comments and string literals too",
    remedy: "wrap the comment, or continue the string literal on the next line",
    moves: Moves::WithTotal,
    find,
};

fn find(workspace: &Workspace) -> Vec<Finding> {
    workspace.sources.iter().filter_map(wide_lines).collect()
}

/// One finding a file, so that its debt is a number of lines.
fn wide_lines(source: &Source) -> Option<Finding> {
    let wide: Vec<(usize, usize)> = source
        .text
        .lines()
        .enumerate()
        // Characters, as rustfmt counts them, not bytes.
        .map(|(index, line)| (index + 1, line.chars().count(), line))
        .filter(|&(_, columns, line)| columns > MAX_COLUMNS && !is_link(line))
        .map(|(number, columns, _)| (number, columns))
        .collect();
    let &(line, _) = wide.first()?;
    let list: Vec<String> = wide
        .iter()
        .map(|(number, columns)| format!("{number} ({columns})"))
        .collect();
    Some(Finding {
        rule: RULE.name,
        place: source.path.clone(),
        item: None,
        line,
        figure: wide.len(),
        what: format!("lines over {MAX_COLUMNS} columns: {}", list.join(", ")),
    })
}

/// Returns `true` for a line that is a single address, which cannot be wrapped: in a comment, or in
/// a string literal of its own line.
fn is_link(line: &str) -> bool {
    let words = line.trim_start().trim_start_matches(['/', '!']);
    // 2: a label such as `See` may stand before the address.
    words.contains("://") && words.split_whitespace().count() <= 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wide_lines_are_counted_and_links_are_not() {
        let comment = format!("// {}", "word ".repeat(20));
        let link = format!("// [1]: https://example.org/{}", "a".repeat(90));
        let fits = format!("// {}", "ä".repeat(97));
        let text = format!("{comment}\n{link}\n{fits}\n{comment}\n");
        let found = super::super::findings_in(&RULE, &[("crates/a/src/lib.rs", &text)]);
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].line, found[0].figure), (1, 2), "{found:?}");
    }
}
