//! Words that every crate of Tidegate shares (requests, objectives, devices; time, which is of
//! [`tidegate_units`]), and the small allocation-free containers beside them.
#![forbid(unsafe_code)]

pub mod device;
pub mod ends;
pub mod expect;
pub mod heap;
pub mod learnt;
pub mod names;
pub mod objective;
pub mod pace;
pub mod precision;
pub mod random;
pub mod request;
pub mod seconds;
pub mod slab;

pub use tidegate_units::time;
