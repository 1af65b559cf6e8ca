//! Guest of another system, and the `[[vm]]` tables that it becomes.
//!
//! A guest whose disks have limits of their own becomes several VMs: one for each such disk, one
//! for each throttle group, and one for all other disks. They are in one weight group, which has
//! the guest's weight.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use serde_json::{Map, Value, json};
use tidegate_core::objective::Objective;
use tidegate_units::human::exact_bytes;

use super::throttle::Throttle;
use crate::configuration_text::{DiskText, TakenNames, VmText, comment};
use crate::shell;

/// Longest name of a weight group, in bytes.
const GROUP_NAME_MAX: usize = 31;

/// Statement about something that has no counterpart, or only nearly one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Remark {
    /// Place in the input: file, line and element.
    pub(super) place: String,
    /// Text about it.
    pub(super) what: String,
}

impl fmt::Display for Remark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.what)
    }
}

/// Guest as its description has it.
#[derive(Clone, Default, Debug)]
pub(super) struct Guest {
    /// Name, which need not be valid for a VM.
    pub(super) name: String,
    /// Place of the guest as a whole, for remarks.
    pub(super) place: String,
    /// Share of the guest beside others.
    pub(super) weight: Option<u32>,
    /// Limits of all disks together.
    pub(super) limits: Throttle,
    /// Limits of throttle groups by their names.
    pub(super) groups: BTreeMap<String, Throttle>,
    /// Disks in their order.
    pub(super) disks: Vec<GuestDisk>,
    /// Statements about what has no counterpart.
    pub(super) remarks: Vec<Remark>,
}

/// Disk of a guest.
#[derive(Clone, Default, Debug)]
pub(super) struct GuestDisk {
    /// Name within the guest, such as `vda`.
    pub(super) label: String,
    /// Place in the input.
    pub(super) place: String,
    /// Path of the file or block device, or the reason why there is none.
    pub(super) path: Option<String>,
    /// Size in bytes, for a file that is to be created.
    pub(super) created_with: Option<u64>,
    /// Format of the file's content; `None` for raw or unknown.
    pub(super) format: Option<String>,
    /// True if writes are refused.
    pub(super) read_only: bool,
    /// Limits of this disk alone.
    pub(super) throttle: Throttle,
    /// Throttle group that the disk is in.
    pub(super) group: Option<String>,
}

/// Tables of a guest.
#[derive(Debug, Default)]
pub(super) struct Tables {
    /// Text of each table.
    pub(super) tables: Vec<String>,
    /// All remarks about the guest.
    pub(super) remarks: Vec<Remark>,
}

/// Disks that share one limit.
struct Part<'a> {
    /// Suffix of the VM's name; `None` for disks without limits of their own.
    suffix: Option<&'a str>,
    throttle: Throttle,
    disks: Vec<&'a GuestDisk>,
}

impl Guest {
    /// Adds a remark about a place.
    pub(super) fn remark(&mut self, place: impl Into<String>, what: impl Into<String>) {
        self.remarks.push(Remark {
            place: place.into(),
            what: what.into(),
        });
    }

    /// Returns the tables of the guest. Names of VMs are taken from `names`.
    pub(super) fn tables(&self, device: Option<&str>, names: &mut TakenNames) -> Tables {
        let mut remarks = self.remarks.clone();
        let mut parts = self.parts();
        if parts.is_empty() {
            remarks.push(self.remark_of_all("the guest has no disk that could be served".into()));
        }
        let is_divided = parts.len() > 1;
        if is_divided {
            remarks.push(self.remark_of_all(format!(
                "limits of single disks: each of them is a VM of its own in the weight group {}, \
                 which policies such as slo enforce",
                group_name(&self.name)
            )));
        }
        if is_divided && !self.limits.is_empty() {
            remarks.push(
                self.remark_of_all(
                    "a limit of all disks together beside limits of single disks: each of the VMs \
                 has it, so together they may exceed it"
                        .to_owned(),
                ),
            );
        }
        let mut tables = Tables::default();
        for part in &mut parts {
            part.throttle.lower_to(&self.limits);
            let (mut objective, more) = part.throttle.objective();
            remarks.extend(more.into_iter().map(|what| part.remark(self, what)));
            self.add_weight(&mut objective, is_divided);
            let wish = match part.suffix {
                Some(suffix) if is_divided => format!("{}-{suffix}", self.name),
                _ => self.name.clone(),
            };
            let name = names.take(&wish);
            let table = part.table(name, device, objective, names, &mut remarks);
            tables.tables.push(table);
        }
        let comments = remarks.iter().map(|remark| comment(&remark.to_string()));
        let comments: String = comments.collect();
        match tables.tables.first_mut() {
            Some(first) => first.insert_str(0, &comments),
            None => tables.tables.push(comments),
        }
        tables.remarks = remarks;
        tables
    }

    fn remark_of_all(&self, what: String) -> Remark {
        let place = self.place.clone();
        Remark { place, what }
    }

    /// Divides the disks by the limits that they share.
    fn parts(&self) -> Vec<Part<'_>> {
        let mut parts: Vec<Part<'_>> = Vec::new();
        for disk in &self.disks {
            let suffix = match &disk.group {
                Some(group) => Some(group.as_str()),
                None if disk.throttle.is_empty() => None,
                None => Some(disk.label.as_str()),
            };
            let of_group = disk.group.as_ref().and_then(|group| self.groups.get(group));
            match parts.iter_mut().find(|part| part.suffix == suffix) {
                Some(part) => part.disks.push(disk),
                None => parts.push(Part {
                    suffix,
                    throttle: of_group.unwrap_or(&disk.throttle).clone(),
                    disks: vec![disk],
                }),
            }
        }
        parts
    }

    /// Adds the guest's weight to an objective: as that of a group for one of several VMs.
    fn add_weight(&self, objective: &mut Map<String, Value>, is_divided: bool) {
        let weight = self.weight.unwrap_or(Objective::DEFAULT_WEIGHT);
        let is_default = weight == Objective::DEFAULT_WEIGHT;
        let name = group_name(&self.name);
        let (key, value) = match (is_divided, is_default) {
            (true, true) => ("group", name.into()),
            (true, false) => ("group", json!({ "name": name, "weight": weight })),
            (false, true) => return,
            (false, false) => ("weight", weight.into()),
        };
        objective.insert(key.to_owned(), value);
    }
}

impl Part<'_> {
    /// Returns a remark about the limit of these disks.
    fn remark(&self, guest: &Guest, what: String) -> Remark {
        let of_disk = self
            .suffix
            .and(self.disks.first())
            .map(|disk| disk.place.clone());
        Remark {
            place: of_disk.unwrap_or_else(|| guest.place.clone()),
            what,
        }
    }

    /// Returns the table of one VM: as a comment if no disk of it can be served.
    fn table(
        &self,
        name: String,
        device: Option<&str>,
        objective: Map<String, Value>,
        names: &mut TakenNames,
        remarks: &mut Vec<Remark>,
    ) -> String {
        let several = self.disks.len() > 1;
        let mut served = 0;
        let mut disks = Vec::new();
        for disk in &self.disks {
            let export = several.then(|| names.take(&format!("{name}-{}", disk.label)));
            let text = disk.text(export);
            if let Some(format) = &disk.format {
                remarks.push(Remark {
                    place: disk.place.clone(),
                    what: format!("a {format} image: convert it to raw, as its comment says"),
                });
            }
            served += usize::from(disk.path.is_some());
            disks.push(text);
        }
        let vm = VmText {
            comments: Vec::new(),
            name,
            device: device.map(str::to_owned),
            objective,
            disks,
        };
        let text = vm.to_string();
        let commented = |line: &str| match line.strip_prefix('#') {
            Some(_) => format!("{line}\n"),
            None => format!("#{line}\n"),
        };
        match served {
            0 => text.lines().map(commented).collect(),
            _ => text,
        }
    }
}

impl GuestDisk {
    /// Returns the disk as a table; without a path, with one to be replaced.
    fn text(&self, export: Option<String>) -> DiskText {
        let mut disk = DiskText {
            comments: vec![format!("{}: {}", self.place, self.label)],
            keys: Vec::new(),
            is_comment: self.path.is_none(),
        };
        disk.keys
            .extend(export.map(|export| ("export", export.into())));
        let path = self.path.clone().unwrap_or_default();
        let raw = match &self.format {
            Some(format) => {
                let raw = Path::new(&path)
                    .with_extension("raw")
                    .to_string_lossy()
                    .into_owned();
                disk.comments.push(format!(
                    "{format}: qemu-img convert -O raw {} {}",
                    shell::quoted(&path),
                    shell::quoted(&raw)
                ));
                raw
            }
            None => path,
        };
        disk.keys.push(("path", raw.into()));
        if let Some(size) = self.created_with {
            disk.keys.push(("size", exact_bytes(size).into()));
            disk.keys.push(("create", "sparse".into()));
        }
        if self.read_only {
            disk.keys.push(("read_only", true.into()));
        }
        disk
    }
}

/// Returns the name of a guest's weight group.
fn group_name(name: &str) -> String {
    let mut end = name.len().min(GROUP_NAME_MAX);
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    match &name[..end] {
        "" => "guest".to_owned(),
        name => name.to_owned(),
    }
}
