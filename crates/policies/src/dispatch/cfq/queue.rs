//! State of one CFQ queue: its class, its place, the rest of its slice, and its VM's think time.

use tidegate_base::objective::Priority;
use tidegate_base::time::Nanos;

/// Kind of workload of a queue, which has a service tree of its own where seekers are grouped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// Asynchronous writes.
    Async,
    /// Synchronous, and not idled for by itself: the VM seeks or has a long think time.
    NoIdle,
    /// Synchronous, and idled for.
    Sync,
}

impl Kind {
    pub(super) const ALL: [Kind; 3] = [Kind::Async, Kind::NoIdle, Kind::Sync];
}

/// Ranks of the classes; a lower rank goes first.
pub(super) const REAL_TIME: u64 = 0;
pub(super) const BEST_EFFORT: u64 = 1;
pub(super) const IDLE: u64 = 2;

/// Bit position of a class's rank in a key of the service tree.
const RANK_SHIFT: u32 = 62;

/// Offset of due times in keys, so that a queue may be due earlier than the clock's zero by what
/// its last slice left.
const EPOCH: u64 = 1 << 60;

/// Weight of a sample in the mean think time as a power of two: 2^-3, as in Linux.
const WEIGHT_SHIFT: u32 = 3;
/// Sum of the weights of infinitely many samples, and the sum above which a mean is valid: three
/// samples (Linux: 256 and 80).
const FULL_WEIGHT: u32 = 256;
const VALID_WEIGHT: u32 = 80;

/// Think time of a VM, from an answer to its next request: an exponential average.
#[derive(Clone, Copy, Debug)]
pub(super) struct Think {
    /// Sum of the samples in nanoseconds times their weights, and the sum of the weights.
    sum: u64,
    weight: u32,
}

impl Think {
    pub(super) const UNKNOWN: Think = Think { sum: 0, weight: 0 };

    /// Adds a think time to the mean.
    pub(super) fn sample(&mut self, nanos: Nanos) {
        let fresh = FULL_WEIGHT >> WEIGHT_SHIFT;
        // Fixed point as in Linux's `__cfq_update_io_thinktime`: old samples keep 7/8 of their
        // weight.
        self.weight = self.weight - (self.weight >> WEIGHT_SHIFT) + fresh;
        self.sum = self.sum - (self.sum >> WEIGHT_SHIFT) + nanos.0 * fresh as u64;
    }

    /// Returns the mean once three samples are known.
    pub(super) fn mean(&self) -> Option<Nanos> {
        let known = self.weight > VALID_WEIGHT;
        known.then(|| Nanos(self.sum / self.weight as u64))
    }
}

/// Distance in bytes from the previous request beyond which a request is a seek (Linux:
/// `CFQQ_SEEK_THR`, 800 sectors). On a device without positioning, a request smaller than
/// [`SEEK_SIZE_BYTES`] counts as one (`CFQQ_SECT_THR_NONROT`, 64 sectors).
const SEEK_DISTANCE_BYTES: u64 = 800 * 512;
/// Size in bytes below which a request counts as a seek on a device without positioning.
const SEEK_SIZE_BYTES: u64 = 64 * 512;
/// Seeks among the last 32 requests above which a queue is a seeker.
const SEEKS_OF_32_MAX: u32 = 32 / 8;
/// Waiting requests from which on a queue is deep: it is idled for though it seeks.
const DEEP_REQUESTS: u32 = 4;

/// Queue of one VM, or of one lane of a VM where writes are asynchronous.
#[derive(Clone, Copy, Debug)]
pub(super) struct Queue {
    /// Due time of the queue in nanoseconds from [`EPOCH`], without the rank of its class.
    due: u64,
    /// Address one past the last byte dispatched; the elevator goes on from there.
    pub(super) position: u64,
    /// Rest of the last slice in nanoseconds; below zero, the overrun.
    pub(super) slice_left: i64,
    /// Time at which an I/O of the queue last ended; [`Nanos::MAX`]: none has.
    pub(super) last_end: Nanos,
    pub(super) think: Think,
    pub(super) in_flight: u32,
    pub(super) class: Priority,
    /// A controller has set the class, so the objective does not.
    pub(super) class_is_controlled: bool,
    /// The queue stands in a service tree.
    pub(super) in_tree: bool,
    /// Kind of the queue when it began to wait.
    pub(super) kind: Kind,
    /// Number of units that wait.
    pub(super) waiting: u32,
    /// Address one past the last byte requested, and the last 32 requests as bits, the newest
    /// lowest; 1: a seek.
    requested_end: Option<u64>,
    seeks: u32,
    /// [`DEEP_REQUESTS`] requests waited at a time, so the queue is idled for though it seeks.
    pub(super) deep: bool,
    /// The queue is worth idling for by itself, where seekers are grouped.
    pub(super) idle_window: bool,
}

impl Queue {
    pub(super) fn new(class: Priority) -> Queue {
        Queue {
            due: 0,
            position: 0,
            slice_left: 0,
            last_end: Nanos::MAX,
            think: Think::UNKNOWN,
            in_flight: 0,
            class,
            class_is_controlled: false,
            in_tree: false,
            kind: Kind::Sync,
            waiting: 0,
            requested_end: None,
            seeks: 0,
            deep: false,
            idle_window: true,
        }
    }

    /// Returns whether the queue is a seeker.
    pub(super) fn is_seeky(&self) -> bool {
        self.seeks.count_ones() > SEEKS_OF_32_MAX
    }

    /// Records a request for `len` bytes at `addr`, before it counts in `waiting`. `seeks`: the
    /// device takes time for positioning.
    pub(super) fn record_request(&mut self, addr: u64, len: u64, seeks: bool) {
        // The first request of a VM is no seek: nothing is known of the place before it.
        let distance = self.requested_end.map_or(0, |last| last.abs_diff(addr));
        let seek = if seeks {
            distance > SEEK_DISTANCE_BYTES
        } else {
            len < SEEK_SIZE_BYTES
        };
        // The shift drops the oldest of the 32 requests.
        self.seeks = self.seeks << 1 | u32::from(seek);
        self.requested_end = Some(addr + len);
        // Sticky: cleared when idling for the queue was in vain or the device outran it.
        self.deep |= self.waiting + 1 >= DEEP_REQUESTS;
    }

    /// Updates `idle_window`: a queue is not worth idling for if it seeks and is not deep, or
    /// thinks longer than `slice_idle`; unchanged while the think time is not known.
    pub(super) fn weigh_idling(&mut self, slice_idle: Nanos) {
        let thinks = self.think.mean();
        self.idle_window = if self.is_seeky() && !self.deep {
            false
        } else {
            thinks.map_or(self.idle_window, |mean| mean <= slice_idle)
        };
    }

    /// Returns the rank of the queue's class.
    pub(super) fn rank(&self) -> u64 {
        match self.class {
            Priority::RealTime => REAL_TIME,
            Priority::BestEffort(_) => BEST_EFFORT,
            Priority::Idle => IDLE,
        }
    }

    /// Makes the queue due at `now + offset`, earlier or later by the rest of its last slice.
    pub(super) fn schedule(&mut self, now: Nanos, offset: Nanos) {
        let due = Nanos(EPOCH) + now + offset;
        // A positive rest makes the queue due earlier; an overrun, below zero, later.
        self.due = due.0.saturating_sub_signed(self.slice_left);
        // Spent: the rest counts for one place only.
        self.slice_left = 0;
    }

    /// Returns the queue's key in the service tree: the rank of its class, then its due time.
    pub(super) fn key(&self) -> u64 {
        key_of(self.rank(), self.due)
    }
}

/// Returns the key of a due time in a class.
pub(super) fn key_of(rank: u64, due: u64) -> u64 {
    // A due time beyond 62 bits would change the class in the key.
    rank << RANK_SHIFT | due.min((1 << RANK_SHIFT) - 1)
}

/// Returns the rank of the class in a key.
pub(super) fn rank_of(key: u64) -> u64 {
    key >> RANK_SHIFT
}
