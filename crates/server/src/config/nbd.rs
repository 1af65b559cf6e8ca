//! Export of an NBD server that has the bytes of a disk: `uri`, `tls`, `connections` and
//! `unflushed` of `[[vm.disk]]`.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::pki_types::ServerName;
use tidegate_config::{Field, Place, Section};
use tidegate_nbd::client::{Address, NbdUri};

use super::device::Kind;
use super::keys::vm as keys;
use super::{DaemonConfig, DiskConfig, ListenAddress, ListenConfig, VmConfig, context};
use crate::allowed_paths::NotAllowed;

/// Export of an NBD server.
#[derive(Clone, Debug)]
pub struct NbdConfig {
    /// Server and export.
    pub uri: NbdUri,
    /// TLS to the server; `None` in plain text and on a unix socket.
    pub tls: Option<NbdTlsConfig>,
    /// Most connections to the server, 1 to 16.
    pub connections: u32,
    /// Bytes of acknowledged writes that are kept until they are durable, 32 MiB to 1 GiB.
    pub unflushed: u64,
    /// Listeners of this daemon, which must not be the server.
    pub own_listeners: Arc<[ListenAddress]>,
}

/// Section `[vm.disk.tls]`: TLS to the server of a disk.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NbdTlsConfig {
    /// PEM file with the authorities of the server's certificate.
    pub ca: PathBuf,
    /// PEM files with the certificate that the server is shown, and with its private key.
    pub own: Option<(PathBuf, PathBuf)>,
    /// Name that the server's certificate has to be for, if it is not the host of the URI.
    pub server_name: Option<String>,
    /// The threads that encrypt and decrypt are confined; `sandbox` of `[daemon]`.
    pub is_confined: bool,
    /// Place in the file; `None` if no file sets it.
    pub place: Option<Place>,
}

impl NbdTlsConfig {
    /// Iterates over the files that are read for it.
    pub fn files(&self) -> impl Iterator<Item = &Path> {
        let own = self.own.iter().flat_map(|(chain, key)| [chain, key]);
        [&self.ca].into_iter().chain(own).map(PathBuf::as_path)
    }

    /// Path of the private key.
    pub fn private_key(&self) -> Option<&Path> {
        self.own.as_ref().map(|(_, key)| key.as_path())
    }
}

impl NbdConfig {
    /// Returns the path of the server's unix socket; `None` over TCP.
    pub fn socket(&self) -> Option<&Path> {
        match &self.uri.address {
            Address::Unix(path) => Some(Path::new(path)),
            Address::Tcp { .. } => None,
        }
    }

    /// Checks the server's socket, and the files of TLS, against the directories that the disk is
    /// confined to.
    ///
    /// # Errors
    /// The first path that leads out of them.
    pub fn check_paths(&self, disk: &DiskConfig) -> Result<(), (PathBuf, NotAllowed)> {
        let files = self.tls.iter().flat_map(NbdTlsConfig::files);
        for path in self.socket().into_iter().chain(files) {
            let checked = disk.check_path(path);
            checked.map_err(|refusal| (path.to_owned(), refusal))?;
        }
        Ok(())
    }

    /// Returns the listener that the URI names, as far as that can be told without connecting.
    fn own_listener(&self, listeners: &[ListenAddress]) -> Option<String> {
        // A socket that is not there yet is known by its directory and its name.
        let in_directory = |path: &Path| {
            let directory = std::fs::canonicalize(path.parent()?).ok()?;
            Some(directory.join(path.file_name()?))
        };
        let at = |path: &Path| {
            let found = std::fs::canonicalize(path).ok();
            let found = found.or_else(|| in_directory(path));
            found.or_else(|| std::path::absolute(path).ok())
        };
        listeners
            .iter()
            .find_map(|listen| match (listen, &self.uri.address) {
                (ListenAddress::Unix { path, .. }, Address::Unix(server)) => {
                    let is_same = at(path)? == at(Path::new(server))?;
                    is_same.then(|| path.display().to_string())
                }
                (ListenAddress::Tcp(address), Address::Tcp { host, port }) => {
                    let own = address.ip().to_canonical();
                    let reaches = |named: IpAddr| {
                        own == named
                            || (own.is_unspecified() && named.is_loopback())
                            || named.is_unspecified()
                    };
                    let reaches = match host.as_str() {
                        "localhost" => own.is_loopback() || own.is_unspecified(),
                        host => reaches(host.parse::<IpAddr>().ok()?.to_canonical()),
                    };
                    (*port == address.port() && reaches).then(|| address.to_string())
                }
                _ => None,
            })
    }
}

/// Reads the export of a disk on a device of this kind; `Some(None)` on others. `None` if there was
/// an error, which has been reported.
pub(super) fn read(
    section: &mut Section<'_>,
    kind: Option<Kind>,
    base: &Path,
) -> Option<Option<NbdConfig>> {
    let (uri, unflushed) = (section.field(&keys::URI), section.field(&keys::UNFLUSHED));
    let tls = section.field(&keys::SERVER_TLS);
    let connections = section.field(&keys::CONNECTIONS);
    if kind != Some(Kind::Nbd) {
        // Not reported for an unknown kind, which has its own error.
        let other = uri.iter().chain(&unflushed).chain(&tls);
        let other = other.chain(&connections).filter(|_| kind.is_some());
        let wrong = other.map(|field| {
            let what = "only disks of a device of kind \"nbd\" have it";
            field.error(what, "leave it out, or kind = \"nbd\" for the device");
        });
        return (wrong.count() == 0).then_some(None);
    }
    let unflushed = match unflushed {
        Some(field) => field.number(&keys::UNFLUSHED),
        None => Some(keys::UNFLUSHED.default_number()),
    };
    let connections = match connections {
        Some(field) => field.number(&keys::CONNECTIONS),
        None => Some(keys::CONNECTIONS.default_number()),
    };
    let Some(field) = uri else {
        let example = "the server's export: uri = \"nbd+unix:///disk?socket=/run/disk.sock\"";
        section.error("`uri` is missing", example);
        return None;
    };
    let uri = read_uri(&field);
    let tls = match &tls {
        Some(field) => read_tls(field, base).map(Some),
        None => Some(None),
    };
    let (uri, tls) = (uri?, tls?);
    check_tls(&field, &uri, tls.as_ref())?;
    Some(Some(NbdConfig {
        uri,
        tls,
        connections: u32::try_from(connections?).ok()?,
        unflushed: unflushed?,
        own_listeners: Arc::default(),
    }))
}

/// Reads the URI of an export; `None` if there was an error, which has been reported.
fn read_uri(field: &Field<'_>) -> Option<NbdUri> {
    match NbdUri::parse(field.text()?) {
        Ok(NbdUri {
            address: Address::Unix(path),
            ..
        }) if !Path::new(&path).is_absolute() => {
            let what = format!("the path of the server's socket, {path:?}, is not absolute");
            field.error(what, "such as \"nbd+unix:///EXPORT?socket=/run/disk.sock\"");
            None
        }
        Ok(uri) => Some(uri),
        Err(error) => {
            field.error(
                format!("{} is no URI of an NBD export: {error}", field.describe()),
                "such as \"nbd+unix:///EXPORT?socket=/run/disk.sock\" or \
                 \"nbds://storage.example:10809/EXPORT\"",
            );
            None
        }
    }
}

/// Reads the section of TLS; `None` if there was an error, which has been reported.
fn read_tls(field: &Field<'_>, base: &Path) -> Option<NbdTlsConfig> {
    let mut section = Section::with_keys(field, &keys::DISK_TLS)?;
    let mut path = |key| match section.field(key) {
        Some(field) => context::path(base, &field).map(Some),
        None => Some(None),
    };
    // A required file that is missing has been reported as an error of the section.
    let ca = path(&keys::SERVER_CA);
    let (certificate, key) = (path(&keys::OWN_CERTIFICATE), path(&keys::OWN_PRIVATE_KEY));
    let server_name = section.value(&keys::SERVER_NAME, None, |field| {
        let name = field.text()?;
        if ServerName::try_from(name).is_err() {
            let what = format!("{} is no name of a server", field.describe());
            field.error(
                what,
                "a DNS name or an IP address, such as \"storage.example\"",
            );
            return None;
        }
        Some(Some(name.to_owned()))
    });
    let own = match (certificate?, key?) {
        (Some(certificate), Some(key)) => Some(Some((certificate, key))),
        (None, None) => Some(None),
        (Some(_), None) => {
            section.error(
                "`certificate` is set, and `private_key` is not",
                "both, or neither for a server that asks for no certificate",
            );
            None
        }
        (None, Some(_)) => {
            section.error(
                "`private_key` is set, and `certificate` is not",
                "both, or neither for a server that asks for no certificate",
            );
            None
        }
    };
    section.finish();
    Some(NbdTlsConfig {
        ca: ca??,
        own: own?,
        server_name: server_name?,
        is_confined: true,
        place: field.place(),
    })
}

/// Refuses TLS without its section, a section without TLS, and a host that no certificate can be
/// for.
fn check_tls(field: &Field<'_>, uri: &NbdUri, tls: Option<&NbdTlsConfig>) -> Option<()> {
    let host = match &uri.address {
        Address::Tcp { host, .. } => host.as_str(),
        Address::Unix(_) => "",
    };
    let (what, allowed) = match tls {
        None if uri.tls => (
            "`tls` is missing: nbds:// needs the authority of the server's certificate",
            "tls = { ca = \"tls/ca.pem\" }",
        ),
        Some(_) if !uri.tls => (
            "`tls` is set, and the URI is one without TLS",
            "nbds://HOST:PORT/EXPORT, or leave `tls` out",
        ),
        Some(tls) if tls.server_name.is_none() && ServerName::try_from(host).is_err() => (
            "no certificate can be for the host of this URI",
            "server_name = \"storage.example\" in `tls`, the name in the server's certificate",
        ),
        _ => return Some(()),
    };
    field.error(what, allowed);
    None
}

/// Tells the disks on servers of the daemon's listeners and its `sandbox`, and reports those whose
/// server is a listener. Returns the addresses of the listeners, and `sandbox`.
pub(super) fn set_daemon(
    fields: &[Field<'_>],
    vms: &mut [Option<VmConfig>],
    listeners: &[Option<ListenConfig>],
    daemon: &Option<DaemonConfig>,
) -> (Arc<[ListenAddress]>, bool) {
    let sandbox = daemon.as_ref().is_none_or(|daemon| daemon.sandbox);
    let listeners: Arc<[_]> = (listeners.iter().flatten())
        .map(|listen| listen.address.clone())
        .collect();
    for (vm, field) in vms.iter_mut().zip(fields) {
        // Only where there is one: looking into other tables would report their errors twice.
        let on_servers = |vm: &&mut VmConfig| vm.disks.iter().any(|disk| disk.nbd.is_some());
        let Some(vm) = vm.as_mut().filter(on_servers) else {
            continue;
        };
        let tables = field.find(keys::DISKS.name);
        let tables = tables.and_then(|list| list.elements()).unwrap_or_default();
        for (at, disk) in vm.disks.iter_mut().enumerate() {
            let Some(nbd) = &mut disk.nbd else { continue };
            nbd.own_listeners = listeners.clone();
            if let Some(tls) = &mut nbd.tls {
                tls.is_confined = sandbox;
            }
            if let Some(own) = nbd.own_listener(&listeners)
                && let Some(uri) = tables.get(at).and_then(|table| table.find(keys::URI.name))
            {
                uri.error(
                    format!("its server is this daemon, which listens on {own}"),
                    "the socket or address of another server, which has the bytes",
                );
            }
        }
    }
    (listeners, sandbox)
}

/// Writes the keys of an export that [`read`] reads.
pub(super) fn write(nbd: &NbdConfig, words: &mut serde_json::Value) {
    words["uri"] = nbd.uri.to_string().into();
    if let Some(tls) = &nbd.tls {
        let path = |path: &Path| path.display().to_string();
        words["tls"] = serde_json::json!({ "ca": path(&tls.ca) });
        if let Some((certificate, key)) = &tls.own {
            words["tls"]["certificate"] = path(certificate).into();
            words["tls"]["private_key"] = path(key).into();
        }
        if let Some(name) = &tls.server_name {
            words["tls"]["server_name"] = name.as_str().into();
        }
    }
    if u64::from(nbd.connections) != keys::CONNECTIONS.default_number() {
        words["connections"] = nbd.connections.into();
    }
    if nbd.unflushed != keys::UNFLUSHED.default_number() {
        // Exactly: a rounded one may be out of range.
        words["unflushed"] = format!("{} B", nbd.unflushed).into();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{DeviceKind, PathsConfig, parse, vm};

    fn text(listen: &str, disk: &str) -> String {
        format!(
            "[[listen]]\n{listen}\n[[device]]\nname = \"d\"\nkind = \"nbd\"\n\
             [[vm]]\nname = \"a\"\n[[vm.disk]]\n{disk}\n"
        )
    }

    fn refusal(listen: &str, disk: &str) -> String {
        let read = parse(&text(listen, disk), "t", Path::new("/srv"));
        read.expect_err("refused").to_string()
    }

    #[test]
    fn a_disk_on_a_server_is_read_and_written_as_it_was() {
        let disk = "uri = \"nbd://example.com/a%20b\"\nunflushed = \"128 MiB\"\n\
                    connections = 4\nsize = \"1 GiB\"";
        let text = text("unix = \"s\"", disk);
        let config = parse(&text, "t", Path::new("/srv")).expect("good").config;
        assert!(matches!(config.devices[0].kind, DeviceKind::Nbd));
        let nbd = config.vms[0].disks[0].nbd.as_ref().expect("an export");
        assert_eq!(nbd.uri.to_string(), "nbd://example.com:10809/a%20b");
        assert_eq!((nbd.unflushed, nbd.own_listeners.len()), (128 << 20, 1));
        assert_eq!(nbd.connections, 4);
        let words = vm::to_json(&config.vms[0], "d");
        let paths = PathsConfig::of_directory(Path::new("/srv"));
        let again = vm::from_json(&words, &config.devices, &paths).expect("good");
        assert_eq!(vm::to_json(&again, "d"), words);
    }

    #[test]
    fn the_tls_of_a_disk_is_read_and_written_as_it_was() {
        let disk = "uri = \"nbds://10.0.0.1/x\"\n[vm.disk.tls]\nca = \"ca.pem\"\n\
                    certificate = \"c.pem\"\nprivate_key = \"/k\"\nserver_name = \"s.example\"";
        for sandbox in [true, false] {
            let text = format!(
                "[daemon]\nsandbox = {sandbox}\n{}",
                text("unix = \"s\"", disk)
            );
            let config = parse(&text, "t", Path::new("/srv")).expect("good").config;
            let nbd = config.vms[0].disks[0].nbd.as_ref().expect("an export");
            let tls = nbd.tls.as_ref().expect("with TLS");
            let files: Vec<_> = tls.files().map(|it| it.display().to_string()).collect();
            assert_eq!(files, ["/srv/ca.pem", "/srv/c.pem", "/k"]);
            assert_eq!(tls.server_name.as_deref(), Some("s.example"));
            assert_eq!(tls.is_confined, sandbox);
            let words = vm::to_json(&config.vms[0], "d");
            let again = vm::from_json(&words, &config.devices, &config.paths).expect("good");
            assert_eq!(vm::to_json(&again, "d"), words);
            let nbd = again.disks[0].nbd.as_ref().expect("an export");
            let tls = nbd.tls.as_ref().expect("with TLS");
            assert_eq!(tls.is_confined, sandbox, "of the API as well");
        }
    }

    #[test]
    fn keys_of_other_kinds_and_bad_uris_are_refused() {
        for (disk, expected) in [
            ("", "`uri` is missing"),
            ("uri = \"nbd+unix:///?socket=x\"", "is not absolute"),
            ("uri = \"nbds://a/\"", "`tls` is missing"),
            ("uri = \"nbds://a/\"\ntls = {}", "`ca` is missing"),
            (
                "uri = \"nbd://a/\"\ntls = { ca = \"c\" }",
                "the URI is one without TLS",
            ),
            (
                "uri = \"nbds://a/\"\ntls = { ca = \"c\", certificate = \"d\" }",
                "`private_key` is not",
            ),
            (
                "uri = \"nbds://a/\"\ntls = { ca = \"c\", private_key = \"d\" }",
                "`certificate` is not",
            ),
            (
                "uri = \"nbds://a/\"\ntls = { ca = \"c\", server_name = \"a b\" }",
                "no name of a server",
            ),
            (
                "uri = \"nbds://[fe80::1%25eth0]/\"\ntls = { ca = \"c\" }",
                "no certificate can be for the host",
            ),
            ("uri = \"nbd://a/\"\npath = \"x\"", "have no path"),
            (
                "uri = \"nbd://a/\"\ncreate = \"sparse\"\nsize = \"1 MiB\"",
                "no file to create",
            ),
            (
                "uri = \"nbd://a/\"\nincoming = true",
                "cannot come from another host",
            ),
            ("uri = \"nbd://a/\"\nunflushed = \"1 MiB\"", "32 MiB"),
            ("uri = \"nbd://a/\"\nconnections = 0", "1 to 16"),
        ] {
            let message = refusal("unix = \"s\"", disk);
            assert!(message.contains(expected), "{disk}: {message}");
        }
        let file = "[[listen]]\nunix = \"s\"\n[[device]]\nname = \"d\"\nkind = \"file\"\n\
                    [[vm]]\nname = \"a\"\n[[vm.disk]]\npath = \"x\"\nuri = \"nbd://a/\"\n";
        let message = parse(file, "t", Path::new("/srv"))
            .expect_err("refused")
            .to_string();
        assert!(
            message.contains("only disks of a device of kind \"nbd\""),
            "{message}"
        );
    }

    #[test]
    fn a_server_that_is_this_daemon_is_refused() {
        for (listen, uri) in [
            ("unix = \"/srv/s\"", "nbd+unix:///?socket=/srv/s"),
            ("unix = \"s\"", "nbd+unix:///x?socket=/srv/s"),
            ("tcp = \"127.0.0.1:7777\"", "nbd://127.0.0.1:7777/x"),
            ("tcp = \"127.0.0.1:7777\"", "nbd://localhost:7777/x"),
            ("tcp = \"127.0.0.1:7777\"", "nbd://0.0.0.0:7777/x"),
            ("tcp = \"[::1]:7777\"", "nbd://localhost:7777/x"),
        ] {
            let message = refusal(listen, &format!("uri = \"{uri}\""));
            assert!(
                message.contains("its server is this daemon"),
                "{uri}: {message}"
            );
        }
        for (listen, uri) in [
            ("unix = \"/srv/s\"", "nbd+unix:///?socket=/srv/other"),
            ("tcp = \"127.0.0.1:7777\"", "nbd://127.0.0.1:7778/x"),
            ("tcp = \"127.0.0.1:7777\"", "nbd://192.0.2.1:7777/x"),
        ] {
            let text = text(listen, &format!("uri = \"{uri}\""));
            parse(&text, "t", Path::new("/srv")).expect("another server");
        }
    }

    #[test]
    fn links_to_own_sockets_are_followed() {
        let dir = tempfile::tempdir().expect("a directory");
        let socket = dir.path().join("s");
        std::fs::write(&socket, "").expect("writable");
        std::os::unix::fs::symlink(&socket, dir.path().join("link")).expect("writable");
        let listen = format!("unix = \"{}\"", socket.display());
        let uri = format!("nbd+unix:///?socket={}/link", dir.path().display());
        let message = refusal(&listen, &format!("uri = \"{uri}\""));
        assert!(message.contains("its server is this daemon"), "{message}");
        // Also while the daemon does not run, and the socket is not there.
        std::fs::remove_file(&socket).expect("it is there");
        let directory = dir.path().join("directory");
        std::os::unix::fs::symlink(dir.path(), &directory).expect("writable");
        let uri = format!("nbd+unix:///?socket={}/s", directory.display());
        let message = refusal(&listen, &format!("uri = \"{uri}\""));
        assert!(message.contains("its server is this daemon"), "{message}");
    }
}
