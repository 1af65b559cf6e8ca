//! Placers that race for the same hosts.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, ScopedJoinHandle};
use std::time::{Duration, Instant};

use tidegate_api::cluster::PlacementClaim;
use tidegate_cluster::store::{ClusterStore, EtcdStore, Revision, StoreError};
use tidegate_cluster::{
    Cluster, DaemonError, DaemonSelection, Daemons, Error, HostRecord, ServedVm, Session,
    VmTransfer,
};
use tidegate_core::time::Nanos;
use tidegate_place::{Outcome, Request};

use super::server::{Server, is_installed};

const TRANSFERS: usize = 80;
const PLACERS: usize = 8;
/// Together fewer than the transfers, so that some wait.
const PER_HOST: usize = 24;
const HOSTS: [&str; 3] = ["a", "b", "c"];
/// Time in which each transfer is placed, on a machine however busy.
const LIMIT: Duration = Duration::from_secs(300);
/// Kills of etcd while transfers are placed.
const KILLS: usize = 3;

/// Daemons of hosts that have none.
struct NoDaemons;

impl Daemons for NoDaemons {
    fn transfers(&self, _: &str) -> Result<Vec<VmTransfer>, DaemonError> {
        Ok(Vec::new())
    }

    fn vms(&self, _: &str) -> Result<Vec<ServedVm>, DaemonError> {
        Ok(Vec::new())
    }

    fn start(
        &self,
        _: &str,
        _: &str,
        _: &Request,
        _: Option<&PlacementClaim>,
    ) -> Result<(), DaemonError> {
        Ok(())
    }
}

/// Runs one session as the command line does; `None`: another one was first.
fn place(store: &EtcdStore, name: &str) -> Option<Result<Outcome, Error>> {
    let session = Session {
        store,
        daemons: &NoDaemons,
        notify: &mut |_| {},
        now: Nanos::from_secs(1_000),
        ask: DaemonSelection::All,
        read_only: false,
    };
    let mut cluster = match Cluster::open(session, |_| Ok::<_, Error>(())) {
        Ok(cluster) => cluster,
        Err(error) => return Some(Err(error)),
    };
    let placed = cluster.name_for(Some(name)).and_then(|name| {
        let request = Request::new(1_000, Nanos::from_secs(1_000)).expect("valid");
        let outcome = cluster.request(&name, request, false);
        cluster.save().map(|()| outcome)
    });
    (!cluster.lost_race()).then_some(placed)
}

/// Record of what all placers of a race have done.
#[derive(Default)]
struct Race {
    /// Times that each transfer was stored, by its number.
    stored: Mutex<BTreeMap<usize, usize>>,
    /// Transfers that were stored.
    done: AtomicUsize,
    /// Sessions that another one was faster than.
    lost: AtomicUsize,
}

impl Race {
    /// Places a transfer, with as many sessions as it takes.
    fn place(&self, store: &EtcdStore, n: usize) {
        let mut is_unknown = false;
        let end = Instant::now() + LIMIT;
        loop {
            assert!(Instant::now() < end, "t-{n} is not placed");
            match place(store, &format!("t-{n}")) {
                Some(Ok(outcome)) => {
                    assert!(!matches!(outcome, Outcome::Refused(_)), "{outcome:?}");
                    *self.stored.lock().expect("no panic").entry(n).or_default() += 1;
                    self.done.fetch_add(1, Ordering::Relaxed);
                    return;
                }
                Some(Err(Error::NameTaken { .. })) => {
                    // Perhaps by the attempt whose answer was lost.
                    if is_unknown {
                        self.stored.lock().expect("no panic").entry(n).or_insert(1);
                    }
                    return;
                }
                Some(Err(Error::Store(StoreError::OutcomeUnknown(_)))) => is_unknown = true,
                Some(Err(Error::Store(StoreError::Unavailable { .. }))) => {}
                Some(Err(error)) => panic!("{error}"),
                None => drop(self.lost.fetch_add(1, Ordering::Relaxed)),
            }
        }
    }
}

#[test]
fn racing_placers_neither_lose_a_transfer_nor_place_it_twice_nor_overfill_a_host() {
    if !is_installed() {
        return;
    }
    let server = Server::start();
    let hosts = HOSTS.map(|name| HostRecord::new(name.to_owned(), 60_000_000, vec![], PER_HOST));
    let changes = hosts.map(tidegate_cluster::Change::PutHost);
    let store = server.store("/t/");
    store.commit(Revision::EMPTY, &changes).expect("writes");
    let race = Race::default();
    // Each name is placed by two placers, and stored by one.
    let placer = |first: usize| {
        let store = server.store("/t/");
        for n in first..first + 2 * TRANSFERS / PLACERS {
            race.place(&store, n % TRANSFERS);
        }
    };
    thread::scope(|scope| {
        let placers: Vec<_> = (0..PLACERS)
            .map(|number| {
                let placer = &placer;
                scope.spawn(move || placer(number * TRANSFERS / PLACERS))
            })
            .collect();
        for kill in 1..=KILLS {
            while race.done.load(Ordering::Relaxed) < kill * TRANSFERS / (KILLS + 1) {
                // A placer that has failed has said so, and the others end.
                if placers.iter().any(ScopedJoinHandle::is_finished) {
                    break;
                }
                thread::sleep(Duration::from_millis(1));
            }
            server.kill();
            server.restart();
        }
    });
    let loaded = store.load(Revision::EMPTY).expect("reads").expect("there");
    let names: BTreeSet<_> = loaded.state.transfer_names().collect();
    assert_eq!(names.len(), TRANSFERS, "all are there");
    let all = loaded.state.transfer_names().count();
    assert_eq!(all, TRANSFERS, "and none twice");
    for host in HOSTS {
        let there = loaded.state.running.iter();
        let there = there.filter(|running| running.placement.host == host);
        assert_eq!(there.count(), PER_HOST, "{host}");
    }
    let stored = race.stored.into_inner().expect("no panic");
    assert!(stored.values().all(|times| *times == 1), "{stored:?}");
    let lost = race.lost.into_inner();
    assert!(lost > 0, "placers that never race prove nothing");
}
