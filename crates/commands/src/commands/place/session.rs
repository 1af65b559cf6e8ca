//! Sessions on a cluster whose state is in a store.

use std::collections::BTreeSet;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::Result;
use tidegate_cluster::store::ClusterStore;
use tidegate_cluster::{
    Cluster, ClusterEvent, ClusterState, DaemonSelection, HostError, HostList, Session,
};
use tidegate_core::time::Nanos;

use super::daemons::Sockets;
use super::errors::problem;
use super::events;
use super::stores;
use crate::args::StoreArgs;
use crate::output::tell;
use crate::problem::Problem;

/// Time limit for repeating a session that lost a race with another writer.
pub(super) const RETRY_LIMIT: Duration = Duration::from_secs(30);
/// Longest wait before the first of these runs; it doubles up to [`LONGEST_PAUSE`].
pub(super) const FIRST_PAUSE: Duration = Duration::from_millis(10);
/// Longest wait between two runs.
pub(super) const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// Opens the cluster in a store, which is created if missing, replaces its hosts by `hosts` if
/// given, and calls `act`. Fails if there are no hosts.
pub(super) fn with_hosts<T>(
    at: &StoreArgs,
    hosts: Option<HostList>,
    read_only: bool,
    mut act: impl FnMut(&mut Cluster<'_>) -> Result<T>,
) -> Result<T> {
    let replace = |state: &mut ClusterState| match &hosts {
        Some(hosts) => state.replace_hosts(hosts.clone()),
        None => Ok(()),
    };
    with_cluster(at, read_only, DaemonSelection::All, replace, |cluster| {
        if cluster.state().hosts.is_empty() {
            let problem = Problem::new("there are no hosts yet").at(at.place());
            let help = "define them in a file, given once: --hosts place.toml (`tidegate place job \
                        --help` shows one); or add them with `tidegate place host add`";
            return Err(problem.help(help).into());
        }
        act(cluster)
    })
}

/// Opens the cluster in a store, applies `change` to its state, and calls `act`. A file is created
/// if missing, unless `read_only`. There may be no hosts.
///
/// Both functions are called again, on the state as it is then, if another writer was faster. So
/// `act` must print nothing before [`Cluster::save`].
pub(in crate::commands) fn with_cluster<T>(
    at: &StoreArgs,
    read_only: bool,
    ask: DaemonSelection<'_>,
    change: impl Fn(&mut ClusterState) -> Result<(), HostError>,
    mut act: impl FnMut(&mut Cluster<'_>) -> Result<T>,
) -> Result<T> {
    let store = stores::open(at, read_only)?;
    let end = Instant::now() + RETRY_LIMIT;
    let mut pause = FIRST_PAUSE;
    // Hosts whose daemons are away, which is said once.
    let mut away = BTreeSet::new();
    loop {
        let mut notify = |event| {
            let is_news = match &event {
                ClusterEvent::DrainedDaemonUnreachable { host }
                | ClusterEvent::DaemonNotReached { host, .. } => away.insert(host.clone()),
                _ => true,
            };
            if is_news {
                tell(events::text(&event));
            }
        };
        let session = session(&*store, &mut notify, ask, read_only);
        let mut cluster = Cluster::open(session, &change).map_err(problem)?;
        let done = act(&mut cluster);
        if !cluster.lost_race() || Instant::now() >= end {
            return done;
        }
        std::thread::sleep(jittered(pause));
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Opens the cluster in a store for reading, without asking daemons, and calls `act`.
pub(in crate::commands) fn read<T>(
    store: &dyn ClusterStore,
    act: impl FnOnce(&Cluster<'_>) -> Result<T>,
) -> Result<T> {
    let mut notify = |event| tell(events::text(&event));
    let session = session(store, &mut notify, DaemonSelection::None, true);
    let unchanged = |_: &mut ClusterState| Ok::<_, HostError>(());
    act(&Cluster::open(session, unchanged).map_err(problem)?)
}

fn session<'a>(
    store: &'a dyn ClusterStore,
    notify: &'a mut dyn FnMut(ClusterEvent),
    ask: DaemonSelection<'a>,
    read_only: bool,
) -> Session<'a> {
    Session {
        store,
        daemons: &Sockets,
        notify,
        now: now(),
        ask,
        read_only,
    }
}

/// Returns a random time up to `most`, so that writers that collided do not do so again.
pub(super) fn jittered(most: Duration) -> Duration {
    // The standard library's hasher has a random key.
    let random = RandomState::new().hash_one(()) as u32;
    most.mul_f64(f64::from(random) / f64::from(u32::MAX))
}

/// Returns the time since the Unix epoch.
pub(super) fn now() -> Nanos {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    Nanos(since.map_or(0, |since| {
        u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
    }))
}
