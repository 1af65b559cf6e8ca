//! Types that all crates of Tidegate share (requests, objectives, devices, time) and small
//! containers that do not allocate per request.
//!
//! Times, rates and other figures with units are defined in [`tidegate_units`].
#![forbid(unsafe_code)]

pub mod bandwidth_samples;
pub mod device;
pub mod expected_workload;
pub mod heap;
pub mod learnt_state;
pub mod names;
pub mod objective;
pub mod pace;
pub mod precision;
pub mod random;
pub mod request;
pub mod sequential;
pub mod slab;

pub use tidegate_units::time;
