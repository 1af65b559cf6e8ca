//! The figures of a hard disk, as a catalogue entry states them.

use crate::units::{Bandwidth, Bytes, Duration, Rotation, format_bandwidth, format_bytes};
use serde::Deserialize;

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
    /// Commands the drive accepts at a time, 1 to 256. They are served in order of arrival.
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
    /// The buffer for reads.
    pub read_ahead: ReadAheadFigures,
}

/// The `[hdd.seek]` table: times of a read's seek, settling included.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SeekFigures {
    /// To the next track. Also the skew between tracks, so the time a stream loses per track.
    pub track_to_track: Duration,
    /// Mean over all pairs of tracks.
    pub average: Duration,
    /// From the first track to the last.
    pub full_stroke: Duration,
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

/// A figure that no drive can have, or that contradicts another.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{field}: found {found}, allowed: {allowed}")]
pub struct FigureError {
    /// Path of the field within its entry, with dots.
    pub field: &'static str,
    /// What it says.
    pub found: String,
    /// What it may say.
    pub allowed: String,
}

/// Refuses `field` unless `ok`.
fn require(
    ok: bool,
    field: &'static str,
    found: impl ToString,
    allowed: impl Into<String>,
) -> Result<(), FigureError> {
    if ok {
        return Ok(());
    }
    Err(FigureError {
        field,
        found: found.to_string(),
        allowed: allowed.into(),
    })
}

const MIB: u64 = 1 << 20;
const TRILLION: u64 = 1_000_000_000_000;

impl HddFigures {
    /// Checks every figure on its own and against its neighbours. What is left can be laid out
    /// without overflow.
    pub(super) fn check(&self) -> Result<(), FigureError> {
        self.check_blocks()?;
        self.check_rates()?;
        let seconds = |field, t: Duration| require(t.0.0 <= 1_000_000_000, field, t, "at most 1 s");
        seconds("hdd.command_overhead", self.command_overhead)?;
        seconds("hdd.write_settle", self.write_settle)?;
        seconds("hdd.seek.full_stroke", self.seek.full_stroke)?;
        let one = self.seek.track_to_track;
        require(
            one.0.0 > 0,
            "hdd.seek.track_to_track",
            one,
            "more than 0 ns",
        )?;
        require(
            self.seek.full_stroke.0 > one.0,
            "hdd.seek.full_stroke",
            self.seek.full_stroke,
            format!("more than seek.track_to_track ({one})"),
        )?;
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
        )
    }

    fn check_blocks(&self) -> Result<(), FigureError> {
        let (logical, physical) = (self.logical_block, self.physical_block);
        require(
            logical.0.is_power_of_two() && (512..=64 << 10).contains(&logical.0),
            "hdd.logical_block",
            logical,
            "a power of two from 512 B to 64 KiB",
        )?;
        require(
            physical.0.is_power_of_two() && physical.0 >= logical.0 && physical.0 <= MIB,
            "hdd.physical_block",
            physical,
            format!("a power of two from logical_block ({logical}) to 1 MiB"),
        )?;
        require(
            self.capacity.0 >= MIB
                && self.capacity.0 <= 1_000 * TRILLION
                && self.capacity.0.is_multiple_of(physical.0),
            "hdd.capacity",
            format!("{} B", self.capacity.0),
            format!("1 MiB to 1000 TB, a multiple of physical_block ({physical})"),
        )?;
        let most = u64::from(u32::MAX) / logical.0 * logical.0;
        require(
            self.max_io.0 >= physical.0
                && self.max_io.0 <= most
                && self.max_io.0.is_multiple_of(logical.0),
            "hdd.max_io",
            self.max_io,
            format!("{physical} (physical_block) to {most} B, a multiple of logical_block"),
        )?;
        let depth = self.queue_depth;
        require(
            (1..=256).contains(&depth),
            "hdd.queue_depth",
            depth,
            "1 to 256",
        )
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
