//! Keys of `[[device]]`.

use tidegate_config::device::keys as shared;
use tidegate_config::keys::{KeyDefault, KeyInfo, KeyKind, SectionInfo, joined, words};
use tidegate_config::objective::limit;

/// Media of a device's disks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// Files or block devices.
    File,
    /// Bytes in memory.
    Memory,
    /// Bytes in memory or a file, as slow as a model says.
    Emulated,
}

/// Words of `kind`.
pub(in crate::config) const KINDS: [(&str, Kind); 3] = [
    ("file", Kind::File),
    ("memory", Kind::Memory),
    ("emulated", Kind::Emulated),
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
    KeyDefault::Required("kind = \"file\", \"memory\" or \"emulated\""),
    "`\"file\"`: files or block devices; `\"memory\"`: bytes in memory, no delay; `\"emulated\"`: \
     bytes in memory or a file, as slow as a device model says",
);

/// Model of an emulated device.
pub(in crate::config) const MODEL: KeyInfo = KeyInfo::new(
    "model",
    KeyKind::Path,
    KeyDefault::Unset(""),
    "of an emulated device: a name of the catalogue ([devices.md](devices.md)) or the path of a \
     `.toml` file",
);

/// Limits that disks share.
pub(in crate::config) const LIMIT_GROUPS: KeyInfo = KeyInfo::new(
    "limit_group",
    KeyKind::Tables(&LIMIT_GROUP),
    KeyDefault::Unset("none"),
    "limits that several disks share, of one VM or of several \
     ([configuration-limits.md](configuration-limits.md))",
);

/// Name of a limit that disks share.
pub(in crate::config) const GROUP_NAME: KeyInfo = KeyInfo::new(
    "name",
    KeyKind::Name,
    KeyDefault::Required("a name of its own: name = \"logs\""),
    "unique on the device; disks name it as their `limit_group`",
);
/// Limit that disks share.
pub(in crate::config) const GROUP_LIMIT: KeyInfo = KeyInfo::new(
    "limit",
    limit::VALUE,
    KeyDefault::Required("the rate of all its disks together: limit = \"40 MB/s\""),
    "maximum rate of all disks of the group together: a rate, or a table with the keys of \
     `[vm.objective.limit]`",
);

/// `[[device.limit_group]]`
pub(in crate::config) const LIMIT_GROUP: SectionInfo = SectionInfo {
    name: "device.limit_group",
    keys: &[GROUP_NAME, GROUP_LIMIT],
};

/// Keys of a served device alone, before those that a simulated one has as well.
const OWN: [KeyInfo; 4] = [NAME, KIND, MODEL, LIMIT_GROUPS];

/// `[[device]]`
pub(in crate::config) const DEVICE: SectionInfo = SectionInfo {
    name: "device",
    keys: &joined::<{ OWN.len() + shared::SCHEDULING }>(
        &OWN,
        &shared::scheduling(shared::POLICY.help),
    ),
};
