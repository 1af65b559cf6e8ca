//! Model of etcd in memory, with the faults that a client of it sees.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use crate::store::StoreError;
use crate::store::etcd::client::Failure;
use crate::store::etcd::keyed::{Answer, Compared, Events, KeyValues, Listing, Transaction};
use crate::store::etcd::keys::{CLOCKS, RESERVATIONS, STARTS};
use crate::store::etcd::records::{HOSTS, KeyValue, REVISION};
use crate::store::etcd::value::{RevisionValue, read};

/// Prefix of all keys of the cluster.
pub(super) const PREFIX: &str = "/t/";

/// Text of the error by which a client is told to crash.
pub(super) const CRASH: &str = "crash";

/// Defect that torture has to find.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Bug {
    None,
    /// Transactions are carried out whatever they compare.
    ComparesNothing,
    /// A host that is gone is not noticed by a commit.
    ComparesRevisionAlone,
    /// Reservations of VMs are not compared.
    IgnoresReservations,
    /// A commit whose answer was lost is not recognised.
    ForgetsCommits,
    /// Events that come late or again count as new ones.
    TrustsAnyOrder,
    /// An event is passed over.
    LosesEvents,
    /// Commits do not notice that a host was drained.
    IgnoresDraining,
    /// An attempt that comes late is carried out whatever it compares.
    TrustsLateAttempts,
    /// Placements are written without their starts.
    LosesStarts,
    /// Starts stay when their placements end.
    KeepsStarts,
    /// A placement is removed although its transfer has begun.
    IgnoresBegun,
    /// A daemon deletes a start that was put again since it has read it.
    DeletesAnyStart,
    /// A daemon begins what a placer asks for, without a look at etcd.
    BeginsUnchecked,
    /// A daemon confirms a transfer before it deletes the recorded start, in two steps.
    ConfirmsBeforeDelete,
    /// A daemon does not know after a restart what has begun and ended before.
    ForgetsBegun,
}

/// Pseudo-random numbers (xorshift) from a seed.
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Random {
        // Any number but 0, and neighbouring seeds far apart.
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(super) fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % n
    }

    /// Returns true once in `n` times.
    pub(super) fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }
}

/// Keys with their history.
pub(super) struct Etcd {
    pub(super) keys: BTreeMap<String, KeyValue>,
    /// All puts and deletes, in order.
    pub(super) history: Vec<KeyValue>,
    pub(super) revision: i64,
    /// Revision below which the history is not told any more.
    pub(super) compacted: i64,
    pub(super) random: Random,
    pub(super) bug: Bug,
    /// Times that folders were listed.
    pub(super) lists: usize,
    /// False: every call is answered as it should be.
    pub(super) has_faults: bool,
    /// Attempts at transactions that are still on their way, whose placers have given them up or
    /// have ended.
    late: Vec<Transaction>,
}

impl Etcd {
    pub(super) fn new(seed: u64, bug: Bug) -> Etcd {
        Etcd {
            keys: BTreeMap::new(),
            history: Vec::new(),
            revision: 1,
            compacted: 0,
            random: Random::new(seed),
            bug,
            lists: 0,
            has_faults: false,
            late: Vec::new(),
        }
    }

    fn fault(&mut self, one_in: usize) -> bool {
        self.has_faults && self.random.one_in(one_in)
    }

    /// Puts and deletes keys at one new revision.
    pub(super) fn write(&mut self, writes: &[(String, Option<Vec<u8>>)]) {
        self.revision += 1;
        for (key, value) in writes {
            let pair = KeyValue {
                key: key.clone(),
                value: value.clone(),
                version: self.revision,
                created: match (value, self.keys.get(key)) {
                    (None, _) => 0,
                    (Some(_), Some(before)) => before.created,
                    (Some(_), None) => self.revision,
                },
            };
            match value {
                Some(_) => drop(self.keys.insert(key.clone(), pair.clone())),
                None if self.keys.remove(key).is_none() => continue,
                None => {}
            }
            self.history.push(pair);
        }
    }

    /// Writes what a commit puts and deletes.
    fn write_commit(&mut self, writes: &[(String, Option<Vec<u8>>)]) {
        let is_lost = |(key, value): &&(String, Option<Vec<u8>>)| {
            let is_start = key.starts_with(&format!("{PREFIX}{STARTS}"));
            let bug = if value.is_some() {
                Bug::LosesStarts
            } else {
                Bug::KeepsStarts
            };
            is_start && self.bug == bug
        };
        let writes = writes.iter().filter(|write| !is_lost(write));
        let writes: Vec<_> = writes.cloned().collect();
        self.write(&writes);
    }

    /// Carries out all attempts that were on their way.
    pub(super) fn deliver_all_late(&mut self) {
        while !self.late.is_empty() {
            self.deliver_late();
        }
    }

    /// Carries out an attempt that was on its way, if there is one.
    pub(super) fn deliver_late(&mut self) {
        if self.late.is_empty() {
            return;
        }
        let at = self.random.below(self.late.len());
        let transaction = self.late.swap_remove(at);
        if self.bug == Bug::TrustsLateAttempts {
            self.write_commit(&transaction.writes);
        } else {
            self.carry_out(&transaction);
        }
    }

    fn holds(&self, transaction: &Transaction) -> bool {
        let (revision, put_at) = &transaction.revision;
        let is_unchanged = Compared::Put(revision.clone(), *put_at);
        let bug = self.bug;
        let is_left_out = |compared: &Compared| match compared {
            Compared::Put(..) | Compared::Created(..) => {
                bug == Bug::ComparesRevisionAlone
                    || bug == Bug::IgnoresReservations && is_of(compared, RESERVATIONS)
            }
            Compared::NonePut(..) => {
                bug == Bug::IgnoresReservations && is_of(compared, RESERVATIONS)
                    || bug == Bug::IgnoresDraining && is_of(compared, HOSTS)
            }
            Compared::There(_) => bug == Bug::IgnoresBegun,
            Compared::NoneCreated(..) => false,
        };
        let holds = |compared: &Compared| match compared {
            // The host's own key is compared as well, for the case that it is gone.
            Compared::Put(key, _) if bug == Bug::IgnoresDraining && is_of(compared, HOSTS) => {
                self.keys.contains_key(key)
            }
            compared => is_left_out(compared) || self.compare(compared),
        };
        bug == Bug::ComparesNothing
            || self.compare(&is_unchanged) && transaction.compares.iter().all(holds)
    }

    /// Returns whether a comparison holds.
    pub(super) fn compare(&self, compared: &Compared) -> bool {
        let put = |key: &String| self.keys.get(key).map_or(0, |pair| pair.version);
        let created = |key: &String| self.keys.get(key).map_or(0, |pair| pair.created);
        let below = |folder: &String| {
            let (folder, all) = (folder.clone(), self.keys.values());
            all.filter(move |pair| pair.key.starts_with(&folder))
        };
        match compared {
            Compared::Put(key, at) => put(key) == *at,
            Compared::Created(key, at) => created(key) == *at,
            Compared::There(key) => self.keys.contains_key(key),
            Compared::NonePut(folder, at) => below(folder).all(|pair| pair.version <= *at),
            Compared::NoneCreated(folder, at) => below(folder).all(|pair| pair.created <= *at),
        }
    }

    /// Carries out a transaction, or does not.
    fn carry_out(&mut self, transaction: &Transaction) -> Answer {
        let succeeded = self.holds(transaction);
        if succeeded && !transaction.writes.is_empty() {
            self.write_commit(&transaction.writes);
        }
        let (first, _) = &transaction.revision;
        let found = self.keys.get(first).cloned();
        Answer {
            succeeded,
            may_be_done: false,
            at: self.revision,
            found: found.filter(|_| !succeeded || transaction.writes.is_empty()),
            is_there: {
                let looked_at = transaction.looked_at.as_ref();
                !succeeded && looked_at.is_some_and(|key| self.keys.contains_key(key))
            },
            count: {
                let keys = self.keys.keys();
                let is_counted =
                    |key: &&String| (transaction.counted.iter()).any(|it| key.starts_with(it));
                keys.filter(is_counted).count()
            },
        }
    }

    /// Returns all keys below the prefix.
    pub(super) fn pairs(&self) -> Vec<KeyValue> {
        self.keys.values().cloned().collect()
    }
}

/// Connection of one placer.
pub(super) struct Client {
    pub(super) etcd: Arc<Mutex<Etcd>>,
    /// Revision from which on its watch has not told events yet; `None`: none is open.
    watched: Mutex<Option<i64>>,
}

impl Client {
    pub(super) fn new(etcd: &Arc<Mutex<Etcd>>) -> Client {
        Client {
            etcd: Arc::clone(etcd),
            watched: Mutex::default(),
        }
    }

    fn etcd(&self) -> MutexGuard<'_, Etcd> {
        self.etcd.lock().expect("no panic")
    }
}

/// Returns whether a comparison is of a key of a folder, or of the folder.
fn is_of(compared: &Compared, folder: &str) -> bool {
    let (Compared::Put(key, _)
    | Compared::Created(key, _)
    | Compared::There(key)
    | Compared::NonePut(key, _)
    | Compared::NoneCreated(key, _)) = compared;
    key.strip_prefix(PREFIX)
        .is_some_and(|key| key.starts_with(folder))
}

fn unavailable(may_be_done: bool) -> Failure {
    let error = StoreError::Unavailable {
        endpoints: "model".to_owned(),
        why: "no answer".to_owned(),
    };
    Failure { error, may_be_done }
}

fn crash() -> Failure {
    Failure::before_anything(StoreError::Backend(CRASH.into()))
}

impl KeyValues for Client {
    fn list(&self, keys: &[String], folders: &[String]) -> Result<Listing, Failure> {
        let mut etcd = self.etcd();
        // No daemon of the model publishes its clock.
        if folders == [format!("{PREFIX}{CLOCKS}")] {
            let (pairs, at) = (Vec::new(), etcd.revision);
            return Ok(Listing { pairs, at });
        }
        if etcd.fault(30) {
            return Err(unavailable(false));
        }
        etcd.lists += usize::from(!folders.is_empty());
        let is_wanted = |pair: &&KeyValue| {
            keys.contains(&pair.key) || folders.iter().any(|folder| pair.key.starts_with(folder))
        };
        Ok(Listing {
            pairs: etcd.keys.values().filter(is_wanted).cloned().collect(),
            at: etcd.revision,
        })
    }

    fn transact(&self, transaction: &Transaction) -> Result<Answer, Failure> {
        let mut etcd = self.etcd();
        let is_write = !transaction.writes.is_empty();
        // The process dies before its request is sent, or before it has read the answer.
        if etcd.fault(60) {
            return Err(crash());
        }
        if etcd.fault(20) {
            return Err(unavailable(is_write));
        }
        let mut may_be_done = false;
        // An attempt is on its way for so long that it is given up, or sent again.
        if is_write && etcd.fault(15) {
            etcd.late.push(transaction.clone());
            may_be_done = true;
            if etcd.fault(2) {
                return Err(unavailable(true));
            }
            if etcd.fault(3) {
                return Err(crash());
            }
        }
        let mut answer = etcd.carry_out(transaction);
        if etcd.fault(60) {
            return Err(crash());
        }
        if etcd.fault(20) {
            return Err(unavailable(is_write));
        }
        // The answer is lost, and the request sent again.
        if is_write && etcd.fault(10) {
            answer = etcd.carry_out(transaction);
            may_be_done = true;
        }
        // Otherwise the store says that it does not know.
        answer.may_be_done = may_be_done && etcd.bug != Bug::ForgetsCommits;
        if etcd.bug == Bug::ForgetsCommits
            && let Some(found) = &mut answer.found
            && let Some(value) = &found.value
        {
            let value: RevisionValue = read(REVISION, value).expect("as it was written");
            found.value = Some(value.without_commits());
        }
        Ok(answer)
    }

    fn events(&self, prefix: &str, from: i64) -> Result<Events, StoreError> {
        let mut etcd = self.etcd();
        let mut watched = self.watched.lock().expect("no panic");
        if etcd.fault(15) {
            *watched = None;
            return Ok(Events::Lost);
        }
        let mut next = watched.filter(|next| *next <= from).unwrap_or(from);
        if next <= etcd.compacted {
            *watched = None;
            return Ok(Events::Lost);
        }
        // Whole revisions, a few at a time.
        let more = etcd.random.below(4) as i64;
        let last = etcd.revision.min(next + more);
        let is_told = |pair: &&KeyValue| {
            pair.key.starts_with(prefix) && (next..=last).contains(&pair.version)
        };
        let mut events: Vec<_> = etcd.history.iter().filter(is_told).cloned().collect();
        if next > etcd.revision {
            return Ok(Events::Lost);
        }
        next = last + 1;
        *watched = Some(next);
        if etcd.bug == Bug::LosesEvents && etcd.random.one_in(4) && !events.is_empty() {
            let at = etcd.random.below(events.len());
            if !events[at].key.ends_with(REVISION) {
                events.remove(at);
            }
        }
        // Again and out of order.
        if etcd.has_faults && !etcd.history.is_empty() {
            for _ in 0..etcd.random.below(4) {
                let told = etcd.history.len();
                let again = etcd.random.below(told);
                let mut again = etcd.history[again].clone();
                if again.version >= next {
                    continue;
                }
                if etcd.bug == Bug::TrustsAnyOrder {
                    again.version = last;
                }
                events.push(again);
            }
            for at in (1..events.len()).rev() {
                let other = etcd.random.below(at + 1);
                events.swap(at, other);
            }
        }
        Ok(Events::Some(events))
    }
}
