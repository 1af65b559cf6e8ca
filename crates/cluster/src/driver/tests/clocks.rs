//! Placers whose clocks are wrong, and states that such a placer has left.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};

use super::*;
use crate::clock::{ClockError, PublishedClock, TimedRecord};

const NOW: Nanos = Nanos::from_secs(100_000);
const HOUR: Nanos = Nanos::from_secs(3_600);

/// Store with the clocks of two hosts, which publish them all the time.
struct Clocked<'a> {
    store: &'a MemoryStore,
    /// Time of both, in nanoseconds.
    time: AtomicU64,
}

impl ClusterStore for Clocked<'_> {
    fn load(&self, known: Revision) -> Result<Option<Snapshot>, StoreError> {
        self.store.load(known)
    }

    fn learnt(&self, host: &str) -> Result<Option<Vec<u8>>, StoreError> {
        self.store.learnt(host)
    }

    fn clocks(&self) -> Result<Vec<PublishedClock>, StoreError> {
        let time = Nanos(self.time.fetch_add(1, Ordering::Relaxed));
        let clock = |host: &str| PublishedClock {
            host: host.to_owned(),
            time,
        };
        Ok(["a", "b"].map(clock).into())
    }

    fn commit(&self, revision: Revision, changes: &[Change]) -> Result<Revision, StoreError> {
        self.store.commit(revision, changes)
    }
}

/// Store of a host, `a`, on which `x` runs and `w` waits for less than an hour.
fn fixture() -> Fixture {
    let mut fixture = Fixture::with_hosts(&["a"]);
    fixture.now = NOW;
    assert!(matches!(
        fixture.ask("x", 50_000, 1_000),
        Outcome::Placed(_)
    ));
    assert_eq!(fixture.ask("w", 50_000, 1_000), Outcome::Waiting);
    fixture
}

/// Opens a session at `now`, on the state after `change`, which may place what waits, and saves.
fn act(
    store: &dyn ClusterStore,
    now: Nanos,
    change: impl FnOnce(&mut ClusterState),
) -> (Result<(), Error>, Vec<ClusterEvent>) {
    let mut events = Vec::new();
    let mut notify = |event| events.push(event);
    let daemons = FakeDaemons::default();
    let session = Session {
        store,
        daemons: &daemons,
        notify: &mut notify,
        now,
        ask: DaemonSelection::All,
        read_only: false,
    };
    let opened = Cluster::open(session, |state| {
        change(state);
        Ok::<_, Error>(())
    });
    let mut cluster = opened.expect("opens");
    let done = cluster.retry_and_save();
    assert!(!cluster.lost_race(), "another attempt has the same clock");
    (done, events)
}

fn clock_error(done: Result<(), Error>) -> ClockError {
    match done {
        Err(Error::Clock(error)) => error,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_placer_whose_clock_is_an_hour_off_changes_nothing_and_says_why() {
    let fixture = fixture();
    let before = fixture.store.load(Revision::EMPTY).expect("reads");
    let clocked = Clocked {
        store: &fixture.store,
        time: AtomicU64::new(NOW.0),
    };
    let (done, events) = act(&clocked, NOW + HOUR, |_| {});
    let ClockError::Ahead { by, hosts } = clock_error(done) else {
        panic!("it is ahead");
    };
    assert!(by + Nanos::SECOND > HOUR, "{by}");
    assert_eq!(hosts, ["host \"a\"", "host \"b\""]);
    assert_eq!(events, [], "w is not discarded");
    // Stored times alone say that a clock is behind.
    for store in [&clocked as &dyn ClusterStore, &fixture.store] {
        let (done, events) = act(store, NOW - HOUR, |_| {});
        let ClockError::StoredAhead { ahead, .. } = clock_error(done) else {
            panic!("it is behind");
        };
        assert!(ahead <= HOUR, "{ahead}");
        assert_eq!(events, []);
    }
    let after = fixture.store.load(Revision::EMPTY).expect("reads");
    assert_eq!(after, before, "nothing is changed");
    let (done, _) = act(&clocked, NOW + Nanos::SECOND, |_| {});
    done.expect("a right clock");
}

#[test]
fn a_clock_that_is_behind_is_found_before_anything_is_stored_by_it() {
    let store = MemoryStore::default();
    let clocked = Clocked {
        store: &store,
        time: AtomicU64::new(NOW.0),
    };
    let add = |state: &mut ClusterState| {
        let host = HostRecord::new("a".to_owned(), 60 * MB, Vec::new(), 4);
        state.add_host(host).expect("new");
    };
    let (done, _) = act(&clocked, NOW - HOUR, add);
    assert!(matches!(clock_error(done), ClockError::Behind { .. }));
    assert_eq!(store.load(Revision::EMPTY).expect("reads"), None);
}

#[test]
fn a_clock_that_is_set_while_a_cluster_is_kept_is_found() {
    let fixture = fixture();
    let clocked = Clocked {
        store: &fixture.store,
        time: AtomicU64::new(NOW.0),
    };
    let (daemons, mut notify) = (FakeDaemons::default(), |_| {});
    let session = Session {
        store: &clocked,
        daemons: &daemons,
        notify: &mut notify,
        now: NOW,
        ask: DaemonSelection::All,
        read_only: false,
    };
    let mut cluster = Cluster::open(session, |_| Ok::<_, Error>(())).expect("opens");
    cluster.save().expect("a right clock");
    let mut place = |now, name: &str| {
        cluster.continue_at(now);
        cluster.request(name, request(1, 1_000), false);
        let done = cluster.save();
        cluster.refresh(NOW).expect("undone");
        done
    };
    place(NOW, "y").expect("a right clock");
    let ahead = clock_error(place(NOW + HOUR, "ahead"));
    assert!(matches!(ahead, ClockError::Ahead { .. }), "{ahead}");
    let behind = clock_error(place(NOW - HOUR, "behind"));
    assert!(matches!(behind, ClockError::StoredAhead { .. }), "{behind}");
    place(NOW, "z").expect("a right clock");
    let stored = fixture.stored();
    let names: BTreeSet<_> = stored.transfer_names().collect();
    assert_eq!(names, BTreeSet::from(["w", "x", "y", "z"]));
}

#[test]
fn a_state_that_a_wrong_clock_has_left_is_repaired_on_request() {
    let fixture = fixture();
    // Without a daemon there is no other clock, and nothing is found.
    let (done, events) = act(&fixture.store, NOW + HOUR, |_| {});
    done.expect("nothing to compare with");
    let discarded = ClusterEvent::Discarded {
        transfer: "w".to_owned(),
    };
    assert_eq!(events, [discarded]);
    let moved = || fixture.stored().running("x").expect("runs").placement.moved;
    assert_eq!(moved(), 50_000 * MB, "counted as done");
    let right = NOW + Nanos::from_secs(60);
    let (done, _) = act(&fixture.store, right, |_| {});
    let ClockError::StoredAhead { record, .. } = clock_error(done) else {
        panic!("a stored time is ahead");
    };
    assert_eq!(record, TimedRecord::Transfer("x".to_owned()));
    let mut repaired = BTreeSet::new();
    let repair = |state: &mut ClusterState| repaired = state.repair_times(right);
    let (done, _) = act(&fixture.store, right, repair);
    done.expect("no time is ahead any more");
    assert!(repaired.contains("x"), "{repaired:?}");
    assert_eq!(moved(), 0, "nothing was reported");
    let (done, _) = act(&fixture.store, right, |_| {});
    done.expect("and stays so");
}
