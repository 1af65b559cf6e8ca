//! What CFQ knows of one queue: its class, its place, its slice's rest, how its VM thinks.

use tidegate_base::objective::Priority;
use tidegate_base::time::Nanos;

/// What a queue is to be served with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// Asynchronous writes.
    Async,
    /// Synchronous, and not waited for one by one: it seeks, or thinks for long.
    NoIdle,
    /// Synchronous, and waited for.
    Sync,
}

impl Kind {
    pub(super) const ALL: [Kind; 3] = [Kind::Async, Kind::NoIdle, Kind::Sync];
}

/// The queues of one class go before those of the next.
pub(super) const REAL_TIME: u64 = 0;
pub(super) const BEST_EFFORT: u64 = 1;
pub(super) const IDLE: u64 = 2;

/// Where a class's rank stands in a key of the service tree.
const RANK_SHIFT: u32 = 62;

/// Keys begin here, so that what a queue is owed may put it before the clock's zero.
const EPOCH: u64 = 1 << 60;

/// What each sample of the think time weighs in the mean, as a power of two: an eighth.
const WEIGHT_SHIFT: u32 = 3;
/// The weight of all samples there could be, and what makes a mean of them: three samples.
const FULL_WEIGHT: u32 = 256;
const ENOUGH_WEIGHT: u32 = 80;

/// How long a VM takes from an answer to its next request: an exponential average.
#[derive(Clone, Copy, Debug)]
pub(super) struct Think {
    /// Samples times their weights, and the weights.
    sum: u64,
    weight: u32,
}

impl Think {
    pub(super) const UNKNOWN: Think = Think { sum: 0, weight: 0 };

    pub(super) fn sample(&mut self, nanos: Nanos) {
        let fresh = FULL_WEIGHT >> WEIGHT_SHIFT;
        self.weight = self.weight - (self.weight >> WEIGHT_SHIFT) + fresh;
        self.sum = self.sum - (self.sum >> WEIGHT_SHIFT) + nanos.0 * fresh as u64;
    }

    /// The mean, once enough is known.
    pub(super) fn mean(&self) -> Option<Nanos> {
        let known = self.weight > ENOUGH_WEIGHT;
        known.then(|| Nanos(self.sum / self.weight as u64))
    }
}

/// A request further than this from the one before is a seek (Linux: `CFQQ_SEEK_THR`, 800
/// sectors); on a device that takes no time to go elsewhere, one smaller than the next
/// (`CFQQ_SECT_THR_NONROT`, 64 sectors).
const SEEK: u64 = 800 * 512;
const SMALL: u64 = 64 * 512;
/// A queue seeks when more than so many of its last 32 requests did.
const SEEKS: u32 = 32 / 8;
/// A queue in which so many wait is deep: it is waited for though it seeks.
const DEEP: u32 = 4;

/// One queue: a VM's, or where writes are asynchronous one of a VM's two.
#[derive(Clone, Copy, Debug)]
pub(super) struct Queue {
    /// When it is to be served, without the rank of its class.
    due: u64,
    /// One past the last byte it had dispatched: its elevator goes on from here.
    pub(super) position: u64,
    /// What is left of its last slice (or, below zero, by how much it overran it).
    pub(super) left: i64,
    /// When an I/O of it ended last; [`Nanos::MAX`]: none has.
    pub(super) last_end: Nanos,
    pub(super) think: Think,
    pub(super) in_flight: u32,
    pub(super) class: Priority,
    /// Its class is a controller's, not its objective's.
    pub(super) turned: bool,
    /// In a service tree.
    pub(super) in_tree: bool,
    /// What it was when it began to wait.
    pub(super) kind: Kind,
    /// Units that wait.
    pub(super) waiting: u32,
    /// One past the last byte it asked for, and which of its last requests were seeks, the
    /// newest lowest.
    asked_to: Option<u64>,
    seeks: u32,
    /// So many waited at a time that it is waited for though it seeks.
    pub(super) deep: bool,
    /// It is worth waiting for by itself, where seekers are grouped.
    pub(super) idle_window: bool,
}

impl Queue {
    pub(super) fn new(class: Priority) -> Queue {
        Queue {
            due: 0,
            position: 0,
            left: 0,
            last_end: Nanos::MAX,
            think: Think::UNKNOWN,
            in_flight: 0,
            class,
            turned: false,
            in_tree: false,
            kind: Kind::Sync,
            waiting: 0,
            asked_to: None,
            seeks: 0,
            deep: false,
            idle_window: true,
        }
    }

    /// Whether it seeks.
    pub(super) fn is_seeky(&self) -> bool {
        self.seeks.count_ones() > SEEKS
    }

    /// It asks for `len` bytes at `addr`, beside what waits. `seeks`: the device takes time to go
    /// elsewhere.
    pub(super) fn asks(&mut self, addr: u64, len: u64, seeks: bool) {
        let distance = self.asked_to.map_or(0, |last| last.abs_diff(addr));
        let seek = if seeks { distance > SEEK } else { len < SMALL };
        self.seeks = self.seeks << 1 | u32::from(seek);
        self.asked_to = Some(addr + len);
        self.deep |= self.waiting + 1 >= DEEP;
    }

    /// Whether it is worth waiting for by itself: not if it seeks and is not deep, nor if it
    /// thinks longer than `slice_idle`; as before where that is not known.
    pub(super) fn weigh_idling(&mut self, slice_idle: Nanos) {
        let thinks = self.think.mean();
        self.idle_window = match self.is_seeky() && !self.deep {
            true => false,
            false => thinks.map_or(self.idle_window, |mean| mean <= slice_idle),
        };
    }

    pub(super) fn rank(&self) -> u64 {
        match self.class {
            Priority::RealTime => REAL_TIME,
            Priority::BestEffort(_) => BEST_EFFORT,
            Priority::Idle => IDLE,
        }
    }

    /// It is to be served `offset` from now, sooner or later by what its last slice left.
    pub(super) fn schedule(&mut self, now: Nanos, offset: Nanos) {
        let due = Nanos(EPOCH) + now + offset;
        self.due = due.0.saturating_sub_signed(self.left);
        self.left = 0;
    }

    /// Its key in the service tree.
    pub(super) fn key(&self) -> u64 {
        self.rank() << RANK_SHIFT | self.due.min((1 << RANK_SHIFT) - 1)
    }
}

/// The rank in a key.
pub(super) fn rank_of(key: u64) -> u64 {
    key >> RANK_SHIFT
}
