//! Placement of deadline transfers on hosts so that the new transfer and all running ones meet
//! their deadlines: PCOS, a meta-scheduler above hosts that run PriDyn (Jain's thesis, chapter 5).
//!
//! ```text
//!   request --> Pcos --> Acceptance of each host --> placed, or it waits and is tried again
//!                              |
//!            admission (AdCon, a what-if analysis) --> PriorityDatabase (measured bandwidths)
//! ```
//!
//! [`admit_by_forecast`] is an alternative admission test that predicts when transfers end.
//!
//! The crate has no clock and does no network or disk I/O: a driver passes in the time, the hosts
//! and the bytes moved on them, and carries out the decisions.
//!
//! ```
//! use tidegate_core::time::Nanos;
//! use tidegate_place::{Bandwidth, HostSpec, WAITING_CAPACITY, Outcome, Pcos, Request};
//!
//! let mut pcos = Pcos::new(WAITING_CAPACITY);
//! // 54 MB/s for one transfer, 37 MB/s in all for two.
//! let bandwidth = Bandwidth::new(54_000_000, &[0, 17_000_000])?;
//! pcos.add_host(Nanos::ZERO, HostSpec::new(bandwidth));
//!
//! let request = Request::new(1 << 30, Nanos::from_secs(60))?;
//! let answer = pcos.request(Nanos::ZERO, request);
//! assert!(matches!(answer.outcome, Outcome::Placed(_)));
//! // Two transfers get 18.5 MB/s each and end after 58 s.
//! let answer = pcos.request(Nanos::ZERO, request);
//! assert!(matches!(answer.outcome, Outcome::Placed(_)));
//! // Three would miss their deadlines.
//! let answer = pcos.request(Nanos::ZERO, request);
//! assert!(matches!(answer.outcome, Outcome::Waiting));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod acceptance;
mod admission;
mod bandwidth;
mod class_combination;
mod class_rates;
mod class_search;
pub mod data_centre;
mod database;
mod fair_share;
mod forecast;
mod grace;
mod host_snapshot;
mod interval;
mod pcos;
mod request;
mod what_if;

pub use acceptance::Acceptance;
pub use admission::{Assignment, Rejection, RejectionReason, admit};
pub use bandwidth::{Bandwidth, BandwidthError};
pub use class_combination::{Combination, MAX_VMS};
pub use class_rates::ClassRates;
pub use database::{Entry, PriorityDatabase};
pub use forecast::{Present, admit_by_forecast};
pub use grace::{Grace, LateRule};
pub use host_snapshot::{HostSnapshot, VmState};
pub use pcos::{
    Answer, Event, Explanation, HostId, HostSpec, HostView, Outcome, Pcos, Placement, Refusal,
    RequestId, ResumedTransfer, Running, Update, WAITING_CAPACITY,
};
pub use request::{Request, RequestError};
pub use what_if::{forecasts, rates};
