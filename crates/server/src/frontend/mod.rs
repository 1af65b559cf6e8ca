//! Words that the event loop and its frontends have in common: volumes that are offered, and how
//! requests end.
//!
//! The loop knows no protocol's errors and no protocol's description of a disk. Each protocol turns
//! these words into its own in a module here: [`nbd`].

pub mod nbd;

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
