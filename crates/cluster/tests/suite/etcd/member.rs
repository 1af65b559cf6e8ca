//! Daemons that join: registration, loss, return, and the fence of placements and starts.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use tidegate_api::cluster::{MembershipState, PlacementClaim};
use tidegate_cluster::joining::{DeviceDetails, MemberOptions, MemberSource, MemberThread};
use tidegate_cluster::store::{
    ClusterStore, EtcdOptions, EtcdStore, EtcdUser, Revision, Snapshot, StoreError,
};
use tidegate_cluster::{Change, Membership as Record, PublishedTransfer};
use tidegate_core::time::Nanos;
use tidegate_core::transfers::Class;
use tidegate_server::membership::{
    HandedMembership, Membership, PlacedTransfer, PublishedDevice, StartRefusal,
};

use super::proxy::{Loss, Proxy};
use super::server::{Server, is_installed};
use super::{host, place, transfer};

/// Lease of the tests: the shortest that etcd keeps to.
const LEASE: Duration = Duration::from_secs(2);
/// Time in which everything that is waited for happens, on a busy machine.
const LIMIT: Duration = Duration::from_secs(60);

/// Device whose reservation and size of budget in bytes the test sets.
#[derive(Clone, Default)]
struct Source(Arc<Mutex<u64>>, Arc<Mutex<usize>>);

impl MemberSource for Source {
    fn devices(&self) -> Vec<PublishedDevice> {
        vec![PublishedDevice {
            name: "sda".to_owned(),
            vms: vec!["dss".to_owned()],
            reserved_bytes_per_s: *self.0.lock().expect("no panic"),
        }]
    }

    async fn details(&self) -> Vec<DeviceDetails> {
        vec![DeviceDetails {
            name: "sda".to_owned(),
            policy: Some("slo".to_owned()),
            budget: Some(serde_json::Value::String(
                "x".repeat(*self.1.lock().expect("no panic")),
            )),
        }]
    }

    async fn transfers(&self) -> BTreeMap<String, Vec<PublishedTransfer>> {
        let transfer = PublishedTransfer {
            vm: "dss".to_owned(),
            bytes: 900,
            moved: 300,
            due: Nanos(9),
            class: Class::RealTime,
            as_of: Nanos(7),
        };
        [("sda".to_owned(), vec![transfer])].into()
    }

    async fn placed_transfers(&self) -> Vec<PlacedTransfer> {
        Vec::new()
    }
}

/// Daemon that joins as a host.
pub(super) struct Daemon {
    pub(super) membership: Arc<Membership>,
    source: Source,
    pub(super) thread: MemberThread,
}

impl Daemon {
    pub(super) fn start(etcd: EtcdOptions, host: &str) -> Daemon {
        Daemon::start_with(etcd, host, None)
    }

    fn start_with(etcd: EtcdOptions, host: &str, handed: Option<HandedMembership>) -> Daemon {
        let membership = Arc::new(Membership::new(host));
        let source = Source::default();
        let options = MemberOptions {
            etcd,
            lease: LEASE,
            api: Some("/run/c.sock".to_owned()),
            handed,
        };
        let thread = MemberThread::start(options, membership.clone(), source.clone());
        Daemon {
            membership,
            source,
            thread: thread.expect("valid options"),
        }
    }

    fn state(&self) -> MembershipState {
        self.membership.status().view.state
    }

    pub(super) fn await_state(&self, wanted: MembershipState) {
        until(wanted.name(), || self.state() == wanted);
    }

    fn reserve(&self, bytes_per_s: u64) {
        *self.source.0.lock().expect("no panic") = bytes_per_s;
    }

    pub(super) fn claim(&self, begun_ns: u64) -> PlacementClaim {
        PlacementClaim {
            host: self.membership.host().to_owned(),
            begun_ns,
            reserved_bytes_per_s: 0,
            device: None,
        }
    }

    fn check(&self, vm: &str, begun_ns: u64) -> Result<(), StartRefusal> {
        let claim = self.claim(begun_ns);
        block_on(self.membership.check_start(vm, &claim))
    }
}

pub(super) fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.expect("a runtime").block_on(future)
}

pub(super) fn until(what: &str, is_so: impl Fn() -> bool) {
    let end = Instant::now() + LIMIT;
    while !is_so() {
        assert!(Instant::now() < end, "never: {what}");
        thread::sleep(Duration::from_millis(20));
    }
}

pub(super) fn snapshot(store: &EtcdStore) -> Snapshot {
    store
        .load(Revision::EMPTY)
        .expect("reads")
        .unwrap_or_else(|| {
            // Published records alone are no commit.
            panic!("an empty store")
        })
}

fn record(store: &EtcdStore, host: &str) -> Option<Record> {
    let loaded = store.load(Revision::EMPTY).ok()??;
    loaded.state.memberships.get(host).cloned()
}

/// Returns a cluster with the host `a`, below a prefix of the shared server.
pub(super) fn cluster() -> (Arc<Server>, EtcdStore, EtcdOptions) {
    let (server, prefix) = (Server::shared(), Server::new_prefix());
    let store = server.store(&prefix);
    store.commit(Revision::EMPTY, &[host("a")]).expect("writes");
    let options = server.options(&prefix);
    (server, store, options)
}

#[test]
fn a_daemon_is_seen_while_it_serves_and_its_reservation_stays() {
    if !is_installed() {
        return;
    }
    let (_server, store, options) = cluster();
    let daemon = Daemon::start(options, "a");
    daemon.await_state(MembershipState::Joined);
    daemon.reserve(7);
    let published = || {
        let record = record(&store, "a").expect("joined");
        let there = record.daemon.as_ref();
        let device = there.and_then(|daemon| daemon.devices.first().cloned());
        record.reserved_on(None) == 7
            && device.is_some_and(|it| {
                let transfers = it.transfers.as_deref().unwrap_or_default();
                it.policy.as_deref() == Some("slo")
                    && it.serves("dss") == Some(true)
                    && transfers
                        .iter()
                        .any(|it| (it.vm.as_str(), it.moved) == ("dss", 300))
            })
    };
    until("published", published);
    let there = record(&store, "a").and_then(|it| it.daemon).expect("there");
    assert_eq!((there.vms, there.api.as_deref()), (1, Some("/run/c.sock")));
    assert_eq!(there.instance.len(), 32);
    assert_eq!(daemon.membership.status().reserved_bytes_per_s, 7);
    daemon.thread.leave();
    let left = record(&store, "a").expect("the reservation");
    assert!(left.daemon.is_none() && left.has_left, "{left:?}");
    assert_eq!(left.reserved_on(None), 7);
    // Removal of the host is the operator's word that the daemon does not come back.
    let revision = snapshot(&store).revision;
    let remove = [Change::DeleteHost("a".to_owned())];
    store.commit(revision, &remove).expect("nothing runs there");
    assert_eq!(record(&store, "a"), None);
}

#[test]
fn a_daemon_that_leaves_before_its_registration_is_answered_has_left_in_order() {
    if !is_installed() {
        return;
    }
    let (server, store, options) = cluster();
    let proxy = Proxy::start(server.client_port());
    // In the value of a reservation, which registrations alone put.
    proxy.lose_from(r#""left":false"#, Loss::Answers);
    let options = EtcdOptions {
        endpoints: vec![proxy.url()],
        ..options
    };
    let daemon = Daemon::start(options, "a");
    until("registered", || {
        record(&store, "a").is_some_and(|it| it.daemon.is_some())
    });
    assert_eq!(daemon.state(), MembershipState::Waiting, "not answered");
    thread::scope(|scope| {
        scope.spawn(|| daemon.thread.leave());
        // The end comes before an answer does.
        thread::sleep(Duration::from_millis(100));
        proxy.answer();
    });
    let left = record(&store, "a").expect("the reservation");
    assert!(left.daemon.is_none() && left.has_left, "{left:?}");
}

#[test]
fn a_second_daemon_of_a_name_waits_until_the_lease_of_the_first_is_gone() {
    if !is_installed() {
        return;
    }
    let (_server, store, options) = cluster();
    let first = Daemon::start(options.clone(), "a");
    first.await_state(MembershipState::Joined);
    let second = Daemon::start(options, "a");
    let reason = |daemon: &Daemon| daemon.membership.status().view.reason.unwrap_or_default();
    until("it says why", || reason(&second).contains("another daemon"));
    assert_eq!(second.state(), MembershipState::Waiting);
    let instance = || {
        record(&store, "a")
            .and_then(|it| it.daemon)
            .map(|it| it.instance)
    };
    let of_first = instance().expect("there");
    assert_eq!(first.state(), MembershipState::Joined);
    // As if it were killed: nothing is withdrawn.
    first.thread.hand_over();
    second.await_state(MembershipState::Joined);
    assert_ne!(instance(), Some(of_first));
    second.thread.leave();
}

#[test]
fn a_daemon_that_takes_over_goes_on_with_the_registration() {
    if !is_installed() {
        return;
    }
    let (server, store, options) = cluster();
    let old = Daemon::start(options.clone(), "a");
    old.await_state(MembershipState::Joined);
    let handed = old.membership.handed().expect("joined");
    let created = || {
        let fields = server.etcdctl(&["get", &handed.key, "-w", "fields"]);
        let line = fields.lines().find(|line| line.contains("CreateRevision"));
        line.map(str::to_owned)
    };
    let before = created().expect("there");
    let of_old = handed.instance.clone();
    old.thread.hand_over();
    // The old daemon may have got another lease since it has made its plan.
    let planned = HandedMembership {
        lease: handed.lease + 1,
        ..handed.clone()
    };
    let new = Daemon::start_with(options, "a", Some(planned));
    new.await_state(MembershipState::Joined);
    assert_eq!(created(), Some(before), "the key was never gone");
    let there = record(&store, "a").and_then(|it| it.daemon).expect("there");
    assert_ne!(there.instance, of_old);
    assert_eq!(new.membership.status().losses, 0);
    new.thread.leave();
}

#[test]
fn a_daemon_that_etcd_does_not_hear_of_is_lost_and_comes_back() {
    if !is_installed() {
        return;
    }
    let server = Server::start();
    let options = server.options("/t/");
    let store = server.store("/t/");
    let changes = [host("a"), transfer("x"), place("x", "a")];
    store.commit(Revision::EMPTY, &changes).expect("writes");
    let daemon = Daemon::start(options, "a");
    daemon.await_state(MembershipState::Joined);
    assert_eq!(daemon.check("x", 6), Ok(()));
    server.pause();
    daemon.await_state(MembershipState::Lost);
    let refused = daemon.check("x", 6).expect_err("lost");
    assert!(
        !refused.is_final && refused.why.contains("etcd does not answer"),
        "{refused:?}"
    );
    server.go_on();
    daemon.await_state(MembershipState::Joined);
    until("admits again", || daemon.check("x", 6).is_ok());
    server.kill();
    daemon.await_state(MembershipState::Lost);
    server.restart();
    daemon.await_state(MembershipState::Joined);
    assert!(daemon.membership.status().losses >= 2);
    daemon.thread.leave();
}

#[test]
fn a_daemon_that_starts_without_etcd_joins_when_it_comes() {
    if !is_installed() {
        return;
    }
    let server = Server::not_started();
    let daemon = Daemon::start(server.options("/t/"), "a");
    let reason = || daemon.membership.status().view.reason.unwrap_or_default();
    until("it says why", || reason().contains("etcd does not answer"));
    assert_eq!(daemon.state(), MembershipState::Waiting);
    server.restart();
    daemon.await_state(MembershipState::Joined);
    daemon.thread.leave();
}

#[test]
fn a_registration_that_is_removed_by_hand_is_made_again() {
    if !is_installed() {
        return;
    }
    let (server, store, options) = cluster();
    let daemon = Daemon::start(options, "a");
    daemon.await_state(MembershipState::Joined);
    let key = daemon.membership.handed().expect("joined").key;
    server.etcdctl(&["del", &key]);
    until("lost", || daemon.membership.status().losses == 1);
    daemon.await_state(MembershipState::Joined);
    server.etcdctl(&["del", &key]);
    // Or the next change finds it gone.
    daemon.reserve(5);
    until("published", || {
        record(&store, "a").is_some_and(|it| it.reserved_on(None) == 5)
    });
    daemon.thread.leave();
}

#[test]
fn placements_that_are_damaged_or_many_keep_no_daemon_out() {
    if !is_installed() {
        return;
    }
    let server = Server::start();
    let options = server.options("/t/");
    let store = server.store("/t/");
    store.commit(Revision::EMPTY, &[host("a")]).expect("writes");
    server.etcdctl(&[
        "put",
        "/t/placements/other",
        "{\"schema\":9,\"host\":\"b\"}",
    ]);
    server.etcdctl(&["put", "/t/placements/own", "{\"schema\":9,\"host\":\"a\"}"]);
    server.etcdctl(&["put", "/t/placements/damaged", "["]);
    // More than the 4 MiB that the client accepts by itself.
    let padding = "x".repeat(100_000);
    for at in 0..50 {
        let key = format!("/t/placements/large{at}");
        let value = format!("{{\"schema\":9,\"host\":\"b\",\"pad\":\"{padding}\"}}");
        server.etcdctl(&["put", &key, &value]);
    }
    let daemon = Daemon::start(options, "a");
    daemon.await_state(MembershipState::Joined);
    daemon.thread.leave();
}

#[test]
fn reservations_are_published_while_etcd_refuses_the_budgets() {
    if !is_installed() {
        return;
    }
    let (_server, store, options) = cluster();
    let daemon = Daemon::start(options, "a");
    // More than the 1.5 MiB that etcd takes.
    *daemon.source.1.lock().expect("no panic") = 2_000_000;
    daemon.await_state(MembershipState::Joined);
    for rate in [7, 9] {
        daemon.reserve(rate);
        until("published", || {
            record(&store, "a").is_some_and(|it| it.reserved_on(None) == rate)
        });
        // Budgets are computed anew at most each five seconds.
        thread::sleep(Duration::from_secs(6));
    }
    assert_eq!(daemon.state(), MembershipState::Joined);
    daemon.thread.leave();
}

#[test]
fn a_reservation_without_a_host_is_removed_by_name() {
    if !is_installed() {
        return;
    }
    let (_server, store, options) = cluster();
    let daemon = Daemon::start(options, "z");
    daemon.await_state(MembershipState::Joined);
    daemon.thread.leave();
    let there = snapshot(&store);
    let mut state = there.state.clone();
    assert!(state.memberships.remove("z").is_some(), "the reservation");
    let remove = tidegate_cluster::difference(&there.state, &state);
    store.commit(there.revision, &remove).expect("stored");
    assert_eq!(record(&store, "z"), None);
}

#[test]
fn a_start_is_confirmed_for_the_placement_that_stands_and_no_other() {
    if !is_installed() {
        return;
    }
    let (_server, store, options) = cluster();
    let daemon = Daemon::start(options, "a");
    daemon.await_state(MembershipState::Joined);
    let commit = |changes: &[Change]| {
        let revision = snapshot(&store).revision;
        store.commit(revision, changes).expect("stored");
    };
    let refused = |begun: u64| {
        let refused = daemon.check("x", begun).expect_err("refused");
        assert!(refused.is_final, "{refused:?}");
        refused.why
    };
    assert!(refused(6).contains("has ended"));
    commit(&[transfer("x"), place("x", "a")]);
    assert_eq!(daemon.check("x", 6), Ok(()));
    // A start that comes after its placement was ended, and the transfer placed again.
    assert!(refused(5).contains("another one has followed"));
    let drained = |drained| {
        let mut state = snapshot(&store).state;
        state.set_drained("a", drained).expect("known");
        commit(&[Change::PutHost(state.hosts[0].clone())]);
    };
    drained(true);
    assert!(refused(6).contains("is drained"));
    drained(false);
    assert_eq!(daemon.check("x", 6), Ok(()));
    commit(&[Change::DeleteTransfer("x".to_owned())]);
    assert!(refused(6).contains("has ended"));
    assert_eq!(daemon.membership.status().refused_starts, 4);
    daemon.thread.leave();
}

#[test]
fn a_placement_and_a_vm_that_race_never_both_count_on_the_same_bandwidth() {
    if !is_installed() {
        return;
    }
    let (_server, store, options) = cluster();
    let revision = snapshot(&store).revision;
    store.commit(revision, &[host("b")]).expect("writes");
    let daemon = Daemon::start(options.clone(), "a");
    let other = Daemon::start(options, "b");
    daemon.await_state(MembershipState::Joined);
    other.await_state(MembershipState::Joined);
    let loaded = snapshot(&store);
    daemon.reserve(7);
    // Seen by another placer, whose own state is the older one.
    until("published", || {
        daemon.membership.status().reserved_bytes_per_s == 7
    });
    let refused = store.commit(loaded.revision, &[transfer("x"), place("x", "a")]);
    assert!(
        matches!(refused, Err(StoreError::Conflict { .. })),
        "{refused:?}"
    );
    // What a VM has reserved elsewhere is no conflict.
    let loaded = snapshot(&store);
    assert_eq!(loaded.state.memberships["a"].reserved_on(None), 7);
    other.reserve(3);
    until("published", || {
        other.membership.status().reserved_bytes_per_s == 3
    });
    let changes = [transfer("x"), place("x", "a")];
    let revision = store
        .commit(loaded.revision, &changes)
        .expect("no conflict");
    // A daemon that has gone since the load gets nothing more.
    daemon.thread.leave();
    let refused = store.commit(revision, &[transfer("y"), place("y", "a")]);
    assert!(
        matches!(refused, Err(StoreError::Conflict { .. })),
        "{refused:?}"
    );
    other.thread.leave();
}

#[test]
fn a_placement_on_many_hosts_is_fenced_as_a_whole() {
    if !is_installed() {
        return;
    }
    let (_server, store, options) = cluster();
    let names: Vec<_> = (0..100).map(|n| format!("h-{n}")).collect();
    let hosts: Vec<_> = names.iter().map(|name| host(name)).collect();
    let revision = snapshot(&store).revision;
    store.commit(revision, &hosts).expect("writes");
    let on_all = |round: u32| -> Vec<Change> {
        let on = |name: &String| {
            let job = format!("{round}-{name}");
            [transfer(&job), place(&job, name)]
        };
        names.iter().flat_map(on).collect()
    };
    let loaded = snapshot(&store);
    let daemon = Daemon::start(options, "h-7");
    daemon.await_state(MembershipState::Joined);
    let refused = store.commit(loaded.revision, &on_all(0));
    assert!(
        matches!(refused, Err(StoreError::Conflict { .. })),
        "{refused:?}"
    );
    let loaded = snapshot(&store);
    store
        .commit(loaded.revision, &on_all(1))
        .expect("on the present state");
    daemon.thread.leave();
}

#[test]
fn a_daemon_needs_rights_on_the_prefix_and_no_others() {
    if !is_installed() {
        return;
    }
    let server = Server::start();
    for words in [
        "user add root:rootword",
        "user grant-role root root",
        "role add tidegate",
        "role grant-permission tidegate --prefix=true readwrite /tidegate/",
        "user add host:secret",
        "user grant-role host tidegate",
        "auth enable",
    ] {
        server.etcdctl(&words.split(' ').collect::<Vec<_>>());
    }
    let options = |password: &str, prefix: &str| EtcdOptions {
        user: Some(EtcdUser {
            name: "host".to_owned(),
            password: password.to_owned(),
        }),
        ..server.options(prefix)
    };
    let daemon = Daemon::start(options("secret", "/tidegate/"), "a");
    daemon.await_state(MembershipState::Joined);
    // Longer than the lease: renewals are allowed, too.
    thread::sleep(LEASE * 2);
    assert_eq!(
        (daemon.state(), daemon.membership.status().losses),
        (MembershipState::Joined, 0)
    );
    daemon.thread.leave();
    for (password, prefix) in [("guess", "/tidegate/"), ("secret", "/other/")] {
        let daemon = Daemon::start(options(password, prefix), "a");
        let reason = || daemon.membership.status().view.reason.unwrap_or_default();
        until("it says why", || reason().contains("etcd refuses"));
        assert_eq!(daemon.state(), MembershipState::Waiting);
        daemon.thread.leave();
    }
}
