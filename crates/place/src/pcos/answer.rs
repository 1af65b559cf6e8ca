//! What is said to the meta-scheduler, and by it.

use tidegate_core::jobs::Class;
use tidegate_core::time::Nanos;

/// A host, by the order in which they were added.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct HostId(pub usize);

/// A request, and the job that comes of it. Never used twice; later ones are higher.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RequestId(pub u64);

/// Where a job runs from now on, and on which terms.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Placement {
    /// Which.
    pub id: RequestId,
    /// Where.
    pub host: HostId,
    /// Its class.
    pub class: Class,
    /// Those of the host that are lower from now on, until this job ends, and their classes.
    pub lowered: Vec<(RequestId, Class)>,
    /// How long it waited.
    pub waited: Nanos,
}

/// What comes of a request at once.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Answer {
    /// Its number from now on.
    pub id: RequestId,
    /// What.
    pub outcome: Outcome,
}

/// What comes of a request at once.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// It runs.
    Placed(Placement),
    /// No host takes it as they are. It is tried again, and discarded at its deadline.
    Waiting,
    /// It does not even wait.
    Refused(Refusal),
}

/// Why a request does not even wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// No host would do it in time if it were empty.
    Impossible {
        /// The shortest deadline with which one would; `None`: there is no host.
        nearest: Option<Nanos>,
    },
    /// As many wait as may.
    TooManyWait {
        /// So many.
        most: usize,
    },
}

/// What came of a request that waited. They are kept until they are asked for: one for each that
/// waited.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// It runs.
    Placed(Placement),
    /// Its deadline passed while it waited.
    Discarded(RequestId),
}

/// What has happened on a host.
#[derive(Clone, Copy, Default, Debug)]
pub struct Update<'a> {
    /// Jobs that have ended.
    pub ended: &'a [RequestId],
    /// Jobs whose class is another: what its PriDyn has changed.
    pub classes: &'a [(RequestId, Class)],
    /// What has moved of jobs so far, in bytes.
    pub moved: &'a [(RequestId, u64)],
    /// What each one there had over an interval through which nobody came, went or had another
    /// class, in bytes a second. The host's priority database learns from it.
    pub had: &'a [(Class, u64)],
    /// Of those of `had` who took less than they were given, and had what they take: how much, in
    /// bytes a second. They are taken to want no more than that, until they do.
    pub sated: &'a [(RequestId, u64)],
}
