//! The supervisor of a watch: changes, restarts, compactions.

use std::time::{Duration, Instant};

use tidegate_cluster::Change;
use tidegate_cluster::store::{
    ClusterStore, EtcdStore, EtcdWatch, Revision, Snapshot, StoreError, WatchEvent,
};

use super::server::{Server, is_installed};
use super::{host, place, transfer};

/// Time within which news must come.
const LIMIT: Duration = Duration::from_secs(60);

fn news(watch: &mut EtcdWatch<'_>) -> WatchEvent {
    let event = watch.next(LIMIT).expect("it goes on");
    event.expect("news in time")
}

fn state(watch: &mut EtcdWatch<'_>) -> Snapshot {
    match news(watch) {
        WatchEvent::State(snapshot) => *snapshot,
        other => panic!("{other:?}"),
    }
}

/// Commits once etcd has started.
fn commit(store: &EtcdStore, revision: Revision, change: Change) -> Revision {
    let begun = Instant::now();
    let changes = [change];
    loop {
        match store.commit(revision, &changes) {
            Ok(revision) => return revision,
            Err(error) => assert!(begun.elapsed() < LIMIT, "{error}"),
        }
    }
}

/// Compacts all of etcd's history but the last revision.
fn compact(server: &Server) {
    let fields = server.etcdctl(&["get", "/", "-w", "fields"]);
    let revision = fields
        .lines()
        .find_map(|line| line.strip_prefix("\"Revision\" : "));
    server.etcdctl(&["compact", revision.expect("a field")]);
}

#[test]
fn each_change_is_news_once_and_whole() {
    if !is_installed() {
        return;
    }
    let server = Server::shared();
    let prefix = Server::new_prefix();
    let (writer, reader) = (server.store(&prefix), server.store(&prefix));
    let mut watch = reader.watch();
    assert_eq!(state(&mut watch).revision, Revision::EMPTY);
    let mut revision = Revision::EMPTY;
    for changes in [
        vec![host("a"), host("b"), transfer("x"), transfer("y")],
        vec![place("x", "b")],
        vec![Change::DeleteTransfer("x".to_owned())],
    ] {
        revision = writer.commit(revision, &changes).expect("writes");
        let expected = writer.load(Revision::EMPTY).expect("reads").expect("there");
        assert_eq!(state(&mut watch), expected);
    }
    // A learnt database is no part of the state, but the commit has a revision.
    let learnt = Change::PutLearnt {
        host: "a".to_owned(),
        database: vec![1],
    };
    let revision = writer.commit(revision, &[learnt]).expect("writes");
    assert_eq!(state(&mut watch).revision, revision);
    assert!(
        watch
            .next(Duration::from_millis(50))
            .expect("it goes on")
            .is_none()
    );
    assert_eq!(watch.listings(), 1);
    server.etcdctl(&["put", &format!("{prefix}hosts/a"), "{"]);
    let damaged = watch.next(LIMIT).expect_err("damaged");
    assert!(
        matches!(damaged, StoreError::DamagedRecord { .. }),
        "{damaged}"
    );
}

#[test]
fn a_watch_goes_on_after_restarts_and_lists_again_after_a_compaction() {
    if !is_installed() {
        return;
    }
    let server = Server::start();
    let (writer, reader) = (server.store("/t/"), server.store("/t/"));
    let mut revision = writer
        .commit(Revision::EMPTY, &[host("a")])
        .expect("writes");
    let mut watch = reader.watch();
    assert_eq!(state(&mut watch).revision, revision);
    // Open the stream before the cut.
    assert!(
        watch
            .next(Duration::from_millis(100))
            .expect("it goes on")
            .is_none()
    );
    server.kill();
    let WatchEvent::Away(why) = news(&mut watch) else {
        panic!("etcd is away");
    };
    assert!(matches!(why, StoreError::Unavailable { .. }), "{why}");
    // Said once.
    assert!(
        watch
            .next(Duration::from_millis(10))
            .expect("it goes on")
            .is_none()
    );
    server.restart();
    revision = commit(&writer, revision, host("b"));
    assert!(matches!(news(&mut watch), WatchEvent::Back));
    assert_eq!(state(&mut watch).revision, revision);
    assert_eq!(
        watch.listings(),
        1,
        "the history has what happened meanwhile"
    );
    // Changes whose history is compacted before the watch is back.
    server.kill();
    server.restart();
    revision = commit(&writer, revision, host("c"));
    revision = writer.commit(revision, &[host("d")]).expect("writes");
    compact(&server);
    let last = loop {
        match news(&mut watch) {
            WatchEvent::State(snapshot) => break *snapshot,
            WatchEvent::Away(_) | WatchEvent::Back => {}
        }
    };
    assert_eq!((last.revision, last.state.hosts.len()), (revision, 4));
    assert_eq!(watch.listings(), 2);
    // A compaction under a watch that is open is no news, and needs no listing.
    let revision = writer.commit(revision, &[transfer("x")]).expect("writes");
    assert_eq!(state(&mut watch).revision, revision);
    compact(&server);
    let revision = writer.commit(revision, &[transfer("y")]).expect("writes");
    assert_eq!(state(&mut watch).revision, revision);
    assert_eq!(watch.listings(), 2);
}
