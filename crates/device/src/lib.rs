//! Disk models: how long a device takes for each I/O, as a function of its inputs alone.
//!
//! The daemon's emulated backing store and the discrete-event simulator share these models, so
//! that what one measures can be held against the other. A model reads no clock, owns no thread
//! and opens no file: time is an argument, an I/O goes in, a completion with its time comes out.
//! Same inputs, same outputs, on every machine.
//!
//! A model settles as much as it can when an I/O is submitted and nothing that a later I/O could
//! still change: a hard disk that reorders its queue decides one operation at a time, a flash disk
//! books its dies, channels and interface ahead, an array looks ahead as far as its own next end.
//! So a model knows when its next I/O ends. The exception is a flash disk whose commands share the
//! interface: later commands delay ends there, so the time that it names is when to look, and
//! nothing may have ended by then. The times at which a driver looks never change what a model
//! does.
//!
//! - [`Model`] is what a driver sees of a device.
//! - [`catalogue`] holds device descriptions with their figures and builds models from them.
//! - [`hdd`] is a hard disk, [`ssd`] a flash disk, [`raid0`] an array of either; [`cap`] a token
//!   bucket in front of any.

#![forbid(unsafe_code)]

pub mod cap;
pub mod catalogue;
mod divide;
mod figures;
pub mod hdd;
mod model;
pub mod raid0;
pub mod ssd;

pub use figures::FigureError;
pub use model::{Completion, Model, ModelIo, Spec};
