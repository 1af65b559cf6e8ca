//! Store in etcd, shared by the hosts of a cluster.
//!
//! Each record is a key below one prefix with a JSON value (`docs/cluster.md` has the schema). A
//! commit is one transaction: it compares the key `revision`, which every commit puts, and the
//! revisions of all hosts with what the state was decided on, and then puts and deletes what has
//! changed (`docs/adr/0019-etcd-store.md`).

mod client;
#[cfg(test)]
mod fence_model_tests;
mod keys;
pub(crate) mod member;
#[cfg(test)]
mod model_tests;
mod published;
mod records;
mod starts;
mod value;
mod watch;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use etcd_client::{Compare, CompareOp, GetOptions, Txn, TxnOp, TxnOpResponse, TxnResponse};

use super::{ClusterStore, Revision, Snapshot, StoreError};
use crate::change::Change;
use crate::record::HostRecord;
use client::{Failure, Members};
use keys::{MEMBERS, RESERVATIONS, Values};
use records::{FOLDERS, HOSTS, LEARNT, REVISION, Records, SETTINGS};
use starts::{placement_identity, recorded_key, start_changes};
use value::{LearntValue, RevisionValue, damaged, read, write};

pub use watch::{EtcdWatch, WatchEvent};

/// Operations of one level of a transaction. etcd allows 128 on the longest path of nested ones by
/// default (`--max-txn-ops`), so two levels of 64 carry `OPERATIONS * OPERATIONS`.
const OPERATIONS: usize = 64;
/// Hosts whose reservations and members a commit compares one by one, with two comparisons each:
/// etcd counts them with the operations of the path, of which 64 are below.
const FENCED_HOSTS: usize = 24;
/// Bytes of a commit's keys and values. etcd refuses requests above 1.5 MiB by default
/// (`--max-request-bytes`); the rest is for what each operation adds.
const COMMIT_BYTES: usize = 1_250_000;
/// Bytes of an answer that are accepted; the client's default of 4 MiB is some 8,000 records.
const ANSWER_BYTES: usize = 256 << 20;

/// Address of a cluster's state in etcd, and how to get in.
#[derive(Clone)]
pub struct EtcdOptions {
    /// URLs of the members' client listeners, such as `https://10.0.0.1:2379`.
    pub endpoints: Vec<String>,
    /// Beginning of all keys, such as `/tidegate/`.
    pub prefix: String,
    /// User of etcd's authentication; `None`: it is off, or by the client certificate.
    pub user: Option<EtcdUser>,
    /// TLS; required for `https` URLs, and refused with `http` ones.
    pub tls: Option<EtcdTls>,
    /// Time after which a call that no member has answered fails; an attempt at one member may add
    /// up to 5 s. [`EtcdOptions::CALL_TIMEOUT`] unless there is a reason.
    pub call_timeout: Duration,
}

impl EtcdOptions {
    /// Time-out of calls that outlasts the election of a leader, which takes one to two seconds
    /// with etcd's defaults.
    pub const CALL_TIMEOUT: Duration = Duration::from_secs(5);
}

/// User of etcd's authentication.
#[derive(Clone)]
pub struct EtcdUser {
    /// Name.
    pub name: String,
    /// Password.
    pub password: String,
}

/// TLS with etcd's members; all in PEM.
#[derive(Clone)]
pub struct EtcdTls {
    /// Certificates of the authorities that sign the members' certificates.
    pub authority: Vec<u8>,
    /// Own certificate with its key, for members with `--client-cert-auth`.
    pub identity: Option<(Vec<u8>, Vec<u8>)>,
}

/// Store in etcd. Any number of processes on any hosts may use one prefix.
pub struct EtcdStore {
    members: Members,
    prefix: String,
    /// Records that were loaded or committed last, on which the next commit is based.
    loaded: Mutex<Option<Loaded>>,
}

/// Records with the revisions of etcd, which are not those of the cluster.
struct Loaded {
    records: Records,
    /// Revision of the last put of the key `revision`; 0: there is none.
    revision_put_at: i64,
    /// Revision at which the records were read.
    at: i64,
    published: Published,
}

/// Revisions of what daemons have published, for the fence of placements.
#[derive(Clone, Default)]
struct Published {
    /// Revision at which all keys were listed.
    listed_at: i64,
    /// Revisions of etcd by key: of the last put of a reservation, of the creation of a member.
    keys: BTreeMap<String, i64>,
}

/// All keys of a state, read at one revision of etcd.
struct Listing {
    values: Values,
    /// Revision of the last put of the key `revision`; 0: there is none.
    revision_put_at: i64,
    /// Revision of etcd.
    at: i64,
    published: Published,
}

/// Answer to a transaction.
struct Answer {
    succeeded: bool,
    responses: Vec<TxnOpResponse>,
    /// Revision of etcd after it.
    at: i64,
}

impl Answer {
    fn of(answer: &TxnResponse) -> Answer {
        Answer {
            at: answer.header().map_or(0, |header| header.revision()),
            succeeded: answer.succeeded(),
            responses: answer.op_responses(),
        }
    }

    /// Returns the value that the `at`th operation, the get of one key, has found.
    fn value(&self, at: usize) -> Option<&[u8]> {
        match self.responses.get(at)? {
            TxnOpResponse::Get(found) => found.kvs().first().map(|pair| pair.value()),
            _ => None,
        }
    }
}

/// Member of etcd, as it reports itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MemberStatus {
    /// Version of etcd.
    pub version: String,
    /// True for the leader.
    pub is_leader: bool,
    /// Size of its database in bytes.
    pub database_bytes: u64,
}

impl EtcdStore {
    /// Creates a store. Connections are made when it is used.
    ///
    /// # Errors
    /// A certificate, key or URL is not valid.
    pub fn new(options: &EtcdOptions) -> Result<EtcdStore, StoreError> {
        Ok(EtcdStore {
            members: Members::new(options)?,
            prefix: options.prefix.clone(),
            loaded: Mutex::default(),
        })
    }

    /// Begins to watch the state.
    pub fn watch(&self) -> EtcdWatch<'_> {
        EtcdWatch::new(self)
    }

    /// Asks each member for its status. A member that does not answer has the reason instead.
    pub fn members(&self) -> Vec<(String, Result<MemberStatus, String>)> {
        let urls = self.members.urls().iter().enumerate();
        let ask = |(at, url): (usize, &String)| {
            let status = self.members.call_at(at, async |mut client| {
                let status = client.status().await?;
                let own = status.header().map_or(0, |header| header.member_id());
                Ok(MemberStatus {
                    version: status.version().to_owned(),
                    is_leader: own != 0 && status.leader() == own,
                    database_bytes: u64::try_from(status.db_size()).unwrap_or_default(),
                })
            });
            (url.clone(), status)
        };
        urls.map(ask).collect()
    }

    fn key(&self, key: &str) -> String {
        format!("{}{key}", self.prefix)
    }

    fn loaded(&self) -> MutexGuard<'_, Option<Loaded>> {
        // Replaced as a whole, so a thread that panicked has left it valid.
        self.loaded.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads all keys of the state in one transaction, and so at one revision of etcd.
    fn list(&self) -> Result<Listing, Failure> {
        let below = || Some(GetOptions::new().with_prefix());
        let mut gets = vec![
            TxnOp::get(self.key(REVISION), None),
            TxnOp::get(self.key(SETTINGS), None),
        ];
        gets.extend(FOLDERS.map(|folder| TxnOp::get(self.key(folder), below())));
        let answer = self.transact(&Txn::new().and_then(gets))?;
        let mut listing = Listing {
            values: Values::new(),
            revision_put_at: 0,
            at: answer.at,
            published: Published {
                listed_at: answer.at,
                ..Published::default()
            },
        };
        for response in answer.responses {
            let TxnOpResponse::Get(found) = response else {
                continue;
            };
            for pair in found.kvs() {
                let key = relative(&self.prefix, pair.key());
                let Some(key) = key.map_err(Failure::before_anything)? else {
                    continue;
                };
                if key == REVISION {
                    listing.revision_put_at = pair.mod_revision();
                }
                let revision = match key.split_inclusive('/').next() {
                    Some(RESERVATIONS) => Some(pair.mod_revision()),
                    Some(MEMBERS) => Some(pair.create_revision()),
                    _ => None,
                };
                if let Some(revision) = revision {
                    listing.published.keys.insert(key.to_owned(), revision);
                }
                listing.values.insert(key.to_owned(), pair.value().to_vec());
            }
        }
        Ok(listing)
    }

    /// Loads the records, and remembers them for the next commit.
    fn load_records(&self) -> Result<Snapshot, StoreError> {
        let listing = self.list().map_err(|failure| failure.error)?;
        let records = Records::read(&self.prefix, listing.values)?;
        let snapshot = records.snapshot();
        *self.loaded() = Some(Loaded {
            records,
            revision_put_at: listing.revision_put_at,
            at: listing.at,
            published: listing.published,
        });
        Ok(snapshot)
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

    /// Returns the value of a key.
    fn value(&self, key: &str) -> Result<Option<Vec<u8>>, StoreError> {
        let key = self.key(key);
        let found = self.members.call(async |client| {
            let mut client = client.kv_client();
            client.get(key.as_str(), None).await
        });
        let found = found.map_err(|failure| failure.error)?;
        Ok(found.kvs().first().map(|pair| pair.value().to_vec()))
    }

    fn transact(&self, transaction: &Txn) -> Result<Answer, Failure> {
        self.members.call(async |client| {
            let mut client = client.kv_client().max_decoding_message_size(ANSWER_BYTES);
            let answer = client.txn(transaction.clone()).await?;
            Ok(Answer::of(&answer))
        })
    }

    /// Returns the operations of a commit that leads from `before` to `next`.
    ///
    /// # Errors
    /// The operations are more than etcd takes in one transaction.
    fn operations(
        &self,
        before: &Records,
        next: &Records,
        changes: &[Change],
    ) -> Result<Vec<TxnOp>, StoreError> {
        // By key, because a transaction may put a key only once.
        let mut puts = Values::new();
        puts.insert(REVISION.to_owned(), write(&next.revision)?);
        for change in changes {
            if let Change::PutLearnt { host, database } = change {
                let value = write(&LearntValue::new(database))?;
                puts.insert(format!("{LEARNT}{host}"), value);
            }
        }
        let (changed, deletes) = before.difference(next);
        puts.extend(
            changed
                .iter()
                .map(|(key, value)| ((*key).to_owned(), value.to_vec())),
        );
        let (starts, ended_starts) = start_changes(before, next, changes)?;
        puts.extend(starts);
        let ended = ended_memberships(before, next);
        let deletes = deletes.into_iter().map(|key| self.key(key));
        let ended = ended.map(|host| self.key(&format!("{RESERVATIONS}{host}")));
        let ended_starts = ended_starts.iter().map(|key| self.key(key));
        let deletes: Vec<_> = deletes.chain(ended).chain(ended_starts).collect();
        let bytes = puts
            .iter()
            .map(|(key, value)| key.len() + self.prefix.len() + value.len());
        let bytes = bytes.sum::<usize>() + deletes.iter().map(String::len).sum::<usize>();
        let operations = puts.len() + deletes.len();
        if operations > OPERATIONS * OPERATIONS || bytes > COMMIT_BYTES {
            return Err(StoreError::TooLarge(format!(
                "{operations} records with {bytes} bytes; at most {} records and {COMMIT_BYTES} \
                 bytes fit into one transaction",
                OPERATIONS * OPERATIONS
            )));
        }
        let puts = puts
            .into_iter()
            .map(|(key, value)| TxnOp::put(self.key(&key), value, None));
        let deletes = deletes.into_iter().map(|key| TxnOp::delete(key, None));
        Ok(puts.chain(deletes).collect())
    }

    /// Returns the transaction of a commit: on the records as they were loaded, for the hosts that
    /// it `concerns` on what their daemons had published, and on a recorded start that is there.
    fn transaction(
        &self,
        loaded: &Loaded,
        concerns: &BTreeSet<&str>,
        start: Option<&str>,
        operations: Vec<TxnOp>,
    ) -> Txn {
        let is_unchanged =
            Compare::mod_revision(self.key(REVISION), CompareOp::Equal, loaded.revision_put_at);
        // Every commit puts the revision, so this fences hosts that were changed by something else,
        // such as an operator's `etcdctl`.
        let are_hosts_unchanged =
            Compare::mod_revision(self.key(HOSTS), CompareOp::Less, loaded.at + 1).with_prefix();
        let operations = if operations.len() <= OPERATIONS {
            operations
        } else {
            let nested = |part: &[TxnOp]| TxnOp::txn(Txn::new().and_then(part.to_vec()));
            operations.chunks(OPERATIONS).map(nested).collect()
        };
        let mut conditions = vec![is_unchanged, are_hosts_unchanged];
        conditions.extend(self.fence(&loaded.published, concerns));
        let mut looks = vec![TxnOp::get(self.key(REVISION), None)];
        if let Some(start) = start {
            let is_there = Compare::create_revision(self.key(start), CompareOp::Greater, 0);
            conditions.push(is_there);
            looks.push(TxnOp::get(self.key(start), None));
        }
        Txn::new()
            .when(conditions)
            .and_then(operations)
            .or_else(looks)
    }

    /// Returns the comparisons that keep a placement from hosts whose VMs have reserved more
    /// meanwhile, or whose daemons are gone. They are of these hosts alone, so that a VM that is
    /// added anywhere else is no conflict.
    fn fence(&self, published: &Published, hosts: &BTreeSet<&str>) -> Vec<Compare> {
        if hosts.len() > FENCED_HOSTS {
            // A member that is gone cannot be seen by a range. Its daemon starts nothing.
            let next = published.listed_at + 1;
            let all = Compare::mod_revision(self.key(RESERVATIONS), CompareOp::Less, next);
            return vec![all.with_prefix()];
        }
        let known = |key: &str| published.keys.get(key).copied();
        let of_host = |host: &&str| {
            let (reservation, member) =
                (format!("{RESERVATIONS}{host}"), format!("{MEMBERS}{host}"));
            let put_at = known(&reservation).unwrap_or(0);
            let reservation =
                Compare::mod_revision(self.key(&reservation), CompareOp::Equal, put_at);
            let created_at = known(&member);
            let member = created_at
                .map(|at| Compare::create_revision(self.key(&member), CompareOp::Equal, at));
            [Some(reservation), member].into_iter().flatten()
        };
        hosts.iter().flat_map(of_host).collect()
    }

    /// Returns the records of `revision`, and takes them: they are no longer the last ones if a
    /// commit on them succeeds.
    fn take_loaded(&self, revision: Revision) -> Result<Loaded, StoreError> {
        let is_wanted = |loaded: &mut Loaded| loaded.records.revision.revision == revision.0;
        let loaded = self.loaded().take_if(is_wanted);
        if let Some(loaded) = loaded {
            return Ok(loaded);
        }
        let present = self.load_records()?.revision;
        let loaded = self.loaded().take_if(is_wanted);
        loaded.ok_or(StoreError::Conflict { present })
    }

    /// Returns the revision that a refused transaction's commit has all the same, because an
    /// earlier attempt, whose answer was lost, was carried out.
    fn revision_after_refusal(&self, answer: &Answer, id: &str) -> Result<Revision, StoreError> {
        let value = self.revision_value(answer.value(0))?;
        let present = Revision(value.revision);
        value
            .revision_of(id)
            .ok_or(StoreError::Conflict { present })
    }

    /// Carries out a commit; one with `unless_begun` only as long as the start of this transfer, if
    /// one was recorded, is not confirmed.
    fn commit_if(
        &self,
        revision: Revision,
        changes: &[Change],
        unless_begun: Option<&str>,
    ) -> Result<Revision, StoreError> {
        let loaded = self.take_loaded(revision)?;
        let mut state = loaded.records.state.clone();
        Change::apply(changes, &mut state)?;
        // Identifies the commit in later attempts, of which one at most is carried out.
        let id = format!("{:032x}", rand::random::<u128>());
        let next = loaded.records.after(&id, state)?;
        let operations = self.operations(&loaded.records, &next, changes)?;
        let concerns = concerned_hosts(&loaded.records, &next, changes);
        let start = unless_begun.and_then(|it| recorded_key(it, &loaded.records.state));
        let transaction = self.transaction(&loaded, &concerns, start.as_deref(), operations);
        let answer = self.transact(&transaction);
        let answer = answer.map_err(|Failure { error, may_be_done }| match error {
            StoreError::Unavailable { why, .. } if may_be_done => StoreError::OutcomeUnknown(why),
            // A later attempt was refused, which says nothing of the earlier one.
            other if may_be_done => StoreError::OutcomeUnknown(other.to_string()),
            other => other,
        })?;
        if !answer.succeeded {
            let refused = self.revision_after_refusal(&answer, &id);
            let is_begun = start.is_some() && answer.value(1).is_none();
            return match (refused, unless_begun) {
                (Err(StoreError::Conflict { present }), Some(transfer))
                    if is_begun && present == revision =>
                {
                    let transfer = transfer.to_owned();
                    Err(StoreError::HasBegun { transfer })
                }
                (refused, _) => refused,
            };
        }
        let revision = next.snapshot().revision;
        *self.loaded() = Some(Loaded {
            records: next,
            revision_put_at: answer.at,
            at: answer.at,
            published: loaded.published,
        });
        Ok(revision)
    }
}

impl ClusterStore for EtcdStore {
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
        let folder = self.key(LEARNT);
        let found = self.members.call(async |client| {
            let mut client = client.kv_client().max_decoding_message_size(ANSWER_BYTES);
            let below = GetOptions::new().with_prefix();
            client.get(folder.as_str(), Some(below)).await
        });
        let found = found.map_err(|failure| failure.error)?;
        let mut all = BTreeMap::new();
        for pair in found.kvs() {
            let Some(host) = relative(&folder, pair.key())? else {
                continue;
            };
            if hosts.iter().any(|known| known.name == host) {
                let key = format!("{folder}{host}");
                let database = read::<LearntValue>(&key, pair.value())?.into_bytes(&key)?;
                all.insert(host.to_owned(), database);
            }
        }
        Ok(all)
    }

    fn commit(&self, revision: Revision, changes: &[Change]) -> Result<Revision, StoreError> {
        if changes.is_empty() {
            let present = self.present()?;
            return if present == revision {
                Ok(revision)
            } else {
                Err(StoreError::Conflict { present })
            };
        }
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

/// Returns the hosts whose memberships end with a commit.
fn ended_memberships<'a>(
    before: &'a Records,
    next: &'a Records,
) -> impl Iterator<Item = &'a String> {
    let hosts = before.state.memberships.keys();
    hosts.filter(|host| !next.state.memberships.contains_key(*host))
}

/// Returns the hosts that get a transfer by a commit, or whose memberships end.
fn concerned_hosts<'a>(
    before: &'a Records,
    next: &'a Records,
    changes: &'a [Change],
) -> BTreeSet<&'a str> {
    let placed = changes.iter().filter_map(|change| match change {
        Change::PutPlacement {
            transfer,
            placement,
        } => {
            let there = before.state.running(transfer).map(|it| &it.placement);
            let goes_on = there
                .is_some_and(|there| placement_identity(there) == placement_identity(placement));
            (!goes_on).then_some(placement.host.as_str())
        }
        _ => None,
    });
    placed
        .chain(ended_memberships(before, next).map(String::as_str))
        .collect()
}

/// Returns a key without the prefix; `None`: it does not begin with it.
fn relative<'a>(prefix: &str, key: &'a [u8]) -> Result<Option<&'a str>, StoreError> {
    let Some(key) = key.strip_prefix(prefix.as_bytes()) else {
        return Ok(None);
    };
    let text = std::str::from_utf8(key);
    text.map(Some).map_err(|_| {
        let key = format!("{prefix}{}", String::from_utf8_lossy(key));
        damaged(&key, "its name is not UTF-8")
    })
}
