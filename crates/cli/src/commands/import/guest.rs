//! Guest of another system, and the `[[vm]]` that it becomes.
//!
//! The limits of a guest's only disk are those of the VM. The disks of others have them one by one,
//! and a throttle group of several disks is a limit group of their device.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;

use serde_json::{Map, Value};
use tidegate_core::objective::Objective;
use tidegate_units::human::exact_bytes;

use super::throttle::Throttle;
use crate::configuration_text::{DiskText, TakenNames, VmText, comment, inline, string};
use crate::shell;

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

/// Names and paths that tables have already.
#[derive(Debug, Default)]
pub(super) struct Taken {
    /// Names of VMs and exports.
    names: TakenNames,
    /// Names of limit groups.
    groups: TakenNames,
    /// Paths of raw files and block devices.
    paths: BTreeSet<String>,
}

/// Tables of a guest.
#[derive(Debug, Default)]
pub(super) struct Tables {
    /// Text of its `[[device.limit_group]]` tables.
    pub(super) groups: Vec<String>,
    /// Text of its `[[vm]]`, after all remarks as comments.
    pub(super) vm: String,
    /// All remarks about the guest.
    pub(super) remarks: Vec<Remark>,
}

/// Throttle group of several disks, as a limit group.
struct LimitGroup {
    /// Name as `limit_group` has it.
    name: String,
    limit: Value,
}

impl Guest {
    /// Adds a remark about a place.
    pub(super) fn remark(&mut self, place: impl Into<String>, what: impl Into<String>) {
        self.remarks.push(Remark {
            place: place.into(),
            what: what.into(),
        });
    }

    /// Returns the tables of the guest, with other names and paths than those in `taken`.
    pub(super) fn tables(&self, device: Option<&str>, taken: &mut Taken) -> Tables {
        let mut remarks = self.remarks.clone();
        let mut groups = Vec::new();
        let vm = match self.disks.as_slice() {
            [] => {
                remarks.push(Remark {
                    place: self.place.clone(),
                    what: "the guest has no disk that could be served".to_owned(),
                });
                String::new()
            }
            disks => {
                let by_name = self.limit_groups(taken, &mut remarks);
                let name = taken.names.take(&self.name);
                let disks: Vec<_> = disks
                    .iter()
                    .map(|disk| self.disk(disk, &name, &by_name, taken, &mut remarks))
                    .collect();
                for (group, made) in &by_name {
                    let of_group = self.disks.iter().zip(&disks);
                    let is_served = of_group
                        .filter(|(disk, _)| disk.is_in(group))
                        .any(|(_, text)| !text.is_comment);
                    groups.push(uncommented_if(is_served, made.to_string()));
                }
                let is_served = disks.iter().any(|disk| !disk.is_comment);
                let vm = VmText {
                    comments: Vec::new(),
                    name,
                    device: device.map(str::to_owned),
                    objective: self.objective(&mut remarks),
                    disks,
                };
                uncommented_if(is_served, vm.to_string())
            }
        };
        let comments = remarks.iter().map(|remark| comment(&remark.to_string()));
        let comments: String = comments.collect();
        Tables {
            groups,
            vm: comments + &vm,
            remarks,
        }
    }

    /// Returns the limit groups by the names of the throttle groups that they stand for: those of
    /// several disks, with a limit.
    fn limit_groups(
        &self,
        taken: &mut Taken,
        remarks: &mut Vec<Remark>,
    ) -> BTreeMap<&str, LimitGroup> {
        let mut made = BTreeMap::new();
        for (group, throttle) in &self.groups {
            let mut disks = self.disks.iter().filter(|disk| disk.is_in(group));
            let (Some(first), Some(_)) = (disks.next(), disks.next()) else {
                continue;
            };
            if let Some(limit) = limit(throttle, &first.place, remarks) {
                let name = taken.groups.take(&format!("{}-{group}", self.name));
                made.insert(group.as_str(), LimitGroup { name, limit });
            }
        }
        made
    }

    /// Returns a disk's limits, with those of a throttle group that it has for itself.
    fn own_limits(&self, disk: &GuestDisk) -> Throttle {
        let mut own = disk.throttle.clone();
        for (group, throttle) in &self.groups {
            let disks = self.disks.iter().filter(|disk| disk.is_in(group));
            if disk.is_in(group) && disks.count() == 1 {
                own.lower_to(throttle);
            }
        }
        own
    }

    /// Returns the VM's objective: the limits of all disks together, and those of the only disk.
    fn objective(&self, remarks: &mut Vec<Remark>) -> Map<String, Value> {
        let mut limits = self.limits.clone();
        let mut place = &self.place;
        if let [disk] = self.disks.as_slice() {
            let mut own = self.own_limits(disk);
            if !own.is_empty() {
                place = &disk.place;
            }
            own.lower_to(&limits);
            limits = own;
        }
        let (mut objective, more) = limits.objective();
        remarks.extend(more.into_iter().map(|what| Remark {
            place: place.clone(),
            what,
        }));
        let weight = self.weight.unwrap_or(Objective::DEFAULT_WEIGHT);
        if weight != Objective::DEFAULT_WEIGHT {
            objective.insert("weight".to_owned(), weight.into());
        }
        objective
    }

    /// Returns the table of a disk of the VM `name`: as a comment if it cannot be served.
    fn disk(
        &self,
        disk: &GuestDisk,
        name: &str,
        groups: &BTreeMap<&str, LimitGroup>,
        taken: &mut Taken,
        remarks: &mut Vec<Remark>,
    ) -> DiskText {
        let mut remark = |what: String| {
            remarks.push(Remark {
                place: disk.place.clone(),
                what,
            });
        };
        let several = self.disks.len() > 1;
        let export = several.then(|| taken.names.take(&format!("{name}-{}", disk.label)));
        let mut text = disk.text(export);
        if disk.path.is_some() && !taken.paths.insert(disk.raw_path()) {
            text.is_comment = true;
            remark("has the file of an earlier disk, and a file is served once".to_owned());
        }
        if let Some(format) = &disk.format {
            remark(format!(
                "a {format} image: convert it to raw, as its comment says"
            ));
        }
        if several {
            let own = limit(&self.own_limits(disk), &disk.place, remarks);
            text.keys.extend(own.map(|own| ("limit", own)));
        }
        let group = disk.group.as_deref().and_then(|group| groups.get(group));
        text.keys
            .extend(group.map(|group| ("limit_group", group.name.as_str().into())));
        text
    }
}

impl fmt::Display for LimitGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "[[device.limit_group]]")?;
        writeln!(f, "name = {}", string(&self.name))?;
        writeln!(f, "limit = {}", inline(&self.limit))
    }
}

impl GuestDisk {
    fn is_in(&self, group: &str) -> bool {
        self.group.as_deref() == Some(group)
    }

    /// Returns the path of the raw file: that of an image with another ending. Empty without one.
    fn raw_path(&self) -> String {
        let path = self.path.clone().unwrap_or_default();
        if self.format.is_none() {
            return path;
        }
        let raw = Path::new(&path).with_extension("raw");
        raw.to_string_lossy().into_owned()
    }

    /// Returns the disk as a table; without a path, with one to be replaced.
    fn text(&self, export: Option<String>) -> DiskText {
        let mut disk = DiskText {
            comments: vec![format!("{}: {}", self.place, self.label)],
            keys: Vec::new(),
            is_comment: self.path.is_none(),
        };
        disk.keys
            .extend(export.map(|export| ("export", export.into())));
        let raw = self.raw_path();
        if let Some(format) = &self.format {
            disk.comments.push(match &self.path {
                Some(path) => format!(
                    "{format}: qemu-img convert -O raw {} {}",
                    shell::quoted(path),
                    shell::quoted(&raw)
                ),
                None => format!("{format}: convert it to raw with qemu-img, and add the path"),
            });
        }
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

/// Returns the `limit` that limits of a disk or a group become; `None`: there is none.
fn limit(throttle: &Throttle, place: &str, remarks: &mut Vec<Remark>) -> Option<Value> {
    let (mut parts, more) = throttle.objective();
    remarks.extend(more.into_iter().map(|what| Remark {
        place: place.to_owned(),
        what,
    }));
    parts.remove("limit")
}

/// Returns a table as it is, or as a comment.
fn uncommented_if(is_served: bool, table: String) -> String {
    if is_served {
        return table;
    }
    let commented = |line: &str| match line.strip_prefix('#') {
        Some(_) => format!("{line}\n"),
        None => format!("#{line}\n"),
    };
    table.lines().map(commented).collect()
}
