//! Driver with an in-memory store and simulated daemons.

use std::cell::RefCell;

use tidegate_core::transfers::Class;
use tidegate_place::{Combination, Outcome};

use super::progress::SHORTEST_INTERVAL;
use super::*;
use crate::cluster_event::Started;
use crate::daemons::{DaemonError, LiveTransfer, ServedVm, VmTransfer};
use crate::record::HostRecord;
use crate::store::{MemoryStore, StoreError};

const MB: u64 = 1_000_000;

/// Daemons that all answer alike, with the transfers they were asked to start.
#[derive(Default)]
struct Played {
    transfers: Vec<VmTransfer>,
    vms: Vec<ServedVm>,
    silent: bool,
    started: RefCell<Vec<(String, u64)>>,
}

impl Played {
    fn refused(&self) -> Result<(), DaemonError> {
        if self.silent {
            Err(DaemonError::Refused("no daemon listens".into()))
        } else {
            Ok(())
        }
    }
}

impl Daemons for Played {
    fn transfers(&self, _: &str) -> Result<Vec<VmTransfer>, DaemonError> {
        self.refused().map(|()| self.transfers.clone())
    }

    fn vms(&self, _: &str) -> Result<Vec<ServedVm>, DaemonError> {
        self.refused().map(|()| self.vms.clone())
    }

    fn start(&self, _: &str, vm: &str, request: &Request) -> Result<(), DaemonError> {
        self.refused()?;
        let bytes = request.bytes();
        self.started.borrow_mut().push((vm.to_owned(), bytes));
        Ok(())
    }
}

/// Store, daemons, time, and the events so far.
#[derive(Default)]
struct World {
    store: MemoryStore,
    daemons: Played,
    now: Nanos,
    read_only: bool,
    events: Vec<ClusterEvent>,
}

impl World {
    /// World whose store has the given hosts, of 60 MB/s each.
    fn with_hosts(names: &[&str]) -> World {
        let mut world = World {
            now: Nanos::from_secs(1_000),
            ..World::default()
        };
        world.session(|cluster| {
            for name in names {
                let host = HostRecord::new((*name).to_owned(), 60 * MB, Vec::new(), 4);
                cluster.state.add_host(host).expect("new");
            }
            cluster.save().expect("writes");
        });
        world
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
            ask: Ask::All,
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

    fn ask(&mut self, name: &str, mb: u64, seconds: u64) -> Outcome {
        self.session(|cluster| {
            let request = request(mb, seconds);
            let outcome = cluster.request(name, request, false).expect("no daemon");
            cluster.save().expect("writes");
            outcome
        })
    }

    /// Reports moved bytes `seconds` later; returns whether a database has learnt.
    fn moved(&mut self, seconds: u64, all: &[(&str, u64)]) -> bool {
        self.now += Nanos::from_secs(seconds);
        let all: Vec<_> = (all.iter())
            .map(|(name, mb)| ((*name).to_owned(), mb * MB))
            .collect();
        self.session(|cluster| {
            let learnt = cluster.apply_reports(HostId(0), &all);
            cluster.learnt.push(HostId(0));
            cluster.save().expect("writes");
            learnt
        })
    }
}

fn request(mb: u64, seconds: u64) -> Request {
    Request::new(mb * MB, Nanos::from_secs(seconds)).expect("it is one")
}

fn best_effort(cluster: &Cluster<'_>, n: usize) -> u64 {
    let database = cluster.database(HostId(0)).expect("there");
    let classes = Combination::from_classes(vec![Class::BestEffort; n]);
    database.rates(&classes).for_class(Class::BestEffort)
}

#[test]
fn an_interval_teaches_where_all_were_reported_and_nothing_has_changed() {
    let mut world = World::with_hosts(&["a"]);
    world.ask("x", 6_000, 1_000);
    assert!(world.moved(10, &[("x", 500)]), "50 MB/s alone");
    world.ask("y", 6_000, 1_000);
    // A report of one of two transfers teaches nothing.
    assert!(!world.moved(10, &[("x", 700)]));
    // Reports of both, but over different intervals.
    assert!(!world.moved(10, &[("x", 900), ("y", 400)]));
    assert!(world.moved(10, &[("x", 1_100), ("y", 800)]));
    world.now += Nanos(SHORTEST_INTERVAL.0 - 1);
    assert!(!world.moved(0, &[("x", 1_100), ("y", 800)]), "too short");
    let rates = world.session(|cluster| [1, 2].map(|n| best_effort(cluster, n)));
    assert_eq!(rates, [50 * MB, 30 * MB], "the mean of 20 and 40 MB/s");
}

#[test]
fn a_transfer_that_had_what_it_takes_says_nothing_of_what_its_class_has() {
    let mut world = World::with_hosts(&["a"]);
    world.ask("x", 6_000, 1_000);
    world.ask("y", 6_000, 1_000);
    world.session(|cluster| {
        cluster.state.running[0].transfer.limit = Some(10 * MB);
        cluster.save().expect("writes");
    });
    // 9.6 of 10 MB/s count as limited; the other one had 48 of 57.6 MB/s left to it.
    assert!(world.moved(10, &[("x", 96), ("y", 480)]));
    world.session(|cluster| {
        assert_eq!(best_effort(cluster, 2), 28_800_000);
        let view = cluster.pcos().host(HostId(0)).expect("there");
        let rates: Vec<_> = view
            .running()
            .iter()
            .map(|transfer| view.rate(transfer))
            .collect();
        assert_eq!(rates, [10 * MB, 47_600_000]);
    });
}

#[test]
fn a_transfer_that_was_lowered_for_another_is_restored_when_that_ends() {
    let mut world = World::with_hosts(&["a"]);
    world.ask("x", 600, 1_000);
    world.session(|cluster| {
        // Beside an idle transfer one has 50 MB/s, the idle one 10.
        let beside_idle = [(Class::BestEffort, 50 * MB), (Class::Idle, 10 * MB)];
        let both = [(Class::BestEffort, 30 * MB); 2];
        for had in [&beside_idle, &both] {
            let update = Update {
                had,
                ..Update::default()
            };
            cluster.pcos.update(cluster.session.now, HostId(0), &update);
        }
        cluster.learnt.push(HostId(0));
        cluster.save().expect("writes");
    });
    world.ask("y", 4_500, 100);
    world.session(|cluster| {
        let entitlement = &cluster.state().running[0].entitlement;
        assert_eq!(entitlement.class, Class::Idle);
        assert_eq!(entitlement.lowered_for, ["y"]);
    });
    world.now += Nanos::from_secs(5);
    world.session(|cluster| cluster.end("y").expect("it runs"));
    world.session(|cluster| {
        assert_eq!(cluster.state().running.len(), 1);
        let entitlement = &cluster.state().running[0].entitlement;
        assert_eq!(entitlement.class, Class::BestEffort);
        let view = cluster.pcos().host(HostId(0)).expect("there");
        assert_eq!(view.running()[0].tenant.class, Class::BestEffort);
    });
}

#[test]
fn of_two_writers_the_later_one_has_to_begin_again() {
    let World { store, now, .. } = World::with_hosts(&["a"]);
    let daemons = Played::default();
    let (mut notify, mut notify_second) = (|_| {}, |_| {});
    let open = |notify| {
        let session = Session {
            store: &store,
            daemons: &daemons,
            notify,
            now,
            ask: Ask::All,
            read_only: false,
        };
        Cluster::open(session, |_| Ok::<_, Error>(())).expect("opens")
    };
    let mut first = open(&mut notify);
    let mut second = open(&mut notify_second);
    first.request("x", request(60, 10), false).expect("asks");
    second.request("y", request(60, 10), false).expect("asks");
    second.save().expect("is first");
    let refused = first.save().expect_err("was too late");
    let Error::Store(StoreError::Conflict { present }) = refused else {
        panic!("{refused}");
    };
    assert_eq!(present, second.stored.revision);
    let stored = store.load(Revision::EMPTY).expect("reads").expect("there");
    let names: Vec<_> = stored.state.transfer_names().collect();
    assert_eq!(names, ["y"]);
    // A session may save more than once.
    second.end("y").expect("it runs");
}

#[test]
fn a_session_that_just_looks_stores_and_starts_nothing() {
    let mut world = World::with_hosts(&["a"]);
    world.read_only = true;
    world.session(|cluster| {
        let outcome = cluster.request("x", request(60, 10), true).expect("asks");
        assert!(matches!(outcome, Outcome::Placed(_)));
        assert_eq!(cluster.state().running.len(), 1);
        cluster.save().expect("stores nothing");
    });
    assert!(world.daemons.started.borrow().is_empty());
    assert_eq!(world.session(|cluster| cluster.state().running.len()), 0);
}

/// World whose host `a` has a daemon that serves the VM `x`.
fn with_daemon() -> World {
    let mut world = World::with_hosts(&["a"]);
    world.session(|cluster| {
        cluster.state.hosts[0].socket = Some("a.sock".to_owned());
        cluster.save().expect("writes");
    });
    world.daemons.vms = vec![ServedVm {
        vm: "x".to_owned(),
        device: "sdb".to_owned(),
    }];
    world
}

#[test]
fn a_transfer_is_started_where_its_vm_is_served_also_after_it_has_waited() {
    let mut world = with_daemon();
    world.session(|cluster| {
        let refused = cluster.only_where_served("nobody").expect_err("no such VM");
        let Error::NotServed { with_daemon, .. } = refused else {
            panic!("{refused}");
        };
        assert_eq!(with_daemon, ["a"]);
    });
    world.session(|cluster| {
        cluster.only_where_served("x").expect("served");
        // The first transfer needs all of the host's bandwidth: a second one waits.
        cluster
            .request("x", request(600, 10), true)
            .expect("starts");
        let outcome = cluster.request("y", request(600, 30), true).expect("asks");
        assert_eq!(outcome, Outcome::Waiting);
        cluster.save().expect("writes");
    });
    world.session(|cluster| cluster.end("x").expect("it runs"));
    let started = world.daemons.started.borrow().clone();
    assert_eq!(
        started,
        [("x".to_owned(), 600 * MB), ("y".to_owned(), 600 * MB)]
    );
    let [
        ClusterEvent::Placed {
            transfer, started, ..
        },
    ] = world.events.as_slice()
    else {
        panic!("{:?}", world.events);
    };
    assert_eq!((transfer.as_str(), started), ("y", &Started::Yes));
}

#[test]
fn a_daemons_transfers_count_and_are_not_stored() {
    let mut world = with_daemon();
    world.daemons.transfers = vec![VmTransfer {
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
    world.session(|cluster| {
        assert_eq!(best_effort(cluster, 1), 40 * MB, "learnt");
        let refused = cluster.end("a/dss").expect_err("the daemon's");
        assert!(matches!(refused, Error::DaemonOwns { socket, .. } if socket == "a.sock"));
        cluster.save().expect("writes");
    });
    let stored = world
        .store
        .load(Revision::EMPTY)
        .expect("reads")
        .expect("there");
    assert_eq!(stored.state.running, []);
    assert_eq!(stored.state.hosts[0].taught_at, world.now);
    assert!(world.store.learnt("a").expect("reads").is_some());
}

#[test]
fn a_silent_daemon_is_an_error_unless_its_host_is_drained() {
    let mut world = with_daemon();
    world.daemons.silent = true;
    assert!(matches!(world.try_session(|_| {}), Err(Error::Daemon(_))));
    let silent = |host: &str| ClusterEvent::Silent {
        host: host.to_owned(),
    };
    assert_eq!(std::mem::take(&mut world.events), [silent("a")]);
    world.daemons.silent = false;
    world.session(|cluster| {
        cluster.state.set_drained("a", true).expect("known");
        cluster.save().expect("writes");
    });
    world.daemons.silent = true;
    world.session(|_| {});
    let host = "a".to_owned();
    assert_eq!(world.events, [ClusterEvent::SilentDrained { host }]);
}

#[test]
fn transfers_of_a_removed_host_go_elsewhere_with_what_is_left() {
    let mut world = World::with_hosts(&["a", "b"]);
    world.ask("x", 600, 100);
    world.now += Nanos::from_secs(2);
    world.session(|cluster| cluster.remove_host("a", true).expect("known"));
    let moved = ClusterEvent::Moved {
        transfer: "x".to_owned(),
        host: "b".to_owned(),
        left: 480 * MB,
        class: Class::BestEffort,
    };
    assert_eq!(world.events, [moved]);
    world.session(|cluster| {
        let x = cluster.state().running("x").expect("it runs");
        let (left, deadline) = (x.transfer.bytes, x.transfer.deadline);
        assert_eq!((left, deadline), (480 * MB, Nanos::from_secs(98)));
        assert!(cluster.state().host("a").is_none());
    });
    world.events.clear();
    world.session(|cluster| cluster.remove_host("b", true).expect("known"));
    let (transfer, left) = ("x".to_owned(), 480 * MB);
    assert_eq!(world.events, [ClusterEvent::Homeless { transfer, left }]);
}
