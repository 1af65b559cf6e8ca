//! Section `[cluster]`: the cluster in etcd that the daemon joins, and the rules of its options,
//! which the command line shares.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tidegate_config::{Field, Section};

use super::context::Context;
use super::{Place, keys};

/// Section `[cluster]`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClusterConfig {
    /// Name of this host in the cluster.
    pub host: String,
    /// Address of the cluster's state, and how to get in.
    pub access: EtcdAccess,
    /// Time after which a host that etcd has not heard of is lost, 2 s to 10 min.
    pub lease: Duration,
    /// Place in the file; `None` if no file sets it.
    pub place: Option<Place>,
}

/// Address of a cluster's state in etcd, and the files by which a client gets in.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct EtcdAccess {
    /// URLs of the members, such as `https://10.0.0.1:2379`.
    pub endpoints: Vec<String>,
    /// Beginning of all keys.
    pub prefix: String,
    /// User of etcd's authentication; `None`: it is off, or by the client's certificate.
    pub user: Option<String>,
    /// File whose first line is the user's password.
    pub password_file: Option<PathBuf>,
    /// File with the authority of the members' certificates.
    pub authority: Option<PathBuf>,
    /// File with the client's certificate.
    pub certificate: Option<PathBuf>,
    /// File with the private key of `certificate`.
    pub key: Option<PathBuf>,
}

/// Option of [`EtcdAccess`] that an error concerns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AccessOption {
    /// [`EtcdAccess::endpoints`].
    Endpoints,
    /// [`EtcdAccess::authority`].
    Authority,
    /// [`EtcdAccess::certificate`].
    Certificate,
    /// [`EtcdAccess::key`].
    Key,
}

/// Options that contradict each other.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AccessError {
    /// Option that is wrong.
    pub option: AccessOption,
    /// Mistake.
    pub what: String,
    /// Advice.
    pub help: String,
}

impl EtcdAccess {
    /// Iterates over the files.
    pub fn files(&self) -> impl Iterator<Item = &Path> {
        let all = [
            &self.password_file,
            &self.authority,
            &self.certificate,
            &self.key,
        ];
        all.into_iter().flatten().map(PathBuf::as_path)
    }

    /// Checks that TLS is where it is asked for, and that no password goes out in the clear.
    /// `name` is how the user writes an option.
    ///
    /// # Errors
    /// The first contradiction.
    pub fn check(&self, name: impl Fn(AccessOption) -> &'static str) -> Result<(), AccessError> {
        let error = |option, what: String, help: String| Err(AccessError { option, what, help });
        let (certificate, key) = (self.certificate.is_some(), self.key.is_some());
        let authority = name(AccessOption::Authority);
        if certificate != key {
            let both = [AccessOption::Certificate, AccessOption::Key].map(&name);
            let missing = if key {
                AccessOption::Certificate
            } else {
                AccessOption::Key
            };
            return error(
                missing,
                "a certificate and its private key go together".to_owned(),
                format!("name both: {} {}", both[0], both[1]),
            );
        }
        if certificate && self.authority.is_none() {
            return error(
                AccessOption::Certificate,
                "a client's certificate is for TLS".to_owned(),
                format!("add {authority}, the authority of the members' certificates"),
            );
        }
        for url in &self.endpoints {
            let at_url = |what: &str, help: String| {
                error(AccessOption::Endpoints, format!("{url}: {what}"), help)
            };
            match (url.strip_prefix("http://"), self.authority.is_some()) {
                (None, false) => {
                    let help =
                        format!("add {authority}, the authority of the members' certificates");
                    return at_url("https needs an authority", help);
                }
                (Some(_), true) => {
                    let what = format!("{} is for TLS", authority.trim_end_matches(" PATH"));
                    return at_url(&what, "write https:// in the URL".to_owned());
                }
                (Some(address), false) if self.user.is_some() && !is_loopback(address) => {
                    let help = format!("use https:// with {authority}");
                    return at_url("the password could be read on the way", help);
                }
                _ => {}
            }
        }
        Ok(())
    }
}

fn is_loopback(address: &str) -> bool {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    let ip = host.trim_matches(['[', ']']).parse::<IpAddr>();
    host == "localhost" || ip.is_ok_and(|ip| ip.is_loopback())
}

/// Parses the URL of a member of etcd: scheme, host and port alone.
///
/// # Errors
/// The form of a URL.
pub fn etcd_url(text: &str) -> Result<String, String> {
    let form = || "write http://HOST:PORT or https://HOST:PORT".to_owned();
    let text = text.trim().trim_end_matches('/');
    let address = text
        .strip_prefix("http://")
        .or_else(|| text.strip_prefix("https://"));
    let (host, port) = address
        .and_then(|address| address.rsplit_once(':'))
        .ok_or_else(form)?;
    let is_host = |c: char| c.is_ascii_alphanumeric() || "-.[]:_".contains(c);
    if host.is_empty() || !host.chars().all(is_host) || port.parse::<u16>().is_err() {
        return Err(form());
    }
    Ok(text.to_owned())
}

/// Parses the beginning of a cluster's keys.
///
/// # Errors
/// The form of a prefix.
pub fn key_prefix(text: &str) -> Result<String, String> {
    if text.len() > 1 && text.ends_with('/') {
        Ok(text.to_owned())
    } else {
        Err("a prefix ends with a slash, such as /tidegate/".to_owned())
    }
}

/// Reads the section of a file if it has one. `None`: there was an error, which has been reported.
pub(super) fn read_if_any(
    file: &mut Section<'_>,
    context: &Context<'_>,
) -> Option<Option<ClusterConfig>> {
    match file.take("cluster") {
        Some(field) => read(&field, context).map(Some),
        None => Some(None),
    }
}

fn read(field: &Field<'_>, context: &Context<'_>) -> Option<ClusterConfig> {
    let mut section = Section::with_keys(field, &keys::cluster::CLUSTER)?;
    let host = section
        .field(&keys::cluster::HOST)
        .map(|field| field.name());
    let endpoints = section.field(&keys::cluster::ETCD).map(|field| {
        let urls = field.elements()?;
        if urls.is_empty() {
            field.error("no member of etcd", "[\"https://10.0.0.1:2379\"]");
            return None;
        }
        urls.iter().map(|url| parsed(url, etcd_url)).collect()
    });
    let prefix = section.value(&keys::cluster::PREFIX, "/tidegate/".to_owned(), |field| {
        parsed(field, key_prefix)
    });
    let user = section.value(&keys::cluster::USER, None, |field| {
        field.text().map(|text| Some(text.to_owned()))
    });
    let mut path = |key| match section.field(key) {
        Some(field) => context.path(&field).map(Some),
        None => Some(None),
    };
    let password_file = path(&keys::cluster::PASSWORD_FILE);
    let authority = path(&keys::cluster::CA);
    let certificate = path(&keys::cluster::CERTIFICATE);
    let key = path(&keys::cluster::PRIVATE_KEY);
    let lease = section.number(&keys::cluster::LEASE);
    let access = || {
        Some(EtcdAccess {
            endpoints: endpoints??,
            prefix: prefix?,
            user: user?,
            password_file: password_file?,
            authority: authority?,
            certificate: certificate?,
            key: key?,
        })
    };
    let access = access().filter(|access| fit_each_other(access, &section));
    section.finish();
    Some(ClusterConfig {
        host: host??,
        access: access?,
        lease: Duration::from_nanos(lease?),
        place: field.place(),
    })
}

fn parsed(field: &Field<'_>, parse: fn(&str) -> Result<String, String>) -> Option<String> {
    let read = parse(field.text()?);
    let wrong = |form: String| field.error(format!("found {}", field.describe()), &form);
    read.map_err(wrong).ok()
}

/// Reports options that contradict each other, and returns true if there are none.
fn fit_each_other(access: &EtcdAccess, section: &Section<'_>) -> bool {
    if access.user.is_some() != access.password_file.is_some() {
        let help = "name both: user = \"tidegate\" and password_file = \"/etc/tidegate/etcd\"";
        section.error("a user and the file of its password go together", help);
        return false;
    }
    let name = |option| match option {
        AccessOption::Endpoints => keys::cluster::ETCD.name,
        AccessOption::Authority => keys::cluster::CA.name,
        AccessOption::Certificate => keys::cluster::CERTIFICATE.name,
        AccessOption::Key => keys::cluster::PRIVATE_KEY.name,
    };
    let Err(error) = access.check(name) else {
        return true;
    };
    match section.find(name(error.option)) {
        Some(field) => field.error(error.what, &error.help),
        None => section.error(error.what, &error.help),
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::tests::{errors, parts, with_template};

    fn with_cluster(keys: &str) -> String {
        with_template("unix = \"nbd.sock\"") + "[cluster]\n" + keys
    }

    #[test]
    fn a_host_joins_no_cluster_unless_a_section_asks_for_it() {
        let (config, _) = parts(&with_template("unix = \"nbd.sock\""));
        assert_eq!(config.cluster, None);
        let (config, warnings) = parts(&with_cluster(
            "host = \"a\"\netcd = [\"http://10.0.0.1:2379/\"]\n",
        ));
        assert!(warnings.is_empty(), "{warnings:?}");
        let cluster = config.cluster.expect("a section");
        assert_eq!(
            (cluster.host.as_str(), cluster.lease),
            ("a", Duration::from_secs(10))
        );
        assert_eq!(cluster.access.endpoints, ["http://10.0.0.1:2379"]);
        assert_eq!(cluster.access.prefix, "/tidegate/");
        let (config, _) = parts(&with_cluster(
            "host = \"a\"\netcd = [\"https://e:2379\"]\nprefix = \"/t/\"\nuser = \"u\"\n\
             password_file = \"/p\"\nca = \"/ca.pem\"\ncertificate = \"/c.pem\"\n\
             private_key = \"/k.pem\"\nlease = \"30 s\"\n",
        ));
        let access = config.cluster.expect("a section").access;
        assert_eq!(access.user.as_deref(), Some("u"));
        assert_eq!(access.key, Some("/k.pem".into()));
    }

    #[test]
    fn a_cluster_that_cannot_be_joined_is_refused() {
        let plain = "host = \"a\"\netcd = [\"http://10.0.0.1:2379\"]\n";
        let tls = "host = \"a\"\netcd = [\"https://10.0.0.1:2379\"]\n";
        for (text, expected) in [
            ("etcd = [\"http://e:1\"]\n".to_owned(), "host"),
            ("host = \"a\"\n".to_owned(), "etcd"),
            (
                "host = \"a b\"\netcd = [\"http://e:1\"]\n".to_owned(),
                "cannot be a name",
            ),
            ("host = \"a\"\netcd = []\n".to_owned(), "no member of etcd"),
            (
                "host = \"a\"\netcd = [\"e:1\"]\n".to_owned(),
                "http://HOST:PORT",
            ),
            (format!("{plain}prefix = \"t\"\n"), "ends with a slash"),
            (format!("{plain}lease = \"1 s\"\n"), "out of range"),
            (format!("{plain}user = \"u\"\n"), "go together"),
            (
                format!("{plain}user = \"u\"\npassword_file = \"p\"\n"),
                "could be read on the way",
            ),
            (format!("{plain}ca = \"ca.pem\"\n"), "ca is for TLS"),
            (tls.to_owned(), "https needs an authority"),
            (
                format!("{tls}ca = \"c\"\nprivate_key = \"k\"\n"),
                "go together",
            ),
            (
                format!("{plain}certificate = \"c\"\nprivate_key = \"k\"\n"),
                "is for TLS",
            ),
        ] {
            let said = errors(&with_cluster(&text));
            assert!(said.contains(expected), "{text}: {said}");
        }
    }

    #[test]
    fn urls_of_members_have_a_scheme_a_host_and_a_port() {
        for good in [
            "http://10.0.0.1:2379",
            "https://etcd-1.example:2379",
            "https://[::1]:2379",
        ] {
            assert_eq!(etcd_url(good), Ok(good.to_owned()));
            assert_eq!(etcd_url(&format!(" {good}/")), Ok(good.to_owned()));
        }
        for bad in [
            "",
            "10.0.0.1:2379",
            "http://10.0.0.1",
            "http://:2379",
            "http://a:b@10.0.0.1:2379",
            "http://a:70000",
            "http://a:2379/v3",
            "unix:///run/etcd",
        ] {
            let refused = etcd_url(bad).expect_err(bad);
            assert!(refused.contains("http://HOST:PORT"), "{refused}");
        }
        assert_eq!(key_prefix("/a/b/"), Ok("/a/b/".to_owned()));
        for bad in ["", "/", "/a"] {
            assert!(key_prefix(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_password_stays_on_the_host_without_tls() {
        let check = |url: &str, tls: bool, user: bool| {
            let access = EtcdAccess {
                endpoints: vec![url.to_owned()],
                user: user.then(|| "u".to_owned()),
                authority: tls.then(|| "ca".into()),
                ..EtcdAccess::default()
            };
            access.check(|_| "OPTION").map_err(|error| error.what)
        };
        for good in [
            "http://127.0.0.1:2379",
            "http://[::1]:1",
            "http://localhost:2379",
        ] {
            assert_eq!(check(good, false, true), Ok(()));
        }
        assert_eq!(check("http://10.0.0.1:2379", false, false), Ok(()));
        assert_eq!(check("https://10.0.0.1:2379", true, true), Ok(()));
        let what = check("http://10.0.0.1:2379", false, true).expect_err("in the clear");
        assert!(what.contains("could be read"), "{what}");
        check("https://10.0.0.1:2379", false, false).expect_err("no authority");
        check("http://10.0.0.1:2379", true, false).expect_err("an authority for nothing");
    }
}
