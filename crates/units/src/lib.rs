//! Figures with units, as people write them: `"7200 rpm"`, `"8.9 ms"`, `"32 MiB"`, `"175 MB/s"`.
//!
//! A figure is a decimal number and a unit; the space between them may be left out. A bare
//! number is refused, because nobody can tell what was meant. Decimal prefixes are powers of
//! ten, binary ones powers of two: MB = 10^6 bytes, MiB = 2^20 bytes; B is a byte and there is no
//! unit for bits. Everything is exact: a figure that is not a whole number of the base unit
//! (byte, byte/s, nanosecond, rpm) is refused rather than rounded.
//!
//! [`Rate`] is operations a second, bytes a second or both, as objectives have it;
//! [`Thousandths`] and [`Millionths`] are parts of a whole in percent.
//!
//! Figures in tables are rounded to three or four digits by [`human`].
//!
//! The types [`Bytes`], [`Duration`], [`Bandwidth`] and [`Rotation`] deserialize such figures with
//! the feature `serde`, so that a configuration format reports the line and the field of a bad one.
//!
//! ```
//! use tidegate_units::{format_bytes, parse_bytes, parse_duration, time::Nanos};
//!
//! assert_eq!(parse_bytes("32 MiB"), Ok(32 << 20));
//! assert_eq!(format_bytes(32 << 20), "32 MiB");
//! assert_eq!(parse_duration("8.9 ms"), Ok(Nanos::from_micros(8_900)));
//! ```
#![forbid(unsafe_code)]

mod figure;
pub mod human;
mod percent;
mod rate;
pub mod time;

pub use figure::{
    Bandwidth, Bytes, Duration, Quantity, Rotation, UnitError, UnitErrorKind, format_bandwidth,
    format_bytes, format_duration, format_rotation, parse_bandwidth, parse_bytes, parse_duration,
    parse_rotation,
};
pub use percent::{Millionths, PercentError, Thousandths};
pub use rate::{OpsRate, Rate, RateError, RateErrorKind, parse_rate};
