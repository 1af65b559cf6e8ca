//! Registration of a host's daemon in etcd: its lease, and the transactions on its keys.
//!
//! Every change compares the revision of `members/HOST` with the last one that this daemon knows,
//! so that of two daemons of one name, or of a daemon and the one that has taken over from it, one
//! alone writes.

use std::collections::BTreeMap;
use std::time::Duration;

use etcd_client::{
    Client, Compare, CompareOp, Error as EtcdError, GetOptions, KeyValue as EtcdPair, PutOptions,
    Txn, TxnOp, TxnOpResponse,
};
use tidegate_api::cluster::PlacementClaim;

use super::client::{Failure, Members};
use super::keys::{CLOCKS, MEMBERS, RESERVATIONS, STARTS};
use super::records::{HOSTS, KeyValue, PLACEMENTS};
use super::start_checks::{Confirmation, StartedPlacement};
use super::starts::start_key;
use super::transport::{Answer, compare, pairs};
use super::value::{PlacementValue, read, write};
use super::{ANSWER_BYTES, EtcdOptions};
use crate::store::StoreError;

pub(crate) use super::published::{
    ClockValue, MemberDeviceValue, MemberValue, PublishedTransferValue, ReservationValue,
};
pub(crate) use super::start_checks::Checked;
pub(crate) use super::starts::StartValue;

/// Transactions that confirm a placement at most: placers may report progress between them.
const CONFIRM_ATTEMPTS: usize = 8;

/// Access of one host's daemon to its keys.
pub(crate) struct MemberStore {
    members: Members,
    prefix: String,
    host: String,
}

/// Registration that this daemon holds.
#[derive(Clone, Debug)]
pub(crate) struct Registration {
    /// Lease of the key.
    pub(crate) lease: i64,
    /// Revision of etcd at which the key was created.
    created_at: i64,
    /// Revision of etcd at which this daemon has put it last.
    put_at: i64,
}

impl Registration {
    /// Returns the registration for a put under another lease.
    pub(crate) fn under(self, lease: i64) -> Registration {
        Registration { lease, ..self }
    }
}

/// Key of a host's daemon as it is in etcd.
pub(crate) struct Registered {
    pub(crate) value: MemberValue,
    pub(crate) registration: Registration,
}

/// Result of a write.
pub(crate) enum Written {
    /// The keys are written.
    Done(Registration),
    /// The key of the host is another daemon's, or gone.
    NotOurs,
    /// The lease has ended.
    LeaseGone,
}

/// Start that a placer has recorded for the daemon of the host.
pub(crate) struct StartRecord {
    /// Name of the VM, and of the transfer.
    pub(crate) vm: String,
    /// Value; the reason if it is not understood.
    pub(crate) value: Result<StartValue, String>,
    /// Revision of etcd at which it was put.
    put_at: i64,
}

impl StartRecord {
    /// Creates a record as if it was read.
    #[cfg(test)]
    pub(crate) fn for_test(vm: &str, begun_ns: u64) -> StartRecord {
        StartRecord {
            vm: vm.to_owned(),
            value: Ok(StartValue::for_test(begun_ns)),
            put_at: 1,
        }
    }
}

/// Placements on a host, and whether the cluster has the host.
#[derive(Default)]
pub(crate) struct OwnPlacements {
    pub(crate) is_defined: bool,
    /// Time of the placement in nanoseconds since 1970, by VM. `None`: the value is damaged or of
    /// another schema, and may be of this host.
    pub(crate) begun_ns: BTreeMap<String, Option<u64>>,
}

impl MemberStore {
    /// Creates the access of the daemon of `host`; connections are made when they are needed.
    ///
    /// # Errors
    /// A URL or a file of TLS is not valid, or the operating system gives no event queue.
    pub(crate) fn new(options: &EtcdOptions, host: &str) -> Result<MemberStore, StoreError> {
        let limit = options.call_timeout;
        Ok(MemberStore {
            members: Members::new(options)?.with_attempt_timeout(limit),
            prefix: options.prefix.clone(),
            host: host.to_owned(),
        })
    }

    /// Runs a future to its end on the runtime of the connections.
    pub(crate) fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        self.members.block_on(future)
    }

    /// Ends the connections, without waiting for look-ups of names that are under way.
    pub(crate) fn shut_down(self) {
        self.members.shut_down();
    }

    /// Returns the key of the registration.
    pub(crate) fn key(&self) -> String {
        self.own(MEMBERS)
    }

    fn own(&self, folder: &str) -> String {
        format!("{}{folder}{}", self.prefix, self.host)
    }

    async fn call<T>(
        &self,
        operation: impl AsyncFn(Client) -> Result<T, EtcdError>,
    ) -> Result<T, StoreError> {
        let called = self.members.try_members(operation).await;
        let reply = called.map_err(|Failure { error, .. }| error)?;
        Ok(reply.value)
    }

    /// Asks for a lease of `length`.
    ///
    /// # Errors
    /// etcd does not answer, or refuses.
    pub(crate) async fn grant(&self, length: Duration) -> Result<i64, StoreError> {
        let seconds = i64::try_from(length.as_secs()).unwrap_or(i64::MAX);
        let grant = async |client: Client| client.lease_client().grant(seconds, None).await;
        self.call(grant).await.map(|granted| granted.id())
    }

    /// Renews a lease. Returns false if it has ended.
    ///
    /// # Errors
    /// etcd does not answer, or refuses.
    pub(crate) async fn renew(&self, lease: i64) -> Result<bool, StoreError> {
        self.call(
            async |client| match client.lease_client().keep_alive(lease).await {
                Ok(_) => Ok(true),
                Err(error) if is_lease_gone(&error) => Ok(false),
                Err(error) => Err(error),
            },
        )
        .await
    }

    /// Ends a lease, with the keys under it.
    ///
    /// # Errors
    /// etcd does not answer, or refuses.
    pub(crate) async fn revoke(&self, lease: i64) -> Result<(), StoreError> {
        self.call(
            async |client| match client.lease_client().revoke(lease).await {
                Err(error) if !is_lease_gone(&error) => Err(error),
                _ => Ok(()),
            },
        )
        .await
    }

    /// Returns the key of the host; `None`: no daemon is registered.
    ///
    /// # Errors
    /// etcd does not answer, or refuses.
    pub(crate) async fn registered(&self) -> Result<Option<Registered>, StoreError> {
        let key = self.key();
        let found = self.call(async |client| client.kv_client().get(key.as_str(), None).await);
        Ok(found.await?.kvs().first().map(of_key))
    }

    /// Returns whether the key of the host is as this daemon has put it last.
    ///
    /// # Errors
    /// etcd does not answer, or refuses.
    pub(crate) async fn is_held(&self, held: &Registration) -> Result<bool, StoreError> {
        let there = self.registered().await?;
        Ok(there.is_some_and(|there| there.registration.put_at == held.put_at))
    }

    /// Registers the daemon under a lease, if no other one is.
    ///
    /// # Errors
    /// etcd does not answer, or refuses.
    pub(crate) async fn register(
        &self,
        lease: i64,
        value: &MemberValue,
        reservation: &ReservationValue,
    ) -> Result<Written, StoreError> {
        let free = Compare::create_revision(self.key(), CompareOp::Equal, 0);
        self.write(free, lease, value, Some(reservation), |at| Registration {
            lease,
            created_at: at,
            put_at: at,
        })
        .await
    }

    /// Writes the keys of a registration that this daemon holds; the reservation if there is one.
    ///
    /// # Errors
    /// etcd does not answer, or refuses.
    pub(crate) async fn publish(
        &self,
        held: &Registration,
        value: &MemberValue,
        reservation: Option<&ReservationValue>,
    ) -> Result<Written, StoreError> {
        let ours = Compare::mod_revision(self.key(), CompareOp::Equal, held.put_at);
        self.write(ours, held.lease, value, reservation, |at| Registration {
            put_at: at,
            ..held.clone()
        })
        .await
    }

    /// Writes the reservation alone, under a registration that this daemon holds.
    ///
    /// # Errors
    /// etcd does not answer, or refuses.
    pub(crate) async fn reserve(
        &self,
        held: &Registration,
        reservation: &ReservationValue,
    ) -> Result<Written, StoreError> {
        let ours = Compare::mod_revision(self.key(), CompareOp::Equal, held.put_at);
        let put = TxnOp::put(self.own(RESERVATIONS), write(reservation)?, None);
        let transaction = Txn::new().when([ours]).and_then([put]);
        let answer = self.transact(&transaction).await?;
        Ok(match answer.filter(|answer| answer.succeeded) {
            Some(_) => Written::Done(held.clone()),
            None => Written::NotOurs,
        })
    }

    /// Publishes the clock of the host under a registration that this daemon holds.
    ///
    /// # Errors
    /// etcd does not answer, or refuses.
    pub(crate) async fn publish_clock(
        &self,
        held: &Registration,
        clock: &ClockValue,
    ) -> Result<(), StoreError> {
        let ours = Compare::mod_revision(self.key(), CompareOp::Equal, held.put_at);
        let under_lease = Some(PutOptions::new().with_lease(held.lease));
        let put = TxnOp::put(self.own(CLOCKS), write(clock)?, under_lease);
        let transaction = Txn::new().when([ours]).and_then([put]);
        // Without the registration or its lease the renewal says so.
        self.transact(&transaction).await.map(drop)
    }

    async fn write(
        &self,
        condition: Compare,
        lease: i64,
        value: &MemberValue,
        reservation: Option<&ReservationValue>,
        written: impl Fn(i64) -> Registration,
    ) -> Result<Written, StoreError> {
        let bytes = write(value)?;
        let under_lease = Some(PutOptions::new().with_lease(lease));
        let mut puts = vec![TxnOp::put(self.key(), bytes.clone(), under_lease)];
        if let Some(reservation) = reservation {
            puts.push(TxnOp::put(
                self.own(RESERVATIONS),
                write(reservation)?,
                None,
            ));
        }
        let transaction = Txn::new()
            .when([condition])
            .and_then(puts)
            .or_else([TxnOp::get(self.key(), None)]);
        let Some(answer) = self.transact(&transaction).await? else {
            return Ok(Written::LeaseGone);
        };
        if answer.succeeded {
            return Ok(Written::Done(written(answer.at)));
        }
        // An attempt whose answer was lost has put exactly this value under exactly this lease.
        let there = kvs(&answer).into_iter().next();
        Ok(
            match there.filter(|pair| pair.value() == bytes && pair.lease() == lease) {
                Some(pair) => Written::Done(of_key(&pair).registration),
                None => Written::NotOurs,
            },
        )
    }

    /// Returns the placements on the host. Values that are not understood keep no daemon out of the
    /// cluster, because most are of other hosts.
    ///
    /// # Errors
    /// etcd does not answer or refuses.
    pub(crate) async fn placements(&self) -> Result<OwnPlacements, StoreError> {
        let folder = format!("{}{PLACEMENTS}", self.prefix);
        let gets = [
            TxnOp::get(self.own(HOSTS), None),
            TxnOp::get(folder.clone(), Some(GetOptions::new().with_prefix())),
        ];
        let answer = self.transact(&Txn::new().and_then(gets)).await?;
        let mut own = OwnPlacements::default();
        for pair in answer.iter().flat_map(kvs) {
            let key = String::from_utf8_lossy(pair.key()).into_owned();
            let Some(name) = key.strip_prefix(&folder) else {
                own.is_defined = true;
                continue;
            };
            let placed = read::<PlacementValue>(&key, pair.value());
            let begun = match placed.map(PlacementValue::into_record) {
                Ok(placement) if placement.host == self.host => Some(placement.begun.0),
                Ok(_) => continue,
                Err(_) if is_of_another(pair.value(), &self.host) => continue,
                Err(error) => {
                    tracing::warn!("a placement is not understood, and is not started: {error}");
                    None
                }
            };
            own.begun_ns.insert(name.to_owned(), begun);
        }
        Ok(own)
    }

    /// Checks, at one revision with the registration, that a placement stands and that the host
    /// takes transfers.
    ///
    /// # Errors
    /// etcd does not answer or refuses, or a record is damaged or of another schema.
    pub(crate) async fn check(
        &self,
        held: &Registration,
        vm: &str,
        claim: &PlacementClaim,
    ) -> Result<Checked, StoreError> {
        let placement = self.placement(held, vm, claim);
        let read = Txn::new().and_then(gets(&placement.keys()));
        placement.check(&self.pairs(&read).await?.1)
    }

    /// Confirms the placement of a transfer that has begun: the record of its start is deleted in
    /// the transaction that finds the placement unchanged. Without a record it is checked alone.
    ///
    /// # Errors
    /// etcd does not answer or refuses, or the placement is damaged, of another schema, or changed
    /// all the time. It may be confirmed nevertheless, which another call finds out.
    pub(crate) async fn confirm(
        &self,
        held: &Registration,
        vm: &str,
        claim: &PlacementClaim,
    ) -> Result<Checked, StoreError> {
        let placement = self.placement(held, vm, claim);
        let gets = gets(&placement.keys());
        let (_, mut pairs) = self.pairs(&Txn::new().and_then(gets.clone())).await?;
        for _ in 0..CONFIRM_ATTEMPTS {
            let delete = match placement.confirm(&pairs)? {
                Confirmation::Done(checked) => return Ok(checked),
                Confirmation::Delete(delete) => delete,
            };
            let transaction = Txn::new()
                .when(delete.compares.iter().map(compare).collect::<Vec<_>>())
                .and_then([TxnOp::delete(delete.key, None)])
                .or_else(gets.clone());
            let (is_deleted, found) = self.pairs(&transaction).await?;
            if is_deleted {
                return Ok(Checked::Stands);
            }
            pairs = found;
        }
        let why = format!("placements/{vm} has changed {CONFIRM_ATTEMPTS} times meanwhile");
        Err(StoreError::Backend(why.into()))
    }

    fn placement<'a>(
        &'a self,
        held: &Registration,
        vm: &'a str,
        claim: &PlacementClaim,
    ) -> StartedPlacement<'a> {
        StartedPlacement {
            prefix: &self.prefix,
            host: &self.host,
            vm,
            begun_ns: claim.begun_ns,
            registered_at: held.created_at,
        }
    }

    /// Carries out a transaction that puts nothing. Returns whether its comparisons held, and the
    /// pairs that it has read.
    async fn pairs(&self, transaction: &Txn) -> Result<(bool, Vec<KeyValue>), StoreError> {
        let Some(answer) = self.transact(transaction).await? else {
            return Ok((false, Vec::new()));
        };
        Ok((answer.succeeded, pairs(answer.responses)?))
    }

    /// Returns the starts that placers have recorded for the host, also those that are not
    /// understood.
    ///
    /// # Errors
    /// etcd does not answer or refuses.
    pub(crate) async fn recorded_starts(&self) -> Result<Vec<StartRecord>, StoreError> {
        let folder = format!("{}{STARTS}{}/", self.prefix, self.host);
        let found = self.call(async |client| {
            let mut client = client.kv_client().max_decoding_message_size(ANSWER_BYTES);
            let below = GetOptions::new().with_prefix();
            client.get(folder.as_str(), Some(below)).await
        });
        let found = found.await?;
        let recorded = found.kvs().iter().filter_map(|pair| {
            let vm = pair.key().strip_prefix(folder.as_bytes())?;
            self.start_record(&String::from_utf8_lossy(vm), pair)
        });
        Ok(recorded.collect())
    }

    /// Reads a start; `None` if it is of another host, whose name begins as that of this one.
    fn start_record(&self, vm: &str, pair: &EtcdPair) -> Option<StartRecord> {
        let key = String::from_utf8_lossy(pair.key());
        let value = read::<StartValue>(&key, pair.value());
        let value = value.map_err(|error| error.to_string());
        let is_own = value.as_ref().map_or(true, |value| value.host == self.host);
        is_own.then(|| StartRecord {
            vm: vm.to_owned(),
            value,
            put_at: pair.mod_revision(),
        })
    }

    /// Deletes the record of a start whose placement has ended, unless it was put again.
    ///
    /// # Errors
    /// etcd does not answer or refuses.
    pub(crate) async fn delete_start(&self, start: &StartRecord) -> Result<(), StoreError> {
        let key = format!("{}{}", self.prefix, start_key(&self.host, &start.vm));
        let is_unchanged = Compare::mod_revision(key.as_str(), CompareOp::Equal, start.put_at);
        let delete = TxnOp::delete(key, None);
        let transaction = Txn::new().when([is_unchanged]).and_then([delete]);
        self.transact(&transaction).await.map(drop)
    }

    /// Ends a registration in order, so that placers know at once. The reservation stays.
    ///
    /// # Errors
    /// etcd does not answer, or refuses.
    pub(crate) async fn withdraw(
        &self,
        held: &Registration,
        mut reservation: ReservationValue,
    ) -> Result<(), StoreError> {
        reservation.left = true;
        let ours = Compare::mod_revision(self.key(), CompareOp::Equal, held.put_at);
        let operations = [
            TxnOp::put(self.own(RESERVATIONS), write(&reservation)?, None),
            TxnOp::delete(self.key(), None),
        ];
        let transaction = Txn::new().when([ours]).and_then(operations);
        self.transact(&transaction).await?;
        self.revoke(held.lease).await
    }

    /// Marks a reservation as that of a daemon that has left in order, if it is the one that etcd
    /// has and no daemon is registered.
    ///
    /// # Errors
    /// etcd does not answer, or refuses.
    pub(crate) async fn mark_left(
        &self,
        mut reservation: ReservationValue,
    ) -> Result<(), StoreError> {
        let (key, written) = (self.own(RESERVATIONS), write(&reservation)?);
        reservation.left = true;
        let none_registered = Compare::create_revision(self.key(), CompareOp::Equal, 0);
        // A value with the time at which it was written is of one daemon alone.
        let is_own = Compare::value(key.as_str(), CompareOp::Equal, written);
        let put = TxnOp::put(key, write(&reservation)?, None);
        let transaction = Txn::new().when([none_registered, is_own]).and_then([put]);
        self.transact(&transaction).await.map(drop)
    }

    /// Carries out a transaction; `None`: the lease of a put has ended.
    async fn transact(&self, transaction: &Txn) -> Result<Option<Answer>, StoreError> {
        self.call(async |client| {
            let mut client = client.kv_client().max_decoding_message_size(ANSWER_BYTES);
            match client.txn(transaction.clone()).await {
                Ok(answer) => Ok(Some(Answer::of(&answer))),
                Err(error) if is_lease_gone(&error) => Ok(None),
                Err(error) => Err(error),
            }
        })
        .await
    }
}

/// Returns the pairs of all gets of an answer.
fn kvs(answer: &Answer) -> Vec<EtcdPair> {
    let of_get = |response: &TxnOpResponse| match response {
        TxnOpResponse::Get(found) => found.kvs().to_vec(),
        _ => Vec::new(),
    };
    answer.responses.iter().flat_map(of_get).collect()
}

fn gets(keys: &[String]) -> Vec<TxnOp> {
    let get = |key: &String| TxnOp::get(key.as_str(), None);
    keys.iter().map(get).collect()
}

/// Returns true if a value that is not understood is surely a placement on another host.
fn is_of_another(value: &[u8], host: &str) -> bool {
    let value = serde_json::from_slice::<serde_json::Value>(value).ok();
    let named = value.as_ref().and_then(|value| value.get("host")?.as_str());
    named.is_some_and(|named| named != host)
}

fn of_key(pair: &EtcdPair) -> Registered {
    Registered {
        value: MemberValue::read(pair.value()),
        registration: Registration {
            lease: pair.lease(),
            created_at: pair.create_revision(),
            put_at: pair.mod_revision(),
        },
    }
}

/// Returns whether an error says that a lease does not exist, in the words of etcd 3.4 and 3.5 and
/// of the client.
fn is_lease_gone(error: &EtcdError) -> bool {
    let text = match error {
        EtcdError::GRpcStatus(status) => status.message().to_owned(),
        other => other.to_string(),
    };
    text.contains("lease not found")
}
