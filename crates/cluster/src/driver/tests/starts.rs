//! Starts on daemons that have joined the cluster.

use super::*;

#[test]
fn a_start_without_an_answer_is_left_to_a_daemon_that_has_joined() {
    let fixture = Fixture::with_hosts(&["a"]);
    let daemons = FakeDaemons {
        leaves_starts: Some("the daemon closed the connection"),
        ..FakeDaemons::default()
    };
    let published = |memberships| Published {
        store: &fixture.store,
        memberships,
    };
    let joined = published(BTreeMap::new()).host("a", 0, true);
    let mut events = Vec::new();
    let placed = joined.try_place(&daemons, "x", 1, &mut |event| events.push(event));
    assert_eq!(placed.expect("stored").as_deref(), Some("a"));
    assert!(fixture.stored().running("x").is_some());
    let left = ClusterEvent::StartLeftToDaemon {
        transfer: "x".to_owned(),
        host: "a".to_owned(),
        why: "the daemon closed the connection".to_owned(),
    };
    assert_eq!(events, [left]);
    // A daemon that has never joined has no recorded start, so the placement must go.
    let declared = published(BTreeMap::new());
    let refused = declared.try_place(&daemons, "y", 1, &mut |_| {});
    assert!(matches!(refused, Err(Error::Daemon(_))), "{refused:?}");
    assert!(fixture.stored().running("y").is_none());
    // So must one that is refused.
    let daemons = FakeDaemons {
        refuses_starts: true,
        ..FakeDaemons::default()
    };
    let refused = joined.try_place(&daemons, "z", 1, &mut |_| {});
    assert!(matches!(refused, Err(Error::Daemon(_))), "{refused:?}");
    assert!(fixture.stored().running("z").is_none());
}
