//! Section `[[metrics]]`: listeners that serve metrics and health alone.

use tidegate_config::{Field, Section};

use super::context::Context;
use super::listen_address::{AddressKind, ClaimedAddresses, is_loopback, owner, unix_or_tcp};
use super::tls::{describe_tls, read_of_http as read_tls};
use super::{ListenAddress, Place, SocketOwner, TlsConfig, keys};

/// Section `[[metrics]]`.
#[derive(Clone, Debug)]
pub struct MetricsConfig {
    /// Unix socket or TCP address.
    pub address: ListenAddress,
    /// Owner and group of a unix socket.
    pub owner: SocketOwner,
    /// TLS of a TCP address; `None` without it.
    pub tls: Option<TlsConfig>,
    /// Place in the file; `None` if no file sets it.
    pub place: Option<Place>,
}

impl MetricsConfig {
    /// Returns the address for people, with the mode and owner of a unix socket.
    pub fn description(&self) -> String {
        let address = self.address.description(&self.owner);
        describe_tls(address, self.tls.as_ref())
    }
}

const ADDRESS: AddressKind = AddressKind {
    examples: "tcp = \"127.0.0.1:9809\" or unix = \"metrics.sock\"",
    heading: "[[metrics]]",
};

/// Warns of an address whose clients need no certificate although other hosts reach it.
fn warn_of_open_address(
    section: &Section<'_>,
    address: Option<&ListenAddress>,
    tls: Option<&TlsConfig>,
) {
    let is_open = matches!(address, Some(ListenAddress::Tcp(address)) if !is_loopback(*address));
    let needs_certificate = tls.is_some_and(|tls| tls.client_ca.is_some());
    if is_open
        && !needs_certificate
        && let Some(field) = section.find(keys::TCP.name)
    {
        field.warn(
            "hosts that reach this address can read the names and the load of every VM",
            "prefer a unix socket, 127.0.0.1 or a network for monitoring alone, or add \
             [metrics.tls] with client_ca",
        );
    }
}

/// Reads the sections of the file `file`; `None` for each with an error, which has been reported.
pub(super) fn read_all(
    file: &mut Section<'_>,
    context: &Context<'_>,
    taken: &mut ClaimedAddresses,
) -> Vec<Option<MetricsConfig>> {
    let read = |field: &Field<'_>| {
        let mut section = Section::with_keys(field, &keys::METRICS)?;
        let (unix, tcp) = (section.field(&keys::UNIX), section.field(&keys::TCP));
        let keys = (unix, tcp, section.field(&keys::LISTEN_MODE));
        let address = unix_or_tcp(&mut section, keys, context, taken, &ADDRESS);
        let owner = owner(&mut section, address.as_ref());
        let of = address.as_ref();
        let section_keys = &keys::tls::METRICS_TLS;
        let tls = read_tls(&mut section, &keys::METRICS_TLS, section_keys, context, of);
        if let Some(tls) = &tls {
            warn_of_open_address(&section, of, tls.as_ref());
        }
        section.finish();
        Some(MetricsConfig {
            address: address?,
            owner: owner?,
            tls: tls?,
            place: (["unix", "tcp"].iter())
                .find_map(|key| field.find(key))
                .and_then(|field| field.place()),
        })
    };
    let tables = file.take_tables(keys::METRICS.name);
    tables.iter().map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::tests::{errors, parts, with_template};

    fn with_metrics(sections: &str) -> String {
        with_template("unix = \"nbd.sock\"") + sections
    }

    #[test]
    fn metrics_have_listeners_of_their_own() {
        let (config, warnings) = parts(&with_metrics(
            "[[metrics]]\ntcp = \"127.0.0.1:9809\"\n\
             [[metrics]]\nunix = \"m.sock\"\nmode = \"0660\"\ngroup = \"monitor\"\n",
        ));
        assert!(warnings.is_empty(), "{warnings:?}");
        let [tcp, unix] = &config.metrics[..] else {
            panic!("{:?}", config.metrics);
        };
        assert!(matches!(tcp.address, ListenAddress::Tcp(address) if address.port() == 9809));
        let ListenAddress::Unix { path, mode } = &unix.address else {
            panic!("{unix:?}");
        };
        assert_eq!(
            (path.to_str(), *mode),
            (Some("/etc/tidegate/m.sock"), 0o660)
        );
        assert_eq!(unix.owner.group.as_deref(), Some("monitor"));
        let (config, _) = parts(&with_metrics(""));
        assert!(config.metrics.is_empty());
    }

    #[test]
    fn an_address_of_metrics_is_its_own_and_one_that_others_reach_is_a_warning() {
        let (_, warnings) = parts(&with_metrics("[[metrics]]\ntcp = \"0.0.0.0:9809\"\n"));
        assert_eq!(warnings.len(), 1, "{warnings:?}");
        assert!(warnings[0].what.contains("the load of every VM"));
        let over_tls = "[[metrics]]\ntcp = \"0.0.0.0:9809\"\n[metrics.tls]\n\
                        certificate = \"s.pem\"\nprivate_key = \"s.key\"\n";
        let (_, warnings) = parts(&with_metrics(over_tls));
        assert_eq!(warnings.len(), 1, "encrypted for everybody: {warnings:?}");
        let certified = format!("{over_tls}client_ca = \"ca.pem\"\n");
        let (config, warnings) = parts(&with_metrics(&certified));
        assert!(warnings.is_empty(), "{warnings:?}");
        assert_eq!(config.metrics[0].description(), "0.0.0.0:9809 (TLS)");
        let all: Vec<_> = config.tls().map(|(place, _)| place).collect();
        assert_eq!(all, ["metrics[0].tls"]);
        for (text, expected) in [
            ("[[metrics]]\n", "no address is set"),
            (
                "[[metrics]]\nunix = \"a\"\ntcp = \"127.0.0.1:1\"\n",
                "add a second [[metrics]]",
            ),
            (
                "[[metrics]]\nunix = \"a\"\n[[metrics]]\nunix = \"a\"\n",
                "is there twice",
            ),
            (
                "[[metrics]]\ntcp = \"127.0.0.1:1\"\nowner = \"root\"\n",
                "a TCP port has no owner",
            ),
            ("[[metrics]]\nunix = \"a\"\nexports = []\n", "exports"),
        ] {
            let said = errors(&with_metrics(text));
            assert!(said.contains(expected), "{text}: {said}");
        }
    }
}
