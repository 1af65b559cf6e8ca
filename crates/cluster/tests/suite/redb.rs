//! Files of the redb store: those of earlier versions, and reopening.

use std::path::PathBuf;

use tidegate_cluster::store::{ClusterStore, RedbStore, Revision, StoreError};
use tidegate_cluster::{Change, HostRecord};
use tidegate_core::learnt_state::Blob;
use tidegate_core::transfers::Class;
use tidegate_place::PriorityDatabase;

/// Two hosts (one drained), three running transfers, one waiting, and learnt intervals of both
/// hosts: written by commit dd01865 with `place job`, `place moved` and `place host drain`.
const VERSION_1: &[u8] = include_bytes!("../../../cli/tests/fixtures/place-v1.redb");

fn file() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("place.redb");
    (dir, path)
}

#[test]
fn a_file_from_before_there_were_revisions_is_read_and_written() {
    let (_dir, path) = file();
    std::fs::write(&path, VERSION_1).expect("writable");
    let store = RedbStore::open(&path).expect("opens");
    let loaded = store.load(Revision::EMPTY).expect("reads").expect("there");
    assert_eq!(loaded.revision, Revision(1));
    let hosts = loaded.state.hosts.iter();
    let hosts: Vec<_> = hosts
        .map(|host| (host.name.as_str(), host.drained))
        .collect();
    assert_eq!(hosts, [("a", false), ("b", true)]);
    let running = loaded.state.running.iter();
    let mut running: Vec<_> = running
        .map(|running| (running.placement.host.as_str(), running.name()))
        .collect();
    running.sort_unstable();
    assert_eq!(running, [("a", "index"), ("a", "scan"), ("b", "backup")]);
    assert_eq!(loaded.state.waiting.len(), 1);
    let learnt = store.learnt("b").expect("reads").expect("there");
    let bandwidth = loaded.state.hosts[1].bandwidth().expect("valid");
    let mut database = PriorityDatabase::new(bandwidth);
    database
        .import(&Blob::from_bytes(learnt))
        .expect("its bytes");
    let entry = database.entries().next().expect("learnt");
    let found = (entry.rates.for_class(Class::BestEffort), entry.intervals);
    assert_eq!(found, (68_763_184, 2));
    // The first commit adds a revision; everything else stays.
    let change = [Change::DeleteTransfer("index".to_owned())];
    let next = store.commit(loaded.revision, &change).expect("writes");
    drop(store);
    let store = RedbStore::open(&path).expect("opens");
    let again = store.load(Revision::EMPTY).expect("reads").expect("there");
    assert_eq!(again.revision, next);
    let mut expected = loaded.state;
    expected.running.retain(|running| running.name() != "index");
    assert_eq!(again.state, expected);
}

#[test]
fn one_store_at_a_time_has_a_file_open() {
    let (_dir, path) = file();
    let store = RedbStore::open(&path).expect("made");
    let host = HostRecord::new("a".to_owned(), 60, Vec::new(), 4);
    let revision = store.commit(Revision::EMPTY, &[Change::PutHost(host)]);
    let revision = revision.expect("writes");
    let refused = RedbStore::open(&path).map(drop).expect_err("in use");
    assert!(matches!(refused, StoreError::Backend(_)), "{refused:?}");
    assert!(refused.to_string().contains("in use"), "{refused}");
    drop(store);
    let store = RedbStore::open(&path).expect("there");
    assert_eq!(store.load(revision).expect("reads"), None);
}
