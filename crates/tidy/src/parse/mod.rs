//! Extract of one Rust file's syntax tree, with the facts that rules need.
//!
//! The extracts are plain data without spans, so that files can be parsed on several threads.

mod collect;
mod tokens;

use std::collections::BTreeMap;

/// Extract of a file: its modules and its functions.
pub(crate) struct ParsedFile {
    /// The file's own module first, then its inline modules.
    pub(crate) scopes: Vec<Scope>,
    /// All functions with a body, also those of tests and those inside macros.
    pub(crate) functions: Vec<Function>,
}

impl ParsedFile {
    /// Parses the text of a Rust file.
    pub(crate) fn parse(text: &str) -> syn::Result<Self> {
        Ok(collect::collect(&syn::parse_file(text)?))
    }
}

/// Names that one module declares, imports and uses, outside of tests.
#[derive(Default)]
pub(crate) struct Scope {
    /// Inline modules from the file's module down to this one.
    pub(crate) path: Vec<String>,
    pub(crate) modules: Vec<ModuleDecl>,
    pub(crate) imports: Vec<Import>,
    /// Types, functions, constants and macros that are defined here, with their lines.
    pub(crate) items: BTreeMap<String, Item>,
    pub(crate) impls: Vec<InherentImpl>,
    /// Paths that are used here, in expressions, types and macros, each with its first line.
    pub(crate) paths: BTreeMap<Vec<String>, usize>,
}

/// Declaration of a module, `mod name;` or `mod name { ... }`.
pub(crate) struct ModuleDecl {
    pub(crate) name: String,
    /// Argument of the attribute `#[path = "..."]`.
    pub(crate) file: Option<String>,
    pub(crate) inline: bool,
    pub(crate) private: bool,
    /// Compiled in tests only.
    pub(crate) test: bool,
}

/// One name of a `use` declaration.
pub(crate) struct Import {
    pub(crate) path: Vec<String>,
    /// Name that it has here; `None` for a glob.
    pub(crate) name: Option<String>,
    pub(crate) public: bool,
    pub(crate) line: usize,
}

/// An item that has a name in its module.
#[derive(Clone, Copy)]
pub(crate) struct Item {
    pub(crate) line: usize,
    /// Number of functions a trait declares; 0 for all other items.
    pub(crate) trait_methods: usize,
}

/// An `impl Type { ... }` without a trait.
pub(crate) struct InherentImpl {
    pub(crate) target: Vec<String>,
    pub(crate) line: usize,
    pub(crate) methods: Vec<Method>,
}

/// A function of an inherent impl.
pub(crate) struct Method {
    pub(crate) name: String,
    /// Visible beyond the module of the impl: `pub` or `pub(crate)`.
    pub(crate) public: bool,
}

/// A function with a body.
pub(crate) struct Function {
    /// Name with its type and inline modules: `Queue::push`, `tests::push_wakes`.
    pub(crate) name: String,
    pub(crate) line: usize,
    /// Number of lines from the signature to the closing brace, both included.
    pub(crate) lines: usize,
}
