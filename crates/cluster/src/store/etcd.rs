//! Store in etcd, shared by the hosts of a cluster.
//!
//! Each record is a key below one prefix with a JSON value (`docs/cluster.md` has the schema). A
//! commit is one transaction: it compares the key `revision`, which every commit puts, and the
//! revisions of all hosts with what the state was decided on, and then puts and deletes what has
//! changed (`docs/adr/0019-etcd-store.md`). [`keyed`] has these rules, `transport` the calls.

mod client;
#[cfg(test)]
mod fence_model_tests;
mod keyed;
mod keys;
pub(crate) mod member;
#[cfg(test)]
mod model_tests;
mod published;
mod records;
mod start_checks;
mod starts;
#[cfg(test)]
mod torture;
mod transport;
mod value;
mod watch;

use std::collections::BTreeMap;
use std::time::Duration;

use super::{ClusterStore, Revision, Snapshot, StoreError, Update};
use crate::change::Change;
use crate::clock::PublishedClock;
use crate::record::HostRecord;
use client::Members;
use keyed::KeyedStore;

pub use watch::{EtcdWatch, WatchEvent};

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
pub struct EtcdStore(KeyedStore<Members>);

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
    /// A certificate, key or URL is not valid, or there is no URL.
    pub fn new(options: &EtcdOptions) -> Result<EtcdStore, StoreError> {
        let members = Members::new(options)?;
        Ok(EtcdStore(KeyedStore::new(members, &options.prefix)))
    }

    /// Begins to watch the state.
    pub fn watch(&self) -> EtcdWatch<'_> {
        EtcdWatch::new(self)
    }

    /// Asks each member for its status. A member that does not answer has the reason instead.
    pub fn members(&self) -> Vec<(String, Result<MemberStatus, String>)> {
        let members = &self.0.keys;
        let urls = members.urls().iter().enumerate();
        let ask = |(at, url): (usize, &String)| {
            let status = members.call_at(at, async |mut client| {
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
}

impl ClusterStore for EtcdStore {
    fn load(&self, known: Revision) -> Result<Option<Snapshot>, StoreError> {
        self.0.load(known)
    }

    fn changes_since(&self, known: Revision) -> Result<Option<Update>, StoreError> {
        self.0.changes_since(known)
    }

    fn learnt(&self, host: &str) -> Result<Option<Vec<u8>>, StoreError> {
        self.0.learnt(host)
    }

    fn learnt_by_all(&self, hosts: &[HostRecord]) -> Result<BTreeMap<String, Vec<u8>>, StoreError> {
        self.0.learnt_by_all(hosts)
    }

    fn clocks(&self) -> Result<Vec<PublishedClock>, StoreError> {
        self.0.clocks()
    }

    fn commit(&self, revision: Revision, changes: &[Change]) -> Result<Revision, StoreError> {
        self.0.commit(revision, changes)
    }

    fn commit_unless_begun(
        &self,
        revision: Revision,
        changes: &[Change],
        transfer: &str,
    ) -> Result<Revision, StoreError> {
        self.0.commit_unless_begun(revision, changes, transfer)
    }
}
