//! Calls of etcd for [`KeyedStore`](super::keyed::KeyedStore): transactions and watches.

use std::sync::PoisonError;
use std::time::Duration;

use etcd_client::{
    Compare, CompareOp, Event, EventType, GetOptions, KeyValue as EtcdPair, Txn, TxnOp,
    TxnOpResponse, TxnResponse, WatchOptions, WatchResponse, WatchStream,
};
use tokio::time::timeout;

use super::ANSWER_BYTES;
use super::client::{Failure, Members, Reply, Stream, permanent};
use super::keyed::{self, Compared, Events, KeyValues, Listing, Transaction};
use super::records::KeyValue;
use super::value::damaged;
use crate::store::StoreError;

/// Time for the acknowledgement of a watch.
const CREATE_TIMEOUT: Duration = Duration::from_secs(3);
/// Time for events that are known to be there; after it all keys are listed instead.
const EVENTS_TIMEOUT: Duration = Duration::from_secs(1);

/// Answer of etcd to a transaction.
pub(super) struct Answer {
    pub(super) succeeded: bool,
    pub(super) responses: Vec<TxnOpResponse>,
    /// Revision of etcd after it.
    pub(super) at: i64,
}

impl Answer {
    pub(super) fn of(answer: &TxnResponse) -> Answer {
        Answer {
            succeeded: answer.succeeded(),
            responses: answer.op_responses(),
            at: answer.header().map_or(0, |header| header.revision()),
        }
    }
}

/// Opens a watch of all keys below a prefix, from a revision of etcd on. Returns it with its first
/// message.
pub(super) fn open(
    members: &Members,
    prefix: &str,
    next: i64,
) -> Result<(WatchStream, Option<WatchResponse>), Failure> {
    let options = WatchOptions::new().with_prefix().with_start_revision(next);
    let opened = members.call(async |client| {
        let mut client = client
            .watch_client()
            .max_decoding_message_size(ANSWER_BYTES);
        let mut stream = client.watch(prefix, Some(options.clone())).await?;
        let first = timeout(CREATE_TIMEOUT, stream.message()).await;
        let first = first.map_err(|_| silent())??;
        Ok((stream, first))
    });
    opened.map(|reply| reply.value)
}

fn silent() -> etcd_client::Error {
    etcd_client::Error::WatchError("no acknowledgement of the watch".to_owned())
}

/// Returns the key of an event; `None`: it has none.
///
/// # Errors
/// The key is not UTF-8.
pub(super) fn key_value(event: &Event) -> Result<Option<KeyValue>, StoreError> {
    let Some(pair) = event.kv() else {
        return Ok(None);
    };
    let read = read(pair)?;
    Ok(Some(match event.event_type() {
        EventType::Put => read,
        EventType::Delete => KeyValue {
            value: None,
            ..read
        },
    }))
}

fn read(pair: &EtcdPair) -> Result<KeyValue, StoreError> {
    let key = pair.key_str().map_err(|_| {
        let key = String::from_utf8_lossy(pair.key());
        damaged(&key, "its name is not UTF-8")
    })?;
    Ok(KeyValue {
        key: key.to_owned(),
        value: Some(pair.value().to_vec()),
        version: pair.mod_revision(),
        created: pair.create_revision(),
    })
}

/// Returns the pairs that the reads of a transaction have found.
pub(super) fn pairs(responses: Vec<TxnOpResponse>) -> Result<Vec<KeyValue>, StoreError> {
    let mut all = Vec::new();
    for response in responses {
        if let TxnOpResponse::Get(found) = response {
            for pair in found.kvs() {
                all.push(read(pair)?);
            }
        }
    }
    Ok(all)
}

/// Returns the operations of a transaction, in chunks of `level` if there are more.
fn operations(writes: &[(String, Option<Vec<u8>>)], level: usize) -> Vec<TxnOp> {
    let operation = |(key, value): &(String, Option<Vec<u8>>)| match value {
        Some(value) => TxnOp::put(key.as_str(), value.as_slice(), None),
        None => TxnOp::delete(key.as_str(), None),
    };
    let operations: Vec<_> = writes.iter().map(operation).collect();
    if operations.len() <= level {
        return operations;
    }
    let nested = |part: &[TxnOp]| TxnOp::txn(Txn::new().and_then(part.to_vec()));
    operations.chunks(level).map(nested).collect()
}

pub(super) fn compare(compared: &Compared) -> Compare {
    match compared {
        Compared::Put(key, at) => Compare::mod_revision(key.as_str(), CompareOp::Equal, *at),
        Compared::Created(key, at) => Compare::create_revision(key.as_str(), CompareOp::Equal, *at),
        Compared::There(key) => Compare::create_revision(key.as_str(), CompareOp::Greater, 0),
        Compared::NonePut(folder, at) => {
            Compare::mod_revision(folder.as_str(), CompareOp::Less, at + 1).with_prefix()
        }
        Compared::NoneCreated(folder, at) => {
            Compare::create_revision(folder.as_str(), CompareOp::Less, at + 1).with_prefix()
        }
    }
}

fn call_transaction(members: &Members, transaction: &Txn) -> Result<Reply<Answer>, Failure> {
    members.call(async |client| {
        let mut client = client.kv_client().max_decoding_message_size(ANSWER_BYTES);
        let answer = client.txn(transaction.clone()).await?;
        Ok(Answer::of(&answer))
    })
}

/// Returns the next events of the open watch; `None`: it has ended, or is silent.
fn next_events(
    members: &Members,
    stream: &mut Stream,
) -> Result<Option<Vec<KeyValue>>, StoreError> {
    let message = match stream.first.take() {
        Some(first) => Some(first),
        None => {
            let next = async { timeout(EVENTS_TIMEOUT, stream.stream.message()).await };
            match members.block_on(next) {
                Ok(Ok(message)) => message,
                Ok(Err(error)) => {
                    permanent(error)?;
                    members.leave(stream.member);
                    None
                }
                Err(_) => None,
            }
        }
    };
    let Some(message) = message.filter(|message| !message.canceled()) else {
        return Ok(None);
    };
    let mut events = Vec::new();
    for event in message.events() {
        events.extend(key_value(event)?);
    }
    let last = events.iter().map(|event| event.version).max();
    stream.next = stream.next.max(last.unwrap_or_default() + 1);
    Ok(Some(events))
}

impl KeyValues for Members {
    fn list(&self, keys: &[String], folders: &[String]) -> Result<Listing, Failure> {
        let below = || Some(GetOptions::new().with_prefix());
        let keys = keys.iter().map(|key| TxnOp::get(key.as_str(), None));
        let folders = folders
            .iter()
            .map(|folder| TxnOp::get(folder.as_str(), below()));
        // One transaction, and so one revision.
        let gets: Vec<_> = keys.chain(folders).collect();
        let answer = call_transaction(self, &Txn::new().and_then(gets))?.value;
        let pairs = pairs(answer.responses).map_err(Failure::before_anything)?;
        let at = answer.at;
        Ok(Listing { pairs, at })
    }

    fn transact(&self, transaction: &Transaction) -> Result<keyed::Answer, Failure> {
        let (revision, put_at) = &transaction.revision;
        let is_unchanged = Compare::mod_revision(revision.as_str(), CompareOp::Equal, *put_at);
        let mut compares = vec![is_unchanged];
        compares.extend(transaction.compares.iter().map(compare));
        let read = TxnOp::get(revision.as_str(), None);
        let mut done = operations(&transaction.writes, transaction.level());
        if done.is_empty() {
            let below = GetOptions::new().with_prefix().with_count_only();
            let count = |folder: &String| TxnOp::get(folder.as_str(), Some(below.clone()));
            done = vec![read.clone()];
            done.extend(transaction.counted.iter().map(count));
        }
        let mut looks = vec![read];
        let looked_at = transaction.looked_at.as_ref();
        looks.extend(looked_at.map(|key| TxnOp::get(key.as_str(), None)));
        let transaction = Txn::new().when(compares).and_then(done).or_else(looks);
        let reply = call_transaction(self, &transaction)?;
        let (answer, may_be_done) = (reply.value, reply.may_be_done);
        let (succeeded, at) = (answer.succeeded, answer.at);
        let counts = answer
            .responses
            .iter()
            .skip(1)
            .map(|response| match response {
                TxnOpResponse::Get(counted) => usize::try_from(counted.count()).unwrap_or_default(),
                _ => 0,
            });
        let count = counts.sum();
        let looked_at = answer.responses.get(1).filter(|_| !succeeded);
        let is_there =
            matches!(looked_at, Some(TxnOpResponse::Get(found)) if !found.kvs().is_empty());
        let pairs = pairs(answer.responses).map_err(|error| Failure { error, may_be_done })?;
        Ok(keyed::Answer {
            succeeded,
            may_be_done,
            at,
            // A refused transaction reads another key, too.
            found: pairs.into_iter().find(|pair| pair.key == *revision),
            is_there,
            count,
        })
    }

    fn events(&self, prefix: &str, from: i64) -> Result<Events, StoreError> {
        let mut open_stream = self.stream.lock().unwrap_or_else(PoisonError::into_inner);
        // One that has read beyond would miss events.
        let usable = open_stream.take().filter(|stream| stream.next <= from);
        let mut stream = match usable {
            Some(stream) => stream,
            None => match open(self, prefix, from) {
                Ok((stream, first)) => Stream {
                    stream,
                    first,
                    next: from,
                    member: self.current(),
                },
                Err(Failure { error, .. }) => return Err(error),
            },
        };
        let Some(events) = next_events(self, &mut stream)? else {
            return Ok(Events::Lost);
        };
        *open_stream = Some(stream);
        Ok(Events::Some(events))
    }
}
