//! Tables of the keys of the daemon's configuration, by section.

pub(super) mod device;
pub(super) mod fault;
#[cfg(test)]
mod glossary;
pub(super) mod vm;

use tidegate_config::keys::{KeyDefault, KeyInfo, KeyKind, SectionInfo, TextForm};
#[cfg(test)]
use tidegate_config::schedule;
#[cfg(test)]
use tidegate_workload::read::keys::WORKLOAD;

const SECOND_NS: u64 = 1_000_000_000;

/// Describes a key for a time from 1 s to 1 h, with a default in seconds.
const fn seconds(name: &'static str, default: u64, help: &'static str) -> KeyInfo {
    KeyInfo {
        name,
        kind: KeyKind::Duration,
        default: KeyDefault::Value(default * SECOND_NS),
        min: SECOND_NS,
        max: 3_600 * SECOND_NS,
        help,
    }
}

/// Key `open_timeout`.
pub(super) const OPEN_TIMEOUT: KeyInfo = seconds(
    "open_timeout",
    30,
    "time-out for opening the file of a disk. It applies at start to each disk, and then the \
     start fails; for a VM that is added, to all its disks together, and then it is not added",
);

/// Key `stop_timeout`. The default is below the 90 s after which systemd kills a stopping service.
pub(super) const STOP_TIMEOUT: KeyInfo = seconds(
    "stop_timeout",
    60,
    "time-out for an orderly stop; then the daemon ends at once, as with a second SIGTERM. Keep it \
     below the service manager's time-out (systemd: 90 s)",
);

/// Key `snapshot_interval`. What is learnt in the default of a minute is soon learnt again.
pub(super) const SNAPSHOT_INTERVAL: KeyInfo = seconds(
    "snapshot_interval",
    60,
    "interval at which learnt state of policies is written to the store",
);

/// Key `path` of the store.
pub(super) const STORE_PATH: KeyInfo = KeyInfo::new(
    "path",
    KeyKind::Path,
    KeyDefault::Required("the file for changes that survive a restart: path = \"tidegate.redb\""),
    "path of the file, created if it is missing; its directory must exist",
);

/// Key `socket` of the control API.
pub(super) const SOCKET: KeyInfo = KeyInfo::new(
    "socket",
    KeyKind::Path,
    KeyDefault::Text("/run/tidegate/control.sock"),
    "path of the socket, at most 107 bytes; its directory must exist",
);

/// Describes a key for a socket's file mode, by default for the daemon's own user only.
const fn mode(help: &'static str) -> KeyInfo {
    KeyInfo::number("mode", KeyKind::Mode, 0o600, (0, 0o777), help)
}

/// Key `mode` of the control API's socket.
pub(super) const CONTROL_MODE: KeyInfo = mode(
    "file mode of the socket, in quotes. Who may write to this socket has the daemon's access to \
     files, which is root's if it runs as root: see below",
);

/// Key `unix`.
pub(super) const UNIX: KeyInfo = KeyInfo::new(
    "unix",
    KeyKind::Path,
    KeyDefault::Unset(""),
    "path of a unix socket, at most 107 bytes",
);

const ADDRESS: TextForm = TextForm {
    what: "address and port",
    pattern: "^([0-9.]+|\\[[0-9a-fA-F:.%]+\\]):[0-9]{1,5}$",
};

/// Key `tcp`.
pub(super) const TCP: KeyInfo = KeyInfo::new(
    "tcp",
    KeyKind::Form(&ADDRESS),
    KeyDefault::Unset(""),
    "`\"127.0.0.1:10809\"` or `\"[::1]:10809\"`; names are not looked up",
);

/// Key `mode` of a listener's socket.
pub(super) const LISTEN_MODE: KeyInfo = mode("file mode of the unix socket");

/// Key `exports`.
pub(super) const EXPORTS: KeyInfo = KeyInfo::new(
    "exports",
    KeyKind::List(&KeyKind::Text),
    KeyDefault::Unset("all"),
    "names of the exports offered here, now or once they are added; the first is also offered \
     under the empty name",
);

/// Section `[daemon]`.
pub(super) const DAEMON: SectionInfo = SectionInfo {
    name: "daemon",
    keys: &[OPEN_TIMEOUT, STOP_TIMEOUT],
};

/// Section `[control]`.
pub(super) const CONTROL: SectionInfo = SectionInfo {
    name: "control",
    keys: &[SOCKET, CONTROL_MODE],
};

/// Section `[store]`.
pub(super) const STORE: SectionInfo = SectionInfo {
    name: "store",
    keys: &[STORE_PATH, SNAPSHOT_INTERVAL],
};

/// Section `[[listen]]`.
pub(super) const LISTEN: SectionInfo = SectionInfo {
    name: "listen",
    keys: &[UNIX, TCP, LISTEN_MODE, EXPORTS],
};

/// Describes an optional section of the file.
const fn optional(name: &'static str, kind: KeyKind, help: &'static str) -> KeyInfo {
    KeyInfo::new(name, kind, KeyDefault::Unset(""), help)
}

/// Sections `[[listen]]` of the file.
pub(super) const LISTENERS: KeyInfo = KeyInfo::new(
    "listen",
    KeyKind::Tables(&LISTEN),
    KeyDefault::Required("add a [[listen]] with unix = \"/run/tidegate/nbd.sock\""),
    "where NBD clients connect",
);

/// Sections `[[device]]` of the file.
pub(super) const DEVICES: KeyInfo = KeyInfo::new(
    "device",
    KeyKind::Tables(&device::DEVICE),
    KeyDefault::Required("add a [[device]] with name = \"disk0\" and kind = \"file\""),
    "devices to schedule, each with one event loop and one engine",
);

/// Sections of the whole file.
pub(super) const FILE: SectionInfo = SectionInfo {
    name: "",
    keys: &[
        optional("daemon", KeyKind::Table(&DAEMON), "time-outs of the daemon"),
        optional(
            "control",
            KeyKind::Table(&CONTROL),
            "the socket of the control API",
        ),
        optional(
            "store",
            KeyKind::Table(&STORE),
            "the file for changes that survive a restart",
        ),
        LISTENERS,
        DEVICES,
        optional("vm", KeyKind::Tables(&vm::VM), "VMs that are served"),
    ],
};

/// Returns the sections of the file, without those inside a workload, which scenarios describe.
#[cfg(test)]
pub(super) fn sections() -> Vec<&'static SectionInfo> {
    let of_workloads = WORKLOAD.with_inner();
    let mut sections = FILE.with_inner();
    sections.retain(|section| **section == WORKLOAD || !of_workloads.contains(section));
    sections
}

/// Returns the sections whose tables are in the documentation of the configuration: all of the
/// file's, with the entries of a schedule without the keys that they share with the objective.
#[cfg(test)]
fn documented() -> Vec<&'static SectionInfo> {
    let mut sections = sections();
    sections.retain(|section| !section.name.is_empty() && **section != WORKLOAD);
    for section in &mut sections {
        if section.name == schedule::keys::WHEN.name {
            *section = &schedule::keys::WHEN;
        }
    }
    sections
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::config::DaemonConfig;

    #[test]
    fn a_section_that_is_left_out_is_one_without_keys() {
        let usual = DaemonConfig::default();
        for (key, time) in [
            (OPEN_TIMEOUT, usual.open_within),
            (STOP_TIMEOUT, usual.stop_within),
        ] {
            let default = KeyDefault::Value(time.as_nanos() as u64);
            assert_eq!(key.default, default, "{}", key.name);
        }
    }

    /// Set `TIDEGATE_BLESS=1` to write the tables.
    #[test]
    fn the_documentation_has_the_tables_that_the_reader_reads_by() {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/configuration.md");
        tidegate_testkit::schema::hold_tables(&[Path::new(page)], &documented());
    }
}
