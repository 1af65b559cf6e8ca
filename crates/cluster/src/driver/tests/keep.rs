//! Clusters that are kept for many decisions.

use super::*;

/// Opens a cluster that is kept.
fn keep<'a>(
    store: &'a dyn ClusterStore,
    daemons: &'a FakeDaemons,
    notify: &'a mut dyn FnMut(ClusterEvent),
    now: Nanos,
) -> Cluster<'a> {
    let session = Session {
        store,
        daemons,
        notify,
        now,
        ask: DaemonSelection::All,
        read_only: false,
    };
    let mut cluster = Cluster::open(session, |_| Ok::<_, Error>(())).expect("opens");
    cluster.refresh(now).expect("no other writer");
    cluster
}

/// The state machine of a kept cluster is that of a session on the same state.
fn assert_is_as_if_opened(cluster: &Cluster<'_>) {
    let (mut kept, mut new) = (cluster.pcos.clone(), cluster.resumed().expect("consistent"));
    kept.refresh_all(cluster.now());
    new.refresh_all(cluster.now());
    for (kept, new) in kept.hosts().zip(new.hosts()) {
        assert_eq!(kept.acceptance(), new.acceptance());
        let running = |view: &tidegate_place::HostView<'_>| -> Vec<_> {
            let all = view.running().iter();
            all.map(|running| (running.vm, running.as_of)).collect()
        };
        assert_eq!(running(&kept), running(&new));
    }
    let queue = |pcos: &Pcos| -> Vec<_> {
        pcos.waiting()
            .map(|(_, request, arrived)| (request, arrived))
            .collect()
    };
    assert_eq!(queue(&kept), queue(&new));
    for transfer in cluster.state.transfer_names() {
        assert!(cluster.names.id(transfer).is_some(), "{transfer} has no id");
    }
}

#[test]
fn two_kept_clusters_that_take_turns_see_what_the_other_has_done() {
    let Fixture { store, now, .. } = Fixture::with_hosts(&["a", "b"]);
    let daemons = FakeDaemons::default();
    let (mut notify, mut notify_second) = (|_| {}, |_| {});
    let mut first = keep(&store, &daemons, &mut notify, now);
    let mut second = keep(&store, &daemons, &mut notify_second, now);
    let later = |seconds| now + Nanos::from_secs(seconds);
    for step in 0..4 {
        for (cluster, name) in [(&mut first, "x"), (&mut second, "y")] {
            let name = format!("{name}-{step}");
            cluster.continue_at(later(step));
            let outcome = cluster.request(&name, request(600, 40), false);
            if cluster.save().is_err() {
                assert!(cluster.lost_race(), "the other one was first");
                cluster.refresh(later(step)).expect("reads");
                assert!(!cluster.state().has_transfer(&name), "undone");
                let again = cluster.request(&name, request(600, 40), false);
                cluster.save().expect("up to date");
                assert_eq!(outcome == Outcome::Waiting, again == Outcome::Waiting);
            }
            assert_is_as_if_opened(cluster);
        }
    }
    first.refresh(later(9)).expect("reads");
    first.end("y-0").expect("it runs");
    second.refresh(later(10)).expect("reads");
    assert!(!second.state().has_transfer("y-0"));
    assert_eq!(first.state(), second.state());
    assert_is_as_if_opened(&second);
    let stored = store.load(Revision::EMPTY).expect("reads").expect("there");
    assert_eq!(&stored.state, second.state());
}

#[test]
fn a_refresh_undoes_what_was_not_saved_and_keeps_the_queue_in_order() {
    let Fixture { store, now, .. } = Fixture::with_hosts(&["a"]);
    let daemons = FakeDaemons::default();
    let mut notify = |_| {};
    let mut cluster = keep(&store, &daemons, &mut notify, now);
    cluster.request("w", request(600, 10), false);
    for name in ["x", "y", "z"] {
        assert_eq!(
            cluster.request(name, request(600, 30), false),
            Outcome::Waiting
        );
    }
    cluster.save().expect("writes");
    let before = cluster.state().clone();
    // Another writer is first: the end of w, by which x would run, is undone.
    let other = Change::PutSettings(crate::record::Settings::default());
    store
        .commit(cluster.revision(), &[other])
        .expect("is first");
    cluster.end("w").expect_err("too late");
    assert!(cluster.lost_race() && cluster.state().running("x").is_some());
    cluster.refresh(now).expect("reads");
    assert_eq!(cluster.state(), &before);
    assert_is_as_if_opened(&cluster);
    cluster.end("w").expect("up to date");
    assert!(cluster.state().running("x").is_some());
    assert_is_as_if_opened(&cluster);
}

#[test]
fn what_waits_is_tried_after_another_writer_has_made_room() {
    let Fixture { store, now, .. } = Fixture::with_hosts(&["a"]);
    let daemons = FakeDaemons::default();
    let mut notify = |_| {};
    let mut cluster = keep(&store, &daemons, &mut notify, now);
    cluster.request("w", request(600, 10), false);
    assert_eq!(
        cluster.request("x", request(600, 30), false),
        Outcome::Waiting
    );
    cluster.save().expect("writes");
    let ended = Change::DeleteTransfer("w".to_owned());
    store.commit(cluster.revision(), &[ended]).expect("writes");
    cluster.refresh(now).expect("reads");
    assert!(cluster.state().running("x").is_some());
    cluster.save().expect("up to date");
}

#[test]
fn a_host_that_was_closed_for_one_request_is_open_for_the_next() {
    let mut fixture = with_daemon();
    fixture.session(|cluster| {
        let host = HostRecord::new("b".to_owned(), 60 * MB, Vec::new(), 4);
        cluster.state.add_host(host).expect("new");
        cluster.save().expect("writes");
    });
    for is_dry_run in [true, false] {
        let mut notify = |_| {};
        let mut cluster = keep(&fixture.store, &fixture.daemons, &mut notify, fixture.now);
        cluster.session.read_only = is_dry_run;
        cluster
            .only_where_served("unknown")
            .expect_err("no such VM");
        cluster.only_where_served("x").expect("by a");
        cluster.request("x", request(60, 10), true);
        cluster.save().expect("writes, unless it is a dry run");
        let outcome = cluster.request("y", request(60, 10), false);
        let Outcome::Placed(placement) = outcome else {
            panic!("{outcome:?}");
        };
        assert_eq!(placement.host, HostId(1), "b, which has more free");
    }
}
