//! Sessions on a cluster whose state is in a file.

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Result;
use tidegate_cluster::store::{ClusterStore, MemoryStore, RedbStore};
use tidegate_cluster::{Cluster, ClusterState, DaemonSelection, HostError, HostList, Session};
use tidegate_core::time::Nanos;

use super::daemons::Sockets;
use super::errors::problem;
use super::events;
use crate::output::tell;
use crate::problem::Problem;

/// Opens the cluster in a file, which is created if missing, replaces its hosts by `hosts` if
/// given, and calls `act`. Fails if there are no hosts.
pub(super) fn with_hosts<T>(
    path: &Path,
    hosts: Option<HostList>,
    read_only: bool,
    act: impl FnOnce(&mut Cluster<'_>) -> Result<T>,
) -> Result<T> {
    let replace = |state: &mut ClusterState| match hosts {
        Some(hosts) => state.replace_hosts(hosts),
        None => Ok(()),
    };
    with_cluster(path, read_only, DaemonSelection::All, replace, |cluster| {
        if cluster.state().hosts.is_empty() {
            let problem = Problem::new("there are no hosts yet").at(path.display().to_string());
            let help = "define them in a file, given once: --hosts place.toml (`tidegate place job \
                        --help` shows one); or add them with `tidegate place host add`";
            return Err(problem.help(help).into());
        }
        act(cluster)
    })
}

/// Opens the cluster in a file, applies `change` to its state, and calls `act`. The file is created
/// if missing, unless `read_only`. There may be no hosts.
pub(super) fn with_cluster<T>(
    path: &Path,
    read_only: bool,
    ask: DaemonSelection<'_>,
    change: impl FnOnce(&mut ClusterState) -> Result<(), HostError>,
    act: impl FnOnce(&mut Cluster<'_>) -> Result<T>,
) -> Result<T> {
    let store: Box<dyn ClusterStore> = if read_only && !path.exists() {
        Box::new(MemoryStore::default())
    } else {
        Box::new(RedbStore::open(path).map_err(problem)?)
    };
    let session = Session {
        store: &*store,
        daemons: &Sockets,
        notify: &mut |event| tell(events::text(&event)),
        now: now(),
        ask,
        read_only,
    };
    act(&mut Cluster::open(session, change).map_err(problem)?)
}

/// Returns the time since the Unix epoch.
fn now() -> Nanos {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    Nanos(since.map_or(0, |since| {
        u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
    }))
}
