//! Figures of a flash disk, as a catalogue entry states them.

use crate::figures::{
    FigureError, TRILLION, no_time, require, require_blocks, require_count, require_short,
};
use serde::Deserialize;
use tidegate_units::{Bandwidth, Bytes, Duration};

/// Table `[ssd]` of a catalogue entry: the figures of a drive's datasheet and of its flash chips'.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SsdFigures {
    /// Addressable bytes.
    pub capacity: Bytes,
    /// Logical block size in bytes: the unit of addresses.
    pub logical_block: Bytes,
    /// Mapping unit in bytes. A write that covers one in part costs as much as the whole unit.
    pub physical_block: Bytes,
    /// Maximum number of commands in the drive, 1 to 4096.
    pub queue_depth: u32,
    /// Longest command in bytes.
    pub max_io: Bytes,
    /// Number of channels between the controller and the flash, 1 to 64.
    pub channels: u32,
    /// Number of dies on each channel, 1 to 64. A die does one operation at a time.
    pub dies_per_channel: u32,
    /// Number of pages of a die that one operation programs, 1 to 16.
    pub planes: u32,
    /// Size of a flash page in bytes, and of the stripes of logical addresses over the dies.
    pub page: Bytes,
    /// Number of pages in a block, 1 to 65536; an erase covers one block in every plane.
    pub pages_per_block: u32,
    /// Time of reading a page into the die's register (tR).
    pub read: Duration,
    /// Time of programming the pages of all planes from the register (tPROG).
    pub program: Duration,
    /// Time of erasing a block (tBERS).
    pub erase: Duration,
    /// Rate of a channel between the controller and its dies.
    pub channel_rate: Bandwidth,
    /// Rate of the interface between the drive and the host.
    pub interface_rate: Bandwidth,
    /// True if the interface has that rate in both directions at once, as PCI Express has.
    pub full_duplex: bool,
    /// Order in which commands whose data is ready use the interface; `in-order` by default.
    #[serde(default)]
    pub interface_sharing: SharingFigure,
    /// Time for which a read, a write or a write-zeroes occupies the interface beside its data;
    /// zero by default. With all commands' time on one resource the drive is a single server,
    /// whose throughput does not depend on the depth.
    #[serde(default = "no_time")]
    pub interface_command: Duration,
    /// Time for which a command occupies the interface in addition if the one before it went the
    /// other way; zero by default, and with a full-duplex interface.
    #[serde(default = "no_time")]
    pub interface_turnaround: Duration,
    /// Latency of a read beside flash, channel and interface.
    pub read_overhead: Duration,
    /// Latency of every other command beside the interface.
    pub write_overhead: Duration,
    /// Minimum time between the begin of a read and that of the next command: the reciprocal of the
    /// controller's maximum read IOPS.
    pub read_interval: Duration,
    /// Minimum time between the begin of any other command and that of the next command.
    pub write_interval: Duration,
    /// Effect of write-zeroes.
    pub write_zeroes: ZeroesFigure,
    /// Buffer for data that was written and is not in the flash yet.
    pub write_buffer: WriteBufferFigures,
    /// Prefetch for sequential streams; `None`: no prefetch.
    pub prefetch: Option<PrefetchFigures>,
    /// Garbage collection; `None`: there is always an erased block.
    pub garbage_collection: Option<GarbageFigures>,
}

/// Order in which outstanding commands use the interface.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SharingFigure {
    /// One command's data after another's, in order of submission. A later command may use a gap
    /// that is long enough for it.
    #[default]
    InOrder,
    /// Frames of all commands that have data to send take turns, so that commands share the rate
    /// evenly in bytes, each direction by itself.
    Interleaved,
}

/// Effect of write-zeroes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ZeroesFigure {
    /// The range is unmapped, as by a discard.
    Deallocate,
    /// Zeroes are written to the flash.
    Write,
}

/// Table `[ssd.write_buffer]`: the drive's memory for data that is not in the flash yet.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WriteBufferFigures {
    /// Capacity in bytes, whole mapping units.
    pub size: Bytes,
    /// True if the buffer survives a power cut, so that flush and FUA need not wait for the flash.
    pub power_loss_protection: bool,
}

/// Table `[ssd.prefetch]`: reading ahead for sequential streams.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PrefetchFigures {
    /// Bytes read ahead of a stream, at most 256 pages.
    pub ahead: Bytes,
    /// Number of streams that are followed, 1 to 64.
    pub streams: u32,
}

/// Table `[ssd.garbage_collection]`: the flash beyond the capacity, and the initial content.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GarbageFigures {
    /// Flash beyond the capacity in bytes (overprovisioning).
    pub spare: Bytes,
    /// Bytes from address 0 on that hold data at time zero.
    pub filled: Bytes,
}

impl SsdFigures {
    /// Checks every figure alone and against the others.
    pub(super) fn check(&self) -> Result<(), FigureError> {
        require_blocks(
            "ssd",
            self.capacity,
            self.logical_block,
            self.physical_block,
            self.max_io,
        )?;
        require_count("ssd.queue_depth", self.queue_depth, 1..=4096)?;
        require_count("ssd.channels", self.channels, 1..=64)?;
        require_count("ssd.dies_per_channel", self.dies_per_channel, 1..=64)?;
        require_count("ssd.planes", self.planes, 1..=16)?;
        require_count("ssd.pages_per_block", self.pages_per_block, 1..=1 << 16)?;
        self.check_flash()?;
        require_short("ssd.read_overhead", self.read_overhead)?;
        require_short("ssd.write_overhead", self.write_overhead)?;
        require_short("ssd.read_interval", self.read_interval)?;
        require_short("ssd.write_interval", self.write_interval)?;
        require_short("ssd.interface_command", self.interface_command)?;
        let turnaround = self.interface_turnaround;
        require_short("ssd.interface_turnaround", turnaround)?;
        require(
            // Each way has a link of its own, which never turns.
            turnaround.0.0 == 0 || !self.full_duplex,
            "ssd.interface_turnaround",
            turnaround,
            "0 ns while full_duplex is true",
        )?;
        let rate = |field: &str, found: Bandwidth| {
            let ok = (1_000_000..=TRILLION).contains(&found.0);
            require(ok, field, found, "1 MB/s to 1 TB/s")
        };
        rate("ssd.channel_rate", self.channel_rate)?;
        rate("ssd.interface_rate", self.interface_rate)?;
        self.check_buffers()?;
        self.check_garbage()
    }

    fn check_flash(&self) -> Result<(), FigureError> {
        let (page, unit) = (self.page, self.physical_block);
        require(
            // 32: a page's units are bits of a `u32`.
            page.0.is_power_of_two() && page >= unit && page.0 <= unit.0 * 32,
            "ssd.page",
            page,
            format!("a power of two from physical_block ({unit}) to 32 of them"),
        )?;
        require(
            // Pages have 32-bit numbers.
            self.capacity.0 / page.0 < u64::from(u32::MAX),
            "ssd.capacity",
            self.capacity,
            format!("less than 2^32 pages of {page}"),
        )?;
        for (field, time) in [
            ("ssd.read", self.read),
            ("ssd.program", self.program),
            ("ssd.erase", self.erase),
        ] {
            require_short(field, time)?;
            require(time.0.0 > 0, field, time, "more than 0 ns")?;
        }
        Ok(())
    }

    fn check_buffers(&self) -> Result<(), FigureError> {
        let (size, unit) = (self.write_buffer.size, self.physical_block);
        // A smaller buffer could never fill one program operation.
        let least = Bytes(self.page.0 * u64::from(self.planes));
        require(
            size >= least && size.0 <= 4 << 30 && size.0.is_multiple_of(unit.0),
            "ssd.write_buffer.size",
            size,
            format!("what is programmed at a time ({least}) to 4 GiB, whole physical blocks"),
        )?;
        let Some(prefetch) = &self.prefetch else {
            return Ok(());
        };
        // `prefetch::MAX_PAGES`.
        let most = Bytes(self.page.0 * 256);
        require(
            prefetch.ahead >= self.page && prefetch.ahead <= most,
            "ssd.prefetch.ahead",
            prefetch.ahead,
            format!("a page ({}) to {most}", self.page),
        )?;
        require_count("ssd.prefetch.streams", prefetch.streams, 1..=64)
    }

    fn check_garbage(&self) -> Result<(), FigureError> {
        let Some(garbage) = &self.garbage_collection else {
            return Ok(());
        };
        let (least, most) = (Bytes(self.capacity.0 / 50), Bytes(self.capacity.0 * 4));
        require(
            garbage.spare >= least && garbage.spare <= most,
            "ssd.garbage_collection.spare",
            garbage.spare,
            format!("{least} to {most}: a fiftieth to four times the capacity"),
        )?;
        require(
            garbage.filled <= self.capacity,
            "ssd.garbage_collection.filled",
            garbage.filled,
            format!("at most the capacity ({})", self.capacity),
        )
    }
}
