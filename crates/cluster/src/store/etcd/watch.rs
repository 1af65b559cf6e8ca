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

use etcd_client::{WatchResponse, WatchStream};
use tokio::time::timeout;

use super::EtcdStore;
use super::client::{Failure, permanent};
use super::records::{KeyValue, Records};
use super::transport::{self, key_value};
use crate::part::Touched;
use crate::store::{Snapshot, StoreError};

/// Pause before the next attempt while etcd does not answer.
const PAUSE: Duration = Duration::from_secs(1);

/// News of a cluster in etcd.
#[derive(Debug)]
pub enum WatchEvent {
    /// State, first as it is and then after each change.
    State(Box<Snapshot>),
    /// No member of etcd answers; sent once, and followed by a [`WatchEvent::Back`].
    Away(StoreError),
    /// A member answers again; changes in between follow as a state.
    Back,
}

/// Watch of a cluster in etcd that survives restarts of its members and compactions.
pub struct EtcdWatch<'a> {
    store: &'a EtcdStore,
    /// Records as of `next - 1`; `None`: to be listed.
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
    records: Records,
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
        match self.store.0.list() {
            Ok(records) => {
                self.listings += 1;
                let snapshot = records.snapshot();
                let next = records.at() + 1;
                self.listed = Some(Listed { records, next });
                Ok(self.changed(snapshot))
            }
            Err(Failure { error, .. }) => unavailable(error),
        }
    }

    /// Begins to watch from a revision of etcd on.
    fn open(&mut self, next: i64) -> Result<Step, StoreError> {
        let members = &self.store.0.keys;
        match transport::open(members, &self.store.0.prefix, next) {
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
        let members = &self.store.0.keys;
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
            self.store.0.keys.leave(self.member);
            return Ok(Step::Continue);
        }
        let Some(listed) = &mut self.listed else {
            return Ok(Step::Continue);
        };
        if listed.apply(&self.store.0.prefix, &message)? {
            let snapshot = listed.records.snapshot();
            return Ok(self.changed(snapshot));
        }
        Ok(Step::Continue)
    }

    /// Returns the news of a state; none if the caller has it.
    fn changed(&mut self, snapshot: Snapshot) -> Step {
        if self.last.as_ref() == Some(&snapshot) {
            return Step::Continue;
        }
        self.last = Some(snapshot.clone());
        Step::News(WatchEvent::State(Box::new(snapshot)))
    }
}

impl Listed {
    /// Applies the events of a message. Returns whether one was of the state.
    fn apply(&mut self, prefix: &str, message: &WatchResponse) -> Result<bool, StoreError> {
        let mut touched = Touched::default();
        let before = self.records.at();
        for event in message.events() {
            let Some(event) = key_value(event)? else {
                continue;
            };
            self.next = self.next.max(event.version + 1);
            let key = event.key.strip_prefix(prefix).map(str::to_owned);
            if let Some(key) = key {
                self.records
                    .apply(prefix, &KeyValue { key, ..event }, &mut touched)?;
            }
        }
        if touched.everything {
            // A host may be gone under transfers that no event is of.
            self.records.check_all(prefix)?;
        } else {
            let names = touched.transfers.iter().map(String::as_str);
            self.records.check_fit(prefix, names)?;
        }
        Ok(self.records.at() > before)
    }
}

fn unavailable(error: StoreError) -> Result<Step, StoreError> {
    match error {
        StoreError::Unavailable { .. } => Ok(Step::Cut(error)),
        other => Err(other),
    }
}
