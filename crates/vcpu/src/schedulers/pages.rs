//! Checks that documentation pages show the registry and the code as they are.

use std::path::Path;

use super::SCHEDULERS;
use crate::spec::ParamGroup;

fn read(file: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    std::fs::read_to_string(root.join(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
}

/// Names of the schedulers that have a parameter group; the table shows it once for all of them.
fn owners(group: &ParamGroup) -> Vec<&'static str> {
    let all = SCHEDULERS.iter();
    let owners = all.filter(|info| info.groups.contains(group));
    owners.map(|info| info.name).collect()
}

/// Tables of schedulers and their parameters, as docs/vcpu.md has them.
fn tables() -> String {
    let mut text = "\n| name | what | from |\n|---|---|---|\n".to_owned();
    for info in SCHEDULERS {
        let (name, what, from) = (info.name, info.summary, info.source);
        text += &format!("| `{name}` | {what} | {from} |\n");
    }
    text += "\n| of | key | default | allowed | what |\n|---|---|---|---|---|\n";
    for info in SCHEDULERS {
        for group in info.groups {
            let owners = owners(group);
            // A shared group is shown once, at its first owner.
            if owners[0] != info.name {
                continue;
            }
            let mut of = format!("`{}`", owners.join("`, `"));
            for param in group.params {
                let (name, help, allowed) = (param.name, param.help, param.allowed());
                let default = param.written(param.default);
                text += &format!("| {of} | `{name}` | {default} | {allowed} | {help} |\n");
                of.clear();
            }
        }
    }
    text + "\n"
}

#[test]
fn the_page_has_every_scheduler_and_parameter() {
    let page = read("docs/vcpu.md");
    let (begin, end) = ("<!-- schedulers -->\n", "<!-- end of schedulers -->");
    let found = page
        .split_once(begin)
        .and_then(|(_, rest)| rest.split_once(end));
    let (found, _) = found.expect("docs/vcpu.md has the markers");
    let expected = tables();
    assert!(
        found == expected,
        "between the markers of docs/vcpu.md should be\n{expected}"
    );
}

#[test]
fn the_worked_example_shows_the_code_as_it_is() {
    let text = read("docs/dev/adding-a-vcpu-scheduler.md");
    let mut excerpts = 0;
    let mut parts = text.split("```");
    while let (Some(before), Some(block)) = (parts.next(), parts.next()) {
        let Some(code) = block.strip_prefix("rust\n") else {
            continue;
        };
        // The line above a code block names the file.
        let file = before.trim_end().lines().last().unwrap_or_default();
        let file = file.trim_matches('`');
        assert!(read(file).contains(code), "{file} does not contain\n{code}");
        excerpts += 1;
    }
    assert!(excerpts >= 4, "only {excerpts} excerpts");
}
