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

use super::shown;
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
    /// Throttle groups that the disk is in: all of their limits count.
    pub(super) groups: Vec<String>,
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

/// Limit of all throttle groups that have the same disks.
struct SharedThrottle<'a> {
    /// Names of the groups.
    groups: Vec<&'a str>,
    /// Indices of the disks.
    disks: Vec<usize>,
    throttle: Throttle,
}

/// Throttle groups of several disks, as a limit group.
struct LimitGroup {
    /// Names of the throttle groups.
    groups: Vec<String>,
    /// Indices of the disks whose `limit_group` it is.
    disks: Vec<usize>,
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
                let shared = self.limit_groups(taken, &mut remarks);
                let name = taken.names.take(&self.name);
                let disks: Vec<_> = (0..disks.len())
                    .map(|index| self.disk(index, &name, &shared, taken, &mut remarks))
                    .collect();
                for group in &shared {
                    let mut of_group = group.disks.iter().map(|index| &disks[*index]);
                    let is_served = of_group.any(|text| !text.is_comment);
                    groups.push(uncommented_if(is_served, group.to_string()));
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

    /// Returns the limits of throttle groups. Groups of the same disks are one limit.
    fn shared_throttles(&self) -> Vec<SharedThrottle<'_>> {
        let mut all: Vec<SharedThrottle<'_>> = Vec::new();
        for (group, throttle) in &self.groups {
            let disks = self.disks.iter().enumerate();
            let disks: Vec<_> = disks
                .filter(|(_, disk)| disk.groups.contains(group))
                .map(|(index, _)| index)
                .collect();
            match all.iter_mut().find(|other| other.disks == disks) {
                Some(same) => {
                    same.groups.push(group);
                    same.throttle.lower_to(throttle);
                }
                None => all.push(SharedThrottle {
                    groups: vec![group],
                    disks,
                    throttle: throttle.clone(),
                }),
            }
        }
        all
    }

    /// Returns the limit groups: for each disk the first of its throttle groups that has a limit
    /// and other disks.
    fn limit_groups(&self, taken: &mut Taken, remarks: &mut Vec<Remark>) -> Vec<LimitGroup> {
        let mut made = Vec::new();
        for shared in self.shared_throttles() {
            let [first, _, ..] = shared.disks[..] else {
                continue;
            };
            let limit = limit(&shared.throttle, &self.disks[first].place, remarks);
            made.extend(limit.map(|limit| LimitGroup {
                groups: shared.groups.into_iter().map(str::to_owned).collect(),
                disks: Vec::new(),
                name: String::new(),
                limit,
            }));
        }
        for (index, disk) in self.disks.iter().enumerate() {
            let has = |group: &String| made.iter().position(|made| made.groups.contains(group));
            if let Some(first) = disk.groups.iter().find_map(has) {
                made[first].disks.push(index);
            }
        }
        made.retain(|group| !group.disks.is_empty());
        for group in &mut made {
            let wish = format!("{}-{}", self.name, group.groups[0]);
            group.name = taken.groups.take(&wish);
        }
        made
    }

    /// Returns a disk's limits, with those of all throttle groups that are not its limit group, of
    /// which a disk has only one. Those of them that other disks are in get a remark.
    fn own_limits(
        &self,
        index: usize,
        limit_group: Option<&LimitGroup>,
        remarks: &mut Vec<Remark>,
    ) -> Throttle {
        let disk = &self.disks[index];
        let is_kept = |shared: &SharedThrottle<'_>| {
            limit_group.is_some_and(|kept| kept.groups.iter().any(|it| it == shared.groups[0]))
        };
        let mut own = disk.throttle.clone();
        for shared in self.shared_throttles() {
            if !shared.disks.contains(&index) || is_kept(&shared) {
                continue;
            }
            let is_shared = shared.disks.len() > 1;
            // Figures that are no limit on their own must not spoil the disk's.
            if is_shared && !shared.throttle.objective().0.contains_key("limit") {
                continue;
            }
            own.lower_to(&shared.throttle);
            if is_shared {
                let group = shown(shared.groups[0]);
                remarks.push(Remark {
                    place: disk.place.clone(),
                    what: format!(
                        "in several groups with other disks: the limit of {group} counts for this \
                         disk alone"
                    ),
                });
            }
        }
        own
    }

    /// Returns the VM's objective: the limits of all disks together, and those of the only disk.
    fn objective(&self, remarks: &mut Vec<Remark>) -> Map<String, Value> {
        let mut limits = self.limits.clone();
        let mut place = &self.place;
        if let [disk] = self.disks.as_slice() {
            // Without other disks there is no limit group.
            let mut own = self.own_limits(0, None, remarks);
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
        index: usize,
        name: &str,
        limit_groups: &[LimitGroup],
        taken: &mut Taken,
        remarks: &mut Vec<Remark>,
    ) -> DiskText {
        let disk = &self.disks[index];
        let mut remark = |what: String| {
            remarks.push(Remark {
                place: disk.place.clone(),
                what,
            });
        };
        let several = self.disks.len() > 1;
        let export = several.then(|| taken.names.take(&format!("{name}-{}", disk.label)));
        let mut text = disk.text(export);
        if let Some(path) = &disk.path
            && Path::new(path).is_relative()
        {
            remark(format!(
                "{} is relative to the directory in which QEMU was started: write the whole path",
                shown(path)
            ));
        }
        if disk.path.is_some() && !taken.paths.insert(disk.raw_path()) {
            text.is_comment = true;
            remark("has the file of an earlier disk, and a file is served once".to_owned());
        }
        if let Some(format) = &disk.format {
            remark(format!(
                "a {format} image: convert it to raw, as its comment says"
            ));
        }
        let group = limit_groups.iter().find(|it| it.disks.contains(&index));
        if several {
            let own = self.own_limits(index, group, remarks);
            let own = limit(&own, &disk.place, remarks);
            text.keys.extend(own.map(|own| ("limit", own)));
        }
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
