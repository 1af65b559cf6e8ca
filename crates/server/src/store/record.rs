//! Records of VMs and disks in the store.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::config::DiskConfig;

/// Newest version of the JSON in records: the paths of its disks were allowed by `[paths]`.
const CONFINED: u32 = 2;
/// Version of records with disks whose paths were accepted before there was a `[paths]`.
const BEFORE_PATHS: u32 = 1;

/// Record of a VM, as JSON with the keys of the configuration and the API. Their readers, with
/// their errors, therefore read old records as well.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VmRecord {
    /// Name of the VM.
    pub name: String,
    /// Extent of the record.
    pub scope: Scope,
    /// Version of the JSON.
    version: u32,
    /// JSON of a `[[vm]]` or `[vm.objective]`.
    text: String,
}

/// Extent of a VM's record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scope {
    /// Complete VM: a `[[vm]]` with its disks.
    Whole,
    /// Objective alone, of a VM that the configuration file names.
    Objective,
}

impl Scope {
    fn to_byte(self) -> u8 {
        match self {
            Scope::Whole => 0,
            Scope::Objective => 1,
        }
    }

    fn from_byte(byte: u8) -> Option<Scope> {
        match byte {
            0 => Some(Scope::Whole),
            1 => Some(Scope::Objective),
            _ => None,
        }
    }
}

/// Record of a disk on a file that was created or served: no new file is created in its place.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct KnownDisk {
    /// Absolute path of the disk's file, with symbolic links as configured.
    pub path: String,
    /// NBD export name of the disk.
    pub export: String,
    /// Name of the VM.
    pub vm: String,
}

impl KnownDisk {
    /// Returns the record of a VM's disk; `None` for a disk without a file.
    pub fn from_config(vm: &str, disk: &DiskConfig) -> Option<KnownDisk> {
        let path = disk.path.as_deref()?;
        Some(KnownDisk {
            path: KnownDisk::key(path),
            export: disk.export.clone(),
            vm: vm.to_owned(),
        })
    }

    /// Returns the path under which the disk of a file is recorded.
    pub(crate) fn key(path: &Path) -> String {
        absolute(path).to_string_lossy().into_owned()
    }
}

/// Returns the absolute form of a path, without resolving symbolic links.
pub(crate) fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

impl VmRecord {
    /// Creates a record: for [`Scope::Whole`] of the keys of a `[[vm]]` (`name`, `device`,
    /// `background`, `objective`, `disk`), for [`Scope::Objective`] of those of a `[vm.objective]`.
    ///
    /// # Panics
    /// If `words` is not an object: no daemon could read the record again.
    pub fn new(name: impl Into<String>, scope: Scope, words: &Value) -> VmRecord {
        assert!(words.is_object(), "a record of a VM is an object of keys");
        VmRecord {
            name: name.into(),
            scope,
            version: BEFORE_PATHS,
            text: words.to_string(),
        }
    }

    /// Marks the record of a VM all of whose disks are confined to what `[paths]` allows. Builds
    /// from before that cannot read it, and do not serve the VM.
    pub fn confined(mut self) -> VmRecord {
        self.version = CONFINED;
        self
    }

    /// Returns true if the paths of the VM's disks were allowed by `[paths]` when it was written;
    /// false if they may have been accepted by a build without that.
    pub fn is_confined(&self) -> bool {
        self.version >= CONFINED
    }

    /// Returns the record of a row in the table of VMs.
    pub(crate) fn from_row(
        name: &str,
        (version, scope, text): (u32, u8, &str),
    ) -> Result<VmRecord, redb::Error> {
        let scope = Scope::from_byte(scope)
            .ok_or_else(|| redb::Error::Corrupted(format!("VM {name:?} has the scope {scope}")))?;
        Ok(VmRecord {
            name: name.to_owned(),
            scope,
            version,
            text: text.to_owned(),
        })
    }

    /// Returns the row for the table of VMs.
    pub(super) fn row(&self) -> (u32, u8, &str) {
        (self.version, self.scope.to_byte(), &self.text)
    }

    /// Returns the parsed JSON.
    ///
    /// # Errors
    /// If it was written by a newer daemon, or is not JSON.
    pub fn words(&self) -> Result<Value, String> {
        // Older versions are read by today's readers.
        if self.version > CONFINED {
            return Err(format!(
                "the record of VM {:?} has version {}, this daemon reads versions up to \
                 {CONFINED}: use the Tidegate that wrote it, or a newer one",
                self.name, self.version
            ));
        }
        serde_json::from_str(&self.text)
            .map_err(|error| format!("the record of VM {:?} is not JSON: {error}", self.name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn words_come_back_as_they_were_and_newer_ones_are_refused() {
        let words = json!({ "weight": 200, "latency": "30 ms" });
        let record = VmRecord::new("oltp", Scope::Objective, &words);
        assert_eq!(record.words(), Ok(words));
        let newer = VmRecord {
            version: 7,
            ..record
        };
        let message = newer.words().expect_err("newer");
        assert!(message.contains("version 7"), "{message}");
    }
}
