//! Keys of `[listen.tls]`, `[[listen.tls.client]]`, `[control.listen.tls]` and `[metrics.tls]`.

use tidegate_config::keys::{KeyDefault, KeyInfo, KeyKind, SectionInfo};

/// Certificate of a listener.
pub(in crate::config) const CERTIFICATE: KeyInfo = KeyInfo::new(
    "certificate",
    KeyKind::Path,
    KeyDefault::Required("the listener's own: certificate = \"tls/server.pem\""),
    "PEM file with the listener's certificate, and the intermediate ones behind it",
);
/// Private key of a listener.
pub(in crate::config) const PRIVATE_KEY: KeyInfo = KeyInfo::new(
    "private_key",
    KeyKind::Path,
    KeyDefault::Required("that of the certificate: private_key = \"tls/server.key\""),
    "PEM file with its private key, not encrypted; keep it at mode 0600",
);
/// Authorities of clients' certificates.
pub(in crate::config) const CLIENT_CA: KeyInfo = KeyInfo::new(
    "client_ca",
    KeyKind::Path,
    KeyDefault::Unset("clients need no certificate"),
    "PEM file with the authorities that clients' certificates have to come from",
);
/// Revoked certificates of clients.
pub(in crate::config) const CLIENT_CRL: KeyInfo = KeyInfo::new(
    "client_crl",
    KeyKind::Path,
    KeyDefault::Unset("nothing is revoked"),
    "PEM file with the revocation lists of every authority in a client's chain; needs `client_ca`",
);
/// Exports that are served without TLS as well.
pub(in crate::config) const PLAIN_EXPORTS: KeyInfo = KeyInfo::new(
    "plain_exports",
    KeyKind::List(&KeyKind::Text),
    KeyDefault::Unset("none (FORCEDTLS)"),
    "exports that everybody has, without TLS as well (SELECTIVETLS)",
);
/// Clients of a listener.
pub(in crate::config) const CLIENTS: KeyInfo = KeyInfo::new(
    "client",
    KeyKind::Tables(&CLIENT),
    KeyDefault::Unset("every client has every export"),
    "which exports each client has (below); needs `client_ca`",
);

/// `[control.listen.tls]`
pub(in crate::config) const CONTROL_TLS: SectionInfo = of_http("control.listen.tls");
/// `[metrics.tls]`
pub(in crate::config) const METRICS_TLS: SectionInfo = of_http("metrics.tls");

/// Section with the TLS of a listener that has no exports.
const fn of_http(name: &'static str) -> SectionInfo {
    SectionInfo {
        name,
        keys: &[CERTIFICATE, PRIVATE_KEY, CLIENT_CA, CLIENT_CRL],
    }
}

/// `[listen.tls]`
pub(in crate::config) const TLS: SectionInfo = SectionInfo {
    name: "listen.tls",
    keys: &[
        CERTIFICATE,
        PRIVATE_KEY,
        CLIENT_CA,
        CLIENT_CRL,
        PLAIN_EXPORTS,
        CLIENTS,
    ],
};

/// Names of a client.
pub(in crate::config) const NAMES: KeyInfo = KeyInfo::new(
    "names",
    KeyKind::List(&KeyKind::Text),
    KeyDefault::Required("those of its certificate: names = [\"host-a.example\"]"),
    "DNS names (`\"host-a.example\"`) and URIs (`\"spiffe://example/host-a\"`): the client is \
     whoever has one of them as subject alternative name",
);
/// VMs of a client.
pub(in crate::config) const VMS: KeyInfo = KeyInfo::new(
    "vms",
    KeyKind::List(&KeyKind::Name),
    KeyDefault::Unset("none"),
    "VMs all of whose disks it has, now or once they are added",
);
/// Exports of a client.
pub(in crate::config) const CLIENT_EXPORTS: KeyInfo = KeyInfo::new(
    "exports",
    KeyKind::List(&KeyKind::Text),
    KeyDefault::Unset("none"),
    "further exports that it has",
);

/// `[[listen.tls.client]]`
pub(in crate::config) const CLIENT: SectionInfo = SectionInfo {
    name: "listen.tls.client",
    keys: &[NAMES, VMS, CLIENT_EXPORTS],
};
