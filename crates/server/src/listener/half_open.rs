//! Half-open connections: clients of NBD that are connected and have not chosen an export yet, and
//! clients of the control API and of metrics by TLS that have no place there yet.
//!
//! Each kind of listener has a table of its own ([`HalfOpenTables`]), so that a flood at one
//! displaces nobody at another. At most [`HALF_OPEN_MAX`] connections are in that of NBD,
//! [`HALF_OPEN_CONTROL_MAX`] and [`HALF_OPEN_METRICS_MAX`] in the others. At that number a new
//! connection displaces one of the peer that has the most: the oldest that has sent nothing, or
//! else the one that has been silent for longest. If a peer that has [`HALF_OPEN_PER_PEER`] of them
//! connects once more, it loses those in excess that have sent nothing for [`SILENCE_MIN`]. No new
//! connection is turned away: a client that completes its handshake without delay is served even
//! during a flood. Once a client has chosen an export, it counts among the
//! [`connections`](crate::connections) of its VM instead; one of the control API, among those of
//! its listener.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::task::AbortHandle;

use super::HANDSHAKE_TIMEOUT;
use super::socket::{Peer, PeerKey};
use crate::log_limit;
use crate::ring::sys;

/// Most half-open connections over all listeners of NBD. Each has a descriptor and a buffer of
/// 4 KiB. At most a quarter of the files that the process may open, if that is less.
pub const HALF_OPEN_MAX: usize = 1024;
/// Most clients of the control API whose TLS handshake is not done, over all its listeners. At most
/// a sixteenth of the files that the process may open, if that is less.
pub const HALF_OPEN_CONTROL_MAX: usize = 256;
/// Most clients of metrics whose TLS handshake is not done, over all listeners of metrics. At most
/// a sixteenth of the files that the process may open, if that is less.
pub const HALF_OPEN_METRICS_MAX: usize = 128;
/// Number of half-open connections of one peer from which silent ones are displaced.
pub const HALF_OPEN_PER_PEER: usize = 64;
/// Time after which a connection that has sent nothing is displaced, if its peer has too many.
pub const SILENCE_MIN: Duration = Duration::from_secs(1);

/// Counts of half-open connections, and of handshakes that ended without an export.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct HandshakeCounts {
    /// Half-open connections now.
    pub half_open: u64,
    /// Connections displaced because there were too many over all peers.
    pub displaced: u64,
    /// Connections displaced because their peer had too many silent ones.
    pub displaced_by_peer: u64,
    /// Handshakes that timed out before an export was chosen.
    pub timed_out: u64,
    /// Handshakes that failed for a protocol violation or a broken connection.
    pub failed: u64,
    /// Requests for an export that were refused: by a limit on connections, or because the client's
    /// certificate does not have the export.
    pub refused: u64,
}

impl std::ops::Add for HandshakeCounts {
    type Output = HandshakeCounts;

    fn add(self, other: HandshakeCounts) -> HandshakeCounts {
        HandshakeCounts {
            half_open: self.half_open + other.half_open,
            displaced: self.displaced + other.displaced,
            displaced_by_peer: self.displaced_by_peer + other.displaced_by_peer,
            timed_out: self.timed_out + other.timed_out,
            failed: self.failed + other.failed,
            refused: self.refused + other.refused,
        }
    }
}

/// Half-open connections of a daemon, by the kind of listener.
#[derive(Debug)]
pub struct HalfOpenTables {
    pub(crate) nbd: Arc<HalfOpen>,
    pub(crate) control: Arc<HalfOpen>,
    pub(crate) metrics: Arc<HalfOpen>,
}

impl Default for HalfOpenTables {
    fn default() -> HalfOpenTables {
        let files = sys::raise_open_files() as usize;
        let table = |max: usize, of_files: usize| Arc::new(HalfOpen::new(max.min(of_files)));
        // Most files stay for disks and for connections that were admitted.
        HalfOpenTables {
            nbd: table(HALF_OPEN_MAX, files / 4),
            control: table(HALF_OPEN_CONTROL_MAX, files / 16),
            metrics: table(HALF_OPEN_METRICS_MAX, files / 16),
        }
    }
}

impl HalfOpenTables {
    /// Returns the counts of all kinds of listeners together, since the daemon started.
    pub fn counts(&self) -> HandshakeCounts {
        self.nbd.counts() + self.control.counts() + self.metrics.counts()
    }
}

/// Half-open connections of all listeners of a kind.
#[derive(Debug)]
pub(crate) struct HalfOpen {
    table: Mutex<Table>,
    displaced: AtomicU64,
    displaced_by_peer: AtomicU64,
    timed_out: AtomicU64,
    failed: AtomicU64,
    pub(super) refused: AtomicU64,
}

impl HalfOpen {
    fn new(max: usize) -> HalfOpen {
        HalfOpen {
            table: Mutex::new(Table::new(max)),
            displaced: AtomicU64::default(),
            displaced_by_peer: AtomicU64::default(),
            timed_out: AtomicU64::default(),
            failed: AtomicU64::default(),
            refused: AtomicU64::default(),
        }
    }

    /// Adds a connection, which is counted until the entry is dropped, and ends those that it
    /// displaces.
    pub(crate) fn add(self: &Arc<Self>, peer: PeerKey) -> Entry {
        let mut table = self.lock();
        let (id, gone) = table.add(peer, Instant::now());
        // Unlocked first: aborted tasks lock the table to remove their entries.
        drop(table);
        let of_all = u64::from(gone.of_all.is_some());
        let of_peer = gone.of_peer.len() as u64;
        self.displaced.fetch_add(of_all, Ordering::Relaxed);
        self.displaced_by_peer.fetch_add(of_peer, Ordering::Relaxed);
        end(gone.of_all.into_iter().chain(gone.of_peer));
        let half_open = self.clone();
        Entry { half_open, id }
    }

    /// Displaces one connection to free its descriptor, if `error` says that there are none left.
    pub(crate) fn make_room_after(&self, error: &io::Error) {
        if !matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE)) {
            return;
        }
        let victim = self.lock().displace();
        self.displaced
            .fetch_add(u64::from(victim.is_some()), Ordering::Relaxed);
        end(victim);
    }

    /// Counts and logs a client that was cut off because it broke a rule, or its connection broke.
    pub(crate) fn cut_off(&self, peer: &Peer, why: impl fmt::Display) {
        self.failed.fetch_add(1, Ordering::Relaxed);
        if log_limit::HANDSHAKE_FAILED.allows(Instant::now()) {
            tracing::warn!(%peer, "client cut off: {why}");
        }
    }

    /// Counts and logs a client that has not done `what` within [`HANDSHAKE_TIMEOUT`].
    pub(crate) fn cut_off_late(&self, peer: &Peer, what: &str) {
        self.timed_out.fetch_add(1, Ordering::Relaxed);
        if log_limit::HANDSHAKE_SLOW.allows(Instant::now()) {
            tracing::warn!(%peer, "client cut off: {what} in {HANDSHAKE_TIMEOUT:?}");
        }
    }

    /// Returns the counts since the daemon started.
    pub(crate) fn counts(&self) -> HandshakeCounts {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        HandshakeCounts {
            half_open: self.lock().entries.len() as u64,
            displaced: read(&self.displaced),
            displaced_by_peer: read(&self.displaced_by_peer),
            timed_out: read(&self.timed_out),
            failed: read(&self.failed),
            refused: read(&self.refused),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        // A panic cannot leave the table half changed: its methods panic only on broken invariants.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Aborts handshakes; their sockets are closed when the runtime next polls the tasks.
fn end(handshakes: impl IntoIterator<Item = HalfOpenClient>) {
    let tasks = handshakes.into_iter().filter_map(|client| client.task);
    tasks.for_each(|task| task.abort());
}

/// Handle of a half-open connection; dropping it ends the count.
#[derive(Debug)]
pub(crate) struct Entry {
    half_open: Arc<HalfOpen>,
    id: u64,
}

impl Entry {
    /// Sets the task of the handshake, which is aborted if the connection is displaced.
    pub(crate) fn set_task(&self, task: AbortHandle) {
        let mut table = self.half_open.lock();
        match table.entries.get_mut(&self.id) {
            Some(client) => client.task = Some(task),
            // The connection was displaced before its task was known.
            None => task.abort(),
        }
    }

    /// Records that the client has sent something.
    pub(crate) fn heard(&self) {
        if let Some(client) = self.half_open.lock().entries.get_mut(&self.id) {
            client.heard = Some(Instant::now());
        }
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.half_open.lock().remove(self.id);
    }
}

/// State of one half-open connection.
#[derive(Debug)]
struct HalfOpenClient {
    peer: PeerKey,
    since: Instant,
    /// Time at which the client last sent something; `None` if it has sent nothing.
    heard: Option<Instant>,
    task: Option<AbortHandle>,
}

/// Connections that a new one displaced.
#[derive(Debug, Default)]
struct Displaced {
    of_all: Option<HalfOpenClient>,
    of_peer: Vec<HalfOpenClient>,
}

/// State machine behind [`HalfOpen`], without I/O; the time is an argument.
#[derive(Debug)]
struct Table {
    max: usize,
    next: u64,
    /// Connections by identifier, which is the order of arrival.
    entries: BTreeMap<u64, HalfOpenClient>,
    peers: HashMap<PeerKey, usize>,
}

impl Table {
    fn new(max: usize) -> Table {
        Table {
            // A limit of 0 would displace every client at once, the new one included.
            max: max.max(1),
            next: 0,
            entries: BTreeMap::new(),
            peers: HashMap::new(),
        }
    }

    fn add(&mut self, peer: PeerKey, now: Instant) -> (u64, Displaced) {
        let mut gone = Displaced::default();
        if self.of_peer(peer) >= HALF_OPEN_PER_PEER {
            let overdue = |client: &HalfOpenClient| {
                client.peer == peer
                    && client.heard.is_none()
                    && now.saturating_duration_since(client.since) >= SILENCE_MIN
            };
            let ids: Vec<u64> = (self.entries.iter())
                .filter(|(_, client)| overdue(client))
                .map(|(&id, _)| id)
                // Only the excess: the peer then has one connection below the bound, and the new
                // one fills it.
                .take(self.of_peer(peer) + 1 - HALF_OPEN_PER_PEER)
                .collect();
            gone.of_peer = ids.into_iter().filter_map(|id| self.remove(id)).collect();
        }
        if self.entries.len() >= self.max {
            gone.of_all = self.displace();
        }
        let id = self.next;
        self.next += 1;
        let client = HalfOpenClient {
            peer,
            since: now,
            heard: None,
            task: None,
        };
        self.entries.insert(id, client);
        *self.peers.entry(peer).or_default() += 1;
        // The bound on descriptors that a flood can take.
        assert!(
            self.entries.len() <= self.max,
            "more half-open connections than the maximum"
        );
        debug_assert_eq!(
            self.peers.values().sum::<usize>(),
            self.entries.len(),
            "the count of each peer's connections"
        );
        (id, gone)
    }

    /// Removes and returns the connection that is to be displaced first.
    fn displace(&mut self) -> Option<HalfOpenClient> {
        // A connection of the peer that has the most, so that a flood displaces itself. `None <
        // Some`: silent ones go first. The identifier breaks ties, the oldest first.
        let key = |(id, client): &(&u64, &HalfOpenClient)| {
            let many = std::cmp::Reverse(self.of_peer(client.peer));
            (many, client.heard, **id)
        };
        let first = self.entries.iter().min_by_key(key);
        let id = first.map(|(&id, _)| id)?;
        self.remove(id)
    }

    fn remove(&mut self, id: u64) -> Option<HalfOpenClient> {
        let client = self.entries.remove(&id)?;
        let left = self.peers.get_mut(&client.peer).expect("it is counted");
        *left -= 1;
        // Peers without connections are forgotten, or a flood of addresses would fill the memory.
        if *left == 0 {
            self.peers.remove(&client.peer);
        }
        Some(client)
    }

    fn of_peer(&self, peer: PeerKey) -> usize {
        self.peers.get(&peer).copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUSY: PeerKey = PeerKey::Process(1);
    const QUIET: PeerKey = PeerKey::Process(2);

    fn ids(table: &Table) -> Vec<u64> {
        table.entries.keys().copied().collect()
    }

    #[test]
    fn past_the_bound_the_oldest_silent_one_of_the_busiest_peer_gives_way() {
        let now = Instant::now();
        let mut table = Table::new(4);
        let (quiet, _) = table.add(QUIET, now);
        let busy: Vec<u64> = (0..3).map(|_| table.add(BUSY, now).0).collect();
        // The busy peer's oldest has sent something, so its next one is displaced; the quiet
        // peer's, older still, stays.
        table.entries.get_mut(&busy[0]).unwrap().heard = Some(now);
        let (fresh, gone) = table.add(QUIET, now);
        assert!(gone.of_all.is_some_and(|client| client.peer == BUSY));
        assert_eq!(ids(&table), [quiet, busy[0], busy[2], fresh]);
    }

    #[test]
    fn where_all_have_spoken_the_one_that_is_silent_for_longest_gives_way() {
        let now = Instant::now();
        let mut table = Table::new(3);
        for (id, heard) in [5, 1, 3].into_iter().enumerate() {
            assert_eq!(table.add(BUSY, now).0, id as u64);
            let heard = now + Duration::from_secs(heard);
            table.entries.get_mut(&(id as u64)).unwrap().heard = Some(heard);
        }
        let (fresh, gone) = table.add(QUIET, now);
        assert!(gone.of_all.is_some());
        assert_eq!(ids(&table), [0, 2, fresh]);
    }

    #[test]
    fn a_peer_with_too_many_loses_its_silent_ones_and_nobody_elses() {
        let now = Instant::now();
        let mut table = Table::new(1000);
        table.add(QUIET, now);
        for _ in 0..HALF_OPEN_PER_PEER + 10 {
            table.add(BUSY, now);
        }
        table.entries.get_mut(&1).unwrap().heard = Some(now);
        // A burst of connections that are all fresh displaces none.
        let (_, gone) = table.add(BUSY, now);
        assert!(gone.of_peer.is_empty());
        let later = now + SILENCE_MIN;
        let (_, gone) = table.add(BUSY, later);
        assert_eq!(
            (gone.of_peer.len(), table.of_peer(BUSY)),
            (12, HALF_OPEN_PER_PEER)
        );
        assert!(table.entries.contains_key(&1), "it has spoken");
        assert!(table.entries.contains_key(&0), "it is another peer's");
        assert!(gone.of_all.is_none());
    }

    #[test]
    fn nothing_is_left_of_those_that_went() {
        let now = Instant::now();
        let mut table = Table::new(10);
        let peers = (0..100).map(PeerKey::Process);
        peers.for_each(|peer| _ = table.add(peer, now));
        assert_eq!((table.entries.len(), table.peers.len()), (10, 10));
        for id in ids(&table) {
            table.remove(id);
            assert!(table.remove(id).is_none(), "it was taken out already");
        }
        assert!(table.peers.is_empty());
    }
}
