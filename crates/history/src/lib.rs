//! History of VMs and devices: what each did and where its time went, second by second.
//!
//! The crate does no I/O and reads no clock. A driver pushes a [`Sample`](sample::Sample) for each
//! VM that was active in the last second; the crate groups samples by window, encodes each window
//! as a block, keeps the newest blocks and answers queries. The driver writes the same blocks to
//! files and gives them back after a restart.
//!
//! ```text
//!   samples --> Window of 10 s --close--> fine block: points of 1 s, a histogram for the window
//!                                           |  kept for 15 minutes
//!                                           +--30 windows--> coarse block: points of 10 s
//! ```
//!
//! | resolution | points | histogram of latencies | VMs that were waited for, time by class |
//! |---|---|---|---|
//! | fine | 1 s, as the driver visits the VM | p50, p99, p99.9, maximum of each point | by window |
//! | coarse | 10 s | one for each point, merged exactly | by point |
//!
//! Counters are differences of cumulative counters, so the points of a VM add up to its counters at
//! both resolutions. Quantiles of longer steps are computed from merged histograms, never from
//! other quantiles. They are upper bounds, at most 6 % above the true value where a second's
//! latencies are within some four octaves, and at most 100 % above it in the worst case
//! ([`latency`]).
//!
//! Memory is bounded: see [`budget`].

pub mod block;
pub mod budget;
pub mod chunk;
pub mod column;
mod fit;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzz;
pub mod latency;
pub mod query;
mod reader;
pub mod recorder;
pub mod sample;
#[cfg(test)]
mod tests;
mod window;
