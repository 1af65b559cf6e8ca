//! Placers that race for the same hosts.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, ScopedJoinHandle};
use std::time::{Duration, Instant};

use tidegate_cluster::store::{ClusterStore, EtcdStore, Revision, StoreError};
use tidegate_cluster::{Cluster, ClusterEvent, DaemonSelection, Error, HostRecord, Session};
use tidegate_core::time::Nanos;
use tidegate_place::{Outcome, Request};

use super::server::{Server, is_installed};
use crate::no_daemons::NoDaemons;

const TRANSFERS: usize = 80;
const PLACERS: usize = 8;
/// Together fewer than the transfers, so that some wait.
const PER_HOST: usize = 24;
const HOSTS: [&str; 3] = ["a", "b", "c"];
/// Time in which each transfer is placed, on a machine however busy.
const LIMIT: Duration = Duration::from_secs(300);
/// Attempts to open a cluster that is kept.
const OPENINGS: usize = 20;
/// Kills of etcd while transfers are placed.
const KILLS: usize = 3;

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

/// Decides on a cluster that is kept, and brings it up to date if another one was first (`None`).
fn place_kept(cluster: &mut Cluster<'_>, name: &str) -> Option<Result<Outcome, Error>> {
    let now = Nanos::from_secs(1_000);
    cluster.continue_at(now);
    let placed = cluster.name_for(Some(name)).and_then(|name| {
        let request = Request::new(1_000, Nanos::from_secs(1_000)).expect("valid");
        let outcome = cluster.request(&name, request, false);
        cluster.save().map(|()| outcome)
    });
    let lost_race = cluster.lost_race();
    if let Err(Error::Store(_)) = placed
        && let Err(error) = cluster.refresh(now)
    {
        // What has become of the job is seen next time.
        return Some(placed.and(Err(error)));
    }
    (!lost_race).then_some(placed)
}

/// Places transfers with a new session for each, or on a cluster that is kept for all.
fn run_placer(race: &Race, store: &EtcdStore, is_kept: bool, numbers: Range<usize>) {
    if !is_kept {
        for n in numbers {
            race.place(&mut |name| place(store, name), n % TRANSFERS);
        }
        return;
    }
    let mut callbacks: Vec<_> = (0..OPENINGS).map(|_| |_: ClusterEvent| {}).collect();
    let open = |notify| {
        let session = Session {
            store,
            daemons: &NoDaemons,
            notify,
            now: Nanos::from_secs(1_000),
            ask: DaemonSelection::All,
            read_only: false,
        };
        Cluster::open(session, |_| Ok::<_, Error>(())).ok()
    };
    // etcd may be away.
    let opened = callbacks.iter_mut().find_map(|callback| open(callback));
    let mut cluster = opened.expect("etcd is back by then");
    for n in numbers {
        race.place(&mut |name| place_kept(&mut cluster, name), n % TRANSFERS);
    }
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
    /// Places a transfer, as often as it takes.
    fn place(&self, place: &mut dyn FnMut(&str) -> Option<Result<Outcome, Error>>, n: usize) {
        let mut is_unknown = false;
        let end = Instant::now() + LIMIT;
        loop {
            assert!(Instant::now() < end, "t-{n} is not placed");
            match place(&format!("t-{n}")) {
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
    if is_installed() {
        run_race(false);
    }
}

#[test]
fn racing_clusters_that_are_kept_neither_lose_a_transfer_nor_place_it_twice_nor_overfill_a_host() {
    if is_installed() {
        run_race(true);
    }
}

fn run_race(is_kept: bool) {
    let server = Server::start();
    let hosts = HOSTS.map(|name| HostRecord::new(name.to_owned(), 60_000_000, vec![], PER_HOST));
    let changes = hosts.map(tidegate_cluster::Change::PutHost);
    let store = server.store("/t/");
    store.commit(Revision::EMPTY, &changes).expect("writes");
    let race = Race::default();
    // Each name is placed by two placers, and stored by one.
    let placer = |first: usize| {
        let store = server.store("/t/");
        let numbers = first..first + 2 * TRANSFERS / PLACERS;
        run_placer(&race, &store, is_kept, numbers);
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
