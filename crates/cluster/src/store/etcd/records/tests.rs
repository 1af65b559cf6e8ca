//! Records as they are read, written and followed.

use super::*;
use crate::change::difference;
use proptest::prelude::*;
use tidegate_core::time::Nanos;
use tidegate_place::Request;

fn host(name: &str) -> HostRecord {
    HostRecord::new(name.to_owned(), 60, vec![0, 10], 4)
}

fn transfer(name: &str) -> Transfer {
    let request = Request::new(9, Nanos::SECOND).expect("valid");
    Transfer::new(name, &request, Nanos(3))
}

fn running(name: &str, host: &str) -> RunningTransfer {
    RunningTransfer {
        transfer: transfer(name),
        placement: Placement::new(host, Nanos(4)),
        entitlement: Entitlement::default(),
        live: false,
    }
}

/// Events of the last commit, as etcd sends them.
fn events(writes: &Writes, version: i64) -> Vec<KeyValue> {
    let event = |(key, value): (&String, &Option<Value>)| KeyValue {
        key: key.clone(),
        value: value.as_ref().map(|value| value.write().expect("JSON")),
        version,
        created: 0,
    };
    writes.iter().map(event).collect()
}

/// Records with the keys that etcd has, and the writes of the last commit.
struct Stored {
    records: Records,
    keys: BTreeMap<String, KeyValue>,
    writes: Writes,
}

impl Stored {
    fn new() -> Stored {
        Stored {
            records: Records::read("/t/", Vec::new(), 1).expect("empty"),
            keys: BTreeMap::new(),
            writes: Writes::new(),
        }
    }

    /// Commits the changes that lead to `state`.
    fn commit(&mut self, change: impl FnOnce(&mut ClusterState)) {
        let before = self.records.snapshot().state;
        let mut after = before.clone();
        change(&mut after);
        let changes = difference(&before, &after);
        let version = self.records.at() + 1;
        let id = format!("c{version}");
        self.writes = self.records.writes_of(&changes, &id).expect("they fit");
        self.records.wrote(self.writes.clone(), version);
        for event in events(&self.writes, version) {
            match event.value {
                Some(_) => drop(self.keys.insert(event.key.clone(), event)),
                None => drop(self.keys.remove(&event.key)),
            }
        }
        assert_eq!(self.records.snapshot().state, after);
    }

    fn listed(&self) -> Result<Records, StoreError> {
        let all = self.keys.values().cloned().collect();
        Records::read("/t/", all, self.records.at())
    }

    fn written(&self) -> (Vec<&str>, Vec<&str>) {
        let (puts, deletes): (Vec<_>, Vec<_>) =
            self.writes.iter().partition(|(_, value)| value.is_some());
        (
            puts.into_iter().map(|(key, _)| key.as_str()).collect(),
            deletes.into_iter().map(|(key, _)| key.as_str()).collect(),
        )
    }
}

fn fill(state: &mut ClusterState) {
    state.hosts = vec![host("b"), host("a")].into();
    state.running.push(running("z", "a"));
    state.running.push(running("x/1", "b"));
    state.waiting.push(transfer("y"));
    state.waiting.push(transfer("w"));
}

#[test]
fn states_are_read_as_they_were_written_in_their_order() {
    let mut stored = Stored::new();
    stored.commit(fill);
    let listed = stored.listed().expect("its own");
    assert_eq!(listed.snapshot(), stored.records.snapshot());
    assert_eq!(listed.snapshot().revision, Revision(1));
    // The one that runs first waits again, behind the others; the last host comes first.
    stored.commit(|state| {
        let first = state.running.remove("z").expect("it runs");
        state.waiting.push(first.transfer);
        state.hosts.reverse();
    });
    let listed = stored.listed().expect("its own");
    assert_eq!(listed.snapshot(), stored.records.snapshot());
}

#[test]
fn only_records_that_differ_are_put() {
    let mut stored = Stored::new();
    stored.commit(fill);
    stored.commit(|_| {});
    assert_eq!(stored.written(), (vec!["revision"], vec![]));
    stored.commit(|state| {
        state.running.remove("z");
        state.waiting.push(transfer("v"));
    });
    assert_eq!(
        stored.written(),
        (
            vec!["revision", "transfers/v"],
            vec!["placements/z", "transfers/z"]
        )
    );
    // A placed transfer keeps its key.
    stored.commit(|state| {
        state.waiting.remove("y");
        state.running.push(running("y", "a"));
    });
    assert_eq!(stored.written(), (vec!["placements/y", "revision"], vec![]));
}

#[test]
fn records_that_do_not_fit_each_other_are_refused_with_their_key() {
    let mut stored = Stored::new();
    stored.commit(|state| {
        state.hosts = vec![host("a")].into();
        state.running.push(RunningTransfer {
            entitlement: Entitlement {
                lowered_for: vec!["y".to_owned()],
                ..Entitlement::default()
            },
            ..running("x", "a")
        });
    });
    for (missing, named) in [
        ("revision", "/t/revision"),
        ("hosts/a", "/t/placements/x"),
        ("transfers/x", "/t/placements/x"),
        ("placements/x", "/t/entitlements/x"),
    ] {
        let kept = stored.keys.remove(missing).expect("there");
        let refused = stored.listed().expect_err(missing).to_string();
        assert!(refused.contains(named), "{missing}: {refused}");
        stored.keys.insert(missing.to_owned(), kept);
    }
}

#[test]
fn a_number_that_no_commit_can_follow_is_refused_with_its_key() {
    let mut stored = Stored::new();
    stored.commit(fill);
    for key in ["hosts/a", "transfers/y", "placements/z"] {
        let kept = stored.keys[key].clone();
        let text = String::from_utf8(kept.value.clone().expect("there")).expect("JSON");
        let (before, after) = text.split_once("\"order\":").expect("it has one");
        let (_, after) = after.split_once(',').expect("more follows");
        for (order, is_valid) in [(u64::MAX, false), (LAST_ORDER, true)] {
            let value = format!("{before}\"order\":{order},{after}");
            let pair = stored.keys.get_mut(key).expect("there");
            pair.value = Some(value.into_bytes());
            match stored.listed() {
                Ok(_) => assert!(is_valid, "{key}"),
                Err(error) => {
                    assert!(!is_valid && error.to_string().contains(key), "{error}");
                }
            }
        }
        stored.keys.insert(key.to_owned(), kept);
    }
}

proptest! {
    #[test]
    fn events_lead_to_the_same_records_however_often_and_in_what_order_they_come(
        steps in prop::collection::vec((0_u8..4, 0_u8..5), 1..12),
        order in prop::collection::vec(any::<prop::sample::Index>(), 0..80),
    ) {
        let mut stored = Stored::new();
        stored.commit(fill);
        let mut follower = stored.listed().expect("its own");
        let mut all = Vec::new();
        for (step, name) in steps {
            let name = format!("t-{name}");
            stored.commit(|state| match step {
                0 if !state.has_transfer(&name) => state.waiting.push(transfer(&name)),
                1 if !state.has_transfer(&name) => state.running.push(running(&name, "a")),
                2 => drop((state.running.remove(&name), state.waiting.remove(&name))),
                _ => state.settings.last_number += 1,
            });
            all.extend(events(&stored.writes, stored.records.at()));
        }
        // Some events early and again, then all of them, of which the last may come first.
        let early = order.iter().map(|index| index.get(&all).clone());
        let shuffled: Vec<_> = early.chain(all.iter().rev().cloned()).collect();
        let mut touched = Touched::default();
        for event in &shuffled {
            follower.apply("/t/", event, &mut touched).expect("valid");
        }
        prop_assert_eq!(follower.snapshot(), stored.records.snapshot());
        prop_assert_eq!(follower.at(), stored.records.at());
    }
}

#[test]
fn deleted_keys_are_forgotten_once_no_event_of_them_can_be_new() {
    let mut stored = Stored::new();
    stored.commit(fill);
    let put = events(&stored.writes, stored.records.at());
    stored.commit(|state| drop(state.running.remove("z")));
    let deleted = events(&stored.writes, stored.records.at());
    let mut records = Records::read("/t/", Vec::new(), 1).expect("empty");
    let mut touched = Touched::default();
    for event in put.iter().chain(&deleted) {
        let applied = records.apply("/t/", event, &mut touched);
        applied.expect("as written");
    }
    assert_eq!(records.version("placements/z"), stored.records.at());
    records.end_batch();
    assert_eq!(records.version("placements/z"), 0);
    assert!(records.version("placements/x/1") > 0 && records.deleted.is_empty());
    for event in &put {
        let applied = records.apply("/t/", event, &mut touched);
        applied.expect("as written");
    }
    assert_eq!(records.snapshot(), stored.records.snapshot());
}
