//! A flash disk with round figures.

use super::{KIB, MIB};
use tidegate_core::time::Nanos;
use tidegate_device::ssd::{SharingFigure, Ssd, SsdFigures, WriteBufferFigures, ZeroesFigure};
use tidegate_units::{Bandwidth, Bytes, Duration};

/// Time of the controller for a read, in microseconds.
pub const READ_OVERHEAD_US: u64 = 10;
/// Time of the controller for a write or a flush, in microseconds.
pub const WRITE_OVERHEAD_US: u64 = 20;
/// Time to read a page from the flash, in microseconds.
pub const READ_US: u64 = 50;
/// Time to program a page, in microseconds.
pub const PROGRAM_US: u64 = 500;
/// Time to erase a block, in microseconds.
pub const ERASE_US: u64 = 3_000;
/// Rate of a channel in bytes per second.
pub const CHANNEL_RATE: u64 = 400_000_000;
/// Rate of the interface in bytes per second.
pub const INTERFACE_RATE: u64 = 2_000_000_000;
/// Number of dies: two on each of four channels.
pub const DIES: u64 = 8;
/// Size of a page in bytes.
pub const PAGE: u64 = 16 * KIB;
/// Pages in a block, which are erased together.
pub const PAGES_PER_BLOCK: u32 = 64;

pub fn us(n: u64) -> Duration {
    Duration(Nanos::from_micros(n))
}

/// Eight dies on four channels, round figures, 1 GiB.
pub fn figures() -> SsdFigures {
    SsdFigures {
        capacity: Bytes(1 << 30),
        logical_block: Bytes(512),
        physical_block: Bytes(4 * KIB),
        queue_depth: 256,
        max_io: Bytes(MIB),
        channels: 4,
        dies_per_channel: DIES as u32 / 4,
        planes: 1,
        page: Bytes(PAGE),
        pages_per_block: PAGES_PER_BLOCK,
        read: us(READ_US),
        program: us(PROGRAM_US),
        erase: us(ERASE_US),
        channel_rate: Bandwidth(CHANNEL_RATE),
        interface_rate: Bandwidth(INTERFACE_RATE),
        full_duplex: true,
        interface_sharing: SharingFigure::InOrder,
        interface_command: us(0),
        interface_turnaround: us(0),
        read_overhead: us(READ_OVERHEAD_US),
        write_overhead: us(WRITE_OVERHEAD_US),
        read_interval: us(0),
        write_interval: us(0),
        write_zeroes: ZeroesFigure::Write,
        write_buffer: WriteBufferFigures {
            size: Bytes(MIB),
            power_loss_protection: false,
        },
        prefetch: None,
        garbage_collection: None,
    }
}

pub fn ssd(change: impl FnOnce(&mut SsdFigures)) -> Ssd {
    let mut figures = figures();
    change(&mut figures);
    Ssd::new("test", &figures).unwrap()
}
