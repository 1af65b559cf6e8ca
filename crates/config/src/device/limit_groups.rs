//! Limits of single disks, and `[[device.limit_group]]`: limits that several disks of a device
//! share.

use tidegate_core::objective::Limit;

use crate::field::Field;
use crate::keys::{KeyDefault, KeyInfo, KeyKind, SectionInfo};
use crate::names::Names;
use crate::objective::limit;
use crate::section::Section;

/// Limits that disks share.
pub const LIMIT_GROUPS: KeyInfo = KeyInfo::new(
    "limit_group",
    KeyKind::Tables(&LIMIT_GROUP),
    KeyDefault::Unset("none"),
    "limits that several disks share, of one VM or of several \
     ([configuration-limits.md](configuration-limits.md))",
);
/// Name of a limit that disks share.
const NAME: KeyInfo = KeyInfo::new(
    "name",
    KeyKind::Name,
    KeyDefault::Required("a name of its own: name = \"logs\""),
    "unique on the device; disks name it as their `limit_group`",
);
/// Limit that disks share.
const LIMIT: KeyInfo = KeyInfo::new(
    "limit",
    limit::VALUE,
    KeyDefault::Required("the rate of all its disks together: limit = \"40 MB/s\""),
    "maximum rate of all disks of the group together: a rate, or a table with the keys of \
     `[vm.objective.limit]`",
);

/// `[[device.limit_group]]`
pub const LIMIT_GROUP: SectionInfo = SectionInfo {
    name: "device.limit_group",
    keys: &[NAME, LIMIT],
};

/// Limit of a disk, beside that of its VM.
pub const DISK_LIMIT: KeyInfo = KeyInfo::new(
    "limit",
    limit::VALUE,
    KeyDefault::Unset("none"),
    "maximum rate of this disk, beside its VM's limit: a rate, or a table with the keys of \
     `[vm.objective.limit]` ([configuration-limits.md](configuration-limits.md))",
);
/// Limit that a disk shares with others.
pub const DISK_LIMIT_GROUP: KeyInfo = KeyInfo::new(
    "limit_group",
    KeyKind::Name,
    KeyDefault::Unset("none"),
    "limit that it shares with other disks: the name of a \
     [`[[device.limit_group]]`](configuration-limits.md#devicelimit_group) of its device",
);

/// Limit that several disks of a device share.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LimitGroup {
    /// Name, unique on the device.
    pub name: String,
    /// Limit of all its disks together.
    pub limit: Limit,
}

/// Reads the limits that disks of a device share; their names are added to `known`, also of those
/// with errors. `None` if there was an error, which has been reported.
pub fn read(section: &mut Section<'_>, known: &mut Vec<String>) -> Option<Vec<LimitGroup>> {
    let mut names = Names::default();
    let tables = section.take_tables(LIMIT_GROUPS.name);
    let read = tables.iter().map(|field| {
        let field = field.labelled("limit_group");
        let mut section = Section::with_keys(&field, &LIMIT_GROUP)?;
        let name = section.unique_name(&NAME, "limit group", &mut names);
        known.extend(name.clone());
        let limit = section.field(&LIMIT);
        let limit = limit.and_then(|field| limit::alone(&field));
        section.finish();
        Some(LimitGroup {
            name: name?,
            limit: limit?,
        })
    });
    let read: Vec<_> = read.collect();
    read.into_iter().collect()
}

/// Reads the limits of a disk: its own, and the name of that which it shares with others, out of
/// `groups`. `None` if there was an error, which has been reported.
pub fn of_disk(section: &mut Section<'_>, groups: &[String]) -> Option<(Limit, Option<String>)> {
    let own = section.value(&DISK_LIMIT, Limit::NONE, limit::alone);
    let Some(field) = section.field(&DISK_LIMIT_GROUP) else {
        return Some((own?, None));
    };
    let group = shared(&field, groups);
    Some((own?, Some(group?)))
}

fn shared(field: &Field<'_>, groups: &[String]) -> Option<String> {
    if groups.is_empty() {
        field.error(
            "its device has no limits that disks share",
            "add to the device: [[device.limit_group]] with a name and a limit",
        );
        return None;
    }
    let names = groups.iter().map(String::as_str);
    Some(field.reference("limit group", names)?.to_owned())
}
