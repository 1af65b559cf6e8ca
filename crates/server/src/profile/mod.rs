//! Measurement of a saturation profile on a real disk: performs the I/O that `tidegate_profile`
//! asks for.
//!
//! ```text
//!   examine: users, content and identity of the disk   --> nothing is written before that
//!   Disk: opened and locked as the daemon opens it; io_uring
//!   emulated: completions of a device model in real time
//! ```
//!
//! A measurement uses one thread and one disk. It ends when it is finished, when the caller's
//! `watch` breaks, or at the first I/O that fails.

mod disk;
mod emulated;
mod preflight_check;

use std::io;

pub use disk::Disk;
pub use emulated::measure as measure_emulated;
pub use preflight_check::{Findings, examine};
pub(crate) use preflight_check::{block_device_below, device_number_below, identity_of};

/// Outcome of a measurement that did not fail.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ended {
    /// Everything was measured.
    Finished,
    /// The caller's `watch` ended it.
    Stopped,
}

/// Error of a measurement.
#[derive(Debug, thiserror::Error)]
pub enum DriveError {
    /// Memory or the ring could not be set up.
    #[error("cannot prepare I/O: {0}")]
    Prepare(#[source] io::Error),
    /// I/O could not be submitted.
    #[error("cannot submit I/O: {0}")]
    Ring(#[source] io::Error),
    /// An I/O failed.
    #[error("cannot {what} {len} bytes at {addr}: {source}")]
    Io {
        /// `read` or `write`.
        what: &'static str,
        /// First byte.
        addr: u64,
        /// Length in bytes.
        len: u32,
        /// Reason.
        source: io::Error,
    },
}
