//! Pages of the documentation: their length, and the links between them.

use std::collections::{BTreeSet, HashMap};

use super::{Moves, Rule};
use crate::{Finding, Workspace, workspace::Text};

/// Words of a page: five minutes of reading, code and tables included. Two thirds of the pages
/// were below it when the rule came.
const MAX_WORDS: usize = 1500;
/// Words in a unit of the debts, so that not every change of a long page changes its debt.
const UNIT_WORDS: usize = 100;
/// Pages for developers, which are read in parts.
const EXEMPT: &str = "docs/dev/";

pub(super) const LENGTH: Rule = Rule {
    name: "page-length",
    statement: "pages below docs/ have at most 1500 words, those in docs/dev excepted",
    remedy: "split the page by task, or move theory and measurements to docs/dev; the figure is \
             in hundreds of words",
    moves: Moves::Nowhere,
    find: |workspace| pages(workspace).filter_map(long_page).collect(),
};

pub(super) const LINKS: Rule = Rule {
    name: "page-link",
    statement: "relative links of *.md files lead to files and headings of the repository",
    remedy: "correct the link, or the heading that it names",
    moves: Moves::Nowhere,
    find: |workspace| {
        let headings = headings(workspace);
        let all = pages(workspace);
        all.filter_map(|page| broken_links(workspace, &headings, page))
            .collect()
    },
};

fn pages(workspace: &Workspace) -> impl Iterator<Item = &Text> {
    let texts = workspace.texts.iter();
    texts.filter(|text| text.path.ends_with(".md"))
}

/// Returns a finding if a page below `docs/` has more than [`MAX_WORDS`] words.
fn long_page(page: &Text) -> Option<Finding> {
    if !page.path.starts_with("docs/") || page.path.starts_with(EXEMPT) {
        return None;
    }
    // Rules of tables are no words.
    let words = page.text.split_whitespace();
    let words = words
        .filter(|word| word.contains(char::is_alphanumeric))
        .count();
    (words > MAX_WORDS).then(|| Finding {
        rule: LENGTH.name,
        place: page.path.clone(),
        item: None,
        line: 0,
        figure: words.div_ceil(UNIT_WORDS),
        what: format!("{words} words, at most {MAX_WORDS} are allowed"),
    })
}

/// Anchors of each page, by its path.
type Headings<'a> = HashMap<&'a str, BTreeSet<String>>;

fn headings(workspace: &Workspace) -> Headings<'_> {
    pages(workspace)
        .map(|page| (page.path.as_str(), anchors(&page.text)))
        .collect()
}

/// Returns the broken links of a page as one finding, so that its debt is a number of links.
fn broken_links(workspace: &Workspace, headings: &Headings<'_>, page: &Text) -> Option<Finding> {
    let leads_nowhere = |(_, link): &(usize, &str)| !resolves(workspace, headings, page, link);
    let found: Vec<(usize, &str)> = links(&page.text)
        .into_iter()
        .filter(leads_nowhere)
        .collect();
    let &(line, _) = found.first()?;
    let list: Vec<&str> = found.iter().map(|(_, link)| *link).collect();
    Some(Finding {
        rule: LINKS.name,
        place: page.path.clone(),
        item: None,
        line,
        figure: found.len(),
        what: format!("links that lead nowhere: {}", list.join(", ")),
    })
}

fn resolves(workspace: &Workspace, headings: &Headings<'_>, page: &Text, link: &str) -> bool {
    if link.contains("://") || link.starts_with("mailto:") {
        return true;
    }
    let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
    let target = if file.is_empty() {
        Some(page.path.clone())
    } else {
        target_path(&page.path, file)
    };
    let Some(target) = target else { return false };
    if !workspace.exists(&target) {
        return false;
    }
    // Anchors of files that are no pages, such as line numbers, are not known.
    let known = headings.get(target.as_str());
    anchor.is_empty() || known.is_none_or(|anchors| anchors.contains(anchor))
}

/// Returns the path of a link's target relative to the workspace's root; `None` if it is outside.
fn target_path(page: &str, link: &str) -> Option<String> {
    let mut parts: Vec<&str> = page.split('/').collect();
    parts.pop();
    for part in link.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                // Above the root there is nothing of the repository.
                parts.pop()?;
            }
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

/// Lines of a page outside of fenced blocks, with their numbers.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fenced = false;
    let numbered = text.lines().enumerate();
    numbered.filter_map(move |(index, line)| {
        let is_fence = line.trim_start().starts_with("```");
        // A fence opens or closes a block.
        fenced ^= is_fence;
        (!fenced && !is_fence).then_some((index + 1, line))
    })
}

/// Targets of the inline links of a page, each with its line.
fn links(text: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    for (number, line) in prose(text) {
        for link in line.split("](").skip(1) {
            // A blank ends the address: a title may follow it.
            let target = link.split([')', ' ']).next().unwrap_or_default();
            found.push((number, target.trim_matches(['<', '>'])));
        }
    }
    found
}

/// Anchors of the headings of a page, as GitHub makes them: lower case, with hyphens for blanks and
/// without punctuation; a heading that repeats another gets a number.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    for (_, line) in prose(text) {
        let heading = line.trim_start_matches('#');
        if heading.len() == line.len() || !heading.starts_with(' ') {
            continue;
        }
        let text = without_targets(heading.trim());
        let anchor: String = text
            .chars()
            .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'))
            .map(|c| if c == ' ' { '-' } else { c })
            .collect();
        let anchor = anchor.to_lowercase();
        let repeated = (1..).map(|n| format!("{anchor}-{n}"));
        let mut names = std::iter::once(anchor.clone()).chain(repeated);
        all.extend(names.find(|name| !all.contains(name)));
    }
    all
}

/// Text of a heading in which a link counts with its text alone.
fn without_targets(heading: &str) -> String {
    let mut parts = heading.split("](");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| {
        text + part.split_once(')').map_or(part, |(_, rest)| rest)
    })
}

#[cfg(test)]
mod tests {
    use super::super::findings_in;
    use super::*;

    #[test]
    fn a_long_page_is_found() {
        let page = |path: &str, words: usize| {
            let text = format!("# Page\n\n|---|\n{}", "word ".repeat(words - 1));
            findings_in(&LENGTH, &[(path, &text)])
        };
        assert_eq!(page("docs/a.md", MAX_WORDS), []);
        let long = page("docs/policies/a.md", MAX_WORDS + 1);
        assert_eq!(long[0].figure, MAX_WORDS / UNIT_WORDS + 1);
        assert!(long[0].what.starts_with("1501 words"), "{long:?}");
        assert_eq!(page("docs/dev/a.md", MAX_WORDS + 1), []);
        assert_eq!(page("README.md", MAX_WORDS + 1), []);
    }

    fn figures_and_messages(page: &str) -> Vec<(usize, String)> {
        let files = [
            ("docs/a.md", page),
            (
                "docs/dev/b.md",
                "# Title\n\n## A key: `size`\n\n## [Two](../a.md) words\n\n## Twice\n\n## Twice\n",
            ),
            ("examples/a.toml", ""),
        ];
        let found = findings_in(&LINKS, &files).into_iter();
        found.map(|found| (found.figure, found.what)).collect()
    }

    #[test]
    fn links_that_lead_somewhere_are_left_alone() {
        let page = "# Page\n\n[b](dev/b.md) and [c](dev/b.md#a-key-size \"title\"), [d](#page)\n\
                    [e](../examples/a.toml), [f](../examples), [g](https://example.org/none)\n\
                    [h](dev/b.md#twice-1) [i](dev/b.md#two-words)\n\
                    [j](mailto:a@example.org)\n\n```\n[k](none.md)\n```\n";
        assert_eq!(figures_and_messages(page), []);
    }

    #[test]
    fn links_that_lead_nowhere_are_found() {
        let page = "[a](b.md) [b](dev/b.md#none)\n[c](#none) [d](../../a.md)\n";
        let what = "links that lead nowhere: b.md, dev/b.md#none, #none, ../../a.md";
        assert_eq!(figures_and_messages(page), [(4, what.to_owned())]);
    }
}
