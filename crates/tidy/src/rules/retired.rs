//! Items that were replaced and must not come back: `retired.toml`.

use serde::Deserialize;

use super::{Moves, Rule};
use crate::{Finding, Workspace, modules::Crate};

pub(super) const RULE: Rule = Rule {
    name: "retired",
    statement: "what crates/tidy/retired.toml lists does not come back",
    remedy: "use what replaced it",
    moves: Moves::Nowhere,
    find: |workspace| find_retired(workspace, &parse_list(include_str!("../../retired.toml"))),
};

/// The list: each entry with what replaced it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Retired {
    #[serde(default)]
    file: Vec<Entry>,
    #[serde(default)]
    item: Vec<Entry>,
    #[serde(default)]
    key: Vec<Entry>,
    #[serde(default)]
    metric: Vec<Entry>,
}

/// One retired thing.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    /// Path of a file, `crate::module::Item`, path of a key, or full name of a metric.
    name: String,
    /// Replacement, for the message.
    now: String,
}

fn parse_list(text: &str) -> Retired {
    let list: Retired = toml::from_str(text).expect("retired.toml is well-formed");
    let all = list
        .file
        .iter()
        .chain(&list.item)
        .chain(&list.key)
        .chain(&list.metric);
    for entry in all {
        // A bare word would be found in every sentence that uses it. A metric has underscores.
        let is_specific = entry.name.contains(['/', ':', '.', '_']);
        assert!(
            is_specific,
            "retired.toml: {:?} is a bare word; give its path or full name",
            entry.name
        );
    }
    list
}

fn find_retired(workspace: &Workspace, list: &Retired) -> Vec<Finding> {
    let mut found = Vec::new();
    for entry in &list.file {
        if let Some(path) = paths(workspace).find(|path| is_below(path, &entry.name)) {
            found.push(new_finding(path, 0, "file", entry));
        }
    }
    for entry in &list.item {
        found.extend(
            workspace
                .crates
                .iter()
                .filter_map(|krate| find_item(workspace, krate, entry)),
        );
    }
    for text in workspace
        .texts
        .iter()
        .filter(|text| text.path.ends_with(".toml"))
    {
        // Templates of configurations are not TOML before they are filled in.
        let Ok(table) = text.text.parse::<toml::Table>() else {
            continue;
        };
        let table = toml::Value::Table(table);
        let keys = list.key.iter().filter(|entry| has_key(&table, &entry.name));
        found.extend(keys.map(|entry| new_finding(&text.path, 0, "key", entry)));
    }
    for entry in &list.metric {
        let all = workspace
            .sources
            .iter()
            .map(|source| (&source.path, &source.text));
        // The change log tells what was replaced by what.
        let texts = workspace
            .texts
            .iter()
            .filter(|text| text.path != "CHANGELOG.md");
        let all = all.chain(texts.map(|text| (&text.path, &text.text)));
        for (path, text) in all {
            if let Some(line) = line_with(text, &entry.name) {
                found.push(new_finding(path, line, "metric", entry));
            }
        }
    }
    found
}

fn new_finding(place: &str, line: usize, kind: &str, entry: &Entry) -> Finding {
    Finding {
        rule: RULE.name,
        place: place.to_owned(),
        item: Some(entry.name.clone()),
        line,
        figure: 1,
        what: format!("the {kind} `{}` was replaced by {}", entry.name, entry.now),
    }
}

fn paths(workspace: &Workspace) -> impl Iterator<Item = &str> {
    let sources = workspace.sources.iter().map(|source| &*source.path);
    sources.chain(workspace.texts.iter().map(|text| &*text.path))
}

/// Returns `true` if a path is the retired one, or below it where that is a folder.
fn is_below(path: &str, retired: &str) -> bool {
    path.strip_prefix(retired)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Looks for a definition or a public re-export at the retired path, or for a method of the type
/// there.
fn find_item(workspace: &Workspace, krate: &Crate, entry: &Entry) -> Option<Finding> {
    let path: Vec<String> = entry.name.split("::").map(str::to_owned).collect();
    let (first, path) = path.split_first()?;
    if *first != krate.name {
        return None;
    }
    let depth = (0..path.len())
        .rev()
        // The longest module path first; what is left is an item, or a type and its method.
        .find(|&n| krate.modules.contains_key(&path[..n]))?;
    let (module, rest) = (&path[..depth], &path[depth..]);
    let file = &workspace.sources[krate.modules.get(module)?.source];
    let scope = krate.scope(&workspace.sources, &module.to_vec())?;
    match rest {
        [name] => {
            let import = scope
                .imports
                .iter()
                .find(|import| import.public && import.name.as_ref() == Some(name));
            let line = scope.items.get(name).map(|item| item.line);
            let line = line.or(import.map(|import| import.line))?;
            Some(new_finding(&file.path, line, "item", entry))
        }
        [ty, method] => {
            let inherent = scope.impls.iter().find(|inherent| {
                inherent.target.last() == Some(ty)
                    && inherent.methods.iter().any(|known| known.name == *method)
            })?;
            Some(new_finding(&file.path, inherent.line, "function", entry))
        }
        _ => None,
    }
}

/// Returns `true` if a configuration has a key at a path such as `vm.disk.size`, through arrays of
/// tables.
fn has_key(value: &toml::Value, path: &str) -> bool {
    match value {
        toml::Value::Array(values) => values.iter().any(|value| has_key(value, path)),
        toml::Value::Table(table) => match path.split_once('.') {
            Some((first, rest)) => table.get(first).is_some_and(|value| has_key(value, rest)),
            None => table.contains_key(path),
        },
        _ => false,
    }
}

/// First line with the whole name, which no other name continues.
fn line_with(text: &str, name: &str) -> Option<usize> {
    let continues = |c: char| c.is_alphanumeric() || c == '_';
    let is_whole = |at: usize| {
        !text[..at].ends_with(continues) && !text[at + name.len()..].starts_with(continues)
    };
    let (at, _) = text.match_indices(name).find(|&(at, _)| is_whole(at))?;
    Some(text[..at].matches('\n').count() + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = r#"
        file = [{ name = "crates/a/src/old", now = "`new`" }]
        item = [
            { name = "a::queue::Old", now = "`New`" },
            { name = "a::queue::Queue::take", now = "`pop`" },
        ]
        key = [{ name = "vm.disk.bytes", now = "`size`" }]
        metric = [{ name = "tidy_old_total", now = "`tidy_new_total`" }]
    "#;

    fn items(files: &[(&str, &str)]) -> Vec<String> {
        let workspace = Workspace::from_texts(files).expect("planted sources parse");
        find_retired(&workspace, &parse_list(LIST))
            .into_iter()
            .filter_map(|finding| finding.item)
            .collect()
    }

    #[test]
    fn each_kind_of_retired_thing_is_found() {
        let root = ("crates/a/src/lib.rs", "pub mod queue;");
        let queue = |text| items(&[root, ("crates/a/src/queue.rs", text)]);
        assert_eq!(queue("pub struct Old;"), ["a::queue::Old"]);
        assert_eq!(queue("pub use crate::Old;"), ["a::queue::Old"]);
        assert_eq!(
            queue("impl Queue { fn take(&self) {} }"),
            ["a::queue::Queue::take"]
        );
        assert_eq!(
            queue(r#"const M: &str = "tidy_old_total";"#),
            ["tidy_old_total"]
        );
        assert_eq!(
            items(&[("crates/a/src/old/mod.rs", "")]),
            ["crates/a/src/old"]
        );
        assert_eq!(
            items(&[("examples/a.toml", "[[vm]]\n[[vm.disk]]\nbytes = 1")]),
            ["vm.disk.bytes"]
        );
    }

    #[test]
    fn equal_words_elsewhere_are_left_alone() {
        let root = (
            "crates/a/src/lib.rs",
            "pub mod queue; pub struct Old; mod older;",
        );
        let queue = (
            "crates/a/src/queue.rs",
            "fn take() { let tidy_old_total_x = 1; }",
        );
        let example = ("examples/a.toml", "bytes = 1");
        assert_eq!(
            items(&[root, queue, ("crates/a/src/older.rs", ""), example]),
            [""; 0]
        );
    }

    #[test]
    #[should_panic(expected = "bare word")]
    fn a_bare_word_is_refused() {
        parse_list(r#"key = [{ name = "bytes", now = "`size`" }]"#);
    }
}
