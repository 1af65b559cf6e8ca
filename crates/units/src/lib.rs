//! Figures with units, as people write them: `"7200 rpm"`, `"8.9 ms"`, `"32 MiB"`, `"175 MB/s"`.
//!
//! A figure is a decimal number and a unit; the space between them may be left out. A bare number
//! is refused, because its unit would be a guess. Decimal prefixes are powers of ten, binary ones
//! powers of two: MB = 10^6 bytes, MiB = 2^20 bytes. B is a byte; there is no unit for bits.
//! Parsing is exact: a figure that is not a whole number of the base unit (byte, byte/s,
//! nanosecond, rpm) is refused instead of rounded.
//!
//! [`Rate`] is a rate in requests per second, bytes per second or both, as objectives have it;
//! [`Thousandths`] and [`Millionths`] are parts of a whole in percent.
//!
//! [`human`] formats figures for tables, rounded to three or four digits.
//!
//! With the feature `serde`, the types [`Bytes`], [`Duration`], [`Bandwidth`] and [`Rotation`]
//! deserialize such figures, so that a configuration format reports the line and the field of a
//! mistake.
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
    Bandwidth, Bytes, Duration, Quantity, Rotation, UnitError, UnitErrorKind, exact_bytes,
    exact_duration, format_bandwidth, format_bytes, format_duration, format_rotation,
    parse_bandwidth, parse_bytes, parse_duration, parse_rotation,
};
pub use percent::{Millionths, PercentError, Thousandths};
pub use rate::{OpsRate, Rate, RateError, RateErrorKind, parse_rate};
