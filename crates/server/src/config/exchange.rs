//! Section `[exchange]`: hosts that share arrays.

use std::path::PathBuf;

use tidegate_config::{Field, Place, Section};
use tidegate_exchange::options::{Login, NatsOptions};
use tidegate_exchange::{Entitlements, FixedEntitlements, Name};
use tidegate_policies::control::share_model::peers::PEERS_MAX;

use super::array::name;
use super::context::Context;
use super::keys::exchange as keys;
use super::{DeviceConfig, device};

/// Maximum number of hosts that share an array, this one as well: the controller has room for as
/// many.
const HOSTS_MAX: usize = PEERS_MAX + 1;

/// Section `[exchange]`.
#[derive(Clone, Debug)]
pub struct ExchangeConfig {
    /// Name of the cluster.
    pub cluster: Name,
    /// Name of this host.
    pub host: Name,
    /// Connection to the servers that carry messages.
    pub nats: NatsOptions,
    /// Hosts of each array with the weight that each may claim.
    pub entitlements: FixedEntitlements,
    /// Place in the file; `None` if no file sets it.
    pub place: Option<Place>,
}

/// Section as far as it could be read.
pub(super) struct ExchangeDraft {
    is_there: bool,
    config: Option<ExchangeConfig>,
}

impl ExchangeDraft {
    /// Takes and reads the section of a file.
    pub(super) fn take(file: &mut Section<'_>, context: &Context<'_>) -> ExchangeDraft {
        let field = file.take(keys::EXCHANGE.name);
        ExchangeDraft {
            is_there: field.is_some(),
            config: field.and_then(|field| read(&field, context)),
        }
    }

    /// Checks the arrays of devices against the section, and returns it if there is one. `None`:
    /// there was an error, which has been reported.
    pub(super) fn complete(self, drafts: &[device::Draft<'_>]) -> Option<Option<ExchangeConfig>> {
        check_arrays(drafts, self.config.as_ref(), self.is_there)?;
        if self.is_there && self.config.is_none() {
            return None;
        }
        Some(self.config)
    }
}

/// Reads the section. `None`: there was an error, which has been reported.
fn read(field: &Field<'_>, context: &Context<'_>) -> Option<ExchangeConfig> {
    let mut section = Section::with_keys(field, &keys::EXCHANGE)?;
    let cluster = section.field(&keys::CLUSTER).and_then(|it| name(&it));
    let host = section.field(&keys::HOST).and_then(|it| name(&it));
    let servers = section.field(&keys::NATS).and_then(|it| servers(&it));
    let mut path = |key| match section.field(key) {
        Some(field) => context.path(&field).map(Some),
        None => Some(None),
    };
    let ca = path(&keys::CA);
    let certificate = path(&keys::CERTIFICATE);
    let private_key = path(&keys::PRIVATE_KEY);
    let files = [
        path(&keys::PASSWORD_FILE),
        path(&keys::NKEY_FILE),
        path(&keys::CREDENTIALS_FILE),
    ];
    let user = section.value(&keys::USER, None, |field| {
        Some(Some(field.text()?.to_owned()))
    });
    let certificate = pair(&section, certificate?, private_key?);
    let login = login(&section, user?, files);
    let with_certificate = certificate.as_ref().is_some_and(Option::is_some);
    let ca = authorities(&section, servers.as_deref(), ca?, with_certificate);
    let entitlements = entitlements(&mut section, field);
    section.finish();
    Some(ExchangeConfig {
        cluster: cluster?,
        host: host?,
        nats: NatsOptions {
            servers: servers?,
            ca: ca?,
            certificate: certificate?,
            login: login?,
        },
        entitlements: entitlements?,
        place: field.place(),
    })
}

fn servers(field: &Field<'_>) -> Option<Vec<String>> {
    let elements = field.elements()?;
    let example = "nats = [\"tls://nats-1.example:4222\"]";
    if elements.is_empty() {
        field.error("no server", example);
        return None;
    }
    let server = |field: &Field<'_>| {
        let text = field.text()?;
        let rest = (text.strip_prefix("nats://")).or_else(|| text.strip_prefix("tls://"));
        // A password would be in lists of processes and in messages.
        let is_plain = |rest: &str| !rest.is_empty() && !rest.contains(['@', '/', ' ']);
        if rest.is_some_and(is_plain) {
            return Some(text.to_owned());
        }
        let allowed = "nats://HOST:PORT or tls://HOST:PORT, without a user";
        match text.rsplit_once('@') {
            // What is before it may be a password, which must not get into logs.
            Some((_, host)) => {
                let what = format!("a URL of a NATS server with a user, at {host:?}");
                field.push(field.diagnostic(what).allowing(allowed).without_line());
            }
            None => field.error(format!("{text:?} is no URL of a NATS server"), allowed),
        }
        None
    };
    let servers: Vec<Option<String>> = elements.iter().map(server).collect();
    let servers: Vec<String> = servers.into_iter().collect::<Option<_>>()?;
    let with_tls = servers.iter().filter(|it| it.starts_with("tls://"));
    if ![0, servers.len()].contains(&with_tls.count()) {
        field.error(
            "servers with TLS and without",
            "tls:// for all, or nats:// for all",
        );
        return None;
    }
    Some(servers)
}

/// Returns the authorities, which servers with TLS need and others do not use.
fn authorities(
    section: &Section<'_>,
    servers: Option<&[String]>,
    ca: Option<PathBuf>,
    with_certificate: bool,
) -> Option<Option<PathBuf>> {
    let servers = servers?;
    let has_tls = servers.iter().any(|it| it.starts_with("tls://"));
    match (has_tls, &ca) {
        (true, None) => section.error(
            "no `ca` for servers with TLS",
            "ca = \"ca.pem\", with the authorities of their certificates",
        ),
        (false, _) if with_certificate => {
            let what = "`certificate` for servers without TLS, which ask for none";
            section.error(what, "tls://HOST:PORT");
        }
        (false, Some(_)) => section.error("`ca` for servers without TLS", "tls://HOST:PORT"),
        _ => return Some(ca),
    }
    None
}

fn pair(
    section: &Section<'_>,
    certificate: Option<PathBuf>,
    private_key: Option<PathBuf>,
) -> Option<Option<(PathBuf, PathBuf)>> {
    match (certificate, private_key) {
        (Some(certificate), Some(private_key)) => Some(Some((certificate, private_key))),
        (None, None) => Some(None),
        _ => {
            let what = "one of `certificate` and `private_key` without the other";
            section.error(what, "both, or neither");
            None
        }
    }
}

fn login(
    section: &Section<'_>,
    user: Option<String>,
    files: [Option<Option<PathBuf>>; 3],
) -> Option<Login> {
    let [password, nkey, credentials] = files;
    match (user, password?, nkey?, credentials?) {
        (None, None, None, None) => Some(Login::None),
        (Some(user), Some(file), None, None) => Some(Login::Password { user, file }),
        (None, None, Some(file), None) => Some(Login::Nkey(file)),
        (None, None, None, Some(file)) => Some(Login::Credentials(file)),
        _ => {
            section.error(
                "more or less than one login",
                "`user` with `password_file`, `nkey_file` alone, `credentials_file` alone, or none",
            );
            None
        }
    }
}

fn entitlements(section: &mut Section<'_>, field: &Field<'_>) -> Option<FixedEntitlements> {
    let tables = section.take_tables(keys::ENTITLEMENTS.name);
    if tables.is_empty() {
        field.error(
            "no [[exchange.entitlement]] section",
            "one for each host of each array, with array, host and weight_max",
        );
        return None;
    }
    let mut entitled = FixedEntitlements::default();
    let mut sound = true;
    for field in &tables {
        sound &= entitlement(field, &mut entitled).is_some();
    }
    sound.then_some(entitled)
}

fn entitlement(field: &Field<'_>, entitled: &mut FixedEntitlements) -> Option<()> {
    let mut section = Section::with_keys(field, &keys::ENTITLEMENT)?;
    let array = section
        .field(&keys::ENTITLED_ARRAY)
        .and_then(|it| name(&it));
    let host = section.field(&keys::ENTITLED_HOST).and_then(|it| name(&it));
    let weight_max = section.number(&keys::WEIGHT_MAX);
    section.finish();
    let (array, host, weight_max) = (array?, host?, weight_max?);
    let what = format!("host {host} has an entitlement on array {array} already");
    if entitled.of_array(&array).len() >= HOSTS_MAX {
        let what = format!("array {array} has more than {HOSTS_MAX} hosts");
        field.error(what, "fewer hosts on an array");
        return None;
    }
    if !entitled.add(array, host, weight_max as u32) {
        field.error(
            what,
            "one [[exchange.entitlement]] for each host of an array",
        );
        return None;
    }
    Some(())
}

/// Checks the arrays of devices against the section.
fn check_arrays(
    drafts: &[device::Draft<'_>],
    exchange: Option<&ExchangeConfig>,
    has_section: bool,
) -> Option<()> {
    let mut sound = true;
    let mut known: Vec<&Name> = Vec::new();
    for draft in drafts {
        let Some(DeviceConfig {
            array: Some(array), ..
        }) = &draft.config
        else {
            continue;
        };
        let field = draft.field.find(keys::ARRAY.name);
        let field = field.as_ref().unwrap_or(&draft.field);
        let mut refuse = |what: String, allowed: &str| {
            field.error(what, allowed);
            sound = false;
        };
        if !has_section {
            refuse(
                "an array without [exchange]".to_owned(),
                "[exchange] with cluster, host, nats and entitlements",
            );
        }
        if known.contains(&array) {
            let what = format!("array {array} has another device already");
            refuse(what, "one device for all disks that are on the array");
        }
        known.push(array);
        if let Some(exchange) = exchange {
            let hosts = exchange.entitlements.of_array(array);
            if !hosts.contains_key(&exchange.host) {
                let what = format!("host {} has no entitlement on array {array}", exchange.host);
                refuse(what, "add an [[exchange.entitlement]] for it");
            }
        }
    }
    sound.then_some(())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::config::parse;

    const DEVICE: &str = "[[listen]]\nunix = \"s\"\n[[device]]\nname = \"d\"\nkind = \"memory\"\n";
    const SHARED: &str = "policy = \"vfair\"\nprofile = \"ssd-sata-300gb\"\narray = \"san\"\n";
    const EXCHANGE: &str = "[exchange]\ncluster = \"east\"\nhost = \"a\"\n\
                            nats = [\"nats://127.0.0.1:4222\"]\n";
    const ENTITLED: &str = "[[exchange.entitlement]]\narray = \"san\"\nhost = \"a\"\n\
                            weight_max = 100\n[[exchange.entitlement]]\narray = \"san\"\n\
                            host = \"b\"\nweight_max = 200\n";

    fn read(parts: &[&str]) -> Result<crate::config::Config, String> {
        let read = parse(&parts.concat(), "t.toml", Path::new("/etc/t"));
        read.map(|loaded| loaded.config)
            .map_err(|errors| errors.to_string())
    }

    #[test]
    fn hosts_share_an_array_by_their_entitlements() {
        let login = "user = \"a\"\npassword_file = \"a.password\"\n";
        let config = read(&[DEVICE, SHARED, EXCHANGE, login, ENTITLED]).expect("sound");
        let array: Name = "san".parse().expect("a name");
        assert_eq!(config.devices[0].array.as_ref(), Some(&array));
        let exchange = config.exchange.expect("a section");
        let hosts = exchange.entitlements.of_array(&array);
        let hosts: Vec<_> = hosts
            .iter()
            .map(|(host, most)| (host.as_str(), *most))
            .collect();
        assert_eq!(hosts, [("a", 100), ("b", 200)]);
        assert_eq!(
            exchange.nats.files(),
            [PathBuf::from("/etc/t/a.password")],
            "beside the file"
        );
    }

    #[test]
    fn the_default_policy_divides_an_array_and_no_other_device() {
        let by_default = SHARED.replace("policy = \"vfair\"\n", "");
        assert_ne!(by_default, SHARED);
        let own = "[[device]]\nname = \"e\"\nkind = \"memory\"\n";
        let config = read(&[DEVICE, &by_default, own, EXCHANGE, ENTITLED]).expect("sound");
        let policies = [0, 1].map(|device| &config.devices[device].scheduling.policy);
        assert_eq!(policies.map(|policy| policy.exchanges()), [true, false]);
        assert!(!config.devices[0].scheduling.learn_cap, "by default");
        assert_eq!(
            policies[0].report_period(),
            tidegate_exchange::array::PERIOD
        );
    }

    #[test]
    fn what_cannot_be_shared_is_refused_where_it_stands() {
        let tls = EXCHANGE.replace("nats://", "tls://");
        let other = ENTITLED.replace("host = \"a\"", "host = \"c\"");
        let twice = "[[exchange.entitlement]]\narray = \"san\"\nhost = \"b\"\nweight_max = 1\n";
        let second = "[[device]]\nname = \"e\"\nkind = \"memory\"\n";
        let slow = SHARED.replace("\"vfair\"", "{ name = \"vfair\", period = \"60 ms\" }");
        let pair = "certificate = \"c\"\nprivate_key = \"k\"\n";
        let password = EXCHANGE.replace("nats://", "nats://a:secret@s@");
        let cases: [(&[&str], &str); 11] = [
            (&[DEVICE, SHARED], "an array without [exchange]"),
            (
                &[DEVICE, SHARED, EXCHANGE],
                "no [[exchange.entitlement]] section",
            ),
            (
                &[DEVICE, SHARED, EXCHANGE, &other],
                "host a has no entitlement on array san",
            ),
            (
                &[DEVICE, SHARED, EXCHANGE, ENTITLED, twice],
                "host b has an entitlement on array",
            ),
            (
                &[DEVICE, SHARED, second, SHARED, EXCHANGE, ENTITLED],
                "another device already",
            ),
            (
                &[DEVICE, SHARED, &tls, ENTITLED],
                "no `ca` for servers with TLS",
            ),
            (
                &[DEVICE, SHARED, &password, ENTITLED],
                "a URL of a NATS server with a user, at \"127.0.0.1:4222\"",
            ),
            (
                &[DEVICE, &slow, EXCHANGE, ENTITLED],
                "policy vfair of an array has a period of 60 ms, and other hosts have 30 ms",
            ),
            (
                &[DEVICE, SHARED, EXCHANGE, pair, ENTITLED],
                "`certificate` for servers without TLS",
            ),
            (
                &[DEVICE, SHARED, EXCHANGE, "user = \"a\"\n", ENTITLED],
                "than one login",
            ),
            (
                &[DEVICE, SHARED, EXCHANGE, "certificate = \"c\"\n", ENTITLED],
                "without the other",
            ),
        ];
        for (parts, what) in cases {
            let error = read(parts).expect_err(what);
            assert!(error.contains(what), "{what}: {error}");
            assert!(!error.contains("secret"), "{error}");
        }
    }

    #[test]
    fn a_device_that_hosts_cannot_share_is_refused_as_an_array() {
        let fifo = SHARED.replace("vfair", "fifo");
        let bare = SHARED.replace("profile = \"ssd-sata-300gb\"\n", "");
        let capped = format!("learn_cap = true\n{SHARED}");
        let cases = [
            (&fifo, "policy fifo does not divide an array"),
            (&fifo, "slo, vfair, vfair-bops, vfair-bsps"),
            (&capped, "an array with learn_cap"),
            (&bare, "an array without a profile"),
        ];
        for (device, what) in cases {
            let error = read(&[DEVICE, device, EXCHANGE, ENTITLED]).expect_err(what);
            assert!(error.contains(what), "{what}: {error}");
        }
    }
}
