//! Stores of a cluster: a file, or etcd in builds with the feature `cluster`.

use anyhow::Result;
use tidegate_cluster::store::{ClusterStore, MemoryStore, RedbStore};

use super::errors::problem;
use crate::args::StoreArgs;

/// Opens the store that the options name. A file is created if missing, unless `read_only`.
pub(in crate::commands) fn open(at: &StoreArgs, read_only: bool) -> Result<Box<dyn ClusterStore>> {
    if at.is_etcd() {
        return open_etcd(at);
    }
    if read_only && !at.path.exists() {
        return Ok(Box::new(MemoryStore::default()));
    }
    Ok(Box::new(RedbStore::open(&at.path).map_err(problem)?))
}

#[cfg(not(feature = "cluster"))]
fn open_etcd(_: &StoreArgs) -> Result<Box<dyn ClusterStore>> {
    Err(without_etcd().into())
}

/// Returns the error of a build without the feature `cluster`.
#[cfg(not(feature = "cluster"))]
pub(in crate::commands) fn without_etcd() -> crate::problem::Problem {
    let problem = crate::problem::Problem::new("this build of tidegate has no etcd").at("--etcd");
    problem.help(
        "the packages that `make release` builds have it; to build it: `cargo build -p tidegate \
         --features cluster`, which needs protoc (`scripts/setup cluster`)",
    )
}

#[cfg(feature = "cluster")]
fn open_etcd(at: &StoreArgs) -> Result<Box<dyn ClusterStore>> {
    Ok(Box::new(etcd::open(at)?))
}

#[cfg(feature = "cluster")]
pub(in crate::commands) mod etcd {
    //! Options of etcd: what they name is read and checked.

    use std::fs;
    use std::net::IpAddr;
    use std::path::Path;

    use anyhow::Result;
    use tidegate_cluster::store::{EtcdOptions, EtcdStore, EtcdTls, EtcdUser};
    use tidegate_server::tls;

    use super::super::errors::problem;
    use crate::args::StoreArgs;
    use crate::problem::Problem;

    /// Variable with the password of the user.
    const PASSWORD: &str = "TIDEGATE_ETCD_PASSWORD";

    /// Creates the store in etcd that the options name.
    pub(in crate::commands) fn open(at: &StoreArgs) -> Result<EtcdStore> {
        let tls = tls(at)?;
        let user = match &at.etcd_user {
            Some(name) => Some(EtcdUser {
                name: name.clone(),
                password: password(at)?,
            }),
            None => None,
        };
        check_urls(&at.etcd, tls.is_some(), user.is_some())?;
        let options = EtcdOptions {
            endpoints: at.etcd.clone(),
            prefix: at.etcd_prefix.clone(),
            user,
            tls,
            call_timeout: EtcdOptions::CALL_TIMEOUT,
        };
        EtcdStore::new(&options).map_err(problem)
    }

    /// Checks that TLS is where it is asked for, and that no password goes out in the clear.
    fn check_urls(urls: &[String], has_tls: bool, has_user: bool) -> Result<()> {
        for url in urls {
            let problem = |what: &str| Problem::new(format!("{url}: {what}")).at("--etcd");
            let plain = url.strip_prefix("http://");
            match (plain, has_tls) {
                (None, false) => {
                    let help = "add --etcd-ca PATH, the authority of the members' certificates";
                    return Err(problem("https needs an authority").help(help).into());
                }
                (Some(_), true) => {
                    let help = "write https:// in the URL";
                    return Err(problem("--etcd-ca is for TLS").help(help).into());
                }
                (Some(address), false) if has_user && !is_loopback(address) => {
                    let what = "the password could be read on the way";
                    let help = "use https:// with --etcd-ca";
                    return Err(problem(what).help(help).into());
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn is_loopback(address: &str) -> bool {
        let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
        let ip = host.trim_matches(['[', ']']).parse::<IpAddr>();
        host == "localhost" || ip.is_ok_and(|ip| ip.is_loopback())
    }

    fn password(at: &StoreArgs) -> Result<String> {
        if let Some(path) = &at.etcd_password_file {
            let text = read(path)?;
            let text = String::from_utf8_lossy(&text);
            return Ok(text.lines().next().unwrap_or_default().to_owned());
        }
        std::env::var(PASSWORD).map_err(|_| {
            let problem = Problem::new("the user has no password").at("--etcd-user");
            let help = format!("put it in {PASSWORD}, or in a file: --etcd-password-file PATH");
            problem.help(help).into()
        })
    }

    fn tls(at: &StoreArgs) -> Result<Option<EtcdTls>> {
        let own = match (at.etcd_certificate.as_deref(), at.etcd_key.as_deref()) {
            (Some(certificate), Some(key)) => Some((certificate, key)),
            (None, None) => None,
            _ => {
                let problem = Problem::new("a certificate and its private key go together");
                let help = "name both: --etcd-certificate PATH --etcd-key PATH";
                return Err(problem.help(help).into());
            }
        };
        let Some(authority) = &at.etcd_ca else {
            return match own {
                None => Ok(None),
                Some(_) => {
                    let problem = Problem::new("a client's certificate is for TLS");
                    let help = "add --etcd-ca PATH, the authority of the members' certificates";
                    Err(problem.help(help).into())
                }
            };
        };
        // For its messages: the client of etcd would not say which file is wrong.
        tls::client_config(authority, own)?;
        let identity = match own {
            Some((certificate, key)) => Some((read(certificate)?, read(key)?)),
            None => None,
        };
        Ok(Some(EtcdTls {
            authority: read(authority)?,
            identity,
        }))
    }

    fn read(path: &Path) -> Result<Vec<u8>> {
        fs::read(path).map_err(|error| {
            let problem = Problem::new(error.to_string());
            problem.at(path.display().to_string()).into()
        })
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn a_password_stays_on_the_host_without_tls() {
            let check = |url: &str, tls, user| check_urls(&[url.to_owned()], tls, user);
            for good in [
                "http://127.0.0.1:2379",
                "http://[::1]:1",
                "http://localhost:2379",
            ] {
                check(good, false, true).expect(good);
            }
            check("http://10.0.0.1:2379", false, false).expect("no password");
            check("https://10.0.0.1:2379", true, true).expect("TLS");
            let message = check("http://10.0.0.1:2379", false, true).expect_err("in the clear");
            assert!(message.to_string().contains("could be read"), "{message}");
            check("https://10.0.0.1:2379", false, false).expect_err("no authority");
            check("http://10.0.0.1:2379", true, false).expect_err("an authority for nothing");
        }
    }
}
