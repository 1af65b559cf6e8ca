//! Sessions on machines on which the sockets of hosts lead nowhere, or to daemons of other hosts.

use super::*;
use crate::membership::{MemberDevice, PublishedTransfer};

/// Daemon at a socket of this machine.
#[derive(Default)]
struct LocalDaemon {
    /// Host that it says it is.
    says: Option<&'static str>,
    /// VMs on the device `sda`, with the bytes that their transfers have moved.
    transfers: Vec<(&'static str, u64)>,
}

/// Daemons of this machine by socket.
#[derive(Default)]
struct LocalDaemons {
    daemons: BTreeMap<&'static str, LocalDaemon>,
    started: RefCell<Vec<String>>,
}

impl LocalDaemons {
    fn with(mut self, socket: &'static str, daemon: LocalDaemon) -> LocalDaemons {
        self.daemons.insert(socket, daemon);
        self
    }

    fn at(&self, socket: &str) -> Result<&LocalDaemon, DaemonError> {
        let daemon = self.daemons.get(socket);
        daemon.ok_or_else(|| DaemonError::Unavailable("no daemon listens".into()))
    }
}

impl Daemons for LocalDaemons {
    fn host(&self, socket: &str) -> Result<Option<String>, DaemonError> {
        Ok(self.at(socket)?.says.map(str::to_owned))
    }

    fn transfers(&self, socket: &str) -> Result<Vec<VmTransfer>, DaemonError> {
        let transfer = |&(vm, moved): &(&str, u64)| VmTransfer {
            vm: vm.to_owned(),
            device: "sda".to_owned(),
            transfer: Some(LiveTransfer {
                bytes: 600 * MB,
                moved,
                due_in_s: 500.0,
                class: Class::BestEffort,
                bytes_per_s: None,
            }),
        };
        Ok(self.at(socket)?.transfers.iter().map(transfer).collect())
    }

    fn vms(&self, socket: &str) -> Result<Vec<ServedVm>, DaemonError> {
        let served = |(vm, _): &(&str, u64)| ServedVm {
            vm: (*vm).to_owned(),
            device: "sda".to_owned(),
        };
        Ok(self.at(socket)?.transfers.iter().map(served).collect())
    }

    fn start(
        &self,
        socket: Option<&str>,
        vm: &str,
        _: &Request,
        _: Option<&PlacementClaim>,
    ) -> Result<(), DaemonError> {
        self.at(socket.expect("it has one"))?;
        self.started.borrow_mut().push(vm.to_owned());
        Ok(())
    }
}

/// Returns a store with hosts of 60 MB/s and their sockets.
fn store(hosts: &[(&str, &str)]) -> MemoryStore {
    let host = |(name, socket): &(&str, &str)| {
        Change::PutHost(HostRecord {
            socket: Some((*socket).to_owned()),
            ..HostRecord::new((*name).to_owned(), 60 * MB, Vec::new(), 4)
        })
    };
    let hosts: Vec<_> = hosts.iter().map(host).collect();
    let store = MemoryStore::default();
    store.commit(Revision::EMPTY, &hosts).expect("writes");
    store
}

/// Returns the membership of a registered daemon with the device `sda`.
fn registered(vm_names: Option<&[&str]>, transfers: Option<Vec<PublishedTransfer>>) -> Membership {
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    let device = MemberDevice {
        name: "sda".to_owned(),
        policy: None,
        vms: 1,
        reserved_bytes_per_s: 0,
        budget: None,
        vm_names: vm_names.map(names),
        transfers,
    };
    Membership {
        daemon: Some(RegisteredDaemon {
            instance: "1f".to_owned(),
            joined: Nanos::ZERO,
            version: String::new(),
            api: None,
            vms: 1,
            devices: vec![device],
        }),
        ..Membership::default()
    }
}

/// Returns a transfer of 600 MB that its daemon has published.
fn published(vm: &str, moved: u64, as_of: u64, due: u64) -> PublishedTransfer {
    PublishedTransfer {
        vm: vm.to_owned(),
        bytes: 600 * MB,
        moved,
        due: Nanos::from_secs(due),
        class: Class::RealTime,
        as_of: Nanos::from_secs(as_of),
    }
}

/// Runs a session at 1,000 s. Returns its result and the events.
fn session<T>(
    store: &dyn ClusterStore,
    daemons: &LocalDaemons,
    act: impl FnOnce(&mut Cluster<'_>) -> T,
) -> Result<(T, Vec<ClusterEvent>), Error> {
    let mut events = Vec::new();
    let mut notify = |event| events.push(event);
    let session = Session {
        store,
        daemons,
        notify: &mut notify,
        now: Nanos::from_secs(1_000),
        ask: DaemonSelection::All,
        read_only: false,
    };
    let mut cluster = Cluster::open(session, |_| Ok::<_, Error>(()))?;
    let done = act(&mut cluster);
    drop(cluster);
    Ok((done, events))
}

fn names(cluster: &Cluster<'_>) -> Vec<String> {
    cluster.state.transfer_names().map(str::to_owned).collect()
}

fn not_reached(host: &str, why: &str, as_of: Option<u64>) -> ClusterEvent {
    ClusterEvent::DaemonNotReached {
        host: host.to_owned(),
        why: why.to_owned(),
        as_of: as_of.map(Nanos::from_secs),
    }
}

#[test]
fn a_daemon_that_says_it_is_another_host_is_refused() {
    let store = store(&[("a", "c.sock")]);
    let local = |says| {
        let transfers = vec![("dss", 0)];
        LocalDaemons::default().with("c.sock", LocalDaemon { says, transfers })
    };
    let refused = session(&store, &local(Some("b")), |_| ()).expect_err("that of b");
    assert!(
        matches!(&refused, Error::Daemon(DaemonError::OtherHost { host, says, .. })
            if host == "a" && says.as_deref() == Some("b")),
        "{refused}"
    );
    assert_eq!(
        refused.to_string(),
        "the daemon at c.sock is not that of host \"a\": it is that of host \"b\""
    );
    // Daemons that join no cluster, or are of earlier versions, say nothing.
    for says in [None, Some("a")] {
        let (names, events) = session(&store, &local(says), |it| names(it)).expect("opens");
        assert_eq!((names, events), (vec!["a/dss".to_owned()], Vec::new()));
    }
}

#[test]
fn hosts_that_share_a_daemon_are_counted_by_their_devices() {
    let store = store(&[("a", "c.sock"), ("b", "c.sock")]);
    let daemon = LocalDaemon {
        says: Some("b"),
        transfers: vec![("dss", 0)],
    };
    let local = LocalDaemons::default().with("c.sock", daemon);
    let mut state = store.load(Revision::EMPTY).expect("reads").expect("there");
    for (at, device) in [(0, "sda"), (1, "sdb")] {
        let mut host = state.state.hosts[at].clone();
        host.device = Some(device.to_owned());
        let put = store.commit(state.revision, &[Change::PutHost(host)]);
        state.revision = put.expect("writes");
    }
    let (found, _) = session(&store, &local, |it| names(it)).expect("opens");
    assert_eq!(found, ["a/dss"]);
    // A host that has joined has a daemon of its own.
    let joined = Published {
        store: &store,
        memberships: [("a".to_owned(), registered(None, None))].into(),
    };
    let (found, events) = session(&joined, &local, |it| names(it)).expect("opens");
    let why = "the daemon at c.sock is not that of host \"a\": it is that of host \"b\"";
    assert_eq!(
        (found, events),
        (Vec::new(), vec![not_reached("a", why, None)])
    );
}

/// Sockets of a host `a` on the machine of the host `b`: a path that does not exist there, and that
/// of the daemon of b, each with the reason why the daemon of a is not reached.
const SOCKETS: [(&str, &str); 2] = [
    ("a.sock", "no daemon listens"),
    (
        "b.sock",
        "the daemon at b.sock is not that of host \"a\": it is that of host \"b\"",
    ),
];

/// Returns the daemon of the host `b` on its machine, whose VM `x` has moved 599 MB.
fn machine_of_b() -> LocalDaemons {
    let daemon = LocalDaemon {
        says: Some("b"),
        transfers: vec![("x", 599 * MB)],
    };
    LocalDaemons::default().with("b.sock", daemon)
}

/// Places the transfer `x` on the host `a`, which has moved 100 MB at 990 s.
fn place_x(store: &MemoryStore) {
    let placement = crate::record::Placement {
        moved: 100 * MB,
        as_of: Nanos::from_secs(990),
        ..crate::record::Placement::new("a", Nanos::from_secs(980))
    };
    let changes = [
        Change::PutTransfer(Transfer::new(
            "x",
            &request(6_000, 500),
            Nanos::from_secs(980),
        )),
        Change::PutPlacement {
            transfer: "x".to_owned(),
            placement,
        },
    ];
    let present = store.load(Revision::EMPTY).expect("reads").expect("there");
    store.commit(present.revision, &changes).expect("writes");
}

fn stored(store: &MemoryStore, name: &str) -> Option<(u64, Nanos)> {
    let stored = store.load(Revision::EMPTY).expect("reads").expect("there");
    let running = stored.state.running(name)?;
    Some((running.placement.moved, running.placement.as_of))
}

#[test]
fn what_is_recorded_of_a_host_counts_where_its_daemon_is_not_reached() {
    for (socket, why) in SOCKETS {
        let store = store(&[("a", socket), ("b", "b.sock")]);
        place_x(&store);
        let joined = Published {
            store: &store,
            memberships: ["a", "b"]
                .map(|host| (host.to_owned(), registered(None, None)))
                .into(),
        };
        let (found, events) = session(&joined, &machine_of_b(), |cluster| {
            cluster.state.set_drained("b", true).expect("known");
            cluster.touched.everything = true;
            cluster.retry_and_save().expect("writes");
            names(cluster)
        })
        .expect("opens");
        assert_eq!(found, ["x", "b/x"], "{socket}");
        assert_eq!(events, [not_reached("a", why, Some(990))]);
        let as_before = Some((100 * MB, Nanos::from_secs(990)));
        assert_eq!(stored(&store, "x"), as_before, "{socket}");
        // A machine on which no host's socket exists can end it as well.
        let (ended, _) =
            session(&joined, &LocalDaemons::default(), |it| it.end("x")).expect("opens");
        ended.expect("it runs");
        assert_eq!(stored(&store, "x"), None);
    }
}

#[test]
fn what_a_daemon_has_published_counts_where_it_is_not_reached() {
    let store = store(&[("a", "a.sock")]);
    place_x(&store);
    let transfers = |as_of| {
        vec![
            published("x", 300 * MB, as_of, 1_480),
            published("dss", 0, 970, 1_010),
            published("late", 0, 970, 900),
        ]
    };
    let joined = |as_of| Published {
        store: &store,
        memberships: [("a".to_owned(), registered(None, Some(transfers(as_of))))].into(),
    };
    let look = |as_of: u64| {
        let (found, events) = session(&joined(as_of), &LocalDaemons::default(), |cluster| {
            let all = cluster.state.running.iter();
            let all = all.map(|it| {
                (
                    it.name().to_owned(),
                    it.placement.moved,
                    it.progress().due_time(),
                )
            });
            all.collect::<Vec<_>>()
        })
        .expect("opens");
        assert_eq!(events, [not_reached("a", "no daemon listens", Some(970))]);
        found
    };
    let of_dss = ("a/dss".to_owned(), 0, Nanos::from_secs(1_010));
    // Due as of then, at the earliest.
    let of_late = ("a/late".to_owned(), 0, Nanos::from_secs(970));
    let of_x = |moved| ("x".to_owned(), moved, Nanos::from_secs(1_480));
    assert_eq!(look(995), [of_x(300 * MB), of_dss.clone(), of_late.clone()]);
    // Published before the progress that is stored.
    assert_eq!(look(989), [of_x(100 * MB), of_dss.clone(), of_late.clone()]);
    // By a clock that is ahead.
    assert_eq!(look(5_000), [of_x(300 * MB), of_dss, of_late]);
}

#[test]
fn a_start_is_left_to_a_daemon_that_is_not_reached_and_serves_the_vm() {
    for (socket, _) in SOCKETS {
        let store = store(&[("a", socket), ("b", "b.sock")]);
        let of_a = registered(Some(&["dss"]), Some(Vec::new()));
        let joined = Published {
            store: &store,
            memberships: [
                ("a".to_owned(), of_a),
                ("b".to_owned(), registered(Some(&["x"]), None)),
            ]
            .into(),
        };
        let daemons = machine_of_b();
        let (_, events) = session(&joined, &daemons, |cluster| {
            let refused = cluster.only_where_served("absent").expect_err("no such VM");
            assert!(
                matches!(&refused, Error::NotServed { unknown, .. } if unknown.is_empty()),
                "{refused:?}"
            );
            cluster.only_where_served("dss").expect("by a");
            let outcome = cluster.request("dss", request(600, 100), true);
            let on_a = |placement: &tidegate_place::Placement| placement.host == HostId(0);
            assert!(
                matches!(&outcome, Outcome::Placed(it) if on_a(it)),
                "{outcome:?}"
            );
            cluster.save().expect("stored");
        })
        .expect("opens");
        assert_eq!(daemons.started.borrow().as_slice(), [""; 0]);
        assert!(stored(&store, "dss").is_some());
        assert!(
            matches!(&events[1..], [ClusterEvent::StartLeftToDaemon { transfer, host, .. }]
                if transfer == "dss" && host == "a"),
            "{events:?}"
        );
    }
}

#[test]
fn a_job_that_waited_is_left_to_a_daemon_that_is_not_reached() {
    let store = store(&[("a", "a.sock")]);
    let joined = Published {
        store: &store,
        memberships: [("a".to_owned(), registered(None, None))].into(),
    };
    let ((), events) = session(&joined, &LocalDaemons::default(), |cluster| {
        cluster.request("w", request(600, 10), false);
        let outcome = cluster.request("dss", request(600, 30), true);
        assert_eq!(outcome, Outcome::Waiting);
        cluster.save().expect("writes");
        cluster.end("w").expect("it runs");
    })
    .expect("opens");
    assert!(
        matches!(&events[1..], [ClusterEvent::Placed { transfer, started, .. }]
            if transfer == "dss" && matches!(started, Started::LeftToDaemon(_))),
        "{events:?}"
    );
}

#[test]
fn vms_of_a_daemon_that_is_not_reached_and_does_not_publish_them_are_not_known() {
    let store = store(&[("a", "a.sock"), ("b", "b.sock")]);
    let joined = Published {
        store: &store,
        memberships: ["a", "b"]
            .map(|host| (host.to_owned(), registered(None, None)))
            .into(),
    };
    let (refused, _) = session(&joined, &machine_of_b(), |cluster| {
        cluster
            .only_where_served("x")
            .expect("the daemon of b answers");
        cluster.only_where_served("dss").expect_err("not known")
    })
    .expect("opens");
    let Error::NotServed {
        with_daemon,
        unknown,
        ..
    } = refused
    else {
        panic!("{refused:?}");
    };
    assert_eq!(with_daemon, ["a", "b"]);
    assert_eq!(unknown, ["a"]);
}
