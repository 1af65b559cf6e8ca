//! Keys and values of a cluster in etcd, and the state that they stand for.

use std::collections::BTreeMap;

use super::keys::{MEMBERS, RESERVATIONS, Values};
use super::published::take_memberships;
use super::value::{
    EntitlementValue, HostValue, PlacementValue, RevisionValue, SettingsValue, TransferValue,
    damaged, read, write,
};
use crate::record::{Entitlement, Placement, RunningTransfer, Transfer};
use crate::state::ClusterState;
use crate::store::{Revision, Snapshot, StoreError};

/// Key of the revision.
pub(super) const REVISION: &str = "revision";
/// Key of the settings.
pub(super) const SETTINGS: &str = "settings";
/// Folder of hosts.
pub(super) const HOSTS: &str = "hosts/";
/// Folder of deadline transfers.
pub(super) const TRANSFERS: &str = "transfers/";
/// Folder of placements.
pub(super) const PLACEMENTS: &str = "placements/";
/// Folder of entitlements.
pub(super) const ENTITLEMENTS: &str = "entitlements/";
/// Folder of learnt priority databases, which are no part of the state.
pub(super) const LEARNT: &str = "learnt/";

/// Folders of records of the state.
pub(super) const FOLDERS: [&str; 6] = [
    HOSTS,
    TRANSFERS,
    PLACEMENTS,
    ENTITLEMENTS,
    MEMBERS,
    RESERVATIONS,
];

/// State of a cluster as it is stored.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Records {
    /// Value of the key [`REVISION`].
    pub(super) revision: RevisionValue,
    /// State that the values stand for.
    pub(super) state: ClusterState,
    /// Values of all other keys that commits write.
    values: Values,
    orders: Orders,
}

/// Numbers by which records are sorted, by name.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
struct Orders {
    hosts: BTreeMap<String, u64>,
    transfers: BTreeMap<String, u64>,
    placements: BTreeMap<String, u64>,
}

/// Returns whether a key, without the prefix, belongs to the state.
pub(super) fn is_of_state(key: &str) -> bool {
    key == REVISION || key == SETTINGS || FOLDERS.iter().any(|folder| key.starts_with(folder))
}

impl Records {
    /// Reads the state of all keys below `prefix`, which errors name.
    ///
    /// # Errors
    /// A value is damaged or of another schema, or the records do not fit each other.
    pub(super) fn read(prefix: &str, mut values: Values) -> Result<Records, StoreError> {
        let key = |key: &str| format!("{prefix}{key}");
        let memberships = take_memberships(prefix, &mut values)?;
        let revision = match values.remove(REVISION) {
            Some(value) => read(&key(REVISION), &value)?,
            None if values.is_empty() => RevisionValue::empty(),
            None => return Err(damaged(&key(REVISION), "missing beside other keys")),
        };
        let mut state = ClusterState {
            memberships,
            ..ClusterState::default()
        };
        if let Some(value) = values.get(SETTINGS) {
            state.settings = read::<SettingsValue>(&key(SETTINGS), value)?.into_record();
        }
        let mut orders = Orders::default();
        for (name, value) in folder(&values, HOSTS) {
            let value: HostValue = read(&key(&format!("{HOSTS}{name}")), value)?;
            orders.hosts.insert(name.to_owned(), value.order);
            state.hosts.push(value.into_record(name));
        }
        state.hosts.sort_by_key(|host| orders.hosts[&host.name]);
        let mut transfers = BTreeMap::new();
        for (name, value) in folder(&values, TRANSFERS) {
            let value: TransferValue = read(&key(&format!("{TRANSFERS}{name}")), value)?;
            orders.transfers.insert(name.to_owned(), value.order);
            transfers.insert(name, value.into_record(name));
        }
        let mut entitlements = BTreeMap::new();
        for (name, value) in folder(&values, ENTITLEMENTS) {
            let key = key(&format!("{ENTITLEMENTS}{name}"));
            let value: EntitlementValue = read(&key, value)?;
            entitlements.insert(name, value.into_record(&key)?);
        }
        for (name, value) in folder(&values, PLACEMENTS) {
            let key = key(&format!("{PLACEMENTS}{name}"));
            let value: PlacementValue = read(&key, value)?;
            orders.placements.insert(name.to_owned(), value.order);
            let transfer = transfers.remove(name);
            let transfer = transfer.ok_or_else(|| damaged(&key, "there is no such transfer"))?;
            state.running.push(RunningTransfer {
                transfer,
                placement: value.into_record(),
                entitlement: entitlements.remove(name).unwrap_or_default(),
                live: false,
            });
        }
        state
            .running
            .sort_by_key(|running| orders.placements[running.name()]);
        if let Some(name) = entitlements.keys().next() {
            let key = key(&format!("{ENTITLEMENTS}{name}"));
            return Err(damaged(&key, "there is no placement of this name"));
        }
        state.waiting = transfers.into_values().collect();
        state
            .waiting
            .sort_by_key(|transfer| orders.transfers[&transfer.name]);
        check_hosts(prefix, &state)?;
        Ok(Records {
            revision,
            state,
            values,
            orders,
        })
    }

    /// Returns the records after a commit that results in `state`.
    ///
    /// # Errors
    /// None for states that [`Change::apply`](crate::Change::apply) accepts.
    pub(super) fn after(&self, commit: &str, state: ClusterState) -> Result<Records, StoreError> {
        let orders = Orders {
            hosts: renumber(
                &self.orders.hosts,
                state.hosts.iter().map(|host| &*host.name),
            ),
            placements: renumber(
                &self.orders.placements,
                state.running.iter().map(RunningTransfer::name),
            ),
            transfers: self.queue_orders(&state),
        };
        let mut values = Values::new();
        values.insert(
            SETTINGS.to_owned(),
            write(&SettingsValue::new(&state.settings))?,
        );
        for host in &state.hosts {
            let value = write(&HostValue::new(host, orders.hosts[&host.name]))?;
            values.insert(format!("{HOSTS}{}", host.name), value);
        }
        let placed = state.running.iter().map(|running| &running.transfer);
        for transfer in placed.chain(&state.waiting) {
            put_transfer(&mut values, transfer, orders.transfers[&transfer.name])?;
        }
        for running in &state.running {
            let (name, placement) = (running.name(), &running.placement);
            put_placement(&mut values, name, placement, orders.placements[name])?;
            if running.entitlement != Entitlement::default() {
                let value = write(&EntitlementValue::new(&running.entitlement))?;
                values.insert(format!("{ENTITLEMENTS}{name}"), value);
            }
        }
        Ok(Records {
            revision: self.revision.after(commit),
            state,
            values,
            orders,
        })
    }

    /// Returns the numbers of transfers in `state`. Only waiting ones are sorted by them, so placed
    /// ones keep theirs.
    fn queue_orders(&self, state: &ClusterState) -> BTreeMap<String, u64> {
        let waiting = state.waiting.iter().map(|transfer| &*transfer.name);
        let mut orders = renumber(&self.orders.transfers, waiting);
        for running in &state.running {
            let before = self.orders.transfers.get(running.name());
            orders.insert(
                running.name().to_owned(),
                before.copied().unwrap_or_default(),
            );
        }
        orders
    }

    /// Returns the keys to put with their values, and the keys to delete, that lead from these
    /// records to `next`, without the key [`REVISION`].
    pub(super) fn difference<'a>(
        &'a self,
        next: &'a Records,
    ) -> (Vec<(&'a str, &'a [u8])>, Vec<&'a str>) {
        let is_new = |(key, value): &(&String, &Vec<u8>)| self.values.get(*key) != Some(*value);
        let puts = next.values.iter().filter(is_new);
        let deletes = self
            .values
            .keys()
            .filter(|key| !next.values.contains_key(*key));
        (
            puts.map(|(key, value)| (&**key, &**value)).collect(),
            deletes.map(|key| &**key).collect(),
        )
    }

    /// Returns the state with its revision.
    pub(super) fn snapshot(&self) -> Snapshot {
        Snapshot {
            revision: Revision(self.revision.revision),
            state: self.state.clone(),
        }
    }
}

/// Returns names and values of a folder.
fn folder<'a>(
    values: &'a Values,
    folder: &'static str,
) -> impl Iterator<Item = (&'a str, &'a [u8])> {
    let all = values.iter();
    all.filter_map(move |(key, value)| Some((key.strip_prefix(folder)?, &**value)))
}

/// Checks that each placement is on a host, and names the key of the first one that is not.
fn check_hosts(prefix: &str, state: &ClusterState) -> Result<(), StoreError> {
    let homeless = |running: &&RunningTransfer| state.host(&running.placement.host).is_none();
    match state.running.iter().find(homeless) {
        None => Ok(()),
        Some(running) => {
            let key = format!("{prefix}{PLACEMENTS}{}", running.name());
            let why = format!("there is no host {:?}", running.placement.host);
            Err(damaged(&key, &why))
        }
    }
}

/// Numbers records in order. A record keeps its number if that is larger than the one before it,
/// so that only records that are new or have moved are written.
fn renumber<'a>(
    before: &BTreeMap<String, u64>,
    names: impl Iterator<Item = &'a str>,
) -> BTreeMap<String, u64> {
    let mut largest = before.values().copied().max().unwrap_or_default();
    let mut last = 0;
    let mut orders = BTreeMap::new();
    for name in names {
        last = match before.get(name) {
            Some(order) if *order > last => *order,
            _ => {
                largest += 1;
                largest
            }
        };
        orders.insert(name.to_owned(), last);
    }
    orders
}

fn put_transfer(values: &mut Values, transfer: &Transfer, order: u64) -> Result<(), StoreError> {
    let value = write(&TransferValue::new(transfer, order))?;
    values.insert(format!("{TRANSFERS}{}", transfer.name), value);
    Ok(())
}

fn put_placement(
    values: &mut Values,
    name: &str,
    placement: &Placement,
    order: u64,
) -> Result<(), StoreError> {
    let value = write(&PlacementValue::new(placement, order))?;
    values.insert(format!("{PLACEMENTS}{name}"), value);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::HostRecord;
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

    fn empty() -> Records {
        Records::read("/t/", Values::new()).expect("empty")
    }

    /// All keys of the records, as etcd has them after the commits.
    fn stored(records: &Records) -> Values {
        let mut values = records.values.clone();
        let revision = write(&records.revision).expect("JSON");
        values.insert(REVISION.to_owned(), revision);
        values
    }

    fn keys(records: &Records, next: &Records) -> (Vec<String>, Vec<String>) {
        let (puts, deletes) = records.difference(next);
        let puts = puts.into_iter().map(|(key, _)| key.to_owned());
        (
            puts.collect(),
            deletes.into_iter().map(str::to_owned).collect(),
        )
    }

    #[test]
    fn states_are_read_as_they_were_written_in_their_order() {
        let state = ClusterState {
            hosts: vec![host("b"), host("a")],
            running: vec![running("z", "a"), running("x/1", "b")],
            waiting: vec![transfer("y"), transfer("w")],
            ..ClusterState::default()
        };
        let first = empty().after("c1", state.clone()).expect("JSON");
        let read = Records::read("/t/", stored(&first)).expect("its own");
        assert_eq!(read, first);
        assert_eq!(read.snapshot().revision, Revision(1));
        // The one that runs first waits again, behind the others; the last host comes first.
        let mut next = state;
        next.waiting.push(next.running.remove(0).transfer);
        next.hosts.reverse();
        let second = read.after("c2", next.clone()).expect("JSON");
        let read = Records::read("/t/", stored(&second)).expect("its own");
        assert_eq!(read.state, next);
    }

    #[test]
    fn only_records_that_differ_are_put() {
        let mut state = ClusterState {
            hosts: vec![host("a"), host("b")],
            running: vec![running("x", "a"), running("y", "a")],
            waiting: vec![transfer("z")],
            ..ClusterState::default()
        };
        let first = empty().after("c1", state.clone()).expect("JSON");
        assert_eq!(keys(&first, &first), (vec![], vec![]));
        state.running.remove(0);
        state.waiting.push(transfer("v"));
        let second = first.after("c2", state).expect("JSON");
        let own = |keys: &[&str]| keys.iter().map(|key| (*key).to_owned()).collect::<Vec<_>>();
        assert_eq!(
            keys(&first, &second),
            (own(&["transfers/v"]), own(&["placements/x", "transfers/x"]))
        );
    }

    #[test]
    fn records_that_do_not_fit_each_other_are_refused_with_their_key() {
        let state = ClusterState {
            hosts: vec![host("a")],
            running: vec![RunningTransfer {
                entitlement: Entitlement {
                    lowered_for: vec!["y".to_owned()],
                    ..Entitlement::default()
                },
                ..running("x", "a")
            }],
            ..ClusterState::default()
        };
        let records = empty().after("c1", state).expect("JSON");
        for (missing, named) in [
            ("revision", "/t/revision"),
            ("hosts/a", "/t/placements/x"),
            ("transfers/x", "/t/placements/x"),
            ("placements/x", "/t/entitlements/x"),
        ] {
            let mut values = stored(&records);
            values.remove(missing).expect("there");
            let refused = Records::read("/t/", values).expect_err(missing).to_string();
            assert!(refused.contains(named), "{missing}: {refused}");
        }
    }
}
