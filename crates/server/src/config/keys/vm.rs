//! Keys of `[[vm]]` and `[[vm.disk]]`.

use tidegate_config::device::LARGEST_PAYLOAD;
use tidegate_config::device::limit_groups::{DISK_LIMIT, DISK_LIMIT_GROUP};
use tidegate_config::keys::{KeyDefault, KeyInfo, KeyKind, SectionInfo, TextForm, words};
use tidegate_config::schedule;
use tidegate_workload::read::keys::WORKLOAD;

use super::fault::FAULT;
use crate::config::{Create, DiskFormat};
use crate::connections::DEVICE_CONNECTIONS_MAX;

/// Words of `create`.
pub(in crate::config) const CREATES: [(&str, Create); 3] = [
    ("no", Create::No),
    ("sparse", Create::Sparse),
    ("preallocated", Create::Preallocated),
];
/// Words of `format`.
pub(in crate::config) const FORMATS: [(&str, DiskFormat); 1] = [("raw", DiskFormat::Raw)];

/// Name of a VM.
pub(in crate::config) const NAME: KeyInfo = KeyInfo::new(
    "name",
    KeyKind::Name,
    KeyDefault::Required("a name of its own: name = \"oltp\""),
    "unique; letters, digits, `-`, `_`, `.`; at most 64",
);
/// Device of a VM.
pub(in crate::config) const ON_DEVICE: KeyInfo = KeyInfo::new(
    "device",
    KeyKind::Name,
    KeyDefault::Unset("the only one"),
    "device of its disks; required if there are several",
);
/// Mark of a process of the host that is no VM.
pub(in crate::config) const BACKGROUND: KeyInfo = KeyInfo::flag(
    "background",
    false,
    "a process of the host, such as a backup or a scrub, not a VM: it gets what the VMs leave",
);
/// Objective of a VM.
pub(in crate::config) const OBJECTIVE: KeyInfo = KeyInfo::new(
    "objective",
    KeyKind::Table(&schedule::keys::OBJECTIVE),
    KeyDefault::Unset("weight 100 only"),
    "limits, reservation, latency and other objectives (below)",
);
/// Maximum number of NBD connections to a VM. Common clients need fewer than the default: QEMU
/// opens 1 to 16 connections to a disk (`multi-conn`), nbdcopy 4.
pub(in crate::config) const MAX_CONNECTIONS: KeyInfo = KeyInfo::number(
    "max_connections",
    KeyKind::Count,
    64,
    (1, DEVICE_CONNECTIONS_MAX as u64),
    "NBD clients that may be connected at a time, over all its disks; one more is refused \
     ([troubleshoot.md](troubleshoot.md#connection-refused))",
);
/// Disks of a VM.
pub(in crate::config) const DISKS: KeyInfo = KeyInfo::new(
    "disk",
    KeyKind::Tables(&DISK),
    KeyDefault::Required("add a [[vm.disk]] below it"),
    "its disks, at least one (below)",
);
/// Workload of a VM in simulations.
pub(in crate::config) const WORKLOADS: KeyInfo = KeyInfo::new(
    "workload",
    KeyKind::Tables(&WORKLOAD),
    KeyDefault::Unset("a usual load"),
    "requests that its guest issues when `tidegate sim` simulates the file \
     ([simulation.md](simulation.md#a-configuration-of-the-daemon)); checked by `serve`, and \
     without effect there",
);

/// `[[vm]]`. The last key is allowed in files only, not in the API.
pub(in crate::config) const VM: SectionInfo = SectionInfo {
    name: "vm",
    keys: &[
        NAME,
        ON_DEVICE,
        BACKGROUND,
        OBJECTIVE,
        MAX_CONNECTIONS,
        DISKS,
        WORKLOADS,
    ],
};

/// `[[vm]]` in bodies of the API, without workloads.
pub(in crate::config) const VM_OF_API: SectionInfo = SectionInfo {
    name: VM.name,
    keys: VM.keys.split_at(VM.keys.len() - 1).0,
};

/// Longest name of an export in bytes, `NBD_MAX_STRING` of the NBD protocol.
pub(in crate::config) const EXPORT_NAME_MAX: usize = 4096;

/// Name under which a disk is offered.
pub(in crate::config) const EXPORT: KeyInfo = KeyInfo::new(
    "export",
    KeyKind::Form(&TextForm {
        what: "text",
        pattern: "^[^\\u0000-\\u001f\\u007f-\\u009f]{1,4096}$",
    }),
    KeyDefault::Unset("the VM's name"),
    "NBD export name, unique over all VMs",
);
/// Medium of a disk.
pub(in crate::config) const PATH: KeyInfo = KeyInfo::new(
    "path",
    KeyKind::Path,
    KeyDefault::Unset(""),
    "the file or block device; needed on a file device, optional on an emulated one, not on a \
     memory one",
);
/// Export of a server.
pub(in crate::config) const URI: KeyInfo = KeyInfo::new(
    "uri",
    KeyKind::Form(&TextForm {
        what: "text",
        pattern: "^(nbds?|nbd\\+unix)://",
    }),
    KeyDefault::Unset(""),
    "NBD URI of the export that has the bytes: `nbd+unix:///EXPORT?socket=PATH`, \
     `nbds://HOST:PORT/EXPORT` with `tls`, or `nbd://HOST:PORT/EXPORT` in plain text; needed on an \
     nbd device, not on others ([remote-disks.md](remote-disks.md))",
);
/// TLS to a server.
pub(in crate::config) const SERVER_TLS: KeyInfo = KeyInfo::new(
    "tls",
    KeyKind::Table(&DISK_TLS),
    KeyDefault::Unset("no TLS"),
    "TLS to the server of a `uri` that begins with `nbds://` (below)",
);
/// Authorities of a server's certificate.
pub(in crate::config) const SERVER_CA: KeyInfo = KeyInfo::new(
    "ca",
    KeyKind::Path,
    KeyDefault::Required("the server's authority: ca = \"tls/ca.pem\""),
    "PEM file with the authorities that the server's certificate has to come from",
);
/// Certificate that a server sees.
pub(in crate::config) const OWN_CERTIFICATE: KeyInfo = KeyInfo::new(
    "certificate",
    KeyKind::Path,
    KeyDefault::Unset("none is shown"),
    "PEM file with the certificate that the server is shown, and the intermediate ones behind it; \
     needs `private_key`",
);
/// Private key of the certificate that a server sees.
pub(in crate::config) const OWN_PRIVATE_KEY: KeyInfo = KeyInfo::new(
    "private_key",
    KeyKind::Path,
    KeyDefault::Unset(""),
    "PEM file with its private key, not encrypted; keep it at mode 0600",
);
/// Name in a server's certificate.
pub(in crate::config) const SERVER_NAME: KeyInfo = KeyInfo::new(
    "server_name",
    KeyKind::Text,
    KeyDefault::Unset("the host of `uri`"),
    "DNS name or IP address that the server's certificate has to be for",
);

/// `[vm.disk.tls]`
pub(in crate::config) const DISK_TLS: SectionInfo = SectionInfo {
    name: "vm.disk.tls",
    keys: &[SERVER_CA, OWN_CERTIFICATE, OWN_PRIVATE_KEY, SERVER_NAME],
};
/// Room for changes that are not durable. At least the longest request, so that each fits.
pub(in crate::config) const UNFLUSHED: KeyInfo = KeyInfo::number(
    "unflushed",
    KeyKind::Bytes,
    64 << 20,
    (LARGEST_PAYLOAD as u64, 1 << 30),
    "of a disk on an nbd device: memory for written data that the server has not made durable; \
     when it is full, the disk is flushed",
);
/// Connections to a server.
pub(in crate::config) const CONNECTIONS: KeyInfo = KeyInfo::number(
    "connections",
    KeyKind::Count,
    1,
    (1, 16),
    "of a disk on an nbd device: connections to its server, if it has `NBD_FLAG_CAN_MULTI_CONN`",
);
/// Smallest unit of access of clients.
pub(in crate::config) const BLOCK_SIZE: KeyInfo = KeyInfo::number(
    "block_size",
    KeyKind::Bytes,
    512,
    (1, 4096),
    "`\"1 B\"`, `\"512 B\"` or `\"4 KiB\"`: the disk's size is a multiple of it. With `\"4 KiB\"` \
     it is the minimum block size that clients are told, and enforced; else they are told 1 \
     byte",
);
/// Size of a disk, at most 1 EiB: more than file systems hold, and well below the largest file
/// offset.
pub(in crate::config) const SIZE: KeyInfo = KeyInfo::new(
    "size",
    KeyKind::Bytes,
    KeyDefault::Unset("as large as the file or export"),
    "needed where there is neither; in whole blocks. At most that of the export on an nbd device",
)
.within(1, 1 << 60);
/// Creation of a disk's missing file.
pub(in crate::config) const CREATE: KeyInfo = KeyInfo::new(
    "create",
    KeyKind::Choice(&words(&CREATES)),
    KeyDefault::Text("no"),
    "what to do where the file is missing or empty: `\"no\"` is an error, `\"sparse\"` and \
     `\"preallocated\"` give it its `size`, unless a [store](persistence.md) knows that \
     the disk was served before",
);
/// Format of a disk's file.
pub(in crate::config) const FORMAT: KeyInfo = KeyInfo::new(
    "format",
    KeyKind::Choice(&words(&FORMATS)),
    KeyDefault::Unset("probed"),
    "`\"raw\"`: take the bytes as they are, also where they look like another format's image",
);
/// Read-only export of a disk.
pub(in crate::config) const READ_ONLY: KeyInfo = KeyInfo::flag("read_only", false, "refuse writes");
/// Disk of a guest that is to arrive by live migration.
pub(in crate::config) const INCOMING: KeyInfo = KeyInfo::flag(
    "incoming",
    false,
    "wait for a guest that [migrates](vhost-user-migration.md) here: another host may have the \
     file until the guest's queues start, by vhost-user; only then it is locked, read and written",
);
/// Fault rules of a disk.
pub(in crate::config) const FAULTS: KeyInfo = KeyInfo::new(
    "fault",
    KeyKind::Tables(&FAULT),
    KeyDefault::Unset("none"),
    "fault rules, which inject errors and delays (below)",
);

/// `[[vm.disk]]`
pub(in crate::config) const DISK: SectionInfo = SectionInfo {
    name: "vm.disk",
    keys: &[
        EXPORT,
        PATH,
        URI,
        SERVER_TLS,
        CONNECTIONS,
        UNFLUSHED,
        BLOCK_SIZE,
        SIZE,
        CREATE,
        FORMAT,
        READ_ONLY,
        INCOMING,
        DISK_LIMIT,
        DISK_LIMIT_GROUP,
        FAULTS,
    ],
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vm_of_the_api_has_every_key_but_its_loads() {
        let (last, others) = VM.keys.split_last().expect("it has keys");
        assert_eq!(last.name, WORKLOADS.name);
        assert_eq!(VM_OF_API.keys, others);
    }
}
