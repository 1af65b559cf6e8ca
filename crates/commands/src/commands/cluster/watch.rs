//! `tidegate cluster status --watch`: a new table on each change in etcd.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Result;
use tidegate_cluster::store::{
    ClusterStore, EtcdStore, Revision, Snapshot, StoreError, WatchEvent,
};
use tidegate_cluster::{Change, HostRecord};

use super::super::place::errors::problem;
use super::super::place::{session, stores};
use super::status::Status;
use crate::args::StoreArgs;
use crate::output::{Output, tell};

/// Time after which the watch is asked again; news come at once.
const WAIT: Duration = Duration::from_secs(60);

/// State that a watch has brought, as a store that is only read.
struct Watched<'a> {
    snapshot: Snapshot,
    store: &'a EtcdStore,
}

impl ClusterStore for Watched<'_> {
    fn load(&self, known: Revision) -> Result<Option<Snapshot>, StoreError> {
        let snapshot = Some(self.snapshot.clone());
        Ok(snapshot.filter(|snapshot| snapshot.revision != known))
    }

    fn learnt(&self, host: &str) -> Result<Option<Vec<u8>>, StoreError> {
        match self.store.learnt(host) {
            // The watch says so; until then the figures are those of the declared bandwidths.
            Err(StoreError::Unavailable { .. }) => Ok(None),
            learnt => learnt,
        }
    }

    fn learnt_by_all(&self, hosts: &[HostRecord]) -> Result<BTreeMap<String, Vec<u8>>, StoreError> {
        match self.store.learnt_by_all(hosts) {
            Err(StoreError::Unavailable { .. }) => Ok(BTreeMap::new()),
            learnt => learnt,
        }
    }

    fn commit(&self, _: Revision, _: &[Change]) -> Result<Revision, StoreError> {
        let present = self.snapshot.revision;
        Err(StoreError::Conflict { present })
    }
}

/// Prints the status whenever it changes, until the process is ended or the cluster cannot be read.
pub(super) fn run(at: &StoreArgs, out: Output) -> Result<()> {
    let store = stores::etcd::open(at)?;
    let mut watch = store.watch();
    loop {
        match watch.next(WAIT).map_err(problem)? {
            None => {}
            Some(WatchEvent::State(snapshot)) => print(&store, *snapshot, at, out)?,
            Some(WatchEvent::Away(why)) => tell(format_args!(
                "{why}; running VMs and jobs keep their objectives, new jobs have to wait"
            )),
            Some(WatchEvent::Back) => tell("etcd answers again"),
        }
    }
}

fn print(store: &EtcdStore, snapshot: Snapshot, at: &StoreArgs, out: Output) -> Result<()> {
    let watched = Watched { snapshot, store };
    let status = session::read(&watched, |cluster| Ok(Status::new(cluster, at)))?;
    if out.is_json() {
        return out.json_line(&status);
    }
    Ok(out.text(&(status.text(out) + "\n"))?)
}
