//! Keys that a commit puts and deletes.

use super::{
    ENTITLEMENTS, Folder, HOSTS, LEARNT, PLACEMENTS, RESERVATIONS, REVISION, Records, SETTINGS,
    TRANSFERS, Value, Writes,
};
use crate::change::Change;
use crate::record::{Entitlement, HostRecord};
use crate::state::ClusterState;
use crate::store::StoreError;
use crate::store::etcd::starts::start_writes;

impl Records {
    /// Returns what a commit with the identifier `id` writes.
    ///
    /// # Errors
    /// The changes do not fit the state.
    pub(in crate::store::etcd) fn writes_of(
        &self,
        changes: &[Change],
        id: &str,
    ) -> Result<Writes, StoreError> {
        let touched = Change::touched(changes);
        let before = self.part(&touched);
        let mut after = before.clone();
        Change::apply(changes, &mut after)?;
        let mut writes = Writes::new();
        let revision = Value::Revision(self.revision.after(id));
        writes.insert(REVISION.to_owned(), Some(revision));
        if self.settings != Some(after.settings) {
            let settings = Value::Settings(after.settings);
            writes.insert(SETTINGS.to_owned(), Some(settings));
        }
        for change in changes {
            if let Change::PutLearnt { host, database } = change {
                let value = Value::Learnt(database.clone());
                writes.insert(format!("{LEARNT}{host}"), Some(value));
            }
        }
        self.host_writes(&before, &after, &mut writes);
        for host in ended_memberships(&before, &after) {
            writes.insert(format!("{RESERVATIONS}{host}"), None);
        }
        let names = before.transfer_names().chain(after.transfer_names());
        names.for_each(|name| self.transfer_writes(&after, name, &mut writes));
        let starts = start_writes(&before, &after, changes).into_iter();
        writes.extend(starts.map(|(key, start)| (key, start.map(Value::Start))));
        Ok(writes)
    }

    fn host_writes(&self, before: &ClusterState, after: &ClusterState, writes: &mut Writes) {
        for host in &before.hosts {
            writes.insert(format!("{HOSTS}{}", host.name), None);
        }
        let orders = renumber(&self.hosts, after.hosts.iter().map(|host| &*host.name));
        for (host, order) in after.hosts.iter().zip(orders) {
            let (key, put) = (format!("{HOSTS}{}", host.name), (order, host.clone()));
            if self.hosts.get(&host.name) == Some(&put) {
                writes.remove(&key);
            } else {
                writes.insert(key, Some(Value::Host(put.0, put.1)));
            }
        }
    }

    fn transfer_writes(&self, after: &ClusterState, name: &str, writes: &mut Writes) {
        let mut write = |folder: &str, is_known: bool, is_same: bool, value: Option<Value>| {
            if !is_same && (is_known || value.is_some()) {
                writes.insert(format!("{folder}{name}"), value);
            }
        };
        let running = after.running.get(name);
        let transfer = match running {
            // Only waiting transfers are sorted by their numbers: a placed one keeps its own.
            Some(running) => {
                let order = self.transfers.order(name).unwrap_or_default();
                Some((order, running.transfer.clone()))
            }
            None => {
                let waiting = after.waiting.get(name).cloned();
                after.waiting.position(name).zip(waiting)
            }
        };
        let known = self.transfers.get(name);
        let value = transfer
            .clone()
            .map(|(order, it)| Value::Transfer(order, it));
        write(
            TRANSFERS,
            known.is_some(),
            known == transfer.as_ref(),
            value,
        );
        let placement = running.map(|running| running.placement.clone());
        let placement = after.running.position(name).zip(placement);
        let known = self.placements.get(name);
        let value = placement
            .clone()
            .map(|(order, it)| Value::Placement(order, it));
        write(
            PLACEMENTS,
            known.is_some(),
            known == placement.as_ref(),
            value,
        );
        let entitlement = running.map(|running| running.entitlement.clone());
        let entitlement = entitlement.filter(|it| *it != Entitlement::default());
        let known = self.entitlements.get(name);
        let is_same = known == entitlement.as_ref();
        write(
            ENTITLEMENTS,
            known.is_some(),
            is_same,
            entitlement.map(Value::Entitlement),
        );
    }
}

/// Returns the hosts whose memberships end with a commit.
fn ended_memberships<'a>(
    before: &'a ClusterState,
    after: &'a ClusterState,
) -> impl Iterator<Item = &'a String> {
    let hosts = before.memberships.keys();
    hosts.filter(|host| !after.memberships.contains_key(*host))
}

/// Numbers hosts in order. A host keeps its number if that is larger than the one before it, so
/// that only hosts that are new or have moved are written.
fn renumber<'a>(
    before: &Folder<HostRecord>,
    names: impl Iterator<Item = &'a str>,
) -> impl Iterator<Item = u64> {
    let (mut largest, mut last) = (before.last, 0);
    names.map(move |name| {
        last = match before.order(name) {
            Some(order) if order > last => order,
            _ => {
                largest += 1;
                largest
            }
        };
        last
    })
}
