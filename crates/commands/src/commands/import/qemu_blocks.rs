//! Graph of QEMU's block nodes: `-blockdev`, and what lies below the one that a device uses.

use std::collections::BTreeMap;

use serde_json::Value;

use super::content::{encrypted, part_of_file};
use super::options_list::options;
use super::shown;

/// Largest number of nodes on top of each other that are followed; a graph may have a circle.
const LAYERS: usize = 16;
/// Drivers of images, which qemu-img converts.
const IMAGES: [&str; 7] = ["qcow2", "qcow", "qed", "vmdk", "vdi", "vpc", "vhdx"];
/// Other drivers that have a node below.
const FILTERS: [&str; 5] = ["raw", "luks", "copy-on-read", "throttle", "preallocate"];

/// Drivers of nodes that are a file or a block device.
const FILES: [&str; 3] = ["file", "host_device", ""];
/// Keys of a node that lead to others, or say how QEMU opens it.
const KNOWN: [&str; 19] = [
    "aio",
    "aio-max-batch",
    "auto-read-only",
    "cache-clean-interval",
    "cache-size",
    "cache.direct",
    "cache.no-flush",
    "detect-zeroes",
    "discard",
    "driver",
    "file",
    "filename",
    "force-share",
    "l2-cache-entry-size",
    "l2-cache-size",
    "locking",
    "node-name",
    "read-only",
    "throttle-group",
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
    /// Keys on the way that have no counterpart.
    pub(super) unknown: Vec<String>,
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
        Some((protocol, _)) => Err(no_file(protocol)),
        None if name.is_empty() => Err("has no file: add its path".to_owned()),
        None => Ok(name.to_owned()),
    }
}

/// Returns the reason why a disk of a driver or protocol has no path.
fn no_file(driver: &str) -> String {
    let driver = shown(driver);
    format!("{driver} is no file and no block device: it cannot be served")
}

/// Returns true for a driver of files, or of nodes that have a file below them.
fn is_known(driver: &str) -> bool {
    IMAGES.contains(&driver) || FILTERS.contains(&driver) || FILES.contains(&driver)
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
        Some(self.below_keys(self.0.get(name)?.clone()))
    }

    /// Returns the disk that a node with these keys leads to.
    pub(super) fn below_keys(&self, mut keys: Keys) -> Below {
        let mut below = Below::default();
        for _ in 0..LAYERS {
            let driver = keys.get("driver").cloned().unwrap_or_default();
            below.take_keys(&driver, &keys);
            if let Some(name) = keys.get("filename") {
                match path_of(name) {
                    _ if !FILES.contains(&driver.as_str()) => below.refuse(no_file(&driver)),
                    Ok(path) if below.reason.is_empty() => below.path = Some(path),
                    Ok(_) => {}
                    Err(reason) => below.refuse(reason),
                }
                return below;
            }
            let nested: Keys = (keys.iter())
                .filter_map(|(key, value)| Some((key.strip_prefix("file.")?.into(), value.clone())))
                .collect();
            let referred = keys.get("file").and_then(|name| self.0.get(name)).cloned();
            match referred.or(Some(nested).filter(|nested| !nested.is_empty())) {
                Some(next) => keys = next,
                None if is_known(&driver) => {
                    below.refuse("has no file: add its path".to_owned());
                    return below;
                }
                None => {
                    below.refuse(no_file(&driver));
                    return below;
                }
            }
        }
        below.refuse("its nodes lead back to each other".to_owned());
        below
    }
}

impl Below {
    /// Takes the keys of one node on the way.
    fn take_keys(&mut self, driver: &str, keys: &Keys) {
        let is_on = |on: &String| on == "on" || on == "true";
        self.read_only |= keys.get("read-only").is_some_and(is_on);
        self.groups.extend(keys.get("throttle-group").cloned());
        let figure = |key| keys.get(key).map(String::as_str);
        let (offset, size) = (figure("offset"), figure("size"));
        if driver == "luks" {
            self.refuse(encrypted(driver));
        } else if driver == "raw" && (size.is_some() || offset.is_some_and(|at| at != "0")) {
            self.refuse(part_of_file(offset, size));
        }
        if IMAGES.contains(&driver) {
            self.format = Some(driver.to_owned());
        }
        // Nodes of other drivers are refused with all of their keys.
        if !is_known(driver) {
            return;
        }
        let is_unknown = |(key, value): &(&String, &String)| {
            let is_part = driver == "raw" && (*key == "offset" || *key == "size");
            let is_no_backing = *key == "backing" && *value == "null";
            let is_below = key.starts_with("file.");
            !is_part && !is_no_backing && !is_below && !KNOWN.contains(&key.as_str())
        };
        let unknown = keys.iter().filter(is_unknown);
        self.unknown.extend(unknown.map(|(key, _)| key.clone()));
    }

    /// Refuses the disk with a reason, unless there is one already.
    fn refuse(&mut self, reason: String) {
        if self.reason.is_empty() {
            self.reason = reason;
        }
    }
}
