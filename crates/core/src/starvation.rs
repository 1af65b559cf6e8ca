//! How long a dispatcher may pass over a VM that waits with its gate open: every dispatcher states
//! its bound ([`Dispatcher::starvation`](crate::roles::Dispatcher::starvation)), and torture holds
//! it to that.
//!
//! A bound is plain data of one of a few kinds. Whoever checks it knows nothing of how the
//! dispatcher works, only what it promised.

use tidegate_base::device::DeviceSpec;
use tidegate_base::objective::{Objective, Priority};
use tidegate_base::time::Nanos;

/// What "the start time of a request" is in Flubber's eq. 5.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DeadlineFrom {
    /// When it arrived: a promise to the VM, which counts what credits and limits hold back, too.
    Arrival,
    /// Its arrival and what a regulator held it, so for credits the time they let it in: what a
    /// scheduler below them sees. Linux's `struct request` has its `start_time` from there.
    Admission,
}

impl DeadlineFrom {
    /// As the configuration calls them, in this order.
    pub const WORDS: &'static [&'static str] = &["arrival", "admission"];

    /// The one at this place among [`WORDS`](DeadlineFrom::WORDS).
    pub fn from_word(place: u64) -> DeadlineFrom {
        match place {
            0 => DeadlineFrom::Arrival,
            _ => DeadlineFrom::Admission,
        }
    }
}

/// How deadlines come of start times (Flubber, eq. 5).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Deadlines {
    /// From when on they count.
    pub from: DeadlineFrom,
    /// So much before the objective's end: what serving it may take.
    pub margin: Nanos,
    /// The objective of a VM that has a reservation and no latency.
    pub default_latency: Nanos,
    /// That of a VM that was promised neither. It must not have a place before promises, only
    /// not wait for ever.
    pub best_effort_latency: Nanos,
}

impl Deadlines {
    /// When a unit that started then is due, of a VM with this objective.
    pub fn due(&self, objective: &Objective, start: Nanos) -> Nanos {
        let latency = match objective.latency {
            Some(latency) => latency,
            None if objective.reservation.is_none() => self.best_effort_latency,
            None => self.default_latency,
        };
        start + latency - self.margin
    }
}

/// How long a dispatcher may pass over a VM.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Bound {
    /// Not at all: first come, first served, and the device is never left idle.
    Arrival,
    /// By deadline: what is due first goes first.
    Deadline(Due),
    /// By weight: while a VM waits, another gets at most so much.
    Shares(Shares),
    /// By draws, each with a chance by weight.
    Draws(Draws),
    /// By age: once it has expired, at most so many I/Os go before it.
    Age(Expiry),
    /// By time slices within a class of priority.
    Slices(Slices),
}

/// What an I/O costs, where a bound is reckoned in cost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cost {
    /// Its bytes, at least so many.
    Bytes {
        /// The smallest cost.
        least: u64,
    },
    /// One for each request it serves first.
    Requests,
    /// One for every `size` begun.
    Classes {
        /// Bytes.
        size: u64,
    },
    /// Picoseconds of the device, by its profile; see
    /// `CostBy::DeviceTime` of `tidegate_policies::dispatch::cost`.
    DeviceTime {
        /// What a flush costs.
        flush: u64,
        /// The largest cost of an I/O.
        largest: u64,
    },
}

impl Cost {
    /// What a flush costs.
    pub fn flush(self) -> u64 {
        match self {
            Cost::Bytes { least } => least,
            Cost::DeviceTime { flush, .. } => flush,
            Cost::Requests | Cost::Classes { .. } => 1,
        }
    }

    /// By how much rounded tags may let another VM get further ahead: less than a unit, but for
    /// picoseconds, where it is as many of them as VMs have weight.
    pub fn rounding(self) -> u64 {
        match self {
            Cost::Bytes { .. } | Cost::Requests | Cost::Classes { .. } => 0,
            Cost::DeviceTime { .. } => 2 * Objective::MAX_WEIGHT as u64,
        }
    }

    /// The largest cost of an I/O. As many requests as sectors may be merged into one.
    pub fn largest(self, device: &DeviceSpec) -> u64 {
        let bytes = device.max_io as u64;
        match self {
            Cost::Bytes { least } => bytes.max(least),
            Cost::Requests => bytes / 512,
            Cost::Classes { size } => bytes.div_ceil(size),
            Cost::DeviceTime { largest, .. } => largest,
        }
    }
}

/// How far ahead of a VM that waits others may get.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lead {
    /// So much by the other's weight to the waiting one's, and so much once.
    Ahead {
        /// For equal weights.
        ahead: u64,
        /// Whatever the weights.
        once: u64,
    },
    /// In turns, with quanta by weight: so much for the lightest.
    Turns {
        /// In units of the cost.
        quantum: u64,
    },
}

/// A bound by weights. It holds among VMs that nothing else than weights tells apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shares {
    /// What an I/O costs.
    pub cost: Cost,
    /// The largest cost of an I/O.
    pub largest: u64,
    /// What the weights are.
    pub weights: Weights,
    /// How far others may get.
    pub lead: Lead,
}

/// What a bound by weights is reckoned with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Weights {
    /// Those of objectives; what anybody was passed over is forgotten when one changes.
    Objectives,
    /// What a controller allocates ([`Facts::allocation`](crate::facts::Facts)), which changes all
    /// the time: of two VMs' weights the largest quotient counts that there was while the one
    /// waited.
    Allocations {
        /// How much further each change may let its VM get, in units of the cost.
        rounding: u64,
    },
}

/// A bound by draws: for each I/O one of the VMs that wait is drawn, with a chance by its weight
/// over what it was served when it won last. While a VM wins none, the sum of its chances is at
/// most [`Draws::WINS`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Draws {
    /// The smallest cost of an I/O, and that of a flush, in bytes.
    pub least: u64,
    /// The largest.
    pub largest: u64,
    /// A flush adds to what its VM was served, up to the cost of so many.
    pub flushes: u64,
}

impl Draws {
    /// To have won nothing where so many wins were to be expected has a probability below
    /// e^-45, which is below 2^-64.
    pub const WINS: u64 = 45;
}

/// A bound by deadlines: where they lie, and from when on they are kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Due {
    /// Those of VMs.
    pub deadlines: Deadlines,
    /// That of a background tenant, after its arrival; `None`: it has none, and is passed over.
    pub background_latency: Option<Nanos>,
    /// How long before a deadline nothing else may go any more; `None`: never.
    pub before: Option<Nanos>,
    /// A background unit may go before VMs now and then.
    pub promotes: bool,
    /// The device may be left alone as long as it has an I/O in flight.
    pub may_drain: bool,
}

/// A bound by age.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Expiry {
    /// After how long reads and writes expire.
    pub after: [Nanos; 2],
    /// I/Os in a batch at most.
    pub batch: u64,
    /// Batches of reads that may pass waiting writes over.
    pub writes_starved: u64,
}

/// A bound by time slices.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Slices {
    /// The longest slice.
    pub longest: Nanos,
    /// How long the device is left idle for one VM.
    pub idle: Nanos,
    /// After how long an idle VM has an I/O before all others; zero: never.
    pub overdue: Nanos,
    /// VMs have classes.
    pub priorities: bool,
    /// The class of background tenants; `None`: their objective's.
    pub background: Option<Priority>,
    /// Reads and writes have queues of their own.
    pub by_lane: bool,
    /// For how long those of a kind go on among themselves at most, whoever is due before.
    pub workload: Nanos,
}
