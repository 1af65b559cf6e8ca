//! Graph of QEMU's block nodes: `-blockdev`, and what lies below the one that a device uses.

use std::collections::BTreeMap;

use serde_json::Value;

use super::options_list::options;

/// Largest number of nodes on top of each other that are followed; a graph may have a circle.
const LAYERS: usize = 16;
/// Drivers that only hand on to the node below.
const FORMATS: [&str; 12] = [
    "raw",
    "qcow2",
    "qcow",
    "qed",
    "vmdk",
    "vdi",
    "vpc",
    "vhdx",
    "luks",
    "copy-on-read",
    "throttle",
    "preallocate",
];

/// Keys of a node, those of tables with dots between them.
pub(super) type Keys = BTreeMap<String, String>;

/// Nodes by their names.
#[derive(Debug, Default)]
pub(super) struct Nodes(BTreeMap<String, Keys>);

/// Disk that a node leads to.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Below {
    /// Path of the file or device, or the reason why there is none.
    pub(super) path: Option<String>,
    /// Reason why there is no path.
    pub(super) reason: String,
    /// Format; `None` for raw.
    pub(super) format: Option<String>,
    /// Throttle groups on the way, from the top.
    pub(super) groups: Vec<String>,
    /// True if a node refuses writes.
    pub(super) read_only: bool,
}

/// Reads keys in either notation of QEMU: `key=value,...`, or JSON.
pub(super) fn keys(text: &str) -> Keys {
    let mut keys = Keys::new();
    if text.trim_start().starts_with('{') {
        if let Ok(value) = serde_json::from_str(text) {
            flatten("", &value, &mut keys);
        }
    } else {
        keys.extend(options(text));
    }
    keys
}

/// Adds the values of a JSON table with the paths that lead to them.
fn flatten(path: &str, value: &Value, keys: &mut Keys) {
    let text = match value {
        Value::Object(table) => {
            let dot = if path.is_empty() { "" } else { "." };
            for (key, value) in table {
                flatten(&format!("{path}{dot}{key}"), value, keys);
            }
            return;
        }
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    keys.insert(path.to_owned(), text);
}

/// Returns the path of a file name as QEMU takes it; an error for one that names a protocol.
///
/// # Errors
/// The reason why it is no path.
pub(super) fn path_of(name: &str) -> Result<String, String> {
    let name = name.strip_prefix("file:").unwrap_or(name);
    let before_slash = name.split('/').next().unwrap_or_default();
    match before_slash.split_once(':') {
        Some((protocol, _)) => {
            let protocol = super::shown(protocol);
            Err(format!(
                "{protocol} is no file and no block device: it cannot be served"
            ))
        }
        None if name.is_empty() => Err("has no file: add its path".to_owned()),
        None => Ok(name.to_owned()),
    }
}

impl Nodes {
    /// Adds a node of `-blockdev`; one without a name is left out.
    pub(super) fn add(&mut self, keys: Keys) {
        if let Some(name) = keys.get("node-name").cloned() {
            self.0.insert(name, keys);
        }
    }

    /// Returns the disk that a node leads to; `None` if there is no such node.
    pub(super) fn below(&self, name: &str) -> Option<Below> {
        let mut below = Below::default();
        let mut keys = self.0.get(name)?.clone();
        for _ in 0..LAYERS {
            let driver = keys.get("driver").cloned().unwrap_or_default();
            below.read_only |= keys
                .get("read-only")
                .is_some_and(|on| on == "on" || on == "true");
            below.groups.extend(keys.get("throttle-group").cloned());
            if let Some(name) = keys.get("filename") {
                match (driver.as_str(), path_of(name)) {
                    ("file" | "host_device" | "", Ok(path)) => below.path = Some(path),
                    ("file" | "host_device" | "", Err(reason)) => below.reason = reason,
                    _ => {
                        let driver = super::shown(&driver);
                        below.reason = format!("{driver} is no file: it cannot be served");
                    }
                }
                return Some(below);
            }
            let is_image = !["raw", "throttle", "copy-on-read", "preallocate"].contains(&&*driver);
            if FORMATS.contains(&driver.as_str()) && is_image {
                below.format = Some(driver.clone());
            }
            let nested: Keys = (keys.iter())
                .filter_map(|(key, value)| Some((key.strip_prefix("file.")?.into(), value.clone())))
                .collect();
            let referred = keys.get("file").and_then(|name| self.0.get(name)).cloned();
            match referred.or(Some(nested).filter(|nested| !nested.is_empty())) {
                Some(next) => keys = next,
                None => {
                    let driver = super::shown(&driver);
                    below.reason = format!("a node of {driver} without a file: add its path");
                    return Some(below);
                }
            }
        }
        below.reason = "its nodes lead back to each other".to_owned();
        Some(below)
    }
}
