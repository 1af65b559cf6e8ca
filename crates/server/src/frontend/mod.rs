//! Protocols by which guests reach a loop, and what loops and protocols have in common.
//!
//! A protocol implements `interface::Frontend` in a module here ([`nbd`], [`vhost_user`]) and is a
//! variant of `AnyFrontend`, through which loops call it. A loop knows neither the errors of a
//! protocol nor its description of a disk: each protocol converts [`Volume`], [`Failure`] and the
//! requests of the `request_table` to its own.

mod any_frontend;
#[cfg(test)]
pub(crate) mod guest_memory_queue;
#[cfg(test)]
mod guest_memory_queue_tests;
pub(crate) mod interface;
pub mod nbd;
mod request;
pub(crate) mod request_table;
pub mod vhost_user;

use std::sync::Arc;

use crate::backing::Activation;
pub use any_frontend::Opening;
pub(crate) use any_frontend::{AnyFrontend, PLUMBING};

/// Disk as a loop describes it to frontends.
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
    /// Physical block size in bytes, a power of two.
    pub physical_block: u32,
    /// Maximum length of a request with a payload, in bytes.
    pub payload_max: u32,
    /// True if writes are refused.
    pub read_only: bool,
    /// True if seeks cost time, as on a hard disk.
    pub rotational: bool,
    /// Identity of the disk's file: true for a block device, then device and inode.
    pub identity: Option<(bool, u64, u64)>,
    /// Lock of the disk's file; `None` for a disk that cannot be handed over to another daemon.
    pub activation: Option<Arc<Activation>>,
}

/// Reasons for which a request fails, independent of the protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Failure {
    /// The request is not allowed on this disk.
    NotPermitted,
    /// The backing could not read or write.
    Io,
    /// Memory is short at the moment.
    NoMemory,
    /// The request makes no sense, or reaches beyond the end of the disk.
    Invalid,
    /// The storage is full, or a write reaches beyond the end of the disk.
    NoSpace,
    /// The request is longer than any that is served.
    TooLong,
    /// The disk cannot do this in the way requested.
    Unsupported,
    /// The disk, its VM or the daemon is being removed.
    ShuttingDown,
}
