//! Driver with an in-memory store and simulated daemons.

mod clocks;
mod elsewhere;
mod keep;
mod starts;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Mutex;

use tidegate_api::cluster::PlacementClaim;
use tidegate_core::transfers::Class;
use tidegate_place::{Combination, Outcome};

use super::progress::SHORTEST_INTERVAL;
use super::*;
use crate::cluster_event::Started;
use crate::daemons::{DaemonError, LiveTransfer, ServedVm, VmTransfer};
use crate::membership::{Membership, RegisteredDaemon};
use crate::record::HostRecord;
use crate::store::{MemoryStore, StoreError};

const MB: u64 = 1_000_000;

/// Daemons that all answer alike, with the transfers they were asked to start.
#[derive(Default)]
struct FakeDaemons {
    transfers: Vec<VmTransfer>,
    vms: Vec<ServedVm>,
    unreachable: bool,
    refuses_starts: bool,
    /// Reason why starts are not answered, although they may be carried out.
    leaves_starts: Option<&'static str>,
    started: RefCell<Vec<(String, u64)>>,
    /// Placements that daemons were asked to check.
    claims: RefCell<Vec<PlacementClaim>>,
}

impl FakeDaemons {
    fn check_reachable(&self) -> Result<(), DaemonError> {
        if self.unreachable {
            Err(DaemonError::Unavailable("no daemon listens".into()))
        } else {
            Ok(())
        }
    }
}

impl Daemons for FakeDaemons {
    fn host(&self, _: &str) -> Result<Option<String>, DaemonError> {
        self.check_reachable().map(|()| None)
    }

    fn transfers(&self, _: &str) -> Result<Vec<VmTransfer>, DaemonError> {
        self.check_reachable().map(|()| self.transfers.clone())
    }

    fn vms(&self, _: &str) -> Result<Vec<ServedVm>, DaemonError> {
        self.check_reachable().map(|()| self.vms.clone())
    }

    fn start(
        &self,
        _: Option<&str>,
        vm: &str,
        request: &Request,
        placement: Option<&PlacementClaim>,
    ) -> Result<(), DaemonError> {
        self.check_reachable()?;
        if self.refuses_starts {
            return Err(DaemonError::Unavailable("the VM has a transfer".into()));
        }
        if let Some(why) = self.leaves_starts {
            return Err(DaemonError::Unanswered(why.into()));
        }
        let bytes = request.bytes();
        self.claims.borrow_mut().extend(placement.cloned());
        self.started.borrow_mut().push((vm.to_owned(), bytes));
        Ok(())
    }
}

/// Store in which another writer commits just before the first commit.
struct OtherWriter {
    store: MemoryStore,
    first: Mutex<Option<(Revision, Change)>>,
}

impl ClusterStore for OtherWriter {
    fn load(&self, known: Revision) -> Result<Option<Snapshot>, StoreError> {
        self.store.load(known)
    }

    fn learnt(&self, host: &str) -> Result<Option<Vec<u8>>, StoreError> {
        self.store.learnt(host)
    }

    fn commit(&self, revision: Revision, changes: &[Change]) -> Result<Revision, StoreError> {
        if let Some((revision, change)) = self.first.lock().expect("one thread").take() {
            self.store.commit(revision, &[change]).expect("is first");
        }
        self.store.commit(revision, changes)
    }
}

/// Store whose hosts' daemons have published memberships.
struct Published<'a> {
    store: &'a MemoryStore,
    memberships: BTreeMap<String, Membership>,
}

impl Published<'_> {
    /// Publishes a reservation of a host in bytes per second, whose daemon is there or gone.
    fn host(mut self, name: &str, reserved: u64, is_there: bool) -> Self {
        let daemon = RegisteredDaemon {
            instance: "1f".to_owned(),
            joined: Nanos::ZERO,
            version: String::new(),
            api: None,
            vms: 1,
            devices: Vec::new(),
        };
        let membership = Membership {
            reserved: [("sda".to_owned(), reserved)].into(),
            daemon: is_there.then_some(daemon),
            ..Membership::default()
        };
        self.memberships.insert(name.to_owned(), membership);
        self
    }

    /// Places a transfer that needs `rate` bytes per second; returns the name of its host.
    fn place(&self, daemons: &FakeDaemons, name: &str, rate: u64) -> Option<String> {
        let placed = self.try_place(daemons, name, rate, &mut |_| {});
        placed.expect("stored and started")
    }

    fn try_place(
        &self,
        daemons: &FakeDaemons,
        name: &str,
        rate: u64,
        notify: &mut dyn FnMut(ClusterEvent),
    ) -> Result<Option<String>, Error> {
        let session = Session {
            store: self,
            daemons,
            notify,
            now: Nanos::from_secs(2_000),
            ask: DaemonSelection::None,
            read_only: false,
        };
        let mut cluster = Cluster::open(session, |_| Ok::<_, Error>(())).expect("opens");
        let request = Request::new(100 * rate, Nanos::from_secs(100)).expect("valid");
        let outcome = cluster.request(name, request, true);
        cluster.save()?;
        Ok(match outcome {
            Outcome::Placed(placement) => Some(cluster.state.hosts[placement.host.0].name.clone()),
            _ => None,
        })
    }
}

impl ClusterStore for Published<'_> {
    fn load(&self, known: Revision) -> Result<Option<Snapshot>, StoreError> {
        let mut loaded = self.store.load(known)?;
        if let Some(snapshot) = &mut loaded {
            snapshot.state.memberships = self.memberships.clone();
        }
        Ok(loaded)
    }

    fn learnt(&self, host: &str) -> Result<Option<Vec<u8>>, StoreError> {
        self.store.learnt(host)
    }

    fn commit(&self, revision: Revision, changes: &[Change]) -> Result<Revision, StoreError> {
        self.store.commit(revision, changes)
    }
}

/// Store, daemons, time, and the events so far.
#[derive(Default)]
struct Fixture {
    store: MemoryStore,
    daemons: FakeDaemons,
    now: Nanos,
    read_only: bool,
    events: Vec<ClusterEvent>,
}

impl Fixture {
    /// Fixture whose store has the given hosts, of 60 MB/s each.
    fn with_hosts(names: &[&str]) -> Fixture {
        let mut fixture = Fixture {
            now: Nanos::from_secs(1_000),
            ..Fixture::default()
        };
        fixture.session(|cluster| {
            for name in names {
                let host = HostRecord::new((*name).to_owned(), 60 * MB, Vec::new(), 4);
                cluster.state.add_host(host).expect("new");
            }
            cluster.save().expect("writes");
        });
        fixture
    }

    /// Runs one session and collects its events, also if it fails to open.
    fn try_session<T>(&mut self, act: impl FnOnce(&mut Cluster<'_>) -> T) -> Result<T, Error> {
        let mut events = Vec::new();
        let mut notify = |event| events.push(event);
        let session = Session {
            store: &self.store,
            daemons: &self.daemons,
            notify: &mut notify,
            now: self.now,
            ask: DaemonSelection::All,
            read_only: self.read_only,
        };
        let opened = Cluster::open(session, |_| Ok::<_, Error>(()));
        let done = opened.map(|mut cluster| act(&mut cluster));
        self.events.append(&mut events);
        done
    }

    fn session<T>(&mut self, act: impl FnOnce(&mut Cluster<'_>) -> T) -> T {
        self.try_session(act).expect("opens")
    }

    fn stored(&self) -> ClusterState {
        let stored = self.store.load(Revision::EMPTY).expect("reads");
        stored.expect("not empty").state
    }

    fn ask(&mut self, name: &str, mb: u64, seconds: u64) -> Outcome {
        self.session(|cluster| {
            let request = request(mb, seconds);
            let outcome = cluster.request(name, request, false);
            cluster.save().expect("writes");
            outcome
        })
    }

    /// Reports moved megabytes `seconds` later; returns true if their rates were recorded.
    fn report_moved(&mut self, seconds: u64, all: &[(&str, u64)]) -> bool {
        self.now += Nanos::from_secs(seconds);
        let all: Vec<_> = (all.iter())
            .map(|(name, mb)| ((*name).to_owned(), mb * MB))
            .collect();
        self.session(|cluster| {
            let is_recorded = cluster.apply_reports(HostId(0), &all);
            if is_recorded {
                cluster.learnt.push(HostId(0));
            }
            cluster.save().expect("writes");
            is_recorded
        })
    }
}

fn request(mb: u64, seconds: u64) -> Request {
    Request::new(mb * MB, Nanos::from_secs(seconds)).expect("valid")
}

fn best_effort(cluster: &Cluster<'_>, n: usize) -> u64 {
    let database = cluster.database(HostId(0)).expect("there");
    let classes = Combination::from_classes(vec![Class::BestEffort; n]);
    database.rates(&classes).for_class(Class::BestEffort)
}

#[test]
fn rates_are_recorded_if_all_transfers_were_reported_and_nothing_has_changed() {
    let mut fixture = Fixture::with_hosts(&["a"]);
    fixture.ask("x", 6_000, 1_000);
    assert!(fixture.report_moved(10, &[("x", 500)]), "50 MB/s alone");
    fixture.ask("y", 6_000, 1_000);
    // A report of one of two transfers is not recorded.
    assert!(!fixture.report_moved(10, &[("x", 700)]));
    // Reports of both, but over different intervals.
    assert!(!fixture.report_moved(10, &[("x", 900), ("y", 400)]));
    assert!(fixture.report_moved(10, &[("x", 1_100), ("y", 800)]));
    fixture.now += Nanos(SHORTEST_INTERVAL.0 - 1);
    assert!(
        !fixture.report_moved(0, &[("x", 1_100), ("y", 800)]),
        "too short"
    );
    let rates = fixture.session(|cluster| [1, 2].map(|n| best_effort(cluster, n)));
    assert_eq!(rates, [50 * MB, 30 * MB], "the mean of 20 and 40 MB/s");
}

#[test]
fn rates_far_above_the_hosts_bandwidth_are_not_recorded() {
    let mut fixture = Fixture::with_hosts(&["a"]);
    fixture.ask("x", 6_000, 1_000);
    let before = fixture.session(|cluster| best_effort(cluster, 1));
    // 5 GB within a second of a disk with 60 MB/s.
    assert!(!fixture.report_moved(1, &[("x", 5_000)]));
    assert_eq!(fixture.session(|cluster| best_effort(cluster, 1)), before);
    assert!(fixture.report_moved(10, &[("x", 5_400)]), "40 MB/s");
}

#[test]
fn a_transfer_at_its_limit_is_not_recorded_for_its_class() {
    let mut fixture = Fixture::with_hosts(&["a"]);
    fixture.ask("x", 6_000, 1_000);
    fixture.ask("y", 6_000, 1_000);
    fixture.session(|cluster| {
        cluster.state.running[0].transfer.limit = Some(10 * MB);
        cluster.save().expect("writes");
    });
    // In 10 s, x moved 9.6 MB/s, 96 % of its limit, and y 48 MB/s: 57.6 MB/s together. Half of that
    // is what the class would have without the limit, 28.8 MB/s.
    assert!(fixture.report_moved(10, &[("x", 96), ("y", 480)]));
    fixture.session(|cluster| {
        assert_eq!(best_effort(cluster, 2), 28_800_000);
        let view = cluster.pcos().host(HostId(0)).expect("there");
        let rates: Vec<_> = view
            .running()
            .iter()
            .map(|transfer| view.rate(transfer))
            .collect();
        // x has its limit, and y the rest of 57.6 MB/s.
        assert_eq!(rates, [10 * MB, 57_600_000 - 10 * MB]);
    });
}

#[test]
fn a_lowered_transfer_is_restored_when_the_protected_one_ends() {
    let mut fixture = Fixture::with_hosts(&["a"]);
    fixture.ask("x", 600, 1_000);
    fixture.session(|cluster| {
        // Beside an idle transfer one has 50 MB/s, the idle one 10.
        let beside_idle = [(Class::BestEffort, 50 * MB), (Class::Idle, 10 * MB)];
        let both = [(Class::BestEffort, 30 * MB); 2];
        for had in [&beside_idle, &both] {
            let update = Update {
                measured: had,
                ..Update::default()
            };
            cluster.pcos.update(cluster.session.now, HostId(0), &update);
        }
        cluster.learnt.push(HostId(0));
        cluster.save().expect("writes");
    });
    fixture.ask("y", 4_500, 100);
    fixture.session(|cluster| {
        let entitlement = &cluster.state().running[0].entitlement;
        assert_eq!(entitlement.class, Class::Idle);
        assert_eq!(entitlement.lowered_for, ["y"]);
    });
    fixture.now += Nanos::from_secs(5);
    fixture.session(|cluster| cluster.end("y").expect("it runs"));
    fixture.session(|cluster| {
        assert_eq!(cluster.state().running.len(), 1);
        let entitlement = &cluster.state().running[0].entitlement;
        assert_eq!(entitlement.class, Class::BestEffort);
        let view = cluster.pcos().host(HostId(0)).expect("there");
        assert_eq!(view.running()[0].vm.class, Class::BestEffort);
    });
}

#[test]
fn the_later_of_two_writers_gets_a_conflict() {
    let Fixture { store, now, .. } = Fixture::with_hosts(&["a"]);
    let daemons = FakeDaemons::default();
    let (mut notify, mut notify_second) = (|_| {}, |_| {});
    let open = |notify| {
        let session = Session {
            store: &store,
            daemons: &daemons,
            notify,
            now,
            ask: DaemonSelection::All,
            read_only: false,
        };
        Cluster::open(session, |_| Ok::<_, Error>(())).expect("opens")
    };
    let mut first = open(&mut notify);
    let mut second = open(&mut notify_second);
    first.request("x", request(60, 10), false);
    second.request("y", request(60, 10), false);
    second.save().expect("is first");
    let refused = first.save().expect_err("was too late");
    let Error::Store(StoreError::Conflict { present }) = refused else {
        panic!("{refused}");
    };
    assert_eq!(present, second.stored.revision);
    assert!(first.lost_race() && !second.lost_race());
    let stored = store.load(Revision::EMPTY).expect("reads").expect("there");
    let names: Vec<_> = stored.state.transfer_names().collect();
    assert_eq!(names, ["y"]);
    // A session may save more than once.
    second.end("y").expect("it runs");
}

#[test]
fn a_read_only_session_stores_and_starts_nothing() {
    let mut fixture = Fixture::with_hosts(&["a"]);
    fixture.read_only = true;
    fixture.session(|cluster| {
        let outcome = cluster.request("x", request(60, 10), true);
        assert!(matches!(outcome, Outcome::Placed(_)));
        assert_eq!(cluster.state().running.len(), 1);
        cluster.save().expect("stores nothing");
    });
    assert!(fixture.daemons.started.borrow().is_empty());
    assert_eq!(fixture.session(|cluster| cluster.state().running.len()), 0);
}

/// Fixture whose host `a` has a daemon that serves the VM `x`.
fn with_daemon() -> Fixture {
    let mut fixture = Fixture::with_hosts(&["a"]);
    fixture.session(|cluster| {
        cluster.state.hosts[0].socket = Some("a.sock".to_owned());
        cluster.save().expect("writes");
    });
    fixture.daemons.vms = vec![ServedVm {
        vm: "x".to_owned(),
        device: "sdb".to_owned(),
    }];
    fixture
}

#[test]
fn a_transfer_is_started_on_its_vms_host_also_after_a_wait() {
    let mut fixture = with_daemon();
    fixture.session(|cluster| {
        let refused = cluster.only_where_served("absent").expect_err("no such VM");
        let Error::NotServed { with_daemon, .. } = refused else {
            panic!("{refused}");
        };
        assert_eq!(with_daemon, ["a"]);
    });
    fixture.session(|cluster| {
        cluster.only_where_served("x").expect("served");
        // The first transfer needs all of the host's bandwidth: a second one waits.
        cluster.request("x", request(600, 10), true);
        let outcome = cluster.request("y", request(600, 30), true);
        assert_eq!(outcome, Outcome::Waiting);
        cluster.save().expect("writes");
    });
    fixture.session(|cluster| cluster.end("x").expect("it runs"));
    let started = fixture.daemons.started.borrow().clone();
    assert_eq!(
        started,
        [("x".to_owned(), 600 * MB), ("y".to_owned(), 600 * MB)]
    );
    let [
        ClusterEvent::Placed {
            transfer, started, ..
        },
    ] = fixture.events.as_slice()
    else {
        panic!("{:?}", fixture.events);
    };
    assert_eq!((transfer.as_str(), started), ("y", &Started::Yes));
}

#[test]
fn a_transfer_that_its_daemon_does_not_start_is_removed_again() {
    let mut fixture = with_daemon();
    fixture.daemons.refuses_starts = true;
    fixture.session(|cluster| {
        cluster.request("x", request(600, 10), true);
        let refused = cluster.save().expect_err("the daemon refuses");
        assert!(matches!(refused, Error::Daemon(_)), "{refused}");
        assert!(!cluster.lost_race());
    });
    let stored = fixture.stored();
    assert!(stored.running.is_empty() && stored.waiting.is_empty());
    assert_eq!(fixture.events, []);
}

#[test]
fn a_session_that_lost_a_race_starts_and_reports_nothing() {
    let mut fixture = with_daemon();
    fixture.session(|cluster| {
        cluster.request("w", request(600, 10), false);
        cluster.request("x", request(600, 30), true);
        cluster.save().expect("writes");
    });
    let other = Change::PutTransfer(Transfer::new("z", &request(1, 1), fixture.now));
    let present = fixture
        .store
        .load(Revision::EMPTY)
        .expect("reads")
        .expect("there");
    let store = std::mem::take(&mut fixture.store);
    let store = OtherWriter {
        store,
        first: Mutex::new(Some((present.revision, other))),
    };
    let events = RefCell::new(Vec::new());
    let push = |event| events.borrow_mut().push(event);
    let end_w = |notify| {
        let session = Session {
            store: &store,
            daemons: &fixture.daemons,
            notify,
            now: fixture.now,
            ask: DaemonSelection::All,
            read_only: false,
        };
        let mut cluster = Cluster::open(session, |_| Ok::<_, Error>(())).expect("opens");
        let done = cluster.end("w");
        (done, cluster.lost_race())
    };
    // x would take the place of w, and be started.
    let (mut first, mut second) = (push, push);
    let (refused, lost_race) = end_w(&mut first);
    refused.expect_err("the other writer is first");
    assert!(lost_race && events.borrow().is_empty());
    assert!(fixture.daemons.started.borrow().is_empty());
    let (done, lost_race) = end_w(&mut second);
    done.expect("nobody is faster");
    assert!(!lost_race);
    assert_eq!(
        *fixture.daemons.started.borrow(),
        [("x".to_owned(), 600 * MB)]
    );
    let of_x = |event: &&ClusterEvent| match event {
        ClusterEvent::Placed { transfer, .. } => transfer == "x",
        _ => false,
    };
    assert_eq!(events.borrow().iter().filter(of_x).count(), 1);
}

#[test]
fn a_commit_writes_only_the_hosts_that_it_changes() {
    let mut fixture = Fixture::with_hosts(&["a", "b"]);
    fixture.ask("x", 6_000, 1_000);
    fixture.ask("y", 6_000, 1_000);
    let before = fixture.stored();
    assert_eq!(before.running[1].placement.host, "b");
    fixture.now += Nanos::from_secs(10);
    fixture.session(|cluster| cluster.end("y").expect("it runs"));
    assert_eq!(fixture.stored().running[0], before.running[0]);
    // A change on its own host does store its progress: 60 MB/s for 20 s.
    fixture.now += Nanos::from_secs(10);
    fixture.ask("v", 30_000, 1_000);
    fixture.ask("z", 1, 1_000);
    let stored = fixture.stored();
    let x = stored.running("x").expect("it runs");
    assert_eq!(
        (x.placement.moved, x.placement.as_of),
        (1_200 * MB, fixture.now)
    );
    // So does its end by the estimate.
    fixture.session(|cluster| cluster.end("v").expect("it runs"));
    fixture.session(|cluster| cluster.end("z").expect("it runs"));
    fixture.now += Nanos::from_secs(100);
    fixture.session(|cluster| cluster.save().expect("writes"));
    assert_eq!(fixture.stored().running[0].placement.moved, 6_000 * MB);
}

#[test]
fn live_transfers_of_a_daemon_count_but_are_not_stored() {
    let mut fixture = with_daemon();
    fixture.daemons.transfers = vec![VmTransfer {
        vm: "dss".to_owned(),
        device: "sdb".to_owned(),
        transfer: Some(LiveTransfer {
            bytes: 600 * MB,
            moved: 0,
            due_in_s: 20.0,
            class: Class::BestEffort,
            bytes_per_s: Some(40 * MB),
        }),
    }];
    fixture.session(|cluster| {
        assert_eq!(best_effort(cluster, 1), 40 * MB, "learnt");
        let refused = cluster.end("a/dss").expect_err("the daemon's");
        assert!(matches!(refused, Error::DaemonOwns { socket, .. } if socket == "a.sock"));
        cluster.save().expect("writes");
    });
    let stored = fixture
        .store
        .load(Revision::EMPTY)
        .expect("reads")
        .expect("there");
    assert_eq!(stored.state.running, []);
    assert_eq!(stored.state.hosts[0].rates_recorded_at, fixture.now);
    assert!(fixture.store.learnt("a").expect("reads").is_some());
}

#[test]
fn an_unreachable_daemon_is_an_error_unless_its_host_is_drained() {
    let mut fixture = with_daemon();
    fixture.daemons.unreachable = true;
    assert!(matches!(fixture.try_session(|_| {}), Err(Error::Daemon(_))));
    let unreachable = |host: &str| ClusterEvent::DaemonUnreachable {
        host: host.to_owned(),
    };
    assert_eq!(std::mem::take(&mut fixture.events), [unreachable("a")]);
    fixture.daemons.unreachable = false;
    fixture.session(|cluster| {
        cluster.state.set_drained("a", true).expect("known");
        cluster.save().expect("writes");
    });
    fixture.daemons.unreachable = true;
    fixture.session(|_| {});
    let host = "a".to_owned();
    assert_eq!(
        fixture.events,
        [ClusterEvent::DrainedDaemonUnreachable { host }]
    );
}

#[test]
fn transfers_of_a_removed_host_are_placed_elsewhere_with_their_remaining_bytes() {
    let mut fixture = Fixture::with_hosts(&["a", "b"]);
    fixture.ask("x", 600, 100);
    fixture.now += Nanos::from_secs(2);
    fixture.session(|cluster| cluster.remove_host("a", true).expect("known"));
    let moved = ClusterEvent::Moved {
        transfer: "x".to_owned(),
        host: "b".to_owned(),
        left: 480 * MB,
        class: Class::BestEffort,
    };
    assert_eq!(fixture.events, [moved]);
    fixture.session(|cluster| {
        let x = cluster.state().running("x").expect("it runs");
        let (left, deadline) = (x.transfer.bytes, x.transfer.deadline);
        assert_eq!((left, deadline), (480 * MB, Nanos::from_secs(98)));
        assert!(cluster.state().host("a").is_none());
    });
    fixture.events.clear();
    fixture.session(|cluster| cluster.remove_host("b", true).expect("known"));
    let (transfer, left) = ("x".to_owned(), 480 * MB);
    assert_eq!(fixture.events, [ClusterEvent::Unplaced { transfer, left }]);
}

#[test]
fn reservations_of_vms_are_taken_off_a_host_and_a_lost_host_gets_nothing() {
    let fixture = Fixture::with_hosts(&["a", "b"]);
    let daemons = FakeDaemons::default();
    let published = |memberships| Published {
        store: &fixture.store,
        memberships,
    };
    // Of 60 MB/s each; the first has most left.
    let cluster = published(BTreeMap::new()).host("a", 10 * MB, true);
    let cluster = cluster.host("b", 40 * MB, true);
    assert_eq!(cluster.place(&daemons, "x", 30 * MB).as_deref(), Some("a"));
    let claim = PlacementClaim {
        host: "a".to_owned(),
        begun_ns: 2_000 * Nanos::SECOND.0,
        reserved_bytes_per_s: 10 * MB,
        device: None,
    };
    assert_eq!(daemons.claims.borrow().as_slice(), [claim]);
    // Neither has 30 MB/s left, also if they were measured without the VMs.
    assert_eq!(cluster.place(&daemons, "y", 30 * MB), None);
    let lost = published(BTreeMap::new()).host("b", 0, false);
    assert_eq!(lost.place(&daemons, "z", 50 * MB), None);
    let back = published(BTreeMap::new()).host("b", 0, true);
    assert_eq!(back.place(&daemons, "w", 50 * MB).as_deref(), Some("b"));
    // A host whose daemon has never joined is what the operator declares.
    let declared = published(BTreeMap::new());
    assert_eq!(declared.place(&daemons, "v", 5 * MB).as_deref(), Some("a"));
    assert_eq!(daemons.claims.borrow().len(), 2);
}

#[test]
fn a_host_whose_vms_reserve_everything_takes_nothing() {
    let fixture = Fixture::with_hosts(&["a"]);
    let daemons = FakeDaemons::default();
    let full = Published {
        store: &fixture.store,
        memberships: BTreeMap::new(),
    };
    let full = full.host("a", 60 * MB, true);
    assert_eq!(full.place(&daemons, "x", 1), None);
    assert!(daemons.started.borrow().is_empty());
}
