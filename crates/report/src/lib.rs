//! What Tidegate shows to people: tables, plots, and numbers as people read them.
//!
//! Nothing here knows where the output goes. A caller decides once, by choosing a [`Style`],
//! whether its terminal understands colours; machines are answered in JSON elsewhere.

#![forbid(unsafe_code)]

mod csv;
mod number;
mod plot;
mod style;
mod table;

pub use csv::csv_record;
pub use number::{bytes, bytes_per_s, count, duration, exact_bytes, percent, rate};
pub use plot::{Axis, Glyphs, Plot, Point, Screen, Series, Unit, svg};
pub use style::{Style, Tone};
pub use table::{Align, Cell, Table};
