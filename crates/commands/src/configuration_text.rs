//! Text of configurations that commands print: VMs with their objectives and disks, as TOML.

use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;

use serde_json::{Map, Value};
use tidegate_config::is_name;

/// Longest name of a VM, in bytes.
const NAME_MAX: usize = 64;
/// Width of lines of comments.
const COMMENT_WIDTH: usize = 98;

/// `[[vm]]` with its objective and disks.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct VmText {
    /// Lines before it, without `#`.
    pub(crate) comments: Vec<String>,
    /// Name of the VM.
    pub(crate) name: String,
    /// Device of its disks; `None` where there is only one.
    pub(crate) device: Option<String>,
    /// Parts of the objective, as the control API takes them.
    pub(crate) objective: Map<String, Value>,
    /// Disks of the VM.
    pub(crate) disks: Vec<DiskText>,
}

/// `[[vm.disk]]`.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct DiskText {
    /// Lines before it, without `#`.
    pub(crate) comments: Vec<String>,
    /// Keys with their values, in the order of the file.
    pub(crate) keys: Vec<(&'static str, Value)>,
    /// True if the table is only prepared, behind a `#`.
    pub(crate) is_comment: bool,
}

impl fmt::Display for VmText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_comments(f, &self.comments)?;
        writeln!(f, "[[vm]]")?;
        writeln!(f, "name = {}", string(&self.name))?;
        if let Some(device) = &self.device {
            writeln!(f, "device = {}", string(device))?;
        }
        let parts: Vec<_> = self
            .objective
            .iter()
            .filter(|(_, value)| !value.is_null())
            .collect();
        if !parts.is_empty() {
            writeln!(f, "[vm.objective]")?;
        }
        for (key, value) in parts {
            writeln!(f, "{key} = {}", inline(value))?;
        }
        for disk in &self.disks {
            write_comments(f, &disk.comments)?;
            let sign = if disk.is_comment { "#" } else { "" };
            writeln!(f, "{sign}[[vm.disk]]")?;
            for (key, value) in &disk.keys {
                writeln!(f, "{sign}{key} = {}", inline(value))?;
            }
        }
        Ok(())
    }
}

/// Returns the sections that a configuration of VMs on one device needs beside them. `listen` is
/// the line that says where NBD clients connect.
pub(crate) fn frame(control: &Path, listen: &str, device: &str) -> String {
    format!(
        "\
[control]                    # tidegate top, stats, vm set: --socket, or TIDEGATE_SOCKET
socket = {}

[[listen]]                   # NBD clients; its directory must exist
{listen}

[[device]]                   # one for each physical disk or array
name = {}
kind = \"file\"

",
        path(control),
        string(device)
    )
}

/// Writes lines as comments.
fn write_comments(f: &mut fmt::Formatter<'_>, lines: &[String]) -> fmt::Result {
    lines
        .iter()
        .try_for_each(|line| f.write_str(&comment(line)))
}

/// Returns text as comments, in lines of at most 98 characters where words allow it. Control
/// characters, which TOML does not allow in comments, are escaped.
pub(crate) fn comment(text: &str) -> String {
    let mut lines = vec!["#".to_owned()];
    for word in text.split_whitespace() {
        let mut word: String = word.chars().flat_map(visible).collect();
        let last = lines.last_mut().expect("begins with one");
        if last.chars().count() + 1 + word.chars().count() > COMMENT_WIDTH && last.len() > 1 {
            word.insert_str(0, "#   ");
            lines.push(word);
        } else {
            last.push(' ');
            last.push_str(&word);
        }
    }
    lines.join("\n") + "\n"
}

/// Returns a character as it may stand in a comment.
fn visible(c: char) -> impl Iterator<Item = char> {
    let escaped = c.is_control().then(|| c.escape_default());
    let plain = (!c.is_control()).then_some(c);
    plain.into_iter().chain(escaped.into_iter().flatten())
}

/// Returns a value on one line; keys of tables whose value is `null` are left out.
pub(crate) fn inline(value: &Value) -> String {
    match value {
        Value::Null => string("none"),
        Value::String(text) => string(text),
        Value::Array(items) => {
            let items: Vec<_> = items.iter().map(inline).collect();
            format!("[{}]", items.join(", "))
        }
        Value::Object(table) => {
            let given = table.iter().filter(|(_, value)| !value.is_null());
            let keys: Vec<_> = given
                .map(|(key, value)| format!("{key} = {}", inline(value)))
                .collect();
            format!("{{ {} }}", keys.join(", "))
        }
        other => other.to_string(),
    }
}

/// Returns text as a basic string of TOML.
pub(crate) fn string(text: &str) -> String {
    // JSON escapes all that TOML does, except the character DEL.
    Value::from(text).to_string().replace('\u{7f}', "\\u007f")
}

/// Returns a path as a basic string of TOML.
pub(crate) fn path(path: &Path) -> String {
    string(&path.to_string_lossy())
}

/// Names that were given to VMs and disks of a configuration.
#[derive(Debug, Default)]
pub(crate) struct TakenNames(BTreeSet<String>);

impl TakenNames {
    /// Returns a name like `wish` that is valid and was not returned before.
    pub(crate) fn take(&mut self, wish: &str) -> String {
        let allowed = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        let valid = wish.chars().map(|c| if allowed(c) { c } else { '-' });
        let valid: String = valid.skip_while(|c| *c == '.').take(NAME_MAX).collect();
        let base = if is_name(&valid) {
            valid
        } else {
            "disk".to_owned()
        };
        let mut name = base.clone();
        let mut number = 2;
        while !self.0.insert(name.clone()) {
            let suffix = format!("-{number}");
            let kept: String = base.chars().take(NAME_MAX - suffix.len()).collect();
            name = kept + &suffix;
            number += 1;
        }
        name
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tidegate_config::document;

    use super::*;

    #[test]
    fn a_vm_is_written_with_its_objective_and_disks() {
        let Value::Object(objective) = json!({
            "limit": { "total": "40 MB/s", "burst": null }, "weight": 7, "latency": null,
        }) else {
            unreachable!("a table")
        };
        let vm = VmText {
            comments: vec!["one\ntwo".to_owned()],
            name: "web".to_owned(),
            device: Some("disk0".to_owned()),
            objective,
            disks: vec![DiskText {
                comments: Vec::new(),
                keys: vec![
                    ("path", "/a \"b\"\\c\u{7f}".into()),
                    ("read_only", true.into()),
                ],
                is_comment: false,
            }],
        };
        let text = vm.to_string();
        assert_eq!(
            text,
            "# one two\n[[vm]]\nname = \"web\"\ndevice = \"disk0\"\n[vm.objective]\n\
             limit = { total = \"40 MB/s\" }\nweight = 7\n[[vm.disk]]\n\
             path = \"/a \\\"b\\\"\\\\c\\u007f\"\nread_only = true\n"
        );
        let read = document::read(&text, "t.toml", |root| Some(root.node().to_json()));
        let read = read.expect("TOML").config;
        assert_eq!(read["vm"][0]["disk"][0]["path"], "/a \"b\"\\c\u{7f}");
    }

    #[test]
    fn comments_are_wrapped_and_free_of_control_characters() {
        let text = comment(&format!("{} \u{1b}[2J", "word ".repeat(60)));
        assert!(
            text.lines()
                .all(|line| line.starts_with('#') && line.len() <= COMMENT_WIDTH)
        );
        assert!(
            text.lines().count() > 2 && text.ends_with("\\u{1b}[2J\n"),
            "{text}"
        );
    }

    #[test]
    fn names_are_valid_and_different() {
        let mut names = TakenNames::default();
        let wishes = [
            "web",
            "web",
            "a b/c",
            "..",
            "",
            &"x".repeat(99),
            &"x".repeat(99),
        ];
        let taken: Vec<_> = wishes.iter().map(|wish| names.take(wish)).collect();
        assert!(taken.iter().all(|name| is_name(name)), "{taken:?}");
        assert_eq!(taken[..5], ["web", "web-2", "a-b-c", "disk", "disk-2"]);
        assert_eq!(taken[6], format!("{}-2", "x".repeat(62)));
    }
}
