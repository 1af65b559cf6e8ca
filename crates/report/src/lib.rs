//! Tables, plots and pages for people, and CSV. Numbers are formatted by [`tidegate_units::human`].
//!
//! Nothing here knows the destination of the output. A caller chooses a [`Style`] once, depending
//! on whether its terminal supports colours. Output for programs is JSON, which is made elsewhere.

#![forbid(unsafe_code)]

mod csv;
mod matrix;
mod page;
mod plot;
mod printable;
mod style;
mod table;
mod text;

pub use csv::csv_record;
pub use matrix::Matrix;
pub use page::{Page, page_style};
pub use plot::{
    Agreement, Axis, Bars, Glyphs, Intervals, Pairs, Plot, Point, Screen, Series, State, Timeline,
    Unit, svg,
};
pub use printable::{printable, printable_line};
pub use style::{Style, Tone};
pub use table::{Align, Cell, Table};
