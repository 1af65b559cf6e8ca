//! Disk models: how long a device takes for each I/O, as a function of its inputs alone.
//!
//! The daemon's emulated backing store and the discrete-event simulator share these models, so
//! that what one measures can be held against the other. A model reads no clock, owns no thread
//! and opens no file: time is an argument, an I/O goes in, a completion with its time comes out.
//! Same inputs, same outputs, on every machine.
//!
//! - [`Model`] is what a driver sees of a device.
//! - [`catalogue`] holds device descriptions with their figures and builds models from them.
//! - [`hdd`] is a hard disk, [`ssd`] a flash disk, [`raid0`] an array of either; [`cap`] a token
//!   bucket in front of any.
//! - [`units`] reads and writes figures with units, here and in the server's configuration.

#![forbid(unsafe_code)]

pub mod cap;
pub mod catalogue;
mod divide;
mod figures;
pub mod hdd;
mod model;
pub mod raid0;
pub mod ssd;
pub mod units;

pub use figures::FigureError;
pub use model::{Completion, Model, ModelIo, Spec};
