//! Stored times of a placer whose clock was ahead.

use serde_json::json;
use tidegate_cluster::Change;
use tidegate_cluster::store::{ClusterStore, RedbStore, Revision};
use tidegate_core::time::Nanos;

use super::{Site, job};

#[test]
fn a_stored_time_that_is_ahead_stops_commands_until_it_is_repaired() {
    let site = Site::new();
    site.good(&["host", "add", "c", "--bandwidth", "54 MB/s"]);
    assert_eq!(site.json(&job("x", &[]))["outcome"], "placed");
    let path = site.0.path().join("tidegate-place.redb");
    // In a block: one process at a time has the file open.
    {
        let store = RedbStore::open(&path).expect("opens");
        let loaded = store.load(Revision::EMPTY).expect("reads").expect("there");
        let running = loaded.state.running("x").expect("it is placed");
        let mut placement = running.placement.clone();
        placement.as_of += Nanos::from_secs(3_600);
        placement.moved = running.transfer.bytes;
        let transfer = "x".to_owned();
        let ahead = Change::PutPlacement {
            transfer,
            placement,
        };
        store.commit(loaded.revision, &[ahead]).expect("writes");
    }
    for words in [&job("y", &[])[..], &["end", "x"]] {
        let message = site.bad(words);
        assert!(
            message.contains("job \"x\" has a time that is")
                && message.contains("`tidegate place repair-times`"),
            "{message}"
        );
    }
    assert_eq!(site.json(&["repair-times"]), json!({"repaired": ["x"]}));
    let listed = site.json(&["list"]);
    let of_x = &listed["hosts"][0]["jobs"][0];
    assert_ne!(of_x["moved_bytes"], of_x["size_bytes"], "{listed}");
    assert_eq!(site.json(&["repair-times"]), json!({"repaired": []}));
    site.good(&["end", "x"]);
}
