//! Workloads of guests: the requests that VMs issue, and when.
//!
//! A [`Workload`](spec::Workload) describes one stream of requests in fio's terms. A
//! [`Source`](source::Source) draws its requests one after the other from a
//! [`Stream`](stream::Stream), or takes them from a block [`trace`] by a [`replay`]. An
//! [`ArrivalClock`](arrival_process::ArrivalClock) determines when an open loop issues the next
//! one, and an [`Issuer`](issuer::Issuer) which request is next and when. [`fio`] reads fio's own
//! job files, [`read`] the workloads of scenarios. Nothing here uses a clock or a file: time, text
//! and seeds are arguments, and the same seed draws the same requests on every machine.

#![forbid(unsafe_code)]

pub mod arrival_process;
pub mod deadline;
pub mod dependence;
mod error;
mod factor;
pub mod fio;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzz;
pub mod guest;
pub mod issuer;
mod random_variate;
pub mod read;
pub mod replay;
pub mod source;
pub mod spec;
pub mod stream;
mod thoughts;
pub mod time;
pub mod trace;
pub mod trace_replay;

pub use error::{WorkloadError, WorkloadErrors};
