//! Keys of `[[device]]`.

use tidegate_config::device::keys as shared;
use tidegate_config::device::limit_groups::LIMIT_GROUPS;
use tidegate_config::keys::{KeyDefault, KeyInfo, KeyKind, SectionInfo, joined, words};

use super::exchange::ARRAY;

/// Media of a device's disks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// Files or block devices.
    File,
    /// Bytes in memory.
    Memory,
    /// Bytes in memory or a file, as slow as a model says.
    Emulated,
    /// Exports of NBD servers.
    Nbd,
}

/// Words of `kind`.
pub(in crate::config) const KINDS: [(&str, Kind); 4] = [
    ("file", Kind::File),
    ("memory", Kind::Memory),
    ("emulated", Kind::Emulated),
    ("nbd", Kind::Nbd),
];

/// Name of a device.
pub(in crate::config) const NAME: KeyInfo = KeyInfo::new(
    "name",
    KeyKind::Name,
    KeyDefault::Required("a name of its own: name = \"disk0\""),
    "unique; letters, digits, `-`, `_`, `.`; at most 64",
);

/// Media of a device's disks.
pub(in crate::config) const KIND: KeyInfo = KeyInfo::new(
    "kind",
    KeyKind::Choice(&words(&KINDS)),
    KeyDefault::Required("kind = \"file\", \"memory\", \"emulated\" or \"nbd\""),
    "`\"file\"`: files or block devices; `\"memory\"`: bytes in memory, no delay; `\"emulated\"`: \
     bytes in memory or a file, as slow as a device model says; `\"nbd\"`: exports of NBD servers \
     ([remote-disks.md](remote-disks.md))",
);

/// Model of an emulated device.
pub(in crate::config) const MODEL: KeyInfo = KeyInfo::new(
    "model",
    KeyKind::Path,
    KeyDefault::Unset(""),
    "of an emulated device: a name of the catalogue ([devices.md](devices.md)) or the path of a \
     `.toml` file",
);

/// Keys of a served device alone, before those that a simulated one has as well.
const OWN: [KeyInfo; 5] = [NAME, KIND, MODEL, ARRAY, LIMIT_GROUPS];

/// `[[device]]`
pub(in crate::config) const DEVICE: SectionInfo = SectionInfo {
    name: "device",
    keys: &joined::<{ OWN.len() + shared::SCHEDULING }>(
        &OWN,
        &shared::scheduling(shared::POLICY.help),
    ),
};
