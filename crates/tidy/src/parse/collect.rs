//! The walk over a file's syntax tree.

use proc_macro2::Span;
use syn::{
    Attribute, ImplItem, Item as SynItem, Meta, TraitItem, Type, UseTree, Visibility,
    visit::{self, Visit},
};

use super::{Function, Import, InherentImpl, Item, Method, ModuleDecl, ParsedFile, Scope, tokens};

pub(super) fn collect(file: &syn::File) -> ParsedFile {
    let mut collector = Collector {
        parsed: ParsedFile {
            scopes: vec![Scope::default()],
            functions: Vec::new(),
        },
        scope: 0,
        names: Vec::new(),
        test_depth: 0,
        body_depth: 0,
    };
    collector.visit_file(file);
    collector.parsed
}

struct Collector {
    parsed: ParsedFile,
    /// Index of the module that the walk is in.
    scope: usize,
    /// Inline modules, types and functions around the place where the walk is.
    names: Vec<String>,
    /// Number of surrounding items that are compiled in tests only.
    test_depth: usize,
    /// Number of surrounding function bodies.
    body_depth: usize,
}

impl Collector {
    fn scope(&mut self) -> &mut Scope {
        &mut self.parsed.scopes[self.scope]
    }

    fn named(&mut self, name: String, walk: impl FnOnce(&mut Self)) {
        self.names.push(name);
        walk(self);
        self.names.pop();
    }

    fn in_test_if(&mut self, test: bool, walk: impl FnOnce(&mut Self)) {
        self.test_depth += usize::from(test);
        walk(self);
        self.test_depth -= usize::from(test);
    }

    fn function(&mut self, name: String, first: Span, last: Span, walk: impl FnOnce(&mut Self)) {
        let line = first.start().line;
        self.names.push(name);
        let name = self.names.join("::");
        self.parsed.functions.push(Function {
            name,
            line,
            // Both lines included.
            lines: last.end().line + 1 - line,
        });
        self.body_depth += 1;
        walk(self);
        self.body_depth -= 1;
        self.names.pop();
    }

    /// Items inside of functions are visible to nobody else, so they are no names of the module.
    fn item(&mut self, name: &syn::Ident, trait_methods: usize) {
        if self.test_depth == 0 && self.body_depth == 0 {
            let item = Item {
                line: name.span().start().line,
                trait_methods,
            };
            self.scope().items.insert(name.to_string(), item);
        }
    }

    fn module(&mut self, node: &syn::ItemMod) {
        let test = self.test_depth > 0;
        let decl = ModuleDecl {
            name: node.ident.to_string(),
            file: node.attrs.iter().find_map(path_attribute),
            inline: node.content.is_some(),
            private: matches!(node.vis, Visibility::Inherited),
            test,
        };
        self.scope().modules.push(decl);
        // `mod name;`: the file has a walk of its own.
        if node.content.is_none() {
            return;
        }
        let mut path = self.scope().path.clone();
        path.push(node.ident.to_string());
        let outer = self.scope;
        self.scope = self.parsed.scopes.len();
        self.parsed.scopes.push(Scope {
            path,
            ..Scope::default()
        });
        self.named(node.ident.to_string(), |this| {
            visit::visit_item_mod(this, node)
        });
        self.scope = outer;
    }

    fn import(&mut self, tree: &UseTree, path: &mut Vec<String>, public: bool) {
        let (line, last) = match tree {
            UseTree::Path(tree) => {
                path.push(tree.ident.to_string());
                self.import(&tree.tree, path, public);
                // The path is shared by all branches of a group.
                path.pop();
                return;
            }
            UseTree::Group(group) => {
                for tree in &group.items {
                    self.import(tree, path, public);
                }
                return;
            }
            UseTree::Glob(glob) => (glob.star_token.span.start().line, None),
            UseTree::Name(name) => (
                name.ident.span().start().line,
                Some((&name.ident, &name.ident)),
            ),
            UseTree::Rename(name) => (
                name.ident.span().start().line,
                Some((&name.ident, &name.rename)),
            ),
        };
        let mut path = path.clone();
        // `use a::b::{self}` imports `a::b` itself.
        let own = last.is_some_and(|(name, _)| name == "self");
        path.extend(last.filter(|_| !own).map(|(name, _)| name.to_string()));
        let name = match last {
            // `{self as b}` keeps the new name, `{self}` has the last segment's.
            Some((original, rename)) if own && original == rename => path.last().cloned(),
            other => other.map(|(_, rename)| rename.to_string()),
        };
        self.scope().imports.push(Import {
            path,
            name,
            public,
            line,
        });
    }

    fn inherent_impl(&mut self, node: &syn::ItemImpl) {
        let Some(target) = type_path(&node.self_ty) else {
            return;
        };
        let functions = node.items.iter().filter_map(|item| match item {
            // Functions of tests are no methods that a user of the type meets.
            ImplItem::Fn(function) if !function.attrs.iter().any(is_test) => Some(function),
            _ => None,
        });
        let methods = functions.map(|function| Method {
            name: function.sig.ident.to_string(),
            public: is_public(&function.vis),
        });
        let line = node.impl_token.span.start().line;
        let found = InherentImpl {
            target,
            line,
            methods: methods.collect(),
        };
        self.scope().impls.push(found);
    }

    fn path(&mut self, path: Vec<String>, line: usize) {
        if self.test_depth == 0 {
            // The first line is enough for a message.
            self.scope().paths.entry(path).or_insert(line);
        }
    }
}

impl<'ast> Visit<'ast> for Collector {
    fn visit_item(&mut self, node: &'ast SynItem) {
        let test = attributes(node).iter().any(is_test);
        self.in_test_if(test, |this| visit::visit_item(this, node));
    }

    fn visit_item_mod(&mut self, node: &'ast syn::ItemMod) {
        self.module(node);
    }

    fn visit_item_use(&mut self, node: &'ast syn::ItemUse) {
        if self.test_depth == 0 {
            let public = !matches!(node.vis, Visibility::Inherited);
            self.import(&node.tree, &mut Vec::new(), public);
        }
    }

    fn visit_item_impl(&mut self, node: &'ast syn::ItemImpl) {
        if node.trait_.is_none() && self.test_depth == 0 && self.body_depth == 0 {
            self.inherent_impl(node);
        }
        let name = type_path(&node.self_ty).and_then(|mut path| path.pop());
        // Impls for references and tuples have no name to show.
        let name = name.unwrap_or_else(|| "impl".to_owned());
        self.named(name, |this| visit::visit_item_impl(this, node));
    }

    fn visit_item_trait(&mut self, node: &'ast syn::ItemTrait) {
        let methods = node
            .items
            .iter()
            .filter(|item| matches!(item, TraitItem::Fn(_)));
        self.item(&node.ident, methods.count());
        self.named(node.ident.to_string(), |this| {
            visit::visit_item_trait(this, node)
        });
    }

    fn visit_item_struct(&mut self, node: &'ast syn::ItemStruct) {
        self.item(&node.ident, 0);
        visit::visit_item_struct(self, node);
    }

    fn visit_item_enum(&mut self, node: &'ast syn::ItemEnum) {
        self.item(&node.ident, 0);
        visit::visit_item_enum(self, node);
    }

    fn visit_item_union(&mut self, node: &'ast syn::ItemUnion) {
        self.item(&node.ident, 0);
        visit::visit_item_union(self, node);
    }

    fn visit_item_type(&mut self, node: &'ast syn::ItemType) {
        self.item(&node.ident, 0);
        visit::visit_item_type(self, node);
    }

    fn visit_item_const(&mut self, node: &'ast syn::ItemConst) {
        self.item(&node.ident, 0);
        visit::visit_item_const(self, node);
    }

    fn visit_item_static(&mut self, node: &'ast syn::ItemStatic) {
        self.item(&node.ident, 0);
        visit::visit_item_static(self, node);
    }

    fn visit_item_macro(&mut self, node: &'ast syn::ItemMacro) {
        if let Some(name) = &node.ident {
            self.item(name, 0);
        }
        visit::visit_item_macro(self, node);
    }

    fn visit_item_fn(&mut self, node: &'ast syn::ItemFn) {
        self.item(&node.sig.ident, 0);
        let last = node.block.brace_token.span.close();
        self.function(
            node.sig.ident.to_string(),
            node.sig.fn_token.span,
            last,
            |this| {
                visit::visit_item_fn(this, node);
            },
        );
    }

    fn visit_impl_item_fn(&mut self, node: &'ast syn::ImplItemFn) {
        let last = node.block.brace_token.span.close();
        let test = node.attrs.iter().any(is_test);
        self.in_test_if(test, |this| {
            this.function(
                node.sig.ident.to_string(),
                node.sig.fn_token.span,
                last,
                |this| {
                    visit::visit_impl_item_fn(this, node);
                },
            );
        });
    }

    fn visit_trait_item_fn(&mut self, node: &'ast syn::TraitItemFn) {
        let Some(block) = &node.default else {
            return visit::visit_trait_item_fn(self, node);
        };
        let last = block.brace_token.span.close();
        self.function(
            node.sig.ident.to_string(),
            node.sig.fn_token.span,
            last,
            |this| {
                visit::visit_trait_item_fn(this, node);
            },
        );
    }

    fn visit_path(&mut self, node: &'ast syn::Path) {
        self.path(path_segments(node), path_line(node));
        visit::visit_path(self, node);
    }

    /// The syntax tree of a macro's arguments is unknown; its tokens have paths and functions, too.
    fn visit_macro(&mut self, node: &'ast syn::Macro) {
        self.path(path_segments(&node.path), path_line(&node.path));
        tokens::paths(node.tokens.clone(), &mut |path, line| self.path(path, line));
        let around = self.names.join("::");
        tokens::functions(node.tokens.clone(), &mut |name, line, lines| {
            let name = if around.is_empty() {
                name
            } else {
                format!("{around}::{name}")
            };
            self.parsed.functions.push(Function { name, line, lines });
        });
    }

    /// Paths of attributes name macros and lints, those of `pub(in ...)` import nothing.
    fn visit_attribute(&mut self, _: &'ast Attribute) {}

    fn visit_vis_restricted(&mut self, _: &'ast syn::VisRestricted) {}
}

fn path_segments(path: &syn::Path) -> Vec<String> {
    path.segments
        .iter()
        .map(|segment| segment.ident.to_string())
        .collect()
}

fn path_line(path: &syn::Path) -> usize {
    path.segments
        .first()
        .map_or(0, |segment| segment.ident.span().start().line)
}

/// Path of a named type; `None` for references, tuples and others that have no name.
fn type_path(ty: &Type) -> Option<Vec<String>> {
    match ty {
        Type::Path(ty) if ty.qself.is_none() => Some(path_segments(&ty.path)),
        Type::Paren(ty) => type_path(&ty.elem),
        Type::Group(ty) => type_path(&ty.elem),
        // `impl dyn Trait` adds to the methods of the trait.
        Type::TraitObject(ty) => ty.bounds.iter().find_map(|bound| match bound {
            syn::TypeParamBound::Trait(bound) => Some(path_segments(&bound.path)),
            _ => None,
        }),
        _ => None,
    }
}

fn is_public(visibility: &Visibility) -> bool {
    match visibility {
        Visibility::Public(_) => true,
        // `pub(super)` and `pub(in ...)` are seen by neighbours only.
        Visibility::Restricted(within) => within.path.is_ident("crate"),
        Visibility::Inherited => false,
    }
}

/// Returns `true` for an attribute that keeps its item out of builds: `#[test]`, or a `#[cfg(...)]`
/// that asks for `test`.
fn is_test(attribute: &Attribute) -> bool {
    match &attribute.meta {
        Meta::Path(path) => path.is_ident("test"),
        Meta::List(list) if list.path.is_ident("cfg") => {
            let words = list.tokens.to_string();
            let mut words = words.split(|c: char| !c.is_alphanumeric() && c != '_');
            // `cfg(not(test))` is built, and counts.
            words.clone().any(|word| word == "test") && !words.any(|word| word == "not")
        }
        _ => false,
    }
}

fn path_attribute(attribute: &Attribute) -> Option<String> {
    let Meta::NameValue(pair) = &attribute.meta else {
        return None;
    };
    let syn::Expr::Lit(syn::ExprLit {
        lit: syn::Lit::Str(file),
        ..
    }) = &pair.value
    else {
        return None;
    };
    pair.path.is_ident("path").then(|| file.value())
}

fn attributes(item: &SynItem) -> &[Attribute] {
    match item {
        SynItem::Const(item) => &item.attrs,
        SynItem::Enum(item) => &item.attrs,
        SynItem::ExternCrate(item) => &item.attrs,
        SynItem::Fn(item) => &item.attrs,
        SynItem::ForeignMod(item) => &item.attrs,
        SynItem::Impl(item) => &item.attrs,
        SynItem::Macro(item) => &item.attrs,
        SynItem::Mod(item) => &item.attrs,
        SynItem::Static(item) => &item.attrs,
        SynItem::Struct(item) => &item.attrs,
        SynItem::Trait(item) => &item.attrs,
        SynItem::TraitAlias(item) => &item.attrs,
        SynItem::Type(item) => &item.attrs,
        SynItem::Union(item) => &item.attrs,
        SynItem::Use(item) => &item.attrs,
        _ => &[],
    }
}
