//! Keys of `[exchange]`: the hosts that share arrays, and the servers that carry their messages.

use tidegate_config::keys::{KeyDefault, KeyInfo, KeyKind, SectionInfo, TextForm};

const PART: TextForm = TextForm {
    what: "name",
    pattern: "^[a-zA-Z0-9_-]{1,64}$",
};

const SERVER: TextForm = TextForm {
    what: "URL of a NATS server",
    pattern: "^(nats|tls)://[^/@]+$",
};

/// Key with the name of a cluster, an array or a host.
const fn part(name: &'static str, example: &'static str, help: &'static str) -> KeyInfo {
    KeyInfo::new(
        name,
        KeyKind::Form(&PART),
        KeyDefault::Required(example),
        help,
    )
}

/// Key with the path of a file that may be left out.
const fn file(name: &'static str, help: &'static str) -> KeyInfo {
    KeyInfo::new(name, KeyKind::Path, KeyDefault::Unset(""), help)
}

/// Name of the cluster.
pub(in crate::config) const CLUSTER: KeyInfo = part(
    "cluster",
    "a name that all hosts of the cluster have: cluster = \"east\"",
    "name of the cluster, the same on all its hosts: letters, digits, `-` and `_`, at most 64",
);

/// Name of this host.
pub(in crate::config) const HOST: KeyInfo = part(
    "host",
    "a name that no other host of the cluster has: host = \"host-a\"",
    "name of this host, which no other host of the cluster has",
);

/// Servers of NATS.
pub(in crate::config) const NATS: KeyInfo = KeyInfo::new(
    "nats",
    KeyKind::List(&KeyKind::Form(&SERVER)),
    KeyDefault::Required("servers of one NATS cluster: nats = [\"tls://nats-1.example:4222\"]"),
    "servers that carry the messages, `nats://HOST:PORT` or, with TLS, `tls://HOST:PORT`; one \
     after the other is tried",
);

/// Authorities of the servers' certificates.
pub(in crate::config) const CA: KeyInfo = file(
    "ca",
    "PEM file with the authorities of the servers' certificates; required with `tls://`",
);

/// Certificate of this host.
pub(in crate::config) const CERTIFICATE: KeyInfo = file(
    "certificate",
    "PEM file with the certificate chain of this host, where the servers ask for one",
);

/// Private key of this host.
pub(in crate::config) const PRIVATE_KEY: KeyInfo =
    file("private_key", "PEM file with its private key");

/// User at the servers.
pub(in crate::config) const USER: KeyInfo = KeyInfo::new(
    "user",
    KeyKind::Text,
    KeyDefault::Unset(""),
    "user of this host at the servers, with `password_file`",
);

/// File with the user's password.
pub(in crate::config) const PASSWORD_FILE: KeyInfo =
    file("password_file", "file with the password of `user`");

/// File with the seed of an nkey.
pub(in crate::config) const NKEY_FILE: KeyInfo = file(
    "nkey_file",
    "file with the seed of this host's nkey, instead of a user",
);

/// File with a JWT and its nkey.
pub(in crate::config) const CREDENTIALS_FILE: KeyInfo = file(
    "credentials_file",
    "file with the JWT and the nkey of this host, as `nsc` writes it, instead of a user",
);

/// Entitlements of hosts.
pub(in crate::config) const ENTITLEMENTS: KeyInfo = KeyInfo::new(
    "entitlement",
    KeyKind::Tables(&ENTITLEMENT),
    KeyDefault::Required("add an [[exchange.entitlement]] for each host of each array"),
    "the hosts of each array, this one as well, and how much weight each may claim",
);

/// `[exchange]`
pub(in crate::config) const EXCHANGE: SectionInfo = SectionInfo {
    name: "exchange",
    keys: &[
        CLUSTER,
        HOST,
        NATS,
        CA,
        CERTIFICATE,
        PRIVATE_KEY,
        USER,
        PASSWORD_FILE,
        NKEY_FILE,
        CREDENTIALS_FILE,
        ENTITLEMENTS,
    ],
};

/// Array of an entitlement.
pub(in crate::config) const ENTITLED_ARRAY: KeyInfo = part(
    "array",
    "the array: array = \"san-1\"",
    "name of the array, the `array` of devices",
);

/// Host of an entitlement.
pub(in crate::config) const ENTITLED_HOST: KeyInfo =
    part("host", "the host: host = \"host-a\"", "name of the host");

/// Weight of an entitlement.
pub(in crate::config) const WEIGHT_MAX: KeyInfo = KeyInfo {
    name: "weight_max",
    kind: KeyKind::Count,
    default: KeyDefault::Required("the sum of the weights of its VMs at most: weight_max = 400"),
    min: 1,
    max: 1_000_000_000,
    help: "largest sum of the weights of the host's VMs that compete. A report of more is ignored, \
           and a host that is not heard is assumed to use it",
};

/// `[[exchange.entitlement]]`
pub(in crate::config) const ENTITLEMENT: SectionInfo = SectionInfo {
    name: "exchange.entitlement",
    keys: &[ENTITLED_ARRAY, ENTITLED_HOST, WEIGHT_MAX],
};

/// Array of a device.
pub(in crate::config) const ARRAY: KeyInfo = KeyInfo::new(
    "array",
    KeyKind::Form(&PART),
    KeyDefault::Unset(""),
    "[shared storage](exchange.md)",
);
