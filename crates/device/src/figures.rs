//! Checks that the figures of all models share, and the error for a figure that fails them.

use core::ops::RangeInclusive;
use tidegate_core::time::Nanos;
use tidegate_units::{Bytes, Duration};

pub(crate) const MIB: u64 = 1 << 20;
pub(crate) const TRILLION: u64 = 1_000_000_000_000;

/// Refusal of a figure that no device can have, or that contradicts another.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{field}: found {found}, allowed: {allowed}")]
pub struct FigureError {
    /// Path of the field in its description, with dots.
    pub field: String,
    /// Value that was found.
    pub found: String,
    /// Values that are allowed.
    pub allowed: String,
}

impl FigureError {
    /// Returns the error with its field moved into an enclosing table.
    pub(crate) fn within(self, table: &str) -> FigureError {
        FigureError {
            field: format!("{table}.{}", self.field),
            ..self
        }
    }
}

/// Refuses `field` unless `ok` is true.
pub(crate) fn require(
    ok: bool,
    field: &str,
    found: impl ToString,
    allowed: impl Into<String>,
) -> Result<(), FigureError> {
    if ok {
        return Ok(());
    }
    Err(FigureError {
        field: field.to_owned(),
        found: found.to_string(),
        allowed: allowed.into(),
    })
}

/// Refuses a number of things, such as commands or heads, out of `range`.
pub(crate) fn require_count(
    field: &str,
    found: u32,
    range: RangeInclusive<u32>,
) -> Result<(), FigureError> {
    let allowed = format!("{} to {}", range.start(), range.end());
    require(range.contains(&found), field, found, allowed)
}

/// Returns zero, the value of times that an entry leaves out.
pub(crate) fn no_time() -> Duration {
    Duration(Nanos::ZERO)
}

/// Returns zero, the value of sizes that an entry leaves out.
pub(crate) fn no_bytes() -> Bytes {
    Bytes(0)
}

/// Refuses a duration above 1 s: no step of a disk takes longer, and sums then fit 64 bits.
pub(crate) fn require_short(field: &str, found: Duration) -> Result<(), FigureError> {
    require(found.0.0 <= 1_000_000_000, field, found, "at most 1 s")
}

/// Checks the addressing figures that every model has; `table` is the table that contains them.
pub(crate) fn require_blocks(
    table: &str,
    capacity: Bytes,
    logical: Bytes,
    physical: Bytes,
    max_io: Bytes,
) -> Result<(), FigureError> {
    let field = |name: &str| format!("{table}.{name}");
    require(
        logical.0.is_power_of_two() && (512..=64 << 10).contains(&logical.0),
        &field("logical_block"),
        logical,
        "a power of two from 512 B to 64 KiB",
    )?;
    require(
        physical.0.is_power_of_two() && physical.0 >= logical.0 && physical.0 <= MIB,
        &field("physical_block"),
        physical,
        format!("a power of two from logical_block ({logical}) to 1 MiB"),
    )?;
    require(
        capacity.0 >= MIB
            && capacity.0 <= 1_000 * TRILLION
            && capacity.0.is_multiple_of(physical.0),
        &field("capacity"),
        // Exact: a rounded figure would not show by what the multiple is missed.
        format!("{} B", capacity.0),
        format!("1 MiB to 1000 TB, a multiple of physical_block ({physical})"),
    )?;
    // Lengths of I/Os are 32-bit, in whole logical blocks.
    let most = u64::from(u32::MAX) / logical.0 * logical.0;
    require(
        max_io.0 >= physical.0 && max_io.0 <= most && max_io.0.is_multiple_of(logical.0),
        &field("max_io"),
        max_io,
        format!("{physical} (physical_block) to {most} B, a multiple of logical_block"),
    )
}
