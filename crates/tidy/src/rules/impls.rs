//! Place of inherent impls.

use super::{Moves, Rule};
use crate::{
    Finding, Workspace,
    modules::{Crate, ModulePath, Target},
};

pub(super) const RULE: Rule = Rule {
    name: "impl-elsewhere",
    statement: "a type's inherent impls are in its file or in private submodules of it",
    remedy: "move the impl to the type, or make what it works on a type of its own",
    moves: Moves::WithItem,
    find,
};

fn find(workspace: &Workspace) -> Vec<Finding> {
    workspace
        .crates
        .iter()
        .flat_map(|krate| elsewhere(workspace, krate))
        .collect()
}

/// Finds inherent impls of a crate that are away from their types.
fn elsewhere(workspace: &Workspace, krate: &Crate) -> Vec<Finding> {
    let mut found = Vec::new();
    for (path, module) in &krate.modules {
        let source = &workspace.sources[module.source];
        for inherent in &source.parsed.scopes[module.scope].impls {
            let target = krate.resolve(&workspace.sources, path, &inherent.target);
            let Some(Target::Item { module: home, name }) = target else {
                // An impl for a type of another crate, which the compiler would refuse, or of a
                // macro's.
                continue;
            };
            let Some(home) = krate.file_module(&home) else {
                continue;
            };
            if is_within(krate, home, &module.file_module) {
                continue;
            }
            let owner = &workspace.sources[krate.modules[home].source].path;
            found.push(Finding {
                rule: RULE.name,
                place: source.path.clone(),
                item: Some(name.clone()),
                line: inherent.line,
                // At least 1: an impl with constants alone is away from its type, too.
                figure: inherent.methods.len().max(1),
                what: format!("`impl {name}` is away from the type, which is in {owner}"),
            });
        }
    }
    found
}

/// Returns `true` if `file_module` is `home` or below it through private modules only.
fn is_within(krate: &Crate, home: &ModulePath, file_module: &ModulePath) -> bool {
    file_module.starts_with(home)
        && (home.len() + 1..=file_module.len()).all(|length| {
            krate
                .modules
                .get(&file_module[..length])
                .is_some_and(|module| module.private)
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn impls(root: &str, other: &str) -> Vec<Finding> {
        let queue = (
            "crates/a/src/queue/mod.rs",
            "pub struct Queue; mod push; pub mod open;",
        );
        let files = [
            ("crates/a/src/lib.rs", root),
            queue,
            (other, "use crate::queue::Queue as Q; impl Q {}"),
        ];
        super::super::findings_in(&RULE, &files)
    }

    #[test]
    fn an_impl_outside_of_the_file_of_its_type_is_found() {
        let root = "pub mod queue; mod helper;";
        let found = impls(root, "crates/a/src/helper.rs");
        assert_eq!(found[0].item.as_deref(), Some("Queue"));
        assert!(found[0].what.contains("crates/a/src/queue/mod.rs"));
        assert_eq!(impls(root, "crates/a/src/queue/open.rs").len(), 1);
        assert_eq!(impls(root, "crates/a/src/queue/push.rs"), []);
    }

    #[test]
    fn impls_in_tests_are_left_alone() {
        assert_eq!(
            impls(
                "pub mod queue; #[cfg(test)] mod helper;",
                "crates/a/src/helper.rs"
            ),
            []
        );
    }
}
