//! Size of files.

use super::{Moves, Rule};
use crate::{Finding, Workspace};

/// Lines of a file, tests included. All but a few files of the workspace stay below.
const MAX_LINES: usize = 700;

pub(super) const RULE: Rule = Rule {
    name: "file-size",
    statement: "files have at most 700 lines",
    remedy: "split the file along what its parts own",
    moves: Moves::Nowhere,
    find,
};

fn find(workspace: &Workspace) -> Vec<Finding> {
    let large = workspace.sources.iter().filter_map(|source| {
        let lines = source.text.lines().count();
        (lines > MAX_LINES).then(|| Finding {
            rule: RULE.name,
            place: source.path.clone(),
            item: None,
            line: 0,
            figure: lines,
            what: format!("{lines} lines, at most {MAX_LINES} are allowed"),
        })
    });
    large.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_file_is_found() {
        let files = |lines: usize| {
            super::super::findings_in(
                &RULE,
                &[("crates/a/src/lib.rs", &"// line\n".repeat(lines))],
            )
        };
        assert_eq!(files(MAX_LINES), []);
        assert_eq!(files(MAX_LINES + 1)[0].figure, MAX_LINES + 1);
    }
}
