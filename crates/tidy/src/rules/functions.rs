//! Length of functions, those of tests and inside macros included.

use super::{Moves, Rule};
use crate::{Finding, Workspace};

/// Lines from the signature to the closing brace.
const MAX_LINES: usize = 70;

pub(super) const RULE: Rule = Rule {
    name: "function-length",
    statement: "functions have at most 70 lines, from the signature to the closing brace",
    remedy: "take a step with a name of its own out of the function",
    moves: Moves::WithItem,
    find,
};

fn find(workspace: &Workspace) -> Vec<Finding> {
    let mut found = Vec::new();
    for source in &workspace.sources {
        let long = source
            .parsed
            .functions
            .iter()
            .filter(|function| function.lines > MAX_LINES);
        found.extend(long.map(|function| Finding {
            rule: RULE.name,
            place: source.path.clone(),
            item: Some(function.name.clone()),
            line: function.line,
            figure: function.lines,
            what: format!(
                "`{}` has {} lines, at most {MAX_LINES} are allowed",
                function.name, function.lines
            ),
        }));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(text: &str) -> Vec<(Option<String>, usize)> {
        let found = super::super::findings_in(&RULE, &[("crates/a/tests/all.rs", text)]);
        found
            .into_iter()
            .map(|finding| (finding.item, finding.figure))
            .collect()
    }

    #[test]
    fn long_functions_are_found_wherever_they_are() {
        let long = format!("fn long() {{\n{}}}\n", "    step();\n".repeat(69));
        let found = |name: &str| vec![(Some(name.to_owned()), 71)];
        assert_eq!(findings(&long), found("long"));
        assert_eq!(
            findings(&format!("mod tests {{ {long} }}")),
            found("tests::long")
        );
        assert_eq!(findings(&format!("impl T {{ {long} }}")), found("T::long"));
        assert_eq!(
            findings(&format!("impl D for T {{ {long} }}")),
            found("T::long")
        );
        assert_eq!(findings(&format!("proptest! {{ {long} }}")), found("long"));
    }

    #[test]
    fn seventy_lines_and_documentation_are_allowed() {
        let fits = format!(
            "/// Doc.\n#[test]\nfn fits() {{\n{}}}\n",
            "    step();\n".repeat(68)
        );
        assert_eq!(findings(&fits), []);
    }
}
