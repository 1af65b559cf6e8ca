//! Store of a cluster's state in keys with revisions, without the calls that reach them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::client::Failure;
use super::keys::{CLOCKS, MEMBERS, RESERVATIONS};
use super::published::ClockValue;
use super::records::{
    FOLDERS, HOSTS, KeyValue, LEARNT, REVISION, Records, SETTINGS, Value, Writes,
};
use super::value::{CommitOutcome, LearntValue, RevisionValue, read};
use crate::change::Change;
use crate::clock::PublishedClock;
use crate::part::Touched;
use crate::record::HostRecord;
use crate::store::{ClusterStore, Revision, Snapshot, StoreError, Update};

/// Operations on the longest path of nested transactions, of which a level counts as the larger of
/// its numbers of comparisons and operations: etcd's default (`--max-txn-ops`).
const PATH_OPERATIONS: usize = 128;
/// Hosts of a commit that are compared one by one, in three comparisons each: as many as leave room
/// for two levels of 64 operations.
const FENCED_HOSTS: usize = 20;
/// Hosts of a commit whose existence is compared one by one, which leaves at least 2,500
/// operations. Of more of them, which only a session with that many waiting transfers has, the
/// folder is.
const CONCERNED_HOSTS: usize = 100;
/// Bytes of a commit's keys and values. etcd refuses requests above 1.5 MiB by default
/// (`--max-request-bytes`); the rest is for what each operation adds.
const COMMIT_BYTES: usize = 1_250_000;
/// Times that events are followed to the present before all keys are listed instead: others may
/// commit all the time.
const CHECKS: usize = 100;

/// Keys with revisions: etcd, or a model of it. Keys are whole, with the store's prefix.
pub(super) trait KeyValues: Send + Sync {
    /// Reads keys, and all keys below folders, at one revision.
    ///
    /// # Errors
    /// The keys cannot be read.
    fn list(&self, keys: &[String], folders: &[String]) -> Result<Listing, Failure>;

    /// Carries out a transaction if its comparisons hold. It may be tried more than once, of which
    /// only one succeeds if each write changes what is compared.
    ///
    /// # Errors
    /// No attempt was answered, or one was refused.
    fn transact(&self, transaction: &Transaction) -> Result<Answer, Failure>;

    /// Waits for events below `prefix` from the revision `from` on. Earlier ones may be among them,
    /// and each may come more than once.
    ///
    /// # Errors
    /// The user may not read.
    fn events(&self, prefix: &str, from: i64) -> Result<Events, StoreError>;
}

/// Keys read at one revision.
pub(super) struct Listing {
    /// Keys with their prefix.
    pub(super) pairs: Vec<KeyValue>,
    /// Revision of the store.
    pub(super) at: i64,
}

/// Transaction: what must hold, and what is written then.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Transaction {
    /// Key of the cluster's revision, and when its last put must have been; 0: it must not be
    /// there. It is read if the comparisons do not hold.
    pub(super) revision: (String, i64),
    /// Further comparisons.
    pub(super) compares: Vec<Compared>,
    /// Keys to put with their values, and to delete (`None`). If there are none, the key of the
    /// cluster's revision is read also if the comparisons hold.
    pub(super) writes: Vec<(String, Option<Vec<u8>>)>,
    /// Key that is read if the comparisons do not hold, such as the record of a start.
    pub(super) looked_at: Option<String>,
    /// Folders whose keys are counted if the comparisons hold and nothing is written.
    pub(super) counted: [String; 2],
}

/// Comparison of a transaction with a revision of etcd.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Compared {
    /// The last put of a key was at the revision; 0: the key is not there.
    Put(String, i64),
    /// A key was created at the revision.
    Created(String, i64),
    /// A key is there.
    There(String),
    /// No key of a folder was put after the revision.
    NonePut(String, i64),
    /// No key of a folder was created after the revision.
    NoneCreated(String, i64),
}

impl Transaction {
    /// Largest number of operations that are not nested, and of those of each nested transaction.
    pub(super) fn level(&self) -> usize {
        level(1 + self.compares.len(), self.writes.len()).unwrap_or(1)
    }
}

/// Returns into how large chunks a transaction is to be divided, each nested, if it has more
/// operations; `None`: it has too many for etcd.
fn level(compares: usize, operations: usize) -> Option<usize> {
    if operations <= PATH_OPERATIONS / 2 && compares <= PATH_OPERATIONS {
        return Some(PATH_OPERATIONS / 2);
    }
    (1..PATH_OPERATIONS).find_map(|chunks| {
        let level = PATH_OPERATIONS.checked_sub(chunks.max(compares))?;
        (level > 0 && chunks * level >= operations).then_some(level)
    })
}

/// Returns the largest number of operations that fit beside as many comparisons.
fn most_operations(compares: usize) -> usize {
    let sizes = (1..PATH_OPERATIONS).map(|chunks| {
        let level = PATH_OPERATIONS.saturating_sub(chunks.max(compares));
        chunks * level
    });
    sizes.max().unwrap_or_default()
}

/// Answer to a transaction.
pub(super) struct Answer {
    pub(super) succeeded: bool,
    /// True if an earlier attempt, whose answer was lost, may have been carried out.
    pub(super) may_be_done: bool,
    /// Revision of the store after it.
    pub(super) at: i64,
    /// Key of the cluster's revision, if it was read.
    pub(super) found: Option<KeyValue>,
    /// True if the key that was looked at is there; false if it was not read.
    pub(super) is_there: bool,
    /// Number of keys in the counted folders together.
    pub(super) count: usize,
}

impl Answer {
    fn found_version(&self) -> i64 {
        self.found.as_ref().map_or(0, |pair| pair.version)
    }
}

/// Outcome of waiting for events.
pub(super) enum Events {
    /// Events, in order unless they are repeated.
    Some(Vec<KeyValue>),
    /// Nothing came, or events are missing: list all keys again.
    Lost,
}

/// Store of a cluster's state below a prefix.
pub(super) struct KeyedStore<K> {
    pub(super) keys: K,
    pub(super) prefix: String,
    /// Records that were loaded, followed or committed last, on which the next commit is based.
    loaded: Mutex<Option<Records>>,
}

impl<K: KeyValues> KeyedStore<K> {
    pub(super) fn new(keys: K, prefix: &str) -> KeyedStore<K> {
        KeyedStore {
            keys,
            prefix: prefix.to_owned(),
            loaded: Mutex::default(),
        }
    }

    fn key(&self, key: &str) -> String {
        format!("{}{key}", self.prefix)
    }

    fn loaded(&self) -> MutexGuard<'_, Option<Records>> {
        // Taken out while it is changed, so a thread that panicked has left it valid.
        self.loaded.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads all records at one revision.
    pub(super) fn list(&self) -> Result<Records, Failure> {
        let keys = [REVISION, SETTINGS].map(|key| self.key(key));
        let folders = FOLDERS.map(|folder| self.key(folder));
        let Listing { pairs, at } = self.keys.list(&keys, &folders)?;
        let pairs = pairs.into_iter().filter_map(|pair| self.relative(pair));
        let read = Records::read(&self.prefix, pairs.collect(), at);
        read.map_err(Failure::before_anything)
    }

    /// Returns a key without the prefix; `None`: it does not begin with it.
    fn relative(&self, pair: KeyValue) -> Option<KeyValue> {
        let key = pair.key.strip_prefix(&self.prefix)?.to_owned();
        Some(KeyValue { key, ..pair })
    }

    /// Loads the records, and remembers them for the next commit.
    fn load_records(&self) -> Result<Snapshot, StoreError> {
        let records = self.list().map_err(|failure| failure.error)?;
        let snapshot = records.snapshot();
        *self.loaded() = Some(records);
        Ok(snapshot)
    }

    /// Returns the value of a key.
    fn value(&self, key: &str) -> Result<Option<Vec<u8>>, StoreError> {
        let listing = self.keys.list(&[self.key(key)], &[]);
        let mut pairs = listing.map_err(|failure| failure.error)?.pairs.into_iter();
        Ok(pairs.next().and_then(|pair| pair.value))
    }

    /// Returns the present revision, without the records.
    fn present(&self) -> Result<Revision, StoreError> {
        let value = self.value(REVISION)?;
        self.revision_value(value.as_deref())
            .map(|value| Revision(value.revision))
    }

    fn revision_value(&self, value: Option<&[u8]>) -> Result<RevisionValue, StoreError> {
        value.map_or_else(
            || Ok(RevisionValue::empty()),
            |value| read(&self.key(REVISION), value),
        )
    }

    /// Returns a transaction on the records as they are known, with comparisons of its own.
    fn transaction(
        &self,
        records: &Records,
        mut compares: Vec<Compared>,
        writes: &Writes,
    ) -> Result<Transaction, StoreError> {
        // Every commit puts the revision, so this fences hosts that were changed by something else,
        // such as an operator's `etcdctl`.
        compares.push(Compared::NonePut(self.key(HOSTS), records.at()));
        let mut puts = Vec::new();
        for (key, value) in writes {
            let value = value.as_ref().map(Value::write).transpose()?;
            puts.push((self.key(key), value));
        }
        let bytes = puts
            .iter()
            .map(|(key, value)| key.len() + value.as_ref().map_or(0, Vec::len));
        let (bytes, operations) = (bytes.sum::<usize>(), puts.len());
        let compared = 1 + compares.len();
        if bytes > COMMIT_BYTES || level(compared, operations).is_none() {
            return Err(StoreError::TooLarge(format!(
                "{operations} records with {bytes} bytes; at most {} records and {COMMIT_BYTES} \
                 bytes fit into one transaction",
                most_operations(compared)
            )));
        }
        Ok(Transaction {
            revision: (self.key(REVISION), records.revision_put_at()),
            compares,
            writes: puts,
            looked_at: None,
            counted: [HOSTS, MEMBERS].map(|folder| self.key(folder)),
        })
    }

    /// Returns the comparisons that keep a placement from hosts that are gone, whose VMs have
    /// reserved more meanwhile, or whose daemons are gone. They are of these hosts alone, so that a
    /// VM that is added anywhere else is no conflict, unless there are too many to compare them one
    /// by one.
    fn fence(&self, records: &Records, hosts: &BTreeSet<String>) -> Vec<Compared> {
        let mut compares = Vec::new();
        let put = |folder: &str, host: &str| {
            let key = format!("{folder}{host}");
            Compared::Put(self.key(&key), records.version_there(&key))
        };
        if hosts.len() <= CONCERNED_HOSTS {
            // A host that is gone has no revision, so the folder's comparison does not see it.
            compares.extend(hosts.iter().map(|host| put(HOSTS, host)));
        }
        if hosts.len() > FENCED_HOSTS {
            // A member that is gone cannot be seen by a range. Its daemon starts nothing.
            let folder = self.key(RESERVATIONS);
            compares.push(Compared::NonePut(folder, records.followed()));
            return compares;
        }
        for host in hosts {
            compares.push(put(RESERVATIONS, host));
            if let Some(created) = records.registered_at(host) {
                let member = self.key(&format!("{MEMBERS}{host}"));
                compares.push(Compared::Created(member, created));
            }
        }
        compares
    }

    /// Returns the records of `revision`, and takes them.
    fn take_loaded(&self, revision: Revision) -> Result<Records, StoreError> {
        let is_wanted = |records: &mut Records| records.revision.revision == revision.0;
        let loaded = self.loaded().take_if(is_wanted);
        if let Some(loaded) = loaded {
            return Ok(loaded);
        }
        let present = self.load_records()?.revision;
        let loaded = self.loaded().take_if(is_wanted);
        loaded.ok_or(StoreError::Conflict { present })
    }

    /// Carries out a commit; one with `unless_begun` only as long as the start of this transfer, if
    /// one was recorded, is not confirmed.
    fn commit_on(
        &self,
        records: &mut Records,
        changes: &[Change],
        unless_begun: Option<&str>,
    ) -> Result<Revision, StoreError> {
        // Identifies the commit in later attempts, of which one at most is carried out.
        let id = format!("{:032x}", rand::random::<u128>());
        let writes = records.writes_of(changes, &id)?;
        let mut fence = self.fence(records, &records.concerned_hosts(changes));
        let start = unless_begun.and_then(|transfer| records.recorded_start(transfer));
        let start = start.map(|key| self.key(&key));
        fence.extend(start.clone().map(Compared::There));
        let mut transaction = self.transaction(records, fence, &writes)?;
        transaction.looked_at = start;
        let answer = self.keys.transact(&transaction);
        let answer = answer.map_err(|Failure { error, may_be_done }| match error {
            StoreError::Unavailable { why, .. } if may_be_done => StoreError::OutcomeUnknown(why),
            // A later attempt was refused, which says nothing of the earlier one.
            other if may_be_done => StoreError::OutcomeUnknown(other.to_string()),
            other => other,
        })?;
        if answer.succeeded {
            records.wrote(writes, answer.at);
            return Ok(Revision(records.revision.revision));
        }
        // Refused: an earlier attempt, whose answer was lost, may have been carried out all the
        // same.
        let (value, version) = (self.found_revision(&answer)?, answer.found_version());
        let present = Revision(value.revision);
        let decided_on = Revision(records.revision.revision);
        let outcome = value.outcome_of(&id, decided_on, answer.may_be_done);
        let is_begun = transaction.looked_at.is_some() && !answer.is_there;
        match (outcome, unless_begun) {
            (CommitOutcome::Stored(committed), _) => {
                if committed == present {
                    // So that the next commit is fenced from this one on.
                    records.wrote(writes, version);
                }
                Ok(committed)
            }
            (CommitOutcome::Forgotten, _) => Err(StoreError::OutcomeUnknown(format!(
                "its answer was lost, and {} other changes were stored before another attempt",
                present.0.saturating_sub(decided_on.0)
            ))),
            (CommitOutcome::NotStored, Some(transfer)) if is_begun && present == decided_on => {
                let transfer = transfer.to_owned();
                Err(StoreError::HasBegun { transfer })
            }
            (CommitOutcome::NotStored, _) => Err(StoreError::Conflict { present }),
        }
    }

    fn commit_if(
        &self,
        revision: Revision,
        changes: &[Change],
        unless_begun: Option<&str>,
    ) -> Result<Revision, StoreError> {
        if changes.is_empty() {
            let present = self.present()?;
            return if present == revision {
                Ok(revision)
            } else {
                Err(StoreError::Conflict { present })
            };
        }
        let mut records = self.take_loaded(revision)?;
        let committed = self.commit_on(&mut records, changes, unless_begun);
        // A host, a reservation or a daemon was changed by something else than a commit.
        if matches!(committed, Err(StoreError::Conflict { present }) if present == revision) {
            records.doubt();
        }
        // After a refusal they are what they were, and events lead on from there.
        *self.loaded() = Some(records);
        committed
    }

    fn found_revision(&self, answer: &Answer) -> Result<RevisionValue, StoreError> {
        let found = answer.found.as_ref();
        self.revision_value(found.and_then(|pair| pair.value.as_deref()))
    }

    /// Applies events to the records until a commit on them would hold; `None`: events are missing.
    fn follow(&self, records: &mut Records) -> Result<Option<Followed>, StoreError> {
        let mut followed = Followed::default();
        for _ in 0..CHECKS {
            let published = [
                Compared::NonePut(self.key(RESERVATIONS), records.followed()),
                Compared::NoneCreated(self.key(MEMBERS), records.followed()),
            ];
            let check = self.transaction(records, published.to_vec(), &Writes::new())?;
            let answer = self.keys.transact(&check);
            let answer = answer.map_err(|failure| failure.error)?;
            // A host or member that is gone cannot be seen by a comparison; one that has come can.
            let is_complete = answer.count == records.hosts_and_members();
            if answer.succeeded && is_complete {
                if self.found_revision(&answer)? != records.revision {
                    // Another history, restored from a snapshot, with the same revisions of etcd.
                    return Ok(None);
                }
                let names = followed.touched.transfers.iter().map(String::as_str);
                // An event is missing, or a value was damaged: a listing tells.
                let fits = if followed.touched.everything {
                    // A host may be gone under transfers that no event is of.
                    records.check_all(&self.prefix)
                } else {
                    records.check_fit(&self.prefix, names)
                };
                return Ok(fits.is_ok().then_some(followed));
            }
            let target = Target {
                revision: self.found_revision(&answer)?.revision,
                at: answer.at,
            };
            if !self.read_events(records, target, &mut followed)? {
                return Ok(None);
            }
        }
        Ok(None)
    }

    /// Reads events up to a commit, or to the next change that is no commit. Returns false if they
    /// are missing.
    fn read_events(
        &self,
        records: &mut Records,
        target: Target,
        followed: &mut Followed,
    ) -> Result<bool, StoreError> {
        let before = records.followed();
        // Clocks are published all the time, and a check after each would come to no end.
        let (mut are_clocks, mut is_news) = (false, false);
        while records.revision.revision < target.revision
            || records.followed() == before
            || are_clocks && !is_news && records.followed() < target.at
        {
            let from = records.followed() + 1;
            let Events::Some(events) = self.keys.events(&self.prefix, from)? else {
                return Ok(false);
            };
            for event in events.into_iter().filter_map(|event| self.relative(event)) {
                let is_clock = event.key.starts_with(CLOCKS);
                (are_clocks, is_news) = (are_clocks | is_clock, is_news | !is_clock);
                let applied = records.apply(&self.prefix, &event, &mut followed.touched);
                let Ok(learnt) = applied else {
                    return Ok(false);
                };
                followed.learnt.extend(learnt);
            }
            records.end_batch();
        }
        Ok(true)
    }
}

/// State up to which events are read.
#[derive(Clone, Copy)]
struct Target {
    /// Revision of the cluster.
    revision: u64,
    /// Revision of etcd.
    at: i64,
}

/// Changes that events have brought.
#[derive(Default)]
struct Followed {
    touched: Touched,
    learnt: BTreeMap<String, Vec<u8>>,
}

impl<K: KeyValues> ClusterStore for KeyedStore<K> {
    fn load(&self, known: Revision) -> Result<Option<Snapshot>, StoreError> {
        if known != Revision::EMPTY && self.present()? == known {
            return Ok(None);
        }
        let snapshot = self.load_records()?;
        // Daemons may have joined before the first commit.
        let is_new = |snapshot: &Snapshot| {
            snapshot.revision != known || !snapshot.state.memberships.is_empty()
        };
        Ok(Some(snapshot).filter(is_new))
    }

    fn changes_since(&self, known: Revision) -> Result<Option<Update>, StoreError> {
        let is_known = |records: &mut Records| records.revision.revision == known.0;
        let taken = self.loaded().take_if(is_known);
        let Some(mut records) = taken else {
            return Ok(Some(Update::State(self.load_records()?)));
        };
        let is_doubted = records.take_doubt();
        // Doubts stay if no event ends them: only a listing is sure to.
        let followed = self.follow(&mut records)?;
        let followed = followed.filter(|it| !is_doubted || !it.touched.is_empty());
        let Some(Followed { touched, learnt }) = followed else {
            return Ok(Some(Update::State(self.load_records()?)));
        };
        let revision = Revision(records.revision.revision);
        let update = if touched.everything {
            Some(Update::State(records.snapshot()))
        } else if touched.is_empty() && learnt.is_empty() && revision == known {
            None
        } else {
            Some(Update::Part {
                revision,
                part: records.part(&touched),
                touched,
                learnt,
            })
        };
        *self.loaded() = Some(records);
        Ok(update)
    }

    fn learnt(&self, host: &str) -> Result<Option<Vec<u8>>, StoreError> {
        let key = format!("{LEARNT}{host}");
        let Some(value) = self.value(&key)? else {
            return Ok(None);
        };
        let key = self.key(&key);
        read::<LearntValue>(&key, &value)?
            .into_bytes(&key)
            .map(Some)
    }

    fn learnt_by_all(&self, hosts: &[HostRecord]) -> Result<BTreeMap<String, Vec<u8>>, StoreError> {
        if hosts.is_empty() {
            return Ok(BTreeMap::new());
        }
        let names: BTreeSet<&str> = hosts.iter().map(|host| host.name.as_str()).collect();
        let listing = self.keys.list(&[], &[self.key(LEARNT)]);
        let mut all = BTreeMap::new();
        for pair in listing.map_err(|failure| failure.error)?.pairs {
            let host = pair.key.strip_prefix(&self.key(LEARNT)).map(str::to_owned);
            let host = host.filter(|host| names.contains(&**host));
            if let (Some(host), Some(value)) = (host, &pair.value) {
                let value = read::<LearntValue>(&pair.key, value)?;
                all.insert(host, value.into_bytes(&pair.key)?);
            }
        }
        Ok(all)
    }

    fn clocks(&self) -> Result<Vec<PublishedClock>, StoreError> {
        let folder = self.key(CLOCKS);
        let listing = self.keys.list(&[], std::slice::from_ref(&folder));
        let pairs = listing.map_err(|failure| failure.error)?.pairs.into_iter();
        let clock = |pair: KeyValue| {
            let host = pair.key.strip_prefix(&folder)?;
            ClockValue::read(host, &pair.value?)
        };
        Ok(pairs.filter_map(clock).collect())
    }

    fn commit(&self, revision: Revision, changes: &[Change]) -> Result<Revision, StoreError> {
        self.commit_if(revision, changes, None)
    }

    fn commit_unless_begun(
        &self,
        revision: Revision,
        changes: &[Change],
        transfer: &str,
    ) -> Result<Revision, StoreError> {
        self.commit_if(revision, changes, Some(transfer))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_path_of_a_transaction_is_longer_than_etcd_allows() {
        for compares in 2..128 {
            let most = most_operations(compares);
            assert_eq!(level(compares, most + 1), None, "{compares}, {most}");
            assert!(level(compares, most).is_some() || most == 0);
            for operations in [1, 64, 65, most] {
                let Some(level) = level(compares, operations) else {
                    continue;
                };
                let (chunks, inner) = match operations {
                    few if few <= level => (few, 0),
                    many => (many.div_ceil(level), level),
                };
                let longest = chunks.max(compares) + inner;
                assert!(longest <= PATH_OPERATIONS, "{compares}, {operations}");
            }
        }
        // Revision, hosts, and the fence of each kind.
        assert_eq!(most_operations(2 + 3 * FENCED_HOSTS), 4_096);
        assert!(most_operations(3 + CONCERNED_HOSTS) >= 2_500);
    }
}
