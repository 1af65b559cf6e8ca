//! JSON Schemas of documents, compared with their readers.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use boon::{Compiler, SchemaIndex, Schemas};
use serde_json::{Map, Value, json};
use tidegate_config::document;
use tidegate_config::keys::{KeyDefault, SectionInfo};

/// Validator for values against one JSON Schema.
pub struct Checker {
    schemas: Schemas,
    index: SchemaIndex,
}

impl Checker {
    /// Creates a validator for `schema`.
    ///
    /// # Panics
    /// Panics if it is not a valid schema.
    pub fn new(schema: Value) -> Checker {
        let (mut schemas, mut compiler) = (Schemas::new(), Compiler::new());
        let at = "mem:///schema.json";
        compiler.add_resource(at, schema).expect("it is JSON");
        let index = compiler.compile(at, &mut schemas);
        let index = index.unwrap_or_else(|error| panic!("no schema: {error:#}"));
        Checker { schemas, index }
    }

    /// Validates a value; the error describes the mismatch.
    pub fn check(&self, value: &Value) -> Result<(), String> {
        let checked = self.schemas.validate(value, self.index);
        checked.map_err(|error| format!("{error:#}"))
    }

    /// Validates a document in TOML; the error describes the mismatch.
    pub fn check_toml(&self, text: &str) -> Result<(), String> {
        self.check(&toml_to_json(text)?)
    }
}

/// Returns the schema with no key required, for parts of a document.
pub fn without_required(mut schema: Value) -> Value {
    fn relax(schema: &mut Value) {
        if let Value::Object(keys) = schema {
            if keys.get("required").is_some_and(Value::is_array) {
                keys.remove("required");
            }
            keys.values_mut().for_each(relax);
        }
    }
    relax(&mut schema);
    schema
}

/// Converts a TOML document to JSON; the error describes why it is not TOML.
pub fn toml_to_json(text: &str) -> Result<Value, String> {
    let read = document::read(text, "f.toml", |root| Some(root.node().to_json()));
    read.map(|loaded| loaded.config)
        .map_err(|refused| refused.to_string())
}

/// Returns the files in `folder` whose names end in `.` and `ending`, by name.
///
/// # Panics
/// If the folder cannot be read.
pub fn files(folder: &Path, ending: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).expect("the folder is there");
    let paths = entries.map(|entry| entry.expect("readable").path());
    let mut paths: Vec<_> = paths
        .filter(|path| {
            path.extension()
                .is_some_and(|extension| extension == ending)
        })
        .collect();
    paths.sort();
    paths
}

/// Asserts that the schema accepts `whole`, which `read` reads, and that both refuse a misspelt key
/// in each of its tables. Returns the headings of these tables.
pub fn assert_misspelt_keys_are_refused(
    schema: Value,
    whole: &str,
    read: impl Fn(&str) -> Result<(), String>,
) -> BTreeSet<String> {
    let checker = Checker::new(schema);
    assert_eq!(read(whole), Ok(()));
    assert_eq!(checker.check_toml(whole), Ok(()));
    let mut headings = BTreeSet::new();
    for (at, _) in whole.match_indices("]\n") {
        let (before, after) = whole.split_at(at + 2);
        let line = before.trim_end().rsplit('\n').next().unwrap_or_default();
        if !line.starts_with('[') {
            continue;
        }
        // `match_indices` also finds arrays that end a line; headings alone begin with a bracket.
        headings.insert(line.trim_matches(['[', ']']).to_owned());
        // Right below the heading, so that the key belongs to this table and not to a later one.
        let text = format!("{before}misspelt = 1\n{after}");
        let refused = read(&text).expect_err(line);
        assert!(
            refused.contains("unknown key `misspelt`"),
            "{line}: {refused}"
        );
        let why = checker.check_toml(&text).expect_err(line);
        assert!(why.contains("'misspelt' not allowed"), "{line}: {why}");
    }
    headings
}

/// Asserts that the schema of each section has the defaults of its keys, and accepts them.
pub fn assert_schema_defaults_are_valid(schema: Value, sections: &[&SectionInfo]) {
    let mut schema = without_required(schema);
    let (mut defaults, mut references) = (Map::new(), Map::new());
    for section in sections {
        let properties = &schema["$defs"][section.name]["properties"];
        let mut table = Map::new();
        for key in section.keys {
            let default = properties[key.name].get("default").cloned();
            // Keys that are required or unset by default have no value that a schema could show.
            let is_written = !matches!(key.default, KeyDefault::Required(_) | KeyDefault::Unset(_));
            assert_eq!(
                default.is_some(),
                is_written,
                "{}.{}",
                section.name,
                key.name
            );
            table.extend(default.map(|default| (key.name.to_owned(), default)));
        }
        defaults.insert(section.name.to_owned(), table.into());
        let reference = json!({ "$ref": format!("#/$defs/{}", section.name) });
        references.insert(section.name.to_owned(), reference);
    }
    schema["properties"] = references.into();
    assert_eq!(Checker::new(schema).check(&defaults.into()), Ok(()));
}

/// Asserts that the pages of the documentation have the tables of `sections`, each on one of the
/// pages between its markers. With `TIDEGATE_BLESS=1` in the environment it writes them anew.
pub fn assert_doc_tables_are_current(pages: &[&Path], sections: &[&SectionInfo]) {
    let read = |path: &&Path| std::fs::read_to_string(path).expect("the page is there");
    let texts: Vec<String> = pages.iter().map(read).collect();
    let mut fresh = texts.clone();
    for section in sections {
        let refilled = (fresh.iter_mut())
            .filter_map(|page| Some((section.refill(page)?, page)))
            .map(|(new, page)| *page = new)
            .count();
        assert_eq!(refilled, 1, "pages with markers of [{}]", section.name);
    }
    if std::env::var_os("TIDEGATE_BLESS").is_some() {
        for (path, page) in pages.iter().zip(&fresh) {
            std::fs::write(path, page).expect("the page can be written");
        }
        return;
    }
    assert!(texts == fresh, "write {pages:?} anew with TIDEGATE_BLESS=1");
}
