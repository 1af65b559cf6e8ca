//! Section `[[dashboard]]`: listeners that serve the page for browsers.

use tidegate_config::{Field, Section};

use super::context::Context;
use super::listen_address::{AddressKind, ClaimedAddresses, is_loopback, unix_or_tcp};
use super::{ListenAddress, Place, keys};

/// Section `[[dashboard]]`.
#[derive(Clone, Debug)]
pub struct DashboardConfig {
    /// TCP address of loopback.
    pub address: ListenAddress,
    /// Names under which browsers may reach the listener, beside those of loopback.
    pub host_names: Vec<String>,
    /// Place in the file; `None` if no file sets it.
    pub place: Option<Place>,
}

impl DashboardConfig {
    /// Returns the address for people.
    pub fn description(&self) -> String {
        self.address.description(&Default::default())
    }
}

const ADDRESS: AddressKind = AddressKind {
    examples: "tcp = \"127.0.0.1:9807\"",
    heading: "[[dashboard]]",
};

/// Reads the sections of the file `file`; `None` for each with an error, which has been reported.
pub(super) fn read_all(
    file: &mut Section<'_>,
    context: &Context<'_>,
    taken: &mut ClaimedAddresses,
) -> Vec<Option<DashboardConfig>> {
    let read = |field: &Field<'_>| {
        let mut section = Section::with_keys(field, &keys::DASHBOARD)?;
        let tcp = section.field(&keys::TCP);
        let address = unix_or_tcp(&mut section, (None, tcp, None), context, taken, &ADDRESS);
        let address = address.filter(|address| is_for_this_host(address, &section));
        let host_names = section.value(&keys::HOST_NAMES, Vec::new(), host_names);
        section.finish();
        Some(DashboardConfig {
            address: address?,
            host_names: host_names?,
            place: field.find(keys::TCP.name).and_then(|field| field.place()),
        })
    };
    let tables = file.take_tables(keys::DASHBOARDS.name);
    tables.iter().map(read).collect()
}

/// Reports an address that other hosts reach: it has no TLS, so tokens could be read on the way.
fn is_for_this_host(address: &ListenAddress, section: &Section<'_>) -> bool {
    let is_open = matches!(address, ListenAddress::Tcp(address) if !is_loopback(*address));
    if is_open && let Some(field) = section.find(keys::TCP.name) {
        field.error(
            "the dashboard is served to this host alone: it has no TLS, so tokens could be read \
             on the way",
            "an address of loopback, such as \"127.0.0.1:9807\"; from other hosts \
             `ssh -L 9807:127.0.0.1:9807 HOST`, or a proxy with TLS whose name is in host_names",
        );
    }
    !is_open
}

fn host_names(field: &Field<'_>) -> Option<Vec<String>> {
    let names = field.elements()?;
    let names: Vec<_> = names.iter().map(host_name).collect();
    names.into_iter().collect()
}

/// Reads the name of a host, without scheme and port.
fn host_name(field: &Field<'_>) -> Option<String> {
    let name = field.text()?;
    let is_name = !name.is_empty()
        && name.len() <= 253
        && !name.starts_with(['-', '.'])
        && (name.chars()).all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '.');
    if !is_name {
        field.error(
            format!("{} is not the name of a host", field.describe()),
            "such as \"storage.example\", without scheme and port",
        );
        return None;
    }
    Some(name.to_owned())
}

#[cfg(test)]
mod tests {
    use crate::config::tests::{errors, parts, with_template};

    fn with_dashboard(sections: &str) -> String {
        with_template("unix = \"nbd.sock\"") + sections
    }

    #[test]
    fn there_is_no_dashboard_unless_a_section_asks_for_it() {
        let (config, _) = parts(&with_dashboard(""));
        assert!(config.dashboards.is_empty());
        let (config, warnings) = parts(&with_dashboard(
            "[[dashboard]]\ntcp = \"127.0.0.1:9807\"\n\
             [[dashboard]]\ntcp = \"[::1]:9807\"\nhost_names = [\"storage.example\"]\n",
        ));
        assert!(warnings.is_empty(), "{warnings:?}");
        let [first, second] = &config.dashboards[..] else {
            panic!("{:?}", config.dashboards);
        };
        assert_eq!(first.description(), "127.0.0.1:9807");
        assert!(first.host_names.is_empty());
        assert_eq!(second.host_names, ["storage.example"]);
    }

    #[test]
    fn a_dashboard_that_other_hosts_reach_is_refused() {
        for (text, expected) in [
            ("tcp = \"0.0.0.0:9807\"\n", "served to this host alone"),
            ("tcp = \"192.0.2.1:9807\"\n", "ssh -L"),
            ("tcp = \"[::]:9807\"\n", "served to this host alone"),
            ("", "no address is set"),
            ("unix = \"d.sock\"\n", "unix"),
            (
                "tcp = \"127.0.0.1:9807\"\nhost_names = [\"http://a\"]\n",
                "is not the name of a host",
            ),
            (
                "tcp = \"127.0.0.1:9807\"\nhost_names = [\"a:80\"]\n",
                "without scheme and port",
            ),
            (
                "tcp = \"127.0.0.1:9807\"\n[[dashboard]]\ntcp = \"127.0.0.1:9807\"\n",
                "is there twice",
            ),
        ] {
            let said = errors(&with_dashboard(&format!("[[dashboard]]\n{text}")));
            assert!(said.contains(expected), "{text}: {said}");
        }
    }
}
