//! Chunks: the points of one VM or device in one block, by columns.
//!
//! ```text
//!   chunk:   points, columns, column..., details, detail...
//!   column:  id (bit 7: one value for all points), width (bit 7: differences), [scale], first or
//!            least value, packed numbers
//!   detail:  histogram, number of VMs waited for, (name, time)...
//! ```
//!
//! Counts of consecutive seconds differ by some per cent, so a column stores its least value and
//! what each value exceeds it by, in as few bits as the largest takes; or differences between
//! neighbours, where those are smaller. Values are divided by their greatest common divisor first:
//! bytes are mostly multiples of 4 KiB. A column of zeroes is left out.

use tidegate_packing::{packed_len, put_number, put_packed, unzigzag, zigzag};

use crate::budget::{BEHIND_MAX, COARSE_WINDOWS};
use crate::column::{Column, Values};
use crate::latency::Latency;
use crate::reader::{Damage, Reader, WIDTH_MAX};

/// Most points of a chunk.
pub const POINTS_MAX: usize = 64;
const _: () = assert!(COARSE_WINDOWS <= POINTS_MAX);

/// Largest value that is stored; larger ones are stored as this one, so that a chunk of one point
/// has a largest size. In microseconds it is 17 years, in bytes 512 TiB.
pub const VALUE_MAX: u64 = (1 << 49) - 1;

/// Columns of time, which are stored like those of [`Column`].
const END_ID: u8 = 126;
const SPAN_ID: u8 = 127;
/// Mark of a column whose value is that of all points together, in its id. The last point gets it.
const OF_CHUNK: u8 = 0x80;
/// Mark of a column that stores differences, in the byte of its width.
const DIFFERENCES: u8 = 0x80;

/// Point of a series.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Point {
    /// End of the interval in milliseconds since 1970, by the wall clock.
    pub end_ms: u64,
    /// Time of the interval in which the series was observed, in milliseconds.
    pub span_ms: u64,
    /// Values of all columns.
    pub values: Values,
}

/// Parts of an interval that are no columns.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Detail {
    /// Latencies.
    pub latency: Latency,
    /// VMs that were waited for, by index of the block's names, with the time in microseconds.
    pub behind: Vec<(usize, u64)>,
}

/// Points of a series in one block. There is one detail for all points, or one for each.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Chunk {
    /// Points, the oldest first.
    pub points: Vec<Point>,
    /// Details.
    pub details: Vec<Detail>,
}

impl Chunk {
    /// Encodes the chunk. `base_ms`: begin of its block.
    ///
    /// # Panics
    /// If it has no points or more than [`POINTS_MAX`], or a wrong number of details.
    pub fn encode(&self, base_ms: u64) -> Vec<u8> {
        let count = self.points.len();
        assert!(
            (1..=POINTS_MAX).contains(&count),
            "a chunk of {count} points"
        );
        let details = self.details.len();
        assert!(
            details == 1 || details == count,
            "{details} details of {count} points"
        );
        let mut columns = Vec::new();
        let ends = self
            .points
            .iter()
            .map(|p| zigzag(p.end_ms.wrapping_sub(base_ms) as i64));
        columns.push((END_ID, ends.collect::<Vec<_>>()));
        columns.push((SPAN_ID, self.points.iter().map(|p| p.span_ms).collect()));
        for column in Column::ALL {
            let values = self.points.iter().map(|p| p.values[column].min(VALUE_MAX));
            // One detail for several points: a window.
            if column.is_by_window() && details < count {
                let sum = values.fold(0, u64::saturating_add).min(VALUE_MAX);
                // Equal values take as little as one.
                columns.push((column.id() | OF_CHUNK, vec![sum; count]));
            } else {
                columns.push((column.id(), values.collect()));
            }
        }
        columns.retain(|(_, values)| values.iter().any(|&value| value != 0));
        let mut out = vec![count as u8, columns.len() as u8];
        for (id, values) in &columns {
            out.push(*id);
            encode_column(&mut out, values);
        }
        put_number(details as u64, &mut out);
        for detail in &self.details {
            detail.latency.encode(&mut out);
            put_number(detail.behind.len() as u64, &mut out);
            for &(name, waited) in &detail.behind {
                put_number(name as u64, &mut out);
                put_number(waited.min(VALUE_MAX), &mut out);
            }
        }
        out
    }

    /// Decodes a chunk of a block that begins at `base_ms` and has `names` names.
    ///
    /// # Errors
    /// If the bytes are not what [`Chunk::encode`] writes.
    pub fn decode(bytes: &[u8], base_ms: u64, names: usize) -> Result<Chunk, Damage> {
        let mut reader = Reader::new(bytes);
        let count = reader.at_most(POINTS_MAX, "a chunk has too many points")?;
        if count == 0 {
            return Err(Damage("a chunk has no points"));
        }
        let mut points = vec![
            Point {
                end_ms: base_ms,
                ..Point::default()
            };
            count
        ];
        let columns = reader.at_most(usize::from(u8::MAX), "a chunk has too many columns")?;
        for _ in 0..columns {
            let id = reader.byte()?;
            let values = decode_column(&mut reader, count)?;
            let each = points.iter_mut().zip(values);
            match (id, Column::of_id(id)) {
                (END_ID, _) => each.for_each(|(point, value)| {
                    point.end_ms = base_ms.wrapping_add(unzigzag(value) as u64);
                }),
                (SPAN_ID, _) => each.for_each(|(point, value)| point.span_ms = value),
                (_, Some(column)) => each.for_each(|(point, v)| point.values[column] = v),
                (_, None) => {
                    let of_chunk = (id & OF_CHUNK != 0).then(|| Column::of_id(id & !OF_CHUNK));
                    // Other columns are of a newer build.
                    if let Some(column) = of_chunk.flatten()
                        && let Some((point, value)) = each.last()
                    {
                        point.values[column] = value;
                    }
                }
            }
        }
        let details = reader.at_most(count, "a chunk has too many details")?;
        if details != 1 && details != count {
            return Err(Damage("a chunk has a wrong number of details"));
        }
        let details = (0..details).map(|_| decode_detail(&mut reader, names));
        let details = details.collect::<Result<_, _>>()?;
        if !reader.is_empty() {
            return Err(Damage("a chunk is too long"));
        }
        Ok(Chunk { points, details })
    }
}

fn decode_detail(reader: &mut Reader<'_>, names: usize) -> Result<Detail, Damage> {
    let latency = Latency::decode(reader)?;
    let count = reader.at_most(BEHIND_MAX, "too many VMs were waited for")?;
    let behind = (0..count).map(|_| {
        let name = reader.number()?;
        let name = usize::try_from(name).ok().filter(|name| *name < names);
        Ok((name.ok_or(Damage("a name is not there"))?, reader.number()?))
    });
    let behind = behind.collect::<Result<_, _>>()?;
    Ok(Detail { latency, behind })
}

/// Number of bits that a value takes.
fn width(value: u64) -> u32 {
    u64::BITS - value.leading_zeros()
}

fn greatest_common_divisor(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// Appends a column of values that are not all zero.
fn encode_column(out: &mut Vec<u8>, values: &[u64]) {
    let (first, least) = (values[0], values.iter().copied().min().unwrap_or(0));
    if values.iter().all(|&value| value == first) {
        out.push(0);
        return put_number(first, out);
    }
    // Values differ, so one of them is not zero and the divisor is not either.
    let scale = values.iter().copied().fold(0, greatest_common_divisor);
    let scaled = values.iter().map(|value| value / scale);
    let least = least / scale;
    let differences = || {
        let later = scaled.clone().skip(1);
        (scaled.clone().zip(later)).map(|(a, b)| zigzag(b.wrapping_sub(a) as i64))
    };
    let above = || {
        scaled
            .clone()
            .map(|value| (value - least).min((1 << WIDTH_MAX) - 1))
    };
    let wide = width(above().max().unwrap_or(0));
    let narrow = width(differences().max().unwrap_or(0));
    let by_differences = narrow <= WIDTH_MAX
        && packed_len(values.len() - 1, narrow) < packed_len(values.len(), wide);
    if by_differences {
        out.push(narrow as u8 | DIFFERENCES);
        put_number(scale, out);
        put_number(first / scale, out);
        put_packed(differences(), narrow, out);
    } else {
        out.push(wide as u8);
        put_number(scale, out);
        put_number(least, out);
        put_packed(above(), wide, out);
    }
}

fn decode_column(reader: &mut Reader<'_>, count: usize) -> Result<Vec<u64>, Damage> {
    let form = reader.byte()?;
    if form == 0 {
        return Ok(vec![reader.number()?; count]);
    }
    let (scale, first) = (reader.number()?, reader.number()?);
    let width = u32::from(form & !DIFFERENCES);
    if form & DIFFERENCES == 0 {
        let above = reader.packed(count, width)?;
        return Ok(above
            .map(|above| first.wrapping_add(above).wrapping_mul(scale))
            .collect());
    }
    let mut value = first;
    let mut values = vec![first.wrapping_mul(scale)];
    for difference in reader.packed(count - 1, width)? {
        value = value.wrapping_add(unzigzag(difference) as u64);
        values.push(value.wrapping_mul(scale));
    }
    Ok(values)
}
