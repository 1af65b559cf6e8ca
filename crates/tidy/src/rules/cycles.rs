//! Imports among the modules of a crate: at each level, the sibling files and folders.

use std::collections::{BTreeMap, BTreeSet};

use super::{Moves, Rule};
use crate::{
    Finding, Workspace,
    modules::{Crate, ModulePath},
};

pub(super) const RULE: Rule = Rule {
    name: "import-cycle",
    statement: "files and folders beside each other do not import each other in a circle; a file \
                and the folder of its submodules are one",
    remedy: "move what both need to a file below them, or pass it as an argument",
    moves: Moves::Nowhere,
    find,
};

/// First use of one module in another: file, line and path as written.
type Uses<'a> = BTreeMap<(ModulePath, ModulePath), (&'a str, usize, String)>;

fn find(workspace: &Workspace) -> Vec<Finding> {
    workspace
        .crates
        .iter()
        .flat_map(|of| cycles(workspace, of))
        .collect()
}

/// A finding for each module in a circle. Its figure is the number of modules in the circle that it
/// imports, so that each import that is cut lowers one debt.
fn cycles(workspace: &Workspace, of: &Crate) -> Vec<Finding> {
    let uses = uses(workspace, of);
    let mut imports: BTreeMap<&ModulePath, BTreeSet<&ModulePath>> = BTreeMap::new();
    for (from, to) in uses.keys() {
        imports.entry(from).or_default().insert(to);
    }
    let reached: BTreeMap<_, _> = imports
        .keys()
        .map(|module| (*module, reachable(&imports, module)))
        .collect();
    let mut found = Vec::new();
    for (module, direct) in &imports {
        let back = |other: &ModulePath| reached.get(other).is_some_and(|set| set.contains(*module));
        let closing: Vec<&ModulePath> = direct.iter().copied().filter(|to| back(to)).collect();
        // It may import a circle without being in it.
        if closing.is_empty() {
            continue;
        }
        let list = closing.iter().map(|to| {
            let (file, line, path) = &uses[&((*module).clone(), (*to).clone())];
            format!("{} ({path}, {file}:{line})", to.join("::"))
        });
        found.push(Finding {
            rule: RULE.name,
            place: format!("crates/{}/src/{}", of.name, module.join("/")),
            item: None,
            line: 0,
            figure: closing.len(),
            what: format!(
                "imports in a circle: {}",
                list.collect::<Vec<_>>().join(", ")
            ),
        });
    }
    found
}

/// Modules that `from` imports, directly or through others.
fn reachable<'a>(
    imports: &BTreeMap<&'a ModulePath, BTreeSet<&'a ModulePath>>,
    from: &'a ModulePath,
) -> BTreeSet<&'a ModulePath> {
    let mut seen = BTreeSet::new();
    let mut open = vec![from];
    while let Some(module) = open.pop() {
        for &next in imports.get(module).into_iter().flatten() {
            if seen.insert(next) {
                open.push(next);
            }
        }
    }
    seen
}

fn uses<'a>(workspace: &'a Workspace, of: &Crate) -> Uses<'a> {
    let mut uses = Uses::new();
    for (path, module) in &of.modules {
        let source = &workspace.sources[module.source];
        let scope = &source.parsed.scopes[module.scope];
        let imports = scope
            .imports
            .iter()
            .map(|import| (&import.path, import.line));
        let paths = scope.paths.iter().map(|(path, &line)| (path, line));
        for (written, line) in imports.chain(paths) {
            let mut note = |target: &ModulePath| {
                let Some(file_module) = of.file_module(target) else {
                    return;
                };
                // A file and what is below or above it are one.
                let Some(pair) = siblings(&module.file_module, file_module) else {
                    return;
                };
                uses.entry(pair)
                    .or_insert((&source.path, line, written.join("::")));
            };
            // The folder that a path goes through is imported as much as the item's own file.
            for length in 1..written.len() {
                if let Some(passed) = of.resolve(&workspace.sources, path, &written[..length]) {
                    note(passed.module());
                }
            }
            if let Some(target) = of.resolve(&workspace.sources, path, written) {
                note(target.module());
            }
        }
    }
    uses
}

/// The sibling modules that two files are in. `None` where one is above the other.
fn siblings(from: &ModulePath, to: &ModulePath) -> Option<(ModulePath, ModulePath)> {
    let common = from.iter().zip(to).take_while(|(a, b)| a == b).count();
    (common < from.len() && common < to.len())
        // At the first level at which they differ: there they are siblings.
        .then(|| (from[..=common].to_vec(), to[..=common].to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOT: (&str, &str) = (
        "crates/a/src/lib.rs",
        "pub mod low; mod high; pub use high::Top;",
    );

    fn places(files: &[(&str, &str)]) -> Vec<String> {
        super::super::findings_in(&RULE, files)
            .into_iter()
            .map(|finding| finding.place)
            .collect()
    }

    #[test]
    fn files_that_import_each_other_are_found() {
        let high = (
            "crates/a/src/high.rs",
            "use crate::low::Base; pub struct Top(Base);",
        );
        let both = ["crates/a/src/high", "crates/a/src/low"];
        for low in [
            "use crate::high::Top; pub struct Base;",
            "use crate::Top; pub struct Base;",
            "use super::*; pub struct Base; fn f(_: Top) {}",
            "pub struct Base; fn f() -> super::high::Top { todo!() }",
            "pub struct Base; fn f() { assert!(crate::high::Top::new()); }",
            "pub struct Base; mod inner { use crate::high::Top; }",
        ] {
            assert_eq!(
                places(&[ROOT, high, ("crates/a/src/low.rs", low)]),
                both,
                "{low}"
            );
        }
    }

    #[test]
    fn imports_one_way_parents_and_tests_are_no_circle() {
        let high = (
            "crates/a/src/high.rs",
            "use crate::low::Base; pub struct Top(Base);",
        );
        for low in [
            "pub struct Base;",
            "pub struct Base; #[cfg(test)] mod tests { use crate::high::Top; }",
            "pub struct Base; #[test] fn f() { crate::high::Top::new(); }",
        ] {
            assert_eq!(
                places(&[ROOT, high, ("crates/a/src/low.rs", low)]),
                [""; 0],
                "{low}"
            );
        }
        let parent = (
            "crates/a/src/low.rs",
            "mod part; use part::Part; pub struct Base(Part);",
        );
        let part = (
            "crates/a/src/low/part.rs",
            "use super::Base; pub struct Part;",
        );
        assert_eq!(places(&[ROOT, high, parent, part]), [""; 0]);
    }

    #[test]
    fn circles_through_folders_and_inside_of_them_are_found() {
        let root = ("crates/a/src/lib.rs", "mod x; mod y;");
        let x = ("crates/a/src/x/mod.rs", "mod p; mod q;");
        let y = ("crates/a/src/y.rs", "use crate::x::q::Q; pub struct Y;");
        let p = ("crates/a/src/x/p.rs", "use crate::y::Y; pub struct P;");
        let q = ("crates/a/src/x/q.rs", "pub struct Q;");
        assert_eq!(
            places(&[root, x, y, p, q]),
            ["crates/a/src/x", "crates/a/src/y"]
        );
        let p = ("crates/a/src/x/p.rs", "use super::q::Q; pub struct P;");
        let q = ("crates/a/src/x/q.rs", "use super::p::P; pub struct Q;");
        assert_eq!(
            places(&[root, x, y, p, q]),
            ["crates/a/src/x/p", "crates/a/src/x/q"]
        );
    }
}
