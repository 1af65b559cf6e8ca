//! Tables and plots as Tidegate shows them to people, and CSV. Numbers are written by
//! [`tidegate_units::human`].
//!
//! Nothing here knows where the output goes. A caller decides once, by choosing a [`Style`],
//! whether its terminal understands colours; machines are answered in JSON elsewhere.

#![forbid(unsafe_code)]

mod csv;
mod plot;
mod style;
mod table;

pub use csv::csv_record;
pub use plot::{Axis, Glyphs, Plot, Point, Screen, Series, Unit, svg};
pub use style::{Style, Tone};
pub use table::{Align, Cell, Table};
