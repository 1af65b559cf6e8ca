//! Sessions on the cluster whose state is in a file.

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Result;
use tidegate_cluster::store::{ClusterStore, MemoryStore, RedbStore};
use tidegate_cluster::{Ask, Cluster, ClusterState, HostError, HostList, Session};
use tidegate_core::time::Nanos;

use super::daemons::Sockets;
use super::notices;
use super::problems::problem;
use crate::output::tell;
use crate::problem::Problem;

/// Opens the cluster in a file, which is made if there is none, and does something with it;
/// `hosts` replace those that are there. There must be some.
pub(super) fn with_hosts<T>(
    path: &Path,
    hosts: Option<HostList>,
    just_looking: bool,
    act: impl FnOnce(&mut Cluster<'_>) -> Result<T>,
) -> Result<T> {
    let replace = |state: &mut ClusterState| match hosts {
        Some(hosts) => state.replace_hosts(hosts),
        None => Ok(()),
    };
    with(path, just_looking, Ask::All, replace, |cluster| {
        if cluster.state().hosts.is_empty() {
            let problem = Problem::new("there are no hosts yet").at(path.display().to_string());
            let help = "name a file of them once: --hosts place.toml (`tidegate place job --help` \
                        shows one); or `tidegate place host add`";
            return Err(problem.help(help).into());
        }
        act(cluster)
    })
}

/// Opens the cluster in a file after a change of its state, and does something with it. The file is
/// made if there is none, unless `just_looking`; there may be no hosts.
pub(super) fn with<T>(
    path: &Path,
    just_looking: bool,
    ask: Ask<'_>,
    change: impl FnOnce(&mut ClusterState) -> Result<(), HostError>,
    act: impl FnOnce(&mut Cluster<'_>) -> Result<T>,
) -> Result<T> {
    let store: Box<dyn ClusterStore> = match just_looking && !path.exists() {
        true => Box::new(MemoryStore::default()),
        false => Box::new(RedbStore::open(path).map_err(problem)?),
    };
    let session = Session {
        store: &*store,
        daemons: &Sockets,
        notify: &mut |notice| tell(notices::text(&notice)),
        now: now(),
        ask,
        just_looking,
    };
    act(&mut Cluster::open(session, change).map_err(problem)?)
}

/// Time since the beginning of 1970.
fn now() -> Nanos {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    Nanos(since.map_or(0, |since| {
        u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
    }))
}
