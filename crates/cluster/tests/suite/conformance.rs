//! Conformance of stores: behaviour that every [`ClusterStore`] must have.
//!
//! A new implementation adds its own `conformance!` below.

use std::sync::Barrier;
use std::thread;

use tidegate_cluster::store::{ClusterStore, MemoryStore, RedbStore, Revision, StoreError};
use tidegate_cluster::{
    Change, Entitlement, HostRecord, Inconsistent, Placement, Settings, Transfer,
};
use tidegate_core::time::Nanos;
use tidegate_core::transfers::Class;
use tidegate_place::Request;

#[cfg(feature = "etcd")]
use crate::etcd::server::{Server, is_installed};

/// Runs each test of the suite on a new store, created by an expression: something to hold while
/// the store is used, and the store; `None` if this machine cannot have one.
macro_rules! conformance {
    ($module:ident, $store:expr) => {
        mod $module {
            use super::*;

            conformance!(@each $store;
                a_new_store_is_empty,
                a_commit_is_loaded_with_its_revision,
                a_commit_for_another_revision_changes_nothing,
                changes_apply_in_order_and_records_keep_theirs,
                deletes_include_what_belongs_to_the_record,
                an_inconsistent_commit_changes_nothing,
                a_priority_database_outlives_its_host,
                concurrent_commits_are_all_applied,
            );
        }
    };
    (@each $store:expr; $($test:ident),* $(,)?) => {
        $(
            #[test]
            fn $test() {
                if let Some((_keep, store)) = $store {
                    super::$test(&store);
                }
            }
        )*
    };
}

conformance!(memory, Some(((), MemoryStore::default())));

conformance!(redb, {
    let dir = tempfile::tempdir().expect("a directory");
    let store = RedbStore::open(&dir.path().join("place.redb")).expect("creates the file");
    Some((dir, store))
});

#[cfg(feature = "etcd")]
conformance!(etcd, {
    is_installed().then(|| {
        let server = Server::shared();
        let store = server.store(&Server::new_prefix());
        (server, store)
    })
});

fn host(name: &str) -> HostRecord {
    HostRecord::new(name.to_owned(), 60, vec![0, 10], 4)
}

fn transfer(name: &str, bytes: u64) -> Transfer {
    let request = Request::new(bytes, Nanos::from_secs(9)).expect("valid");
    Transfer {
        start: true,
        ..Transfer::new(name, &request, Nanos(5))
    }
}

fn put(name: &str, bytes: u64) -> Change {
    Change::PutTransfer(transfer(name, bytes))
}

fn place(name: &str, host: &str) -> Change {
    Change::PutPlacement {
        transfer: name.to_owned(),
        placement: Placement {
            moved: 3,
            as_of: Nanos(8),
            reported: 2,
            reported_at: Nanos(7),
            ..Placement::new(host, Nanos(6))
        },
    }
}

fn entitle(name: &str, class: Class) -> Change {
    Change::PutEntitlement {
        transfer: name.to_owned(),
        entitlement: Entitlement {
            class,
            lowered_for: vec!["other".to_owned()],
        },
    }
}

fn conflict(refused: Result<Revision, StoreError>) -> Revision {
    match refused {
        Err(StoreError::Conflict { present }) => present,
        other => panic!("no conflict: {other:?}"),
    }
}

fn names(store: &dyn ClusterStore) -> (Vec<String>, Vec<String>) {
    let loaded = store
        .load(Revision::EMPTY)
        .expect("reads")
        .expect("not empty");
    let running = loaded.state.running.iter();
    let waiting = loaded.state.waiting.iter();
    (
        running.map(|running| running.name().to_owned()).collect(),
        waiting.map(|transfer| transfer.name.clone()).collect(),
    )
}

fn a_new_store_is_empty(store: &dyn ClusterStore) {
    // `load` gives `None` if the store is still at the revision that the caller knows.
    assert_eq!(store.load(Revision::EMPTY).expect("reads"), None);
    let loaded = store
        .load(Revision(7))
        .expect("reads")
        .expect("the store is at another revision");
    assert_eq!(loaded.revision, Revision::EMPTY);
    assert_eq!(loaded.state, tidegate_cluster::ClusterState::default());
    assert_eq!(store.learnt("a").expect("reads"), None);
}

fn a_commit_is_loaded_with_its_revision(store: &dyn ClusterStore) {
    let full = HostRecord {
        socket: Some("a.sock".to_owned()),
        device: Some("sdb".to_owned()),
        steady_since: Nanos(1),
        rates_recorded_at: Nanos(2),
        drained: true,
        ..host("a")
    };
    let settings = Settings {
        last_number: 3,
        grace: Some(20),
    };
    let limited = Transfer {
        limit: Some(1_000),
        ..transfer("x", 100)
    };
    let changes = [
        Change::PutHost(full.clone()),
        Change::PutSettings(settings),
        Change::PutTransfer(limited.clone()),
        place("x", "a"),
        entitle("x", Class::Idle),
        put("y", 200),
    ];
    let revision = store.commit(Revision::EMPTY, &changes).expect("writes");
    assert!(revision > Revision::EMPTY);
    let loaded = store
        .load(Revision::EMPTY)
        .expect("reads")
        .expect("not empty");
    assert_eq!(loaded.revision, revision);
    assert_eq!(*loaded.state.hosts, [full]);
    assert_eq!(loaded.state.settings, settings);
    assert_eq!(loaded.state.waiting, [transfer("y", 200)]);
    assert_eq!(loaded.state.running.len(), 1);
    let running = &loaded.state.running[0];
    assert_eq!(running.transfer, limited);
    let placed = Change::PutPlacement {
        transfer: "x".to_owned(),
        placement: running.placement.clone(),
    };
    assert_eq!(placed, place("x", "a"));
    let entitled = Change::PutEntitlement {
        transfer: "x".to_owned(),
        entitlement: running.entitlement.clone(),
    };
    assert_eq!(entitled, entitle("x", Class::Idle));
    assert_eq!(store.load(revision).expect("reads"), None, "nothing newer");
    assert_eq!(
        store.commit(revision, &[]).expect("nothing to do"),
        revision
    );
}

fn a_commit_for_another_revision_changes_nothing(store: &dyn ClusterStore) {
    let first = [Change::PutHost(host("a"))];
    let revision = store.commit(Revision::EMPTY, &first).expect("writes");
    let late = [put("x", 1)];
    assert_eq!(conflict(store.commit(Revision::EMPTY, &late)), revision);
    assert_eq!(conflict(store.commit(revision.next(), &late)), revision);
    assert_eq!(conflict(store.commit(Revision::EMPTY, &[])), revision);
    assert_eq!(store.load(revision).expect("reads"), None);
    assert_eq!(names(store), (vec![], vec![]));
    let next = store.commit(revision, &late).expect("writes");
    assert!(next > revision);
}

fn changes_apply_in_order_and_records_keep_theirs(store: &dyn ClusterStore) {
    let changes = [
        Change::PutHost(host("b")),
        Change::PutHost(host("a")),
        put("x", 1),
        put("y", 1),
        put("z", 1),
        place("z", "a"),
        place("x", "a"),
    ];
    let revision = store.commit(Revision::EMPTY, &changes).expect("writes");
    let own = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    assert_eq!(names(store), (own(&["z", "x"]), own(&["y"])));
    // Existing records keep their positions.
    let changes = [
        Change::PutHost(HostRecord {
            drained: true,
            ..host("b")
        }),
        put("z", 2),
        place("z", "b"),
        put("w", 1),
        put("y", 2),
    ];
    let revision = store.commit(revision, &changes).expect("writes");
    assert_eq!(names(store), (own(&["z", "x"]), own(&["y", "w"])));
    let loaded = store
        .load(Revision::EMPTY)
        .expect("reads")
        .expect("not empty");
    let hosts = loaded.state.hosts.iter();
    let hosts: Vec<_> = hosts
        .map(|host| (host.name.as_str(), host.drained))
        .collect();
    assert_eq!(hosts, [("b", true), ("a", false)]);
    assert_eq!(loaded.state.running[0].placement.host, "b");
    // A record that was deleted and put again is the last.
    let again = [Change::DeleteTransfer("y".to_owned()), put("y", 3)];
    store.commit(revision, &again).expect("writes");
    assert_eq!(names(store), (own(&["z", "x"]), own(&["w", "y"])));
}

fn deletes_include_what_belongs_to_the_record(store: &dyn ClusterStore) {
    let named = || "x".to_owned();
    let changes = [
        Change::PutHost(host("a")),
        put("x", 1),
        place("x", "a"),
        entitle("x", Class::RealTime),
    ];
    let revision = store.commit(Revision::EMPTY, &changes).expect("writes");
    let delete = [Change::DeleteEntitlement { transfer: named() }];
    let revision = store.commit(revision, &delete).expect("writes");
    let loaded = store
        .load(Revision::EMPTY)
        .expect("reads")
        .expect("not empty");
    assert_eq!(loaded.state.running[0].entitlement, Entitlement::default());
    let changes = [
        entitle("x", Class::RealTime),
        Change::DeletePlacement { transfer: named() },
        Change::DeleteHost("a".to_owned()),
    ];
    let revision = store.commit(revision, &changes).expect("writes");
    assert_eq!(names(store), (vec![], vec![named()]));
    let changes = [Change::PutHost(host("a")), place("x", "a")];
    let revision = store.commit(revision, &changes).expect("writes");
    let loaded = store
        .load(Revision::EMPTY)
        .expect("reads")
        .expect("not empty");
    assert_eq!(loaded.state.running[0].entitlement, Entitlement::default());
    // A delete of an absent record changes nothing.
    let changes = [
        Change::DeleteTransfer(named()),
        Change::DeleteTransfer(named()),
        Change::DeletePlacement { transfer: named() },
        Change::DeleteEntitlement { transfer: named() },
        Change::DeleteHost("b".to_owned()),
    ];
    store.commit(revision, &changes).expect("writes");
    assert_eq!(names(store), (vec![], vec![]));
}

fn an_inconsistent_commit_changes_nothing(store: &dyn ClusterStore) {
    let changes = [Change::PutHost(host("a")), put("x", 1), place("x", "a")];
    let revision = store.commit(Revision::EMPTY, &changes).expect("writes");
    let before = store.load(Revision::EMPTY).expect("reads");
    let refused = |changes: &[Change]| match store.commit(revision, changes) {
        Err(StoreError::Inconsistent(why)) => why,
        other => panic!("not refused: {other:?}"),
    };
    let why = refused(&[put("y", 1), Change::DeleteHost("a".to_owned())]);
    assert!(matches!(why, Inconsistent::NoHost { transfer, .. } if transfer == "x"));
    let why = refused(&[put("y", 1), place("z", "a")]);
    assert!(matches!(why, Inconsistent::NoTransfer { transfer } if transfer == "z"));
    let learnt = Change::PutLearnt {
        host: "a".to_owned(),
        database: vec![1],
    };
    let why = refused(&[learnt, put("y", 1), entitle("y", Class::Idle)]);
    assert!(matches!(why, Inconsistent::NotPlaced { transfer } if transfer == "y"));
    assert_eq!(store.load(Revision::EMPTY).expect("reads"), before);
    assert_eq!(store.learnt("a").expect("reads"), None);
}

fn a_priority_database_outlives_its_host(store: &dyn ClusterStore) {
    let learnt = |database: &[u8]| Change::PutLearnt {
        host: "a".to_owned(),
        database: database.to_vec(),
    };
    let changes = [Change::PutHost(host("a")), learnt(b"once")];
    let revision = store.commit(Revision::EMPTY, &changes).expect("writes");
    let changes = [learnt(b"twice"), Change::DeleteHost("a".to_owned())];
    store.commit(revision, &changes).expect("writes");
    let found = store.learnt("a").expect("reads");
    assert_eq!(found.as_deref(), Some(b"twice".as_slice()));
    assert_eq!(store.learnt("b").expect("reads"), None);
    let hosts = ["b", "a"].map(host);
    let all = store.learnt_by_all(&hosts).expect("reads");
    assert_eq!(all, [("a".to_owned(), b"twice".to_vec())].into());
    let none = store.learnt_by_all(&hosts[..1]).expect("reads");
    assert!(none.is_empty(), "{none:?}");
}

fn concurrent_commits_are_all_applied(store: &dyn ClusterStore) {
    const WRITERS: u64 = 4;
    const COMMITS: u64 = 10;
    let barrier = Barrier::new(WRITERS as usize);
    let write = || {
        barrier.wait();
        let (mut done, mut known) = (0, Revision::EMPTY);
        while done < COMMITS {
            let loaded = store.load(Revision::EMPTY).expect("reads");
            let before = loaded.as_ref().map_or(Revision::EMPTY, |of| of.revision);
            assert!(before >= known, "revisions never fall");
            let mut settings = loaded.map(|of| of.state.settings).unwrap_or_default();
            settings.last_number += 1;
            known = match store.commit(before, &[Change::PutSettings(settings)]) {
                Ok(revision) => {
                    assert!(revision > before);
                    done += 1;
                    revision
                }
                refused => conflict(refused),
            };
        }
    };
    thread::scope(|scope| {
        for _ in 0..WRITERS {
            scope.spawn(write);
        }
    });
    let loaded = store
        .load(Revision::EMPTY)
        .expect("reads")
        .expect("not empty");
    assert_eq!(loaded.state.settings.last_number, WRITERS * COMMITS);
}
