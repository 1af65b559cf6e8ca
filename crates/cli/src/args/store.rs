//! Options of the store of a cluster, for `tidegate place` and `tidegate cluster`.

use std::path::PathBuf;

use clap::{Args as ClapArgs, ValueHint};

/// Heading of the options of etcd in a command's help.
const ETCD: &str = "Cluster in etcd, in place of --db";

/// Options of the store of a cluster.
#[derive(Clone, Debug, ClapArgs)]
pub(crate) struct StoreArgs {
    /// Database of hosts, jobs and learnt bandwidths; created if missing
    #[arg(long = "db", value_name = "FILE", env = "TIDEGATE_PLACE_DB",
          value_hint = ValueHint::FilePath, default_value = "tidegate-place.redb",
          conflicts_with = "etcd")]
    pub(crate) path: PathBuf,
    /// URLs of etcd's members, such as https://10.0.0.1:2379
    #[arg(long, value_name = "URL,...", env = "TIDEGATE_ETCD", value_delimiter = ',',
          value_parser = parse_url, help_heading = ETCD)]
    pub(crate) etcd: Vec<String>,
    /// Beginning of all keys; a cluster has one of its own
    #[arg(long, value_name = "PREFIX", env = "TIDEGATE_ETCD_PREFIX", value_parser = parse_prefix,
          default_value = "/tidegate/", help_heading = ETCD)]
    pub(crate) etcd_prefix: String,
    /// User; the password is in TIDEGATE_ETCD_PASSWORD or a file
    #[arg(long, value_name = "NAME", env = "TIDEGATE_ETCD_USER", help_heading = ETCD)]
    pub(crate) etcd_user: Option<String>,
    /// File whose first line is the user's password
    #[arg(long, value_name = "PATH", env = "TIDEGATE_ETCD_PASSWORD_FILE",
          value_hint = ValueHint::FilePath, help_heading = ETCD)]
    pub(crate) etcd_password_file: Option<PathBuf>,
    /// PEM file with the authority of the members' certificates, for https
    #[arg(long, value_name = "PATH", env = "TIDEGATE_ETCD_CA",
          value_hint = ValueHint::FilePath, help_heading = ETCD)]
    pub(crate) etcd_ca: Option<PathBuf>,
    /// PEM file with the certificate of this client, if etcd asks for one
    #[arg(long, alias = "etcd-cert", value_name = "PATH", env = "TIDEGATE_ETCD_CERTIFICATE",
          value_hint = ValueHint::FilePath, help_heading = ETCD)]
    pub(crate) etcd_certificate: Option<PathBuf>,
    /// PEM file with the private key for --etcd-certificate
    #[arg(long, value_name = "PATH", env = "TIDEGATE_ETCD_KEY",
          value_hint = ValueHint::FilePath, help_heading = ETCD)]
    pub(crate) etcd_key: Option<PathBuf>,
}

impl StoreArgs {
    /// Returns whether the cluster is in etcd.
    pub(crate) fn is_etcd(&self) -> bool {
        !self.etcd.is_empty()
    }

    /// Returns the place of the cluster for messages: the file, or the URLs.
    pub(crate) fn place(&self) -> String {
        if self.is_etcd() {
            format!("{} {}", self.etcd.join(","), self.etcd_prefix)
        } else {
            self.path.display().to_string()
        }
    }
}

/// Parses the URL of a member: scheme, host and port alone.
fn parse_url(text: &str) -> Result<String, String> {
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

fn parse_prefix(text: &str) -> Result<String, String> {
    if text.len() > 1 && text.ends_with('/') {
        Ok(text.to_owned())
    } else {
        Err("a prefix ends with a slash, such as /tidegate/".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_of_members_have_a_scheme_a_host_and_a_port() {
        for good in [
            "http://10.0.0.1:2379",
            "https://etcd-1.example:2379",
            "https://[::1]:2379",
        ] {
            assert_eq!(parse_url(good), Ok(good.to_owned()));
            assert_eq!(parse_url(&format!(" {good}/")), Ok(good.to_owned()));
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
            let refused = parse_url(bad).expect_err(bad);
            assert!(refused.contains("http://HOST:PORT"), "{refused}");
        }
        assert_eq!(parse_prefix("/a/b/"), Ok("/a/b/".to_owned()));
        for bad in ["", "/", "/a"] {
            assert!(parse_prefix(bad).is_err(), "{bad}");
        }
    }
}
