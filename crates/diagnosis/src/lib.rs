//! Diagnosis of slow requests of a VM: findings from its counters, without I/O and without a clock.
//!
//! [`diagnose`] takes what happened to a VM in an interval ([`Victim`]), what the VMs beside it did
//! ([`Party`]) and what is known of the device ([`DeviceFacts`]). It divides the time of the VM's
//! requests by cause, names the largest one as the [`Verdict`], and says what may help. With a
//! baseline the time that was *added* since is divided, otherwise all of it. What cannot be said
//! for want of samples or of a recording is in [`Diagnosis::gaps`]. [`sentences`] writes it in
//! English. [`Episode`] takes all of that from the history, for a time in the past.
//!
//! [`Verdict`]: tidegate_api::explain::Verdict
//! [`Diagnosis::gaps`]: tidegate_api::explain::Diagnosis::gaps
//!
//! ```
//! use tidegate_core::interference::{Interval, VmTimes};
//! use tidegate_core::request::Account;
//! use tidegate_core::time::Nanos;
//! use tidegate_api::explain::Verdict;
//! use tidegate_diagnosis::{DeviceFacts, SLOWER, Victim, Window, diagnose, sentences};
//!
//! let mut times = VmTimes { requests: 10, ..VmTimes::default() };
//! times.account.regulated = Nanos::from_millis(90);
//! times.account.device = Nanos::from_millis(10);
//! let now = Window {
//!     interval: Interval::between(&VmTimes::default(), &times),
//!     p99: Some(Nanos::from_millis(12)),
//!     span: Nanos::from_secs(10),
//!     ..Window::default()
//! };
//! let victim = Victim {
//!     name: "db",
//!     now: &now,
//!     usual: None,
//!     reserved: false,
//!     slower_from: SLOWER,
//! };
//! let found = diagnose(&victim, &[], &DeviceFacts::default());
//! assert_eq!(found.verdict, Verdict::OwnLimit);
//! assert!(sentences(&found, None)[0].contains("90 %"));
//! ```

#![forbid(unsafe_code)]

mod causes;
mod episode;
mod findings;
mod sentences;

pub use episode::{AROUND_MS, Episode, Neighbour, STEP_MS, traffic};
pub use findings::{SLOWER, diagnose};
pub use sentences::sentences;

use tidegate_api::explain::MissedPart;
use tidegate_core::interference::{CostSource, Interval};
use tidegate_core::request::VmId;
use tidegate_core::time::Nanos;

/// Requests of a VM that were answered in an interval.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Window {
    /// Time of the requests by cause.
    pub interval: Interval,
    /// 99th percentile of their latency; `None`: not known.
    pub p99: Option<Nanos>,
    /// Length of the interval.
    pub span: Nanos,
    /// Requests that waited, or were with the device, at the end of an interval in which none was
    /// answered.
    pub unanswered: u64,
    /// Parts of the VM's objective that were missed.
    pub missed: Vec<MissedPart>,
    /// Time was not kept by cause, as by an older daemon.
    pub lacks_causes: bool,
}

/// VM whose requests are to be explained.
#[derive(Clone, Copy, Debug)]
pub struct Victim<'a> {
    /// Name of the VM.
    pub name: &'a str,
    /// Interval in question.
    pub now: &'a Window,
    /// Interval with which it is compared; `None`: there is none.
    pub usual: Option<&'a Window>,
    /// The VM has a reservation.
    pub reserved: bool,
    /// Growth of the mean or of the 99th percentile from which it counts as slower than usual, such
    /// as [`SLOWER`].
    pub slower_from: f64,
}

/// Requests of a VM that were answered in an interval, by kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Traffic {
    /// Reads.
    pub reads: u64,
    /// Writes.
    pub writes: u64,
    /// Flushes.
    pub flushes: u64,
    /// Bytes read.
    pub bytes_read: u64,
    /// Bytes written.
    pub bytes_written: u64,
}

/// VM or background process on the same device, which may have delayed others.
#[derive(Clone, Copy, Debug)]
pub struct Party<'a> {
    /// Handle in the engine.
    pub vm: VmId,
    /// Name.
    pub name: &'a str,
    /// A background process of the host.
    pub background: bool,
    /// The VM has a limit.
    pub limited: bool,
    /// Requests of the VM in the interval.
    pub traffic: Traffic,
}

/// Longest I/O of a device in an interval.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LongestIo<'a> {
    /// Time that it took.
    pub took: Nanos,
    /// Name of its VM; `None`: not known.
    pub vm: Option<&'a str>,
    /// True for a flush.
    pub is_flush: bool,
}

/// Facts about the device in the interval.
#[derive(Clone, Copy, Debug, Default)]
pub struct DeviceFacts<'a> {
    /// Origin of the device times by which waits are attributed.
    pub costs: CostSource,
    /// Time in which the busy device ended nothing.
    pub stalled: Nanos,
    /// Longest I/O; `None`: not known.
    pub longest: Option<LongestIo<'a>>,
    /// The disk of the VM hung.
    pub hung: bool,
    /// Requests of the interval were recorded, so that remedies can be simulated.
    pub recorded: bool,
}
