//! Jobs as a driver of the engine asks for them, and as it is told of them.

use super::{Class, Forecast, Job};
use tidegate_base::request::VmId;
use tidegate_base::time::Nanos;

/// A job as it is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct JobSpec {
    /// Bytes to be read and written, in all; at least 1.
    pub bytes: u64,
    /// How long after its begin they are to have moved; at least 1 ns.
    pub deadline: Nanos,
}

/// On which terms an admission controller let a VM's job in: PCOS, figure 5.8 of the thesis.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Admission {
    /// The job's class.
    pub class: Class,
    /// Other VMs that are down at these classes until the job ends.
    pub lowered: Vec<(VmId, Class)>,
}

/// How a job of a VM stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct JobStatus {
    /// The job, as far as it has come.
    pub job: Job,
    /// B: what its VM moved a second in the last interval; `None`: not measured yet.
    pub bandwidth: Option<u64>,
    /// What comes of it. While nothing is known of the device either: neither early nor late.
    pub forecast: Forecast,
    /// Its VM's class just now; best effort under policies without classes.
    pub class: Class,
    /// Case 3 came of it: as things are it cannot be met, so nobody suffers for it until a job
    /// begins or ends.
    pub given_up: bool,
    /// The whole device would do it in time, as far as is known.
    pub possible: bool,
}

/// A job that is over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct JobEnd {
    /// Whose it was.
    pub vm: VmId,
    /// The job, as far as it came.
    pub job: Job,
    /// When: its last byte was answered then, or it was cancelled.
    pub ended: Nanos,
    /// So long after its deadline; zero when in time.
    pub late: Nanos,
    /// How.
    pub outcome: JobOutcome,
}

/// How a job ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum JobOutcome {
    /// All its bytes have moved.
    Done,
    /// It was not wanted any more, its VM began another, or left.
    Cancelled,
}

/// How jobs are measured, and what they are taken to have before they were.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct JobTerms {
    /// What everybody has is measured so often.
    pub interval: Nanos,
    /// A job begins with what its VM had in the last interval; else nothing is known of it yet.
    pub carry: bool,
    /// MaxBW, in bytes a second; 0: what the device does in all is learnt.
    pub max_bandwidth: u64,
    /// BWloss, in bytes a second, for two or more VMs. Means nothing where MaxBW is 0.
    pub bandwidth_loss: u64,
}

impl JobTerms {
    /// The interval of the thesis.
    pub const INTERVAL: Nanos = Nanos::from_secs(3);
}

impl Default for JobTerms {
    fn default() -> JobTerms {
        JobTerms {
            interval: JobTerms::INTERVAL,
            carry: false,
            max_bandwidth: 0,
            bandwidth_loss: 0,
        }
    }
}

/// How a VM stands with a controller that turns classes for jobs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Standing {
    /// Its class.
    pub class: Class,
    /// See [`JobStatus::given_up`].
    pub given_up: bool,
}
