//! Reader of a VM's disk, `[[vm.disk]]`.

use super::super::{DiskPart, keys};
use tidegate_config::device::limit_groups;
use tidegate_config::node::Value;
use tidegate_config::{Field, Section};

/// Disk as far as it could be read.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(super) struct Disk {
    /// Size in bytes; `None` if it was wrong or missing, which has been reported.
    pub(super) size: Option<u64>,
    /// First byte on the device; `Some(None)` places it behind the previous VM's disk, `None`
    /// stands for a mistake that has been reported.
    pub(super) at: Option<Option<u64>>,
    /// Limits of the disk: one part, or none without limits; `None` stands for a mistake that has
    /// been reported.
    pub(super) parts: Option<Vec<DiskPart>>,
}

/// Reads the disk of the table `key` (`vm`): one `[[vm.disk]]`, or the old spelling with the
/// figures `disk` and `disk_at`. `groups`: names of the limits that disks of its device share.
/// Returns `None`, after reporting it, if there is none or several.
pub(super) fn read(section: &mut Section<'_>, key: &str, groups: &[String]) -> Option<Disk> {
    let moved = format!("`at` in [[{key}.disk]]");
    // Taken in any case, so that it is not an unknown key beside the new spelling.
    let old_at = section.take_old("disk_at", &moved);
    let is_figure = |field: &Field<'_>| {
        let value = &field.node().value;
        !matches!(value, Value::List(_) | Value::Table(_))
    };
    if let Some(field) = section.find("disk").filter(is_figure) {
        section.take("disk");
        field.note_old_spelling(&format!("[[{key}.disk]] with `size`"));
        return Some(Disk {
            size: field.number(&keys::SIZE),
            at: old_at.map_or(Some(None), |field| read_first_byte(&field)),
            parts: Some(Vec::new()),
        });
    }
    if let Some(field) = old_at {
        let what = format!("the old spelling of {moved}, beside which it has no meaning");
        field.error(
            what,
            &format!("at = {} in [[{key}.disk]]", field.describe()),
        );
    }
    let tables = section.take_tables("disk");
    match tables.as_slice() {
        [] => {
            let add = format!("add a [[{key}.disk]] below it, with size = \"20 GiB\"");
            section.error("it has no disk", &add);
            None
        }
        [field] => read_table(field, groups),
        [_, second, ..] => {
            second.error("a simulated VM has one disk", "leave out all but one");
            None
        }
    }
}

fn read_table(field: &Field<'_>, groups: &[String]) -> Option<Disk> {
    let mut section = Section::with_keys(field, &keys::DISK)?;
    let size = section.number(&keys::SIZE);
    let at = section.value(&keys::AT, None, read_first_byte);
    let limits = limit_groups::of_disk(&mut section, groups);
    section.finish();
    let parts = limits.map(|(limit, group)| {
        let is_limited = !limit.is_none() || group.is_some();
        let part = is_limited.then_some(DiskPart {
            start: 0,
            limit,
            group,
        });
        part.into_iter().collect()
    });
    Some(Disk { size, at, parts })
}

/// Reads the first byte of a disk on its device.
fn read_first_byte(field: &Field<'_>) -> Option<Option<u64>> {
    field.number(&keys::AT).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_config::document;
    use tidegate_core::objective::{Limit, Rate};

    fn disk(text: &str) -> Result<(Disk, usize), String> {
        let loaded = document::read(text, "s.toml", |root| {
            let mut section = Section::open(root)?;
            let disk = read(&mut section, "vm", &["logs".to_owned()]);
            section.finish();
            disk
        });
        (loaded.map(|loaded| (loaded.config, loaded.notes.len())))
            .map_err(|refused| refused.to_string())
    }

    #[test]
    fn a_table_and_its_old_spelling_are_the_same_disk() {
        let whole = Disk {
            size: Some(1 << 30),
            at: Some(Some(2 << 30)),
            parts: Some(Vec::new()),
        };
        let table = "[[disk]]\nsize = \"1 GiB\"\nat = \"2 GiB\"\n";
        assert_eq!(disk(table), Ok((whole.clone(), 0)));
        let old = "disk = \"1 GiB\"\ndisk_at = \"2 GiB\"\n";
        assert_eq!(disk(old), Ok((whole.clone(), 2)));
        let anywhere = Disk {
            at: Some(None),
            ..whole
        };
        let plain = "disk = [{ size = \"1 GiB\" }]";
        assert_eq!(disk(plain), Ok((anywhere.clone(), 0)));
        let limited = "[[disk]]\nsize = \"1 GiB\"\nlimit = \"5 MB/s\"\nlimit_group = \"logs\"\n";
        let part = DiskPart {
            start: 0,
            limit: Limit::of_all(Rate::bytes(5_000_000)),
            group: Some("logs".to_owned()),
        };
        let disk_with_limits = Disk {
            parts: Some(vec![part]),
            ..anywhere
        };
        assert_eq!(disk(limited), Ok((disk_with_limits, 0)));
    }

    #[test]
    fn what_is_no_one_disk_is_refused() {
        for (text, why) in [
            ("", "it has no disk"),
            ("disk = []", "it has no disk"),
            ("disk = 3", "is a bare number"),
            ("disk = [{ at = \"1 GiB\" }]", "`size` is missing"),
            (
                "disk = [{ size = \"1 GiB\", limit_group = \"log\" }]",
                "did you mean \"logs\"?",
            ),
            (
                "disk = [{ size = \"1 GiB\", att = 1 }]",
                "did you mean `at`?",
            ),
            (
                "disk = [{ size = \"1 GiB\" }, { size = \"1 GiB\" }]",
                "one disk",
            ),
            (
                "disk_at = \"1 GiB\"\n[[disk]]\nsize = \"1 GiB\"",
                "beside which",
            ),
        ] {
            let said = disk(text).unwrap_err();
            assert!(said.contains(why), "{text}: {said}");
        }
    }
}
