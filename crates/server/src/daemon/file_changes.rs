//! Differences between the configuration file in force and the same file read again: what a
//! running daemon applies, and what needs a new one.
//!
//! Precedence is that of a takeover. A section whose words are those of the file in force stays as
//! it is served, whatever the control API has made of it; a section that was edited is as the file
//! has it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde_json::{Map, Value};
use tidegate_policies::policy::PolicySpec;

use super::persistence::words_of;
use crate::config::{Config, DeviceConfig, DiskConfig, LimitGroup, VmConfig};

/// Keys of a table of the file that name it among its like, in the order in which they are tried.
const NAMING_KEYS: [&str; 6] = ["name", "export", "unix", "tcp", "vhost_user", "array"];
/// Keys of a `[[vm.disk]]` that are applied to a disk that is served, or have no effect on it.
const APPLIED_TO_DISKS: [&str; 4] = ["export", "create", "limit", "limit_group"];

/// Configuration file as it is in force.
#[derive(Debug)]
pub(crate) struct FileInForce {
    /// VMs as the file has them; their devices are indices into `devices`.
    pub(crate) vms: Vec<VmConfig>,
    /// Devices that are served.
    pub(crate) devices: Vec<DeviceConfig>,
    /// Sections other than `[[vm]]`, as the file wrote them when the daemon started.
    pub(crate) sections: Value,
}

/// Part of the file that takes effect with a new daemon.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct NeedsRestart {
    /// Section, such as `[[device]] fast`.
    at: String,
    /// Key with its change, such as `depth changed`.
    what: String,
}

impl fmt::Display for NeedsRestart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.at, self.what)
    }
}

/// Differences between the file in force and the one that was read again.
#[derive(Debug, Default)]
pub(crate) struct FileChanges {
    /// Names of VMs that the file has no more.
    pub(crate) removed: Vec<String>,
    /// VMs that are new in the file, or were edited; their devices are indices of served ones.
    pub(crate) vms: Vec<VmConfig>,
    /// Policies of devices, by index.
    pub(crate) policies: Vec<(usize, PolicySpec)>,
    /// Limits that disks share, by index of their device.
    pub(crate) groups: Vec<(usize, LimitGroup)>,
    /// Changes that need a new daemon.
    pub(crate) restart: Vec<NeedsRestart>,
}

impl FileChanges {
    /// Compares a file that was read again with the one in force.
    pub(crate) fn new(in_force: &FileInForce, file: &Config) -> FileChanges {
        let mut changes = FileChanges::default();
        compare_sections(&in_force.sections, &file.sections, &mut changes.restart);
        for device in &file.devices {
            if let Some(at) = position(&in_force.devices, &device.name) {
                changes.compare_device(at, &in_force.devices[at], device);
            }
        }
        let before: BTreeMap<&str, &VmConfig> = (in_force.vms.iter())
            .map(|vm| (vm.name.as_str(), vm))
            .collect();
        for vm in &file.vms {
            let device = file.devices[vm.device].name.as_str();
            let before = before.get(vm.name.as_str());
            let is_edited = before.is_none_or(|before| {
                let was_on = in_force.devices[before.device].name.as_str();
                has_other_words((before, was_on), (vm, device))
            });
            if !is_edited {
                continue;
            }
            match position(&in_force.devices, device) {
                Some(device) => changes.vms.push(VmConfig {
                    device,
                    ..vm.clone()
                }),
                None => changes.restart.push(NeedsRestart {
                    at: format!("[[vm]] {}", vm.name),
                    what: format!("its device {device:?} is not served yet"),
                }),
            }
        }
        let names: BTreeSet<&str> = file.vms.iter().map(|vm| vm.name.as_str()).collect();
        let gone = in_force.vms.iter().map(|vm| &vm.name);
        changes.removed = gone
            .filter(|name| !names.contains(name.as_str()))
            .cloned()
            .collect();
        changes
    }

    /// Returns true if there is nothing to apply.
    pub(crate) fn is_empty(&self) -> bool {
        let FileChanges {
            removed,
            vms,
            policies,
            groups,
            restart: _,
        } = self;
        removed.is_empty() && vms.is_empty() && policies.is_empty() && groups.is_empty()
    }

    fn compare_device(&mut self, at: usize, before: &DeviceConfig, now: &DeviceConfig) {
        let policy = &now.scheduling.policy;
        if before.scheduling.policy != *policy {
            self.policies.push((at, policy.clone()));
        }
        // A group that is new needs a restart, as its section says.
        let changed = now.limit_groups.iter().filter(|group| {
            let mut before = before.limit_groups.iter();
            let before = before.find(|before| before.name == group.name);
            before.is_some_and(|before| before.limit != group.limit)
        });
        self.groups.extend(changed.map(|group| (at, group.clone())));
    }
}

fn position(devices: &[DeviceConfig], name: &str) -> Option<usize> {
    devices.iter().position(|device| device.name == name)
}

/// Returns true if two sections of a VM differ, each with the name of its device.
fn has_other_words(before: (&VmConfig, &str), now: (&VmConfig, &str)) -> bool {
    // Fault rules are in no words of a VM.
    let faults =
        |vm: &VmConfig| -> Vec<_> { vm.disks.iter().map(|it| it.faults.clone()).collect() };
    words_of(before.0.clone(), before.1) != words_of(now.0.clone(), now.1)
        || faults(before.0) != faults(now.0)
}

/// Changes that make a VM that is served what the file says.
#[derive(Debug, Default)]
pub(crate) struct VmChanges {
    /// The objective with its schedule differs.
    pub(crate) objective: bool,
    /// The maximum number of connections differs.
    pub(crate) max_connections: bool,
    /// The VM becomes a process of the host, or is one no more.
    pub(crate) background: bool,
    /// Disks whose own limit or limit group differs, as the file has them.
    pub(crate) limits: Vec<DiskConfig>,
    /// Disks that are not served.
    pub(crate) added: Vec<DiskConfig>,
    /// Export names of disks that the file does not have.
    pub(crate) removed: Vec<String>,
    /// Changes that need a new daemon.
    pub(crate) restart: Vec<NeedsRestart>,
}

impl VmChanges {
    /// Compares a VM that is served with that of the file. Both devices are indices of served ones.
    pub(crate) fn new(served: &VmConfig, file: &VmConfig) -> VmChanges {
        let mut changes = VmChanges::default();
        if served.device != file.device {
            // Limit groups and disks of the section belong to the other device.
            changes.needs_restart(&file.name, "device changed");
            return changes;
        }
        changes.background = served.background != file.background;
        changes.objective = served.promised() != file.promised();
        changes.max_connections = served.max_connections != file.max_connections;
        for disk in &file.disks {
            let Some(there) = find(&served.disks, &disk.export) else {
                changes.added.push(disk.clone());
                continue;
            };
            if limits(there) != limits(disk) {
                changes.limits.push(disk.clone());
            }
            for key in differing_keys((served, there), (file, disk)) {
                let what = format!("disk {:?}: {key} changed", disk.export);
                changes.needs_restart(&file.name, &what);
            }
        }
        let removed = (served.disks.iter()).filter(|it| find(&file.disks, &it.export).is_none());
        changes.removed = removed.map(|disk| disk.export.clone()).collect();
        changes
    }

    /// Returns the parts that differ and need no new daemon, in words.
    pub(crate) fn applied(&self) -> Vec<String> {
        let keys = [
            ("objective", self.objective),
            ("max_connections", self.max_connections),
            ("background", self.background),
        ];
        let keys = keys.into_iter().filter(|(_, differs)| *differs);
        let keys = keys.map(|(key, _)| key.to_owned());
        let limits = self.limits.iter();
        let limits = limits.map(|disk| format!("limits of disk {:?}", disk.export));
        let removed = self.removed.iter();
        let removed = removed.map(|export| format!("disk {export:?} removed"));
        let added = self.added.iter();
        let added = added.map(|disk| format!("disk {:?} added", disk.export));
        keys.chain(limits).chain(removed).chain(added).collect()
    }

    /// Notes a key of a VM that needs a new daemon.
    pub(crate) fn needs_restart(&mut self, vm: &str, what: &str) {
        self.restart.push(NeedsRestart {
            at: format!("[[vm]] {vm}"),
            what: what.to_owned(),
        });
    }
}

fn find<'a>(disks: &'a [DiskConfig], export: &str) -> Option<&'a DiskConfig> {
    disks.iter().find(|disk| disk.export == export)
}

fn limits(disk: &DiskConfig) -> (&tidegate_core::objective::Limit, &Option<String>) {
    (&disk.limit, &disk.limit_group)
}

/// Returns the keys of a disk that differ and need a new daemon.
fn differing_keys(
    (served, there): (&VmConfig, &DiskConfig),
    (file, disk): (&VmConfig, &DiskConfig),
) -> Vec<String> {
    let words = |vm: &VmConfig, disk: &DiskConfig| {
        let alone = VmConfig {
            disks: vec![disk.clone()],
            ..vm.clone()
        };
        match words_of(alone, "")["disk"][0].take() {
            Value::Object(keys) => keys,
            _ => Map::new(),
        }
    };
    let (before, now) = (words(served, there), words(file, disk));
    let keys: BTreeSet<&String> = before.keys().chain(now.keys()).collect();
    // A size that either does not give is that of the file below the disk.
    let is_size_left_out = there.size.is_none() || disk.size.is_none();
    let differing = keys.into_iter().filter(|key| {
        let is_compared = match key.as_str() {
            "size" => !is_size_left_out,
            key => !APPLIED_TO_DISKS.contains(&key),
        };
        is_compared && before.get(*key) != now.get(*key)
    });
    let mut all: Vec<String> = differing.cloned().collect();
    if there.faults != disk.faults {
        all.push("fault".to_owned());
    }
    all
}

/// Returns a VM of the file as far as it is in force: `file` where the VM that is `served` has it,
/// otherwise what was in force `before`. `wanted` is the VM of the file with the objective of the
/// store, if it has one.
pub(crate) fn as_in_force(
    before: Option<&VmConfig>,
    (file, wanted): (&VmConfig, &VmConfig),
    served: &VmConfig,
) -> VmConfig {
    let before = before.unwrap_or(served);
    if served.device != file.device {
        return before.clone();
    }
    let pick = |is_new: bool| if is_new { file } else { before };
    let mut vm = file.clone();
    vm.background = served.background;
    vm.promise(pick(served.promised() == wanted.promised()).promised());
    vm.max_connections = pick(served.max_connections == file.max_connections).max_connections;
    vm.disks
        .retain(|disk| find(&served.disks, &disk.export).is_some());
    for disk in &mut vm.disks {
        let there = find(&served.disks, &disk.export).expect("it was retained");
        let before = find(&before.disks, &disk.export).unwrap_or(there);
        let has_limits = limits(there) == limits(disk);
        let (limit, limit_group) = if has_limits {
            (disk.limit, disk.limit_group.clone())
        } else {
            (before.limit, before.limit_group.clone())
        };
        let is_open_so = differing_keys((served, there), (file, disk)).is_empty();
        let opened = if is_open_so { &*disk } else { before };
        *disk = DiskConfig {
            limit,
            limit_group,
            ..opened.clone()
        };
    }
    let kept = before.disks.iter().filter(|disk| {
        let is_served = find(&served.disks, &disk.export).is_some();
        is_served && find(&file.disks, &disk.export).is_none()
    });
    vm.disks.extend(kept.cloned());
    vm
}

/// Reports differences of the sections other than `[[vm]]` that need a new daemon. Values are
/// compared as they are written: one in another spelling counts as changed.
fn compare_sections(before: &Value, now: &Value, all: &mut Vec<NeedsRestart>) {
    let (Value::Object(before), Value::Object(now)) = (before, now) else {
        return;
    };
    let keys: BTreeSet<&String> = before.keys().chain(now.keys()).collect();
    for key in keys {
        let top = Section {
            path: key.clone(),
            label: String::new(),
        };
        match (before.get(key), now.get(key)) {
            (Some(Value::Object(before)), Some(Value::Object(now))) => {
                let label = format!("[{key}]");
                let section = Section { label, ..top };
                section.compare("", before, now, all);
            }
            (before, now) => top.compare_values(key, before, now, all),
        }
    }
}

/// Section of the file that is being compared.
struct Section {
    /// Keys that lead to it, without the names of tables in lists: `device.limit_group`.
    path: String,
    /// Section in messages: `[[device]] fast`; empty for the file as a whole.
    label: String,
}

impl Section {
    /// Compares two tables of the section; `within` is the key of an inner table with its dot.
    fn compare(
        &self,
        within: &str,
        before: &Map<String, Value>,
        now: &Map<String, Value>,
        all: &mut Vec<NeedsRestart>,
    ) {
        let keys: BTreeSet<&String> = before.keys().chain(now.keys()).collect();
        for key in keys {
            let (before, now) = (before.get(key), now.get(key));
            let is_applied = || self.is_applied(key, before.is_some() && now.is_some());
            if !(within.is_empty() && is_applied()) {
                self.compare_values(&format!("{within}{key}"), before, now, all);
            }
        }
    }

    /// Returns true for a key whose change is applied to the running daemon; `is_in_both`: neither
    /// file lacks it.
    fn is_applied(&self, key: &str, is_in_both: bool) -> bool {
        match (self.path.as_str(), key) {
            ("device", "policy") | ("device.limit_group", "limit") => true,
            // Read again by the listeners themselves, which say what they do not take over.
            ("listen" | "control.listen" | "metrics", "tls") => is_in_both,
            _ => false,
        }
    }

    fn compare_values(
        &self,
        key: &str,
        before: Option<&Value>,
        now: Option<&Value>,
        all: &mut Vec<NeedsRestart>,
    ) {
        let are_tables = |value: Option<&Value>| tables(value).is_some();
        let what = match (before, now) {
            (before, now) if before == now => return,
            (Some(Value::Object(before)), Some(Value::Object(now))) => {
                return self.compare(&format!("{key}."), before, now, all);
            }
            (before, now) if are_tables(before) || are_tables(now) => {
                let [before, now] = [before, now].map(|it| tables(it).unwrap_or_default());
                return self.compare_lists(key, &before, &now, all);
            }
            (None, _) => "added",
            (_, None) => "removed",
            _ => "changed",
        };
        let (at, what) = match self.label.as_str() {
            "" => (format!("[{key}]"), what.to_owned()),
            label => (label.to_owned(), format!("{key} {what}")),
        };
        all.push(NeedsRestart { at, what });
    }

    /// Compares two lists of tables, each table with the one of its name.
    fn compare_lists(
        &self,
        key: &str,
        before: &[&Map<String, Value>],
        now: &[&Map<String, Value>],
        all: &mut Vec<NeedsRestart>,
    ) {
        let named = |list: &[&Map<String, Value>]| -> Vec<(String, usize)> {
            let mut names: Vec<(String, usize)> = Vec::new();
            for table in list {
                let name = name_of(table);
                // Ports that the kernel chooses have one name.
                let earlier = names.iter().filter(|(other, _)| *other == name).count();
                names.push((name, earlier));
            }
            names
        };
        let (names_before, names_now) = (named(before), named(now));
        for (name, table) in names_now.iter().zip(now) {
            let section = self.inner(key, &name.0);
            match names_before.iter().position(|other| other == name) {
                Some(at) => section.compare("", before[at], table, all),
                None => section.report("added", all),
            }
        }
        for name in names_before.iter().filter(|it| !names_now.contains(it)) {
            self.inner(key, &name.0).report("removed", all);
        }
    }

    fn inner(&self, key: &str, name: &str) -> Section {
        match self.label.as_str() {
            "" => Section {
                path: key.to_owned(),
                label: format!("[[{key}]] {name}"),
            },
            label => Section {
                path: format!("{}.{key}", self.path),
                label: format!("{label}: {key} {name}"),
            },
        }
    }

    fn report(&self, what: &str, all: &mut Vec<NeedsRestart>) {
        all.push(NeedsRestart {
            at: self.label.clone(),
            what: what.to_owned(),
        });
    }
}

/// Returns the tables of a list of tables; `None` for every other value.
fn tables(value: Option<&Value>) -> Option<Vec<&Map<String, Value>>> {
    let list = value?.as_array().filter(|list| !list.is_empty())?;
    list.iter().map(Value::as_object).collect()
}

/// Returns the name of a table among its like.
fn name_of(table: &Map<String, Value>) -> String {
    let mut named = NAMING_KEYS.iter().filter_map(|key| table.get(*key));
    match named.next() {
        Some(Value::String(name)) => name.clone(),
        Some(other) => other.to_string(),
        None => "without a name".to_owned(),
    }
}

#[cfg(test)]
mod tests;
