//! Keys of the daemon's configuration: sections with the kind, default and range of each key.

pub(super) mod cluster;
pub(super) mod device;
pub(super) mod exchange;
pub(super) mod fault;
#[cfg(test)]
mod glossary;
pub(super) mod tls;
pub(super) mod vm;

use tidegate_config::keys::{KeyDefault, KeyInfo, KeyKind, SectionInfo, TextForm};
#[cfg(test)]
use tidegate_config::schedule;
#[cfg(test)]
use tidegate_workload::read::keys::WORKLOAD;

const SECOND_NS: u64 = 1_000_000_000;

/// Key with a duration of 1 s to 1 h, and a default in seconds.
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

/// Deadline for opening a disk's file.
pub(super) const OPEN_TIMEOUT: KeyInfo = seconds(
    "open_timeout",
    30,
    "maximum time for opening the file of a disk. At start it applies to each disk, and the start \
     fails; for a VM that is added it applies to all its disks together, and the VM is not added",
);

/// Deadline for an orderly end, below the 90 s after which systemd kills a stopping service.
pub(super) const STOP_TIMEOUT: KeyInfo = seconds(
    "stop_timeout",
    60,
    "maximum time for an orderly stop; then the daemon stops at once, as after a second SIGTERM. \
     Set it below the limit of the service manager (systemd: 90 s)",
);

/// Confinement of threads that work on bytes of guests and clients.
pub(super) const SANDBOX: KeyInfo = KeyInfo::flag(
    "sandbox",
    true,
    "confine event loops, threads for TLS and vhost-user sessions. With `false`, a guest or \
     client that exploits a bug in one can do what the daemon's user can",
);

/// Takeover by a new daemon.
pub(super) const TAKEOVER: KeyInfo = KeyInfo::flag(
    "takeover",
    true,
    "let a [new daemon take over](upgrade.md) with `serve --takeover`",
);

/// Interval at which learnt state is written to the store. The default loses at most a minute's
/// learning in a crash.
pub(super) const SNAPSHOT_INTERVAL: KeyInfo = seconds(
    "snapshot_interval",
    60,
    "interval at which the learnt state of policies is written to the store",
);

/// The store's file.
pub(super) const STORE_PATH: KeyInfo = KeyInfo::new(
    "path",
    KeyKind::Path,
    KeyDefault::Required("the file for state that survives a restart: path = \"tidegate.redb\""),
    "the file, created if it does not exist; its directory must exist",
);

/// Switch of the history.
pub(super) const HISTORY_ENABLED: KeyInfo = KeyInfo::flag(
    "enabled",
    true,
    "keep the history, at most 64 KiB of memory for each VM that is active",
);

/// Directory of the history's files.
pub(super) const HISTORY_DIRECTORY: KeyInfo = KeyInfo::new(
    "directory",
    KeyKind::Path,
    KeyDefault::Unset("beside the store: `tidegate.history` of `tidegate.redb`"),
    "directory of its files, created if it does not exist; the one that contains it must. Put it \
     on a disk that serves no VM. Without it and without a store the history ends with the daemon",
);

/// Bound of the history's files.
pub(super) const HISTORY_MAX_SIZE: KeyInfo = KeyInfo::number(
    "max_size",
    KeyKind::Bytes,
    256 << 20,
    (16 << 20, 1 << 40),
    "largest size of its files together; with more VMs than fit, the history goes back less far",
);

/// `[history]`
pub(super) const HISTORY: SectionInfo = SectionInfo {
    name: "history",
    keys: &[HISTORY_ENABLED, HISTORY_DIRECTORY, HISTORY_MAX_SIZE],
};

/// Directory of recordings.
pub(super) const RECORDING_DIRECTORY: KeyInfo = KeyInfo::new(
    "directory",
    KeyKind::Path,
    KeyDefault::Unset("`recordings` beside the store"),
    "directory of the files, created when a recording is switched on; best on a disk of its own",
);

/// Bound on the size of recordings.
pub(super) const MAX_SIZE: KeyInfo = KeyInfo::number(
    "max_size",
    KeyKind::Bytes,
    1 << 30,
    (16 << 20, 1 << 50),
    "maximum size of all files; the oldest are removed first",
);

/// Devices that are recorded from the start on.
pub(super) const RECORDED_DEVICES: KeyInfo = KeyInfo::new(
    "devices",
    KeyKind::List(&KeyKind::Text),
    KeyDefault::Unset("none"),
    "names of the devices that are recorded from the start on",
);

/// `[recording]`
pub(super) const RECORDING: SectionInfo = SectionInfo {
    name: "recording",
    keys: &[RECORDING_DIRECTORY, MAX_SIZE, RECORDED_DEVICES],
};

/// Directories of disks that are not named in the file.
pub(super) const ALLOW: KeyInfo = KeyInfo::new(
    "allow",
    KeyKind::List(&KeyKind::Path),
    KeyDefault::Unset("the directory of this file, but not `/` or `/etc`"),
    "directories, files and block devices that disks added by the control API may be on, with \
     symbolic links resolved; disks of this file may be anywhere",
);

/// The control API's socket.
pub(super) const SOCKET: KeyInfo = KeyInfo::new(
    "socket",
    KeyKind::Path,
    KeyDefault::Text("/run/tidegate/control.sock"),
    "its path, at most 107 bytes; its directory must exist",
);

/// Key with the mode of a socket's file; the default admits the daemon's own user alone.
const fn mode(help: &'static str) -> KeyInfo {
    KeyInfo::number("mode", KeyKind::Mode, 0o600, (0, 0o777), help)
}

/// Mode of the control API's socket.
pub(super) const CONTROL_MODE: KeyInfo = mode(
    "its file mode, in quotes. Administrators can read and change every disk, and every file that \
     `[paths]` allows",
);

/// Path on which a listener listens.
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

/// Address on which a listener listens.
pub(super) const TCP: KeyInfo = KeyInfo::new(
    "tcp",
    KeyKind::Form(&ADDRESS),
    KeyDefault::Unset(""),
    "`\"127.0.0.1:10809\"` or `\"[::1]:10809\"`; names are not looked up",
);

/// Path of the vhost-user socket of each disk.
pub(super) const VHOST_USER: KeyInfo = KeyInfo::new(
    "vhost_user",
    KeyKind::Path,
    KeyDefault::Unset(""),
    "each disk's [vhost-user](vhost-user.md) socket, with `{disk}` or `{vm}`",
);

/// Mode of a listener's socket.
pub(super) const LISTEN_MODE: KeyInfo = mode("file mode of the unix socket");

/// Owner of a listener's socket.
pub(super) const LISTEN_OWNER: KeyInfo = KeyInfo::new(
    "owner",
    KeyKind::Text,
    KeyDefault::Unset("the daemon's"),
    "user that owns the unix socket, by name or number",
);

/// Group of a listener's socket.
pub(super) const LISTEN_GROUP: KeyInfo = KeyInfo::new(
    "group",
    KeyKind::Text,
    KeyDefault::Unset("the daemon's"),
    "its group, by name or number",
);

/// Exports that a listener offers.
pub(super) const EXPORTS: KeyInfo = KeyInfo::new(
    "exports",
    KeyKind::List(&KeyKind::Text),
    KeyDefault::Unset("all"),
    "names of the exports offered here, now or once they are added; the first is also offered \
     under the empty name",
);

/// Key with the TLS of a listener.
const fn tls_table(section: &'static SectionInfo, help: &'static str) -> KeyInfo {
    KeyInfo::new(
        "tls",
        KeyKind::Table(section),
        KeyDefault::Unset("no TLS"),
        help,
    )
}

/// TLS of a listener of NBD.
pub(super) const LISTEN_TLS: KeyInfo = tls_table(&tls::TLS, "[TLS](tls.md) on a TCP address");

/// TLS of a listener of the control API.
pub(super) const CONTROL_TLS: KeyInfo = tls_table(
    &tls::CONTROL_TLS,
    "[TLS](tls-control.md) on a TCP address; required beyond loopback",
);

/// TLS of a listener of metrics.
pub(super) const METRICS_TLS: KeyInfo =
    tls_table(&tls::METRICS_TLS, "[TLS](tls-control.md) on a TCP address");

/// `[daemon]`
pub(super) const DAEMON: SectionInfo = SectionInfo {
    name: "daemon",
    keys: &[OPEN_TIMEOUT, STOP_TIMEOUT, SANDBOX, TAKEOVER],
};

/// `[paths]`
pub(super) const PATHS: SectionInfo = SectionInfo {
    name: "paths",
    keys: &[ALLOW],
};

/// Names of the roles of the control API.
const ROLES: &[&str] = &["read", "operate", "admin"];

/// Role of the clients of the control API's own socket.
pub(super) const CONTROL_ROLE: KeyInfo = KeyInfo::new(
    "role",
    KeyKind::Choice(ROLES),
    KeyDefault::Unset("`\"admin\"`; none where accounts are listed"),
    "[role](#roles) of every process that can connect",
);

/// Role of the clients of another socket of the control API.
pub(super) const LISTEN_ROLE: KeyInfo = KeyInfo::new(
    "role",
    KeyKind::Choice(ROLES),
    KeyDefault::Unset("none"),
    "[role](#roles) of every process that can connect",
);

/// Key with the accounts that have a role.
const fn accounts(name: &'static str, help: &'static str) -> KeyInfo {
    let kind = KeyKind::List(&KeyKind::Form(&ACCOUNT));
    KeyInfo::new(name, kind, KeyDefault::Unset("none"), help)
}

const ACCOUNT: TextForm = TextForm {
    what: "user or group",
    pattern: "^(user|group):[^:]+$",
};

/// Accounts that may read.
pub(super) const READ: KeyInfo = accounts(
    "read",
    "users and groups with the role `read`: `[\"user:alice\", \"group:107\"]`",
);

/// Accounts that may operate.
pub(super) const OPERATE: KeyInfo = accounts("operate", "those with the role `operate`");

/// Accounts that are administrators.
pub(super) const ADMIN: KeyInfo = accounts("admin", "those with the role `admin`");

/// Role of root and of the daemon's user.
pub(super) const ROOT_ROLE: KeyInfo = KeyInfo::new(
    "root_role",
    KeyKind::Choice(ROLES),
    KeyDefault::Text("admin"),
    "role of root and of the daemon's own user",
);

/// Further listeners of the control API.
pub(super) const CONTROL_LISTENERS: KeyInfo = KeyInfo::new(
    "listen",
    KeyKind::Tables(&CONTROL_LISTEN),
    KeyDefault::Unset(""),
    "further sockets and addresses",
);

/// `[control]`
pub(super) const CONTROL: SectionInfo = SectionInfo {
    name: "control",
    keys: &[
        SOCKET,
        CONTROL_MODE,
        LISTEN_OWNER,
        LISTEN_GROUP,
        CONTROL_ROLE,
        READ,
        OPERATE,
        ADMIN,
        ROOT_ROLE,
        CONTROL_LISTENERS,
    ],
};

/// `[[control.listen]]`
pub(super) const CONTROL_LISTEN: SectionInfo = SectionInfo {
    name: "control.listen",
    keys: &[
        UNIX,
        TCP,
        LISTEN_MODE,
        LISTEN_OWNER,
        LISTEN_GROUP,
        LISTEN_ROLE,
        READ,
        OPERATE,
        ADMIN,
        ROOT_ROLE,
        CONTROL_TLS,
    ],
};

/// `[store]`
pub(super) const STORE: SectionInfo = SectionInfo {
    name: "store",
    keys: &[STORE_PATH, SNAPSHOT_INTERVAL],
};

/// `[[listen]]`
pub(super) const LISTEN: SectionInfo = SectionInfo {
    name: "listen",
    keys: &[
        UNIX,
        TCP,
        VHOST_USER,
        LISTEN_MODE,
        LISTEN_OWNER,
        LISTEN_GROUP,
        EXPORTS,
        LISTEN_TLS,
    ],
};

/// `[[metrics]]`
pub(super) const METRICS: SectionInfo = SectionInfo {
    name: "metrics",
    keys: &[
        UNIX,
        TCP,
        LISTEN_MODE,
        LISTEN_OWNER,
        LISTEN_GROUP,
        METRICS_TLS,
    ],
};

/// Section of the file that may be left out.
const fn optional(name: &'static str, kind: KeyKind, help: &'static str) -> KeyInfo {
    KeyInfo::new(name, kind, KeyDefault::Unset(""), help)
}

const HOST_NAME: TextForm = TextForm {
    what: "name of a host",
    pattern: "^[a-zA-Z0-9][a-zA-Z0-9.-]*$",
};

/// Names of a listener of the dashboard.
pub(super) const HOST_NAMES: KeyInfo = KeyInfo::new(
    "host_names",
    KeyKind::List(&KeyKind::Form(&HOST_NAME)),
    KeyDefault::Unset("none"),
    "names under which browsers reach the page beside `localhost` and addresses of loopback, such \
     as that of a proxy in front: `[\"storage.example\"]`",
);

/// `[[dashboard]]`
pub(super) const DASHBOARD: SectionInfo = SectionInfo {
    name: "dashboard",
    keys: &[TCP, HOST_NAMES],
};

/// Listeners of the dashboard.
pub(super) const DASHBOARDS: KeyInfo = optional(
    "dashboard",
    KeyKind::Tables(&DASHBOARD),
    "listeners that serve a page for browsers, with what each VM is promised and gets",
);

/// Listeners of the file.
pub(super) const LISTENERS: KeyInfo = KeyInfo::new(
    "listen",
    KeyKind::Tables(&LISTEN),
    KeyDefault::Required("add a [[listen]] with unix = \"/run/tidegate/nbd.sock\""),
    "where NBD clients and front-ends of vhost-user connect",
);

/// Devices of the file.
pub(super) const DEVICES: KeyInfo = KeyInfo::new(
    "device",
    KeyKind::Tables(&device::DEVICE),
    KeyDefault::Required("add a [[device]] with name = \"disk0\" and kind = \"file\""),
    "devices, with one event loop and one engine each",
);

/// File as a whole.
pub(super) const FILE: SectionInfo = SectionInfo {
    name: "",
    keys: &[
        optional(
            "daemon",
            KeyKind::Table(&DAEMON),
            "deadlines of the daemon and its sandbox",
        ),
        optional(
            "control",
            KeyKind::Table(&CONTROL),
            "listeners of the control API, and the roles that they give",
        ),
        optional(
            "paths",
            KeyKind::Table(&PATHS),
            "where disks that are added later may be",
        ),
        optional(
            "store",
            KeyKind::Table(&STORE),
            "the file for state that survives a restart",
        ),
        optional(
            "history",
            KeyKind::Table(&HISTORY),
            "what each VM did and where its time went, by the second",
        ),
        optional(
            "recording",
            KeyKind::Table(&RECORDING),
            "where recordings of requests are written",
        ),
        optional(
            "cluster",
            KeyKind::Table(&cluster::CLUSTER),
            "the cluster in etcd that the daemon joins",
        ),
        optional(
            "exchange",
            KeyKind::Table(&exchange::EXCHANGE),
            "hosts that share [arrays](exchange.md), and the servers that carry their messages",
        ),
        optional(
            METRICS.name,
            KeyKind::Tables(&METRICS),
            "listeners that serve metrics and health alone",
        ),
        DASHBOARDS,
        LISTENERS,
        DEVICES,
        optional("vm", KeyKind::Tables(&vm::VM), "VMs that are served"),
    ],
};

/// Returns all sections of the file; of those within a workload only the outermost, because the
/// rest belongs to scenarios.
#[cfg(test)]
pub(super) fn sections() -> Vec<&'static SectionInfo> {
    let of_workloads = WORKLOAD.with_inner();
    let mut sections = FILE.with_inner();
    sections.retain(|section| **section == WORKLOAD || !of_workloads.contains(section));
    sections
}

/// Returns the sections that the documentation of the configuration has a table for: all of the
/// file's; entries of a schedule without the keys that they share with the objective.
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
        assert_eq!(SANDBOX.default, KeyDefault::Flag(usual.sandbox));
        assert_eq!(TAKEOVER.default, KeyDefault::Flag(usual.takeover));
    }

    /// Compares the tables in the documentation with the keys; `TIDEGATE_BLESS=1` writes them anew.
    #[test]
    fn the_documentation_has_the_tables_that_the_reader_reads_by() {
        let docs = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs"));
        let pages = ["", "-access", "-exchange", "-vm", "-objective", "-limits"]
            .map(|part| format!("configuration{part}.md"));
        let others = [
            "cluster-members",
            "dashboard",
            "history",
            "recording",
            "tls",
            "tls-control",
        ];
        let others = others.map(|page| format!("{page}.md"));
        let pages = [&pages[..], &others[..]].concat();
        let pages: Vec<_> = pages.iter().map(|page| docs.join(page)).collect();
        let pages: Vec<&Path> = pages.iter().map(|page| page.as_path()).collect();
        tidegate_testkit::schema::assert_doc_tables_are_current(&pages, &documented());
    }
}
