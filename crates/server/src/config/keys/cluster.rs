//! Keys of `[cluster]`.

use tidegate_config::keys::{KeyDefault, KeyInfo, KeyKind, SectionInfo};

use super::SECOND_NS;

/// Name of the host.
pub(in crate::config) const HOST: KeyInfo = KeyInfo::new(
    "host",
    KeyKind::Name,
    KeyDefault::Required("the name of this host in the cluster: host = \"a\""),
    "name of this host; another daemon with the name waits until this one has gone",
);

/// Members of etcd.
pub(in crate::config) const ETCD: KeyInfo = KeyInfo::new(
    "etcd",
    KeyKind::List(&KeyKind::Text),
    KeyDefault::Required("the members of etcd: etcd = [\"https://10.0.0.1:2379\"]"),
    "URLs of etcd's members; the first that answers is asked",
);

/// Beginning of all keys.
pub(in crate::config) const PREFIX: KeyInfo = KeyInfo::new(
    "prefix",
    KeyKind::Text,
    KeyDefault::Text("/tidegate/"),
    "beginning of all keys; a cluster has one of its own",
);

/// User of etcd.
pub(in crate::config) const USER: KeyInfo = KeyInfo::new(
    "user",
    KeyKind::Text,
    KeyDefault::Unset("none"),
    "user of etcd, with `password_file`. Without TLS for members on this machine only",
);

/// Password of the user.
pub(in crate::config) const PASSWORD_FILE: KeyInfo = KeyInfo::new(
    "password_file",
    KeyKind::Path,
    KeyDefault::Unset("none"),
    "file whose first line is the user's password",
);

/// Authority of the members.
pub(in crate::config) const CA: KeyInfo = KeyInfo::new(
    "ca",
    KeyKind::Path,
    KeyDefault::Unset("none"),
    "PEM file with the authority of the members' certificates; required for `https`",
);

/// Certificate of the daemon.
pub(in crate::config) const CERTIFICATE: KeyInfo = KeyInfo::new(
    "certificate",
    KeyKind::Path,
    KeyDefault::Unset("none"),
    "PEM file with the daemon's certificate, where etcd asks for one",
);

/// Private key of the certificate.
pub(in crate::config) const PRIVATE_KEY: KeyInfo = KeyInfo::new(
    "private_key",
    KeyKind::Path,
    KeyDefault::Unset("none"),
    "PEM file with the private key of `certificate`",
);

/// Time of the lease.
pub(in crate::config) const LEASE: KeyInfo = KeyInfo::number(
    "lease",
    KeyKind::Duration,
    10 * SECOND_NS,
    (2 * SECOND_NS, 600 * SECOND_NS),
    "time after which the host is lost if etcd does not hear of it, rounded up to seconds",
);

/// `[cluster]`
pub(in crate::config) const CLUSTER: SectionInfo = SectionInfo {
    name: "cluster",
    keys: &[
        HOST,
        ETCD,
        PREFIX,
        USER,
        PASSWORD_FILE,
        CA,
        CERTIFICATE,
        PRIVATE_KEY,
        LEASE,
    ],
};
