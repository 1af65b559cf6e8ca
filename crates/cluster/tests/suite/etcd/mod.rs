//! The store in etcd: what its keys are, its limits, access, and failures.

mod access;
mod member;
mod proxy;
mod race;
pub(crate) mod server;
mod starts;
mod watch;

use std::thread;
use std::time::Duration;

use tidegate_cluster::store::{ClusterStore, EtcdOptions, EtcdStore, Revision, StoreError};
use tidegate_cluster::{Change, Entitlement, HostRecord, Placement, Transfer};
use tidegate_core::time::Nanos;
use tidegate_core::transfers::Class;
use tidegate_place::Request;

use proxy::{Loss, Proxy};
use server::{Server, is_installed};

fn host(name: &str) -> Change {
    Change::PutHost(HostRecord::new(name.to_owned(), 60, vec![0, 10], 4))
}

fn transfer(name: &str) -> Change {
    let request = Request::new(600, Nanos::from_secs(9)).expect("valid");
    Change::PutTransfer(Transfer::new(name, &request, Nanos(5)))
}

fn place(name: &str, host: &str) -> Change {
    Change::PutPlacement {
        transfer: name.to_owned(),
        placement: Placement::new(host, Nanos(6)),
    }
}

fn load(store: &EtcdStore) -> Result<usize, StoreError> {
    let loaded = store.load(Revision::EMPTY)?;
    Ok(loaded.map_or(0, |loaded| {
        loaded.state.running.len() + loaded.state.waiting.len()
    }))
}

#[test]
fn records_are_keys_below_the_prefix_that_etcdctl_shows() {
    if !is_installed() {
        return;
    }
    let server = Server::shared();
    let prefix = Server::new_prefix();
    let store = server.store(&prefix);
    let changes = [
        host("a"),
        transfer("x"),
        place("x", "a"),
        Change::PutEntitlement {
            transfer: "x".to_owned(),
            entitlement: Entitlement {
                class: Class::Idle,
                lowered_for: vec!["y".to_owned()],
            },
        },
        transfer("y"),
        Change::PutLearnt {
            host: "a".to_owned(),
            database: vec![1, 2, 3],
        },
    ];
    store.commit(Revision::EMPTY, &changes).expect("writes");
    let shown = server.etcdctl(&["get", "--prefix", &prefix]);
    let lines: Vec<_> = shown
        .lines()
        .map(|line| line.replace(&prefix, ""))
        .collect();
    let keys: Vec<_> = lines.iter().step_by(2).map(String::as_str).collect();
    assert_eq!(
        keys,
        [
            "entitlements/x",
            "hosts/a",
            "learnt/a",
            "placements/x",
            "revision",
            "settings",
            "transfers/x",
            "transfers/y",
        ]
    );
    // The documentation shows these values: docs/cluster.md.
    let value = |key: &str| lines[1 + 2 * keys.iter().position(|k| *k == key).expect(key)].clone();
    assert_eq!(
        value("hosts/a"),
        r#"{"schema":1,"order":1,"bandwidth_bytes_per_s":60,"loss_bytes_per_s":[0,10],"#.to_owned()
            + r#""max_transfers":4,"socket":null,"device":null,"drained":false,"#
            + r#""steady_since_ns":0,"rates_recorded_at_ns":0}"#
    );
    assert_eq!(
        value("entitlements/x"),
        r#"{"schema":1,"class":"idle","lowered_for":["y"]}"#
    );
    assert_eq!(value("learnt/a"), r#"{"schema":1,"database":"AQID"}"#);
    let revision_value = value("revision");
    assert!(
        revision_value.starts_with(r#"{"schema":1,"revision":1,"commits":[""#),
        "{revision_value}"
    );
}

#[test]
fn a_commit_leaves_other_records_as_they_are_and_deletes_keys_with_their_records() {
    if !is_installed() {
        return;
    }
    let server = Server::shared();
    let prefix = Server::new_prefix();
    let store = server.store(&prefix);
    let changes = [host("a"), transfer("x"), place("x", "a"), transfer("y")];
    let revision = store.commit(Revision::EMPTY, &changes).expect("writes");
    let modified = || {
        let key = format!("{prefix}transfers/y");
        let fields = server.etcdctl(&["get", &key, "-w", "fields"]);
        let line = fields.lines().find(|line| line.contains("ModRevision"));
        line.expect("a field").to_owned()
    };
    let before = modified();
    let delete = [Change::DeleteTransfer("x".to_owned())];
    store.commit(revision, &delete).expect("writes");
    assert_eq!(modified(), before);
    let left = server.etcdctl(&[
        "get",
        "--prefix",
        "--keys-only",
        &format!("{prefix}placements"),
    ]);
    assert_eq!(left.trim(), "");
}

#[test]
fn commits_of_thousands_of_records_are_one_transaction_and_larger_ones_are_refused() {
    if !is_installed() {
        return;
    }
    let server = Server::shared();
    let store = server.store(&Server::new_prefix());
    // 128 operations are what etcd takes on one level.
    let many: Vec<_> = (0..1_500).map(|n| transfer(&format!("x-{n:04}"))).collect();
    let revision = store.commit(Revision::EMPTY, &many).expect("writes");
    assert_eq!(load(&store).expect("reads"), 1_500);
    let late = store.commit(Revision::EMPTY, &many);
    assert!(matches!(late, Err(StoreError::Conflict { present }) if present == revision));
    let more: Vec<_> = (0..5_000).map(|n| transfer(&format!("y-{n}"))).collect();
    let refused = store.commit(revision, &more).expect_err("too many");
    let message = refused.to_string();
    assert!(
        matches!(refused, StoreError::TooLarge(_)) && message.contains("at most 4096 records"),
        "{message}"
    );
    let large = Change::PutLearnt {
        host: "a".to_owned(),
        database: vec![7; 1_500_000],
    };
    let refused = store.commit(revision, &[large]).expect_err("too large");
    assert!(matches!(refused, StoreError::TooLarge(_)), "{refused}");
    assert_eq!(load(&store).expect("reads"), 1_500);
    let all: Vec<_> = (0..1_500).map(|n| format!("x-{n:04}")).collect();
    let delete: Vec<_> = all.into_iter().map(Change::DeleteTransfer).collect();
    store.commit(revision, &delete).expect("writes");
    assert_eq!(load(&store).expect("reads"), 0);
}

#[test]
fn an_admission_is_fenced_by_hosts_that_were_changed_by_hand() {
    if !is_installed() {
        return;
    }
    let server = Server::shared();
    let prefix = Server::new_prefix();
    let store = server.store(&prefix);
    let changes = [host("a"), transfer("x")];
    let revision = store.commit(Revision::EMPTY, &changes).expect("writes");
    store.load(Revision::EMPTY).expect("reads");
    let key = format!("{prefix}hosts/a");
    let value = server.etcdctl(&["get", "--print-value-only", &key]);
    let drained = value
        .trim()
        .replace("\"drained\":false", "\"drained\":true");
    server.etcdctl(&["put", &key, &drained]);
    let refused = store.commit(revision, &[place("x", "a")]);
    assert!(
        matches!(refused, Err(StoreError::Conflict { .. })),
        "{refused:?}"
    );
    let loaded = store.load(Revision::EMPTY).expect("reads").expect("there");
    assert!(loaded.state.hosts[0].drained && loaded.state.running.is_empty());
    store
        .commit(loaded.revision, &[place("x", "a")])
        .expect("as it was read");
}

#[test]
fn damaged_and_newer_values_are_refused_with_their_key() {
    if !is_installed() {
        return;
    }
    let server = Server::shared();
    let prefix = Server::new_prefix();
    let store = server.store(&prefix);
    let changes = [host("a"), transfer("x"), place("x", "a")];
    store.commit(Revision::EMPTY, &changes).expect("writes");
    let damage = |key: &str, value: &str| {
        let key = format!("{prefix}{key}");
        let before = server.etcdctl(&["get", "--print-value-only", &key]);
        server.etcdctl(&["put", "--", &key, value]);
        let refused = load(&store).expect_err("refused");
        let written = server.store(&prefix).commit(Revision(1), &[transfer("y")]);
        written.expect_err("nothing is written over what is not understood");
        server.etcdctl(&["put", "--", &key, before.trim()]);
        assert!(refused.to_string().contains(&key), "{refused}");
        refused
    };
    let newer = damage("hosts/a", r#"{"schema":2,"bandwidth":"60 B/s"}"#);
    assert!(
        matches!(
            newer,
            StoreError::RecordVersion {
                found: 2,
                known: 1,
                ..
            }
        ),
        "{newer}"
    );
    let newer = damage("revision", r#"{"schema":3}"#);
    assert!(
        matches!(newer, StoreError::RecordVersion { found: 3, .. }),
        "{newer}"
    );
    for (key, value) in [
        ("transfers/x", "{"),
        ("transfers/x", r#"{"schema":1}"#),
        ("placements/x", r#"{"schema":1,"order":1,"host":"b"}"#),
        (
            "settings",
            r#"{"schema":1,"last_number":0,"grace_thousandths":-1}"#,
        ),
    ] {
        let damaged = damage(key, value);
        assert!(
            matches!(damaged, StoreError::DamagedRecord { .. }),
            "{damaged}"
        );
    }
    assert_eq!(load(&store).expect("all is as before"), 1);
    server.etcdctl(&[
        "put",
        &format!("{prefix}learnt/a"),
        r#"{"schema":1,"database":"%"}"#,
    ]);
    let damaged = store.learnt("a").expect_err("no base64").to_string();
    assert!(damaged.contains(&format!("{prefix}learnt/a")), "{damaged}");
}

#[test]
fn a_member_that_is_away_is_passed_over_and_all_away_is_an_error() {
    if !is_installed() {
        return;
    }
    let server = Server::start();
    let options = server.options("/t/");
    let away = EtcdOptions {
        // Port 9 is discard's, which nobody serves.
        endpoints: vec!["http://127.0.0.1:9".to_owned(), server.url()],
        ..options
    };
    let store = EtcdStore::new(&away).expect("valid");
    let revision = store
        .commit(Revision::EMPTY, &[host("a")])
        .expect("the second one answers");
    let members = store.members();
    assert!(members[0].1.is_err(), "{members:?}");
    let second = members[1].1.as_ref().expect("it answers");
    assert!(
        second.is_leader && second.version.starts_with("3."),
        "{second:?}"
    );
    server.kill();
    let error = store.load(Revision::EMPTY).expect_err("all are away");
    let message = error.to_string();
    assert!(matches!(error, StoreError::Unavailable { .. }), "{message}");
    assert!(
        message.contains("etcd does not answer") && message.contains("refused"),
        "{message}"
    );
    let error = store
        .commit(revision, &[host("b")])
        .expect_err("all are away");
    assert!(matches!(error, StoreError::Unavailable { .. }), "{error}");
    // What was committed has survived the kill.
    server.restart();
    let loaded = store.load(Revision::EMPTY).expect("reads").expect("there");
    assert_eq!((loaded.revision, loaded.state.hosts.len()), (revision, 1));
    store.commit(revision, &[host("b")]).expect("writes");
}

#[test]
fn a_commit_whose_answer_was_lost_is_not_carried_out_twice() {
    if !is_installed() {
        return;
    }
    let server = Server::shared();
    let proxy = Proxy::start(server.client_port());
    let options = EtcdOptions {
        endpoints: vec![proxy.url()],
        ..server.options(&Server::new_prefix())
    };
    let store = EtcdStore::new(&options).expect("valid");
    let mut revision = store.commit(Revision::EMPTY, &[host("a")]).expect("writes");
    for n in 0..5 {
        proxy.lose_next_answer();
        let changes = [transfer(&format!("x-{n}"))];
        let next = store
            .commit(revision, &changes)
            .expect("the second attempt is answered");
        assert_eq!(next, revision.next());
        revision = next;
    }
    assert_eq!(proxy.answers_lost(), 5);
    let loaded = store.load(Revision::EMPTY).expect("reads").expect("there");
    assert_eq!((loaded.revision, loaded.state.waiting.len()), (revision, 5));
    // Without another attempt the outcome is not known, and the next load tells.
    proxy.lose_all_answers();
    let unknown = store
        .commit(revision, &[transfer("y")])
        .expect_err("no answer");
    assert!(
        matches!(unknown, StoreError::OutcomeUnknown(_)),
        "{unknown}"
    );
    proxy.answer();
    let loaded = store.load(Revision::EMPTY).expect("reads").expect("there");
    assert_eq!(
        (loaded.revision, loaded.state.waiting.len()),
        (revision.next(), 6)
    );
    // So for a request that has not come to etcd, and for one that has.
    for (loss, waiting) in [(Loss::Request, 6), (Loss::Answers, 7)] {
        let loaded = store.load(Revision::EMPTY).expect("reads").expect("there");
        proxy.lose_from("transfers/z", loss);
        let unknown = store.commit(loaded.revision, &[transfer("z")]);
        assert!(
            matches!(unknown, Err(StoreError::OutcomeUnknown(_))),
            "{loss:?}: {unknown:?}"
        );
        proxy.answer();
        let loaded = store.load(Revision::EMPTY).expect("reads").expect("there");
        assert_eq!(loaded.state.waiting.len(), waiting, "{loss:?}");
    }
}

#[test]
fn a_commit_that_was_forgotten_before_its_next_attempt_is_not_called_a_conflict() {
    if !is_installed() {
        return;
    }
    let server = Server::shared();
    let proxy = Proxy::start(server.client_port());
    let prefix = Server::new_prefix();
    let options = EtcdOptions {
        endpoints: vec![proxy.url()],
        // Attempts go on until the others have committed.
        call_timeout: Duration::from_secs(300),
        ..server.options(&prefix)
    };
    let (store, other) = (
        EtcdStore::new(&options).expect("valid"),
        server.store(&prefix),
    );
    let revision = store.commit(Revision::EMPTY, &[host("a")]).expect("writes");
    proxy.lose_from("transfers/x", Loss::Answers);
    let committed = thread::scope(|scope| {
        let commit = scope.spawn(|| store.commit(revision, &[transfer("x")]));
        let mut present = loop {
            let loaded = other.load(Revision::EMPTY).expect("reads").expect("there");
            if loaded.revision > revision {
                break loaded.revision;
            }
            assert!(!commit.is_finished(), "the attempt came to etcd");
            thread::sleep(Duration::from_millis(5));
        };
        // As many as are remembered.
        for n in 0..256 {
            let changes = [transfer(&format!("other-{n}"))];
            present = other.commit(present, &changes).expect("writes");
        }
        proxy.answer();
        commit.join().expect("no panic")
    });
    // A conflict would be decided again, and the job stored twice under another name.
    assert!(
        matches!(committed, Err(StoreError::OutcomeUnknown(_))),
        "{committed:?}"
    );
    let loaded = other.load(Revision::EMPTY).expect("reads").expect("there");
    assert!(loaded.state.has_transfer("x"), "it was stored");
}

#[test]
fn a_cluster_without_a_member_of_etcd_is_refused() {
    let options = EtcdOptions {
        endpoints: Vec::new(),
        prefix: "/t/".to_owned(),
        user: None,
        tls: None,
        call_timeout: EtcdOptions::CALL_TIMEOUT,
    };
    let refused = EtcdStore::new(&options).err().expect("no member to ask");
    assert!(
        refused.to_string().contains("no member of etcd"),
        "{refused}"
    );
}
