//! Supervisor of a watch: keeps a cluster's state up to date from etcd's events.
//!
//! ```text
//!   list at revision R --> watch from R + 1 --> events: apply, R = theirs
//!          ^                     |      ^            |
//!          |      compacted      |      |    cut     |
//!          +---------------------+      +------------+
//! ```

use std::thread;
use std::time::{Duration, Instant};

use etcd_client::{EventType, WatchOptions, WatchResponse, WatchStream};
use tokio::time::timeout;

use super::client::{Failure, permanent};
use super::keys::Values;
use super::records::{Records, is_of_state};
use super::{ANSWER_BYTES, EtcdStore, Listing};
use crate::store::{Snapshot, StoreError};

/// Pause before the next attempt while etcd does not answer.
const PAUSE: Duration = Duration::from_secs(1);
/// Time for the acknowledgement of a watch.
const CREATE_TIMEOUT: Duration = Duration::from_secs(3);

/// News of a cluster in etcd.
#[derive(Debug)]
pub enum WatchEvent {
    /// State, first as it is and then after each change.
    State(Snapshot),
    /// No member of etcd answers; sent once, and followed by a [`WatchEvent::Back`].
    Away(StoreError),
    /// A member answers again; changes in between follow as a state.
    Back,
}

/// Watch of a cluster in etcd that survives restarts of its members and compactions.
pub struct EtcdWatch<'a> {
    store: &'a EtcdStore,
    /// Values and state as of `next - 1`; `None`: to be listed.
    listed: Option<Listed>,
    stream: Option<WatchStream>,
    /// Member that the stream is from.
    member: usize,
    /// Last state that the caller has got.
    last: Option<Snapshot>,
    is_away: bool,
    listings: u64,
}

struct Listed {
    values: Values,
    /// First revision of etcd, not of the cluster, whose events are to be applied. It follows
    /// events alone, not etcd's notifications of progress, which releases before 3.4.25 and 3.5.8
    /// may send before the events.
    next: i64,
}

/// Outcome of a step of the supervisor.
enum Step {
    /// Something was done, and no news came of it.
    Continue,
    News(WatchEvent),
    /// etcd does not answer.
    Cut(StoreError),
}

impl<'a> EtcdWatch<'a> {
    pub(super) fn new(store: &'a EtcdStore) -> EtcdWatch<'a> {
        EtcdWatch {
            store,
            listed: None,
            stream: None,
            member: 0,
            last: None,
            is_away: false,
            listings: 0,
        }
    }

    /// Number of times that all records were listed: once, and once after each compaction that
    /// took events which the watch had not had.
    pub fn listings(&self) -> u64 {
        self.listings
    }

    /// Waits for news, for `wait` and the time of one call of etcd at most; `None`: there was none.
    ///
    /// # Errors
    /// The user may not read, or the stored state is damaged or of another schema. A next call
    /// lists the records again.
    pub fn next(&mut self, wait: Duration) -> Result<Option<WatchEvent>, StoreError> {
        let end = Instant::now() + wait;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            let step = self.step(left).inspect_err(|_| {
                self.listed = None;
                self.stream = None;
            })?;
            match step {
                Step::News(event) => return Ok(Some(event)),
                Step::Continue => {}
                Step::Cut(why) => {
                    self.stream = None;
                    if !std::mem::replace(&mut self.is_away, true) {
                        return Ok(Some(WatchEvent::Away(why)));
                    }
                    thread::sleep(PAUSE.min(left));
                }
            }
        }
    }

    fn step(&mut self, wait: Duration) -> Result<Step, StoreError> {
        let Some(listed) = &self.listed else {
            return self.list();
        };
        let next = listed.next;
        match &mut self.stream {
            None => self.open(next),
            Some(_) => self.read(wait),
        }
    }

    /// Lists all records.
    fn list(&mut self) -> Result<Step, StoreError> {
        match self.store.list() {
            Ok(Listing { values, at, .. }) => {
                self.listings += 1;
                let snapshot = self.state(&values)?;
                let next = at + 1;
                self.listed = Some(Listed { values, next });
                Ok(self.changed(snapshot))
            }
            Err(Failure { error, .. }) => unavailable(error),
        }
    }

    /// Begins to watch from a revision of etcd on.
    fn open(&mut self, next: i64) -> Result<Step, StoreError> {
        let options = WatchOptions::new().with_prefix().with_start_revision(next);
        let prefix = self.store.prefix.as_str();
        let members = &self.store.members;
        let opened = members.call(async |client| {
            let mut client = client
                .watch_client()
                .max_decoding_message_size(ANSWER_BYTES);
            let mut stream = client.watch(prefix, Some(options.clone())).await?;
            let first = timeout(CREATE_TIMEOUT, stream.message()).await;
            let first = first.map_err(|_| silent())??;
            Ok((stream, first))
        });
        match opened {
            Ok((stream, first)) => {
                self.member = members.current();
                self.stream = Some(stream);
                let step = self.apply(first)?;
                if matches!(step, Step::Continue) && std::mem::take(&mut self.is_away) {
                    return Ok(Step::News(WatchEvent::Back));
                }
                Ok(step)
            }
            Err(Failure { error, .. }) => unavailable(error),
        }
    }

    /// Waits for the next message of the stream.
    fn read(&mut self, wait: Duration) -> Result<Step, StoreError> {
        let Some(stream) = &mut self.stream else {
            return Ok(Step::Continue);
        };
        let members = &self.store.members;
        match members.block_on(async { timeout(wait, stream.message()).await }) {
            Err(_) => Ok(Step::Continue),
            Ok(Ok(message)) => self.apply(message),
            Ok(Err(error)) => {
                permanent(error)?;
                // The next attempt asks another member, from the same revision on.
                members.leave(self.member);
                self.stream = None;
                Ok(Step::Continue)
            }
        }
    }

    /// Applies a message of the stream; `None` is its end.
    fn apply(&mut self, message: Option<WatchResponse>) -> Result<Step, StoreError> {
        let Some(message) = message else {
            self.stream = None;
            return Ok(Step::Continue);
        };
        if message.canceled() {
            self.stream = None;
            if message.compact_revision() > 0 {
                self.listed = None;
                return Ok(Step::Continue);
            }
            if message.cancel_reason().contains("permission denied") {
                return Err(StoreError::Denied(message.cancel_reason().to_owned()));
            }
            self.store.members.leave(self.member);
            return Ok(Step::Continue);
        }
        let Some(listed) = &mut self.listed else {
            return Ok(Step::Continue);
        };
        if listed.apply(&self.store.prefix, &message)? {
            let values = listed.values.clone();
            let snapshot = self.state(&values)?;
            return Ok(self.changed(snapshot));
        }
        Ok(Step::Continue)
    }

    fn state(&self, values: &Values) -> Result<Snapshot, StoreError> {
        Ok(Records::read(&self.store.prefix, values.clone())?.snapshot())
    }

    /// Returns the news of a state; none if the caller has it.
    fn changed(&mut self, snapshot: Snapshot) -> Step {
        if self.last.as_ref() == Some(&snapshot) {
            return Step::Continue;
        }
        self.last = Some(snapshot.clone());
        Step::News(WatchEvent::State(snapshot))
    }
}

impl Listed {
    /// Applies the events of a message. Returns whether one was of the state.
    fn apply(&mut self, prefix: &str, message: &WatchResponse) -> Result<bool, StoreError> {
        let mut is_changed = false;
        for event in message.events() {
            let Some(pair) = event.kv() else { continue };
            self.next = self.next.max(pair.mod_revision() + 1);
            let Some(key) = super::relative(prefix, pair.key())? else {
                continue;
            };
            if !is_of_state(key) {
                continue;
            }
            is_changed = true;
            match event.event_type() {
                EventType::Put => drop(self.values.insert(key.to_owned(), pair.value().to_vec())),
                EventType::Delete => drop(self.values.remove(key)),
            }
        }
        Ok(is_changed)
    }
}

fn unavailable(error: StoreError) -> Result<Step, StoreError> {
    match error {
        StoreError::Unavailable { .. } => Ok(Step::Cut(error)),
        other => Err(other),
    }
}

fn silent() -> etcd_client::Error {
    etcd_client::Error::WatchError("no acknowledgement of the watch".to_owned())
}
