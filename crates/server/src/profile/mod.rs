//! Measuring a real disk's saturation profile: what `tidegate_profile` asks for, done.
//!
//! ```text
//!   examine: what is there, who uses it, what does it hold?  --> nothing is written before that
//!   Disk: opened as the daemon opens it, lock and all; io_uring
//!   emulated: a model's completions in real time
//! ```
//!
//! One thread, one disk. A measurement ends when it is finished, when the caller's `watch` says so,
//! or with the first I/O that fails.

mod disk;
mod emulated;
mod examine;

use std::io;

pub use disk::Disk;
pub use emulated::measure as measure_emulated;
pub(crate) use examine::lies_on;
pub use examine::{Findings, examine};

/// How a measurement ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ended {
    /// All is measured.
    Finished,
    /// The caller had enough.
    Stopped,
}

/// An I/O failed, or none could be made.
#[derive(Debug, thiserror::Error)]
pub enum DriveError {
    /// Neither memory nor a ring.
    #[error("cannot prepare I/O: {0}")]
    Prepare(#[source] io::Error),
    /// The ring itself.
    #[error("cannot submit I/O: {0}")]
    Ring(#[source] io::Error),
    /// An I/O.
    #[error("cannot {what} {len} bytes at {addr}: {source}")]
    Io {
        /// `read` or `write`.
        what: &'static str,
        /// Its first byte.
        addr: u64,
        /// Bytes.
        len: u32,
        /// Why.
        source: io::Error,
    },
}
