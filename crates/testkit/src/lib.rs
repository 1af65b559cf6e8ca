//! Drivers and oracles of an engine for the tests of several crates.

mod driver;
mod guest;
mod ledger;
pub mod operations;
mod replies;
pub mod schema;
mod serial;
mod setup;
mod tally;
mod windows;
mod world;

pub use driver::{CLOCK_NEAR_END, DISK_SIZE, Driver};
pub use guest::{Guest, Start};
pub use ledger::Ledger;
pub use replies::Replies;
pub use serial::SerialDevice;
pub use setup::{bursting, config, connect_single_vm, limited, open_disk, policy, weighted};
pub use tally::Tally;
pub use windows::{assert_below, busiest_100_ms, max_lateness, quietest_100_ms, total, within};
pub use world::World;

/// Nanoseconds of a millisecond.
pub const MS: u64 = 1_000_000;
/// Nanoseconds of a second.
pub const SECOND: u64 = 1_000_000_000;
/// Bytes of a kibibyte.
pub const KIB: u32 = 1 << 10;
