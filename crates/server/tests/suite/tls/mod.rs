//! TLS of NBD clients: transport, certificates, what a client sees, hostile peers; and of the
//! control API.

mod authority;
mod bridge;
mod certificates;
mod control;
mod floods;
mod hostile;
mod privacy;
mod records;
mod takeover;
mod transport;
mod withdrawn;

use std::path::Path;

pub(crate) use authority::Authority;
use authority::{VALID, write};
pub(crate) use bridge::TlsClient;
use tidegate_server::config::{Config, DeviceKind, ListenAddress, ListenConfig, TlsConfig};

use crate::common::single;

/// Files of a listener whose certificate is for `server.example`.
pub(crate) fn tls(dir: &Path, authority: &Authority) -> TlsConfig {
    let server = authority.issue(&["server.example"], VALID);
    TlsConfig {
        certificate: write(dir, "server.pem", &server.certificate),
        private_key: write(dir, "server.key", &server.key),
        client_ca: None,
        client_crl: None,
        plain_exports: Vec::new(),
        clients: Vec::new(),
        place: None,
    }
}

/// Configuration with a disk in memory, whose second listener has TLS.
fn with_tls(dir: &Path, size: u64, tls: TlsConfig) -> Config {
    let mut config = single(dir, DeviceKind::Memory, None, size);
    config.listeners.push(ListenConfig {
        address: ListenAddress::Tcp(([127, 0, 0, 1], 0).into()),
        tls: Some(tls),
        ..config.listeners[0].clone()
    });
    config
}
