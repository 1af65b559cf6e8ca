//! Figures of an array controller, as a catalogue entry states them.

use crate::figures::{FigureError, MIB, require, require_count, require_short};
use crate::model::Spec;
use serde::Deserialize;
use tidegate_core::time::Nanos;
use tidegate_units::{Bandwidth, Bytes, Duration};

/// Maximum number of pages in the read cache; the table of the model then takes some 100 MB.
const MOST_PAGES: u64 = 1 << 22;

/// Maximum number of dirty runs in the write cache.
const MOST_RUNS: u64 = 1 << 16;

/// Table `[controller]` of a device description: the controller in front of the device.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ControllerFigures {
    /// Maximum number of commands in the controller, 1 to 4096.
    pub queue_depth: u32,
    /// Time of the controller's processor for each command, up to 1 s. Commands take it one after
    /// another, in order of arrival.
    pub command_overhead: Duration,
    /// Rate of the host port in each direction, 1 MB/s to 100 GB/s, for data that the controller
    /// sends from its memory or takes into it.
    pub interface_rate: Bandwidth,
    /// Read cache; `None`: every read goes to the device, unless the write cache has its data.
    pub read_cache: Option<ReadCacheFigures>,
    /// Read-ahead of sequential streams into the read cache; `None`: none.
    pub read_ahead: Option<ReadAheadFigures>,
    /// Battery-backed write cache; `None`: writes go through to the device.
    pub write_cache: Option<WriteCacheFigures>,
}

/// Table `[controller.read_cache]`: memory for data that was read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReadCacheFigures {
    /// Size in bytes: whole pages, 16 to 4,194,304 of them.
    pub size: Bytes,
    /// Page size in bytes, a power of two from the device's physical block to 1 MiB: reads of the
    /// device are extended to whole pages.
    pub page: Bytes,
}

/// Table `[controller.read_ahead]`: prefetch of sequential streams.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReadAheadFigures {
    /// Distance in bytes that is prefetched beyond a stream's last read: whole I/Os, at most a
    /// quarter of the read cache.
    pub distance: Bytes,
    /// Size in bytes of a prefetch I/O: whole pages.
    pub io: Bytes,
    /// Number of streams that are recognised side by side, 1 to 1024.
    pub streams: u32,
}

/// Table `[controller.write_cache]`: battery-backed memory (NVRAM) for data that is not on the
/// device yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WriteCacheFigures {
    /// Size in bytes, 1 MiB to 1 TiB. A command is at most half as long.
    pub size: Bytes,
    /// Amount of dirty data in bytes from which on it is destaged, at most `size`.
    pub high_watermark: Bytes,
    /// Amount of dirty data in bytes at which destaging ends, at most `high_watermark`.
    pub low_watermark: Bytes,
    /// Time without a command after which dirty data is destaged below the watermarks too, up to
    /// 1 h.
    pub idle: Duration,
    /// Size in bytes of the largest destage I/O, a power of two from 4 KiB to 1 MiB. No destage
    /// crosses a multiple of it.
    pub destage_io: Bytes,
    /// Maximum number of destage I/Os with the device, 1 to 256.
    pub destage_depth: u32,
}

impl ControllerFigures {
    /// Checks the ranges of the figures, and that they suit the device behind the controller.
    ///
    /// # Errors
    /// If a figure is out of range or does not suit the device.
    pub(crate) fn check(&self, device: &Spec) -> Result<(), FigureError> {
        require_count("controller.queue_depth", self.queue_depth, 1..=4096)?;
        require_short("controller.command_overhead", self.command_overhead)?;
        let rate = self.interface_rate;
        require(
            (1_000_000..=100_000_000_000).contains(&rate.0),
            "controller.interface_rate",
            rate,
            "1 MB/s to 100 GB/s",
        )?;
        if let Some(cache) = &self.read_cache {
            cache.check(device)?;
        }
        if let Some(ahead) = &self.read_ahead {
            ahead.check(self.read_cache.as_ref())?;
        }
        if let Some(cache) = &self.write_cache {
            cache.check(device)?;
        }
        Ok(())
    }

    /// Returns the properties of a device behind this controller.
    pub(crate) fn spec(&self, device: &Spec) -> Spec {
        Spec {
            queue_depth: self.queue_depth,
            max_io: self.max_io(device),
            ..device.clone()
        }
    }

    /// Longest command in bytes: what the device takes with pages at both ends, and half of the
    /// write cache, in logical blocks.
    fn max_io(&self, device: &Spec) -> u32 {
        let mut most = u64::from(device.max_io);
        if let Some(cache) = &self.read_cache {
            most -= 2 * cache.page.0;
        }
        if let Some(cache) = &self.write_cache {
            most = most.min(cache.size.0 / 2);
        }
        let block = u64::from(device.logical_block);
        // At most the device's own, which fits 32 bits.
        (most / block * block) as u32
    }
}

impl ReadCacheFigures {
    fn check(&self, device: &Spec) -> Result<(), FigureError> {
        let (page, block) = (self.page, u64::from(device.physical_block));
        // A fetch has a page more than the command at both ends.
        let most = MIB.min(u64::from(device.max_io) / 4);
        require(
            page.0.is_power_of_two() && page.0 >= block && page.0 <= most,
            "controller.read_cache.page",
            page,
            format!(
                "a power of two from the device's physical block ({}) to {}",
                Bytes(block),
                Bytes(most)
            ),
        )?;
        let pages = self.size.0 / page.0;
        require(
            self.size.0.is_multiple_of(page.0) && (16..=MOST_PAGES).contains(&pages),
            "controller.read_cache.size",
            self.size,
            format!("16 to {MOST_PAGES} pages of {page}"),
        )
    }

    /// Number of pages.
    pub(crate) fn pages(&self) -> u32 {
        // At most `MOST_PAGES`.
        (self.size.0 / self.page.0) as u32
    }
}

impl ReadAheadFigures {
    fn check(&self, cache: Option<&ReadCacheFigures>) -> Result<(), FigureError> {
        let missing = "none without a [controller.read_cache] to read into";
        let Some(cache) = cache else {
            return require(false, "controller.read_ahead", "a table", missing);
        };
        let (page, quarter) = (cache.page, cache.size.0 / 4);
        require(
            self.io.0 >= page.0 && self.io.0.is_multiple_of(page.0) && self.io.0 <= MIB,
            "controller.read_ahead.io",
            self.io,
            format!("whole pages of {page}, at most 1 MiB"),
        )?;
        require(
            self.distance.0 >= self.io.0
                && self.distance.0.is_multiple_of(self.io.0)
                && self.distance.0 <= quarter,
            "controller.read_ahead.distance",
            self.distance,
            format!(
                "whole I/Os of {}, at most {} (a quarter of the read cache)",
                self.io,
                Bytes(quarter)
            ),
        )?;
        require_count("controller.read_ahead.streams", self.streams, 1..=1024)
    }
}

impl WriteCacheFigures {
    fn check(&self, device: &Spec) -> Result<(), FigureError> {
        require(
            (MIB..=MIB << 20).contains(&self.size.0),
            "controller.write_cache.size",
            self.size,
            "1 MiB to 1 TiB",
        )?;
        require(
            self.high_watermark <= self.size,
            "controller.write_cache.high_watermark",
            self.high_watermark,
            format!("at most size ({})", self.size),
        )?;
        require(
            self.low_watermark <= self.high_watermark,
            "controller.write_cache.low_watermark",
            self.low_watermark,
            format!("at most high_watermark ({})", self.high_watermark),
        )?;
        require(
            self.idle.0 <= Nanos(3_600 * Nanos::SECOND.0),
            "controller.write_cache.idle",
            self.idle,
            "at most 1 h",
        )?;
        let (io, least) = (
            self.destage_io,
            u64::from(device.physical_block).max(4 << 10),
        );
        let most = MIB.min(u64::from(device.max_io));
        require(
            io.0.is_power_of_two() && io.0 >= least && io.0 <= most,
            "controller.write_cache.destage_io",
            io,
            format!("a power of two from {} to {}", Bytes(least), Bytes(most)),
        )?;
        require_count(
            "controller.write_cache.destage_depth",
            self.destage_depth,
            1..=256,
        )
    }

    /// Maximum number of dirty runs: as many as 4 KiB blocks, up to 65,536.
    pub(crate) fn runs(&self) -> usize {
        (self.size.0 >> 12).min(MOST_RUNS) as usize
    }
}
