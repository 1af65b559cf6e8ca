//! JSON Schema of a scenario of vCPUs.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use tidegate_config::keys::{KeyDefault, KeyInfo, KeyKind};

use super::keys;
use crate::schedulers::SCHEDULERS;
use crate::spec::{ParamInfo, ParamKind};

/// Returns the JSON Schema (draft 2020-12) of the file that `tidegate vcpu sim` reads.
pub fn schema() -> Value {
    let title = "Scenario of tidegate vcpu sim";
    let schedulers = (keys::SCHEDULERS, schedulers());
    tidegate_config::schema::json_schema(&keys::SCENARIO, title, vec![schedulers])
}

/// Returns the schema of a vCPU scheduler: a name, or a table of its name and the parameters of all
/// schedulers.
pub fn schedulers() -> Value {
    let names: Vec<&str> = SCHEDULERS.iter().map(|info| info.name).collect();
    let all = SCHEDULERS.iter().flat_map(|info| info.params());
    let params: BTreeMap<&str, &ParamInfo> = all.map(|info| (info.name, info)).collect();
    let mut properties = json!({ "name": { "enum": names } });
    for param in params.values() {
        properties[param.name] = tidegate_config::schema::property(&KeyInfo::from(*param));
    }
    json!({
        "anyOf": [
            { "enum": names },
            {
                "type": "object",
                "properties": properties,
                "required": ["name"],
                "additionalProperties": false,
            },
        ],
    })
}

impl From<&ParamInfo> for KeyInfo {
    /// Converts a scheduler's parameter to a key of its table. Schedulers may give the parameter
    /// different defaults, so the key has none.
    fn from(param: &ParamInfo) -> KeyInfo {
        let kind = match param.kind {
            ParamKind::Duration => KeyKind::Duration,
            ParamKind::Count => KeyKind::Count,
            ParamKind::Flag => KeyKind::Flag,
            ParamKind::Part => KeyKind::Percent,
            ParamKind::Choice(words) => KeyKind::Choice(words),
        };
        let unset = KeyDefault::Unset("");
        KeyInfo::new(param.name, kind, unset, param.help).within(param.min, param.max)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use tidegate_testkit::schema::{
        Checker, assert_doc_tables_are_current, assert_misspelt_keys_are_refused,
        assert_schema_defaults_are_valid, files,
    };

    use super::*;
    use crate::scenario::read;

    /// Scenario with each table once.
    const WHOLE: &str = r#"
title = "all"
duration = "2 s"
warm_up = "500 ms"
until_done = true
seed = 7
[host]
[host.cpu]
pcpus = 4
pcpus_per_socket = 2
context_switch = "2 us"
scheduler = { name = "isacs", run_queues = "core", new_sample = "50 %", concealing = false }
[host.cpu.driver]
vcpus = 2
pinned = "0"
[disk]
io = "64 KiB"
[[vm]]
name = "web"
count = 2
work = "1 s"
[vm.cpu]
vcpus = 2
weight = 7
cap = 150
pinned = "1-2, 3"
busy_processes = 2
[vm.ping]
from = "client"
period = "7 ms"
[vm.stream]
from = "client"
chunk = "64 KiB"
[vm.write]
file = "5 GB"
[[vm]]
name = "client"
"#;

    fn read_whole(text: &str) -> Result<(), String> {
        let read = read(text, "f.toml", None);
        read.map(|_| ()).map_err(|refused| refused.to_string())
    }

    #[test]
    fn every_table_is_accepted_and_a_misspelt_key_of_each_refused_as_by_the_reader() {
        let headings = assert_misspelt_keys_are_refused(schema(), WHOLE, read_whole);
        for section in &keys::SCENARIO.with_inner()[1..] {
            assert!(headings.contains(section.name), "[{}]", section.name);
        }
        let checker = Checker::new(schema());
        for wrong in [
            WHOLE.replace("\"isacs\"", "\"isac\""),
            WHOLE.replace("new_sample", "new_samples"),
            WHOLE.replace("duration = \"2 s\"\n", ""),
            WHOLE.replace("\"1-2, 3\"", "\"1-\""),
        ] {
            assert_ne!(wrong, WHOLE);
            assert!(checker.check_toml(&wrong).is_err(), "{wrong}");
            assert!(read_whole(&wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn examples_go_by_the_schema() {
        let checker = Checker::new(schema());
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/vcpu");
        let examples = files(&folder, "toml");
        assert!(!examples.is_empty());
        for path in examples {
            let text = std::fs::read_to_string(&path).expect("readable");
            assert_eq!(checker.check_toml(&text), Ok(()), "{}", path.display());
        }
    }

    #[test]
    fn defaults_are_values_of_their_keys() {
        assert_schema_defaults_are_valid(schema(), &keys::SCENARIO.with_inner()[1..]);
    }

    /// Compares the tables in docs/vcpu-scenarios.md; `TIDEGATE_BLESS=1` rewrites them.
    #[test]
    fn the_documentation_has_the_tables_that_the_reader_reads_by() {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/vcpu-scenarios.md");
        let mut sections = keys::SCENARIO.with_inner();
        sections.retain(|section| section.name != "host");
        assert_doc_tables_are_current(&[Path::new(page)], &sections);
    }
}
