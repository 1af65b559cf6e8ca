//! Store in etcd, shared by the hosts of a cluster.
//!
//! Each record is a key below one prefix with a JSON value (`docs/cluster.md` has the schema). A
//! commit is one transaction: it compares the key `revision`, which every commit puts, and the
//! revisions of all hosts with what the state was decided on, and then puts and deletes what has
//! changed (`docs/adr/0019-etcd-store.md`).

mod client;
#[cfg(test)]
mod model_tests;
mod records;
mod value;
mod watch;

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use etcd_client::{Compare, CompareOp, GetOptions, Txn, TxnOp, TxnOpResponse};

use super::{ClusterStore, Revision, Snapshot, StoreError};
use crate::change::Change;
use client::{Failure, Members};
use records::{FOLDERS, HOSTS, LEARNT, REVISION, Records, SETTINGS, Values};
use value::{LearntValue, RevisionValue, damaged, read, write};

pub use watch::{EtcdWatch, WatchEvent};

/// Operations of one level of a transaction. etcd allows 128 on the longest path of nested ones by
/// default (`--max-txn-ops`), so two levels of 64 carry `OPERATIONS * OPERATIONS`.
const OPERATIONS: usize = 64;
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
}

/// All keys of a state, read at one revision of etcd.
struct Listing {
    values: Values,
    /// Revision of the last put of the key `revision`; 0: there is none.
    revision_put_at: i64,
    /// Revision of etcd.
    at: i64,
}

/// Answer to a transaction.
struct Answer {
    succeeded: bool,
    responses: Vec<TxnOpResponse>,
    /// Revision of etcd after it.
    at: i64,
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
            Ok(Answer {
                at: answer.header().map_or(0, |header| header.revision()),
                succeeded: answer.succeeded(),
                responses: answer.op_responses(),
            })
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
        let deletes: Vec<_> = deletes.into_iter().map(|key| self.key(key)).collect();
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

    /// Returns the transaction of a commit: on the records as they were loaded.
    fn transaction(&self, loaded: &Loaded, operations: Vec<TxnOp>) -> Txn {
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
        Txn::new()
            .when([is_unchanged, are_hosts_unchanged])
            .and_then(operations)
            .or_else([TxnOp::get(self.key(REVISION), None)])
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
        let mut value = None;
        for response in &answer.responses {
            if let TxnOpResponse::Get(found) = response {
                value = found.kvs().first().map(|pair| pair.value().to_vec());
            }
        }
        let value = self.revision_value(value.as_deref())?;
        let present = Revision(value.revision);
        value
            .revision_of(id)
            .ok_or(StoreError::Conflict { present })
    }
}

impl ClusterStore for EtcdStore {
    fn load(&self, known: Revision) -> Result<Option<Snapshot>, StoreError> {
        if known != Revision::EMPTY && self.present()? == known {
            return Ok(None);
        }
        let snapshot = self.load_records()?;
        Ok(Some(snapshot).filter(|snapshot| snapshot.revision != known))
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

    fn commit(&self, revision: Revision, changes: &[Change]) -> Result<Revision, StoreError> {
        if changes.is_empty() {
            let present = self.present()?;
            return if present == revision {
                Ok(revision)
            } else {
                Err(StoreError::Conflict { present })
            };
        }
        let loaded = self.take_loaded(revision)?;
        let mut state = loaded.records.state.clone();
        Change::apply(changes, &mut state)?;
        // Identifies the commit in later attempts, of which one at most is carried out.
        let id = format!("{:032x}", rand::random::<u128>());
        let next = loaded.records.after(&id, state)?;
        let operations = self.operations(&loaded.records, &next, changes)?;
        let answer = self.transact(&self.transaction(&loaded, operations));
        let answer = answer.map_err(|Failure { error, may_be_done }| match error {
            StoreError::Unavailable { why, .. } if may_be_done => StoreError::OutcomeUnknown(why),
            // A later attempt was refused, which says nothing of the earlier one.
            other if may_be_done => StoreError::OutcomeUnknown(other.to_string()),
            other => other,
        })?;
        if !answer.succeeded {
            return self.revision_after_refusal(&answer, &id);
        }
        let revision = next.snapshot().revision;
        *self.loaded() = Some(Loaded {
            records: next,
            revision_put_at: answer.at,
            at: answer.at,
        });
        Ok(revision)
    }
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
