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
    use std::path::Path;

    use anyhow::Result;
    use tidegate_cluster::store::{EtcdOptions, EtcdStore, EtcdTls, EtcdUser};
    use tidegate_server::config::{AccessOption, EtcdAccess};
    use tidegate_server::tls;

    use super::super::errors::problem;
    use crate::args::StoreArgs;
    use crate::problem::Problem;

    /// Variable with the password of the user.
    const PASSWORD: &str = "TIDEGATE_ETCD_PASSWORD";

    /// Creates the store in etcd that the options name.
    pub(in crate::commands) fn open(at: &StoreArgs) -> Result<EtcdStore> {
        let access = at.etcd.clone().unwrap_or_default();
        let name = |option| match option {
            AccessOption::Endpoints => "--etcd",
            AccessOption::Authority => "--etcd-ca PATH",
            AccessOption::Certificate => "--etcd-certificate PATH",
            AccessOption::Key => "--etcd-key PATH",
        };
        access.check(name).map_err(|error| {
            let option = name(error.option).trim_end_matches(" PATH");
            Problem::new(error.what).at(option).help(error.help)
        })?;
        EtcdStore::new(&options(&access)?).map_err(problem)
    }

    /// Reads the files that the options name, which fit each other.
    pub(in crate::commands) fn options(access: &EtcdAccess) -> Result<EtcdOptions> {
        let user = match &access.user {
            Some(name) => Some(EtcdUser {
                name: name.clone(),
                password: password(access)?,
            }),
            None => None,
        };
        Ok(EtcdOptions {
            endpoints: access.endpoints.clone(),
            prefix: access.prefix.clone(),
            user,
            tls: read_tls(access)?,
            call_timeout: EtcdOptions::CALL_TIMEOUT,
        })
    }

    fn password(access: &EtcdAccess) -> Result<String> {
        if let Some(path) = &access.password_file {
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

    fn read_tls(access: &EtcdAccess) -> Result<Option<EtcdTls>> {
        let own = access.certificate.as_deref().zip(access.key.as_deref());
        let Some(authority) = &access.authority else {
            return Ok(None);
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
}
