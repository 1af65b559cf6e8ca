//! How guests reach a loop: protocols, and what loops and protocols have in common.
//!
//! A protocol is a `door::Frontend` in a module here ([`nbd`]), and a member of `Transport`,
//! through which loops call it. The loop knows no protocol's errors and no protocol's description
//! of a disk: each protocol turns [`Volume`], [`Failure`] and the requests of the `table` into its
//! own.

pub(crate) mod door;
pub mod nbd;
#[cfg(test)]
pub(crate) mod queue;
#[cfg(test)]
mod queue_tests;
mod request;
pub(crate) mod table;
mod transport;

pub use transport::Opening;
pub(crate) use transport::{PLUMBING, Transport};

/// A disk as a loop offers it to whoever serves guests.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Volume {
    /// Serial number of the disk, never reused while the daemon runs.
    pub serial: u32,
    /// Name, unique among all disks of the daemon.
    pub name: String,
    /// Size in bytes.
    pub size: u64,
    /// Configured block size in bytes, a power of two.
    pub block_size: u32,
    /// Block size of the medium in bytes, a power of two.
    pub physical_block: u32,
    /// Longest request with a payload, in bytes.
    pub payload_max: u32,
    /// Writes are refused.
    pub read_only: bool,
    /// Seeks cost time, as on a hard disk.
    pub rotational: bool,
}

/// Reasons for which a request fails, whichever protocol reports it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Failure {
    /// The request is not allowed on this disk.
    NotPermitted,
    /// The medium could not read or write.
    Io,
    /// Memory is short for the moment.
    NoMemory,
    /// The request makes no sense, or reaches beyond the end of the disk.
    Invalid,
    /// The medium has no room left, or the disk ends before the data do.
    NoSpace,
    /// The request is longer than is served.
    TooLong,
    /// The disk cannot do what was asked in the way it was asked.
    Unsupported,
    /// The disk, its VM or the daemon is being removed.
    ShuttingDown,
}
