//! Bounds on the time for which a dispatcher may pass over a waiting VM whose gate is open. Every
//! dispatcher states its bound ([`Dispatcher::starvation`](crate::roles::Dispatcher::starvation)),
//! and the torture test checks it.
//!
//! A bound is plain data of one of a few kinds, so that the checker depends on the promise and not
//! on how the dispatcher works.

use tidegate_base::device::DeviceSpec;
use tidegate_base::objective::{Objective, Priority};
use tidegate_base::time::Nanos;

/// Meaning of "the start time of a request" in Flubber's eq. 5.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DeadlineFrom {
    /// Arrival of the request: a promise to the VM, which includes the time that credits and limits
    /// hold it back.
    Arrival,
    /// Arrival plus the time that a regulator held the request, hence with credits the time of
    /// admission: the view of a scheduler below them. Linux's `struct request` takes its
    /// `start_time` there.
    Admission,
}

impl DeadlineFrom {
    /// Words of the configuration, in the order of the variants.
    pub const WORDS: &'static [&'static str] = &["arrival", "admission"];

    /// Returns the variant of the word at this index of [`WORDS`](DeadlineFrom::WORDS).
    pub fn from_word(place: u64) -> DeadlineFrom {
        match place {
            0 => DeadlineFrom::Arrival,
            _ => DeadlineFrom::Admission,
        }
    }
}

/// Derivation of deadlines from start times (Flubber, eq. 5).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Deadlines {
    /// Start time that deadlines count from.
    pub from: DeadlineFrom,
    /// Service time allowed for: deadlines are earlier than the objective's by this.
    pub margin: Nanos,
    /// Latency assumed for a VM that has a reservation and no latency objective.
    pub default_latency: Nanos,
    /// Latency assumed for a VM that was promised neither: long enough not to come before promises,
    /// short enough to prevent starvation.
    pub best_effort_latency: Nanos,
}

impl Deadlines {
    /// Returns the deadline of a unit that started at `start`, for a VM with this objective.
    pub fn due(&self, objective: &Objective, start: Nanos) -> Nanos {
        let latency = match objective.latency {
            Some(latency) => latency,
            None if objective.reservation.is_none() => self.best_effort_latency,
            None => self.default_latency,
        };
        start + latency - self.margin
    }
}

/// Bound on the time or service for which a dispatcher may pass over a VM.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Bound {
    /// First come, first served, with the device never left idle: no VM is passed over.
    Arrival,
    /// Earliest deadline first.
    Deadline(Due),
    /// Service by weight: bounds what another VM gets while one waits.
    Shares(Shares),
    /// Lottery: draws with chances by weight.
    Draws(Draws),
    /// Expiry: bounds the I/Os that go before a unit that has expired.
    Age(Expiry),
    /// Time slices within a priority class.
    Slices(Slices),
    /// No bound: a waiting VM may be passed over for ever. For experiments that cannot promise
    /// more, such as last come, first served; no policy of the registry states it.
    Unbounded,
}

/// Cost of an I/O, for bounds that count cost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cost {
    /// Bytes of the I/O, with a minimum.
    Bytes {
        /// Smallest cost in bytes.
        least: u64,
    },
    /// One for each guest request that the I/O is the first to serve.
    Requests,
    /// One for every `size` bytes begun.
    Classes {
        /// Size of a class in bytes.
        size: u64,
    },
    /// Picoseconds of device time by the profile; see `CostBy::DeviceTime` of
    /// `tidegate_policies::dispatch::cost`.
    DeviceTime {
        /// Cost of a flush, in picoseconds.
        flush: u64,
        /// Largest cost of an I/O, in picoseconds.
        largest: u64,
    },
}

impl Cost {
    /// Returns the cost of a flush.
    pub fn flush(self) -> u64 {
        match self {
            Cost::Bytes { least } => least,
            Cost::DeviceTime { flush, .. } => flush,
            Cost::Requests | Cost::Classes { .. } => 1,
        }
    }

    /// Returns the extra lead that rounded tags may give another VM, in units of the cost. The lead
    /// is below one unit, except in picoseconds, where it grows with the weights.
    pub fn rounding(self) -> u64 {
        match self {
            Cost::Bytes { .. } | Cost::Requests | Cost::Classes { .. } => 0,
            Cost::DeviceTime { .. } => 2 * Objective::MAX_WEIGHT as u64,
        }
    }

    /// Returns the largest cost of an I/O on this device. An I/O may merge as many requests as it
    /// has sectors.
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

/// Lead that others may gain over a waiting VM.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lead {
    /// Lead in proportion to the other's weight over the waiting one's, plus a constant.
    Ahead {
        /// Lead for equal weights, in units of the cost.
        ahead: u64,
        /// Constant lead, in units of the cost.
        once: u64,
    },
    /// Round robin with quanta by weight.
    Turns {
        /// Quantum of the lightest VM, in units of the cost.
        quantum: u64,
    },
}

/// Bound by weights. Holds among VMs that differ in nothing but weights.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shares {
    /// Measure of an I/O's cost.
    pub cost: Cost,
    /// Largest cost of an I/O, in units of `cost`.
    pub largest: u64,
    /// Source of the weights.
    pub weights: Weights,
    /// Lead that others may gain.
    pub lead: Lead,
}

/// Source of the weights of a bound.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Weights {
    /// Weights of objectives. A change of one resets what VMs were passed over.
    Objectives,
    /// Rates that a controller allocates ([`View::allocation`](crate::view::View)) and changes
    /// at any time. Between two VMs, the largest quotient since the one began to wait counts.
    Allocations {
        /// Extra lead that each change may give its VM, in units of the cost.
        rounding: u64,
    },
}

/// Bound by draws. Each I/O goes to one of the waiting VMs, drawn with a chance by its weight over
/// the cost of its last win. While a VM wins none, the sum of its chances is at most
/// [`Draws::WINS`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Draws {
    /// Smallest cost of an I/O, and cost of a flush, in bytes.
    pub least: u64,
    /// Largest cost of an I/O, in bytes.
    pub largest: u64,
    /// Number of flushes up to whose cost flushes add to what their VM was served.
    pub flushes: u64,
}

impl Draws {
    /// Expected wins without a win that refute the bound: the probability is below e^-45, which is
    /// below 2^-64.
    pub const WINS: u64 = 45;
}

/// Bound by deadlines.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Due {
    /// Deadlines of VMs.
    pub deadlines: Deadlines,
    /// Latency of a background process, counted from the arrival; `None`: no deadline, so it may be
    /// passed over for ever.
    pub background_latency: Option<Nanos>,
    /// Time before a deadline from which nothing else may go; `None`: never.
    pub before: Option<Nanos>,
    /// True if a background unit may go before VMs now and then.
    pub promotes: bool,
    /// True if the dispatcher may leave device room unused while an I/O is in flight.
    pub may_drain: bool,
}

/// Bound by age.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Expiry {
    /// Ages at which reads and writes expire.
    pub after: [Nanos; 2],
    /// Largest number of I/Os in a batch.
    pub batch: u64,
    /// Batches of reads that may pass over waiting writes.
    pub writes_starved: u64,
}

/// Bound by time slices.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Slices {
    /// Longest slice.
    pub longest: Nanos,
    /// Time for which the device is left idle for one VM.
    pub idle: Nanos,
    /// Wait after which a VM of the idle class has an I/O before all others; zero: never.
    pub overdue: Nanos,
    /// True if VMs have priority classes.
    pub priorities: bool,
    /// Priority class of background processes; `None`: as in their objective.
    pub background: Option<Priority>,
    /// True if reads and writes have separate queues.
    pub by_lane: bool,
    /// Longest time for which I/Os of one kind go among themselves, whichever unit is due before.
    pub workload: Nanos,
}
