//! Which host a job goes to, so that it and all that run there end in time: PCOS, the
//! meta-scheduler above hosts that run PriDyn. Jain's thesis, chapter 5.
//!
//! ```text
//!   request --> Pcos --> Acceptance of each host --> placed, or it waits and is tried again
//!                              |
//!            admission (AdCon: what if it were here?) --> PriorityDatabase (who had what here?)
//! ```
//!
//! [`admit_by_forecast`] is admission by forecasts that reckon with the ends of jobs.
//!
//! Nothing here knows a clock, a network or a disk: whoever drives it says what time it is, what
//! hosts there are and what moved on them, and carries out what was decided.
//!
//! ```
//! use tidegate_core::time::Nanos;
//! use tidegate_place::{Bandwidth, HostSpec, MOST_WAITING, Outcome, Pcos, Request};
//!
//! let mut pcos = Pcos::new(MOST_WAITING);
//! // 54 MB/s for one, 37 MB/s for two together.
//! let bandwidth = Bandwidth::new(54_000_000, &[0, 17_000_000])?;
//! pcos.add_host(Nanos::ZERO, HostSpec::new(bandwidth));
//!
//! let request = Request::new(1 << 30, Nanos::from_secs(60))?;
//! let answer = pcos.request(Nanos::ZERO, request);
//! assert!(matches!(answer.outcome, Outcome::Placed(_)));
//! // Two of them would have 18.5 MB/s each, and be done after 58 s.
//! let answer = pcos.request(Nanos::ZERO, request);
//! assert!(matches!(answer.outcome, Outcome::Placed(_)));
//! // Three would not.
//! let answer = pcos.request(Nanos::ZERO, request);
//! assert!(matches!(answer.outcome, Outcome::Waiting));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod acceptance;
mod admission;
mod bandwidth;
pub mod centre;
mod class_search;
mod combination;
mod database;
mod fair_share;
mod forecast;
mod grace;
mod host_snapshot;
mod interval;
mod pcos;
mod rates;
mod request;
mod what_if;

pub use acceptance::Acceptance;
pub use admission::{Assignment, Rejection, Why, admit};
pub use bandwidth::{Bandwidth, BandwidthError};
pub use combination::{Combination, MOST};
pub use database::{Entry, PriorityDatabase};
pub use forecast::{Present, admit_by_forecast};
pub use grace::Grace;
pub use host_snapshot::{HostSnapshot, Tenant};
pub use pcos::{
    Answer, Event, HostId, HostSpec, HostView, MOST_WAITING, Outcome, Pcos, Placement, Refusal,
    RequestId, Running, Update,
};
pub use rates::Rates;
pub use request::{Request, RequestError};
pub use what_if::{forecasts, rates};
