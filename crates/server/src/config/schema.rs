//! JSON Schema of the configuration file.

use serde_json::Value;

use super::keys;

/// Returns the JSON Schema (draft 2020-12) of the file that `tidegate serve` reads.
pub fn schema() -> Value {
    tidegate_config::schema::of(&keys::FILE, "Configuration of tidegate serve")
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use boon::{Compiler, SchemaIndex, Schemas};
    use tidegate_config::keys::KeyDefault;
    use tidegate_config::{ConfigErrors, document};

    use super::*;
    use crate::config::parse;

    /// A schema that was checked itself, and the values that it accepts.
    struct Checker {
        schemas: Schemas,
        index: SchemaIndex,
    }

    impl Checker {
        fn new(schema: Value) -> Checker {
            let (mut schemas, mut compiler) = (Schemas::new(), Compiler::new());
            let at = "mem:///schema.json";
            compiler.add_resource(at, schema).expect("it is JSON");
            let index = compiler.compile(at, &mut schemas);
            let index = index.unwrap_or_else(|error| panic!("no schema: {error:#}"));
            Checker { schemas, index }
        }

        /// Checks a value; the error says what is wrong with it.
        fn check(&self, value: &Value) -> Result<(), String> {
            let checked = self.schemas.validate(value, self.index);
            checked.map_err(|error| format!("{error:#}"))
        }
    }

    /// The schema for a part of a file, which may leave out what is required.
    fn of_parts(mut schema: Value) -> Value {
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

    fn to_json(text: &str) -> Result<Value, ConfigErrors> {
        let read = document::read(text, "f.toml", |root| Some(root.node().to_json()));
        read.map(|loaded| loaded.config)
    }

    fn repository() -> &'static Path {
        Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
    }

    /// Blocks of TOML in a page of the documentation.
    fn blocks(page: &str) -> impl Iterator<Item = &str> {
        let starts = page.split("```toml\n").skip(1);
        starts.filter_map(|rest| rest.split_once("```").map(|(block, _)| block))
    }

    /// The headings that a block of the documentation leaves out above its own.
    fn above(block: &str) -> &'static str {
        match block {
            _ if block.starts_with("[[vm.disk.") => "[[vm]]\n[[vm.disk]]\n",
            _ if block.starts_with("[vm.") => "[[vm]]\n",
            _ => "",
        }
    }

    /// Every table of the file once.
    const WHOLE: &str = r#"
[daemon]
open_within = "10 s"
[control]
socket = "c.sock"
mode = "660"
[store]
path = "tidegate.redb"
[[listen]]
unix = "nbd.sock"
exports = ["a"]
[[listen]]
tcp = "[::1]:10809"
[[device]]
name = "d"
kind = "emulated"
model = "hdd-7200-1tb"
depth = 4
max_io = "1 MiB"
learn_cap = false
policy = { name = "mclock", cost_size = "64 KiB", background_after = "0 s" }
[[vm]]
name = "a"
max_connections = 3
[vm.objective]
reservation = "120 IOPS @ 16 KiB"
target = "none"
latency = "30ms"
weight = 7
priority = "best-effort 0"
timezone = "UTC"
[vm.objective.limit]
total = "2000 iops, 60.5 MB/s"
[vm.objective.limit.burst]
total = "4000 IOPS"
length = "2 s"
[vm.objective.group]
name = "qfs"
[vm.objective.expects]
reads = "70 %"
access = "12.5 % sequential"
size = "16 KiB"
[[vm.objective.schedule]]
from = "18:00"
until = "24:00"
days = ["mon", "sun"]
limit = { write = "9 MB/s" }
[[vm.objective.schedule]]
at = 2026-12-01T18:00:00
weight = 300
[[vm.disk]]
size = "1 GiB"
block_size = "4 KiB"
[[vm.disk.fault]]
on = ["write", "discard"]
from = "512 MiB"
length = "64 KiB"
probability = "0.1 %"
seed = 7
for = "5 s"
stall = "2 s"
error = "EIO"
"#;

    #[test]
    fn the_schema_accepts_every_table_and_refuses_a_misspelt_key_of_each_as_the_reader_does() {
        let checker = Checker::new(schema());
        let read = |text: &str| parse(text, "f.toml", Path::new("/"));
        assert_eq!(read(WHOLE).map(|_| ()), Ok(()));
        assert_eq!(checker.check(&to_json(WHOLE).expect("TOML")), Ok(()));
        let mut headings = std::collections::BTreeSet::new();
        for (at, _) in WHOLE.match_indices("]\n").filter(|(at, _)| {
            let line = WHOLE[..*at].rsplit('\n').next();
            line.is_some_and(|line| line.starts_with('['))
        }) {
            let (before, after) = WHOLE.split_at(at + 2);
            headings.insert(before.trim_end().rsplit('\n').next());
            let text = format!("{before}misspelt = 1\n{after}");
            let refused = read(&text).map(|_| ()).expect_err("unknown").to_string();
            assert!(refused.contains("unknown key `misspelt`"), "{refused}");
            let refused = checker.check(&to_json(&text).expect("TOML"));
            let why = refused.expect_err("unknown");
            assert!(why.contains("'misspelt' not allowed"), "{why}");
        }
        let sections = keys::FILE.with_inner().len();
        assert_eq!(headings.len(), sections - 1, "all but the top level");
        let typo = "[[listen]]\nunix = \"s\"\n[[devise]]\nname = \"d\"\nkind = \"memory\"\n";
        assert!(read(typo).is_err());
        assert!(checker.check(&to_json(typo).expect("TOML")).is_err());
    }

    #[test]
    fn examples_and_documentation_go_by_the_schema() {
        let (whole, part) = (Checker::new(schema()), Checker::new(of_parts(schema())));
        let mut checked = 0;
        let mut check = |checker: &Checker, text: &str, place: &str| {
            let value = to_json(text).unwrap_or_else(|e| panic!("{place}: {e}"));
            let said = checker.check(&value);
            assert_eq!(said, Ok(()), "{place}:\n{text}");
            checked += 1;
        };
        let configurations = |folder: &str, ending: &str| {
            let folder = repository().join(folder);
            let entries = std::fs::read_dir(&folder).expect("the folder is there");
            let paths = entries.map(|entry| entry.expect("readable").path());
            let mut paths: Vec<_> = paths
                .filter(|path| path.extension().is_some_and(|found| found == ending))
                .collect();
            paths.sort();
            paths
        };
        for path in configurations("examples", "toml") {
            let text = std::fs::read_to_string(&path).expect("readable");
            if text.contains("[[listen]]") {
                check(&whole, &text, &path.display().to_string());
            }
        }
        for path in configurations("docs", "md") {
            let page = std::fs::read_to_string(&path).expect("readable");
            let is_configurations = path.ends_with("configuration.md");
            for block in blocks(&page) {
                let place = path.display().to_string();
                match block.contains("[[listen]]") {
                    true => check(&whole, block, &place),
                    // Policies one below the other are no document.
                    false if is_configurations && block.starts_with('[') => {
                        check(&part, &format!("{}{block}", above(block)), &place);
                    }
                    false => {}
                }
            }
        }
        assert!(checked >= 11, "only {checked}");
    }

    #[test]
    fn defaults_are_values_of_their_keys() {
        let mut schema = of_parts(schema());
        let mut defaults = serde_json::Map::new();
        let mut sections = serde_json::Map::new();
        for section in keys::FILE.with_inner().iter().skip(1) {
            let properties = &schema["$defs"][section.name]["properties"];
            let mut table = serde_json::Map::new();
            for key in section.keys {
                let default = properties[key.name].get("default").cloned();
                let written = matches!(
                    key.default,
                    KeyDefault::Value(_) | KeyDefault::Flag(_) | KeyDefault::Text(_)
                );
                assert_eq!(default.is_some(), written, "{}.{}", section.name, key.name);
                table.extend(default.map(|default| (key.name.to_owned(), default)));
            }
            defaults.insert(section.name.to_owned(), table.into());
            let reference = serde_json::json!({ "$ref": format!("#/$defs/{}", section.name) });
            sections.insert(section.name.to_owned(), reference);
        }
        schema["properties"] = sections.into();
        let checker = Checker::new(schema);
        assert_eq!(checker.check(&defaults.into()), Ok(()));
        let wrong = serde_json::json!({ "daemon": { "open_within": "30" } });
        assert!(checker.check(&wrong).is_err(), "a figure without its unit");
    }
}
