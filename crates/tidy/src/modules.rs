//! The modules of a crate, and which module a path leads to.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Component, Path, PathBuf},
};

use crate::{
    parse::{ModuleDecl, Scope},
    source::Source,
};

/// Path of a module in its crate; empty for the root.
pub(crate) type ModulePath = Vec<String>;

/// A crate's modules outside of tests, as their declarations lead to them from the root file.
pub(crate) struct Crate {
    /// Folder of the crate below `crates/`.
    pub(crate) name: String,
    pub(crate) modules: BTreeMap<ModulePath, Module>,
}

/// One module of a crate.
pub(crate) struct Module {
    /// Index of its file in `Workspace::sources`.
    pub(crate) source: usize,
    /// Index of its scope in the file's `ParsedFile::scopes`.
    pub(crate) scope: usize,
    /// Path of the module that the file itself is; differs from the module's path for inline
    /// modules.
    pub(crate) file_module: ModulePath,
    pub(crate) private: bool,
}

/// End of a path: a module, or an item with the module that defines it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    Module(ModulePath),
    Item { module: ModulePath, name: String },
}

impl Target {
    /// Module that the target is, or is defined in.
    pub(crate) fn module(&self) -> &ModulePath {
        match self {
            Self::Module(module) | Self::Item { module, .. } => module,
        }
    }
}

impl Crate {
    /// All crates below `crates/` that have a root file.
    pub(crate) fn all_in(sources: &[Source]) -> Vec<Self> {
        let by_path: BTreeMap<&str, usize> = sources
            .iter()
            .enumerate()
            .map(|(at, source)| (&*source.path, at))
            .collect();
        let names: BTreeSet<&str> = sources
            .iter()
            .filter_map(|source| source.path.strip_prefix("crates/")?.split('/').next())
            .collect();
        names
            .into_iter()
            .filter_map(|name| {
                let root = ["lib.rs", "main.rs"]
                    .iter()
                    .find_map(|file| by_path.get(&*format!("crates/{name}/src/{file}")))?;
                let mut krate = Self {
                    name: name.to_owned(),
                    modules: BTreeMap::new(),
                };
                let (private, owns_folder) = (false, true);
                krate.add_file(sources, &by_path, *root, Vec::new(), private, owns_folder);
                Some(krate)
            })
            .collect()
    }

    /// Adds a file's modules and the files that they declare. `private` is that of the file's own
    /// module; `owns_folder` is `true` if the files of child modules are beside this file, as for
    /// `mod.rs`.
    fn add_file(
        &mut self,
        sources: &[Source],
        by_path: &BTreeMap<&str, usize>,
        source: usize,
        file_module: ModulePath,
        private: bool,
        owns_folder: bool,
    ) {
        let file = Path::new(&sources[source].path);
        let beside = file.parent().unwrap_or(Path::new("")).to_owned();
        let children = if owns_folder {
            beside.clone()
        } else {
            file.with_extension("")
        };
        for (index, scope) in sources[source].parsed.scopes.iter().enumerate() {
            let mut path = file_module.clone();
            path.extend(scope.path.iter().cloned());
            let module = Module {
                source,
                scope: index,
                file_module: file_module.clone(),
                private,
            };
            // The first one counts: a module may be declared once for each platform.
            self.modules.entry(path.clone()).or_insert(module);
            for decl in scope
                .modules
                .iter()
                .filter(|decl| !decl.inline && !decl.test)
            {
                let inner = children.join(scope.path.iter().collect::<PathBuf>());
                let found = child_files(decl, &beside, &inner)
                    .into_iter()
                    .find_map(|(path, owns_folder)| Some((*by_path.get(&*path)?, owns_folder)));
                let Some((child, owns_folder)) = found else {
                    // A file below another root, or one that is not built here.
                    continue;
                };
                let mut path = path.clone();
                path.push(decl.name.clone());
                self.add_file(sources, by_path, child, path, decl.private, owns_folder);
            }
        }
    }

    /// Scope of a module: its items, imports and impls.
    pub(crate) fn scope<'a>(&self, sources: &'a [Source], path: &ModulePath) -> Option<&'a Scope> {
        let module = self.modules.get(path)?;
        sources[module.source].parsed.scopes.get(module.scope)
    }

    /// Path of the module that the file of a module is.
    pub(crate) fn file_module(&self, path: &ModulePath) -> Option<&ModulePath> {
        Some(&self.modules.get(path)?.file_module)
    }

    /// Follows a path that is written in the module `from`, through imports and re-exports. `None`
    /// for paths that lead out of the crate.
    pub(crate) fn resolve(
        &self,
        sources: &[Source],
        from: &ModulePath,
        path: &[String],
    ) -> Option<Target> {
        self.follow(sources, from, path, &mut BTreeSet::new())
    }

    fn follow(
        &self,
        sources: &[Source],
        from: &ModulePath,
        path: &[String],
        seen: &mut BTreeSet<(ModulePath, String)>,
    ) -> Option<Target> {
        let mut at = from.clone();
        for (index, segment) in path.iter().enumerate() {
            match segment.as_str() {
                // `crate` in the middle of a path is the name of nothing.
                "crate" if index == 0 => at.clear(),
                "self" => {}
                "super" => {
                    at.pop()?;
                }
                name => match self.lookup(sources, &at, name, seen)? {
                    Target::Module(module) => at = module,
                    // The rest of the path is a variant or an associated item.
                    item @ Target::Item { .. } => return Some(item),
                },
            }
        }
        Some(Target::Module(at))
    }

    /// Target of a name in a module: a child module, an item or an import.
    fn lookup(
        &self,
        sources: &[Source],
        module: &ModulePath,
        name: &str,
        seen: &mut BTreeSet<(ModulePath, String)>,
    ) -> Option<Target> {
        // Re-exports may go round in a circle, which ends here.
        if !seen.insert((module.clone(), name.to_owned())) {
            return None;
        }
        let scope = self.scope(sources, module)?;
        let mut child = module.clone();
        child.push(name.to_owned());
        // Modules, items and imports come in the order in which a name is found most often.
        if self.modules.contains_key(&child) {
            return Some(Target::Module(child));
        }
        if scope.items.contains_key(name) {
            return Some(Target::Item {
                module: module.clone(),
                name: name.to_owned(),
            });
        }
        let named = scope
            .imports
            .iter()
            .filter(|import| import.name.as_deref() == Some(name));
        for import in named {
            if let Some(target) = self.follow(sources, module, &import.path, seen) {
                return Some(target);
            }
        }
        // Globs last, as in the language: what is named shadows what a glob brings.
        for glob in scope.imports.iter().filter(|import| import.name.is_none()) {
            if let Some(Target::Module(opened)) = self.follow(sources, module, &glob.path, seen)
                && let Some(target) = self.lookup(sources, &opened, name, seen)
            {
                return Some(target);
            }
        }
        None
    }
}

/// Files that may hold a declared module, each with whether its children are beside it.
fn child_files(decl: &ModuleDecl, beside: &Path, inner: &Path) -> Vec<(String, bool)> {
    let candidates = match &decl.file {
        // A `#[path]` is relative to the declaring file, and its children are beside it.
        Some(file) => vec![(beside.join(file), true)],
        None => vec![
            (inner.join(format!("{}.rs", decl.name)), false),
            (inner.join(&decl.name).join("mod.rs"), true),
        ],
    };
    candidates
        .into_iter()
        .map(|(path, owns)| (without_parent_parts(&path), owns))
        .collect()
}

/// Returns the path without `..`, with `/` between its parts.
fn without_parent_parts(path: &Path) -> String {
    let mut parts: Vec<String> = Vec::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                parts.pop();
            }
            part => parts.push(part.as_os_str().to_string_lossy().into_owned()),
        }
    }
    parts.join("/")
}
