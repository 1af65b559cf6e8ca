//! The figures of a hard disk, as a catalogue entry states them.

use crate::figures::{FigureError, TRILLION, require, require_blocks, require_short};
use serde::Deserialize;
use tidegate_core::time::Nanos;
use tidegate_units::{Bandwidth, Bytes, Duration, Rotation, format_bandwidth, format_bytes};

/// The `[hdd]` table of a catalogue entry: what a datasheet says about a drive.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HddFigures {
    /// Bytes that can be addressed.
    pub capacity: Bytes,
    /// Bytes: the unit of addresses.
    pub logical_block: Bytes,
    /// Bytes: the unit in which the medium is read and written. A write of a part of one reads
    /// it first and comes round a revolution later.
    pub physical_block: Bytes,
    /// Commands the drive accepts at a time, 1 to 256. They are served in order of arrival,
    /// unless there is an `ncq` table.
    pub queue_depth: u32,
    /// Bytes: the longest command.
    pub max_io: Bytes,
    /// Spindle speed. A revolution is rounded to a nanosecond.
    pub rotation: Rotation,
    /// Sustained rate in the outermost zone.
    pub outer_rate: Bandwidth,
    /// Sustained rate in the innermost zone.
    pub inner_rate: Bandwidth,
    /// Zones of equally many tracks, whose rates fall in equal steps; 1 to 1000.
    pub zones: u32,
    /// What the controller takes for each command before anything moves. While the mechanism
    /// is busy with earlier commands it costs nothing.
    pub command_overhead: Duration,
    /// Rate between the drive's buffer and the host.
    pub interface_rate: Bandwidth,
    /// How much longer than for a read the head settles before a write on another track: the
    /// difference between the two average seeks.
    pub write_settle: Duration,
    /// Seek times of reads.
    pub seek: SeekFigures,
    /// Surfaces. Without it the tracks of the drive lie in one line, on one surface.
    pub surfaces: Option<SurfaceFigures>,
    /// The buffer for reads.
    pub read_ahead: ReadAheadFigures,
    /// The cache for writes. Without it they go through to the medium.
    pub write_cache: Option<WriteCacheFigures>,
    /// Native command queuing. Without it commands are served in order of arrival.
    pub ncq: Option<NcqFigures>,
}

/// The `[hdd.seek]` table: times of a read's seek, settling included.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SeekFigures {
    /// To the next cylinder. Without a `surfaces` table it is also the skew between tracks,
    /// so the time a stream loses per track.
    pub track_to_track: Duration,
    /// Mean over all pairs of cylinders.
    pub average: Duration,
    /// From the first cylinder to the last.
    pub full_stroke: Duration,
}

/// The `[hdd.surfaces]` table.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SurfaceFigures {
    /// Surfaces with a head each, 1 to 64.
    pub heads: u32,
    /// To the same cylinder under another head, and the skew between the tracks of a cylinder.
    pub head_switch: Duration,
    /// From the last track of a cylinder to the first of the next: the skew between cylinders.
    /// At least `head_switch` and `seek.track_to_track`, or a stream would miss a turn.
    pub cylinder_switch: Duration,
}

/// The `[hdd.read_ahead]` table.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReadAheadFigures {
    /// Bytes of buffer for data that was read, shared equally by the segments.
    pub cache: Bytes,
    /// Streams the drive can hold apart, 1 to 1024.
    pub segments: u32,
}

/// The `[hdd.write_cache]` table.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WriteCacheFigures {
    /// Bytes of written data that wait for the medium at most.
    pub size: Bytes,
    /// Runs of adjacent bytes they may lie in, 1 to 4096.
    pub extents: u32,
    /// How long the drive waits for another command before it writes them back. It does so at
    /// once when the cache is half full.
    pub idle: Duration,
    /// Which of them goes first; `sweep` unless it says.
    #[serde(default)]
    pub order: WriteBackOrder,
}

/// In which order a drive writes its cache back.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WriteBackOrder {
    /// By address, from the outer edge inwards and again.
    #[default]
    Sweep,
    /// Each time the run for which arm and platter are in place soonest, as native command
    /// queuing does it with commands. A flush ends the wait of all of them; without one a run
    /// far away may wait long.
    Soonest,
}

/// The `[hdd.ncq]` table.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NcqFigures {
    /// A command that has waited for so long goes before all that came later.
    pub max_wait: Duration,
}

impl HddFigures {
    /// The average seek and half a turn.
    pub fn positioning(&self) -> Nanos {
        Nanos(self.seek.average.0.0 + 30_000_000_000 / self.rotation.0)
    }

    /// Checks every figure on its own and against its neighbours. What is left can be laid out
    /// without overflow.
    pub(super) fn check(&self) -> Result<(), FigureError> {
        require_blocks(
            "hdd",
            self.capacity,
            self.logical_block,
            self.physical_block,
            self.max_io,
        )?;
        let depth = self.queue_depth;
        require(
            (1..=256).contains(&depth),
            "hdd.queue_depth",
            depth,
            "1 to 256",
        )?;
        self.check_rates()?;
        require_short("hdd.command_overhead", self.command_overhead)?;
        require_short("hdd.write_settle", self.write_settle)?;
        self.check_arm()?;
        self.check_buffers()
    }

    fn check_arm(&self) -> Result<(), FigureError> {
        let (one, full) = (self.seek.track_to_track, self.seek.full_stroke);
        require_short("hdd.seek.full_stroke", full)?;
        require(
            one.0.0 > 0,
            "hdd.seek.track_to_track",
            one,
            "more than 0 ns",
        )?;
        require(
            full.0 > one.0,
            "hdd.seek.full_stroke",
            full,
            format!("more than seek.track_to_track ({one})"),
        )?;
        let Some(surfaces) = &self.surfaces else {
            return Ok(());
        };
        let heads = surfaces.heads;
        require(
            (1..=64).contains(&heads),
            "hdd.surfaces.heads",
            heads,
            "1 to 64",
        )?;
        require_short("hdd.surfaces.head_switch", surfaces.head_switch)?;
        require_short("hdd.surfaces.cylinder_switch", surfaces.cylinder_switch)?;
        let least = surfaces.head_switch.max(one);
        require(
            surfaces.cylinder_switch >= least,
            "hdd.surfaces.cylinder_switch",
            surfaces.cylinder_switch,
            format!("at least head_switch and seek.track_to_track ({least})"),
        )
    }

    fn check_buffers(&self) -> Result<(), FigureError> {
        let ReadAheadFigures { cache, segments } = self.read_ahead;
        require(
            (1..=1024).contains(&segments),
            "hdd.read_ahead.segments",
            segments,
            "1 to 1024",
        )?;
        let least = self.physical_block.0 * u64::from(segments);
        require(
            cache.0 >= least && cache.0 <= 1 << 40,
            "hdd.read_ahead.cache",
            cache,
            format!(
                "a physical block per segment ({}) to 1 TiB",
                format_bytes(least)
            ),
        )?;
        if let Some(writes) = &self.write_cache {
            let least = self.physical_block;
            require(
                writes.size >= least && writes.size.0 <= 1 << 40,
                "hdd.write_cache.size",
                writes.size,
                format!("a physical block ({least}) to 1 TiB"),
            )?;
            let extents = writes.extents;
            require(
                (1..=4096).contains(&extents),
                "hdd.write_cache.extents",
                extents,
                "1 to 4096",
            )?;
            require_short("hdd.write_cache.idle", writes.idle)?;
        }
        if let Some(ncq) = &self.ncq {
            require(
                ncq.max_wait.0.0 <= 3_600_000_000_000,
                "hdd.ncq.max_wait",
                ncq.max_wait,
                "at most 1 h",
            )?;
        }
        Ok(())
    }

    fn check_rates(&self) -> Result<(), FigureError> {
        let rpm = self.rotation;
        require(
            (60..=100_000).contains(&rpm.0),
            "hdd.rotation",
            rpm,
            "60 rpm to 100000 rpm",
        )?;
        require(
            (1..=1000).contains(&self.zones),
            "hdd.zones",
            self.zones,
            "1 to 1000",
        )?;
        let (outer, inner) = (self.outer_rate, self.inner_rate);
        require(
            (1_000_000..=1_000_000_000).contains(&outer.0),
            "hdd.outer_rate",
            outer,
            "1 MB/s to 1 GB/s",
        )?;
        require(
            inner.0 >= 1_000_000 && inner.0 <= outer.0,
            "hdd.inner_rate",
            inner,
            format!("1 MB/s to outer_rate ({outer})"),
        )?;
        require(
            inner.0 == outer.0 || self.zones > 1,
            "hdd.zones",
            self.zones,
            "more than 1 while outer_rate and inner_rate differ",
        )
    }

    /// The interface must keep up with the medium, or streams would need a model of a full
    /// buffer.
    pub(super) fn check_interface(&self, peak_rate: u64) -> Result<(), FigureError> {
        require(
            self.interface_rate.0 >= peak_rate && self.interface_rate.0 <= TRILLION,
            "hdd.interface_rate",
            self.interface_rate,
            format!(
                "{} (what the outer track delivers) to 1 TB/s",
                format_bandwidth(peak_rate)
            ),
        )
    }
}
