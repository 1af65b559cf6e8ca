//! The figures of a flash disk, as a catalogue entry states them.

use crate::figures::{FigureError, TRILLION, require, require_blocks, require_short};
use serde::Deserialize;
use tidegate_units::{Bandwidth, Bytes, Duration};

/// The `[ssd]` table of a catalogue entry: what a datasheet says about a drive and its flash.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SsdFigures {
    /// Bytes that can be addressed.
    pub capacity: Bytes,
    /// Bytes: the unit of addresses.
    pub logical_block: Bytes,
    /// Bytes: the unit of the mapping. A write of a part of one counts as the whole.
    pub physical_block: Bytes,
    /// Commands the drive accepts at a time, 1 to 4096.
    pub queue_depth: u32,
    /// Bytes: the longest command.
    pub max_io: Bytes,
    /// Channels between the controller and the flash, 1 to 64.
    pub channels: u32,
    /// Dies on each of them, 1 to 64. A die does one thing at a time.
    pub dies_per_channel: u32,
    /// Pages of a die that are programmed by one operation, 1 to 16.
    pub planes: u32,
    /// Bytes of a flash page: also how logical addresses are striped over the dies.
    pub page: Bytes,
    /// Pages of a block: what is erased at a time, once a plane. 1 to 65536.
    pub pages_per_block: u32,
    /// From a page to the register of its die.
    pub read: Duration,
    /// From the register to the pages.
    pub program: Duration,
    /// Erasing a block.
    pub erase: Duration,
    /// Rate between the controller and the dies of a channel.
    pub channel_rate: Bandwidth,
    /// Rate between the drive and the host.
    pub interface_rate: Bandwidth,
    /// True where the interface carries both directions at that rate at once.
    pub full_duplex: bool,
    /// How commands whose data is ready at the same time share it. Without it in order.
    #[serde(default)]
    pub interface_sharing: SharingFigure,
    /// What a read takes beside the flash, the channel and the interface.
    pub read_overhead: Duration,
    /// What every other command takes beside the interface.
    pub write_overhead: Duration,
    /// The least time between the beginnings of a read and the next command: one over the most
    /// IOPS that the controller can do.
    pub read_interval: Duration,
    /// The same for every other command.
    pub write_interval: Duration,
    /// What write-zeroes does.
    pub write_zeroes: ZeroesFigure,
    /// Memory for what was written and is not yet in the flash.
    pub write_buffer: WriteBufferFigures,
    /// Reading ahead for streams. Without it there is none.
    pub prefetch: Option<PrefetchFigures>,
    /// Reclaiming of blocks. Without it there is always an erased one.
    pub garbage_collection: Option<GarbageFigures>,
}

/// How outstanding commands share the interface.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SharingFigure {
    /// The data of one command after that of the other, in the order of their submission; a gap
    /// that is long enough is filled by a later one.
    #[default]
    InOrder,
    /// Frames of all commands that have data to be sent take turns, each direction by itself:
    /// evenly, in bytes.
    Interleaved,
}

/// What write-zeroes does.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ZeroesFigure {
    /// The range is no longer mapped, as for a discard.
    Deallocate,
    /// Zeroes are written.
    Write,
}

/// The `[ssd.write_buffer]` table.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WriteBufferFigures {
    /// Bytes it holds, whole physical blocks.
    pub size: Bytes,
    /// True where it survives a power cut, so that flush and FUA need not wait for the flash.
    pub power_loss_protection: bool,
}

/// The `[ssd.prefetch]` table.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PrefetchFigures {
    /// Bytes read ahead of a stream, at most 256 pages.
    pub ahead: Bytes,
    /// Streams followed at a time, 1 to 64.
    pub streams: u32,
}

/// The `[ssd.garbage_collection]` table.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GarbageFigures {
    /// Bytes of flash beyond the capacity.
    pub spare: Bytes,
    /// Bytes, from the first on, that hold data at time zero.
    pub filled: Bytes,
}

impl SsdFigures {
    /// Checks every figure on its own and against its neighbours.
    pub(super) fn check(&self) -> Result<(), FigureError> {
        require_blocks(
            "ssd",
            self.capacity,
            self.logical_block,
            self.physical_block,
            self.max_io,
        )?;
        let count = |field: &str, found: u32, most: u32| {
            let allowed = format!("1 to {most}");
            require((1..=most).contains(&found), field, found, allowed)
        };
        count("ssd.queue_depth", self.queue_depth, 4096)?;
        count("ssd.channels", self.channels, 64)?;
        count("ssd.dies_per_channel", self.dies_per_channel, 64)?;
        count("ssd.planes", self.planes, 16)?;
        count("ssd.pages_per_block", self.pages_per_block, 1 << 16)?;
        self.check_flash()?;
        require_short("ssd.read_overhead", self.read_overhead)?;
        require_short("ssd.write_overhead", self.write_overhead)?;
        require_short("ssd.read_interval", self.read_interval)?;
        require_short("ssd.write_interval", self.write_interval)?;
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
            page.0.is_power_of_two() && page >= unit && page.0 <= unit.0 * 32,
            "ssd.page",
            page,
            format!("a power of two from physical_block ({unit}) to 32 of them"),
        )?;
        require(
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
        let most = Bytes(self.page.0 * 256);
        require(
            prefetch.ahead >= self.page && prefetch.ahead <= most,
            "ssd.prefetch.ahead",
            prefetch.ahead,
            format!("a page ({}) to {most}", self.page),
        )?;
        require(
            (1..=64).contains(&prefetch.streams),
            "ssd.prefetch.streams",
            prefetch.streams,
            "1 to 64",
        )
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
