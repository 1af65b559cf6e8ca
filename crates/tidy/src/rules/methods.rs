//! Limits on the number of methods, and of visible methods, of a type or trait.

use std::collections::BTreeMap;

use super::{Moves, Rule};
use crate::{
    Finding, Workspace,
    modules::{Crate, ModulePath, Target},
};

/// Largest number of functions in a type's inherent impls, or of a trait.
const MAX_METHODS: usize = 60;
/// Largest number of functions that are `pub` or `pub(crate)`.
const MAX_PUBLIC: usize = 30;

pub(super) const METHODS: Rule = Rule {
    name: "methods",
    statement: "a type or trait has at most 60 methods",
    remedy: "split the type into parts that own their fields",
    moves: Moves::WithItem,
    find: |workspace| find(workspace, &METHOD_LIMIT),
};

pub(super) const SURFACE: Rule = Rule {
    name: "public-methods",
    statement: "a type or trait has at most 30 methods that are `pub` or `pub(crate)`",
    remedy: "put a part with methods of its own behind an accessor, or narrow their visibility",
    moves: Moves::WithItem,
    find: |workspace| find(workspace, &SURFACE_LIMIT),
};

/// Limit on a number of methods.
struct Limit {
    /// Name of the rule.
    rule: &'static str,
    max: usize,
    /// Name of the methods that are counted, for messages.
    counted: &'static str,
    figure: fn(MethodCount) -> usize,
}

const METHOD_LIMIT: Limit = Limit {
    rule: METHODS.name,
    max: MAX_METHODS,
    counted: "methods",
    figure: |count| count.all,
};

const SURFACE_LIMIT: Limit = Limit {
    rule: SURFACE.name,
    max: MAX_PUBLIC,
    counted: "methods that are `pub` or `pub(crate)`",
    figure: |count| count.public,
};

/// Number of functions of a type or trait.
#[derive(Clone, Copy, Default)]
struct MethodCount {
    all: usize,
    /// Functions that are `pub` or `pub(crate)`.
    public: usize,
}

fn find(workspace: &Workspace, limit: &Limit) -> Vec<Finding> {
    let Limit { max, counted, .. } = *limit;
    let mut found = Vec::new();
    for krate in &workspace.crates {
        for ((module, name), count) in count_methods(workspace, krate) {
            let Some(home) = krate.modules.get(&module) else {
                continue;
            };
            let figure = (limit.figure)(count);
            if figure <= max {
                continue;
            }
            let source = &workspace.sources[home.source];
            found.push(Finding {
                rule: limit.rule,
                place: source.path.clone(),
                item: Some(name.clone()),
                line: source.parsed.scopes[home.scope]
                    .items
                    .get(&name)
                    .map_or(0, |item| item.line),
                figure,
                what: format!("`{name}` has {figure} {counted}, at most {max} are allowed"),
            });
        }
    }
    found
}

/// Methods of each type and trait, by the module that defines it and its name.
fn count_methods(
    workspace: &Workspace,
    krate: &Crate,
) -> BTreeMap<(ModulePath, String), MethodCount> {
    let mut counts: BTreeMap<(ModulePath, String), MethodCount> = BTreeMap::new();
    for (path, module) in &krate.modules {
        let scope = &workspace.sources[module.source].parsed.scopes[module.scope];
        for (name, item) in scope
            .items
            .iter()
            .filter(|(_, item)| item.trait_methods > 0)
        {
            let all = item.trait_methods;
            // Added, as an `impl dyn Trait` in a module visited before may have an entry already.
            let count = counts.entry((path.clone(), name.clone())).or_default();
            count.all += all;
            // All functions of a trait are visible where the trait is.
            count.public += all;
        }
        for inherent in &scope.impls {
            let target = krate.resolve(&workspace.sources, path, &inherent.target);
            let Some(Target::Item { module, name }) = target else {
                continue;
            };
            let count = counts.entry((module, name)).or_default();
            count.all += inherent.methods.len();
            count.public += inherent
                .methods
                .iter()
                .filter(|method| method.public)
                .count();
        }
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn impl_of(visibility: &str, methods: std::ops::Range<usize>) -> String {
        let methods: String = methods
            .map(|n| format!("{visibility} fn m{n}() {{}}\n"))
            .collect();
        format!("impl T {{ {methods} }}")
    }

    fn findings(rule: &Rule, root: &str, part: &str) -> Vec<Finding> {
        let files = [
            ("crates/a/src/lib.rs", root),
            ("crates/a/src/part.rs", part),
        ];
        super::super::findings_in(rule, &files)
    }

    fn figures(rule: &Rule, root: &str, part: &str) -> Vec<usize> {
        let findings = findings(rule, root, part).into_iter();
        findings.map(|finding| finding.figure).collect()
    }

    #[test]
    fn methods_add_up_over_impls_and_files() {
        let root = format!("struct T; mod part; {}", impl_of("", 0..40));
        let part = |methods: usize| format!("use super::T; {}", impl_of("", 40..40 + methods));
        assert_eq!(figures(&METHODS, &root, &part(20)), []);
        assert_eq!(figures(&METHODS, &root, &part(21)), [61]);
        assert_eq!(figures(&SURFACE, &root, &part(21)), []);
    }

    #[test]
    fn methods_of_a_trait_and_of_its_trait_object_add_up() {
        // Modules are visited in the order of their paths: the root, which has the impl, first.
        let object = format!("use crate::part::T; {}", impl_of("", 40..61));
        let object = object.replace("impl T", "impl dyn T");
        let methods: String = (0..40).map(|n| format!("fn m{n}(&self);\n")).collect();
        let part = format!("pub trait T {{ {methods} }}");
        assert_eq!(
            figures(&METHODS, &format!("mod part; {object}"), &part),
            [61]
        );
    }

    #[test]
    fn public_methods_are_counted_apart() {
        let root = |visibility| format!("struct T; mod part; {}", impl_of(visibility, 0..31));
        assert_eq!(figures(&SURFACE, &root("pub"), ""), [31]);
        assert_eq!(figures(&SURFACE, &root("pub(crate)"), ""), [31]);
        assert_eq!(figures(&SURFACE, &root("pub(super)"), ""), []);
        assert_eq!(
            findings(&SURFACE, &root("pub"), "")[0].what,
            "`T` has 31 methods that are `pub` or `pub(crate)`, at most 30 are allowed"
        );
    }
}
