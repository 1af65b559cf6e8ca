//! A flash disk with round figures.

use super::{KIB, MIB};
use tidegate_core::time::Nanos;
use tidegate_device::ssd::{SharingFigure, Ssd, SsdFigures, WriteBufferFigures, ZeroesFigure};
use tidegate_units::{Bandwidth, Bytes, Duration};

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
        dies_per_channel: 2,
        planes: 1,
        page: Bytes(16 * KIB),
        pages_per_block: 64,
        read: us(50),
        program: us(500),
        erase: us(3_000),
        channel_rate: Bandwidth(400_000_000),
        interface_rate: Bandwidth(2_000_000_000),
        full_duplex: true,
        interface_sharing: SharingFigure::InOrder,
        read_overhead: us(10),
        write_overhead: us(20),
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
