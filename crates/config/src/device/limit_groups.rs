//! Limits of single disks, and `[[device.limit_group]]`: limits that several disks of a device
//! share.

use serde_json::Value;
use tidegate_core::objective::Limit;

use crate::diagnostic::ConfigErrors;
use crate::document;
use crate::field::Field;
use crate::keys::{KeyDefault, KeyInfo, KeyKind, SectionInfo};
use crate::names::Names;
use crate::objective::{is_none, limit};
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
    "unique on the device, not `none`; disks name it as their `limit_group`",
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
        if let Some(field) = section.take(NAME.name).filter(is_none) {
            let what = "\"none\" means no group where disks are changed";
            field.error(what, "another name: name = \"logs\"");
        }
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
/// `groups`; `"none"` is no group, as where disks are changed. `None` if there was an error, which
/// has been reported.
pub fn of_disk(section: &mut Section<'_>, groups: &[String]) -> Option<(Limit, Option<String>)> {
    let own = section.value(&DISK_LIMIT, Limit::NONE, limit::alone);
    let group = section.field(&DISK_LIMIT_GROUP);
    let Some(field) = group.filter(|field| !is_none(field)) else {
        return Some((own?, None));
    };
    let group = shared(&field, groups);
    Some((own?, Some(group?)))
}

/// Merges a change of a disk's limits into those in force, its own and the name of the one that it
/// shares: `null` and `"none"` remove one, what is absent stays.
///
/// # Errors
/// All mistakes in the JSON.
pub fn merge(
    change: &Value,
    (own, group): (&Limit, Option<&str>),
    groups: &[String],
) -> Result<(Limit, Option<String>), ConfigErrors> {
    document::read_json(change, "", |field| {
        let mut section = Section::open(field)?;
        let own = section.value(&DISK_LIMIT, *own, |field| limit::merged(field, own));
        let group = match section.field(&DISK_LIMIT_GROUP) {
            None => Some(group.map(str::to_owned)),
            Some(field) if is_none(&field) => Some(None),
            Some(field) => shared(&field, groups).map(Some),
        };
        section.finish();
        Some((own?, group?))
    })
}

/// Merges a change of a group's limit, such as `{"limit": "40 MB/s"}`, into the one in force.
///
/// # Errors
/// All mistakes in the JSON.
pub fn merge_group(change: &Value, was: &Limit) -> Result<Limit, ConfigErrors> {
    document::read_json(change, "", |field| {
        let mut section = Section::open(field)?;
        let field = section.need(LIMIT.name, "the rate of all its disks: limit = \"40 MB/s\"");
        let limit = field.and_then(|field| limit::merged(&field, was));
        section.finish();
        limit
    })
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

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tidegate_core::objective::Rate;

    use super::*;

    fn iops(total: u64, write: u64) -> Limit {
        Limit {
            total: Rate::iops(total),
            write: Rate::iops(write),
            ..Limit::NONE
        }
    }

    #[test]
    fn a_change_is_merged_into_the_limits_in_force() {
        let (was, groups) = (iops(500, 100), ["logs".to_owned()]);
        let merged = |change: Value| merge(&change, (&was, Some("logs")), &groups);
        let logs = || Some("logs".to_owned());
        for (change, limits) in [
            (json!({}), (was, logs())),
            (
                json!({ "limit": { "write": "50 IOPS" } }),
                (iops(500, 50), logs()),
            ),
            (json!({ "limit": "none" }), (Limit::NONE, logs())),
            (
                json!({ "limit": null, "limit_group": null }),
                (Limit::NONE, None),
            ),
            (json!({ "limit_group": "none" }), (was, None)),
            (json!({ "limit_group": "logs" }), (was, logs())),
        ] {
            let found = merged(change.clone());
            assert_eq!(found.unwrap_or_else(|e| panic!("{change}: {e}")), limits);
        }
        for (change, why) in [
            (json!({ "limit_group": "log" }), "did you mean \"logs\"?"),
            (json!({ "limits": null }), "did you mean `limit`?"),
            (json!({ "limit": { "write": "600 IOPS" } }), "600 IOPS"),
        ] {
            let error = merged(change).expect_err("refused").to_string();
            assert!(error.contains(why), "{error}");
        }
        let none = merge(&json!({ "limit_group": "logs" }), (&was, None), &[]);
        assert!(none.expect_err("refused").to_string().contains("no limits"));
    }

    #[test]
    fn no_group_has_the_name_that_means_no_group() {
        let read = |name: &str| {
            let text = format!("[[limit_group]]\nname = {name:?}\nlimit = \"9 IOPS\"\n");
            let found = document::read(&text, "f.toml", |root| {
                let mut section = Section::open(root)?;
                read(&mut section, &mut Vec::new())
            });
            found.map(|loaded| loaded.config.len())
        };
        assert_eq!(read("logs").expect("right"), 1);
        for name in ["none", "None"] {
            let error = read(name).expect_err("refused").to_string();
            assert!(error.contains("means no group"), "{error}");
        }
    }

    #[test]
    fn a_disk_may_say_that_it_has_no_group() {
        let read = |group: &str| {
            let text = format!("limit_group = {group:?}\n");
            let found = document::read(&text, "f.toml", |root| {
                of_disk(&mut Section::open(root)?, &["logs".to_owned()])
            });
            found.map(|loaded| loaded.config.1)
        };
        assert_eq!(read("logs").expect("right"), Some("logs".to_owned()));
        assert_eq!(read("none").expect("right"), None);
        assert!(read("log").is_err());
    }

    #[test]
    fn a_groups_limit_is_merged_too() {
        let merged = |change: Value| merge_group(&change, &iops(500, 100));
        let written = merged(json!({ "limit": { "write": "50 IOPS" } }));
        assert_eq!(written.expect("right"), iops(500, 50));
        assert_eq!(
            merged(json!({ "limit": null })).expect("right"),
            Limit::NONE
        );
        let error = merged(json!({})).expect_err("refused").to_string();
        assert!(error.contains("limit"), "{error}");
    }
}
