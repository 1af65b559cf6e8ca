//! Exports that a client may open, by the subject alternative names of its certificate.

use rustls::pki_types::CertificateDer;
use webpki::EndEntityCert;

use crate::config::{ClientName, TlsConfig};

/// Exports that a client may open; all others are unknown to it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Access {
    /// Every export of the listener.
    All,
    /// Some of them.
    Some {
        /// VMs all of whose disks the client has.
        vms: Vec<String>,
        /// Further exports.
        exports: Vec<String>,
    },
}

impl Access {
    /// Returns what everybody may open without TLS.
    pub(super) fn plain(plain_exports: &[String]) -> Access {
        Access::Some {
            vms: Vec::new(),
            exports: plain_exports.to_vec(),
        }
    }

    /// Returns what a client may open over TLS. The certificate was verified.
    pub(super) fn of_client(
        config: &TlsConfig,
        certificate: Option<&CertificateDer<'_>>,
    ) -> Access {
        if config.clients.is_empty() {
            return Access::All;
        }
        let names = certificate.map(names).unwrap_or_default();
        let has = |name: &ClientName| names.contains(name);
        let (mut vms, mut exports) = (Vec::new(), config.plain_exports.clone());
        for client in config
            .clients
            .iter()
            .filter(|client| client.names.iter().any(has))
        {
            vms.extend(client.vms.iter().cloned());
            exports.extend(client.exports.iter().cloned());
        }
        Access::Some { vms, exports }
    }

    /// Returns true if the client may open this disk of this VM.
    pub(crate) fn allows(&self, vm: &str, export: &str) -> bool {
        match self {
            Access::All => true,
            Access::Some { vms, exports } => {
                vms.iter().any(|name| name == vm) || exports.iter().any(|name| name == export)
            }
        }
    }
}

/// Returns the DNS names and the URIs of a certificate. The subject's common name is none of them.
fn names(certificate: &CertificateDer<'_>) -> Vec<ClientName> {
    // One that was verified is well-formed; without names a client has nothing.
    let Ok(certificate) = EndEntityCert::try_from(certificate) else {
        return Vec::new();
    };
    // A wildcard compares as the text that it is, so it equals no name of the configuration.
    let dns = certificate
        .valid_dns_names()
        .map(|name| ClientName::Dns(name.to_ascii_lowercase()));
    let uris = certificate
        .valid_uri_names()
        .map(|name| ClientName::Uri(name.to_owned()));
    dns.chain(uris).collect()
}
