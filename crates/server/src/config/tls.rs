//! TLS of listeners: `[listen.tls]` with the exports that clients have, `[control.listen.tls]`, and
//! `[metrics.tls]`.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use tidegate_config::keys::{KeyInfo, SectionInfo};
use tidegate_config::node::Value;
use tidegate_config::{Field, Names, Place, Section};
use tidegate_core::names::nearest;

use super::context::Context;
use super::export_names;
use super::keys::tls as keys;
use super::listen_address::is_loopback;
use super::{ListenAddress, VmConfig};

/// Section `[listen.tls]`, `[control.listen.tls]` or `[metrics.tls]`. The last two have neither
/// plain exports nor clients.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TlsConfig {
    /// PEM file with the certificate chain of the listener.
    pub certificate: PathBuf,
    /// PEM file with the private key.
    pub private_key: PathBuf,
    /// PEM file with the authorities of clients' certificates; without it clients need none.
    pub client_ca: Option<PathBuf>,
    /// PEM file with revocation lists.
    pub client_crl: Option<PathBuf>,
    /// Names of the exports that are served without TLS as well. If empty, nothing is
    /// (FORCEDTLS); otherwise the listener is in the mode SELECTIVETLS.
    pub plain_exports: Vec<String>,
    /// Clients by their certificates. If empty, each that is admitted has every export.
    pub clients: Vec<TlsClientConfig>,
    /// Place in the file; `None` if no file sets it.
    pub place: Option<Place>,
}

/// Section `[[listen.tls.client]]`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TlsClientConfig {
    /// Subject alternative names, one of which a certificate of the client has.
    pub names: Vec<ClientName>,
    /// VMs all of whose disks the client has.
    pub vms: Vec<String>,
    /// Further exports that the client has.
    pub exports: Vec<String>,
}

/// Subject alternative name of a client. A DNS name never equals a URI with the same text, because
/// name constraints of an authority that is confined to DNS names do not concern URIs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ClientName {
    /// DNS name, in lower case.
    Dns(String),
    /// URI, which compares with its case.
    Uri(String),
}

impl ClientName {
    /// Reads a name of the configuration: a URI has a scheme. `None` if the text is neither.
    pub fn parse(text: &str) -> Option<ClientName> {
        if is_uri(text) {
            return Some(ClientName::Uri(text.to_owned()));
        }
        let is_label = |label: &str| {
            let sound = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_';
            (1..=63).contains(&label.len()) && label.bytes().all(sound)
        };
        let is_dns = text.len() <= 253 && text.split('.').all(is_label);
        // DNS names compare without case.
        is_dns.then(|| ClientName::Dns(text.to_ascii_lowercase()))
    }
}

/// Returns true for a URI of RFC 3986: a scheme, a colon, and visible characters of ASCII.
fn is_uri(text: &str) -> bool {
    let Some((scheme, rest)) = text.split_once(':') else {
        return false;
    };
    let starts = scheme.starts_with(|c: char| c.is_ascii_alphabetic());
    let goes_on = scheme
        .bytes()
        .all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b));
    let visible = !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_graphic());
    starts && goes_on && visible
}

impl TlsConfig {
    /// Iterates over the files that are read for it.
    pub fn files(&self) -> impl Iterator<Item = &Path> {
        let needed = [&self.certificate, &self.private_key];
        let rest = [&self.client_ca, &self.client_crl];
        let all = needed.into_iter().chain(rest.into_iter().flatten());
        all.map(PathBuf::as_path)
    }
}

/// Adds to the address of a listener, for people, that it has TLS.
pub(super) fn describe_tls(address: String, tls: Option<&TlsConfig>) -> String {
    match tls {
        Some(tls) if tls.plain_exports.is_empty() => format!("{address} (TLS)"),
        Some(_) => format!("{address} (TLS, selective)"),
        None => address,
    }
}

/// Disks and VMs that a listener's section may name.
#[derive(Clone, Copy)]
pub(super) struct Known<'a> {
    pub(super) exports: &'a Names,
    pub(super) vms: &'a [&'a VmConfig],
}

/// Reads the TLS of a listener, and warns of a TCP address that is open to others. `offered_here`
/// are the exports that the listener is confined to.
pub(super) fn read(
    section: &mut Section<'_>,
    context: &Context<'_>,
    address: Option<&ListenAddress>,
    offered_here: &[String],
    known: Known<'_>,
) -> Option<Option<TlsConfig>> {
    let field = section.field(&super::keys::LISTEN_TLS);
    let tls = match &field {
        None => Some(None),
        Some(field) => table(field, context, offered_here, known).map(Some),
    };
    if let (Some(ListenAddress::Tcp(address)), Some(place), Some(tls)) =
        (address, section.find(super::keys::TCP.name), &tls)
    {
        warn_of_open_address(&place, *address, tls.as_ref());
    }
    on_tcp_alone(field.as_ref(), address).and(tls)
}

/// Refuses the TLS of a listener that is not on TCP.
fn on_tcp_alone(tls: Option<&Field<'_>>, address: Option<&ListenAddress>) -> Option<()> {
    match (tls, address) {
        // An address with an error has been reported, and may have been one of TCP.
        (None, _) | (_, None | Some(ListenAddress::Tcp(_))) => Some(()),
        (Some(field), Some(_)) => {
            field.error(
                "TLS on a unix socket",
                "leave it out: the socket's file mode, owner and group decide who may connect",
            );
            None
        }
    }
}

/// Reads the TLS of a listener that has no exports: a section `keys` under the key `key`.
pub(super) fn read_of_http(
    section: &mut Section<'_>,
    key: &KeyInfo,
    keys: &'static SectionInfo,
    context: &Context<'_>,
    address: Option<&ListenAddress>,
) -> Option<Option<TlsConfig>> {
    let field = section.field(key);
    let tls = match &field {
        None => Some(None),
        Some(field) => {
            let mut section = Section::with_keys(field, keys)?;
            let tls = files(&mut section, context, field.place());
            section.finish();
            tls.map(Some)
        }
    };
    on_tcp_alone(field.as_ref(), address).and(tls)
}

/// Warns of an address that others than this host reach, if something is served to all of them.
fn warn_of_open_address(field: &Field<'_>, address: SocketAddr, tls: Option<&TlsConfig>) {
    if is_loopback(address) {
        return;
    }
    match tls {
        None => field.warn(
            "whoever reaches this address can read and write every disk",
            "NBD has no passwords: prefer a unix socket or 127.0.0.1, or add [listen.tls]",
        ),
        Some(tls) if tls.client_ca.is_none() => field.warn(
            "whoever reaches this address can read and write every disk: clients need no \
             certificate",
            "add client_ca to [listen.tls], or prefer a unix socket or 127.0.0.1",
        ),
        Some(tls) if !tls.plain_exports.is_empty() => field.warn(
            format!(
                "whoever reaches this address can read and write {:?}",
                tls.plain_exports
            ),
            "leave plain_exports out, or offer them on a unix socket or 127.0.0.1",
        ),
        Some(_) => {}
    }
}

fn table(
    field: &Field<'_>,
    context: &Context<'_>,
    offered_here: &[String],
    known: Known<'_>,
) -> Option<TlsConfig> {
    let mut section = Section::with_keys(field, &keys::TLS)?;
    let files = files(&mut section, context, field.place());
    let plain_exports = section.value(&keys::PLAIN_EXPORTS, Vec::new(), |field| {
        export_names::read_some(field, known.exports, offered_here)
    });
    let fields = section.take_tables(keys::CLIENTS.name);
    let clients: Vec<_> = (fields.iter())
        .map(|field| client(field, offered_here, known))
        .collect();
    // Without a section every client has every export, which a list without one cannot mean.
    if let Some(field) = section.find(keys::CLIENTS.name)
        && matches!(&field.node().value, Value::List(list) if list.is_empty())
    {
        field.error(
            "the list has no client, and without one every certificate has every export",
            "add [[listen.tls.client]] with names and vms, or leave `client` out if every client \
             that is admitted may open every export",
        );
    }
    if !fields.is_empty() {
        needs_client_ca(&section, keys::CLIENTS.name);
    }
    section.finish();
    Some(TlsConfig {
        plain_exports: plain_exports?,
        clients: clients.into_iter().collect::<Option<_>>()?,
        ..files?
    })
}

/// Reads the keys that every kind of listener has.
fn files(
    section: &mut Section<'_>,
    context: &Context<'_>,
    place: Option<Place>,
) -> Option<TlsConfig> {
    let mut path = |key| match section.field(key) {
        Some(field) => context.path(&field).map(Some),
        None => Some(None),
    };
    // A required file that is missing has been reported as an error of the section.
    let (certificate, private_key) = (path(&keys::CERTIFICATE), path(&keys::PRIVATE_KEY));
    let (client_ca, client_crl) = (path(&keys::CLIENT_CA), path(&keys::CLIENT_CRL));
    if section.has(keys::CLIENT_CRL.name) {
        needs_client_ca(section, keys::CLIENT_CRL.name);
    }
    Some(TlsConfig {
        certificate: certificate??,
        private_key: private_key??,
        client_ca: client_ca?,
        client_crl: client_crl?,
        plain_exports: Vec::new(),
        clients: Vec::new(),
        place,
    })
}

/// Reports a key that concerns clients' certificates where clients need none.
fn needs_client_ca(section: &Section<'_>, key: &str) {
    if !section.has(keys::CLIENT_CA.name) {
        section.error(
            format!("{key} is set, and clients need no certificate"),
            "add client_ca, the authorities that their certificates come from",
        );
    }
}

fn client(field: &Field<'_>, offered_here: &[String], known: Known<'_>) -> Option<TlsClientConfig> {
    let mut section = Section::with_keys(field, &keys::CLIENT)?;
    let names = section.field(&keys::NAMES).map(|field| names(&field));
    let vms = section.value(&keys::VMS, Vec::new(), |field| vms(field, known.vms));
    let exports = section.value(&keys::CLIENT_EXPORTS, Vec::new(), |field| {
        export_names::read_some(field, known.exports, offered_here)
    });
    if let (Some([]), Some([])) = (vms.as_deref(), exports.as_deref()) {
        section.error(
            "the client has no export",
            "add vms = [\"oltp\"], or exports with the names of disks",
        );
    }
    section.finish();
    Some(TlsClientConfig {
        names: names??,
        vms: vms?,
        exports: exports?,
    })
}

/// Reads the names of a client.
fn names(field: &Field<'_>) -> Option<Vec<ClientName>> {
    let mut names = Some(Vec::new());
    let fields = field.elements()?;
    if fields.is_empty() {
        field.error("the client has no name", "names = [\"host-a.example\"]");
        return None;
    }
    for field in fields {
        match field.text().map(|text| (text, ClientName::parse(text))) {
            Some((_, Some(name))) => {
                if let Some(names) = &mut names {
                    names.push(name);
                }
            }
            Some((text, None)) => {
                field.error(
                    format!("{text:?} is neither a DNS name nor a URI"),
                    "such as \"host-a.example\", without wildcards, or \"spiffe://example/host-a\"",
                );
                names = None;
            }
            None => names = None,
        }
    }
    names
}

/// Reads names of VMs; those that are not there may be added later.
fn vms(field: &Field<'_>, known: &[&VmConfig]) -> Option<Vec<String>> {
    let mut seen = Names::default();
    let mut vms = Some(Vec::new());
    for field in field.elements()? {
        let Some(name) = field.name() else {
            vms = None;
            continue;
        };
        seen.claim(&name, "VM", &field);
        let all = || known.iter().map(|vm| vm.name.as_str());
        if all().all(|known| known != name) {
            let allowed = match nearest(&name, all()) {
                Some(near) => format!("did you mean {near:?}?"),
                None => "its disks are offered once a VM with this name was added".to_owned(),
            };
            field.warn(format!("there is no VM {name:?}"), &allowed);
        }
        if let Some(vms) = &mut vms {
            vms.push(name);
        }
    }
    vms
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::parse;

    fn read(tcp: &str, tls: &str) -> (Option<TlsConfig>, Vec<String>) {
        let text = format!(
            "[[listen]]\ntcp = \"{tcp}\"\n{tls}\n[[device]]\nname = \"d\"\nkind = \"memory\"\n\
             [[vm]]\nname = \"a\"\n[[vm.disk]]\nsize = \"1 MiB\"\n"
        );
        let mut loaded = parse(&text, "f.toml", Path::new("/etc")).expect("valid");
        let warnings = loaded.warnings.iter().map(|warning| warning.to_string());
        (loaded.config.listeners.remove(0).tls, warnings.collect())
    }

    const FILES: &str = "[listen.tls]\ncertificate = \"s.pem\"\nprivate_key = \"/k/s.key\"\n";

    #[test]
    fn a_section_is_read_whole() {
        let tls = format!(
            "{FILES}client_ca = \"ca.pem\"\nclient_crl = \"crl.pem\"\nplain_exports = [\"a\"]\n\
             [[listen.tls.client]]\nnames = [\"Host-A.Example\", \"spiffe://Example/a\"]\n\
             vms = [\"a\"]\n[[listen.tls.client]]\nnames = [\"b\"]\nexports = [\"a\"]"
        );
        let (tls, warnings) = read("127.0.0.1:1", &tls);
        let tls = tls.expect("a section");
        assert_eq!(warnings, [""; 0]);
        let files: Vec<_> = tls.files().map(|file| file.display().to_string()).collect();
        assert_eq!(
            files,
            ["/etc/s.pem", "/k/s.key", "/etc/ca.pem", "/etc/crl.pem"]
        );
        assert_eq!(tls.plain_exports, ["a"]);
        // Names of DNS have no case, URIs do.
        assert_eq!(
            tls.clients[0].names,
            [
                ClientName::Dns("host-a.example".to_owned()),
                ClientName::Uri("spiffe://Example/a".to_owned()),
            ]
        );
        assert_eq!(
            (&tls.clients[0].vms[..], tls.clients[0].exports.len()),
            (&["a".to_owned()][..], 0)
        );
        assert_eq!(tls.clients[1].exports, ["a"]);
        assert_eq!(read("127.0.0.1:1", "").0, None);
    }

    #[test]
    fn addresses_that_are_open_to_others_are_warned_of() {
        let (with_ca, plain) = (
            format!("{FILES}client_ca = \"ca.pem\""),
            format!("{FILES}client_ca = \"ca.pem\"\nplain_exports = [\"a\"]"),
        );
        for (tls, warning) in [
            ("", Some("or add [listen.tls]")),
            (FILES, Some("clients need no certificate")),
            (&plain, Some("read and write [\"a\"]")),
            (&with_ca, None),
        ] {
            for loopback in ["127.0.0.1:1", "[::1]:1", "[::ffff:127.0.0.1]:1"] {
                assert_eq!(read(loopback, tls).1, [""; 0], "{loopback} {tls}");
            }
            for open in ["0.0.0.0:1", "192.0.2.1:1", "[::]:1"] {
                let warnings = read(open, tls).1;
                assert_eq!(
                    warnings.len(),
                    usize::from(warning.is_some()),
                    "{warnings:?}"
                );
                let has = |text| warnings.iter().all(|warning| warning.contains(text));
                assert!(warning.is_none_or(has), "{warnings:?}");
            }
        }
    }

    /// The directory of the configuration, where disks may be added, mostly has the keys as well.
    #[test]
    fn no_disk_is_added_on_a_file_of_tls() {
        let dir = tempfile::tempdir().expect("a directory");
        let at = |name: &str| dir.path().join(name);
        let text = "[[listen]]\ntcp = \"127.0.0.1:1\"\n[listen.tls]\ncertificate = \"s.pem\"\n\
                    private_key = \"s.key\"\n[[device]]\nname = \"d\"\nkind = \"file\"\n";
        std::fs::write(at("tidegate.toml"), text).expect("written");
        for name in ["s.pem", "s.key", "disk.raw"] {
            std::fs::write(at(name), "").expect("written");
        }
        std::os::unix::fs::symlink("s.key", at("link")).expect("made");
        let config = crate::config::load(&at("tidegate.toml"))
            .expect("valid")
            .config;
        for name in ["s.pem", "s.key", "tidegate.toml", "link"] {
            let checked = config.paths.allowed.check(&at(name));
            checked.expect_err("a file of the daemon");
        }
        config.paths.allowed.check(&at("disk.raw")).expect("a disk");
    }
}
