//! Keys and values of a cluster in etcd, and the state that they stand for.

#[cfg(test)]
mod tests;
mod writes;

use std::collections::{BTreeMap, BTreeSet};

use super::keys::{CLOCKS, MEMBERS, RESERVATIONS, STARTS};
use super::published::{MemberValue, ReservationValue};
use super::starts::{StartValue, recorded_key};
use super::value::{
    EntitlementValue, HostValue, LearntValue, PlacementValue, RevisionValue, SettingsValue,
    TransferValue, damaged, read, write,
};
use crate::change::Change;
use crate::membership::{Membership, RegisteredDaemon};
use crate::part::Touched;
use crate::record::{Entitlement, HostRecord, Placement, RunningTransfer, Settings, Transfer};
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

/// Largest number by which records are sorted: so large that no commit reaches it, and so small
/// that there are as many above it. A larger one was written by hand.
const LAST_ORDER: u64 = u64::MAX / 2;

/// Records of a state as they are stored, each with etcd's revision of its last change.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Records {
    /// Value of the key [`REVISION`].
    pub(super) revision: RevisionValue,
    /// `None`: no commit has stored them yet.
    settings: Option<Settings>,
    hosts: Folder<HostRecord>,
    transfers: Folder<Transfer>,
    placements: Folder<Placement>,
    entitlements: BTreeMap<String, Entitlement>,
    /// Registered daemons by host, each with the revision of etcd at which it has registered.
    members: BTreeMap<String, (i64, RegisteredDaemon)>,
    reservations: BTreeMap<String, ReservationValue>,
    /// Revision of etcd at which each key was put or deleted last. An event that is not newer is a
    /// duplicate, or comes late, and changes nothing.
    versions: BTreeMap<String, i64>,
    /// Deleted keys of `versions`, by the revision of their deletion.
    deleted: BTreeSet<(i64, String)>,
    /// Revision of etcd up to which all changes were listed, or told by events: an event that is
    /// not newer changes nothing.
    complete: i64,
    /// True after a commit that something else than another commit has refused.
    is_doubted: bool,
    /// Revision of etcd up to which changes of commits and hosts are known.
    at: i64,
    /// Revision of etcd up to which all changes are known. Own commits do not raise it: daemons may
    /// have published something before them.
    followed: i64,
}

/// Records by name, each with the number by which they are sorted.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Folder<T> {
    records: BTreeMap<String, (u64, T)>,
    /// Largest number that was ever seen.
    last: u64,
}

/// Value of a key, read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Value {
    Revision(RevisionValue),
    Settings(Settings),
    Host(u64, HostRecord),
    Transfer(u64, Transfer),
    Placement(u64, Placement),
    Entitlement(Entitlement),
    Learnt(Vec<u8>),
    Member(MemberValue),
    Reservation(ReservationValue),
    /// Start of a transfer, which is no record of the state: daemons read and delete it.
    Start(StartValue),
}

/// Key of the store as it was read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct KeyValue {
    /// Key without the prefix of the store.
    pub(super) key: String,
    /// `None`: it was deleted.
    pub(super) value: Option<Vec<u8>>,
    /// Revision of etcd at which it was put or deleted last.
    pub(super) version: i64,
    /// Revision of etcd at which it was created; 0 for a deleted key.
    pub(super) created: i64,
}

/// Keys to put with their values, and to delete (`None`).
pub(super) type Writes = BTreeMap<String, Option<Value>>;

impl<T> Folder<T> {
    fn set(&mut self, name: &str, record: Option<(u64, T)>) {
        match record {
            Some((order, record)) => {
                self.last = self.last.max(order);
                self.records.insert(name.to_owned(), (order, record));
            }
            None => drop(self.records.remove(name)),
        }
    }

    fn order(&self, name: &str) -> Option<u64> {
        self.records.get(name).map(|(order, _)| *order)
    }

    fn get(&self, name: &str) -> Option<&(u64, T)> {
        self.records.get(name)
    }
}

impl<T> Default for Folder<T> {
    fn default() -> Folder<T> {
        Folder {
            records: BTreeMap::new(),
            last: 0,
        }
    }
}

impl Value {
    /// Reads the value of a key; `None`: the key is none of a cluster's.
    ///
    /// # Errors
    /// The value is damaged or of another schema. The error names the key with its `prefix`.
    fn read(prefix: &str, key: &str, value: &[u8]) -> Result<Option<Value>, StoreError> {
        let whole = format!("{prefix}{key}");
        let name = |folder: &str| key.strip_prefix(folder);
        let value = if key == REVISION {
            Value::Revision(read(&whole, value)?)
        } else if key == SETTINGS {
            Value::Settings(read::<SettingsValue>(&whole, value)?.into_record())
        } else if let Some(name) = name(HOSTS) {
            let value: HostValue = read(&whole, value)?;
            Value::Host(checked_order(&whole, value.order)?, value.into_record(name))
        } else if let Some(name) = name(TRANSFERS) {
            let value: TransferValue = read(&whole, value)?;
            Value::Transfer(checked_order(&whole, value.order)?, value.into_record(name))
        } else if name(PLACEMENTS).is_some() {
            let value: PlacementValue = read(&whole, value)?;
            Value::Placement(checked_order(&whole, value.order)?, value.into_record())
        } else if name(ENTITLEMENTS).is_some() {
            let value: EntitlementValue = read(&whole, value)?;
            Value::Entitlement(value.into_record(&whole)?)
        } else if name(LEARNT).is_some() {
            Value::Learnt(read::<LearntValue>(&whole, value)?.into_bytes(&whole)?)
        } else if name(MEMBERS).is_some() {
            Value::Member(MemberValue::read(value))
        } else if name(RESERVATIONS).is_some() {
            Value::Reservation(read(&whole, value)?)
        } else {
            return Ok(None);
        };
        Ok(Some(value))
    }

    /// Writes the value.
    ///
    /// # Errors
    /// None; the serialiser could fail for other types.
    pub(super) fn write(&self) -> Result<Vec<u8>, StoreError> {
        match self {
            Value::Revision(value) => write(value),
            Value::Settings(settings) => write(&SettingsValue::new(settings)),
            Value::Host(order, host) => write(&HostValue::new(host, *order)),
            Value::Transfer(order, transfer) => write(&TransferValue::new(transfer, *order)),
            Value::Placement(order, placement) => write(&PlacementValue::new(placement, *order)),
            Value::Entitlement(entitlement) => write(&EntitlementValue::new(entitlement)),
            Value::Learnt(database) => write(&LearntValue::new(database)),
            Value::Member(member) => write(member),
            Value::Reservation(reservation) => write(reservation),
            Value::Start(start) => write(start),
        }
    }
}

impl Records {
    /// Records of an empty store at a revision of etcd.
    fn empty(at: i64) -> Records {
        Records {
            revision: RevisionValue::empty(),
            settings: None,
            hosts: Folder::default(),
            transfers: Folder::default(),
            placements: Folder::default(),
            entitlements: BTreeMap::new(),
            members: BTreeMap::new(),
            reservations: BTreeMap::new(),
            versions: BTreeMap::new(),
            deleted: BTreeSet::new(),
            complete: at,
            is_doubted: false,
            at,
            followed: at,
        }
    }

    /// Reads all keys of the state below `prefix`, which errors name, as they are at the revision
    /// `at` of etcd.
    ///
    /// # Errors
    /// A value is damaged or of another schema, or the records do not fit each other.
    pub(super) fn read(prefix: &str, all: Vec<KeyValue>, at: i64) -> Result<Records, StoreError> {
        let mut records = Records::empty(at);
        let is_revision = |pair: &KeyValue| pair.key == REVISION;
        // Daemons may join before anything is committed.
        let is_committed =
            |pair: &KeyValue| !pair.key.starts_with(MEMBERS) && !pair.key.starts_with(RESERVATIONS);
        if !all.iter().any(is_revision) && all.iter().any(is_committed) {
            let key = format!("{prefix}{REVISION}");
            return Err(damaged(&key, "missing beside other keys"));
        }
        let mut touched = Touched::default();
        for pair in &all {
            let value = pair.value.as_deref();
            let value = value.map(|value| Value::read(prefix, &pair.key, value));
            if let Some(value) = value.transpose()?.flatten() {
                records.set(pair, Some(value), &mut touched);
            }
        }
        records.check_all(prefix)?;
        Ok(records)
    }

    /// Applies an event of a watch, in whatever order and how often events come. Returns the value
    /// of a learnt priority database, if it is one.
    ///
    /// # Errors
    /// The value is damaged or of another schema.
    pub(super) fn apply(
        &mut self,
        prefix: &str,
        event: &KeyValue,
        touched: &mut Touched,
    ) -> Result<Option<(String, Vec<u8>)>, StoreError> {
        let known = self.versions.get(&event.key).copied().unwrap_or_default();
        let is_clock = event.key.starts_with(CLOCKS);
        if is_clock || event.version <= known.max(self.complete) {
            self.followed = self.followed.max(event.version);
            return Ok(None);
        }
        let value = event.value.as_deref();
        let value = value.map(|value| Value::read(prefix, &event.key, value));
        let value = value.transpose()?;
        self.at = self.at.max(event.version);
        self.followed = self.followed.max(event.version);
        match value {
            // A key that is none of a cluster's.
            Some(None) => return Ok(None),
            Some(Some(Value::Learnt(database))) => {
                self.versions.insert(event.key.clone(), event.version);
                let host = event.key.strip_prefix(LEARNT).unwrap_or_default();
                return Ok(Some((host.to_owned(), database)));
            }
            Some(value) => self.set(event, value, touched),
            None => self.set(event, None, touched),
        }
        Ok(None)
    }

    /// Ends a batch of events, which are those of whole revisions. Deleted keys are forgotten: no
    /// event of an earlier revision can count as a new one any more.
    pub(super) fn end_batch(&mut self) {
        self.complete = self.complete.max(self.followed);
        while let Some((version, _)) = self.deleted.first()
            && *version <= self.complete
            && let Some((version, key)) = self.deleted.pop_first()
        {
            // Otherwise the key was put again.
            if self.versions.get(&key) == Some(&version) {
                self.versions.remove(&key);
            }
        }
    }

    /// Doubts the records, because a commit was refused that no other commit contradicts.
    pub(super) fn doubt(&mut self) {
        self.is_doubted = true;
    }

    /// Returns whether the records are doubted, and ends that.
    pub(super) fn take_doubt(&mut self) -> bool {
        std::mem::take(&mut self.is_doubted)
    }

    /// Sets the value of a key; `None`: it is deleted.
    fn set(&mut self, pair: &KeyValue, value: Option<Value>, touched: &mut Touched) {
        let key = pair.key.as_str();
        if key.starts_with(STARTS) {
            return;
        }
        self.versions.insert(key.to_owned(), pair.version);
        if value.is_none() {
            self.deleted.insert((pair.version, key.to_owned()));
        }
        if key == REVISION {
            self.revision = match value {
                Some(Value::Revision(value)) => value,
                _ => RevisionValue::empty(),
            };
        } else if key == SETTINGS {
            let settings = match value {
                Some(Value::Settings(settings)) => Some(settings),
                _ => None,
            };
            // All hosts decide by the grace.
            let grace = |settings: Option<Settings>| settings.and_then(|it| it.grace);
            touched.everything |= grace(settings) != grace(self.settings);
            self.settings = settings;
        } else if let Some(name) = key.strip_prefix(HOSTS) {
            let host = match value {
                Some(Value::Host(order, host)) => Some((order, host)),
                _ => None,
            };
            touched.hosts.insert(name.to_owned());
            // Hosts have come, gone or moved.
            touched.everything |= self.hosts.order(name) != host.as_ref().map(|(order, _)| *order);
            self.hosts.set(name, host);
        } else if let Some(name) = key.strip_prefix(MEMBERS) {
            touched.hosts.insert(name.to_owned());
            match value {
                Some(Value::Member(member)) => {
                    let member = (pair.created, member.into_record());
                    self.members.insert(name.to_owned(), member);
                }
                _ => drop(self.members.remove(name)),
            }
        } else if let Some(name) = key.strip_prefix(RESERVATIONS) {
            touched.hosts.insert(name.to_owned());
            match value {
                Some(Value::Reservation(reservation)) => {
                    self.reservations.insert(name.to_owned(), reservation);
                }
                _ => drop(self.reservations.remove(name)),
            }
        } else {
            self.set_transfer(key, value, touched);
        }
    }

    /// Sets the value of a key of a transfer; `None`: it is deleted.
    fn set_transfer(&mut self, key: &str, value: Option<Value>, touched: &mut Touched) {
        if let Some(name) = key.strip_prefix(TRANSFERS) {
            touched.add_transfer(name);
            self.transfers.set(
                name,
                match value {
                    Some(Value::Transfer(order, transfer)) => Some((order, transfer)),
                    _ => None,
                },
            );
        } else if let Some(name) = key.strip_prefix(PLACEMENTS) {
            touched.add_transfer(name);
            self.placements.set(
                name,
                match value {
                    Some(Value::Placement(order, placement)) => Some((order, placement)),
                    _ => None,
                },
            );
        } else if let Some(name) = key.strip_prefix(ENTITLEMENTS) {
            touched.add_transfer(name);
            match value {
                Some(Value::Entitlement(entitlement)) => {
                    self.entitlements.insert(name.to_owned(), entitlement);
                }
                _ => drop(self.entitlements.remove(name)),
            }
        }
    }

    /// Returns what the daemon of a host has published; `None`: nothing.
    fn membership(&self, host: &str) -> Option<Membership> {
        let daemon = self.members.get(host).map(|(_, daemon)| daemon.clone());
        let reservation = self.reservations.get(host);
        if daemon.is_none() && reservation.is_none() {
            return None;
        }
        let reserved = reservation.map(ReservationValue::to_membership);
        Some(Membership {
            daemon,
            ..reserved.unwrap_or_default()
        })
    }

    /// Checks that the records of transfers fit each other, and the hosts.
    ///
    /// # Errors
    /// A placement has no transfer or host, or an entitlement no placement. The error names the
    /// key.
    pub(super) fn check_fit<'a>(
        &self,
        prefix: &str,
        names: impl Iterator<Item = &'a str>,
    ) -> Result<(), StoreError> {
        for name in names {
            let misfit = |folder: &str, why: &str| {
                let key = format!("{prefix}{folder}{name}");
                Err(damaged(&key, why))
            };
            let Some((_, placement)) = self.placements.get(name) else {
                if self.entitlements.contains_key(name) {
                    return misfit(ENTITLEMENTS, "there is no placement of this name");
                }
                continue;
            };
            if self.transfers.get(name).is_none() {
                return misfit(PLACEMENTS, "there is no such transfer");
            }
            if self.hosts.get(&placement.host).is_none() {
                let why = format!("there is no host {:?}", placement.host);
                return misfit(PLACEMENTS, &why);
            }
        }
        Ok(())
    }

    /// Checks that all records fit each other.
    ///
    /// # Errors
    /// [`Records::check_fit`].
    pub(super) fn check_all(&self, prefix: &str) -> Result<(), StoreError> {
        self.check_fit(prefix, self.transfer_names())
    }

    /// Names of all transfers, and of placements and entitlements without one.
    fn transfer_names(&self) -> impl Iterator<Item = &str> {
        let placed = self.placements.records.keys();
        let entitled = self.entitlements.keys();
        let names = self.transfers.records.keys().chain(placed).chain(entitled);
        names.map(String::as_str)
    }

    /// Returns the touched records as a part of the state; their positions are their numbers.
    pub(super) fn part(&self, touched: &Touched) -> ClusterState {
        let mut part = ClusterState {
            settings: self.settings.unwrap_or_default(),
            ..ClusterState::default()
        };
        let mut hosts: Vec<_> = if touched.everything {
            self.hosts.records.values().collect()
        } else {
            let names = touched.hosts.iter();
            names.filter_map(|name| self.hosts.get(name)).collect()
        };
        hosts.sort_by_key(|(order, _)| *order);
        part.hosts = hosts.into_iter().map(|(_, host)| host.clone()).collect();
        let published = |name: &String| Some((name.clone(), self.membership(name)?));
        part.memberships = if touched.everything {
            let names = self.members.keys().chain(self.reservations.keys());
            names.filter_map(published).collect()
        } else {
            touched.hosts.iter().filter_map(published).collect()
        };
        let mut add = |name: &str| {
            let Some((order, transfer)) = self.transfers.get(name) else {
                return;
            };
            let Some((at, placement)) = self.placements.get(name) else {
                part.waiting.put_at(*order, transfer.clone());
                return;
            };
            let running = RunningTransfer {
                transfer: transfer.clone(),
                placement: placement.clone(),
                entitlement: self.entitlements.get(name).cloned().unwrap_or_default(),
                live: false,
            };
            part.running.put_at(*at, running);
        };
        if touched.everything {
            self.transfers.records.keys().for_each(|name| add(name));
        } else {
            touched.transfers.iter().for_each(|name| add(name));
        }
        part.running.raise_last(self.placements.last);
        part.waiting.raise_last(self.transfers.last);
        part
    }

    /// Returns the whole state with its revision.
    pub(super) fn snapshot(&self) -> Snapshot {
        let everything = Touched {
            everything: true,
            ..Touched::default()
        };
        Snapshot {
            revision: Revision(self.revision.revision),
            state: self.part(&everything),
        }
    }

    /// Takes over what a commit has written at a revision of etcd.
    pub(super) fn wrote(&mut self, writes: Writes, version: i64) {
        let mut touched = Touched::default();
        for (key, value) in writes {
            let pair = KeyValue {
                key,
                value: None,
                version,
                created: 0,
            };
            self.set(&pair, value, &mut touched);
        }
        self.at = self.at.max(version);
    }

    /// Revision of etcd at which the key [`REVISION`] was put last; 0: there is none.
    pub(super) fn revision_put_at(&self) -> i64 {
        if self.revision == RevisionValue::empty() {
            return 0;
        }
        self.version(REVISION)
    }

    /// Revision of etcd at which a key was put or deleted last; 0: it is not known.
    pub(super) fn version(&self, key: &str) -> i64 {
        self.versions.get(key).copied().unwrap_or_default()
    }

    /// Revision of etcd at which a key that is there was put last; 0: it is not there.
    pub(super) fn version_there(&self, key: &str) -> i64 {
        let is_there = match key.split_once('/') {
            Some(("hosts", host)) => self.hosts.get(host).is_some(),
            Some(("reservations", host)) => self.reservations.contains_key(host),
            _ => false,
        };
        if is_there { self.version(key) } else { 0 }
    }

    /// Number of hosts and of daemons that are registered, together.
    pub(super) fn hosts_and_members(&self) -> usize {
        self.hosts.records.len() + self.members.len()
    }

    /// Revision of etcd at which the daemon of a host has registered; `None`: it has not.
    pub(super) fn registered_at(&self, host: &str) -> Option<i64> {
        self.members.get(host).map(|(created, _)| *created)
    }

    /// Returns the key of the start that is recorded with the placement of a transfer if its host
    /// had joined by then; `None`: there was none.
    pub(super) fn recorded_start(&self, transfer: &str) -> Option<String> {
        let (_, placement) = self.placements.get(transfer)?;
        let (_, transfer) = self.transfers.get(transfer)?;
        recorded_key(transfer, &placement.host)
    }

    /// Returns the hosts that get a transfer by changes, also those that the changes add, or whose
    /// memberships end.
    pub(super) fn concerned_hosts(&self, changes: &[Change]) -> BTreeSet<String> {
        let mut hosts = BTreeSet::new();
        let put = changes.iter().filter_map(|change| match change {
            Change::PutHost(host) => Some(host.name.as_str()),
            _ => None,
        });
        // One that moves in the order is deleted and put again.
        let put: BTreeSet<&str> = put.collect();
        let ends = |name: &str| {
            let is_known = self.reservations.contains_key(name);
            is_known && !self.members.contains_key(name) && !put.contains(name)
        };
        for change in changes {
            match change {
                Change::PutPlacement {
                    transfer,
                    placement,
                } => {
                    let before = self.placements.get(transfer);
                    let goes_on = before.is_some_and(|(_, before)| {
                        (&before.host, before.begun) == (&placement.host, placement.begun)
                    });
                    if !goes_on {
                        hosts.insert(placement.host.clone());
                    }
                }
                Change::DeleteHost(name) if ends(name) => {
                    hosts.insert(name.clone());
                }
                _ => {}
            }
        }
        hosts
    }

    /// Revision of etcd up to which changes of commits and hosts are known.
    pub(super) fn at(&self) -> i64 {
        self.at
    }

    /// Revision of etcd up to which all changes are known.
    pub(super) fn followed(&self) -> i64 {
        self.followed
    }
}

/// Returns the number of a record, if it may be one.
fn checked_order(key: &str, order: u64) -> Result<u64, StoreError> {
    if order <= LAST_ORDER {
        return Ok(order);
    }
    let why = format!("its \"order\" is {order}, and {LAST_ORDER} at most is allowed");
    Err(damaged(key, &why))
}
