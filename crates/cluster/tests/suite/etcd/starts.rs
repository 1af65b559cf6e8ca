//! Starts that are recorded with their placements: carried out, confirmed once they have begun, and
//! removed with a placement whose placer was refused.

use std::sync::Barrier;
use std::thread;

use tidegate_api::cluster::MembershipState;
use tidegate_cluster::store::{ClusterStore, EtcdStore, Revision, StoreError};
use tidegate_cluster::{Change, Transfer};

use super::member::{Daemon, block_on, cluster, snapshot, until};
use super::server::{Server, is_installed};
use super::{host, place, transfer};

/// Races between the confirmation of a start and the removal of its placement.
const RACES: u64 = 60;

/// Returns a transfer that its daemon is to start.
fn to_start(name: &str) -> Change {
    match transfer(name) {
        Change::PutTransfer(transfer) => Change::PutTransfer(Transfer {
            start: true,
            ..transfer
        }),
        other => other,
    }
}

/// Returns the recorded starts of a cluster, by host and transfer.
fn recorded(server: &Server, prefix: &str) -> Vec<String> {
    let folder = format!("{prefix}starts/");
    let shown = server.etcdctl(&["get", "--prefix", &folder, "--keys-only"]);
    let keys = shown.lines().filter_map(|line| line.strip_prefix(&folder));
    keys.map(str::to_owned).collect()
}

#[test]
fn a_start_is_recorded_also_for_a_host_that_the_commit_defines() {
    if !is_installed() {
        return;
    }
    let (server, store, options) = cluster();
    let prefix = options.prefix.clone();
    let daemon = Daemon::start(options, "new");
    daemon.await_state(MembershipState::Joined);
    let revision = snapshot(&store).revision;
    let changes = [host("new"), to_start("x"), place("x", "new")];
    let revision = store.commit(revision, &changes).expect("stored");
    assert_eq!(recorded(&server, &prefix), ["new/x"]);
    let delete = [Change::DeleteTransfer("x".to_owned())];
    let removed = store.commit_unless_begun(revision, &delete, "x");
    removed.expect("it has not begun");
    assert_eq!(recorded(&server, &prefix), [""; 0]);
    daemon.thread.leave();
}

#[test]
fn a_recorded_start_is_carried_out_and_goes_with_it_or_with_its_placement() {
    if !is_installed() {
        return;
    }
    let (server, store, options) = cluster();
    let prefix = options.prefix.clone();
    let starts = || recorded(&server, &prefix);
    let commit = |changes: &[Change]| {
        let revision = snapshot(&store).revision;
        store.commit(revision, changes).expect("stored");
    };
    // The daemon of this host has never joined, so nothing is recorded for it.
    commit(&[to_start("before"), place("before", "a")]);
    assert_eq!(starts(), [""; 0]);
    let daemon = Daemon::start(options, "a");
    daemon.await_state(MembershipState::Joined);
    let mut asked = daemon.membership.take_starts().expect("the first");
    commit(&[transfer("quiet"), place("quiet", "a")]);
    commit(&[to_start("ends"), place("ends", "a")]);
    commit(&[Change::DeleteTransfer("ends".to_owned())]);
    commit(&[to_start("x"), place("x", "a")]);
    // Records of a placement that has ended, and of a host whose name begins with this one's.
    let value = |host: &str| {
        format!(r#"{{"schema":1,"host":"{host}","begun_ns":9,"bytes":1,"deadline_ns":1,"#,)
            + r#""reserved_bytes_per_s":0,"device":null}"#
    };
    let other = format!("{prefix}starts/a/b/x");
    server.etcdctl(&["put", &format!("{prefix}starts/a/gone"), &value("a")]);
    server.etcdctl(&["put", &other, &value("a/b")]);
    let start = loop {
        let start = asked.blocking_recv().expect("the daemon looks");
        // The commit that ended it may be seen between the look and the check.
        if start.vm == "x" {
            break start;
        }
    };
    assert_eq!((start.bytes, start.deadline.0), (600, 9_000_000_000));
    assert_eq!(start.claim, daemon.claim(6));
    until("the others are gone", || starts() == ["a/b/x", "a/x"]);
    let begun = block_on(daemon.membership.confirm_begun("x", &daemon.claim(6)));
    assert_eq!(begun, Ok(()));
    start.reply.send(Ok(())).expect("awaited");
    until("its record is gone", || starts() == ["a/b/x"]);
    // A placer that is refused removes a placement only as long as it has not begun.
    let remove = |name: &str| {
        let revision = snapshot(&store).revision;
        let delete = [Change::DeleteTransfer(name.to_owned())];
        store.commit_unless_begun(revision, &delete, name)
    };
    let refused = remove("x");
    assert!(
        matches!(refused, Err(StoreError::HasBegun { .. })),
        "{refused:?}"
    );
    assert!(snapshot(&store).state.running("x").is_some());
    commit(&[to_start("z"), place("z", "a")]);
    remove("z").expect("it has not begun");
    remove("quiet").expect("nothing was to start");
    assert_eq!(starts(), ["a/b/x"]);
    // A record that is not moved by a commit stays, also if others are.
    commit(&[to_start("y"), place("y", "a")]);
    commit(&[Change::DeleteTransfer("x".to_owned())]);
    assert_eq!(starts(), ["a/b/x", "a/y"]);
    daemon.thread.leave();
}

/// Removes a placed transfer unless its daemon has confirmed that it has begun.
fn remove_unless_begun(store: &EtcdStore, name: &str) -> Result<Revision, StoreError> {
    let delete = [Change::DeleteTransfer(name.to_owned())];
    loop {
        let removed = store.commit_unless_begun(snapshot(store).revision, &delete, name);
        // The start was deleted between the load and the commit, or nothing at all has changed.
        if !matches!(removed, Err(StoreError::Conflict { .. })) {
            return removed;
        }
    }
}

#[test]
fn a_start_is_confirmed_or_its_placement_removed_and_never_both() {
    if !is_installed() {
        return;
    }
    let (server, store, options) = cluster();
    let prefix = options.prefix.clone();
    let daemon = Daemon::start(options, "a");
    daemon.await_state(MembershipState::Joined);
    let (mut confirmed, mut removed) = (0, 0);
    for race in 0..RACES {
        let changes = [to_start("x"), place("x", "a")];
        let revision = snapshot(&store).revision;
        store.commit(revision, &changes).expect("stored");
        let both = Barrier::new(2);
        let claim = daemon.claim(6);
        let (begun, gone) = thread::scope(|scope| {
            let begun = scope.spawn(|| {
                both.wait();
                // Late in every second race, as a daemon that has to begin the transfer first.
                (0..race % 2).for_each(|_| drop(snapshot(&store)));
                block_on(daemon.membership.confirm_begun("x", &claim))
            });
            both.wait();
            let gone = remove_unless_begun(&store, "x");
            (begun.join().expect("no panic"), gone)
        });
        match (begun, gone) {
            (Ok(()), Err(StoreError::HasBegun { .. })) => {
                confirmed += 1;
                assert!(snapshot(&store).state.running("x").is_some());
                let delete = [Change::DeleteTransfer("x".to_owned())];
                let revision = snapshot(&store).revision;
                store.commit(revision, &delete).expect("stored");
            }
            (Err(refusal), Ok(_)) if refusal.has_ended => removed += 1,
            other => panic!("race {race}: {other:?}"),
        }
        assert_eq!(recorded(&server, &prefix), [""; 0]);
    }
    println!("{confirmed} confirmed, {removed} removed");
    daemon.thread.leave();
}

#[test]
fn a_start_that_has_begun_is_confirmed_beside_reports_and_a_drained_host_and_again() {
    if !is_installed() {
        return;
    }
    let (server, store, options) = cluster();
    let prefix = options.prefix.clone();
    let daemon = Daemon::start(options, "a");
    daemon.await_state(MembershipState::Joined);
    let commit = |changes: &[Change]| {
        let revision = snapshot(&store).revision;
        store.commit(revision, changes).expect("stored");
    };
    let begun = || block_on(daemon.membership.confirm_begun("x", &daemon.claim(6)));
    commit(&[to_start("x"), place("x", "a")]);
    // Progress is put on the placement, which stays that one.
    let Change::PutPlacement {
        transfer,
        mut placement,
    } = place("x", "a")
    else {
        panic!("a placement");
    };
    placement.reported += 1;
    commit(&[Change::PutPlacement {
        transfer,
        placement,
    }]);
    let mut state = snapshot(&store).state;
    state.set_drained("a", true).expect("known");
    commit(&[Change::PutHost(state.hosts[0].clone())]);
    assert_eq!(begun(), Ok(()));
    assert_eq!(recorded(&server, &prefix), [""; 0]);
    // As if the answer was lost.
    assert_eq!(begun(), Ok(()));
    // A record that cannot be read would let a placer remove what runs.
    server.etcdctl(&["put", &format!("{prefix}starts/a/x"), "{}"]);
    assert_eq!(begun(), Ok(()));
    assert_eq!(recorded(&server, &prefix), [""; 0]);
    commit(&[Change::DeleteTransfer("x".to_owned())]);
    let ended = begun().expect_err("ended");
    assert!(ended.has_ended, "{ended:?}");
    daemon.thread.leave();
}
