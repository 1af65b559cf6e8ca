//! Disks of a VM with limits, and the commands that raise them, for advice.

use tidegate_config::objective::limit;
use tidegate_core::objective::{Burst, Limit, Objective, OpsRate, Rate};

use crate::config::{DiskConfig, LimitGroup};

/// Disks of a VM that have limits, their own or shared ones.
pub(super) struct LimitedDisks<'a> {
    disks: Vec<&'a DiskConfig>,
    /// Groups whose limits they share, without those that have none now.
    groups: Vec<&'a LimitGroup>,
}

impl<'a> LimitedDisks<'a> {
    /// Finds them among the disks of a VM. `groups`: limits that disks of the device share, as they
    /// are now.
    pub(super) fn new(disks: &'a [DiskConfig], groups: &'a [LimitGroup]) -> LimitedDisks<'a> {
        let shares = |disk: &DiskConfig, group: &LimitGroup| {
            disk.limit_group.as_ref() == Some(&group.name) && !group.limit.is_none()
        };
        let is_limited = |disk: &&DiskConfig| {
            !disk.limit.is_none() || groups.iter().any(|group| shares(disk, group))
        };
        let has_disks = |group: &&LimitGroup| disks.iter().any(|disk| shares(disk, group));
        LimitedDisks {
            disks: disks.iter().filter(is_limited).collect(),
            groups: groups.iter().filter(has_disks).collect(),
        }
    }

    /// Returns the export names of the disks.
    pub(super) fn exports(&self) -> Vec<String> {
        self.disks.iter().map(|disk| disk.export.clone()).collect()
    }

    /// Returns the commands that double the limits, of the disks first. `device`: its name.
    pub(super) fn commands(&self, device: &str) -> Vec<String> {
        let of_disk = |disk: &&DiskConfig| {
            let set = || command("tidegate disk set", &[&disk.export], &disk.limit);
            (!disk.limit.is_none()).then(set)
        };
        let of_group = |group: &&LimitGroup| {
            let names = [device, &group.name];
            command("tidegate device limit", &names, &group.limit)
        };
        let disks = self.disks.iter().filter_map(of_disk);
        disks.chain(self.groups.iter().map(of_group)).collect()
    }
}

/// Returns a command that doubles a limit. `names`: its arguments, which a shell takes as they are.
fn command(name: &str, names: &[&str], limit: &Limit) -> String {
    let (options, names_text) = (limit::options(&doubled(limit)), names.join(" "));
    // A name may begin as an option does.
    match names.iter().any(|name| name.starts_with('-')) {
        true => format!("{name} {options} -- {names_text}"),
        false => format!("{name} {names_text} {options}"),
    }
}

/// Returns a limit that is twice as high, with its burst; none, where that is beyond every rate.
fn doubled(limit: &Limit) -> Limit {
    let twice = |rate: Rate| Rate {
        ops: rate.ops.map(|ops| OpsRate {
            per_s: ops.per_s.saturating_mul(2),
            ..ops
        }),
        bytes_per_s: rate.bytes_per_s.map(|rate| rate.saturating_mul(2)),
    };
    let limit = Limit {
        total: twice(limit.total),
        read: twice(limit.read),
        write: twice(limit.write),
        burst: limit.burst.map(|burst| Burst {
            total: twice(burst.total),
            read: twice(burst.read),
            write: twice(burst.write),
            length: burst.length,
        }),
    };
    let objective = Objective {
        limit,
        ..Objective::default()
    };
    match objective.validate() {
        Ok(()) => limit,
        Err(_) => Limit::NONE,
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    /// Limits of the disks of a VM whose last disk has this export name and limit.
    fn limited(export: &str, limit: &str, group: Limit) -> (Vec<String>, Vec<String>) {
        let text = format!(
            "[[listen]]\nunix = \"s\"\n[[device]]\nname = \"d\"\nkind = \"memory\"\n\
             [[device.limit_group]]\nname = \"logs\"\nlimit = \"9 MB/s\"\n\
             [[device.limit_group]]\nname = \"others\"\nlimit = \"9 MB/s\"\n[[vm]]\n\
             name = \"vm\"\n[[vm.disk]]\nexport = \"free\"\nsize = \"1 MiB\"\n[[vm.disk]]\n\
             export = \"log\"\nsize = \"1 MiB\"\nlimit_group = \"logs\"\n[[vm.disk]]\n\
             export = \"{export}\"\nsize = \"1 MiB\"\nlimit = {limit}\n"
        );
        let loaded = crate::config::parse(&text, "t", Path::new("/"));
        let mut config = loaded.unwrap_or_else(|e| panic!("{e}")).config;
        config.devices[0].limit_groups[0].limit = group;
        let limited = LimitedDisks::new(&config.vms[0].disks, &config.devices[0].limit_groups);
        (limited.exports(), limited.commands("d"))
    }

    #[test]
    fn limits_that_are_in_force_are_doubled_by_the_commands() {
        let group = Limit::of_all(Rate::bytes(9_000_000));
        let own = "{ read = \"5 IOPS\", burst = { read = \"7 IOPS\" } }";
        let (exports, commands) = limited("own", own, group);
        assert_eq!(exports, ["log", "own"]);
        let of_group = "tidegate device limit d logs --limit \"18 MB/s\"";
        assert_eq!(
            commands,
            [
                "tidegate disk set own --limit-read \"10 IOPS\" --burst-read \"14 IOPS\" \
                 --burst-length \"1 s\"",
                of_group
            ]
        );
        // The limit of the group is lifted; a name begins as an option does.
        let (exports, commands) = limited("-own", "\"2 IOPS\"", Limit::NONE);
        assert_eq!(exports, ["-own"]);
        assert_eq!(commands, ["tidegate disk set --limit \"4 IOPS\" -- -own"]);
    }

    #[test]
    fn a_limit_that_cannot_be_doubled_is_lifted() {
        let own = format!("\"{} IOPS\"", Rate::MAX);
        let (_, commands) = limited("own", &own, Limit::NONE);
        assert_eq!(commands, ["tidegate disk set own --limit \"none\""]);
    }
}
