//! Figures of a hard disk, as a catalogue entry states them.

use crate::figures::{
    FigureError, TRILLION, no_bytes, no_time, require, require_blocks, require_count, require_short,
};
use serde::Deserialize;
use tidegate_core::time::Nanos;
use tidegate_units::{Bandwidth, Bytes, Duration, Rotation, format_bandwidth, format_bytes};

/// Table `[hdd]` of a catalogue entry: the figures of a drive's datasheet.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HddFigures {
    /// Addressable bytes.
    pub capacity: Bytes,
    /// Logical block size in bytes: the unit of addresses.
    pub logical_block: Bytes,
    /// Physical block size in bytes: the unit in which the medium is read and written. A write that
    /// covers one in part reads it first and writes it a revolution later.
    pub physical_block: Bytes,
    /// Maximum number of commands in the drive, 1 to 256. They are served in order of arrival
    /// unless there is an `ncq` table.
    pub queue_depth: u32,
    /// Longest command in bytes.
    pub max_io: Bytes,
    /// Spindle speed; the time of a revolution is rounded to a nanosecond.
    pub rotation: Rotation,
    /// Sustained rate of the outermost zone, track and cylinder switches included.
    pub outer_rate: Bandwidth,
    /// Sustained rate of the innermost zone, track and cylinder switches included.
    pub inner_rate: Bandwidth,
    /// Number of zones, 1 to 1000. All have as many cylinders; their rates fall in equal steps.
    pub zones: u32,
    /// Time of the controller for each command before the mechanism starts. It overlaps with
    /// earlier commands that the mechanism is busy with.
    pub command_overhead: Duration,
    /// Rate of the interface between the drive's buffer and the host.
    pub interface_rate: Bandwidth,
    /// Extra settling time of a write over a read on another track: the difference between a
    /// datasheet's average seeks for writes and for reads.
    pub write_settle: Duration,
    /// Seek times of reads.
    pub seek: SeekFigures,
    /// Surfaces; `None`: all tracks of the drive lie on one surface.
    pub surfaces: Option<SurfaceFigures>,
    /// Read buffer.
    pub read_ahead: ReadAheadFigures,
    /// Write cache; `None`: writes go through to the medium.
    pub write_cache: Option<WriteCacheFigures>,
    /// Native command queuing; `None`: commands are served in order of arrival.
    pub ncq: Option<NcqFigures>,
}

/// Table `[hdd.seek]`: seek times of reads, settling included.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SeekFigures {
    /// Seek to the next cylinder. Without a `surfaces` table it is also the skew between tracks,
    /// that is, the time that a stream loses per track.
    pub track_to_track: Duration,
    /// Mean seek over all pairs of cylinders, as datasheets state it.
    pub average: Duration,
    /// Seek from the first cylinder to the last.
    pub full_stroke: Duration,
}

/// Table `[hdd.surfaces]`: heads, and the times of switching between tracks.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SurfaceFigures {
    /// Number of surfaces, each with its own head, 1 to 64.
    pub heads: u32,
    /// Time of switching to another head on the same cylinder; also the skew between tracks of a
    /// cylinder.
    pub head_switch: Duration,
    /// Time from the last track of a cylinder to the first of the next; also the skew between
    /// cylinders. At least `head_switch` and `seek.track_to_track`, or a stream would miss a
    /// revolution at each cylinder.
    pub cylinder_switch: Duration,
}

/// Table `[hdd.read_ahead]`: the buffer for data that was read.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReadAheadFigures {
    /// Buffer size in bytes, divided equally among the segments.
    pub cache: Bytes,
    /// Number of segments, and therefore of streams that are kept apart, 1 to 1024.
    pub segments: u32,
    /// Bytes that the head reads on behind a sequential read before the arm turns to another
    /// command, at most a segment; zero by default.
    #[serde(default = "no_bytes")]
    pub minimum: Bytes,
}

/// Table `[hdd.write_cache]`: the buffer for data that is not on the medium yet.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WriteCacheFigures {
    /// Maximum number of cached bytes that wait for the medium.
    pub size: Bytes,
    /// Maximum number of extents (runs of adjacent bytes) in the cache, 1 to 4096.
    pub extents: u32,
    /// Time without a command after which the drive writes the cache back. A cache that is half
    /// full is written back at once.
    pub idle: Duration,
    /// Order of writing back; `sweep` by default.
    #[serde(default)]
    pub order: WriteBackOrder,
}

/// Order in which a drive writes its cache back.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WriteBackOrder {
    /// C-LOOK: by ascending address, then again from the outer edge.
    #[default]
    Sweep,
    /// Shortest positioning time first: the extent that arm and platter reach soonest, as native
    /// command queuing chooses commands. Without a flush, which writes everything, a distant extent
    /// may wait long.
    Soonest,
}

/// Table `[hdd.ncq]`: native command queuing.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NcqFigures {
    /// Age at which a command goes before all that arrived later, at most 1 h; prevents starvation.
    pub max_wait: Duration,
    /// Time of positioning that a second of waiting is worth in the choice, at most 1 s; zero by
    /// default: shortest positioning time first. (Aged shortest access time first, Jacobson and
    /// Wilkes, HPL-CSP-91-7, 1991.)
    #[serde(default = "no_time")]
    pub ageing: Duration,
}

impl HddFigures {
    /// Returns the mean time of positioning for a random access: the average seek and half a
    /// revolution.
    pub fn positioning(&self) -> Nanos {
        // Half a minute in nanoseconds, divided by revolutions per minute: half a revolution.
        Nanos(self.seek.average.0.0 + 30_000_000_000 / self.rotation.0)
    }

    /// Checks every figure alone and against the others, so that
    /// [`Geometry`](super::geometry::Geometry) can be laid out without overflow.
    pub(super) fn check(&self) -> Result<(), FigureError> {
        require_blocks(
            "hdd",
            self.capacity,
            self.logical_block,
            self.physical_block,
            self.max_io,
        )?;
        require_count("hdd.queue_depth", self.queue_depth, 1..=256)?;
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
            // The fit of the seek curve needs a rise.
            full.0 > one.0,
            "hdd.seek.full_stroke",
            full,
            format!("more than seek.track_to_track ({one})"),
        )?;
        let Some(surfaces) = &self.surfaces else {
            return Ok(());
        };
        require_count("hdd.surfaces.heads", surfaces.heads, 1..=64)?;
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
        let ReadAheadFigures {
            cache,
            segments,
            minimum,
        } = self.read_ahead;
        require_count("hdd.read_ahead.segments", segments, 1..=1024)?;
        // A segment holds at least one block.
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
        let segment = cache.0 / u64::from(segments) / self.physical_block.0 * self.physical_block.0;
        require(
            minimum.0 <= segment,
            "hdd.read_ahead.minimum",
            minimum,
            format!("at most a segment ({})", format_bytes(segment)),
        )?;
        if let Some(writes) = &self.write_cache {
            let least = self.physical_block;
            require(
                writes.size >= least && writes.size.0 <= 1 << 40,
                "hdd.write_cache.size",
                writes.size,
                format!("a physical block ({least}) to 1 TiB"),
            )?;
            require_count("hdd.write_cache.extents", writes.extents, 1..=4096)?;
            require_short("hdd.write_cache.idle", writes.idle)?;
        }
        if let Some(ncq) = &self.ncq {
            require(
                ncq.max_wait.0.0 <= 3_600_000_000_000,
                "hdd.ncq.max_wait",
                ncq.max_wait,
                "at most 1 h",
            )?;
            require_short("hdd.ncq.ageing", ncq.ageing)?;
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
        require_count("hdd.zones", self.zones, 1..=1000)?;
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
            // One zone has one rate.
            inner.0 == outer.0 || self.zones > 1,
            "hdd.zones",
            self.zones,
            "more than 1 while outer_rate and inner_rate differ",
        )
    }

    /// Checks that the interface is at least as fast as the medium, `peak_rate` in bytes per
    /// second. A slower one would let the read buffer fill up, which is not modelled.
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
