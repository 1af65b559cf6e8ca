//! What guests ask of their disks.
//!
//! A [`Job`](job::Job) describes one stream of requests in fio's words; a
//! [`Stream`](stream::Stream) draws its requests one after the other, and an
//! [`ArrivalClock`](arrive::ArrivalClock) says when an open loop hands in the next; a [`replay`]
//! takes them from a block [`trace`] instead. [`fio`] reads fio's own job files. Nothing here knows
//! a clock or a file: time, text and seeds are arguments, and the same seed draws the same requests
//! on every machine.

#![forbid(unsafe_code)]

pub mod arrive;
pub mod deadline;
mod draw;
pub mod fio;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzz;
pub mod guest;
pub mod job;
mod mistake;
pub mod read;
pub mod replay;
pub mod replaying;
pub mod source;
pub mod stream;
pub mod time;
pub mod trace;

pub use mistake::{Mistake, Mistakes};
